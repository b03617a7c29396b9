"""What the verbs share: NAME=VALUE words, text tables, JSON, predictions from a file. Loads no torch."""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confide.predictions import Predictions
    from confide.results import Measurement, MetricInfo

NOT_KEPT = 3
"""Exit status where an expectation is broken or nothing can be promised: neither bad input nor a success."""


NOT_MET = 3
"""Exit status where an expectation is broken, an alarm is raised, or nothing can be promised."""


# NAME=VALUE words; values are read as YAML (numbers, true, lists).


def parse_option(text: str, form: str = "an option must be NAME=VALUE") -> tuple[str, Any]:
    """Name and value of a NAME=VALUE word; `form` is how a word that is none is refused."""
    from confide.checks import InputError
    from confide.files.formats import read_yaml

    name, sign, value = text.partition("=")
    name = name.strip().replace("-", "_")
    if not sign:
        raise InputError(f"{form}, got '{text}'")
    return name, read_yaml(value, f"the value of '{name}'")


def parse_options(texts: Sequence[str], form: str = "an option must be NAME=VALUE") -> dict[str, Any]:
    """Options by name."""
    return dict(parse_option(text, form) for text in texts)


def parse_method_options(texts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """`steep_slope.alpha_neg=5` as {"steep_slope": {"alpha_neg": 5}}."""
    from confide.checks import InputError

    options: dict[str, dict[str, Any]] = {}
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

    print(json.dumps(plain(value), indent=1, ensure_ascii=False, allow_nan=False))


# Predictions that a verb is given, and the one warning about what stands in them.

FIRST_ROWS = 100


def load_predictions(path: str | Path) -> Predictions:
    """The predictions of a file; a warning on stderr where its logits are probabilities to all appearances."""
    from confide.predictions import Predictions

    predictions = Predictions.load(path)
    if doubted := probability_doubt(predictions, path):
        print(f"warning: {doubted}", file=sys.stderr)
    return predictions


def probability_doubt(predictions: Predictions, path: str | Path) -> str:
    """A sentence where every row of the logits sums to one within [0, 1]; what they are is never guessed."""
    import torch

    if not predictions.outputs.all_classes or predictions.from_probabilities or not len(predictions):
        return ""
    logits = predictions.logits
    single = logits.shape[1] == 2 and bool((logits[:, 0] == 0).all())
    if single and bool(((logits[:, 1] >= 0) & (logits[:, 1] <= 1)).all()):
        return f"all single logits in {path} lie in [0, 1], as probabilities do; if they are, call the column 'probs'"
    # A file of real logits is told by its first rows; only a doubtful one is read to its end.
    for rows in (logits[:FIRST_ROWS], logits):
        if bool((rows < 0).any()) or bool(((rows.sum(1, dtype=torch.float64) - 1).abs() > 1e-3).any()):
            return ""
    return f"every row of the logits in {path} sums to 1, as probabilities do; if they are, call the column 'probs'"


def write_evaluation(folder: str, command: str, predictions: Predictions, name: str, **parts: Any) -> list[str]:
    """evaluation.json and report.html of the predictions, with further parts of an Evaluation; the files' paths."""
    from dataclasses import replace

    from confide.evaluation.evaluate import evaluate
    from confide.report import write_report
    from confide.results import About

    evaluation = evaluate(predictions, model=name, title=name, about=About(commands=(command,)))
    evaluation = replace(evaluation, **parts)
    page, record = Path(folder) / "report.html", Path(folder) / "evaluation.json"
    evaluation.save(record)
    write_report(evaluation, page)
    return [str(record), str(page)]
