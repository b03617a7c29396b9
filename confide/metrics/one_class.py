"""One class against the rest: precision, recall and F of a threshold, and the ranking of the class's own samples.

Of a record of labels (multilabel) the class is "the label holds"; of two classes it is class 1.
"""

from __future__ import annotations

from confide.checks import check_range
from confide.metrics.base import METRICS, metric
from confide.metrics.influence import Influence
from confide.metrics.ranking import auroc_influence, success_influence
from confide.metrics.view import View
from confide.types import Floats


def class_view(view: View, positive: int) -> View:
    """The view of a question of yes or no."""
    return View(view.base.of_class(positive), view.weights)


def confusion(view: View, positive: int, threshold: float) -> tuple[Floats, Floats]:
    """Of every sample whether its probability of the class lies above the threshold, and whether it is the label."""
    check_range(threshold, "threshold", 0.0, 1.0)
    own = view.base.of_class(positive)
    return (own.vector("sureness") > threshold).astype(float), own.vector("correct").astype(float)


def ratio(view: View, above: Floats, below: Floats) -> float:
    """Sum over sum; NaN where nothing is below."""
    if view.weights is not None:
        above, below = above * view.weights, below * view.weights
    total = float(below.sum())
    return float(above.sum()) / total if total > 0 else float("nan")


def ratio_influence(view: View, above: Floats, below: Floats) -> Influence:
    """psi of a ratio of sums: (a - R b) / mean b."""
    mean = ratio(view, below, below * 0 + 1)
    return Influence((above - ratio(view, above, below) * below) / mean)


def precision_parts(view: View, positive: int, threshold: float) -> tuple[Floats, Floats]:
    """Hits, and what is claimed."""
    claimed, holds = confusion(view, positive, threshold)
    return claimed * holds, claimed


def recall_parts(view: View, positive: int, threshold: float) -> tuple[Floats, Floats]:
    """Hits, and what holds."""
    claimed, holds = confusion(view, positive, threshold)
    return claimed * holds, holds


def f_parts(view: View, positive: int, threshold: float, beta: float) -> tuple[Floats, Floats]:
    """(1 + b^2) hits, and that with b^2 misses and the false alarms."""
    check_range(beta, "beta", 0.0, low_open=True)
    claimed, holds = confusion(view, positive, threshold)
    hits, square = claimed * holds, beta**2
    return (1 + square) * hits, square * holds + claimed


def precision_influence(view: View, *, positive: int = 1, threshold: float = 0.5) -> Influence:
    """psi of precision."""
    return ratio_influence(view, *precision_parts(view, positive, threshold))


def recall_influence(view: View, *, positive: int = 1, threshold: float = 0.5) -> Influence:
    """psi of recall."""
    return ratio_influence(view, *recall_parts(view, positive, threshold))


def f_influence(view: View, *, beta: float = 1.0, positive: int = 1, threshold: float = 0.5) -> Influence:
    """psi of F."""
    return ratio_influence(view, *f_parts(view, positive, threshold, beta))


@metric(
    "precision",
    paper="van Rijsbergen, 1979, Information Retrieval",
    title="Precision",
    meaning="Of the samples said to be of the class, the share that is.",
    kind="mean",
    better="higher",
    range=(0.0, 1.0),
    unit="%",
    tables={"labels": 1},
    corners=({"positive": 0}, {"threshold": 0.9}),
    rate=True,
    of_class=True,
    influence=precision_influence,
)
def precision(view: View, *, positive: int = 1, threshold: float = 0.5) -> float:
    """Precision, hits / claims; a class is claimed where its probability is above the threshold. NaN without claims.

    When: claims of a class cost something when false.
    When not: no threshold is fixed: take average_precision.

    Args:
        positive: the class.
        threshold: on its probability.

    Example:
        >>> predictions = confide.Predictions.from_probs([0.9, 0.8, 0.3, 0.2], [1, 0, 1, 0])
        >>> float(confide.metrics.precision(predictions))
        0.5
    """
    return ratio(view, *precision_parts(view, positive, threshold))


@metric(
    "recall",
    paper="van Rijsbergen, 1979, Information Retrieval",
    title="Recall",
    meaning="Of the samples of the class, the share that is said to be.",
    kind="mean",
    better="higher",
    range=(0.0, 1.0),
    unit="%",
    tables={"labels": 2},
    corners=({"positive": 0}, {"threshold": 0.9}),
    rate=True,
    of_class=True,
    influence=recall_influence,
)
def recall(view: View, *, positive: int = 1, threshold: float = 0.5) -> float:
    """Recall, hits / (samples of the class); a class is claimed where its probability is above the threshold.

    When: misses of a class cost something.
    When not: no threshold is fixed: take average_precision.

    Args:
        positive: the class.
        threshold: on its probability.

    Example:
        >>> predictions = confide.Predictions.from_probs([0.9, 0.8, 0.3, 0.2], [1, 0, 1, 1])
        >>> round(float(confide.metrics.recall(predictions)), 3)
        0.333
    """
    return ratio(view, *recall_parts(view, positive, threshold))


@metric(
    "f_beta",
    paper="van Rijsbergen, 1979, Information Retrieval",
    title="F",
    meaning="Precision and recall of the class in one number, their harmonic mean.",
    kind="mean",
    better="higher",
    range=(0.0, 1.0),
    unit="%",
    tables={"labels": 3, "groups": 4},
    corners=({"beta": 2.0}, {"positive": 0}, {"threshold": 0.9}),
    rate=True,
    of_class=True,
    influence=f_influence,
)
def f_beta(view: View, *, beta: float = 1.0, positive: int = 1, threshold: float = 0.5) -> float:
    """F, (1 + beta^2) hits / ((1 + beta^2) hits + beta^2 misses + false alarms).

    When: precision and recall of a class in one number.
    When not: both have a price: use decisions with costs.

    Args:
        beta: how many times recall counts as precision.
        positive: the class.
        threshold: on its probability.

    Example:
        >>> predictions = confide.Predictions.from_probs([0.9, 0.8, 0.3, 0.2], [1, 0, 1, 1])
        >>> round(float(confide.metrics.f_beta(predictions)), 3)
        0.4
    """
    return ratio(view, *f_parts(view, positive, threshold, beta))


def class_auroc_influence(view: View, *, positive: int = 1) -> Influence:
    """psi of the AUROC of a class."""
    return auroc_influence(class_view(view, positive)).of_samples()


@metric(
    "class_auroc",
    paper="Hanley & McNeil, 1982, doi:10.1148/radiology.143.1.7063747",
    title="AUROC of the class",
    meaning="Chance that a sample of the class gets a higher probability of it than another. 50 % is a coin.",
    kind="mean",
    better="higher",
    range=(0.0, 1.0),
    unit="%",
    tables={"labels": 4},
    corners=({"positive": 0},),
    rate=True,
    of_class=True,
    influence=class_auroc_influence,
)
def class_auroc(view: View, *, positive: int = 1) -> float:
    """AUROC of a class, P(p of a sample of it > p of another) + P(tie) / 2; NaN where all or none are of it.

    When: each class against the others, whatever the threshold.
    When not: the class is rare: take average_precision.

    Args:
        positive: the class.

    Example:
        >>> predictions = confide.Predictions.from_probs([0.9, 0.8, 0.3, 0.2], [1, 0, 1, 0])
        >>> float(confide.metrics.class_auroc(predictions))
        0.75
    """
    return float(METRICS.get("auroc").spec.value(class_view(view, positive)))


def average_precision_influence(view: View, *, positive: int = 1) -> Influence:
    """psi of the average precision of a class."""
    return success_influence(class_view(view, positive)).of_samples()


@metric(
    "average_precision",
    paper="Davis & Goadrich, 2006, doi:10.1145/1143844.1143874",
    title="Average precision",
    short="AP",
    meaning="Precision of the class, averaged over the thresholds at which its samples are found.",
    kind="mean",
    better="higher",
    range=(0.0, 1.0),
    unit="%",
    tables={"labels": 5, "groups": 5},
    corners=({"positive": 0},),
    rate=True,
    of_class=True,
    influence=average_precision_influence,
)
def average_precision(view: View, *, positive: int = 1) -> float:
    """Average precision of a class, sum over thresholds of precision x gain in recall (steps, no interpolation).

    When: a rare class must be found.
    When not: classes are even: class_auroc tells as much.

    Args:
        positive: the class.

    Example:
        >>> predictions = confide.Predictions.from_probs([0.9, 0.8, 0.3, 0.2], [1, 0, 1, 0])
        >>> round(float(confide.metrics.average_precision(predictions)), 3)
        0.833
    """
    return float(METRICS.get("aupr_success").spec.value(class_view(view, positive)))
