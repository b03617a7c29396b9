"""Correctness ranking loss."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from confide.core.door import InputError
from confide.core.shapes import Labels, Logits, PerSample
from confide.core.simplex import simplex_statistics
from confide.core.simplex_plain import BAD_NUMBER, set_flag
from confide.losses.family import LossModule, one_call, stateful_loss

RELEASED_LOGARITHMS = {10: 2.302585, 100: 4.605170}
"""The released code divides the entropy by these constants for 10 and 100 classes."""


@stateful_loss(
    "crl",
    paper="Moon et al., 2020, arXiv:2007.01687",
    corners=({"score": "margin"}, {"score": "entropy"}, {"weight": 0.0}, {"form": "released"}),
    ranges={"weight": (0.0, 1e6), "num_samples": (0, 1e12)},
    choices={"score": ("msp", "margin", "entropy"), "form": ("paper", "released")},
    batch=True,
)
class CorrectnessRanking(LossModule):
    """Correctness ranking, -log p_y + w max(0, |f_i - f_j| - sign(f_i - f_j)(k_i - k_j)) with j the next in the batch.

    f is the share of past passes in which the sample was predicted correctly, k its confidence now. Every call in
    training mode counts the batch's correct predictions, after the loss is formed; call `end_epoch` after every pass.

    Args:
        score: confidence: `msp` (largest probability), `margin` (to the runner-up), `entropy` (-H / ln c).
        weight: w of the ranking term. Default: released code.
        num_samples: size of the training set, whose ids are 0 .. num_samples - 1; 0: the history grows with the ids.
        form: `released` divides the entropy by 2.302585 (10 classes) or 4.605170 (100) instead of ln c.
    """

    needs = ("ids",)
    counts: Tensor
    passes: Tensor

    def __init__(self, *, score: str = "msp", weight: float = 1.0, num_samples: int = 0, form: str = "paper") -> None:
        super().__init__()
        self.score, self.weight, self.form, self.grows = score, float(weight), form, not num_samples
        self.register_buffer("counts", torch.zeros(int(num_samples), dtype=torch.int64))
        # [largest possible count, passes ended]
        self.register_buffer("passes", torch.tensor([1, 0]))

    def values(self, logits: Logits, labels: Labels, **needs: Any) -> PerSample:
        ids: Tensor = self._check_ids(needs["ids"].to(self.counts.device))
        names = {"msp": ("p_max",), "margin": ("p_max", "p_second"), "entropy": ("entropy", "p_max")}[self.score]
        statistics = simplex_statistics(logits, labels, ("log_p_true", "prediction", *names))
        ranking = self._ranking(statistics.values, logits.shape[1], ids)
        if self.training:
            correct = (statistics.prediction == labels).to(self.counts)
            self.counts.index_add_(0, ids, correct)
        return -statistics.log_p_true + self.weight * ranking

    def _ranking(self, found: dict[str, Tensor], num_classes: int, ids: Tensor) -> PerSample:
        if self.score == "entropy":
            exact = math.log(num_classes)
            divisor = RELEASED_LOGARITHMS.get(num_classes, exact) if self.form == "released" else exact
            confidence = -found["entropy"] / divisor
        else:
            confidence = found["p_max"] - found["p_second"] if self.score == "margin" else found["p_max"]
        share = self._share(ids).to(confidence)
        lead = share - share.roll(-1)
        sign = lead.sign()
        return (lead.abs() - sign * (confidence - confidence.roll(-1))).clamp_min(0) * sign.abs()

    def _share(self, ids: Tensor) -> Tensor:
        """Normalised history, (count - smallest of all) / (largest possible - smallest of all); 0 / 0 is 0."""
        smallest = self.counts.min() if len(self.counts) else self.counts.new_zeros(())
        span = (self.passes[0] - smallest).clamp_min(1)
        return (self.counts[ids] - smallest).double() / span

    def _check_ids(self, ids: Tensor) -> Tensor:
        if ids.is_floating_point():
            raise InputError(f"ids must be whole numbers, positions in the training set, got {ids.dtype}")
        ids = ids.to(torch.int64)
        if ids.device.type != "cpu" and not self.grows:
            set_flag((ids < 0) | (ids >= len(self.counts)), BAD_NUMBER)
            return ids.clamp(0, len(self.counts) - 1)
        if len(ids) and (int(ids.min()) < 0 or (not self.grows and int(ids.max()) >= len(self.counts))):
            raise InputError(
                f"ids must lie in [0, {len(self.counts)}), got {int(ids.min())} to {int(ids.max())}; "
                "set num_samples to the size of the training set"
            )
        if self.grows and len(ids) and int(ids.max()) >= len(self.counts):
            missing = int(ids.max()) + 1 - len(self.counts)
            self.counts = torch.cat([self.counts, self.counts.new_zeros(missing)])
        return ids

    def end_epoch(self) -> None:
        """A pass over the training set has ended: from the second on, the largest possible count rises by one."""
        self.passes[1] += 1
        self.passes[0] += (self.passes[1] > 1).to(self.passes)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        saved = state_dict.get(prefix + "counts")
        if saved is not None and self.grows:
            self.counts = self.counts.new_zeros(saved.shape)
        super()._load_from_state_dict(state_dict, prefix, *rest)


crl = one_call(CorrectnessRanking)
