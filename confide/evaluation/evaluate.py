"""Everything that one set of predictions can show: measurements with intervals, curves and groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.core.door import InputError
from confide.core.predictions import Predictions
from confide.core.records import Scores
from confide.core.results import Curve, Evaluation
from confide.evaluation.curves import all_curves
from confide.evaluation.groups import MOST_GROUPS, Grouping, class_groups, difficulty_groups, groupings
from confide.evaluation.measuring import Asked, Tag, group_measurements, lacking, measurements
from confide.evaluation.streaming import gather
from confide.metrics.family import CORE, METRICS, parse
from confide.metrics.resampling import RESAMPLES
from confide.metrics.view import View, base_of

GROUP_RESAMPLES = 200

Floats = NDArray[np.float64]


def evaluate(
    predictions: Any,
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
        predictions: a record, a file, a folder of shards, or an iterator of records or of (logits, labels); from the
            last two only the facts of each shard are kept, so memory stays bounded.
        metrics: "core", "all", or a list of words; `ece_mass` is `ece` in equal-mass bins.
        intervals: 1,000 bootstrap resamples within labels, and the calibration test; False for the values alone.
        by: groups to measure in full: "class", "difficulty", a column's name, {name: values}, or a list of these.
            The means by class and by fifth of difficulty are always there.
        scores: difficulty of the samples; joined by id.
        score: what ranks the samples; by default `msp` and `entropy`, and the trust that the predictions carry.
        trust: further scores of trust predictors by name, high = safe; named `trust:<name>` in the table.
        about: what the report says of it: title, unit, class_names, ...
    """
    wanted = () if by is None or isinstance(by, Mapping) else (by,) if isinstance(by, str) else tuple(by)
    predictions = gather(predictions, columns=wanted, ids=scores is not None, score=score)
    base = base_of(predictions)
    if predictions.top1 is None and predictions.given is None and "classwise_ece" in words_of(metrics):
        predictions.class_table()  # one pass over the logits gives this table and the facts
    difficulty = None if scores is None else scores.of(predictions.ids)
    ranking = ranking_scores(predictions, score, trust)
    groups = groupings(predictions, by, difficulty)
    asked, missing = requests(metrics, predictions, ranking)
    tag = Tag(model, stage, predictions.split)
    rows = measurements(base, asked, tag, seed, RESAMPLES if intervals else 0, auto_groups(predictions, difficulty))
    for grouping in groups:
        rows += group_measurements(predictions, grouping, asked, tag, seed, GROUP_RESAMPLES if intervals else 0)
    curves = all_curves(View(base), ranking, difficulty, intervals, seed)
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
    words = words_of(metrics)
    explicit = not isinstance(metrics, str) or metrics not in ("core", "all")
    asked, missing = [], {}
    for word in dict.fromkeys(words):
        method, options = parse(word)
        lack = lacking(method, predictions)
        if lack and explicit and "ask for it" not in lack:
            raise InputError(f"metric '{word}' {lack}")
        if lack and not explicit:
            missing[word] = lack
        elif "score" in method.options:
            asked += [Asked(method, {**options, "score": s}, name) for name, s in ranking.items()]
        else:
            asked.append(Asked(method, options))
    return asked, missing


def words_of(metrics: str | Sequence[str]) -> Sequence[str]:
    """Words of a set of metrics."""
    if not isinstance(metrics, str):
        return metrics
    return {"core": CORE, "all": (*METRICS.names(), "ece_mass")}.get(metrics, (metrics,))


def auto_groups(predictions: Predictions, difficulty: Floats | None) -> list[Grouping]:
    """Groups whose means every evaluation shows."""
    found = []
    if predictions.num_classes <= MOST_GROUPS:
        found.append(class_groups(predictions))
    if difficulty is not None:
        found.append(difficulty_groups(difficulty))
    return found


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
