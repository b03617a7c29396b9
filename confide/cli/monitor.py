"""`confide monitor WATCH`: a watch over predictions in the field, with alarms that cron can read."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from confide.cli.shared import NOT_KEPT, load_predictions, print_json, text_table

if TYPE_CHECKING:
    from confide.monitor import BatchReport, Monitor

EXAMPLE = (
    "  confide monitor watch.jsonl --reference val.npz --risk 0.05\n"
    "  confide monitor watch.jsonl --predictions week1.parquet --name 'week 1'\n"
    "  confide monitor watch.jsonl --labels audited.csv --page watch.html   # exit status 3 where an alarm was raised"
)


def configure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("watch", metavar="WATCH", help="the file of the watch; the first call makes it, with --reference")
    add("--reference", metavar="FILE", help="labelled predictions of the time when all was well")
    add("--risk", type=float, help="the error rate that was promised")
    add("--point", metavar="FILE", help="an operating point: what it accepts is watched, at the risk it promised")
    add("--delta", type=float, default=0.05, help="how likely a false alarm may be, ever (default: 0.05)")
    add("--most-weight", type=float, default=1.0, help="the largest weight that labels may carry (default: 1)")
    add("--cells", nargs="+", default=[], metavar="FILE", help="labelled predictions of shifted samples, one a cell")
    add("--predictions", metavar="FILE", help="a new batch, with ids; labels are not needed")
    add("--name", help="of the batch")
    add("--labels", metavar="FILE", help="labels that came later: columns id, label, and weight where there is one")
    add("--page", metavar="FILE", help="write the time lines as one HTML file")


def run(args: argparse.Namespace) -> int:
    from confide.checks import InputError
    from confide.monitor import Monitor, write_page
    from confide.results import OperatingPoint

    if args.reference is None and (args.risk is not None or args.point or args.cells):
        raise InputError("--risk, --point and --cells belong to the start of a watch; give them with --reference")
    watch = Monitor(
        load_predictions(args.reference) if args.reference else None,
        risk=args.risk,
        delta=args.delta,
        file=args.watch,
        most_weight=args.most_weight,
        point=OperatingPoint.load(args.point) if args.point else None,
        cells=[load_predictions(path) for path in args.cells],
    )
    if args.predictions:
        watch.update(load_predictions(args.predictions), args.name)
    if args.labels:
        watch.read_labels(args.labels)
    if args.page:
        write_page(watch, args.page)
    if args.json:
        summary = {"batches": [asdict(b) for b in watch.batches], "alarms": [asdict(a) for a in watch.alarms]}
        print_json({**summary, "waiting": watch.waiting})
    else:
        print(watch_text(watch))
        if args.page:
            print(f"page: {args.page}")
    return NOT_KEPT if watch.alarmed else 0


def watch_text(watch: Monitor) -> str:
    """Batches and alarms as a table for the terminal."""
    from confide.monitor.page import waiting

    rows = [batch_row(b) for b in watch.batches[-20:]]
    header = ["batch", "n", "confidence", "accuracy, estimated", "ECE, estimated", "by", "seen", "labels", "drift"]
    lines = [text_table(header, rows)] if rows else [f"watch of {watch.reference.n:,} samples, no batch yet"]
    return "\n".join(filter(None, [*lines, *map(str, watch.alarms), waiting(watch)]))


def batch_row(b: BatchReport) -> list[str]:
    """A batch as a row of the table."""
    best = b.estimate
    return [
        b.name,
        f"{b.n:,}",
        f"{b.confidence:.3f}",
        f"{best.value:.3f} ({best.low:.3f} to {best.high:.3f})",
        f"{b.ece.value:.3f} ({b.ece.low:.3f} to {b.ece.high:.3f})",
        best.method,
        f"{b.seen[0]:.3f}" if b.seen else "-",
        f"{b.labelled:,}",
        ", ".join(b.drifted) or "-",
    ]
