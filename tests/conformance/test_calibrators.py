"""Every calibrator: shapes, corners, extreme logits, saving, export, order of samples, argmax, word = module."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from confide import Features, Predictions, calibrators
from confide.calibrators.base import keeps_argmax

WORDS = calibrators.names()
OF_LOGITS = [m.word for m in calibrators.CALIBRATORS if m.spec.wants == "nothing"]
CASES = [(m.word, dict(options)) for m in calibrators.CALIBRATORS for options in ({}, *m.corners)]
EXPECTED = {
    "temperature",
    "ensemble_temperature",
    "vector",
    "matrix",
    "dirichlet",
    "beta",
    "isotonic",
    "histogram",
    "spline",
    "metamis",
    "metaacc",
    "second_opinion",
    "platt",
    "venn_abers",
    "centred_isotonic",
    "top_versus_all",
    "structured_vector",
    "structured_matrix",
    "parameterised_temperature",
    "dac",
    "procal",
    "travelling",
}
NOISE = np.random.default_rng(0).normal(size=(5000, 12))


def drawn(n: int, num_classes: int, seed: int, scale: float = 2.0, dtype: torch.dtype = torch.float64) -> Predictions:
    generator = torch.Generator().manual_seed(seed)
    logits = 1.5 * torch.randn(n, num_classes, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(torch.softmax(logits, dim=1), 1, generator=generator).squeeze(1)
    return Predictions((scale * logits).to(dtype), labels, split="val")


def rows(predictions: Predictions) -> Features:
    """Features that know something of the logits, and follow a sample's id."""
    logits = predictions.logits.double().cpu()
    standard = (logits - logits.mean(dim=1, keepdim=True)) / logits.std(dim=1, keepdim=True)
    values = standard.numpy() + NOISE[predictions.ids.astype(int), : logits.shape[1]]
    return Features(values, predictions.labels.cpu().numpy(), predictions.ids, "drawn")


def fit(word: str, predictions: Predictions, **options):
    """The calibrator, with features where it looks at them."""
    train = rows(drawn(400, predictions.num_classes, seed=99))
    return calibrators.fit(word, predictions, features=rows(predictions), fitted=train, **options)


def calibrated(calibrator, predictions: Predictions) -> Predictions:
    return calibrator(predictions, rows(predictions))


def test_all_words_are_there():
    assert set(WORDS) == EXPECTED


@pytest.mark.parametrize("word", WORDS)
def test_word_is_a_function_of_the_package_and_has_a_paper(word):
    method = calibrators.CALIBRATORS.get(word)
    assert method.function is getattr(calibrators, word)
    assert method.paper
    assert "," in method.summary


@pytest.mark.parametrize(("word", "options"), CASES)
def test_every_corner_gives_finite_logits_of_the_same_samples(word, options):
    before = drawn(400, 4, seed=1)
    fresh = drawn(150, 4, seed=2)
    after = calibrated(fit(word, before, **options), fresh)
    assert after.logits.shape == fresh.logits.shape
    assert torch.isfinite(after.logits).all()
    assert torch.equal(after.labels, fresh.labels)


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_dtypes_stay_but_at_least_float32(word, dtype):
    before = drawn(300, 3, seed=3, dtype=dtype)
    after = calibrated(fit(word, before), before)
    assert after.logits.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("scale", [1e-4, 1e4])
def test_extreme_logits_stay_finite(word, scale):
    before = drawn(300, 3, seed=4, scale=scale, dtype=torch.float32)
    after = calibrated(fit(word, before), before)
    assert torch.isfinite(after.logits).all()
    assert torch.isfinite(after.facts.need("nll")).all()


@pytest.mark.parametrize("word", WORDS)
def test_all_correct_and_one_hot_are_defined_and_noted(word):
    labels = torch.arange(120) % 3
    before = Predictions.from_probs(torch.nn.functional.one_hot(labels, 3).double(), labels, split="val")
    calibrator = fit(word, before)
    assert torch.isfinite(calibrated(calibrator, before).logits).all()
    assert any("every validation prediction is right" in note for note in calibrator.notes)
    assert any("hold probabilities of 0" in note for note in calibrator.notes)


@pytest.mark.parametrize("word", WORDS)
def test_missing_classes_and_fewer_samples_than_classes_are_defined(word):
    some = drawn(9, 12, seed=5)
    labels = torch.where(torch.arange(9) % 2 == 0, some.logits.argmax(dim=1), some.labels)
    calibrator = fit(word, Predictions(some.logits, labels, split="val"))
    assert torch.isfinite(calibrated(calibrator, drawn(20, 12, seed=6)).logits).all()
    assert any("classes have no validation sample" in note for note in calibrator.notes)
    assert any("fewer than the 12 classes" in note for note in calibrator.notes)


@pytest.mark.parametrize(("word", "options"), CASES)
def test_saved_and_loaded_is_the_same(word, options, tmp_path):
    before = drawn(300, 3, seed=7)
    calibrator = fit(word, before, **options)
    for name in ("calibrator.json", "calibrator.safetensors"):
        calibrator.save(tmp_path / name)
        again = calibrators.load(tmp_path / name)
        assert torch.equal(calibrated(again, before).logits, calibrated(calibrator, before).logits)
        assert (again.word, again.notes, again.keeps_argmax) == (word, calibrator.notes, calibrator.keeps_argmax)


@pytest.mark.parametrize("word", OF_LOGITS)
def test_the_module_gives_the_same_probabilities(word):
    before = drawn(300, 3, seed=18)
    calibrator = fit(word, drawn(300, 3, seed=8))
    module = calibrator.module()
    expected = torch.softmax(calibrated(calibrator, before).logits, dim=1)
    torch.testing.assert_close(torch.softmax(module(before.logits), dim=1), expected, atol=1e-9, rtol=1e-7)
    narrow = torch.softmax(module(before.logits.float()), dim=1).double()
    # A float32 confidence beside an edge may fall into the next bin; all other rows agree.
    assert float(((narrow - expected).abs().amax(dim=1) < 1e-3).double().mean()) > 0.98


@pytest.mark.parametrize("word", WORDS)
def test_the_order_of_the_samples_does_not_matter(word):
    before = drawn(300, 3, seed=9)
    turned = before.take(torch.randperm(300, generator=torch.Generator().manual_seed(0)).numpy())
    # Meta-Cal draws rows by position; every other method must not see their order.
    options = {"rows": list(range(300))} if word == "metaacc" else {}
    if word == "metamis":
        options = {"rows": before.facts.correct.nonzero().squeeze(1).tolist()}
    first = calibrated(fit(word, before, **options), before)
    if word == "metamis":
        options = {"rows": turned.facts.correct.nonzero().squeeze(1).tolist()}
    second = calibrated(fit(word, turned, **options), before)
    torch.testing.assert_close(
        torch.softmax(first.logits, dim=1), torch.softmax(second.logits, dim=1), atol=1e-6, rtol=1e-5
    )


@pytest.mark.parametrize(("word", "options"), [case for case in CASES if keeps_argmax(*case)])
def test_methods_that_keep_the_argmax_keep_it(word, options):
    calibrator = fit(word, drawn(300, 8, seed=10, dtype=torch.float32), **options)
    fresh = drawn(4000, 8, seed=11, dtype=torch.float32)
    assert torch.equal(calibrated(calibrator, fresh).logits.argmax(dim=1), fresh.logits.argmax(dim=1))


@pytest.mark.parametrize("word", WORDS)
def test_a_split_called_test_is_refused(word):
    before = drawn(50, 3, seed=12)
    with pytest.raises(ValueError, match="must not be fitted on the test split"):
        fit(word, Predictions(before.logits, before.labels, split="test"))


@pytest.mark.parametrize("word", [w for w in WORDS if w not in ("metamis", "metaacc")])
def test_overconfident_predictions_get_a_better_likelihood(word):
    before, fresh = drawn(4000, 3, seed=13, scale=4.0), drawn(4000, 3, seed=14, scale=4.0)
    after = calibrated(fit(word, before), fresh)
    assert float(after.facts.need("nll").mean()) < float(fresh.facts.need("nll").mean()) - 0.1


@pytest.mark.parametrize("word", OF_LOGITS)
def test_what_goes_to_onnx_gives_the_same(word, monkeypatch):
    before = drawn(200, 3, seed=16)
    module = fit(word, before).module()
    expected = module(before.logits)
    monkeypatch.setattr(torch.onnx, "is_in_onnx_export", lambda: True)
    torch.testing.assert_close(module(before.logits), expected)


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace.*deprecated:FutureWarning")
@pytest.mark.parametrize("word", OF_LOGITS)
def test_torchscript_gives_the_same(word):
    before = drawn(200, 3, seed=15, dtype=torch.float32)
    module = fit(word, before).module()
    with torch.no_grad():
        traced = torch.jit.trace(module, before.logits[:5])
    torch.testing.assert_close(traced(before.logits), module(before.logits))


@pytest.mark.gpu
@pytest.mark.parametrize("word", WORDS)
def test_predictions_on_a_gpu_give_the_same(word):
    before = drawn(300, 3, seed=17)
    moved = Predictions(before.logits.cuda(), before.labels.cuda(), split="val")
    after = calibrated(fit(word, moved), moved)
    assert after.logits.is_cuda
    torch.testing.assert_close(after.logits.cpu(), calibrated(fit(word, before), before).logits, atol=1e-6, rtol=1e-6)
