"""What a paper claims, as a rule that numbers can meet or not: reproduced, partly, not, or not testable here.

One rule for all: a claim is looked at on every dataset at hand. There it **holds** when the difference has the claimed
sign and the paired t-test over seeds, Holm-corrected over all the item's claims, is below 0.05; it **fails** when the
sign is the other one; else it is **open**. Holds everywhere: reproduced. Fails everywhere: not. Anything between:
partly. No numbers: not testable here. A comparison whose cells are missing is open. A network that did not learn
(validation accuracy below twice chance) does not count: a claim in its favour fails, one against it is not looked at.
Trends and limits have no test: they hold or fail by what they say of themselves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy import stats

from confide.bench.values import LEVEL, Value, by_place, paired
from confide.evaluation.compare import holm

HOLDS, FAILS, OPEN = "holds", "fails", "open"


@dataclass(frozen=True)
class Look:
    """A claim on one dataset: what was seen, in words, its p-value where it has one, whether the sign is right."""

    where: str
    words: str
    right: bool
    p_value: float = math.nan
    tested: bool = True


@dataclass(frozen=True)
class Verdict:
    """A claim with its verdict and why."""

    claim: str
    verdict: str
    why: str


class Claim(Protocol):
    """Anything that can look at values."""

    text: str

    def looks(self, values: Sequence[Value]) -> list[Look]: ...


@dataclass(frozen=True)
class Better:
    """A method is better than others: `than` names them, each is one comparison."""

    text: str
    method: str
    than: tuple[str, ...]
    quantity: str
    higher: bool = False

    def looks(self, values: Sequence[Value]) -> list[Look]:
        """One look per dataset and other method."""
        places = by_place(values)
        found = []
        for dataset in dict.fromkeys(one.dataset for one in values):
            own = places.get((dataset, self.method, self.quantity, None), {})
            if own and not any(map(math.isfinite, own.values())):
                found.append(Look(dataset, f"{self.method} did not learn", False, tested=False))
                continue
            others = {other: places.get((dataset, other, self.quantity, None), {}) for other in self.than}
            tests = {other: paired(own, values) for other, values in others.items()}
            if not any(test.seeds for test in tests.values()):
                continue
            for other, test in tests.items():
                gain = test.difference if self.higher else -test.difference
                words = f"against {other} {test.difference:+.3g}"
                if test.seeds:
                    found.append(Look(dataset, words, gain > 0, test.p_value))
                elif not others[other]:
                    # What is not there cannot be beaten: the claim stays open.
                    found.append(Look(dataset, f"against {other} no cells", True))
        return found


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
        found = []
        for dataset in dict.fromkeys(one.dataset for one in values):
            for method in self.methods:
                points: dict[float, list[float]] = {}
                for one in values:
                    if (one.dataset, one.method, one.quantity) == (
                        dataset,
                        method,
                        self.quantity,
                    ) and one.x is not None:
                        points.setdefault(one.x, []).append(one.value)
                if len(points) >= 3:
                    xs = sorted(points)
                    rho = float(stats.spearmanr(xs, [np.mean(points[x]) for x in xs]).statistic)
                    right = math.isfinite(rho) and self.sign * rho >= self.least
                    found.append(Look(dataset, f"{method}: rank correlation {rho:+.2f}", right, tested=False))
        return found


@dataclass(frozen=True)
class Limit:
    """The mean of a quantity lies in a range."""

    text: str
    method: str
    quantity: str
    low: float = -math.inf
    high: float = math.inf

    def looks(self, values: Sequence[Value]) -> list[Look]:
        """One look per dataset."""
        found = []
        for (dataset, method, quantity, _), by_seed in by_place(values).items():
            if (method, quantity) == (self.method, self.quantity) and by_seed:
                mean = (
                    float(np.nanmean(list(by_seed.values()))) if any(map(math.isfinite, by_seed.values())) else math.nan
                )
                words = f"{quantity} of {method} is {mean:.3g}" if math.isfinite(mean) else f"{method} did not learn"
                found.append(Look(dataset, words, self.low <= mean <= self.high, tested=False))
        return found


@dataclass(frozen=True)
class Untestable:
    """A claim that needs what is not at hand here."""

    text: str
    why: str

    def looks(self, values: Sequence[Value]) -> list[Look]:
        """Nothing can be seen."""
        return []


def verdicts(claims: Sequence[Claim], values: Sequence[Value], names: Mapping[str, str] | None = None) -> list[Verdict]:
    """The verdict of every claim; p-values are corrected over all looks of the item."""
    looks = [claim.looks(values) for claim in claims]
    flat = [look for group in looks for look in group]
    corrected = dict(zip(map(id, flat), holm([look.p_value for look in flat]), strict=True))
    return [_verdict(claim, group, corrected, names or {}) for claim, group in zip(claims, looks, strict=True)]


def state_of(look: Look, p_holm: float) -> str:
    """Holds, fails or open."""
    if not look.right:
        return FAILS
    return HOLDS if not look.tested or p_holm < LEVEL else OPEN


def _verdict(claim: Claim, looks: list[Look], corrected: Mapping[int, float], names: Mapping[str, str]) -> Verdict:
    if not looks:
        why = claim.why if isinstance(claim, Untestable) else "no cells with these numbers"
        return Verdict(claim.text, "not testable here", why)
    states = [state_of(look, corrected[id(look)]) for look in looks]
    verdict = "partly"
    if all(state == HOLDS for state in states):
        verdict = "reproduced"
    elif all(state == FAILS for state in states):
        verdict = "not"
    groups: dict[tuple[str, str], list[str]] = {}
    for look, state in zip(looks, states, strict=True):
        p = corrected[id(look)]
        shown = f" (p {p:.2g})" if look.tested and math.isfinite(p) else " (no test)" if look.tested else ""
        groups.setdefault((names.get(look.where, look.where), state), []).append(look.words + shown)
    parts = [f"{where} {state}: {', '.join(words)}" for (where, state), words in groups.items()]
    return Verdict(claim.text, verdict, "; ".join(parts))
