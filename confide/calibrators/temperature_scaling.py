"""One temperature for all classes: `temperature` and `ensemble_temperature`, and the one-dimensional search behind
them.

With w = (z - max z) / T and s = log(1 / T):  NLL = log sum exp w - w_y,  dNLL/ds = E[w] - w_y,
d2NLL/ds2 = Var[w] + dNLL/ds, moments under softmax(w). Derivatives in log T have no unit, so any scale of logits is
alike; nothing of size n x c is ever made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from confide.block_sizes import CACHED, rows_in
from confide.calibrators.base import CALIBRATORS, FittedValues, Values
from confide.checks import InputError, check_choice, check_number
from confide.numerics.binning import MOST_BINS, calibration_error
from confide.numerics.blocks import allowed_threads
from confide.types import Floating, Floats, Labels, Logits, Options

# The likelihood of tempered logits, its slope and curvature in one pass over row blocks, and the search on them.
#
# With w = (z - max z) / T and s = log(1 / T):  NLL = log sum exp w - w_y,  dNLL/ds = E[w] - w_y,
# d2NLL/ds2 = Var[w] + dNLL/ds, moments under softmax(w). Derivatives in log T have no unit, so any scale of logits is
# alike; nothing of size n x c is ever made.

SAMPLE_SIZES = (512, 2048)
"""Rows of the samples that give the search on many rows its starting point, one after the other."""
SPREAD_LIMIT = 1e3
"""How far T may move from the spread of the logits, either way; beyond it the answer is one-hot or uniform."""
PART_ELEMENTS = 1 << 22
"""From so many elements a part, threads are worth their start."""
TOLERANCE = 1e-8
CLOSE_IN_LOG_T = 0.1
"""How near, in log T, two points of the search must be for the second to do without its curvature."""
LossMoments = Callable[[float, bool], tuple[float, float, float]]


def row_dot(left: Floating, right: Floating) -> Floating:
    """Dot product of every pair of rows."""
    # np.vecdot came with numpy 2.0 and takes half the time of einsum.
    return np.asarray(np.vecdot(left, right) if hasattr(np, "vecdot") else np.einsum("ij,ij->i", left, right))


class TemperedRows:
    """Rows of logits with their labels, ready for passes at any temperature: buffers and row maxima are kept.

    Means are sums of what each row gives times its weight, of mean 1, over the number of rows.
    """

    def __init__(self, logits: Tensor, labels: Tensor, weights: Floats | None = None) -> None:
        self.rows = np.ascontiguousarray(logits.numpy())
        if self.rows.dtype not in (np.float32, np.float64):
            self.rows = self.rows.astype(np.float32)
        self.labels, self.weights = labels.numpy(), weights
        n, num_classes = self.rows.shape
        self.n = n
        self.block = min(max(n, 1), rows_in(CACHED, num_classes))
        self.scaled = np.empty((self.block, num_classes), self.rows.dtype)
        self.weight = np.empty_like(self.scaled)
        # Filled block by block in the first pass, while the rows are in the cache.
        self.highest, self.known = np.empty(n, self.rows.dtype), 0
        self.true = self.rows[np.arange(n), self.labels].astype(np.float64)

    def part(self, rows: slice) -> TemperedRows:
        """Some rows, shared, with buffers of their own."""
        weights = None if self.weights is None else self.weights[rows]
        return TemperedRows(torch.from_numpy(self.rows[rows]), torch.from_numpy(self.labels[rows]), weights)

    def sample(self, size: int) -> TemperedRows:
        """Every k-th row, about `size` of them."""
        return self.part(slice(None, None, max(1, self.n // size)))

    def spread(self) -> float:
        """Typical distance of a logit from the largest of its row: the unit in which T is bounded."""
        sample = self.rows[:: max(1, self.n // SAMPLE_SIZES[0])].astype(np.float64)
        distance = sample.max(axis=1) - sample.mean(axis=1)
        typical = float(np.median(distance)) or float(distance.mean())
        return typical if math.isfinite(typical) else 1.0

    def moments(self, scale: float, bend: bool = True) -> tuple[float, float, float]:
        """Mean NLL at logits * scale, its first and (NaN unless `bend`) second derivative in log(scale)."""
        loss = slope = curvature = 0.0
        for part, total, true in self._passes(scale):
            scaled, weight = self.scaled[: len(total)], self.weight[: len(total)]
            mean = row_dot(weight, scaled) / total
            loss += self.total(np.log(total) - true, part)
            slope += self.total(mean - true, part)
            if bend:
                np.multiply(weight, scaled, out=weight)
                curvature += self.total(row_dot(weight, scaled) / total - mean * mean, part)
        return loss / self.n, slope / self.n, (curvature + slope) / self.n if bend else math.nan

    def total(self, values: Floating, part: slice | None = None) -> float:
        """The weighted sum of a number for every row of a block, or of all."""
        if self.weights is None:
            return float(np.sum(values, dtype=np.float64))
        return float(values @ (self.weights if part is None else self.weights[part]))

    def moments_of(self, criterion: str) -> LossMoments:
        """The function `scale -> (value, first, second derivative)` of that criterion."""
        return self.moments if criterion == "nll" else self.square_moments

    def square_moments(self, scale: float, _: bool = True) -> tuple[float, float, float]:
        """Mean over rows of sum (p - onehot)^2, and its first and second derivative in log(scale)."""
        value = slope = curvature = 0.0
        for part, total, true in self._passes(scale):
            scaled, weight = self.scaled[: len(total)], self.weight[: len(total)]
            mean = row_dot(weight, scaled) / total
            squares, first = row_dot(weight, weight), weight * scaled
            variance = row_dot(first, scaled) / total - mean**2
            # Sums of p^2, p^2 w and p^2 w^2 give those of p^2 (w - mean)^k.
            mass, tilt, wide = squares / total**2, row_dot(weight, first) / total**2, row_dot(first, first) / total**2
            hit, away = np.exp(true) / total, true - mean
            value += self.total(mass - 2 * hit + 1, part)
            slope += self.total(2 * (tilt - mean * mass) - 2 * hit * away, part)
            bend = 4 * (wide - 2 * mean * tilt + mean**2 * mass) + 2 * (tilt - (mean + variance) * mass)
            curvature += self.total(bend, part) - self.total(2 * hit * away**2 + 2 * hit * (away - variance), part)
        return value / self.n, slope / self.n, curvature / self.n

    def mixture_products(self, scale: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean products among p(scale), p(1) and the uniform row, `3 3`, and of each with the one-hot label, `3`."""
        num_classes = self.rows.shape[1]
        gram, hits = np.full((3, 3), 1 / num_classes), np.full(3, 1 / num_classes)
        gram[:2, :2] = hits[:2] = 0.0
        for part in self._blocks():
            probs = []
            for factor in (scale, 1.0):
                total, _ = self._exponentials(part, self.rows.dtype.type(factor))
                probs.append(self.weight[: len(total)] / total[:, None].astype(self.rows.dtype))
            for i, j in ((0, 0), (0, 1), (1, 1)):
                gram[i, j] += self.total(row_dot(probs[i], probs[j]), part) / self.n
            rows = np.arange(part.stop - part.start), self.labels[part]
            hits[:2] += [self.total(p[rows], part) / self.n for p in probs]
        gram[1, 0] = gram[0, 1]
        return gram, hits

    def true_probs(self, scale: float) -> NDArray[np.float64]:
        """Probability of every row's label at logits * scale."""
        return np.concatenate([np.exp(true) / total for _, total, true in self._passes(scale)])

    def confidence(self, scale: float) -> Floating:
        """Largest probability of every row at logits * scale."""
        return np.concatenate([1.0 / total for _, total, _ in self._passes(scale)])

    def correct(self) -> NDArray[np.bool_]:
        """Whether the first largest logit of a row is that of its label."""
        return np.asarray(self.rows.argmax(axis=1) == self.labels)

    def _blocks(self) -> list[slice]:
        return [slice(k, min(k + self.block, self.n)) for k in range(0, self.n, self.block)]

    def _passes(self, scale: float) -> Iterator[tuple[slice, Floats, Floats]]:
        """Rows and `_exponentials` of one block after the other; its exp(w) stay until the next is asked for."""
        for part in self._blocks():
            yield part, *self._exponentials(part, self.rows.dtype.type(scale))

    def _exponentials(self, part: slice, factor: np.floating[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Fills the buffers with w and exp(w) of the block, and gives the sums of exp(w) and the w of the labels."""
        rows = torch.from_numpy(self.rows[part])
        scaled, weight = self.scaled[: len(rows)], self.weight[: len(rows)]
        if part.stop > self.known:
            self.highest[part] = rows.amax(dim=1).numpy()
            self.known = part.stop
        shift = self.highest[part] * -factor
        # One fused multiply-add; the label's w has the very same rounded shift, so that it cancels in every mean.
        # torch adds a column and sums rows at half of numpy's price, numpy exponentiates at half of torch's.
        torch.add(torch.from_numpy(shift)[:, None], rows, alpha=float(factor), out=torch.from_numpy(scaled))
        np.exp(scaled, out=weight)
        total = torch.from_numpy(weight).sum(dim=1).numpy().astype(np.float64)
        return total, self.true[part] * float(factor) + shift.astype(np.float64)


@dataclass(frozen=True)
class Optimum:
    """Where a search ended: the scale 1/T, and which bound of T it ran into, if any."""

    scale: float
    bound: str | None = None  # "low" (T to 0), "high" (T to infinity)

    @property
    def temperature(self) -> float:
        return 1.0 / self.scale


def best_scale(logits: Tensor, labels: Tensor, weights: Floats | None = None) -> Optimum:
    """The scale 1/T with the smallest mean NLL, to 1e-8 in log T, or at a bound: the logits' spread * 1000^+-1."""
    rows = TemperedRows(logits, labels, weights)
    spread = rows.spread()
    if spread <= 0.0:
        return Optimum(1.0)
    return search_scale(rows, "nll", -math.log(spread / 4), temperature_bounds(spread))


def temperature_bounds(spread: float) -> tuple[float, float]:
    """The smallest and the largest T that is looked for, for logits of that spread."""
    return spread / SPREAD_LIMIT, spread * SPREAD_LIMIT


def search_scale(rows: TemperedRows, criterion: str, start: float, bounds: tuple[float, float]) -> Optimum:
    """The scale 1/T with the smallest criterion (`nll` or `squares`), from log(1/T) = start, T within the bounds."""
    box = (-math.log(bounds[1]), -math.log(bounds[0]))
    start = min(max(start, box[0]), box[1])
    for size in SAMPLE_SIZES:
        if rows.n >= 4 * size:
            start = newton_minimum(rows.sample(size).moments_of(criterion), start, box, 1e-2)
    with parallel_moments(rows, criterion) as moments:
        log_scale = newton_minimum(moments, start, box, TOLERANCE)
    bound = "low" if log_scale >= box[1] else "high" if log_scale <= box[0] else None
    return Optimum(math.exp(log_scale), bound)


@contextmanager
def parallel_moments(rows: TemperedRows, criterion: str) -> Iterator[LossMoments]:
    """The rows' moments; of many rows, parts of them in as many threads as torch was given."""
    count = min(allowed_threads(), rows.rows.size // PART_ELEMENTS)
    if count < 2:
        yield rows.moments_of(criterion)
        return
    edges = [rows.n * k // count for k in range(count + 1)]
    parts = [rows.part(slice(low, high)) for low, high in pairwise(edges)]

    def moments(scale: float, bend: bool) -> tuple[float, float, float]:
        def of(part: TemperedRows) -> NDArray[np.float64]:
            with np.errstate(invalid="ignore", over="ignore"):
                weighted: NDArray[np.float64] = np.array(part.moments_of(criterion)(scale, bend)) * (part.n / rows.n)
                return weighted

        value, slope, curvature = np.sum(list(pool.map(of, parts)), axis=0).tolist()
        return value, slope, curvature

    with ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        yield moments


def newton_minimum(moments: LossMoments, start: float, box: tuple[float, float], tolerance: float) -> float:
    """Safeguarded Newton in s: the root of the slope inside the box, or the end of the box it runs to.

    The likelihood is convex in exp(s), so the sign of the slope brackets the root; a Newton step that leaves the
    bracket is replaced by its middle. A second point close to the root needs only its slope: the parabola of the
    inverse function through it and the last curvature errs by the product of three small numbers.
    """
    low, high = box
    here: float = start
    previous: _Point | None = None
    for _ in range(100):
        near = previous is not None and abs(here - previous.at) < CLOSE_IN_LOG_T
        with np.errstate(invalid="ignore", over="ignore"):
            _, slope, curvature = moments(math.exp(here), not near)
        if not math.isfinite(slope):
            raise FloatingPointError("the slope of the likelihood is not a number")
        if slope == 0.0 or (here >= box[1] and slope < 0) or (here <= box[0] and slope > 0):
            return here
        low, high = (here, high) if slope < 0 else (low, here)
        point = _Point(here, slope, curvature)
        step, error = point.step(previous)
        target = here + min(max(step, -2.0), 2.0)
        if not low < target < high:
            # At an end of the box the slope is still unknown: look there before halving.
            target = box[1] if target >= box[1] > here else box[0] if target <= box[0] < here else (low + high) / 2
        elif error < tolerance or abs(target - here) <= 1e-14 * max(1.0, abs(here)):
            return target
        here, previous = target, None if math.isnan(curvature) else point
    return here


@dataclass(frozen=True)
class _Point:
    """Slope and, where it was computed, curvature at s = at."""

    at: float
    slope: float
    curvature: float

    def step(self, previous: _Point | None) -> tuple[float, float]:
        """The step from here to the root of the slope, and about how wrong it is."""
        if previous is None or not math.isnan(self.curvature):
            # Where the curvature is not positive the root lies far off, downhill.
            if not self.curvature > 0.0:
                return math.copysign(1.0, -self.slope), math.inf
            newton = -self.slope / self.curvature
            return newton, abs(newton) if abs(newton) > 1e-6 else newton**2
        width = self.slope - previous.slope
        if width == 0.0:
            # A slope that no longer changes, as on separable data: the root lies far off, downhill.
            return math.copysign(1.0, -self.slope), math.inf
        bend = (self.at - previous.at - width / previous.curvature) / width**2
        step = previous.at - previous.slope / previous.curvature + bend * previous.slope**2 - self.at
        # The constant was 2.5 at most on real and made logits.
        return step, 3.0 * (self.at - previous.at) ** 2 * abs(step)


# temperature: softmax(z / T).

GRID = tuple(k / 10 for k in range(1, 101))


def apply_temperature(values: Values, logits: Logits) -> Logits:
    """z / T."""
    return logits / values["temperature"]


def _check_criterion(options: Options) -> None:
    """Newton's steps minimise the likelihood; a grid can also go by the calibration error."""
    known = (None, "nll", "ece") if options["search"] == "grid" else (None, "nll")
    check_choice(options["criterion"], known, "criterion of calibrator 'temperature'")


@CALIBRATORS.add(
    "temperature",
    paper="Guo et al., 2017, arXiv:1706.04599",
    title="temperature scaling",
    corners=({"search": "grid"}, {"search": "grid", "criterion": "nll"}, {"search": "grid", "binning": "mass"}),
    ranges={"bins": (1, MOST_BINS)},
    choices={"search": ("newton", "grid"), "binning": ("width", "mass")},
    check=_check_criterion,
    keeps_argmax=True,
    yields="logits",
    parameters=(1, 0, 0),
    linear=True,
    finds_nan=True,
    transform=apply_temperature,
)
def temperature(
    logits: Logits,
    labels: Labels,
    weights: Floats | None = None,
    *,
    search: str = "newton",
    criterion: str | None = None,
    bins: int = 15,
    binning: str = "width",
) -> FittedValues:
    """Temperature scaling, softmax(z / T) with one T for all classes.

    When: first: one number, and predicted classes stay; with many classes and few samples hard to beat.
    When not: groups or shifted data are wrong in different directions: one number serves all alike.

    Args:
        logits: of held-out samples, `n c`; `calibrators.fit` checks them and puts its result into a `Calibrator`.
        labels: their classes, `n`.
        weights: how much each sample counts, of mean 1.
        search: `newton` finds the T of the smallest NLL to 1e-8; `grid` tries 0.1, 0.2, ..., 10 as the papers do.
        criterion: what the grid minimises, `ece` (the papers) or `nll`; newton minimises `nll`.
        bins: bins of the grid's ECE.
        binning: `width` or `mass`, the bins of the grid's ECE.

    Returns:
        The fitted values, for the transform of this word, and what a person should know about the fit.

    Example:
        >>> import torch
        >>> i = torch.arange(60)
        >>> labels = i % 3
        >>> predicted = torch.where(i % 5 == 0, (labels + 1 + i % 2) % 3, labels)  # one in five is wrong
        >>> val = confide.Predictions(4.0 * torch.eye(3)[predicted], labels, split="val")
        >>> calibrator = confide.calibrators.fit("temperature", val)
        >>> round(calibrator.temperature, 3)
        1.924
        >>> [round(float(p.facts.confidence.mean()), 2) for p in (val, calibrator(val))]
        [0.96, 0.8]
    """
    if search == "newton":
        optimum = best_scale(logits, labels, weights)
        values = {"temperature": torch.tensor(optimum.temperature, dtype=torch.float64)}
        return FittedValues(values, bound_notes(optimum))
    rows = TemperedRows(logits, labels, weights)
    correct = rows.correct()
    losses = [
        rows.moments(1 / t)[0]
        if criterion == "nll"
        else calibration_error(rows.confidence(1 / t), correct, bins, binning, weights)
        for t in GRID
    ]
    if not np.isfinite(losses).all() or not bool(torch.isfinite(logits.sum())):
        raise FloatingPointError("a loss of the grid is not a number")
    # The first of equal losses: the smallest T wins ties.
    best = GRID[int(np.argmin(losses))]
    ends = {GRID[0]: "low", GRID[-1]: "high"}
    notes = bound_notes(Optimum(1 / best, ends.get(best)))
    return FittedValues({"temperature": torch.tensor(best, dtype=torch.float64)}, notes)


def bound_notes(optimum: Optimum) -> tuple[str, ...]:
    """What to say of a search that ended at a bound."""
    if optimum.bound is None:
        return ()
    towards, meaning = {
        "low": ("0", "every class is certain: are all predictions right, or is the set too small?"),
        "high": ("infinity", "every class is equally likely: do the logits say nothing about these labels?"),
    }[optimum.bound]
    return (f"T ran to {towards} and was stopped at its bound {optimum.temperature:.4g}; there {meaning}",)


# ensemble_temperature: a mixture of tempered, plain and uniform probabilities.


def apply_mixture(values: Values, logits: Logits) -> Logits:
    """Log of the mixture, summed in logarithms so that nothing underflows."""
    log_weights = values["weights"].log()
    parts = [
        torch.log_softmax(logits / values["temperature"], dim=1) + log_weights[0],
        torch.log_softmax(logits, dim=1) + log_weights[1],
        torch.log_softmax(torch.zeros_like(logits), dim=1) + log_weights[2],
    ]
    return torch.logsumexp(torch.stack(parts), dim=0)


def _check_bounds(options: Options) -> None:
    bounds = options["bounds"]
    numbers = bounds if isinstance(bounds, (list, tuple)) else ()
    for bound in numbers:
        check_number(bound, "bounds of calibrator 'ensemble_temperature'", 1.0, 0.0, math.inf, True, True)
    if len(numbers) != 2 or not numbers[0] < numbers[1]:
        raise InputError(f"bounds must be two temperatures, the smaller first and above 0, got {bounds!r}")


@CALIBRATORS.add(
    "ensemble_temperature",
    paper="Zhang et al., 2020, Mix-n-Match, arXiv:2003.07329",
    title="ensemble temperature scaling",
    corners=({"criterion": "nll"}, {"bounds": (1.0, 1.0001)}),
    choices={"criterion": ("brier", "nll")},
    check=_check_bounds,
    keeps_argmax=True,
    yields="probabilities",
    parameters=(3, 0, 0),
    transform=apply_mixture,
)
def ensemble_temperature(
    logits: Logits,
    labels: Labels,
    weights: Floats | None = None,
    *,
    criterion: str = "brier",
    bounds: tuple[float, float] = (0.05, 5.0),
) -> FittedValues:
    """Ensemble temperature scaling, w0 softmax(z / T) + w1 softmax(z) + w2 / c, the weights on the simplex.

    When: one temperature is nearly right and a rest of doubt shall be possible.
    When not: one temperature is right: two numbers more gain nothing.

    Args:
        logits: of held-out samples, `n c`; `calibrators.fit` checks them and puts its result into a `Calibrator`.
        labels: their classes, `n`.
        weights: how much each sample counts, of mean 1.
        criterion: what T and then the weights minimise, `brier` (the paper's choice) or `nll`.
        bounds: smallest and largest T, from the released code.

    Returns:
        The fitted values, for the transform of this word, and what a person should know about the fit.

    Example:
        >>> import torch
        >>> i = torch.arange(60)
        >>> labels = i % 3
        >>> predicted = torch.where(i % 5 == 0, (labels + 1 + i % 2) % 3, labels)  # one in five is wrong
        >>> val = confide.Predictions(4.0 * torch.eye(3)[predicted], labels, split="val")
        >>> calibrator = confide.calibrators.fit("ensemble_temperature", val)
        >>> [round(float(p.facts.confidence.mean()), 2) for p in (val, calibrator(val))]
        [0.96, 0.8]
    """
    rows = TemperedRows(logits, labels, weights)
    optimum = search_scale(rows, "nll" if criterion == "nll" else "squares", 0.0, (bounds[0], bounds[1]))
    if criterion == "brier":
        mixture = _squares_weights(*rows.mixture_products(optimum.scale))
    else:
        mixture = _likelihood_weights(rows, optimum.scale)
    notes = list(bound_notes(optimum))
    if mixture[0] < 1 and not _no_less_likely(rows, optimum.scale, mixture):
        mixture = np.array([1.0, 0.0, 0.0])
        notes.append("the mixture of smallest Brier score is less likely than its temperature alone, which is taken")
    if mixture[2] > 0.999:
        notes.append("the weights went to the uniform part: these logits say nothing about the labels")
    values = {
        "temperature": torch.tensor(optimum.temperature, dtype=torch.float64),
        "weights": torch.from_numpy(mixture),
    }
    return FittedValues(values, tuple(notes))


def _no_less_likely(rows: TemperedRows, scale: float, weights: Floats) -> bool:
    """Whether the labels are at least as likely under the mixture as under its first part."""
    first = rows.true_probs(scale)
    mixed = weights[0] * first + weights[1] * rows.true_probs(1.0) + weights[2] / rows.rows.shape[1]
    with np.errstate(divide="ignore"):
        return rows.total(np.log(mixed)) >= rows.total(np.log(first))


def _squares_weights(gram: Floats, hits: Floats) -> Floats:
    """Weights on the simplex with the smallest w G w - 2 w h: exact, by looking at all seven faces."""
    best, lowest = np.array([1.0, 0.0, 0.0]), float(gram[0, 0] - 2 * hits[0])
    for size in (1, 2, 3):
        for face in combinations(range(3), size):
            index = list(face)
            # Stationary on the face with the sum fixed to 1 (Lagrange); lstsq because T = 1 makes two parts equal.
            system = np.block([[2 * gram[np.ix_(index, index)], np.ones((size, 1))], [np.ones((1, size)), 0.0]])
            part = np.linalg.lstsq(system, np.append(2 * hits[index], 1.0), rcond=1e-12)[0][:size]
            weights = np.zeros(3)
            weights[index] = part
            value = float(weights @ gram @ weights - 2 * weights @ hits)
            if part.min() >= 0 and abs(part.sum() - 1) < 1e-9 and value < lowest - 1e-15:
                best, lowest = weights / weights.sum(), value
    return best


def _likelihood_weights(rows: TemperedRows, scale: float) -> Floats:
    """Weights on the simplex with the largest likelihood: Newton in two unknowns, projected on the faces it hits."""
    parts = np.stack([rows.true_probs(scale), rows.true_probs(1.0), np.full(rows.n, 1 / rows.rows.shape[1])], axis=1)
    candidates: list[Floats] = list(np.eye(3))
    for size in (2, 3):
        for face in combinations(range(3), size):
            weights = np.zeros(3)
            weights[list(face)] = _mixture_weights(parts[:, list(face)], rows.weights)
            candidates.append(weights)
    with np.errstate(divide="ignore"):
        losses = [-rows.total(np.log(parts @ weights)) / rows.n for weights in candidates]
    # The first of nearly equal ones: a face before its inside.
    return candidates[int(np.flatnonzero(np.array(losses) <= min(losses) + 1e-12)[0])]


def _mixture_weights(parts: Floats, counts: Floats | None) -> Floats:
    """Maximum likelihood weights of a mixture, by damped Newton; ends beside an edge if it is there."""
    size = parts.shape[1]
    weights = np.full(size, 1 / size)
    basis = np.vstack([np.eye(size - 1), -np.ones(size - 1)])
    for _ in range(100):
        share = (parts / (parts @ weights)[:, None]) @ basis
        counted = share if counts is None else share * counts[:, None]
        step = basis @ np.linalg.lstsq(share.T @ counted, counted.sum(axis=0), rcond=None)[0]
        shrinking = step < 0
        longest = 0.9 * float((weights[shrinking] / -step[shrinking]).min()) if shrinking.any() else 1.0
        weights = weights + min(1.0, longest) * step
        if np.abs(step).max() < 1e-12:
            break
    return weights
