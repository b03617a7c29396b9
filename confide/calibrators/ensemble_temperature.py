"""ensemble_temperature: a mixture of tempered, plain and uniform probabilities."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import torch
from numpy.typing import NDArray

from confide.calibrators.calibrator import CALIBRATORS, Fitted, Values, transform_of
from confide.calibrators.temperature import bound_notes
from confide.calibrators.tempered import TemperedRows, search
from confide.core.door import InputError, check_choice
from confide.core.shapes import Labels, Logits

Vector = NDArray[np.float64]


@CALIBRATORS.add(
    "ensemble_temperature",
    paper="Zhang et al., 2020, Mix-n-Match, arXiv:2003.07329",
    corners=({"criterion": "nll"}, {"bounds": (1.0, 1.0001)}),
    keeps_argmax=True,
    yields="probabilities",
    parameters=(3, 0, 0),
)
def ensemble_temperature(
    logits: Logits, labels: Labels, *, criterion: str = "brier", bounds: tuple[float, float] = (0.05, 5.0)
) -> Fitted:
    """Ensemble temperature scaling, w0 softmax(z / T) + w1 softmax(z) + w2 / c, the weights on the simplex.

    Args:
        criterion: what T and then the weights minimise, `brier` (the paper's choice) or `nll`.
        bounds: smallest and largest T, from the released code.
    """
    check_choice(criterion, ("brier", "nll"), "criterion")
    if len(bounds) != 2 or not 0 < bounds[0] < bounds[1]:
        raise InputError(f"bounds must be two temperatures, the smaller first and above 0, got {tuple(bounds)}")
    rows = TemperedRows(logits, labels)
    found = search(rows, "nll" if criterion == "nll" else "squares", 0.0, (bounds[0], bounds[1]))
    if criterion == "brier":
        weights = _squares_weights(*rows.mixture_products(found.scale))
    else:
        weights = _likelihood_weights(rows, found.scale)
    notes = list(bound_notes(found))
    if weights[2] > 0.999:
        notes.append("the weights went to the uniform part: these logits say nothing about the labels")
    values = {"temperature": torch.tensor(found.temperature, dtype=torch.float64), "weights": torch.from_numpy(weights)}
    return Fitted(values, tuple(notes))


@transform_of("ensemble_temperature")
def mixed(values: Values, logits: Logits) -> Logits:
    """Log of the mixture, summed in logarithms so that nothing underflows."""
    log_weights = values["weights"].log()
    parts = [
        torch.log_softmax(logits / values["temperature"], dim=1) + log_weights[0],
        torch.log_softmax(logits, dim=1) + log_weights[1],
        torch.log_softmax(torch.zeros_like(logits), dim=1) + log_weights[2],
    ]
    return torch.logsumexp(torch.stack(parts), dim=0)


def _squares_weights(gram: Vector, hits: Vector) -> Vector:
    """Weights on the simplex with the smallest w G w - 2 w h: exact, by looking at all seven faces."""
    best, lowest = np.array([1.0, 0.0, 0.0]), float(gram[0, 0] - 2 * hits[0])
    for size in (1, 2, 3):
        for face in combinations(range(3), size):
            index = list(face)
            # Stationary on the face with the sum fixed to 1 (Lagrange); lstsq because T = 1 makes two parts equal.
            system = np.block([[2 * gram[np.ix_(index, index)], np.ones((size, 1))], [np.ones((1, size)), 0.0]])
            part = np.linalg.lstsq(system, np.append(2 * hits[index], 1.0), rcond=1e-12)[0][:size]
            weights = np.zeros(3)
            weights[index] = part
            value = float(weights @ gram @ weights - 2 * weights @ hits)
            if part.min() >= 0 and abs(part.sum() - 1) < 1e-9 and value < lowest - 1e-15:
                best, lowest = weights / weights.sum(), value
    return best


def _likelihood_weights(rows: TemperedRows, scale: float) -> Vector:
    """Weights on the simplex with the largest likelihood: Newton in two unknowns, projected on the faces it hits."""
    parts = np.stack([rows.true_probs(scale), rows.true_probs(1.0), np.full(rows.n, 1 / rows.rows.shape[1])], axis=1)
    candidates = [np.eye(3)[k] for k in range(3)]
    for size in (2, 3):
        for face in combinations(range(3), size):
            weights = np.zeros(3)
            weights[list(face)] = _mixture_weights(parts[:, list(face)])
            candidates.append(weights)
    with np.errstate(divide="ignore"):
        losses = [-float(np.log(parts @ weights).mean()) for weights in candidates]
    # The first of nearly equal ones: a face before its inside.
    chosen: Vector = candidates[int(np.flatnonzero(np.array(losses) <= min(losses) + 1e-12)[0])]
    return chosen


def _mixture_weights(parts: Vector) -> Vector:
    """Maximum likelihood weights of a mixture, by damped Newton; ends beside an edge if it is there."""
    size = parts.shape[1]
    weights = np.full(size, 1 / size)
    basis = np.vstack([np.eye(size - 1), -np.ones(size - 1)])
    for _ in range(100):
        share = (parts / (parts @ weights)[:, None]) @ basis
        slope = share.sum(axis=0)
        step = basis @ np.linalg.lstsq(share.T @ share, slope, rcond=None)[0]
        shrinking = step < 0
        longest = 0.9 * float((weights[shrinking] / -step[shrinking]).min()) if shrinking.any() else 1.0
        weights = weights + min(1.0, longest) * step
        if np.abs(step).max() < 1e-12:
            break
    return weights
