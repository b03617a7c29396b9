"""Batch norm of a training on the CPU: values, gradients and statistics against float64, alone and over processes."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor, nn
from torch.testing import assert_close

from confide.training.batch_norm import batch_norm, exact_batch_norms
from confide.training.distributed import World

CPU = torch.device("cpu")
NORMS = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}


def draw(shape: tuple[int, ...], offset: float = 0.0, last: bool = True) -> tuple[Tensor, Tensor]:
    """Values with a constant background, as images have, and gradients of which most are zero, as pooling's are."""
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(shape, generator=generator)
    values = torch.where(torch.rand(shape[0], 1, *shape[2:], generator=generator) < 0.5, values, 0.3) + offset
    gradient = torch.randn(shape, generator=generator) * (torch.rand(shape, generator=generator) < 0.25)
    if len(shape) == 4 and last:
        values, gradient = (t.contiguous(memory_format=torch.channels_last) for t in (values, gradient))
    return values, gradient


def norm_of(shape: tuple[int, ...], **options: Any) -> nn.modules.batchnorm._BatchNorm:
    """A batch norm whose weights are not 1 and 0."""
    norm = NORMS[len(shape)](shape[1], **options)
    with torch.no_grad():
        for weights in norm.parameters():
            weights.copy_(torch.linspace(-1, 2, shape[1]))
    return norm


def passed(norm: nn.Module, values: Tensor, gradient: Tensor) -> dict[str, Tensor]:
    """Output, gradients and buffers after one step of a batch norm."""
    values = values.clone(memory_format=torch.preserve_format).requires_grad_()
    output = norm(values)
    output.backward(gradient)
    assert values.grad is not None
    grads = {name: weights.grad for name, weights in norm.named_parameters() if weights.grad is not None}
    return {"output": output.detach(), "input": values.grad, **grads, **dict(norm.named_buffers())}


def exactly(norm: nn.Module, values: Tensor, gradient: Tensor) -> dict[str, Tensor]:
    with exact_batch_norms(CPU):
        return passed(norm, values, gradient)


def check(found: dict[str, Tensor], wanted: dict[str, Tensor], tolerance: float) -> None:
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        scale = max(float(value.abs().max()), 1e-3)
        assert_close(found[name].double() / scale, value.double() / scale, rtol=0, atol=tolerance, msg=name)


@pytest.mark.parametrize(
    ("shape", "offset", "last", "tolerance"),
    [
        ((128, 16, 28, 28), 0.0, True, 2e-6),
        ((128, 16, 28, 28), 0.0, False, 2e-6),
        ((64, 32, 14, 14), 1000.0, True, 2e-5),
        ((7, 3, 5, 9), -50.0, True, 2e-6),
        ((2, 5, 1, 1), 0.0, True, 2e-6),
        ((50, 6), 1000.0, False, 2e-5),
        ((8, 4, 11), 0.0, False, 2e-6),
        ((3, 2, 4, 3, 5), 0.0, False, 2e-6),
    ],
)
def test_values_gradients_and_statistics_are_those_of_float64(
    shape: tuple[int, ...], offset: float, last: bool, tolerance: float
) -> None:
    values, gradient = draw(shape, offset, last)
    wanted = passed(norm_of(shape).double(), values.double().contiguous(), gradient.double().contiguous())
    found = exactly(norm_of(shape), values, gradient)
    check(found, wanted, tolerance)
    assert found["output"].stride() == found["input"].stride() == values.stride()


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.bfloat16, 1e-2), (torch.float16, 1e-3)]
)
def test_other_precisions_keep_their_digits(dtype: torch.dtype, tolerance: float) -> None:
    shape = (16, 6, 9, 9)
    values, gradient = (t.to(dtype) for t in draw(shape, 3.0))
    norm = norm_of(shape).double() if dtype == torch.float64 else norm_of(shape)
    found = exactly(norm, values, gradient)
    assert found["output"].dtype == found["input"].dtype == dtype
    check(found, passed(norm_of(shape).double(), values.double(), gradient.double()), tolerance)


def test_gradients_are_those_of_differences() -> None:
    values = draw((4, 3, 2, 3))[0].double().requires_grad_()
    weight, bias = (torch.linspace(-1, 2, 3, dtype=torch.float64).requires_grad_() for _ in range(2))

    def of(*given: Tensor) -> Tensor:
        return batch_norm(given[0], None, None, given[1], given[2], True, world=World())

    assert torch.autograd.gradcheck(of, (values, weight, bias))
    slope = torch.autograd.grad(of(values, weight, bias).square().sum(), values, create_graph=True)[0]
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()


@pytest.mark.parametrize(
    "options",
    [
        {"momentum": 0.3},
        {"momentum": None},
        {"affine": False},
        {"track_running_stats": False},
        {"eps": 0.1},
    ],
)
def test_modules_keep_their_options_and_statistics(options: dict[str, Any]) -> None:
    shape = (6, 4, 5, 5)
    ours, theirs = norm_of(shape, **options), norm_of(shape, **options)
    for offset in (0.0, 2.0, -1.0):
        values, gradient = draw(shape, offset)
        check(exactly(ours, values, gradient), passed(theirs, values.contiguous(), gradient), 2e-6)
    ours.eval(), theirs.eval()
    with exact_batch_norms(CPU):
        assert_close(ours(values), theirs(values))


def test_one_value_per_channel_is_refused_as_torch_does() -> None:
    with exact_batch_norms(CPU), pytest.raises(ValueError, match="more than 1 value per channel"):
        norm_of((1, 3, 1, 1))(torch.zeros(1, 3, 1, 1))


def test_norms_that_activate_too_are_exact_and_stay_what_they_are() -> None:
    class Activated(nn.BatchNorm2d):
        def forward(self, input: Tensor) -> Tensor:
            told = (self.running_mean, self.running_var, self.weight, self.bias, self.training)
            return functional.batch_norm(input, *told).relu_()

    shape = (128, 16, 28, 28)
    values, gradient = draw(shape)
    wanted = passed(Activated(16).double(), values.double(), gradient.double())
    check(exactly(Activated(16), values, gradient), wanted, 2e-6)


class Together(World):
    """Processes of a test that are threads."""

    def meet(self, barrier: threading.Barrier, parts: dict[int, Tensor]) -> Together:
        object.__setattr__(self, "barrier", barrier)
        object.__setattr__(self, "parts", parts)
        return self

    def gather_equal(self, value: Tensor) -> Tensor:
        held: dict[int, Tensor] = self.__dict__["parts"]
        held[self.rank] = value
        self.__dict__["barrier"].wait(10)
        whole = torch.stack([held[rank] for rank in range(self.size)])
        self.__dict__["barrier"].wait(10)
        return whole


@pytest.mark.parametrize("sizes", [(3, 4), (1, 6, 0)])
def test_the_batch_of_all_processes_is_one_batch(sizes: tuple[int, ...]) -> None:
    shape = (7, 3, 4, 4)
    values, gradient = draw(shape, 20.0)
    values[:3] += 5  # the means of the parts differ
    wanted = passed(norm_of(shape).double(), values.double(), gradient.double())
    barrier, parts = threading.Barrier(len(sizes)), dict[int, Tensor]()

    def one(rank: int, values: Tensor, gradient: Tensor) -> dict[str, Tensor]:
        with exact_batch_norms(CPU, Together(rank, len(sizes)).meet(barrier, parts)):
            return passed(norm_of(shape), values, gradient)

    with ThreadPoolExecutor(len(sizes)) as pool:
        found = list(pool.map(one, range(len(sizes)), values.split(sizes), gradient.split(sizes)))
    whole = {
        name: torch.cat([part[name] for part in found])
        if name in ("output", "input")
        else sum((part[name] for part in found), torch.zeros(()))
        if name in ("weight", "bias")
        else found[0][name]
        for name in wanted
    }
    check(whole, wanted, 2e-6)
