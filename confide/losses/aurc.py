"""AURC loss: cross-entropy weighted by the rank of confidence."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from confide.core.shapes import Labels, Logits, PerSample
from confide.core.simplex import Statistics, simplex_statistics, weighted_by_rank
from confide.core.simplex_plain import accumulator
from confide.losses.family import loss

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
) -> PerSample:
    """AURC loss, -a_r log p_y with a_r = H_n - H_(n-r), r the ascending rank of confidence in the batch (detached).

    The most confident sample weighs H_n, the least 1/n. Differs from the released code: the weights are those of the
    actual batch, also when the last one is smaller.

    Args:
        score: confidence that ranks: `msp` (largest probability), `margin` (to the runner-up), `entropy` (negative).
        weights_form: `log` takes a_r = -ln(1 - r / (n + 1)), the same for large n.
        form: `released` applies softmax twice before the score, as the public code does.
    """
    if form == "released":
        with torch.no_grad():
            ranking = scores_of(
                simplex_statistics(logits.softmax(dim=1, dtype=accumulator(logits.dtype)), None, wanted_by(score)),
                score,
            )
        log_p = simplex_statistics(logits, labels, "log_p_true").log_p_true
    else:
        whole = weighted_by_rank(logits, labels, score, functools.partial(_kept_weights, logits.device, weights_form))
        if whole is not None:
            return whole
        statistics = simplex_statistics(logits, labels, ("log_p_true", *wanted_by(score)))
        log_p, ranking = statistics.log_p_true, scores_of(statistics, score).detach()
    return -rank_weights(ranking, weights_form).to(log_p.dtype) * log_p


def wanted_by(score: str) -> tuple[str, ...]:
    """Statistics that a confidence score is made of."""
    return {"msp": ("p_max",), "margin": ("p_max", "p_second"), "entropy": ("entropy",)}[score]


def scores_of(statistics: Statistics, score: str) -> PerSample:
    """Confidence, high = sure: largest probability, its lead over the runner-up, or minus the entropy."""
    if score == "msp":
        return statistics.p_max
    if score == "margin":
        return statistics.p_max - statistics.p_second
    return -statistics.entropy


def rank_weights(ranking: Tensor, weights_form: str) -> Tensor:
    """The weight a_r of every sample by its ascending rank r = 1..n; ties in input order."""
    by_rank = weights_by_rank(ranking.device, weights_form, len(ranking))
    return torch.empty_like(by_rank).scatter_(0, ranking.argsort(stable=True), by_rank)


def weights_by_rank(device: torch.device, weights_form: str, n: int) -> Tensor:
    """a_1 to a_n in float64."""
    steps = torch.arange(1, n + 1, device=device, dtype=torch.float64)
    # H_n - H_(n-r) = 1/n + 1/(n-1) + ... + 1/(n-r+1)
    return steps.flip(0).reciprocal().cumsum(0) if weights_form == "harmonic" else -torch.log1p(-steps / (n + 1))


_LAST: dict[tuple[torch.device, str, int], Tensor] = {}


def _kept_weights(device: torch.device, weights_form: str, n: int) -> Tensor:
    """The weights kept from the last call; what is made while a CUDA graph is captured belongs to the graph."""
    key = (device, weights_form, n)
    if key not in _LAST:
        made = weights_by_rank(device, weights_form, n)
        if torch.cuda.is_current_stream_capturing():
            return made
        _LAST.clear()
        _LAST[key] = made
    return _LAST[key]
