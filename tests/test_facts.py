"""Facts joined from parts: nothing lost, types promoted, unknown stays unknown."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import confide.facts
from confide import Predictions
from confide.facts import ClassCounter, _facts_on_device, facts_of, join_facts
from confide.metrics.view import sorted_on


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


def test_a_device_sorts_the_keys_of_scores_as_the_host_does():
    for kind in (np.uint32, np.uint64):
        keys = np.random.default_rng(0).integers(0, np.iinfo(kind).max, 1000, dtype=kind)
        assert (sorted_on(torch.device("cpu"), keys) == np.sort(keys)).all()
