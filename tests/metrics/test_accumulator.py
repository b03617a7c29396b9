"""Accumulators: batches give the value of the whole; merging is adding."""

import pickle

import pytest
import torch

from confide import Predictions, metrics
from confide.checks import InputError


def data(n=230, classes=5):
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    return logits, torch.multinomial(torch.softmax(logits, 1), 1, generator=generator).squeeze(1)


@pytest.mark.parametrize("word", metrics.names())
def test_batches_give_the_value_of_the_whole(word):
    logits, labels = data()
    accumulator = metrics.create(word)
    for start in range(0, len(logits), 64):
        accumulator.update(logits[start : start + 64], labels[start : start + 64])
    whole = getattr(metrics, word)(Predictions(logits, labels))
    assert float(accumulator.compute()) == pytest.approx(float(whole), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("word", ["ece_mass", "classwise_ece", "kde_ece", "auroc"])
def test_merged_processes_give_the_value_of_the_whole(word):
    logits, labels = data()
    first, second = metrics.create(word), metrics.create(word)
    first.update(logits[:100], labels[:100])
    second.update(Predictions(logits[100:], labels[100:]))
    first.merge(pickle.loads(pickle.dumps(second)))
    alone = metrics.create(word)
    alone.update(logits, labels)
    assert len(first) == 230
    assert float(first.compute()) == pytest.approx(float(alone.compute()), rel=1e-9)


def test_options_reset_and_probabilities():
    logits, labels = data()
    accumulator = metrics.create("ece", bins=7)
    accumulator.update(logits, labels)
    accumulator.reset()
    with pytest.raises(InputError, match="no samples yet"):
        accumulator.compute()
    accumulator.update(torch.softmax(logits, dim=1), labels, from_probs=True)
    wanted = metrics.ece(Predictions(logits, labels), bins=7)
    assert float(accumulator.compute()) == pytest.approx(float(wanted))
    accumulator.sync()  # nothing to gather from outside a process group


def test_what_does_not_fit_is_refused():
    logits, labels = data()
    with pytest.raises(TypeError, match="has no option"):
        metrics.create("ece", width=3)
    with pytest.raises(InputError, match="no metric named"):
        metrics.create("exe")
    accumulator = metrics.create("ece")
    accumulator.update(logits, labels)
    with pytest.raises(InputError, match="5 classes"):
        accumulator.update(logits[:, :4], labels % 4)
    with pytest.raises(InputError, match="cannot merge"):
        accumulator.merge(metrics.create("ece", bins=3))
    with pytest.raises(InputError, match="give both"):
        accumulator.update(logits)


@pytest.mark.parametrize("word", ["auroc", "aurc", "fpr95"])
def test_batches_keep_the_trust_that_ranks(word):
    logits, labels = data()
    trust = torch.linspace(1, 0, len(labels), dtype=torch.float64)
    whole = Predictions(logits, labels).replace(trust=trust)
    accumulator = metrics.create(word, score="trust")
    for rows in (range(100), range(100, 230)):
        accumulator.update(whole.take(list(rows)))
    expected = float(getattr(metrics, word)(whole, score="trust"))
    assert float(accumulator.compute()) == pytest.approx(expected, rel=1e-9)
    assert expected != pytest.approx(float(getattr(metrics, word)(Predictions(logits, labels))), rel=1e-3)


def test_batches_in_which_the_last_class_is_never_seen():
    logits, _ = data(classes=5)
    labels = torch.arange(len(logits)) % 4
    for word in ("classwise_ece", "brier", "nll", "accuracy"):
        accumulator = metrics.create(word)
        accumulator.update(logits[:200], labels[:200])
        accumulator.update(logits[200:], labels[200:])
        whole = getattr(metrics, word)(Predictions(logits, labels))
        assert float(accumulator.compute()) == pytest.approx(float(whole), rel=1e-9), word
