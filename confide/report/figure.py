"""A figure of the report: claim, measure, drawings, sentence for those who cannot see it, and its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

MOST_ROWS = 500


@dataclass(frozen=True)
class Table:
    """The numbers behind a chart, as text."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Figure:
    """`svg` fits a phone's column; `wide` is drawn for large pages and shown there instead."""

    name: str  # of its file, the same for every evaluation
    title: str | Markup
    subtitle: str | Markup
    svg: Markup
    table: Table | None = None
    wide: Markup | None = None
    note: str | Markup = ""
    level: int = 3
    key: str = ""  # which variant of a switch this is: "width-15"


@dataclass(frozen=True)
class Empty:
    """In place of a section or a figure that has no data: what is missing, why, and the command that mends it."""

    title: str
    why: str
    command: str = ""


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A data table from any sequences; beyond some rows it says how many are left out."""
    shown = [tuple(row) for row in rows[:MOST_ROWS]]
    if len(rows) > MOST_ROWS:
        shown.append((f"and {len(rows) - MOST_ROWS:,} more rows",))
    return Table(tuple(header), tuple(shown))
