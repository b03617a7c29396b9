"""The oracle of the true class probability."""

import pytest
import torch

import confide
from confide.core.door import InputError
from confide.trust import fit


def test_tcp_learns_the_probability_of_the_true_class():
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(2000, 3, generator=generator)
    labels = torch.multinomial(torch.softmax(logits, dim=1), 1, generator=generator).squeeze(1)
    predictions = confide.Predictions(logits, labels)
    z = fit("tcp", predictions, epochs=60, learning_rate=3e-2)(predictions)
    assert float((torch.sigmoid(z) - predictions.facts.p_true).square().mean()) < 0.1


def test_the_ratio_learns_one_for_every_right_prediction():
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(500, 3, generator=generator)
    labels = torch.multinomial(torch.softmax(logits, dim=1), 1, generator=generator).squeeze(1)
    predictions = confide.Predictions(logits, labels)
    ratio, plain = (
        fit("tcp", predictions, target=t, epochs=40, learning_rate=2e-2)(predictions) for t in ("ratio", "probability")
    )
    # p_y / max p is never below p_y.
    assert float(ratio.mean()) > float(plain.mean())
    with pytest.raises(InputError, match="target must be one of"):
        fit("tcp", predictions, target="share")
