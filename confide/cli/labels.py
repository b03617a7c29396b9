"""`confide labels FILE`: thresholds of multilabel predictions, and which labels hold for each sample."""

from __future__ import annotations

import argparse

from confide.cli.shared import NOT_KEPT, load_predictions, print_json, text_table

EXAMPLE = (
    "  confide labels val.npz --precision 0.9 --save thresholds.json\n"
    "  confide labels val.npz --f-beta 1 --apply test.npz --out labels.csv\n"
    "  confide labels val.npz --miss 20 --false-alarm 1 --json\n"
    "  confide labels test.npz --load thresholds.json --out labels.csv"
)


def configure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "file",
        metavar="FILE",
        help="multilabel predictions: npz or parquet with n x c labels, csv with label_NAME beside prob_NAME",
    )
    add("--miss", type=float, help="what a label that is missed costs, with --false-alarm")
    add("--false-alarm", type=float, help="what a label that is claimed wrongly costs")
    add("--f-beta", type=float, metavar="BETA", help="the best F of these samples")
    add("--precision", type=float, help="the precision promised for every label")
    add("--confidence", type=float, default=0.95, help="of the promise, for all labels together (default: 0.95)")
    add("--save", metavar="FILE", help="write the thresholds (.json)")
    add("--load", metavar="FILE", help="thresholds made before, instead of a way to make them")
    add("--apply", metavar="FILE", help="predictions to apply them to (default: FILE)")
    add("-o", "--out", metavar="FILE", help="write which labels hold for each sample (.csv, .parquet)")


def run(args: argparse.Namespace) -> int:
    from confide.checks import InputError
    from confide.evaluation import LabelThresholds, label_thresholds

    if (args.miss is None) != (args.false_alarm is None):
        raise InputError("--miss and --false-alarm are two sides of a cost; give both")
    predictions = load_predictions(args.file)
    if args.load:
        thresholds = LabelThresholds.load(args.load)
    else:
        costs = None if args.miss is None else {"miss": args.miss, "false_alarm": args.false_alarm}
        ways = {"costs": costs, "f_beta": args.f_beta, "precision": args.precision}
        thresholds = label_thresholds(predictions, **ways, confidence=args.confidence)
    if args.save:
        thresholds.save(args.save)
    sets = thresholds(load_predictions(args.apply) if args.apply else predictions)
    if args.out:
        sets.save(args.out)
    share = dict(zip(sets.names, sets.holds.mean(axis=0).tolist(), strict=True))
    if args.json:
        print_json({**vars(thresholds), "claimed": share, "files": [f for f in (args.save, args.out) if f]})
    else:
        cells = [
            [name, "-" if (t := thresholds.thresholds[name]) is None else f"{t:.4f}", f"{share[name]:.1%}"]
            for name in sets.names
        ]
        print(text_table(["label", "holds above", "claimed"], cells))
        for note in thresholds.notes:
            print(f"note: {note}")
    return NOT_KEPT if thresholds.promised is not None and all(t is None for t in thresholds.thresholds.values()) else 0
