"""Class-wise expected calibration error."""

from __future__ import annotations

import numpy as np

from confide.core.door import check_choice, check_range
from confide.metrics.classwise import CLASSES, kept_classes
from confide.metrics.classwise_mass import EDGES, bins_of, bootstrap_draws, null_draws, permutation_draws
from confide.metrics.family import metric
from confide.metrics.view import View


@metric(
    "classwise_ece",
    paper="Nixon et al., 2019, arXiv:1904.01685; Kull et al., 2019, arXiv:1910.12656",
    better="lower",
    range=(0.0, 1.0),
    meaning="How far the probability of each class is from how often it is the label, averaged over all classes.",
    kind="calibration",
    corners=(
        {"bins": 1},
        {"bins": 100},
        {"binning": "mass"},
        {"closed": "left"},
        {"classes": "present"},
        {"classes": "to_largest"},
        {"binning": "mass", "edges": "order"},
    ),
    whole=True,
    null=null_draws,
    resample=bootstrap_draws,
    permute=permutation_draws,
)
def classwise_ece(
    view: View,
    *,
    bins: int = 15,
    binning: str = "width",
    closed: str = "right",
    classes: str = "all",
    edges: str = "rank",
) -> float:
    """Class-wise ECE, mean over all K classes of the binary ECE of p_k against 1[y = k].

    Args:
        bins: how many, for each class. Default: as for the expected calibration error.
        binning: `width`, or `mass` for equal counts by rank within each class.
        closed: the side on which an equal-width bin holds its edge.
        classes: those of the mean: `all`; only those `present` among the labels (the package CalibWeightedRisk);
            `to_largest` leaves out those above the largest label (Mukhoti et al., 2020).
        edges: of equal-mass bins: `rank`, or `order` for bins [low, high) between samples, which never part ties.
    """
    check_choice(classes, CLASSES, "classes")
    check_choice(edges, EDGES if binning == "mass" else ("rank",), "edges (they need equal-mass bins)")
    check_choice(binning, ("width", "mass"), "binning")
    check_choice(closed, ("right", "left"), "closed")
    check_range(bins, "bins", 1)
    predictions, kept = view.predictions, kept_classes(view.predictions, classes)
    size = len(predictions) * int(kept.sum())
    if binning == "width":
        table = predictions.class_table(bins, closed)
        return float(np.abs(table.confidence - table.hits)[kept].sum() / size)
    predictions.need_logits("class-wise calibration")
    probs, labels = predictions.probabilities(), predictions.labels
    total = 0.0
    for k in np.flatnonzero(kept).tolist():
        column = probs[:, k].double().cpu().numpy()
        residual = column - (labels == k).cpu().numpy()
        total += float(np.abs(np.bincount(bins_of(column, bins, edges), residual, minlength=bins)).sum())
    return total / size
