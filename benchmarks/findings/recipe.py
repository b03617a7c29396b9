"""Whether the recipe reaches its target on CIFAR-10's test images, point by point, from the grid's cells."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.lib import titles
from benchmarks.lib.grid import METHODS
from benchmarks.lib.values import paired
from confide import files
from confide.results import LEVEL

Cells = Mapping[str, Mapping[int, Mapping[str, Any]]]
"""Results by method and seed."""

OWN, PLAIN = "confide", "cross_entropy"
"""The recipe, and what it must not fall behind."""
CHOICES = ("cross_entropy_averaged", "adaptive_difficulty_averaged", OWN)
"""What the recipe was after the first round of the rule, after part of the third, and is now."""
SEEDS, LEAST = 5, 4
"""Of so many seeds the calibration test must leave so many standing."""
MET, MISSED, OPEN = "met", "missed", "open"


@dataclass(frozen=True)
class Point:
    """One point of the target: its target, what came out, and whether that meets it."""

    target: str
    outcome: str
    state: str


def points(cells: Cells, together: float = math.nan, method: str = OWN) -> list[Point]:
    """The target, point by point; none where the recipe has no cells.

    Args:
        together: the calibration test's p on all seeds of the recipe together, NaN where it is not known.
        method: whose cells are the recipe's; an earlier choice is not ranked beside those that came after it.
    """
    later = CHOICES[CHOICES.index(method) + 1 :]
    cells = {name: some for name, some in cells.items() if name not in later}
    own = cells.get(method, {})
    if not own:
        return []
    stage = str(next(iter(own.values()))["method"]["calibrator"])
    measured = [_accuracy(own, cells.get(PLAIN, {})), _each_seed(own, stage), _all_seeds(own, together)]
    return [*measured, *(_rank(cells, method, stage, metric) for metric in ("nll", "aurc"))]


def _accuracy(own: Mapping[int, Any], plain: Mapping[int, Any]) -> Point:
    target = "accuracy not below that of cross-entropy"
    first, second = (_values(some, "raw", "accuracy", 100.0) for some in (own, plain))
    test = paired(first, second)
    if not test.seeds:
        return Point(target, f"{_spread(first, 2)} %; no cells of cross-entropy with these seeds", OPEN)
    outcome = (
        f"{_spread(first, 2)} % against {_spread(second, 2)} %: {test.difference:+.2f} points over {test.seeds} "
        f"shared seeds{_p(test.p_value)}"
    )
    # A loss of accuracy that the test cannot tell from none is not shown, nor is that there is none.
    state = MET if test.difference >= 0 else MISSED if test.p_value < LEVEL else OPEN
    return Point(target, outcome, state)


def _each_seed(own: Mapping[int, Any], stage: str) -> Point:
    ps = _values(own, stage, "calibration_p", 1.0)
    passed = sum(p > LEVEL for p in ps.values())
    ece, chance = (_spread(_values(own, stage, word, 100.0), 2) for word in ("ece_mass", "ece_mass_chance"))
    gap = _spread(_values(own, stage, "confidence_gap", 100.0), 2)
    each = ", ".join(f"{p:.3f}" for p in ps.values())
    outcome = (
        f"p {each} (seeds {', '.join(map(str, ps))}): {passed} of {len(ps)} above 0.05. ECE {ece} %, where a "
        f"perfectly calibrated model would show {chance} % by chance; confidence less accuracy {gap} points"
    )
    state = MISSED if len(ps) - passed > SEEDS - LEAST else MET if len(ps) >= SEEDS else OPEN
    return Point(f"calibration test: p > 0.05 for at least {LEAST} of {SEEDS} seeds", outcome, state)


def _all_seeds(own: Mapping[int, Any], together: float) -> Point:
    target = "calibration test: p > 0.05 on all seeds together"
    if not math.isfinite(together):
        return Point(target, "not known without the predictions", OPEN)
    state = MISSED if together <= LEVEL else MET if len(own) >= SEEDS else OPEN
    return Point(target, f"p {together:.3f} over {len(own)} seeds", state)


def _rank(cells: Cells, method: str, stage: str, metric: str) -> Point:
    """Rank of the recipe's mean among the main table's methods; every other one shows the better of its two stages."""
    means, facts = {}, titles.info(metric)
    digits = facts.digits + titles.MORE_DIGITS
    for name, some in ((method.name, cells[method.name]) for method in METHODS if method.name in cells):
        stages = (stage,) if name == method else ("raw", "temperature")
        several = [_values(some, stage_name, metric, facts.scale) for stage_name in stages]
        means[name] = min((np.mean(list(values.values())), values) for values in several)[1]
    order = sorted(means, key=lambda name: float(np.mean(list(means[name].values()))))
    rank = order.index(method) + 1
    outcome = f"rank {rank} of {len(order)}: {_spread(means[method], digits)}"
    rival = order[0] if rank > 1 else order[1] if len(order) > 1 else None
    if rival is not None:
        test = paired(means[method], means[rival])
        which = "the best is" if rank > 1 else "the next is"
        outcome += f"; {which} `{rival}` with {_spread(means[rival], digits)}"
        if test.seeds:
            outcome += f", difference {test.difference:+.{digits}f} over {test.seeds} shared seeds{_p(test.p_value)}"
    state = MISSED if rank > 1 else MET if len(order) > 1 else OPEN
    return Point(f"lowest mean {facts.title} of all methods", outcome, state)


def _values(cells: Mapping[int, Any], stage: str, word: str, scale: float) -> dict[int, float]:
    return {seed: scale * float(cell["measured"][stage][word]) for seed, cell in sorted(cells.items())}


def _spread(values: Mapping[int, float], digits: int) -> str:
    return titles.mean_and_deviation(list(values.values()), digits)


def _p(value: float) -> str:
    return f" (p {value:.2g})" if math.isfinite(value) else " (no test)"


def check_table(points: Sequence[Point], why: str = "", name: str = f"The recipe `{OWN}`") -> str:
    """The target as a table, with a sentence on how it stands, and why where it is missed."""
    if not points:
        return sentence(points, name)
    lines = ["| asked | found | |", "| --- | --- | --- |"]
    lines += [f"| {point.target} | {point.outcome} | **{point.state}** |" for point in points]
    missed = [why] if why and any(point.state == MISSED for point in points[1:3]) else []
    return "\n".join([*lines, "", sentence(points, name), *missed])


def where_the_gap_is(cells: Cells, method: str = OWN) -> str:
    """How much of the confidence less accuracy that the calibrator leaves was there on val, in one sentence."""
    own = cells.get(method, {})
    if not own:
        return ""
    stage = str(next(iter(own.values()))["method"]["calibrator"])
    val = {seed: cell["validation"]["raw"] for seed, cell in own.items()}
    gaps = [
        {seed: 100 * float(row[word]) for seed, row in rows.items()}
        for rows in (val, {seed: cell["measured"]["raw"] for seed, cell in own.items()})
        for word in ("accuracy", "confidence_gap")
    ]
    known, on_val, less, more = (float(np.mean(list(gap.values()))) for gap in gaps)
    left = float(np.mean(list(_values(own, stage, "confidence_gap", 100.0).values())))
    size = next(iter(own.values())).get("split", {}).get("sizes", {}).get("val", 5000)
    error = 100 * math.sqrt(known / 100 * (1 - known / 100) / size)
    return (
        f"Where the gap is: without a calibrator confidence less accuracy is {on_val:+.2f} points on val and "
        f"{more:+.2f} on test (accuracy {known:.2f} and {less:.2f} %). Of the {left:+.2f} points that the calibrator "
        f"leaves on test, {more - on_val:+.2f} are this difference, which {size:,} validation images know to "
        f"{error:.2f} points (standard error) and no calibrator fitted on them can remove; "
        f"{left - more + on_val:+.2f} are its own."
    )


def sentence(points: Sequence[Point], name: str = f"The recipe `{OWN}`") -> str:
    """How the target stands."""
    if not points:
        return f"{name} has not been run on the grid yet."
    by_state = {state: [point.target for point in points if point.state == state] for state in (MET, MISSED, OPEN)}
    if not by_state[MISSED] and not by_state[OPEN]:
        return f"{name} meets its target on CIFAR-10: {'; '.join(by_state[MET])}."
    outcome = "misses its target" if by_state[MISSED] else "has not shown its target yet"
    parts = [f"{state}: {'; '.join(targets)}" for state, targets in by_state.items() if targets]
    return f"{name} {outcome} on CIFAR-10. {'. '.join(part[0].upper() + part[1:] for part in parts)}."


def together_of(tables: Path, method: str = OWN) -> float:
    """The p of all seeds together, from the main table; NaN where it is not there."""
    path = tables / "main.parquet"
    if not path.exists():
        return math.nan
    columns, _ = files.read_table(path)
    at = (columns["dataset"] == "cifar10") & (columns["method"] == method)
    at &= columns["quantity"] == "p of all seeds together, calibrated"
    return float(columns["mean"][at][0]) if at.any() else math.nan
