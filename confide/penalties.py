"""Penalties: functions of (logits, labels) that return one scalar for the batch, to be added to any loss.

The loss of the same word in `confide.losses` is cross-entropy plus a weight times the penalty: paper, options and their
limits are taken from there.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor

from confide.losses.base import LOSSES, check_batch, shared_help
from confide.numerics.kernels import (
    BANDWIDTHS,
    class_mean_gap,
    kde_calibration_error,
    likely_bandwidth,
    mmce_of,
    mmce_weighted_of,
)
from confide.registry import Method, OptionSpec, Registry
from confide.simplex.statistics import log_p_and_class_means, simplex_statistics
from confide.types import Labels, Logits, Scalar

__all__ = ["BANDWIDTHS", "PENALTIES", "kde_xe", "likely_bandwidth", "mbls", "mdca", "mmce", "mmce_weighted", "names"]

PENALTIES = Registry("penalty", OptionSpec)
PenaltyFunction = Callable[..., Scalar]


def names() -> tuple[str, ...]:
    """All words of the family, sorted.

    Returns:
        Words of `confide list penalties`.

    Example:
        >>> confide.penalties.names()
        ('kde_xe', 'mbls', 'mdca', 'mmce', 'mmce_weighted')
    """
    return PENALTIES.names()


def penalty(function: PenaltyFunction) -> PenaltyFunction:
    """Register a penalty under its name, with what the loss of that name says of its options, and check its batches."""
    word = function.__name__
    loss = LOSSES.get(word)
    own = inspect.signature(function).parameters
    PENALTIES.add(
        word,
        paper=loss.paper,
        corners=tuple(corner for corner in loss.corners if corner.keys() <= own.keys()),
        ranges={name: limits for name, limits in loss.spec.ranges.items() if name in own},
        choices={name: words for name, words in loss.spec.choices.items() if name in own},
    )(function)
    return _with_checks(PENALTIES.get(word))


def _with_checks(method: Method[OptionSpec]) -> PenaltyFunction:
    @functools.wraps(method.function)
    def checked(logits: Logits, labels: Labels, *positional: Any, **options: Any) -> Scalar:
        options = method.checked(method.named(positional, options) if positional else options)
        value: Tensor = method.function(*check_batch(method, logits, labels, soft=False), **options)
        return value

    checked.__doc__ = shared_help(
        inspect.getdoc(method.function) or "",
        before="logits: n x c, the model's raw outputs.\nlabels: n class indices.",
        returns="One number for the batch, with its gradient.",
    )
    return checked


@penalty
def mmce(logits: Logits, labels: Labels, *, kernel_width: float = 0.4, sqrt: bool = False) -> Scalar:
    """MMCE, (1/n^2) sum_ij (o_i - c_i)(o_j - c_j) exp(-|c_i - c_j| / width), exact in O(n log n).

    When: a calibration term shall stand beside another loss and batches are large.
    When not: batches are small.

    Args:
        kernel_width: the Laplacian's width. Default: the paper's 0.4.
        sqrt: take the root of the definition; off in the released code, since the root has an infinite slope at 0.

    Example:
        >>> confide.penalties.mmce([[2.0, 0.0], [0.0, 1.0]], [0, 0])
        tensor(0.1072)
    """
    statistics = simplex_statistics(logits, labels, "p_max prediction")
    correct = (statistics.prediction == labels).to(statistics.p_max.dtype)
    return mmce_of(statistics.p_max, correct, kernel_width, sqrt)


@penalty
def mmce_weighted(logits: Logits, labels: Labels, *, kernel_width: float = 0.4, form: str = "paper") -> Scalar:
    """Weighted MMCE, sqrt(A/m^2 + B/m'^2 - 2D/(m m') + 1e-10) over correct and wrong samples; 0 if one kind is absent.

    When: as mmce, where right and wrong samples are far from even.
    When not: nearly no sample is wrong: it is 0 then.

    Differs from the released code: normalised once (see the errata).

    Args:
        kernel_width: the Laplacian's width. Default: the paper's 0.4.
        form: `released` divides every term by its number of pairs twice, as the public code does: far smaller, and
            the smaller the larger the batch. A weight tuned for one form means nothing for the other.

    Example:
        >>> confide.penalties.mmce_weighted([[2.0, 0.0], [0.0, 1.0]], [0, 0])
        tensor(0.6548)
    """
    statistics = simplex_statistics(logits, labels, "p_max prediction")
    correct = (statistics.prediction == labels).to(statistics.p_max.dtype)
    return mmce_weighted_of(statistics.p_max, correct, kernel_width, form)


@penalty
def kde_xe(
    logits: Logits, labels: Labels, *, bandwidth: float | None = None, power: float = 1.0, form: str = "paper"
) -> Scalar:
    """Canonical calibration error, mean_i sum_k |E[y|p_i]_k - p_ik|^power, E by leave-one-out Dirichlet kernels.

    When: the whole vector of probabilities shall be calibrated and another loss is already in use.
    When not: there are many classes or small batches.

    Differs from the released code: it has a gradient (see the errata).

    Args:
        bandwidth: of the kernels; chosen for each batch by leave-one-out likelihood where none is given.
        power: of the gap; no root is taken. Default: the paper's 1.
        form: `original` divides the likelihood by the bandwidth once more when choosing it, as the authors' code does;
            `released` gives no gradient, as one public reimplementation does.

    Example:
        >>> confide.penalties.kde_xe([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [0, 0, 0], bandwidth=0.1)
        tensor(0.7461)
    """
    simplex_statistics(logits.detach(), labels, "log_sum_exp")
    return kde_calibration_error(logits, labels, bandwidth, power, form)


@penalty
def mdca(logits: Logits, labels: Labels) -> Scalar:
    """MDCA, (1/c) sum_k |mean_i p_ik - mean_i 1[y_i = k]| over the batch.

    When: each class's mean probability must be right, beside another loss.
    When not: batches hold fewer samples than there are classes.

    Example:
        >>> confide.penalties.mdca([[2.0, 0.0], [0.0, 1.0]], [0, 0])
        tensor(0.4251)
    """
    return class_mean_gap(log_p_and_class_means(logits, labels)[1], labels)


@penalty
def mbls(logits: Logits, labels: Labels, *, margin: float = 10.0) -> Scalar:
    """Margin penalty, mean over samples and classes of max(0, max_j z_j - z_k - margin).

    When: logit distances shall stay within a margin beside another loss.
    When not: the margin cannot be tuned.

    Args:
        margin: how far below the largest a logit may lie for free. Default: released code.

    Example:
        >>> confide.penalties.mbls([[2.0, 0.0], [0.0, 1.0]], [0, 0], margin=1.0)
        tensor(0.2500)
    """
    excess = simplex_statistics(logits, labels, "excess", margin=margin).excess
    return excess.mean() if len(excess) else excess.sum()
