"""Batch kernels against their double sums."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from confide.numerics.kernels import (
    dirichlet_calibration_error,
    laplacian_form,
    likely_bandwidth,
    mmce_of,
    mmce_weighted_of,
)


def naive(confidence: Tensor, residual: Tensor, width: float) -> Tensor:
    kernel = torch.exp(-(confidence[:, None] - confidence).abs() / width)
    return (residual[:, None] * residual * kernel).sum()


def sample(n: int, ties: bool) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n)
    confidence = torch.rand(n, generator=generator, dtype=torch.float64)
    if ties:
        confidence = (confidence * 10).round() / 10
    return confidence.requires_grad_(), torch.randn(n, generator=generator, dtype=torch.float64).requires_grad_()


@pytest.mark.parametrize("width", [1e-4, 1e-3, 0.01, 0.4, 100.0])
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("n", [1, 2, 300])
def test_the_laplacian_form_is_exact_with_its_gradients(n: int, ties: bool, width: float) -> None:
    confidence, residual = sample(n, ties)
    found, wanted = laplacian_form(confidence, residual, width), naive(confidence, residual, width)
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)
    for got, want in zip(
        torch.autograd.grad(found, (confidence, residual)),
        torch.autograd.grad(wanted, (confidence, residual)),
        strict=True,
    ):
        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)


def test_mmce_in_float32_keeps_six_digits_at_narrow_widths() -> None:
    confidence, _ = sample(2000, False)
    correct = (torch.rand(2000, generator=torch.Generator().manual_seed(1)) < 0.7).double()
    single = confidence.detach().float()
    for width in (0.01, 0.4):
        exact = naive(single.double(), correct - single.double(), width) / 2000**2
        assert abs(float(mmce_of(single, correct.float(), width)) - float(exact)) <= 1e-6 * float(exact)


def test_mmce_says_that_it_cannot_be_differentiated_twice() -> None:
    confidence, _ = sample(5, False)
    with pytest.raises(RuntimeError, match="cannot be differentiated twice"):
        torch.autograd.grad(mmce_of(confidence, torch.ones(5).double()), confidence, create_graph=True)


def test_the_root_of_a_perfect_batch_is_zero_with_a_finite_gradient() -> None:
    confidence = torch.ones(4, dtype=torch.float64, requires_grad=True)
    value = mmce_of(confidence, torch.ones(4).double(), sqrt=True)
    assert value.item() == 0.0
    assert bool(torch.isfinite(torch.autograd.grad(value, confidence)[0]).all())


@pytest.mark.parametrize("form", ["paper", "released"])
def test_weighted_mmce_is_zero_when_one_kind_is_absent(form: str) -> None:
    confidence, _ = sample(6, False)
    for correct in (torch.zeros(6), torch.ones(6)):
        value = mmce_weighted_of(confidence, correct.double(), form=form)
        assert value.item() == 0.0
        assert torch.autograd.grad(value, confidence)[0].abs().max() == 0


def test_the_dirichlet_error_matches_the_naive_leave_one_out_sum() -> None:
    probs = torch.randn((12, 4), generator=torch.Generator().manual_seed(0), dtype=torch.float64).softmax(dim=1)
    labels = torch.arange(12) % 4
    bandwidth, total = 0.3, torch.zeros(())
    for i in range(12):
        kernels = torch.tensor(
            [
                0.0 if i == j else torch.distributions.Dirichlet(probs[j] / bandwidth + 1).log_prob(probs[i]).exp()
                for j in range(12)
            ],
            dtype=torch.float64,
        )
        expected = torch.stack([kernels[labels == k].sum() for k in range(4)]) / kernels.sum()
        total = total + (expected - probs[i]).abs().sum() / 12
    torch.testing.assert_close(dirichlet_calibration_error(probs, labels, bandwidth), total)


@pytest.mark.parametrize("extra_factor", [False, True])
def test_the_dirichlet_error_without_a_bandwidth_is_that_of_the_likely_one(extra_factor: bool) -> None:
    logits = 3 * torch.randn((12, 4), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    chosen, given = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    labels, bandwidth = torch.arange(12) % 4, likely_bandwidth(logits.softmax(dim=1), extra_factor)
    wanted = dirichlet_calibration_error(given.softmax(dim=1), labels, bandwidth)
    found = dirichlet_calibration_error(chosen.softmax(dim=1), labels, None, extra_factor=extra_factor)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(torch.autograd.grad(found, chosen), torch.autograd.grad(wanted, given))


def test_blocks_of_rows_do_not_change_the_dirichlet_error(monkeypatch: pytest.MonkeyPatch) -> None:
    probs = torch.randn((13, 4), generator=torch.Generator().manual_seed(0), dtype=torch.float64).softmax(dim=1)
    labels = torch.arange(13) % 4
    whole = dirichlet_calibration_error(probs, labels, None)
    monkeypatch.setattr("confide.block_sizes.CACHED_FLOAT64", 5 * 4)
    torch.testing.assert_close(dirichlet_calibration_error(probs, labels, None), whole)
