"""Penalties: functions of (logits, labels) that return one scalar for the batch, to be added to any loss."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from confide.checks import InputError, tensor_with_graph
from confide.numerics.kernels import (
    class_mean_gap,
    kde_calibration_error,
    mmce_of,
    mmce_weighted_of,
)
from confide.registry import Method, OptionSpec, Registry
from confide.simplex.statistics import log_p_and_class_means, simplex_statistics
from confide.types import Labels, Logits, Scalar

# The family of penalties: (logits, labels) -> scalar, terms over a whole batch that are added to a loss.

PENALTIES = Registry("penalty", OptionSpec)
Penalty = Callable[..., Scalar]
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def penalty(
    word: str,
    *,
    paper: str,
    corners: tuple[Mapping[str, Any], ...] = (),
    ranges: Mapping[str, tuple[float, float]] | None = None,
    choices: Mapping[str, tuple[Any, ...]] | None = None,
) -> Callable[[Penalty], Penalty]:
    """Register a penalty and put the family's door before it."""

    def register(function: Penalty) -> Penalty:
        PENALTIES.add(word, paper=paper, corners=corners, ranges=ranges or {}, choices=choices or {})(function)
        return _with_checks(PENALTIES.get(word))

    return register


def names() -> tuple[str, ...]:
    """All words of the family."""
    return PENALTIES.names()


def _with_checks(method: Method[OptionSpec]) -> Penalty:
    @functools.wraps(method.function)
    def checked(logits: Logits, labels: Labels, *positional: Any, **options: Any) -> Scalar:
        options = method.checked(method.named(positional, options) if positional else options)
        value: Tensor = method.function(*_check_batch(logits, labels), **options)
        return value

    return checked


def _check_batch(logits: Any, labels: Any) -> tuple[Tensor, Tensor]:
    logits, labels = tensor_with_graph(logits, "logits"), tensor_with_graph(labels, "labels")
    if logits.ndim != 2 or logits.shape[1] < 2 or logits.dtype not in DTYPES:
        raise InputError(
            f"logits must be floating point of 16, 32 or 64 bits, n x c with at least two classes, got {logits.dtype} "
            f"of shape {tuple(logits.shape)}; pass the model's raw outputs"
        )
    if labels.shape != logits.shape[:1] or labels.is_floating_point() or labels.dtype == torch.bool:
        raise InputError(
            f"labels must be {len(logits)} integer class indices, one per row of logits, got {labels.dtype} of shape "
            f"{tuple(labels.shape)}; penalties take no soft labels"
        )
    if labels.device != logits.device:
        raise InputError(f"labels must be on the device of the logits, {logits.device}, got {labels.device}; move them")
    return logits, labels.to(torch.int64)


@penalty(
    "mmce",
    paper="Kumar et al., 2018, Trainable Calibration Measures, ICML",
    corners=({"kernel_width": 0.01}, {"sqrt": True}),
    ranges={"kernel_width": (1e-4, 1e6)},
)
def mmce(logits: Logits, labels: Labels, *, kernel_width: float = 0.4, sqrt: bool = False) -> Scalar:
    """MMCE, (1/n^2) sum_ij (o_i - c_i)(o_j - c_j) exp(-|c_i - c_j| / width), exact in O(n log n).

    Args:
        kernel_width: the Laplacian's width. Default: the paper's 0.4.
        sqrt: take the root of the definition; off in the released code, since the root has an infinite slope at 0.
    """
    statistics = simplex_statistics(logits, labels, "p_max prediction")
    correct = (statistics.prediction == labels).to(statistics.p_max.dtype)
    return mmce_of(statistics.p_max, correct, kernel_width, sqrt)


@penalty(
    "mmce_weighted",
    paper="Kumar et al., 2018, Trainable Calibration Measures, ICML",
    corners=({"kernel_width": 0.01}, {"form": "released"}),
    ranges={"kernel_width": (1e-4, 1e6)},
    choices={"form": ("paper", "released")},
)
def mmce_weighted(logits: Logits, labels: Labels, *, kernel_width: float = 0.4, form: str = "paper") -> Scalar:
    """Weighted MMCE, sqrt(A/m^2 + B/m'^2 - 2D/(m m') + 1e-10) over correct and wrong samples; 0 if one kind is absent.

    Args:
        kernel_width: the Laplacian's width. Default: the paper's 0.4.
        form: `released` divides every term by its number of pairs twice, as the public code does: far smaller, and
            the smaller the larger the batch. A weight tuned for one form means nothing for the other.
    """
    statistics = simplex_statistics(logits, labels, "p_max prediction")
    correct = (statistics.prediction == labels).to(statistics.p_max.dtype)
    return mmce_weighted_of(statistics.p_max, correct, kernel_width, form)


@penalty(
    "kde_xe",
    paper="Popordanoska et al., 2022, arXiv:2210.07810",
    corners=({"bandwidth": 0.02}, {"bandwidth": 1.0}, {"power": 2.0}, {"form": "released"}),
    ranges={"bandwidth": (1e-6, 1e3), "power": (1.0, 10.0)},
    choices={"form": ("paper", "original", "released")},
)
def kde_xe(
    logits: Logits, labels: Labels, *, bandwidth: float | None = None, power: float = 1.0, form: str = "paper"
) -> Scalar:
    """Canonical calibration error, mean_i sum_k |E[y|p_i]_k - p_ik|^power, E by leave-one-out Dirichlet kernels.

    Args:
        bandwidth: of the kernels; chosen for each batch by leave-one-out likelihood where none is given.
        power: of the gap; no root is taken. Default: the paper's 1.
        form: `original` divides the likelihood by the bandwidth once more when choosing it, as the authors' code does;
            `released` gives no gradient, as one public reimplementation does.
    """
    simplex_statistics(logits.detach(), labels, "log_sum_exp")
    return kde_calibration_error(logits, labels, bandwidth, power, form)


@penalty("mdca", paper="Hebbalaguppe et al., 2022, A Stitch in Time Saves Nine, arXiv:2203.13834")
def mdca(logits: Logits, labels: Labels) -> Scalar:
    """MDCA, (1/c) sum_k |mean_i p_ik - mean_i 1[y_i = k]| over the batch."""
    return class_mean_gap(log_p_and_class_means(logits, labels)[1], labels)


@penalty(
    "mbls",
    paper="Liu et al., 2022, The Devil is in the Margin, arXiv:2111.15430",
    corners=({"margin": 0.0}, {"margin": 2.0}),
    ranges={"margin": (0.0, 1e6)},
)
def mbls(logits: Logits, labels: Labels, *, margin: float = 10.0) -> Scalar:
    """Margin penalty, mean over samples and classes of max(0, max_j z_j - z_k - margin).

    Args:
        margin: how far below the largest a logit may lie for free. Default: released code.
    """
    excess = simplex_statistics(logits, labels, "excess", margin=margin).excess
    return excess.mean() if len(excess) else excess.sum()
