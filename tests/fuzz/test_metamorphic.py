"""What must not change a value: the order of rows and classes, constants on logits, threads, parts, types, files."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import torch

from confide import calibrators, metrics
from confide.metrics import METRICS
from confide.predictions import Predictions
from confide.records import Features

CLASSES = 4
CALIBRATORS = sorted(m.word for m in calibrators.CALIBRATORS)
OF_LOGITS = {m.word for m in calibrators.CALIBRATORS if m.spec.wants == "nothing"}
WEIGHTS_OF_LOGITS = {"vector", "matrix"}
"""A weight for each logit makes a constant count, by their definition."""
DRAWN_BY_PLACE = {"metaacc", "metamis"}
"""They look at drawn rows."""
DEALT_BY_LABEL = {"second_opinion"}
"""Its strength is chosen in folds that are dealt class by class: other names give other folds, as another seed does."""
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
    threads, values = torch.get_num_threads(), []
    words = [word for word in metrics.names() if word not in RESTS_ON_A_DRAW]
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            whole = drawn(10_000)  # enough logits for torch to part them
            values.append([value(word, whole) for word in words])
    finally:
        torch.set_num_threads(threads)
    np.testing.assert_allclose(values[0], values[1], rtol=1e-9)


@pytest.mark.parametrize("word", metrics.names())
def test_a_metric_of_float32_is_that_of_float64(word):
    narrow = drawn().logits.float()
    same(word, with_logits(drawn(), narrow), with_logits(drawn(), narrow.double()), 2e-5)


# Calibrators. Those that look at features find the ones of a sample by its id.

CENTRES = np.random.default_rng(0).normal(size=(CLASSES, 3))
TRAIN, VAL, TEST = drawn(300, seed=7, split="train"), drawn(), drawn(90, seed=5, split="test")


def rows_near(predictions: Predictions, seed: int) -> np.ndarray:
    """Features that tell something of the labels."""
    noise = np.random.default_rng(seed).normal(size=(len(predictions), 3))
    return 1.5 * CENTRES[predictions.labels.numpy()] + noise


ROWS = {split.split: rows_near(split, seed) for seed, split in enumerate((TRAIN, VAL, TEST))}


def features_of(predictions: Predictions) -> np.ndarray:
    return ROWS[predictions.split][np.asarray(predictions.ids).astype(int)]


def fit(word: str, val: Predictions, train: Predictions = TRAIN) -> Callable[[Predictions], torch.Tensor]:
    """What gives the calibrated probabilities of predictions."""
    if word in OF_LOGITS:
        of_logits = calibrators.fit(word, val)
        return lambda predictions: softmaxed(of_logits(predictions))
    reference = Features(features_of(train), train.labels.numpy(), train.ids, "drawn", "train")
    calibrator = calibrators.fit(word, val, features=features_of(val), fitted=reference)
    return lambda predictions: softmaxed(calibrator(predictions, features=features_of(predictions)))


def softmaxed(predictions: Predictions) -> torch.Tensor:
    return torch.softmax(predictions.logits.double(), dim=1)


@cache
def plainly(word: str) -> torch.Tensor:
    return fit(word, VAL)(TEST)


@pytest.mark.parametrize("word", CALIBRATORS)
def test_a_calibrator_sees_no_constant_and_applies_row_by_row(word):
    calibrator = fit(word, VAL)
    if word not in WEIGHTS_OF_LOGITS:
        shift = torch.linspace(-30, 30, len(TEST), dtype=torch.float64)[:, None]
        shifted = calibrator(with_logits(TEST, TEST.logits + shift))
        torch.testing.assert_close(shifted, plainly(word), atol=1e-6, rtol=1e-5)
    parts = torch.cat([calibrator(TEST.take(np.arange(a, b))) for a, b in ((0, 1), (1, 40), (40, 90))])
    torch.testing.assert_close(parts, plainly(word), atol=1e-12, rtol=0)


@pytest.mark.parametrize("word", sorted(set(CALIBRATORS) - DRAWN_BY_PLACE))
def test_a_calibrator_sees_no_order_of_rows(word):
    order, turned = (np.random.default_rng(seed).permutation(n) for seed, n in ((3, len(VAL)), (4, len(TEST))))
    torch.testing.assert_close(
        fit(word, VAL.take(order))(TEST.take(turned)), plainly(word)[turned], atol=1e-4, rtol=1e-3
    )


@pytest.mark.parametrize("word", sorted(set(CALIBRATORS) - DRAWN_BY_PLACE - DEALT_BY_LABEL))
def test_a_calibrator_goes_with_the_names_of_the_classes(word):
    classes = torch.tensor([2, 0, 3, 1])
    places = torch.argsort(classes)
    train, val, test = (with_logits(p, p.logits[:, classes], places[p.labels]) for p in (TRAIN, VAL, TEST))
    torch.testing.assert_close(fit(word, val, train)(test), plainly(word)[:, classes], atol=2e-4, rtol=1e-3)


@pytest.mark.parametrize("word", CALIBRATORS)
def test_a_calibrator_of_float32_is_that_of_float64(word):
    narrow, wide = (
        fit(word, *(with_logits(p, change(p.logits)) for p in (VAL, TRAIN)))(with_logits(TEST, change(TEST.logits)))
        for change in (torch.Tensor.float, lambda logits: logits.float().double())
    )
    # A confidence beside an edge may fall into the next bin; all other rows agree.
    assert float(((narrow - wide).abs().amax(dim=1) < 1e-4).double().mean()) > 0.97


@pytest.mark.parametrize("word", CALIBRATORS)
def test_threads_and_files_change_no_calibrator(word, read_back):
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3 if threads == 1 else 1)
        val, test = read_back
        torch.testing.assert_close(fit(word, val)(test), plainly(word), atol=1e-9, rtol=1e-7)
    finally:
        torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def read_back(tmp_path_factory) -> list[Predictions]:
    """The predictions of val and test as a CSV gives them back, which the other formats give too."""
    folder, back = tmp_path_factory.mktemp("files"), []
    for predictions in (VAL, TEST):
        for ending in ("npz", "parquet", "csv"):
            predictions.save(folder / f"x.{ending}")
            loaded = Predictions.load(folder / f"x.{ending}").replace(split=predictions.split)
            assert torch.equal(loaded.logits, predictions.logits)
        back.append(loaded)
    return back
