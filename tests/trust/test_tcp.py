"""The oracle of the true class probability."""

import pytest
import torch

import confide
from confide.checks import InputError, OptionError
from confide.trust import fit
from confide.trust.losses import tcp


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
    with pytest.raises(InputError, match="target of trust predictor 'tcp' must be one of"):
        fit("tcp", predictions, target="share")


def test_what_stands_beside_the_target_is_one_value_per_sample():
    """n x 1 against n would become n x n, the error of the released code that the errata tell of."""
    z, p_true, right = torch.randn(6), torch.rand(6), torch.tensor([1, 0, 1, 1, 0, 1])
    p_max = p_true.clamp_min(0.5)
    plain = tcp(z, p_true, weighting=2.0, correct=right, p_max=p_max)
    assert plain.shape == (6,)
    assert torch.equal(tcp(z, p_true, weighting=2.0, correct=right[:, None], p_max=p_max[:, None]), plain)
    assert torch.equal(tcp(z, p_true, 2.0, right.tolist(), p_max.numpy()), plain)
    with pytest.raises(InputError, match="correct must be 6 values"):
        tcp(z, p_true, weighting=2.0, correct=right[:1])
    with pytest.raises(InputError, match="p_max must be in"):
        tcp(z, p_true, p_max=torch.zeros(6))
    for wrong in ({"p_max": p_max, "positional": (1.0, right, p_max)}, {"positional": (1.0, right, p_max, 3)}):
        positional = wrong.pop("positional")
        with pytest.raises(OptionError, match="each once"):
            tcp(z, p_true, *positional, **wrong)
