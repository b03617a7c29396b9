"""What the verbs share: NAME=VALUE words, text tables, JSON, predictions from a file. Loads no torch."""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confide.progress import ENGINES

if TYPE_CHECKING:
    from confide.pipeline import Workers
    from confide.predictions import Predictions
    from confide.results import Measurement, MetricInfo
    from confide.types import Options

NOT_KEPT = 3
"""Exit status where an expectation is broken or nothing can be promised: neither bad input nor a success."""


# NAME=VALUE words; values are read as YAML (numbers, true, lists).


def parse_option(text: str, form: str = "an option must be NAME=VALUE") -> tuple[str, object]:
    """Name and value of a NAME=VALUE word."""
    from confide.files.formats import read_yaml, split_pair

    name, value = split_pair(text, form)
    name = name.replace("-", "_")
    return name, read_yaml(value, f"the value of '{name}'")


def parse_options(texts: Sequence[str], form: str = "an option must be NAME=VALUE") -> Options:
    """Options by name."""
    return dict(parse_option(text, form) for text in texts)


def parse_method_options(texts: Sequence[str]) -> dict[str, Options]:
    """`steep_slope.alpha_neg=5` as {"steep_slope": {"alpha_neg": 5}}."""
    from confide.checks import InputError

    options: dict[str, Options] = {}
    form = "--set takes WORD.OPTION=VALUE, such as steep_slope.alpha_neg=5"
    for name, value in parse_options(texts, form).items():
        word, dot, option = name.partition(".")
        if not dot:
            raise InputError(f"{form}, got '{name}'")
        options.setdefault(word, {})[option] = value
    return options


def refuse_flags(args: argparse.Namespace, names: Sequence[str], why: str) -> None:
    """One line for the flags among these names that were set though they have no meaning there."""
    from confide.checks import InputError

    if wrong := [f"--{name}" for name in names if getattr(args, name.replace("-", "_"))]:
        raise InputError(f"{why} and takes no {', '.join(wrong)}; leave it out")


# Plain text tables for people, JSON for machines.

NUMBER = re.compile(r"[<>±+−-]? ?\.?\d|-?$|nan|inf")


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns aligned by width: the first and columns of words to the left, numbers to the right."""
    widths = [max(len(str(row[k])) for row in [header, *rows]) for k in range(len(header))]
    sides = ["<", *(">" if all(NUMBER.match(str(row[k])) for row in rows) else "<" for k in range(1, len(header)))]

    def line(row: Sequence[str]) -> str:
        return "  ".join(f"{c:{side}{w}}" for c, side, w in zip(row, sides, widths, strict=True)).rstrip()

    return "\n".join([line(header), line(["-" * w for w in widths]), *(line(row) for row in rows)])


# Numbers for people; a metric's unit, scale and decimals are its own.


def number(value: float | None) -> str:
    """Four decimals, a dash for what is not defined."""
    return "-" if value is None or math.isnan(value) else f"{value:.4f}"


def interval(measurement: Measurement) -> str:
    """`0.0123 to 0.0456`, or nothing."""
    low, high = measurement.bounds or (math.nan, math.nan)
    return "" if math.isnan(low) or math.isnan(high) else f"{low:.4f} to {high:.4f}"


def p_value(value: float | None) -> str:
    """A p-value as it is read."""
    return "" if value is None or math.isnan(value) else "< 0.001" if value < 0.001 else f"{value:.3f}"


def metric_cell(info: MetricInfo, measurement: Measurement | None, more_digits: int = 0) -> str:
    """A metric in its unit, with half its 95 % interval where that is known: `3.0 ±0.8`."""
    if measurement is None or math.isnan(measurement.value):
        return ""
    text = info.number(measurement.value, more_digits)
    low, high = measurement.bounds or (math.nan, math.nan)
    return text if math.isnan(high - low) else f"{text} ±{info.number((high - low) / 2, more_digits)}"


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    from confide.files.formats import plain  # brings torch, and --help needs none

    # At once: whoever waits behind a pipe for the address of an explorer must not wait for its end.
    print(json.dumps(plain(value), indent=1, ensure_ascii=False, allow_nan=False), flush=True)


# Folders of shards, and who reads them.


def add_engine(parser: argparse.ArgumentParser) -> None:
    """The flags of who reads and writes the shards of a folder."""
    add = parser.add_argument
    add("--engine", choices=ENGINES, help="of folders: who works, several processes here or a Ray cluster")
    add("--workers", type=int, metavar="N", help="with --engine: how many at a time (default: 2)")
    add("--parts", metavar="DIR", help="with --engine: a folder that all workers see (default: FOLDER-parts beside it)")


def workers_of(args: argparse.Namespace, folder: str | Path) -> Workers:
    """Who works on a folder, by these flags; this process where there are none."""
    from confide.pipeline import Workers

    if not args.engine:
        refuse_flags(args, ("workers", "parts"), "without --engine a folder is read by this process")
    source = Path(folder)
    parts = Path(args.parts) if args.parts else source.parent / f"{source.name}-parts"
    return Workers(parts, args.engine, args.workers or 2)


# Predictions that a verb is given, and what is doubtful about them.


def name_of_file(path: str | Path) -> str:
    """What the predictions of a file are called: its name up to the first dot."""
    return Path(path).name.split(".")[0]


def metrics_of(words: list[str]) -> str | list[str]:
    """`core` and `all` name several metrics, all else is the metrics themselves."""
    return words[0] if words in (["core"], ["all"]) else words


WEIGHTS = "column that says how much each sample counts (default: sample_weight, where FILE has it)"


PRIOR = (
    "shares of the classes where the model is used, if FILE was drawn by class: a number a class, or NAME=SHARE each"
)


def prior_of(texts: Sequence[str] | None) -> list[float] | dict[str, float] | None:
    """Shares of the classes in their order, or by name."""
    from confide.checks import InputError
    from confide.files import split_pair

    if texts is None:
        return None
    form = "--prior takes a number a class, or NAME=NUMBER each"
    try:
        if not any("=" in text for text in texts):
            return [float(text) for text in texts]
        return {name: float(share) for name, share in (split_pair(text, form, last=True) for text in texts)}
    except ValueError:
        raise InputError(f"{form}, got '{' '.join(texts)}'") from None


def weights_text(predictions: Predictions) -> str:
    """How many samples of equal weight weighted ones are worth, to go behind their number."""
    weights = predictions.counted().relative_weights
    if weights is None:
        return ""
    return f", weighted: worth {weights.sum() ** 2 / (weights @ weights):,.0f} of equal weight"


def load_predictions(
    path: str | Path, unit: str | None = None, weights: str | None = None, work: Workers | None = None
) -> Predictions:
    """The predictions of a file, with the columns of what was drawn as one and of the weights, where given.

    Of a folder of shards rows are drawn at random, as many as a fit or a test needs, and a line says how many.
    """
    from confide.predictions import Predictions

    with warnings_on_stderr():
        if Path(path).is_dir():
            from confide.pipeline import sample_folder

            predictions, total = sample_folder(path, work=work)
            if len(predictions) < total:
                print(f"note: {len(predictions):,} of the {total:,} rows of {path}, drawn at random", file=sys.stderr)
        else:
            predictions = Predictions.load(path)
    return (predictions.replace(unit=unit) if unit else predictions).weighted(weights)


@contextmanager
def warnings_on_stderr() -> Iterator[None]:
    """What is doubtful about an input is a line on stderr."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # What another package will call otherwise some day is for who develops with it.
        warnings.filterwarnings("ignore", category=DeprecationWarning, module="(?!confide)")
        yield
    for warning in caught:
        print(f"warning: {warning.message}", file=sys.stderr)


def write_evaluation(
    folder: str,
    command: str,
    predictions: Predictions,
    name: str,
    subject: str,
    rows: Sequence[Measurement] = (),
    **parts: Any,
) -> list[str]:
    """evaluation.json and report.html of the predictions, about a subject, with more rows and parts; the paths."""
    from dataclasses import replace

    from confide.evaluation.evaluate import evaluate
    from confide.report import write_report
    from confide.results import About

    evaluation = evaluate(predictions, model=name, title=name, about=About(commands=(command,), subject=subject))
    evaluation = replace(evaluation, measurements=(*evaluation.measurements, *rows), **parts)
    page, record = Path(folder) / "report.html", Path(folder) / "evaluation.json"
    evaluation.save(record)
    write_report(evaluation, page)
    return [str(record), str(page)]
