"""Hard or mislabelled? How well each label fits the features, damaged inputs, and one verdict per sample."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from scipy.optimize import minimize_scalar
from scipy.stats import chi2, poisson
from torch import Tensor

from confide.block_sizes import MEMORY, rows_in
from confide.checks import InputError, check_range
from confide.difficulty.base import check_features
from confide.numerics.blocks import working_block
from confide.numerics.gaussians import Gaussians, class_shares, distance_tables, fit_gaussians
from confide.predictions import Predictions
from confide.progress import Progress
from confide.records import Ids, Scores
from confide.types import ClassIndices, Floats

# Does the label fit? Every sample judged by the Gaussians of all the others: posterior, suspicion, better label.

CALIBRATION_ROWS = 20_000
ATYPICAL = 3.5
"""Robust deviations of the distance to the best class from its median beyond which no class fits."""


@dataclass(frozen=True, eq=False)
class LabelFit:
    """Columns of length n. Posteriors are tempered so that they fit the labels as a whole."""

    self_confidence: Floats  # posterior of the label
    suspicion: Floats  # log odds of the best other class against the label; above 0 the other one fits better
    suggested: ClassIndices  # class of largest posterior
    second: ClassIndices  # runner-up
    top: Floats  # posterior of the suggested class
    runner_up: Floats
    doubtful: NDArray[np.bool_]  # the label looks wrong by confident learning's rule
    deviation: Floats  # distance to the suggested class's Gaussian, in robust deviations from its median
    false_chance: Floats  # estimated chance that the label is right although another class fits better; 1 where none
    false_chance_sd: Floats  # how unsure that estimate is
    tail: ClassIndices  # from which fitted tail the chance comes: those of one tail err together; -1 where none
    mirror_chance: Floats  # false_chance of the sample's mirror image, whose label is right; 1 where it is no suspect
    temperature: float


@dataclass(frozen=True, eq=False)
class _Posteriors:
    """Log-posteriors of samples in blocks, each with the labels and the distance to the likeliest class."""

    labels: ClassIndices
    num_classes: int
    temperature: float
    gaussians: Gaussians | None = None
    values: Any = None
    clean: NDArray[np.bool_] | None = None
    log_probs: Any = None  # of a model, out of fold

    def __iter__(self) -> Iterator[tuple[ClassIndices, Tensor, Tensor]]:
        if self.gaussians is None:
            step = rows_in(MEMORY, self.num_classes)
            for start in range(0, len(self.labels), step):
                part = slice(start, start + step)
                log_posterior = torch.as_tensor(self.log_probs[part]).clamp_min(LEAST_LOG)
                yield self.labels[part], log_posterior, log_posterior.new_zeros(len(log_posterior))
            return
        assert self.clean is not None
        prior = torch.log(torch.as_tensor(class_shares(self.gaussians)))
        # A row of the fit is left out of it, a dropped one never in it.
        plain = None if self.clean.all() else distance_tables(self.gaussians, self.values)
        for start, table, _ in distance_tables(self.gaussians, self.values, fitted_labels=self.labels):
            part = slice(start, start + len(table))
            if plain is not None:
                dropped = torch.as_tensor(~self.clean[part], device=table.device)
                table = torch.where(dropped[:, None], next(plain)[1], table)
            raw = prior.to(table) - table.to(torch.float64) / 2
            log_posterior = torch.log_softmax(raw / self.temperature, dim=1)
            if self.log_probs is not None:
                log_probs = torch.as_tensor(self.log_probs[part], device=table.device).to(log_posterior)
                log_posterior = torch.log_softmax((log_posterior + log_probs) / 2, dim=1)
            # A posterior of exactly zero has no log odds; the floor is far below anything that matters.
            log_posterior = log_posterior.clamp_min(LEAST_LOG)
            distance = table.gather(1, log_posterior.argmax(dim=1, keepdim=True)).squeeze(1)
            yield self.labels[part], log_posterior, distance.to(torch.float64).sqrt()


LEAST_LOG = -1e4


def label_fit(
    values: Any, labels: ClassIndices, *, rounds: int = 3, shrinkage: Any = "ledoit_wolf", member_log_probs: Any = None
) -> LabelFit:
    """Posterior of every class for every sample, leave-one-out, after dropping suspects from the fit.

    Args:
        values: features `n d`; None judges by `member_log_probs` alone.
        rounds: fits; each but the last drops the samples whose label looks wrong from the next.
        shrinkage: as in `rmd`. Ledoit-Wolf by default: a posterior must hold up where samples barely outnumber columns.
        member_log_probs: out-of-fold log-probabilities `n c` of a model; averaged with the Gaussians' ones.
    """
    if values is None:
        return _judge(_Posteriors(labels, member_log_probs.shape[1], 1.0, log_probs=member_log_probs))
    num_classes = int(labels.max()) + 1
    clean = np.ones(len(labels), dtype=bool)
    for each in range(rounds):
        rows = values if clean.all() else _MaskedRows(values, clean)
        gaussians = fit_gaussians(rows, labels[clean], num_classes, shrinkage=shrinkage)
        temperature = _temperature(gaussians, values, labels, clean)
        posteriors = _Posteriors(labels, num_classes, temperature, gaussians, values, clean, member_log_probs)
        if each == rounds - 1:
            images = _MirroredRows(values, labels, gaussians.means)
            mirrored = replace(posteriors, values=images) if member_log_probs is None else None
            return _judge(posteriors, mirrored)
        judged = _judge(posteriors, estimate=False)
        clean = ~judged.doubtful
        # A class must not lose all its samples: without a Gaussian nothing could fit it.
        bare = np.bincount(labels[clean], minlength=num_classes) < 2
        clean |= bare[labels]
    raise AssertionError("rounds are checked to be 1 or more")


class _MaskedRows:
    """The rows of a mask, as blocks of a fit see them."""

    def __init__(self, values: Any, mask: NDArray[np.bool_]) -> None:
        self.values, self.index = values, np.flatnonzero(mask)
        self.shape, self.dtype = (len(self.index), int(values.shape[1])), values.dtype

    def __getitem__(self, rows: Any) -> Any:
        chosen = self.index[rows]
        return self.values[torch.as_tensor(chosen) if isinstance(self.values, Tensor) else chosen]


class _MirroredRows:
    """Every row on the other side of its label's mean: noise is as likely there, and a wrong label draws it no nearer
    to another class.
    """

    def __init__(self, values: Any, labels: ClassIndices, means: Floats) -> None:
        self.values, self.labels, self.means = values, labels, means
        self.shape, self.dtype = values.shape, values.dtype

    def __getitem__(self, rows: Any) -> Tensor:
        block = working_block(self.values[rows])
        return 2 * torch.as_tensor(self.means[self.labels[rows]]).to(block) - block


def _judge(posteriors: _Posteriors, mirrored: _Posteriors | None = None, *, estimate: bool = True) -> LabelFit:
    """All columns; the chances of suspects to be right only where an `estimate` is wanted.

    Args:
        mirrored: the same of the samples' mirror images, on which the estimate is checked.
    """
    labels, classes = posteriors.labels, posteriors.num_classes
    # Confident learning's threshold of a class: the mean posterior of it among its own samples.
    sums = np.zeros(classes)
    leads, distances = [], []
    for own, log_posterior, distance in posteriors:
        of_label = log_posterior.gather(1, torch.as_tensor(own, device=log_posterior.device)[:, None])
        np.add.at(sums, own, of_label.squeeze(1).exp().cpu().numpy())
        leads.append(_lead(log_posterior))
        distances.append(distance.cpu().numpy())
    thresholds = sums / np.maximum(np.bincount(labels, minlength=classes), 1)
    to_top = np.concatenate(distances)
    deviation = _deviation(to_top, to_top)
    pairs = _PairCounts(np.concatenate(leads), deviation)
    parts = []
    for own, log_posterior, _ in posteriors:
        parts.append(_columns(log_posterior, own, thresholds))
        if estimate:
            pairs.add(log_posterior, own)
    columns: list[Any] = [np.concatenate(column) for column in zip(*parts, strict=True)]
    n = len(labels)
    chances = np.ones(n), np.zeros(n), np.full(n, -1), np.ones(n)
    if estimate:
        images = None
        if mirrored is not None:
            blocks = [(*_columns(own, of, thresholds)[1:3], _lead(own), far.cpu().numpy()) for of, own, far in mirrored]
            suspicion, suggested, lead, far = (np.concatenate(c) for c in zip(*blocks, strict=True))
            images = pairs.suspects(suggested != labels, suspicion, lead, _deviation(far, to_top))
        _, suspicion, suggested, *_ = columns
        suspects = pairs.suspects(suggested != labels, suspicion, np.concatenate(leads), deviation)
        chances = pairs.false_chances(labels, suspects, images)
    return LabelFit(*[*columns, deviation, *chances, posteriors.temperature])


def _deviation(distance: Floats, usual: Floats) -> Floats:
    """How far off these distances are, in robust deviations from the median of the usual ones."""
    middle = np.median(usual)
    spread = 1.4826 * float(np.median(np.abs(usual - middle)))
    return np.asarray((distance - middle) / max(spread, 1e-12))


def _lead(log_posterior: Tensor) -> Floats:
    """Log odds of the likeliest class against the next."""
    first = log_posterior.topk(2, dim=1).values.cpu().numpy().astype(np.float64)
    return np.asarray(first[:, 0] - first[:, 1])


def _columns(log_posterior: Tensor, labels: ClassIndices, thresholds: Floats) -> tuple[NDArray[Any], ...]:
    own = torch.as_tensor(labels, device=log_posterior.device)[:, None]
    of_label = log_posterior.gather(1, own).squeeze(1)
    others = log_posterior.scatter(1, own, -torch.inf)
    top, place = log_posterior.topk(2, dim=1)
    # Confident learning: a class is a candidate where its posterior reaches its average among its own samples.
    enough = others.exp() >= torch.as_tensor(thresholds, device=others.device).to(others)
    best_other = others.max(dim=1).values
    doubtful = enough.gather(1, others.argmax(dim=1, keepdim=True)).squeeze(1) & (best_other > of_label)
    numbers = (of_label.exp(), best_other - of_label, top[:, 0].exp(), top[:, 1].exp())
    own_posterior, suspicion, first, runner_up = (c.cpu().numpy().astype(np.float64) for c in numbers)
    suggested, second = place.cpu().numpy().T
    return own_posterior, suspicion, suggested, second, first, runner_up, doubtful.cpu().numpy()


def _temperature(gaussians: Gaussians, values: Any, labels: ClassIndices, clean: NDArray[np.bool_]) -> float:
    """The temperature at which the left-out posteriors explain the labels best: Gaussians in many dimensions boast."""
    chosen = np.flatnonzero(clean)
    chosen = chosen[:: max(1, len(chosen) // CALIBRATION_ROWS)]
    mask = np.zeros(len(labels), dtype=bool)
    mask[chosen] = True
    distances = distance_tables(gaussians, _MaskedRows(values, mask), fitted_labels=labels[mask])
    table = torch.cat([-block.to(torch.float64).cpu() / 2 for _, block, _ in distances])
    table += torch.log(torch.as_tensor(class_shares(gaussians)))
    own = torch.as_tensor(labels[mask])
    usable = torch.isfinite(table.gather(1, own[:, None]).squeeze(1))
    if not bool(usable.any()):
        return 1.0
    table, own = table[usable].clamp_min(-1e12), own[usable]

    def loss(log_temperature: float) -> float:
        return float(torch.nn.functional.cross_entropy(table / np.exp(log_temperature), own))

    return float(np.exp(minimize_scalar(loss, bounds=(-3.0, 7.0), method="bounded").x))


# How many of the suspects are right after all? Take every pair of a sample and a class that is not its likeliest one,
# and let m be the log odds between the two. Labels that are right fall on such pairs ever more rarely as m grows: r(m)
# = exp(a - m / 5 - b m^g) + u, by groups of samples: by how far the likeliest class leads the next, and whether the
# sample is nearer to its class than the median. Only where the lead is short, of samples of which the features make
# little, is there a u: right labels that are unlikely at any m. Labels that are wrong do not look at the sample, so
# they fall on pairs of any m alike, in all groups: a floor f under all of the curves. r + f is fitted to the counts,
# f is taken at its lower confidence limit with the tails that belong to it, and of the labels at m the share
# r / (r + f) is right.

LEAST_DECAY = 0.2
"""Odds of the posteriors count for at least a fifth of what they claim; on data without errors they do for more."""
BINS = 320
FINENESS = 32
"""Bins of log(1 + m), and how many to a unit."""
LEAD_GROUPS = 3
"""Tails: samples are grouped by how far their likeliest class leads the next."""
LEAST_AGREEMENT = 0.5
"""Share of labels that must be the likeliest class: features that miss most labels have no word against one."""
TAIL_POWERS = (0.35, 0.6, 1.0, 1.7, 2.5)
TAIL_LOW, TAIL_HIGH = np.array([-2.5, -8.0, 0.0]), np.array([-0.5, 4.0, 0.05])
"""Bounds of a, log b and u."""
FIT_STEPS = 40
TAIL_STARTS = np.array(
    list(itertools.product((-2.2, -1.5, -0.8), np.linspace(-8, 4, 17).tolist(), (0.0, 1e-5, 1e-4, 1e-3, 1e-2)))
)
FLOORS = np.geomspace(1e-6, 0.2, 25)
HALVINGS = 5
"""Of the step between two of the floors, to find the limit."""
ONE_SIDED = 1.645
"""Standard deviations to a 95 % limit."""
ALLOWED_LOSS = ONE_SIDED**2 / 2
"""Log-likelihood that the lower 95 % limit of the floor loses."""


class _PairCounts:
    """Pairs of a sample and a class that is not its likeliest, counted by typicality, group of pairs and log odds."""

    def __init__(self, lead: Floats, deviation: Floats) -> None:
        self.cuts = np.quantile(lead, np.arange(1, LEAD_GROUPS) / LEAD_GROUPS)
        self.groups = np.searchsorted(self.cuts, lead)
        # Samples far from every class have large odds of any kind: floors are read off the others.
        self.typical = deviation <= 0
        self.usable = deviation <= ATYPICAL
        self.counts = np.zeros((2, LEAD_GROUPS, BINS), dtype=np.int64)
        self.row = self.disagreeing = 0

    def add(self, log_posterior: Tensor, labels: ClassIndices) -> None:
        """Count the next block."""
        table = log_posterior.cpu().numpy()
        rows = slice(self.row, self.row + len(table))
        self.row += len(table)
        top = table.argmax(axis=1)
        self.disagreeing += int((top != labels).sum())
        place = self._cell(table.max(axis=1, keepdims=True) - table, self.groups[rows, None], self.typical[rows, None])
        used = np.repeat(self.usable[rows, None], table.shape[1], axis=1)
        used[np.arange(len(table)), top] = False
        self.counts += np.bincount(place[used], minlength=self.counts.size).reshape(self.counts.shape)

    def _cell(self, margin: Floats, group: NDArray[Any], typical: NDArray[np.bool_]) -> NDArray[np.intp]:
        place = np.minimum(FINENESS * np.log1p(margin), BINS - 1).astype(np.intp)
        return np.asarray((np.where(typical, 0, LEAD_GROUPS) + group) * BINS + place)

    def suspects(self, disagrees: NDArray[np.bool_], suspicion: Floats, lead: Floats, deviation: Floats) -> _Suspects:
        """The samples whose label is not their likeliest class, without those that no class fits."""
        rows = np.flatnonzero(disagrees & (deviation <= ATYPICAL))
        return _Suspects(rows, np.searchsorted(self.cuts, lead[rows]), deviation[rows] <= 0, suspicion[rows])

    def false_chances(
        self, labels: ClassIndices, suspects: _Suspects, mirrored: _Suspects | None
    ) -> tuple[Floats, Floats, ClassIndices, Floats]:
        """For every suspect the estimated chance that its label is right, the standard deviation of that estimate and
        the tail that it comes from; 1, 0 and -1 for all where no floor is sure. Then the chance of each mirror image
        that is a suspect, 1 elsewhere.
        """
        n = len(labels)
        chances, deviations, of_tail, mirror_chances = np.ones(n), np.zeros(n), np.full(n, -1), np.ones(n)
        agreeing = n - self.disagreeing
        if not len(suspects.rows) or agreeing < LEAST_AGREEMENT * n:
            return chances, deviations, of_tail, mirror_chances
        pairs, counts = self.counts, np.zeros(self.counts.size, dtype=np.int64)
        np.add.at(counts, self._cell(suspects.margin, suspects.group, suspects.typical), 1)
        labelled = counts.reshape(pairs.shape)
        one_law = not labelled[0].any()  # a handful of suspects, none of them near its class: they share the others'
        if one_law:
            pairs, labelled = pairs.sum(axis=0, keepdims=True), labelled.sum(axis=0, keepdims=True)
        together = [counts.sum(axis=1, keepdims=True) for counts in (pairs, labelled)]
        fits = _FloorFit(*together), _FloorFit(pairs, labelled)
        # As many tails as the counts show: one, unless three fit them better than chance allows.
        gain = 2 * (fits[0].whole_loss() - fits[1].whole_loss())
        one_tail = gain < chi2.ppf(0.95, fits[1].freedom - fits[0].freedom)
        fit = fits[0] if one_tail else fits[1]
        fitted = fit.lower_limit()
        if fitted is None:
            return chances, deviations, of_tail, mirror_chances
        (floor, power), tails = fitted, fit.tails
        for own in (suspects, *([mirrored] if mirrored is not None else [])):
            for (part, k), tail in tails.items():
                chosen = (one_law | (own.typical == (part == 0))) & (one_tail | (own.group == k))
                if not chosen.any():
                    continue
                rows = own.rows[chosen]
                right, log_sd = tail.at(floor, power, own.margin[chosen])
                chance = right / (right + floor)
                if own is suspects:
                    chances[rows], deviations[rows] = chance, chance * (1 - chance) * log_sd
                    of_tail[rows] = part * LEAD_GROUPS + k
                else:
                    mirror_chances[rows] = chance
        return chances, deviations, of_tail, mirror_chances


@dataclass(frozen=True, eq=False)
class _Suspects:
    """Samples whose label is not their likeliest class: group of pairs, whether near its class, log odds against it."""

    rows: NDArray[np.intp]
    group: NDArray[np.intp]
    typical: NDArray[np.bool_]
    margin: Floats


class _TailFits:
    """The likeliest tail r(m) of one group of pairs, given the floor under it and its power."""

    def __init__(self, pairs: NDArray[np.int64], labels: NDArray[np.int64], *, flat: bool) -> None:
        cells = np.flatnonzero(pairs)
        self.margin = np.expm1((cells + 0.5) / FINENESS)
        self.labels = labels[cells].astype(np.float64)
        self.others = pairs[cells] - self.labels
        self.high = TAIL_HIGH if flat else TAIL_HIGH * [1, 1, 0]
        self.starts = TAIL_STARTS if flat else TAIL_STARTS[TAIL_STARTS[:, 2] == 0]
        self.grids: dict[float, Floats] = {}  # by power, r(m) of every start

    def fit(self, floor: float, power: float) -> tuple[float, Floats]:
        """Minus the log-likelihood, and a, log b and u: Fisher scoring, damped so that no step loses."""
        parameters = self._start(floor, power)
        value, gradient, information = self._terms(parameters, floor, power)
        damping = 1e-3
        for _ in range(FIT_STEPS):
            held = ((parameters <= TAIL_LOW) & (gradient > 0)) | ((parameters >= self.high) & (gradient < 0))
            free = ~held
            if not free.any():
                break
            damped = information[np.ix_(free, free)] + np.diag(damping * information.diagonal()[free] + 1e-9)
            step = np.zeros(3)
            step[free] = np.linalg.solve(damped, gradient[free])
            tried = np.clip(parameters - step, TAIL_LOW, self.high)
            terms = self._terms(tried, floor, power)
            if terms[0] < value:
                gain, damping = value - terms[0], damping / 10
                parameters, (value, gradient, information) = tried, terms
                if gain < 1e-4:
                    break
            elif damping > 1e6:
                break
            else:
                damping *= 10
        return value, parameters

    def _start(self, floor: float, power: float) -> Floats:
        """The best of a grid: where a tail has died out the likelihood is flat, and a search from there stays there."""
        if power not in self.grids:
            self.grids[power] = _right(self.starts.T[..., None], self.margin, power)
        rates = np.clip(floor + (1 - floor) * self.grids[power], 1e-12, 1 - 1e-9)
        return np.array(self.starts[int(np.argmax(np.log(rates) @ self.labels + np.log1p(-rates) @ self.others))])

    def _terms(self, parameters: Floats, floor: float, power: float) -> tuple[float, Floats, Floats]:
        """Minus the log-likelihood, its gradient and Fisher's information of the parameters."""
        rate = np.clip(floor + (1 - floor) * _right(parameters, self.margin, power), 1e-12, 1 - 1e-9)
        slopes = (1 - floor) * self._slopes(parameters, self.margin, power)
        value = -float(self.labels @ np.log(rate) + self.others @ np.log1p(-rate))
        gradient = slopes @ (self.others / (1 - rate) - self.labels / rate)
        return value, gradient, (slopes * ((self.others + self.labels) / (rate * (1 - rate)))) @ slopes.T

    def at(self, floor: float, power: float, margin: Floats) -> tuple[Floats, Floats]:
        """How often right labels fall on pairs of these log odds, and the standard deviation of its logarithm."""
        parameters = self.fit(floor, power)[1]
        # What the bounds alone say keeps the information regular where there are few labels.
        known = self._terms(parameters, floor, power)[2] + np.diag(12 / (TAIL_HIGH - TAIL_LOW) ** 2)
        free = self.high > TAIL_LOW
        slopes = self._slopes(parameters, margin, power)[free]
        right = _right(parameters, margin, power)
        sd = np.sqrt(np.einsum("in,ij,jn->n", slopes, np.linalg.inv(known[np.ix_(free, free)]), slopes))
        return right, sd / right

    @staticmethod
    def _slopes(parameters: Floats, margin: Floats, power: float) -> Floats:
        """Slopes of r(m) by a, log b and u."""
        decaying = _right(parameters, margin, power) - parameters[2]
        return np.stack([decaying, -np.exp(parameters[1]) * margin**power * decaying, np.ones_like(margin)])


def _right(parameters: Floats, margin: Floats, power: float) -> Floats:
    exponent = parameters[0] - LEAST_DECAY * margin - np.exp(parameters[1]) * margin**power
    return np.asarray(np.exp(np.clip(exponent, -60, 0)) + parameters[2])


class _FloorFit:
    """One floor under the tails of all groups; of the samples that are near their class it is read."""

    def __init__(self, pairs: NDArray[np.int64], labels: NDArray[np.int64]) -> None:
        several = pairs.shape[1] > 1
        self.tails = {
            (part, k): _TailFits(pairs[part, k], labels[part, k], flat=several and k == 0)
            for part, k in np.ndindex(pairs.shape[:2])
        }
        self.typical = [tail for (part, _), tail in self.tails.items() if part == 0]
        self.others = [tail for tail in self.tails.values() if tail not in self.typical]
        self.freedom = sum(int((tail.high > TAIL_LOW).sum()) for tail in self.tails.values())
        self.losses = {floor: self.loss(floor)[0] for floor in (0.0, *FLOORS.tolist())}
        place = min(self.losses, key=self.losses.__getitem__)
        self.losses |= {near: self.loss(near)[0] for near in (0.78 * place, 1.28 * place)}  # the best is near it
        self.best = min(self.losses, key=self.losses.__getitem__)

    def loss(self, floor: float) -> tuple[float, float]:
        """Minus the log-likelihood, and the power that all tails share."""
        return min((sum(tail.fit(floor, power)[0] for tail in self.typical), power) for power in TAIL_POWERS)

    def whole_loss(self) -> float:
        """Minus the log-likelihood of all tails at the best floor."""
        value, power = self.loss(self.best)
        return value + sum(tail.fit(self.best, power)[0] for tail in self.others)

    def lower_limit(self) -> tuple[float, float] | None:
        """The lower confidence limit of the floor, and the tails' power there; None where it is 0."""
        losses, best = self.losses, self.best
        limit = losses[best] + ALLOWED_LOSS
        if losses[0.0] <= limit:
            return None
        low, high = max(floor for floor in losses if floor < best and losses[floor] > limit), best
        for _ in range(HALVINGS):
            middle = float(np.sqrt(low * high)) if low else high / 2
            low, high = (low, middle) if self.loss(middle)[0] <= limit else (middle, high)
        return high, self.loss(high)[1]


@dataclass(frozen=True)
class LabelEvidence:
    """What a list of wrong labels rests on."""

    listed: int
    disagreeing: int  # labels that are not the likeliest class
    n: int
    false_discovery_rate: float | None  # estimated share of the listed labels that are right
    false_discovery_limit: float | None = None  # its upper 95 % limit, which the list keeps
    source: str = "features"

    def __str__(self) -> str:
        share = f"{self.disagreeing:,} of {self.n:,} labels are not the class that the {self.source} find likeliest"
        if self.false_discovery_rate is not None:
            labels = "1 label looks" if self.listed == 1 else f"{self.listed:,} labels look"
            limit = "" if self.false_discovery_limit is None else f", at most {100 * self.false_discovery_limit:.0f} %,"
            return f"{labels} wrong; an estimated {100 * self.false_discovery_rate:.0f} % of these{limit} are right"
        if 2 * self.disagreeing > self.n:
            return f"these {self.source} cannot tell wrong labels: {share}"
        if not self.disagreeing:
            return f"no label looks wrong: every one is the class that the {self.source} find likeliest"
        return f"no label is called wrong: {share}, but these {self.source} cannot tell wrong labels from hard samples"


# Inputs that look damaged: pictures without contrast, blurred, noisy, dark or bright; texts without words.

OUTLIER = 5.0
"""Robust deviations from the median of all pictures beyond which sharpness is not of this data."""


def quality_flags(inputs: Any, n: int) -> NDArray[np.str_]:
    """A word per input: "" where nothing is wrong, else constant, blurred, noisy, dark, bright or empty."""
    flags = np.full(n, "", dtype="<U8")
    statistics = np.full((n, 4), np.nan)
    with Progress("quality", n) as progress:
        for row in range(n):
            item = inputs[row]
            if isinstance(item, str):
                flags[row] = "" if len("".join(ch for ch in item if ch.isalnum())) > 1 else "empty"
            elif (pixels := _pixels(item)) is not None:
                statistics[row] = _statistics(pixels)
            progress.step()
    known = np.isfinite(statistics[:, 0])
    if known.any():
        flags[known] = _picture_flags(*statistics[known].T)
    return flags


def _pixels(item: Any) -> NDArray[np.float32] | None:
    """Levels of a picture, `c h w`; one answer for an array and for the file that it came from."""
    array = np.asarray(item.convert("RGB") if isinstance(item, Image.Image) else item)
    if array.dtype != np.uint8 or array.ndim not in (2, 3):
        return None
    if array.ndim == 2:
        array = array[None]
    elif array.shape[0] not in (1, 3):
        array = array.transpose(2, 0, 1)
    return array.astype(np.float32)


def _statistics(pixels: NDArray[np.float32]) -> tuple[float, float, float, float]:
    """Contrast within colours, roughness (how much of it is between neighbours), detail and mean level.

    Detail is how much of the step from one pixel to the next is taken back by the one after: blur leaves little of it,
    whatever the picture shows.
    """
    contrast = float(np.sqrt(pixels.var(axis=(1, 2)).mean()))
    steps = turns = 0.0
    for axis in (1, 2):
        step = np.diff(pixels, axis=axis)
        steps += float(np.abs(step).mean()) if step.size else 0.0
        turn = np.diff(step, axis=axis)
        turns += float(np.abs(turn).mean()) if turn.size else 0.0
    return contrast, steps / (contrast + 1e-6), turns / (steps + 1e-6), float(pixels.mean())


def _picture_flags(contrast: Floats, roughness: Floats, detail: Floats, level: Floats) -> NDArray[np.str_]:
    flags = np.full(len(contrast), "", dtype="<U8")
    flags[_log_deviation(roughness) > OUTLIER] = "noisy"
    flags[_log_deviation(detail) < -OUTLIER] = "blurred"
    # Black or white nearly everywhere, compared with what this data shows: sketches on white are not damaged.
    low, high = np.quantile(level, (0.01, 0.99))
    faint = contrast < 0.1 * np.median(contrast)
    flags[faint & (level <= low)] = "dark"
    flags[faint & (level >= high)] = "bright"
    flags[contrast < 2.0] = "constant"
    return flags


def _log_deviation(values: Floats) -> Floats:
    """Robust deviations of the logarithms from their median."""
    logs = np.log(values + 1e-6)
    middle = np.median(logs)
    return np.asarray((logs - middle) / (1.4826 * np.median(np.abs(logs - middle)) + 1e-3))


# Hard or mislabelled? What each sample looks like: wrong label, ambiguous, atypical, low quality, hard or typical.

LABEL_COLUMNS = (
    "verdict",
    "suspicion",
    "suggested",
    "runner_up",
    "self_confidence",
    "distance_deviation",
    "false_chance",
)
"""Columns of judged scores that looked at the label: samples chosen by them are right and wrong apart."""
VERDICTS = ("wrong label", "ambiguous", "atypical", "low quality", "hard", "typical")
AMBIGUOUS = 0.25
"""Posterior of the runner-up from which two classes fit."""


@dataclass(frozen=True, eq=False)
class Verdicts:
    """One verdict per sample, with what it rests on."""

    ids: Ids
    labels: NDArray[np.int64]
    verdict: NDArray[np.str_]
    fit: LabelFit
    quality: NDArray[np.str_]
    evidence: LabelEvidence

    def columns(self) -> dict[str, NDArray[Any]]:
        """As columns of a table of scores."""
        return {
            "verdict": self.verdict,
            "suspicion": self.fit.suspicion,
            "suggested": self.fit.suggested,
            "runner_up": self.fit.second,
            "self_confidence": self.fit.self_confidence,
            "distance_deviation": self.fit.deviation,
            "false_chance": self.fit.false_chance,
            "quality": self.quality,
        }

    def suspects(self) -> NDArray[np.intp]:
        """Rows whose label looks wrong, most suspicious first; `evidence` says what the list rests on."""
        rows = np.flatnonzero(self.verdict == "wrong label")
        return rows[np.argsort(-self.fit.suspicion[rows], kind="stable")]


def verdicts(
    features: Any = None,
    labels: Any = None,
    *,
    scores: Scores | None = None,
    predictions: Predictions | None = None,
    inputs: Any = None,
    hardest: float = 0.2,
    max_fdr: float = 0.2,
    rounds: int = 3,
    shrinkage: Any = "ledoit_wolf",
) -> Verdicts:
    """What every sample looks like, judged by the class Gaussians of all the others or by out-of-fold predictions.

    A label is called wrong where another class is likelier and the list that it stands in keeps its rate of false
    discoveries: labels that are right fall ever more rarely on ever less likely classes, wrong ones do not. Where the
    evidence is thin the limit of that rate is wide and the list short, or empty.

    Args:
        features: a `Features` record, an array or a tensor `n d`; None judges by `predictions` alone.
        labels: class indices to judge; a record, or the predictions, bring their own.
        scores: difficulty; the hardest share without another verdict is called hard.
        predictions: out-of-fold predictions of a model on these samples; averaged with the Gaussians' posteriors.
        inputs: the pictures or texts themselves, looked at for damage.
        hardest: share of samples that counts as hard.
        max_fdr: most labels, as a share of those called wrong, that may be right after all: what the upper 95 % limit
            of the estimate must stay within.
        rounds: fits; each but the last drops the samples whose label looks wrong from the next.
        shrinkage: of the covariance, as in `rmd`.

    Returns:
        `Verdicts`: one word per sample, the label that fits better, how sure that is, and the evidence for the list.

    Raises:
        InputError: samples of one class alone, or neither features nor predictions.

    Example:
        >>> import numpy as np
        >>> true = np.arange(60) % 2
        >>> rows = 8 * np.eye(2, 3)[true] + np.random.default_rng(0).normal(size=(60, 3))
        >>> labels = true.copy()
        >>> labels[5] = 1 - labels[5]  # a wrong label
        >>> verdicts = confide.difficulty.verdicts(rows, labels)
        >>> verdicts.suspects().tolist()
        [5]
    """
    check_range(hardest, "hardest", 0, 1)
    check_range(max_fdr, "max_fdr", 0, 1)
    check_range(rounds, "rounds", 1)
    if features is None:
        ids, own_labels, judged = _fit_predictions(predictions, labels)
    else:
        rows = check_features(features, labels)
        if not isinstance(rows.labels, np.ndarray):
            raise InputError("verdicts need the labels to judge, class indices")
        ids, own_labels = rows.ids, rows.labels
        _check_two_classes(own_labels)
        classes = int(own_labels.max()) + 1
        log_probs = None if predictions is None else _log_probs(predictions.align(ids), classes, classes)
        judged = label_fit(rows.values, own_labels, rounds=rounds, shrinkage=shrinkage, member_log_probs=log_probs)
    n = len(own_labels)
    quality = quality_flags(inputs, n) if inputs is not None else np.full(n, "")
    hard = judged.doubtful
    if scores is not None:
        values = scores.of(ids)
        hard = hard | (values > np.quantile(values, 1 - hardest))
    own_in_two = (judged.suggested == own_labels) | (judged.second == own_labels)
    damaged, atypical = quality != "", judged.deviation > ATYPICAL
    wrong, evidence = _listed(judged, own_labels, ~damaged & ~atypical, max_fdr)
    if features is None:
        evidence = replace(evidence, source="predictions")
    verdict = np.select(
        [damaged, atypical, wrong, (judged.runner_up >= AMBIGUOUS) & own_in_two, hard],
        ["low quality", "atypical", "wrong label", "ambiguous", "hard"],
        "typical",
    )
    return Verdicts(ids, own_labels, verdict, judged, quality, evidence)


def _listed(
    judged: LabelFit, labels: ClassIndices, usable: NDArray[np.bool_], max_fdr: float
) -> tuple[NDArray[np.bool_], LabelEvidence]:
    """The longest list of suspects, least likely to be right first, whose share of right ones stays within the limit.

    The upper limit of that share counts two sources: right labels come and go as coins do, and the chances are
    estimates, all from the same tails, so that their errors add up.
    """
    suspects = judged.suggested != labels
    # However good the rest of a list: a label that is as likely right as wrong has no place in it.
    rows = np.flatnonzero(suspects & usable & (judged.false_chance < 0.5))
    rows = rows[np.argsort(judged.false_chance[rows], kind="stable")]
    chance, sizes = judged.false_chance[rows], np.arange(1, len(rows) + 1)
    right, coins = np.cumsum(chance), np.cumsum(chance * (1 - chance))
    unsure = judged.false_chance_sd[rows] * (judged.tail[rows] == np.arange(2 * LEAD_GROUPS)[:, None])
    limits = (right + ONE_SIDED * np.sqrt(coins + (np.cumsum(unsure, axis=1) ** 2).sum(axis=0))) / sizes
    size = int(sizes[limits <= max_fdr].max(initial=0))
    # Labels of mirror images are right: were they called wrong more often than the estimate allows, the tails are
    # heavier than it knows, and what is called wrong must outweigh the images that would be.
    images = np.searchsorted(np.sort(judged.mirror_chance), chance, side="right")
    if bool((poisson.sf(images[:size] - 1, right[:size]) < 0.05).any()):
        limits = np.maximum(limits, chi2.ppf(0.95, 2 * (images + 1)) / 2 / sizes)
        right = np.maximum(right, images)
        size = int(sizes[limits <= max_fdr].max(initial=0))
    wrong = np.zeros(len(labels), dtype=bool)
    wrong[rows[:size]] = True
    rates = (float(right[size - 1]) / size, float(limits[size - 1])) if size else (None, None)
    return wrong, LabelEvidence(size, int(suspects.sum()), len(labels), *rates)


def _check_two_classes(labels: ClassIndices) -> None:
    if len(np.unique(labels)) < 2:
        raise InputError("verdicts need samples of two classes or more, got one; there is no other label to suggest")


def _fit_predictions(predictions: Predictions | None, labels: Any) -> tuple[Ids, NDArray[np.int64], LabelFit]:
    """Verdicts without features: the model's own probabilities are the posterior."""
    if predictions is None:
        raise InputError("verdicts need features or out-of-fold predictions, got neither; give one of them")
    if labels is not None:
        predictions = predictions.replace(labels=torch.as_tensor(np.asarray(labels)))
    own = np.asarray(predictions.labels.cpu().numpy(), dtype=np.int64)
    _check_two_classes(own)
    return predictions.ids, own, label_fit(None, own, member_log_probs=_log_probs(predictions, int(own.max()) + 1))


def _log_probs(predictions: Predictions, num_classes: int, most: int | None = None) -> NDArray[np.float64]:
    logits = predictions.logits[:, :most]
    if logits.shape[1] < num_classes:
        raise InputError(f"predictions must have a logit for each of the {num_classes} classes, got {logits.shape[1]}")
    return np.asarray(torch.log_softmax(logits.double(), dim=1).cpu().numpy())


def with_verdicts(scores: Scores, verdicts: Verdicts) -> Scores:
    """Scores with the verdicts as further columns, and what they rest on as a note.

    Args:
        scores: of the same samples, in the same order.
        verdicts: theirs.

    Returns:
        The scores with the verdicts' columns, which `save` writes beside them.

    Example:
        >>> import numpy as np
        >>> labels = np.arange(60) % 2
        >>> rows = 4 * np.eye(2, 3)[labels] + np.random.default_rng(0).normal(size=(60, 3))
        >>> rows[7] = [4, 0, 0]  # of class 1, but it looks like class 0
        >>> scores = confide.difficulty.score("rmd", rows, labels)
        >>> verdicts = confide.difficulty.verdicts(rows, labels, scores=scores)
        >>> sorted(confide.difficulty.with_verdicts(scores, verdicts).columns)[:4]
        ['distance_deviation', 'false_chance', 'quality', 'runner_up']
    """
    columns = {**scores.columns, **verdicts.columns()}
    return replace(scores, columns=columns, notes=(*scores.notes, str(verdicts.evidence)))
