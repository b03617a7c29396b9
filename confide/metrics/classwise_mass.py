"""Resamples of class-wise calibration error in equal-mass bins: running sums in the order of each class.

The bins of a resample are those of its copies, cut by rank. Every class has an order of its own, so there are 200
resamples, of at most 2,000,000 probabilities.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.core.binning import bin_of, mass_bin_of_rank, mass_starts, order_edges
from confide.core.predictions import Predictions
from confide.metrics import classwise
from confide.metrics.draws import bernoulli_sums

RESAMPLES = classwise.RESAMPLES
ELEMENTS = 2_000_000
CHUNK = 50  # resamples whose running sums are held at once

EDGES = ("rank", "order")

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]


def bins_of(column: Floats, bins: int, edges: str) -> Indices:
    """Equal-mass bin of every probability of a class: by rank, or between the samples at every n / bins-th rank."""
    if edges == "order":
        return bin_of(column, order_edges(column, bins), closed="left")
    index = np.empty(len(column), dtype=np.intp)
    index[np.argsort(column, kind="stable")] = mass_bin_of_rank(len(column), bins)
    return index


def cells_of(probs: Floats, bins: int, edges: str) -> NDArray[np.int32]:
    """Class and bin of every probability as one number, class * bins + bin."""
    columns = [k * bins + bins_of(column, bins, edges) for k, column in enumerate(probs.T)]
    return np.stack(columns, axis=1).astype(np.int32)


def errors_in_cells(
    cells: NDArray[np.int32], residual: Floats, weights: NDArray[np.float32], kept: NDArray[np.bool_], bins: int
) -> Floats:
    """Class-wise ECE of every row of weights in cells that stay."""
    errors, flat = np.empty(len(weights)), cells.reshape(-1)
    for b, own in enumerate(weights):
        sums = np.bincount(flat, (own[:, None] * residual).reshape(-1), minlength=len(kept) * bins)
        errors[b] = np.abs(sums.reshape(-1, bins)[kept]).sum() / (own.sum() * kept.sum())
    return errors


def part_of(predictions: Predictions, rng: np.random.Generator) -> NDArray[np.intp] | None:
    """Rows to resample where there are too many; None for all of them."""
    most = min(classwise.LARGEST, max(1, ELEMENTS // predictions.num_classes))
    n = len(predictions)
    return None if n <= most else np.sort(rng.choice(n, most, replace=False))


def weighted_errors(records: list[Predictions], weights: NDArray[np.float32], options: dict[str, Any]) -> Floats:
    """Class-wise ECE of every row of whole weights, each with the same sum; copies of a sample may part at an edge.

    Bins between samples are those of the records, whatever the weights.
    """
    bins, kept = options.get("bins", 15), classwise.kept_classes(records[0], options.get("classes", "all"))
    parts = [probabilities_of(record) for record in records]
    probs, labels = np.concatenate(parts), np.concatenate([record.labels.cpu().numpy() for record in records])
    if options.get("edges", "rank") == "order":
        cells = np.concatenate([cells_of(part, bins, "order") for part in parts])
        residual = probs.copy()
        residual[np.arange(len(labels)), labels] -= 1
        return errors_in_cells(cells, residual, weights, kept, bins)
    total = np.zeros(len(weights))
    size = round(float(weights[0].sum()))
    starts = mass_starts(size, bins)
    for k in np.flatnonzero(kept):
        column = probs[:, k]
        order = np.argsort(column, kind="stable")
        residual = (column - (labels == k))[order]
        for first in range(0, len(weights), CHUNK):
            own = weights[first : first + CHUNK][:, order].astype(np.float64)
            count, sums = np.cumsum(own, axis=1), np.cumsum(own * residual, axis=1)
            for b in range(len(own)):
                at = np.interp(starts, np.append(0.0, count[b]), np.append(0.0, sums[b]))
                total[first + b] += np.abs(np.diff(at)).sum()
    return np.asarray(total / (size * kept.sum()))


def probabilities_of(predictions: Predictions) -> Floats:
    return np.concatenate([block for _, block in classwise.blocks(predictions)])


def bootstrap_draws(predictions: Predictions, options: dict[str, Any], seed: int) -> tuple[Floats, float]:
    """Class-wise ECE of resamples within labels, and the factor of their spread where only some rows were resampled."""
    if options.get("binning", "width") == "width":
        return classwise.bootstrap_draws(predictions, options, seed)
    factor, rng = 1.0, np.random.default_rng(np.random.SeedSequence([seed, 53]))
    rows = part_of(predictions, rng)
    if rows is not None:
        factor, predictions = math.sqrt(len(rows) / len(predictions)), predictions.take(rows)
    weights = classwise.draw_within_labels(predictions.labels.cpu().numpy(), RESAMPLES, rng)
    return weighted_errors([predictions], weights, options), factor


def permutation_draws(a: Predictions, b: Predictions, options: dict[str, Any], seed: int) -> tuple[float, Floats]:
    """|difference| of class-wise ECE as it is and with the two predictions of random samples swapped."""
    if options.get("binning", "width") == "width":
        return classwise.permutation_draws(a, b, options, seed)
    rng = np.random.default_rng(np.random.SeedSequence([seed, 59]))
    rows = part_of(a, rng)
    if rows is not None:
        a, b = a.take(rows), b.take(rows)
    swap = np.concatenate([np.zeros((1, len(a))), rng.random((RESAMPLES, len(a))) < 0.5]).astype(np.float32)
    to_b = np.concatenate([swap, 1 - swap], axis=1)
    first, second = (weighted_errors([a, b], w, options) for w in (1 - to_b, to_b))
    differences = np.abs(second - first)
    return float(differences[0]), differences[1:]


def null_draws(predictions: Predictions, options: dict[str, Any], seed: int) -> Floats:
    """Class-wise ECE of labels drawn from the probabilities; beyond 50,000 rows each cell's hits are drawn at once."""
    if options.get("binning", "width") == "width":
        return classwise.null_draws(predictions, options, seed)
    rng = np.random.default_rng(np.random.SeedSequence([seed, 61]))
    probs, bins = probabilities_of(predictions), options.get("bins", 15)
    n, num_classes = probs.shape
    index = cells_of(probs, bins, options.get("edges", "rank"))
    kept = classwise.kept_classes(predictions, options.get("classes", "all"))
    size, flat = num_classes * bins, index.reshape(-1)
    mean = np.bincount(flat, probs.reshape(-1), size).astype(np.float64)
    squares = np.bincount(flat, (probs * probs).reshape(-1), size).astype(np.float64)
    draws = np.empty(RESAMPLES)
    exact = n <= classwise.LARGEST
    cells = np.take_along_axis(index, classwise.draw_labels(probs, RESAMPLES, rng), axis=1) if exact else None
    for b in range(RESAMPLES):
        if cells is None:
            hits = bernoulli_sums(mean, np.maximum(mean - squares, 0), rng)
        else:
            hits = np.bincount(cells[:, b], minlength=size).astype(np.float64)
        draws[b] = np.abs(mean - hits).reshape(-1, bins)[kept].sum() / (n * kept.sum())
    return draws
