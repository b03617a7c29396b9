"""`confide predict CHECKPOINT DATA`: predictions of a trained model."""

from __future__ import annotations

import argparse
from typing import Any

EXAMPLE = """\
  confide predict runs/adafocal fashion-sample --split test --out predictions.parquet
  confide predict runs/adafocal fashion-sample --passes 30 --out dropout.parquet
  confide predict runs/adafocal other-images/ --foreign --out foreign.parquet"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", help="folder of a training (confide train --out), or of an ensemble")
    parser.add_argument("data", help="a dataset's word, or a path")
    parser.add_argument("--split", default="test", help="split to predict (default: test)")
    parser.add_argument("--out", default="predictions.parquet", help=".parquet, .npz or .csv")
    parser.add_argument("--passes", type=int, default=0, help="passes of Monte-Carlo dropout")
    parser.add_argument("--average", choices=("logits", "probs"), default="logits", help="of these passes")
    parser.add_argument("--foreign", action="store_true", help="data of other classes: their labels do not count")
    parser.add_argument("--batch-size", type=int, default=1000)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--data-option", action="append", default=[], metavar="NAME=VALUE", help="option of the data")


def run(args: argparse.Namespace) -> int:
    from confide.cli.tables import print_json
    from confide.cli.train import _pair
    from confide.data import load_dataset
    from confide.training import member_folders, predict, predict_members
    from confide.training.validation import summary

    dataset = load_dataset(args.data, **dict(_pair(text) for text in args.data_option))
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
    predictions.save(args.out)
    found: dict[str, Any] = {"file": args.out, "split": predictions.split, "samples": len(predictions)}
    if not args.foreign:
        found |= summary(predictions.logits, predictions.labels)
    if args.json:
        print_json(found)
        return 0
    print(f"{len(predictions)} predictions of {len(members) or 1} model(s) on '{predictions.split}' in {args.out}")
    if not args.foreign:
        print(f"accuracy {100 * found['accuracy']:.1f} %, ECE {100 * found['ece']:.1f} %, NLL {found['nll']:.3f}")
        print(f"next: confide evaluate {args.out}")
    return 0
