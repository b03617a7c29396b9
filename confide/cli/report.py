"""`confide report RUN_OR_EVALUATION ...`: one HTML file, and static figures."""

from __future__ import annotations

import argparse

from confide.cli.shared import print_json

EXAMPLE = (
    "  confide report runs/demo -o report.html\n"
    "  confide report runs/first runs/second/evaluation.json -o both.html --figures figures"
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "sources",
        nargs="+",
        metavar="RUN_OR_EVALUATION",
        help="a run folder or an evaluation.json; several stand side by side",
    )
    parser.add_argument("-o", "--out", default="report.html", help="the HTML file to write (default: report.html)")
    parser.add_argument("--figures", metavar="DIR", help="also write every chart as SVG and PNG into DIR")


def run(args: argparse.Namespace) -> None:
    from confide import report

    evaluation = report.gather(args.sources)
    figures = report.write_figures(evaluation, args.figures) if args.figures else []
    page = report.write_report(evaluation, args.out)
    if args.json:
        print_json({"report": page, "bytes": page.stat().st_size, "figures": figures, "warnings": evaluation.warnings})
        return
    print(report.verdict_sentence(evaluation))
    for warning in evaluation.warnings:
        print(f"note: {warning}")
    if figures:
        print(f"figures: {args.figures} ({len(figures)} files)")
    print(f"report: {page}")
