"""A temperature for every sample: `parameterised_temperature` from the sorted logits, `dac` from the distance to the
training samples; and `procal`, the probability of being right from confidence and proximity.
"""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import optimize
from torch import Tensor, nn

from confide.calibrators.base import (
    CALIBRATORS,
    FittedValues,
    Values,
    log_odds,
    predicted_classes,
    with_log_odds,
)
from confide.calibrators.evidence import Evidence
from confide.calibrators.temperature_scaling import best_scale, bound_notes
from confide.checks import check_choice, check_number
from confide.facts import SMALLEST_PROBABILITY
from confide.numerics.neighbours import nearest_neighbours, unit
from confide.types import Floats, Labels, Logits, PerSample

# T from the sorted logits, by a small network.

TOP_LOGITS = 10
HIDDEN = (5, 5)
STEPS = 100


def network_temperature(values: Values, logits: Logits) -> Tensor:
    """|network(sorted logits)|, in units of the best single temperature, `n 1`."""
    rows = logits.sort(dim=1, descending=True).values[:, :TOP_LOGITS]
    rows = (rows - rows[:, :1]) / values["temperature"]
    layers = len(HIDDEN) + 1
    for layer in range(layers):
        rows = rows @ values[f"weight{layer}"].T + values[f"bias{layer}"]
        rows = torch.relu(rows) if layer < layers - 1 else rows
    return rows.abs().clamp(1e-3, 1e3) * values["temperature"]


def apply_network(values: Values, logits: Logits) -> Logits:
    """z / T(z)."""
    return logits / network_temperature(values, logits)


@CALIBRATORS.add(
    "parameterised_temperature",
    paper="Tomani et al., 2022, Parameterized temperature scaling, arXiv:2102.12182",
    title="parameterised temperature scaling",
    corners=({"criterion": "nll"}, {"seed": 1}),
    keeps_argmax=True,
    yields="logits",
    parameters=(91, 0, 0),
    transform=apply_network,
)
def parameterised_temperature(
    logits: Logits, labels: Labels, weights: Floats | None = None, *, criterion: str = "brier", seed: int = 0
) -> FittedValues:
    """Parameterised temperature scaling, softmax(z / T) with T a small network of the ten largest logits.

    The logits enter less their largest, in units of the best single temperature, from which the network starts: two
    layers of five, all samples at once by L-BFGS where the authors take 100,000 small steps.

    Args:
        logits: of held-out samples, `n c`; `calibrators.fit` checks them and puts its result into a `Calibrator`.
        labels: their classes, `n`.
        weights: how much each sample counts, of mean 1.
        criterion: `brier`, the authors', or `nll`.
        seed: of the network's first weights.

    Returns:
        The fitted values, for the transform of this word, and what a person should know about the fit.

    Example:
        >>> import torch
        >>> i = torch.arange(60)
        >>> labels = i % 3
        >>> predicted = torch.where(i % 5 == 0, (labels + 1 + i % 2) % 3, labels)  # one in five is wrong
        >>> val = confide.Predictions(4.0 * torch.eye(3)[predicted], labels, split="val")
        >>> calibrator = confide.calibrators.fit("parameterised_temperature", val)
        >>> [round(float(p.facts.confidence.mean()), 2) for p in (val, calibrator(val))]
        [0.96, 0.8]
    """
    check_choice(criterion, ("brier", "nll"), "criterion")
    # A network is no convex problem: one order of samples and of classes, in one precision, gives one answer.
    ranked, classes = logits.double().sort(dim=1, descending=True, stable=True)
    place = (classes == labels[:, None]).double().argmax(dim=1)
    order = torch.from_numpy(np.lexsort((place.numpy(), *ranked.numpy().T)))
    rows, known = ranked[order], place[order]
    # Units of the weights must make no difference either.
    counts = None if weights is None else weights[order.numpy()].astype(np.float32).astype(np.float64)
    optimum = best_scale(rows, known, counts)
    share = (
        torch.full((len(known),), 1 / len(known), dtype=torch.float64)
        if counts is None
        else torch.from_numpy(counts / counts.sum())
    )
    generator = torch.Generator().manual_seed(seed)
    values = {"temperature": torch.tensor(optimum.temperature, dtype=torch.float64)}
    widths = (min(TOP_LOGITS, logits.shape[1]), *HIDDEN, 1)
    for layer, (wide, narrow) in enumerate(pairwise(widths)):
        last = layer == len(HIDDEN)
        drawn = torch.randn(narrow, wide, generator=generator, dtype=torch.float64) / math.sqrt(wide)
        values[f"weight{layer}"] = 0.01 * drawn if last else drawn
        values[f"bias{layer}"] = torch.full((narrow,), 1.0 if last else 0.0, dtype=torch.float64)
    trained = [nn.Parameter(value) for name, value in values.items() if name != "temperature"]
    names = [name for name in values if name != "temperature"]
    target = nn.functional.one_hot(known, logits.shape[1]).double()
    optimiser = torch.optim.LBFGS(trained, max_iter=STEPS, history_size=20, line_search_fn="strong_wolfe")

    def loss_of(parts: Values) -> Tensor:
        moved = apply_network({**parts, "temperature": values["temperature"]}, rows)
        if criterion == "nll":
            return nn.functional.cross_entropy(moved, known, reduction="none") @ share
        return (torch.softmax(moved, dim=1) - target).square().sum(dim=1) @ share

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = loss_of(dict(zip(names, trained, strict=True)))
        torch.autograd.backward(loss)
        return loss

    before = float(loss_of(values))
    with torch.enable_grad():
        optimiser.step(closure)
    fitted = dict(zip(names, (part.detach() for part in trained), strict=True))
    if not float(loss_of(fitted)) <= before:
        fitted = {name: values[name] for name in names}
    return FittedValues({**values, **fitted}, bound_notes(optimum))


# T from the density of the training samples.


def near_distances(features: Tensor, points: Tensor, neighbours: int) -> Floats:
    """Mean distance to the nearest training rows."""
    rows, table = features.double().cpu().numpy(), points.double().cpu().numpy()
    return np.asarray(nearest_neighbours(rows, table, neighbours)[0].mean(axis=1), dtype=np.float64)


def density_distances(values: Values, features: Tensor) -> PerSample:
    """The same between rows of length one."""
    distances = near_distances(unit(features.double()), values["points"], int(values["neighbours"]))
    return torch.from_numpy(distances).to(features.device)


def apply_density(values: Values, logits: Logits, evidence: Evidence) -> Logits:
    """z / (w0 + w1 s(x))."""
    weights = values["weights"]
    temperature = weights[0] + weights[1] * density_distances(values, evidence.need_features)
    return logits / temperature[:, None]


@CALIBRATORS.add(
    "dac",
    paper="Tomani et al., 2023, Beyond in-domain scenarios: density-aware calibration, arXiv:2302.05118",
    title="density-aware calibration",
    corners=({"criterion": "brier"}, {"neighbours": 1}),
    keeps_argmax=True,
    yields="logits",
    parameters=(2, 0, 0),
    transform=apply_density,
    wants="features",
)
def dac(
    logits: Logits,
    labels: Labels,
    weights: Floats | None = None,
    *,
    evidence: Evidence,
    neighbours: int = 10,
    criterion: str = "nll",
) -> FittedValues:
    """Density-aware calibration, softmax(z / (w0 + w1 s)) with s the mean distance to the nearest training features.

    One space of features, rows scaled to length one; the authors join several layers of the network.

    Args:
        logits: of held-out samples, `n c`; `calibrators.fit` checks them and puts its result into a `Calibrator`.
        labels: their classes, `n`.
        weights: how much each sample counts, of mean 1.
        evidence: what `calibrators.fit` makes of `features` and `fitted`.
        neighbours: training samples whose distances are averaged.
        criterion: `nll` or `brier`, both the authors'.

    Returns:
        The fitted values, for the transform of this word, and what a person should know about the fit.

    Example:
        >>> import numpy as np
        >>> draw, labels = np.random.default_rng(0), np.arange(120) % 3
        >>> near = np.where(np.arange(120) < 60, 1.0, 3.0)[:, None]  # the later half lies far from the training samples
        >>> rows = np.eye(3)[labels] + 0.2 * near * draw.normal(size=(120, 3))
        >>> val = confide.Predictions(3 * np.eye(3)[labels] + near * draw.normal(size=(120, 3)), labels, split="val")
        >>> train = confide.Features(np.eye(3)[labels], labels, np.arange(120), "drawn", "train")
        >>> calibrator = confide.calibrators.fit("dac", val, features=rows, fitted=train)
        >>> calibrator(val, features=rows).logits.shape
        torch.Size([120, 3])
    """
    check_choice(criterion, ("nll", "brier"), "criterion")
    check_number(neighbours, "neighbours", 10, 1, math.inf)
    points = unit(torch.as_tensor(evidence.need_reference.training_rows).double()).float()
    values = {"points": points, "neighbours": torch.tensor(min(neighbours, len(points)))}
    signal = density_distances(values, evidence.need_features)
    optimum = best_scale(logits, labels, weights)
    share = torch.from_numpy(np.full(len(labels), 1 / len(labels)) if weights is None else weights / weights.sum())
    rows, target = logits.double() * optimum.scale, nn.functional.one_hot(labels, logits.shape[1]).double()
    typical = float(signal.mean()) or 1.0

    def objective(parts: Floats) -> tuple[float, Floats]:
        # Parts of 1 and s / mean s, in units of the best single temperature.
        temperature = (parts[0] + parts[1] * signal / typical)[:, None]
        moved = rows / temperature
        log_probs = torch.log_softmax(moved, dim=1)
        probs = log_probs.exp()
        if criterion == "nll":
            loss, pull = -(log_probs.gather(1, labels[:, None])[:, 0] @ share), probs - target
        else:
            loss, gap = (probs - target).square().sum(dim=1) @ share, 2 * (probs - target)
            pull = probs * (gap - (gap * probs).sum(dim=1, keepdim=True))
        by_temperature = (pull * -moved / temperature).sum(dim=1) * share
        slope = np.array([float(by_temperature.sum()), float((by_temperature * signal / typical).sum())])
        return float(loss), slope

    bounds = [(1e-3, 1e3), (0.0, 1e3)]
    starts = (np.array([1.0, 0.0]), np.array([0.5, 0.5]), np.array([1e-3, 1.0]))
    search = partial(optimize.minimize, objective, jac=True, bounds=bounds, method="L-BFGS-B", tol=1e-14)
    found = [search(start) for start in starts]
    best = min(found, key=lambda result: float(result.fun)).x * optimum.temperature
    values["weights"] = torch.tensor([best[0], best[1] / typical], dtype=torch.float64)
    return FittedValues(values, bound_notes(optimum))


# Being right from confidence and proximity, by the ratio of two densities.


def proximity(values: Values, features: Tensor) -> Floats:
    """exp(-mean distance to the nearest training rows)."""
    return np.exp(-near_distances(features, values["points"], int(values["neighbours"])) / float(values["unit"]))


def kernel_density(points: Floats, at: Floats) -> Floats:
    """Gaussian product kernel with normal-reference widths 1.06 s n^(-1/6), as the authors take it."""
    widths = np.maximum(1.06 * points.std(axis=0) * len(points) ** (-1 / 6), 1e-6)
    scaled, where = points / widths, at / widths
    result = np.empty(len(at))
    for start in range(0, len(at), 1024):
        gaps = where[start : start + 1024, None] - scaled
        result[start : start + 1024] = np.exp(-np.square(gaps).sum(axis=2) / 2).mean(axis=1)
    return np.asarray(result / (2 * np.pi * widths.prod()))


def apply_proximity(values: Values, logits: Logits, evidence: Evidence) -> Logits:
    """P(right | confidence, proximity) for the top class; the others share the rest as before."""
    lead = logits.argmax(dim=1)
    confidence = torch.sigmoid(log_odds(logits, lead)).cpu().numpy()
    at = np.stack([confidence, proximity(values, evidence.need_features)], axis=1)
    right, wrong = (kernel_density(values[name].cpu().numpy(), at) for name in ("right", "wrong"))
    right, wrong = right * len(values["right"]), wrong * len(values["wrong"])
    # Far from all that was seen both densities vanish: there the confidence stays.
    known = right + wrong > 1e-10 * (len(values["right"]) + len(values["wrong"]))
    mapped = np.where(known, right / np.maximum(right + wrong, 1e-300), confidence)
    odds = torch.logit(torch.from_numpy(mapped).to(logits), SMALLEST_PROBABILITY)
    return with_log_odds(logits, lead, odds)


@CALIBRATORS.add(
    "procal",
    paper="Xiong et al., 2023, Proximity-informed calibration, arXiv:2306.04590",
    title="proximity-informed calibration",
    corners=({"neighbours": 1},),
    keeps_argmax=True,
    yields="probabilities",
    parameters=(10, 0, 0),
    transform=apply_proximity,
    wants="features",
)
def procal(logits: Logits, labels: Labels, *, evidence: Evidence, neighbours: int = 10) -> FittedValues:
    """Proximity-informed calibration, P(right | confidence, exp(-mean distance to neighbours)) by a ratio of densities.

    The density-ratio form of the paper. Distances are in units of their mean over these samples, so that the
    exponential neither vanishes nor saturates in wide spaces.

    Args:
        logits: of held-out samples, `n c`; `calibrators.fit` checks them and puts its result into a `Calibrator`.
        labels: their classes, `n`.
        evidence: what `calibrators.fit` makes of `features` and `fitted`.
        neighbours: training samples whose distances are averaged.

    Returns:
        The fitted values, for the transform of this word, and what a person should know about the fit.

    Example:
        >>> import numpy as np
        >>> draw, labels = np.random.default_rng(0), np.arange(120) % 3
        >>> rows = np.eye(3)[labels] + 0.2 * draw.normal(size=(120, 3))
        >>> val = confide.Predictions(2 * np.eye(3)[labels] + draw.normal(size=(120, 3)), labels, split="val")
        >>> train = confide.Features(np.eye(3)[labels], labels, np.arange(120), "drawn", "train")
        >>> calibrator = confide.calibrators.fit("procal", val, features=rows, fitted=train)
        >>> calibrator(val, features=rows).logits.shape
        torch.Size([120, 3])
    """
    check_number(neighbours, "neighbours", 10, 1, math.inf)
    points = torch.as_tensor(evidence.need_reference.training_rows).float()
    values = {"points": points, "neighbours": torch.tensor(min(neighbours, len(points)))}
    distances = near_distances(evidence.need_features, points, int(values["neighbours"]))
    values["unit"] = torch.tensor(float(distances.mean()) or 1.0, dtype=torch.float64)
    lead = predicted_classes(logits)
    confidence = torch.sigmoid(log_odds(logits.double(), lead)).numpy()
    pairs = np.stack([confidence, np.exp(-distances / float(values["unit"]))], axis=1)
    right: NDArray[np.bool_] = (lead == labels).numpy()
    for name, rows in (("right", right), ("wrong", ~right)):
        # One sample of each kind at least, uniform in doubt: a density of nothing has no ratio.
        chosen = pairs[rows] if rows.any() else pairs.mean(axis=0, keepdims=True)
        values[name] = torch.from_numpy(chosen)
    return FittedValues(values)
