"""What prediction sets do on samples they were not fitted on: coverage against the promise, sizes, the largest sets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.calibrators.groups import DIFFICULTY, grouping
from confide.numerics.binomial import clopper_pearson
from confide.numerics.blocks import row_counts
from confide.predictions import Predictions, class_values, class_words
from confide.results import LEVEL, GroupCoverage, SetExample, SetResult
from confide.sets.base import BANDS, PURPOSE, PredictionSets, SetGroup, quantile_rank

MOST_EXAMPLES = 8
MOST_SHOWN = 12
"""Classes of an example that are named."""


def measure(
    sets: PredictionSets,
    predictions: Predictions,
    weights: Any = None,
    *,
    model: str = "model",
    stage: str = "raw",
) -> SetResult:
    """Coverage with its exact 95 % interval, overall, by class, by difficulty and by the groups of the promise; sizes.

    Args:
        sets: fitted on other samples.
        predictions: labelled ones, such as those of the test split; without labels only sizes are known.
        weights: likelihood ratios, where the sets were fitted with weights.
        model: whose predictions they are, for a report.
        stage: of the predictions.

    Returns:
        A `SetResult`; a group is `broken` where so low a coverage would be rare if the promise held, counting that
        both the fit and these samples are drawn.

    Example:
        >>> val = confide.Predictions.from_probs([[0.7, 0.2, 0.1]] * 20, [0] * 14 + [1] * 4 + [2] * 2, split="val")
        >>> result = confide.sets.measure(confide.sets.fit("lac", val, coverage=0.8), val)
        >>> result.whole.share, result.sizes
        (0.9, ((2, 20),))
    """
    if predictions.class_names is None and sets.class_names is not None:
        predictions = predictions.replace(class_names=sets.class_names)
    n = len(predictions)
    sizes = np.empty(n, dtype=np.int64)
    covered = np.empty(n, dtype=bool) if predictions.has_labels else None
    labels = predictions.labels.cpu().numpy() if predictions.has_labels else None
    for rows, inside in sets.blocks(predictions, weights):
        sizes[rows] = row_counts(inside)
        if covered is not None and labels is not None:
            covered[rows] = np.take_along_axis(inside, labels[rows, None], axis=1)[:, 0]

    def rows_of(kind: str, places: NDArray[np.int64], fits: Sequence[SetGroup | str]) -> list[GroupCoverage]:
        groups = [_group(kind, fit, places == k, sizes, covered) for k, fit in enumerate(fits)]
        promised = [g for g in groups if g.promised]
        level = LEVEL / max(len(promised), 1)
        return [_judged(g, fit, sets.coverage, level) for g, fit in zip(groups, fits, strict=True) if g.n]

    whole = np.zeros(n, dtype=np.int64)
    single = len(sets.groups) == 1 and not sets.weighted
    groups = rows_of("all", whole, [replace(sets.groups[0], name="all samples") if single else "all samples"])
    if sets.by not in (None, "class", "cluster"):
        groups += rows_of(str(sets.by), sets.places(predictions), _named(sets))
    elif DIFFICULTY in predictions.columns and n >= BANDS:
        bands = grouping(predictions, DIFFICULTY, BANDS)
        assert bands is not None
        names = bands.names(predictions)
        cells = np.unique(names)
        groups += rows_of(DIFFICULTY, np.searchsorted(cells, names), [_band(k, len(cells)) for k in range(len(cells))])
    if labels is not None:
        own = sets.groups if sets.by == "class" else class_words(predictions)
        groups += rows_of("class", labels, own)
        if sets.by == "cluster" and sets.class_groups is not None:
            groups += rows_of("cluster", np.array(sets.class_groups)[labels], sets.groups)
    values, counts = np.unique(sizes, return_counts=True)
    return SetResult(
        word=sets.word,
        coverage=sets.coverage,
        n_fit=sets.n,
        groups=tuple(groups),
        sizes=tuple(zip(values.tolist(), counts.tolist(), strict=True)),
        by=sets.by,
        examples=_examples(sets, predictions, sizes, weights),
        notes=sets.notes,
        model=model,
        stage=stage,
    )


def merged(sets: PredictionSets, results: Sequence[SetResult]) -> SetResult:
    """What the same sets do on several parts of the samples together.

    Args:
        sets: the fitted sets.
        results: of the parts, as `measure` gives them.

    Returns:
        Counts of all parts, with intervals and judgements of their own; examples are the largest sets of all.

    Example:
        >>> val = confide.Predictions.from_probs([[0.7, 0.2, 0.1]] * 20, [0] * 14 + [1] * 4 + [2] * 2, split="val")
        >>> sets = confide.sets.fit("lac", val, coverage=0.8)
        >>> confide.sets.merged(sets, [confide.sets.measure(sets, val)] * 2).whole.n
        40
    """
    first = results[0]
    by = str(sets.by)
    fits: dict[str, dict[str, SetGroup]] = {"class": {}, by: {g.name: g for g in (*sets.groups, *_named(sets))}}
    if len(sets.groups) == 1 and not sets.weighted:
        fits["all"] = {"all samples": sets.groups[0]}
    groups: dict[tuple[str, str], list[GroupCoverage]] = {}
    for result in results:
        for group in result.groups:
            # Bands that no promise is for are cut at quantiles of every part, and are not those of another.
            if group.kind in ("all", "class", "cluster", by):
                groups.setdefault((group.kind, group.name), []).append(group)
    together = []
    for (kind, name), parts in groups.items():
        n = sum(part.n for part in parts)
        size = sum(part.size * part.n for part in parts) / n
        hits = None if any(part.covered is None for part in parts) else sum(part.covered or 0 for part in parts)
        low, high = (math.nan, math.nan) if hits is None else clopper_pearson(hits, n, LEVEL)
        group = GroupCoverage(kind, name, n, size, hits, low, high, parts[0].promised)
        promised = sum(own[0].promised for (other, _), own in groups.items() if other == kind)
        fit = fits.get(kind, {}).get(name, name)
        together.append(_judged(group, fit, sets.coverage, LEVEL / max(promised, 1)))
    sizes: dict[int, int] = {}
    for result in results:
        for size_of_set, count in result.sizes:
            sizes[size_of_set] = sizes.get(size_of_set, 0) + count
    examples = sorted((e for result in results for e in result.examples), key=lambda e: -e.size)[:MOST_EXAMPLES]
    counts = tuple(sorted(sizes.items()))
    return replace(first, groups=tuple(together), sizes=counts, examples=tuple(examples))


def set_columns(sets: PredictionSets, predictions: Predictions) -> dict[str, NDArray[Any]]:
    """Id, size and the names of the classes of every set, as columns of a table.

    Args:
        sets: the fitted sets.
        predictions: of the samples.

    Returns:
        The columns `id`, `size` and `classes`, whose names are joined by ` | `.

    Example:
        >>> val = confide.Predictions.from_probs([[0.7, 0.2, 0.1]] * 20, [0] * 14 + [1] * 4 + [2] * 2, split="val")
        >>> confide.sets.set_columns(confide.sets.fit("lac", val, coverage=0.8), val.take([0]))["classes"].tolist()
        ['0 | 1']
    """
    names = np.array(predictions.class_names or sets.class_names or list(map(str, range(sets.num_classes))))
    sizes, texts = [], []
    for _, block in sets.blocks(predictions):
        sizes += row_counts(block).tolist()
        texts += [" | ".join(names[row]) for row in block]
    return {"id": predictions.ids, "size": np.array(sizes), "classes": np.array(texts)}


def _group(
    kind: str, fit: SetGroup | str, rows: NDArray[np.bool_], sizes: NDArray[np.int64], covered: NDArray[np.bool_] | None
) -> GroupCoverage:
    n = int(rows.sum())
    name = fit if isinstance(fit, str) else fit.name
    promised = isinstance(fit, SetGroup) and fit.threshold is not None
    size = float(sizes[rows].mean()) if n else 0.0
    if covered is None:
        return GroupCoverage(kind, name, n, size, promised=promised)
    hits = int(covered[rows].sum())
    low, high = clopper_pearson(hits, n, LEVEL)
    return GroupCoverage(kind, name, n, size, hits, low, high, promised)


def _judged(group: GroupCoverage, fit: SetGroup | str, coverage: float, level: float) -> GroupCoverage:
    """The group, with whether its promise is broken: over fits and samples the covered ones are beta-binomial."""
    if isinstance(fit, str) or not group.promised or group.covered is None:
        return group
    from scipy.stats import betabinom

    k = quantile_rank(fit.n, coverage)
    chance = float(betabinom.cdf(group.covered, group.n, k, fit.n + 1 - k))
    return replace(group, broken=chance < level)


def _named(sets: PredictionSets) -> list[SetGroup]:
    """Groups under the names that a reader knows: bands by their place."""
    if sets.edges is None:
        return list(sets.groups)
    number = len(sets.edges) + 1
    return [replace(g, name=_band(int(g.name), number)) if g.name.isdecimal() else g for g in sets.groups]


def _band(place: int, number: int) -> str:
    """The name of a band: its place, of the ends what they are."""
    if number > 1 and place in (0, number - 1):
        return "hardest band" if place else "easiest band"
    return f"band {place + 1}"


def _examples(
    sets: PredictionSets, predictions: Predictions, sizes: NDArray[np.int64], weights: Any
) -> tuple[SetExample, ...]:
    """The largest sets; of equal ones the hardest samples, where their difficulty is known."""
    difficulty = predictions.columns.get(DIFFICULTY)
    known = difficulty is not None and difficulty.dtype.kind in "fiu"
    second = -difficulty.astype(np.float64) if known and difficulty is not None else np.arange(len(sizes))
    rows = np.lexsort((second, -sizes))[:MOST_EXAMPLES]
    part = predictions.take(rows)
    own = None if weights is None else np.asarray(weights)[rows]
    inside, order = (
        sets(part, own).cpu(),
        class_values(part, PURPOSE).argsort(dim=1, descending=True, stable=True).cpu(),
    )
    names, labels = class_words(predictions), part.labels.cpu() if part.has_labels else None
    examples = []
    for k, row in enumerate(rows):
        classes = [names[c] for c in order[k].tolist() if inside[k, c]]
        examples.append(
            SetExample(
                str(predictions.ids[row]),
                tuple(classes[:MOST_SHOWN]),
                len(classes),
                None if labels is None else names[int(labels[k])],
                float(difficulty[row]) if known and difficulty is not None else None,
            )
        )
    return tuple(examples)
