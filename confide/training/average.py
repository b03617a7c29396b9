"""A running mean of the weights over the last steps: what is validated, chosen and kept where it is asked for."""

from __future__ import annotations

import copy
import math
from itertools import chain

import torch
from torch import Tensor, nn


class WeightAverage:
    """Mean of the weights, a <- a + s (w - a): the plain mean of the first steps, then with a memory of `reach` steps.

    Running statistics of batch norms are averaged as weights are; counters are copied.
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
        live = list(chain(model.parameters(), model.buffers()))
        own = list(chain(self.model.parameters(), self.model.buffers()))
        moving = [i for i, value in enumerate(own) if value.is_floating_point()]
        difference = torch._foreach_sub([live[i].detach() for i in moving], [own[i] for i in moving])
        torch._foreach_mul_(difference, share)
        torch._foreach_add_([own[i] for i in moving], difference)
        for i, value in enumerate(own):
            if not value.is_floating_point():
                value.copy_(live[i])

    def tensors(self) -> dict[str, Tensor]:
        """All of it by name, for a checkpoint."""
        return {"average_steps": self.steps, **{f"average.{k}": v for k, v in self.model.state_dict().items()}}

    def restore(self, weights: dict[str, Tensor], steps: Tensor) -> None:
        """Put back what `tensors` gave, in place."""
        self.model.load_state_dict(weights)
        self.steps.copy_(steps)
