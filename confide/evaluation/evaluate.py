"""Everything that one set of predictions can show: metrics with intervals, curves and groups of samples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide import dense
from confide.checks import InputError, did_you_mean, known_keywords
from confide.evaluation.curves import all_curves
from confide.evaluation.gallery import map_gallery
from confide.evaluation.streaming import as_predictions
from confide.files.columns import WEIGHT_COLUMN
from confide.metrics.base import METRICS, MetricSpec, metric_name, note_of, parse_metric, table_words, value_of
from confide.metrics.influence import UNKNOWN, Influence, Spread, error_interval, spread_of
from confide.metrics.intervals import (
    BOOTSTRAP,
    THEORY,
    chance_of,
    interval_of,
    shaped_interval,
    unit_effect,
    without_noise,
)
from confide.metrics.resampling import Null, null_from
from confide.metrics.view import MANY_SAMPLES, Design, MetricSamples, View, metric_samples
from confide.numerics.arrays import sums_by
from confide.numerics.blocks import in_threads
from confide.predictions import LABEL_NAME, PairOutputs, Predictions, StreamedOutputs, label_doubt, row_word
from confide.records import Scores
from confide.registry import Method
from confide.results import MACRO, About, Evaluation, Expectation, Measurement, group_of
from confide.results.measurements import row_like
from confide.types import AnyArray, Floats, Indices, Options

# Groups of samples.

MOST_GROUPS = 100
OWN_GROUPS = ("class", "predicted", "difficulty", "label")  # that need no column: of label, prediction, scores, labels
FIFTHS = ("easiest fifth", "second fifth", "middle fifth", "fourth fifth", "hardest fifth")
MEAN_FACTS = ("accuracy", "confidence_gap", "nll", "brier")


@dataclass(frozen=True, eq=False)
class SampleGroups:
    """Which group every sample is in."""

    kind: str
    names: tuple[str, ...]
    index: NDArray[np.integer[Any]]

    @property
    def sizes(self) -> NDArray[np.intp]:
        parts = (self.index[k : k + MANY_SAMPLES] for k in range(0, len(self.index), MANY_SAMPLES))
        counts = (np.bincount(part, minlength=len(self.names)) for part in parts)
        return np.asarray(sum(counts, start=np.zeros(len(self.names), dtype=np.intp)))

    def label(self, group: int) -> str:
        """As it stands in a measurement: `class=Shirt`."""
        return group_of(self.kind, self.names[group])


def class_groups(predictions: Predictions, kind: str = "class") -> SampleGroups:
    """One group per class of the labels, or per predicted class; those without samples are left out later."""
    index = predictions.labels if kind == "class" else predictions.core_facts.prediction
    count = max(predictions.num_classes, int(index.max()) + 1)
    names = predictions.class_names or ()
    words = tuple(str(names[k]) if k < len(names) else str(k) for k in range(count))
    return SampleGroups(kind, words, index.cpu().numpy())


def label_groups(predictions: Predictions) -> SampleGroups:
    """One group per label of multilabel predictions, in the order in which they come."""
    names, first, index = np.unique(predictions.columns[LABEL_NAME], return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(len(order), dtype=np.intp)
    place[order] = np.arange(len(order))
    return SampleGroups("label", tuple(str(name) for name in names[order]), place[index.reshape(-1)])


def difficulty_groups(difficulty: Floats) -> SampleGroups:
    """Fifths by rank of difficulty; fewer than five samples give fewer groups."""
    index = np.empty(len(difficulty), dtype=np.intp)
    index[np.argsort(difficulty, kind="stable")] = np.arange(len(difficulty)) * len(FIFTHS) // len(difficulty)
    return SampleGroups("difficulty", FIFTHS, index)


def column_groups(name: str, values: Any) -> SampleGroups:
    """One group per value of a column."""
    array = np.asarray(values)
    if array.dtype == object:
        array = array.astype(np.str_)
    unique, index = distinct(array)
    if len(unique) > MOST_GROUPS:
        raise InputError(
            f"column '{name}' must have at most {MOST_GROUPS} different values to group by, got {len(unique)}; "
            "cut it into ranges first"
        )
    return SampleGroups(name, tuple(str(v) for v in unique), index.reshape(-1).astype(np.intp))


COMPARED = 16
"""So many different words are told apart by comparing all with each: sorting them takes far longer."""


def distinct(array: NDArray[Any]) -> tuple[NDArray[Any], Indices]:
    """The different values in rising order, and which of them every value is."""
    if array.dtype.kind == "U" and len(array) > 1:
        starts = np.flatnonzero(np.append(True, array[1:] != array[:-1]))
        if 2 * len(starts) < len(array):  # words stand in runs, as the bands of pixels do
            unique, index = distinct(array[starts])
            return unique, np.repeat(index, np.diff(starts, append=len(array)))
    if array.dtype.kind == "U":
        left, place = np.arange(len(array)), np.zeros(len(array), dtype=np.intp)
        words: list[str] = []
        while len(left) and len(words) < COMPARED:
            rest = array[left]
            same = rest == rest[0]
            place[left[same]] = len(words)
            words.append(str(rest[0]))
            left = left[~same]
        if not len(left):
            order = np.argsort(words)
            return np.array(words, dtype=array.dtype)[order], np.argsort(order)[place]
    unique, index = np.unique(array, return_inverse=True)
    return unique, index.reshape(-1)


def groupings(predictions: Predictions, by: Any, difficulty: Floats | None) -> list[SampleGroups]:
    """The groupings asked for: "class", "predicted", "difficulty", a column, {name: values}, or a list of these."""
    if by is None:
        return []
    if isinstance(by, Mapping):
        return [column_groups(str(k), _checked_column(str(k), v, len(predictions))) for k, v in by.items()]
    words = [by] if isinstance(by, str) else list(by)
    groups = []
    for word in words:
        if word in ("class", "predicted"):
            groups.append(class_groups(predictions, word))
        elif word == "label" and predictions.is_multilabel:
            groups.append(label_groups(predictions))
        elif word == "difficulty":
            if difficulty is None:
                raise InputError("by='difficulty' needs scores=; pass the Scores of these samples")
            groups.append(difficulty_groups(difficulty))
        elif word in predictions.columns:
            groups.append(column_groups(word, predictions.columns[word]))
        else:
            own = [name for name in OWN_GROUPS if name != "label" or predictions.is_multilabel]
            known = (*own, *predictions.columns)
            raise InputError(f"cannot group by '{word}'; {did_you_mean(str(word), known)}")
    return groups


def design_of(predictions: Predictions, strata: Any, unit: Any) -> Design:
    """How the samples were drawn; a unit that is a word but no column only names them."""
    named = unit is None or (isinstance(unit, str) and unit not in predictions.columns)
    return Design(
        strata=None if strata is None else parts_of(predictions, strata, "strata"),
        clusters=predictions.clusters if named else parts_of(predictions, unit, "unit"),
    )


def parts_of(predictions: Predictions, parts: Any, name: str) -> NDArray[np.intp]:
    """The part of every sample: of its label ("class"), of a column, or as given."""
    if isinstance(parts, str) and parts == "class":
        return predictions.labels.cpu().numpy().astype(np.intp)
    if isinstance(parts, str):
        if parts not in predictions.columns:
            raise InputError(f"no {name} named '{parts}'; {did_you_mean(parts, ('class', *predictions.columns))}")
        parts = predictions.columns[parts]
    values = parts.detach().cpu() if hasattr(parts, "detach") else parts
    column = _checked_column(name, values, len(predictions))
    return np.unique(column, return_inverse=True)[1].reshape(-1).astype(np.intp)


def _checked_column(name: str, values: Any, n: int) -> NDArray[Any]:
    array = np.asarray(values.to_numpy() if hasattr(values, "to_numpy") else values)
    if array.shape != (n,):
        raise InputError(f"column '{name}' must have {n} values, one per sample, got shape {array.shape}")
    return array


def facts_for_means(predictions: Predictions) -> tuple[str, ...]:
    """Which of the means can be had from these predictions."""
    return MEAN_FACTS if predictions.core_facts.nll is not None else MEAN_FACTS[:2]


def per_sample(base: MetricSamples, word: str, rows: slice = slice(None)) -> AnyArray:
    """The values whose mean is that metric, where the outputs live."""
    if base.on_device:
        facts = base.predictions.core_facts
        if word == "confidence_gap":
            return (base.sureness_there - facts.correct.double())[rows]
        return facts.need({"accuracy": "correct"}.get(word, word))[rows].double()
    if word == "confidence_gap":
        return np.asarray(base.sureness(rows) - base.vector("correct")[rows])
    return base.vector({"accuracy": "correct"}.get(word, word))[rows]


def group_rows(base: MetricSamples, grouping: SampleGroups, tag: ModelStage, how: str | None) -> list[Measurement]:
    """Means of accuracy, confidence gap, NLL and Brier in every group that has samples."""
    design, index, sizes = base.design, grouping.index, grouping.sizes
    total = sizes if design.weights is None else np.bincount(index, design.weights, minlength=len(sizes))
    worth = total.astype(np.float64)  # samples alike that each group is worth
    if design.weights is not None:
        squares_of_weights = np.bincount(index, design.weights**2, minlength=len(sizes))
        worth = total**2 / np.where(sizes > 0, squares_of_weights, 1.0)
    slices, there = list(base.parts()), base.there(index)
    rows: list[list[Measurement]] = [[] for _ in sizes]
    present = [(group, int(sizes[group]), grouping.label(group)) for group in np.flatnonzero(sizes).tolist()]
    for word in facts_for_means(base.predictions):
        request = MetricRequest(METRICS.get(word), {})
        sums, squares = np.zeros(len(sizes)), np.zeros(len(sizes))
        for part in slices:
            values = per_sample(base, word, part)
            weighted = values if design.weights is None else values * design.weights[part]
            sums += sums_by(there[part], weighted, len(sizes))
        means = sums / np.where(total > 0, total, 1.0)
        plain_means = means.tolist()
        for part in slices if how is not None else ():
            apart = per_sample(base, word, part) - base.there(means)[there[part]]
            squares += sums_by(there[part], apart**2, len(sizes))
        apart = per_sample(base, word) - means[index] if how is not None and not design.plain else np.zeros(0)
        like = row_of(request, math.nan, 0, tag)
        for group, size, label in present:
            value, bounds = plain_means[group], like.bounds
            if how is not None:
                # A group's own size is chance too: to first order that is the spread within the group.
                spread = Spread(float(squares[group]) / size / max(size - 1, 1), max(size - 1.0, 1.0), size)
                if not design.plain:
                    if design.clusters is not None:
                        own = design.take(np.flatnonzero(index == group))
                        worth[group] = min(worth[group], own.effective_units)
                        if own.single:
                            rows[group].append(row_of(request, value, size, tag, UNKNOWN, group=label))
                            continue
                    psi = np.where(index == group, apart, 0.0) * (total.sum() / total[group])
                    spread = spread_of(Influence(psi), design)
                    freedom = max(min(spread.freedom, worth[group] - 1), 1.0)
                    spread = replace(spread, units=worth[group], freedom=freedom)
                bounds = shaped_interval(request.method, value, spread, fewest=worth[group])
            rows[group].append(row_like(like, value=value, n=size, group=label, bounds=bounds))
    return [row for own in rows for row in own]


# Measurements of one set of samples.

MOST_FOR_SLOW = 5_000


@dataclass(frozen=True)
class MetricRequest:
    """One number to compute: a metric with its options, and the name of its score."""

    method: Method[MetricSpec]
    options: Options
    score: str | None = None

    def __call__(self, view: View) -> float:
        return value_of(self.method, view, self.options)


@dataclass(frozen=True)
class ModelStage:
    """What the rows of one evaluation have in common."""

    model: str
    stage: str
    split: str | None


def why_unavailable(method: Method[MetricSpec], predictions: Predictions) -> str:
    """Why a metric cannot be computed from these predictions; empty where it can."""
    if method.spec.all_classes and predictions.core_facts.nll is None:
        return "needs all probabilities"
    outputs = predictions.outputs
    if method.spec.whole and isinstance(outputs, StreamedOutputs):
        if not method.spec.from_class_table or outputs.table is None:
            return "needs all probabilities in memory"
    elif method.spec.whole and not outputs.all_classes:
        return "needs all probabilities"
    if method.spec.of_class and not outputs.all_classes:
        return (
            "needs all probabilities in memory" if isinstance(outputs, StreamedOutputs) else "needs all probabilities"
        )
    if method.spec.slow and len(predictions) > MOST_FOR_SLOW:
        return f"takes n x n steps, and there are more than {MOST_FOR_SLOW:,} samples; ask for it by its name"
    return ""


def measurements(
    view: View,
    requests: Sequence[MetricRequest],
    tag: ModelStage,
    seed: int,
    how: str | None,
    groups: Sequence[SampleGroups] = (),
) -> list[Measurement]:
    """All measurements of one set of samples; `how` their intervals are made, None for the values alone."""
    base, many = view.base, view.base.n >= MANY_SAMPLES

    def measured(request: MetricRequest) -> Measurement:
        value, bounds, chance = request(view), None, None
        if how is not None:
            chance = chance_of(request.method, view, request.options, value, seed=seed)
            bounds = interval_of(request.method, view, request.options, value, chance, how=how, seed=seed)
        note = note_of(request.method, request.options, view) if bounds else None
        return row_of(request, value, base.n, tag, bounds, chance, note=note)

    # What reads all outputs of many samples comes first: it has threads of its own, and no ranks take memory yet.
    first = [request.method.spec.whole and many for request in requests]
    by_place = {place: measured(requests[place]) for place in np.flatnonzero(first).tolist()}
    if many:
        # What metrics share is made before them: two that asked at once would both make it.
        scores = {
            base.key(score): score for score in ("msp", *(request.options.get("score", "msp") for request in requests))
        }
        in_threads(view.ranks, scores.values())
    others = [place for place in range(len(requests)) if place not in by_place]
    by_place |= zip(others, in_threads(measured, (requests[place] for place in others), when=many), strict=True)
    rows = [by_place[place] for place in range(len(requests))]
    for grouping in groups:
        rows += group_rows(base, grouping, tag, how)
    return rows


def row_of(
    request: MetricRequest,
    value: float,
    n: int,
    tag: ModelStage,
    bounds: tuple[float, float] | None = None,
    chance: Null | None = None,
    group: str | None = None,
    note: str | None = None,
) -> Measurement:
    """A row of the table."""
    return Measurement(
        metric=metric_name(request.method, request.options),
        value=value,
        n=n,
        split=tag.split,
        stage=tag.stage,
        group=group,
        model=tag.model,
        score=request.score,
        chance=chance.mean if chance else None,
        chance_high=chance.high if chance else None,
        p_value=chance.p_value if chance else None,
        note=note,
        bounds=bounds or (math.nan, math.nan),
    )


def group_measurements(
    predictions: Predictions,
    grouping: SampleGroups,
    requests: Sequence[MetricRequest],
    tag: ModelStage,
    seed: int,
    how: str | None,
    design: Design,
) -> list[Measurement]:
    """Every metric within every group."""
    rows = []
    for group, size in enumerate(grouping.sizes):
        if not size:
            continue
        chosen = np.flatnonzero(grouping.index == group)
        base = metric_samples(predictions.take(chosen), design=design.take(chosen))
        part = [request_for_rows(r, chosen) for r in requests if not why_unavailable(r.method, base.predictions)]
        rows += [replace(m, group=grouping.label(group)) for m in measurements(View(base), part, tag, seed, how)]
    return rows


def request_for_rows(request: MetricRequest, rows: NDArray[np.intp]) -> MetricRequest:
    """The same for some samples: a score given as a vector is cut alike."""
    score = request.options.get("score")
    if score is None or isinstance(score, str):
        return request
    array = score.detach().cpu().numpy() if hasattr(score, "detach") else np.asarray(score)
    return MetricRequest(request.method, {**request.options, "score": array[rows]}, request.score)


def macro_measurements(
    predictions: Predictions,
    grouping: SampleGroups,
    requests: Sequence[MetricRequest],
    tag: ModelStage,
    seed: int,
    how: str | None,
    design: Design,
) -> list[Measurement]:
    """Means over the groups of every metric, each group counting the same; of those for which it is defined.

    A sample moves the mean by what it moves its groups' values by, so that intervals count what was drawn as one.
    """
    parts = []
    for group in np.flatnonzero(grouping.sizes):
        rows = np.flatnonzero(grouping.index == group)
        parts.append((rows, metric_samples(predictions.take(rows), design=design.take(rows))))
    whole = metric_samples(predictions, design=design)
    measured, effect = [], unit_effect(View(whole))
    for request in requests:
        of_groups = [_of_group(request_for_rows(request, rows), rows, base, how, seed) for rows, base in parts]
        defined = [group for group in of_groups if math.isfinite(group.value)]
        if not defined:
            continue
        value = float(np.mean([group.value for group in defined]))
        bounds, chance = _macro_interval(request, value, defined, len(predictions), how, whole.design, effect)
        note = None if len(defined) == len(parts) else f"not defined for {len(parts) - len(defined)} of {len(parts)}"
        over_groups = group_of(grouping.kind, MACRO)
        measured.append(row_of(request, value, len(predictions), tag, bounds, chance, over_groups, note))
    return measured


@dataclass(frozen=True, eq=False)
class _GroupEstimate:
    """A group's value, how its rows move it, and what chance shows of it."""

    value: float
    rows: NDArray[np.intp]
    influence: Influence | None = None
    chance: Null | None = None


def _of_group(
    request: MetricRequest, rows: NDArray[np.intp], base: MetricSamples, how: str | None, seed: int
) -> _GroupEstimate:
    view = View(base)
    value, spec = request(view), request.method.spec
    if how is None or spec.influence is None or not math.isfinite(value):
        return _GroupEstimate(value, rows)
    chance = chance_of(request.method, view, request.options, value, seed=seed + int(rows[0]))
    return _GroupEstimate(value, rows, spec.influence(view, **request.options).of_samples(), chance)


def _macro_interval(
    request: MetricRequest,
    value: float,
    parts: Sequence[_GroupEstimate],
    n: int,
    how: str | None,
    design: Design,
    effect: float,
) -> tuple[tuple[float, float] | None, Null | None]:
    """Interval of a mean over groups, and what chance shows of one of calibration errors."""
    if how is None or any(part.influence is None for part in parts):
        return None, None
    psi, noise, one_error = np.zeros(n), 0.0, 0.0
    weights = np.ones(n) if design.weights is None else design.weights
    for part in parts:
        assert part.influence is not None
        psi[part.rows] = part.influence.psi * (n / float(weights[part.rows].sum()) / len(parts))
        noise += part.influence.noise / len(parts) ** 2
        one_error += part.influence.one_error / len(parts) ** 2
    spread = spread_of(Influence(psi, noise=noise), design)
    nulls = [part.chance for part in parts]
    if any(null is None for null in nulls):
        return shaped_interval(request.method, value, spread, one_error=one_error, fewest=spread.units), None
    draws = np.mean([null.draws for null in nulls if null is not None], axis=0)
    # Labels of one sample stand or fall together: the mean over labels spreads more than of labels drawn apart.
    chance = null_from(value, draws.mean() + (draws - draws.mean()) * effect)
    centres = [
        without_noise(request.method, part.influence, part.value, null)
        for part, null in zip(parts, nulls, strict=True)
        if null is not None
    ]
    bounds = error_interval(value, spread, float(np.mean(centres)), chance.high)
    return (min(bounds[0], value), max(bounds[1], value)), chance


# The evaluation.

HOW = {True: THEORY, False: None, BOOTSTRAP: BOOTSTRAP}
"""How intervals are made, by what is asked for."""


@known_keywords
def evaluate(
    predictions: Any,
    metrics: str | Sequence[str] = "core",
    intervals: bool | str = True,
    by: Any = None,
    *,
    model: str = "model",
    stage: str = "raw",
    scores: Scores | None = None,
    score: Any = None,
    trust: Mapping[str, AnyArray] | None = None,
    weights: Any = None,
    prior: Any = None,
    strata: Any = None,
    seed: int = 0,
    title: str | None = None,
    unit: Any = None,
    class_names: Sequence[str] | None = None,
    about: About | None = None,
) -> Evaluation:
    """Metrics with 95 % intervals, the calibration test beside every calibration error, curves and groups.

    Args:
        predictions: a record, a file, a folder of shards, or an iterator of records or of (logits, labels); from the
            last two only the facts of each shard are kept, so memory stays bounded.
        metrics: "core", "all", or a list of words; `ece_mass` is `ece` in equal-mass bins.
        intervals: with 95 % intervals and the calibration test, by theory; "bootstrap" for 1,000 resamples instead,
            far slower; False for the values alone.
        by: groups to measure in full: "class" (of the label), "predicted" class, "difficulty", a column's name,
            {name: values}, or a list of these.
            The means by class and by fifth of difficulty are always there, and of multilabel predictions every metric
            by label and as the mean over labels.
        model: the model's name in every row.
        stage: "raw", or the word of the calibrator applied.
        scores: difficulty of the samples; joined by id.
        score: what ranks the samples; by default `msp` and `entropy`, and the trust that the predictions carry.
        trust: further scores of trust predictors by name, high = safe; named `trust:<name>` in the table.
        weights: how much each sample counts, n numbers of 0 or more or the name of a column, where the predictions do
            not carry them; only ratios matter. Intervals are wider the more unequal they are.
        prior: shares of the classes in the population that is meant, where these samples were drawn by class: c numbers
            in their order or {name: number}. Every class then counts by prior / its share here.
        strata: where the number of samples of each kind was fixed by design: "class", a column's name, or n values.
            By default samples count as drawn independently.
        seed: of what is drawn.
        title: of the report.
        unit: what the samples are called, such as "images". The name of a column, or n values, says what was drawn as
            one, such as the image or question of several samples: intervals count these, not samples. By default the
            `unit` of the predictions.
        class_names: names of the classes in the report, where the predictions carry none.
        about: what else the report says of it.

    Returns:
        An `Evaluation`: `.value("ece")`, `.save("evaluation.json")`, and `confide.write_report` draws it.

    Raises:
        InputError: a metric that these predictions do not allow was named, or a group is not known.

    Example:
        >>> p = confide.Predictions([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 3.0]], [0, 1, 1, 1])
        >>> evaluation = confide.evaluate(p, ["accuracy", "nll"], intervals=False, title="four samples")
        >>> evaluation.value("accuracy", group=None)
        0.75
    """
    columns = () if by is None or isinstance(by, Mapping) else (by,) if isinstance(by, str) else tuple(by)
    columns += tuple(word for word in (strata, unit) if isinstance(word, str) and word != "class")
    predictions = as_predictions(predictions, columns=columns, ids=scores is not None, score=score, weights=weights)
    named = [weights if isinstance(weights, str) else WEIGHT_COLUMN] * (predictions.relative_weights is not None)
    predictions = predictions.weighted_by_class(prior)
    if (rows := predictions.weighted_rows) is not None:
        n, predictions = len(predictions), predictions.take(rows)
        by, score, trust, strata, unit = (
            values_of_rows(values, rows, n) for values in (by, score, trust, strata, unit)
        )
    words = metric_words(metrics, kind_tables(predictions))
    tables = any(parse_metric(word)[0].spec.from_class_table for word in words)
    design = design_of(predictions, strata, unit)
    view = View(metric_samples(predictions, class_table=tables, design=design))
    difficulty = None if scores is None else scores.of(predictions.ids)
    ranking = ranking_scores(predictions, score, trust)
    groups = groupings(predictions, by, difficulty)
    requests, missing = metric_requests(words, predictions, ranking, refuse=metrics not in METRIC_SETS)
    if isinstance(predictions.outputs, PairOutputs):
        missing["classes"] = "not known; these predictions hold only confidence and correctness"
    tag = ModelStage(model, stage, predictions.split)
    if intervals not in HOW:
        raise InputError(f"intervals must be True, False or '{BOOTSTRAP}', got {intervals!r}")
    how = HOW[intervals]
    rows = measurements(view, requests, tag, seed, how, auto_groups(predictions, difficulty))
    if predictions.is_multilabel:
        by_label = label_groups(predictions)
        rows += macro_measurements(predictions, by_label, requests, tag, seed, how, design)
        if len(by_label.names) <= MOST_GROUPS and "label" not in [grouping.kind for grouping in groups]:
            groups = [by_label, *groups]
    means = {(row.group, row.metric) for row in rows if row.group}  # of the groups that every evaluation shows
    for grouping in groups:
        own = group_measurements(predictions, grouping, requests, tag, seed, how, design)
        rows += [row for row in own if (row.group, row.metric) not in means]
    origin = {"model": model, "stage": stage, "split": predictions.split}
    curves = all_curves(view, ranking, difficulty, bool(intervals), seed, origin)
    called = unit if isinstance(unit, str) and unit != predictions.unit else None
    known = About(title=title, unit=called, class_names=tuple(class_names or ()), missing=missing)
    if view.weights is not None:
        weighted_by = " and ".join([*named, *["class"] * (prior is not None)])
        known = replace(known, weighted_by=weighted_by, effective_samples=view.base.effective_n)
    if design.clusters is not None:
        drawn_as = unit if isinstance(unit, str) and unit in predictions.columns else predictions.unit
        known = replace(known, drawn_as=drawn_as or "unit", units=len(np.unique(design.clusters)))
    return Evaluation(
        measurements=tuple(rows),
        curves=tuple(curves),
        about=(known if about is None else known.over(about)).over(about_predictions(predictions, scores, seed)),
        warnings=(doubt,) if (doubt := label_doubt(predictions)) else (),
        samples=map_gallery(predictions) if dense.are_pixels(predictions) else (),
    )


def values_of_rows(option: Any, rows: Indices, n: int) -> Any:
    """An option with a value for each of n samples, for these rows; words and what is no vector stay as they are."""
    if isinstance(option, Mapping):
        return {name: values_of_rows(values, rows, n) for name, values in option.items()}
    if option is None or isinstance(option, str) or (isinstance(option, (list, tuple)) and isinstance(option[0], str)):
        return option
    values = option.detach().cpu().numpy() if hasattr(option, "detach") else np.asarray(option)
    return values[rows] if values.shape == (n,) else option


def ranking_scores(predictions: Predictions, score: Any, trust: Mapping[str, AnyArray] | None) -> dict[str, AnyArray]:
    """Name in the table -> the score, the plain confidence first."""
    chosen: dict[str, AnyArray] = {}
    if score is None:
        chosen["msp"] = "msp"
        if predictions.core_facts.entropy is not None:
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


METRIC_SETS = ("core", "all")
"""Words of metrics by the dozen: those of them that predictions do not allow are left out."""


def metric_requests(
    words: Sequence[str], predictions: Predictions, ranking: Mapping[str, AnyArray], *, refuse: bool = True
) -> tuple[list[MetricRequest], dict[str, str]]:
    """The numbers to compute, and why the others cannot be, which is an error with `refuse`."""
    requests, missing = [], {}
    for word in dict.fromkeys(words):
        method, options = parse_metric(word)
        lack = why_unavailable(method, predictions)
        if lack and refuse and "ask for it" not in lack:
            raise InputError(f"metric '{word}' {lack}")
        if lack and not refuse:
            missing[word] = lack
        elif "score" in method.options:
            requests += [MetricRequest(method, {**options, "score": s}, name) for name, s in ranking.items()]
        else:
            requests.append(MetricRequest(method, options))
    return requests, missing


def kind_tables(predictions: Predictions) -> tuple[str, ...]:
    """Tables whose metrics a kind of predictions has in its core: proper scores of confidences alone, F of labels."""
    return ("confidence",) * predictions.outputs.only_confidence + ("labels",) * predictions.is_multilabel


def metric_words(metrics: str | Sequence[str], tables: Sequence[str] = ()) -> Sequence[str]:
    """Words of a set of metrics; the core has those of further tables too."""
    if not isinstance(metrics, str):
        return metrics
    more = [word for table in tables for word in table_words(table)] if metrics == "core" else []
    return (*table_words(metrics), *more) if metrics in METRIC_SETS else (metrics,)


def available_words(metrics: str, predictions: Predictions) -> list[str]:
    """Words of a set of metrics that these predictions allow."""
    words = metric_words(metrics, kind_tables(predictions))
    return [word for word in words if not why_unavailable(parse_metric(word)[0], predictions)]


def auto_groups(predictions: Predictions, difficulty: Floats | None) -> list[SampleGroups]:
    """Groups whose means every evaluation shows."""
    groups = []
    if predictions.has_labels and predictions.num_classes <= MOST_GROUPS:
        groups += [class_groups(predictions, kind) for kind in ("class", "predicted")]
    if difficulty is not None:
        groups.append(difficulty_groups(difficulty))
    return groups


def about_predictions(predictions: Predictions, scores: Scores | None, seed: int) -> About:
    """What is known of the samples."""
    import torch

    from confide import __version__

    names = predictions.class_names
    labels = predictions.labels if predictions.has_labels else torch.zeros(0, dtype=torch.int64)
    counts = torch.bincount(labels, minlength=predictions.num_classes).cpu().numpy()
    words = [str(names[k]) if names and k < len(names) else str(k) for k in range(len(counts))]
    return About(
        class_names=tuple(names or ()),
        num_classes=predictions.num_classes or None,
        label_counts=dict(zip(words, counts.tolist(), strict=True)) if len(counts) <= 1000 else {},
        difficulty=scores.method if scores is not None else None,
        unit=row_word(predictions),
        seed=seed,
        versions={"confide": __version__, "torch": torch.__version__, "numpy": np.__version__},
    )


# For a test suite.


def assert_expected(measured: Any, *expectations: str, surely: bool = False, **where: Any) -> None:
    """Fail unless every expectation holds; for pytest and the like.

    Args:
        measured: predictions, of which the metrics of the expectations are computed, or an `Evaluation`.
        expectations: such as "ece<0.03" or "accuracy[class=Shirt]>=90%".
        surely: the whole 95 % interval must hold it, not the value alone.
        where: fields of the measurement where an evaluation has several: model, stage, split, score.

    Raises:
        AssertionError: one line for each expectation that does not hold.

    Example:
        >>> p = confide.Predictions([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 3.0]], [0, 1, 1, 1])
        >>> confide.evaluation.assert_expected(p, "accuracy>=0.7")
        >>> confide.evaluation.assert_expected(p, "accuracy>=0.8")
        Traceback (most recent call last):
        AssertionError: accuracy>=0.8: accuracy is 0.75
    """
    if isinstance(measured, Evaluation):
        evaluation = measured
    else:
        metrics = list(dict.fromkeys(Expectation.of(text).metric for text in expectations))
        evaluation = evaluate(measured, metrics, surely)
    broken = evaluation.expect(*expectations, surely=surely, **where)
    if broken:
        raise AssertionError("\n".join(map(str, broken)))
