"""`confide predict CHECKPOINT DATA`: predictions of a trained model."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from confide.cli.shared import parse_options

if TYPE_CHECKING:
    from confide.predictions import Predictions


EXAMPLE = """\
  confide predict runs/adafocal fashion-sample --split test --out predictions.parquet
  confide predict runs/adafocal fashion-sample --passes 30 --out dropout.parquet
  confide predict runs/adafocal fashion-sample --split val --out val.parquet --write-features val-features.npz
  confide predict runs/adafocal fashion-sample --trust trust/trust.json --out trusted.parquet
  confide predict runs/adafocal fashion-sample --trust trust/trust.json --second other/test --out trusted.parquet
  confide predict runs/confide fashion-sample --calibrator runs/confide/calibrator.json --out calibrated.parquet
  confide predict runs/adafocal fashion-sample --shift gaussian_noise --severity 3 --out noisy.parquet
  confide predict runs/adafocal other-images/ --foreign --out foreign.parquet"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", help="folder of a training (confide train --out), or of an ensemble")
    parser.add_argument("data", help="a dataset's word, or a path")
    parser.add_argument("--split", default="test", help="split to predict (default: test)")
    parser.add_argument("--out", default="predictions.parquet", help=".parquet, .npz or .csv")
    parser.add_argument("--passes", type=int, default=0, help="passes of Monte-Carlo dropout")
    parser.add_argument("--average", choices=("logits", "probs"), default="logits", help="of these passes")
    parser.add_argument(
        "--shift", metavar="WORD", help="images made worse first: gaussian_noise, fog, ... (docs/shift.md)"
    )
    parser.add_argument("--severity", type=int, default=3, help="of the shift, 1 to 5 (default: 3)")
    parser.add_argument("--foreign", action="store_true", help="data of other classes: their labels do not count")
    parser.add_argument(
        "--write-features", metavar="FILE", help="also write the penultimate features, .npz or .parquet"
    )
    parser.add_argument(
        "--trust", metavar="FILE", help="add the column `trust` of a saved trust predictor (trust.json)"
    )
    parser.add_argument(
        "--features", metavar="FILE", help="features for --trust; by default the model's penultimate ones"
    )
    parser.add_argument(
        "--second",
        metavar="FILE",
        help="second opinion for --trust: features, or a folder of shards; by default extracted by the same extractor",
    )
    parser.add_argument("--calibrator", metavar="FILE", help="calibrate by a saved calibrator (calibrator.json)")
    parser.add_argument(
        "--scores", metavar="FILE", help="add the column `difficulty` of these samples (confide score, or --fitted)"
    )
    parser.add_argument("--batch-size", type=int, default=None, help="default: what suits the device")
    parser.add_argument("--device", default="auto", help="cpu or cuda (default: a GPU where there is one)")
    parser.add_argument("--data-option", action="append", default=[], metavar="NAME=VALUE", help="option of the data")


def run(args: argparse.Namespace) -> int:
    from confide import pipeline
    from confide.checks import InputError
    from confide.data import load_dataset
    from confide.records import Features, Scores
    from confide.shift import corrupt_split
    from confide.training import member_folders, penultimate

    dataset = load_dataset(args.data, **parse_options(args.data_option))
    if args.shift:
        dataset = corrupt_split(dataset, args.split, args.shift, args.severity)
    members = member_folders(args.checkpoint)

    def own_features() -> Features:
        if members:
            raise InputError("an ensemble has no penultimate features of its own; pass --features, or one member")
        return penultimate(args.checkpoint, dataset, args.split, batch_size=args.batch_size)

    def extract_by(word: str, **options: Any) -> Features:
        device = None if args.device == "auto" else args.device
        choice = pipeline.MethodChoice(word, options)
        return pipeline.extract(dataset, choice, args.split, batch_size=args.batch_size or 64, device=device)

    predictions = pipeline.predict(
        args.checkpoint,
        dataset,
        args.split,
        passes=args.passes,
        average=args.average,
        foreign=args.foreign,
        batch_size=args.batch_size,
        device=args.device,
    )
    if args.write_features:
        own_features().save(args.write_features)
    if args.trust:
        rows = args.features or own_features
        predictions = pipeline.add_trust(args.trust, predictions, rows=rows, second=args.second, extract_by=extract_by)
    if args.scores:
        predictions = pipeline.with_difficulty(predictions, Scores.load(args.scores))
    if args.calibrator:
        predictions = pipeline.apply_calibrator(args.calibrator, predictions, extract_by)
    predictions.save(args.out)
    show(predictions, len(members) or 1, args)
    return 0


def show(predictions: Predictions, members: int, args: argparse.Namespace) -> None:
    """How many, where, and how good they are where the classes are the model's own."""
    from confide.cli.shared import print_json
    from confide.metrics import explain
    from confide.training.prediction import log_metrics

    summary: dict[str, Any] = {"file": args.out, "split": predictions.split, "samples": len(predictions)}
    if args.shift:
        summary |= {"shift": args.shift, "severity": args.severity}
    if not args.foreign:
        summary |= log_metrics(predictions.logits, predictions.labels)
    if args.json:
        print_json(summary)
        return
    models = "1 model" if members == 1 else f"{members} models"
    shift = f" under {args.shift} {args.severity}" if args.shift else ""
    print(f"{len(predictions):,} predictions of {models} on '{predictions.split}'{shift} in {args.out}")
    if not args.foreign:
        infos = explain(("accuracy", "ece", "nll"))
        print(", ".join(f"{word} {info.text(summary[word])}" for word, info in infos.items()))
        print(f"next: confide evaluate {args.out}")
