"""Calibration error by Dirichlet kernels, the penalty of KDE-XE."""

from __future__ import annotations

from confide.core.batch_terms import kde_calibration_error
from confide.core.shapes import Labels, Logits, Scalar
from confide.core.simplex import simplex_statistics
from confide.penalties.family import penalty


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
