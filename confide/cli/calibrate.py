"""`confide calibrate --fit A --apply B`: fit on A, choose by cross-validation on A, show before and after on B."""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confide.cli.shared import (
    PRIOR,
    WEIGHTS,
    add_engine,
    load_predictions,
    p_value,
    print_json,
    prior_of,
    refuse_flags,
    text_table,
    workers_of,
)

if TYPE_CHECKING:
    from confide.calibrators import Choice
    from confide.pipeline import CalibrationEffect
    from confide.predictions import Predictions
    from confide.records import Features
    from confide.results import Comparison, Evaluation, Measurement
    from confide.types import JsonObject


EXAMPLE = (
    "  confide calibrate --fit val.parquet --apply test.parquet\n"
    "  confide calibrate --fit val.npz --apply test.npz --methods temperature --save t.json --out b.parquet\n"
    "  confide calibrate --fit val.parquet --apply test.parquet --score brier --by site --json\n"
    "  confide calibrate --fit val.parquet --apply test.parquet --opinion gaussian --fitted train.npz \\\n"
    "    --features val.npz test.npz --save opinion.json\n"
    "  confide calibrate --fit val.parquet --apply test.parquet --opinion other=b-val.parquet,b-test.parquet\n"
    "  confide calibrate --fit val/ --apply test/ --methods temperature --exact --engine ray --workers 8 --out new/"
)


def configure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--fit", required=True, metavar="A", help="held-out predictions to fit on, never those of 'test'")
    add("--apply", required=True, metavar="B", help="predictions to calibrate, and to judge on where labelled")
    add("--methods", nargs="+", help="words to choose from (see: confide list calibrators); one is taken")
    add("--score", default="nll", choices=("nll", "brier"), help="what chooses (default: nll)")
    add("--folds", type=int, default=5, help="of the cross-validation on A (default: 5)")
    add("--by", metavar="COLUMN", help="a fit per value of this column, shrunk to the whole")
    add("--bands", type=int, metavar="N", help="cut the numbers of --by into N bands first")
    add(
        "--opinion",
        action="append",
        default=[],
        metavar="WORD|NAME=A,B",
        help="try a second opinion: gaussian, logistic or knn of --features, or another model's predictions on A and B",
    )
    add("--features", nargs=2, metavar=("A", "B"), help="features of the samples of A and B, for --opinion WORD")
    add("--fitted", metavar="FILE", help="features of the training split, or a fitted rmd (confide score --save-fit)")
    add("--classes", choices=("free", "kept"), default="free", help="whether an opinion may change the class")
    add("--weights", metavar="COLUMN", help=WEIGHTS.replace("FILE has", "the files have"))
    add("--prior", nargs="+", metavar="SHARE", help=PRIOR.replace("FILE", "A"))
    add("--save", metavar="FILE", help="write the calibrator, .json or .safetensors")
    add("-o", "--out", metavar="FILE", help="write B calibrated, .parquet, .npz or .csv; of a folder, a folder")
    add("--exact", action="store_true", help="of a folder A: fit a temperature on all rows, not on those drawn")
    add_engine(parser)
    add("--seed", type=int, default=0, help="of the folds and the resampling (default: 0)")


def run(args: argparse.Namespace) -> None:
    from confide.calibrators.fitting import DEFAULT_CANDIDATES, choose
    from confide.pipeline import apply_to_folder, calibration_effect, fit_temperature_on_folder

    _check_paths(args)
    work = {path: workers_of(args, path) for path in (args.fit, args.apply)}
    fitted_on, applied_to = (
        load_predictions(path, weights=args.weights, work=work[path]) for path in (args.fit, args.apply)
    )
    opinions = read_opinions(args, fitted_on, applied_to)
    words = args.methods
    if args.opinion and "second_opinion" not in (words or ()):
        words = (*(words or DEFAULT_CANDIDATES), "second_opinion")
    choice = choose(
        fitted_on,
        words,
        score=args.score,
        folds=args.folds,
        seed=args.seed,
        by=args.by,
        bands=args.bands,
        may_decline=words is None or len(words) > 1,
        features=opinions.fit_features,
        fitted=opinions.fitted,
        opinions=opinions.fit_models,
        prior=prior_of(args.prior),
        options={"second_opinion": opinions.options},
    )
    if args.exact:
        calibrator = fit_temperature_on_folder(choice.calibrator, fitted_on, args.fit, work[args.fit])
        choice = replace(choice, calibrator=calibrator)
    effect = calibration_effect(
        choice,
        fitted_on,
        applied_to,
        seed=args.seed,
        features=opinions.apply_features,
        opinions=opinions.apply_models,
    )
    written = []
    if args.save:
        choice.calibrator.save(args.save)
        written.append(args.save)
    if args.out and Path(args.apply).is_dir():
        written += map(str, apply_to_folder(choice.calibrator, args.apply, args.out, work=work[args.apply]))
    elif args.out:
        effect.predictions.save(args.out)
        written.append(args.out)
    if args.json:
        print_json(as_json(choice, effect, written))
    else:
        show(choice, effect, written)


@dataclass(frozen=True, eq=False)
class Opinions:
    """What second opinions are made of: features of both files and of training, and other models' predictions."""

    options: dict[str, str] = field(default_factory=dict)
    fitted: Any = None
    fit_features: Features | None = None
    apply_features: Features | None = None
    fit_models: dict[str, Predictions] = field(default_factory=dict)
    apply_models: dict[str, Predictions] = field(default_factory=dict)


def read_opinions(args: argparse.Namespace, fitted_on: Predictions, applied_to: Predictions) -> Opinions:
    """The files that --opinion, --features and --fitted name."""
    from confide import difficulty
    from confide.checks import InputError
    from confide.files import split_pair
    from confide.records import Features

    words = [entry for entry in args.opinion if "=" not in entry]
    if bool(words) != bool(args.features) or bool(words) != bool(args.fitted):
        raise InputError("--opinion WORD, --features A B and --fitted FILE must come together; pass all three")
    options = {"classes": args.classes} if args.opinion else {}
    if not args.opinion and args.classes != "free":
        raise InputError("--classes is of a second opinion; pass --opinion too")
    models: tuple[dict[str, Predictions], ...] = ({}, {})
    for entry in set(args.opinion) - set(words):
        form = "--opinion must be a word or NAME=A,B with two files of predictions"
        name, files = split_pair(entry, form)
        paths = files.split(",")
        if len(paths) != 2:
            raise InputError(f"{form}, got '{entry}'")
        for part, path in zip(models, paths, strict=True):
            part[name] = load_predictions(path)
    if not words:
        return Opinions(options, fit_models=models[0], apply_models=models[1])

    def rows(path: str, of: Predictions) -> Features:
        return Features.load(path, ids=of.ids, labels=of.labels.numpy() if of.has_labels else None)

    is_fit = Path(args.fitted).suffix == ".safetensors"
    fitted = difficulty.load(args.fitted) if is_fit else Features.load(args.fitted)
    options["opinion"] = ",".join(words)
    return Opinions(options, fitted, rows(args.features[0], fitted_on), rows(args.features[1], applied_to), *models)


def _check_paths(args: argparse.Namespace) -> None:
    from confide.checks import InputError
    from confide.files.formats import TABLE_ENDINGS

    if args.exact:
        refuse_flags(
            args, ("by", "bands", "prior", "weights", "opinion"), "--exact fits one temperature on all rows alike"
        )
        if not Path(args.fit).is_dir() or args.methods != ["temperature"]:
            why = "--exact fits a temperature on all rows of a folder"
            raise InputError(f"{why}; pass a folder as --fit and --methods temperature")
    if args.engine and not (Path(args.fit).is_dir() or Path(args.apply).is_dir()):
        raise InputError("--engine is of folders of shards, got two files; leave it out")
    if Path(args.fit).resolve() == Path(args.apply).resolve():
        raise InputError(f"--fit and --apply must be different files, got {args.fit} twice; hold some samples out")
    table = None if Path(args.apply).is_dir() else args.out
    for path, suffixes in ((args.save, (".json", ".safetensors")), (table, TABLE_ENDINGS)):
        if path and Path(path).suffix not in suffixes:
            raise InputError(f"{path} must end in {' or '.join(suffixes)}, got '{Path(path).suffix}'; choose one")


def show(choice: Choice, effect: CalibrationEffect, written: list[str]) -> None:
    """Tables for a person."""
    rows = [
        [
            ("> " if c.word == choice.word else "  ") + c.word,
            f"{c.score:.4f}",
            "" if c.word == "none" else f"{c.difference:+.4f}",
            "" if c.word == "none" else f"{c.low:+.4f} to {c.high:+.4f}",
            "" if c.word == "none" else f"{c.p_value:.2g}",
            f"{c.accuracy:.4f}",
            f"{c.changed:,}",
        ]
        for c in sorted(choice.candidates, key=lambda c: c.score)
    ]
    header = ["calibrator", choice.score, "to none", "95 % interval", "p", "accuracy", "changed"]
    print(f"cross-validated on the {choice.n:,} fitted predictions\n\n{text_table(header, rows)}")
    for word, reason in choice.failed.items():
        print(f"  {word}: {reason}")
    n = len(effect.predictions)
    if effect.before is None:
        print(f"\n{n:,} predictions calibrated; they have no labels to judge by")
    else:
        print(f"\non the {n:,} applied predictions\n\n{before_and_after(choice.word, effect.before, effect)}")
    if choice.calibrator.feature_dim is not None:
        by = choice.calibrator.source.extractor or "what made the features"
        print(f"\nprice: every new sample goes through {by} too; `confide predict` shows the milliseconds of both")
    for warning in effect.warnings:
        print(f"warning: {warning}")
    for path in written:
        print(f"wrote {path}")


def before_and_after(word: str, judged: Evaluation, effect: CalibrationEffect) -> str:
    """A row per metric: before, after, difference with interval, Holm-corrected p."""
    rows = []
    for before in (m for m in judged.measurements if m.group is None and m.plain):
        row = [before.metric, _measured_cell(before)]
        if effect.after is not None:
            after = next(m for m in effect.after.measurements if m.metric == before.metric and m.group is None)
            test = next((c for c in effect.comparisons if c.metric == before.metric), None)
            row.append(_measured_cell(after))
            row += ["", "", ""] if test is None else _test_cells(test, word)
        rows.append(row)
    header = ["metric", "before"] + ([] if effect.after is None else ["after", "difference", "p (Holm)", "better"])
    return text_table(header, rows)


def _measured_cell(m: Measurement) -> str:
    """Value and interval; of a calibration error also what a perfectly calibrated model would show."""
    chance = "" if m.chance is None else f", by chance {m.chance:.4f}"
    return f"{m.value:.4f} ({m.low:.4f} to {m.high:.4f}{chance})"


def _test_cells(test: Comparison, word: str) -> list[str]:
    better = {"a": "before", "b": word}.get(test.better or "", "-")
    return [f"{test.difference:+.4f} ({test.low:+.4f} to {test.high:+.4f})", p_value(test.p_holm), better]


def as_json(choice: Choice, effect: CalibrationEffect, written: list[str]) -> JsonObject:
    """Everything for a machine."""
    return {
        "score": choice.score,
        "chosen": choice.word,
        "candidates": [asdict(c) for c in choice.candidates],
        "failed": choice.failed,
        "calibrator": choice.calibrator.state().record,
        "before": _rows(effect.before),
        "after": _rows(effect.after),
        "comparisons": [asdict(c) for c in effect.comparisons],
        "warnings": list(effect.warnings),
        "files": written,
    }


def _rows(evaluation: Evaluation | None) -> list[JsonObject]:
    return [] if evaluation is None else [m.as_row() for m in evaluation.measurements if m.group is None]
