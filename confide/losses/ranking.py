"""Losses that rank the samples of a batch by confidence: AURC, selective AU, and correctness ranking (CRL)."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch import Tensor

from confide.checks import InputError
from confide.losses.base import LossModule, as_function, loss, stateful_loss
from confide.simplex.reference import BAD_NUMBER, FusedLoss, LossValues, accumulator, set_flag
from confide.simplex.small import SMALLEST_COUNT
from confide.simplex.statistics import Statistics, simplex_statistics, weighted_by_distribution, weighted_by_rank
from confide.types import Labels, Logits, PerSample

# AURC: cross-entropy weighted by the rank of confidence.

SCORES = ("msp", "margin", "entropy")


@loss(
    "aurc",
    paper="Zhou et al., 2025, Revisiting Reweighted Risk for Calibration: AURC, Focal and Inverse Focal Loss",
    corners=({"score": "margin"}, {"score": "entropy"}, {"weights_form": "log"}, {"form": "released"}),
    choices={"score": SCORES, "weights_form": ("harmonic", "log"), "form": ("paper", "released")},
    batch=True,
)
def aurc(
    logits: Logits, labels: Labels, *, score: str = "msp", weights_form: str = "harmonic", form: str = "paper"
) -> LossValues:
    """AURC loss, -a_r log p_y with a_r = H_n - H_(n-r), r the ascending rank of confidence in the batch (detached).

    The most confident sample weighs H_n, the least 1/n.

    When: selective prediction is the goal and other losses have been tried.
    When not: it is the first choice: on CIFAR-10 it lost five points of accuracy and had a higher AURC than
    cross-entropy.

    Differs from the released code: the weights are those of the actual batch, also when the last one is smaller, and
    softmax is applied once (see the errata).

    Args:
        score: confidence that ranks: `msp` (largest probability), `margin` (to the runner-up), `entropy` (negative).
        weights_form: `log` takes a_r = -ln(1 - r / (n + 1)), the same for large n.
        form: `released` applies softmax twice before the score, as the public code does.

    Example:
        >>> confide.losses.aurc([[2.0, 0.0], [0.0, 1.0]], [0, 0])
        tensor([0.1904, 0.6566])
    """
    if form == "released":
        with torch.no_grad():
            ranking = released_scores(logits, score)
        log_p = simplex_statistics(logits, labels, "log_p_true").log_p_true
    else:
        whole = weighted_by_rank(
            logits, labels, score, functools.partial(_cached_rank_weights, logits.device, weights_form)
        )
        if whole is not None:
            return whole
        statistics = simplex_statistics(logits, labels, ("log_p_true", *statistics_of_score(score)))
        log_p, ranking = statistics.log_p_true, scores_of(statistics, score).detach()
    return -rank_weights(ranking, weights_form).to(log_p.dtype) * log_p


def statistics_of_score(score: str) -> tuple[str, ...]:
    """Statistics that a confidence score is made of."""
    return {"msp": ("p_max",), "margin": ("p_max", "p_second"), "entropy": ("entropy",)}[score]


def scores_of(statistics: Statistics, score: str) -> PerSample:
    """Confidence, high = sure: largest probability, its lead over the runner-up, or minus the entropy."""
    if score == "msp":
        return statistics.p_max
    if score == "margin":
        return statistics.p_max - statistics.p_second
    return -statistics.entropy


def released_scores(logits: Logits, score: str) -> PerSample:
    """The score as the released code of AURC computes it: of softmax probabilities that it takes for logits."""
    probs = logits.softmax(dim=1, dtype=accumulator(logits.dtype))
    return scores_of(simplex_statistics(probs, None, statistics_of_score(score)), score)


def rank_weights(ranking: Tensor, weights_form: str) -> Tensor:
    """The weight a_r of every sample by its ascending rank r = 1..n; ties in input order."""
    by_rank = weights_by_rank(ranking.device, weights_form, len(ranking))
    return torch.empty_like(by_rank).scatter_(0, ranking.argsort(stable=True), by_rank)


def weights_by_rank(device: torch.device, weights_form: str, n: int) -> Tensor:
    """a_1 to a_n in float64."""
    steps = torch.arange(1, n + 1, device=device, dtype=torch.float64)
    # H_n - H_(n-r) = 1/n + 1/(n-1) + ... + 1/(n-r+1)
    return steps.flip(0).reciprocal().cumsum(0) if weights_form == "harmonic" else -torch.log1p(-steps / (n + 1))


_LAST_RANK_WEIGHTS: dict[tuple[torch.device, str, int], Tensor] = {}
"""Of the last call: all batches but the last of an epoch have one size, and making the weights may take longer
than the loss."""


def _cached_rank_weights(device: torch.device, weights_form: str, n: int) -> Tensor:
    """The weights of the last call; what is made while a CUDA graph is captured belongs to the graph."""
    key = (device, weights_form, n)
    if key not in _LAST_RANK_WEIGHTS:
        by_rank = weights_by_rank(device, weights_form, n)
        if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            return by_rank
        _LAST_RANK_WEIGHTS.clear()
        _LAST_RANK_WEIGHTS[key] = by_rank
    return _LAST_RANK_WEIGHTS[key]


# Selective AU: the weights are a smooth function of confidence, up to the confidence at a coverage.


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

    When: the paper's claims are to be checked; `form="released"` learns.
    When not: a network is trained from nothing: in the paper's form it stayed at chance on CIFAR-10.

    Differs from the released code: softmax once and the gradient through G (see the errata).

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
            others, and a network that starts from nothing ends at equal probabilities (benchmarks/results/findings.md).

    Example:
        >>> confide.losses.selective_au([[2.0, 0.0], [0.0, 1.0]], [0, 0])
        tensor([0.0889, 0.5325])
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

    def values(self, logits: Logits, labels: Labels, **needs: Any) -> LossValues:
        if not len(logits):
            return -simplex_statistics(logits, labels, "log_p_true").log_p_true
        if (whole := self._fused(logits, labels)) is not None:
            return whole
        if self.form == "released":
            log_p = simplex_statistics(logits, labels, "log_p_true").log_p_true
            scores = self._released_scores(logits)
        else:
            statistics = simplex_statistics(logits, labels, ("log_p_true", *statistics_of_score(self.score)))
            log_p, scores = statistics.log_p_true, scores_of(statistics, self.score)
            scores = 1 + scores / math.log(logits.shape[1]) if self.score == "entropy" else scores
        weights = self._weights(scores)
        return -(weights.detach() if self.detach_weight else weights) * log_p

    def _fused(self, logits: Tensor, labels: Tensor) -> FusedLoss | None:
        """The whole loss at once, for the options that such forms have."""
        if self.form == "released" or self.score != "msp" or self.include_c or self.accumulate or self.detach_weight:
            return None
        size = self.batch_size or len(logits)
        return weighted_by_distribution(logits, labels, self.coverage, self.smoothing, len(self.histogram), size)

    def _released_scores(self, logits: Tensor) -> Tensor:
        if self.score == "entropy":
            return torch.ones(len(logits), dtype=accumulator(logits.dtype), device=logits.device)
        return released_scores(logits, self.score)

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


selective_au = as_function(SelectiveAU)


# Correctness ranking: confidence is to have the order of how often each sample was predicted correctly.

RELEASED_LOGARITHMS = {10: 2.302585, 100: 4.605170}
"""The released code divides the entropy by these constants for 10 and 100 classes."""


@stateful_loss(
    "crl",
    paper="Moon et al., 2020, arXiv:2007.01687",
    corners=({"score": "margin"}, {"score": "entropy"}, {"weight": 0.0}, {"form": "released"}),
    ranges={"weight": (0.0, 1e6), "num_samples": (0, 1e12)},
    choices={"score": SCORES, "form": ("paper", "released")},
    batch=True,
)
class CorrectnessRanking(LossModule):
    """Correctness ranking, -log p_y + w max(0, |f_i - f_j| - sign(f_i - f_j)(k_i - k_j)) with j the next in the batch.

    f is the share of past passes in which the sample was predicted correctly, k its confidence now. Every call in
    training mode counts the batch's correct predictions, after the loss is formed; call `end_epoch` after every pass.

    When: confidences are only ranked, and every sample is seen in many epochs.
    When not: training is short or streams past once: on CIFAR-10 with 16 epochs it ranked worse than cross-entropy.

    Args:
        ids: of each sample of the batch, its place in the training set; comes with every call.
        score: confidence: `msp` (largest probability), `margin` (to the runner-up), `entropy` (-H / ln c).
        weight: w of the ranking term. Default: released code.
        num_samples: size of the training set, whose ids are 0 .. num_samples - 1; 0: the history grows with the ids.
        form: `released` divides the entropy by 2.302585 (10 classes) or 4.605170 (100) instead of ln c.

    Example:
        >>> loss = confide.losses.create("crl", reduction="none")
        >>> first = loss([[2.0, 0.0], [0.0, 1.0]], [0, 0], ids=[0, 1])
        >>> loss([[2.0, 0.0], [0.0, 1.0]], [0, 0], ids=[0, 1])
        tensor([0.9772, 2.1635])
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
        statistics = simplex_statistics(logits, labels, ("log_p_true", "prediction", *statistics_of_score(self.score)))
        ranking = self._ranking(scores_of(statistics, self.score), logits.shape[1], ids)
        if self.training:
            correct = (statistics.prediction == labels).to(self.counts)
            self.counts.index_add_(0, ids, correct)
        return -statistics.log_p_true + self.weight * ranking

    def _ranking(self, confidence: PerSample, num_classes: int, ids: Tensor) -> PerSample:
        if self.score == "entropy":
            exact = math.log(num_classes)
            confidence = confidence / (
                RELEASED_LOGARITHMS.get(num_classes, exact) if self.form == "released" else exact
            )
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

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *rest: Any) -> None:
        saved = state_dict.get(prefix + "counts")
        if saved is not None and self.grows:
            self.counts = self.counts.new_zeros(saved.shape)
        super()._load_from_state_dict(state_dict, prefix, *rest)


crl = as_function(CorrectnessRanking)
