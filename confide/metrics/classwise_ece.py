"""Class-wise expected calibration error."""

from __future__ import annotations

import numpy as np

from confide.core.binning import mass_starts
from confide.core.door import check_choice, check_range
from confide.metrics.classwise_mass import bootstrap_draws, null_draws, permutation_draws
from confide.metrics.family import metric
from confide.metrics.view import View


@metric(
    "classwise_ece",
    paper="Nixon et al., 2019, arXiv:1904.01685; Kull et al., 2019, arXiv:1910.12656",
    better="lower",
    range=(0.0, 1.0),
    meaning="How far the probability of each class is from how often it is the label, averaged over all classes.",
    kind="calibration",
    corners=({"bins": 1}, {"bins": 100}, {"binning": "mass"}, {"closed": "left"}),
    whole=True,
    null=null_draws,
    resample=bootstrap_draws,
    permute=permutation_draws,
)
def classwise_ece(view: View, *, bins: int = 15, binning: str = "width", closed: str = "right") -> float:
    """Class-wise ECE, mean over all K classes of the binary ECE of p_k against 1[y = k].

    Args:
        bins: how many, for each class. Default: as for the expected calibration error.
        binning: `width`, or `mass` for equal counts by rank within each class.
        closed: the side on which an equal-width bin holds its edge.
    """
    check_choice(binning, ("width", "mass"), "binning")
    check_choice(closed, ("right", "left"), "closed")
    check_range(bins, "bins", 1)
    predictions = view.predictions
    if binning == "width":
        table = predictions.class_table(bins, closed)
        return float(np.abs(table.confidence - table.hits).sum() / (len(predictions) * len(table.hits)))
    predictions.need_logits("class-wise calibration")
    probs, labels = predictions.probabilities(), predictions.labels
    starts = mass_starts(len(predictions), bins)
    inner = starts[:-1][starts[:-1] < starts[1:]]
    total = 0.0
    for k in range(predictions.num_classes):
        column = probs[:, k].double().cpu().numpy()
        residual = column - (labels == k).cpu().numpy()
        total += float(np.abs(np.add.reduceat(residual[np.argsort(column, kind="stable")], inner)).sum())
    return total / (len(predictions) * predictions.num_classes)
