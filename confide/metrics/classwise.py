"""Resamples of class-wise calibration error: matrix products for the column sums, few entries per row for the bins.

These take longer than the metrics of a sorted score, so there are 200 resamples, and at most 50,000 rows are resampled.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from confide.core.binning import bin_of, width_edges
from confide.core.predictions import Predictions
from confide.metrics.draws import bernoulli_sums

RESAMPLES = 200
LARGEST = 50_000
ROWS = 1 << 19  # elements of a block

CLASSES = ("all", "present", "to_largest")

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]


def kept_classes(predictions: Predictions, classes: str) -> NDArray[np.bool_]:
    """Which classes count: all, those among the labels, or those up to the largest label."""
    counts = np.bincount(predictions.labels.cpu().numpy(), minlength=predictions.num_classes)
    if classes == "all":
        return np.ones(len(counts), dtype=np.bool_)
    last = int(np.flatnonzero(counts)[-1])
    return np.asarray(counts > 0 if classes == "present" else np.arange(len(counts)) <= last)


def blocks(predictions: Predictions) -> Iterator[tuple[int, Floats]]:
    """Probabilities in blocks of rows, with the first row of each."""
    source = predictions.probs if predictions.probs is not None else predictions.logits
    rows = max(1, ROWS // source.shape[1])
    for start in range(0, len(source), rows):
        block = source[start : start + rows].double()
        probs = block if predictions.probs is not None else torch.softmax(block, dim=1)
        yield start, probs.cpu().numpy()


@dataclass(frozen=True, eq=False)
class Entries:
    """Probabilities above the first bin: row, cell (class and bin) and p - 1[label]."""

    row: Indices
    cell: Indices
    residual: Floats


def entries_of(predictions: Predictions, edges: Floats, closed: str) -> Entries:
    """All entries above the first bin, and nothing of the rest."""
    labels, bins = predictions.labels.cpu().numpy(), len(edges) - 1
    rows, cells, residuals = [], [], []
    for start, probs in blocks(predictions):
        index = bin_of(probs, edges, closed)
        row, column = np.nonzero(index)
        rows.append(row + start)
        cells.append(column * bins + index[row, column])
        residuals.append(probs[row, column] - (labels[row + start] == column))
    return Entries(np.concatenate(rows), np.concatenate(cells), np.concatenate(residuals))


def draw_within_labels(labels: NDArray[np.int64], resamples: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """How often each sample is drawn in each resample, with as many of every label as there are."""
    order, counts = np.argsort(labels, kind="stable"), np.bincount(labels)
    start = np.repeat(np.concatenate(([0], np.cumsum(counts)[:-1])), counts)
    size = np.repeat(counts, counts)
    weights = np.empty((resamples, len(labels)), dtype=np.float32)
    for b in range(resamples):
        drawn = order[start + (rng.random(len(labels)) * size).astype(np.intp)]
        weights[b] = np.bincount(drawn, minlength=len(labels))
    return weights


def cell_sums(predictions: Predictions, weights: NDArray[np.float32], bins: int, closed: str) -> Floats:
    """Weighted sums of p - 1[label] in every class and bin, for every row of weights: `resamples c bins`."""
    num_classes, labels = predictions.num_classes, predictions.labels.cpu().numpy()
    columns = np.zeros((len(weights), num_classes))
    for start, probs in blocks(predictions):
        columns += weights[:, start : start + len(probs)] @ probs.astype(np.float32)
    entries = entries_of(predictions, width_edges(bins), closed)
    cells = np.empty((len(weights), num_classes, bins))
    for b, own in enumerate(weights):
        sums = np.bincount(entries.cell, own[entries.row] * entries.residual, minlength=num_classes * bins)
        cells[b] = sums.reshape(num_classes, bins)
        total = columns[b] - np.bincount(labels, own, minlength=num_classes)
        cells[b, :, 0] = total - cells[b, :, 1:].sum(axis=1)
    return cells


def errors_of(cells: Floats, n: int) -> Floats:
    """Class-wise ECE of cell sums."""
    return np.asarray(np.abs(cells).sum(axis=(1, 2)) / (n * cells.shape[1]))


def bootstrap_draws(predictions: Predictions, options: dict[str, Any], seed: int) -> tuple[Floats, float]:
    """Class-wise ECE of resamples, and the factor of their spread where only some rows were resampled."""
    factor, rng = 1.0, np.random.default_rng(np.random.SeedSequence([seed, 23]))
    if len(predictions) > LARGEST:
        factor = math.sqrt(LARGEST / len(predictions))
        predictions = predictions.take(np.sort(rng.choice(len(predictions), LARGEST, replace=False)))
    weights = draw_within_labels(predictions.labels.cpu().numpy(), RESAMPLES, rng)
    cells = cell_sums(predictions, weights, options.get("bins", 15), options.get("closed", "right"))
    return errors_of(cells[:, kept_classes(predictions, options.get("classes", "all"))], len(predictions)), factor


def permutation_draws(a: Predictions, b: Predictions, options: dict[str, Any], seed: int) -> tuple[float, Floats]:
    """|difference| of class-wise ECE as it is and with the two predictions of random samples swapped."""
    rng = np.random.default_rng(np.random.SeedSequence([seed, 41]))
    if len(a) > LARGEST:
        rows = np.sort(rng.choice(len(a), LARGEST, replace=False))
        a, b = a.take(rows), b.take(rows)
    # The first row swaps everything: its sums are the totals, from which the unswapped parts follow.
    swap = np.concatenate([np.ones((1, len(a))), rng.random((RESAMPLES, len(a))) < 0.5]).astype(np.float32)
    bins, closed = options.get("bins", 15), options.get("closed", "right")
    kept = kept_classes(a, options.get("classes", "all"))
    of_a, of_b = (cell_sums(p, swap, bins, closed)[:, kept] for p in (a, b))
    first, second = of_a[:1] - of_a + of_b, of_a + of_b[:1] - of_b
    differences = np.abs(errors_of(second, len(a)) - errors_of(first, len(a)))
    return float(differences[0]), differences[1:]


def draw_labels(probs: Floats, resamples: int, rng: np.random.Generator) -> Indices:
    """Labels drawn from the probabilities of each row, `rows x resamples`."""
    rows, num_classes = probs.shape
    cumulative = np.cumsum(probs, axis=1)
    cumulative /= cumulative[:, -1:]
    offset = np.arange(rows)[:, None]
    place = np.searchsorted((cumulative + offset).reshape(-1), rng.random((rows, resamples)) + offset, side="right")
    return np.asarray(np.clip(place - offset * num_classes, 0, num_classes - 1), dtype=np.intp)


def null_draws(predictions: Predictions, options: dict[str, Any], seed: int) -> Floats:
    """Class-wise ECE of labels drawn from the probabilities; beyond 50,000 rows each cell's hits are drawn at once."""
    bins, closed = options.get("bins", 15), options.get("closed", "right")
    rng = np.random.default_rng(np.random.SeedSequence([seed, 29]))
    table = predictions.class_table(bins, closed)
    n, num_classes = len(predictions), predictions.num_classes
    kept = kept_classes(predictions, options.get("classes", "all"))
    if len(predictions) > LARGEST:
        return cell_draws(predictions, table.confidence, width_edges(bins), closed, kept, rng)
    cells = np.empty((n, RESAMPLES), dtype=np.int32)
    for start, probs in blocks(predictions):
        drawn = draw_labels(probs, RESAMPLES, rng)
        chosen = np.take_along_axis(probs, drawn, axis=1)
        cells[start : start + len(probs)] = drawn * bins + bin_of(chosen, width_edges(bins), closed)
    draws = np.empty(RESAMPLES)
    for b in range(RESAMPLES):
        hits = np.bincount(cells[:, b], minlength=num_classes * bins).reshape(num_classes, bins)
        draws[b] = np.abs(table.confidence - hits)[kept].sum() / (n * kept.sum())
    return draws


def cell_draws(
    predictions: Predictions,
    mean: Floats,
    edges: Floats,
    closed: str,
    kept: NDArray[np.bool_],
    rng: np.random.Generator,
) -> Floats:
    """Hits of a cell, drawn at once; that a row has one label only is left out of account."""
    squares, bins = np.zeros(mean.size), len(edges) - 1
    for _, probs in blocks(predictions):
        cell = np.arange(probs.shape[1]) * bins + bin_of(probs, edges, closed)
        squares += np.bincount(cell.reshape(-1), (probs * probs).reshape(-1), minlength=mean.size)
    flat = np.maximum(mean.reshape(-1), 0)
    draws = np.empty(RESAMPLES)
    for b in range(RESAMPLES):
        hits = bernoulli_sums(flat, np.maximum(flat - squares, 0), rng)
        draws[b] = np.abs(flat - hits).reshape(mean.shape)[kept].sum() / (len(predictions) * kept.sum())
    return draws
