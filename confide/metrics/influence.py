"""Intervals by theory: an estimate's spread is that of its influence values, one number per sample.

A metric says how much each sample moves it (`psi`, mean 0): to first order the estimate less its true value is the
mean of psi. The variance of that mean takes sample weights, samples drawn together (clusters), counts fixed by design
(strata) and, as psi of one model less psi of the other, the difference of two models. From the variance an interval is
made in one of four shapes: of a mean, of a rate, of a quantity that counts rare errors, and of a calibration error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from confide.metrics.view import MANY_SAMPLES, Design, Sorted, View
from confide.numerics.arrays import dot
from confide.numerics.binomial import wilson_interval
from confide.results import TAILS, Z
from confide.types import Flags, Floats, Indices

Bounds = tuple[float, float]
UNKNOWN: Bounds = (math.nan, math.nan)


@dataclass(frozen=True, eq=False)
class Influence:
    """Influence values of one estimate, one a row; rows are samples, or kinds of samples that move it alike.

    `share` is the weight of each row (equal if None), `rows` the row of every sample, in `order` (that of the samples
    if None). `errors` marks the rows of errors, where few of them decide the estimate: its variance then has as many
    degrees of freedom as they allow. `noise` is variance beside that of psi: what a sum of absolute values has where
    signs are not clear. `one_error` is what one more error would add to the estimate, where it counts rare errors.
    """

    psi: Floats
    share: Floats | None = None
    rows: Indices | None = None
    order: Indices | None = None
    errors: Flags | None = None
    counts: tuple[int, int] | None = None  # of samples and errors, where rows are kinds
    noise: float = 0.0
    one_error: float = 0.0
    without_noise: float | None = None  # a calibration error less what noise adds to it

    def of_samples(self) -> Influence:
        """The same with one row a sample, in the order of the samples."""

        def sampled(values: NDArray[Any]) -> NDArray[Any]:
            values = values if self.rows is None else values[self.rows]
            if self.order is None:
                return values
            out = np.empty_like(values)
            out[self.order] = values
            return out

        errors = None if self.errors is None else sampled(self.errors)
        return self._beside(Influence(sampled(self.psi), errors=errors))

    def _beside(self, other: Influence) -> Influence:
        """Another with what is known here beside the rows."""
        return replace(other, noise=self.noise, one_error=self.one_error, without_noise=self.without_noise)

    @property
    def squares(self) -> float:
        """The sum of the squares of all rows."""
        return float(np.einsum("i,i->", self.psi, self.psi, dtype=np.float64))

    @property
    def n(self) -> int:
        """How many samples there are."""
        return len(self.psi) if self.counts is None else self.counts[0]

    @property
    def wrong(self) -> int:
        """How many of them are errors, where that is known."""
        return self.counts[1] if self.counts else 0 if self.errors is None else int(np.count_nonzero(self.errors))


@dataclass(frozen=True, eq=False)
class PartedInfluence(Influence):
    """Influence values of many samples, made some at a time: all at once they are the largest vector of an evaluation.

    `psi` is empty; `psi_of` gives the values of a slice.
    """

    psi_of: Callable[[slice], Floats] = field(kw_only=True)

    @classmethod
    def of(cls, psi_of: Callable[[slice], Floats], n: int, **about: Any) -> Influence:
        """Of n samples; of few with all values at once."""
        if n <= MANY_SAMPLES:
            return Influence(psi_of(slice(0, n)), **about)
        return cls(np.zeros(0), counts=(n, 0), psi_of=psi_of, **about)

    @property
    def squares(self) -> float:
        return sum(Influence(psi).squares for psi in self._parts())

    def of_samples(self) -> Influence:
        return self._beside(Influence(np.concatenate(list(self._parts())), order=self.order)).of_samples()

    def _parts(self) -> Iterator[Floats]:
        return (self.psi_of(slice(k, min(k + MANY_SAMPLES, self.n))) for k in range(0, self.n, MANY_SAMPLES))


@dataclass(frozen=True)
class Spread:
    """Variance of an estimate, its degrees of freedom, and how many independent units it comes from."""

    variance: float
    freedom: float
    units: float

    @property
    def quantile(self) -> float:
        """Half the length of a 95 % interval in standard deviations."""
        return student_quantile(self.freedom)


def spread_of(influence: Influence, design: Design) -> Spread:
    """The variance of the mean of influence values under the design of the sample."""
    if design.plain:
        n = influence.n
        if influence.errors is None and influence.share is None:
            return Spread(influence.squares / n / max(n - 1, 1) + influence.noise, max(n - 1.0, 1.0), n)
        squares = influence.psi * influence.psi
        squares *= 1.0 / n if influence.share is None else influence.share
        total = float(squares.sum())
        variance = total / max(n - 1, 1) + influence.noise
        if influence.errors is None:
            return Spread(variance, max(n - 1.0, 1.0), n)
        return Spread(variance, _freedom(float(squares[influence.errors].sum()), total, influence.wrong, n), n)
    own = influence.of_samples()
    sums, parts = design.unit_sums(own.psi)
    units = np.bincount(parts)
    means = np.bincount(parts, sums) / np.maximum(units, 1)
    within = np.bincount(parts, (sums - means[parts]) ** 2)
    variance = float((within * units / np.maximum(units - 1, 1)).sum()) + own.noise
    freedom = max(min(float((units - 1).sum()), design.effective_units - 1), 1.0)
    if own.errors is not None:
        touched = design.unit_sums(own.errors.astype(np.float64))[0] != 0
        total = dot(sums, sums)
        freedom = min(freedom, _freedom(dot(sums[touched], sums[touched]), total, int(touched.sum()), len(sums)))
    return Spread(variance, freedom, min(float(len(own.psi)), design.effective_units))


def _freedom(of_errors: float, total: float, errors: int, n: int) -> float:
    """Satterthwaite's degrees of freedom of a variance that errors and right samples share."""
    rest, right = max(total - of_errors, 0.0), n - errors
    below = of_errors**2 / max(errors - 1, 0.5) + rest**2 / max(right - 1, 0.5)
    return total**2 / below if below > 0 else max(n - 1.0, 1.0)


# Quantiles. scipy.special has them too, at a third of the time that torch takes to load.


def student_quantile(freedom: float) -> float:
    """The upper end of 95 % of Student's t: its expansion in 1 / freedom, below 3 between the values at 1, 2 and 3."""
    if freedom < 3:
        return math.exp(np.interp(1 / max(freedom, 1.0), (1 / 3, 1 / 2, 1), np.log((3.1824, 4.3027, 12.7062))))
    z, step = Z, 1 / freedom
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + step * (first + step * (second + step * third))


def gamma_quantile(shape: float, upper: bool) -> float:
    """An end of 95 % of the gamma distribution: Wilson and Hilferty's cube, made exact by Newton's steps."""
    probability = TAILS[1] if upper else TAILS[0]
    cube = 1 - 1 / (9 * shape) + (Z if upper else -Z) / (3 * math.sqrt(shape))
    x = shape * max(cube, 0.0) ** 3
    if shape > 1000:
        return x
    if (shape < 1 and not upper) or x <= 0:
        x = math.exp((math.log(probability) + math.lgamma(shape + 1)) / shape)  # P(x) ~ x^a / Gamma(a + 1) near 0
    a = torch.tensor(shape, dtype=torch.float64)
    for _ in range(8):
        if x <= 1e-300:
            break
        excess = float(torch.special.gammainc(a, torch.tensor(x, dtype=torch.float64))) - probability
        density = math.exp((shape - 1) * math.log(x) - x - math.lgamma(shape))
        step = excess / max(density, 1e-300)
        x = x - step if step < x else x / 2
        if abs(step) < 1e-9 * x:
            break
    return x


def erf(values: Floats) -> Floats:
    """The error function of every value."""
    return np.asarray(torch.erf(torch.from_numpy(np.ascontiguousarray(values, dtype=np.float64))).numpy())


# The four shapes.


def mean_interval(value: float, spread: Spread) -> Bounds:
    """Student's interval of a mean."""
    half = spread.quantile * math.sqrt(spread.variance)
    return value - half, value + half


def rate_interval(value: float, spread: Spread, fewest: float, quantile: float | None = None) -> Bounds:
    """Wilson's interval with as many draws as have this variance; at 0 and 1, where it has none, `fewest`."""
    apart = value * (1 - value)
    if spread.variance <= 0 and 0 < value < 1:
        return value, value  # nothing varies: all was fixed by design
    draws = apart / spread.variance if spread.variance > 0 and apart > 0 else fewest
    return wilson_interval(value, max(draws, 1e-9), quantile or spread.quantile)


def rare_interval(value: float, spread: Spread, one_error: float) -> Bounds:
    """Gamma interval of a sum over rare errors (Fay & Feuer, 1997, with the mean weight of Tiwari et al., 2006).

    A sum with mean v and variance s is like a scaled Poisson count of v^2 / s errors; the upper end counts one more.
    """
    variance = spread.variance
    low = 0.0
    if value > 0 and variance > 0:
        low = gamma_quantile(value**2 / variance, upper=False) * variance / value
    upper, wider = value + one_error, variance + one_error**2
    high = gamma_quantile(upper**2 / wider, upper=True) * wider / upper if upper > 0 and wider > 0 else value
    return low, high


def error_interval(value: float, spread: Spread, without_noise: float, rejected_above: float) -> Bounds:
    """Interval of a calibration error, made of its square.

    Noise pushes a calibration error up. What it adds to the square of the value is taken off the squares of both ends,
    with floor 0. Whether 0 itself is inside the calibration test decides, whose law is exact.
    """
    half = spread.quantile * math.sqrt(spread.variance)
    removed = value**2 - without_noise**2
    low, high = (math.sqrt(max(0.0, max(end, 0.0) ** 2 - removed)) for end in (value - half, value + half))
    if value <= rejected_above:
        low = 0.0
    elif low == 0:
        low = min(math.sqrt(value**2 - rejected_above**2), rejected_above / 10)
    return low, high


# Sums of absolute values: their signs are as clear as their size against their noise.

CLEARNESS = np.linspace(0.0, 12.0, 481)
"""Means of normal variables of variance 1."""
FOLDED = np.array(
    [x * math.erf(x / math.sqrt(2)) + math.sqrt(2 / math.pi) * math.exp(-(x**2) / 2) for x in CLEARNESS.tolist()]
)
"""Means of their absolute values."""


@dataclass(frozen=True, eq=False)
class Folded:
    """A sum of absolute values |X| of normal variables, of which one draw each is seen.

    `slope` is d E|X| / d E X, a sign that is not clear near 0; `rest` is Var|X| less slope^2 Var X. `without_noise`
    estimates the sum of |E X|, `doubt` is the standard deviation of that correction.
    """

    slope: Floats
    rest: Floats
    without_noise: float
    doubt: float

    @classmethod
    def of(cls, values: Floats, variance: Floats) -> Folded:
        """Of variables that were seen at these values."""
        noisy = variance > 0
        spread = np.sqrt(np.where(noisy, variance, 1.0))
        ratio = np.clip(np.where(noisy, values, 0.0) / spread, -40, 40)
        slope = np.where(noisy, erf(ratio / math.sqrt(2)), np.sign(values))
        expected = folded_mean(values, variance)
        rest = np.where(noisy, np.maximum(values**2 + variance - expected**2 - slope**2 * variance, 0.0), 0.0)
        chance = float(spread[noisy].sum() * FOLDED[0])
        return cls(slope, rest, *sum_without_noise(float(np.abs(values).sum()), chance))


def folded_mean(mean: Floats, variance: Floats) -> Floats:
    """E|X| of normal variables."""
    spread = np.sqrt(np.maximum(variance, 1e-300))
    ratio = np.clip(mean / spread, -40, 40)
    return np.asarray(spread * FOLDED[0] * np.exp(-(ratio**2) / 2) + mean * erf(ratio / math.sqrt(2)))


def sum_without_noise(value: float, chance: float) -> tuple[float, float]:
    """The sum of |means| behind a sum of absolute values that noise alone would bring to `chance`; how sure that is.

    How much noise adds depends on how the means are spread. If they are normal about 0 it adds in squares; if all have
    one size it adds less, E|N(d, 1)| - d of a spread each. The middle of the two is taken, half their distance is its
    standard deviation.
    """
    if value <= chance:
        return 0.0, 0.0
    spread = chance / float(FOLDED[0])
    alike = float(np.interp(value / spread, FOLDED, CLEARNESS)) * spread if value < FOLDED[-1] * spread else value
    normal = math.sqrt(value**2 - chance**2)
    return (normal + alike) / 2, abs(alike - normal) / 2


# Samples from the safest to the least safe, in steps of equal scores.

CELLS = 1 << 14
"""More samples than this make steps of neighbours: an influence value hardly changes over a few ranks."""


@dataclass(frozen=True, eq=False)
class Steps:
    """Steps of a falling threshold: weight and loss of each, in units of the total weight, and what came before.

    A sample of a step moves an estimate by `still + loss x moved` (`influence`): all scores of a step are alike, and
    within it every order is equally likely.
    """

    mass: Floats
    lost: Floats
    ordered: Sorted
    starts: Indices | None  # first sample of each step; None where each sample is its own

    @classmethod
    def of(cls, view: View, score: Any, losses: Floats | None = None) -> Steps:
        """The steps of a score; losses in the order of the samples, errors by default."""
        if losses is None:
            return view.derived((cls, view.base.key(score)), lambda: cls._of(view, score))
        return cls._of(view, score, losses)

    @classmethod
    def _of(cls, view: View, score: Any, losses: Floats | None = None) -> Steps:
        ordered, n = view.base.ordered(score), view.base.n
        weights = view.in_order(ordered)
        if weights is None and losses is None and n > CELLS and view.base.design.plain and not view.base.resampled:
            ends = np.linspace(0, n, CELLS + 1).round().astype(np.intp)[1:]
            ranks = view.ranks(score)
            errors = ranks.errors_at(ends)
            starts = np.append(0, ends[:-1])
            return cls(np.diff(ends, prepend=0) / n, np.diff(errors, prepend=0.0) / n, ordered, starts)
        loss = ordered.wrong.astype(np.float64) if losses is None else losses[ordered.order]
        mass = np.full(n, 1.0 / n) if weights is None else weights / weights.sum()
        loss = loss * mass
        if not ordered.tied.any():
            return cls(mass, loss, ordered, None)
        starts = np.flatnonzero(np.append(True, ordered.values[1:] != ordered.values[:-1]))
        return cls(np.add.reduceat(mass, starts), np.add.reduceat(loss, starts), ordered, starts)

    @cached_property
    def accepted(self) -> Floats:
        """Weight of all up to each step."""
        return np.cumsum(self.mass)

    @cached_property
    def errors(self) -> Floats:
        """Loss of all up to each step."""
        return np.cumsum(self.lost)

    @property
    def before(self) -> Floats:
        """Weight of all before each step."""
        return self.accepted - self.mass

    @property
    def errors_before(self) -> Floats:
        """Loss of all before each step."""
        return self.errors - self.lost

    @property
    def right(self) -> Floats:
        """Weight without loss of each step."""
        return self.mass - self.lost

    @property
    def rate(self) -> float:
        """The mean loss of all."""
        return float(self.lost.sum())

    @cached_property
    def index(self) -> Indices:
        """The step of every sorted sample."""
        if self.starts is None:
            return np.arange(len(self.mass))
        return np.repeat(np.arange(len(self.starts)), np.diff(np.append(self.starts, len(self.ordered))))

    def local(self, coverage: float, n: float) -> float:
        """The mean loss of the samples around a coverage, some n^0.7 of them and at least the step itself."""
        half = max(5.0, 0.5 * n**0.7) / n
        first = int(np.searchsorted(self.accepted, coverage - half))
        last = min(int(np.searchsorted(self.accepted, coverage + half)), len(self.mass) - 1)
        return float(self.lost[first : last + 1].sum() / max(float(self.mass[first : last + 1].sum()), 1e-300))

    def influence(self, still: Floats, moved: Floats, one_error: float = 0.0) -> Influence:
        """Influence values of right samples and of errors, about their mean."""
        mean = dot(still, self.mass) + dot(moved, self.lost)
        wrong = self.ordered.wrong
        return StepInfluence(
            psi=np.concatenate([still - mean, still + moved - mean]),
            share=np.concatenate([self.right, self.lost]),
            errors=np.repeat([False, True], len(still)),
            counts=(len(wrong), int(np.count_nonzero(wrong))),
            order=self.ordered.order,
            one_error=one_error,
            steps=self,
        )

    def typical(self, effects: Floats, n: float) -> float:
        """What one more error would add: as those that are there, or, where there are none, at any place."""
        mass = self.lost if self.lost.any() else self.mass
        return dot(effects, mass) / float(mass.sum()) / n


@dataclass(frozen=True, eq=False)
class StepInfluence(Influence):
    """Influence values of steps: rows are the right samples of each and then its errors."""

    steps: Steps | None = None

    def of_samples(self) -> Influence:
        assert self.steps is not None
        rows = self.steps.index + len(self.steps.mass) * self.steps.ordered.wrong
        return self._beside(Influence(self.psi, rows=rows, order=self.order, errors=self.errors)).of_samples()


def tail_sums(values: Floats) -> Floats:
    """Sums of each value and all that follow."""
    return np.cumsum(values[::-1])[::-1]


def area_influence(steps: Steps) -> tuple[Floats, Floats]:
    """Of AURC, the mean of the risk R(u) over the coverages u: psi_j = R(u_j) + integral from u_j of (l_j - R) / u du.

    Within a step R(u) is (E + (u - A) r) / u with the local risk r, and samples lie evenly: the means over the step are
    in closed form. Returns psi of a sample without loss, not centred, and what a loss of 1 adds.
    """
    before, after, mass = steps.before, steps.accepted, np.maximum(steps.mass, 1e-300)
    local = steps.lost / mass
    rise = np.log(after / np.maximum(before, 1e-300))
    rise[0] = 0.0  # nothing comes before the first step
    head = steps.errors_before - local * before
    whole = head * mass / np.maximum(before, 1e-300) / after + local * rise  # integral of R / u over the step
    whole[0] = 0.0
    inside = 1 - before * rise / mass  # mean over the step of ln(after / u)
    risk = head * rise / mass + local
    own = tail_sums(rise) - rise + inside
    others = tail_sums(whole) - whole + head * (rise / mass - 1 / after) + local * inside
    return risk - others, own
