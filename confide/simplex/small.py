"""Whole losses of small batches on a CPU: values and their gradient at once by numpy, under one node of autograd.

At 256 x 10 a call costs more than its numbers do, a call of torch more than one of numpy, and a node of autograd more
than both. Each formula below gives one value per sample and how it changes with the logits. Arrays are classes x
samples, so that what is known of a sample stands in a row of its own. A formula is written for numpy and torch alike:
by numpy for the gradient, by torch where the gradient is to be differentiated once more.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from confide.simplex.cpu import check_rows, check_statistics
from confide.simplex.reference import FEW_CLASSES, FusedLoss, accumulator

Array = Any
"""An array of numpy or a tensor."""


class FormulaOptions(NamedTuple):
    """Options of a formula, as `statistics.fused` takes them."""

    vector: Array
    table: Array
    a: float = 1.0
    b: float = 0.0
    order: int = 0
    margin: float = 0.0
    detach: bool = False
    bins: int = 0


NO_OPTIONS = FormulaOptions(None, None)


class Batch:
    """Logits, the same less the largest and exp of these (c n); labels, the sum of the latter and its log, log p_y and
    p_y (n).
    """

    def __init__(self, of: Any, z: Array, labels: Array) -> None:
        self.of, self.z, self.labels = of, z, labels
        n, self.rows = len(labels), of.arange(len(labels))
        if of is np:
            # The reductions themselves: numpy's methods take longer to find them than a small batch takes. Along rows
            # torch finds the largest in half the time.
            top = np.maximum.reduce(z, 0) if z.flags.c_contiguous else torch.from_numpy(z.T).amax(1).numpy()
            self.shifted = z - top
            self.exps = np.exp(self.shifted)
            self.total = np.add.reduce(self.exps, 0)
            by_column = self.shifted.flags.c_contiguous
            self.place = labels * n + self.rows if by_column else self.rows * len(z) + labels
        else:
            self.shifted = z - z.amax(0)
            self.exps = self.shifted.exp()
            self.total = self.exps.sum(0)
        self.log_scale = of.log(self.total)
        self.own = self.at_label(self.shifted) - self.log_scale
        self.p_own = of.exp(self.own)

    @cached_property
    def p(self) -> Array:
        """Probabilities, `c n`."""
        return self.exps / self.total

    def at_label(self, values: Array) -> Array:
        """The entries of the labels in an array of the logits' layout."""
        return values.ravel("K")[self.place] if self.of is np else values[self.labels, self.rows]

    def subtract_at_label(self, values: Array, s: Array) -> Array:
        """The array less s at the labels, in place."""
        if self.of is np:
            values.ravel("K")[self.place] -= s
        else:
            values[self.labels, self.rows] -= s
        return values

    def tied(self, s: Array) -> Array:
        """s (p - 1[k = y]), the gradient of -s log p_y for a constant s."""
        return self.subtract_at_label(self.exps * (s / self.total), s)

    def one_minus_p(self) -> Array:
        """1 - p_y, clamped at the smallest normal number: x^gamma has an infinite slope at 0 for gamma < 1."""
        return self.at_least_tiny(-self.of.expm1(self.own))

    def at_least_tiny(self, values: Array) -> Array:
        clamp = np.maximum if self.of is np else torch.clamp_min
        return clamp(values, self.of.finfo(values.dtype).tiny)

    def constant(self, values: Array) -> Array:
        return values if self.of is np else values.detach()


Result = tuple[Array, Array]


def entropy(x: Batch, options: FormulaOptions) -> Result:
    weight = options.b if options.vector is None else options.b * options.vector
    log_p = x.shifted - x.log_scale
    spread = -(x.p * log_p).sum(0)
    gradient = x.tied(1.0)
    gradient -= x.p * (log_p + spread) * weight
    return weight * spread - x.own, gradient


def mean_log_p(x: Batch, options: FormulaOptions) -> Result:
    share = options.b / len(x.z)
    mean = x.shifted.sum(0) * share - options.b * x.log_scale
    gradient = x.tied(options.a)
    gradient += share - options.b * x.p
    return mean - options.a * x.own, gradient


def poly(x: Batch, options: FormulaOptions) -> Result:
    return -x.own - options.b * x.of.expm1(x.own), x.tied(1 + options.b * x.p_own)


def brier(x: Batch, options: FormulaOptions) -> Result:
    squares = (x.p * x.p).sum(0)
    gradient = x.p * (2 * (x.p + (x.p_own - squares)))
    return squares - 2 * x.p_own + 1, x.subtract_at_label(gradient, 2 * x.p_own)


def norm(x: Batch, options: FormulaOptions) -> Result:
    if options.order == 1:
        size, slope = abs(x.z).sum(0), x.of.sign(x.z)
    else:
        size = x.of.sqrt((x.z * x.z).sum(0))
        slope = x.z / x.at_least_tiny(size)
    gradient = x.tied(1.0)
    gradient += options.b * slope
    return options.b * size - x.own, gradient


def excess(x: Batch, options: FormulaOptions) -> Result:
    gap = -(x.shifted + options.margin)
    over = (gap > 0) * (x.own * 0 + options.b / len(x.z))
    gradient = x.tied(1.0)
    gradient -= over
    gradient[x.shifted.argmax(0), x.rows] += over.sum(0)
    return (gap * over).sum(0) - x.own, gradient


def focal(x: Batch, options: FormulaOptions) -> Result:
    return _power(x, x.one_minus_p(), options.a, -options.a, options.detach)


def inverse(x: Batch, options: FormulaOptions) -> Result:
    return _power(x, 1 + x.p_own, options.a, options.a)


STEP, GAMMA_BELOW, GAMMA_ABOVE = 0.2, 5.0, 3.0


def flsd53(x: Batch, options: FormulaOptions) -> Result:
    # The softmax itself: in float32 the exponential of its logarithm makes a fifth a little less than one.
    share = x.at_label(x.exps) / x.total
    below = share < (share.dtype.type(STEP) if x.of is np else STEP)
    gamma = GAMMA_ABOVE + (GAMMA_BELOW - GAMMA_ABOVE) * below
    gamma = gamma.astype(x.own.dtype) if x.of is np else gamma.to(x.own.dtype)
    return _power(x, x.one_minus_p(), gamma, -gamma)


def gammas(x: Batch, options: FormulaOptions) -> Result:
    gamma = _in_bins(x, options)
    return _power(x, x.of.where(gamma >= 0, x.one_minus_p(), 1 + x.p_own), abs(gamma), -gamma)


LARGEST_EXPONENT = 80.0
"""exp of more overflows float32; such a gamma already silences every sample."""


def accuracies(x: Batch, options: FormulaOptions) -> Result:
    gap = x.constant(x.p_own) - _in_bins(x, options)
    gap = x.of.where(gap == gap, gap, gap.dtype.type(0) if x.of is np else 0.0)
    gamma = x.of.exp((options.a * gap).clip(None, LARGEST_EXPONENT))
    return _power(x, x.one_minus_p(), gamma, -gamma)


def dual(x: Batch, options: FormulaOptions) -> Result:
    others = x.p * 1.0
    others[x.labels, x.rows] = -1.0
    return _with_rival(x, others, options.a)


def dual_released(x: Batch, options: FormulaOptions) -> Result:
    return _with_rival(x, x.p * (x.p < x.at_label(x.p)), options.a)


def ranked(x: Batch, options: FormulaOptions) -> Result:
    """-w_r log p_y, r the ascending rank of the largest probability, ties in input order."""
    confidence = x.of.exp(-x.log_scale)
    order = confidence.argsort(kind="stable") if x.of is np else confidence.argsort(stable=True)
    weight = x.of.empty_like(x.own)
    weight[order] = options.vector
    return -weight * x.own, x.tied(weight)


def selective(x: Batch, options: FormulaOptions) -> Result:
    """-b log p_y, b = -log(1 - G(min(s, t))): s the largest probability, G its smoothed histogram, t its quantile.

    Options: a the coverage of t, b the width of the smoothing, `bins` of the histogram, `margin` the n of the bounds.
    """
    sure = 1 / x.total
    known = np.asarray(x.constant(sure))
    threshold, share = _quantile(known, options.a), _histogram(known, options.bins)
    centres = bin_centres(options.bins, known.dtype)
    if x.of is not np:
        threshold, share, centres = (torch.as_tensor(v) for v in (threshold, share, centres))
    below = sure < threshold
    steps = 1 / (1 + x.of.exp((centres - x.of.where(below, sure, threshold)[:, None]) / options.b))
    spread, low = steps @ share, 1 / (options.margin + 1)
    inside = (spread >= low) & (spread <= 1 - low)
    rest = 1 - spread.clip(low, 1 - low)
    weight = -x.of.log(rest)
    slope = x.own * sure * (below & inside) * ((steps * (1 - steps)) @ share) / (options.b * rest)
    gradient = x.tied(weight)
    gradient += slope * x.p
    gradient[x.shifted.argmax(0), x.rows] -= slope
    return -weight * x.own, gradient


def _quantile(values: Array, q: float) -> Array:
    """The q-quantile, a line between neighbours."""
    ordered, place = np.sort(values), q * (len(values) - 1)
    below = min(int(place), len(values) - 1)
    above = min(below + 1, len(values) - 1)
    return ordered[below] + values.dtype.type(place - below) * (ordered[above] - ordered[below])


SMALLEST_COUNT = 1e-12
"""Of a bin of a histogram, so that its share is never 0."""


def _histogram(values: Array, bins: int) -> Array:
    """Shares of the values in bins [low, high) on [0, 1], 1 in the last."""
    counts = np.bincount(bin_edges(bins, values.dtype).searchsorted(values, side="right"), minlength=bins)
    return (np.maximum(counts, SMALLEST_COUNT) / len(values)).astype(values.dtype)


@lru_cache(maxsize=8)
def bin_edges(bins: int, dtype: Any) -> Array:
    """The inner edges of equal bins on [0, 1]."""
    return np.linspace(0, 1, bins + 1, dtype=dtype)[1:-1]


@lru_cache(maxsize=8)
def bin_centres(bins: int, dtype: Any) -> Array:
    """The centres of equal bins on [0, 1]."""
    return (np.arange(bins, dtype=dtype) + dtype.type(0.5)) / dtype.type(bins)


def _power(x: Batch, base: Array, gamma: Array, lean: Array, detach: bool = False) -> Result:
    """-base^gamma log p_y; `lean` is gamma times d base / d p_y."""
    weight = base**gamma
    values = -weight * x.own
    return values, x.tied(x.constant(weight) if detach else weight - lean * (values / base) * x.p_own)


def _with_rival(x: Batch, others: Array, gamma: float) -> Result:
    """-(1 - p_y + q)^gamma log p_y with q the largest of the others."""
    place = others.argmax(0)
    rival = x.at_least_tiny(others[place, x.rows])
    base = x.at_least_tiny(-x.of.expm1(x.own) + rival)
    values, gradient = _power(x, base, gamma, -gamma)
    slope = gamma * (values / base) * rival
    gradient -= slope * x.p
    gradient[place, x.rows] += slope
    return values, gradient


def _in_bins(x: Batch, options: FormulaOptions) -> Array:
    """The vector's entry for the bin of p_y, [low, high); the first also takes all below, the last all above."""
    inner = options.table[1:-1]
    if x.of is np:
        return options.vector[inner.searchsorted(x.p_own, side="right")]
    return options.vector[torch.bucketize(x.p_own.detach(), inner, right=True)]


FORMULAS: dict[str, Callable[[Batch, FormulaOptions], Result]] = {
    formula.__name__: formula
    for formula in (
        *(entropy, mean_log_p, poly, brier, norm, excess, focal, inverse),
        *(dual, dual_released, flsd53, gammas, accuracies, ranked, selective),
    )
}


def values_and_gradient(of: Any, z: Array, labels: Array, name: str, options: FormulaOptions) -> Result:
    """Values n and their gradient c x n, of logits c x n, by numpy or torch."""
    return FORMULAS[name](Batch(of, z, labels), options)


def _as_arrays(options: FormulaOptions, dtype: torch.dtype) -> FormulaOptions:
    vector, table = (None if v is None else v.detach().to(dtype).numpy() for v in (options.vector, options.table))
    return options._replace(vector=vector, table=table)


class SmallLoss(torch.autograd.Function):
    """A whole loss and its mean; the gradient is made with them."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, name: str, options: FormulaOptions) -> tuple[Tensor, Tensor]:
        z, plain = logits.detach(), options
        if logits.element_size() < 4:
            z = z.float()
        if options.vector is not None or options.table is not None:
            plain = _as_arrays(options, z.dtype)
        columns = z.numpy().T
        if len(columns) <= FEW_CLASSES:
            columns = np.ascontiguousarray(columns)
        values, ctx.gradient = values_and_gradient(np, columns, labels.numpy(), name, plain)
        ctx.call = (name, options)
        ctx.save_for_backward(logits, labels)
        ctx.set_materialize_grads(False)
        return torch.from_numpy(values), torch.from_numpy(np.asarray(np.add.reduce(values) / len(values)))

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, of_mean: Tensor | None) -> tuple[Tensor | None, ...]:
        logits, labels = ctx.saved_tensors
        if torch.is_grad_enabled():
            name, options = ctx.call
            return _second_order(logits, labels, name, options, grad, of_mean), None, None, None
        # By numpy: a call of torch costs five of its own here.
        pull: Any = 0.0 if of_mean is None else of_mean.item() / len(logits)
        if grad is not None:
            pull = grad.numpy() + pull
        # In the order of the logits: torch would copy a gradient of another.
        gradient = torch.from_numpy(np.multiply(ctx.gradient.T, pull[:, None] if np.ndim(pull) else pull, order="C"))
        return gradient if gradient.dtype == logits.dtype else gradient.to(logits.dtype), None, None, None


def _second_order(
    logits: Tensor, labels: Tensor, name: str, options: FormulaOptions, grad: Tensor | None, of_mean: Tensor | None
) -> Tensor:
    """The gradient as a differentiable function of the logits, for create_graph=True."""
    wide = logits.to(accumulator(logits.dtype))
    vector, table = (None if v is None else v.detach().to(wide.dtype) for v in (options.vector, options.table))
    _, gradient = values_and_gradient(torch, wide.t(), labels, name, options._replace(vector=vector, table=table))
    pull = wide.new_zeros(()) if of_mean is None else of_mean / len(logits)
    whole: Tensor = gradient * (pull if grad is None else pull + grad)
    return whole.t()


def small_loss(logits: Tensor, labels: Tensor, name: str, options: FormulaOptions) -> FusedLoss:
    """One value per sample and their mean; a logit that is not finite is found by the mean."""
    if np.maximum.reduce(labels.numpy().view(np.uint64)) >= logits.shape[1]:
        check_rows(logits, labels)
    apply: Callable[..., tuple[Tensor, Tensor]] = SmallLoss.apply
    with np.errstate(all="ignore"):
        values, mean = apply(logits, labels, name, options)
    if not math.isfinite(mean.item()):
        check_statistics(logits, {}, values.detach())
    return FusedLoss(values, mean)
