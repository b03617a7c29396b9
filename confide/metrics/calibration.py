"""Calibration errors of the confidence: ECE, MCE, debiased ECE, ECE by monotonic sweep, smooth ECE."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch

from confide.checks import check_choice, check_range
from confide.metrics.base import Variant, calibration_metric
from confide.metrics.influence import Folded, Influence, PartedInfluence, folded_mean
from confide.metrics.resampling import bernoulli_sums
from confide.metrics.view import MANY_SAMPLES, BinaryOutcomes, View
from confide.numerics.arrays import dot
from confide.numerics.binning import (
    BinSums,
    bin_of,
    binned_error,
    binned_errors,
    interpolated_edges,
    mass_bin_of_rank,
    order_edges,
    split_edges,
    width_edges,
)
from confide.types import AnyArray, Floats, Indices

# Expected calibration error.

EDGES = ("rank", "interpolated", "order", "midpoint")


MOST_KEPT = 1 << 14
"""Bins of so many samples are kept for the next metric; of more they would cost memory, and little time is saved."""


@dataclass(frozen=True, eq=False)
class Binned:
    """Samples from the most confident on: their bin, confidence, hit or not, weight, and sums of these per bin.

    `sure_of` gives the confidence of a slice, or of an array of positions: many are made where they are looked at.
    `unit` numbers what was drawn as one, where that is not a sample: variances then are those of its sums.
    """

    index: Indices
    bins: int
    sure_of: Callable[[Any], Floats]
    hits: AnyArray
    weight: Floats | None
    order: Indices | None
    unit: Indices | None = None
    _drawn: dict[tuple[int, int], tuple[Floats, Floats]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, view: View, bins: int, binning: str, closed: str = "right", edges: str = "rank") -> Binned:
        """The samples of a view in the bins of the expected calibration error."""
        if view.base.n > MOST_KEPT:
            return cls._of(view, bins, binning, closed, edges)
        return view.derived((cls, bins, binning, closed, edges), lambda: cls._of(view, bins, binning, closed, edges))

    @classmethod
    def _of(cls, view: View, bins: int, binning: str, closed: str, edges: str) -> Binned:
        ordered = view.base.ordered("msp")
        wrong = ordered.wrong
        weight = view.in_order(ordered)
        if edges in ("interpolated", "order", "midpoint"):
            sure = np.asarray(ordered.values, dtype=np.float64)
            rising, rising_weight = sure[::-1], None if weight is None else weight[::-1]
            if edges == "order":
                index = bin_of(rising, order_edges(rising, bins, rising_weight), closed="left")[::-1]
            else:
                find = interpolated_edges if edges == "interpolated" else split_edges
                cut = find(rising, bins, rising_weight)
                index, bins = bin_of(rising, cut)[::-1], len(cut) - 1
        elif binning == "mass" and weight is not None:
            index = mass_bin_of_rank(len(ordered), bins, weight[::-1])[::-1]
        else:
            at = view.base.positions(binning, bins, closed)
            index = np.repeat(np.arange(bins, dtype=np.min_scalar_type(bins))[::-1], np.diff(at))
            parted = list(view.base.parted_ties(at)) if binning == "mass" else []
            wrong = wrong.copy() if parted else wrong
            for begin, flags in parted:
                wrong[begin : begin + len(flags)] = flags
        unit = view.base.design.clusters
        if unit is not None and ordered.order is not None:
            unit = np.unique(unit[ordered.order], return_inverse=True)[1].reshape(-1)
        return cls(index, bins, lambda at: np.asarray(ordered.at(at), np.float64), ~wrong, weight, ordered.order, unit)

    @property
    def sure(self) -> Floats:
        """The confidence of all."""
        return self.sure_of(slice(None))

    def residual_of(self, part: slice) -> Floats:
        """Confidence less correctness of some samples."""
        residual: Floats = self.sure_of(part) - self.hits[part]
        return residual

    @property
    def residual(self) -> Floats:
        """That of all, made anew: it would be the largest vector of an evaluation."""
        return self.residual_of(slice(None))

    def sums(self, values: Callable[[slice], Floats] | Floats | None = None, power: int = 1) -> Floats:
        """Sums per bin of values, or of what gives those of some samples, times powers of the weights."""
        sums = np.zeros(self.bins)
        for first in range(0, len(self.hits), MANY_SAMPLES):
            part = slice(first, first + MANY_SAMPLES)
            some = values(part) if callable(values) else None if values is None else values[part]
            if self.weight is not None:
                weight = self.weight[part] ** power
                some = weight if some is None else some * weight
            sums += np.bincount(self.index[part], some, minlength=self.bins)
        return sums

    def index_counts(self) -> Indices:
        """How many samples lie in each bin."""
        parts = range(0, len(self.index), MANY_SAMPLES)
        counts = (np.bincount(self.index[k : k + MANY_SAMPLES], minlength=self.bins) for k in parts)
        return np.asarray(sum(counts, start=np.zeros(self.bins, dtype=np.intp)))

    def effective_counts(self) -> Floats:
        """How many samples of equal weight every bin is worth; 1 where it is empty."""
        count = self.sums()
        if self.weight is not None:
            count = count**2 / np.maximum(self.sums(power=2), 1e-300)
        return np.where(count > 0, count, 1.0)

    def unit_sums(self, values: Floats) -> Floats:
        """Weighted sums of values per unit and bin, `units bins`."""
        assert self.unit is not None
        cell, units = self.unit * self.bins + self.index, int(self.unit.max()) + 1
        weighted = values if self.weight is None else values * self.weight
        sums = np.bincount(cell, weighted, minlength=units * self.bins).astype(np.float64)
        return sums.reshape(units, self.bins)

    def squares(self, values: Floats) -> Floats:
        """Per bin the sum of squares of what every unit that was drawn adds to its sum."""
        if self.unit is not None:
            return np.asarray((self.unit_sums(values) ** 2).sum(axis=0))
        return self.sums(lambda part: values[part] ** 2, power=2)

    def influence(self, norm: int | str) -> Influence:
        """psi of the error: its signs are soft where a bin's gap is not clear of its noise."""
        count = self.sums()
        total, full = float(count.sum()), count > 0
        share = np.where(full, count, 1.0) / total
        gap = np.where(full, self.sums(self.residual_of) / np.where(full, count, 1.0), 0.0)
        if norm == 1:
            if self.unit is None:
                squares = self.sums(lambda part: self.residual_of(part) ** 2, power=2)
                within: Floats = squares / total**2 - (share * gap) ** 2 * full / len(self.hits)
            else:
                within = self.noise(gap, total)
            folded = Folded.of(share * gap, np.maximum(within, 0.0))
            mean = float(folded.slope @ self.sums(self.residual_of)) / total
            return PartedInfluence.of(
                lambda part: folded.slope[self.index[part]] * self.residual_of(part) - mean,
                len(self.hits),
                order=self.order,
                noise=float(folded.rest.sum()),
                without_noise=folded.without_noise,
            )
        if norm == 2:
            squared = self.square_influence()
            scale = 2 * max(math.sqrt(float((share * gap**2).sum())), SMALLEST_ERROR)
            return replace(
                squared,
                psi=squared.psi / scale,
                noise=squared.noise / scale**2,
                without_noise=math.sqrt(squared.without_noise or 0.0),
            )
        # A bin of one sample shows no spread: each bin gets the variance of one sample more, drawn from its confidence.
        sure = np.where(full, self.sums(self.sure_of) / np.where(full, count, 1.0), 0.0)
        prior = sure * (1 - sure) / self.effective_counts() ** 2
        variance = self.noise(gap, total) / share**2 + prior
        folded = Folded.of(gap, variance)
        part = (
            np.full(self.bins, 1.0 / full.sum()) if norm == "mean" else np.abs(gap) >= np.abs(gap[full]).max() - 1e-15
        )
        factor = np.where(full, part * folded.slope / share, 0.0)
        psi = factor[self.index] * (self.residual - gap[self.index])
        rest = float((part**2 * (folded.rest + folded.slope**2 * prior) * full).sum())
        return Influence(psi, order=self.order, noise=rest)

    def noise(self, gap: Floats, total: float) -> Floats:
        """The variance of every bin's share times its gap."""
        return self.squares(self.residual - gap[self.index]) / total**2

    def square_influence(self) -> Influence:
        """psi of the mean over samples of the squared gap of their bin; noise is that of squares of normal gaps."""
        count = self.sums()
        full = np.where(count > 0, count, 1.0)
        gap = self.sums(self.residual_of) / full
        apart = self.residual - gap[self.index]
        psi = 2 * gap[self.index] * apart + (gap**2)[self.index]
        noise = self.squares(apart) / full / count.sum()
        left = float((count * gap**2).sum() / count.sum() - noise.sum())
        return Influence(
            psi - self._mean(psi), order=self.order, noise=2 * float((noise**2).sum()), without_noise=max(left, 0.0)
        )

    def _mean(self, values: Floats) -> float:
        return float(values.mean() if self.weight is None else dot(values, self.weight) / self.weight.sum())

    def chance_gaps(self, draws: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Sums of confidence less correctness per bin, drawn for a calibrated model (`draws bins`), and the counts.

        In bins of few samples every sample is drawn, in the others their number at once. Of samples that were drawn
        several as one the covariance of the units' sums is what is known: normal draws have it. Errors of the same bins
        (ECE, MCE) that ask with the same stream share the draws.
        """
        key = (draws, int(rng.bit_generator.state["state"]["state"]))
        if key not in self._drawn:
            self._drawn[key] = self._chance_gaps(draws, rng)
        return self._drawn[key]

    def _variance_of(self, part: slice) -> Floats:
        """Confidence times doubt of some samples."""
        sure = self.sure_of(part)
        return sure * (1 - sure)

    def _chance_gaps(self, draws: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
        if self.unit is not None:
            count = self.sums()
            gap = self.sums(self.residual_of) / np.where(count > 0, count, 1.0)
            sums = self.unit_sums(self.residual - gap[self.index])
            # By torch, which has one thread here (`in_threads`).
            squares = torch.from_numpy(sums).T.mm(torch.from_numpy(sums)).numpy()
            values, vectors = np.linalg.eigh(squares * (len(sums) / max(len(sums) - 1, 1)))
            root = vectors * np.sqrt(np.maximum(values, 0.0))
            return rng.standard_normal((draws, self.bins)) @ root.T, count
        count, variance = self.sums(), self.sums(self._variance_of, power=2)
        confidence, rows_in_bin = self.sums(self.sure_of), self.index_counts()
        if self.weight is None:
            wrong = bernoulli_sums(count - confidence, variance, rng, draws)
            gaps = np.minimum(wrong, count) - (count - confidence)
        else:
            gaps = rng.standard_normal((draws, self.bins)) * np.sqrt(variance)
        few = (rows_in_bin > 0) & (rows_in_bin <= EXACT)
        if few.any():
            rows = np.flatnonzero(few[self.index])
            misses = rng.random((draws, len(rows)), dtype=np.float32) >= self.sure_of(rows)
            starts = np.flatnonzero(np.diff(self.index[rows], prepend=-1))
            own = self.index[rows[starts]]
            drawn = misses if self.weight is None else misses * self.weight[rows]
            gaps[:, own] = np.add.reduceat(drawn, starts, axis=1, dtype=np.float64) - (count - confidence)[own]
        return gaps, count


SMALLEST_ERROR = 1e-6
"""Below this an error counts as one of this size where its root is linearised."""
EXACT = 30
"""In bins of at most so many samples the calibration test draws every sample."""


def ece_influence(
    view: View,
    *,
    bins: int = 15,
    binning: str = "width",
    norm: int | str = 1,
    closed: str = "right",
    edges: str = "rank",
) -> Influence:
    """psi of the expected calibration error."""
    return Binned.of(view, bins, binning, closed, edges).influence(norm)


def ece_chance(
    view: View,
    draws: int,
    rng: np.random.Generator,
    *,
    bins: int = 15,
    binning: str = "width",
    norm: int | str = 1,
    closed: str = "right",
    edges: str = "rank",
) -> Floats:
    """The expected calibration error of a calibrated model."""
    return binned_errors(*Binned.of(view, bins, binning, closed, edges).chance_gaps(draws, rng), norm)


def mce_chance(view: View, draws: int, rng: np.random.Generator, **bins: Any) -> Floats:
    """The largest gap of a calibrated model."""
    return ece_chance(view, draws, rng, norm="max", **bins)


def mass_sums(view: View, bins: int, edges: str) -> tuple[BinSums, float]:
    """Sums per equal-mass bin between edges that never part ties, and the share of samples that lie in a bin."""
    top = view.top()
    sure, weights = top.probs, top.weights
    if edges == "order":
        index = bin_of(sure, order_edges(sure, bins, weights), closed="left")
    else:
        find = interpolated_edges if edges == "interpolated" else split_edges
        index = bin_of(sure, find(sure, bins, weights))
    # Interpolated edges start at the smallest confidence and leave out what lies on it.
    inside = sure > sure[0] if edges == "interpolated" else np.ones(len(sure), dtype=bool)
    share = float(inside.mean() if weights is None else weights[inside].sum() / weights.sum())
    weights = None if weights is None else weights[inside]
    return BinSums.of(index[inside], bins, sure[inside], top.hits[inside], weights), share


@calibration_metric(
    "ece",
    paper="Naeini et al., 2015, doi:10.1609/aaai.v29i1.9602; Guo et al., 2017, arXiv:1706.04599",
    title="ECE, equal width",
    short="ECE width",
    meaning="Average gap between confidence and accuracy over bins of equal width.",
    tables={"core": 5, "models": 5, "headline": 4, "summary": 4, "calibrated": 4, "shift": 3},
    variants=(
        Variant(
            "ece_mass",
            {"binning": "mass"},
            title="ECE, equal mass",
            short="ECE mass",
            meaning="Average gap between confidence and accuracy over bins that hold equally many samples.",
            tables={"core": 6, "models": 4, "headline": 3, "summary": 5, "calibrated": 5, "groups": 3},
        ),
    ),
    corners=(
        {"bins": 1},
        {"bins": 1000},
        {"binning": "mass"},
        {"binning": "mass", "bins": 1000},
        {"norm": 2},
        {"norm": "max"},
        {"norm": "mean"},
        {"closed": "left"},
        {"binning": "mass", "edges": "interpolated"},
        {"binning": "mass", "edges": "order"},
        {"binning": "mass", "edges": "midpoint"},
    ),
    influence=ece_influence,
    chance=ece_chance,
    by_unit=True,
)
def ece(
    view: View,
    *,
    bins: int = 15,
    binning: str = "width",
    norm: int | str = 1,
    closed: str = "right",
    edges: str = "rank",
) -> float:
    """Expected calibration error, sum over bins of n_b / n |mean confidence - accuracy|; empty bins count 0.

    When: the usual figure, to compare with papers: beside its chance level.
    When not: samples are few: it is above 0 by chance, and depends on the bins.

    Args:
        bins: how many; more bins see finer errors but also more noise. Default: Guo et al., 2017.
        binning: `width` for equal widths; `mass` for equal counts by rank, floor(i * bins / n), where ties are split
            in the order given (the one metric that depends on it).
        norm: 1 for the mean gap, 2 for the root of the mean squared gap, `max` for the largest gap of a bin, `mean` for
            the mean over bins that each count the same (Neumann et al., 2018: average calibration error).
        closed: the side on which an equal-width bin holds its edge: `right` for (low, high], `left` for [low, high).
        edges: where equal-mass bins end. `rank` as above; the others, which other packages use, never part ties:
            `interpolated` between neighbours (Mukhoti et al., 2020; leaves out the smallest confidence), `order` at
            samples, [low, high); `midpoint` halfway between the parts (Kumar et al., 2019).

    Example:
        >>> predictions = confide.Predictions.from_probs([[0.9, 0.1], [0.4, 0.6], [0.8, 0.2]], [0, 1, 1])
        >>> round(float(confide.metrics.ece(predictions, bins=2)), 3)
        0.1
    """
    check_choice(edges, EDGES, "edges")
    if edges == "rank":
        return binned_error(view.bins(binning, bins, closed), norm)
    check_choice(binning, ("mass",), "binning (with edges)")
    sums, share = mass_sums(view, bins, edges)
    if not sums.count.any():
        return 0.0
    # A sample left out counts as one without a gap in the means over samples.
    return binned_error(sums, norm) * (share if norm == 1 else math.sqrt(share) if norm == 2 else 1.0)


@calibration_metric(
    "mce",
    paper="Naeini et al., 2015, doi:10.1609/aaai.v29i1.9602",
    title="MCE",
    meaning="The largest gap between confidence and accuracy in any bin; few samples in a bin make it noisy, and no "
    "interval would hold: see its chance level.",
    corners=({"bins": 1}, {"binning": "mass"}, {"closed": "left"}),
    chance=mce_chance,
    by_unit=True,
    jumping=True,
)
def mce(view: View, *, bins: int = 15, binning: str = "width", closed: str = "right") -> float:
    """Maximum calibration error, max over non-empty bins of |mean confidence - accuracy|.

    When: the worst bin matters.
    When not: bins hold few samples: it shows the noisiest one.

    Args:
        bins: how many. Default: as for the expected calibration error.
        binning: `width` or `mass`.
        closed: the side on which an equal-width bin holds its edge.

    Example:
        >>> predictions = confide.Predictions.from_probs([[0.9, 0.1], [0.4, 0.6], [0.8, 0.2]], [0, 1, 1])
        >>> round(float(confide.metrics.mce(predictions, bins=2)), 3)
        0.1
    """
    return binned_error(view.bins(binning, bins, closed), "max")


# Debiased calibration error.

DRAWS = 1000


@dataclass(frozen=True, eq=False)
class BinMeans:
    """Of every non-empty bin: share of all samples, number, mean confidence and accuracy.

    Weighted samples are as many as their weights' squares leave: that is what the noise of an accuracy goes by.
    """

    share: Floats
    count: Floats
    confidence: Floats
    accuracy: Floats

    @classmethod
    def of(cls, outcomes: BinaryOutcomes, bins: int, binning: str) -> BinMeans:
        """In bins of equal width, or of equal mass with edges between samples."""
        sure, weights = outcomes.probs, outcomes.weights
        edges = width_edges(bins) if binning == "width" else split_edges(sure, bins, weights)
        index, size = bin_of(sure, edges), len(edges) - 1
        sums = BinSums.of(index, size, sure, outcomes.hits, weights)
        full = sums.count > 0
        total = sums.count[full]
        count = total if weights is None else total**2 / np.bincount(index, weights**2, minlength=size)[full]
        return cls(total / total.sum(), count, sums.confidence[full] / total, sums.correct[full] / total)

    def debiased_square(self) -> float:
        """Sum of n_b / n [(C_b - A_b)^2 - A_b (1 - A_b) / (n_b - 1)]; bins with one sample count 0."""
        noise = self.accuracy * (1 - self.accuracy) / np.maximum(self.count - 1, 1e-9)
        terms = np.where(self.count > 1.5, (self.confidence - self.accuracy) ** 2 - noise, 0.0)
        return float((self.share * terms).sum())

    def debiased_mean(self) -> float:
        """2 x plug-in - its mean over accuracies redrawn as N(A_b, A_b (1 - A_b) / n_b); always the same draws."""
        plain = float((self.share * np.abs(self.confidence - self.accuracy)).sum())
        spread = np.sqrt(self.accuracy * (1 - self.accuracy) / self.count)
        drawn = np.random.default_rng(0).normal(size=(DRAWS, len(self.count))) * spread + self.accuracy
        return 2 * plain - float((self.share * np.abs(self.confidence - drawn)).sum(axis=1).mean())


def debiased_parts(view: View, bins: int, binning: str, of: str) -> list[Binned]:
    """The samples in the bins of the debiased error: of the confidence, or of every class's probability."""
    if of == "top":
        return [Binned.of(view, bins, binning, edges="rank" if binning == "width" else "midpoint")]
    parts = []
    for column in view.class_columns():
        sure = column.probs
        cut = width_edges(bins) if binning == "width" else split_edges(sure, bins, column.weights)
        parts.append(Binned(bin_of(sure, cut), len(cut) - 1, sure.__getitem__, column.hits, column.weights, None))
    return parts


def debiased_influence(
    view: View, *, bins: int = 15, binning: str = "mass", norm: int = 2, of: str = "top"
) -> Influence:
    """psi of the error before its noise is taken off, about the debiased value."""
    parts = debiased_parts(view, bins, binning, of)
    scale = 1 / len(parts)
    if norm == 2:
        squares = [debiased_square_of(part) for part in parts]
        # psi of a root is that of its square over twice the root.
        scale /= 2 * max(math.sqrt(max(float(np.mean(squares)), 0.0)), SMALLEST_ERROR)
    influences = [part.influence(norm) if norm == 1 else part.square_influence() for part in parts]
    psi = np.sum([part.psi for part in influences], axis=0) * scale
    noise = sum(part.noise for part in influences) * scale**2
    return Influence(psi, order=influences[0].order, noise=noise)


def debiased_square_of(part: Binned) -> float:
    """The squared error less its noise, at least 0."""
    count = part.sums()
    full = count > 0
    count = count[full]
    gaps, confidence = part.sums(part.residual_of)[full] / count, part.sums(part.sure_of)[full] / count
    number = part.effective_counts()[full]
    noise = (confidence - gaps) * (1 - confidence + gaps) / np.maximum(number - 1, 1e-9)
    return max(0.0, float((count * np.where(number > 1.5, gaps**2 - noise, 0.0)).sum() / count.sum()))


def debiased_chance(
    view: View,
    draws: int,
    rng: np.random.Generator,
    *,
    bins: int = 15,
    binning: str = "mass",
    norm: int = 2,
    of: str = "top",
) -> Floats:
    """The debiased error of a calibrated model."""
    parts = []
    for part in debiased_parts(view, bins, binning, of):
        gaps, count = part.chance_gaps(draws, rng)
        full = count > 0
        count, gaps = count[full], gaps[:, full] / count[full]
        accuracy = np.clip(part.sums(part.sure_of)[full] / count - gaps, 0.0, 1.0)
        spread, share, number = accuracy * (1 - accuracy), count / count.sum(), part.effective_counts()[full]
        if norm == 1:
            parts.append(((2 * np.abs(gaps) - folded_mean(gaps, spread / number)) * share).sum(axis=1))
        else:
            terms = np.where(number > 1.5, gaps**2 - spread / np.maximum(number - 1, 1e-9), 0.0)
            parts.append(np.maximum((terms * share).sum(axis=1), 0.0))
    mean = np.mean(parts, axis=0)
    return np.asarray(mean if norm == 1 else np.sqrt(mean))


@calibration_metric(
    "debiased_ece",
    paper="Kumar et al., 2019, arXiv:1909.10155",
    title="Debiased ECE",
    meaning="The root mean squared gap between confidence and accuracy, with the part owed to chance taken off.",
    corners=({"binning": "width"}, {"norm": 1}, {"of": "classes"}, {"bins": 1}, {"bins": 1000}),
    debiased=True,
    influence=debiased_influence,
    chance=debiased_chance,
    by_unit=True,
)
def debiased_ece(view: View, *, bins: int = 15, binning: str = "mass", norm: int = 2, of: str = "top") -> float:
    """Debiased error, sqrt(max(0, sum_b n_b / n [(C_b - A_b)^2 - A_b (1 - A_b) / (n_b - 1)])).

    When: samples are few for the bins: less biased than ece.
    When not: the value is near 0: it is cut off there.

    Args:
        bins: how many; equal-mass ones have their edges between neighbouring samples, and equal edges merge.
        binning: `mass` or `width`. Default: the choice of the paper.
        norm: 2 for the formula above; 1 for the mean gap less its noise, by 1,000 fixed normal draws (may be below 0).
        of: `top` for the confidence, `classes` for every class's probability (mean over classes before the root).

    Example:
        >>> predictions = confide.Predictions.from_top1([1, 1, 0, 0], [1, 1, 1, 1], [0.9, 0.8, 0.6, 0.5])
        >>> round(float(confide.metrics.debiased_ece(predictions, bins=2)), 3)
        0.403
    """
    check_choice(binning, ("width", "mass"), "binning")
    check_choice(norm, (1, 2), "norm")
    check_choice(of, ("top", "classes"), "of")
    check_range(bins, "bins", 1)
    outcomes = view.class_columns() if of == "classes" else [view.top()]
    parts = [BinMeans.of(part, bins, binning) for part in outcomes]
    if norm == 1:
        return float(np.mean([part.debiased_mean() for part in parts]))
    return float(np.sqrt(np.mean([max(0.0, part.debiased_square()) for part in parts])))


# Calibration error with as many bins as keep accuracy monotone.


def sweep_sums(top: BinaryOutcomes, bins: int, binning: str) -> BinSums:
    """Sums per bin of rank floor(i * bins / n), or of value floor(c * bins)."""
    if binning == "mass":
        index = mass_bin_of_rank(len(top.probs), bins, top.weights)
    else:
        index = np.minimum((top.probs * bins).astype(np.intp), bins - 1)
    return BinSums.of(index, bins, top.probs, top.hits, top.weights)


def monotone(sums: BinSums) -> bool:
    """Whether accuracy never falls from one non-empty bin to the next."""
    full = sums.count > 0
    accuracy = sums.correct[full] / sums.count[full]
    return bool((np.diff(accuracy) >= -1e-12).all())


def most_bins(top: BinaryOutcomes, binning: str) -> int:
    """The last number of bins before accuracy is first not monotone; at most n - 1."""
    n = len(top.probs)
    if bool((np.diff(top.hits) >= 0).all()):
        return max(n - 1, 1)  # errors rank lowest: monotone for any number of bins
    for bins in range(2, n):
        if not monotone(sweep_sums(top, bins, binning)):
            return bins - 1
    return max(n - 1, 1)


def sweep_influence(view: View, *, binning: str = "mass", norm: int | str = 1) -> Influence:
    """psi of the error in the bins that were chosen; that another sample would choose others is left out of account."""
    bins = most_bins(view.top(), binning)
    if binning == "mass":
        return Binned.of(view, bins, binning).influence(norm)
    whole = Binned.of(view, 1, "width")
    index = np.minimum((whole.sure * bins).astype(np.intp), bins - 1)
    return replace(whole, index=index, bins=bins).influence(norm)


SWEEP_DRAWS, FINE = 200, 1000


def sweep_chance(
    view: View, draws: int, rng: np.random.Generator, *, binning: str = "mass", norm: int | str = 1
) -> Floats:
    """ECE by sweep of a calibrated model: hits of at most a thousand groups of neighbours are drawn, then it sweeps."""
    fine = Binned.of(view, min(FINE, view.base.n), "mass")
    gaps, count = fine.chance_gaps(min(draws, SWEEP_DRAWS), rng)
    confidence = fine.sums(fine.sure_of)
    middle, places = confidence / np.maximum(count, 1e-300), np.append(0.0, np.cumsum(count))
    sure, total = np.append(0.0, np.cumsum(confidence)), float(count.sum())

    def sums(bins: int, hits: Floats) -> BinSums:
        if binning == "mass":
            at = np.linspace(0, total, bins + 1)
        else:
            at = places[np.append(np.searchsorted(middle, np.arange(bins) / bins), len(middle))]
        return BinSums(*(np.diff(np.interp(at, places, v)) for v in (places, sure, hits)))

    errors = []
    for row in gaps:
        hits, bins = np.append(0.0, np.cumsum(confidence - row)), 1
        while bins < len(middle) and monotone(sums(bins + 1, hits)):
            bins += 1
        errors.append(binned_error(sums(bins, hits), norm))
    return np.array(errors)


@calibration_metric(
    "sweep_ece",
    paper="Roelofs et al., 2022, arXiv:2012.08668",
    title="ECE sweep",
    meaning="The calibration error with the most bins that still show accuracy rising with confidence.",
    corners=({"binning": "width"}, {"norm": 2}),
    costly=True,
    influence=sweep_influence,
    chance=sweep_chance,
)
def sweep_ece(view: View, *, binning: str = "mass", norm: int | str = 1) -> float:
    """ECE by monotonic sweep: bins grow from 2 until an accuracy falls below that of the bin before.

    When: bins shall be as many as the data allow.
    When not: confidence is not monotone in accuracy: it then takes few bins.

    Args:
        binning: `mass` for bins by rank, `width` for floor(c * bins). Default: the choice of the paper.
        norm: 1, 2 or `max`. Differs from the paper's 2, so that the value compares with other calibration errors.

    Example:
        >>> predictions = confide.Predictions.from_probs([[0.9, 0.1], [0.4, 0.6], [0.8, 0.2]], [0, 1, 1])
        >>> round(float(confide.metrics.sweep_ece(predictions)), 3)
        0.167
    """
    check_choice(binning, ("width", "mass"), "binning")
    top = view.top()
    return binned_error(sweep_sums(top, most_bins(top, binning), binning), norm)


# Smooth calibration error.

SMALLEST_GRID, LARGEST_GRID = 1 << 12, 1 << 18
POINTS_PER_WIDTH = 24


def spread_on_grid(sure: Floats, residual: Floats, cells: int) -> Floats:
    """Residuals shared out linearly between the two grid points beside each confidence."""
    place = sure * cells
    left = np.minimum(place.astype(np.intp), cells - 1)
    part = place - left
    lower = np.bincount(left, residual * (1 - part), minlength=cells + 1)
    return np.asarray(lower + np.bincount(left + 1, residual * part, minlength=cells + 1))


class Smoother:
    """Curves smoothed to any width, from masses on a grid; reflection at 0 and 1 is exact in cosine space.

    Several rows of masses are smoothed at once.
    """

    def __init__(self, masses: Floats) -> None:
        from scipy.fft import dct

        self.transform = partial(dct, type=1)
        self.cells = masses.shape[-1] - 1
        masses = masses.copy()
        masses[..., [0, -1]] *= 2
        self.spectrum = self.transform(masses, overwrite_x=True) / 2

    def curve(self, width: float | Floats) -> Floats:
        """The smoothed curve at every grid point; a width a row where there are rows."""
        widths = np.asarray(width)[..., None] if np.ndim(width) else width
        return np.asarray(self.transform(self.spectrum * np.exp(-half_squares(self.cells + 1) * widths**2)))

    def at(self, places: Indices, width: float) -> Floats:
        """The smoothed curve at a few grid points, from the frequencies that the width leaves above rounding."""
        highest = min(self.cells - 1, math.ceil(FADED / width))
        fading = 2 * np.exp(-half_squares(highest + 1) * width**2)
        fading[0] = 1
        waves = cosines(1 << highest.bit_length(), self.cells, tuple(places.tolist()))
        return np.asarray((self.spectrum[..., : highest + 1] * fading) @ waves[: highest + 1])

    def errors(self, width: float | Floats) -> Floats:
        """Integrals of the absolute curves."""
        return np.asarray(integral(np.abs(self.curve(width))))

    def excess(self, width: float) -> float:
        """How far the error lies above the width; falls, and is 0 at the answer."""
        return float(self.errors(width)) - width


def half_squares(count: int) -> Floats:
    """(pi k)^2 / 2 of the first frequencies k: a Gaussian of width w leaves exp(-w^2 times that) of each."""
    return np.asarray((np.pi * np.arange(count)) ** 2 / 2)


FADED = 3.1
"""Over the width: the frequency (in half turns) of which a Gaussian of that width leaves less than 1e-20."""


@lru_cache(maxsize=4)
def cosines(count: int, cells: int, places: tuple[int, ...]) -> Floats:
    """cos(pi k j / cells) for the first frequencies k and the grid points j."""
    turns = np.outer(np.arange(count), places) % (2 * cells)  # whole numbers: no digits are lost
    return np.asarray(np.cos(np.pi / cells * turns))


def integral(curve: Floats) -> Any:
    """The integral over [0, 1] of a curve on a grid, by trapezoids."""
    return (curve.sum(axis=-1) - (curve[..., 0] + curve[..., -1]) / 2) / (curve.shape[-1] - 1)


def smooth_error(sure: Floats, residual: Floats) -> float:
    """The width at which the smoothed error equals the width itself; residuals sum to the weights' scale."""
    from scipy.optimize import brentq

    cells = SMALLEST_GRID
    while True:
        smoother = Smoother(spread_on_grid(sure, residual, cells))
        smallest = POINTS_PER_WIDTH / cells
        if smoother.errors(smallest) > smallest:
            return float(brentq(smoother.excess, smallest, 1.0 + 1e-9, xtol=1e-10))
        if cells >= LARGEST_GRID:
            return min(float(smoother.errors(smallest)), smallest)
        cells *= 4


def grid_for(width: float) -> int:
    """The coarsest grid that resolves a width."""
    cells = SMALLEST_GRID
    while cells < LARGEST_GRID and width < POINTS_PER_WIDTH / cells:
        cells *= 4
    return cells


def smooth_influence(view: View) -> Influence:
    """psi of the width s that solves E(s) = s: that of the integral E of |curve|, over 1 - dE / ds.

    A sample moves the curve by its residual times the kernel; the sign of the curve is soft where it is not clear of
    its noise, which is alike over about a width.
    """
    sure, wrong, weights = view.weighted_top()
    total = float(weights.sum())
    residual = sure - ~wrong
    width = max(smooth_error(sure, residual * weights / total), 1e-4)
    cells = grid_for(width)
    smoother = Smoother(spread_on_grid(sure, residual * weights / total, cells))
    curve = smoother.curve(width)
    # A squared Gaussian of width s is one of width s / sqrt 2, over 2 s sqrt pi.
    squares = Smoother(spread_on_grid(sure, (residual * weights / total) ** 2, cells)).curve(width / math.sqrt(2))
    folded = Folded.of(curve, np.maximum(squares, 0.0) / (2 * math.sqrt(math.pi) * width))
    signs = folded.slope / cells
    signs[[0, -1]] /= 2
    at_samples = np.interp(sure, np.linspace(0, 1, cells + 1), Smoother(signs).curve(width))
    psi = at_samples * residual
    slope = float(smoother.errors(1.05 * width) - smoother.errors(0.95 * width)) / (0.1 * width)
    scale = 1 / max(1 - slope, 1.0)
    noise = float(integral(folded.rest)) * width * math.sqrt(2 * math.pi) * scale**2
    noise += (folded.doubt / (cells + 1) * scale) ** 2
    mean = dot(psi, weights) / total
    # The integral over the grid is a mean over its points.
    excess = float(np.abs(curve).sum() - folded.without_noise) / (cells + 1)
    return Influence(
        (psi - mean) * scale,
        order=view.base.ordered("msp").order,
        noise=noise,
        without_noise=max(0.0, width - excess * scale),
    )


SMOOTH_DRAWS, SINGLE_DRAWS = 100, 5_000


def smooth_chance(view: View, draws: int, rng: np.random.Generator) -> Floats:
    """Smooth ECE of a calibrated model: residuals drawn sample by sample, or for many samples at each grid point.

    The logarithm of E(s) / s is nearly linear in that of s, so a few secant steps solve all draws at once.
    """
    sure, _, weights = view.weighted_top()
    share, draws = weights / weights.sum(), min(draws, SMOOTH_DRAWS)
    variance = sure * (1 - sure) * share**2
    if not variance.any():
        return np.zeros(draws)
    # E(s) of pure noise: the mean of |normal| with the curve's variance, here as if that were even over [0, 1].
    guess = (math.sqrt(2 / math.pi) * math.sqrt(float(variance.sum()) / (2 * math.sqrt(math.pi)))) ** (2 / 3)
    cells = grid_for(guess)
    if len(sure) <= SINGLE_DRAWS:
        residual = (sure - (rng.random((draws, len(sure))) < sure)) * share
        masses = np.stack([spread_on_grid(sure, row, cells) for row in residual])
    else:
        masses = rng.standard_normal((draws, cells + 1)) * np.sqrt(spread_on_grid(sure, variance, cells))
    smoother = Smoother(masses)
    low, high = math.log(POINTS_PER_WIDTH / cells / 2), 0.0
    before, now = np.full(draws, math.log(guess)), np.full(draws, math.log(guess) - 0.3)
    ratio = np.log(np.maximum(smoother.errors(np.exp(before)), 1e-300)) - before
    for _ in range(4):
        other = np.log(np.maximum(smoother.errors(np.exp(now)), 1e-300)) - now
        apart = np.where(np.abs(other - ratio) > 1e-9, other - ratio, -1e-9)
        step = np.where(np.abs(other) < 1e-6, 0.0, other * (now - before) / apart)
        before, ratio, now = now, other, np.clip(now - step, low, high)
    return np.asarray(np.exp(now))


@calibration_metric(
    "smooth_ece",
    paper="Blasiok & Nakkiran, 2023, arXiv:2309.12236",
    title="Smooth ECE",
    meaning="The calibration error without bins, smoothed at the scale of the error itself.",
    costly=True,
    influence=smooth_influence,
    chance=smooth_chance,
)
def smooth_ece(view: View) -> float:
    """Smooth ECE, the width s at which the integral of |mean of (c_i - o_i) K_s(t, c_i)| over t equals s.

    K_s is a Gaussian of width s reflected at 0 and 1. Errors below 1e-4 are bounded, not resolved.

    When: a calibration error without bins.
    When not: figures must compare with papers that use bins.

    Example:
        >>> predictions = confide.Predictions.from_probs([[0.9, 0.1], [0.4, 0.6], [0.8, 0.2]], [0, 1, 1])
        >>> round(float(confide.metrics.smooth_ece(predictions)), 3)
        0.171
    """
    sure, wrong, weights = view.weighted_top()
    residual = (sure - ~wrong) * weights / view.n
    return smooth_error(sure, residual)
