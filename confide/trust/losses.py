"""Losses of trust predictors: (oracle output z, correctness or p_true) -> one value per sample."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from confide.checks import InputError, OptionError, check_choice, tensor_with_graph
from confide.registry import Method, OptionSpec, Registry
from confide.types import Options, PerSample

__all__ = ["TRUST_LOSSES", "binary_cross_entropy", "binary_focal", "create", "names", "steep_slope", "tcp"]


@dataclass(frozen=True, kw_only=True)
class TrustLossSpec(OptionSpec):
    """What is said of a trust loss: `target`, what its second argument is, `correct` (0 or 1) or `p_true`."""

    target: str


TRUST_LOSSES = Registry("trust loss", TrustLossSpec)
PER_SAMPLE_OPTIONS = ("correct", "p_max")
"""Options that hold one value per sample."""
TrustLoss = Callable[..., PerSample]


def trust_loss(word: str, *, paper: str, **facts: Any) -> Callable[[TrustLoss], TrustLoss]:
    """Register a trust loss, with the checks of the family before it.

    Args:
        facts: `corners`, and the fields of a `TrustLossSpec`.
    """

    def register(function: TrustLoss) -> TrustLoss:
        TRUST_LOSSES.add(word, paper=paper, **{"choices": {}, **facts})(function)
        return _with_checks(TRUST_LOSSES.get(word))

    return register


def names() -> tuple[str, ...]:
    """All words of the family.

    Returns:
        Every word that `create` takes.

    Example:
        >>> from confide.trust import losses
        >>> losses.names()
        ('binary_cross_entropy', 'binary_focal', 'steep_slope', 'tcp')
    """
    return TRUST_LOSSES.names()


def create(word: str, *, reduction: str = "mean", **options: Any) -> TrustLossModule:
    """The trust loss of that word as nn.Module: forward(z, target); `.target` says what the target is.

    Args:
        word: the trust loss; `names()` lists them.
        reduction: `mean`, `sum` or `none` for one value per sample.
        options: those of the loss.

    Returns:
        A torch.nn.Module.

    Example:
        >>> from confide.trust import losses
        >>> import torch
        >>> z, correct = torch.tensor([2.0, 0.5, -1.0]), torch.tensor([1.0, 0.0, 0.0])
        >>> loss = losses.create("steep_slope", alpha_neg=5.0)
        >>> round(float(loss(z, correct)), 4)
        1.8362
        >>> loss.target
        'correct'
    """
    method = TRUST_LOSSES.get(word)
    options = method.checked(options)
    check_choice(reduction, ("mean", "sum", "none"), "reduction")
    return TrustLossModule(method, options, reduction)


class TrustLossModule(nn.Module):
    """A trust loss with its options bound."""

    def __init__(self, method: Method[TrustLossSpec], options: Options, reduction: str) -> None:
        super().__init__()
        self.word, self.target = method.word, str(method.spec.target)
        self.options, self.reduction = dict(options), reduction

    def forward(self, z: Tensor, target: Tensor, **needs: Any) -> Tensor:
        # Looked up at each call: a function with checks before it cannot be pickled with the module.
        values = _with_checks(TRUST_LOSSES.get(self.word))(z, target, **self.options, **needs)
        if self.reduction == "none":
            return values
        return values.mean() if self.reduction == "mean" and len(values) else values.sum()


def _with_checks(method: Method[TrustLossSpec]) -> TrustLoss:
    @functools.wraps(method.function)
    def checked(z: Tensor, target: Tensor, *positional: Any, **options: Any) -> PerSample:
        # The papers' code passes alpha_pos and the like by position; keyword-only options keep their order here.
        placed = dict(zip(method.options, positional, strict=False))
        if len(positional) > len(placed) or placed.keys() & options.keys():
            known = ", ".join(method.options)
            raise OptionError(f"trust loss '{method.word}' takes {known} after z and the target, each once")
        options = method.checked({**placed, **options})
        z, target = _check_pair(z, target, str(method.spec.target))
        beside = {
            name: _per_sample_option(options[name], z, name)
            for name in PER_SAMPLE_OPTIONS
            if options.get(name) is not None
        }
        values: Tensor = method.function(z, target, **{**options, **beside})
        return values

    return checked


def _per_sample_option(values: Any, z: Tensor, name: str) -> Tensor:
    """What a loss looks at beside the target: as many values as there are oracle outputs."""
    column = tensor_with_graph(values, name).detach()
    column = column.squeeze(1) if column.ndim == 2 and column.shape[1] == 1 else column
    if column.shape != z.shape:
        raise InputError(f"{name} must be {len(z)} values, one per oracle output, got shape {tuple(column.shape)}")
    column = column.to(device=z.device, dtype=z.dtype)
    inside = (column >= 0) & (column <= 1) & ((column > 0) | (name == "correct"))
    if z.device.type == "cpu" and not bool(inside.all()):
        allowed = "0 or 1" if name == "correct" else "in (0, 1]"
        raise InputError(f"{name} must be {allowed}, got {float(column.min()):g} to {float(column.max()):g}")
    return column


def _check_pair(z: Any, target: Any, name: str) -> tuple[Tensor, Tensor]:
    """Both must be vectors of length n: n x 1 against n would silently become n x n."""
    z, target = tensor_with_graph(z, "z"), tensor_with_graph(target, name).detach()
    z = z.squeeze(1) if z.ndim == 2 and z.shape[1] == 1 else z
    target = target.squeeze(1) if target.ndim == 2 and target.shape[1] == 1 else target
    if z.ndim != 1 or not z.is_floating_point():
        raise InputError(f"z must be n floating numbers, the oracle's output, got {z.dtype} of shape {tuple(z.shape)}")
    if target.shape != z.shape:
        raise InputError(f"{name} must be {len(z)} values, one per oracle output, got shape {tuple(target.shape)}")
    z = z.float() if z.dtype in (torch.float16, torch.bfloat16) else z
    target = target.to(device=z.device, dtype=z.dtype)
    if z.device.type == "cpu" and len(z):
        _check_finite_pair(z, target, name)
    return z, target


def _check_finite_pair(z: Tensor, target: Tensor, name: str) -> None:
    if not bool(torch.isfinite(z).all()):
        bad = int((~torch.isfinite(z)).nonzero()[0])
        raise InputError(f"z must be finite, got {z[bad].item()} at sample {bad} of {len(z)}; mend the oracle")
    fine = (target == 0) | (target == 1) if name == "correct" else (target >= 0) & (target <= 1)
    if not bool(fine.all()):
        bad = int((~fine).nonzero()[0])
        allowed = "0 or 1" if name == "correct" else "in [0, 1]"
        raise InputError(f"{name} must be {allowed}, got {target[bad].item():g} at sample {bad} of {len(z)}")


@trust_loss(
    "steep_slope",
    paper="Luo et al., 2021, Learning to Predict Trustworthiness with Steep Slope Loss, arXiv:2110.00054",
    target="correct",
    corners=({"alpha_pos": 0.1, "alpha_neg": 10.0}, {"alpha_pos": 6.0, "alpha_neg": 10.0}),
    ranges={"alpha_pos": (1e-6, 80.0), "alpha_neg": (1e-6, 80.0)},
)
def steep_slope(z: PerSample, correct: PerSample, *, alpha_pos: float = 1.0, alpha_neg: float = 3.0) -> PerSample:
    """Steep slope, exp(-a_pos z/(1+|z|)) - exp(-a_pos) where correct, exp(a_neg z/(1+|z|)) - exp(-a_neg) where wrong.

    Trustworthy iff z > 0.

    When: an oracle decides at z > 0 and errors must be caught there.
    When not: probabilities are wanted, or max-softmax at a threshold of one's own will do: it caught as many errors
    on CIFAR-10.

    Differs from eq. 8: both exponents have the opposite sign there, which would push correct samples to z = -infinity;
    these are the signs of the released code.

    Args:
        z: the oracle's output, one number a sample; above 0 it trusts.
        correct: 1 where the classifier is right, 0 where it is wrong.
        alpha_pos: slope for correct samples. Default: ViT of the paper; ResNet there: 2.
        alpha_neg: slope for wrong samples. Default: ViT of the paper; ResNet there: 5.

    Returns:
        One value per sample.

    Example:
        >>> from confide.trust import losses
        >>> import torch
        >>> z, correct = torch.tensor([2.0, 0.5, -1.0]), torch.tensor([1.0, 0.0, 0.0])
        >>> [round(value, 4) for value in losses.steep_slope(z, correct).tolist()]
        [0.1455, 2.6685, 0.1733]
    """
    slide = z / (1 + z.abs())
    positive = torch.exp(-alpha_pos * slide) - math.exp(-alpha_pos)
    negative = torch.exp(alpha_neg * slide) - math.exp(-alpha_neg)
    return correct * positive + (1 - correct) * negative


@trust_loss(
    "tcp",
    paper="Corbière et al., 2019, arXiv:1910.04851",
    target="p_true",
    corners=({"weighting": 1.0},),
    ranges={"weighting": (0.0, 1e6)},
)
def tcp(
    z: PerSample,
    p_true: PerSample,
    *,
    weighting: float = 1.0,
    correct: Tensor | None = None,
    p_max: Tensor | None = None,
) -> PerSample:
    """True class probability, (sigmoid(z) - p_y)^2 with p_y of the frozen classifier.

    When: an oracle shall predict the probability of the true class, a value for every sample.
    When not: few samples are wrong and their values alone matter.

    Args:
        z: the oracle's output, one number a sample.
        p_true: the classifier's probability of the label, in [0, 1].
        weighting: factor of misclassified samples, which `correct` names. Default: every released configuration.
        correct: 0 or 1 per sample, needed for a weighting other than 1.
        p_max: the classifier's largest probability; given, the target is the ratio p_y / p_max.

    Returns:
        One value per sample.

    Raises:
        InputError: a weighting of misclassified samples without `correct`.

    Example:
        >>> from confide.trust import losses
        >>> import torch
        >>> z, p_true = torch.tensor([2.0, -1.0]), torch.tensor([0.9, 0.2])
        >>> [round(value, 4) for value in losses.tcp(z, p_true).tolist()]
        [0.0004, 0.0048]
    """
    target = p_true if p_max is None else p_true / p_max
    values = (torch.sigmoid(z) - target).square()
    if weighting == 1.0:
        return values
    if correct is None:
        raise InputError("a weighting of misclassified samples needs correct=..., one 0 or 1 per sample")
    return values * torch.where(correct > 0, torch.ones_like(z), torch.full_like(z, weighting))


RELEASED_EPSILON = 1e-7


@trust_loss(
    "binary_cross_entropy",
    paper="Luo et al., 2021, arXiv:2110.00054 (baseline)",
    target="correct",
    corners=({"weight_neg": 3.0}, {"form": "released"}),
    ranges={"weight_pos": (0.0, 1e6), "weight_neg": (0.0, 1e6)},
    choices={"form": ("paper", "released")},
)
def binary_cross_entropy(
    z: PerSample, correct: PerSample, *, weight_pos: float = 1.0, weight_neg: float = 1.0, form: str = "paper"
) -> PerSample:
    """Binary cross-entropy, -o log sigmoid(z) - (1 - o) log(1 - sigmoid(z)).

    When: an oracle's output shall be a probability of being right.
    When not: right and wrong are far from even and the line z > 0 is used as it is: it trusts most.

    Args:
        z: the oracle's output, one number a sample; above 0 it trusts.
        correct: 1 where the classifier is right, 0 where it is wrong.
        weight_pos: factor of correct samples.
        weight_neg: factor of wrong samples.
        form: `released` reproduces the broadcast of the paper's code, where every z meets every target of the batch:
            each sample is then pulled to the batch's accuracy.

    Returns:
        One value per sample.

    Example:
        >>> from confide.trust import losses
        >>> import torch
        >>> z, correct = torch.tensor([2.0, 0.5, -1.0]), torch.tensor([1.0, 0.0, 0.0])
        >>> [round(value, 4) for value in losses.binary_cross_entropy(z, correct).tolist()]
        [0.1269, 0.9741, 0.3133]
    """
    if form == "released":
        share = correct.mean()
        p = torch.sigmoid(z)
        positive = -torch.log(p + RELEASED_EPSILON)
        negative = -torch.log(1 - p + RELEASED_EPSILON)
        return weight_pos * share * positive + weight_neg * (1 - share) * negative
    positive, negative = -functional.logsigmoid(z), -functional.logsigmoid(-z)
    return weight_pos * correct * positive + weight_neg * (1 - correct) * negative


@trust_loss(
    "binary_focal",
    paper="Lin et al., 2017, arXiv:1708.02002; Luo et al., 2021, arXiv:2110.00054 (baseline)",
    target="correct",
    corners=({"gamma": 0.0}, {"gamma": 0.5}, {"gamma": 5.0, "alpha": 0.25}, {"form": "released"}),
    ranges={"gamma": (0.0, 100.0), "alpha": (0.0, 1e6)},
    choices={"form": ("paper", "released")},
)
def binary_focal(
    z: PerSample, correct: PerSample, *, gamma: float = 2.0, alpha: float = 1.0, form: str = "paper"
) -> PerSample:
    """Binary focal, -alpha (1 - p_t)^gamma log p_t with p_t = sigmoid(z) where correct, 1 - sigmoid(z) where wrong.

    When: an oracle sees mostly easy right samples.
    When not: its output is read as a probability.

    Args:
        z: the oracle's output, one number a sample; above 0 it trusts.
        correct: 1 where the classifier is right, 0 where it is wrong.
        gamma: how fast sure samples fade; 0 is binary cross-entropy.
        alpha: factor of all samples; ConfidNet's focal is gamma 5, alpha 0.25.
        form: `released` reproduces the broadcast of the paper's code, where every z meets every target of the batch.

    Returns:
        One value per sample.

    Example:
        >>> from confide.trust import losses
        >>> import torch
        >>> z, correct = torch.tensor([2.0, 0.5, -1.0]), torch.tensor([1.0, 0.0, 0.0])
        >>> [round(value, 4) for value in losses.binary_focal(z, correct).tolist()]
        [0.0018, 0.3774, 0.0227]
    """
    if form == "released":
        share = correct.mean()
        p = torch.sigmoid(z)
        positive = -((1 - p) ** gamma) * torch.log(p + RELEASED_EPSILON)
        negative = -(p**gamma) * torch.log(1 - p + RELEASED_EPSILON)
        return alpha * (share * positive + (1 - share) * negative)
    signed = torch.where(correct > 0, z, -z)
    # log(1 - p_t) = logsigmoid(-signed): the power stays smooth where p_t rounds to 1.
    return -alpha * torch.exp(gamma * functional.logsigmoid(-signed)) * functional.logsigmoid(signed)
