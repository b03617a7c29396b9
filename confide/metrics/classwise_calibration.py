"""Class-wise ECE and its resamples: matrix products for bins of equal width, running sums per class for equal mass.

These take longer than the metrics of a sorted score, so there are 200 resamples, of at most 50,000 rows and, in
equal-mass bins, at most 2,000,000 probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from confide.block_sizes import CACHED, CACHED_FLOAT64, DEVICE_MEMORY, rows_in
from confide.checks import check_choice, check_range
from confide.facts import ClassTable, Facts
from confide.metrics.base import calibration_metric
from confide.metrics.influence import Folded, Influence, sum_without_noise
from confide.metrics.resampling import Resamples
from confide.metrics.view import MetricSamples, View
from confide.numerics.binning import bin_of, mass_bin_of_rank, mass_starts, order_edges, width_bin_of, width_edges
from confide.numerics.blocks import in_parts
from confide.predictions import Predictions, ProbabilityOutputs
from confide.random import generator
from confide.types import Floats, Indices, Options

RESAMPLES = 200
LARGEST = 50_000

CLASSES = ("all", "present", "to_largest")


def counted_classes(predictions: Predictions, classes: str) -> NDArray[np.bool_]:
    """Which classes count: all, those among the labels, or those up to the largest label."""
    if classes == "all":
        return np.ones(predictions.num_classes, dtype=np.bool_)
    counts = np.bincount(predictions.labels.cpu().numpy(), minlength=predictions.num_classes)
    last = int(np.flatnonzero(counts)[-1])
    return np.asarray(counts > 0 if classes == "present" else np.arange(len(counts)) <= last)


def blocks(predictions: Predictions) -> Iterator[tuple[int, Floats]]:
    """Probabilities in blocks of rows, with the first row of each."""
    outputs = predictions.outputs
    are_probs = isinstance(outputs, ProbabilityOutputs)
    source = outputs.probs if isinstance(outputs, ProbabilityOutputs) else predictions.logits
    rows = rows_in(CACHED, source.shape[1])
    for start in range(0, len(source), rows):
        block = source[start : start + rows].double()
        probs = block if are_probs else torch.softmax(block, dim=1)
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


def thinned(base: MetricSamples, most: int, rng: np.random.Generator) -> tuple[MetricSamples, float]:
    """Samples with `most` rows at most, and the factor from their spread to that of all rows."""
    if base.n <= most:
        return base, 1.0
    rows = np.sort(rng.choice(base.n, most, replace=False))
    return MetricSamples(base.predictions.take(rows), design=base.design.take(rows)), math.sqrt(most / base.n)


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


def errors_of(cells: Floats, total: Floats) -> Floats:
    """Class-wise ECE of cell sums, over the sum of the weights of each resample."""
    return np.asarray(np.abs(cells).sum(axis=(1, 2)) / (total * cells.shape[1]))


def width_bootstrap_draws(base: MetricSamples, options: Options, seed: int) -> tuple[Floats, float]:
    """Class-wise ECE of resamples, and the factor of their spread where only some rows were resampled."""
    rng = generator(seed, "classwise bootstrap")
    base, factor = thinned(base, LARGEST, rng)
    predictions, weights = base.predictions, Resamples(base.n, base.design).several(RESAMPLES, rng)
    cells = cell_sums(predictions, weights, options.get("bins", 15), options.get("closed", "right"))
    counted = counted_classes(predictions, options.get("classes", "all"))
    return errors_of(cells[:, counted], weights.sum(axis=1, dtype=np.float64)), factor


def draw_labels(probs: Floats, resamples: int, rng: np.random.Generator) -> Indices:
    """Labels drawn from the probabilities of each row, `rows x resamples`."""
    rows, num_classes = probs.shape
    cumulative = np.cumsum(probs, axis=1)
    cumulative /= cumulative[:, -1:]
    offset = np.arange(rows)[:, None]
    place = np.searchsorted((cumulative + offset).reshape(-1), rng.random((rows, resamples)) + offset, side="right")
    return np.asarray(np.clip(place - offset * num_classes, 0, num_classes - 1), dtype=np.intp)


# Equal-mass bins: those of a resample are of its copies, cut by rank, and every class has an order of its own.

MASS_ELEMENTS = 2_000_000
CHUNK = 50  # resamples whose running sums are held at once

MASS_EDGES = ("rank", "order")


def bins_of(column: Floats, bins: int, edges: str, weights: Floats | None = None) -> Indices:
    """Equal-mass bin of every probability of a class: by rank, or between the samples at every n / bins-th rank."""
    if edges == "order":
        return bin_of(column, order_edges(column, bins, weights), closed="left")
    index, order = np.empty(len(column), dtype=np.intp), np.argsort(column, kind="stable")
    index[order] = mass_bin_of_rank(len(column), bins, None if weights is None else weights[order])
    return index


def cells_of(probs: Floats, bins: int, edges: str, weights: Floats | None = None) -> NDArray[np.int32]:
    """Class and bin of every probability as one number, class * bins + bin."""
    columns = [k * bins + bins_of(column, bins, edges, weights) for k, column in enumerate(probs.T)]
    return np.stack(columns, axis=1).astype(np.int32)


def errors_in_cells(
    cells: NDArray[np.int32], residual: Floats, weights: NDArray[np.float32], counted: NDArray[np.bool_], bins: int
) -> Floats:
    """Class-wise ECE of every row of weights in cells that stay."""
    errors, flat = np.empty(len(weights)), cells.reshape(-1)
    for b, own in enumerate(weights):
        sums = np.bincount(flat, (own[:, None] * residual).reshape(-1), minlength=len(counted) * bins)
        errors[b] = np.abs(sums.reshape(-1, bins)[counted]).sum() / (own.sum() * counted.sum())
    return errors


def most_mass_rows(predictions: Predictions) -> int:
    """How many rows are resampled at most: their probabilities are held at once."""
    return min(LARGEST, max(1, MASS_ELEMENTS // predictions.num_classes))


def weighted_errors(predictions: Predictions, weights: NDArray[np.float32], options: Options) -> Floats:
    """Class-wise ECE of every row of weights; copies of a sample, or parts of its weight, may part at an edge.

    Bins between samples are those of the record, whatever the weights.
    """
    bins, counted = options.get("bins", 15), counted_classes(predictions, options.get("classes", "all"))
    probs, labels = probabilities_of(predictions), predictions.labels.cpu().numpy()
    if options.get("edges", "rank") == "order":
        cells = cells_of(probs, bins, "order", predictions.relative_weights)
        residual = probs.copy()
        residual[np.arange(len(labels)), labels] -= 1
        return errors_in_cells(cells, residual, weights, counted, bins)
    total = np.zeros(len(weights))
    sums_of_weights = weights.sum(axis=1, dtype=np.float64)
    starts = mass_starts(len(probs), bins) / len(probs)
    for k in np.flatnonzero(counted):
        column = probs[:, k]
        order = np.argsort(column, kind="stable")
        residual = (column - (labels == k))[order]
        for first in range(0, len(weights), CHUNK):
            own = weights[first : first + CHUNK][:, order].astype(np.float64)
            count, sums = np.cumsum(own, axis=1), np.cumsum(own * residual, axis=1)
            for b in range(len(own)):
                at = np.interp(starts * count[b, -1], np.append(0.0, count[b]), np.append(0.0, sums[b]))
                total[first + b] += np.abs(np.diff(at)).sum()
    return np.asarray(total / (sums_of_weights * counted.sum()))


def probabilities_of(predictions: Predictions) -> Floats:
    return np.concatenate([block for _, block in blocks(predictions)])


def bootstrap_draws(base: MetricSamples, options: Options, seed: int) -> tuple[Floats, float]:
    """Class-wise ECE of resamples, and the factor of their spread where only some rows were resampled."""
    if options.get("binning", "width") == "width":
        return width_bootstrap_draws(base, options, seed)
    rng = generator(seed, "classwise mass bootstrap")
    base, factor = thinned(base, most_mass_rows(base.predictions), rng)
    weights = Resamples(base.n, base.design).several(RESAMPLES, rng)
    return weighted_errors(base.predictions, weights, options), factor


# By theory: cells of class and bin are sums of residuals p - 1[label], and their absolute values add up.


def cell_index(predictions: Predictions, bins: int, edges: str) -> NDArray[np.int32]:
    """Class and equal-mass bin of every probability."""
    return cells_of(probabilities_of(predictions), bins, edges, predictions.relative_weights)


def mass_table(predictions: Predictions, cells: NDArray[np.int32], bins: int) -> ClassTable:
    """Sums per class and equal-mass bin."""
    probs, labels = probabilities_of(predictions), predictions.labels.cpu().numpy()
    flat, size = cells.reshape(-1), probs.shape[1] * bins
    own = np.take_along_axis(cells, labels[:, None], axis=1)[:, 0]
    p_true = np.take_along_axis(probs, labels[:, None], axis=1)[:, 0]
    relative = predictions.relative_weights
    weights = np.ones(len(labels)) if relative is None else relative
    weighted = probs * weights[:, None]
    sums = (
        np.bincount(flat, np.repeat(weights, probs.shape[1]), size),
        np.bincount(flat, weighted.reshape(-1), size),
        np.bincount(own, weights, size),
        np.bincount(flat, np.square(weighted).reshape(-1), size),
        np.bincount(own, weights**2 * p_true, size),
        np.bincount(own, weights**2, size),
    )
    return ClassTable(*(v.reshape(-1, bins).astype(np.float64) for v in sums))


def signed_sums(predictions: Predictions, signs: Floats, bins: int, closed: str) -> Floats:
    """Of every row the sum over classes of sign x (p - 1[label]), the sign that of its class and bin; in one pass."""
    facts, labels = predictions.core_facts, predictions.labels.cpu().numpy()
    outputs = predictions.outputs
    source = outputs.probs if isinstance(outputs, ProbabilityOutputs) else predictions.logits
    total = np.empty(len(labels))
    on_device = source.device.type != "cpu"
    rows = rows_in(DEVICE_MEMORY // 4 if on_device else CACHED_FLOAT64, source.shape[1])
    sums_of = _signed_sums_on_device if on_device else _signed_sums

    def work(part: slice) -> None:
        for start in range(part.start, part.stop, rows):
            block = slice(start, min(start + rows, part.stop))
            energy = None if isinstance(outputs, ProbabilityOutputs) else energies(source[block], facts, block)
            total[block] = sums_of(source[block], energy, signs, bins, closed)

    in_parts(work, len(labels), 0 if on_device else source.shape[1], rows)
    p_true = facts.need("p_true").cpu().numpy()
    for first in range(0, len(labels), CACHED):
        own = slice(first, first + CACHED)
        total[own] -= signs.reshape(-1)[labels[own] * bins + width_bin_of(p_true[own], bins, closed)]
    return total


def energies(logits: Tensor, facts: Facts, rows: slice) -> Tensor:
    """log sum exp of some rows of logits, which their confidence tells with the largest of each."""
    if facts.energy is not None:
        return facts.energy[rows]
    largest = logits.gather(1, facts.prediction[rows].long()[:, None]).squeeze(1)
    return largest - facts.confidence[rows].log()


def _signed_sums(block: Tensor, energy: Tensor | None, signs: Floats, bins: int, closed: str) -> Floats:
    """Of some rows the sums of sign x p, of logits and their energies or, without these, of probabilities."""
    values = (block.float() if block.dtype in (torch.float16, torch.bfloat16) else block).numpy()
    probs = values
    if energy is not None:
        probs = values - energy.numpy()[:, None].astype(values.dtype)
        np.exp(probs, out=probs)
    first, flat = np.ascontiguousarray(signs[:, 0]), signs.reshape(-1)
    sums = torch.mv(torch.from_numpy(probs), torch.from_numpy(first.astype(probs.dtype))).double().numpy()
    if bins > 1:
        places = np.flatnonzero(probs >= probs.dtype.type(width_edges(bins)[1]))
        row = places // probs.shape[1]
        column, above = places - row * probs.shape[1], probs.reshape(-1)[places]
        change = flat[column * bins + width_bin_of(above, bins, closed)] - first[column]
        sums += np.bincount(row, change * above, minlength=len(sums))
    return np.asarray(sums)


def _signed_sums_on_device(block: Tensor, energy: Tensor | None, signs: Floats, bins: int, closed: str) -> Floats:
    """The same of rows that live on a GPU: what leaves it is one number a row."""
    wide = block.float() if block.dtype in (torch.float16, torch.bfloat16) else block
    probs = wide if energy is None else (wide - energy[:, None]).exp_()
    table = torch.from_numpy(signs).to(probs.device)
    edges = torch.from_numpy(width_edges(bins)).to(probs.device, probs.dtype)
    sums = (probs @ table[:, 0].to(probs.dtype)).double()
    if bins > 1:
        row, column = (probs >= edges[1]).nonzero(as_tuple=True)
        above = probs[row, column]
        place = torch.bucketize(above, edges[1:-1], right=closed == "left")
        sums.index_add_(0, row, (table[column, place] - table[column, 0]) * above)
    return np.asarray(sums.cpu().numpy())


def class_parts(counted: NDArray[np.bool_], bins: int) -> Iterator[Indices]:
    """Counted classes, as many at a time as keep what is made of their cells small."""
    chosen, size = np.flatnonzero(counted), rows_in(CACHED_FLOAT64 // 8, bins)
    return (chosen[first : first + size] for first in range(0, len(chosen), size))


def classwise_influence(
    view: View,
    *,
    bins: int = 15,
    binning: str = "width",
    closed: str = "right",
    classes: str = "all",
    edges: str = "rank",
) -> Influence:
    """psi of class-wise ECE: of every row the sum of its residuals with the sign of their cell, soft where unclear."""
    predictions = view.predictions
    counted, n, unit_weight = counted_classes(predictions, classes), len(predictions), typical_weight(predictions)
    cells = cell_index(predictions, bins, edges) if binning == "mass" else None
    table = predictions.class_table(bins, closed) if cells is None else mass_table(predictions, cells, bins)
    signs, rest, seen = np.zeros(table.count.shape), 0.0, np.zeros((3, bins))
    for part in class_parts(counted, bins):
        sums = table.confidence[part] - table.hits[part]
        squares = table.squares[part] - 2 * table.truth[part] + table.hit_squares[part]
        folded = Folded.of(sums / n, np.maximum(squares - sums**2 / n, 0.0) / n**2)
        signs[part] = folded.slope
        rest += float(folded.rest.sum())
        seen += [np.maximum(v[part], 0.0).sum(axis=0) for v in (table.hits, table.confidence, table.count)]
    rest *= together(predictions.num_classes)
    if cells is None:
        psi = signed_sums(predictions, signs, bins, closed)
    else:
        probs, labels, flat = probabilities_of(predictions), predictions.labels.cpu().numpy(), signs.reshape(-1)
        own = np.take_along_axis(cells, labels[:, None], axis=1)[:, 0]
        psi = (flat[cells] * probs).sum(axis=1) - flat[own]
    size, chance, error = int(counted.sum()), 0.0, 0.0
    # Hits of a cell vary about their true mean: what was expected, more or less as in that bin over all classes and one
    # sample more that was as expected: a bin without a miss does not show that none can happen.
    one_more = unit_weight * seen[1] / np.maximum(seen[2], 1e-300)
    more_or_less = (seen[0] + one_more) / np.maximum(seen[1] + one_more, 1e-300)
    for part in class_parts(counted, bins):
        expected, count = np.maximum(table.confidence[part], 0.0), np.maximum(table.count[part], unit_weight)
        hits = expected * more_or_less
        rate = np.clip(hits / count, 0.0, 1.0)
        # How many samples fall into a cell varies too, each with the gap there.
        gap = rate - expected / count
        wider = np.sqrt(1 + gap**2 / np.maximum(rate * (1 - rate), SURE))
        hits = hits / unit_weight
        chance += float((absolute_deviation(hits, hits * (1 - rate)) * wider).sum()) * unit_weight / n
        error += float(np.abs(table.confidence[part] - table.hits[part]).sum()) / n
    centre, doubt = sum_without_noise(error, chance)
    psi -= view.weighted_mean(psi)
    psi /= size
    return Influence(psi, noise=(rest + doubt**2) / size**2, without_noise=centre / size)


SURE = 1e-3
"""The smallest variance of a hit that a gap is compared with."""


def typical_weight(predictions: Predictions) -> float:
    """The weight of samples alike whose sum is as sure: counts of hits are whole numbers of these."""
    weights = predictions.relative_weights
    return 1.0 if weights is None else float(weights @ weights / weights.sum())


def together(num_classes: int) -> float:
    """By how much the variance of absolute deviations grows because rows have one label: classes are correlated.

    Cells of two classes are the same, those of many are hardly alike: as if by -1 / (c - 1).
    """
    shared = 1 / max(num_classes - 1, 1)
    excess = math.sqrt(1 - shared**2) + shared * math.asin(shared) - 1
    return 1 + (num_classes - 1) * excess / (math.pi / 2 - 1)


def absolute_deviation(mean: Floats, variance: Floats) -> Floats:
    """E|X - mean| of a binomial with that mean and variance (De Moivre): counts of rare hits are far from normal."""
    chance = np.clip(1 - variance / np.maximum(mean, 1e-300), 1e-7, 1 - 1e-12)
    trials, whole = mean / chance, np.floor(mean)
    logs = [
        torch.lgamma(torch.from_numpy(v)).numpy() for v in (trials + 1, whole + 1, np.maximum(trials - whole, 1e-12))
    ]
    power = (trials - whole) * np.log1p(-chance) + (whole + 1) * np.log(chance)
    return np.where(mean > 0, 2 * np.exp(power + logs[0] - logs[1] - logs[2]), 0.0)


def classwise_chance(
    view: View,
    draws: int,
    rng: np.random.Generator,
    *,
    bins: int = 15,
    binning: str = "width",
    closed: str = "right",
    classes: str = "all",
    edges: str = "rank",
) -> Floats:
    """Class-wise ECE of a calibrated model: a gamma with the mean and variance of the sum of absolute deviations."""
    predictions = view.predictions
    counted = counted_classes(predictions, classes)
    cells = cell_index(predictions, bins, edges) if binning == "mass" else None
    table = predictions.class_table(bins, closed) if cells is None else mass_table(predictions, cells, bins)
    unit_weight = typical_weight(predictions)
    size, mean, spread = len(predictions) / unit_weight * int(counted.sum()), 0.0, 0.0
    for part in class_parts(counted, bins):
        expected = np.maximum(table.confidence[part], 0.0) / unit_weight
        variance = np.clip(expected - table.squares[part] / unit_weight**2, 0.0, expected)
        deviation = np.minimum(absolute_deviation(expected, variance), np.sqrt(variance))
        mean += float(deviation.sum()) / size
        spread += float((variance - deviation**2).sum()) / size**2
    spread *= together(predictions.num_classes)
    if mean <= 0 or spread <= 0:
        return np.full(draws, mean)
    return rng.gamma(mean**2 / spread, spread / mean, draws)


@calibration_metric(
    "classwise_ece",
    paper="Nixon et al., 2019, arXiv:1904.01685; Kull et al., 2019, arXiv:1910.12656",
    title="Class-wise ECE",
    meaning="How far the probability of each class is from how often it is the label, averaged over all classes.",
    digits=2,
    tables={"core": 7, "models": 6},
    corners=(
        {"bins": 1},
        {"bins": 100},
        {"binning": "mass"},
        {"closed": "left"},
        {"classes": "present"},
        {"classes": "to_largest"},
        {"binning": "mass", "edges": "order"},
    ),
    whole=True,
    from_class_table=True,
    influence=classwise_influence,
    chance=classwise_chance,
    resample=bootstrap_draws,
)
def classwise_ece(
    view: View,
    *,
    bins: int = 15,
    binning: str = "width",
    closed: str = "right",
    classes: str = "all",
    edges: str = "rank",
) -> float:
    """Class-wise ECE, mean over all K classes of the binary ECE of p_k against 1[y = k].

    When: probabilities of all classes are used.
    When not: classes are many: nearly all bins are empty, the value is small by that.

    Args:
        bins: how many, for each class. Default: as for the expected calibration error.
        binning: `width`, or `mass` for equal counts by rank within each class.
        closed: the side on which an equal-width bin holds its edge.
        classes: those of the mean: `all`; only those `present` among the labels (the package CalibWeightedRisk);
            `to_largest` leaves out those above the largest label (Mukhoti et al., 2020).
        edges: of equal-mass bins: `rank`, or `order` for bins [low, high) between samples, which never part ties.

    Example:
        >>> predictions = confide.Predictions.from_probs([[0.9, 0.1], [0.4, 0.6], [0.8, 0.2]], [0, 1, 1])
        >>> round(float(confide.metrics.classwise_ece(predictions, bins=2)), 3)
        0.367
    """
    check_choice(classes, CLASSES, "classes")
    check_choice(edges, MASS_EDGES if binning == "mass" else ("rank",), "edges (they need equal-mass bins)")
    check_choice(binning, ("width", "mass"), "binning")
    check_choice(closed, ("right", "left"), "closed")
    check_range(bins, "bins", 1)
    predictions, counted = view.predictions, counted_classes(view.predictions, classes)
    if binning == "width":
        table = predictions.class_table(bins, closed)
        apart = sum(float(np.abs(table.confidence[k] - table.hits[k]).sum()) for k in class_parts(counted, bins))
        return apart / float(table.count[counted].sum())
    weights, size = predictions.relative_weights, len(predictions) * int(counted.sum())
    predictions.need_logits("class-wise calibration")
    probs, labels = predictions.probabilities(), predictions.labels
    total = 0.0
    for k in np.flatnonzero(counted).tolist():
        column = probs[:, k].double().cpu().numpy()
        residual = column - (labels == k).cpu().numpy()
        own = residual if weights is None else residual * weights
        index = bins_of(column, bins, edges, weights)
        total += float(np.abs(np.bincount(index, own, minlength=bins)).sum())
    return total / size
