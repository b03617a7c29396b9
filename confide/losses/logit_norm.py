"""Cross-entropy with a norm of the logits."""

from confide.core.shapes import Labels, Logits, PerSample
from confide.core.simplex import fused, simplex_statistics
from confide.losses.family import loss


@loss(
    "logit_norm",
    paper="Wang et al., 2021, Rethinking Calibration of Deep Neural Networks, NeurIPS",
    corners=({"alpha": 0.0}, {"p": 2.0}, {"p": 3.0}),
    ranges={"alpha": (0.0, 1e6), "p": (1.0, 100.0)},
    soft=True,
)
def logit_norm(logits: Logits, labels: Labels, *, alpha: float = 0.05, p: float = 1.0) -> PerSample:
    """Cross-entropy plus alpha times the norm of the logits, -log p_y + alpha ||z||_p, summed over classes, no power.

    Args:
        alpha: how much large logits cost; 0 is cross-entropy. Default: CIFAR-10 of the paper; CIFAR-100 there: 0.01.
        p: order of the norm. Default: the paper's L1.
    """
    whole = fused(logits, labels, "norm", b=alpha, order=int(p)) if p in (1, 2) else None
    if whole is not None:
        return whole
    statistics = simplex_statistics(logits, labels, "log_p_true norm", order=p)
    return -statistics.log_p_true + alpha * statistics.norm
