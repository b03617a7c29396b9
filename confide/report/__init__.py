"""The report: draws what an Evaluation holds as one HTML file; never calculates."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from confide.report.draw import Canvas, Scale, tick_text, ticks
from confide.report.gather import gather, side_by_side
from confide.report.page import notebook_view, render_report, verdict_sentence, write_report
from confide.report.static import FILLS, PALETTE, STROKES, section_drawings, write_figures
from confide.report.words import shorten

if TYPE_CHECKING:
    from confide.report.score_page import write_score_page

__all__ = [
    "FILLS",
    "PALETTE",
    "STROKES",
    "Canvas",
    "Scale",
    "gather",
    "notebook_view",
    "render_report",
    "section_drawings",
    "shorten",
    "side_by_side",
    "tick_text",
    "ticks",
    "verdict_sentence",
    "write_figures",
    "write_report",
    "write_score_page",
]


def __getattr__(name: str) -> Any:
    # The page of `confide score` brings the difficulty methods, which a report does not need.
    if name == "write_score_page":
        return import_module("confide.report.score_page").write_score_page
    raise AttributeError(f"module 'confide.report' has no attribute '{name}'")
