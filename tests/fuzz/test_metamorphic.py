"""What must not change a value: the order of rows and classes, constants on logits, threads, parts, types, files."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from confide import calibrators, metrics
from confide.metrics import METRICS
from confide.predictions import Predictions
from confide.records import Features

CLASSES = 4
OF_LOGITS = [m.word for m in calibrators.CALIBRATORS if m.spec.wants == "nothing"]
WEIGHTS_OF_LOGITS = {"vector", "matrix"}
"""A weight for each logit makes a constant count, by their definition."""
RESTS_ON_A_DRAW = {"kde_ece"}
"""Above its limit of rows it looks at a part of them."""


def drawn(n: int = 240, seed: int = 0, split: str = "val", temperature: float = 1.7) -> Predictions:
    generator = torch.Generator().manual_seed(seed)
    logits = 1.5 * torch.randn(n, CLASSES, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(torch.softmax(logits, dim=1), 1, generator=generator).squeeze(1)
    return Predictions(temperature * logits, labels, split=split)


def value(word: str, predictions: Predictions) -> float:
    return float(getattr(metrics, word)(predictions))


def same(word: str, changed: Predictions, whole: Predictions, tolerance: float = 1e-9) -> None:
    assert value(word, changed) == pytest.approx(value(word, whole), rel=tolerance, abs=tolerance, nan_ok=True)


def with_logits(predictions: Predictions, logits: torch.Tensor, labels: torch.Tensor | None = None) -> Predictions:
    return Predictions(logits, predictions.labels if labels is None else labels, predictions.ids, predictions.split)


@pytest.mark.parametrize("word", metrics.names())
def test_a_metric_sees_neither_order_nor_names_nor_constants(word):
    whole = drawn()
    rows = np.random.default_rng(1).permutation(len(whole))
    same(word, whole.take(rows), whole)
    classes = torch.randperm(CLASSES, generator=torch.Generator().manual_seed(2))
    places = torch.argsort(classes)
    same(word, with_logits(whole, whole.logits[:, classes], places[whole.labels]), whole)
    shift = torch.linspace(-40, 40, len(whole), dtype=torch.float64)[:, None]
    same(word, with_logits(whole, whole.logits + shift), whole, 1e-7)


@pytest.mark.parametrize("word", [m.word for m in METRICS if m.spec.info.kind in ("mean", "ranking")])
def test_every_sample_twice_changes_no_mean_and_no_ranking(word):
    whole = drawn()
    twice = Predictions(torch.cat([whole.logits] * 2), torch.cat([whole.labels] * 2))
    tolerance = 1e-9 if METRICS.get(word).spec.info.kind == "mean" else 0.02
    same(word, twice, whole, tolerance)


@pytest.mark.parametrize("word", ["ece", "mce", "classwise_ece", "smooth_ece"])
def test_every_sample_twice_changes_no_plain_calibration_error(word):
    whole = drawn()
    same(word, Predictions(torch.cat([whole.logits] * 2), torch.cat([whole.labels] * 2)), whole)


@pytest.mark.parametrize("word", metrics.names())
def test_parts_that_are_added_up_give_the_whole(word):
    whole = drawn()
    parts = metrics.create(word)
    for start in (0, 1, 100, 239):
        end = {0: 1, 1: 100, 100: 239, 239: 240}[start]
        parts.update(whole.take(np.arange(start, end)))
    assert float(parts.compute()) == pytest.approx(value(word, whole), rel=1e-6, abs=1e-6, nan_ok=True)


@pytest.mark.parametrize("ending", ["npz", "parquet", "csv"])
def test_files_keep_every_metric(ending, tmp_path):
    for whole in (drawn(), with_logits(drawn(), drawn().logits.float())):
        whole.save(tmp_path / f"val.{ending}")
        back = Predictions.load(tmp_path / f"val.{ending}")
        for word in metrics.names():
            assert value(word, back) == pytest.approx(value(word, whole), rel=1e-12, abs=1e-12, nan_ok=True), word


def test_threads_change_no_metric():
    whole, threads = drawn(5000), torch.get_num_threads()
    words = [word for word in metrics.names() if word not in RESTS_ON_A_DRAW]
    try:
        values = []
        for count in (1, 3):
            torch.set_num_threads(count)
            values.append([value(word, drawn(5000)) for word in words])
    finally:
        torch.set_num_threads(threads)
    np.testing.assert_allclose(values[0], values[1], rtol=1e-9)
    assert len(whole) == 5000


def probabilities(word: str, fitted_on: Predictions, applied_to: Predictions) -> torch.Tensor:
    return torch.softmax(calibrators.fit(word, fitted_on)(applied_to).logits.double(), dim=1)


@pytest.mark.parametrize("word", OF_LOGITS)
def test_a_calibrator_sees_no_constant_and_applies_row_by_row(word):
    val, test = drawn(), drawn(90, seed=5, split="test")
    expected = probabilities(word, val, test)
    if word not in WEIGHTS_OF_LOGITS:
        shifted = with_logits(test, test.logits + torch.linspace(-30, 30, len(test), dtype=torch.float64)[:, None])
        torch.testing.assert_close(probabilities(word, val, shifted), expected, atol=1e-6, rtol=1e-5)
    fitted = calibrators.fit(word, val)
    parts = torch.cat([fitted(test.take(np.arange(a, b))).logits for a, b in ((0, 1), (1, 40), (40, 90))])
    torch.testing.assert_close(torch.softmax(parts.double(), dim=1), expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("word", [word for word in OF_LOGITS if word not in ("metaacc", "metamis")])
def test_a_calibrator_goes_with_the_names_of_the_classes(word):
    val, test = drawn(), drawn(90, seed=5, split="test")
    classes = torch.tensor([2, 0, 3, 1])
    places = torch.argsort(classes)
    turned = [with_logits(p, p.logits[:, classes], places[p.labels]) for p in (val, test)]
    expected = probabilities(word, val, test)[:, classes]
    torch.testing.assert_close(probabilities(word, *turned), expected, atol=2e-4, rtol=1e-3)


@pytest.mark.parametrize("word", OF_LOGITS)
def test_a_calibrator_of_float32_is_that_of_float64(word):
    val, test = drawn(), drawn(90, seed=5, split="test")
    narrow = [with_logits(p, p.logits.float()) for p in (val, test)]
    wide = [with_logits(p, p.logits.float().double()) for p in (val, test)]
    gap = (probabilities(word, *narrow) - probabilities(word, *wide)).abs().amax(dim=1)
    # A confidence beside an edge may fall into the next bin; all other rows agree.
    assert float((gap < 1e-4).double().mean()) > 0.97


DEALT_BY_LABEL = {"second_opinion"}
"""Its strength is chosen in folds that are dealt class by class: other names give other folds, as another seed does."""


def rows_near(predictions: Predictions, seed: int) -> np.ndarray:
    """Features that tell something of the labels."""
    centres = np.random.default_rng(0).normal(size=(CLASSES, 3))
    return 1.5 * centres[predictions.labels.numpy()] + np.random.default_rng(seed).normal(size=(len(predictions), 3))


@pytest.mark.parametrize("word", sorted({m.word for m in calibrators.CALIBRATORS} - set(OF_LOGITS)))
def test_a_calibrator_with_features_goes_with_rows_and_classes(word):
    train, val, test = drawn(300, seed=7, split="train"), drawn(), drawn(90, seed=5, split="test")
    near = [rows_near(predictions, seed) for seed, predictions in enumerate((train, val, test))]

    def probs(labels_of_train, fitted_on, rows_of_val, applied_to, rows_of_test):
        reference = Features(near[0], np.asarray(labels_of_train), train.ids, "drawn", "train")
        calibrator = calibrators.fit(word, fitted_on, features=rows_of_val, fitted=reference)
        return torch.softmax(calibrator(applied_to, features=rows_of_test).logits.double(), dim=1)

    expected = probs(train.labels, val, near[1], test, near[2])
    order, turned = np.random.default_rng(3).permutation(len(val)), np.random.default_rng(4).permutation(len(test))
    shuffled = probs(train.labels, val.take(order), near[1][order], test.take(turned), near[2][turned])
    torch.testing.assert_close(shuffled, expected[turned], atol=1e-4, rtol=1e-3)
    if word in DEALT_BY_LABEL:
        return
    classes = torch.tensor([2, 0, 3, 1])
    places = torch.argsort(classes)
    renamed = [with_logits(p, p.logits[:, classes], places[p.labels]) for p in (val, test)]
    moved = probs(places[train.labels], renamed[0], near[1], renamed[1], near[2])
    torch.testing.assert_close(moved, expected[:, classes], atol=1e-3, rtol=1e-2)
