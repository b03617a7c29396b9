"""KDE-XE: cross-entropy with a calibration error by Dirichlet kernels."""

from __future__ import annotations

from confide.core.batch_terms import kde_calibration_error
from confide.core.shapes import Labels, Logits, PerSample
from confide.core.simplex import simplex_statistics
from confide.losses.family import loss


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

    Args:
        weight: of the penalty. Default: CIFAR-10 of Zhou et al., 2025; CIFAR-100 there: 0.5.
        bandwidth: of the kernels; chosen for each batch by leave-one-out likelihood where none is given. Those chosen
            are small, some 0.001 to 0.007, and the penalty's gradient grows with their inverse: networks trained here
            from scratch did not learn so. 0.1 is safe.
        power: of the gap; no root is taken. Default: the paper's 1.
        form: `original` divides the likelihood by the bandwidth once more when choosing it, as the authors' code does;
            `released` gives the penalty no gradient, as one public reimplementation does.
    """
    log_p = simplex_statistics(logits, labels, "log_p_true").log_p_true
    return -log_p + weight * kde_calibration_error(logits, labels, bandwidth, power, form)
