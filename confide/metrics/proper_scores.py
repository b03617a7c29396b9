"""Means over samples: accuracy, the proper scores NLL and Brier of classes and of the confidence alone, and
confidence minus accuracy.
"""

from __future__ import annotations

from confide.checks import check_choice
from confide.metrics.base import metric
from confide.metrics.influence import Influence, PartedInfluence
from confide.metrics.view import View


def mean_influence(view: View, name: str, scale: float = 1.0) -> Influence:
    """psi of a mean: how far each sample lies from it."""
    values, mean = view.base.vector(name), view.mean(name)
    return PartedInfluence.of(lambda part: (values[part] - mean) * scale, view.base.n)


def accuracy_influence(view: View) -> Influence:
    """psi of accuracy."""
    return mean_influence(view, "correct")


def nll_influence(view: View) -> Influence:
    """psi of NLL."""
    return mean_influence(view, "nll")


def brier_influence(view: View, *, over: str = "sum") -> Influence:
    """psi of the Brier score."""
    return mean_influence(view, "brier", 1.0 if over == "sum" else 1 / view.predictions.num_classes)


def gap_influence(view: View) -> Influence:
    """psi of confidence minus accuracy."""
    base, mean = view.base, view.mean("sureness") - view.mean("correct")
    return PartedInfluence.of(lambda part: base.sureness(part) - base.vector("correct")[part] - mean, base.n)


@metric(
    "accuracy",
    paper="folklore",
    title="Accuracy",
    meaning="The share of samples whose most probable class is the label.",
    kind="mean",
    better="higher",
    range=(0.0, 1.0),
    unit="%",
    tables={"core": 1, "models": 1, "headline": 1, "summary": 1, "calibrated": 1, "shift": 1, "groups": 1},
    rate=True,
    influence=accuracy_influence,
)
def accuracy(view: View) -> float:
    """Accuracy, mean of 1[prediction = label]; of equal logits the lowest class is the prediction.

    When: always: every other figure is read beside it.
    When not: classes differ in size by tens: look at recall by class as well.

    Example:
        >>> predictions = confide.Predictions.from_probs([[0.9, 0.1], [0.4, 0.6], [0.8, 0.2]], [0, 1, 1])
        >>> round(float(confide.metrics.accuracy(predictions)), 3)
        0.667
    """
    return view.mean("correct")


@metric(
    "nll",
    paper="Good, 1952, doi:10.1111/j.2517-6161.1952.tb00104.x",
    title="NLL",
    meaning="Average surprise at the true label. A proper score: nothing but better probabilities improves it.",
    kind="mean",
    better="lower",
    range=(0.0, float("inf")),
    unit="nats",
    tables={"core": 3, "models": 2, "headline": 2, "summary": 2, "calibrated": 2, "shift": 4},
    all_classes=True,
    influence=nll_influence,
)
def nll(view: View) -> float:
    """Negative log-likelihood, mean of -log p_y; probabilities given are clipped at 1e-12.

    When: one proper number for probabilities; what calibrators minimise.
    When not: single impossible events may occur: one 0 dominates it.

    Example:
        >>> predictions = confide.Predictions.from_probs([[0.9, 0.1], [0.4, 0.6], [0.8, 0.2]], [0, 1, 1])
        >>> round(float(confide.metrics.nll(predictions)), 3)
        0.742
    """
    return view.mean("nll")


@metric(
    "brier",
    paper="Brier, 1950, doi:10.1175/1520-0493(1950)078<0001:VOFEIT>2.0.CO;2",
    title="Brier",
    meaning="Squared distance between probabilities and truth, summed over classes. A proper score from 0 to 2.",
    kind="mean",
    better="lower",
    range=(0.0, 2.0),
    tables={"core": 4, "models": 3, "summary": 3, "calibrated": 3},
    all_classes=True,
    corners=({"over": "mean"},),
    influence=brier_influence,
)
def brier(view: View, *, over: str = "sum") -> float:
    """Brier score, mean over samples of the sum over classes of (p_k - 1[y = k])^2.

    When: one proper number for accuracy and calibration together, bounded.
    When not: rare classes matter: it hardly sees them.

    Args:
        over: `sum` over classes, as the paper; `mean` divides it by their number, as some packages do.

    Example:
        >>> predictions = confide.Predictions.from_probs([[0.9, 0.1], [0.4, 0.6], [0.8, 0.2]], [0, 1, 1])
        >>> round(float(confide.metrics.brier(predictions)), 3)
        0.54
    """
    check_choice(over, ("sum", "mean"), "over")
    return view.mean("brier") / (1 if over == "sum" else view.predictions.num_classes)


@metric(
    "confidence_gap",
    paper="Murphy, 1973, doi:10.1175/1520-0450(1973)012<0595:ANVPOT>2.0.CO;2",
    title="Confidence minus accuracy",
    short="Gap",
    meaning="How far the average confidence lies above the share that is right; above 0 is overconfident.",
    kind="mean",
    better="neither",
    range=(-1.0, 1.0),
    unit="pts",
    tables={"core": 2, "shift": 2, "groups": 2},
    influence=gap_influence,
)
def confidence_gap(view: View) -> float:
    """Calibration in the large, mean confidence - accuracy: one number with a sign.

    When: too sure or not sure enough on the whole, with a sign.
    When not: errors in both directions cancel: look at ece.

    Example:
        >>> predictions = confide.Predictions.from_probs([[0.9, 0.1], [0.4, 0.6], [0.8, 0.2]], [0, 1, 1])
        >>> round(float(confide.metrics.confidence_gap(predictions)), 3)
        0.1
    """
    return view.mean("sureness") - view.mean("correct")


@metric(
    "confidence_nll",
    paper="Good, 1952, doi:10.1111/j.2517-6161.1952.tb00104.x",
    title="NLL of the confidence",
    short="Conf. NLL",
    meaning="Average surprise at whether the answer was right, if the confidence is taken as its probability.",
    kind="mean",
    better="lower",
    range=(0.0, float("inf")),
    unit="nats",
    tables={"confidence": 1},
)
def confidence_nll(view: View) -> float:
    """Log loss of the confidence c, mean of -log c where right and -log(1 - c) where wrong; needs no classes.

    When: answers have a confidence and are right or wrong, no classes.
    When not: probabilities of all classes are there: take nll.

    Example:
        >>> predictions = confide.Predictions.from_pairs([1, 1, 0], [0.9, 0.6, 0.8])
        >>> round(float(confide.metrics.confidence_nll(predictions)), 3)
        0.742
    """
    return view.mean("confidence_nll")


@metric(
    "confidence_brier",
    paper="Brier, 1950, doi:10.1175/1520-0493(1950)078<0001:VOFEIT>2.0.CO;2",
    title="Brier of the confidence",
    short="Conf. Brier",
    meaning="Squared distance between the confidence and whether the answer was right. A proper score from 0 to 1.",
    kind="mean",
    better="lower",
    range=(0.0, 1.0),
    tables={"confidence": 2},
)
def confidence_brier(view: View) -> float:
    """Brier score of the confidence c, mean of (c - 1[right])^2; needs no classes.

    When: answers have a confidence and are right or wrong, no classes.
    When not: probabilities of all classes are there: take brier.

    Example:
        >>> predictions = confide.Predictions.from_pairs([1, 1, 0], [0.9, 0.6, 0.8])
        >>> round(float(confide.metrics.confidence_brier(predictions)), 3)
        0.27
    """
    return view.mean("confidence_brier")
