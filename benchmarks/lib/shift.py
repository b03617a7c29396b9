"""The cells of a grid as one evaluation: methods side by side on clean, corrupted and OOD data, means over seeds.

Intervals are Student's over the seeds: they tell how far another training may lie, not another test set.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from benchmarks.lib.items import CHANCE, LEARNT
from benchmarks.lib.results import Result, Results
from benchmarks.lib.sources import CORRUPTED_IMAGES as IMAGES, OOD
from benchmarks.lib.values import paired, spread_of
from confide.checks import InputError
from confide.evaluation import holm
from confide.results import (
    BOX,
    LEVEL,
    MEAN_OF_CELLS,
    OF_SEVERITY,
    About,
    ComparedRow,
    Comparison,
    Curve,
    Evaluation,
    Measurement,
    group_of,
)

STAGES = ("raw", "temperature")
REPORTED_METRICS = ("accuracy", "ece", "nll", "aurc", "auroc")
TESTED = {"accuracy": True, "nll": False, "ece_mass": False, "aurc": False}
"""Metrics of the paired tests, and whether higher is better."""
QUANTILES = dict(zip(BOX, (0.0, 0.25, 0.5, 0.75, 1.0), strict=True))
Seeds = Mapping[int, Result]
ByMethod = Mapping[str, Seeds]


def shift_evaluation(
    results: Results,
    dataset: str,
    methods: Iterable[str],
    *,
    model: str | None = None,
    ood_sets: Mapping[str, str],
    about: About | None = None,
) -> Evaluation:
    """Every number of the methods' cells, as means over the seeds with intervals, and the curves to draw.

    Args:
        methods: in the order of the report; those without cells under shift are left out.
        model: the network, where there are cells of several.
        ood_sets: names of the out-of-distribution sets, by their word in the cells.
        about: what the report says of it.
    """
    by_method = {name: seeds for name in methods if (seeds := _shifted(results.of(dataset, name, model)))}
    if not by_method:
        raise InputError(
            f"no cell of '{dataset}' holds corruptions; run `python -m benchmarks grid`, or unpack its results"
        )
    learnt = {name: {s: result for s, result in seeds.items() if _learnt(result)} for name, seeds in by_method.items()}
    drawn = {name: seeds for name, seeds in learnt.items() if seeds}
    measurements = [row for name, seeds in drawn.items() for row in _measurements(name, seeds, ood_sets)]
    curves = [curve for name, seeds in drawn.items() for curve in _curves(name, seeds)]
    numbers = sorted({len(seeds) for seeds in drawn.values()})
    several = " or ".join(map(str, numbers)) + (" seeds" if numbers[-1:] > [1] else " seed")
    known = About(
        unit="images",
        seeds={name: len(seeds) for name, seeds in drawn.items()},
        interval_note=f"Values are means over {several}; small figures are 95\u202f% intervals over them "
        "(Student's t).",
    )
    warnings = [
        f"{name} did not learn with {len(seeds) - len(learnt[name])} of {len(seeds)} seeds; they are not in the report."
        for name, seeds in by_method.items()
        if len(learnt[name]) < len(seeds)
    ]
    return Evaluation(
        tuple(measurements),
        tuple(curves),
        _comparisons(drawn),
        about=(about or About()).over(known),
        warnings=tuple(warnings),
    )


def _shifted(seeds: Seeds) -> dict[int, Result]:
    return {seed: result for seed, result in seeds.items() if result.get("shift")}


def _learnt(result: Result) -> bool:
    """Whether the network is better than chance: the confidence of one that is not means nothing."""
    chance = CHANCE.get(str(result["cell"]["dataset"]), 0.0)
    return float(result["validation"]["raw"]["accuracy"]) >= LEARNT * chance


def _mean(metric: str, numbers: Sequence[float], n: int, **where: Any) -> Measurement:
    mean, _, low, high = spread_of(np.array([v for v in numbers if v is not None and math.isfinite(v)]))
    return Measurement(metric, mean, n, "test", bounds=(low, high), **where)


def _measurements(name: str, seeds: Seeds, ood_sets: Mapping[str, str]) -> list[Measurement]:
    every = list(seeds.values())
    n = int(every[0]["split"]["sizes"]["test"])
    return [*_clean(name, every, n), *_groups(name, every), *_ood(name, every, ood_sets, n)]


def _clean(name: str, every: Sequence[Result], n: int) -> list[Measurement]:
    rows = []
    for stage in STAGES:
        values = [result["measured"][stage] for result in every]
        for key in values[0]:
            metric, _, score = key.partition(":")
            if key in ("calibration_p", "ece_mass_chance"):
                continue
            where: dict[str, Any] = {"stage": stage, "model": name, "score": score or None}
            if key == "ece_mass":
                # The calmest seed speaks for all: only what every seed shows counts as miscalibrated.
                where["p_value"] = max(v["calibration_p"] for v in values)
                where["chance"] = float(np.mean([v["ece_mass_chance"] for v in values]))
            rows.append(_mean(metric, [v[key] for v in values], n, **where))
    return rows


def _groups(name: str, every: Sequence[Result]) -> list[Measurement]:
    """Means over the corruptions by severity, and over all cells; single cells are in the curves."""
    cells = list(every[0]["shift"])
    groups = {}
    for severity in sorted({cell.rpartition("-")[2] for cell in cells}):
        own = [cell for cell in cells if cell.endswith(f"-{severity}")]
        groups[group_of("shift", f"{OF_SEVERITY}{severity}")] = own
    groups[group_of("shift", MEAN_OF_CELLS)] = cells
    return [
        _mean(
            metric,
            [float(np.nanmean([result["shift"][cell][stage][metric] for cell in members])) for result in every],
            min(IMAGES, int(every[0]["split"]["sizes"]["test"])),
            stage=stage,
            model=name,
            group=group,
            score="msp",
        )
        for group, members in groups.items()
        for stage in STAGES
        for metric in REPORTED_METRICS
    ]


def _ood(name: str, every: Sequence[Result], names: Mapping[str, str], n: int) -> list[Measurement]:
    return [
        _mean(
            metric,
            [result[OOD][word][score][metric] for result in every if word in result.get(OOD, {})],
            n,
            model=name,
            group=group_of("ood", names.get(word, word)),
            score=score,
        )
        for word, scores in every[0].get(OOD, {}).items()
        for score, row in scores.items()
        for metric in row
    ]


def _curves(name: str, seeds: Seeds) -> list[Curve]:
    every = list(seeds.values())
    words = dict.fromkeys(cell.rpartition("-")[0] for cell in every[0]["shift"])
    severities = sorted({int(cell.rpartition("-")[2]) for cell in every[0]["shift"]})
    steps = (0.0, *map(float, severities))
    curves = []
    for stage in STAGES:
        clean = {m: float(np.mean([result["measured"][stage][m] for result in every])) for m in REPORTED_METRICS}
        cells = {
            word: {
                m: (
                    clean[m],
                    *(
                        float(np.mean([result["shift"][f"{word}-{s}"][stage][m] for result in every]))
                        for s in severities
                    ),
                )
                for m in REPORTED_METRICS
            }
            for word in words
        }
        curves += [
            Curve("shift_cells", {"severity": steps, **columns}, name, stage, "test", f"corruption={word}")
            for word, columns in cells.items()
        ]
        errors = np.array([columns["ece"] for columns in cells.values()])
        boxes = {key: tuple(map(float, np.quantile(errors, q, axis=0))) for key, q in QUANTILES.items()}
        curves.append(Curve("shift_ece_boxes", {"severity": steps, **boxes}, name, stage, "test"))
    return [*curves, _training(name, every)]


def _training(name: str, every: Sequence[Result]) -> Curve:
    """The training logs, mean over the seeds; AdaFocal's bins stay in the cells."""
    columns = {
        key: tuple(map(float, np.mean([result["log"][key] for result in every], axis=0)))
        for key in every[0]["log"]
        if not key.startswith("gamma")
        and all(len(result["log"][key]) == len(every[0]["log"]["epoch"]) for result in every)
    }
    return Curve("training", columns, name)


def _comparisons(by_method: ByMethod) -> tuple[Comparison, ...]:
    """Paired t-tests over the seeds that two methods share, Holm-corrected over all of them."""
    rows = []
    for metric in TESTED:
        for stage in STAGES:
            for first, second in combinations(by_method, 2):
                first_values, second_values = (
                    {seed: float(result["measured"][stage][metric]) for seed, result in by_method[name].items()}
                    for name in (first, second)
                )
                test = paired(second_values, first_values)
                if math.isfinite(test.p_value):
                    shared = sorted(set(first_values) & set(second_values))
                    _, _, low, high = spread_of(np.array([second_values[seed] - first_values[seed] for seed in shared]))
                    sides = ComparedRow(first, stage), ComparedRow(second, stage)
                    rows.append((metric, *sides, test.difference, low, high, test))
    corrected = holm([row[-1].p_value for row in rows])
    return tuple(
        Comparison(*row[:-1], row[-1].p_value, p, _better(row[0], row[3]) if p < LEVEL else None)
        for row, p in zip(rows, corrected, strict=True)
    )


def _better(metric: str, difference: float) -> str:
    return "b" if (difference > 0) == TESTED[metric] else "a"
