"""Entropy regularisation: of every sample alike, by the difficulty of the sample, and with a strength that follows
the calibration gap.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from confide.checks import InputError, as_tensor
from confide.losses.base import LossModule, as_function, check_groups, check_validation, loss, stateful_loss
from confide.losses.focal import AdaFocal
from confide.simplex.reference import LossValues, accumulator
from confide.simplex.statistics import fused, simplex_statistics
from confide.types import Labels, Logits


@loss(
    "entropy_regularization",
    paper="Pereyra et al., 2017, arXiv:1701.06548",
    corners=({"alpha": 0.0}, {"alpha": 1.0}),
    ranges={"alpha": (0.0, 1e6)},
    soft=True,
)
def entropy_regularization(logits: Logits, labels: Labels, *, alpha: float = 0.1) -> LossValues:
    """Cross-entropy less alpha times the entropy of the prediction, -log p_y - alpha H(p), natural logarithm.

    When: one option shall make a network less sure, without other data.
    When not: alpha cannot be tried on validation data: a little too much makes the network far too unsure.

    Args:
        alpha: how much spread is rewarded; 0 is cross-entropy. Default: the ImageNet baseline of Cui et al., 2023.

    Example:
        >>> confide.losses.entropy_regularization([[2.0, 0.0], [0.0, 1.0]], [0, 0])
        tensor([0.0904, 1.2550])
    """
    if (whole := fused(logits, labels, "entropy", b=-alpha)) is not None:
        return whole
    statistics = simplex_statistics(logits, labels, "log_p_true entropy")
    return -statistics.log_p_true - alpha * statistics.entropy


@loss(
    "difficulty_entropy",
    paper="Cui et al., 2023, Learning Sample Difficulty from Pre-trained Models, arXiv:2304.10127",
    corners=({"alpha": 0.0}, {"alpha": 1.0}),
    ranges={"alpha": (0.0, 1e6)},
    soft=True,
)
def difficulty_entropy(logits: Logits, labels: Labels, *, alpha: float = 0.3, weights: Tensor) -> LossValues:
    """Cross-entropy less alpha times the difficulty weight times the entropy, -log p_y - alpha s H(p).

    When: features of a pre-trained network are there: hard samples are pulled to doubt, easy ones are not.
    When not: alpha cannot be tried on validation data: too strong ruins calibration.

    Args:
        alpha: how much spread is rewarded on the hardest sample. Default: CIFAR of the paper; ImageNet there: 0.2.
        weights: s in [0, 1], one per sample, a constant; `confide.difficulty.weights` makes them from scores.

    Raises:
        InputError: weights outside [0, 1].

    Example:
        >>> confide.losses.difficulty_entropy([[2.0, 0.0], [0.0, 1.0]], [0, 0], weights=[0.0, 1.0])
        tensor([0.1269, 1.1386])
    """
    # A look at the values would end the graph of a compiler, and on a GPU wait for the device.
    seen = torch.aminmax(weights) if weights.is_cpu and len(weights) and not torch.compiler.is_compiling() else None
    if seen is not None and not (seen.min.item() >= 0 and seen.max.item() <= 1):
        bad = int((~((weights >= 0) & (weights <= 1))).nonzero()[0])
        raise InputError(
            f"weights must lie in [0, 1], got {weights[bad].item():g} at sample {bad} of {len(weights)}; "
            "make them with confide.difficulty.weights"
        )
    if (whole := fused(logits, labels, "entropy", vector=weights, b=-alpha)) is not None:
        return whole
    statistics = simplex_statistics(logits, labels, "log_p_true entropy")
    strength = alpha * weights.to(device=logits.device, dtype=statistics.entropy.dtype)
    return -statistics.log_p_true - strength * statistics.entropy


# Adaptive difficulty: the strength follows the calibration of validation samples, group by group.

SMALLEST_DOUBT = 1e-12
"""Below it the strength is 0: the logarithm of its formula has no end."""


@stateful_loss(
    "adaptive_difficulty",
    paper="Confide, benchmarks/results/findings.md, after Cui et al., 2023, and Ghosh et al., 2022",
    corners=({"num_groups": 1}, {"start": 0.3}, {"start": 0.05, "base": "adafocal"}, {"rate": 0.0}),
    ranges={
        "num_groups": (1, 1e4),
        "rate": (0.0, 1e2),
        "start": (0.0, 0.45),
        "most": (0.0, 0.45),
        "noise": (0.0, 1e2),
        "update_every": (0, 1e9),
    },
    choices={"base": ("cross_entropy", "adafocal")},
)
class AdaptiveDifficulty(LossModule):
    """Adaptive difficulty, -log p_y - alpha_g H(p), where the strength of difficulty group g is set by its doubt e_g.

    A sample of doubt e is fitted when its probability is 1 - e and the rest is spread evenly; the strength whose
    minimum lies there is alpha = 1 / ((1 - e) log((c - 1) (1 - e) / e)). `update` moves e_g by rate times the group's
    gap, mean confidence less accuracy of its validation samples: where the network is too sure it is taught to doubt.
    The gap of a group is that of all samples plus its own deviation d, taken as d max(0, 1 - (noise s / d)^2) with s
    its standard error, so that a group within noise moves with the others. e stays in [0, most]; at 0 the loss is its
    base.

    When: difficulty scores of the training samples are there and the network shall be calibrated as trained.
    When not: there is no validation split to set the doubts by.

    Args:
        groups: of each sample of the batch, 0 .. num_groups - 1; comes with every call.
        num_groups: how many groups of difficulty there are.
        rate: the share of the gap that a step takes away; an update sees the step before only in part, so below 1.
        start: the doubt of every group before the first update.
        most: the largest doubt. Default: 0.3 cost likelihood on CIFAR-10 (benchmarks/results/findings.md).
        noise: how many standard errors a group's own deviation must exceed to count; 0 takes every gap as it is.
        base: what is regularised: `cross_entropy`, or `adafocal`, which adapts to the same validation predictions.
        update_every: the loop calls `update` after every so many batches; 0: once at the end of an epoch.

    Example:
        >>> confide.losses.adaptive_difficulty([[2.0, 0.0], [0.0, 1.0]], [0, 0], groups=[0, 1], start=0.05)
        tensor([-0.0037,  1.1051])
    """

    needs = ("groups",)
    doubts: Tensor

    def __init__(
        self,
        *,
        num_groups: int = 5,
        rate: float = 0.5,
        start: float = 0.0,
        most: float = 0.1,
        noise: float = 1.0,
        base: str = "cross_entropy",
        update_every: int = 0,
    ) -> None:
        super().__init__()
        self.rate, self.most, self.noise, self.update_every = float(rate), float(most), float(noise), int(update_every)
        self.register_buffer("doubts", torch.full((int(num_groups),), float(start), dtype=torch.float64))
        self.focal = AdaFocal() if base == "adafocal" else None

    def strengths(self, num_classes: int) -> Tensor:
        """alpha of every group for this number of classes."""
        # With few classes even a uniform prediction leaves little doubt to ask for.
        doubt = self.doubts.clamp(SMALLEST_DOUBT, 0.9 * (num_classes - 1) / num_classes)
        alpha = 1 / ((1 - doubt) * torch.log((num_classes - 1) * (1 - doubt) / doubt))
        return torch.where(self.doubts > SMALLEST_DOUBT, alpha, torch.zeros_like(alpha))

    def values(self, logits: Logits, labels: Labels, **needs: Any) -> LossValues:
        groups = check_groups(needs["groups"].to(logits.device), len(self.doubts))
        strength = self.strengths(logits.shape[1]).to(logits.device, accumulator(logits.dtype))[groups]
        if self.focal is not None:
            statistics = simplex_statistics(logits, labels, "log_p_true entropy")
            return self.focal.from_log_p(statistics.log_p_true) - strength.to(statistics.entropy) * statistics.entropy
        if (whole := fused(logits, labels, "entropy", vector=strength, b=-1.0)) is not None:
            return whole
        statistics = simplex_statistics(logits, labels, "log_p_true entropy")
        return -statistics.log_p_true - strength * statistics.entropy

    @torch.no_grad()
    def update(self, val_logits: Logits, val_labels: Labels, *, groups: Tensor) -> None:
        """Move the doubts by the gaps of predictions on the whole validation set, whose samples have these groups."""
        logits, labels = check_validation(val_logits, val_labels)
        groups = check_groups(as_tensor(groups, "validation groups").cpu(), len(self.doubts))
        if groups.shape != labels.shape or not len(labels):
            raise InputError(
                f"validation groups must be one group for each validation sample, at least one, got shape "
                f"{tuple(groups.shape)} for {len(labels)} samples"
            )
        statistics = simplex_statistics(logits.double(), labels, "p_max prediction")
        gap = self._gaps(statistics.p_max, (statistics.prediction == labels).double(), groups)
        self.doubts.copy_((self.doubts.cpu() + self.rate * gap).clamp(0.0, self.most))
        if self.focal is not None:
            self.focal.update(logits, labels)

    def _gaps(self, confidence: Tensor, correct: Tensor, groups: Tensor) -> Tensor:
        """The gap of every group: that of all samples, and of its own deviation what stands out of the noise."""

        def sums(values: Tensor) -> Tensor:
            return torch.zeros(len(self.doubts), dtype=torch.float64).index_add(0, groups, values)

        counts = sums(torch.ones_like(correct)).clamp_min(1)
        overall = (confidence - correct).mean()
        own = sums(confidence - correct - overall) / counts
        # What a calibrated network with these confidences would show; an empty group has no deviation.
        error = self.noise * sums(confidence * (1 - confidence)).sqrt() / counts
        beyond_noise = (1 - (error / own.abs().clamp_min(SMALLEST_DOUBT)).square()).clamp_min(0)
        return overall + own * beyond_noise

    def log(self) -> dict[str, float]:
        """Columns of a training log: the doubt of every group, AdaFocal's gammas."""
        columns = {f"doubt{i}": value for i, value in enumerate(self.doubts.tolist())}
        return columns if self.focal is None else columns | self.focal.log()


adaptive_difficulty = as_function(AdaptiveDifficulty)
