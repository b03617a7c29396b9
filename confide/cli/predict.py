"""`confide predict CHECKPOINT DATA`: predictions of a trained model."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from confide.cli.shared import parse_options, print_json

if TYPE_CHECKING:
    from confide.pipeline import PredictedData
    from confide.types import JsonObject


EXAMPLE = """\
  confide predict runs/adafocal fashion-sample --split test --out predictions.parquet
  confide predict runs/adafocal fashion-sample --passes 30 --out dropout.parquet
  confide predict runs/adafocal fashion-sample --split val --out val.parquet --write-features val-features.npz
  confide predict runs/adafocal fashion-sample --trust trust/trust.json --out trusted.parquet
  confide predict runs/adafocal fashion-sample --trust trust/trust.json --second other/test --out trusted.parquet
  confide predict runs/confide fashion-sample --calibrator runs/confide/calibrator.json --out calibrated.parquet
  confide predict runs/a fashion-sample --calibrator opinion.json --opinion b=b-test.parquet --out joined.parquet
  confide predict runs/adafocal fashion-sample --shift gaussian_noise --severity 3 --out noisy.parquet
  confide predict runs/adafocal other-images/ --ood --out ood.parquet"""


def configure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("checkpoint", help="folder of a training (confide train --out), or of an ensemble")
    add("data", help="a dataset's word, or a path")
    add("--split", default="test", help="split to predict (default: test)")
    add("-o", "--out", default="predictions.parquet", help=".parquet, .npz or .csv")
    add("--passes", type=int, default=0, help="passes of Monte-Carlo dropout")
    add("--average", choices=("logits", "probs"), default="logits", help="of these passes")
    add("--shift", metavar="WORD", help="images made worse first: gaussian_noise, fog, ... (docs/shift.md)")
    add("--severity", type=int, default=3, help="of the shift, 1 to 5 (default: 3)")
    add("--ood", action="store_true", help="out-of-distribution data, of other classes: their labels do not count")
    add("--write-features", metavar="FILE", help="also write the penultimate features, .npz or .parquet")
    add("--trust", metavar="FILE", help="add the column `trust` of a saved trust predictor (trust.json)")
    add("--features", metavar="FILE", help="features for --trust; by default the model's penultimate ones")
    add(
        "--second",
        metavar="FILE",
        help="second opinion for --trust or --calibrator: features, or a folder of shards; by default extracted",
    )
    add(
        "--opinion",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="another model's predictions on these samples, where --calibrator was fitted with them",
    )
    add("--calibrator", metavar="FILE", help="calibrate by a saved calibrator (calibrator.json)")
    add("--scores", metavar="FILE", help="add the column `difficulty` of these samples (confide score, or --fitted)")
    add("--batch-size", type=int, help="default: what suits the device")
    add("--device", default="auto", help="cpu or cuda (default: a GPU where there is one)")
    add("--data-option", action="append", default=[], metavar="NAME=VALUE", help="option of the data")


def run(args: argparse.Namespace) -> None:
    from confide.files import split_pair
    from confide.pipeline import PredictionRequest, predict_data

    request = PredictionRequest(
        split=args.split,
        passes=args.passes,
        average=args.average,
        shift=args.shift,
        severity=args.severity,
        ood=args.ood,
        trust=args.trust,
        scores=args.scores,
        calibrator=args.calibrator,
        features=args.features,
        second=args.second,
        opinions=dict(split_pair(entry, "--opinion must be NAME=FILE") for entry in args.opinion),
        keep_features=bool(args.write_features),
        batch_size=args.batch_size,
        device=args.device,
        data_options=parse_options(args.data_option),
    )
    predicted = predict_data(args.checkpoint, args.data, request)
    if predicted.features is not None:
        predicted.features.save(args.write_features)
    predicted.predictions.save(args.out)
    show(predicted, args)


def show(predicted: PredictedData, args: argparse.Namespace) -> None:
    """How many, where, what they cost beyond the network, and how good they are where the classes are its own."""
    from confide.metrics import explain
    from confide.training.prediction import log_metrics

    predictions, price = predicted.predictions, predicted.milliseconds
    summary: JsonObject = {"file": args.out, "split": predictions.split, "samples": len(predictions)}
    summary["milliseconds_a_sample"] = price
    if args.shift:
        summary |= {"shift": args.shift, "severity": args.severity}
    judged = predictions.has_labels and not args.ood
    if judged:
        summary |= log_metrics(predictions.logits, predictions.labels)
    if args.json:
        print_json(summary)
        return
    models = "1 model" if predicted.networks == 1 else f"{predicted.networks} models"
    shift = f" under {args.shift} {args.severity}" if args.shift else ""
    where = f"'{predictions.split}'" if predictions.has_labels else f"{args.data}, without labels"
    print(f"{len(predictions):,} predictions of {models} on {where}{shift} in {args.out}")
    if len(price) > 1:
        print(f"price: {', '.join(f'{name} {each:.3g} ms a sample' for name, each in sorted(price.items()))}")
    if judged:
        infos = explain(("accuracy", "ece", "nll"))
        texts = {word: f"{word} {info.text(summary[word])}" for word, info in infos.items()}
        texts["ece"] += f" (by chance {infos['ece'].text(summary['ece_by_chance'])})"
        print(", ".join(texts.values()))
        print(f"next: confide evaluate {args.out}")
