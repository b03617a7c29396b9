"""`confide shift MODEL ... --data DATA`: trained models on corrupted, attacked and out-of-distribution data, side by
side.
"""

from __future__ import annotations

import argparse
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confide.cli.shared import parse_options, text_table

if TYPE_CHECKING:
    from confide.records import Dataset, Split
    from confide.results import Evaluation
    from confide.training import Trained


# Known or foreign on the command line: every model on its test split and on each foreign set.


def ood_samples(args: argparse.Namespace, dataset: Dataset, models: dict[str, Trained], source: str) -> Split:
    """The samples of a foreign set, in the shape that the models take."""
    from confide.robustness import load_ood_split

    shape = next(iter(models.values())).preparation.shape if dataset.kind == "image" else None
    return load_ood_split(source, dataset, args.data, shape, most=args.samples)


def evaluate_ood(
    args: argparse.Namespace, dataset: Dataset, test: Any, models: dict[str, Trained], source: str, foreign: Split
) -> list[Evaluation]:
    """Known against foreign samples, for every model."""
    from confide.evaluation import Side, ood
    from confide.records import Split
    from confide.robustness import ood_name
    from confide.shift.ood import named_ids
    from confide.training import penultimate, predict

    known = Split(test.inputs, test.labels, named_ids(test.ids, dataset.name))
    train = _spread_over(dataset.train) if "train" in dataset.splits else None  # without it no md, rmd and knn
    found = []
    for name, trained in models.items():
        sides = [
            Side(
                predict(trained, part, "test", foreign=part is foreign, batch_size=args.batch_size, device=args.device),
                penultimate(trained, part, "test", batch_size=args.batch_size).values,
            )
            for part in (known, foreign)
        ]
        reference = None if train is None else penultimate(trained, train, "train", batch_size=args.batch_size)
        found.append(
            ood(
                *sides,
                name=ood_name(source),
                reference=reference,
                trust_predictors=_trust_predictors(args, trained, dataset),
                model=name,
                intervals=not args.no_intervals,
                seed=args.seed,
            )
        )
    return found


def _trust_predictors(args: argparse.Namespace, trained: Trained, dataset: Dataset) -> dict[str, Any]:
    """Trust predictors by word, fitted on the clean validation split where they learn."""
    from confide import trust
    from confide.robustness import fit_trust_predictor
    from confide.training import penultimate, predict

    if not any(trust.TRUST.get(word).spec.trained for word in args.trust):
        return {word: fit_trust_predictor(word, None, None, args.seed) for word in args.trust}
    val = predict(trained, dataset, "val", batch_size=args.batch_size, device=args.device)
    features = penultimate(trained, dataset, "val", batch_size=args.batch_size)
    return {word: fit_trust_predictor(word, val, features, args.seed) for word in args.trust}


def _spread_over(train: Any) -> Any:
    import numpy as np

    from confide.robustness import MAX_REFERENCE_SAMPLES

    return train.take(np.linspace(0, len(train) - 1, min(len(train), MAX_REFERENCE_SAMPLES)).round().astype(np.int64))


def clean_evaluations(args: argparse.Namespace, test: Split, models: dict[str, Trained]) -> list[Evaluation]:
    """Every model on the clean test split, for reports without a grid."""
    from confide.evaluation import evaluate
    from confide.training import predict

    return [
        evaluate(
            predict(trained, test, "test", batch_size=args.batch_size, device=args.device),
            "core",
            not args.no_intervals,
            model=name,
            seed=args.seed,
        )
        for name, trained in models.items()
    ]


# What `confide shift` prints: the cells' means beside clean values, accuracy and ECE by severity, foreign sets.

SEVERITY_GROUP = "shift=severity "


def shift_tables(found: Evaluation) -> list[str]:
    """One text per table."""
    return [*_means_table(found), *_severity_table(found), *_ood_table(found)]


def _means_table(found: Evaluation) -> list[str]:
    words = [info.word for info in found.columns("shift")]
    rows = []
    for m in found.measurements:
        if m.metric == "accuracy" and m.group in (None, "shift=mean"):
            where = {"model": m.model, "stage": m.stage, "group": m.group}
            values = [_number(found, word, where) for word in words]
            rows.append([m.model, m.stage, "clean" if m.group is None else "mean of cells", *values])
    return [text_table(["model", "stage", "images", *words], rows)] if rows else []


def _severity_table(found: Evaluation) -> list[str]:
    """Accuracy once a model; ECE of the model at every stage, and of trust predictors that claim a chance."""
    groups = list(dict.fromkeys(m.group for m in found.measurements if (m.group or "").startswith(SEVERITY_GROUP)))
    shown: dict[tuple[str, str, str], dict[str, float]] = {}
    for m in found.measurements:
        # Calibrators that leave the order of the classes alone leave the accuracy: once is enough.
        wanted = (m.metric == "accuracy" and m.stage == "raw") or m.metric == "ece"
        if wanted and m.group in groups:
            what = m.stage if m.score in (None, "msp") else str(m.score)
            shown.setdefault((m.model, m.metric, "" if m.metric == "accuracy" else what), {})[str(m.group)] = m.value
    rows = [
        [model, f"{metric} {what}".strip(), *(f"{values[g]:.4f}" if g in values else "-" for g in groups)]
        for (model, metric, what), values in shown.items()
    ]
    names = [str(group)[len(SEVERITY_GROUP) :] for group in groups]
    heads = ["clean" if name == "0" else f"severity {name}" for name in names]
    return ["\n" + text_table(["model", "mean over the cells", *heads], rows)] if rows else []


def _ood_table(found: Evaluation) -> list[str]:
    groups = [m for m in found.measurements if m.metric == "auroc" and (m.group or "").startswith("ood=")]
    words = [info.word for info in found.columns("ood")]
    rows = [
        [m.model, str(m.group)[4:], str(m.score)]
        + [_number(found, word, {"model": m.model, "group": m.group, "score": m.score}) for word in words]
        for m in groups
    ]
    return ["\n" + text_table(["model", "foreign", "score", *words], rows)] if rows else []


def _number(found: Evaluation, word: str, where: dict[str, Any]) -> str:
    for m in found.measurements:
        if (
            m.metric == word
            and m.score in (None, "msp", where.get("score"))
            and all(getattr(m, k) == v for k, v in where.items())
        ):
            return f"{m.value:.4f}"
    return "-"


# `confide shift MODEL ... --data DATA`: trained models on corrupted, attacked and foreign data, side by side.

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
    from confide.checks import InputError

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
    from confide.checks import InputError

    if (Path(args.source) / "model.safetensors").is_file():
        raise InputError(
            f"{args.source} is a trained model, not predictions; make them with confide predict, or add --shift KIND"
        )
    for name in ("data", "beside"):
        if getattr(args, name):
            raise InputError(f"--{name} goes with --shift alone; drop it, or add --shift corruptions")


def _check_models(paths: list[str]) -> None:
    """Corruptions need images and a model to show them to; predictions are of no use."""
    from confide.checks import InputError

    for path in map(Path, paths):
        if path.is_file() and path.suffix != ".safetensors":
            raise InputError(
                f"{path} must be a trained model, got a file of another kind; predictions cannot be corrupted, so give "
                "the folder that confide train --out wrote, or your own model with confide.evaluation.shift_grid"
            )


def run(args: argparse.Namespace) -> int:
    """Grid, foreign data, report."""
    from confide.cli.shared import print_json
    from confide.data import load_dataset
    from confide.report import write_report

    _check_models(args.models)
    _check_numbers(args)
    dataset = load_dataset(args.data, **parse_options(args.data_option))
    found = evaluate_shift(args, dataset, _models(args.models))
    out = Path(args.out)
    found.save(out / "evaluation.json")
    write_report(found, out / "report.html")
    if args.json:
        print_json({**found.to_dict(), "files": [out / "evaluation.json", out / "report.html"]})
        return 0
    for line in shift_tables(found):
        print(line)
    print(f"\nevaluation: {out / 'evaluation.json'}\nreport: {out / 'report.html'}")
    return 0


def _check_numbers(args: argparse.Namespace) -> None:
    from confide.checks import InputError

    for name, least in (("batch_size", 1), ("samples", 0)):
        if getattr(args, name) < least:
            raise InputError(f"--{name.replace('_', '-')} must be at least {least}, got {getattr(args, name)}")


def _models(paths: list[str]) -> dict[str, Trained]:
    from confide.checks import InputError
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

    from confide.checks import InputError
    from confide.evaluation import join
    from confide.results import About

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
    foreign = {source: ood_samples(args, dataset, models, source) for source in args.ood}
    first = [_grid(args, dataset, test, models, wanted)] if gridded else clean_evaluations(args, test, models)
    evaluations = [*first]
    for source, split in foreign.items():
        evaluations += evaluate_ood(args, dataset, test, models, source, split)
    title = f"{dataset.name} under shift"
    names = tuple(dataset.class_names)
    return join(
        evaluations, about=About(title=title, unit=dataset.unit, class_names=names, commands=(command_of(args),))
    )


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
    from confide.evaluation import label_noise_curve, shift_grid
    from confide.files.formats import checksum
    from confide.robustness import CleanFits, ModelOnDevice, make_subject
    from confide.shift import noisy_labels

    rmd = args.rmd is True or (bool(args.rmd) and "train" in dataset.splits)
    usual = ["temperature"] if "val" in dataset.splits and len(dataset.val) else []
    calibrated = [] if args.no_calibrate else usual if args.calibrate is None else args.calibrate
    wishes = CleanFits(calibrated, args.trust, rmd, args.batch_size, args.seed)
    runners = {name: ModelOnDevice.of(trained, args.device) for name, trained in models.items()}
    paths = dict(zip(models, args.models, strict=True))
    subjects = {}
    for name, runner in runners.items():
        file = Path(paths[name]) / "model.safetensors" if Path(paths[name]).is_dir() else Path(paths[name])
        subjects[name] = make_subject(runner, dataset, wishes, checksum(file))
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
