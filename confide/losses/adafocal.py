"""AdaFocal: focal loss whose gamma follows the calibration gap of validation bins."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from confide.core.shapes import Labels, Logits, PerSample
from confide.core.simplex import fused, one_minus_p, simplex_statistics
from confide.losses.family import LossModule, one_call, stateful_loss
from confide.losses.validation_bins import FUSED_BINS, bin_of_samples, equal_width_edges, validation_bins


@stateful_loss(
    "adafocal",
    paper="Ghosh et al., 2022, arXiv:2211.11838",
    corners=({"bins": 1}, {"bins": 50}, {"rate": 5.0}, {"switch": 0.0}),
    ranges={
        "bins": (1, 10_000),
        "rate": (0.0, 1e3),
        "gamma_min": (-100.0, 0.0),
        "gamma_max": (0.0, 100.0),
        "switch": (0.0, 10.0),
        "update_every": (0, 1e9),
    },
)
class AdaFocal(LossModule):
    """AdaFocal, -(1 - p_y)^g log p_y where the bin's g >= 0, -(1 + p_y)^|g| log p_y where g < 0.

    A training sample's bin is that of p_y among the validation bins, [low, high). `update` re-estimates the bins
    (equal mass of top-label confidence) and moves each bin's g by exp(+-rate * (confidence - accuracy)); a g that
    shrinks below `switch` changes sign; an empty bin keeps its g. g belongs to the bin's index, not to its range.

    Args:
        bins: number of validation bins. Default: the paper's 15.
        rate: the paper's lambda.
        gamma_min: lowest g (inverse focal). Default: released code.
        gamma_max: highest g. Default: the paper's 20.
        switch: the threshold S_th where focal and inverse focal change places. Default: the paper's 0.2.
        update_every: the loop calls `update` after every so many batches; 0: once at the end of an epoch.
    """

    gammas: Tensor
    edges: Tensor

    def __init__(
        self,
        *,
        bins: int = 15,
        rate: float = 1.0,
        gamma_min: float = -2.0,
        gamma_max: float = 20.0,
        switch: float = 0.2,
        update_every: int = 0,
    ) -> None:
        super().__init__()
        self.rate, self.switch, self.update_every = float(rate), float(switch), int(update_every)
        self.gamma_min, self.gamma_max = float(gamma_min), float(gamma_max)
        self.register_buffer("gammas", torch.ones(int(bins), dtype=torch.float64))
        self.register_buffer("edges", equal_width_edges(int(bins)))

    def values(self, logits: Logits, labels: Labels, **needs: Any) -> PerSample:
        if len(self.gammas) <= FUSED_BINS:
            whole = fused(logits, labels, "gammas", self.gammas, self.edges, bins=len(self.gammas))
            if whole is not None:
                return whole
        return self.of(simplex_statistics(logits, labels, "log_p_true").log_p_true)

    def of(self, log_p: PerSample) -> PerSample:
        """The loss of samples whose label has this log-probability."""
        gamma = self.gammas.to(log_p)[bin_of_samples(log_p.detach().exp(), self.edges)]
        base = torch.where(gamma >= 0, one_minus_p(log_p), 1 + log_p.exp())
        return -(base ** gamma.abs()) * log_p

    @torch.no_grad()
    def update(self, val_logits: Logits, val_labels: Labels) -> None:
        """Move the gammas and re-estimate the bins from predictions on the whole validation set."""
        found = validation_bins(val_logits, val_labels, len(self.gammas))
        gammas = self.gammas.double().cpu()
        gap = torch.where(found.counts > 0, found.confidence - found.accuracy, torch.zeros_like(gammas))
        # A sign in the state's float64: rate and switch rounded to float32 could land below the switch and flip again.
        sign = torch.where(gammas > 0, 1.0, -1.0).to(gammas)
        moved = gammas * torch.exp(self.rate * sign * gap)
        moved = torch.where(moved.abs() < self.switch, -self.switch * sign, moved)
        self.gammas.copy_(moved.clamp(self.gamma_min, self.gamma_max))
        self.edges.copy_(found.edges)

    def log(self) -> dict[str, float]:
        """Columns of a training log: the gamma of every bin."""
        return {f"gamma{i}": value for i, value in enumerate(self.gammas.tolist())}


adafocal = one_call(AdaFocal)
