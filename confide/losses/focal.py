"""The focal family: focal, FLSD-53, inverse and dual focal, and CalFocal and AdaFocal, whose gamma follows
validation bins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from confide.checks import InputError
from confide.losses.base import LossModule, as_function, check_validation, loss, stateful_loss
from confide.numerics.binning import BinSums, bin_of, interpolated_edges, width_edges
from confide.simplex.reference import FusedLoss, LossValues
from confide.simplex.small import LARGEST_EXPONENT
from confide.simplex.statistics import fused, one_minus_p, simplex_statistics
from confide.types import Labels, Logits, PerSample

# Gamma is fixed: focal, FLSD-53, inverse and dual focal.


@loss(
    "focal",
    paper="Lin et al., 2017, arXiv:1708.02002; Mukhoti et al., 2020, arXiv:2002.09437",
    corners=({"gamma": 0.0}, {"gamma": 0.5}, {"gamma": 5.0}, {"detach_weight": True}),
    ranges={"gamma": (0.0, 100.0)},
)
def focal(logits: Logits, labels: Labels, *, gamma: float = 3.0, detach_weight: bool = False) -> LossValues:
    """Focal loss, -(1 - p_y)^gamma log p_y.

    When: most samples are easy and few hard ones matter, as in detection.
    When not: probabilities are used as they come: it is not proper, so that its minimum is under-confident.

    Args:
        gamma: how fast sure samples fade; 0 is cross-entropy. Default: FL-3 of Mukhoti et al.
        detach_weight: no gradient through (1 - p_y)^gamma, as in the code of Wang et al., 2021; the value is the same.

    Example:
        >>> confide.losses.focal([[2.0, 0.0], [0.0, 1.0]], [0, 0], gamma=2.0)
        tensor([0.0018, 0.7019])
    """
    if (whole := fused(logits, labels, "focal", a=gamma, detach=detach_weight)) is not None:
        return whole
    log_p = simplex_statistics(logits, labels, "log_p_true").log_p_true
    return focal_of(log_p, gamma, detach_weight)


def focal_of(log_p: PerSample, gamma: float | Tensor, detach_weight: bool = False) -> PerSample:
    """Focal loss of given log-probabilities; gamma may differ by sample."""
    weight = one_minus_p(log_p) ** gamma
    return -(weight.detach() if detach_weight else weight) * log_p


THRESHOLD, GAMMA_BELOW, GAMMA_ABOVE = 0.2, 5.0, 3.0


@loss("flsd53", paper="Mukhoti et al., 2020, arXiv:2002.09437")
def flsd53(logits: Logits, labels: Labels) -> LossValues:
    """FLSD-53, -(1 - p_y)^gamma log p_y with gamma = 5 where p_y < 0.2 and 3 elsewhere; that choice has no gradient.

    When: results of its paper are to be compared.
    When not: training is short: on CIFAR-10 with 16 epochs it was less accurate than cross-entropy and far from
    calibrated before a calibrator.

    Example:
        >>> confide.losses.flsd53([[2.0, 0.0], [0.0, 2.0]], [0, 0])
        tensor([2.1499e-04, 1.1275e+00])
    """
    if (whole := fused(logits, labels, "flsd53")) is not None:
        return whole
    statistics = simplex_statistics(logits, labels, "log_p_true p_true")
    # The softmax itself: in float32 the exponential of its logarithm makes a fifth a little less than one.
    log_p, below = statistics.log_p_true, statistics.p_true.detach() < THRESHOLD
    return focal_of(log_p, torch.where(below, GAMMA_BELOW, GAMMA_ABOVE).to(log_p.dtype))


RELEASED_CLAMP = 1e-9


@loss(
    "inverse_focal",
    paper="Wang et al., 2021, Rethinking Calibration of Deep Neural Networks, NeurIPS",
    corners=({"gamma": 0.0}, {"gamma": 0.5}, {"gamma": 3.5}, {"form": "released"}),
    ranges={"gamma": (0.0, 100.0)},
    choices={"form": ("paper", "released")},
)
def inverse_focal(logits: Logits, labels: Labels, *, gamma: float = 2.0, form: str = "paper") -> LossValues:
    """Inverse focal, -(1 + p_y)^gamma log p_y: sure samples count more.

    Above gamma 3.59 the loss rises with p_y near 0.28, so that learning can turn round there.

    When: confidences are only ranked, or a calibrator follows.
    When not: probabilities are used as they come: it makes the network surer.

    Args:
        gamma: how much sure samples gain; 0 is cross-entropy. Default: ResNet-50 on CIFAR-10 (Zhou et al., 2025).
        form: `released` clamps p_y inside the weight to [1e-9, 1 - 1e-9], as the public code does.

    Example:
        >>> confide.losses.inverse_focal([[2.0, 0.0], [0.0, 1.0]], [0, 0])
        tensor([0.4490, 2.1146])
    """
    whole = fused(logits, labels, "inverse", a=gamma) if form == "paper" else None
    if whole is not None:
        return whole
    log_p = simplex_statistics(logits, labels, "log_p_true").log_p_true
    p_true = log_p.exp()
    if form == "released":
        p_true = p_true.clamp(RELEASED_CLAMP, 1 - RELEASED_CLAMP)
    return -((1 + p_true) ** gamma) * log_p


@loss(
    "dual_focal",
    paper="Tao et al., 2023, arXiv:2305.13665",
    corners=({"gamma": 0.0}, {"gamma": 0.5}, {"gamma": 6.1}, {"form": "released"}, {"form": "released", "gamma": 0.5}),
    ranges={"gamma": (0.0, 100.0)},
    choices={"form": ("paper", "released")},
)
def dual_focal(logits: Logits, labels: Labels, *, gamma: float = 5.0, form: str = "paper") -> LossValues:
    """Dual focal, -(1 - p_y + p_j)^gamma log p_y with p_j the largest probability of another class.

    When: a network is over-confident in one rival class.
    When not: accuracy counts: on CIFAR-10 it lost three points, and it was far from calibrated before a calibrator.

    Differs from the released code: the rival is the likeliest class other than the label; `form="released"` takes
    theirs (see the errata).

    Args:
        gamma: how fast clear wins fade; 0 is cross-entropy. Default: ResNet-50 on CIFAR-10 and CIFAR-100.
        form: `released` takes p_j as the largest probability strictly below p_y (0 if there is none), as the public
            code does; the two differ on misclassified samples and exact ties only.

    Example:
        >>> confide.losses.dual_focal([[2.0, 0.0], [0.0, 1.0]], [0, 0])
        tensor([9.7756e-05, 8.7753e+00])
    """
    if (whole := fused(logits, labels, "dual" if form == "paper" else "dual_released", a=gamma)) is not None:
        return whole
    rival = "p_other" if form == "paper" else "p_below"
    statistics = simplex_statistics(logits, labels, ("log_p_true", rival))
    log_p = statistics.log_p_true
    base = -torch.expm1(log_p) + statistics.values[rival]
    # At p_y = 1 and p_j = 0 the power has an infinite slope for gamma < 1.
    return -(base.clamp_min(torch.finfo(log_p.dtype).tiny) ** gamma) * log_p


# Gamma follows equal-mass bins of validation confidence: CalFocal, AdaFocal.

FUSED_BINS = 128
"""More bins than this are looked up outside the GPU kernel."""


@dataclass(frozen=True)
class ValidationBins:
    """Edges (b + 1) and, per bin, the number of samples, their mean confidence and accuracy (0 where empty)."""

    edges: Tensor
    counts: Tensor
    confidence: Tensor
    accuracy: Tensor


def bin_of_samples(p_true: PerSample, edges: Tensor) -> Tensor:
    """Bin of every sample, [low, high); the first also takes all below, the last all above."""
    return torch.bucketize(p_true, edges[1:-1].to(p_true), right=True)


def validation_bins(logits: Logits, labels: Labels, bins: int) -> ValidationBins:
    """Equal-mass bins of top-label confidence: edges interpolated in the sorted values, statistics over (low, high].

    The smallest confidence lies on the lowest edge and is in no bin, as in the released code of AdaFocal.
    """
    logits, labels = check_validation(logits, labels)
    if len(logits) == 0:
        raise InputError("validation logits must hold at least one sample, got none; pass the validation set")
    statistics = simplex_statistics(logits.double(), labels, "p_max prediction")
    confidence, correct = statistics.p_max.numpy(), (statistics.prediction == labels).numpy().astype(np.float64)
    edges = interpolated_edges(confidence, bins)
    inside = confidence > edges[0]
    sums = BinSums.of(bin_of(confidence[inside], edges), bins, confidence[inside], correct[inside])
    divisor = np.maximum(sums.count, 1)
    columns = (edges, sums.count.astype(np.int64), sums.confidence / divisor, sums.correct / divisor)
    return ValidationBins(*(torch.from_numpy(column) for column in columns))


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

    When: AdaFocal's bins are to be studied in their simpler forms.
    When not: a result is needed: AdaFocal is the authors' own remedy for its weaknesses.

    Args:
        case: 1 sets gamma by sample, 2 by bin.
        rate: the paper's lambda; 100 hurts accuracy there.
        bins: number of validation bins, of equal mass.
        detach_gamma: whether gamma is a constant for the gradient (case 1). Default: the paper speaks of assigning it.
        update_every: the loop calls `update` after every so many batches; 0: once at the end of an epoch.

    Example:
        >>> loss = confide.losses.create("calfocal", bins=1)
        >>> loss.update([[2.0, 0.0], [0.0, 1.0]], [0, 0])
        >>> loss([[2.0, 0.0], [0.0, 1.0]], [0, 0])
        tensor(0.5743)
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
        self.register_buffer("edges", torch.from_numpy(width_edges(int(bins))))
        self.register_buffer("accuracy", torch.full((int(bins),), torch.nan, dtype=torch.float64))
        self.register_buffer("confidence", torch.full((int(bins),), torch.nan, dtype=torch.float64))

    def values(self, logits: Logits, labels: Labels, **needs: Any) -> LossValues:
        if (whole := self._fused(logits, labels)) is not None:
            return whole
        log_p = simplex_statistics(logits, labels, "log_p_true").log_p_true
        place = bin_of_samples(log_p.detach().exp(), self.edges)
        if self.case == 2:
            return focal_of(log_p, self.gammas.to(log_p)[place])
        p_true = log_p.detach().exp() if self.detach_gamma else log_p.exp()
        accuracy = self.accuracy.to(log_p)[place]
        gap = torch.where(accuracy.isnan(), torch.zeros_like(p_true), p_true - accuracy.nan_to_num(0.0))
        return focal_of(log_p, torch.exp((self.rate * gap).clamp_max(LARGEST_EXPONENT)))

    def _fused(self, logits: Logits, labels: Labels) -> FusedLoss | None:
        bins = len(self.gammas)
        if bins > FUSED_BINS or (self.case == 1 and not self.detach_gamma):
            return None
        if self.case == 2:
            return fused(logits, labels, "gammas", self.gammas, self.edges, bins=bins)
        return fused(logits, labels, "accuracies", self.accuracy, self.edges, a=self.rate, bins=bins)

    @torch.no_grad()
    def update(self, val_logits: Logits, val_labels: Labels) -> None:
        """Take bins, accuracy and confidence from predictions on the whole validation set."""
        bins = validation_bins(val_logits, val_labels, len(self.accuracy))
        seen = (bins.counts > 0).to(self.accuracy.device)
        accuracy = torch.where(seen, bins.accuracy.to(self.accuracy), self.accuracy)
        confidence = torch.where(seen, bins.confidence.to(self.confidence), self.confidence)
        self.set_bins(bins.edges, accuracy, confidence)

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


calfocal = as_function(CalFocal)


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

    When: no calibrator may follow the training, and a validation split is at hand in every epoch.
    When not: accuracy or the order of confidences is what counts: on CIFAR-10 cross-entropy with a temperature has a
    lower NLL and AURC.

    Args:
        bins: number of validation bins. Default: the paper's 15.
        rate: the paper's lambda.
        gamma_min: lowest g (inverse focal). Default: released code.
        gamma_max: highest g. Default: the paper's 20.
        switch: the threshold S_th where focal and inverse focal change places. Default: the paper's 0.2.
        update_every: the loop calls `update` after every so many batches; 0: once at the end of an epoch.

    Example:
        >>> loss = confide.losses.create("adafocal", bins=1)
        >>> loss.update([[2.0, 0.0], [0.0, 1.0]], [0, 0])
        >>> loss.gammas
        tensor([0.8876], dtype=torch.float64)
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
        self.register_buffer("edges", torch.from_numpy(width_edges(int(bins))))

    def values(self, logits: Logits, labels: Labels, **needs: Any) -> LossValues:
        if len(self.gammas) <= FUSED_BINS:
            whole = fused(logits, labels, "gammas", self.gammas, self.edges, bins=len(self.gammas))
            if whole is not None:
                return whole
        return self.from_log_p(simplex_statistics(logits, labels, "log_p_true").log_p_true)

    def from_log_p(self, log_p: PerSample) -> PerSample:
        """The loss of samples whose label has this log-probability."""
        gamma = self.gammas.to(log_p)[bin_of_samples(log_p.detach().exp(), self.edges)]
        base = torch.where(gamma >= 0, one_minus_p(log_p), 1 + log_p.exp())
        return -(base ** gamma.abs()) * log_p

    @torch.no_grad()
    def update(self, val_logits: Logits, val_labels: Labels) -> None:
        """Move the gammas and re-estimate the bins from predictions on the whole validation set."""
        bins = validation_bins(val_logits, val_labels, len(self.gammas))
        gammas = self.gammas.double().cpu()
        gap = torch.where(bins.counts > 0, bins.confidence - bins.accuracy, torch.zeros_like(gammas))
        # A sign in the state's float64: rate and switch rounded to float32 could land below the switch and flip again.
        sign = torch.where(gammas > 0, 1.0, -1.0).to(gammas)
        moved = gammas * torch.exp(self.rate * sign * gap)
        moved = torch.where(moved.abs() < self.switch, -self.switch * sign, moved)
        self.gammas.copy_(moved.clamp(self.gamma_min, self.gamma_max))
        self.edges.copy_(bins.edges)

    def log(self) -> dict[str, float]:
        """Columns of a training log: the gamma of every bin."""
        return {f"gamma{i}": value for i, value in enumerate(self.gammas.tolist())}


adafocal = as_function(AdaFocal)
