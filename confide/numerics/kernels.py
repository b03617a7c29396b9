"""Batch kernels of calibration errors, with gradients: the Laplacian in n log n (MMCE), the Dirichlet by matrix
products (KDE-XE), and the gap of class means (MDCA).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from confide import block_sizes
from confide.simplex.reference import accumulator, refuse_second_derivative
from confide.types import Labels, Logits, PerSample, Probs, Scalar

LARGEST_EXPONENT = 600.0
"""exp of this times any batch size is still a float64; wider ranges are summed by segments."""


class _LaplacianForm(torch.autograd.Function):
    """sum_ij r_i r_j exp(-|c_i - c_j| / width) by sorting and prefix sums, with gradients to c and r."""

    @staticmethod
    def forward(ctx: Any, confidence: Tensor, residual: Tensor, width: float) -> Tensor:
        order = confidence.detach().argsort()
        sorted_c = confidence.detach()[order].double()
        sorted_r = residual.detach()[order].double()
        below, level, above = _laplacian_sums(sorted_c, sorted_r, width)
        total = below + level + above
        ctx.save_for_backward(order, sorted_r, total, above - below)
        ctx.width = width
        return (sorted_r * total).sum().to(confidence.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        refuse_second_derivative("MMCE's kernel sum", "leave it out of that term")
        order, sorted_r, total, lead = ctx.saved_tensors
        by_residual = torch.empty_like(total).scatter_(0, order, 2 * total)
        by_confidence = torch.empty_like(total).scatter_(0, order, sorted_r * lead * (2 / ctx.width))
        return (grad * by_confidence).to(grad.dtype), (grad * by_residual).to(grad.dtype), None


def _laplacian_sums(values: Tensor, weights: Tensor, width: float) -> tuple[Tensor, Tensor, Tensor]:
    """For every sorted value: the kernel sums over smaller, equal and larger values."""
    n = len(values)
    place = torch.arange(n, device=values.device)
    fresh = torch.ones(n, dtype=torch.bool, device=values.device)
    fresh[1:] = values[1:] != values[:-1]
    first = torch.cummax(torch.where(fresh, place, torch.zeros_like(place)), 0).values
    last = torch.empty_like(fresh)
    last[:-1], last[-1:] = fresh[1:], True
    after = n - torch.cummax(torch.where(last.flip(0), place, torch.zeros_like(place)), 0).values.flip(0)
    below = _decayed_prefix(values, weights, width)
    above = _decayed_prefix(-values.flip(0), weights.flip(0), width).flip(0)
    # Entry i of `below` decays to values[i]; equal values share the sum in front of the first of them.
    prefix = torch.cat([weights.new_zeros(1), weights.cumsum(0)])
    return below[first], prefix[after] - prefix[first], above[after - 1]


def _decayed_prefix(values: Tensor, weights: Tensor, width: float) -> Tensor:
    """sum_{j < i} w_j exp(-(v_i - v_j) / width) for sorted values.

    exp(v_j / width) grows along the order, so every partial sum is dominated by its near terms and no digit is lost;
    only the range of the exponent needs care.
    """
    scaled = (values - values[:1]) / width
    if width * LARGEST_EXPONENT >= 1.0:
        return _direct_prefix(scaled, weights)
    out = torch.zeros_like(scaled)
    segment = torch.div(scaled, LARGEST_EXPONENT, rounding_mode="floor")
    bounds = [0, *((segment[1:] != segment[:-1]).nonzero().squeeze(1) + 1).tolist(), len(values)]
    carry, carried_to = weights.new_zeros(()), scaled[:1].squeeze(0)
    for start, stop in itertools.pairwise(bounds):
        here = scaled[start:stop]
        decay = torch.exp(carried_to - here)
        out[start:stop] = _direct_prefix(here - here[0], weights[start:stop]) + carry * decay
        carry, carried_to = out[stop - 1] + weights[stop - 1], here[-1]
    return out


def _direct_prefix(scaled: Tensor, weights: Tensor) -> Tensor:
    growth = scaled.exp()
    sums = (weights * growth).cumsum(0)
    return (sums - weights * growth) / growth


def laplacian_form(confidence: PerSample, residual: PerSample, width: float) -> Scalar:
    """sum_ij r_i r_j exp(-|c_i - c_j| / width), exact in O(n log n)."""
    if not len(confidence):
        return (confidence * residual).sum()
    apply: Callable[..., Tensor] = _LaplacianForm.apply
    return apply(confidence, residual, width)


def mmce_of(confidence: PerSample, correct: PerSample, width: float = 0.4, sqrt: bool = False) -> Scalar:
    """MMCE, (1/n^2) sum_ij (o_i - c_i)(o_j - c_j) exp(-|c_i - c_j| / width); its square root if asked for."""
    form = laplacian_form(confidence, correct - confidence, width) / max(len(confidence), 1) ** 2
    return _safe_root(form) if sqrt else form


def _safe_root(value: Tensor) -> Tensor:
    """Square root with slope 0 at 0 instead of infinity."""
    positive = value > 0
    return torch.where(positive, torch.where(positive, value, torch.ones_like(value)).sqrt(), torch.zeros_like(value))


def mmce_weighted_of(confidence: PerSample, correct: PerSample, width: float = 0.4, form: str = "paper") -> Scalar:
    """Weighted MMCE: correct and wrong samples count alike; sqrt(A/m^2 + B/m'^2 - 2D/(m m') + 1e-10), 0 if m m' = 0."""
    right, wrong = correct.sum(), (1 - correct).sum()
    both = (right > 0) & (wrong > 0)
    m, m_wrong = right.clamp_min(1), wrong.clamp_min(1)
    if form == "paper":
        # One quadratic form: the weights 1/m and 1/m' go into the residuals.
        residual = (correct - confidence) * torch.where(correct > 0, 1 / m, 1 / m_wrong)
        inner = laplacian_form(confidence, residual, width)
    else:
        residual = correct - confidence
        a = laplacian_form(confidence, residual * correct, width)
        b = laplacian_form(confidence, residual * (1 - correct), width)
        d = (a + b - laplacian_form(confidence, residual, width)) / 2
        # The released code divides the mean of every kernel matrix by its size once more.
        inner = a / m**2 / (m**2 + 1e-5) + b / m_wrong**2 / (m_wrong**2 + 1e-5)
        inner = inner - 2 * d / (m * m_wrong) / (m * m_wrong + 1e-5)
    return torch.where(both, (inner.clamp_min(0) + 1e-10).sqrt(), torch.zeros_like(inner))


BANDWIDTHS = (*(10 ** (-5 + 4 * i / 14) for i in range(15)), 0.2, 0.4, 0.6, 0.8, 1.0)
"""Candidates of the leave-one-out choice: logspace(-5, -1, 15) and five wide ones."""


def _full_precision(tensor: Tensor) -> torch.autocast:
    """Products of probabilities need their float32 digits; autocast would round them to 8 bits."""
    return torch.autocast(tensor.device.type, enabled=False)


class _DirichletError(torch.autograd.Function):
    """mean_i sum_k |E_ik - p_ik|^power, E by leave-one-out Dirichlet kernels: one n x n matrix each way, in place."""

    @staticmethod
    def forward(
        ctx: Any, probs: Tensor, labels: Tensor, bandwidth: float | Tensor | None, power: float, extra_factor: bool
    ) -> Tensor:
        n = len(probs)
        log_probs = probs.log()
        with _full_precision(probs):
            product = probs @ log_probs.T
        if bandwidth is None:
            log_betas = _log_betas(probs, BANDWIDTHS)
            choice = _most_likely(product, log_betas, extra_factor)
            bandwidth, log_beta = _candidates(probs.device).take(choice), log_betas.index_select(0, choice[None])[0]
        else:
            log_beta = _log_betas(probs, [bandwidth])[0]
        weights = product.div_(bandwidth)
        weights.sub_((log_beta - log_beta[0]).to(probs.dtype)[:, None]).fill_diagonal_(-torch.inf)
        torch.softmax(weights, dim=0, out=weights)
        gap = torch.zeros_like(probs).index_add_(1, labels, weights.T).sub_(probs)
        ctx.bandwidth, ctx.power = bandwidth, power
        ctx.save_for_backward(probs, log_probs, labels, weights, gap)
        return (torch.linalg.vector_norm(gap, 1) if power == 1.0 else (gap.abs() ** power).sum()) / n

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        refuse_second_derivative("KDE-XE's kernel error", "leave it out of that term")
        probs, log_probs, labels, weights, gap = ctx.saved_tensors
        slope = gap.sign() if ctx.power == 1.0 else ctx.power * gap.abs() ** (ctx.power - 1) * gap.sign()
        slope.mul_(grad / len(probs))
        # d E_ik / d w_ji = 1[y_j = k], then the softmax over j.
        pull = slope.index_select(1, labels).T
        pull.sub_((pull * weights).sum(dim=0)).mul_(weights)
        with _full_precision(probs):
            out, other = pull @ log_probs, pull.T @ probs
        alpha = (probs / ctx.bandwidth).add_(1)
        of_total = torch.digamma(alpha.sum(dim=1, keepdim=True))
        out.sub_(alpha.digamma_().sub_(of_total).mul_(pull.sum(dim=1, keepdim=True)))
        out.add_(other.div_(probs)).div_(ctx.bandwidth)
        return out.sub_(slope), None, None, None, None


def dirichlet_calibration_error(
    probs: Probs,
    labels: Labels,
    bandwidth: float | Tensor | None,
    power: float = 1.0,
    extra_factor: bool = False,
) -> Scalar:
    """Canonical calibration error by leave-one-out Dirichlet kernels, mean_i sum_k |E[y|p_i]_k - p_ik|^power.

    The kernel of sample j has parameters p_j / bandwidth + 1; its logarithm at p_i is one entry of a matrix product, so
    nothing of size n x n x c exists. A batch of one sample has no neighbours and gives 0. Without a bandwidth it is
    `likely_bandwidth`, without gradient.
    """
    if len(probs) < 2:
        return probs.sum() * 0.0
    apply: Callable[..., Tensor] = _DirichletError.apply
    return apply(probs, labels, bandwidth, power, extra_factor)


def _log_betas(probs: Tensor, bandwidths: Sequence[float | Tensor]) -> Tensor:
    """Logarithms of the Dirichlet's normalising constants for parameters p / bandwidth + 1, bandwidths x n, in float64.

    They are in the thousands where c is, and only their differences between samples matter: float32 keeps them to 4e-4.
    All bandwidths take turns at a block of rows while it is in the cache.
    """
    n, num_classes = probs.shape
    log_betas = probs.new_empty((len(bandwidths), n), dtype=torch.float64)
    size = block_sizes.rows_in(block_sizes.CACHED_FLOAT64 if probs.is_cpu else block_sizes.DEVICE_MEMORY, num_classes)
    buffer = torch.empty_like(probs[:size])
    for start in range(0, n, size):
        block = probs[start : start + size]
        mass = block.sum(dim=1, dtype=torch.float64)
        for log_beta, bandwidth in zip(log_betas, bandwidths, strict=True):
            log_gammas = torch.div(block, bandwidth, out=buffer[: len(block)]).add_(1).lgamma_()
            total = torch.lgamma(mass / bandwidth + num_classes)
            torch.sub(log_gammas.sum(dim=1, dtype=torch.float64), total, out=log_beta[start : start + size])
    return log_betas


@torch.no_grad()
def likely_bandwidth(probs: Probs, extra_factor: bool = False) -> Tensor:
    """The candidate bandwidth under which the leave-one-out density of the batch is most likely; never waits.

    Args:
        probs: probabilities `n c` of a batch.
        extra_factor: divide the density by the bandwidth once more, as the original code of KDE-XE does.

    Returns:
        One of the candidates, a scalar.

    Example:
        >>> import torch
        >>> float(confide.penalties.likely_bandwidth(torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]])))
        1.0
    """
    candidates = _candidates(probs.device)
    if len(probs) < 2:
        return candidates[-1]
    with _full_precision(probs):
        product = probs @ probs.log().T
    return candidates.take(_most_likely(product, _log_betas(probs, BANDWIDTHS), extra_factor))


def _most_likely(product: Tensor, log_betas: Tensor, extra_factor: bool) -> Tensor:
    """Which candidate bandwidth is the most likely, from p_j log p_i (n n) and the normalising constants."""
    n, scores, buffer = len(product), [], torch.empty_like(product)
    for bandwidth, log_beta in zip(BANDWIDTHS, log_betas, strict=True):
        log_kernel = torch.div(product, bandwidth, out=buffer).sub_((log_beta - log_beta[0]).to(product.dtype)[:, None])
        likelihood = log_kernel.fill_diagonal_(-torch.inf).logsumexp(dim=0).sum(dtype=torch.float64) - n * log_beta[0]
        scores.append(likelihood - (n * math.log(bandwidth) if extra_factor else 0.0))
    return torch.stack(scores).nan_to_num(-torch.inf).argmax()


@functools.cache
def _candidates(device: torch.device) -> Tensor:
    # Kept: a copy to the device would wait, and could not be captured in a graph.
    return torch.tensor(BANDWIDTHS, dtype=torch.float64, device=device)


# Batch terms over the whole probability matrix, shared by losses and penalties: KDE-XE, MDCA.

PROBABILITY_CLAMP = 1e-9


def kde_calibration_error(logits: Logits, labels: Labels, bandwidth: float | None, power: float, form: str) -> Scalar:
    """Calibration error by Dirichlet kernels; the bandwidth chosen without gradient where none is given."""
    probs = torch.softmax(logits, dim=1, dtype=accumulator(logits.dtype)).clamp(
        PROBABILITY_CLAMP, 1 - PROBABILITY_CLAMP
    )
    if form == "released":
        probs = probs.detach()
    # A bad label has raised or set the device's flag already; an index out of range would end the process there.
    labels = labels.clamp(0, logits.shape[1] - 1)
    return dirichlet_calibration_error(probs, labels, bandwidth, power, extra_factor=form == "original")


def class_mean_gap(means: Tensor, labels: Labels) -> Scalar:
    """(1/c) sum_k |m_k - mean_i 1[y_i = k]| for mean probabilities m of the batch."""
    labels = labels.clamp(0, len(means) - 1)
    share = torch.zeros_like(means).index_add(0, labels, torch.full_like(labels, 1, dtype=means.dtype))
    return (means - share / max(len(labels), 1)).abs().mean()
