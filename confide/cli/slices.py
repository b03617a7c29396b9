"""`confide slices FILE`: groups of samples whose confidence is wrong beyond chance."""

from __future__ import annotations

import argparse

from confide.cli.shared import load_predictions, name_of_file, print_json, write_evaluation

EXAMPLE = (
    "  confide slices test.parquet\n"
    "  confide slices test.parquet --by site camera predicted --scores scores.parquet --report slices/"
)


def configure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("file", metavar="FILE", help="labelled predictions; their columns are what slices are made of")
    add("--by", nargs="+", metavar="COLUMN", help="look at these alone: columns, predicted, difficulty, verdict")
    add("--scores", metavar="FILE", help="difficulty and verdicts of the samples, joined by id")
    add("--features", metavar="FILE", help="features of the samples, joined by id and cut into clusters")
    add("--most", type=int, default=20, help="slices to test (default: 20)")
    add("--seed", type=int, default=0, help="of the halves that propose and test (default: 0)")
    add("--report", metavar="DIR", help="write evaluation.json and report.html with the slices there")


def run(args: argparse.Namespace) -> None:
    from confide.evaluation import find_slices
    from confide.records import Features, Scores

    predictions = load_predictions(args.file)
    report = find_slices(
        predictions,
        by=args.by,
        scores=Scores.load(args.scores) if args.scores else None,
        features=Features.load(args.features) if args.features else None,
        most=args.most,
        seed=args.seed,
    )
    written = []
    if args.report:
        name = name_of_file(args.file)
        rows = [found_slice.measurement(split=predictions.split, model=name) for found_slice in report.slices]
        written = write_evaluation(args.report, args.command, predictions, name, "slices", rows)
    if args.json:
        print_json(report.to_dict())
    else:
        print(report)
        for path in written:
            print(f"written: {path}")
