"""Cross-entropy plus a calibration term over the whole batch: MMCE, weighted MMCE, KDE-XE, MDCA; the terms alone are
`confide.penalties`.
"""

from __future__ import annotations

from confide.losses.base import loss
from confide.numerics.kernels import class_mean_gap, kde_calibration_error, mmce_of, mmce_weighted_of
from confide.simplex.statistics import log_p_and_class_means, simplex_statistics
from confide.types import Labels, Logits, PerSample


@loss(
    "mmce",
    paper="Kumar et al., 2018, Trainable Calibration Measures, ICML",
    corners=({"weight": 0.0}, {"kernel_width": 0.01}, {"sqrt": True}),
    ranges={"weight": (0.0, 1e6), "kernel_width": (1e-4, 1e6)},
    batch=True,
)
def mmce(
    logits: Logits, labels: Labels, *, weight: float = 2.0, kernel_width: float = 0.4, sqrt: bool = False
) -> PerSample:
    """Cross-entropy plus weight times the batch's MMCE, -log p_y + w MMCE; the penalty alone is `penalties.mmce`.

    When: calibration shall enter the training itself and batches are large.
    When not: batches are small: its estimate is then mostly noise.

    Args:
        weight: w, of the penalty.
        kernel_width: the Laplacian's width. Default: the paper's 0.4.
        sqrt: take the root of the definition; off in the released code, since the root has an infinite slope at 0.

    Example:
        >>> confide.losses.mmce([[2.0, 0.0], [0.0, 1.0]], [0, 0])
        tensor([0.3413, 1.5277])
    """
    statistics = simplex_statistics(logits, labels, "log_p_true p_max prediction")
    correct = (statistics.prediction == labels).to(statistics.p_max.dtype)
    return -statistics.log_p_true + weight * mmce_of(statistics.p_max, correct, kernel_width, sqrt)


@loss(
    "mmce_weighted",
    paper="Kumar et al., 2018, Trainable Calibration Measures, ICML",
    corners=({"weight": 0.0}, {"kernel_width": 0.01}, {"form": "released"}),
    ranges={"weight": (0.0, 1e6), "kernel_width": (1e-4, 1e6)},
    choices={"form": ("paper", "released")},
    batch=True,
)
def mmce_weighted(
    logits: Logits, labels: Labels, *, weight: float = 2.0, kernel_width: float = 0.4, form: str = "paper"
) -> PerSample:
    """Cross-entropy plus weight times weighted MMCE, -log p_y + w MMCE_w; `penalties.mmce_weighted` is the penalty.

    When: as mmce, where nearly all training samples are right.
    When not: accuracy counts: without the released code's second normalisation it cost 14 points on CIFAR-10.

    Differs from the released code: normalised once; `form="released"` is theirs (see the errata).

    Args:
        weight: w, of the penalty. Default: the tables of Mukhoti et al., 2020, made with the released form.
        kernel_width: the Laplacian's width. Default: the paper's 0.4.
        form: `released` divides every term by its number of pairs twice, as the public code does; do not carry a
            weight over from one form to the other.

    Example:
        >>> confide.losses.mmce_weighted([[2.0, 0.0], [0.0, 1.0]], [0, 0])
        tensor([1.4366, 2.6229])
    """
    statistics = simplex_statistics(logits, labels, "log_p_true p_max prediction")
    correct = (statistics.prediction == labels).to(statistics.p_max.dtype)
    return -statistics.log_p_true + weight * mmce_weighted_of(statistics.p_max, correct, kernel_width, form)


@loss(
    "kde_xe",
    paper="Popordanoska et al., 2022, arXiv:2210.07810",
    corners=({"bandwidth": 0.02}, {"bandwidth": 1.0}, {"power": 2.0}, {"form": "released"}, {"weight": 0.0}),
    ranges={"weight": (0.0, 1e6), "bandwidth": (1e-6, 1e3), "power": (1.0, 10.0)},
    choices={"form": ("paper", "original", "released")},
    batch=True,
)
def kde_xe(
    logits: Logits,
    labels: Labels,
    *,
    weight: float = 0.3,
    bandwidth: float | None = None,
    power: float = 1.0,
    form: str = "paper",
) -> PerSample:
    """Cross-entropy plus weight times the Dirichlet-kernel calibration error; the penalty alone is `penalties.kde_xe`.

    When: all class probabilities of a small problem must be calibrated, and batches are large.
    When not: there are many classes: its kernels take n x n x c steps a batch.

    Differs from the released code: the penalty has a gradient (see the errata).

    Args:
        weight: of the penalty. Default: CIFAR-10 of Zhou et al., 2025; CIFAR-100 there: 0.5.
        bandwidth: of the kernels; chosen for each batch by leave-one-out likelihood where none is given. Those chosen
            are small, some 0.001 to 0.007, and the penalty's gradient grows with their inverse: networks trained here
            from scratch did not learn so. 0.1 is safe.
        power: of the gap; no root is taken. Default: the paper's 1.
        form: `original` divides the likelihood by the bandwidth once more when choosing it, as the authors' code does;
            `released` gives the penalty no gradient, as one public reimplementation does.

    Example:
        >>> confide.losses.kde_xe([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [0, 0, 0], bandwidth=0.1)
        tensor([0.3508, 1.5371, 0.5371])
    """
    log_p = simplex_statistics(logits, labels, "log_p_true").log_p_true
    return -log_p + weight * kde_calibration_error(logits, labels, bandwidth, power, form)


@loss(
    "mdca",
    paper="Hebbalaguppe et al., 2022, A Stitch in Time Saves Nine, arXiv:2203.13834",
    corners=({"weight": 0.0}, {"weight": 10.0}),
    ranges={"weight": (0.0, 1e6)},
    batch=True,
)
def mdca(logits: Logits, labels: Labels, *, weight: float = 1.0) -> PerSample:
    """Cross-entropy plus weight times MDCA, -log p_y + (w/c) sum_k |mean_i p_ik - mean_i 1[y_i = k]|.

    When: classes are many or unequal and each one's mean probability must be right.
    When not: batches hold fewer samples than there are classes.

    Args:
        weight: of the penalty. Default: released code.

    Example:
        >>> confide.losses.mdca([[2.0, 0.0], [0.0, 1.0]], [0, 0])
        tensor([0.5521, 1.7384])
    """
    log_p, means = log_p_and_class_means(logits, labels)
    return -log_p + weight * class_mean_gap(means, labels)
