"""Evaluate every stage of every model, compare them, and conclude in one Evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import torch

from confide import calibrators, evaluation
from confide.evaluation.compare import holm_corrected
from confide.metrics import table_words
from confide.pipeline.preparation import THRESHOLD_SPLIT
from confide.predictions import Predictions
from confide.records import Dataset, Scores
from confide.results import RAW, About, ComparedRow, Comparison, Curve, Evaluation, ModelPoint


def evaluate_model(
    predictions: Mapping[str, Predictions],
    *,
    model: str = "model",
    stage: str = RAW,
    metrics: str | Sequence[str] = "core",
    scores: Scores | None = None,
    trust_values: Mapping[str, torch.Tensor] | None = None,
    risks: Sequence[float] = (),
    seed: int = 0,
) -> Evaluation:
    """Metrics with intervals of one model at one stage, by class and difficulty, and thresholds to promise.

    Args:
        predictions: by split; `test` is measured, thresholds are chosen on `promise` where it is there.
        model: its name.
        stage: `raw`, or the calibrator's name.
        metrics: core, all, or words.
        scores: difficulty of the test samples.
        trust_values: of the test predictions, by trust predictor.
        risks: error rates that thresholds are chosen for.
        seed: of the resampling.

    Returns:
        The evaluation.

    Example:
        >>> from confide import Predictions, pipeline
        >>> test = Predictions([[4.0, 0.0], [4.0, 0.0], [0.0, 4.0], [4.0, 0.0]], [0, 0, 1, 1], split="test")
        >>> pipeline.evaluate_model({"test": test}, model="small", metrics=["accuracy"]).value("accuracy")
        0.75
    """
    test, holdout = predictions["test"], predictions.get(THRESHOLD_SPLIT)
    measured = evaluation.evaluate(
        test, metrics, model=model, stage=stage, scores=scores, trust=trust_values, seed=seed
    )
    if holdout is None:
        return measured
    points = [evaluation.operating_point(holdout, risk) for risk in risks]
    observed = [ModelPoint(point, model, stage, evaluation.observed(point, test)) for point in points]
    return replace(measured, operating_points=tuple(observed))


@dataclass(frozen=True)
class EvaluatedStage:
    """One model at one stage: its test predictions, what was measured on them, and the calibrator that made them."""

    model: str
    stage: str
    predictions: Predictions
    evaluation: Evaluation
    calibrator: calibrators.Calibrator | None = None
    seed_of: str | None = None  # the model that this is one seed of, where there are several

    @property
    def name(self) -> str:
        """`model/stage`, as comparisons call it."""
        return f"{self.model}/{self.stage}"


def conclude(
    stages: Sequence[EvaluatedStage],
    dataset: Dataset,
    scores: Scores,
    *,
    curves: Sequence[Curve] = (),
    gallery: int = 6,
    seed: int = 0,
    about: About | None = None,
) -> Evaluation:
    """All evaluations in one, with paired tests between models and stages, training curves and samples to look at.

    Args:
        stages: every model at every stage, measured on the same test samples; seeds of one model become its row.
        dataset: whose test samples are shown.
        scores: their difficulty.
        curves: of the trainings.
        gallery: easiest and hardest samples shown of each class.
        seed: of the resampling.
        about: what else a report tells.

    Returns:
        The evaluation that `report.write_report` draws.

    Example:
        >>> import numpy as np
        >>> from confide import Predictions, Scores, pipeline
        >>> dataset = pipeline.open_data("fashion-sample")
        >>> test = Predictions(3 * np.eye(10)[dataset.test.labels], dataset.test.labels, dataset.test.ids, "test")
        >>> measured = pipeline.evaluate_model({"test": test}, metrics=["accuracy"])
        >>> scores = Scores(test.ids, np.arange(len(test), dtype=float), "rmd")
        >>> stage = pipeline.EvaluatedStage("model", "raw", test, measured)
        >>> len(pipeline.conclude([stage], dataset, scores, gallery=1).samples)
        20
    """
    comparisons: Sequence[Comparison] = ()
    evaluations = [stage.evaluation for stage in stages]
    if any(stage.seed_of for stage in stages):
        evaluations, comparisons, several = _conclude_seeds(stages, curves, seed)
        about, curves = (about or About()).over(several), ()
    elif len(stages) > 1:
        predictions, pairs = {stage.name: stage.predictions for stage in stages}, pairs_to_compare(stages)
        comparisons = evaluation.compare(predictions, metrics=table_words("summary"), pairs=pairs, seed=seed)
    shown = (dataset.test, scores, dataset.class_names)
    by_difficulty = evaluation.gallery(*shown, predictions=stages[0].predictions, each=gallery)
    calibrated = [(stage.name, stage.calibrator) for stage in stages if stage.calibrator is not None]
    return evaluation.join(
        [*evaluations, Evaluation((), tuple(curves))],
        comparisons=comparisons,
        samples=(*by_difficulty, *evaluation.suspects(*shown)),
        about=(about or About()).over(_describe(dataset, stages)),
        warnings=[f"{name}: {note}" for name, calibrator in calibrated for note in calibrator.notes],
    )


def _conclude_seeds(
    stages: Sequence[EvaluatedStage], curves: Sequence[Curve], seed: int
) -> tuple[list[Evaluation], Sequence[Comparison], About]:
    """One evaluation for each model and stage over its seeds, tests between them, and what a report tells of both."""
    runs: dict[tuple[str, str], list[EvaluatedStage]] = {}
    for run in stages:
        runs.setdefault((run.seed_of or run.model, run.stage), []).append(run)
    rows: list[Comparison] = []
    for (model, stage), (other, other_stage) in combinations(runs, 2):
        if stage == other_stage or (model == other and stage == RAW):
            sides = [[run.predictions for run in runs[key]] for key in ((model, stage), (other, other_stage))]
            a, b = ComparedRow(model, stage), ComparedRow(other, other_stage)
            for row in evaluation.compare_groups(*sides, metrics=table_words("summary"), seed=seed):
                rows.append(Comparison(row.metric, a, b, row.difference, row.low, row.high, row.p_value, row.p_value))
    seeds = {model: len(members) for (model, _), members in runs.items()}
    note = (
        f"Values are means over {' or '.join(map(str, sorted(set(seeds.values()))))} seeds with their standard "
        "deviation; small figures are 95\u202f% intervals that know both seeds and samples."
    )
    logs = {run.model: [curve for curve in curves if curve.model == run.model] for run in stages}
    evaluations = []
    for (model, stage), members in runs.items():
        parts = [run.evaluation for run in members]
        if stage == RAW:
            parts = [
                replace(part, curves=(*part.curves, *logs[run.model])) for part, run in zip(parts, members, strict=True)
            ]
        evaluations.append(evaluation.over_seeds(parts, model))
    return evaluations, holm_corrected(rows), About(seeds=seeds, interval_note=note)


def pairs_to_compare(stages: Sequence[EvaluatedStage]) -> list[tuple[str, str]]:
    """What is worth a test: models at the same stage, and stages of the same model against raw."""
    return [
        (a.name, b.name)
        for a, b in combinations(stages, 2)
        if a.stage == b.stage or (a.model == b.model and a.stage == RAW)
    ]


def calibrator_text(fitted: calibrators.Calibrator) -> str | None:
    """What a calibrator fitted, where that can be told in a line: its temperature, or the weights of its opinions."""
    if "temperature" in fitted.values:
        return temperature_text(fitted)
    if fitted.word != "second_opinion":
        return None
    names = ("network", *calibrators.opinion_names(fitted))
    weights = zip(names, (fitted.network, *fitted.weights.tolist()), strict=True)
    return f"weights: {', '.join(f'{name} {weight:.2f}' for name, weight in weights)}; strength {fitted.strength:.3g}"


def temperature_text(fitted: calibrators.Calibrator) -> str:
    """The temperature of a calibrator, or from the lowest to the highest where it has several."""
    several = isinstance(fitted, calibrators.GroupCalibrator) and fitted.word == "temperature"
    if not several or not any(fitted.weights.values()):
        return f"T = {fitted.temperature:.2f}"
    overall = 1 / fitted.temperature
    # A group's logits are divided by a mean of the inverse temperatures: its own, and the overall one.
    temperatures = [
        1 / (overall + fitted.weights[name] * (1 / own.temperature - overall)) for name, own in fitted.groups.items()
    ]
    return f"T = {min(temperatures):.2f} to {max(temperatures):.2f} by {fitted.by}"


def _describe(dataset: Dataset, stages: Sequence[EvaluatedStage]) -> About:
    """What a report tells of data and stages."""
    counts = np.bincount(dataset.test.labels, minlength=dataset.num_classes)
    texts: dict[str, list[str]] = {}
    for stage in stages:
        if stage.calibrator is not None and (text := calibrator_text(stage.calibrator)):
            texts.setdefault(f"{stage.seed_of or stage.model}/{stage.stage}", []).append(text)
    return About(
        title=dataset.name,
        unit=dataset.unit,
        class_names=tuple(dataset.class_names),
        label_counts=dict(zip(dataset.class_names, counts.tolist(), strict=True)),
        stages={name: "; ".join(several) for name, several in texts.items()},
        data={"name": dataset.name, **dataset.provenance.as_dict()},
    )
