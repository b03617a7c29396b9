import numpy as np
import pytest
import torch

from confide import Predictions, difficulty
from confide.checks import InputError
from confide.difficulty.label_errors import label_fit, quality_flags
from confide.records import Scores


@pytest.fixture
def noisy():
    """Five classes in ten dimensions; 40 wrong labels, 10 samples between two classes, 10 of no class."""
    draw = np.random.default_rng(0)
    centres = 4 * draw.normal(size=(5, 10))
    truth = draw.integers(0, 5, 1000)
    rows = centres[truth] + draw.normal(size=(1000, 10))
    labels = truth.copy()
    labels[:40] = (truth[:40] + 1 + draw.integers(0, 4, 40)) % 5
    rows[40:50] = (centres[0] + centres[1]) / 2 + 0.3 * draw.normal(size=(10, 10))
    labels[40:50] = draw.integers(0, 2, 10)
    rows[50:60] = centres.mean(axis=0) + 40 * draw.normal(size=(10, 10)) / np.sqrt(10)
    return rows.astype(np.float32), labels, truth


def test_wrong_labels_are_found_and_the_right_one_is_suggested(noisy):
    rows, labels, truth = noisy
    found = difficulty.verdicts(rows, labels)
    assert (found.verdict[:40] == "wrong label").mean() > 0.95
    assert (found.verdict[60:] == "wrong label").mean() < 0.01
    assert (found.fit.suggested[:40] == truth[:40]).mean() > 0.95
    assert set(found.suspects()[:38]) <= set(range(60))


def test_samples_between_two_classes_are_ambiguous(noisy):
    rows, labels, _ = noisy
    verdict = difficulty.verdicts(rows, labels).verdict
    assert (np.isin(verdict[40:50], ["ambiguous", "atypical"])).mean() > 0.7
    assert (verdict[60:] == "ambiguous").mean() < 0.05


def test_samples_of_no_class_are_atypical(noisy):
    rows, labels, _ = noisy
    verdict = difficulty.verdicts(rows, labels).verdict
    assert (verdict[50:60] == "atypical").mean() > 0.8
    assert (verdict[60:] == "atypical").mean() < 0.03


def test_suspicion_ranks_wrong_labels_first(noisy):
    rows, labels, _ = noisy
    suspicion = label_fit(rows, labels).suspicion
    wrong = np.arange(1000) < 40
    above = (suspicion[wrong][:, None] > suspicion[60:][None]).mean()
    assert above > 0.99


def test_a_second_round_helps_where_labels_are_very_wrong():
    draw = np.random.default_rng(1)
    truth = draw.integers(0, 4, 1200)
    rows = 2.2 * draw.normal(size=(4, 30))[truth] / 2 + draw.normal(size=(1200, 30))
    wrong = draw.random(1200) < 0.35
    labels = np.where(wrong, (truth + 1 + draw.integers(0, 3, 1200)) % 4, truth)
    areas = []
    for rounds in (1, 2):
        suspicion = label_fit(rows, labels, rounds=rounds).suspicion
        areas.append((suspicion[wrong][:, None] > suspicion[~wrong][None]).mean())
    assert areas[1] >= areas[0] - 1e-3
    assert areas[1] > 0.95


def test_a_model_out_of_fold_is_averaged_in(noisy):
    rows, labels, truth = noisy
    logits = torch.nn.functional.one_hot(torch.from_numpy(truth), 5).float() * 4
    blind = np.random.default_rng(0).normal(size=rows.shape).astype(np.float32)
    with_model = difficulty.verdicts(blind, labels, predictions=Predictions(logits, torch.from_numpy(labels)))
    without = difficulty.verdicts(blind, labels)
    assert (
        (with_model.fit.suggested[:40] == truth[:40]).mean() > 0.9 > (without.fit.suggested[:40] == truth[:40]).mean()
    )


def test_hard_samples_without_another_verdict_are_hard(noisy):
    rows, labels, _ = noisy
    scores = difficulty.score("rmd", rows, labels)
    found = difficulty.verdicts(rows, labels, scores=scores, hardest=0.2)
    assert (found.verdict == "hard").sum() > 50
    assert set(np.unique(found.verdict)) <= set(difficulty.verdicts.__globals__["VERDICTS"])
    hard = scores.values[found.verdict == "hard"]
    assert hard.min() >= np.quantile(scores.values, 0.8) - 1e-9


def test_verdicts_are_columns_of_the_scores(noisy, tmp_path):
    rows, labels, _ = noisy
    scores = difficulty.score("rmd", rows, labels)
    both = difficulty.with_verdicts(scores, difficulty.verdicts(rows, labels))
    both.save(tmp_path / "scores.parquet")
    again = Scores.load(tmp_path / "scores.parquet")
    assert again.columns["verdict"].tolist() == both.columns["verdict"].tolist()


def test_damaged_pictures_are_low_quality():
    draw = np.random.default_rng(0)
    smooth = np.linspace(0, 200, 32)[None, :] + 20 * np.sin(np.arange(32) / 3)[:, None]
    images = np.stack([smooth + 10 * draw.normal(size=(32, 32)) for _ in range(60)]).clip(0, 255).astype(np.uint8)
    images[3] = 128
    images[5] = draw.integers(0, 256, (32, 32))
    flags = quality_flags(images[:, None], 60)
    assert flags[3] == "constant"
    assert flags[5] == "noisy"
    assert (np.delete(flags, [3, 5]) == "").all()


def test_texts_without_words_are_low_quality():
    assert quality_flags(["a real sentence", "", " ?! ", "ok"], 4).tolist() == ["", "empty", "empty", ""]


def test_quality_enters_the_verdict(noisy):
    rows, labels, _ = noisy
    texts = ["words enough"] * 1000
    texts[100] = ""
    assert difficulty.verdicts(rows, labels, inputs=texts).verdict[100] == "low quality"


def test_one_class_only_is_refused():
    with pytest.raises(InputError, match="two classes or more"):
        difficulty.verdicts(np.random.default_rng(0).normal(size=(20, 3)), np.zeros(20, dtype=int))


def test_more_dimensions_than_samples_still_find_wrong_labels():
    draw = np.random.default_rng(0)
    truth = draw.integers(0, 3, 90)
    rows = 3 * draw.normal(size=(3, 200))[truth] + draw.normal(size=(90, 200))
    labels = truth.copy()
    labels[:5] = (truth[:5] + 1) % 3
    assert set(np.argsort(-label_fit(rows, labels).suspicion)[:5]) == set(range(5))
