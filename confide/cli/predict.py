"""`confide predict CHECKPOINT DATA`: predictions of a trained model."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from confide.cli.shared import parse_options

if TYPE_CHECKING:
    from confide.predictions import Predictions
    from confide.records import Dataset, Features


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
    from confide.data import load_dataset
    from confide.training import member_folders, predict, predict_members

    dataset = load_dataset(args.data, **parse_options(args.data_option))
    if args.shift:
        dataset = shifted(dataset, args.split, args.shift, args.severity)
    options: dict[str, Any] = {
        "passes": args.passes,
        "average": args.average,
        "foreign": args.foreign,
        "batch_size": args.batch_size,
        "device": args.device,
    }
    members = member_folders(args.checkpoint)
    if members:
        predictions = predict_members(members, dataset, args.split, **options)
    else:
        predictions = predict(args.checkpoint, dataset, args.split, **options)
    if args.trust or args.write_features:
        predictions = _beside(args, predictions, bool(members), dataset)
    if args.scores:
        from confide.calibrators import DIFFICULTY
        from confide.records import Scores

        predictions = predictions.with_column(DIFFICULTY, Scores.load(args.scores).of(predictions.ids))
    if args.calibrator:
        from confide.cli.recipe import with_calibrator

        predictions = with_calibrator(predictions, args.calibrator, extractor(args, dataset))
    predictions.save(args.out)
    show(predictions, len(members) or 1, args)
    return 0


def shifted(dataset: Dataset, split: str, word: str, severity: int) -> Dataset:
    """The dataset with the images of one split made worse; draws are keyed by sample id."""
    from dataclasses import replace

    import numpy as np

    from confide.checks import InputError
    from confide.shift import corrupt

    if dataset.kind != "image":
        raise InputError(f"--shift takes images, got a dataset of {dataset.kind}; leave it out")
    samples = dataset.split(split)
    images = np.asarray(samples.inputs[np.arange(len(samples))])
    # Features that the data carries are those of the images as they were.
    columns = {name: values for name, values in samples.columns.items() if name != "features"}
    worse = replace(samples, inputs=corrupt(images, word, severity, ids=samples.ids), columns=columns)
    return replace(dataset, splits={**dataset.splits, split: worse})


def show(predictions: Predictions, members: int, args: argparse.Namespace) -> None:
    """How many, where, and how good they are where the classes are the model's own."""
    from confide.cli.shared import print_json
    from confide.training.prediction import log_metrics

    found: dict[str, Any] = {"file": args.out, "split": predictions.split, "samples": len(predictions)}
    if args.shift:
        found |= {"shift": args.shift, "severity": args.severity}
    if not args.foreign:
        found |= log_metrics(predictions.logits, predictions.labels)
    if args.json:
        print_json(found)
        return
    models = "1 model" if members == 1 else f"{members} models"
    shift = f" under {args.shift} {args.severity}" if args.shift else ""
    print(f"{len(predictions):,} predictions of {models} on '{predictions.split}'{shift} in {args.out}")
    if not args.foreign:
        print(f"accuracy {100 * found['accuracy']:.1f} %, ECE {100 * found['ece']:.1f} %, NLL {found['nll']:.3f}")
        print(f"next: confide evaluate {args.out}")


def extractor(args: argparse.Namespace, dataset: Dataset) -> Callable[..., Features]:
    """Features of the split that is predicted, by an extractor's word and options."""
    from confide import features

    device = None if args.device == "auto" else args.device

    def by(word: str, **options: Any) -> Features:
        return features.extract(word, dataset, args.split, batch_size=args.batch_size or 64, device=device, **options)

    return by


def _beside(args: argparse.Namespace, predictions: Any, several: bool, dataset: Any) -> Any:
    """What goes with the predictions: their trust, and a file of penultimate features."""
    from confide.checks import InputError
    from confide.cli.recipe import with_trust
    from confide.training import penultimate

    def own() -> Any:
        if several:
            raise InputError("an ensemble has no penultimate features of its own; pass --features, or one member")
        return penultimate(args.checkpoint, dataset, args.split, batch_size=args.batch_size)

    if args.write_features:
        own().save(args.write_features)
    return (
        with_trust(predictions, args.trust, own, args.features, extractor(args, dataset), args.second)
        if args.trust
        else predictions
    )
