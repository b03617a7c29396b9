"""Everything that one set of predictions can show: measurements with intervals, curves and groups."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.core.door import InputError
from confide.core.predictions import Predictions
from confide.core.records import Scores
from confide.core.registry import Method
from confide.core.results import Curve, Evaluation, Measurement
from confide.evaluation.curves import all_curves
from confide.evaluation.groups import (
    MOST_GROUPS,
    Grouping,
    class_groups,
    difficulty_groups,
    facts_for_means,
    group_means,
    groupings,
)
from confide.metrics.family import CORE, METRICS, label_of, parse, value_of
from confide.metrics.resampling import RESAMPLES, Null, Statistic, bootstrap, interval_from, nulls
from confide.metrics.view import Base, View, base_of

GROUP_RESAMPLES = 200

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Asked:
    """One number to compute: a metric with its options, and the name of its score."""

    method: Method
    options: dict[str, Any]
    score: str | None = None

    @property
    def calibration(self) -> bool:
        return bool(self.method.facts["kind"] == "calibration")

    @property
    def whole(self) -> bool:
        """Needs all probabilities again for every resample, so it has no bootstrap here."""
        return bool(self.method.facts.get("whole"))

    def __call__(self, view: View) -> float:
        return value_of(self.method, view, self.options)


@dataclass(frozen=True)
class Tag:
    """What the rows of one evaluation have in common."""

    model: str
    stage: str
    split: str | None


def evaluate(
    predictions: Predictions,
    metrics: str | Sequence[str] = "core",
    intervals: bool = True,
    by: Any = None,
    *,
    model: str = "model",
    stage: str = "raw",
    scores: Scores | None = None,
    score: Any = None,
    trust: Mapping[str, Any] | None = None,
    seed: int = 0,
    **about: Any,
) -> Evaluation:
    """Metrics with 95 % intervals, the calibration test beside every calibration error, curves and groups.

    Args:
        metrics: "core", "all", or a list of words; `ece_mass` is `ece` in equal-mass bins.
        intervals: 1,000 bootstrap resamples within labels, and the calibration test; False for the values alone.
        by: groups to measure in full: "class", "difficulty", a column's name, {name: values}, or a list of these.
            The means by class and by fifth of difficulty are always there.
        scores: difficulty of the samples; joined by id.
        score: what ranks the samples; by default `msp` and `entropy`, and the trust that the predictions carry.
        trust: further scores of trust predictors by name, high = safe; named `trust:<name>` in the table.
        about: what the report says of it: title, unit, class_names, ...
    """
    base = base_of(predictions)
    difficulty = None if scores is None else scores.of(predictions.ids)
    ranking = ranking_scores(predictions, score, trust)
    asked, missing = requests(metrics, predictions, ranking)
    tag = Tag(model, stage, predictions.split)
    if any(a.method.word == "classwise_ece" and not a.options for a in asked):
        predictions.class_table()  # one pass over the logits gives this table and the facts
    rows = measurements(base, asked, tag, seed, RESAMPLES if intervals else 0, auto_groups(predictions, difficulty))
    for grouping in groupings(predictions, by, difficulty):
        rows += group_measurements(predictions, grouping, asked, tag, seed, GROUP_RESAMPLES if intervals else 0)
    curves = all_curves(base, ranking, difficulty, intervals, seed)
    known = {**about_of(predictions, scores, seed), **about}
    if missing:
        known["missing"] = {**missing, **known.get("missing", {})}
    return Evaluation(
        measurements=tuple(rows),
        curves=tuple(tagged(curve, tag) for curve in curves),
        about={k: v for k, v in known.items() if v is not None},
    )


def tagged(curve: Curve, tag: Tag) -> Curve:
    """The curve with the names of its model, stage and split."""
    return replace(curve, model=tag.model, stage=tag.stage, split=tag.split)


def ranking_scores(predictions: Predictions, score: Any, trust: Mapping[str, Any] | None) -> dict[str, Any]:
    """Name in the table -> the score, the plain confidence first."""
    chosen: dict[str, Any] = {}
    if score is None:
        chosen["msp"] = "msp"
        if predictions.facts.entropy is not None:
            chosen["entropy"] = "entropy"
        if predictions.trust is not None:
            chosen["trust"] = "trust"
    elif isinstance(score, Mapping):
        chosen.update({str(k): v for k, v in score.items()})
    elif isinstance(score, (list, tuple)) and all(isinstance(s, str) for s in score):
        chosen.update({s: s for s in score})
    else:
        chosen[score if isinstance(score, str) else "given"] = score
    for name, values in (trust or {}).items():
        chosen[name if name.startswith("trust:") else f"trust:{name}"] = values
    return chosen


def requests(
    metrics: str | Sequence[str], predictions: Predictions, ranking: Mapping[str, Any]
) -> tuple[list[Asked], dict[str, str]]:
    """The numbers to compute, and why the others cannot be."""
    words: Sequence[str]
    if isinstance(metrics, str):
        words = {"core": CORE, "all": (*METRICS.names(), "ece_mass")}.get(metrics, (metrics,))
    else:
        words = metrics
    explicit = not isinstance(metrics, str) or metrics not in ("core", "all")
    asked, missing = [], {}
    for word in dict.fromkeys(words):
        method, options = parse(word)
        lack = lacking(method, predictions)
        if lack and explicit:
            raise InputError(f"metric '{word}' {lack}")
        if lack:
            missing[word] = lack
        elif "score" in method.options:
            asked += [Asked(method, {**options, "score": s}, name) for name, s in ranking.items()]
        else:
            asked.append(Asked(method, options))
    return asked, missing


def lacking(method: Method, predictions: Predictions) -> str:
    """Why a metric cannot be computed from these predictions; empty where it can."""
    if method.word in ("nll", "brier") and predictions.facts.nll is None:
        return "needs all probabilities"
    if method.facts.get("whole") and predictions.top1 is not None:
        return "needs all probabilities"
    if method.facts.get("whole") and predictions.given is not None and predictions.given_table is None:
        return "needs all probabilities in memory"
    return ""


def auto_groups(predictions: Predictions, difficulty: Floats | None) -> list[Grouping]:
    """Groups whose means every evaluation shows."""
    found = []
    if predictions.num_classes <= MOST_GROUPS:
        found.append(class_groups(predictions))
    if difficulty is not None:
        found.append(difficulty_groups(difficulty))
    return found


def measurements(
    base: Base, asked: Sequence[Asked], tag: Tag, seed: int, resamples: int, groups: Sequence[Grouping] = ()
) -> list[Measurement]:
    """All measurements of one set of samples; one bootstrap and one null serve them all."""
    view = View(base)
    values = [a(view) for a in asked]
    means = [group_means(view, g) for g in groups]
    if not resamples:
        rows = [row_of(a, v, base.n, tag) for a, v in zip(asked, values, strict=True)]
        return rows + [m for g, v in zip(groups, means, strict=True) for m in mean_rows(base, g, v, None, tag)]
    light = [a for a in asked if not a.whole]
    statistics: list[Statistic] = [*light, *(partial(group_means, grouping=g) for g in groups)]
    draws, factor = bootstrap(base, statistics, resamples=resamples, seed=seed)
    tests = calibration_tests(base, [a for a in asked if a.calibration], seed, resamples)
    at = {id(a): k for k, a in enumerate(light)}
    rows = []
    for a, value in zip(asked, values, strict=True):
        null = tests.get(id(a))
        own = draws[at[id(a)]] if id(a) in at else None
        bounds = (math.nan, math.nan) if own is None else interval_from(a.method, value, base.n, own, null, factor)
        rows.append(row_of(a, value, base.n, tag, bounds, null))
    begin = len(light)
    for grouping, mean in zip(groups, means, strict=True):
        rows += mean_rows(base, grouping, mean, draws[begin : begin + len(mean)], tag, factor)
        begin += len(mean)
    return rows


def calibration_tests(base: Base, asked: Sequence[Asked], seed: int, resamples: int) -> dict[int, Null]:
    """The null of every calibration error, by the identity of what was asked."""
    light = [a for a in asked if not a.whole]
    found = nulls(base, [(a.method, a.options) for a in light], resamples=resamples, seed=seed) if light else []
    return {id(a): null for a, null in zip(light, found, strict=True)}


def row_of(
    asked: Asked,
    value: float,
    n: int,
    tag: Tag,
    bounds: tuple[float, float] | None = None,
    null: Null | None = None,
    group: str | None = None,
) -> Measurement:
    """A row of the table."""
    return Measurement(
        metric=label_of(asked.method, asked.options),
        value=value,
        n=n,
        split=tag.split,
        stage=tag.stage,
        group=group,
        model=tag.model,
        score=asked.score,
        chance=null.mean if null else None,
        chance_high=null.high if null else None,
        p_value=null.p_value if null else None,
        bounds=bounds or (math.nan, math.nan),
    )


def mean_rows(
    base: Base, grouping: Grouping, values: Floats, draws: Floats | None, tag: Tag, factor: float = 1.0
) -> list[Measurement]:
    """Rows of the means in every group that has samples."""
    words = facts_for_means(base.predictions)
    sizes, rows = grouping.sizes, []
    for group, size in enumerate(sizes):
        if not size:
            continue
        for k, word in enumerate(words):
            place = group * len(words) + k
            value = float(values[place])
            asked = Asked(METRICS.get(word), {})
            bounds = None
            if draws is not None:
                bounds = interval_from(asked.method, value, int(size), draws[place], None, factor)
            rows.append(row_of(asked, value, int(size), tag, bounds, group=grouping.label(group)))
    return rows


def group_measurements(
    predictions: Predictions, grouping: Grouping, asked: Sequence[Asked], tag: Tag, seed: int, resamples: int
) -> list[Measurement]:
    """Every metric within every group; what the means already show is not repeated."""
    rows = []
    for group, size in enumerate(grouping.sizes):
        if not size:
            continue
        chosen = np.flatnonzero(grouping.index == group)
        part = [restricted(a, chosen) for a in asked]
        base = Base(predictions.take(chosen))
        found = measurements(base, part, tag, seed, resamples)
        rows += [replace(m, group=grouping.label(group)) for m in found]
    return rows


def restricted(asked: Asked, rows: NDArray[np.intp]) -> Asked:
    """The same for some samples: a score given as a vector is cut alike."""
    score = asked.options.get("score")
    if score is None or isinstance(score, str):
        return asked
    array = score.detach().cpu().numpy() if hasattr(score, "detach") else np.asarray(score)
    return Asked(asked.method, {**asked.options, "score": array[rows]}, asked.score)


def about_of(predictions: Predictions, scores: Scores | None, seed: int) -> dict[str, Any]:
    """What is known of the samples."""
    import torch

    from confide import __version__

    names = predictions.class_names
    counts = np.bincount(predictions.labels.cpu().numpy(), minlength=predictions.num_classes)
    words = [str(names[k]) if names and k < len(names) else str(k) for k in range(len(counts))]
    return {
        "class_names": list(names) if names else None,
        "num_classes": predictions.num_classes,
        "label_counts": dict(zip(words, counts.tolist(), strict=True)) if len(counts) <= 1000 else None,
        "difficulty": scores.method if scores is not None else None,
        "unit": "samples",
        "seed": seed,
        "versions": {"confide": __version__, "torch": torch.__version__, "numpy": np.__version__},
    }
