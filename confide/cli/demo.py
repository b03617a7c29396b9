"""`confide demo`: the whole story on embedded data."""

from __future__ import annotations

import argparse

EXAMPLE = "  confide demo\n  confide demo --out runs/demo --epochs 3 --seed 1"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--out", default="runs/demo", help="run folder (default: runs/demo)")
    parser.add_argument("--epochs", type=int, default=10, help="passes over the training images per loss (default: 10)")
    parser.add_argument("--seed", type=int, default=0, help="seed of everything random (default: 0)")


def run(args: argparse.Namespace) -> None:
    from confide.cli.result_tables import show_outcome
    from confide.experiment import run as run_experiment

    outcome = run_experiment("demo", args.out, seed=args.seed, **{"training.epochs": args.epochs})
    show_outcome(outcome, args.json)
