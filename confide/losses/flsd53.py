"""Sample-dependent focal loss FLSD-53."""

import torch

from confide.core.shapes import Labels, Logits, PerSample
from confide.core.simplex import fused, simplex_statistics
from confide.losses.family import loss
from confide.losses.focal import focal_of

THRESHOLD, GAMMA_BELOW, GAMMA_ABOVE = 0.2, 5.0, 3.0


@loss("flsd53", paper="Mukhoti et al., 2020, arXiv:2002.09437")
def flsd53(logits: Logits, labels: Labels) -> PerSample:
    """Focal loss with gamma 5 where p_y < 0.2 and 3 elsewhere; the choice of gamma has no gradient."""
    whole = fused(logits, labels, "flsd53")
    if whole is not None:
        return whole
    statistics = simplex_statistics(logits, labels, "log_p_true p_true")
    # The softmax itself: in float32 the exponential of its logarithm makes a fifth a little less than one.
    log_p, below = statistics.log_p_true, statistics.p_true.detach() < THRESHOLD
    return focal_of(log_p, torch.where(below, GAMMA_BELOW, GAMMA_ABOVE).to(log_p.dtype))
