"""Cross-entropy, Brier, and cross-entropy with one more term per sample: Poly-1, label smoothing, margin-based label
smoothing, logit norm.
"""

from confide.losses.base import loss
from confide.simplex.reference import LossValues
from confide.simplex.statistics import fused, simplex_statistics, small_cross_entropy
from confide.types import Labels, Logits


@loss("cross_entropy", paper="Good, 1952, Rational Decisions", soft=True, quick_mean=small_cross_entropy)
def cross_entropy(logits: Logits, labels: Labels) -> LossValues:
    """Cross-entropy, -log p_y; with soft labels -sum_k q_k log p_k.

    When: always first; with averaged weights and a temperature behind it hard to beat.
    When not: no calibrator may follow and the network is over-confident.

    Example:
        >>> confide.losses.cross_entropy([[2.0, 0.0], [0.0, 1.0]], [0, 0])
        tensor([0.1269, 1.3133])
    """
    if (whole := fused(logits, labels, "cross_entropy")) is not None:
        return whole
    return -simplex_statistics(logits, labels, "log_p_true").log_p_true


@loss("brier", paper="Brier, 1950, Verification of Forecasts Expressed in Terms of Probability", soft=True)
def brier(logits: Logits, labels: Labels) -> LossValues:
    """Brier, sum_k (p_k - 1[k = y])^2; with soft labels sum_k (p_k - q_k)^2.

    When: labels are noisy or soft and a bounded loss is wanted.
    When not: training is short: it learns more slowly than cross-entropy.

    Example:
        >>> confide.losses.brier([[2.0, 0.0], [0.0, 1.0]], [0, 0])
        tensor([0.0284, 1.0689])
    """
    if (whole := fused(logits, labels, "brier")) is not None:
        return whole
    statistics = simplex_statistics(logits, labels, "p_true sum_squares")
    square_of_labels = labels.to(statistics.p_true.dtype).square().sum(dim=1) if labels.ndim == 2 else 1.0
    return statistics.sum_squares - 2 * statistics.p_true + square_of_labels


@loss(
    "poly1",
    paper="Leng et al., 2022, arXiv:2204.12511",
    corners=({"epsilon": 0.0}, {"epsilon": -1.0}, {"epsilon": 6.0}),
    ranges={"epsilon": (-1.0, 1e6)},
    soft=True,
)
def poly1(logits: Logits, labels: Labels, *, epsilon: float = 1.0) -> LossValues:
    """Poly-1, -log p_y + epsilon (1 - p_y); soft labels enter p_y too, p_t = sum_k q_k p_k.

    When: cross-entropy is tuned by one more number.
    When not: calibration without a calibrator: on CIFAR-10 the ECE rose.

    Args:
        epsilon: how much the first Taylor term is changed; 0 is cross-entropy. Default: the common port; the paper
            recommends 2 for ImageNet.

    Example:
        >>> confide.losses.poly1([[2.0, 0.0], [0.0, 1.0]], [0, 0], epsilon=2.0)
        tensor([0.3653, 2.7754])
    """
    if (whole := fused(logits, labels, "poly", b=epsilon)) is not None:
        return whole
    if labels.ndim == 2:
        statistics = simplex_statistics(logits, labels, "log_p_true p_true")
        return -statistics.log_p_true + epsilon * (1 - statistics.p_true)
    log_p = simplex_statistics(logits, labels, "log_p_true").log_p_true
    return -log_p - epsilon * log_p.expm1()


@loss(
    "label_smoothing",
    paper="Szegedy et al., 2016, arXiv:1512.00567",
    corners=({"smoothing": 0.0}, {"smoothing": 1.0}),
    ranges={"smoothing": (0.0, 1.0)},
    soft=True,
)
def label_smoothing(logits: Logits, labels: Labels, *, smoothing: float = 0.05) -> LossValues:
    """Cross-entropy against (1 - e) onehot + e / c, that is -(1 - e) log p_y - e mean_k log p_k.

    When: accuracy gains from it and confidences are not ranked.
    When not: errors are to be found by confidence: on CIFAR-10 the AURC rose by a third.

    Args:
        smoothing: e, the mass spread over all classes, the true one included; 0 is cross-entropy. Default: CIFAR-10
            of Wang et al., 2021; CIFAR-100 there: 0.09.

    Example:
        >>> confide.losses.label_smoothing([[2.0, 0.0], [0.0, 1.0]], [0, 0], smoothing=0.1)
        tensor([0.2269, 1.2633])
    """
    if (whole := fused(logits, labels, "mean_log_p", a=1 - smoothing, b=-smoothing)) is not None:
        return whole
    statistics = simplex_statistics(logits, labels, "log_p_true mean_log_p")
    return -(1 - smoothing) * statistics.log_p_true - smoothing * statistics.mean_log_p


@loss(
    "mbls",
    paper="Liu et al., 2022, The Devil is in the Margin, arXiv:2111.15430",
    corners=({"alpha": 0.0}, {"margin": 0.0}, {"margin": 2.0}),
    ranges={"alpha": (0.0, 1e6), "margin": (0.0, 1e6)},
    soft=True,
)
def mbls(logits: Logits, labels: Labels, *, alpha: float = 0.1, margin: float = 10.0) -> LossValues:
    """Margin-based label smoothing, -log p_y + alpha mean_k max(0, max_j z_j - z_k - margin).

    When: smoothing helps, but logits within a margin shall keep their order.
    When not: there is no time to tune the margin.

    Args:
        alpha: how much distances beyond the margin cost. Default: released code.
        margin: how far below the largest a logit may lie for free. Default: released code.

    Example:
        >>> confide.losses.mbls([[2.0, 0.0], [0.0, 1.0]], [0, 0], margin=1.0)
        tensor([0.1769, 1.3133])
    """
    if (whole := fused(logits, labels, "excess", b=alpha, margin=margin)) is not None:
        return whole
    statistics = simplex_statistics(logits, labels, "log_p_true excess", margin=margin)
    return -statistics.log_p_true + alpha * statistics.excess


@loss(
    "logit_norm",
    paper="Wang et al., 2021, Rethinking Calibration of Deep Neural Networks, NeurIPS",
    corners=({"alpha": 0.0}, {"p": 2.0}, {"p": 3.0}),
    ranges={"alpha": (0.0, 1e6), "p": (1.0, 100.0)},
    soft=True,
)
def logit_norm(logits: Logits, labels: Labels, *, alpha: float = 0.05, p: float = 1.0) -> LossValues:
    """Cross-entropy plus alpha times the norm of the logits, -log p_y + alpha ||z||_p, summed over classes, no power.

    When: logits grow without bound in long trainings.
    When not: errors are to be found by confidence: on CIFAR-10 the AURC rose by nearly half.

    Args:
        alpha: how much large logits cost; 0 is cross-entropy. Default: CIFAR-10 of the paper; CIFAR-100 there: 0.01.
        p: order of the norm. Default: the paper's L1.

    Example:
        >>> confide.losses.logit_norm([[2.0, 0.0], [0.0, 1.0]], [0, 0], alpha=0.1)
        tensor([0.3269, 1.4133])
    """
    whole = fused(logits, labels, "norm", b=alpha, order=int(p)) if p in (1, 2) else None
    if whole is not None:
        return whole
    statistics = simplex_statistics(logits, labels, "log_p_true norm", order=p)
    return -statistics.log_p_true + alpha * statistics.norm
