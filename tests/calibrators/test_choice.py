"""choose: the best held-out score, warnings where calibration does not help or changes the answers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from confide import Predictions, calibrators
from confide.calibrators import fitting
from confide.calibrators.fitting import DEFAULT_CANDIDATES, class_orders, stays_in_order
from confide.calibrators.groups import label_folds
from confide.checks import InputError


def test_an_overconfident_model_is_calibrated(made):
    logits, labels = made(3000, 4, seed=0)
    choice = calibrators.choose(Predictions(3 * logits, labels, split="val"), ("temperature", "matrix", "histogram"))
    assert choice.word == "temperature"
    assert choice.calibrator.temperature == pytest.approx(3.0, rel=0.1)
    assert choice.candidate("temperature").p_value < 1e-6
    assert choice.candidate("temperature").changed == 0
    assert not choice.warnings


def test_a_calibrated_model_is_left_alone_or_warned_about(made):
    logits, labels = made(1500, 4, seed=1)
    choice = calibrators.choose(Predictions(logits, labels, split="val"), DEFAULT_CANDIDATES)
    assert any("does not help for certain" in w or "no calibrator improves" in w for w in choice.warnings)


def test_a_choice_is_callable_also_where_none_is_best(made, tmp_path):
    logits, labels = made(120, 6, seed=3)
    predictions = Predictions.from_probs(logits.softmax(1), labels, split="val")
    choice = calibrators.choose(predictions, ("matrix",), options={"matrix": {"reg_lambda": 0.0}})
    assert choice.word == "none"
    assert choice(predictions) is predictions
    choice.calibrator.save(tmp_path / "none.json")
    again = calibrators.load(tmp_path / "none.json")
    assert (again(predictions).facts.confidence - predictions.facts.confidence).abs().max() < 1e-6
    assert again.notes == choice.warnings == choice.calibrator.notes


def test_one_word_is_taken_even_if_it_does_not_help(made):
    logits, labels = made(200, 6, seed=2)
    choice = calibrators.choose(Predictions(logits, labels, split="val"), ("matrix",), may_decline=False)
    assert choice.word == "matrix"
    assert any("does not help for certain" in w for w in choice.warnings)
    assert any("200 validation samples are few for the 42 parameters" in w for w in choice.warnings)
    assert any("changes the predicted class of" in w for w in choice.warnings)
    assert any("changes the order of classes behind the first" in w for w in choice.warnings)


def test_the_score_is_that_of_samples_not_fitted_on(made):
    logits, labels = made(120, 6, seed=3)
    predictions = Predictions(logits, labels, split="val")
    plain = {"reg_lambda": 0.0}
    held_out = calibrators.choose(predictions, ("matrix",), options={"matrix": plain}).candidate("matrix").score
    fitted = float(calibrators.fit("matrix", predictions, **plain)(predictions).facts.need("nll").mean())
    assert held_out > fitted + 0.3


def test_brier_chooses_too(made):
    logits, labels = made(1000, 4, seed=4)
    predictions = Predictions(4 * logits, labels, split="val")
    choice = calibrators.choose(predictions, ("temperature",), score="brier")
    assert choice.candidate("none").score == pytest.approx(float(predictions.facts.need("brier").mean()))
    assert choice.word == "temperature"


def test_folds_follow_the_ids_and_balance_the_labels(made):
    logits, labels = made(500, 4, seed=5)
    predictions = Predictions(logits, labels, ids=[f"sample {k}" for k in range(500)])
    fold = label_folds(predictions, 5, seed=0)
    turned = predictions.take(range(499, -1, -1))
    assert (label_folds(turned, 5, seed=0)[::-1] == fold).all()
    for k in range(4):
        counts = [int((fold[labels == k] == f).sum()) for f in range(5)]
        assert max(counts) - min(counts) <= 1


def test_what_cannot_be_fitted_is_listed_and_bad_requests_are_refused(made, test):
    logits, labels = made(40, 4, seed=6)
    wrong = Predictions(logits, logits.argmin(dim=1), split="val")
    choice = calibrators.choose(wrong, ("temperature", "metamis"))
    assert "needs at least one right prediction" in choice.failed["metamis"]
    with pytest.raises(InputError, match="must not be fitted on the test split"):
        calibrators.choose(test)
    with pytest.raises(InputError, match="5-fold cross-validation needs at least 10 predictions, got 8"):
        calibrators.choose(Predictions(logits[:8], labels[:8]))
    with pytest.raises(InputError, match="no calibrator named 'sigmoid'"):
        calibrators.choose(wrong, ("sigmoid",))


@pytest.mark.parametrize("classes", [3, 1 << 15, (1 << 15) + 5, 40_000])
def test_the_order_of_many_classes_does_not_run_over(classes):
    logits = torch.arange(2 * classes, dtype=torch.float32).reshape(2, classes)
    order = class_orders(logits)
    assert order.tolist() == logits.argsort(dim=1, descending=True).tolist()
    assert stays_in_order(logits, order).all()
    logits[1, 0] = 4 * classes
    assert stays_in_order(logits, order).tolist() == [True, False]


def test_ten_copies_of_every_sample_do_not_make_the_choice_surer(made):
    logits, labels = made(150, 4, seed=7)
    once = Predictions(3 * logits, labels, split="val")
    image = np.arange(150).repeat(10)
    copies = Predictions(3 * logits[image], labels[image], split="val", columns={"image": image})
    grouped = copies.replace(unit="image")
    narrow, wide = (calibrators.choose(p, ("temperature",)).candidate("temperature") for p in (copies, grouped))
    alone = calibrators.choose(once, ("temperature",)).candidate("temperature")
    assert (wide.high - wide.low) == pytest.approx(alone.high - alone.low, rel=0.1)
    assert (wide.high - wide.low) > 2.5 * (narrow.high - narrow.low)
    with pytest.raises(InputError, match="all 10 predictions lie in one 'image'; give several, or fit one method"):
        calibrators.choose(grouped.take(range(10)))


@pytest.mark.parametrize(("n", "few"), [(9, True), (10, False)])
def test_ten_samples_a_parameter_are_enough(n, few, made):
    logits, labels = made(n, 3, seed=0)
    best = fitting.Candidate("temperature", 0.0, -1.0, -2.0, -0.5, 0.01, 0.5, 0, 0)
    told = fitting.choice_warnings(best, Predictions(logits, labels), "nll")
    assert [text for text in told if "are few" in text] == [f"{n} validation samples are few for the 1 parameters of "
                                                            "'temperature'"] * few  # fmt: skip
