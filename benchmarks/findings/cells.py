"""Tables for the questions that a grid's cells answer: means over seeds, by method, and paired differences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.lib import titles
from benchmarks.lib.grid import SWEEP
from benchmarks.lib.items import NAMES
from benchmarks.lib.results import CALIBRATED, is_stale, stage_of
from benchmarks.lib.sources import RESAMPLED
from benchmarks.lib.values import Paired, paired
from confide import files
from confide.evaluation import holm
from confide.results import LEVEL

QUESTIONS: dict[str, tuple[str, ...]] = {
    "difficulty": (
        "cross_entropy",
        "difficulty_raw",
        "difficulty_minmax",
        "difficulty_entropy",
        "entropy_regularization",
        "difficulty_rank_06",
        "entropy_017",
        "difficulty_rank_10",
        "entropy_029",
        "difficulty_md",
        "difficulty_kmeans",
        "difficulty_task_rmd",
        "difficulty_task_loss",
        "adaptive_difficulty",
    ),
    "selective": (
        "cross_entropy",
        "selective_au",
        "selective_au_released",
        "selective_au_detached",
        "selective_au_margin",
        "selective_au_entropy",
        *(method.name for method in SWEEP),
    ),
    "dual": ("cross_entropy", "focal", "dual_focal", "dual_focal_released"),
    "adafocal": ("cross_entropy", "adafocal", "adafocal_steps"),
    "kernels": ("cross_entropy", "mmce_weighted", "mmce_weighted_released", "kde_xe", "kde_xe_fixed"),
    "recipe": (
        "cross_entropy",
        "cross_entropy_averaged",
        "confide",
        "adaptive_difficulty_averaged",
        "adaptive_difficulty",
        "adafocal",
        "difficulty_entropy",
    ),
}
"""Methods of the table of each question, by the names of the grid."""
PAIRS: dict[str, tuple[tuple[str, str], ...]] = {
    "difficulty": (
        ("difficulty_raw", "cross_entropy"),
        ("difficulty_minmax", "cross_entropy"),
        ("difficulty_entropy", "cross_entropy"),
        ("difficulty_entropy", "entropy_regularization"),
        ("difficulty_rank_06", "entropy_017"),
        ("difficulty_rank_10", "entropy_029"),
        ("difficulty_entropy", "difficulty_md"),
        ("difficulty_entropy", "difficulty_kmeans"),
        ("difficulty_entropy", "difficulty_task_rmd"),
        ("difficulty_entropy", "difficulty_task_loss"),
    ),
    "selective": (
        ("selective_au", "selective_au_released"),
        ("selective_au_released", "cross_entropy"),
        ("selective_au_detached", "selective_au_released"),
    ),
    "dual": (("dual_focal", "dual_focal_released"), ("dual_focal", "focal"), ("dual_focal_released", "focal")),
    "adafocal": (("adafocal_steps", "adafocal"),),
    "recipe": (
        ("confide", "cross_entropy"),
        ("confide", "cross_entropy_averaged"),
        ("confide", "adaptive_difficulty_averaged"),
        ("adaptive_difficulty_averaged", "cross_entropy_averaged"),
        ("cross_entropy_averaged", "cross_entropy"),
    ),
}
"""What each question compares: first less second, seed by seed."""
COLUMNS = ("accuracy", "ece_mass", "nll", "aurc", "auroc")
PLACES = {"measured": "test", RESAMPLED: "other filter", "shift": "corrupted"}
COMPARED = (
    ("accuracy", "raw"),
    ("ece_mass", "raw"),
    ("ece_mass", CALIBRATED),
    ("nll", CALIBRATED),
    ("aurc", CALIBRATED),
)
"""Metrics and stages of the paired differences."""

Cells = Mapping[str, Mapping[int, Mapping[str, Any]]]


def read_cells(folder: Path, dataset: str = "cifar10", model: str = "resnet18") -> Cells:
    """Results of a dataset and network by method and seed."""
    cells: dict[str, dict[int, Mapping[str, Any]]] = {}
    for path in sorted((folder / "cells").glob("*.json")):
        cell = files.read_json(path)
        if (cell["cell"]["dataset"], cell["cell"]["model"]) == (dataset, model) and not is_stale(cell):
            cells.setdefault(str(cell["cell"]["method"]["name"]), {})[int(cell["cell"]["seed"])] = cell
    return cells


def cell_tables(cells: Cells) -> dict[str, str]:
    """The tables by name; a question of which no cell is there has an empty one."""
    tables = {f"cells-{name}": _table(cells, methods) for name, methods in QUESTIONS.items()}
    return tables | {f"pairs-{name}": _pairs(cells, pairs) for name, pairs in PAIRS.items()}


def _table(cells: Cells, methods: Sequence[str]) -> str:
    head = ["method", "stage", "seeds", "mean strength", *map(titles.heading, COLUMNS), "p > 0.05"]
    lines = []
    for method in methods:
        own = list(cells.get(method, {}).values())
        for stage in dict.fromkeys(("raw", "temperature", stage_of(own[0], CALIBRATED))) if own else ():
            lines.append(_line(method, stage, own))
    if all(line[3] == "-" for line in lines):
        head, lines = head[:3] + head[4:], [line[:3] + line[4:] for line in lines]
    return markdown(head, lines) if lines else ""


def resampled_table(cells: Cells) -> str:
    """Test images beside those that another filter shrunk: accuracy, and ECE before and after temperature scaling."""
    head = ["method", "seeds"]
    columns = (("accuracy", "raw"), ("ece_mass", "raw"), ("ece_mass", "temperature"))
    for metric, stage in columns:
        title = titles.heading(metric) + (" after T" if stage == "temperature" else "")
        head += [title, f"{title}, other filter"]
    lines = []
    for method, own in cells.items():
        both = [cell for cell in own.values() if RESAMPLED in cell]
        line = [f"`{method}`", str(len(both))]
        for metric, stage in columns if both else ():
            for place in ("measured", RESAMPLED):
                line.append(titles.spread(metric, [cell[place][stage][metric] for cell in both]))
        lines += [line] if both else []
    return markdown(head, lines) if lines else ""


def stages_table(by_dataset: Mapping[str, Cells], method: str) -> str:
    """One method before and after its calibrators: on test, on images of another filter, and corrupted (mean of 80)."""
    lines = []
    for dataset, cells in by_dataset.items():
        own = list(cells.get(method, {}).values())
        for place in ("measured", RESAMPLED, "shift"):
            there = [cell[place] for cell in own if place in cell]
            if not there:
                continue
            stages = dict.fromkeys(("raw", "temperature", stage_of(own[0], CALIBRATED)))
            for stage in stages:
                rows = [_mean_of(row, stage) if place == "shift" else row[stage] for row in there]
                shown = [titles.spread(metric, [row[metric] for row in rows]) for metric in COLUMNS]
                tested = "calibration_p" in rows[0]
                passed = sum(row["calibration_p"] > LEVEL for row in rows) if tested else 0
                calibrated = f"{passed} of {len(rows)}" if tested else "-"
                lines.append([NAMES[dataset], PLACES[place], stage, *shown, calibrated])
    head = ["data", "images", "stage", *map(titles.heading, COLUMNS), "p > 0.05"]
    return markdown(head, lines) if lines else ""


def _mean_of(corruptions: Mapping[str, Any], stage: str) -> dict[str, float]:
    return {metric: float(np.nanmean([cell[stage][metric] for cell in corruptions.values()])) for metric in COLUMNS}


def _line(method: str, stage: str, cells: Sequence[Mapping[str, Any]]) -> list[str]:
    measured = [cell["measured"][stage] for cell in cells]
    strength = cells[0].get("strength")
    line = [f"`{method}`", stage, str(len(cells)), "-" if strength is None else f"{strength:.2g}"]
    line += [titles.spread(metric, [row[metric] for row in measured]) for metric in COLUMNS]
    passed = sum(row["calibration_p"] > LEVEL for row in measured)
    return [*line, f"{passed} of {len(measured)}"]


def _pairs(cells: Cells, pairs: Sequence[tuple[str, str]]) -> str:
    """Paired differences with their p-values, Holm-corrected over the question, and what they say in words."""
    there = [(a, b) for a, b in pairs if set(cells.get(a, {})) & set(cells.get(b, {}))]
    if not there:
        return ""
    tests = {(a, b, k): paired(*(_values(cells[name], k) for name in (a, b))) for a, b in there for k in _columns()}
    corrected = dict(zip(tests, holm([test.p_value for test in tests.values()]), strict=True))
    lines = []
    for a, b in there:
        shown = [_difference(tests[a, b, k], corrected[a, b, k], COMPARED[k][0]) for k in _columns()]
        lines.append([f"`{a}` less `{b}`", str(tests[a, b, 0].seeds), *shown])
    table = markdown(["difference", "seeds", *map(_heading, _columns())], lines)
    clear = [place for place in tests if corrected[place] < LEVEL]
    differences = [f"`{a}` has a {_word(tests[a, b, k].difference)} {_name(k)} than `{b}`" for a, b, k in clear]
    few = min(tests[a, b, 0].seeds for a, b in there)
    words = "; ".join(differences) if differences else "no difference"
    return (
        f"{table}\n\nClear over the seeds (paired t-test, Holm-corrected over this table, p < 0.05; {few} seeds at "
        f"least): {words}."
    )


def _columns() -> range:
    return range(len(COMPARED))


def _values(cells: Mapping[int, Mapping[str, Any]], column: int) -> dict[int, float]:
    metric, stage = COMPARED[column]
    values = {seed: float(cell["measured"][stage_of(cell, stage)][metric]) for seed, cell in cells.items()}
    return {seed: titles.scaled(metric, value) for seed, value in values.items()}


def _heading(column: int) -> str:
    metric, stage = COMPARED[column]
    return titles.heading(metric if stage == "raw" else f"{metric}, {stage}")


def _name(column: int) -> str:
    metric, stage = COMPARED[column]
    name, *notes = titles.info(metric).title.split(", ")
    name = name.lower() if name[1:].islower() else name
    notes += [] if stage == "raw" else [stage]
    return f"{name} ({', '.join(notes)})" if notes else name


def _difference(test: Paired, p: float, metric: str) -> str:
    shown = f" (p {p:.2g})" if math.isfinite(p) else ""
    return f"{test.difference:+.{titles.info(metric).digits + titles.MORE_DIGITS}f}{shown}"


def _word(difference: float) -> str:
    return "higher" if difference > 0 else "lower"


def markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table."""
    shown = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in shown)
