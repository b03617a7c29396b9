"""Fits on more rows than memory holds: any calibrator on rows drawn from a stream, a temperature on all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from confide.calibrators.base import Calibrator
from confide.calibrators.fitting import fit
from confide.calibrators.temperature_scaling import (
    TOLERANCE,
    LossMoments,
    TemperedRows,
    newton_minimum,
    temperature_bounds,
)
from confide.checks import InputError, check_range
from confide.predictions import Outputs, Predictions
from confide.random import generator

SAMPLE_ROWS = 200_000
"""Rows that a fit looks at: its parameters are then known far better than shards differ."""
EXACT = ("temperature",)
"""Calibrators whose likelihood is added up over shards, so that a fit sees every row."""


def fit_stream(
    word: str,
    shards: Iterable[Predictions] | Callable[[], Iterable[Predictions]],
    *,
    rows: int = SAMPLE_ROWS,
    exact: bool = False,
    seed: int = 0,
    by: str | None = None,
    **options: Any,
) -> Calibrator:
    """Fit a calibrator on a stream of predictions in memory that does not grow with it.

    Args:
        word: the method, as for `fit`.
        shards: the predictions, one part after the other, such as `dense.image_predictions` gives images. With `exact`
            they are read several times: a list, or a function that gives a new iterator.
        rows: how many are drawn at random, all with the same chance; the method is fitted on these.
        exact: fit on all rows, in some three passes; of `temperature` alone.
        seed: of the draw.
        by: a column, as for `fit`.
        options: those of the method.

    Returns:
        A `Calibrator`, as `fit` gives it.

    Raises:
        InputError: no rows at all, or `exact` of a method that cannot be added up over shards.

    Example:
        >>> shards = [confide.Predictions([[4.0, 0.0], [0.0, 4.0]], [0, k % 2]) for k in range(40)]
        >>> round(confide.calibrators.fit_stream("temperature", shards, exact=True).temperature, 3)
        3.641
    """
    check_range(rows, "rows", 1)
    again = shards if callable(shards) else lambda: shards
    if exact and (word not in EXACT or by is not None or options.get("search") == "grid"):
        raise InputError(
            f"a fit on all rows of a stream is of {' and '.join(EXACT)} by newton for all rows together, got '{word}'; "
            "leave exact out to fit on rows drawn at random"
        )
    if exact and isinstance(shards, Iterator):
        raise InputError(
            "exact reads the stream several times, got an iterator; give a list, or a function that opens it"
        )
    drawn, total = sample_stream(again(), rows=rows, seed=seed)
    calibrator = fit(word, drawn, by=by, **options)
    if not exact or len(drawn) == total:
        return calibrator

    def moments(scale: float, bend: bool) -> tuple[float, float, float]:
        return mean_moments(shard_moments(shard, scale, bend) for shard in again())

    return with_all_rows(calibrator, drawn, total, moments)


def shard_moments(shard: Predictions, scale: float, bend: bool) -> tuple[int, float, float, float]:
    """Number of the shard's rows, their mean NLL at logits * scale, and its derivatives in log(scale)."""
    return len(shard), *TemperedRows(shard.need_logits("a temperature").cpu(), shard.labels.cpu()).moments(scale, bend)


def mean_moments(parts: Iterable[tuple[int, float, float, float]]) -> tuple[float, float, float]:
    """The means over all rows of what `shard_moments` gives of each shard."""
    total, sums = 0, np.zeros(3)
    for n, *means in parts:
        total += n
        sums += n * np.array(means)
    value, slope, curvature = (sums / total).tolist()
    return value, slope, curvature


def with_all_rows(calibrator: Calibrator, drawn: Predictions, total: int, moments: LossMoments) -> Calibrator:
    """A temperature of some rows, moved to the optimum of all, whose moments are given."""
    low, high = temperature_bounds(TemperedRows(drawn.logits, drawn.labels).spread())
    box = -math.log(high), -math.log(low)
    log_scale = newton_minimum(moments, -math.log(calibrator.temperature), box, TOLERANCE)
    values = {"temperature": torch.tensor(math.exp(-log_scale), dtype=torch.float64)}
    return replace(calibrator, values=values, n=total)


def sample_stream(
    shards: Iterable[Predictions], *, rows: int = SAMPLE_ROWS, seed: int = 0, purpose: str = "stream sample"
) -> tuple[Predictions, int]:
    """So many rows of a stream, every set of them with the same chance; all where there are fewer.

    Args:
        shards: the predictions, one part after the other.
        rows: how many to draw.
        seed: of the draw.
        purpose: tells draws of one seed apart.

    Returns:
        The drawn rows in the order of the stream; and how many rows it had.

    Raises:
        InputError: there are no rows.

    Example:
        >>> shards = (confide.Predictions([[2.0, 0.0]] * 10, [0] * 10) for _ in range(5))
        >>> drawn, total = confide.calibrators.sample_stream(shards, rows=20)
        >>> len(drawn), total
        (20, 50)
    """
    parts: list[Predictions] = []
    draws: list[np.ndarray[Any, np.dtype[np.float64]]] = []
    limit, total = 1.0, 0
    for number, shard in enumerate(shards):
        total += len(shard)
        draw = generator(seed, purpose, number).random(len(shard))
        rows_drawn = np.flatnonzero(draw <= limit)
        if len(rows_drawn):
            parts.append(shard.take(rows_drawn))
            draws.append(draw[rows_drawn])
        if sum(map(len, draws)) > 2 * rows:
            limit = _thin(parts, draws, rows)
    if not parts:
        raise InputError("a stream of predictions must hold at least one sample, got none; check the shards")
    if sum(map(len, draws)) > rows:
        _thin(parts, draws, rows)
    return joined(parts), total


def _thin(parts: list[Predictions], draws: list[np.ndarray[Any, np.dtype[np.float64]]], rows: int) -> float:
    """Keep the rows with the smallest draws; the largest of these."""
    limit = float(np.partition(np.concatenate(draws), rows - 1)[rows - 1])
    places = [np.flatnonzero(draw <= limit) for draw in draws]
    parts[:] = [part.take(own) for part, own in zip(parts, places, strict=True) if len(own)]
    draws[:] = [draw[own] for draw, own in zip(draws, places, strict=True) if len(own)]
    return limit


def joined(parts: Sequence[Predictions]) -> Predictions:
    """Several records of one kind as one; ids that are numbers may count the rows of each, and are made anew then.

    Args:
        parts: with the same classes, columns, split and unit.

    Returns:
        All their rows, in order.

    Raises:
        InputError: records of different kinds.

    Example:
        >>> p = confide.Predictions([[2.0, 0.0]], [0])
        >>> len(confide.calibrators.joined([p, p]))
        2
    """
    first = parts[0]
    if len(parts) == 1:
        return first
    for part in parts:
        if type(part.outputs) is not type(first.outputs) or (part.class_names, part.unit, part.split) != (
            first.class_names,
            first.unit,
            first.split,
        ):
            raise InputError("all shards must have one kind of outputs, one split, one unit and the same classes")
    ids = np.concatenate([part.ids for part in parts])
    shared = [name for name in first.columns if all(name in part.columns for part in parts)]
    weighted = all(part.weights is not None for part in parts)
    trusted = all(part.trust is not None for part in parts)
    pairs = first.outputs.num_classes is None
    return Predictions(
        None,
        torch.cat([part.labels for part in parts]) if first.has_labels and not pairs else None,
        ids if len(np.unique(ids)) == len(ids) else None,
        first.split,
        outputs=_joined_outputs([part.outputs for part in parts]),
        trust=torch.cat([part.trust for part in parts if part.trust is not None]) if trusted else None,
        columns={name: np.concatenate([part.columns[name] for part in parts]) for name in shared},
        class_names=first.class_names,
        weights=np.concatenate([part.weights for part in parts if part.weights is not None]) if weighted else None,
        unit=first.unit,
    )


def _joined_outputs(parts: Sequence[Outputs]) -> Outputs:
    """Outputs of one kind: their tensors one behind the other."""
    changes = {}
    for entry in fields(parts[0]):  # type: ignore[arg-type]  # every kind of outputs is a dataclass
        values = [getattr(part, entry.name) for part in parts]
        if all(isinstance(value, Tensor) for value in values):
            changes[entry.name] = torch.cat(values)
    return replace(parts[0], **changes)  # type: ignore[type-var]
