"""`confide train DATA`: train a classifier with any loss."""

from __future__ import annotations

import argparse
import itertools
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from confide.cli.shared import parse_options, print_json, refuse_flags, text_table

if TYPE_CHECKING:
    from confide.training.jobs import TrainingJob, TrainingOutcome
    from confide.types import Options


EXAMPLE = """\
  confide train fashion-sample --loss adafocal --epochs 10 --out runs/adafocal
  confide train fashion-sample --recipe confide --out runs/confide
  confide train cifar10 --preset paper-adafocal --members 3 --out runs/ensemble
  confide train fashion-sample --grid loss=cross_entropy,focal --grid seed=0,1,2 --workers 2 --out runs/grid
  torchrun --nproc-per-node 2 -m confide train fashion-sample --out runs/two"""

# Field of the settings with a flag of its own -> (type, what it is; its value in the preset `quick`).
FLAGS: dict[str, tuple[type, str]] = {
    "model": (str, "network: confide list models (small_cnn)"),
    "loss": (str, "confide list losses (cross_entropy)"),
    "epochs": (int, "passes over the training samples (10)"),
    "batch_size": (int, "samples a step (128)"),
    "optimizer": (str, "sgd, adamw or adam (sgd)"),
    "learning_rate": (float, "the highest of the schedule (0.1)"),
    "weight_decay": (float, "pull of all weights to zero (0.0005)"),
    "schedule": (str, "of the learning rate: constant, step, cosine, one_cycle (one_cycle)"),
    "augment": (str, "of images: none, flip, crop or crop_flip (none)"),
    "label_noise": (float, "share of training labels replaced by another class (0)"),
    "choose": (str, "weights kept: last epoch, or the best on val by nll, brier, accuracy (last)"),
    "seed": (int, "of everything random (0)"),
    "device": (str, "cpu or cuda (auto: a GPU where there is one)"),
    "precision": (str, "of the forward pass: float32, bfloat16, float16 (auto: bfloat16 on a GPU)"),
}


def configure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("data", help="a dataset's word, or a path: folder of images, parquet, npz, csv, ...")
    add("-o", "--out", default="runs/train", help="folder of the run; the same command goes on where it was")
    add("--preset", default="quick", help="quick, paper-cifar, paper-tiny, paper-adafocal, paper-oracle")
    add("--recipe", help="loss, difficulty, averages and calibrator of a built-in recipe: confide")
    add("--features", help="extractor word for the recipe's difficulty (list features)")
    for name, (kind, meaning) in FLAGS.items():
        add(f"--{name.replace('_', '-')}", type=kind, help=meaning)
    add("--deterministic", action="store_true", help="the same numbers bit for bit on a GPU too")
    add("--set", action="append", default=[], metavar="FIELD=VALUE", help="any setting, such as loss_options.gamma=3")
    add("--data-option", action="append", default=[], metavar="NAME=VALUE", help="option of the data")
    add("--scores", nargs="+", metavar="FILE", help="difficulty of the samples (confide score), also of val")
    add("--members", type=int, default=1, help="train so many seeds as an ensemble")
    add("--record", metavar="SPLIT", help="record this split's predictions every epoch")
    add("--grid", action="append", default=[], metavar="FIELD=A,B", help="one training for each value")
    add("--seeds", type=int, nargs="+", metavar="N", help="one training for each seed, in folders seed=N")
    add("--workers", type=int, default=1, help="processes of a grid, or of one training with ray")
    add("--engine", choices=("local", "ray"), default="local", help="where the work runs")
    add("--track", choices=("tensorboard", "mlflow"), help="also log there")
    add("--checkpoint-seconds", type=float, default=30.0, help="least time between checkpoints")


def run(args: argparse.Namespace) -> int:
    from confide.pipeline import run_trainings

    outcomes = run_trainings(training_jobs(args), engine=args.engine, workers=args.workers)
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    if len(failed) < len(outcomes):
        show_trained([outcome for outcome in outcomes if args.json or outcome.error is None], args.data, args.json)
    for outcome in failed:
        print(f"confide: {outcome.folder}: {outcome.error}", file=sys.stderr)
    return 1 if failed else 0


def training_jobs(args: argparse.Namespace) -> list[TrainingJob]:
    """One job for each training of the grid; all settings are checked before any work."""
    from confide.checks import check_range
    from confide.config import change_fields, load_config
    from confide.pipeline import loss_settings
    from confide.training import Settings, preset
    from confide.training.ensemble import MOST_MEMBERS
    from confide.training.jobs import TrainingJob
    from confide.training.settings import override_settings

    if not args.recipe:
        refuse_flags(args, ("features",), "training without --recipe reads no features")
    check_range(args.members, "members", 1, MOST_MEMBERS)
    check_range(args.workers, "workers", 1, 1024)
    check_range(args.checkpoint_seconds, "checkpoint-seconds", 0)
    recipe = load_config(args.recipe) if args.recipe else None
    brought = loss_settings(recipe, recipe.losses[0]) if recipe else {}
    changes = parse_options(args.set)
    whole = {name: value for name, value in changes.items() if "." not in name}
    inner = {name: value for name, value in changes.items() if "." in name}
    settings = preset(args.preset, **override_settings(brought, {**_settings_from_flags(args), **whole}))
    base = change_fields(settings.as_dict(), inner)
    jobs = []
    seeds = [f"seed={','.join(map(str, args.seeds))}"] if args.seeds else []
    for combination in itertools.product(*(_grid_values(text) for text in [*args.grid, *seeds])):
        settings = Settings.from_dict(change_fields(base, parse_options(combination)))
        name = "_".join(_folder_name(text) for text in combination)
        jobs.append(
            TrainingJob(
                data=args.data,
                settings=settings,
                out=Path(args.out) / name,
                data_options=parse_options(args.data_option),
                scores=tuple(args.scores or ()),
                recipe=recipe,
                features=args.features,
                members=args.members,
                record=bool(args.record),
                track=args.track,
                checkpoint_seconds=args.checkpoint_seconds,
            )
        )
    return jobs


def _settings_from_flags(args: argparse.Namespace) -> Options:
    """The settings that have flags of their own."""
    settings = {field: getattr(args, field) for field in (*FLAGS, "record")}
    settings["deterministic"] = args.deterministic or None
    return {field: value for field, value in settings.items() if value is not None}


def show_trained(outcomes: list[TrainingOutcome], data: str, as_json: bool) -> None:
    """A row per trained model, at its chosen epoch."""
    from confide.metrics import explain
    from confide.store import RunPaths
    from confide.training.distributed import is_lead_process

    if not is_lead_process():
        return
    if as_json:
        plain = [outcome.as_dict() for outcome in outcomes]
        print_json(plain[0] if len(plain) == 1 else plain)
        return
    columns = (("train", "accuracy"), ("val", "accuracy"), ("val", "ece"), ("val", "nll"))
    infos = explain(word for _, word in columns)
    rows = []
    for outcome in outcomes:
        for number, member in enumerate(outcome.members):
            name = outcome.settings.loss + (f" #{number}" if len(outcome.members) > 1 else "")
            logged = {key: member.row.get(f"{key[0]}_{key[1]}") for key in columns}
            cells = ["-" if value is None else infos[word].number(value) for (_, word), value in logged.items()]
            chance = member.row.get("val_ece_by_chance")
            if chance is not None:
                cells[-2] += f" (by chance {infos['ece'].number(chance)})"
            rows.append((name, f"{member.row['epoch'] + 1:.0f}", *cells, str(outcome.folder)))
    heads = [f"{split} {infos[word].heading}" for split, word in columns]
    print(text_table(("loss", "epoch", *heads, "folder"), rows))
    for outcome in outcomes:
        seconds = f"trained in {outcome.train_seconds:.1f} s, validation {outcome.val_seconds:.1f} s"
        notes = "; ".join(dict.fromkeys(note for member in outcome.members for note in member.notes))
        print(seconds + (f"; {notes}" if notes else ""))
    folder = outcomes[0].folder
    calibrator = RunPaths(folder).first_calibrator
    calibrated = f" --calibrator {calibrator}" if calibrator.exists() else ""
    print(f"next: confide predict {folder} {data} --split test{calibrated} --out predictions.parquet")


def _folder_name(text: str) -> str:
    """`loss_options.gamma=0.5` as `gamma=0.5`; no sign in it that parts folders."""
    field, _, value = text.partition("=")
    return f"{field.rpartition('.')[2]}={value}".replace("/", "-")


def _grid_values(text: str) -> list[str]:
    from confide.files import split_pair

    name, values = split_pair(text, "a grid must be FIELD=A,B")
    # Commas inside brackets belong to one value.
    return [f"{name}={value.strip()}" for value in re.split(r",(?![^\[{]*[\]}])", values)]
