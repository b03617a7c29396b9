"""The report: draws what an Evaluation holds as one HTML file; never calculates."""

from confide.report.write import notebook_view, render_report, write_report

__all__ = ["notebook_view", "render_report", "write_report"]
