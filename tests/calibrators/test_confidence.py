"""Calibrators of a confidence alone: the maps, groups, the choice, saving, and what they refuse."""

import numpy as np
import pytest
import torch

from confide import Predictions, calibrators
from confide.calibrators.confidence import confidence_words, two_classes
from confide.checks import InputError


def pairs(n=4000, seed=0, sharpness=2.0, shift=0.0, **columns):
    """Answers whose confidence is sigmoid(sharpness z + shift) where they are right with probability sigmoid(z)."""
    draw = np.random.default_rng(seed)
    odds = draw.normal(0.5, 1.5, n)
    right = draw.random(n) < 1 / (1 + np.exp(-odds))
    return Predictions.from_pairs(right, 1 / (1 + np.exp(-sharpness * odds - shift)), split="val", **columns)


def truth(predictions, sharpness=2.0, shift=0.0):
    return torch.sigmoid((torch.logit(predictions.facts.confidence) - shift) / sharpness)


@pytest.mark.parametrize("word", confidence_words())
def test_every_map_comes_near_the_truth_on_other_samples(word):
    fitted, other = calibrators.fit(word, pairs()), pairs(seed=1)
    calibrated = fitted(other)
    assert calibrated.facts.correct.tolist() == other.facts.correct.tolist()
    assert float((calibrated.facts.confidence - truth(other)).abs().mean()) < 0.045
    # also below 1/2: the map is of the confidence in the answer, not of the likelier of right and wrong
    low = other.facts.confidence < 0.4
    assert float((calibrated.facts.confidence - truth(other))[low].mean().abs()) < 0.03


def test_a_temperature_divides_the_log_odds():
    fitted = calibrators.fit("temperature", pairs(20000))
    assert fitted.temperature == pytest.approx(2.0, rel=0.05)
    other = pairs(seed=1)
    expected = torch.sigmoid(torch.logit(other.facts.confidence) / fitted.temperature)
    torch.testing.assert_close(fitted(other).facts.confidence, expected, rtol=0, atol=1e-9)


def test_top_one_predictions_keep_their_class():
    drawn = pairs()
    labels = torch.arange(len(drawn)) % 3
    prediction = torch.where(drawn.facts.correct, labels, (labels + 1) % 3)
    top = Predictions.from_top1(labels, prediction, drawn.facts.confidence, split="val")
    fitted = calibrators.fit("isotonic", top)
    assert fitted(top).facts.prediction.tolist() == prediction.tolist()
    expected = calibrators.fit("isotonic", drawn)(drawn)
    torch.testing.assert_close(fitted(top).facts.confidence, expected.facts.confidence)


@pytest.mark.parametrize("ending", ["json", "safetensors"])
def test_groups_have_their_own_map_and_are_saved(tmp_path, ending):
    draw = np.random.default_rng(5)
    site = draw.choice(["north", "south"], 8000)
    odds = draw.normal(0.5, 1.5, 8000)
    right = draw.random(8000) < 1 / (1 + np.exp(-odds))
    confidence = 1 / (1 + np.exp(-np.where(site == "north", 3.0, 1.0) * odds))
    predictions = Predictions.from_pairs(right, confidence, split="val", site=site)
    fitted = calibrators.fit("temperature", predictions, by="site")
    assert fitted.groups["north"].temperature == pytest.approx(3.0, rel=0.1)
    assert fitted.groups["south"].temperature == pytest.approx(1.0, rel=0.1)
    fitted.save(tmp_path / f"by_site.{ending}")
    again = calibrators.load(tmp_path / f"by_site.{ending}")
    torch.testing.assert_close(again(predictions).facts.confidence, fitted(predictions).facts.confidence)


def test_the_choice_is_by_the_log_loss_of_the_confidence():
    choice = calibrators.choose(pairs(2000), folds=3)
    assert {c.word for c in choice.candidates} == {"none", *confidence_words()}
    assert choice.candidate("none").score == pytest.approx(float(pairs(2000).facts.confidence_nll.mean()))
    assert choice.word != "none"
    assert all(c.changed == c.reordered == 0 for c in choice.candidates)
    apart = calibrators.choose(pairs(300, sharpness=1.0), ["histogram"])
    assert (apart.word, apart.calibrator.temperature) == ("none", 1.0)


def test_certainties_that_are_rounded_do_not_decide_the_fit():
    drawn = pairs()
    rounded = Predictions.from_pairs(drawn.facts.correct, drawn.facts.confidence.numpy().round(2))
    for word in ("temperature", "beta"):
        moved = calibrators.fit(word, rounded)(rounded).facts.confidence
        assert float((moved - truth(drawn)).abs().mean()) < 0.02
        assert 0.5 < float(moved[rounded.facts.confidence == 1].max()) < 0.995


def test_two_classes_are_wrong_and_right():
    record = two_classes(pairs(50))
    assert record.facts.p_true.log().neg().tolist() == pytest.approx(pairs(50).facts.confidence_nll.tolist())


def test_what_a_confidence_does_not_allow_is_refused_in_one_line():
    with pytest.raises(InputError, match=r"'vector' needs all probabilities, .* choose one of temperature"):
        calibrators.fit("vector", pairs(50))
    with pytest.raises(TypeError, match="'histogram' has no option 'target'"):
        calibrators.fit("histogram", pairs(50), target="classes")
    with pytest.raises(InputError, match="must not be fitted on the test split"):
        calibrators.fit("temperature", pairs(50).replace(split="test"))
    with pytest.raises(InputError, match="'correct' needs labels"):
        calibrators.fit("temperature", Predictions.from_pairs(None, [0.5, 0.6]))
    fitted = calibrators.fit("temperature", pairs(50))
    with pytest.raises(InputError, match="fitted on confidence and correctness alone, got predictions with logits"):
        fitted(Predictions([[2.0, 0.0]], [0]))
    of_classes = calibrators.fit("temperature", Predictions([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [0, 1, 1]))
    with pytest.raises(InputError, match="needs all probabilities"):
        of_classes(pairs(50))
    with pytest.raises(InputError, match="moves confidences and has no module"):
        fitted.module()


def test_a_map_of_the_confidence_in_an_answer_keeps_the_answer():
    fitted = calibrators.fit("beta", pairs(400))
    assert fitted.keeps_argmax
    # Of wrong and right, which the map inside takes for classes, either may become the likelier.
    assert not fitted.inner.keeps_argmax
