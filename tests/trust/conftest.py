"""A classifier whose errors only a feature shows."""

import pytest
import torch

import confide


def make_hidden_errors(n=1500, seed=0, split="val"):
    """A classifier whose softmax says nothing about its errors, and a feature that says all."""
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(n, 4, generator=generator)
    signal = torch.randn(n, generator=generator)
    wrong = (torch.randn(n, generator=generator) * 0.3 + signal) > 1.2
    labels = torch.where(wrong, (logits.argmax(dim=1) + 1) % 4, logits.argmax(dim=1))
    noise = torch.randn(n, 7, generator=generator)
    return confide.Predictions(logits, labels, split=split), torch.cat([signal[:, None], noise], dim=1)


@pytest.fixture
def hidden_errors():
    """The function that makes such predictions and features."""
    return make_hidden_errors
