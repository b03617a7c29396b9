"""Batches beyond one block: the same values and gradients as in one."""

from __future__ import annotations

import sys

import pytest
import torch

from confide import block_sizes, losses
from tests.conformance.test_losses import CASES, batch, needs_of

ROWS = 14


def worked(word: str, options: dict[str, object]) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    logits, labels = batch(ROWS, 5, 2.0)
    logits = logits.double().requires_grad_()
    values = losses.create(word, reduction="none", **options)(logits, labels, **needs_of(word, ROWS))
    (values * torch.linspace(0.5, 2, values.numel(), dtype=values.dtype).reshape(values.shape)).sum().backward()
    assert logits.grad is not None
    return values.detach(), logits.grad


@pytest.mark.parametrize(("word", "options"), CASES, ids=str)
def test_a_batch_of_several_blocks_gives_the_loss_and_gradient_of_one(word, options, monkeypatch):
    whole = worked(word, options)
    monkeypatch.setattr(block_sizes, "CACHED", 5 * 4)  # four rows of five classes; the last block has two
    monkeypatch.setattr(sys.modules["confide.simplex.statistics"], "SMALL", 1)
    parts = worked(word, options)
    torch.testing.assert_close(parts[0], whole[0], rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(parts[1], whole[1], rtol=1e-8, atol=1e-11)
