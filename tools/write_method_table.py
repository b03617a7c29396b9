"""Renew the tables that pages hold between markers, from the registries: methods of every family, metrics in detail.

python tools/write_method_table.py docs/methods.md docs/metrics.md
"""

from __future__ import annotations

import sys
from pathlib import Path

from confide.cli.list import FAMILIES, registry_of
from confide.files.formats import write_text
from confide.metrics import explain, table_words


def method_table() -> str:
    """One row per family: its methods by name."""
    lines = ["| family | methods |", "|---|---|"]
    for family in FAMILIES:
        lines.append(f"| {family} | {' · '.join(f'`{word}`' for word in registry_of(family).names())} |")
    return "\n".join(lines)


def metric_table() -> str:
    """One row per metric: what a report calls it, in which unit, which direction is good, and what it means."""
    lines = ["| word | title | unit | better | meaning |", "|---|---|---|---|---|"]
    for word, info in explain(table_words("all")).items():
        lines.append(f"| `{word}` | {info.title} | {info.unit} | {info.better} | {info.meaning} |")
    return "\n".join(lines)


TABLES = {"methods": method_table, "metrics": metric_table}


def renewed(text: str) -> str:
    """The text with what stands between the markers of each table replaced."""
    for name, table in TABLES.items():
        start, end = f"<!-- {name}: made by tools/write_method_table.py -->", f"<!-- /{name} -->"
        if start in text:
            before, _, rest = text.partition(start)
            text = f"{before}{start}\n{table()}\n{end}{rest.partition(end)[2]}"
    return text


if __name__ == "__main__":
    for page in map(Path, sys.argv[1:]):
        write_text(page, renewed(page.read_text(encoding="utf-8")))
