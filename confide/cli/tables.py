"""Plain text tables for people, JSON for machines."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

NUMBER = re.compile(r"[<>±+−-]? ?\.?\d|-?$|nan|inf")


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns aligned by width: the first and columns of words to the left, numbers to the right."""
    widths = [max(len(str(row[k])) for row in [header, *rows]) for k in range(len(header))]
    sides = ["<", *(">" if all(NUMBER.match(str(row[k])) for row in rows) else "<" for k in range(1, len(header)))]

    def line(row: Sequence[str]) -> str:
        return "  ".join(f"{c:{side}{w}}" for c, side, w in zip(row, sides, widths, strict=True)).rstrip()

    return "\n".join([line(header), line(["-" * w for w in widths]), *(line(row) for row in rows)])


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    from confide.core.files import plain  # brings torch, and --help needs none

    print(json.dumps(plain(value), indent=1, ensure_ascii=False, allow_nan=False))
