"""A temperature for every sample: `parameterised_temperature` from the sorted logits, `dac` from the distance to the
training samples; and `procal`, the probability of being right from confidence and proximity.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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
from confide.checks import SEEDS, InputError
from confide.facts import SMALLEST_PROBABILITY
from confide.numerics.neighbours import nearest_neighbours, unit
from confide.registry import Interval
from confide.types import Floats, Labels, Logits

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
    ranges={"seed": (-SEEDS, SEEDS)},
    choices={"criterion": ("brier", "nll")},
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

    When: samples are very many and one temperature leaves some groups too sure.
    When not: samples are some thousand: it did worse than one temperature on CIFAR-10.

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


def layer_distances(values: Values, features: Tensor) -> Tensor:
    """The same between rows of length one, `n l` for l layers whose columns lie side by side."""
    widths = values["widths"].tolist() if "widths" in values else [features.shape[1]]
    pairs = zip(features.double().split(widths, dim=1), values["points"].split(widths, dim=1), strict=True)
    columns = [near_distances(unit(rows), points, int(values["neighbours"])) for rows, points in pairs]
    return torch.from_numpy(np.stack(columns, axis=1)).to(features.device)


def apply_density(values: Values, logits: Logits, evidence: Evidence) -> Logits:
    """z / (w0 + sum_l w_l s_l(x))."""
    weights = values["weights"]
    temperature = weights[0] + layer_distances(values, evidence.need_features) @ weights[1:]
    return logits / temperature[:, None]


@CALIBRATORS.add(
    "dac",
    paper="Tomani et al., 2023, Beyond in-domain scenarios: density-aware calibration, arXiv:2302.05118",
    title="density-aware calibration",
    corners=({"criterion": "brier"}, {"neighbours": 1}, {"layers": (1, -1)}),
    ranges={"neighbours": Interval(1)},
    choices={"criterion": ("nll", "brier")},
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
    layers: tuple[int, ...] = (),
) -> FittedValues:
    """Density-aware calibration, softmax(z / (w0 + sum_l w_l s_l)), s_l the mean distance to near training features.

    Rows are scaled to length one, those of several layers each by itself; no weight is below 0.

    When: test samples may lie far from the training data and features are at hand.
    When not: features cannot be computed for every sample.

    Args:
        logits: of held-out samples, `n c`; `calibrators.fit` checks them and puts its result into a `Calibrator`.
        labels: their classes, `n`.
        weights: how much each sample counts, of mean 1.
        evidence: what `calibrators.fit` makes of `features` and `fitted`.
        neighbours: training samples whose distances are averaged.
        criterion: `nll` or `brier`, both the authors'.
        layers: columns of every layer, where `features` holds those of several side by side, as the authors take them;
            -1 once stands for the rest. Empty: all columns are one layer.

    Returns:
        The fitted values, for the transform of this word, and what a person should know about the fit.

    Raises:
        InputError: layers that do not add up to the columns of the features.

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
    rows = torch.as_tensor(evidence.need_reference.training_rows).double()
    widths = layer_widths(layers, rows.shape[1])
    points = torch.cat([unit(part).float() for part in rows.split(widths, dim=1)], dim=1)
    values = {"points": points, "neighbours": torch.tensor(min(neighbours, len(points)))}
    if len(widths) > 1:
        values["widths"] = torch.tensor(widths)
    signals = layer_distances(values, evidence.need_features)
    typical = signals.mean(dim=0)
    typical = torch.where(typical > 0, typical, 1.0)
    # Parts of 1 and s_l / mean s_l, in units of the best single temperature.
    columns = torch.cat([torch.ones(len(signals), 1, dtype=torch.float64), signals / typical], dim=1)
    optimum = best_scale(logits, labels, weights)
    share = torch.from_numpy(np.full(len(labels), 1 / len(labels)) if weights is None else weights / weights.sum())
    scaled, target = logits.double() * optimum.scale, nn.functional.one_hot(labels, logits.shape[1]).double()

    def objective(parts: Floats) -> tuple[float, Floats]:
        temperature = (columns @ torch.from_numpy(parts))[:, None]
        moved = scaled / temperature
        log_probs = torch.log_softmax(moved, dim=1)
        probs = log_probs.exp()
        if criterion == "nll":
            loss, pull = -(log_probs.gather(1, labels[:, None])[:, 0] @ share), probs - target
        else:
            loss, gap = (probs - target).square().sum(dim=1) @ share, 2 * (probs - target)
            pull = probs * (gap - (gap * probs).sum(dim=1, keepdim=True))
        by_temperature = (pull * -moved / temperature).sum(dim=1) * share
        return float(loss), (by_temperature @ columns).numpy()

    count = len(widths)
    bounds = [(1e-3, 1e3), *[(0.0, 1e3)] * count]
    starts = [np.array([own, *[(1 - own) / count] * count]) for own in (1.0, 0.5, 1e-3)]
    search = partial(optimize.minimize, objective, jac=True, bounds=bounds, method="L-BFGS-B", tol=1e-14)
    best = min((search(start) for start in starts), key=lambda result: float(result.fun)).x * optimum.temperature
    values["weights"] = torch.from_numpy(best) / torch.cat([torch.ones(1), typical])
    return FittedValues(values, bound_notes(optimum))


def layer_widths(layers: Sequence[int], columns: int) -> list[int]:
    """Columns of every layer; -1 once is what the others leave."""
    widths = [int(width) for width in layers] or [columns]
    if widths.count(-1) == 1:
        widths[widths.index(-1)] = columns - sum(width for width in widths if width != -1)
    if min(widths) < 1 or sum(widths) != columns:
        raise InputError(
            f"layers must be numbers of columns that add up to the {columns} of the features, got {list(layers)}"
        )
    return widths


# Being right from confidence and proximity, by the ratio of two densities or by bins.


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
    near = proximity(values, evidence.need_features)
    if "shifts" in values:
        mapped = shifted_confidence(values, confidence, near)
        return with_log_odds(logits, lead, torch.logit(torch.from_numpy(mapped).to(logits), SMALLEST_PROBABILITY))
    at = np.stack([confidence, near], axis=1)
    right, wrong = (kernel_density(values[name].cpu().numpy(), at) for name in ("right", "wrong"))
    right, wrong = right * len(values["right"]), wrong * len(values["wrong"])
    # Far from all that was seen both densities vanish: there the confidence stays.
    known = right + wrong > 1e-10 * (len(values["right"]) + len(values["wrong"]))
    mapped = np.where(known, right / np.maximum(right + wrong, 1e-300), confidence)
    odds = torch.logit(torch.from_numpy(mapped).to(logits), SMALLEST_PROBABILITY)
    return with_log_odds(logits, lead, odds)


def bin_of(values: Values, confidence: Floats, near: Floats) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Band of proximity and, within it, bin of confidence of every sample."""
    band = np.searchsorted(values["bands"].cpu().numpy(), near)
    edges = values["edges"].cpu().numpy()[band]
    return band, (confidence[:, None] > edges).sum(axis=1)


def shifted_confidence(values: Values, confidence: Floats, near: Floats) -> Floats:
    """Confidence plus accuracy minus mean confidence of the sample's bin."""
    shifts = values["shifts"].cpu().numpy()
    return np.asarray(np.clip(confidence + shifts[bin_of(values, confidence, near)], 0.0, 1.0))


@CALIBRATORS.add(
    "procal",
    paper="Xiong et al., 2023, Proximity-informed calibration, arXiv:2306.04590",
    title="proximity-informed calibration",
    corners=({"neighbours": 1}, {"form": "bin_mean_shift"}, {"form": "bin_mean_shift", "proximity_bins": 1, "bins": 1}),
    ranges={"neighbours": Interval(1), "proximity_bins": Interval(1), "bins": Interval(1)},
    choices={"form": ("density_ratio", "bin_mean_shift")},
    keeps_argmax=True,
    yields="probabilities",
    parameters=(10, 0, 0),
    transform=apply_proximity,
    wants="features",
)
def procal(
    logits: Logits,
    labels: Labels,
    *,
    evidence: Evidence,
    neighbours: int = 10,
    form: str = "density_ratio",
    proximity_bins: int = 5,
    bins: int = 10,
) -> FittedValues:
    """Proximity-informed calibration, P(right | confidence, exp(-mean distance to neighbours)).

    Both forms of the paper.

    When: confidence is wrong in a way that depends on how rare a sample's kind is.
    When not: neighbours cannot be computed, or few samples are far from others: it raised NLL and AURC on CIFAR-10.

    Differs from the paper: distances are in units of their mean over these samples, so that the exponential neither
    vanishes nor saturates in wide spaces.

    Args:
        logits: of held-out samples, `n c`; `calibrators.fit` checks them and puts its result into a `Calibrator`.
        labels: their classes, `n`.
        evidence: what `calibrators.fit` makes of `features` and `fitted`.
        neighbours: training samples whose distances are averaged.
        form: `density_ratio`, by the densities of right and wrong samples; or `bin_mean_shift`: confidence plus
            accuracy minus mean confidence of the sample's bin.
        proximity_bins: of equal mass, for `bin_mean_shift`. Default: the authors'.
        bins: of confidence in each of these, of equal mass, likewise.

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
    points = torch.as_tensor(evidence.need_reference.training_rows).float()
    values = {"points": points, "neighbours": torch.tensor(min(neighbours, len(points)))}
    distances = near_distances(evidence.need_features, points, int(values["neighbours"]))
    values["unit"] = torch.tensor(float(distances.mean()) or 1.0, dtype=torch.float64)
    lead = predicted_classes(logits)
    confidence = torch.sigmoid(log_odds(logits.double(), lead)).numpy()
    pairs = np.stack([confidence, np.exp(-distances / float(values["unit"]))], axis=1)
    right: NDArray[np.bool_] = (lead == labels).numpy()
    if form == "bin_mean_shift":
        return FittedValues(values | mean_shifts(pairs[:, 0], pairs[:, 1], right, proximity_bins, bins))
    for name, rows in (("right", right), ("wrong", ~right)):
        # One sample of each kind at least, uniform in doubt: a density of nothing has no ratio.
        chosen = pairs[rows] if rows.any() else pairs.mean(axis=0, keepdims=True)
        values[name] = torch.from_numpy(chosen)
    return FittedValues(values)


def mean_shifts(confidence: Floats, near: Floats, right: NDArray[np.bool_], bands: int, bins: int) -> dict[str, Tensor]:
    """Edges of the bands of proximity and of the bins in each; accuracy minus mean confidence of every bin."""
    edges = np.quantile(near, np.arange(1, bands) / bands)
    band = np.searchsorted(edges, near)
    inner = np.zeros((bands, bins - 1))
    for k in np.unique(band):
        inner[k] = np.quantile(confidence[band == k], np.arange(1, bins) / bins)
    values = {"bands": torch.from_numpy(edges), "edges": torch.from_numpy(inner)}
    cell = np.ravel_multi_index(bin_of(values, confidence, near), (bands, bins))
    sums, counts = (np.bincount(cell, w, bands * bins) for w in (right - confidence, None))
    return values | {"shifts": torch.from_numpy((sums / np.maximum(counts, 1)).reshape(bands, bins))}
