"""CalFocal: focal loss whose gamma is set by the calibration of validation bins."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from confide.core.shapes import Labels, Logits, PerSample
from confide.core.simplex import fused, simplex_statistics
from confide.losses.family import LossModule, one_call, stateful_loss
from confide.losses.focal import focal_of
from confide.losses.validation_bins import FUSED_BINS, bin_of_samples, equal_width_edges, validation_bins

LARGEST_EXPONENT = 80.0
"""exp of more overflows float32; such a gamma already silences every sample."""


@stateful_loss(
    "calfocal",
    paper="Ghosh et al., 2022, arXiv:2211.11838",
    corners=({"case": 2}, {"rate": 100.0}, {"detach_gamma": False}),
    ranges={"bins": (1, 10_000), "rate": (0.0, 1e3), "update_every": (0, 1e9)},
    choices={"case": (1, 2)},
)
class CalFocal(LossModule):
    """CalFocal, -(1 - p_y)^g log p_y; case 1: g = exp(rate (p_y - A_b)), case 2: g = exp(rate (C_b - A_b)).

    A_b and C_b are accuracy and confidence of the validation bin that p_y falls into; g is 1 while they are unknown.
    An empty bin keeps what was known of it.

    Args:
        case: 1 sets gamma by sample, 2 by bin.
        rate: the paper's lambda; 100 hurts accuracy there.
        bins: number of validation bins, of equal mass.
        detach_gamma: whether gamma is a constant for the gradient (case 1). Default: the paper speaks of assigning it.
        update_every: the loop calls `update` after every so many batches; 0: once at the end of an epoch.
    """

    gammas: Tensor
    edges: Tensor
    accuracy: Tensor
    confidence: Tensor

    def __init__(
        self, *, case: int = 1, rate: float = 1.0, bins: int = 15, detach_gamma: bool = True, update_every: int = 0
    ) -> None:
        super().__init__()
        self.case, self.rate, self.detach_gamma, self.update_every = case, float(rate), detach_gamma, int(update_every)
        self.register_buffer("gammas", torch.ones(int(bins), dtype=torch.float64))
        self.register_buffer("edges", equal_width_edges(int(bins)))
        self.register_buffer("accuracy", torch.full((int(bins),), torch.nan, dtype=torch.float64))
        self.register_buffer("confidence", torch.full((int(bins),), torch.nan, dtype=torch.float64))

    def values(self, logits: Logits, labels: Labels, **needs: Any) -> PerSample:
        whole = self._fused(logits, labels)
        if whole is not None:
            return whole
        log_p = simplex_statistics(logits, labels, "log_p_true").log_p_true
        place = bin_of_samples(log_p.detach().exp(), self.edges)
        if self.case == 2:
            return focal_of(log_p, self.gammas.to(log_p)[place])
        p_true = log_p.detach().exp() if self.detach_gamma else log_p.exp()
        accuracy = self.accuracy.to(log_p)[place]
        gap = torch.where(accuracy.isnan(), torch.zeros_like(p_true), p_true - accuracy.nan_to_num(0.0))
        return focal_of(log_p, torch.exp((self.rate * gap).clamp_max(LARGEST_EXPONENT)))

    def _fused(self, logits: Logits, labels: Labels) -> PerSample | None:
        bins = len(self.gammas)
        if bins > FUSED_BINS or (self.case == 1 and not self.detach_gamma):
            return None
        if self.case == 2:
            return fused(logits, labels, "gammas", self.gammas, self.edges, bins=bins)
        return fused(logits, labels, "accuracies", self.accuracy, self.edges, a=self.rate, bins=bins)

    @torch.no_grad()
    def update(self, val_logits: Logits, val_labels: Labels) -> None:
        """Take bins, accuracy and confidence from predictions on the whole validation set."""
        found = validation_bins(val_logits, val_labels, len(self.accuracy))
        seen = (found.counts > 0).to(self.accuracy.device)
        accuracy = torch.where(seen, found.accuracy.to(self.accuracy), self.accuracy)
        confidence = torch.where(seen, found.confidence.to(self.confidence), self.confidence)
        self.set_bins(found.edges, accuracy, confidence)

    def set_bins(self, edges: Tensor, accuracy: Tensor, confidence: Tensor) -> None:
        """Take bins as they are; NaN where nothing is known of one. `gammas` are those of the bins' mean confidence."""
        self.edges.copy_(edges)
        self.accuracy.copy_(accuracy)
        self.confidence.copy_(confidence)
        gap = (self.confidence - self.accuracy).nan_to_num(0.0)
        self.gammas.copy_(torch.exp((self.rate * gap).clamp_max(LARGEST_EXPONENT)))

    def log(self) -> dict[str, float]:
        """Columns of a training log: the gamma of every bin."""
        return {f"gamma{i}": value for i, value in enumerate(self.gammas.tolist())}


calfocal = one_call(CalFocal)
