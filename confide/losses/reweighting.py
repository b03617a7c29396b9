"""Cross-entropy whose samples weigh differently: by the size of their class (class-balanced) or by the worst group
(group DRO).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from confide.checks import InputError, tensor_with_graph
from confide.losses.base import LossModule, as_function, check_groups, loss, stateful_loss
from confide.simplex.reference import LossValues, accumulator
from confide.simplex.statistics import fused, simplex_statistics
from confide.types import Labels, Logits, PerSample

# By the size of the class.


@loss(
    "class_balanced",
    paper="Cui et al., 2019, arXiv:1901.05555",
    corners=({"beta": 0.0}, {"beta": 0.9999}, {"form": "softmax_bce"}, {"form": "focal"}),
    ranges={"beta": (0.0, 1.0 - 1e-12), "gamma": (0.0, 100.0)},
    choices={"form": ("paper", "softmax_bce", "focal")},
)
def class_balanced(
    logits: Logits, labels: Labels, *, beta: float = 0.9999, form: str = "paper", gamma: float = 2.0, class_counts: Any
) -> LossValues:
    """Class-balanced cross-entropy, -w_y log p_y with w_k = (1 - beta) / (1 - beta^n_k), rescaled to sum to c.

    The mean divides by the number of samples, not by the sum of weights.

    When: classes differ in size by tens and rare ones count as much.
    When not: probabilities must be right for the natural shares of the classes: the weights change them.

    Args:
        beta: 0 weighs all classes alike, near 1 by inverse frequency.
        form: `softmax_bce` and `focal` reproduce the PyTorch port: binary cross-entropy on the softmax averaged over
            classes, and the sum over classes of sigmoid focal terms.
        gamma: of `form="focal"` only.
        class_counts: training samples of each class.

    Example:
        >>> confide.losses.class_balanced([[2.0, 0.0], [0.0, 1.0]], [0, 1], class_counts=[900, 100], beta=0.99)
        tensor([0.0985, 0.3834])
    """
    weight = _cached_class_weights(logits, class_counts, beta)
    if form == "paper":
        if (whole := fused(logits, labels, "cross_entropy", table=weight)) is not None:
            return whole
        log_p = simplex_statistics(logits, labels, "log_p_true").log_p_true
        return -weight[labels.clamp(0, logits.shape[1] - 1)] * log_p
    simplex_statistics(logits.detach(), labels, "log_p_true")
    labels = labels.clamp(0, logits.shape[1] - 1)
    logits = logits.to(weight.dtype)
    onehot = functional.one_hot(labels, logits.shape[1]).to(logits.dtype)
    if form == "softmax_bce":
        terms = functional.binary_cross_entropy(logits.softmax(dim=1), onehot, reduction="none").mean(dim=1)
    else:
        signed = torch.where(onehot > 0, logits, -logits)
        # 1 - q = sigmoid(-signed), so that the power stays smooth where q rounds to 1.
        fading = torch.exp(gamma * functional.logsigmoid(-signed))
        terms = -(fading * functional.logsigmoid(signed)).sum(dim=1)
    return weight[labels] * terms


_LAST_CLASS_WEIGHTS: dict[str, tuple[Any, ...]] = {}
"""Of the last call: the same counts come with every batch, and a copy to a GPU would wait for it."""


def _cached_class_weights(logits: Logits, class_counts: Any, beta: float) -> Tensor:
    """The weights on the logits' device, those of the last call where nothing has changed."""
    key = (logits.shape[1], beta, logits.device, logits.dtype)
    # Under the compiler counts are constants; elsewhere they may have been changed in place.
    mark = 0 if torch.compiler.is_compiling() else _version_of_counts(class_counts)
    counts, last, last_mark, weight = _LAST_CLASS_WEIGHTS.get("weights", (None, None, None, None))
    if counts is not class_counts or last != key or (last_mark != mark and not torch.compiler.is_compiling()):
        weights = class_balance_weights(_check_counts(class_counts, logits.shape[1]), beta)
        weight = weights.to(logits.device, accumulator(logits.dtype))
        _LAST_CLASS_WEIGHTS["weights"] = (class_counts, key, mark, weight)
    current: Tensor = weight
    return current


def _version_of_counts(class_counts: Any) -> Any:
    """What changes when counts change in place; a tensor is not read, since a device would have to be waited for."""
    if isinstance(class_counts, Tensor):
        return object() if class_counts.is_inference() else class_counts._version
    if hasattr(class_counts, "__array__"):
        return np.asarray(class_counts).tobytes()
    return tuple(class_counts) if isinstance(class_counts, list) else 0


def _check_counts(class_counts: Any, num_classes: int) -> Tensor:
    counts = tensor_with_graph(class_counts, "class_counts").double()
    if counts.shape != (num_classes,):
        raise InputError(
            f"class_counts must be {num_classes} numbers, one per class, got shape {tuple(counts.shape)}; "
            "count the labels of the training set"
        )
    if counts.device.type == "cpu" and not bool((counts >= 1).all()):
        bad = int((~(counts >= 1)).nonzero()[0])
        raise InputError(f"class_counts must be at least 1, got {counts[bad].item():g} for class {bad}; merge it")
    return counts


def class_balance_weights(counts: Tensor, beta: float) -> Tensor:
    """w_k = (1 - beta) / (1 - beta^n_k) in float64, rescaled to sum to the number of classes; beta = 0 gives ones."""
    # expm1: near beta = 1 the difference 1 - beta^n would lose its digits.
    effective = -torch.expm1(counts.double() * (math.log(beta) if beta else -math.inf))
    weights = (1 - beta) / effective
    return weights * (len(counts) / weights.sum())


# By the worst group.


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

    When: groups are known in training and the worst one decides.
    When not: groups are tiny, or the mean over all samples is what counts.

    Args:
        groups: of each sample of the batch, 0 .. num_groups - 1; comes with every call.
        num_groups: how many groups there are.
        step_size: the step of q. Default: released code.
        adjustment: the C of the generalisation adjustment C / sqrt(n_g), added to every group's loss.
        group_counts: n_g over the training set, for the adjustment.
        normalize_loss: divide the group losses by their sum in the step of q only.

    Example:
        >>> confide.losses.group_dro([[2.0, 0.0], [0.0, 1.0]], [0, 0], groups=[0, 1], step_size=1.0)
        tensor([0.0594, 2.0121])
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
            counts = tensor_with_graph(() if group_counts is None else group_counts, "group_counts").double()
            if counts.shape != (num_groups,) or not bool((counts > 0).all()):
                raise InputError(
                    f"an adjustment needs group_counts: {num_groups} positive numbers, one per group, "
                    f"got {'none' if group_counts is None else counts.tolist()}; count the groups of the training set"
                )
            shift = adjustment / counts.sqrt()
        self.register_buffer("shift", shift)

    def values(self, logits: Logits, labels: Labels, **needs: Any) -> PerSample:
        groups = check_groups(needs["groups"].to(logits.device), len(self.q))
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


group_dro = as_function(GroupDRO)
