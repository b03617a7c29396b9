"""Structured scaling: `structured_vector` and `structured_matrix`, vector and matrix scaling of tempered logits whose
departures from the identity cost more the fewer the samples.
"""

from __future__ import annotations

import torch
from torch import Tensor

from confide.calibrators.base import CALIBRATORS, FittedValues, Values
from confide.calibrators.temperature_scaling import best_scale, bound_notes
from confide.numerics.minimise import lbfgs
from confide.registry import Interval
from confide.types import Floats, Labels, Logits


def apply_structured(values: Values, logits: Logits) -> Logits:
    """x + x * v + x W' + b with x = log softmax(z / T)."""
    rows = torch.log_softmax(logits / values["temperature"], dim=1)
    moved = rows * (1 + values["scales"]) + values["shifts"]
    return moved + rows @ values["matrix"].T if "matrix" in values else moved


def fit_structured(
    logits: Logits, labels: Labels, counts: Floats | None, strength: float, matrix: bool
) -> FittedValues:
    """Mean NLL + strength k / n (|v|^2 + |b|^2) + strength k (k - 1) / n |W|^2, W without its diagonal."""
    n, k = logits.shape
    optimum = best_scale(logits, labels, counts)
    own = torch.ones(n, dtype=torch.float64) if counts is None else torch.from_numpy(counts)
    rows = torch.log_softmax(logits.double() * optimum.scale, dim=1)
    penalty = strength * k / n * torch.ones(2 * k + (k * k if matrix else 0), dtype=torch.float64)
    penalty[2 * k :] *= k - 1
    off = 1 - torch.eye(k, dtype=torch.float64)
    target = torch.nn.functional.one_hot(labels, k).double()

    def parts(unknowns: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        return unknowns[:k], unknowns[k : 2 * k], unknowns[2 * k :].reshape(k, k) * off if matrix else None

    def objective(unknowns: Tensor) -> tuple[float, Tensor]:
        scales, shifts, between = parts(unknowns)
        moved = rows * (1 + scales) + shifts
        if between is not None:
            moved = moved + rows @ between.T
        log_probs = torch.log_softmax(moved, dim=1)
        pull = (log_probs.exp() - target) * (own / n)[:, None]
        slope = [(pull * rows).sum(dim=0), pull.sum(dim=0)]
        if between is not None:
            slope.append(((pull.T @ rows) * off).ravel())
        likelihood = float(log_probs.gather(1, labels[:, None])[:, 0] @ own) / n
        loss = -likelihood + float((penalty * unknowns.square()).sum())
        return loss, torch.cat(slope) + 2 * penalty * unknowns

    minimum = lbfgs(objective, len(penalty), tolerance=1e-8, change=1e-13, idle=3, iterations=1000, memory=20)
    scales, shifts, between = parts(minimum.at)
    values = {"temperature": torch.tensor(optimum.temperature, dtype=torch.float64), "scales": scales, "shifts": shifts}
    return FittedValues(values if between is None else {**values, "matrix": between}, bound_notes(optimum))


STRUCTURED_PAPER = "Berta et al., 2025, Structured matrix scaling, arXiv:2511.03685"


@CALIBRATORS.add(
    "structured_vector",
    paper=STRUCTURED_PAPER,
    title="structured vector scaling",
    corners=({"strength": 0.0}, {"strength": 100.0}),
    ranges={"strength": Interval(0.0, high_open=True)},
    keeps_argmax=False,
    yields="logits",
    parameters=(1, 2, 0),
    transform=apply_structured,
)
def structured_vector(
    logits: Logits, labels: Labels, weights: Floats | None = None, *, strength: float = 1.0
) -> FittedValues:
    """Structured vector scaling, softmax(x + v * x + b) of tempered x, squares of v and b penalised by k / n.

    When: samples are some thousand and single classes are too sure; at no size measured worse than the raw network.
    When not: predicted classes must stay.

    Args:
        logits: of held-out samples, `n c`; `calibrators.fit` checks them and puts its result into a `Calibrator`.
        labels: their classes, `n`.
        weights: how much each sample counts, of mean 1.
        strength: of the penalty; 0 is vector scaling. Default: the authors'.

    Returns:
        The fitted values, for the transform of this word, and what a person should know about the fit.

    Example:
        >>> import torch
        >>> i = torch.arange(60)
        >>> labels = i % 3
        >>> predicted = torch.where(i % 5 == 0, (labels + 1 + i % 2) % 3, labels)  # one in five is wrong
        >>> val = confide.Predictions(4.0 * torch.eye(3)[predicted], labels, split="val")
        >>> calibrator = confide.calibrators.fit("structured_vector", val)
        >>> [round(float(p.facts.confidence.mean()), 2) for p in (val, calibrator(val))]
        [0.96, 0.8]
    """
    return fit_structured(logits, labels, weights, strength, matrix=False)


@CALIBRATORS.add(
    "structured_matrix",
    paper=STRUCTURED_PAPER,
    title="structured matrix scaling",
    corners=({"strength": 100.0},),
    ranges={"strength": Interval(0.0, high_open=True)},
    keeps_argmax=False,
    yields="logits",
    parameters=(1, 2, 1),
    transform=apply_structured,
)
def structured_matrix(
    logits: Logits, labels: Labels, weights: Floats | None = None, *, strength: float = 1.0
) -> FittedValues:
    """Structured matrix scaling, softmax(x + v * x + W x + b) of tempered x, squares of W penalised by k (k - 1) / n.

    When: samples are some thousand and classes are confused with each other: the penalty sets its own strength.
    When not: predicted classes must stay.

    Args:
        logits: of held-out samples, `n c`; `calibrators.fit` checks them and puts its result into a `Calibrator`.
        labels: their classes, `n`.
        weights: how much each sample counts, of mean 1.
        strength: of the penalty. Default: the authors'.

    Returns:
        The fitted values, for the transform of this word, and what a person should know about the fit.

    Example:
        >>> import torch
        >>> i = torch.arange(60)
        >>> labels = i % 3
        >>> predicted = torch.where(i % 5 == 0, (labels + 1 + i % 2) % 3, labels)  # one in five is wrong
        >>> val = confide.Predictions(4.0 * torch.eye(3)[predicted], labels, split="val")
        >>> calibrator = confide.calibrators.fit("structured_matrix", val)
        >>> [round(float(p.facts.confidence.mean()), 2) for p in (val, calibrator(val))]
        [0.96, 0.8]
    """
    return fit_structured(logits, labels, weights, strength, matrix=True)
