"""Facts against their definitions, and joined from parts: nothing lost, types promoted, unknown stays unknown."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import confide.facts
from confide import Predictions
from confide.checks import InputError
from confide.facts import (
    MANY_ROWS,
    SHORT_ROW,
    ClassCounter,
    _facts_on_device,
    column_sums,
    facts_of,
    join_facts,
    row_argmax,
)
from confide.numerics.binning import bin_of, width_edges


def record(n, dtype):
    generator = torch.Generator().manual_seed(n)
    logits = torch.randn(n, 3, generator=generator, dtype=torch.float64).to(dtype)
    return Predictions(logits, torch.zeros(n, dtype=torch.int64)).facts


def test_parts_become_one_and_keep_the_wider_type():
    parts = [record(5, torch.float32), record(2, torch.float32), record(3, torch.float64), record(40, torch.float32)]
    joined = join_facts(parts)
    assert joined.nll.dtype == torch.float64
    torch.testing.assert_close(joined.nll, torch.cat([p.nll.double() for p in parts]), rtol=0, atol=0)
    torch.testing.assert_close(joined.correct, torch.cat([p.correct for p in parts]))


def test_what_one_part_does_not_know_is_unknown():
    joined = join_facts([record(4, torch.float32), replace(record(4, torch.float32), margin=None)])
    assert joined.margin is None
    assert len(joined.entropy) == 8


@pytest.mark.parametrize("from_probs", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("kind", "closed", "bins"),
    [
        (torch.float32, "right", 15),
        (torch.float32, "left", 4),
        (torch.float64, "right", 1),
        (torch.bfloat16, "left", 2),
    ],
)
def test_a_device_without_a_kernel_gives_the_facts_and_sums_of_the_host(
    from_probs, weighted, kind, closed, bins, monkeypatch
):
    monkeypatch.setattr(confide.facts, "DEVICE_MEMORY", 4 * 7 * 13)
    generator = torch.Generator().manual_seed(1)
    logits, labels = 3 * torch.randn(60, 7, generator=generator), torch.randint(0, 7, (60,), generator=generator)
    outputs = (torch.softmax(logits, dim=1) if from_probs else logits).to(kind)
    outputs[4] = torch.tensor([0.25, 0.5, 0.25, 0, 0, 0, 0]) if from_probs else 0.0  # on an edge of the bins; all equal
    weights = np.random.default_rng(0).random(60) + 0.5 if weighted else None
    here, there = (ClassCounter(7, bins, closed, weights) for _ in range(2))
    facts = facts_of(outputs, labels, from_probs=from_probs, counter=here)
    found = _facts_on_device(outputs, labels, from_probs, there)
    for name, values in vars(facts).items():
        if values is None:
            assert getattr(found, name) is None
        else:
            torch.testing.assert_close(getattr(found, name), values, rtol=3e-6, atol=3e-6, msg=name)
    for name, values in vars(there.table()).items():
        np.testing.assert_allclose(values, getattr(here.table(), name), atol=1e-5, err_msg=name)


def test_two_threads_give_the_facts_and_sums_of_one():
    generator = torch.Generator().manual_seed(0)
    logits, labels = 3 * torch.randn(600_000, 8, generator=generator), torch.randint(0, 8, (600_000,))
    before, found = torch.get_num_threads(), []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        counter = ClassCounter(8, 15, "right")
        found.append((facts_of(logits, labels, counter=counter), counter.table()))
    torch.set_num_threads(before)
    (alone, table), (together, other) = found
    for name, values in vars(alone).items():
        assert torch.equal(values, getattr(together, name)), name
    for name, values in vars(table).items():
        np.testing.assert_allclose(values, getattr(other, name), rtol=1e-12, err_msg=name)


def test_sums_of_a_class_over_many_rows_keep_their_digits():
    logits = 2 * torch.randn(400_000, 3, generator=torch.Generator().manual_seed(0))
    counter = ClassCounter(3, 1, "right")
    facts_of(logits, torch.zeros(400_000, dtype=torch.int64), counter=counter)
    expected = torch.softmax(logits.double(), dim=1).sum(dim=0)
    torch.testing.assert_close(torch.from_numpy(counter.columns), expected, rtol=1e-6, atol=0)


def _rows(classes, dtype, seed=0):
    """Sure rows, unsure ones, ties, and classes that are ruled out."""
    draws = torch.Generator().manual_seed(seed)
    scales = torch.tensor([0.1, 1.0, 3.0, 30.0]).repeat(10)[:, None]
    logits = (scales * torch.randn(40, classes, generator=draws, dtype=torch.float64)).to(dtype)
    logits[3] = 0.0
    logits[5, : classes // 2] = -torch.inf
    labels = torch.arange(40) % (classes - 1)
    labels[5] = classes - 1
    return logits, labels


@pytest.mark.parametrize("size", [1 << 20, 100])
@pytest.mark.parametrize("classes", [2, 5, 32, 33, 40])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_facts_are_those_of_their_definitions(classes, dtype, size, monkeypatch):
    monkeypatch.setattr("confide.facts.CACHED_FLOAT64", size)
    logits, labels = _rows(classes, dtype)
    wide = logits.double()
    probs = torch.softmax(wide, dim=1)
    top, rival = probs.topk(2, dim=1).values.T
    entropy = -torch.where(probs > 0, probs * probs.clamp_min(1e-300).log(), 0).sum(dim=1)
    own = probs.gather(1, labels[:, None])[:, 0]
    truth = torch.nn.functional.one_hot(labels, classes)
    expected = {
        "confidence": top,
        "margin": top - rival,
        "entropy": entropy,
        "max_logit": wide.amax(dim=1),
        "energy": wide.logsumexp(dim=1),
        "doubt": probs.scatter(1, probs.argmax(dim=1)[:, None], 0).sum(dim=1),
        "p_true": own,
        "nll": -torch.log_softmax(wide, dim=1).gather(1, labels[:, None])[:, 0],
        "brier": (probs - truth).square().sum(dim=1),
    }
    tolerance = 1e-10 if dtype == torch.float64 else 2e-5
    facts = facts_of(logits, labels)
    assert facts.prediction.tolist() == wide.argmax(dim=1).tolist()
    assert facts.correct.tolist() == (wide.argmax(dim=1) == labels).tolist()
    for name, values in expected.items():
        found = facts.need(name)
        assert found.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        torch.testing.assert_close(found.double(), values, rtol=tolerance, atol=tolerance, msg=name)
    given = facts_of(probs, labels, from_probs=True)
    for name in ("confidence", "margin", "entropy", "p_true", "brier"):
        torch.testing.assert_close(given.need(name), expected[name], rtol=1e-9, atol=1e-9, msg=name)
    torch.testing.assert_close(given.nll, -own.clamp_min(1e-12).log())
    torch.testing.assert_close(given.max_logit, top.log())
    assert given.doubt is None
    assert given.energy.tolist() == [0] * 40
    bare = facts_of(logits, None)
    assert [bare.right, bare.nll, bare.p_true, bare.brier] == [None] * 4
    torch.testing.assert_close(bare.entropy, facts.entropy)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("closed", ["right", "left"])
@pytest.mark.parametrize("bins", [1, 2, 10, 15])
@pytest.mark.parametrize("held", [torch.float64, torch.float32, "probs", "sure"])
def test_sums_by_class_and_bin_are_those_of_every_probability(held, bins, closed, weighted, monkeypatch):
    monkeypatch.setattr("confide.facts.CACHED_FLOAT64", 60)
    monkeypatch.setattr("confide.facts.CACHED", 9)
    logits, labels = _rows(5, torch.float32 if held == torch.float32 else torch.float64)
    if held == "sure":
        logits = logits * 20
    probs = torch.softmax(logits.nan_to_num(neginf=-1e4), dim=1)
    if held == "probs":
        probs[:10] = torch.tensor([0.2, 0.1, 0.3, 0.0, 0.4], dtype=torch.float64)  # on edges of ten bins
    own = np.linspace(0, 2, 40) if weighted else np.ones(40)
    counter = ClassCounter(5, bins, closed, own if weighted else None)
    facts_of(probs if held == "probs" else logits, labels, from_probs=held == "probs", counter=counter)
    table = counter.table()
    tolerance = {"rtol": 1e-5, "atol": 1e-5} if held == torch.float32 else {"rtol": 1e-9, "atol": 1e-12}
    place = bin_of(probs.numpy().reshape(-1), width_edges(bins), closed).reshape(40, 5)
    hit = np.arange(5) == labels.numpy()[:, None]
    p, w = probs.numpy().astype(np.float64), own[:, None]
    for name, terms in {
        "count": w * np.ones_like(p),
        "confidence": w * p,
        "hits": w * hit,
        "truth": w**2 * p * hit,
        "hit_squares": w**2 * hit,
        "squares": w**2 * p**2,
    }.items():
        sums = np.array([[terms[place[:, c] == b, c].sum() for b in range(bins)] for c in range(5)])
        found = getattr(table, name)
        if name == "squares":  # of the first bin only the sum over all classes is known, shared out by confidence
            assert found[:, 0].sum() == pytest.approx(sums[:, 0].sum(), rel=1e-4, abs=1e-5)
            np.testing.assert_allclose(
                found[:, 0] * table.confidence[:, 0].sum(), found[:, 0].sum() * table.confidence[:, 0], atol=1e-9
            )
            found, sums = found[:, 1:], sums[:, 1:]
        np.testing.assert_allclose(found, sums, err_msg=name, **tolerance)
    double, both = table.scaled(2.0), table + table
    np.testing.assert_allclose(double.count, both.count)
    np.testing.assert_allclose(double.squares, 2 * both.squares)
    np.testing.assert_allclose(double.hits, 2 * table.hits)


def test_how_sure_is_exact_where_float32_rounds_to_one():
    facts = facts_of(torch.tensor([[20.0, 0.0], [25.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1, 0]))
    sure = 1 / (1 + np.exp([-20.0, -25.0, -1.0]))
    np.testing.assert_allclose(1 - facts.sureness(), 1 - sure, rtol=1e-5)
    np.testing.assert_allclose(facts.unsureness(), 1 - sure, rtol=1e-5)
    assert facts.unsureness().dtype == np.float32
    wide = facts_of(torch.tensor([[1.0, 0.0]], dtype=torch.float64), None)
    assert wide.unsureness().dtype == np.float64
    np.testing.assert_allclose(wide.unsureness(), 1 - sure[2:])
    np.testing.assert_allclose(facts.confidence_nll, [0, 25.0, -np.log(sure[2])], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(facts.confidence_brier, [0, 1, (1 - sure[2]) ** 2], atol=1e-6)
    assert wide.confidence_nll is None
    assert wide.confidence_brier is None


@pytest.mark.parametrize(("value", "word"), [(float("nan"), "NaN"), (float("inf"), "infinity")])
def test_the_first_row_that_is_not_finite_is_named(value, word):
    logits = torch.zeros(5, 3)
    logits[2:, 1] = value
    with pytest.raises(InputError, match=f"got {word} at sample 2 of 5"):
        facts_of(logits, torch.zeros(5, dtype=torch.int64))


def test_finite_losses_whose_sum_is_not_are_facts_all_the_same():
    logits = torch.tensor([[1e308, 0.0]] * 4, dtype=torch.float64)
    assert facts_of(logits, torch.ones(4, dtype=torch.int64)).need("nll").tolist() == [1e308] * 4


@pytest.mark.parametrize("rows", [1, 511, 512, 513, 1024, 1100])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_column_sums_of_any_number_of_rows(rows, dtype):
    values = np.random.default_rng(0).random((rows, 3)).astype(dtype)
    weights = np.linspace(0.5, 1.5, rows)
    for own in (weights.astype(dtype), weights.astype(np.float64)):
        np.testing.assert_allclose(column_sums(values, own), own @ values, rtol=1e-5)


def test_growing_vectors_keep_every_part():
    parts = [facts_of(torch.eye(3)[torch.arange(n) % 3] * n, torch.arange(n) % 2) for n in (1, 5, 2, 9, 1)]
    whole = join_facts(parts)
    for name in ("confidence", "nll", "brier", "margin"):
        assert whole.need(name).tolist() == [v for part in parts for v in part.need(name).tolist()]
    assert len(whole.correct) == 18


@pytest.mark.parametrize("width", [2, 3, 10, SHORT_ROW, SHORT_ROW + 1])
def test_the_largest_of_each_row_is_numpys_also_where_values_tie_or_are_nan(width: int) -> None:
    values = np.random.default_rng(0).integers(0, 4, (MANY_ROWS + 5, width)).astype(np.float32)
    values[7, -1] = np.nan
    values[8] = -np.inf
    assert (row_argmax(values) == values.argmax(axis=1)).all()


def test_hits_are_counted_alike_in_one_part_and_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    logits, labels, weights = rng.normal(size=(500, 4)), rng.integers(0, 4, 500), rng.random(500)
    for own in (None, weights):
        whole = confide.Predictions(logits, labels, weights=own).class_table()
        monkeypatch.setattr("confide.facts.CACHED", 64)
        parted = confide.Predictions(logits, labels, weights=own).class_table()
        monkeypatch.undo()
        for name in ("hits", "truth", "hit_squares", "squares"):
            assert np.allclose(getattr(parted, name), getattr(whole, name), rtol=1e-12, atol=1e-12), name
