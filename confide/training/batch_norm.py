"""Batch norm of a training on the CPU: sums that keep their digits, over the batch of all processes.

For channels-last images torch's own adds up the values of a channel in float32, one after another: of 100,000
the last digits are lost, and gradients of a small CNN are off by a percent (here by 1e-6, at 1.1 times the cost).
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as functional
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.overrides import TorchFunctionMode

from confide.training.distributed import World


def exact_batch_norms(device: torch.device, world: World | None = None) -> AbstractContextManager[object]:
    """A context in which batch norms of any model on the CPU are exact; on a GPU torch's are, and stay."""
    return _ExactBatchNorms(world or World()) if device.type == "cpu" else nullcontext()


class _ExactBatchNorms(TorchFunctionMode):
    """Puts `batch_norm` in the place of torch's, whichever module calls it; models and their files stay as they are."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is functional.batch_norm:
            return batch_norm(*args, **kwargs or {}, world=self.world)
        return func(*args, **kwargs or {})


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    world: World,
) -> Tensor:
    """y = w (x - mean) / sqrt(variance + eps) + b per channel, as `torch.nn.functional.batch_norm`."""
    if not training:
        return functional.batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    # Half precision holds the values, not their statistics.
    values = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
    weight = values.new_ones(values.shape[1]) if weight is None else weight
    bias = values.new_zeros(values.shape[1]) if bias is None else bias
    outputs: tuple[Tensor, ...] = _BatchNorm.apply(values, weight, bias, eps, world)  # type: ignore[no-untyped-call]
    normed, mean, unbiased = outputs
    if running_mean is not None:
        running_mean.lerp_(mean.to(running_mean.dtype), momentum)
    if running_var is not None:
        running_var.lerp_(unbiased.to(running_var.dtype), momentum)
    return normed.to(input.dtype)


class _BatchNorm(torch.autograd.Function):
    """Output, mean and unbiased variance of a batch, the last two in float64 and without gradient.

    d = x - m with m near the mean keeps all digits of large values; what m lacks of the mean is in `offset`.
    """

    @staticmethod
    def forward(
        context: Any, values: Tensor, weight: Tensor, bias: Tensor, eps: float, world: World
    ) -> tuple[Tensor, Tensor, Tensor]:
        count = values.numel() // values.shape[1]
        near = (_sums(values) / max(count, 1)).to(values.dtype)
        centred = values - _per_channel(near, values)
        lack = _sums(centred) / max(count, 1)
        normed = centred * centred  # its memory becomes the output's
        variance = (_sums(normed) / max(count, 1) - lack.square()).clamp_min(0)
        mean, variance, whole = _merged(near + lack, variance, count, world)
        if whole <= 1:
            raise ValueError(f"Expected more than 1 value per channel when training, got input size {values.size()}")
        offset, inverse = mean - near, torch.rsqrt(variance + eps)
        scale = weight * inverse
        torch.addcmul(_per_channel(bias - offset * scale, values), centred, _per_channel(scale, values), out=normed)
        context.save_for_backward(centred, weight, inverse, offset)
        context.whole, context.world = whole, world
        unbiased = variance * (whole / (whole - 1))
        context.mark_non_differentiable(mean, unbiased)
        context.set_materialize_grads(False)
        return normed, mean, unbiased

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradient: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        """dx = w / std (dy - mean(dy) - xhat mean(dy xhat)), the means over all processes; dw and db of this one."""
        if gradient is None:
            return (None,) * 5
        centred, weight, inverse, offset = context.saved_tensors
        plain = _sums(gradient)
        slope = centred * gradient  # its memory becomes dx's
        along = (_sums(slope) - offset * plain) * inverse
        means = context.world.gather_equal(torch.stack([plain, along])).sum(dim=0) / context.whole
        scale = weight * inverse
        tilt = -scale * inverse * means[1]
        level = -scale * means[0] - tilt * offset
        torch.addcmul(_per_channel(level, centred), centred, _per_channel(tilt, centred), out=slope)
        slope.addcmul_(gradient, _per_channel(scale, centred))
        return slope, along.to(weight.dtype), plain.to(weight.dtype), None, None


def _sums(values: Tensor) -> Tensor:
    """Sums per channel: over an image in pieces of float32, over images in float64."""
    images = values.reshape(*values.shape[:2], math.prod(values.shape[2:]))
    return images.sum(dim=2).sum(dim=0, dtype=torch.float64)


def _merged(mean: Tensor, variance: Tensor, count: int, world: World) -> tuple[Tensor, Tensor, int]:
    """Mean, variance and count of the parts of all processes together (Chan et al., 1983)."""
    if world.size == 1:
        return mean, variance, count
    parts = world.gather_equal(torch.stack([mean, variance, torch.full_like(mean, count)]))
    means, variances, counts = parts.unbind(dim=1)
    whole = int(counts[:, 0].sum())
    shares = counts / max(whole, 1)
    mean = (shares * means).sum(dim=0)
    return mean, (shares * (variances + (means - mean).square())).sum(dim=0), whole


def _per_channel(value: Tensor, like: Tensor) -> Tensor:
    """A value per channel in the dtype of `like`, to be broadcast over its other dimensions."""
    return value.to(like.dtype).view(-1, *[1] * (like.ndim - 2))
