"""Every number's plain meaning: title, unit, decimals, direction, and the sentence shown on hover or tap."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Term:
    """How a metric is shown: `scale` times the value, with so many decimals."""

    title: str
    unit: str
    scale: float
    digits: int
    better: str  # "higher", "lower", or "" where neither is better
    meaning: str

    @property
    def arrow(self) -> str:
        """The arrow beside the unit."""
        return {"higher": "↑", "lower": "↓"}.get(self.better, "")


TERMS = {
    "accuracy": Term(
        "Accuracy", "%", 100, 1, "higher", "Share of test samples whose most probable class is the label."
    ),
    "nll": Term(
        "NLL",
        "nats",
        1,
        3,
        "lower",
        "Average surprise at the true label. A proper score: nothing but better probabilities improves it.",
    ),
    "brier": Term(
        "Brier",
        "",
        1,
        3,
        "lower",
        "Squared distance between the probabilities and the truth, summed over classes. A proper score from 0 to 2.",
    ),
    "ece_mass": Term(
        "ECE, equal mass",
        "pts",
        100,
        1,
        "lower",
        "Average gap between confidence and accuracy over bins that hold equally many samples.",
    ),
    "ece": Term("ECE, equal width", "pts", 100, 1, "lower", "The same average gap over bins of equal width."),
    "classwise_ece": Term(
        "Class-wise ECE",
        "pts",
        100,
        2,
        "lower",
        "The calibration error of each class's probability, averaged over the classes.",
    ),
    "aurc": Term(
        "AURC",
        "× 1000",
        1000,
        1,
        "lower",
        "Average error rate over all shares of samples one might accept, most trusted first.",
    ),
    "eaurc": Term("E-AURC", "× 1000", 1000, 1, "lower", "AURC less that of a perfect ranking of the same errors."),
    "augrc": Term(
        "AUGRC",
        "× 1000",
        1000,
        1,
        "lower",
        "Average share of all samples that is wrong and yet accepted, over all shares one might accept.",
    ),
    "auroc": Term(
        "AUROC",
        "%",
        100,
        1,
        "higher",
        "Chance that a right prediction is trusted more than a wrong one. 50 % is a coin.",
    ),
    "fpr95": Term(
        "FPR at 95 % TPR",
        "%",
        100,
        1,
        "lower",
        "Share of wrong predictions still accepted when 95 % of the right ones are.",
    ),
    "aupr_error": Term("AUPR, errors", "%", 100, 1, "higher", "Average precision when errors are what one looks for."),
    "aupr_success": Term(
        "AUPR, right", "%", 100, 1, "higher", "Average precision when right predictions are what one looks for."
    ),
    "debiased_ece": Term(
        "Debiased ECE", "pts", 100, 1, "lower", "Root mean squared gap with the part owed to chance taken off."
    ),
    "sweep_ece": Term(
        "ECE sweep", "pts", 100, 1, "lower", "Calibration error with the most bins that keep accuracy rising."
    ),
    "smooth_ece": Term(
        "Smooth ECE", "pts", 100, 1, "lower", "Calibration error without bins, smoothed at its own scale."
    ),
    "kde_ece": Term("ECE by kernels", "pts", 100, 1, "lower", "Calibration error by kernel density, without bins."),
    "mce": Term("MCE", "pts", 100, 1, "lower", "The largest gap of any bin; noisy where bins hold few samples."),
    "confidence_gap": Term(
        "Confidence minus accuracy",
        "pts",
        100,
        1,
        "",
        "How far the average confidence lies above the share that is right. Zero is ideal.",
    ),
}

DIFFICULTY = {
    "rmd": "Relative Mahalanobis distance: how far a sample lies from its own class, compared with all samples.",
    "md": "Mahalanobis distance: how far a sample lies from its own class, in units of the spread of the classes.",
    "kmeans": "Distance to the nearest of the clusters that the features fall into.",
    "prototype": "Distance to the mean of its own class.",
    "confusion": "How often neighbours in feature space carry another label.",
    "loss": "The loss of the sample in training, averaged over epochs.",
    "correctness": "How often the sample was wrong in training.",
    "entropy": "How unsure the model was of the sample in training.",
}
FROM_FEATURES = ("rmd", "md", "kmeans", "prototype")  # made without any prediction of the model

MAIN_COLUMNS = ("accuracy", "nll", "brier", "ece_mass", "ece", "classwise_ece", "aurc", "auroc")
CHANCE = (
    "The calibration error that a perfectly calibrated model tested on as many samples would show: on average, and the "
    "bound it stays under 95 times of 100."
)
P_CALIBRATED = "How often a perfectly calibrated model of this size would show an error at least this large."


def term(metric: str) -> Term:
    """The metric's entry; a metric without one is shown by its word."""
    return TERMS.get(metric) or Term(metric.replace("_", " "), "", 1, 3, "", "A metric of this evaluation.")
