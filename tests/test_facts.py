"""Facts joined from parts: nothing lost, types promoted, unknown stays unknown."""

from dataclasses import replace

import torch

from confide import Predictions
from confide.facts import join_facts


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
