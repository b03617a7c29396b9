"""What is compared with what, and what a report says of a calibrator in one line."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from confide import Predictions, Scores, calibrators, pipeline
from confide.pipeline import evaluation
from confide.records import Dataset, Features, Split
from confide.results import About, Curve

N = 120
LABELS = np.arange(N) % 3


def predictions(split: str = "test", scale: float = 2.0) -> Predictions:
    draw = np.random.default_rng(0).normal(size=(N, 3))
    age = np.linspace(0, 1, N)
    logits = scale * (np.eye(3)[LABELS] + draw) * (1 + 3 * age[:, None])
    return Predictions(logits, LABELS, split=split, columns={"age": age, "site": np.array(list("ab"))[LABELS % 2]})


def stage(model: str, name: str) -> pipeline.EvaluatedStage:
    measured = pipeline.evaluate_model({"test": predictions()}, model=model, stage=name, metrics=["accuracy"])
    return pipeline.EvaluatedStage(model, name, predictions(), measured)


def test_models_meet_at_a_stage_and_stages_meet_their_raw_model() -> None:
    stages = [stage(model, name) for model in ("a", "b") for name in ("raw", "temperature", "vector")]
    assert evaluation.pairs_to_compare(stages) == [
        ("a/raw", "a/temperature"),
        ("a/raw", "a/vector"),
        ("a/raw", "b/raw"),
        ("a/temperature", "b/temperature"),
        ("a/vector", "b/vector"),
        ("b/raw", "b/temperature"),
        ("b/raw", "b/vector"),
    ]


def test_a_threshold_is_chosen_on_the_part_that_was_set_apart() -> None:
    test = predictions()
    alone = pipeline.evaluate_model({"test": test}, metrics=["accuracy"], risks=[0.5])
    assert alone.operating_points == ()
    both = pipeline.evaluate_model({"test": test, "promise": predictions("promise")}, metrics=["accuracy"], risks=[0.5])
    assert [(p.model, p.stage, p.point.risk) for p in both.operating_points] == [("model", "raw", 0.5)]


def test_a_calibrator_is_told_in_a_line_where_it_can_be() -> None:
    val = predictions("val")
    plain = calibrators.fit("temperature", val)
    assert evaluation.calibrator_text(plain) == f"T = {plain.temperature:.2f}"
    assert evaluation.calibrator_text(calibrators.fit("histogram", val)) is None
    grouped = calibrators.fit("temperature", val, by="age", bands=2)
    each = []
    for name, own in grouped.groups.items():
        weight = grouped.weights[name]
        each.append(1 / ((1 - weight) / grouped.temperature + weight / own.temperature))
    assert any(grouped.weights.values())
    assert evaluation.calibrator_text(grouped) == f"T = {min(each):.2f} to {max(each):.2f} by age"
    one = dict.fromkeys(grouped.weights, 0.0) | {next(iter(grouped.weights)): 1.0}
    assert " to " in evaluation.temperature_text(_with_weights(grouped, one))
    none = dict.fromkeys(grouped.weights, 0.0)
    assert evaluation.temperature_text(_with_weights(grouped, none)) == f"T = {grouped.temperature:.2f}"


def _with_weights(fitted: calibrators.Calibrator, weights: dict[str, float]) -> calibrators.Calibrator:
    return replace(fitted, weights=weights)


def test_a_second_opinion_is_told_by_its_weights() -> None:
    rows = np.random.default_rng(1).normal(size=(N, 4)) + np.eye(3, 4)[LABELS]
    known = {name: Features(rows, LABELS, np.arange(N), "pixels", name) for name in ("train", "val")}
    fitted = pipeline.fit_calibrator("second_opinion", predictions("val"), rows=known)
    text = evaluation.calibrator_text(fitted)
    assert text is not None
    assert text.startswith(f"weights: network {fitted.network:.2f}, ")
    assert text.endswith(f"; strength {fitted.strength:.3g}")


@pytest.mark.parametrize("models", [1, 2])
def test_one_stage_is_compared_with_nothing_and_the_first_is_shown(models: int) -> None:
    names = ("ant", "bee", "cat")
    split = Split(np.zeros((N, 2), np.float32), LABELS, np.arange(N))
    dataset = Dataset("drawn", "rows", {"test": split}, names)
    scores = Scores(np.arange(N), np.linspace(0, 1, N), "rmd")
    stages = [stage(model, "raw") for model in ("a", "b")[:models]]
    found = pipeline.conclude(stages, dataset, scores, gallery=1, about=About(title="mine"))
    assert len(found.comparisons) == (0 if models == 1 else len({c.metric for c in found.comparisons}))
    assert bool(found.comparisons) == (models == 2)
    assert found.about.title == "mine"
    assert pipeline.conclude(stages, dataset, scores, gallery=1).about.title == "drawn"
    assert found.about.stages == {}
    assert found.about.label_counts == dict.fromkeys(names, 40)
    assert not found.warnings


def test_seeds_of_a_model_are_its_row_with_their_own_training_curves_and_tests_between_models() -> None:
    stages, curves = [], []
    for place, model in enumerate(("a", "b")):
        for seed in range(2):
            name = f"{model}-{seed}"
            for scaled, word in ((1.0, "raw"), (0.5, "temperature")):
                own = predictions(scale=(2.0 + place + 0.1 * seed) * scaled)
                measured = pipeline.evaluate_model({"test": own}, model=name, stage=word, metrics=["accuracy", "nll"])
                stages.append(pipeline.EvaluatedStage(name, word, own, measured, seed_of=model))
            losses = {"epoch": (0.0, 1.0), "train_loss": (1.0 + place, 0.5 + place + 0.1 * seed)}
            curves.append(Curve("training", losses, model=name, split="train"))
    images = np.zeros((N, 1, 2, 2), np.uint8)
    dataset = Dataset("made", "image", {"test": Split(images, LABELS, predictions().ids)}, ("x", "y", "z"))
    scores = Scores(predictions().ids, np.arange(N, dtype=float), "rmd")
    whole = pipeline.conclude(stages, dataset, scores, curves=curves, gallery=1)
    nll = {(m.model, m.stage): m for m in whole.measurements if m.metric == "nll" and m.group is None}
    assert sorted(nll) == [(m, s) for m in ("a", "b") for s in ("raw", "temperature")]
    own = [s.evaluation.value("nll") for s in stages if (s.seed_of, s.stage) == ("b", "raw")]
    assert nll["b", "raw"].value == pytest.approx(np.mean(own))
    assert nll["b", "raw"].sd == pytest.approx(np.std(own, ddof=1))
    trained = {c.model: c.columns["train_loss"] for c in whole.curves if c.kind == "training"}
    assert trained["a"] == pytest.approx((1.0, 0.55))
    assert trained["b"] == pytest.approx((2.0, 1.55))
    assert {(c.a.model, c.a.stage, c.b.model, c.b.stage) for c in whole.comparisons} == {
        ("a", "raw", "a", "temperature"),
        ("a", "raw", "b", "raw"),
        ("a", "temperature", "b", "temperature"),
        ("b", "raw", "b", "temperature"),
    }
    assert whole.about.seeds == {"a": 2, "b": 2}
    assert "means over 2 seeds" in str(whole.about.interval_note)
