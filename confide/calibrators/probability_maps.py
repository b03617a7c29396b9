"""Maps of one probability: `isotonic`, `histogram` and `beta` for every class, `spline` for the predicted class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline
from scipy.optimize import isotonic_regression
from torch import Tensor

from confide.block_sizes import CACHED_FLOAT64, rows_in
from confide.calibrators.base import (
    CALIBRATORS,
    FittedValues,
    Values,
    log_sums,
    map_rows,
    predicted_classes,
    row_blocks,
)
from confide.checks import InputError
from confide.facts import SMALLEST_PROBABILITY
from confide.numerics.binning import MOST_BINS, bin_of, ranks_of_weights, split_edges, width_edges
from confide.numerics.logistic import PooledPoints, logistic_regressions
from confide.types import Flags, Floats, Labels, Logits, Probs

# Monotone and piecewise linear maps of one number: nodes found in numpy, applied in torch.


def isotonic_nodes(
    chunks: Iterable[Floats],
    hits: Floats,
    weights: Iterable[Floats] | None = None,
    hit_weights: Floats | None = None,
) -> tuple[Floats, Floats]:
    """Nodes of the isotonic regression of 0/1 outcomes on scores: ends of its steps, joined by lines.

    Only the scores of the hits (outcome 1) are kept: a step can only begin at one of them, because whatever follows
    a hit without another hit has a smaller mean and is pooled with it. So the scores may come in chunks, in any order,
    and memory grows with the hits, not with the scores. Weights come in the same chunks.
    """
    starts, place = np.unique(hits, return_inverse=True)
    multiplicity = np.bincount(place.reshape(-1), hit_weights, minlength=len(starts))
    count = np.zeros(len(starts) + 1)
    last = np.full(len(starts) + 1, -np.inf)  # largest score of every interval [start, next start)
    first = np.inf
    for chunk, own in zip(chunks, repeat(None) if weights is None else weights, strict=False):
        ordered = np.sort(chunk)
        ends = np.append(np.searchsorted(ordered, starts, side="left"), len(ordered))
        sizes = np.diff(ends, prepend=0)
        if own is None:
            count += sizes
        else:
            sums = np.append(0.0, np.cumsum(own[np.argsort(chunk, kind="stable")]))
            count += np.diff(sums[ends], prepend=0.0)
        filled = sizes > 0
        last[filled] = np.maximum(last[filled], ordered[ends[filled] - 1])
        first = min(first, float(ordered[0])) if len(ordered) else first
    begin = np.concatenate(([first], starts))
    outcome = np.concatenate(([0.0], multiplicity / np.where(count[1:] > 0, count[1:], 1)))
    keep = count > 0
    fitted = isotonic_regression(outcome[keep], weights=count[keep])
    edges = fitted.blocks
    level = np.asarray(fitted.x)[edges[:-1]]
    left, right = begin[keep][edges[:-1]], last[keep][edges[1:] - 1]
    nodes, levels = np.stack([left, right], axis=1).ravel(), np.repeat(level, 2)
    distinct = np.append(True, np.diff(nodes) > 0)
    return nodes[distinct], levels[distinct]


def padded(rows: list[Floats]) -> Tensor:
    """Nodes or levels of many maps as one matrix; short ones repeat their last entry, which changes nothing."""
    matrix = np.empty((len(rows), max(2, *map(len, rows))), dtype=np.result_type(*rows))
    for filled, row in zip(matrix, rows, strict=True):
        filled[: len(row)] = row
        filled[len(row) :] = row[-1]
    return torch.from_numpy(matrix)


def interpolated(nodes: Tensor, levels: Tensor, values: Tensor) -> Tensor:
    """Piecewise linear maps, constant outside the nodes: one for all values (nodes `k`) or one per row (`m k`)."""
    right = inner_below(nodes, values) + 1
    low, high = looked_up(nodes, right - 1), looked_up(nodes, right)
    share = ((values - low) / (high - low).clamp_min(torch.finfo(nodes.dtype).tiny)).clamp(0.0, 1.0)
    return torch.lerp(looked_up(levels, right - 1), looked_up(levels, right), share)


def inner_below(nodes: Tensor, values: Tensor) -> Tensor:
    """How many inner nodes lie below each value: the interval (low, high] that it falls into."""
    inner = nodes[..., 1:-1].contiguous()
    if torch.onnx.is_in_onnx_export():
        # ONNX has no binary search.
        return (inner[..., None, :] < values[..., None]).sum(dim=-1)
    return torch.searchsorted(inner, values.contiguous())


def looked_up(table: Tensor, index: Tensor) -> Tensor:
    """Entries of one table `k` at any index, or of a table per row `m k` at an index `m n`."""
    return table[index] if table.dim() == 1 else table.gather(1, index)


def normalised(scores: Probs, logits: Logits) -> Logits:
    """Log of rows that sum to one; a row of zeros keeps the probabilities it came with."""
    empty = scores.sum(dim=1, keepdim=True) <= 0
    safe = torch.where(empty, torch.softmax(logits, dim=1), scores)
    return (safe / safe.sum(dim=1, keepdim=True)).clamp_min(SMALLEST_PROBABILITY).log()


def top_of(logits: Logits) -> tuple[Tensor, Tensor]:
    """Largest probability `n 1` and its class `n 1`, the first of equals."""
    lead = logits.argmax(dim=1, keepdim=True)
    return torch.softmax(logits, dim=1).gather(1, lead), lead


def all_tops(logits: Logits) -> tuple[Floats, NDArray[np.int64]]:
    """Confidence and predicted class of every row, in float64, by row blocks."""
    confidence = map_rows(logits, lambda block: top_of(block)[0].squeeze(1))
    return confidence.numpy(), predicted_classes(logits).numpy()


def with_top(logits: Logits, lead: Tensor, confidence: Tensor) -> Logits:
    """Log-probabilities where the leading class has this confidence `n 1` and the others share the rest as before."""
    chosen = torch.zeros_like(logits).scatter(1, lead, 1.0) > 0
    others = torch.where(chosen, torch.full_like(logits, -torch.inf), logits)
    sure = confidence.clamp(SMALLEST_PROBABILITY, 1.0)
    rest = (1.0 - confidence).clamp(SMALLEST_PROBABILITY, 1.0)
    return torch.where(chosen, sure.log(), torch.log_softmax(others, dim=1) + rest.log())


# isotonic: a monotone step map of every class's probability.

RANKING_SHARE = 1e-9
"""Share of the old probability added so that equal steps keep their order (Zhang et al., 2020)."""
PSEUDO_COUNT = 0.0
"""Laplace's: without it the first sample of a class below its lowest hit costs all the likelihood there is."""


def apply_isotonic(values: Values, logits: Logits) -> Logits:
    """Log of the maps' values, normalised by row."""
    probs = torch.softmax(logits, dim=1)
    scores = interpolated(values["nodes"], values["levels"], probs.T).T
    return normalised(scores + values["ranking"] * probs, logits)


@CALIBRATORS.add(
    "isotonic",
    paper="Zadrozny and Elkan, 2002; accuracy-preserving form: Zhang et al., 2020, arXiv:2003.07329",
    title="isotonic calibration",
    corners=({"form": "one_map"}, {"form": "ranked"}, {"pseudo_count": 1.0}),
    ranges={"pseudo_count": (0.0, 1e9)},
    choices={"form": ("one_vs_rest", "ranked", "one_map")},
    keeps_argmax=("form", "one_map"),
    yields="probabilities",
    parameters=(0, 10, 0),
    transform=apply_isotonic,
)
def isotonic(
    logits: Logits,
    labels: Labels,
    weights: Floats | None = None,
    *,
    form: str = "one_vs_rest",
    pseudo_count: float = PSEUDO_COUNT,
) -> FittedValues:
    """Isotonic regression, q_k proportional to m_k(p_k) with m_k monotone, fitted to 1[y = k].

    When: samples are many and the map may have any monotone form.
    When not: samples are few: probabilities of 0 make its NLL large; `pseudo_count=1` or centred_isotonic help.

    Args:
        logits: of held-out samples, `n c`; `calibrators.fit` checks them and puts its result into a `Calibrator`.
        labels: their classes, `n`.
        weights: how much each sample counts, of mean 1.
        form: `one_vs_rest` fits a map per class; `ranked` adds 1e-9 p to it, so that classes on one step keep their
            order (IROvA); `one_map` shares one such map among all classes and never changes the argmax (IRM).
        pseudo_count: added samples of every class that fall anywhere, (n m + a) / (n + a c): no class is impossible
            because no sample of it was seen, and with 1 the NLL on other samples is lower. Default: 0, the regression
            itself, as the released codes have it.

    Returns:
        The fitted values, for the transform of this word, and what a person should know about the fit.

    Example:
        >>> import torch
        >>> i = torch.arange(60)
        >>> labels = i % 3
        >>> predicted = torch.where(i % 5 == 0, (labels + 1 + i % 2) % 3, labels)  # one in five is wrong
        >>> val = confide.Predictions(4.0 * torch.eye(3)[predicted], labels, split="val")
        >>> calibrator = confide.calibrators.fit("isotonic", val)
        >>> [round(float(p.facts.confidence.mean()), 2) for p in (val, calibrator(val))]
        [0.96, 0.8]
    """
    ranking = torch.tensor(0.0 if form == "one_vs_rest" else RANKING_SHARE, dtype=torch.float64)
    if form == "one_map":
        every = None if weights is None else _repeated(weights, logits)
        steps = isotonic_nodes(
            (chunk.ravel() for chunk in _chunks(logits)), _true_probs(logits, labels), every, weights
        )
        nodes, levels = (padded([part])[0] for part in steps)
    else:
        nodes, levels = (padded(list(part)) for part in zip(*_class_maps(logits, labels, weights), strict=True))
    levels = with_pseudo_counts(levels, pseudo_count, len(logits), logits.shape[1])
    return FittedValues({"nodes": nodes, "levels": levels, "ranking": ranking})


def with_pseudo_counts(levels: Tensor, pseudo_count: float, n: int, num_classes: int) -> Tensor:
    """Levels of maps fitted on n samples after so many more of every class, alike at every level."""
    return (n * levels + pseudo_count) / (n + pseudo_count * num_classes)


def _chunks(logits: Logits) -> Iterator[Floats]:
    for block in row_blocks(logits):
        yield torch.softmax(block, dim=1).numpy()


def _repeated(weights: Floats, logits: Logits) -> Iterator[Floats]:
    """The weight of every probability of the chunks."""
    start = 0
    for block in row_blocks(logits):
        yield np.repeat(weights[start : start + len(block)], logits.shape[1])
        start += len(block)


def _true_probs(logits: Logits, labels: Labels) -> Floats:
    # From the same chunks as the scores: a hit must be found among them to the last bit.
    start, true = 0, []
    for chunk in _chunks(logits):
        true.append(chunk[np.arange(len(chunk)), labels.numpy()[start : start + len(chunk)]])
        start += len(chunk)
    return np.concatenate(true)


def _class_maps(logits: Logits, labels: Labels, weights: Floats | None) -> Iterator[tuple[Floats, Floats]]:
    for first, probs in class_columns(logits):
        for k, column in enumerate(probs, start=first):
            own = labels.numpy() == k
            # A class that never occurs keeps its probabilities.
            yield isotonic_map(column, own, weights) if own.any() else (np.array([0.0, 1.0]), np.array([0.0, 1.0]))


def isotonic_map(scores: Floats, hits: NDArray[np.bool_], weights: Floats | None) -> tuple[Floats, Floats]:
    """Nodes of the isotonic regression of these outcomes on these scores."""
    if weights is None:
        return isotonic_nodes([scores], scores[hits])
    return isotonic_nodes([scores], scores[hits], [weights], weights[hits])


def class_columns(logits: Logits) -> Iterator[tuple[int, Floats]]:
    """(first class, probabilities `k n`) by groups of classes, so that never all of n x c is held in float64.

    All groups share one buffer: a group is gone when the next is asked for.
    """
    shift = log_sums(logits)
    width = rows_in(4 * CACHED_FLOAT64, len(logits))
    buffer = torch.empty(min(width, logits.shape[1]), len(logits), dtype=torch.float64)
    for first in range(0, logits.shape[1], width):
        columns = logits[:, first : first + width].T
        part = buffer[: len(columns)].copy_(columns).sub_(shift).numpy()
        yield first, np.exp(part, out=part)


# histogram: the share of hits in the bin of a probability.


def apply_histogram(values: Values, logits: Logits) -> Logits:
    """Log of the bins' shares: of the leading class with the rest in proportion, or of all classes, normalised."""
    edges, levels = values["edges"], values["levels"]
    if edges.dim() == 1:
        confidence, lead = top_of(logits)
        return with_top(logits, lead, looked_up(levels, inner_below(edges, confidence)))
    return normalised(looked_up(levels, inner_below(edges, torch.softmax(logits, dim=1).T)).T, logits)


@CALIBRATORS.add(
    "histogram",
    paper="Zadrozny and Elkan, 2001; Guo et al., 2017, arXiv:1706.04599",
    title="histogram binning",
    corners=({"binning": "mass"}, {"target": "classes"}, {"empty": "zero"}, {"bins": 1}),
    ranges={"bins": (1, MOST_BINS)},
    choices={"binning": ("width", "mass"), "target": ("top", "classes"), "empty": ("midpoint", "zero")},
    keeps_argmax=False,
    yields="probabilities",
    parameters=(15, 0, 0),
    transform=apply_histogram,
)
def histogram(
    logits: Logits,
    labels: Labels,
    weights: Floats | None = None,
    *,
    bins: int = 15,
    binning: str = "width",
    target: str = "top",
    empty: str = "midpoint",
) -> FittedValues:
    """Histogram binning, q = share of hits among the validation samples whose probability falls into the same bin.

    When: a bound on the error in each bin is wanted, with many samples.
    When not: confidences are ranked afterwards: all samples of a bin become equal.

    Args:
        logits: of held-out samples, `n c`; `calibrators.fit` checks them and puts its result into a `Calibrator`.
        labels: their classes, `n`.
        weights: how much each sample counts, of mean 1.
        bins: number of bins (low, high].
        binning: `width` (Guo et al.) or `mass`, edges midway between parts of equal size (Kumar et al., 2019).
        target: `top` calibrates the confidence of the predicted class and leaves the others their proportions;
            `classes` calibrates every class against the rest and normalises.
        empty: value of a bin without samples, its `midpoint` (Kumar et al.) or `zero`.

    Returns:
        The fitted values, for the transform of this word, and what a person should know about the fit.

    Example:
        >>> import torch
        >>> i = torch.arange(60)
        >>> labels = i % 3
        >>> predicted = torch.where(i % 5 == 0, (labels + 1 + i % 2) % 3, labels)  # one in five is wrong
        >>> val = confide.Predictions(4.0 * torch.eye(3)[predicted], labels, split="val")
        >>> calibrator = confide.calibrators.fit("histogram", val)
        >>> [round(float(p.facts.confidence.mean()), 2) for p in (val, calibrator(val))]
        [0.96, 0.8]
    """
    if target == "top":
        confidence, lead = all_tops(logits)
        maps = [bin_map(confidence, lead == labels.numpy(), bins, binning, empty, weights)]
    else:
        maps = [
            bin_map(column, labels.numpy() == k, bins, binning, empty, weights)
            for first, probs in class_columns(logits)
            for k, column in enumerate(probs, start=first)
        ]
    edges, levels = (padded(list(part)) for part in zip(*maps, strict=True))
    at = 0 if target == "top" else slice(None)
    return FittedValues({"edges": edges[at], "levels": levels[at]})


def bin_map(
    scores: Floats, hits: Floats, bins: int, binning: str, empty: str, weights: Floats | None = None
) -> tuple[Floats, Floats]:
    """Edges of the bins, and the share of hits in each."""
    edges = width_edges(bins) if binning == "width" else np.unique(split_edges(scores, bins, weights))
    count = len(edges) - 1
    which = bin_of(scores, edges)
    size = np.bincount(which, weights, minlength=count)
    right = np.bincount(which, hits if weights is None else hits * weights, minlength=count)
    middle = (edges[:-1] + edges[1:]) / 2 if empty == "midpoint" else np.zeros(count)
    return edges, np.where(size > 0, right / np.where(size > 0, size, 1), middle)


# spline: the confidence plus the slope of a spline through the cumulative calibration error.


def apply_spline(values: Values, logits: Logits) -> Logits:
    """Log-probabilities with the recalibrated confidence of the leading class, the rest in proportion."""
    confidence, lead = top_of(logits)
    moved = interpolated(values["nodes"], values["levels"], confidence).clamp(0.0, 1.0)
    return with_top(logits, lead, moved)


@CALIBRATORS.add(
    "spline",
    paper="Gupta et al., 2021, arXiv:2006.12800",
    title="spline calibration",
    corners=({"knots": 3}, {"knots": 20}),
    ranges={"knots": (3, 1000)},
    keeps_argmax=False,
    yields="probabilities",
    parameters=(6, 0, 0),
    transform=apply_spline,
)
def spline(logits: Logits, labels: Labels, weights: Floats | None = None, *, knots: int = 6) -> FittedValues:
    """Spline calibration of the top class, q = c + h'(rank of c), h a spline of the summed (correct - confidence).

    When: only the top class's confidence is used.
    When not: all probabilities are used, or accuracy may not move by ties.

    Args:
        logits: of held-out samples, `n c`; `calibrators.fit` checks them and puts its result into a `Calibrator`.
        labels: their classes, `n`.
        weights: how much each sample counts, of mean 1.
        knots: knots of the natural cubic spline, equally spaced over the ranks. Default: the choice of the paper.

    Returns:
        The fitted values, for the transform of this word, and what a person should know about the fit.

    Example:
        >>> import torch
        >>> i = torch.arange(60)
        >>> labels = i % 3
        >>> predicted = torch.where(i % 5 == 0, (labels + 1 + i % 2) % 3, labels)  # one in five is wrong
        >>> val = confide.Predictions(4.0 * torch.eye(3)[predicted], labels, split="val")
        >>> calibrator = confide.calibrators.fit("spline", val)
        >>> [round(float(p.facts.confidence.mean()), 2) for p in (val, calibrator(val))]
        [0.96, 0.81]
    """
    confidence, lead = all_tops(logits)
    nodes, levels = spline_nodes(confidence, lead == labels.numpy(), knots, weights)
    return FittedValues({"nodes": padded([nodes])[0], "levels": padded([levels])[0]})


def spline_nodes(
    confidence: Floats, correct: NDArray[np.bool_], knots: int, weights: Floats | None = None
) -> tuple[Floats, Floats]:
    """Nodes and levels of the spline map of a confidence."""
    if len(correct) < 2:
        raise InputError(f"calibrator 'spline' needs at least 2 predictions, got {len(correct)}; pass those on 'val'")
    order = np.argsort(confidence, kind="stable")
    scores, correct = confidence[order], correct[order]
    percentile, gaps = np.linspace(0.0, 1.0, len(scores)), correct - scores
    if weights is not None:
        weights = weights[order]
        ranks = ranks_of_weights(weights)
        percentile, gaps = ranks / ranks[-1], gaps * weights
    curve = fitted_spline(percentile, np.cumsum(gaps) / len(scores), knots, weights)
    levels = scores + curve(percentile, 1)
    # Equal confidences are one node with their mean: the map is a function of the confidence.
    nodes, which = np.unique(scores, return_inverse=True)
    weighted = levels if weights is None else levels * weights
    return nodes, np.bincount(which, weighted) / np.bincount(which, weights)


def fitted_spline(at: Floats, heights: Floats, knots: int, weights: Floats | None = None) -> CubicSpline:
    """Least-squares natural cubic spline; its unknowns are the values at equally spaced knots on [0, 1]."""
    positions = np.linspace(0.0, 1.0, knots)
    basis = CubicSpline(positions, np.eye(knots), bc_type="natural")(at)
    if weights is not None:
        basis, heights = basis * np.sqrt(weights)[:, None], heights * np.sqrt(weights)
    values = np.linalg.lstsq(basis, heights, rcond=None)[0]
    return CubicSpline(positions, values, bc_type="natural")


# beta: a logistic map of log p and -log(1 - p) for every class.

BETA_SMALLEST = float(np.finfo(np.float64).eps)
STEEP_MAP = 4.0
"""A slope above it tells apart points that were pooled: then all of them are looked at."""


def apply_beta(values: Values, logits: Logits) -> Logits:
    """Log of the classes' sigmoids, normalised by row; in logarithms, so no row can be 0 / 0."""
    smallest = torch.finfo(logits.dtype).eps
    probs = torch.softmax(logits, dim=1).clamp(smallest, 1.0 - smallest)
    scores = values["a"] * probs.log() - values["b"] * torch.log1p(-probs) + values["intercept"]
    return torch.log_softmax(torch.nn.functional.logsigmoid(scores), dim=1)


@CALIBRATORS.add(
    "beta",
    paper="Kull et al., 2017, Beyond sigmoids",
    title="beta calibration",
    corners=({"form": "am"}, {"form": "ab"}),
    choices={"form": ("abm", "am", "ab")},
    keeps_argmax=False,
    yields="probabilities",
    parameters=(0, 3, 0),
    transform=apply_beta,
)
def beta(logits: Logits, labels: Labels, weights: Floats | None = None, *, form: str = "abm") -> FittedValues:
    """Beta calibration, q_k proportional to sigmoid(a_k log p_k - b_k log(1 - p_k) + m_k), a_k, b_k not negative.

    When: two classes, or some thousand samples and confidences bent at both ends.
    When not: validation samples are few: three numbers a class.

    Args:
        logits: of held-out samples, `n c`; `calibrators.fit` checks them and puts its result into a `Calibrator`.
        labels: their classes, `n`.
        weights: how much each sample counts, of mean 1.
        form: `abm` fits all three; `am` sets b = a; `ab` has no intercept and doubles p, so that 1/2 stays 1/2.

    Returns:
        The fitted values, for the transform of this word, and what a person should know about the fit.

    Example:
        >>> import torch
        >>> i = torch.arange(60)
        >>> labels = i % 3
        >>> predicted = torch.where(i % 5 == 0, (labels + 1 + i % 2) % 3, labels)  # one in five is wrong
        >>> val = confide.Predictions(4.0 * torch.eye(3)[predicted], labels, split="val")
        >>> calibrator = confide.calibrators.fit("beta", val)
        >>> [round(float(p.facts.confidence.mean()), 2) for p in (val, calibrator(val))]
        [0.96, 0.8]
    """
    parts = []
    for first, probs in class_columns(logits):
        hits = labels.numpy() == np.arange(first, first + len(probs))[:, None]
        parts.append(beta_maps(probs, hits, form, weights))
    a, b, intercept = torch.from_numpy(np.concatenate(parts)).T
    return FittedValues({"a": a.clone(), "b": b.clone(), "intercept": intercept.clone()})


def beta_maps(probs: Floats, hits: Flags, form: str, weights: Floats | None = None) -> Floats:
    """(a, b, intercept) `k 3` of k classes, from `k n`; a class that never or always occurs keeps its probabilities."""
    maps = np.tile([1.0, 1.0, 0.0], (len(probs), 1))
    number = hits.sum(axis=1)
    mixed = (number > 0) & (number < hits.shape[1])
    if not mixed.any():
        return maps
    odds = np.clip(probs[mixed], BETA_SMALLEST, 1 - BETA_SMALLEST)
    odds = np.log(odds) - np.log1p(-odds)
    maps[mixed] = _beta_of_odds(odds, hits[mixed], form, weights)
    return maps


def _beta_of_odds(odds: Floats, hits: Flags, form: str, times: Floats | None) -> Floats:
    """The maps `k 3` of classes that both occur and do not; samples count so many times."""
    which, sample = np.nonzero(hits)
    of_hits = beta_columns(odds[hits], form)
    if times is not None:
        of_hits = [column * times[sample] for column in of_hits]
    sums: Floats = np.stack([np.bincount(which, column, minlength=len(hits)) for column in of_hits], axis=1)
    points = PooledPoints.of(odds, times)
    slopes = 1 if form == "am" else 2
    free = np.ones(sums.shape, dtype=bool)
    weights = logistic_regressions(beta_columns(points.at, form), points.counts, sums, free)
    if slopes == 2:
        # A negative slope would turn the order round: drop that feature and fit again.
        negative = weights[:, :2] < 0
        negative[:, 1] &= ~negative[:, 0]
        free[:, :2] = ~negative
        again = np.asarray(negative.any(axis=1))
        if again.any():
            part = points.only(again)
            weights[again] = logistic_regressions(beta_columns(part.at, form), part.counts, sums[again], free[again])
    steep = np.abs(weights[:, :slopes]).max(axis=1) > STEEP_MAP
    if points.counts is not None and steep.any():
        columns, each = beta_columns(odds[steep], form), None
        if times is not None:
            each = np.broadcast_to(times, columns[0].shape)
        weights[steep] = logistic_regressions(columns, each, sums[steep], free[steep], weights[steep])
    flat = (weights[:, :slopes] < 0).any(axis=1)
    a, b = np.where(flat, 0.0, weights[:, 0]), np.where(flat, 0.0, weights[:, slopes - 1])
    if form == "ab":
        return np.column_stack([a, b, (a - b) * np.log(2.0)])
    number = np.ones(hits.shape[1]) if times is None else times
    log_odds = np.log((hits @ number) / (~hits @ number))
    return np.column_stack([a, b, np.where(flat, log_odds, weights[:, -1])])


def beta_columns(odds: Floats, form: str) -> list[Floats]:
    """The features of log odds: log p and -log(1 - p) with an intercept, their sum with one, both of 2 p without."""
    if form == "am":
        return [odds, np.ones_like(odds)]
    log_p, log_q = -np.logaddexp(0.0, -odds), np.logaddexp(0.0, odds)
    return [log_p + np.log(2.0), log_q - np.log(2.0)] if form == "ab" else [log_p, log_q, np.ones_like(odds)]
