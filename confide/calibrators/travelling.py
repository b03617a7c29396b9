"""Calibration that travels: temperatures that follow harder images, learned on held-out samples under several shifts.

A temperature fitted on clean samples is far too sure under corruption. `travelling` is fitted on clean and shifted
validation samples together and looks at what is known without labels. Per batch: the batch's accuracy is estimated by
a ridge regression on a few of its statistics, and the temperature is the one whose mean confidence equals it. Per
sample: the log of the temperature is linear in difficulty, distance to the training data and energy.
"""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import torch
from scipy import optimize
from torch import Tensor

from confide.calibrators.base import CALIBRATORS, FittedValues, Values
from confide.calibrators.evidence import Evidence
from confide.calibrators.second_opinion import fit_gaussian, gaussian_difficulty, gaussian_posterior, part_of
from confide.calibrators.temperature_scaling import best_scale, bound_notes
from confide.checks import InputError
from confide.random import uneven_shares
from confide.registry import Interval
from confide.types import Floats, Labels, Logits, PerSample, Words

CLEAN_WEIGHT = 8.0
RIDGE = 0.3
CLEAN_DRAWS = 20
"""Other shares of the classes with which the clean samples count."""
SMALLEST_BATCH = 200
"""Below so many samples the statistics of a batch say more about chance than about the batch."""
LARGEST_FACTOR = 50.0
"""How far a batch's or sample's temperature may be from the clean one."""
MODES = ("batch", "sample")


def sample_signals(values: Values, logits: Logits, features: Tensor) -> dict[str, PerSample]:
    """What is known of every sample without its label."""
    gaussian = part_of(values, "gaussian")
    tempered = torch.softmax(logits / values["temperature"], dim=1)
    posterior = gaussian_posterior(gaussian, features)
    rows = (features.double() - gaussian["origin"]) @ gaussian["matrix"]
    to_class = (rows - gaussian["centres"][posterior.argmax(dim=1)]).square().sum(dim=1)
    return {
        "confidence": tempered.amax(dim=1),
        "difficulty": gaussian_difficulty(gaussian, features),
        "distance": to_class.clamp_min(1e-12).log(),
        "energy": torch.logsumexp(logits / values["temperature"], dim=1) - logits.mean(dim=1) / values["temperature"],
        "named": logits.argmax(dim=1),
    }


def batch_statistics(values: Values, signals: dict[str, PerSample], weights: PerSample | None = None) -> Tensor:
    """One, the log odds of mean confidence and of the share above the threshold, and the fall of confidence times that
    of the entropy of the named classes: a shifted network names few classes, less surely; other shares of the classes
    alone leave it as sure as before. Then mean difficulty and distance in standard units.
    """
    n = len(signals["confidence"])
    share = torch.full((n,), 1 / n, dtype=torch.float64) if weights is None else weights / weights.sum()

    def odds(rate: Tensor) -> Tensor:
        return torch.logit(rate.clamp(0.5 / n, 1 - 0.5 / n))

    above = share @ (signals["confidence"] > values["threshold"]).double()
    sureness = odds(share @ signals["confidence"])
    fall = values["clean"] - torch.stack([sureness, class_entropy(signals["named"], share)])
    constant, difficulty, distance, _ = share @ in_units(values, signals)
    return torch.stack([constant, sureness, odds(above), fall.prod(), difficulty, distance])


ALWAYS = 4
"""Statistics of a batch that are always used; those after them only where they help on shifts left out."""


def class_entropy(classes: Tensor, share: PerSample) -> Tensor:
    """Of the shares of the classes; each sample has its own share."""
    entropy: Tensor = torch.special.entr(torch.bincount(classes, share)).sum()
    return entropy


UNITS = ("difficulty", "distance", "energy")
"""Signals that are put into standard units of the clean samples."""


def in_units(values: Values, signals: dict[str, PerSample]) -> Tensor:
    """One, and these signals in standard units, `n 4`."""
    units = values["units"]
    columns = [(signals[name] - units[k, 0]) / units[k, 1] for k, name in enumerate(UNITS)]
    return torch.stack([torch.ones_like(columns[0]), *columns], dim=1)


def scale_for(logits: Logits, confidence: float, start: float) -> float:
    """The 1/T at which the mean of the top probabilities is `confidence`, within the allowed factor of the start."""

    def excess(log_scale: float) -> float:
        return float(torch.softmax(logits * math.exp(log_scale), dim=1).amax(dim=1).mean()) - confidence

    low, high = math.log(start / LARGEST_FACTOR), math.log(start * LARGEST_FACTOR)
    if excess(low) >= 0:
        return math.exp(low)
    return math.exp(high if excess(high) <= 0 else float(optimize.brentq(excess, low, high, xtol=1e-8)))


def apply_travelling(values: Values, logits: Logits, evidence: Evidence) -> Logits:
    """z / T with the T of the batch, or of every sample; a batch that is too small, or not told apart from clean ones
    of other class shares, keeps the clean one.
    """
    signals = sample_signals(values, logits, evidence.need_features)
    if "sample" in values:
        factor = in_units(values, signals) @ values["sample"]
        limit = math.log(LARGEST_FACTOR)
        return logits / values["temperature"] * torch.exp(-factor.clamp(-limit, limit))[:, None]
    if len(logits) < int(values["smallest"]):
        return logits / values["temperature"]
    statistics = batch_statistics(values, signals)
    estimate = statistics @ values["batch"]
    if abs(float(estimate - statistics[1])) <= float(values.get("tolerance", torch.zeros(()))):
        return logits / values["temperature"]
    return logits * scale_for(logits, float(torch.sigmoid(estimate)), 1 / float(values["temperature"]))


@CALIBRATORS.add(
    "travelling",
    paper="Confide; batch accuracy without labels after Garg et al., 2022, arXiv:2201.04234",
    title="calibration that travels",
    corners=({"mode": "sample"}, {"smallest": 1}),
    ranges={"smallest": Interval(1)},
    choices={"mode": MODES},
    keeps_argmax=True,
    yields="logits",
    parameters=(5, 0, 0),
    transform=apply_travelling,
    wants="features",
    whole=True,
)
def travelling(
    logits: Logits, labels: Labels, *, evidence: Evidence, mode: str = "batch", smallest: int = SMALLEST_BATCH
) -> FittedValues:
    """Calibration that travels, softmax(z / T) with the T of a batch whose mean confidence is its estimated accuracy.

    The validation predictions hold clean and shifted samples: their column `shift` names the shift of every sample,
    empty for clean ones. One call is one batch, which should come from one source.

    When: samples of several shifts can be had for the fit, and data come in batches of one source.
    When not: data come one by one, or from clean sources; class shares that move far may be taken for difficulty.

    Args:
        logits: of held-out samples, `n c`; `calibrators.fit` checks them and puts its result into a `Calibrator`.
        labels: their classes, `n`.
        evidence: what `calibrators.fit` makes of `features`, `fitted` and the column `shift`.
        mode: `batch`, or `sample` for a temperature of every sample: it needs no batch, and costs more on clean data.
        smallest: samples below which a batch keeps the temperature of clean data.

    Returns:
        The fitted values: the clean `temperature`, and the weights of the batch's or the sample's statistics.

    Raises:
        InputError: no clean samples.

    Example:
        >>> import numpy as np
        >>> draw, labels = np.random.default_rng(0), np.arange(600) % 3
        >>> noise = np.where(np.arange(600) < 300, 0.5, 1.5)[:, None]  # the later half is shifted
        >>> rows = np.eye(3)[labels] + 0.5 * noise * draw.normal(size=(600, 3))
        >>> logits = 5 * (np.eye(3)[labels] + noise * draw.normal(size=(600, 3)))
        >>> shift = np.where(np.arange(600) < 300, "", "noise")
        >>> val = confide.Predictions(logits, labels, split="val").with_column("shift", shift)
        >>> seen = np.eye(3)[labels] + 0.3 * draw.normal(size=(600, 3))
        >>> train = confide.Features(seen, labels, np.arange(600), "drawn", "train")
        >>> calibrator = confide.calibrators.fit("travelling", val, features=rows, fitted=train)
        >>> hard = val.take(np.arange(300, 600))
        >>> after = calibrator(hard, rows[300:])
        >>> accuracy = hard.facts.correct.double()
        >>> [round(float(part.mean()), 1) for part in (hard.facts.confidence, after.facts.confidence, accuracy)]
        [0.9, 0.5, 0.5]
    """
    shifts = np.full(len(labels), "") if evidence.shifts is None else evidence.shifts
    clean = torch.from_numpy(shifts == "")
    if not bool(clean.any()):
        raise InputError("calibrator 'travelling' needs clean samples, whose column 'shift' is empty; got none")
    features = evidence.need_features
    rows = logits.double()
    gaussian = fit_gaussian(evidence.need_reference, 0)
    optimum = best_scale(logits[clean], labels[clean])
    values: dict[str, Tensor] = {f"gaussian.{name}": part for name, part in gaussian.items()}
    values["temperature"] = torch.tensor(optimum.temperature, dtype=torch.float64)
    signals = sample_signals(values, rows, features)
    known = [signals[name][clean] for name in UNITS]
    values["units"] = torch.stack([torch.stack([s.mean(), s.std(correction=0).clamp_min(1e-9)]) for s in known])
    right = (rows.argmax(dim=1) == labels).double()
    # As many clean samples lie above it as are right.
    values["threshold"] = torch.quantile(signals["confidence"][clean], 1 - right[clean].mean())
    sureness = torch.logit(signals["confidence"][clean].mean())
    share = clean.double() / clean.sum()
    values["clean"] = torch.stack([sureness, class_entropy(signals["named"], share)])
    names = np.unique(shifts)
    notes = list(bound_notes(optimum))
    if len(names) < 3:
        notes.append("fewer than two shifts among the validation samples: what is harder cannot be learned from them")
    if mode == "sample":
        values["sample"] = _sample_weights(values, rows, labels, signals, shifts)
    else:
        values["smallest"] = torch.tensor(int(smallest))
        values["batch"], values["tolerance"] = _batch_weights(values, signals, labels, right, shifts)
    return FittedValues(values, tuple(notes))


def _weights(shifts: Words) -> Floats:
    """Every shift counts once, clean samples as eight, each spread over its samples."""
    names, place, counts = np.unique(shifts, return_inverse=True, return_counts=True)
    share = np.where(names == "", CLEAN_WEIGHT, 1.0) / counts
    return np.asarray(share[place] / share[place].sum())


def _batch_weights(
    values: Values, signals: dict[str, PerSample], labels: Labels, right: PerSample, shifts: Words
) -> tuple[Tensor, Tensor]:
    """Ridge regression of the log odds of a batch's accuracy on its statistics, drawn towards its mean confidence; and
    how far it takes clean samples of any class shares from that confidence, which is no sign of a shift.

    Every batch also counts with other shares of the classes, the clean one with several: that is not difficulty.
    Difficulty and distance leave their range under some shifts and lead astray: each is used where the error on shifts
    left out is smaller with it.
    """
    table, targets, weights, kinds = [], [], [], []

    # Shares go to classes by how sure the network is of them, so that they do not depend on the order of the classes.
    counts = torch.bincount(labels).clamp_min(1)
    place = (torch.bincount(labels, signals["confidence"]) / counts).argsort().argsort()[labels]
    for number, name in enumerate(np.unique(shifts)):
        rows = torch.from_numpy(np.flatnonzero(shifts == name))
        part = {key: signal[rows] for key, signal in signals.items()}
        for draw in range(1 + (CLEAN_DRAWS if name == "" else 1)):
            shares = (
                torch.from_numpy(uneven_shares(len(counts), draw, counter=number)) if draw else torch.ones(len(counts))
            )
            weight = shares.double()[place[rows]]
            table.append(batch_statistics(values, part, weight))
            rate = (weight @ right[rows]) / weight.sum()
            targets.append(torch.logit((len(rows) * rate + 0.5) / (len(rows) + 1)))
            weights.append(CLEAN_WEIGHT if name == "" and not draw else 1.0)
            kinds.append(str(name).rpartition("-")[0] or str(name))
    columns, target, weight = torch.stack(table), torch.stack(targets), torch.tensor(weights, dtype=torch.float64)
    # Without evidence the accuracy is the mean confidence: its weight is drawn towards 1, all others to 0.
    start = torch.zeros(columns.shape[1], dtype=torch.float64)
    start[1] = 1.0

    def solve(used: Tensor, rows: Tensor) -> Tensor:
        some = columns[rows][:, used]
        moved = torch.linalg.solve(
            some.T @ (weight[rows, None] * some) + RIDGE * torch.eye(len(used), dtype=torch.float64),
            some.T @ (weight[rows] * (target[rows] - columns[rows] @ start)),
        )
        return start.index_add(0, used, moved)

    def error_left_out(used: Tensor) -> float:
        errors = []
        for kind in sorted({*kinds} - {""}):
            left_out = torch.tensor([own == kind for own in kinds])
            fitted = solve(used, (~left_out).nonzero()[:, 0])
            errors.append((columns[left_out] @ fitted - target[left_out]).square())
        return float(torch.cat(errors).mean()) if errors else 0.0

    optional = range(ALWAYS, columns.shape[1])
    sets = [
        torch.tensor([*range(ALWAYS), *some]) for k in range(len(optional) + 1) for some in combinations(optional, k)
    ]
    fitted = solve(min(sets, key=error_left_out), torch.arange(len(columns)))
    clean = columns[torch.tensor([own == "" for own in kinds])]
    return fitted, (clean @ fitted - clean[:, 1]).abs().max()


def _sample_weights(
    values: Values, logits: Logits, labels: Labels, signals: dict[str, PerSample], shifts: Words
) -> Tensor:
    """Weights of log T / T_clean with the smallest NLL over all shifts, lightly drawn to 0."""
    columns = in_units(values, signals)
    weight = torch.from_numpy(_weights(shifts))
    rows, limit = logits / values["temperature"], math.log(LARGEST_FACTOR)
    target = torch.nn.functional.one_hot(labels, logits.shape[1]).double()

    def objective(unknowns: Floats) -> tuple[float, Floats]:
        factor = columns @ torch.from_numpy(unknowns)
        moved = rows * torch.exp(-factor.clamp(-limit, limit))[:, None]
        log_probs = torch.log_softmax(moved, dim=1)
        loss = -(weight * log_probs.gather(1, labels[:, None])[:, 0]).sum()
        pull = -(weight * ((log_probs.exp() - target) * moved).sum(dim=1)) * (factor.abs() < limit)
        return float(loss) + 1e-4 * float(unknowns @ unknowns), (pull @ columns).numpy() + 2e-4 * unknowns

    minimum = optimize.minimize(objective, np.zeros(columns.shape[1]), jac=True, method="L-BFGS-B")
    return torch.from_numpy(np.asarray(minimum.x))
