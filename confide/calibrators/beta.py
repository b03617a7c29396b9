"""beta: a logistic map of log p and -log(1 - p) for every class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from confide.calibrators.calibrator import CALIBRATORS, Fitted, Values, transform_of
from confide.calibrators.isotonic import class_columns
from confide.core.door import check_choice
from confide.core.shapes import Labels, Logits

Vector = NDArray[np.float64]
RIDGE = 1e-11
"""1 / C of the released code's logistic regression: next to nothing, but a separable class stays finite."""
SMALLEST = float(np.finfo(np.float64).eps)


@CALIBRATORS.add(
    "beta",
    paper="Kull et al., 2017, Beyond sigmoids",
    corners=({"form": "am"}, {"form": "ab"}),
    keeps_argmax=False,
    yields="probabilities",
    parameters=(0, 3, 0),
)
def beta(logits: Logits, labels: Labels, *, form: str = "abm") -> Fitted:
    """Beta calibration, q_k proportional to sigmoid(a_k log p_k - b_k log(1 - p_k) + m_k), a_k, b_k not negative.

    Args:
        form: `abm` fits all three; `am` sets b = a; `ab` has no intercept and doubles p, so that 1/2 stays 1/2.
    """
    check_choice(form, ("abm", "am", "ab"), "form")
    maps = []
    for first, probs in class_columns(logits):
        for k, column in enumerate(probs.T, start=first):
            maps.append(_class_map(column, (labels.numpy() == k).astype(np.float64), form))
    a, b, intercept = (torch.tensor(part, dtype=torch.float64) for part in zip(*maps, strict=True))
    return Fitted({"a": a, "b": b, "intercept": intercept})


@transform_of("beta")
def logistic(values: Values, logits: Logits) -> Logits:
    """Log of the classes' sigmoids, normalised by row; in logarithms, so no row can be 0 / 0."""
    smallest = torch.finfo(logits.dtype).eps
    probs = torch.softmax(logits, dim=1).clamp(smallest, 1.0 - smallest)
    scores = values["a"] * probs.log() - values["b"] * torch.log1p(-probs) + values["intercept"]
    return torch.log_softmax(torch.nn.functional.logsigmoid(scores), dim=1)


def _class_map(probs: Vector, hits: Vector, form: str) -> tuple[float, float, float]:
    """(a, b, intercept) of one class; a class that never or always occurs keeps its probabilities."""
    if not 0 < hits.sum() < len(hits):
        return 1.0, 1.0, 0.0
    clipped = np.clip(probs, SMALLEST, 1 - SMALLEST)
    log_p, log_q = np.log(clipped), -np.log1p(-clipped)
    if form == "am":
        (a,), intercept = regression([log_p + log_q], hits, True)
        return (a, a, intercept) if a >= 0 else (0.0, 0.0, _log_odds(hits))
    shift = np.log(2.0) if form == "ab" else 0.0
    columns = [log_p + shift, log_q - shift]
    (a, b), intercept = regression(columns, hits, form == "abm")
    # A negative slope would turn the order round: drop that feature and fit again.
    if a < 0:
        (b,), intercept = regression(columns[1:], hits, form == "abm")
        a = 0.0
    elif b < 0:
        (a,), intercept = regression(columns[:1], hits, form == "abm")
        b = 0.0
    if min(a, b) < 0:
        return 0.0, 0.0, _log_odds(hits) if form == "abm" else 0.0
    return a, b, intercept + (a - b) * shift


def _log_odds(hits: Vector) -> float:
    return float(np.log(hits.sum()) - np.log(len(hits) - hits.sum()))


@dataclass(frozen=True)
class _Step:
    loss: float
    slope: Vector
    curvature: Vector


def regression(columns: list[Vector], hits: Vector, intercept: bool) -> tuple[list[float], float]:
    """Logistic regression by damped Newton: weights and intercept (0 without one)."""
    features = np.stack([*columns, np.ones_like(hits)] if intercept else columns, axis=1)
    penalty = np.array([RIDGE] * len(columns) + [0.0] * intercept)
    weights = np.zeros(features.shape[1])
    here = _newton_step(features, hits, penalty, weights)
    for _ in range(100):
        # The sum, not the mean: RIDGE means the same at any n, as in the released code.
        step = np.linalg.lstsq(here.curvature, -here.slope, rcond=None)[0]
        size = 1.0
        while size > 1e-8:
            there = _newton_step(features, hits, penalty, weights + size * step)
            if there.loss <= here.loss + 1e-4 * size * float(here.slope @ step):
                break
            size /= 2
        else:
            break
        weights, before, here = weights + size * step, here, there
        if before.loss - here.loss <= 1e-13 * abs(here.loss) or float(np.abs(size * step).max()) < 1e-10:
            break
    return weights[: len(columns)].tolist(), float(weights[-1]) if intercept else 0.0


def _newton_step(features: Vector, hits: Vector, penalty: Vector, weights: Vector) -> _Step:
    # torch's matrix products keep to the threads it was given; numpy's would hand these thin ones out.
    rows = torch.from_numpy(features)
    scores = torch.mv(rows, torch.from_numpy(weights)).numpy()
    tail = np.exp(-np.abs(scores))
    loss = float(np.sum(np.maximum(scores, 0) - hits * scores + np.log1p(tail)) + penalty @ weights**2 / 2)
    probs = np.where(scores >= 0, 1.0, tail) / (1 + tail)
    scaled = rows * torch.from_numpy(probs * (1 - probs))[:, None]
    curvature = torch.mm(scaled.T, rows).numpy() + np.diag(penalty)
    slope = torch.mv(rows.T, torch.from_numpy(probs - hits)).numpy() + penalty * weights
    return _Step(loss, slope, curvature)
