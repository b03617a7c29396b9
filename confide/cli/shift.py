"""`confide shift MODEL ... --data DATA`: trained models on corrupted, attacked and foreign data, side by side."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confide.core.records import Dataset
    from confide.core.results import Evaluation
    from confide.training import Trained

EXAMPLE = """\
  confide shift runs/adafocal --data cifar10 --calibrate temperature
  confide shift runs/ce runs/adafocal --data cifar10 --ood tinyimagenet32/ dtd.npz mnist/ --out shift
  confide shift runs/ce --data fashion-sample --words fog gaussian_noise pgd --severities 1 3 5
  confide shift runs/intents --data clinc150:data_full.json --ood out-of-scope"""


OF_PREDICTIONS = ("by", "score", "scores", "title", "split")
"""Options of `confide evaluate` that say how predictions are read and measured."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("models", nargs="+", metavar="MODEL", help="folders of trained models (confide train --out)")
    parser.add_argument("--data", required=True, help="the dataset whose test split is shifted: a word, or a path")
    parser.add_argument("--data-option", action="append", default=[], metavar="NAME=VALUE", help="option of the data")
    parser.add_argument(
        "--kind",
        default="corruptions",
        help="benchmark (15), corruptions (16, default), corruptions19, domain, attacks, all, or none",
    )
    parser.add_argument("--words", nargs="+", default=None, help="single shifts and attacks instead of a kind")
    parser.add_argument("--severities", nargs="+", type=int, default=[1, 2, 3, 4, 5], help="of 1 to 5 (default: all)")
    parser.add_argument(
        "--form", choices=("auto", "32", "224"), default="auto", help="published parameters for 32 or 224"
    )
    parser.add_argument(
        "--ood", nargs="+", default=[], metavar="DATA", help="foreign data: words, paths, or out-of-scope"
    )
    parser.add_argument(
        "--calibrate",
        nargs="+",
        default=None,
        metavar="WORD",
        help="calibrators, fitted on clean val (default: temperature, where the data have a val split)",
    )
    parser.add_argument("--no-calibrate", action="store_true", help="as trained only")
    parser.add_argument("--trust", nargs="+", default=[], metavar="WORD", help="trust predictors, fitted on clean val")
    parser.add_argument("--rmd", action="store_true", help="difficulty by severity and by label noise")
    parser.add_argument("--samples", type=int, default=0, help="only so many test samples (default: all)")
    parser.add_argument("--batch-size", type=int, default=1000, help="images at once (default: 1000)")
    parser.add_argument("--device", default="auto", help="cpu or cuda (default: a GPU where there is one)")
    parser.add_argument("--seed", type=int, default=0, help="of corruptions, attacks and resampling")
    parser.add_argument("--no-intervals", action="store_true", help="values only: no bootstrap")
    parser.add_argument("-o", "--out", default="shift", help="folder of evaluation.json, report.html and the cells")


def from_evaluate(args: argparse.Namespace) -> int:
    """`confide evaluate MODEL --shift KIND --data DATA`: the same with the words of that verb."""
    from confide.core.door import InputError

    _check_models([args.source, *args.beside])
    if not args.data:
        raise InputError("--shift needs the dataset whose test split is shifted; add --data DATA")
    given = {"metrics": args.metrics != ["core"], **{k: getattr(args, k) is not None for k in OF_PREDICTIONS}}
    if unused := [f"--{name}" for name, there in given.items() if there]:
        raise InputError(f"{', '.join(unused)} cannot be used with --shift, whose grid has metrics of its own; drop it")
    parser = argparse.ArgumentParser()
    configure(parser)
    words = [args.source, *args.beside, "--data", args.data, "--kind", args.shift, "--seed", str(args.seed)]
    words.append(f"--out={args.out or Path(args.source).resolve().name + '-shift'}")
    own = parser.parse_args([*words, "--no-intervals"] if args.no_intervals else words)
    own.json, own.rmd = args.json, "where there are training samples"
    return run(own)


def check_not_shifted(args: argparse.Namespace) -> None:
    """`confide evaluate` without --shift takes predictions: a model, or the words of --shift, are told."""
    from confide.core.door import InputError

    if (Path(args.source) / "model.safetensors").is_file():
        raise InputError(
            f"{args.source} is a trained model, not predictions; make them with confide predict, or add --shift KIND"
        )
    for name in ("data", "beside"):
        if getattr(args, name):
            raise InputError(f"--{name} goes with --shift alone; drop it, or add --shift corruptions")


def _check_models(paths: list[str]) -> None:
    """Corruptions need images and a model to show them to; predictions are of no use."""
    from confide.core.door import InputError

    for path in map(Path, paths):
        if path.is_file() and path.suffix != ".safetensors":
            raise InputError(
                f"{path} must be a trained model, got a file of another kind; predictions cannot be corrupted, so give "
                "the folder that confide train --out wrote, or your own model with confide.evaluation.shift_grid"
            )


def run(args: argparse.Namespace) -> int:
    """Grid, foreign data, report."""
    from confide.cli.shift_tables import tables
    from confide.cli.tables import print_json
    from confide.data import load_dataset
    from confide.report import write_report

    _check_models(args.models)
    _check_numbers(args)
    dataset = load_dataset(args.data, **dict(_option(text) for text in args.data_option))
    found = evaluate_shift(args, dataset, _models(args.models))
    out = Path(args.out)
    found.save(out / "evaluation.json")
    write_report(found, out / "report.html")
    if args.json:
        print_json({**found.to_dict(), "files": [out / "evaluation.json", out / "report.html"]})
        return 0
    for line in tables(found):
        print(line)
    print(f"\nevaluation: {out / 'evaluation.json'}\nreport: {out / 'report.html'}")
    return 0


def _check_numbers(args: argparse.Namespace) -> None:
    from confide.core.door import InputError

    for name, least in (("batch_size", 1), ("samples", 0)):
        if getattr(args, name) < least:
            raise InputError(f"--{name.replace('_', '-')} must be at least {least}, got {getattr(args, name)}")


def _models(paths: list[str]) -> dict[str, Trained]:
    from confide.core.door import InputError
    from confide.training import Trained

    names = [Path(path).resolve().name for path in paths]
    if len(set(names)) < len(names):
        names = [str(Path(path)) for path in paths]
    if len(set(names)) < len(names):
        raise InputError(f"models must differ, got {', '.join(paths)}")
    return {name: Trained.load(path) for name, path in zip(names, paths, strict=True)}


def evaluate_shift(args: argparse.Namespace, dataset: Dataset, models: dict[str, Trained]) -> Evaluation:
    """The grid where the data are images, every foreign set, RMD by label noise: one evaluation."""
    import numpy as np

    from confide.cli.shift_foreign import against_foreign, clean_evaluations, foreign_samples
    from confide.core.door import InputError
    from confide.evaluation import join

    test = dataset.test
    if args.samples:
        test = test.take(np.arange(min(args.samples, len(test))))
    for name, trained in models.items():
        trained.preparation.check(test, f"'{dataset.name}' for model '{name}'")
    wanted = args.words or args.kind
    gridded = wanted != "none" and dataset.kind == "image"
    if not gridded and not args.ood:
        why = "--kind none" if wanted == "none" else f"'{dataset.name}' has no images to corrupt"
        raise InputError(f"nothing to do: {why}, and no --ood was given; name foreign data")
    # Foreign data that cannot be had is told before the grid, not after it.
    foreign = {source: foreign_samples(args, dataset, models, source) for source in args.ood}
    first = [_grid(args, dataset, test, models, wanted)] if gridded else clean_evaluations(args, test, models)
    evaluations = [*first]
    for source, split in foreign.items():
        evaluations += against_foreign(args, dataset, test, models, source, split)
    title = f"{dataset.name} under shift"
    unit = {"image": "images", "text": "texts"}.get(dataset.kind, "samples")
    about = {"title": title, "unit": unit, "class_names": list(dataset.class_names), "commands": [command_of(args)]}
    return join(evaluations, about=about)


def command_of(args: argparse.Namespace) -> str:
    """The command that makes this again: what differs from the defaults."""
    parser = argparse.ArgumentParser()
    configure(parser)
    words = ["confide", "shift", *args.models, "--data", args.data]
    for name, usual in vars(parser.parse_args(["", "--data", args.data])).items():
        value = getattr(args, name)
        if name in ("models", "data") or value == usual:
            continue
        flag = f"--{name.replace('_', '-')}"
        if usual is False:
            words.append(flag)
        elif name == "data_option":
            words += [word for one in value for word in (flag, one)]
        else:
            words += [flag, *(map(str, value) if isinstance(value, list) else [str(value)])]
    return shlex.join(words)


def _grid(args: argparse.Namespace, dataset: Dataset, test: Any, models: dict[str, Trained], wanted: Any) -> Evaluation:
    from confide.cli.shift_subjects import Runner, Wishes, subject_of
    from confide.core.files import checksum
    from confide.evaluation import label_noise_curve, shift_grid
    from confide.shift import noisy_labels

    rmd = args.rmd is True or (bool(args.rmd) and "train" in dataset.splits)
    usual = ["temperature"] if "val" in dataset.splits and len(dataset.val) else []
    calibrated = [] if args.no_calibrate else usual if args.calibrate is None else args.calibrate
    wishes = Wishes(calibrated, args.trust, rmd, args.batch_size, args.seed)
    runners = {name: Runner.of(trained, args.device) for name, trained in models.items()}
    paths = dict(zip(models, args.models, strict=True))
    subjects = {}
    for name, runner in runners.items():
        file = Path(paths[name]) / "model.safetensors" if Path(paths[name]).is_dir() else Path(paths[name])
        subjects[name] = subject_of(runner, dataset, wishes, checksum(file))
    found = shift_grid(
        test,
        subjects,
        words=wanted,
        severities=args.severities,
        form=args.form,
        seed=args.seed,
        folder=args.out,
        batch_size=args.batch_size,
        device=next(iter(runners.values())).where.device,
        intervals=not args.no_intervals,
    )
    curves = []
    for name, subject in subjects.items():
        if subject.hardness is not None:
            features = runners[name].outputs(test, "test", args.batch_size)[1].values

            def noisy(labels: Any, rate: float) -> Any:
                return noisy_labels(labels, rate, num_classes=dataset.num_classes, ids=test.ids, seed=args.seed)

            curves.append(label_noise_curve(subject.hardness, features, test.labels, noisy, model=name))
    return replace(found, curves=(*found.curves, *curves))


def _option(text: str) -> tuple[str, Any]:
    from confide.core.door import InputError
    from confide.core.yaml_text import read_yaml

    name, sign, value = text.partition("=")
    if not sign:
        raise InputError(f"an option must be NAME=VALUE, got '{text}'")
    return name.strip(), read_yaml(value, f"the value of '{name.strip()}'")
