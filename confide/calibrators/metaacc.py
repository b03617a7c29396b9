"""metaacc: temperature for low entropies, no answer (uniform) for high ones, at a wanted accuracy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from confide.calibrators.calibrator import CALIBRATORS, Fitted, transform_of
from confide.calibrators.metamis import answered, chosen_rows, entropy_of, tempered_below
from confide.core.binning import bin_of
from confide.core.door import InputError, check_range
from confide.core.shapes import Labels, Logits

BINS = 20
Vector = NDArray[np.float64]


@CALIBRATORS.add(
    "metaacc",
    paper="Ma and Blaschko, 2021, Meta-Cal, arXiv:2105.04290",
    corners=({"seed": 7},),
    keeps_argmax=False,
    yields="logits",
    parameters=(20, 0, 0),
)
def metaacc(
    logits: Logits,
    labels: Labels,
    *,
    target: float | None = None,
    seed: int = 0,
    rows: Sequence[int] | None = None,
) -> Fitted:
    """Meta-Cal under a coverage accuracy constraint: softmax(z / T) where the entropy is below a threshold, else 1 / c.

    Args:
        target: accuracy wanted among the answered samples (the paper: .97 CIFAR-10, .87 CIFAR-100); left out, half
            way between the accuracy at full coverage and the highest one the drawn samples reach.
        seed: of the draw of validation rows (a tenth, at most 500) that set the threshold.
        rows: these validation rows set the threshold instead of drawn ones.
    """
    entropy = entropy_of(logits)
    chosen = chosen_rows(rows, np.arange(len(labels)), len(labels) // 10, seed, len(labels))
    correct = (logits.argmax(dim=1) == labels).numpy()[chosen]
    accuracy, uncertainty = _running_accuracy(entropy.numpy()[chosen], correct)
    if target is None:
        target = (float(accuracy[-1]) + float(accuracy.max())) / 2
    check_range(target, "target", 0.0, 1.0)
    return tempered_below(logits, labels, entropy, _threshold_at(target, accuracy, uncertainty), chosen)


def _running_accuracy(entropy: Vector, correct: NDArray[np.bool_]) -> tuple[Vector, Vector]:
    """Mean accuracy of the first k bins, and the mean entropy of bin k, for bins of equal mass in entropy."""
    edges = np.quantile(entropy, np.linspace(0, 1, BINS + 1))
    # (low, high] with an open first end: the smallest entropy belongs to no bin, as in the released code.
    kept = entropy > edges[0]
    which = bin_of(entropy[kept], edges)
    size = np.maximum(np.bincount(which, minlength=BINS), 1)
    accuracy = np.bincount(which, correct[kept], minlength=BINS) / size
    mean_entropy = np.bincount(which, entropy[kept], minlength=BINS) / size
    return np.cumsum(accuracy) / np.arange(1, BINS + 1), mean_entropy


def _threshold_at(target: float, accuracy: Vector, uncertainty: Vector) -> float:
    """Decreasing isotonic regression of entropy on accuracy, read at the target."""
    nodes, which, count = np.unique(accuracy, return_inverse=True, return_counts=True)
    if not nodes[0] <= target <= nodes[-1]:
        raise InputError(
            f"target must lie between the accuracies the validation samples reach, {nodes[0]:.4f} to {nodes[-1]:.4f}, "
            f"got {target}; choose one in between or use more samples"
        )
    means = np.bincount(which, uncertainty) / count
    fitted = isotonic_regression(means, weights=count, increasing=False).x
    return float(np.interp(target, nodes, fitted))


transform_of("metaacc")(answered)
