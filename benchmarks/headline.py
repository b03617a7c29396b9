"""The tables of README.md and docs/findings.md, made from files in benchmarks/results.

python -m benchmarks.headline
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import ROOT
from benchmarks.findings.cells import markdown
from benchmarks.lib import titles
from benchmarks.resplits.judge import AGAIN, LENGTHS, OPINION_PASSES, POST_HOC
from benchmarks.resplits.price import Passes, milliseconds_text
from benchmarks.resplits.splits import RESPLITS, SEEDS
from benchmarks.resplits.trainings import METHODS, TUNED
from confide import files

PAGES = ("README.md", "docs/findings.md")
RESULTS = ROOT / "benchmarks" / "results"
PLACE = re.compile(r"(<!-- made by benchmarks/headline\.py: (\w+) -->\n).*?(<!-- /made -->)", re.S)
MOST_ROWS = 10
Row = list[str]

# The network is given: CIFAR-10 on re-splits.

NETWORK = milliseconds_text(AGAIN[0][3])
FEATURES = milliseconds_text(AGAIN[0][3] + OPINION_PASSES["logistic"])
PRICE = "ms an image, H200 / two CPU cores"
PRICES = {"temperature by difficulty": FEATURES, "dac": FEATURES, "procal": FEATURES}
OPINION_ROWS = (
    ("raw", "the network as trained", NETWORK),
    ("temperature", "temperature scaling, `temperature`", NETWORK),
    ("", "the best other calibrator, {name}", ""),
    ("gaussian, classes kept", "**second opinion**, predicted classes kept", FEATURES),
    ("gaussian", "**second opinion**, `gaussian`", FEATURES),
    ("logistic", "**second opinion**, `logistic`", FEATURES),
)


OPINION_COLUMNS = {"accuracy": 2, "nll": 3, "ece_mass": 2, "aurc": 2}
CALIBRATOR_COLUMNS = {"nll": 4, "ece_mass": 2, "aurc": 2}
CORRUPTED_COLUMNS = {"nll": 3, "ece_mass": 1, "aurc": 0}
"""Metrics of the tables, and how many decimals five seeds allow."""


def figures(epochs: int = 16, method: str = "cross_entropy", plan: str = RESPLITS) -> list[dict[str, Any]]:
    """One for each seed."""
    known = files.read_json(RESULTS / "resplits" / "figures.json")
    return [row for row in known if (row["plan"], row["epochs"], row["method"]) == (plan, epochs, method)]


def mean(rows: list[dict[str, Any]], stage: str, word: str, place: str = "clean") -> float:
    """Over the seeds; nan where it was not measured."""
    values = [row[place][stage][word] for row in rows if word in row.get(place, {}).get(stage, {})]
    return float(np.mean(values)) if len(values) == len(rows) else math.nan


def number_text(word: str, value: float, digits: int) -> str:
    """A value of a metric in the metric's own unit."""
    return "not measured" if math.isnan(value) else f"{titles.scaled(word, value):.{digits}f}"


def opinion() -> str:
    """What a user would do instead, beside a second opinion, with the price."""
    rows = figures()
    rivals = [name for name in POST_HOC if name != "temperature" and not math.isnan(mean(rows, name, "nll"))]
    best = min(rivals, key=lambda name: mean(rows, name, "nll"))
    lines: list[Row] = []
    for stage, title, price in OPINION_ROWS:
        name = stage or best
        cells = [number_text(word, mean(rows, name, word), digits) for word, digits in OPINION_COLUMNS.items()]
        lines.append([title.format(name=f"`{best}`"), *cells, price or PRICES.get(name, NETWORK)])
    return markdown(["", *map(titles.heading, OPINION_COLUMNS), PRICE], lines)


def again() -> str:
    """What may be trained instead, alone and with an opinion."""
    lines: list[Row] = []
    for (epochs, method), title, trainings, work, stages in AGAIN:
        rows = figures(epochs, method)
        for stage in (stages[0], stages[-1]) if rows else ():
            cells = [number_text(word, mean(rows, stage, word), digits) for word, digits in OPINION_COLUMNS.items()]
            shifted = number_text("nll", mean(rows, stage, "nll", "corrupted"), 3)
            name = f"{title}, {epochs} epochs" + (f", with {stage}" if stage in OPINION_PASSES else "")
            name += f" ({len(rows)} seeds)" if method == TUNED else ""
            # A third stage is the opinion of another network, which is trained too.
            total = milliseconds_text(work + OPINION_PASSES.get(stage, Passes()))
            price = f"{trainings + (stage in stages[2:])}; {total}"
            lines.append([name, *cells, shifted, price])
    heads = [*map(titles.heading, OPINION_COLUMNS), f"{titles.heading('nll')}, corrupted"]
    return markdown(["", *heads, f"trainings; {PRICE}"], lines)


SMALL_STUDIES = {
    "second_opinion.json": "Fashion images, small CNN, 64 features",
    "second_opinion_text.json": "CLINC150, text CNN, MiniLM",
}
"""Files of `benchmarks.quality.second_opinion`, and what they are of."""
OTHER_SPLITS = (
    ("official", 16, "CIFAR-10, official split, 16 epochs"),
    ("official", 50, "CIFAR-10, official split, 50 epochs"),
    ("tiny32", 16, "Tiny-ImageNet-32 (200 classes, of ImageNet), 16 epochs"),
)


def elsewhere() -> str:
    """One temperature -> with the opinion `logistic`, on other data."""
    known: dict[str, list[list[dict[str, float]]]] = {}
    for plan, epochs, title in OTHER_SPLITS:
        if rows := figures(epochs, plan=plan):
            known[title] = [[row["clean"][stage] for row in rows] for stage in ("temperature", "logistic")]
    for name, title in SMALL_STUDIES.items():
        if (path := RESULTS / name).exists():
            study = [{**row, "ece_mass": row["ece"]} for row in files.read_json(path)]
            stages = ("temperature alone", "logistic")
            known[title] = [[row for row in study if row["opinion"] == stage] for stage in stages]
    lines = []
    for title, pair in known.items():
        cells = []
        for word, digits in OPINION_COLUMNS.items():
            values = [float(np.mean([row[word] for row in rows])) for rows in pair]
            cells.append(" → ".join(number_text(word, value, digits) for value in values))
        lines.append([f"{title} ({len(pair[0])} seeds)", *cells])
    return markdown(["", *map(titles.heading, OPINION_COLUMNS)], lines)


def calibrators() -> str:
    """The best by NLL of the methods that leave the network alone and ask no second opinion."""
    rows = figures()
    known = {name: mean(rows, name, "nll") for name in POST_HOC}
    names = sorted((name for name in known if not math.isnan(known[name])), key=known.__getitem__)[:MOST_ROWS]
    lines = [
        [
            name if " " in name else f"`{name}`",
            *(number_text(word, mean(rows, name, word), digits) for word, digits in CALIBRATOR_COLUMNS.items()),
        ]
        for name in names
    ]
    return markdown(["calibrator", *map(titles.heading, CALIBRATOR_COLUMNS)], lines)


def corrupted() -> str:
    """The same networks under corruption, calibrators fitted on clean images."""
    rows = figures()
    names = ("raw", "temperature", "temperature by difficulty", "dac", "venn_abers", "gaussian", "logistic")
    lines = []
    for name in names:
        shifted = {word: mean(rows, name, word, "corrupted") for word in CORRUPTED_COLUMNS}
        cells = [number_text(word, shifted[word], digits) for word, digits in CORRUPTED_COLUMNS.items()]
        lines.append([name if " " in name or name == "raw" else f"`{name}`", *cells])
    return markdown(["stage", *map(titles.heading, CORRUPTED_COLUMNS)], lines)


def travelling() -> str:
    """Temperature of clean images -> `travelling`, on categories that it was not fitted on."""
    rows = files.read_json(RESULTS / "resplits" / "travelling.json")
    lines = []
    for mode in ("batch", "sample"):
        own = [row for row in rows if row["mode"] == mode]
        cells = []
        for column, (word, digits) in TRAVELLED.items():
            before, after = np.mean([row[column] for row in own], axis=0)
            cells.append(f"{number_text(word, before, digits)} → {number_text(word, after, digits)}")
        lines.append([f"`{mode}`", *cells])
    error, loss = titles.heading("ece_mass"), titles.heading("nll")
    return markdown(["mode", f"{error}, unseen corruptions", f"{loss} there", f"{error}, clean"], lines)


TRAVELLED = {"ece_mass": ("ece_mass", 1), "nll": ("nll", 3), "clean": ("ece_mass", 2)}
"""Columns of travelling.json, the metric of each, and its decimals."""


def people() -> str:
    """Rank correlation of difficulty with the disagreement of annotators."""
    known = files.read_json(RESULTS / "people.json")["spearman"]
    order = sorted(known, key=lambda name: -float(np.mean(known[name])))
    lines = [[name, f"{np.mean(known[name]):.3f} ± {np.std(known[name], ddof=1):.3f}"] for name in order]
    return markdown(["difficulty", "Spearman"], lines[:MOST_ROWS])


# You may train again: losses on re-splits and on the official split.

LENGTH_STAGES = ("temperature", "logistic")


def lengths() -> str:
    """NLL of every loss with one temperature and with an opinion, at both lengths; the best with an opinion first."""
    known: dict[str, list[str]] = {}
    order: dict[str, float] = {}
    for loss in METHODS:
        rows = {epochs: figures(epochs, loss) for epochs in LENGTHS}
        if not rows[LENGTHS[-1]]:
            continue
        # An opinion that not every seed had would compare other test sets.
        known[loss] = [
            f"{np.mean(values):.4f} ± {np.std(values, ddof=1):.4f}" if len(values) == len(SEEDS) else "not measured"
            for own in rows.values()
            for stage in LENGTH_STAGES
            for values in [[row["clean"][stage]["nll"] for row in own if stage in row["clean"]]]
        ]
        order[loss] = mean(rows[LENGTHS[-1]], "logistic", "nll")
    heads = [f"{epochs} epochs, {stage}" for epochs in LENGTHS for stage in ("temperature", "with opinion")]
    return markdown(["loss", *heads], [[f"`{loss}`", *known[loss]] for loss in sorted(known, key=order.__getitem__)])


LOSS_COLUMNS = ("accuracy", "ece_mass", "nll, calibrated", "aurc, calibrated")


def losses() -> str:
    """CIFAR-10, the best by NLL after calibration."""
    table, _ = files.read_table(RESULTS / "papers" / "main.parquet")
    rows: dict[str, dict[str, tuple[float, float]]] = {}
    for k in range(len(table["mean"])):
        if table["dataset"][k] == "cifar10" and math.isnan(table["x"][k]):
            own = rows.setdefault(str(table["method"][k]), {})
            own[str(table["quantity"][k])] = (float(table["mean"][k]), float(table["deviation"][k]))
    names = sorted((n for n in rows if "nll, calibrated" in rows[n]), key=lambda n: rows[n]["nll, calibrated"][0])
    lines = [[f"`{name}`", *(shown(rows[name], column) for column in LOSS_COLUMNS)] for name in names[:MOST_ROWS]]
    return markdown(["loss", *map(titles.heading, LOSS_COLUMNS)], lines)


def shown(row: Mapping[str, tuple[float, float]], quantity: str) -> str:
    """A number with its spread."""
    average, deviation = row[quantity]
    metric = titles.metric_of(quantity)
    digits = 3 if metric is None else metric.digits + titles.MORE_DIGITS
    return f"{average:.{digits}f} ± {deviation:.{digits}f}"


TABLES: dict[str, Callable[[], str]] = {
    "opinion": opinion,
    "again": again,
    "elsewhere": elsewhere,
    "calibrators": calibrators,
    "corrupted": corrupted,
    "travelling": travelling,
    "people": people,
    "lengths": lengths,
    "losses": losses,
}


def renewed(text: str) -> str:
    """The page with every table made again."""
    return PLACE.sub(lambda match: f"{match[1]}{TABLES[match[2]]()}\n{match[3]}", text)


def renew(page: Path) -> None:
    files.write_text(page, renewed(page.read_text(encoding="utf-8")))


if __name__ == "__main__":
    for name in PAGES:
        renew(ROOT / name)
