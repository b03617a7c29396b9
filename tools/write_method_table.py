"""Renew the table of methods in the README from the registries.

python tools/write_method_table.py README.md
"""

from __future__ import annotations

import sys
from pathlib import Path

from confide.cli.list import FAMILIES, registry_of
from confide.files.formats import write_text
from confide.registry import Method, MethodSpec

START, END = "<!-- methods: made by tools/write_method_table.py -->", "<!-- /methods -->"


def by_word(method: Method[MethodSpec]) -> str:
    """Alphabetical: the order of registration depends on who was imported first."""
    return method.word


def method_table() -> str:
    """One row per family: its methods by name."""
    lines = ["| family | methods |", "|---|---|"]
    for family in FAMILIES:
        words = " · ".join(f"`{method.word}`" for method in sorted(registry_of(family), key=by_word))
        lines.append(f"| {family} | {words} |")
    return "\n".join(lines)


def renewed(text: str) -> str:
    """The text with what stands between the markers replaced."""
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n{method_table()}\n{END}{after}"


if __name__ == "__main__":
    page = Path(sys.argv[1])
    write_text(page, renewed(page.read_text(encoding="utf-8")))
