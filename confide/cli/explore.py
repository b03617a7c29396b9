"""`confide explore RUN_OR_SCORES`: look into single samples in the browser, tag them, export the tags."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from confide.cli.shared import print_json, refuse_flags

EXAMPLE = (
    "  confide explore runs/demo\n"
    "  confide explore scores.parquet --data photos/ --port 0\n"
    "  confide explore scores.parquet --export hard.csv --top 200\n"
    "  confide explore runs/demo --export tags.csv"
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source", metavar="RUN_OR_SCORES", help="a run folder, a file of scores or predictions, or a folder of shards"
    )
    parser.add_argument("--data", help="dataset to take pictures from (default: that of a run made here)")
    parser.add_argument("--features", help="features of a file alone, for neighbours and score parts")
    parser.add_argument("--columns", metavar="FILE", help="table with 'id' and columns to filter by")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8765, help="port (default: 8765; 0: any free one)")
    parser.add_argument("--no-token", action="store_true", help="let every user of this machine look and tag")
    parser.add_argument("--browser", action="store_true", help="open a browser")
    parser.add_argument("--export", metavar="FILE", help="write tagged samples (.csv, .parquet) and stop")
    parser.add_argument("--top", type=int, metavar="N", help="with --export: the N hardest (or least sure) instead")
    parser.add_argument("--sort", metavar="COLUMN", help="with --top: by this column; -COLUMN from the largest")


def run(args: argparse.Namespace) -> None:
    from confide import explorer

    layout = explorer.open_layout(args.source, data=args.data, features=args.features, columns=args.columns)
    if args.export:
        export = explorer.export_tags(layout, args.export, top=args.top, sort=args.sort)
        if args.json:
            print_json(asdict(export))
        else:
            tagged = "tagged " if args.top is None else ""
            print(f"exported: {export.samples} {tagged}samples to {export.exported}")
        return
    refuse_flags(args, ("top", "sort"), "the explorer itself shows all samples")

    def say(line: str) -> None:
        if args.json and line.startswith("explorer: "):
            print_json({"address": line.removeprefix("explorer: "), "tags": layout.tags})
        elif not args.json and (not args.quiet or line.startswith("explorer: ")):
            print(line, flush=True)

    explorer.serve(layout, host=args.host, port=args.port, browser=args.browser, token=not args.no_token, say=say)
