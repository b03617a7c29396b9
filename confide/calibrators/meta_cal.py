"""Meta-Cal: temperature for low entropies, no answer (uniform) for high ones, at a bounded miscoverage (`metamis`)
or
a wanted accuracy (`metaacc`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from confide.calibrators.base import CALIBRATORS, FittedValues, Values, map_rows
from confide.calibrators.temperature_scaling import Optimum, best_scale, bound_notes
from confide.checks import SEEDS, InputError
from confide.numerics.binning import bin_of, ranks_of_weights
from confide.registry import Interval
from confide.types import Floats, Labels, Logits, PerSample

# metamis: temperature for low entropies, no answer (uniform) for high ones, at a bounded miscoverage.

LARGEST_DRAW = 500
ROUNDING = 1e-6


def apply_meta_cal(values: Values, logits: Logits) -> Logits:
    """z / T below the entropy threshold, zeros (the uniform answer) above."""
    # The threshold is the entropy of a sample, which float32 and other devices round otherwise: it stays above.
    below = (_row_entropy(logits) < values["threshold"] * (1 - ROUNDING))[:, None]
    return torch.where(below, logits / values["temperature"], torch.zeros_like(logits))


@CALIBRATORS.add(
    "metamis",
    paper="Ma and Blaschko, 2021, Meta-Cal, arXiv:2105.04290",
    title="Meta-Cal for misclassification",
    corners=({"alpha": 0.5}, {"alpha": 0.001}),
    ranges={"alpha": Interval(0.0, 1.0, low_open=True, high_open=True), "seed": (0, SEEDS)},
    from_code=("rows",),
    keeps_argmax=False,
    yields="logits",
    parameters=(2, 0, 0),
    transform=apply_meta_cal,
)
def metamis(
    logits: Logits,
    labels: Labels,
    weights: Floats | None = None,
    *,
    alpha: float = 0.05,
    seed: int = 0,
    rows: Sequence[int] | None = None,
) -> FittedValues:
    """Meta-Cal under a miscoverage constraint: softmax(z / T) where the entropy is below a threshold, else 1 / c.

    The rows above the threshold say "do not know": their argmax becomes class 0, which costs accuracy.

    When: a given share of wrong answers must be caught.
    When not: every sample needs an answer: those above the threshold say nothing.

    Args:
        logits: of held-out samples, `n c`; `calibrators.fit` checks them and puts its result into a `Calibrator`.
        labels: their classes, `n`.
        weights: how much each sample counts, of mean 1.
        alpha: share of right predictions that may fall above the threshold. Default: the choice of the paper.
        seed: of the draw of right predictions (a tenth, at most 500) that set the threshold.
        rows: these validation rows set the threshold instead of drawn ones.

    Returns:
        The fitted values, for the transform of this word, and what a person should know about the fit.

    Example:
        >>> import torch
        >>> i = torch.arange(60)
        >>> labels = i % 3
        >>> predicted = torch.where(i % 5 == 0, (labels + 1 + i % 2) % 3, labels)  # one in five is wrong
        >>> val = confide.Predictions((1.0 + i % 4)[:, None] * torch.eye(3)[predicted], labels, split="val")
        >>> calibrator = confide.calibrators.fit("metamis", val)
        >>> uniform = calibrator(val).facts.confidence < 0.334  # says "do not know"
        >>> int(uniform.sum())
        45
    """
    entropy = entropy_of(logits)
    right = (logits.argmax(dim=1) == labels).nonzero().squeeze(1).numpy()
    chosen = chosen_rows(rows, right, len(right) // 10, seed, len(labels))
    threshold = _higher_quantile(entropy[chosen].numpy(), 1 - alpha, None if weights is None else weights[chosen])
    return tempered_below(logits, labels, entropy, threshold, chosen, weights)


def _higher_quantile(values: Floats, share: float, weights: Floats | None) -> float:
    """The smallest value with at least that share of the others below it."""
    if weights is None:
        return float(np.quantile(values, share, method="higher"))
    order = np.argsort(values, kind="stable")
    ranks = ranks_of_weights(weights[order])
    return float(values[order][np.searchsorted(ranks, share * ranks[-1] - 1e-9)])


def chosen_rows(rows: Sequence[int] | None, pool: NDArray[np.int64], size: int, seed: int, n: int) -> NDArray[np.int64]:
    """The rows given, or a seeded draw from the pool: at least one, at most 500."""
    if rows is not None:
        index = np.asarray(rows, dtype=np.int64)
        if not len(index) or index.min() < 0 or index.max() >= n:
            raise InputError(f"rows must be indices into the {n} predictions, got {list(index[:5])}")
        return index
    if not len(pool):
        raise InputError("the threshold needs at least one right prediction, got none; use more predictions on 'val'")
    return np.random.default_rng(seed).permutation(pool)[: min(max(size, 1), LARGEST_DRAW)]


def tempered_below(
    logits: Logits,
    labels: Labels,
    entropy: PerSample,
    threshold: float,
    chosen: NDArray[np.int64],
    weights: Floats | None = None,
) -> FittedValues:
    """Temperature on the rows that did not set the threshold and lie below it."""
    below = entropy < threshold
    below[torch.from_numpy(chosen)] = False
    notes = [f"{int((entropy >= threshold).sum())} of {len(labels)} validation samples get the uniform answer"]
    own = None if weights is None else weights[below.numpy()]
    optimum = best_scale(logits[below], labels[below], own) if bool(below.any()) else Optimum(1.0)
    if not bool(below.any()):
        notes.append("no other sample lies below the entropy threshold, so T stays 1; use more validation samples")
    values = {"threshold": threshold, "temperature": optimum.temperature}
    tensors = {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}
    return FittedValues(tensors, (*notes, *bound_notes(optimum)))


def entropy_of(logits: Logits) -> PerSample:
    """Entropy of softmax(logits) in float64, by row blocks."""
    return map_rows(logits, _row_entropy)


def _row_entropy(logits: Logits) -> PerSample:
    log_probs = torch.log_softmax(logits, dim=1)
    return -(log_probs.exp() * log_probs).sum(dim=1)


# metaacc: temperature for low entropies, no answer (uniform) for high ones, at a wanted accuracy.

ENTROPY_BINS = 20


@CALIBRATORS.add(
    "metaacc",
    paper="Ma and Blaschko, 2021, Meta-Cal, arXiv:2105.04290",
    title="Meta-Cal for accuracy",
    corners=({"seed": 7},),
    ranges={"target": (0.0, 1.0), "seed": (0, SEEDS)},
    from_code=("rows",),
    keeps_argmax=False,
    yields="logits",
    parameters=(20, 0, 0),
    transform=apply_meta_cal,
)
def metaacc(
    logits: Logits, labels: Labels, *, target: float | None = None, seed: int = 0, rows: Sequence[int] | None = None
) -> FittedValues:
    """Meta-Cal under a coverage accuracy constraint: softmax(z / T) where the entropy is below a threshold, else 1 / c.

    When: a given accuracy must hold among the samples that are answered.
    When not: every sample needs an answer: those above the threshold say nothing.

    Args:
        logits: of held-out samples, `n c`; `calibrators.fit` checks them and puts its result into a `Calibrator`.
        labels: their classes, `n`.
        target: accuracy wanted among the answered samples (the paper: .97 CIFAR-10, .87 CIFAR-100); left out, half
            way between the accuracy at full coverage and the highest one the drawn samples reach.
        seed: of the draw of validation rows (a tenth, at most 500) that set the threshold.
        rows: these validation rows set the threshold instead of drawn ones.

    Returns:
        The fitted values, for the transform of this word, and what a person should know about the fit.

    Example:
        >>> import torch
        >>> i = torch.arange(600)
        >>> labels = i % 3
        >>> predicted = torch.where(i % 5 == 0, (labels + 1 + i % 2) % 3, labels)  # one in five is wrong
        >>> val = confide.Predictions((1.0 + i % 7)[:, None] * torch.eye(3)[predicted], labels, split="val")
        >>> calibrator = confide.calibrators.fit("metaacc", val)
        >>> uniform = calibrator(val).facts.confidence < 0.334  # says "do not know"
        >>> int(uniform.sum())
        344
    """
    entropy = entropy_of(logits)
    chosen = chosen_rows(rows, np.arange(len(labels)), len(labels) // 10, seed, len(labels))
    correct = (logits.argmax(dim=1) == labels).numpy()[chosen]
    accuracy, uncertainty = _running_accuracy(entropy.numpy()[chosen], correct)
    if target is None:
        target = (float(accuracy[-1]) + float(accuracy.max())) / 2
    return tempered_below(logits, labels, entropy, _threshold_at(target, accuracy, uncertainty), chosen)


def _running_accuracy(entropy: Floats, correct: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Mean accuracy of the first k bins, and the mean entropy of bin k, for bins of equal mass in entropy."""
    edges = np.quantile(entropy, np.linspace(0, 1, ENTROPY_BINS + 1))
    # (low, high] with an open first end: the smallest entropy belongs to no bin, as in the released code.
    inside = entropy > edges[0]
    which = bin_of(entropy[inside], edges)
    size = np.maximum(np.bincount(which, minlength=ENTROPY_BINS), 1)
    accuracy = np.bincount(which, correct[inside], minlength=ENTROPY_BINS) / size
    mean_entropy = np.bincount(which, entropy[inside], minlength=ENTROPY_BINS) / size
    return np.cumsum(accuracy) / np.arange(1, ENTROPY_BINS + 1), mean_entropy


def _threshold_at(target: float, accuracy: Floats, uncertainty: Floats) -> float:
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
