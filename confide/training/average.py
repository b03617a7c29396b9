"""A running mean of the weights over the last steps: what is validated, chosen and kept where it is asked for."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


class WeightAverage:
    """Mean of the weights, a <- a + s (w - a): the plain mean of the first steps, then with a memory of `reach` steps.

    `settle` must be called before the mean predicts: it measures the statistics of batch norms anew. Those of the steps
    belong to other weights; their variances are too large for weights whose noise has averaged out (with them a mean
    over three epochs of a ResNet-18 had 63 % on CIFAR-10, one over a single epoch 92 %).
    """

    def __init__(self, model: nn.Module, reach: float) -> None:
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        device = next(model.parameters()).device
        self.share = 1 - math.exp(-1 / reach)
        self.steps = torch.zeros((), dtype=torch.float32, device=device)

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Take in the weights of one more step; all on the device, where a captured graph can repeat it."""
        self.steps += 1
        share = (1 / self.steps).clamp_min(self.share)
        own: list[Tensor] = list(self.model.parameters())
        live = [weights.detach() for weights in model.parameters()]
        difference = list(torch._foreach_sub(live, own))
        torch._foreach_mul_(difference, share)
        torch._foreach_add_(own, difference)

    @torch.no_grad()
    def settle(self, model: nn.Module, batches: Iterable[Tensor]) -> None:
        """Buffers of the model, but batch-norm statistics of the averaged weights themselves: a mean over batches."""
        for value, latest in zip(self.model.buffers(), model.buffers(), strict=True):
            value.copy_(latest)
        norms = [one for one in self.model.modules() if isinstance(one, _BatchNorm) and one.track_running_stats]
        if not norms:
            return
        usual = [norm.momentum for norm in norms]
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # the plain mean of all batches
            norm.train()
        for inputs in batches:
            self.model(inputs)
        for norm, momentum in zip(norms, usual, strict=True):
            norm.momentum = momentum
            norm.eval()

    def tensors(self) -> dict[str, Tensor]:
        """All of it by name, for a checkpoint."""
        return {"average_steps": self.steps, **{f"average.{k}": v for k, v in self.model.state_dict().items()}}

    def restore(self, weights: dict[str, Tensor], steps: Tensor) -> None:
        """Put back what `tensors` gave, in place."""
        self.model.load_state_dict(weights)
        self.steps.copy_(steps)
