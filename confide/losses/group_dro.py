"""Group distributionally robust optimisation."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from confide.core.door import InputError, numbers
from confide.core.shapes import Labels, Logits, PerSample
from confide.core.simplex import simplex_statistics
from confide.core.simplex_plain import BAD_NUMBER, set_flag
from confide.losses.family import LossModule, one_call, stateful_loss


@stateful_loss(
    "group_dro",
    paper="Sagawa et al., 2020, arXiv:1911.08731",
    corners=({"step_size": 0.0}, {"step_size": 1.0}, {"num_groups": 5}, {"normalize_loss": True}),
    ranges={"num_groups": (1, 1e7), "step_size": (0.0, 1e3), "adjustment": (0.0, 1e6)},
    batch=True,
)
class GroupDRO(LossModule):
    """Group DRO, sum_g q_g L_g with L_g the group's mean cross-entropy and q_g <- q_g exp(step L_g), normalised.

    q moves first (without gradient), then the loss is formed. The value of a sample is n q_g / n_g times its
    cross-entropy (plus the adjustment's constant), so that the mean over the batch is the loss. In eval mode q stays.

    Args:
        num_groups: how many groups there are; calls bring `groups`, indices 0 .. num_groups - 1.
        step_size: the step of q. Default: released code.
        adjustment: the C of the generalisation adjustment C / sqrt(n_g), added to every group's loss.
        group_counts: n_g over the training set, for the adjustment.
        normalize_loss: divide the group losses by their sum in the step of q only.
    """

    needs = ("groups",)
    q: Tensor
    shift: Tensor

    def __init__(
        self,
        *,
        num_groups: int = 2,
        step_size: float = 0.01,
        adjustment: float = 0.0,
        group_counts: Any = None,
        normalize_loss: bool = False,
    ) -> None:
        super().__init__()
        self.step_size, self.normalize_loss = float(step_size), normalize_loss
        self.register_buffer("q", torch.full((int(num_groups),), 1.0 / num_groups, dtype=torch.float64))
        shift = torch.zeros(int(num_groups), dtype=torch.float64)
        if adjustment:
            counts = numbers(() if group_counts is None else group_counts, "group_counts").double()
            if counts.shape != (num_groups,) or not bool((counts > 0).all()):
                raise InputError(
                    f"an adjustment needs group_counts: {num_groups} positive numbers, one per group, "
                    f"got {'none' if group_counts is None else counts.tolist()}; count the groups of the training set"
                )
            shift = adjustment / counts.sqrt()
        self.register_buffer("shift", shift)

    def values(self, logits: Logits, labels: Labels, **needs: Any) -> PerSample:
        groups = self._check_groups(needs["groups"].to(logits.device))
        entropy = -simplex_statistics(logits, labels, "log_p_true").log_p_true
        counts = torch.zeros_like(self.q).index_add(0, groups, torch.ones_like(entropy, dtype=self.q.dtype))
        sums = torch.zeros_like(self.q).index_add(0, groups, entropy.detach().to(self.q.dtype))
        if self.training:
            self._step(sums / counts.clamp_min(1) + self.shift)
        share = (self.q / counts.clamp_min(1)).to(entropy.dtype)[groups]
        constant = (self.q * self.shift).sum().to(entropy.dtype)
        return len(entropy) * share * entropy + constant

    def _step(self, group_losses: Tensor) -> None:
        if self.normalize_loss:
            # Where every loss is 0 so is their share: a division would leave NaN in q for good.
            group_losses = group_losses / group_losses.sum().clamp_min(torch.finfo(group_losses.dtype).tiny)
        raised = self.q * torch.exp(self.step_size * (group_losses - group_losses.max()))
        self.q.copy_(raised / raised.sum())

    def _check_groups(self, groups: Tensor) -> Tensor:
        if groups.is_floating_point():
            raise InputError(f"groups must be whole numbers, group indices, got {groups.dtype}")
        groups = groups.to(torch.int64)
        if groups.device.type != "cpu":
            set_flag((groups < 0) | (groups >= len(self.q)), BAD_NUMBER)
        elif len(groups):
            low, high = int(groups.min()), int(groups.max())
            if low < 0 or high >= len(self.q):
                raise InputError(f"groups must lie in [0, {len(self.q)}), got {low} to {high}; set num_groups")
        return groups.clamp(0, len(self.q) - 1)


group_dro = one_call(GroupDRO)
