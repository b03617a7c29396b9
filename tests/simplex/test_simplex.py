"""The primitive on the CPU: every statistic against plain torch, its gradients, and its limits."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import confide
from confide import losses
from confide.checks import InputError
from confide.simplex.reference import BAD_LABEL, STATISTICS, Request, plain_statistics, set_flag
from confide.simplex.statistics import one_minus_p, simplex_statistics

FLOATING = tuple(name for name in STATISTICS if name != "prediction")


def batch(n: int, num_classes: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn((n, num_classes), generator=generator, dtype=torch.float64) * 3
    return logits, torch.randint(0, num_classes, (n,), generator=generator)


@pytest.mark.parametrize("order", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("name", FLOATING)
def test_first_and_second_derivatives_hold_in_float64(name: str, order: float) -> None:
    if order != 2.0 and name != "norm":
        pytest.skip("the order concerns the norm only")
    logits, labels = batch(4, 5)

    def statistic(z: Tensor) -> Tensor:
        return simplex_statistics(z, labels, name, order=order, margin=0.7).values[name]

    leaf = logits.requires_grad_()
    assert torch.autograd.gradcheck(statistic, (leaf,))
    assert torch.autograd.gradgradcheck(statistic, (leaf,))


@pytest.mark.parametrize("shape", [(0, 3), (1, 2), (7, 10), (3, 1000), (2, 21843)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_all_together_agree_with_plain_torch(shape: tuple[int, int], dtype: torch.dtype) -> None:
    logits, labels = batch(*shape)
    rounded = logits.to(dtype)
    reference, leaf = rounded.double().clone().requires_grad_(), rounded.clone().requires_grad_()
    wanted = plain_statistics(reference, labels, Request(STATISTICS, 2.0, 0.7))
    found = simplex_statistics(leaf, labels, STATISTICS, margin=0.7)
    limit = 1e-12 if dtype == torch.float64 else 2e-5
    for name, want in zip(STATISTICS, wanted, strict=True):
        torch.testing.assert_close(found.values[name].to(want.dtype), want, rtol=limit, atol=limit)
    sum(want.sum() for want in wanted if want.is_floating_point()).backward()  # type: ignore[union-attr]
    sum(found.values[name].sum() for name in FLOATING).backward()  # type: ignore[union-attr]
    assert leaf.grad is not None
    assert leaf.grad.dtype == dtype
    loose = {torch.bfloat16: 2e-2, torch.float16: 2e-3}.get(dtype, limit)
    torch.testing.assert_close(leaf.grad.double(), reference.grad, rtol=loose, atol=loose)


def test_many_row_blocks_give_what_one_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, labels = batch(50, 40)
    results = []
    for elements in (1 << 19, 120):
        monkeypatch.setattr("confide.block_sizes.CACHED", elements)
        leaf = logits.clone().requires_grad_()
        found = simplex_statistics(leaf, labels, FLOATING, margin=1.0)
        sum(found.values[name].sum() for name in FLOATING).backward()  # type: ignore[union-attr]
        results.append((leaf.grad, *found.values.values()))
    for first, second in zip(*results, strict=True):
        torch.testing.assert_close(first, second)


def test_a_retained_graph_gives_the_same_gradient_twice() -> None:
    logits, labels = batch(6, 5)
    leaf = logits.requires_grad_()
    value = simplex_statistics(leaf, labels, "log_p_true entropy")
    total = (value.log_p_true * value.entropy).sum()
    (first,) = torch.autograd.grad(total, leaf, retain_graph=True)
    kept = first.clone()
    (second,) = torch.autograd.grad(total, leaf)
    torch.testing.assert_close(second, kept)
    torch.testing.assert_close(first, kept)


@pytest.mark.parametrize("scale", [1e4, 3.0])
def test_entropy_keeps_its_digits_far_from_zero(scale: float) -> None:
    logits, labels = batch(20, 30)
    for offset in (0.0, 1e4):
        rounded = (logits * scale + offset).float()
        exact = rounded.double().requires_grad_()
        leaf = rounded.requires_grad_()
        found = simplex_statistics(leaf, labels, "entropy").entropy
        wanted = plain_statistics(exact, labels, Request(("entropy",)))[0]
        torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-6)
        found.sum().backward()
        wanted.sum().backward()
        torch.testing.assert_close(leaf.grad.double(), exact.grad, rtol=1e-4, atol=1e-6)  # type: ignore[union-attr]


def test_ties_go_to_the_lowest_index() -> None:
    logits = torch.tensor([[1.0, 2.0, 2.0, 0.0]], dtype=torch.float64, requires_grad=True)
    found = simplex_statistics(logits, torch.tensor([3]), "prediction p_max p_second p_other")
    assert found.prediction.item() == 1
    (grad,) = torch.autograd.grad(found.p_other.sum(), logits)
    assert grad[0, 1] > 0 > grad[0, 2]


def test_p_below_is_zero_without_gradient_where_the_label_is_the_smallest() -> None:
    logits = torch.tensor([[1.0, 2.0, 0.0]], dtype=torch.float64, requires_grad=True)
    below = simplex_statistics(logits, torch.tensor([2]), "p_below").p_below
    assert below.item() == 0.0
    assert torch.autograd.grad(below.sum(), logits)[0].abs().max() == 0


def test_unknown_or_unwanted_statistics_are_named() -> None:
    logits, labels = batch(3, 4)
    with pytest.raises(InputError, match="no statistic named 'entropi'; did you mean 'entropy'"):
        simplex_statistics(logits, labels, "entropi")
    with pytest.raises(AttributeError, match="statistic 'norm' was not wanted; wanted: entropy"):
        _ = simplex_statistics(logits, labels, "entropy").norm


def test_one_minus_p_has_a_finite_slope_at_one() -> None:
    log_p = torch.zeros(1, requires_grad=True)
    (one_minus_p(log_p) ** 0.5).sum().backward()
    assert bool(torch.isfinite(log_p.grad).all())  # type: ignore[arg-type]


def test_check_raises_once_for_a_flag_and_then_is_silent() -> None:
    confide.check()
    set_flag(torch.tensor([False, True]), BAD_LABEL)
    with pytest.raises(InputError, match=r"labels must lie in \[0, number of classes\), got one outside on cpu"):
        confide.check()
    confide.check()


def test_torch_compile_traces_the_statistics_on_the_cpu() -> None:
    logits, labels = batch(5, 4)
    traced = torch.compile(lambda z: simplex_statistics(z, labels, "entropy").entropy, backend="eager", fullgraph=True)
    torch.testing.assert_close(traced(logits), simplex_statistics(logits, labels, "entropy").entropy)


def test_a_share_beyond_its_bound_moves_nothing() -> None:
    """Both samples lie above the middle of the upper bin: the distribution of the lower one is cut off at 2 / 3."""
    gradients = []
    for detach_weight in (False, True):
        logits = torch.logit(torch.tensor([[0.95, 0.5], [0.99, 0.5]], dtype=torch.float64)).requires_grad_()
        loss = losses.create("selective_au", coverage=0.9, smoothing=0.05, bins=2, detach_weight=detach_weight)
        loss(logits, torch.tensor([0, 1])).backward()
        gradients.append(logits.grad)
    torch.testing.assert_close(*gradients)
