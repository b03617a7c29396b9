"""`confide run CONFIG.yaml`: an experiment, resumable."""

from __future__ import annotations

import argparse
from typing import Any

from confide.cli.shared import print_json

EXAMPLE = """\
  confide run experiment.yaml --out runs/first
  confide run demo --set training.epochs=3 --set seed=1
  confide run --recipe confide --set data=cifar10 --set training.model=resnet18 --set training.epochs=30"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", nargs="?", help="a YAML file, or the name of a built-in recipe such as 'demo'")
    parser.add_argument("--recipe", default=None, help="the name of a built-in recipe: demo, confide")
    parser.add_argument("--out", default=None, help="run folder (default: runs/<name of the config>)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="FIELD=VALUE", help="change one field, such as training.epochs=3"
    )


def run(args: argparse.Namespace) -> int:
    from pathlib import Path

    from confide.checks import InputError
    from confide.cli.result_tables import show_outcome
    from confide.config import load_config
    from confide.experiment import run as run_experiment

    if (args.config is None) == (args.recipe is None):
        raise InputError(
            "confide run needs a config or --recipe NAME, one of the two; try: confide run --recipe confide"
        )
    source = args.config or args.recipe
    config = load_config(with_changes(load_config(source).as_dict(), args.set))
    out = Path(args.out or Path("runs") / Path(source).stem)
    outcome = run_experiment(config, out)
    if args.json:
        print_json(
            {"folder": outcome.folder, "report": outcome.report, "made": outcome.made, **outcome.evaluation.to_dict()}
        )
    else:
        show_outcome(outcome)
    return 0


def with_changes(data: dict[str, Any], changes: list[str]) -> dict[str, Any]:
    """The config with `field=value` or `field.inner=value` changed; values are read as YAML."""
    from confide.checks import InputError
    from confide.files.formats import read_yaml

    for change in changes:
        path, sign, text = change.partition("=")
        if not sign:
            raise InputError(f"--set must be FIELD=VALUE, got '{change}'")
        outer, dot, inner = path.partition(".")
        value = read_yaml(text, f"--set {path}")
        if dot:
            if not isinstance(data.get(outer), dict):
                raise InputError(f"--set {path}: config field '{outer}' has no inner fields; set it whole")
            data[outer] = {**data[outer], inner: value}
        else:
            data[outer] = value
    return data
