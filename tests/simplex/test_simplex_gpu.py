"""The Triton kernels against plain torch in float64 on the CPU; run by `make test-gpu` where there is a GPU."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
import torch
from torch import Tensor

import confide
from confide import losses
from confide.checks import InputError
from confide.simplex.reference import STATISTICS, Request, plain_statistics
from confide.simplex.statistics import simplex_statistics

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def no_marks_of_earlier_tests() -> None:
    with suppress(InputError):
        confide.check()


SHAPES = [(0, 10), (1, 2), (257, 10), (64, 33), (37, 1000), (16, 1024), (5, 21843), (16, 21843)]
FLOATING = tuple(name for name in STATISTICS if name != "prediction")
FUSED: list[tuple[str, dict[str, Any]]] = [
    ("cross_entropy", {}),
    ("label_smoothing", {}),
    ("focal", {}),
    ("focal", {"gamma": 0.0}),
    ("focal", {"gamma": 0.5}),
    ("focal", {"detach_weight": True}),
    ("flsd53", {}),
    ("inverse_focal", {}),
    ("dual_focal", {}),
    ("dual_focal", {"form": "released"}),
    ("adafocal", {}),
    ("calfocal", {}),
    ("calfocal", {"case": 2, "rate": 10.0}),
    ("entropy_regularization", {}),
    ("difficulty_entropy", {}),
    ("logit_norm", {}),
    ("logit_norm", {"p": 2.0}),
    ("poly1", {}),
    ("brier", {}),
    ("class_balanced", {}),
    ("mbls", {"margin": 3.0}),
]
OTHERS: list[tuple[str, dict[str, Any]]] = [
    ("aurc", {}),
    ("aurc", {"score": "margin"}),
    ("selective_au", {}),
    ("selective_au", {"score": "entropy"}),
    ("selective_au", {"coverage": 0.0}),
    ("selective_au", {"coverage": 1.0, "bins": 32}),
    ("mmce", {}),
    ("mmce_weighted", {}),
    ("kde_xe", {"bandwidth": 0.1}),
    ("crl", {"num_samples": 128}),
    ("group_dro", {}),
    ("mdca", {}),
]


def batch(n: int, num_classes: int, dtype: torch.dtype = torch.float32, spread: float = 3.0) -> tuple[Tensor, Tensor]:
    """Logits already rounded to `dtype`, as float64 on the CPU, and labels that are right half of the time."""
    generator = torch.Generator().manual_seed(n * 100_003 + num_classes)
    logits = torch.randn((n, num_classes), generator=generator, dtype=torch.float64) * spread
    logits = logits.to(dtype).double()
    labels = torch.randint(0, num_classes, (n,), generator=generator)
    labels[::2] = logits[::2].argmax(dim=1)
    return logits, labels


def gap(found: Tensor, wanted: Tensor) -> float:
    """Relative error by norm."""
    found, wanted = found.detach().double().cpu(), wanted.detach().double()
    return float((found - wanted).norm() / wanted.norm().clamp_min(1e-12))


def needs_of(word: str, n: int, num_classes: int) -> dict[str, Tensor]:
    return {
        "difficulty_entropy": {"weights": torch.linspace(0, 1, n)},
        "class_balanced": {"class_counts": torch.arange(1, num_classes + 1)},
        "crl": {"ids": torch.arange(n)},
        "group_dro": {"groups": torch.arange(n) % 2},
    }.get(word, {})


def module(word: str, options: dict[str, Any], num_classes: int) -> losses.LossModule:
    made = losses.create(word, reduction="none", **options)
    if word in ("adafocal", "calfocal"):
        logits, labels = batch(300, num_classes)
        for _ in range(3):
            made.update(logits, labels)  # type: ignore[operator]
        if word == "adafocal":
            made.gammas[::3] *= -1  # type: ignore[index]
    return made


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_every_statistic_and_its_gradient_agree_with_float64(shape: tuple[int, int], dtype: torch.dtype) -> None:
    logits, labels = batch(*shape, dtype)
    for order, names in ((2.0, FLOATING), (1.0, ("norm",))):
        reference = logits.clone().requires_grad_()
        wanted = plain_statistics(reference, labels, Request(names, order, 0.7))
        device = logits.to("cuda", dtype).requires_grad_()
        found = simplex_statistics(device, labels.cuda(), names, order=order, margin=0.7)
        for position, name in enumerate(names):
            value = found.values[name]
            assert gap(value, wanted[position]) <= (1e-11 if dtype == torch.float64 else 1e-5), name
            weight = torch.linspace(0.5, 1.5, shape[0], dtype=torch.float64)
            (want,) = torch.autograd.grad((wanted[position] * weight).sum(), reference, retain_graph=True)
            (got,) = torch.autograd.grad((value * weight.to(value)).sum(), device, retain_graph=True)
            limit = {torch.float64: 1e-11, torch.float32: 1e-5, torch.bfloat16: 5e-3, torch.float16: 1e-3}[dtype]
            assert got.dtype == dtype
            assert gap(got, want) <= limit, name
    confide.check()


@pytest.mark.parametrize(("word", "options"), FUSED + OTHERS, ids=str)
def test_every_loss_agrees_with_float64_on_the_cpu(word: str, options: dict[str, Any]) -> None:
    for shape, dtype, limit in (
        ((128, 10), torch.float32, 1e-5),
        ((128, 10), torch.float64, 1e-9),
        ((64, 1000), torch.float32, 1e-5),
        ((61, 1000), torch.bfloat16, 5e-3),
        ((6, 21843), torch.float32, 1e-5),
        ((16, 21843), torch.bfloat16, 5e-3),
        ((9001, 10), torch.float32, 1e-5),
    ):
        if shape[0] > 9000 and word not in ("aurc", "selective_au"):
            continue  # only these two take another way in a large batch
        if dtype == torch.bfloat16 and word in ("mdca", "kde_xe"):
            limit = 2e-2  # their sums pass through autograd in bfloat16
        logits, labels = batch(*shape, dtype)
        needs = needs_of(word, *shape)
        reference = logits.clone().requires_grad_()
        wanted = module(word, options, shape[1])(reference, labels, **needs)
        device = logits.to("cuda", dtype).requires_grad_()
        moved = {name: value.cuda() for name, value in needs.items()}
        found = module(word, options, shape[1]).cuda()(device, labels.cuda(), **moved)
        if word == "aurc" and dtype != torch.float64:
            limit = 0.05  # two samples of nearly equal confidence may change ranks
        assert gap(found, wanted) <= (1e-9 if dtype == torch.float64 else limit if word == "aurc" else 1e-5)
        weight = torch.linspace(0.5, 1.5, shape[0], dtype=torch.float64)
        (want,) = torch.autograd.grad((wanted * weight).sum(), reference)
        (got,) = torch.autograd.grad((found * weight.to(found)).sum(), device)
        assert gap(got, want) <= limit
    confide.check()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("n", [1, 7, 128])
@pytest.mark.parametrize("word", ["focal", "dual_focal", "mbls", "aurc", "selective_au"])
def test_the_mean_and_the_values_pull_together(word: str, n: int, dtype: torch.dtype) -> None:
    logits, labels = batch(n, 10, dtype)
    loss = losses.create(word, reduction="none").cuda()
    device = logits.to("cuda", dtype).requires_grad_()
    whole = loss.batch(device, labels.cuda())
    values, mean = whole.values, whole.mean()
    assert gap(mean, values.double().mean().cpu()) <= 1e-6
    limit = {torch.float64: 1e-11, torch.float32: 1e-5, torch.bfloat16: 1e-2}[dtype]
    (by_mean,) = torch.autograd.grad(3 * mean, device, retain_graph=True)
    (by_values,) = torch.autograd.grad(3 * values.mean(), device, retain_graph=True)
    assert gap(by_mean, by_values.cpu()) <= limit
    (both,) = torch.autograd.grad(3 * mean + values.sum() / n, device)
    assert gap(both, by_values.double().cpu() * 4 / 3) <= limit


@pytest.mark.parametrize(("word", "options"), FUSED, ids=str)
def test_logits_of_ten_thousand_stay_sound(word: str, options: dict[str, Any]) -> None:
    logits, labels = batch(64, 100, spread=1e4)
    needs = needs_of(word, 64, 100)
    reference = logits.clone().requires_grad_()
    wanted = module(word, options, 100)(reference, labels, **needs)
    device = logits.float().cuda().requires_grad_()
    found = module(word, options, 100).cuda()(device, labels.cuda(), **{k: v.cuda() for k, v in needs.items()})
    assert gap(found, wanted) <= 1e-5
    found.sum().backward()
    wanted.sum().backward()
    assert gap(device.grad, reference.grad) <= 1e-5


def test_rows_that_are_not_contiguous_give_the_same() -> None:
    logits, labels = batch(50, 40)
    device = logits.float().cuda()
    whole = losses.focal(device, labels.cuda())
    torch.testing.assert_close(losses.focal(device.T.contiguous().T, labels.cuda()), whole)
    wide = torch.zeros((50, 64), device="cuda")
    wide[:, 3:43] = device
    view = wide[:, 3:43].requires_grad_()
    losses.focal(view, labels.cuda()).sum().backward()
    plain = device.clone().requires_grad_()
    losses.focal(plain, labels.cuda()).sum().backward()
    torch.testing.assert_close(view.grad, plain.grad)


@pytest.mark.parametrize(("word", "options"), FUSED, ids=str)
def test_a_bad_row_becomes_nan_and_check_tells(word: str, options: dict[str, Any]) -> None:
    confide.check()
    logits, labels = batch(40, 10)
    labels[3], labels[4] = 10, -1
    logits[7, 2] = torch.nan
    device = logits.float().cuda().requires_grad_()
    needs = {name: value.cuda() for name, value in needs_of(word, 40, 10).items()}
    found = module(word, options, 10).cuda()(device, labels.cuda(), **needs)
    found.sum().backward()
    assert found.isnan().nonzero().squeeze(1).tolist() == [3, 4, 7]
    assert device.grad is not None
    assert device.grad.isnan().any(dim=1).nonzero().squeeze(1).tolist() == [3, 4, 7]
    with pytest.raises(InputError, match=r"labels must lie in \[0, number of classes\)"):
        confide.check()
    confide.check()
    losses.focal(device.detach()[7:8], torch.tensor([1], device="cuda"))
    with pytest.raises(InputError, match="logits must be finite"):
        confide.check()


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize(("word", "options"), FUSED, ids=str)
def test_forward_and_backward_never_wait_for_the_device(word: str, options: dict[str, Any]) -> None:
    logits, labels = batch(32, 10)
    needs = {name: value.cuda() for name, value in needs_of(word, 32, 10).items()}
    made, truth = module(word, options, 10).cuda(), labels.cuda()
    device = logits.float().cuda().requires_grad_()
    made(device, truth, **needs).mean().backward()
    torch.cuda.set_sync_debug_mode("error")
    try:
        made(device, truth, **needs).mean().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize(
    ("word", "options"), [*FUSED, ("aurc", {}), ("selective_au", {}), ("mmce", {}), ("kde_xe", {})], ids=str
)
def test_a_captured_graph_replays_with_new_logits(word: str, options: dict[str, Any]) -> None:
    logits, labels = batch(64, 10)
    needs = {name: value.cuda() for name, value in needs_of(word, 64, 10).items()}
    made, truth = module(word, options, 10).cuda(), labels.cuda()
    static = torch.zeros((64, 10), device="cuda", requires_grad=True)

    def step() -> Tensor:
        static.grad = None
        value = made(static, truth, **needs).mean()
        value.backward()
        return value.detach()

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value = step()
    with torch.no_grad():
        static.copy_(logits)
    graph.replay()
    fresh = logits.float().cuda().requires_grad_()
    wanted = made(fresh, truth, **needs).mean()
    wanted.backward()
    torch.testing.assert_close(value, wanted.detach())
    torch.testing.assert_close(static.grad, fresh.grad)


@pytest.mark.parametrize("word", ["cross_entropy", "focal", "dual_focal", "adafocal", "mbls"])
def test_torch_compile_keeps_the_kernels_in_one_graph(word: str) -> None:
    logits, labels = batch(64, 10)
    made, truth = module(word, {}, 10).cuda(), labels.cuda()

    def step(scores: Tensor) -> Tensor:
        return made(scores * 2, truth).mean()

    first = logits.float().cuda().requires_grad_()
    second = first.detach().clone().requires_grad_()
    compiled = torch.compile(step, fullgraph=True)(first)
    plain = step(second)
    compiled.backward()
    plain.backward()
    torch.testing.assert_close(compiled, plain)
    torch.testing.assert_close(first.grad, second.grad)


def test_autocast_accumulates_in_float32() -> None:
    features = torch.randn((64, 32), device="cuda")
    head = torch.nn.Linear(32, 10).cuda()
    labels = torch.arange(64, device="cuda") % 10
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cuda", dtype):
            logits = head(features)
            found = losses.focal(logits, labels)
        assert logits.dtype == dtype
        assert found.dtype == torch.float32
        assert gap(found, losses.focal(logits.detach().double().cpu(), labels.cpu())) <= 1e-5


def test_a_second_derivative_is_refused_or_right() -> None:
    logits, labels = batch(8, 5)
    device = logits.cuda().requires_grad_()
    entropy = simplex_statistics(device, labels.cuda(), "entropy").entropy.sum()
    (first,) = torch.autograd.grad(entropy, device, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), device)
    reference = logits.clone().requires_grad_()
    (plain,) = torch.autograd.grad(
        plain_statistics(reference, labels, Request(("entropy",)))[0].sum(), reference, create_graph=True
    )
    (wanted,) = torch.autograd.grad(plain.square().sum(), reference)
    assert gap(second, wanted) <= 1e-11
    with pytest.raises(RuntimeError, match="cannot be differentiated twice"):
        torch.autograd.grad(losses.focal(device, labels.cuda()).sum(), device, create_graph=True)
