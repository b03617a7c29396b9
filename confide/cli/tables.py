"""Plain text tables for people, JSON for machines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from confide.core.files import plain


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns aligned by width, the first to the left, the rest to the right."""
    widths = [max(len(str(row[k])) for row in [header, *rows]) for k in range(len(header))]

    def line(row: Sequence[str]) -> str:
        cells = [f"{row[0]:<{widths[0]}}", *(f"{c:>{w}}" for c, w in zip(row[1:], widths[1:], strict=True))]
        return "  ".join(cells).rstrip()

    return "\n".join([line(header), line(["-" * w for w in widths]), *(line(row) for row in rows)])


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    print(json.dumps(plain(value), indent=1, ensure_ascii=False, allow_nan=False))
