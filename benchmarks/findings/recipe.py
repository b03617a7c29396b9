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
from benchmarks.lib.items import CHANCE, LEARNT
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
    """One point of the target: what was asked, what was found, and whether that meets it."""

    asked: str
    found: str
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
    found = [_accuracy(own, cells.get(PLAIN, {})), _each_seed(own, stage), _all_seeds(own, together)]
    return [*found, *(_rank(cells, method, stage, metric) for metric in ("nll", "aurc"))]


def _accuracy(own: Mapping[int, Any], plain: Mapping[int, Any]) -> Point:
    asked = "accuracy not below that of cross-entropy"
    first, second = (_values(some, "raw", "accuracy", 100.0) for some in (own, plain))
    test = paired(first, second)
    if not test.seeds:
        return Point(asked, f"{_spread(first, 2)} %; no cells of cross-entropy with these seeds", OPEN)
    told = (
        f"{_spread(first, 2)} % against {_spread(second, 2)} %: {test.difference:+.2f} points over {test.seeds} "
        f"shared seeds{_p(test.p_value)}"
    )
    # A loss of accuracy that the test cannot tell from none is not shown, nor is that there is none.
    state = MET if test.difference >= 0 else MISSED if test.p_value < LEVEL else OPEN
    return Point(asked, told, state)


def _each_seed(own: Mapping[int, Any], stage: str) -> Point:
    ps = _values(own, stage, "calibration_p", 1.0)
    passed = sum(p > LEVEL for p in ps.values())
    ece, chance = (_spread(_values(own, stage, word, 100.0), 2) for word in ("ece_mass", "ece_mass_chance"))
    gap = _spread(_values(own, stage, "confidence_gap", 100.0), 2)
    each = ", ".join(f"{p:.3f}" for p in ps.values())
    told = (
        f"p {each} (seeds {', '.join(map(str, ps))}): {passed} of {len(ps)} above 0.05. ECE {ece} %, where a "
        f"perfectly calibrated model would show {chance} % by chance; confidence less accuracy {gap} points"
    )
    state = MISSED if len(ps) - passed > SEEDS - LEAST else MET if len(ps) >= SEEDS else OPEN
    return Point(f"calibration test: p > 0.05 for at least {LEAST} of {SEEDS} seeds", told, state)


def _all_seeds(own: Mapping[int, Any], together: float) -> Point:
    asked = "calibration test: p > 0.05 on all seeds together"
    if not math.isfinite(together):
        return Point(asked, "not known without the predictions", OPEN)
    state = MISSED if together <= LEVEL else MET if len(own) >= SEEDS else OPEN
    return Point(asked, f"p {together:.3f} over {len(own)} seeds", state)


def _rank(cells: Cells, method: str, stage: str, metric: str) -> Point:
    """Rank of the recipe's mean among the main table's methods; every other one shows the better of its two stages."""
    means, facts = {}, titles.info(metric)
    digits = facts.digits + titles.MORE_DIGITS
    for name, some in ((one.name, cells[one.name]) for one in METHODS if one.name in cells):
        stages = (stage,) if name == method else ("raw", "temperature")
        several = [_values(some, one, metric, facts.scale) for one in stages]
        means[name] = min((np.mean(list(one.values())), one) for one in several)[1]
    order = sorted(means, key=lambda name: float(np.mean(list(means[name].values()))))
    rank = order.index(method) + 1
    told = f"rank {rank} of {len(order)}: {_spread(means[method], digits)}"
    rival = order[0] if rank > 1 else order[1] if len(order) > 1 else None
    if rival is not None:
        test = paired(means[method], means[rival])
        which = "the best is" if rank > 1 else "the next is"
        told += f"; {which} `{rival}` with {_spread(means[rival], digits)}"
        if test.seeds:
            told += f", difference {test.difference:+.{digits}f} over {test.seeds} shared seeds{_p(test.p_value)}"
    state = MISSED if rank > 1 else MET if len(order) > 1 else OPEN
    return Point(f"lowest mean {facts.title} of all methods", told, state)


def _values(cells: Mapping[int, Any], stage: str, word: str, scale: float) -> dict[int, float]:
    return {seed: scale * float(one["measured"][stage][word]) for seed, one in sorted(cells.items())}


def _spread(values: Mapping[int, float], digits: int) -> str:
    return titles.mean_and_deviation(list(values.values()), digits)


def _p(value: float) -> str:
    return f" (p {value:.2g})" if math.isfinite(value) else " (no test)"


def check_table(found: Sequence[Point], why: str = "", name: str = f"The recipe `{OWN}`") -> str:
    """The target as a table, with a sentence on how it stands, and why where it is missed."""
    if not found:
        return sentence(found, name)
    lines = ["| asked | found | |", "| --- | --- | --- |"]
    lines += [f"| {one.asked} | {one.found} | **{one.state}** |" for one in found]
    missed = [why] if why and any(one.state == MISSED for one in found[1:3]) else []
    return "\n".join([*lines, "", sentence(found, name), *missed])


def where_the_gap_is(cells: Cells, method: str = OWN) -> str:
    """How much of the confidence less accuracy that the calibrator leaves was there on val, in one sentence."""
    own = cells.get(method, {})
    if not own:
        return ""
    stage = str(next(iter(own.values()))["method"]["calibrator"])
    val = {seed: one["validation"]["raw"] for seed, one in own.items()}
    gaps = [
        {seed: 100 * float(row[word]) for seed, row in rows.items()}
        for rows in (val, {seed: one["measured"]["raw"] for seed, one in own.items()})
        for word in ("accuracy", "confidence_gap")
    ]
    known, told, less, more = (float(np.mean(list(one.values()))) for one in gaps)
    left = float(np.mean(list(_values(own, stage, "confidence_gap", 100.0).values())))
    size = next(iter(own.values())).get("split", {}).get("sizes", {}).get("val", 5000)
    error = 100 * math.sqrt(known / 100 * (1 - known / 100) / size)
    return (
        f"Where the gap is: without a calibrator confidence less accuracy is {told:+.2f} points on val and {more:+.2f} "
        f"on test (accuracy {known:.2f} and {less:.2f} %). Of the {left:+.2f} points that the calibrator leaves on "
        f"test, {more - told:+.2f} are this difference, which {size:,} validation images know to {error:.2f} points "
        f"(standard error) and no calibrator fitted on them can remove; {left - more + told:+.2f} are its own."
    )


def sentence(found: Sequence[Point], name: str = f"The recipe `{OWN}`") -> str:
    """How the target stands."""
    if not found:
        return f"{name} has not been run on the grid yet."
    by_state = {state: [one.asked for one in found if one.state == state] for state in (MET, MISSED, OPEN)}
    if not by_state[MISSED] and not by_state[OPEN]:
        return f"{name} meets its target on CIFAR-10: {'; '.join(by_state[MET])}."
    said = "misses its target" if by_state[MISSED] else "has not shown its target yet"
    parts = [f"{state}: {'; '.join(asked)}" for state, asked in by_state.items() if asked]
    return f"{name} {said} on CIFAR-10. {'. '.join(part[0].upper() + part[1:] for part in parts)}."


def not_learnt(cells: Cells, dataset: str = "cifar10") -> list[str]:
    """A line per method of the main table of which some seeds ended at chance."""
    found = []
    for name, some in ((one.name, cells[one.name]) for one in METHODS if one.name in cells):
        least = LEARNT * CHANCE[dataset]
        lost = [one for one in some.values() if one["validation"]["raw"]["accuracy"] < least]
        if lost:
            found.append(f"`{name}` did not learn with {len(lost)} of {len(some)} seeds and stays in the table")
    return found


def together_of(tables: Path, method: str = OWN) -> float:
    """The p of all seeds together, from the main table; NaN where it is not there."""
    path = tables / "main.parquet"
    if not path.exists():
        return math.nan
    columns, _ = files.read_table(path)
    at = (columns["dataset"] == "cifar10") & (columns["method"] == method)
    at &= columns["quantity"] == "p of all seeds together, calibrated"
    return float(columns["mean"][at][0]) if at.any() else math.nan
