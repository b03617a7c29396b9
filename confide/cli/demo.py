"""`confide demo`: the whole story on embedded data."""

from __future__ import annotations

import argparse

from confide.cli.shared import print_json

EXAMPLE = "  confide demo\n  confide demo --out runs/demo --epochs 3 --seed 1"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", default="runs/demo", help="run folder (default: runs/demo)")
    parser.add_argument("--epochs", type=int, default=10, help="passes over the training images per loss (default: 10)")
    parser.add_argument("--seed", type=int, default=0, help="seed of everything random (default: 0)")


def run(args: argparse.Namespace) -> int:
    from confide.cli.result_tables import show_outcome
    from confide.config import load_config
    from confide.experiment import run as run_experiment

    config = load_config("demo")
    training = {**config.training, "epochs": args.epochs}
    outcome = run_experiment(load_config(config, training=training, seed=args.seed), args.out)
    if args.json:
        print_json(
            {"folder": outcome.folder, "report": outcome.report, "made": outcome.made, **outcome.evaluation.to_dict()}
        )
    else:
        show_outcome(outcome)
    return 0
