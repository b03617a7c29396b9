"""The report: draws what an Evaluation holds as one HTML file; never calculates."""

from confide.report.draw import Canvas, Scale, tick_text, ticks
from confide.report.gather import gather, side_by_side
from confide.report.page import notebook_view, render_report, verdict_sentence, write_report
from confide.report.static import FILLS, PALETTE, STROKES, section_drawings, write_figures
from confide.report.words import shorten

__all__ = [
    "gather",
    "notebook_view",
    "render_report",
    "section_drawings",
    "side_by_side",
    "verdict_sentence",
    "write_figures",
    "write_report",
]
