"""Ranking metrics of more rows than memory holds, as if all had been sorted at once.

Rows are sorted in runs that fit into memory, and every run is kept in order. A range of confidences is then read from
all runs and merged by itself. What precedes it and what follows counts as one tied step each: a ranking metric adds up
over steps, so that the ranges give it together. Metrics that look for a threshold find it in one of the ranges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.block_sizes import RANGE_ROWS
from confide.checks import InputError
from confide.evaluation.sketches import BINS, FINE, Sketch, cells_of
from confide.metrics.base import METRICS, MetricSpec, parse_metric, value_of
from confide.metrics.view import Ranks, View
from confide.numerics.binning import width_bin_of
from confide.predictions import Predictions
from confide.registry import Method

LARGEST: Mapping[str, Callable[[Iterable[float]], float]] = {"coverage_at_risk": max, "halving_rejection": min}
"""Metrics of the largest coverage that any range allows; all others add up."""
OF_A_THRESHOLD = ("tpr", "tnr")
"""Rankings that no sorting is needed for: they look at a score that is given."""


def sortable_words(words: Sequence[str]) -> list[str]:
    """Those of these metrics that are of a ranking, in the form in which they add up over ranges."""
    chosen = []
    for word in words:
        method, options = parse_metric(word)
        if method.spec.info.kind == "ranking" and not options and word in METRICS and word not in OF_A_THRESHOLD:
            chosen.append(word)
    return chosen


@dataclass(frozen=True)
class ScoreRange:
    """Cells from `first` to before `last`; rows and errors that are surer, in the range, and in all."""

    first: int
    last: int
    before: tuple[int, int]
    inside: tuple[int, int]
    total: tuple[int, int]


def score_ranges(sketch: Sketch, rows: int = RANGE_ROWS) -> list[ScoreRange]:
    """Ranges of about so many rows each, the surest first; the rows of one cell stay together."""
    table = sketch.fine.summed()
    cell, right, count = table.keys >> 1, table.keys & 1, table.sums[:, 0].astype(np.int64)
    cells, place = np.unique(cell, return_inverse=True)
    all_rows = np.bincount(place.reshape(-1), count).astype(np.int64)
    errors = np.bincount(place.reshape(-1), count * (1 - right)).astype(np.int64)
    number = (np.cumsum(all_rows) - all_rows) // rows
    starts = np.flatnonzero(np.diff(number, prepend=-1))
    ends = [*starts[1:].tolist(), len(cells)]
    total, ranges, before = (int(all_rows.sum()), int(errors.sum())), [], (0, 0)
    for start, end in zip(starts.tolist(), ends, strict=True):
        inside = int(all_rows[start:end].sum()), int(errors[start:end].sum())
        ranges.append(ScoreRange(int(cells[start]), int(cells[end - 1]) + 1, before, inside, total))
        before = before[0] + inside[0], before[1] + inside[1]
    return ranges


def sorted_run(shards: Iterable[Predictions]) -> dict[str, NDArray[Any]]:
    """The rows of some shards in order, the surest first: a row a confidence, with how many were right and wrong."""
    parts = []
    for shard in shards:
        if shard.relative_weights is not None:
            raise InputError("an external sort counts samples alike, but these have weights; evaluate them in memory")
        parts.append((shard.facts.sureness(), shard.facts.correct.cpu().numpy()))
    sure, right = (np.concatenate([part[k] for part in parts]) for k in (0, 1))
    return merged_run([{"score": sure, "right": right, "wrong": ~right}])


def merged_run(runs: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """Several runs as one."""
    score = np.concatenate([run["score"] for run in runs])
    values, place = np.unique(-score, return_inverse=True)
    sums = {}
    for name in ("right", "wrong"):
        counts = np.concatenate([run[name] for run in runs])
        sums[name] = np.bincount(place.reshape(-1), counts, len(values)).astype(np.int64)
    sure = -values
    cell = cells_of(sure, width_bin_of(sure.copy(), BINS), FINE)
    return {"cell": cell.astype(np.int32), "score": sure, **sums}


def range_values(words: Sequence[str], run: Mapping[str, NDArray[Any]], own: ScoreRange) -> dict[str, float]:
    """What each metric gains by looking into a range; of those that look for a coverage, what the range finds."""
    accepted, errors = np.cumsum(run["right"] + run["wrong"]), np.cumsum(run["wrong"])
    if (int(accepted[-1]), int(errors[-1])) != own.inside:
        raise InputError(
            f"a range must hold {own.inside[0]:,} rows, {own.inside[1]:,} of them wrong, got {int(accepted[-1]):,} and "
            f"{int(errors[-1]):,}; the shards have changed meanwhile, begin in another folder"
        )
    values = {}
    for word in words:
        method = METRICS.get(word)
        inside = _value(method, own, accepted, errors)
        values[word] = inside if word in LARGEST else inside - _value(method, own, accepted[-1:], errors[-1:])
    return values


def _value(method: Method[MetricSpec], own: ScoreRange, accepted: NDArray[Any], errors: NDArray[Any]) -> float:
    """The metric of these steps, with what is before them and after them as one step each."""
    first = [own.before] if own.before[0] else []
    after = [own.total] if own.before[0] + own.inside[0] < own.total[0] else []
    steps = np.stack([own.before[0] + accepted, own.before[1] + errors], axis=1)
    return value_of_steps(
        method, np.concatenate([np.array(first).reshape(-1, 2), steps, np.array(after).reshape(-1, 2)])
    )


def value_of_steps(method: Method[MetricSpec], steps: NDArray[Any]) -> float:
    """A ranking metric of steps: rows accepted so far and errors among them, `n 2`."""
    ranks = Ranks(
        steps[:, 0].astype(np.float64), steps[:, 1].astype(np.float64), np.ones(len(steps), bool), whole=False
    )
    return value_of(method, View.of_ranks(ranks), {})


def rankings_of(
    words: Sequence[str], ranges: Sequence[ScoreRange], gained: Sequence[Mapping[str, float]]
) -> dict[str, float]:
    """The metrics of all rows from what every range gave."""
    ends = np.array([(own.before[0] + own.inside[0], own.before[1] + own.inside[1]) for own in ranges], dtype=float)
    values = {}
    for word in words:
        gains = [own[word] for own in gained]
        values[word] = LARGEST[word](gains) if word in LARGEST else value_of_steps(METRICS.get(word), ends) + sum(gains)
    return values
