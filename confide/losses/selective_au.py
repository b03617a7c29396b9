"""Selective AU: cross-entropy weighted by a smoothed distribution of confidence up to a threshold."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from confide.core.shapes import Labels, Logits, PerSample
from confide.core.simplex import simplex_statistics, weighted_by_distribution
from confide.core.simplex_plain import accumulator
from confide.losses.aurc import SCORES, scores_of, wanted_by
from confide.losses.family import LossModule, one_call, stateful_loss

SMALLEST_COUNT = 1e-12


@stateful_loss(
    "selective_au",
    paper="Zhou et al., 2025, Revisiting Reweighted Risk for Calibration: AURC, Focal and Inverse Focal Loss",
    corners=(
        {"score": "margin"},
        {"score": "entropy", "coverage": 0.4},
        {"coverage": 0.0},
        {"coverage": 1.0},
        {"smoothing": 0.005},
        {"include_c": True},
        {"accumulate": True},
        {"form": "released"},
        {"detach_weight": True},
    ),
    ranges={"coverage": (0.0, 1.0), "smoothing": (1e-4, 100.0), "bins": (1, 100_000), "batch_size": (1, 1e9)},
    choices={"score": SCORES, "form": ("paper", "released")},
    batch=True,
    aliases={"include_C": "include_c"},
)
class SelectiveAU(LossModule):
    """Selective AU, -b_i log p_y with b_i = -ln(1 - G(min(s_i, t))), G the smoothed distribution of confidence s.

    G(s) = (1/N) sum_m h_m sigmoid((s - c_m) / smoothing) over a histogram h of the batch's scores with centres c_m; t
    is the `coverage` quantile of the batch. The gradient flows through G(s_i) where s_i < t; t and h are constants.

    Args:
        score: `msp` (largest probability), `margin` (to the runner-up), `entropy` (1 - H / ln c).
        coverage: quantile kappa of the batch's scores that the threshold t is.
        smoothing: the width nu of the sigmoid.
        bins: of the histogram on [0, 1], each [low, high), 1 in the last.
        form: `released` applies softmax twice, lets the gradient through t, and its entropy score is always 1.
        include_c: multiply by 1 / G(t), as eqs. 19 and 22 of the paper; its code and appendix leave the factor out.
        accumulate: keep the histogram over the batches of an epoch (training mode); `end_epoch` clears it.
        batch_size: n of the bounds [1/(n+1), n/(n+1)] that G is clamped to. Default: the actual batch.
        detach_weight: no gradient through b_i. With it, every sample lowers its loss by being less sure than the
            others, and a network that starts from nothing ends at equal probabilities (docs/findings.md).
    """

    histogram: Tensor

    def __init__(
        self,
        *,
        score: str = "msp",
        coverage: float = 0.5,
        smoothing: float = 0.05,
        bins: int = 64,
        form: str = "paper",
        include_c: bool = False,
        accumulate: bool = False,
        batch_size: int | None = None,
        detach_weight: bool = False,
    ) -> None:
        super().__init__()
        self.detach_weight = bool(detach_weight)
        self.score, self.form, self.include_c, self.accumulate = score, form, include_c, accumulate
        self.coverage, self.smoothing, self.batch_size = float(coverage), float(smoothing), batch_size
        self.register_buffer("histogram", torch.zeros(int(bins), dtype=torch.float64))

    def values(self, logits: Logits, labels: Labels, **needs: Any) -> PerSample:
        if not len(logits):
            return -simplex_statistics(logits, labels, "log_p_true").log_p_true
        whole = self._fused(logits, labels)
        if whole is not None:
            return whole
        if self.form == "released":
            log_p = simplex_statistics(logits, labels, "log_p_true").log_p_true
            scores = self._released_scores(logits)
        else:
            statistics = simplex_statistics(logits, labels, ("log_p_true", *wanted_by(self.score)))
            log_p, scores = statistics.log_p_true, scores_of(statistics, self.score)
            scores = 1 + scores / math.log(logits.shape[1]) if self.score == "entropy" else scores
        weights = self._weights(scores)
        return -(weights.detach() if self.detach_weight else weights) * log_p

    def _fused(self, logits: Tensor, labels: Tensor) -> Tensor | None:
        """The whole loss by GPU kernels over vectors, for the options they have."""
        if self.form == "released" or self.score != "msp" or self.include_c or self.accumulate or self.detach_weight:
            return None
        size = self.batch_size or len(logits)
        return weighted_by_distribution(logits, labels, self.coverage, self.smoothing, len(self.histogram), size)

    def _released_scores(self, logits: Tensor) -> Tensor:
        if self.score == "entropy":
            return torch.ones(len(logits), dtype=accumulator(logits.dtype), device=logits.device)
        return scores_of(
            simplex_statistics(logits.softmax(dim=1, dtype=accumulator(logits.dtype)), None, wanted_by(self.score)),
            self.score,
        )

    def _weights(self, scores: PerSample) -> PerSample:
        counts = self._counts(scores.detach())
        threshold = torch.quantile(scores if self.form == "released" else scores.detach(), self.coverage)
        # Not minimum(): that would halve the gradient of the sample that equals the threshold.
        capped = torch.where(scores < threshold, scores, threshold.expand_as(scores))
        size = self.batch_size or len(scores)
        low, high = 1 / (size + 1), size / (size + 1)
        weights = -torch.log1p(-self._distribution(capped, counts).clamp(low, high))
        if not self.include_c:
            return weights
        return weights / self._distribution(threshold.detach()[None], counts).clamp(low, high)

    def _counts(self, scores: PerSample) -> Tensor:
        """Histogram of the scores, with what is kept of earlier batches."""
        bins = len(self.histogram)
        inner = torch.linspace(0, 1, bins + 1, dtype=scores.dtype, device=scores.device)[1:-1]
        place = torch.bucketize(scores, inner, right=True)
        counts = torch.zeros_like(self.histogram).index_add(0, place, torch.ones_like(place, dtype=torch.float64))
        if not self.accumulate:
            return counts
        counts = counts + self.histogram
        if self.training:
            self.histogram.copy_(counts)
        return counts

    def _distribution(self, scores: PerSample, counts: Tensor) -> PerSample:
        bins = len(counts)
        centres = (torch.arange(bins, dtype=scores.dtype, device=scores.device) + 0.5) / bins
        share = (counts.clamp_min(SMALLEST_COUNT) / counts.sum()).to(scores.dtype)
        # A product with a vector would be rounded to half precision under autocast.
        return (torch.sigmoid((scores[:, None] - centres) / self.smoothing) * share).sum(dim=1)

    def end_epoch(self) -> None:
        self.histogram.zero_()


selective_au = one_call(SelectiveAU)
