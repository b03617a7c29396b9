"""`confide train DATA`: train a classifier with any loss."""

from __future__ import annotations

import argparse
import itertools
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confide.training import Trained


EXAMPLE = """\
  confide train fashion-sample --loss adafocal --epochs 10 --out runs/adafocal
  confide train fashion-sample --recipe confide --out runs/confide
  confide train cifar10 --preset paper-adafocal --members 3 --out runs/ensemble
  confide train fashion-sample --grid loss=cross_entropy,focal --grid seed=0,1,2 --workers 2 --out runs/grid
  torchrun --nproc-per-node 2 -m confide train fashion-sample --out runs/two"""

# Flag -> (field of the settings, kind, what it is; its value in the preset `quick`).
FLAGS: dict[str, tuple[str, Any, str]] = {
    "model": ("model", str, "network: confide list models (small_cnn)"),
    "loss": ("loss", str, "confide list losses (cross_entropy)"),
    "epochs": ("epochs", int, "passes over the training samples (10)"),
    "batch-size": ("batch_size", int, "samples a step (128)"),
    "optimizer": ("optimizer", str, "sgd, adamw or adam (sgd)"),
    "learning-rate": ("learning_rate", float, "the highest of the schedule (0.1)"),
    "weight-decay": ("weight_decay", float, "pull of all weights to zero (0.0005)"),
    "schedule": ("schedule", str, "of the learning rate: constant, step, cosine, one_cycle (one_cycle)"),
    "augment": ("augment", str, "of images: none, flip, crop or crop_flip (none)"),
    "label-noise": ("label_noise", float, "share of training labels replaced by another class (0)"),
    "choose": ("choose", str, "weights kept: last epoch, or the best on val by nll, brier, accuracy (last)"),
    "seed": ("seed", int, "of everything random (0)"),
    "device": ("device", str, "cpu or cuda (auto: a GPU where there is one)"),
    "precision": ("precision", str, "of the forward pass: float32, bfloat16, float16 (auto: bfloat16 on a GPU)"),
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", help="a dataset's word, or a path: folder of images, parquet, npz, csv, ...")
    parser.add_argument("--out", default="runs/train", help="folder of the run; the same command goes on where it was")
    parser.add_argument(
        "--preset", default="quick", help="quick, paper-cifar, paper-tiny, paper-adafocal, paper-oracle"
    )
    parser.add_argument(
        "--recipe", default=None, help="loss, difficulty, averages and calibrator of a built-in recipe: confide"
    )
    parser.add_argument("--features", default=None, help="extractor word for the recipe's difficulty (list features)")
    for flag, (_, kind, meaning) in FLAGS.items():
        parser.add_argument(f"--{flag}", type=kind, default=None, help=meaning)
    parser.add_argument("--deterministic", action="store_true", help="the same numbers bit for bit on a GPU too")
    parser.add_argument(
        "--set", action="append", default=[], metavar="FIELD=VALUE", help="any setting, such as loss_options.gamma=3"
    )
    parser.add_argument("--data-option", action="append", default=[], metavar="NAME=VALUE", help="option of the data")
    parser.add_argument(
        "--scores",
        nargs="+",
        default=None,
        metavar="FILE",
        help="difficulty of the samples (confide score), also of val",
    )
    parser.add_argument("--members", type=int, default=1, help="train so many seeds as an ensemble")
    parser.add_argument("--record", default=None, metavar="SPLIT", help="record this split's predictions every epoch")
    parser.add_argument("--grid", action="append", default=[], metavar="FIELD=A,B", help="one training for each value")
    parser.add_argument("--workers", type=int, default=1, help="processes of a grid, or of one training with ray")
    parser.add_argument("--engine", choices=("local", "ray"), default="local", help="where the work runs")
    parser.add_argument("--track", choices=("tensorboard", "mlflow"), default=None, help="also log there")
    parser.add_argument("--checkpoint-seconds", type=float, default=30.0, help="least time between checkpoints")


def run(args: argparse.Namespace) -> int:
    jobs = training_jobs(args)
    answers = _run_jobs(jobs, args) if len(jobs) > 1 or args.engine == "ray" else [train_job(jobs[0])]
    failed = [answer for answer in answers if "error" in answer]
    if len(failed) < len(answers):
        show_trained([answer for answer in answers if args.json or "error" not in answer], args.data, args.json)
    for answer in failed:
        print(f"confide: {answer['folder']}: {answer['error']}", file=sys.stderr)
    return 1 if failed else 0


def training_jobs(args: argparse.Namespace) -> list[dict[str, Any]]:
    """One payload for each training of the grid; all settings are checked before any work."""
    from confide import losses, models
    from confide.checks import check_range
    from confide.cli.recipe import recipe_settings
    from confide.cli.shared import refuse_flags
    from confide.files.formats import plain
    from confide.training import preset
    from confide.training.settings import checked_schedule_options, override_settings

    if not args.recipe:
        refuse_flags({"--features": args.features}, "training without --recipe reads no features")
    check_range(args.members, "members", 1)
    check_range(args.workers, "workers", 1)
    recipe = recipe_settings(args.recipe) if args.recipe else {}
    whole = {**_settings_from_flags(args), **dict(option_pair(text) for text in args.set if not _is_inner(text))}
    inner = [text for text in args.set if _is_inner(text)]
    base = with_changes(preset(args.preset, **override_settings(recipe, whole)).as_dict(), inner)
    jobs = []
    for combination in itertools.product(*(_grid_values(text) for text in args.grid)):
        settings = preset("quick").from_dict(with_changes(dict(base), list(combination)))
        checked_schedule_options(settings)
        losses.LOSSES.get(settings.loss).check_options(settings.loss_options)
        models.method(settings.model)[0].check_options(settings.model_options)
        name = "_".join(_folder_name(text) for text in combination)
        jobs.append(
            {
                "data": args.data,
                "data_options": dict(option_pair(text) for text in args.data_option),
                "settings": plain(settings.as_dict()),
                "scores": args.scores,
                "recipe": args.recipe,
                "features": args.features,
                "members": args.members,
                "record": bool(args.record),
                "track": args.track,
                "checkpoint_seconds": args.checkpoint_seconds,
                "out": str(Path(args.out) / name),
            }
        )
    return jobs


def _settings_from_flags(args: argparse.Namespace) -> dict[str, Any]:
    """The settings given by flags of their own."""
    given = {field: getattr(args, flag.replace("-", "_")) for flag, (field, _, _) in FLAGS.items()}
    given |= {"deterministic": args.deterministic or None, "record": args.record}
    return {field: value for field, value in given.items() if value is not None}


def train_job(job: dict[str, Any]) -> dict[str, Any]:
    """Train as a payload says; returns what a person wants to see of it."""
    trained = _trained(job)
    last = [{name: float(column[t.chosen_epoch]) for name, column in t.log.items()} for t in trained]
    return {
        "folder": job["out"],
        "settings": job["settings"],
        "members": [{**row, "notes": list(t.notes)} for row, t in zip(last, trained, strict=True)],
        "train_seconds": sum(float(t.timings["train_seconds"].sum()) for t in trained if t.timings),
        "val_seconds": sum(float(t.timings["val_seconds"].sum()) for t in trained if "val_seconds" in t.timings),
    }


def grid_job(job: dict[str, Any]) -> dict[str, Any]:
    """Train one cell of a grid; one that cannot be trained does not keep the others from it."""
    from confide.checks import InputError

    try:
        return train_job(job)
    except InputError as error:
        return {"folder": job["out"], "settings": job["settings"], "members": [], "error": str(error)}


def _trained(job: dict[str, Any]) -> Sequence[Trained]:
    from confide.cli.recipe import recipe_calibrator, recipe_scores
    from confide.data import load_dataset
    from confide.records import Scores
    from confide.training import Settings, fit, fit_members
    from confide.training.device import is_lead_process
    from confide.training.trackers import tracker, tracker_for_members

    dataset = load_dataset(job["data"], **job["data_options"])
    settings, out = Settings.from_dict(job["settings"]), Path(job["out"])
    scores = Scores.joined([Scores.load(path) for path in job["scores"]]) if job["scores"] else None
    recipe = job.get("recipe")
    if recipe:
        scores = recipe_scores(job, dataset, settings, scores)
    recorder = _recorder(dataset, settings, out, job["members"]) if job["record"] else None
    common: dict[str, Any] = {"scores": scores, "folder": out, "recorder": recorder}
    common |= {"checkpoint_seconds": job["checkpoint_seconds"]}
    told = tracker(job["track"], out, settings) if job["track"] and is_lead_process() else None
    trained: Sequence[Trained]
    if job["members"] > 1:
        each = None if told is None else tracker_for_members(told)
        trained = fit_members(dataset, settings, members=job["members"], on_epoch=each, **common)
    else:
        trained = (fit(dataset, settings, on_epoch=told, **common),)
    if recipe and is_lead_process() and "val" in dataset.splits:
        recipe_calibrator(trained, dataset, recipe, out)
    return trained


def _recorder(dataset: Any, settings: Any, out: Path, members: int) -> Any:
    from confide.difficulty import Recorder
    from confide.training.device import is_lead_process

    split = dataset.split(settings.record)
    for leftover in (out / "recorded").rglob(".*.part") if is_lead_process() else ():
        # Half-written by a process that was killed.
        leftover.unlink(missing_ok=True)
    return Recorder(split.ids, split.labels, folder=out / "recorded", members=members)


def _run_jobs(jobs: list[dict[str, Any]], args: argparse.Namespace) -> list[dict[str, Any]]:
    from confide.checks import InputError
    from confide.progress import Progress
    from confide.scale import Job, run_jobs, train_workers

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InputError("a grid and --engine ray start processes of their own; start them without torchrun")
    if args.engine == "ray":
        jobs = [_absolute(job) for job in jobs]
    function = "confide.cli.train:train_job" if len(jobs) == 1 else "confide.cli.train:grid_job"
    work = [Job(Path(job["out"]).name or "train", function, job) for job in jobs]
    if len(jobs) == 1:
        return [train_workers(work[0], args.workers, storage=str(Path(args.out).resolve() / "ray"))]
    with Progress("grid", len(work)) as progress:
        return run_jobs(
            work, engine=args.engine, workers=args.workers, on_done=lambda job, answer: progress.step(1, job.name)
        )


def _absolute(job: dict[str, Any]) -> dict[str, Any]:
    """The payload with whole paths: workers of a cluster start elsewhere."""
    data = str(Path(job["data"]).resolve()) if Path(job["data"]).exists() else job["data"]
    scores = [str(Path(path).resolve()) for path in job["scores"]] if job["scores"] else None
    return {**job, "data": data, "scores": scores, "out": str(Path(job["out"]).resolve())}


def show_trained(answers: list[dict[str, Any]], data: str, as_json: bool) -> None:
    """A row per trained model, at its chosen epoch."""
    from confide.cli.shared import print_json, text_table
    from confide.training.device import is_lead_process

    if not is_lead_process():
        return
    if as_json:
        print_json(answers[0] if len(answers) == 1 else answers)
        return
    rows = []
    for answer in answers:
        for number, row in enumerate(answer["members"]):
            name = answer["settings"]["loss"] + (f" #{number}" if len(answer["members"]) > 1 else "")
            shown = [_percent(row.get(key)) for key in ("train_accuracy", "val_accuracy", "val_ece")]
            nll = f"{row['val_nll']:.3f}" if "val_nll" in row else "-"
            rows.append((name, f"{row['epoch'] + 1:.0f}", *shown, nll, answer["folder"]))
    print(text_table(("loss", "epoch", "train acc %", "val acc %", "val ECE %", "val NLL", "folder"), rows))
    for answer in answers:
        seconds = f"trained in {answer['train_seconds']:.1f} s, validation {answer['val_seconds']:.1f} s"
        notes = "; ".join(dict.fromkeys(note for row in answer["members"] for note in row["notes"]))
        print(seconds + (f"; {notes}" if notes else ""))
    folder = Path(answers[0]["folder"])
    calibrator = f" --calibrator {folder / 'calibrator.json'}" if (folder / "calibrator.json").exists() else ""
    print(f"next: confide predict {folder} {data} --split test{calibrator} --out predictions.parquet")


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def option_pair(text: str) -> tuple[str, Any]:
    from confide.checks import InputError
    from confide.files.formats import read_yaml

    name, sign, value = text.partition("=")
    if not sign:
        raise InputError(f"an option must be NAME=VALUE, got '{text}'")
    return name.strip(), read_yaml(value, f"the value of '{name.strip()}'")


def _is_inner(text: str) -> bool:
    return "." in text.partition("=")[0]


def _folder_name(text: str) -> str:
    """`loss_options.gamma=0.5` as `gamma=0.5`; no sign in it that parts folders."""
    field, _, value = text.partition("=")
    return f"{field.rpartition('.')[2]}={value}".replace("/", "-")


def _grid_values(text: str) -> list[str]:
    from confide.checks import InputError

    name, sign, values = text.partition("=")
    if not sign:
        raise InputError(f"a grid must be FIELD=A,B, got '{text}'")
    # Commas inside brackets belong to one value.
    return [f"{name.strip()}={value.strip()}" for value in re.split(r",(?![^\[{]*[\]}])", values)]


def with_changes(settings: dict[str, Any], changes: list[str]) -> dict[str, Any]:
    """Settings with `field=value` or `field.inner=value` changed; values are read as YAML."""
    for text in changes:
        path, value = option_pair(text)
        outer, dot, inner = path.partition(".")
        settings[outer] = {**(settings.get(outer) or {}), inner: value} if dot else value
    return settings
