"""THE primitive: one fused pass over logits -> per-sample statistics of the softmax, with its own one-pass backward.

Every loss and many metrics are formulas over a few numbers per sample. `simplex_statistics` computes the wanted ones
while the logits are read once, and takes the gradients of all of them back to the logits in one pass:

    d log p_y / dz_k = 1[k=y] - p_k          d H / dz_k = -p_k (log p_k + H)
    d p_j     / dz_k = p_j (1[k=j] - p_k)    d sum p^2 / dz_k = 2 p_k (p_k - sum p^2)

Logits on a CPU go through row blocks that stay in cache (`cpu`), on a GPU through Triton kernels (`gpu`), anywhere
else through plain torch (`reference`). All three can be differentiated twice: the second derivative always goes
through plain torch.

A bad row (NaN, infinity, label out of range) is an error at once on the CPU. On a GPU nothing may wait for the device,
so the row becomes NaN and sets a flag on the device; `check()` reads the flags and raises the same clear line.
`log_p_and_class_means` adds the mean probability of every class in the batch, which MDCA is made of.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from confide import block_sizes
from confide.checks import InputError, did_you_mean
from confide.simplex.cpu import BlockPass, check_rows, check_statistics, probabilities_and
from confide.simplex.reference import (
    MANY_ROWS,
    NO_LABEL,
    STATISTICS,
    FusedLoss,
    Request,
    accumulator,
    across,
    log_softmax,
    plain_statistics,
    read_flags,
)
from confide.simplex.small import NO_OPTIONS, FormulaOptions, small_loss
from confide.types import Labels, Logits, PerSample, Scalar

SMALL = 1 << 16
"""Losses of batches of no more logits are made whole on a CPU: calls cost more there than the passes save."""


@dataclass(frozen=True)
class Statistics:
    """The wanted per-sample statistics, each a vector of length n, as attributes."""

    values: dict[str, Tensor]

    def __getattr__(self, name: str) -> Tensor:
        try:
            return self.values[name]
        except KeyError:
            raise AttributeError(f"statistic '{name}' was not wanted; wanted: {', '.join(self.values)}") from None


def simplex_statistics(
    logits: Logits, labels: Labels | None, want: str | tuple[str, ...], *, order: float = 2.0, margin: float = 0.0
) -> Statistics:
    """The wanted statistics of softmax(logits): one pass forward, one pass backward.

    Names: `log_p_true`, `p_true`, `entropy`, `p_max`, `prediction` (index of the largest, lowest index on ties),
    `p_second` (runner-up), `p_other` (largest probability of another class than the label), `p_below` (largest
    probability strictly below the label's; 0 if none), `sum_squares`, `mean_log_p`, `log_sum_exp`, `norm` (of the
    logits), `excess` (mean over classes of max(0, max_j z_j - z_k - margin)).

    Half precision is accumulated in float32 and gives float32 statistics. Soft labels (n x c) are taken for
    `log_p_true` = sum_k q_k log p_k and `p_true` = sum_k q_k p_k.

    Args:
        order: which norm `norm` is: 1, 2 or any p >= 1.
        margin: the distance below the largest logit that `excess` leaves free.
    """
    names = tuple(want.replace(",", " ").split()) if isinstance(want, str) else tuple(want)
    for name in names:
        if name not in STATISTICS:
            raise InputError(f"no statistic named '{name}'; {did_you_mean(name, STATISTICS)}")
    request = Request(names, float(order), float(margin))
    return Statistics(dict(zip(names, _outputs(logits, labels, request), strict=True)))


def _outputs(logits: Tensor, labels: Tensor | None, request: Request) -> tuple[Tensor, ...]:
    soft = labels is not None and labels.ndim == 2
    if logits.device.type == "cuda" and not soft and request.order in (1.0, 2.0):
        cuda = _cuda()
        if cuda is not None and not torch.compiler.is_compiling():
            outputs: tuple[Tensor, ...] = cuda.statistics(logits, labels, request)
            return outputs
    if soft or logits.device.type != "cpu" or torch.compiler.is_compiling():
        return plain_statistics(logits, labels, request)
    if logits.numel() <= SMALL or request.order not in (1.0, 2.0):
        return _checked_statistics(logits, labels, request)
    block_pass: Callable[..., tuple[Tensor, ...]] = BlockPass.apply
    return block_pass(logits, labels, request)


def _checked_statistics(logits: Tensor, labels: Tensor | None, request: Request) -> tuple[Tensor, ...]:
    """By plain torch, with the checks of the pass by blocks: torch itself finds a bad label, one sum a bad logit."""
    if "log_p_true" not in request.names:
        check_rows(logits, labels)
    try:
        values = plain_statistics(logits, labels, request, checked=True)
    except IndexError:
        check_rows(logits, labels)
        raise
    for value in values:
        # The sum of rows that are finite may still overflow: then the rows are looked at, and pass.
        if value.dtype.is_floating_point and not math.isfinite(value.detach().sum().item()):
            check_statistics(logits, {}, value)
    return values


def _cross_entropy(wide: Tensor, labels: Tensor, options: FormulaOptions) -> Scalar:
    if options.table is not None:
        return functional.cross_entropy(wide, labels, options.table, ignore_index=NO_LABEL, reduction="sum") / len(
            labels
        )
    if across(wide):
        return functional.nll_loss(log_softmax(wide), labels, ignore_index=NO_LABEL)
    return functional.cross_entropy(wide, labels, ignore_index=NO_LABEL)


def _label_smoothing(wide: Tensor, labels: Tensor, options: FormulaOptions) -> Scalar:
    log_p = log_softmax(wide)
    own = functional.nll_loss(log_p, labels, ignore_index=NO_LABEL)
    return torch.add(options.a * own, log_p.sum(), alpha=options.b / log_p.numel())


def _brier(wide: Tensor, labels: Tensor, options: FormulaOptions) -> Scalar:
    truth = torch.zeros(wide.shape, dtype=wide.dtype).scatter_(1, labels[:, None], 1.0)
    return functional.mse_loss(torch.softmax(wide, dim=1), truth, reduction="sum") / len(labels)


def _entropy(wide: Tensor, labels: Tensor, options: FormulaOptions) -> Scalar:
    log_p = log_softmax(wide)
    products = log_p.exp() * log_p
    own = functional.nll_loss(log_p, labels, ignore_index=NO_LABEL)
    if options.vector is None:
        total = products.sum()
    else:
        # `dot` keeps float32 under autocast; a product with a vector by `@` would be rounded to half precision.
        total = torch.dot(products.sum(dim=1), options.vector.to(products.dtype))
    return torch.add(own, total, alpha=-options.b / len(labels))


def _poly(wide: Tensor, labels: Tensor, options: FormulaOptions) -> Scalar:
    own = functional.nll_loss(log_softmax(wide), labels, reduction="none", ignore_index=NO_LABEL)
    return torch.sub(own, torch.expm1(-own), alpha=options.b).mean()


def _l1_norm(wide: Tensor, labels: Tensor, options: FormulaOptions) -> Scalar:
    own = _cross_entropy(wide, labels, options)
    return torch.add(own, torch.linalg.vector_norm(wide, 1), alpha=options.b / len(labels))


SmallMean = Callable[[Tensor, Tensor, FormulaOptions], Scalar]
SMALL_MEANS: dict[tuple[str, int], SmallMean] = {
    ("cross_entropy", 0): _cross_entropy,
    ("mean_log_p", 0): _label_smoothing,
    ("brier", 0): _brier,
    ("entropy", 0): _entropy,
    ("poly", 0): _poly,
    ("norm", 1): _l1_norm,
}
"""Formula and order -> its mean, where torch has it in a few calls each way: fewer than any function of one's own."""


def _small_mean(logits: Logits, labels: Labels, name: str, options: FormulaOptions, formula: SmallMean) -> Scalar:
    """A mean that torch gives at once; labels and logits are looked at where torch refuses them or it is not finite."""
    try:
        wide = logits.float() if logits.element_size() == 2 else logits
        value = formula(wide, labels, options)
    except (IndexError, RuntimeError):
        check_rows(logits, labels)
        raise
    if not math.isfinite(value.item()):
        _small_values(logits, labels, name, options)
    return value


def _small_values(logits: Logits, labels: Labels, name: str, options: FormulaOptions) -> PerSample:
    if name == "cross_entropy":
        own = -simplex_statistics(logits, labels, "log_p_true").log_p_true
        return own if options.table is None else options.table[labels] * own
    losses = small_loss(logits, labels, name, options).values
    assert isinstance(losses, Tensor)
    return losses


def small_cross_entropy(logits: Logits, labels: Labels) -> Scalar | None:
    """The mean cross-entropy of a small plain batch on a CPU, else None: it is over before `fused` were called.

    torch's own takes 50 us forward and backward at 64 x 10, so that every look on the way would be seen.
    """
    if logits.numel() > SMALL or torch.compiler.is_compiling():
        return None
    if (logits.shape[0] >= MANY_ROWS and across(logits)) or logits.element_size() == 2:
        return _small_mean(logits, labels, "cross_entropy", NO_OPTIONS, _cross_entropy)
    try:
        value = functional.cross_entropy(logits, labels, ignore_index=NO_LABEL)
    except (IndexError, RuntimeError):
        check_rows(logits, labels)
        raise
    if not math.isfinite(value.item()):
        _small_values(logits, labels, "cross_entropy", NO_OPTIONS)
    return value


def fused(
    logits: Logits, labels: Labels, name: str, vector: Tensor | None = None, table: Tensor | None = None, **numbers: Any
) -> FusedLoss | None:
    """A whole loss under one node of autograd, or None where there is none: soft labels, no Triton, many logits.

    On a GPU the vectors of length n and the formula over them cost as much in launches as the logits cost in reading,
    on a CPU as much in calls where the batch is small; in a large one a loss is its formula over `simplex_statistics`.
    """
    if labels.ndim == 2:
        return None
    if _is_small(logits):
        options = FormulaOptions(vector, table, **numbers)
        formula = SMALL_MEANS.get((name, options.order))
        if formula is None:
            return small_loss(logits, labels, name, options)
        batch = (logits, labels, name, options)
        return FusedLoss(partial(_small_values, *batch), partial(_small_mean, *batch, formula))
    if logits.device.type != "cuda":
        return None
    cuda = _cuda()
    return None if cuda is None else cuda.fused(logits, labels, name, vector, table, **numbers)


def weighted_by_rank(
    logits: Logits, labels: Labels, score: str, weights_of: Callable[[int], Tensor]
) -> FusedLoss | None:
    """-w_r log p_y, r the ascending rank of confidence by `score`, w = weights_of(n); None for large CPU batches."""
    if _is_small(logits):
        return (
            small_loss(logits, labels, "ranked", FormulaOptions(weights_of(len(logits)), None))
            if score == "msp"
            else None
        )
    kernels = _weighted(logits)
    return None if kernels is None else kernels.ranked(logits, labels, score, weights_of)


def weighted_by_distribution(
    logits: Logits, labels: Labels, coverage: float, smoothing: float, bins: int, size: int
) -> FusedLoss | None:
    """Selective AU by the largest probability, G within [1, size] / (size + 1); None for large CPU batches."""
    if _is_small(logits):
        return small_loss(
            logits, labels, "selective", FormulaOptions(None, None, coverage, smoothing, margin=size, bins=bins)
        )
    kernels = _weighted(logits)
    return None if kernels is None else kernels.spread(logits, labels, coverage, smoothing, bins, size)


def _is_small(logits: Tensor) -> bool:
    """Whether a loss of this batch is made whole on the CPU."""
    return logits.is_cpu and 0 < logits.numel() <= SMALL and not torch.compiler.is_compiling()


def _weighted(logits: Tensor) -> Any:
    return None if logits.device.type != "cuda" or torch.compiler.is_compiling() else _cuda()


# A constant, not a cached function that tries the import: torch.compile ignores functools.cache, warns, and traces the
# import again, which ends the graph where Triton is missing.
HAS_TRITON = find_spec("triton") is not None


def _cuda() -> Any:
    """The Triton kernels, imported when a GPU first asks for them, or None where Triton is not installed."""
    if not HAS_TRITON:
        return None
    from confide.simplex import gpu

    return gpu


def one_minus_p(log_p: PerSample) -> PerSample:
    """1 - exp(log_p), clamped at the smallest normal number: x^gamma has an infinite slope at 0 for gamma < 1."""
    return (-torch.expm1(log_p)).clamp_min(torch.finfo(log_p.dtype).tiny)


def check() -> None:
    """Raise if a row with a bad label or NaN has passed on a GPU since the last check; waits for the devices.

    On a CPU every loss checks its rows at once, so there is nothing to wait for.

    Raises:
        InputError: with the first problem that was seen.

    Example:
        >>> confide.check()
    """
    for problem in read_flags():
        raise InputError(problem)


def log_p_and_class_means(logits: Logits, labels: Labels) -> tuple[PerSample, Tensor]:
    """log p_y of every sample, and the mean of the batch's probabilities for every class; a batch of none has means 0.

    On a CPU by one softmax and one pass back, elsewhere and under the compiler by plain torch.
    """
    if logits.device.type == "cpu" and not torch.compiler.is_compiling():
        one_pass: Callable[..., tuple[Tensor, Tensor]] = _ClassMeansPass.apply
        return one_pass(logits, labels)
    return simplex_statistics(logits, labels, "log_p_true").log_p_true, _class_means(logits)


def _class_means(logits: Tensor) -> Tensor:
    return torch.softmax(logits, dim=1, dtype=accumulator(logits.dtype)).sum(dim=0) / max(len(logits), 1)


class _ClassMeansPass(torch.autograd.Function):
    """dz_ik = p_ik (m_k / n - (p_i . m) / n - g_i) + 1[k = y_i] g_i for slopes g of log p_y and m of the means."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        ctx.probs, log_p = probabilities_and(logits, labels, "log_p_true")
        ctx.save_for_backward(logits, labels)
        ctx.set_materialize_grads(False)
        return log_p, ctx.probs.sum(dim=0) / max(len(logits), 1)

    @staticmethod
    def backward(ctx: Any, by_log_p: Tensor | None, by_mean: Tensor | None) -> tuple[Tensor | None, None]:
        logits, labels = ctx.saved_tensors
        if torch.is_grad_enabled():
            outputs = simplex_statistics(logits, labels, "log_p_true").log_p_true, _class_means(logits)
            pairs = [(v, g) for v, g in zip(outputs, (by_log_p, by_mean), strict=True) if g is not None]
            values, slopes = zip(*pairs, strict=True)
            return torch.autograd.grad(values, logits, slopes, create_graph=True)[0], None
        # The probabilities become the gradient in place; a second backward over a retained graph makes them anew.
        probs, ctx.probs = ctx.probs, None
        if probs is None:
            probs = torch.softmax(logits, dim=1, dtype=accumulator(logits.dtype))
        return _class_means_gradient(probs, labels, by_log_p, by_mean).to(logits.dtype), None


def _class_means_gradient(probs: Tensor, labels: Tensor, by_log_p: Tensor | None, by_mean: Tensor | None) -> Tensor:
    n, num_classes = probs.shape
    row = torch.zeros(n, dtype=probs.dtype) if by_log_p is None else -by_log_p
    size = block_sizes.rows_in(block_sizes.CACHED, num_classes)
    for start in range(0, n, size):
        part = slice(start, start + size)
        block = probs[part]
        if by_mean is None:
            block.mul_(row[part, None])
        else:
            column = by_mean / n
            # Autocast would round the product to 8 bits.
            with torch.autocast("cpu", enabled=False):
                pulled = block @ column
            block.mul_(column + (row[part] - pulled)[:, None])
    return probs if by_log_p is None else probs.scatter_add_(1, labels[:, None], by_log_p[:, None])
