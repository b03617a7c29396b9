"""Linear maps of all classes: `vector` softmax(w * z + b), `matrix` softmax(W z + b), `dirichlet` softmax(W log p +
b).

Rows are read in blocks into ready buffers, so the memory is that of the map and a few blocks; gradients are analytic.
`vector` is fitted by truncated Newton, the full maps by L-BFGS with unknowns turned by the curvature at the start; the
strength of a Dirichlet pull is found by cross-validation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from confide.block_sizes import CACHED_FLOAT64, CACHED_SEARCH, MEMORY, rows_in
from confide.calibrators.base import CALIBRATORS, FittedValues, Values, log_sums
from confide.calibrators.temperature_scaling import best_scale, row_dot
from confide.numerics.minimise import InverseCurvature, lbfgs, truncated_newton
from confide.random import deal
from confide.registry import Interval
from confide.types import Floats, Labels, Logits

# Softmax regression on logits or log-probabilities: blocked loss and gradient, preconditioned L-BFGS.
#
# Minimises mean NLL of softmax(x W' + b) + penalty. Rows are read in blocks into ready buffers, so the memory is that
# of W and a few blocks; the gradient is analytic, (p - onehot)' x. The unknowns are turned by the curvature at the
# start (one block per class, or one basis for all where the classes are many), which saves half of the iterations or
# more.

WIDE_WORK = 1 << 22
"""n c^2 up to which a pass runs in float64, whatever the logits are: then rounding does not end the search."""
MANY_CLASSES = 128
CURVATURE_ROWS = 1000
MATRIX_ITERATIONS = 300


@dataclass(frozen=True)
class Penalty:
    """off * sum of off-diagonal^2 + diagonal * sum of (diagonal - towards)^2 + bias * sum of b^2.

    With a `reference` class the sums are taken after its row was subtracted from every row (the released Dirichlet
    code), without one on the map itself, which treats all classes alike.
    """

    off: float = 0.0
    diagonal: float = 0.0
    bias: float = 0.0
    towards: float = 0.0
    reference: int | None = None

    def centre(self, weights: Tensor) -> Tensor:
        """The weights, in place, with the row added to all rows that makes the penalty smallest.

        The likelihood does not see that row, so a search would find it only by the weak slope of the penalty.
        """
        if self.reference is not None:
            return weights
        matrix, bias = weights[:, :-1], weights[:, -1]
        total = self.off * (len(weights) - 1) + self.diagonal
        if total > 0:
            own = matrix.diagonal() - self.towards
            matrix -= (self.off * (matrix.sum(dim=0) - matrix.diagonal()) + self.diagonal * own) / total
        if self.bias > 0:
            bias -= bias.mean()
        return weights

    def add_to(self, weights: Tensor, gradient: Tensor) -> float:
        """The penalty of `c c+1` weights (bias last); its gradient is added in place."""
        if not (self.off or self.diagonal or self.bias):
            return 0.0
        shifted = weights.clone() if self.reference is None else weights - weights[self.reference]
        shifted.diagonal().sub_(self.towards)
        slope = 2 * self.off * shifted
        slope.diagonal().copy_(2 * self.diagonal * shifted.diagonal())
        slope[:, -1] = 2 * self.bias * shifted[:, -1]
        value = float(torch.dot(slope.view(-1), shifted.view(-1))) / 2
        if self.reference is not None:
            slope[self.reference] -= slope.sum(dim=0)
        gradient.add_(slope)
        return value


class SoftmaxRows:
    """Rows x = features - shift with labels: mean NLL and gradient at any `c c+1` weights, bias last.

    Args:
        shift: subtracted from every row, such as its log-sum-exp, which turns logits into log-probabilities.
        index: the rows that count, all when left out; they are not copied.
        dtype: of the passes; chosen by their size when left out.
        weights: of all rows, of mean 1: the mean is the weighted sum over the number of rows.
    """

    def __init__(
        self,
        features: Tensor,
        labels: Tensor,
        shift: Tensor | None = None,
        index: Tensor | None = None,
        dtype: torch.dtype | None = None,
        weights: Tensor | None = None,
    ) -> None:
        self.features, self.all_labels, self.shift, self.index = features, labels, shift, index
        self.labels, self.all_weights = labels if index is None else labels[index], weights
        self.weights = weights if weights is None or index is None else weights[index]
        n, num_classes = len(self.labels), features.shape[1]
        wide = n * num_classes**2 <= WIDE_WORK
        self.dtype = dtype or (torch.float64 if wide else torch.float32)
        self.n, self.num_classes = n, num_classes
        # Rows at least as many as classes: adding a block's `c c+1` slopes should cost little beside making them.
        self.block = max(1, min(n, max(rows_in(CACHED_FLOAT64, num_classes), num_classes)))
        self.scores = torch.empty(self.block, num_classes, dtype=self.dtype)
        height = n if n * num_classes <= MEMORY else self.block
        self.inputs = torch.empty(height, num_classes, dtype=self.dtype)
        if height == n:
            self._read(slice(0, n))

    def thinned(self, size: int) -> SoftmaxRows:
        """Every k-th row, about `size` of them."""
        index = torch.arange(len(self.all_labels)) if self.index is None else self.index
        return self.only(index[:: max(1, self.n // size)])

    def only(self, index: Tensor, dtype: torch.dtype | None = None) -> SoftmaxRows:
        """These rows of the features, passes in the same dtype unless another is given."""
        return SoftmaxRows(self.features, self.all_labels, self.shift, index, dtype or self.dtype, self.all_weights)

    def blocks(self) -> list[slice]:
        return [slice(k, min(k + self.block, self.n)) for k in range(0, self.n, self.block)]

    def inputs_of(self, part: slice) -> Tensor:
        """Features less their shift: all of few rows are ready, those of many are read block by block."""
        return self.inputs[part] if len(self.inputs) == self.n else self._read(part)

    def _read(self, part: slice) -> Tensor:
        inputs = self.inputs[: part.stop - part.start]
        rows = part if self.index is None else self.index[part]
        inputs.copy_(self.features[rows])
        if self.shift is not None:
            inputs -= self.shift[rows, None]
        return inputs

    def probs_of(self, inputs: Tensor, weights: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Probabilities, in the ready buffer, and the NLL of every row."""
        # The bias apart: with a column of ones the rows would not lie on whole cache lines, at half the speed.
        scores = torch.addmm(weights[:, -1], inputs, weights[:, :-1].T, out=self.scores[: len(inputs)])
        scores.sub_(scores.amax(dim=1, keepdim=True))
        true = scores.gather(1, labels[:, None])
        np.exp(scores.numpy(), out=scores.numpy())
        total = scores.sum(dim=1, keepdim=True)
        return scores.div_(total), (total.log() - true)[:, 0]

    def loss(self, weights: Tensor, gradient: Tensor | None = None) -> float:
        """Mean NLL; its gradient, mean (p - onehot)' x, is added in place where asked for."""
        narrow = weights.to(self.dtype)
        value = 0.0
        slopes = torch.zeros(0 if gradient is None else self.num_classes, self.num_classes, dtype=self.dtype)
        sums = torch.zeros(self.num_classes, dtype=torch.float64)
        for part in self.blocks():
            inputs, labels = self.inputs_of(part), self.labels[part]
            probs, nll = self.probs_of(inputs, narrow, labels)
            own = None if self.weights is None else self.weights[part]
            value += float(nll.sum(dtype=torch.float64) if own is None else torch.dot(nll.double(), own))
            if gradient is None:
                continue
            probs[torch.arange(len(labels)), labels] -= 1
            if own is not None:
                probs *= own[:, None]
            torch.addmm(slopes, probs.T, inputs, out=slopes)
            sums.add_(probs.sum(dim=0))
        if gradient is not None:
            gradient[:, :-1].add_(slopes, alpha=1 / self.n)
            gradient[:, -1].add_(sums, alpha=1 / self.n)
        return value / self.n


@dataclass(frozen=True)
class Precision:
    """When a search ends: after `idle` steps in a row that change the value by less than `change`, relative to it."""

    change: float
    idle: int = 3

    @classmethod
    def of(cls, rows: SoftmaxRows) -> Precision:
        """As far as the dtype of the passes allows."""
        return cls(1e-15 if rows.dtype == torch.float64 else 1e-7)


def fit_map(
    rows: SoftmaxRows, start: Tensor, penalty: Penalty, seen: Tensor, turns: ChangesOfBasis, precision: Precision
) -> tuple[Tensor, float, bool]:
    """Weights `c c+1` with the smallest loss + penalty, the steepest slope left, and whether it converged.

    Args:
        seen: classes that have samples; the rows of the others stay as they start.
        turns: maps between unknowns of about unit curvature and weights.
    """
    turn, back = turns

    def objective(unknowns: Tensor) -> tuple[float, Tensor]:
        weights = penalty.centre(turn(unknowns.view_as(start)).add_(start))
        gradient = torch.zeros_like(weights)
        value = rows.loss(weights, gradient) + penalty.add_to(weights, gradient)
        gradient[~seen] = 0.0
        return value, back(gradient).flatten()

    optimum = lbfgs(
        objective,
        start.numel(),
        tolerance=1e-9,
        change=precision.change,
        idle=precision.idle,
        iterations=MATRIX_ITERATIONS,
        memory=10 if rows.num_classes <= MANY_CLASSES else 5,
        memory_dtype=rows.dtype,
    )
    return penalty.centre(turn(optimum.at.view_as(start)).add_(start)), optimum.steepest, optimum.converged


ChangeOfBasis = Callable[[Tensor], Tensor]
ChangesOfBasis = tuple[ChangeOfBasis, ChangeOfBasis]


def preconditioner(rows: SoftmaxRows, start: Tensor) -> Callable[[Penalty], ChangesOfBasis]:
    """penalty -> maps between unknowns of about unit curvature and weights, from the curvature at the start."""
    # About the right curvature is enough: a part of the rows gives it.
    make = _class_blocks if rows.num_classes <= MANY_CLASSES else _shared_basis
    return make(rows.thinned(CURVATURE_ROWS), start)


def with_ones(rows: SoftmaxRows, part: slice, start: Tensor) -> tuple[Tensor, Tensor]:
    """Inputs of a block with a column of ones, and its probabilities."""
    inputs = rows.inputs_of(part)
    probs, _ = rows.probs_of(inputs, start.to(rows.dtype), rows.labels[part])
    return torch.cat([inputs, torch.ones(len(inputs), 1, dtype=rows.dtype)], dim=1), probs


def _class_blocks(rows: SoftmaxRows, start: Tensor) -> Callable[[Penalty], ChangesOfBasis]:
    """The exact curvature of each class's row of W, mean p (1 - p) x x', with the penalty's."""
    size = rows.num_classes + 1
    curvature = torch.zeros(rows.num_classes, size, size, dtype=torch.float64)
    for part in rows.blocks():
        inputs, probs = with_ones(rows, part, start)
        scaled = torch.empty_like(inputs)
        for k, spread in enumerate((probs * (1 - probs)).T.contiguous()):
            torch.mul(inputs, spread[:, None], out=scaled)
            curvature[k].add_(torch.mm(scaled.T, inputs), alpha=1 / rows.n)

    def turns(penalty: Penalty) -> ChangesOfBasis:
        ridge = torch.full((rows.num_classes, size), 2 * penalty.off, dtype=torch.float64)
        ridge.diagonal().fill_(2 * penalty.diagonal)
        ridge[:, -1] = 2 * penalty.bias
        lengths = curvature.diagonal(dim1=1, dim2=2)
        ridged = curvature + torch.diag_embed(ridge + 1e-6 * lengths.mean(dim=1, keepdim=True) + 1e-12)
        # About the right curvature is enough, so the precision of the passes is too.
        lower = torch.linalg.cholesky(ridged).to(rows.dtype)

        def solved(rights: Tensor, *, transposed: bool) -> Tensor:
            factor = lower.mT if transposed else lower
            columns = rights.to(rows.dtype)[:, :, None]
            turned: Tensor = torch.linalg.solve_triangular(factor, columns, upper=transposed)[:, :, 0].double()
            return turned

        return partial(solved, transposed=True), partial(solved, transposed=False)

    return turns


def _shared_basis(rows: SoftmaxRows, start: Tensor) -> Callable[[Penalty], ChangesOfBasis]:
    """The classes share the directions of mean x x'; each has its own mean p (1 - p)."""
    size = rows.num_classes + 1
    second = torch.zeros(size, size, dtype=torch.float64)
    spread = torch.zeros(rows.num_classes, dtype=torch.float64)
    for part in rows.blocks():
        inputs, probs = with_ones(rows, part, start)
        second.add_(torch.mm(inputs.T, inputs), alpha=1 / rows.n)
        spread.add_((probs * (1 - probs)).sum(dim=0, dtype=torch.float64), alpha=1 / rows.n)
    lengths, basis = torch.linalg.eigh(second)
    lengths.clamp_min_(0.0)

    def turns(penalty: Penalty) -> ChangesOfBasis:
        bend = spread[:, None] * lengths
        scale = (bend + 2 * penalty.off + 1e-4 * bend.mean() + 1e-12).rsqrt_()
        return (lambda unknowns: (unknowns * scale) @ basis.T, lambda gradient: (gradient @ basis).mul_(scale))

    return turns


# How strong a pull on a linear map should be: the strength whose maps predict held-out samples best.
#
# A pull of s / n on the mean of n losses is a normal prior with precision 2 s on every entry, whatever n is, so a
# strength found on a part of the samples is right for all of them. The path starts at a strong pull, near the start of
# the fit, and every fit begins where the one before ended, so a step of the path takes a few passes.

STRENGTHS = (1e4, 1e3, 1e2, 1e1, 1e0, 1e-1)
STRONGER_STRENGTHS = (1e5, 1e6)
"""Tried only where the first of the path is its best."""
LOSS_RISE = 1e-4
STRENGTH_FOLDS, FOLD_ROWS = 3, 1500
ROUGH_PRECISION = Precision(2e-5, idle=1)
"""Held-out losses of neighbours on the path differ by more than the last digits of a fit."""
LESS_LIKELY = 0.01
"""Share of the NLL by which held-out samples tell a worse map: the temperature it is compared with has seen them."""


@dataclass(frozen=True)
class StrengthSearch:
    """The best strength, and the mean NLL of held-out samples with it and with the temperature it starts from."""

    strength: float
    nll: float
    nll_of_temperature: float

    def notes(self) -> list[str]:
        """What a person should know where no strength does well."""
        if self.nll <= (1 + LESS_LIKELY) * self.nll_of_temperature:
            return []
        return [
            f"held out, its samples have an NLL of {self.nll:.3g}, with one temperature {self.nll_of_temperature:.3g}: "
            "they are too few for this map, use 'temperature' or more samples"
        ]


def best_strength(
    rows: SoftmaxRows, start: Tensor, penalty: Callable[[float], Penalty], turns: Callable[[Penalty], ChangesOfBasis]
) -> StrengthSearch:
    """The strength s with the smallest cross-validated NLL; the path ends at the first rise.

    Args:
        penalty: of a pull s / n, given that number.
        turns: the preconditioner of a penalty.
    """
    fold = feature_folds(rows.labels, rows.features)
    cuts = [
        [part.nonzero()[:, 0] for part in ((fold != k) & (fold < STRENGTH_FOLDS), fold == k)]
        for k in range(STRENGTH_FOLDS)
    ]
    parts = [[rows.only(index, torch.float32) for index in cut] for cut in cuts if all(map(len, cut))]

    def losses(path: tuple[float, ...], known: dict[float, float]) -> dict[float, float]:
        """Held-out NLL of the strengths, to the first rise."""
        maps, totals = [start] * len(parts), dict(known)
        for strength in path:
            loss, turn = 0.0, turns(penalty(strength / rows.n))
            for k, (train, held) in enumerate(parts):
                seen = torch.bincount(train.labels, minlength=rows.num_classes) > 0
                maps[k] = fit_map(train, maps[k], penalty(strength / train.n), seen, turn, ROUGH_PRECISION)[0]
                loss += held.n * held.loss(maps[k])
            totals[strength] = loss
            if loss > (1 + LOSS_RISE) * min(totals.values()):
                break
        return totals

    held_out = losses(STRENGTHS, {})
    if min(held_out, key=held_out.__getitem__) == STRENGTHS[0]:
        held_out = losses(STRONGER_STRENGTHS, held_out)
    total = max(1, sum(held.n for _, held in parts))
    before = sum(held.n * held.loss(start) for _, held in parts)
    return StrengthSearch(parabola_minimum(held_out), min(held_out.values()) / total, before / total)


def parabola_minimum(losses: dict[float, float]) -> float:
    """The strength of the smallest loss, by the parabola in log s through it and its neighbours, to two digits."""
    strengths = sorted(losses)
    at = min(range(len(strengths)), key=lambda k: losses[strengths[k]])
    if at in (0, len(strengths) - 1):
        return strengths[at]
    left, middle, right = (losses[s] for s in strengths[at - 1 : at + 2])
    bend = left - 2 * middle + right
    shift = (left - right) / (2 * bend) if bend > 0 else 0.0
    return float(f"{strengths[at] * math.pow(10.0, shift):.2g}")


def feature_folds(labels: Tensor, features: Tensor) -> Tensor:
    """Fold of every row: in turn along the label's own feature, label by label; of many rows in more folds than used.

    Labels come in the order of their smallest feature, so neither the order of rows nor that of classes matters.
    """
    own = features.gather(1, labels[:, None])[:, 0]
    first = torch.full((features.shape[1],), math.inf, dtype=own.dtype).scatter_reduce(0, labels, own, "amin")
    folds = max(STRENGTH_FOLDS, len(labels) // FOLD_ROWS)
    return torch.from_numpy(deal(own.numpy(), first[labels].numpy(), folds))


# vector: softmax(w * z + b).

VECTOR_FLOAT64_ELEMENTS = 1 << 19
"""n c up to which a pass runs in float64 although the logits are float32."""
VECTOR_ITERATIONS = 100
START_ROWS = 2048
SAME_CURVATURE = 1e-5
"""A value that moved no more than this, relative to it, bends as it did."""
SEPARATED_DOUBT = 0.1
"""Samples' worth of doubt, sum of p (1 - p), below which a class is told apart: its weight has no best value."""


def apply_vector(values: Values, logits: Logits) -> Logits:
    """w * z + b."""
    return logits * values["weights"] + values["bias"]


@CALIBRATORS.add(
    "vector",
    paper="Guo et al., 2017, arXiv:1706.04599",
    title="vector scaling",
    corners=(),
    keeps_argmax=False,
    yields="logits",
    parameters=(0, 2, 0),
    linear=True,
    transform=apply_vector,
)
def vector(logits: Logits, labels: Labels, weights: Floats | None = None) -> FittedValues:
    """Vector scaling, softmax(w * z + b) with one weight and one bias per class, smallest mean NLL.

    When: single classes are too sure and samples are many.
    When not: samples are few: two numbers a class without a penalty; take structured_vector.

    Args:
        logits: of held-out samples, `n c`; `calibrators.fit` checks them and puts its result into a `Calibrator`.
        labels: their classes, `n`.
        weights: how much each sample counts, of mean 1.

    Returns:
        The fitted values, for the transform of this word, and what a person should know about the fit.

    Example:
        >>> import torch
        >>> i = torch.arange(60)
        >>> labels = i % 3
        >>> predicted = torch.where(i % 5 == 0, (labels + 1 + i % 2) % 3, labels)  # one in five is wrong
        >>> val = confide.Predictions(4.0 * torch.eye(3)[predicted], labels, split="val")
        >>> calibrator = confide.calibrators.fit("vector", val)
        >>> [round(float(p.facts.confidence.mean()), 2) for p in (val, calibrator(val))]
        [0.96, 0.8]
    """
    rows = ScaledRows(logits, labels, weights)
    # The temperature of some rows is near enough to start from; a class without samples keeps that of all.
    step = max(1, rows.n // START_ROWS) if bool(rows.seen.all()) else 1
    optimum = best_scale(logits[::step], labels[::step], None if weights is None else weights[::step])
    start = torch.zeros(2, rows.num_classes, dtype=torch.float64)
    start[0] = optimum.scale if optimum.bound is None else 1.0
    change = 1e-15 if rows.dtype == torch.float64 else 1e-6
    result = truncated_newton(rows, start, tolerance=1e-9, change=change, iterations=VECTOR_ITERATIONS)
    scales, bias = result.at
    notes = [] if result.converged else [f"the fit stopped at its last iteration with a slope of {result.steepest:.1e}"]
    if not bool(rows.seen.all()):
        notes.append("classes without a validation sample keep their temperature-scaled logit")
    certain = int(((rows.n * rows.curvature()[2] < SEPARATED_DOUBT) & rows.seen).sum())
    if certain:
        notes.append(
            f"{certain} of {rows.num_classes} classes are told apart perfectly: their weights have no best value, the "
            "search was stopped where they no longer matter"
        )
    return FittedValues({"weights": scales.clone(), "bias": bias - bias.mean()}, tuple(notes))


class ScaledRows:
    """Rows of logits with labels: mean NLL, slope and curvature at any weights and biases `2 c`, by blocks.

    The probabilities of the last point measured are kept, one float32 a logit, so that a product with the curvature
    needs no exponentials.
    """

    def __init__(self, logits: Logits, labels: Labels, weights: Floats | None = None) -> None:
        n, num_classes = logits.shape
        wide = logits.dtype == torch.float64 or n * num_classes <= VECTOR_FLOAT64_ELEMENTS
        self.dtype = torch.float64 if wide else torch.float32
        self.logits, self.labels, self.n, self.num_classes = logits, labels, n, num_classes
        self.block = min(max(n, 1), rows_in(CACHED_SEARCH, num_classes))
        self.probs = torch.empty(n, num_classes, dtype=self.dtype)
        self.first = torch.empty(self.block, num_classes, dtype=self.dtype)
        self.ones = torch.ones(self.block, dtype=self.dtype)
        self.counts = None if weights is None else torch.from_numpy(weights)
        self.true_logits = logits.gather(1, labels[:, None]).squeeze(1).double()
        hits = torch.bincount(labels, self.counts, minlength=num_classes)
        hit_logits = torch.bincount(labels, self.counted(self.true_logits), minlength=num_classes)
        self.hits, self.seen = torch.stack([hit_logits, hits]) / n, hits > 0
        self.value = self.bent_at = math.inf
        self.bends = torch.zeros(3, num_classes, dtype=torch.float64)

    def measure(self, at: Tensor) -> tuple[float, Tensor]:
        """Mean NLL and its slope `2 c`: mean (p - onehot) z and mean (p - onehot)."""
        scale, bias = at[:, self.labels]
        value = -float(self.counted(scale * self.true_logits + bias).sum())
        sums = torch.zeros(2, self.num_classes, dtype=torch.float64)
        for part in self.blocks():
            rows, probs, log_total = self.probs_of(part, at)
            value += float(self.counted(log_total, part).sum(dtype=torch.float64))
            sums[0].add_(self.total(torch.mul(rows, probs, out=self.first[: len(rows)]), part))
            sums[1].add_(self.total(probs, part))
        self.value = value / self.n
        return self.value, self.seen * (sums / self.n - self.hits)

    def curvature(self) -> Tensor:
        """That of every class by itself, mean p (1 - p) times z^2, z and 1, `3 c`, at the last point measured."""
        sums = torch.zeros(3, self.num_classes, dtype=torch.float64)
        for part in self.blocks():
            rows, probs = self.logits[part].to(self.dtype), self.probs[part]
            spread = torch.addcmul(probs, probs, probs, value=-1, out=self.first[: len(rows)])
            for k in (2, 1, 0):
                sums[k].add_(self.total(spread, part))
                spread.mul_(rows)
        return sums / self.n

    def product(self, direction: Tensor) -> Tensor:
        """Curvature times direction: with s = z dw + db, mean p (s - E s) z and mean p (s - E s)."""
        result = torch.zeros_like(direction)
        weights, bias = direction.to(self.dtype)
        for part in self.blocks():
            rows, probs = self.logits[part].to(self.dtype), self.probs[part]
            moved = torch.addcmul(bias, rows, weights, out=self.first[: len(rows)])
            mean = torch.from_numpy(row_dot(probs.numpy(), moved.numpy()))
            moved.sub_(mean[:, None]).mul_(probs)
            result[1].add_(self.total(moved, part))
            result[0].add_(self.total(moved.mul_(rows), part))
        return self.seen * result / self.n

    def inverse(self) -> InverseCurvature:
        """The inverse of every class's own 2 x 2 curvature."""
        if not abs(self.bent_at - self.value) <= SAME_CURVATURE * max(self.value, 1.0):
            self.bends, self.bent_at = self.curvature(), self.value
        squares, cross, ones = self.bends
        squares, ones = squares + 1e-12, ones + 1e-12
        area = torch.maximum(squares * ones - cross**2, 1e-4 * squares * ones)
        return lambda v: torch.stack([ones * v[0] - cross * v[1], squares * v[1] - cross * v[0]]) / area

    def total(self, block: Tensor, part: slice) -> Tensor:
        """Sums of the columns, each row by its weight."""
        return torch.mv(block.T, self.ones[: len(block)] if self.counts is None else self.counts[part].to(self.dtype))

    def counted(self, values: Tensor, part: slice | None = None) -> Tensor:
        """A number for every row times its weight."""
        if self.counts is None:
            return values
        return values * (self.counts if part is None else self.counts[part])

    def blocks(self) -> list[slice]:
        return [slice(k, min(k + self.block, self.n)) for k in range(0, self.n, self.block)]

    def probs_of(self, part: slice, at: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits of the block, probabilities in their place, and the log of their normaliser."""
        rows, probs = self.logits[part].to(self.dtype), self.probs[part]
        torch.addcmul(at[1].to(self.dtype), rows, at[0].to(self.dtype), out=probs)
        highest = probs.amax(dim=1, keepdim=True)
        np.exp(probs.sub_(highest).numpy(), out=probs.numpy())
        total = probs.sum(dim=1, keepdim=True)
        return rows, probs.mul_(1 / total), (total.log() + highest)[:, 0]


# matrix: softmax(W z + b).

ENOUGH_SAMPLES = 5
"""For each number of the map: with fewer a plain fit predicts other samples worse than a temperature does."""
SEPARATED_NATS = 0.1
"""Nats of all samples together below which every label counts as told apart."""


def apply_matrix(values: Values, logits: Logits) -> Logits:
    """W z + b."""
    return logits @ values["weights"].T + values["bias"]


PULLS = {name: Interval(0.0, high_open=True) for name in ("reg_lambda", "reg_mu")}
"""Penalties of the maps with a matrix."""


@CALIBRATORS.add(
    "matrix",
    paper="Guo et al., 2017, arXiv:1706.04599; ODIR: Kull et al., 2019, arXiv:1910.12656",
    title="matrix scaling",
    corners=({"reg_lambda": 1.0, "reg_mu": 1.0}, {"reg_lambda": 0.1}),
    ranges=PULLS,
    keeps_argmax=False,
    yields="logits",
    parameters=(0, 1, 1),
    linear=True,
    transform=apply_matrix,
)
def matrix(
    logits: Logits,
    labels: Labels,
    weights: Floats | None = None,
    *,
    reg_lambda: float | None = None,
    reg_mu: float | None = None,
) -> FittedValues:
    """Matrix scaling, softmax(W z + b), mean NLL + a pull of W towards the identity over the best temperature.

    When: classes are few and samples many, and errors between classes are systematic.
    When not: samples are few for c^2 numbers: it is then pulled towards one temperature and gains little.

    Args:
        logits: of held-out samples, `n c`; `calibrators.fit` checks them and puts its result into a `Calibrator`.
        labels: their classes, `n`.
        weights: how much each sample counts, of mean 1.
        reg_lambda: ODIR of Kull et al. instead, lambda / (c (c - 1)) sum off-diagonal^2 + mu / c sum b^2; 0 is plain
            matrix scaling. Left out, 0 where there are five samples for each of the c (c + 1) numbers; where there
            are fewer, strength / n times the squares of all that differs from temperature scaling, the strength
            chosen by cross-validated NLL on these samples.
        reg_mu: pull on the bias; left out, the same as `reg_lambda`.

    Returns:
        The fitted values, for the transform of this word, and what a person should know about the fit.

    Example:
        >>> import torch
        >>> i = torch.arange(60)
        >>> labels = i % 3
        >>> predicted = torch.where(i % 5 == 0, (labels + 1 + i % 2) % 3, labels)  # one in five is wrong
        >>> val = confide.Predictions(4.0 * torch.eye(3)[predicted], labels, split="val")
        >>> calibrator = confide.calibrators.fit("matrix", val)
        >>> [round(float(p.facts.confidence.mean()), 2) for p in (val, calibrator(val))]
        [0.96, 0.8]
    """
    num_classes = logits.shape[1]
    if reg_lambda is None and len(logits) >= ENOUGH_SAMPLES * num_classes * (num_classes + 1):
        reg_lambda = 0.0
    if reg_lambda is not None:
        bias = reg_lambda if reg_mu is None else reg_mu
        penalty = Penalty(off=reg_lambda / (num_classes * (num_classes - 1)), bias=bias / num_classes)
        return fitted_map(logits, labels, lambda *_: penalty, weights, strength=False)
    # A weight counts by what it does to a logit, so that the strength means the same for logits of any size.
    square = float((logits - logits.mean(dim=1, keepdim=True)).square().mean(dtype=torch.float64))

    def pulled(pull: float, scale: float) -> Penalty:
        return Penalty(pull * square, pull * square, pull if reg_mu is None else reg_mu, scale)

    return fitted_map(logits, labels, pulled, weights)


MOST_TURNED = 1 << 24


def class_order(logits: Logits, labels: Labels) -> Tensor:
    """The classes by their number of samples, then by their mean logit: the same order however they are numbered.

    A search in this order takes the same steps to the last digit, also where it ends before the best map is reached.
    """
    counts = torch.bincount(labels, minlength=logits.shape[1])
    return torch.from_numpy(np.lexsort((logits.sum(dim=0, dtype=torch.float64).numpy(), counts.numpy())))


def fitted_map(
    logits: Logits,
    labels: Labels,
    penalty: Callable[[float, float], Penalty],
    counts: Floats | None,
    *,
    strength: bool = True,
    log_probs: bool = False,
) -> FittedValues:
    """The map from the identity over the best temperature, its bias centred, and a note if it had to stop early.

    Args:
        penalty: of a pull and the scale of the best temperature.
        counts: how much each sample counts, of mean 1.
        strength: whether n times the pull is to be found by cross-validation.
        log_probs: whether the map is one of log-probabilities.
    """
    num_classes = logits.shape[1]
    order = class_order(logits, labels) if logits.numel() <= MOST_TURNED else torch.arange(num_classes)
    place = order.argsort()
    if logits.numel() <= MOST_TURNED:
        logits, labels = logits[:, order], place[labels]
    optimum = best_scale(logits, labels, counts)
    scale = optimum.scale if optimum.bound is None else 1.0
    own = None if counts is None else torch.from_numpy(counts)
    rows = SoftmaxRows(logits, labels, log_sums(logits) if log_probs else None, weights=own)
    start = scale * torch.eye(num_classes, num_classes + 1, dtype=torch.float64)
    seen = torch.bincount(labels, minlength=num_classes) > 0

    def of_pull(pull: float) -> Penalty:
        own = penalty(pull, scale)
        return own if own.reference is None else replace(own, reference=int(place[own.reference]))

    turns, values, pull, notes = preconditioner(rows, start), {}, 0.0, []
    if strength:
        search = best_strength(rows, start, of_pull, turns)
        values, pull = {"strength": torch.tensor(search.strength, dtype=torch.float64)}, search.strength / rows.n
        notes = search.notes()
    final = of_pull(pull)
    weights, steepest, converged = fit_map(rows, start, final, seen, turns(final), Precision.of(rows))
    if not converged:
        notes.append(f"the fit stopped at its last iteration with a slope of {steepest:.1e}")
    if not seen.all():
        notes.append("classes without a validation sample keep their temperature-scaled logit")
    # Only a map with as many numbers as samples can fit them all.
    if rows.n <= weights.numel() and rows.n * rows.loss(weights) < SEPARATED_NATS:
        notes.append(
            "the samples are told apart perfectly: the map has no best value and was stopped where it no longer "
            "matters; expect it to be overconfident on others, use more samples, a pull or fewer parameters"
        )
    bias = weights[:, -1] - weights[:, -1].mean()
    return FittedValues({"weights": weights[place][:, place], "bias": bias[place], **values}, tuple(notes))


# dirichlet: softmax(W log p + b).


def settled_strength(values: Values, n: int) -> dict[str, float | bool]:
    """The options that pull n samples with the strength of a fit."""
    if "strength" not in values:
        return {}
    pull = float(values["strength"]) / n
    return {"reg_lambda": pull, "reg_mu": pull, "reference_row": False}


def apply_dirichlet(values: Values, logits: Logits) -> Logits:
    """Log-probabilities of W log p + b."""
    log_probs = torch.log_softmax(logits, dim=1)
    return torch.log_softmax(log_probs @ values["weights"].T + values["bias"], dim=1)


@CALIBRATORS.add(
    "dirichlet",
    paper="Kull et al., 2019, arXiv:1910.12656",
    title="Dirichlet calibration",
    corners=({"reg_lambda": 0.001}, {"reg_lambda": 0.01, "reg_mu": 0.01}, {"reg_lambda": 1.0, "reg_norm": True}),
    ranges=PULLS,
    keeps_argmax=False,
    yields="probabilities",
    parameters=(0, 1, 1),
    linear=True,
    transform=apply_dirichlet,
    settled=settled_strength,
)
def dirichlet(
    logits: Logits,
    labels: Labels,
    weights: Floats | None = None,
    *,
    reg_lambda: float | None = None,
    reg_mu: float | None = None,
    reg_norm: bool = False,
    reference_row: bool | None = None,
) -> FittedValues:
    """Dirichlet calibration, softmax(W log p + b), mean NLL + lambda sum off-diagonal^2 + mu sum b^2 (ODIR).

    When: classes are confused with each other in a fixed way, and samples are many.
    When not: classes are many or samples few: c^2 numbers.

    Args:
        logits: of held-out samples, `n c`; `calibrators.fit` checks them and puts its result into a `Calibrator`.
        labels: their classes, `n`.
        weights: how much each sample counts, of mean 1.
        reg_lambda: pull on W; left out, ODIR with lambda = mu = strength / n, the same for every class, the strength
            chosen by cross-validated NLL on these samples.
        reg_mu: pull on b; left out while `reg_lambda` is given, lambda pulls on all entries and b (L2), not ODIR.
        reg_norm: divide lambda by c (c - 1) and mu by c, as the paper prints it.
        reference_row: subtract the last row from every row before the pull, as the released code does, so that its
            published strengths mean the same; by default done where `reg_lambda` is given.

    Returns:
        The fitted values, for the transform of this word, and what a person should know about the fit.

    Example:
        >>> import torch
        >>> i = torch.arange(60)
        >>> labels = i % 3
        >>> predicted = torch.where(i % 5 == 0, (labels + 1 + i % 2) % 3, labels)  # one in five is wrong
        >>> val = confide.Predictions(4.0 * torch.eye(3)[predicted], labels, split="val")
        >>> calibrator = confide.calibrators.fit("dirichlet", val)
        >>> [round(float(p.facts.confidence.mean()), 2) for p in (val, calibrator(val))]
        [0.96, 0.8]
    """
    num_classes = logits.shape[1]
    pairs, ones = (num_classes * (num_classes - 1), num_classes) if reg_norm else (1, 1)
    odir = reg_lambda is None or reg_mu is not None
    released = reg_lambda is not None if reference_row is None else reference_row

    def pulled(pull: float, scale: float) -> Penalty:
        pull = pull if reg_lambda is None else reg_lambda
        bias = pull if reg_mu is None else reg_mu
        reference = num_classes - 1 if released else None
        return Penalty(pull / pairs, 0.0 if odir else pull / pairs, bias / ones, reference=reference)

    return fitted_map(logits, labels, pulled, weights, strength=reg_lambda is None, log_probs=True)
