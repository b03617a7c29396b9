"""What a paper claims, as a rule that numbers can meet or not: reproduced, partly, not, or not testable here.

One rule for all: a claim is looked at on every dataset at hand, in one comparison or several. There it **holds** when
every comparison has the claimed sign and its paired t-test over seeds, Holm-corrected over the claim's comparisons, is
below 0.05; it **fails** when at least half of the comparisons have the other sign or none; else it is **open**. Holds
everywhere: reproduced. Fails everywhere: not. Anything between: partly. No numbers: not testable here. A comparison
whose cells are missing is open. A network that did not learn (validation accuracy below twice chance) does not count:
a claim in its favour fails, one against it is not looked at. A limit holds when the mean over seeds and its 95 %
interval lie within, is open when only the mean does, and fails else; one number has no interval and decides alone.
Trends and counts hold or fail by what they say of themselves; a count over fewer seeds than it speaks of is open while
it can still be met. A claim about certain datasets is looked at on those.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy import stats

from benchmarks.lib.values import Value, by_place, paired, spread_of
from confide.evaluation import holm
from confide.results import LEVEL

HOLDS, FAILS, OPEN = "holds", "fails", "open"


@dataclass(frozen=True)
class Look:
    """A claim on one dataset: whose number, what was seen, its p-value where it has one, whether the sign is right."""

    where: str
    who: str
    words: str
    right: bool
    p_value: float = math.nan
    tested: bool = True
    sure: bool = True


@dataclass(frozen=True)
class Verdict:
    """A claim with its verdict and why."""

    claim: str
    verdict: str
    why: str


class Claim(Protocol):
    """Anything that can look at values."""

    @property
    def text(self) -> str: ...

    def looks(self, values: Sequence[Value]) -> list[Look]: ...


@dataclass(frozen=True)
class Better:
    """A method is better than others: `than` names them, each is one comparison."""

    text: str
    method: str
    than: tuple[str, ...]
    quantity: str
    higher: bool = False
    on: tuple[str, ...] = ()

    def looks(self, values: Sequence[Value]) -> list[Look]:
        """One look per dataset and other method."""
        places = by_place(values)
        looks = []
        for dataset in _datasets(values, self.on):
            own = places.get((dataset, self.method, self.quantity, None), {})
            if own and not any(map(math.isfinite, own.values())):
                looks.append(Look(dataset, self.method, "did not learn", False, tested=False))
                continue
            others = {other: places.get((dataset, other, self.quantity, None), {}) for other in self.than}
            tests = {other: paired(own, values) for other, values in others.items()}
            if not any(test.seeds for test in tests.values()):
                continue
            for other, test in tests.items():
                gain = test.difference if self.higher else -test.difference
                words = f"less {other} {test.difference:+.3g}"
                if test.seeds:
                    looks.append(Look(dataset, self.method, words, gain > 0, test.p_value))
                elif not others[other]:
                    # What is not there cannot be beaten: the claim stays open.
                    looks.append(Look(dataset, self.method, f"without cells of {other}", True))
        return looks


@dataclass(frozen=True)
class Trend:
    """A quantity rises (sign 1) or falls (-1) along x: rank correlation of the mean over seeds at least `least`."""

    text: str
    methods: tuple[str, ...]
    quantity: str
    sign: int = 1
    least: float = 0.8

    def looks(self, values: Sequence[Value]) -> list[Look]:
        """One look per dataset and method."""
        looks = []
        for dataset in dict.fromkeys(value.dataset for value in values):
            for method in self.methods:
                points: dict[float, list[float]] = {}
                for value in values:
                    if (value.dataset, value.method, value.quantity) == (
                        dataset,
                        method,
                        self.quantity,
                    ) and value.x is not None:
                        points.setdefault(value.x, []).append(value.value)
                if len(points) >= 3:
                    xs = sorted(points)
                    rho = float(stats.spearmanr(xs, [np.mean(points[x]) for x in xs]).statistic)
                    right = math.isfinite(rho) and self.sign * rho >= self.least
                    looks.append(Look(dataset, method, f"rank correlation {rho:+.2f}", right, tested=False))
        return looks


@dataclass(frozen=True)
class Limit:
    """The mean of a quantity lies in a range."""

    text: str
    method: str
    quantity: str
    low: float = -math.inf
    high: float = math.inf
    on: tuple[str, ...] = ()

    def looks(self, values: Sequence[Value]) -> list[Look]:
        """One look per dataset."""
        looks = []
        for dataset in _datasets(values, self.on):
            by_seed = by_place(values).get((dataset, self.method, self.quantity, None), {})
            if not by_seed:
                continue
            numbers = np.array([value for value in by_seed.values() if math.isfinite(value)])
            mean, deviation, low, high = spread_of(numbers)
            spread = f" ± {deviation:.2g}" if math.isfinite(deviation) else ""
            words = f"{self.quantity} {mean:.3g}{spread}" if len(numbers) else "did not learn"
            # NaN, of one number, compares false: then the mean alone decides.
            sure = not (low < self.low or high > self.high)
            looks.append(Look(dataset, self.method, words, self.low <= mean <= self.high, tested=False, sure=sure))
        return looks


@dataclass(frozen=True)
class Count:
    """At least `least` of `of` seeds have a quantity above `above`."""

    text: str
    method: str
    quantity: str
    above: float
    least: int
    of: int
    on: tuple[str, ...] = ()

    def looks(self, values: Sequence[Value]) -> list[Look]:
        """One look per dataset; fewer seeds than asked for leave it open while it can still be met."""
        looks = []
        for dataset in _datasets(values, self.on):
            by_seed = by_place(values).get((dataset, self.method, self.quantity, None), {})
            if by_seed:
                met = sum(value > self.above for value in by_seed.values())
                lost = len(by_seed) - met
                words = f"{self.quantity} above {self.above:g} for {met} of {len(by_seed)} seeds"
                sure = len(by_seed) >= self.of
                looks.append(Look(dataset, self.method, words, lost <= self.of - self.least, tested=False, sure=sure))
        return looks


def _datasets(values: Sequence[Value], on: tuple[str, ...]) -> list[str]:
    """Datasets of the values, all or those of these names; rows of a network are called "cifar10, resnet34"."""
    names = dict.fromkeys(value.dataset for value in values)
    return [name for name in names if not on or name.partition(",")[0].partition(" /")[0] in on]


@dataclass(frozen=True)
class Untestable:
    """A claim that needs what is not at hand here."""

    text: str
    why: str

    def looks(self, values: Sequence[Value]) -> list[Look]:
        """Nothing can be seen."""
        return []


def verdicts(claims: Sequence[Claim], values: Sequence[Value], names: Mapping[str, str] | None = None) -> list[Verdict]:
    """The verdict of every claim; a claim that needs all its comparisons has their p-values corrected together."""
    return [_verdict(claim, claim.looks(values), names or {}) for claim in claims]


def state_of(looks: Sequence[Look], corrected: Sequence[float]) -> str:
    """Holds, fails or open, of the looks on one dataset with their corrected p-values."""
    if 2 * sum(not look.right for look in looks) >= len(looks):
        return FAILS
    sure = (
        look.right and look.sure and (not look.tested or p < LEVEL) for look, p in zip(looks, corrected, strict=True)
    )
    return HOLDS if all(sure) else OPEN


def _verdict(claim: Claim, looks: list[Look], names: Mapping[str, str]) -> Verdict:
    if not looks:
        why = claim.why if isinstance(claim, Untestable) else "no cells with these numbers"
        return Verdict(claim.text, "not testable here", why)
    groups: dict[str, list[tuple[Look, float]]] = {}
    for look, p in zip(looks, holm([look.p_value for look in looks]), strict=True):
        groups.setdefault(look.where, []).append((look, p))
    states = {where: state_of(*zip(*group, strict=True)) for where, group in groups.items()}
    verdict = "partly"
    if set(states.values()) == {HOLDS}:
        verdict = "reproduced"
    elif set(states.values()) == {FAILS}:
        verdict = "not"
    parts = [f"{named(where, names)} {states[where]}: {_looks_text(group)}" for where, group in groups.items()]
    return Verdict(claim.text, verdict, "; ".join(parts))


def _looks_text(group: Sequence[tuple[Look, float]]) -> str:
    """What was seen on a dataset, what speaks for the claim first."""
    words_by_side: dict[bool, dict[str, list[str]]] = {True: {}, False: {}}
    for look, p in group:
        shown = f" (p {p:.2g})" if look.tested and math.isfinite(p) else " (no test)" if look.tested else ""
        words_by_side[look.right].setdefault(look.who, []).append(look.words + shown)
    right, wrong = (
        ", ".join(f"{who} {', '.join(words)}" for who, words in words_by_side[side].items()) for side in (True, False)
    )
    return f"for it {right}, against it {wrong}" if right and wrong else right or wrong


def named(where: str, names: Mapping[str, str]) -> str:
    """A dataset as people write it, also within "cifar10 / tiny32" or "cifar10, resnet34"."""
    return re.sub(r"[\w-]+", lambda word: names.get(word[0], word[0]), where)
