"""`confide shift MODEL ... --data DATA`: trained models on corrupted, attacked and out-of-distribution data, side by
side.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from confide.cli.shared import parse_options, print_json, text_table

if TYPE_CHECKING:
    from confide.results import Evaluation, Measurement
    from confide.robustness import ShiftRequest


# What `confide shift` prints: the cells' means beside clean values, accuracy and ECE by severity, OOD sets.


def shift_tables(evaluation: Evaluation) -> list[str]:
    """One text per table."""
    tables = [*_means_table(evaluation), *_severity_table(evaluation), *_ood_table(evaluation)]
    levels = any(m.chance is not None for m in evaluation.measurements)
    return [
        *tables,
        *(["\nafter an ECE in brackets: what perfectly calibrated models would show by chance"] if levels else []),
    ]


def _means_table(evaluation: Evaluation) -> list[str]:
    from confide.results import MEAN_OF_CELLS, group_of

    words, mean = [info.word for info in evaluation.columns("shift")], group_of("shift", MEAN_OF_CELLS)
    rows = []
    for m in evaluation.measurements:
        if m.metric == "accuracy" and m.group in (None, mean):
            where = {"model": m.model, "stage": m.stage, "group": m.group}
            values = [_number(evaluation, word, where) for word in words]
            rows.append([m.model, m.stage, "clean" if m.group is None else "mean of cells", *values])
    return [text_table(["model", "stage", "images", *words], rows)] if rows else []


def _severity_table(evaluation: Evaluation) -> list[str]:
    """Accuracy once a model; ECE of the model at every stage, and of trust predictors that claim a chance."""
    from confide.results import OF_SEVERITY

    by_severity = [
        m for m in evaluation.measurements if m.group_kind == "shift" and m.group_name.startswith(OF_SEVERITY)
    ]
    shown: dict[tuple[str, str, str], dict[str, str]] = {}
    for m in by_severity:
        # Calibrators that leave the order of the classes alone leave the accuracy: once is enough.
        if (m.metric == "accuracy" and m.stage == "raw") or m.metric == "ece":
            what = m.stage if m.plain else str(m.score)
            shown.setdefault((m.model, m.metric, "" if m.metric == "accuracy" else what), {})[m.group_name] = _cell(m)
    groups = list(dict.fromkeys(m.group_name for m in by_severity))
    rows = [
        [model, f"{metric} {what}".strip(), *(values.get(group, "-") for group in groups)]
        for (model, metric, what), values in shown.items()
    ]
    heads = ["clean" if group == f"{OF_SEVERITY}0" else group for group in groups]
    return ["\n" + text_table(["model", "mean over the cells", *heads], rows)] if rows else []


def _ood_table(evaluation: Evaluation) -> list[str]:
    words = [info.word for info in evaluation.columns("ood")]
    rows = []
    for m in evaluation.measurements:
        if m.metric == "auroc" and m.group_kind == "ood":
            where = {"model": m.model, "group": m.group, "score": m.score}
            values = [_number(evaluation, word, where) for word in words]
            rows.append([m.model, m.group_name, str(m.score), *values])
    return ["\n" + text_table(["model", "OOD set", "score", *words], rows)] if rows else []


def _number(evaluation: Evaluation, word: str, where: dict[str, str | None]) -> str:
    for m in evaluation.measurements:
        same = all(getattr(m, k) == v for k, v in where.items())
        if same and m.metric == word and (m.plain or m.score == where.get("score")):
            return _cell(m)
    return "-"


def _cell(m: Measurement) -> str:
    """The value; of a calibration error in brackets what perfectly calibrated models would show by chance."""
    return f"{m.value:.4f}" if m.chance is None else f"{m.value:.4f} ({m.chance:.4f})"


# `confide shift MODEL ... --data DATA`: trained models side by side on corrupted, attacked and OOD data.

EXAMPLE = """\
  confide shift runs/adafocal --data cifar10 --calibrate temperature
  confide shift runs/ce runs/adafocal --data cifar10 --ood tinyimagenet32/ dtd.npz mnist/ --out shift
  confide shift runs/ce --data fashion-sample --words fog gaussian_noise pgd --severities 1 3 5
  confide shift runs/intents --data clinc150:data_full.json --ood out-of-scope"""


OF_PREDICTIONS = ("by", "score", "scores", "title", "split")
"""Options of `confide evaluate` that say how predictions are read and measured."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    add = parser.add_argument
    add("models", nargs="+", metavar="MODEL", help="folders of trained models (confide train --out)")
    add("--data", required=True, help="the dataset whose test split is shifted: a word, or a path")
    add("--data-option", action="append", default=[], metavar="NAME=VALUE", help="option of the data")
    add(
        "--kind",
        default="corruptions",
        help="benchmark (15), corruptions (16, default), corruptions19, domain, attacks, all, or none",
    )
    add("--words", nargs="+", help="single shifts and attacks instead of a kind")
    add("--severities", nargs="+", type=int, default=[1, 2, 3, 4, 5], help="of 1 to 5 (default: all)")
    add("--form", choices=("auto", "32", "224"), default="auto", help="published parameters for 32 or 224")
    add("--ood", nargs="+", default=[], metavar="DATA", help="out-of-distribution data: words, paths, or out-of-scope")
    add(
        "--calibrate",
        nargs="+",
        metavar="WORD",
        help="calibrators, fitted on clean val (default: temperature, where the data have a val split)",
    )
    add("--no-calibrate", action="store_true", help="as trained only")
    add("--trust", nargs="+", default=[], metavar="WORD", help="trust predictors, fitted on clean val")
    add("--rmd", action="store_true", help="difficulty by severity and by label noise")
    add("--samples", type=int, default=0, help="only so many test samples (default: all)")
    add("--batch-size", type=int, default=1000, help="images at once (default: 1000)")
    add("--device", default="auto", help="cpu or cuda (default: a GPU where there is one)")
    add("--seed", type=int, default=0, help="of corruptions, attacks and resampling")
    add("--no-intervals", action="store_true", help="values only: no bootstrap")
    add("-o", "--out", default="shift", help="folder of evaluation.json, report.html and the cells")


def from_evaluate(args: argparse.Namespace) -> None:
    """`confide evaluate MODEL --shift KIND --data DATA`: the same with the words of that verb."""
    from confide.checks import InputError
    from confide.robustness import ShiftRequest, check_model_paths

    models = [args.source, *args.beside]
    check_model_paths(models)
    if not args.data:
        raise InputError("--shift needs the dataset whose test split is shifted; add --data DATA")
    flags = {"metrics": args.metrics != ["core"], **{k: getattr(args, k) is not None for k in OF_PREDICTIONS}}
    if unused := [f"--{name}" for name, is_set in flags.items() if is_set]:
        raise InputError(f"{', '.join(unused)} cannot be used with --shift, whose grid has metrics of its own; drop it")
    out = Path(args.out or Path(args.source).resolve().name + "-shift")
    request = ShiftRequest(shifts=args.shift, seed=args.seed, intervals=not args.no_intervals, rmd=None, folder=out)
    _evaluate(models, args.data, request, out, args)


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


def run(args: argparse.Namespace) -> None:
    """Grid, out-of-distribution data, report."""
    from confide.robustness import ShiftRequest

    calibrators = () if args.no_calibrate else args.calibrate
    request = ShiftRequest(
        shifts=args.kind if args.words is None else tuple(args.words),
        severities=tuple(args.severities),
        form=args.form,
        ood=tuple(args.ood),
        calibrators=None if calibrators is None else tuple(calibrators),
        trust=tuple(args.trust),
        rmd=args.rmd,
        samples=args.samples,
        batch_size=args.batch_size,
        device=args.device,
        seed=args.seed,
        intervals=not args.no_intervals,
        folder=args.out,
        data_options=parse_options(args.data_option),
    )
    _evaluate(args.models, args.data, request, Path(args.out), args)


def _evaluate(models: list[str], data: str, request: ShiftRequest, out: Path, args: argparse.Namespace) -> None:
    from confide.report import write_report
    from confide.results import About
    from confide.robustness import evaluate_shift

    evaluation = evaluate_shift(models, data, request, about=About(commands=(args.command,), subject="shift"))
    evaluation.save(out / "evaluation.json")
    write_report(evaluation, out / "report.html")
    if args.json:
        print_json({**evaluation.to_dict(), "files": [out / "evaluation.json", out / "report.html"]})
        return
    for line in shift_tables(evaluation):
        print(line)
    print(f"\nevaluation: {out / 'evaluation.json'}\nreport: {out / 'report.html'}")
