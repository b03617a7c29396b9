"""`confide run CONFIG.yaml`: an experiment, resumable."""

from __future__ import annotations

import argparse

from confide.cli.shared import parse_options

EXAMPLE = """\
  confide run experiment.yaml --out runs/first
  confide run demo --set training.epochs=3 --set seed=1
  confide run experiment.yaml --seeds 0 1 2 --out runs/three
  confide run --recipe confide --set data=cifar10 --set training.model=resnet18 --set training.epochs=30"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", nargs="?", help="a YAML file, or the name of a built-in recipe such as 'demo'")
    parser.add_argument("--recipe", help="the name of a built-in recipe: demo, confide")
    parser.add_argument("-o", "--out", help="run folder (default: runs/<name of the config>)")
    parser.add_argument(
        "--seeds", type=int, nargs="+", metavar="N", help="train every loss with each of these seeds; means and bands"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="FIELD=VALUE", help="change one field, such as training.epochs=3"
    )


def run(args: argparse.Namespace) -> None:
    from pathlib import Path

    from confide.checks import InputError
    from confide.cli.result_tables import show_outcome
    from confide.experiment import run as run_experiment
    from confide.progress import Progress

    if (args.config is None) == (args.recipe is None):
        raise InputError(
            "confide run needs a config or --recipe NAME, one of the two; try: confide run --recipe confide"
        )
    source = args.config or args.recipe
    changes = parse_options(args.set, "--set must be FIELD=VALUE")
    if args.seeds:
        changes["seeds"] = args.seeds
    folder = args.out or Path("runs") / Path(source).stem
    Progress.result = str(folder)
    show_outcome(run_experiment(source, folder, **changes), args.json)
