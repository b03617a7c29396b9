"""Mean probabilities and log p_y by one pass against plain torch."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from confide import losses, penalties
from confide.checks import InputError
from confide.simplex.statistics import log_p_and_class_means


@pytest.mark.parametrize(("n", "num_classes"), [(1, 2), (7, 3), (700, 1000)])
def test_values_and_slopes_are_those_of_plain_torch(n, num_classes):
    generator = torch.Generator().manual_seed(n)
    logits = 4 * torch.randn((n, num_classes), generator=generator, dtype=torch.float64)
    labels = torch.randint(0, num_classes, (n,), generator=generator)
    by_sample, by_class = torch.randn(n, generator=generator).double(), torch.randn(num_classes, generator=generator)
    one, other = (logits.clone().requires_grad_() for _ in range(2))
    log_p, means = log_p_and_class_means(one, labels)
    plain = functional.log_softmax(other, dim=1)
    torch.testing.assert_close(log_p, plain.gather(1, labels[:, None]).squeeze(1))
    torch.testing.assert_close(means, plain.exp().mean(dim=0))
    wanted = (plain.gather(1, labels[:, None]).squeeze(1) * by_sample).sum() + (plain.exp().mean(0) * by_class).sum()
    found = (log_p * by_sample).sum() + (means * by_class).sum()
    (slope,) = torch.autograd.grad(wanted, other)
    # Twice: the first takes the probabilities, the second makes them anew.
    for retain in (True, False):
        torch.testing.assert_close(torch.autograd.grad(found, one, retain_graph=retain)[0], slope)


def test_each_output_alone_and_both_twice():
    logits = torch.randn((6, 4), dtype=torch.float64, requires_grad=True)
    labels = torch.arange(6) % 4
    for which in (0, 1):
        assert torch.autograd.gradcheck(lambda z, k=which: log_p_and_class_means(z, labels)[k], (logits,))
        assert torch.autograd.gradgradcheck(lambda z, k=which: log_p_and_class_means(z, labels)[k], (logits,))
    assert torch.autograd.gradgradcheck(lambda z: losses.mdca(z, labels), (logits,))


def test_a_batch_of_none_and_bad_rows():
    logits = torch.zeros((0, 3), requires_grad=True)
    penalties.mdca(logits, torch.zeros(0, dtype=torch.int64)).backward()
    assert logits.grad.shape == (0, 3)
    with pytest.raises(InputError, match="labels must lie in"):
        log_p_and_class_means(torch.zeros((2, 3)), torch.tensor([0, 3]))
    with pytest.raises(InputError, match="logits must be finite, got nan at sample 1 of 2"):
        log_p_and_class_means(torch.tensor([[0.0, 1.0], [torch.nan, 0.0]]), torch.tensor([0, 1]))
