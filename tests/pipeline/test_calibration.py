"""Calibrators and trust of files: what each asks for, what it is given, and the warnings at their limits."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from confide import Features, Predictions, Scores, calibrators, pipeline, trust
from confide.checks import InputError
from confide.config import MethodChoice
from confide.pipeline import calibration

N = 90
LABELS = np.arange(N) % 3
ROWS = np.random.default_rng(0).normal(size=(N, 4)) + 2 * np.eye(3, 4)[LABELS]


def predictions(split: str = "val", seed: int = 1, ids: object = None) -> Predictions:
    noise = np.random.default_rng(seed).normal(size=(N, 3))
    return Predictions(3 * (np.eye(3)[LABELS] + noise), LABELS, ids, split=split)


def rows(split: str = "val", extractor: str = "pixels") -> Features:
    return Features(ROWS, LABELS, np.arange(N), extractor, split)


def scores() -> Scores:
    return Scores(np.arange(N), np.linspace(-1, 1, N), "rmd")


BY_DIFFICULTY = MethodChoice("temperature", {"by": "difficulty", "bands": 2})


@cache
def fitted_by_difficulty() -> calibrators.Calibrator:
    return pipeline.fit_calibrator(BY_DIFFICULTY, predictions(), scores())


def test_difficulty_reaches_only_a_calibrator_that_goes_by_it() -> None:
    val = predictions()
    plain = pipeline.fit_calibrator("temperature", val, scores())
    assert plain.temperature == calibrators.fit("temperature", val).temperature
    assert fitted_by_difficulty().by == "difficulty"
    column = calibration.with_difficulty(val, scores())
    own = pipeline.fit_calibrator(BY_DIFFICULTY, column)(column)
    assert torch.equal(own.logits, fitted_by_difficulty()(column).logits)


def test_features_reach_only_a_calibrator_that_looks_at_them() -> None:
    val, known = predictions(), {"train": rows("train"), "val": rows()}
    assert pipeline.fit_calibrator("temperature", val, rows=known).word == "temperature"
    fitted = pipeline.fit_calibrator("second_opinion", val, rows=known)
    assert fitted.feature_dim == 4
    with pytest.raises(InputError):
        pipeline.fit_calibrator("second_opinion", val)


def test_a_calibrator_of_a_file_gets_the_column_the_features_or_nothing(tmp_path: Path) -> None:
    val = predictions()
    pipeline.fit_calibrator("temperature", val).save(tmp_path / "plain.json")
    applied = pipeline.apply_calibrator(tmp_path / "plain.json", val)
    assert torch.equal(applied.logits, calibrators.fit("temperature", val)(val).logits)
    by_difficulty = fitted_by_difficulty()
    by_difficulty.save(tmp_path / "by.json")
    column = calibration.with_difficulty(val, scores())
    assert torch.equal(pipeline.apply_calibrator(tmp_path / "by.json", column).logits, by_difficulty(column).logits)
    with pytest.raises(InputError, match=r"difficulty\.safetensors is not there; keep both files together"):
        pipeline.apply_calibrator(tmp_path / "by.json", val)
    fitted = pipeline.fit_difficulty("prototype", rows("train"))
    fitted.save(tmp_path / "difficulty.safetensors")
    with pytest.raises(InputError, match="pass extract_by, or add the column"):
        pipeline.apply_calibrator(tmp_path / "by.json", val)
    beside = pipeline.apply_calibrator(tmp_path / "by.json", val, lambda word, **options: rows())
    expected = calibration.with_difficulty(val, fitted.score(rows(), "predicted"))
    assert torch.equal(beside.logits, by_difficulty(expected).logits)


def test_where_no_difficulty_lies_the_calibrators_own_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "run" / "calibrators").mkdir(parents=True)
    path = tmp_path / "run" / "calibrators" / "by.json"
    fitted_by_difficulty().save(path)
    with pytest.raises(InputError, match=r"run/calibrators/difficulty\.safetensors is not there"):
        pipeline.apply_calibrator(path, predictions())
    pipeline.fit_difficulty("prototype", rows("train")).save(tmp_path / "run" / "difficulty.safetensors")
    assert len(pipeline.apply_calibrator(path, predictions(), lambda word, **options: rows())) == N


def test_features_of_a_calibrator_come_from_a_file_or_its_extractor(tmp_path: Path) -> None:
    val, path = predictions(), tmp_path / "second.json"
    fitted = pipeline.fit_calibrator("second_opinion", val, rows={"train": rows("train"), "val": rows()})
    path = Path(fitted.save(tmp_path / "second.safetensors") or tmp_path / "second.safetensors")
    expected = fitted(val, rows()).logits
    asked: list[str] = []

    def extract_by(word: str, **options: object) -> Features:
        asked.append(word)
        return rows()

    assert torch.equal(pipeline.apply_calibrator(path, val, extract_by).logits, expected)
    assert asked == ["pixels"]
    with pytest.raises(InputError, match="needs features of these samples, 4 each by 'pixels'; pass them by --second"):
        pipeline.apply_calibrator(path, val)
    rows().save(tmp_path / "rows.npz")
    assert torch.equal(pipeline.apply_calibrator(path, val, rows=tmp_path / "rows.npz").logits, expected)


def test_a_chosen_calibrator_tells_what_it_did() -> None:
    val, test = predictions(), predictions("test", 2)
    choice = calibrators.choose(val, ["temperature"], may_decline=False)
    effect = pipeline.calibration_effect(choice, val, test)
    assert effect.before is not None
    assert effect.after is not None
    assert effect.comparisons[0].a.model == "raw"
    assert not any("predicted class changes" in line for line in effect.warnings)
    unlabelled = pipeline.calibration_effect(choice, val, Predictions(test.logits, ids=np.arange(N), split="test"))
    assert (unlabelled.before, unlabelled.after, unlabelled.comparisons) == (None, None, ())
    # One temperature for overconfident logits is worse on logits that were calibrated, and the line says so.
    worse = pipeline.calibration_effect(choice, val, Predictions(test.logits / 8, LABELS, split="test"))
    assert any("'temperature' makes it worse" in line for line in worse.warnings)
    same = pipeline.calibration_effect(
        calibrators.choose(predictions(), ["vector"], may_decline=False), val, Predictions(0.4 * test.logits, LABELS)
    )
    changed = int((same.predictions.facts.prediction != test.facts.prediction).sum())
    gain = float(same.predictions.facts.correct.double().mean() - test.facts.correct.double().mean())
    assert changed
    line = f"the predicted class changes on {changed} of 90 applied samples, accuracy by {100 * gain:+.2f} points"
    assert line in same.warnings


def test_of_confidences_alone_no_class_changes() -> None:
    draw = np.random.default_rng(0)
    val, test = (
        Predictions.from_pairs(draw.random(N) < 0.6, draw.uniform(0.7, 1, N), ids=ids, split=split)
        for ids, split in ((np.arange(N), "val"), (np.arange(N, 2 * N), "test"))
    )
    effect = pipeline.calibration_effect(calibrators.choose(val, ["platt"], may_decline=False), val, test)
    assert effect.after is not None
    assert not any("predicted class" in line for line in effect.warnings)
    assert {m.metric for m in effect.after.measurements} >= {"confidence_nll", "confidence_brier"}


@pytest.mark.parametrize("shared", [0, 1, 2])
def test_samples_that_were_fitted_on_are_found_from_one_in_a_hundred(shared: int) -> None:
    fitted = Predictions(np.random.default_rng(0).normal(size=(100, 3)))
    own = np.random.default_rng(1).normal(size=(100, 3))
    own[:shared] = fitted.logits[:shared].numpy()
    lines = calibration._shared_samples(fitted, Predictions(own))
    assert len(lines) == (shared > 1)
    assert not lines or lines[0].startswith("2 of 100 applied samples have the very outputs of a fitted one")


def test_outputs_that_meet_by_chance_are_no_shared_samples() -> None:
    rounded = np.repeat(np.random.default_rng(0).normal(size=(5, 3)), 2, axis=0)  # 10 of 20 fitted rows meet another
    fitted = Predictions(np.concatenate([rounded, np.random.default_rng(1).normal(size=(10, 3))]))
    for shared, lines in ((19, 0), (20, 0)):  # expected by chance 10, +3 sqrt(10) + 0.2 = 19.7 of 20
        own = np.concatenate([np.repeat(rounded[:1], shared, axis=0), np.full((20 - shared, 3), [9.0, 1.0, 0.0])])
        assert len(calibration._shared_samples(fitted, Predictions(own))) == lines + (shared == 20)


def test_trust_of_a_file_gets_what_it_asks_for(tmp_path: Path) -> None:
    val = predictions()
    assert pipeline.fit_trust("mcp").word == "mcp"
    path = tmp_path / "mcp.json"
    pipeline.fit_trust("mcp").save(path)
    with pytest.raises(InputError, match="fitted without a second opinion; leave --second out"):
        pipeline.add_trust(path, val, second=tmp_path / "rows.npz")
    called: list[int] = []
    pipeline.add_trust(path, val, rows=lambda: called.append(1) or rows())  # type: ignore[func-returns-value]
    assert called == []
    by_rows = pipeline.fit_trust("knn", val, rows())
    saved = by_rows.save(tmp_path / "knn.safetensors") or tmp_path / "knn.safetensors"
    expected = by_rows(val, rows())
    assert torch.equal(pipeline.add_trust(saved, val, rows=rows).trust, expected)
    rows().save(tmp_path / "rows.npz")
    assert torch.equal(pipeline.add_trust(saved, val, rows=tmp_path / "rows.npz").trust, expected)
    with pytest.raises(InputError):
        pipeline.add_trust(saved, val)


def test_a_seed_reaches_the_predictors_that_draw_and_no_other() -> None:
    val = predictions()
    assert pipeline.fit_trust("knn", val, rows(), seed=3)(val, rows()).shape == (N,)
    values = [pipeline.fit_trust("binary_cross_entropy", val, rows(), seed=s)(val, rows()) for s in (None, 0, 1)]
    own = trust.fit("binary_cross_entropy", val, rows())(val, rows())
    assert torch.equal(values[0], own)
    assert not torch.equal(values[1], values[2])
    choice = MethodChoice("binary_cross_entropy", {"seed": 1})  # a config's own word goes first
    assert torch.equal(pipeline.fit_trust(choice, val, rows(), seed=0)(val, rows()), values[2])
