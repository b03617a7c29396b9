"""The 95 % interval of a metric and what chance shows of a calibration error: by theory, or by resamples."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from confide.metrics import resampling
from confide.metrics.influence import (
    UNKNOWN,
    Bounds,
    Influence,
    Spread,
    error_interval,
    mean_interval,
    rare_interval,
    rate_interval,
    spread_of,
)
from confide.metrics.resampling import RESAMPLES, Null, null_from
from confide.metrics.view import Design, View
from confide.random import generator
from confide.registry import Method
from confide.results import Z
from confide.types import Options

if TYPE_CHECKING:
    from confide.metrics.base import MetricSpec

THEORY, BOOTSTRAP = "theory", "bootstrap"
FEW_ERRORS = 10
"""Below so many errors, or right samples, a ranking's interval is little more than that of their number."""


def chance_of(
    method: Method[MetricSpec],
    view: View,
    options: Options,
    value: float,
    *,
    draws: int = RESAMPLES,
    seed: int = 0,
) -> Null | None:
    """What a calibrated model with these confidences would show; None for a metric that is no calibration error.

    Where a metric has no law of its own, correctness is drawn sample by sample, at most `draws` times.
    """
    spec = method.spec
    if spec.info.kind != "calibration" or not math.isfinite(value) or view.base.design.single:
        return None
    if spec.whole and not view.predictions.outputs.all_classes and options.get("of") != "top":
        return None
    if spec.chance is None:
        drawn = resampling.null_draws(method, view.base, options, draws, seed)
    else:
        drawn = spec.chance(view, draws, generator(seed, "chance"), **options)
    return null_from(value, drawn if spec.by_unit else drawn * unit_effect(view))


def unit_effect(view: View) -> float:
    """How much wider the mean of confidence less correctness spreads where samples were drawn several as one.

    What samples drawn one by one would show of a calibration error is scaled by it, where the metric does not count
    units itself.
    """
    design = view.base.design
    if design.clusters is None:
        return 1.0
    gap = view.base.vector("sureness") - view.base.vector("correct")
    influence = Influence(gap - gap.mean())
    alone = spread_of(influence, Design(design.weights, design.strata)).variance
    return math.sqrt(max(spread_of(influence, design).variance / alone, 1.0)) if alone > 0 else 1.0


def fewest_of(influence: Influence, spread: Spread) -> float:
    """The number of errors or of right samples, whichever is smaller, where that bounds what is known."""
    fewest = spread.units
    if influence.errors is not None:
        sides, worth = (influence.wrong, influence.n - influence.wrong), min(spread.units / influence.n, 1.0)
        fewest = min(fewest, *(side * worth for side in sides if side), math.inf)
    return fewest


def interval_of(
    method: Method[MetricSpec],
    view: View,
    options: Options,
    value: float,
    chance: Null | None,
    *,
    how: str = THEORY,
    seed: int = 0,
) -> Bounds:
    """The 95 % interval of a metric; it holds the value and stays in the metric's range. Unknown where none would hold.

    By theory where the metric has influence values, else, or if asked for, from resamples.
    """
    spec = method.spec
    if not math.isfinite(value):
        return UNKNOWN
    if spec.whole and not view.predictions.outputs.all_classes and options.get("of") != "top":
        return UNKNOWN
    if view.base.design.single or jumps(method, options):
        return UNKNOWN
    if how == BOOTSTRAP or spec.influence is None:
        return _within(spec, value, resampling.bootstrap_interval(method, view.base, options, value, chance, seed))
    if spec.bounds is not None and replace(view.base.design, weights=None).plain:
        return _within(spec, value, spec.bounds(view, **options))
    influence = spec.influence(view, **options)
    spread = spread_of(influence, view.base.design)
    if chance is not None:
        centre = without_noise(method, influence, value, chance)
        return _within(spec, value, error_interval(value, spread, centre, chance.high))
    return shaped_interval(method, value, spread, one_error=influence.one_error, fewest=fewest_of(influence, spread))


def jumps(method: Method[MetricSpec], options: Options) -> bool:
    """Whether it is the largest of noisy gaps, now of this bin and now of that: no interval of it would hold."""
    return method.spec.jumping or options.get("norm") == "max"


def without_noise(method: Method[MetricSpec], influence: Influence | None, value: float, chance: Null) -> float:
    """A calibration error less what noise adds to it; where the metric does not know, the chance level, in squares."""
    if method.spec.debiased:
        return value
    if influence is None or influence.without_noise is None:
        return math.sqrt(max(0.0, value**2 - chance.mean**2))
    return influence.without_noise


def shaped_interval(
    method: Method[MetricSpec],
    value: float,
    spread: Spread,
    *,
    one_error: float = 0.0,
    fewest: float = math.inf,
) -> Bounds:
    """The interval of a value with this spread, in the shape of the metric: rare, of a rate or of a mean."""
    if method.spec.rare:
        bounds = rare_interval(value, spread, one_error)
    elif method.spec.rate:  # its variance is known with its value
        bounds = rate_interval(value, spread, fewest, Z)
    elif method.spec.info.kind == "ranking":
        bounds = rate_interval(value, spread, fewest)
    else:
        bounds = mean_interval(value, spread)
    return _within(method.spec, value, bounds)


def _within(spec: MetricSpec, value: float, bounds: Bounds) -> Bounds:
    """An interval in the metric's range that holds the value; unknown ends stay so."""
    (low, high), (smallest, largest) = bounds, spec.range
    if not (math.isfinite(low) and math.isfinite(high)):
        return UNKNOWN
    return min(max(low, smallest), value), max(min(high, largest), value)


def too_few(method: Method[MetricSpec], view: View) -> str | None:
    """The words for a ranking that hangs on few errors, or few right samples."""
    if method.spec.info.kind not in ("ranking", "separation"):
        return None
    wrong = int(np.count_nonzero(view.base.wrong))
    right = view.base.n - wrong
    if min(wrong, right) >= FEW_ERRORS:
        return None
    return f"too few errors ({wrong})" if wrong <= right else f"too few right samples ({right})"
