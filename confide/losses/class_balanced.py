"""Class-balanced loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from confide.core.door import InputError, numbers
from confide.core.shapes import Labels, Logits, PerSample
from confide.core.simplex import fused, simplex_statistics
from confide.core.simplex_plain import accumulator
from confide.losses.family import loss


@loss(
    "class_balanced",
    paper="Cui et al., 2019, arXiv:1901.05555",
    corners=({"beta": 0.0}, {"beta": 0.9999}, {"form": "softmax_bce"}, {"form": "focal"}),
    ranges={"beta": (0.0, 1.0 - 1e-12), "gamma": (0.0, 100.0)},
    choices={"form": ("paper", "softmax_bce", "focal")},
)
def class_balanced(
    logits: Logits,
    labels: Labels,
    *,
    beta: float = 0.9999,
    form: str = "paper",
    gamma: float = 2.0,
    class_counts: Any,
) -> PerSample:
    """Class-balanced cross-entropy, -w_y log p_y with w_k = (1 - beta) / (1 - beta^n_k), rescaled to sum to c.

    The mean divides by the number of samples, not by the sum of weights.

    Args:
        beta: 0 weighs all classes alike, near 1 by inverse frequency.
        form: `softmax_bce` and `focal` reproduce the PyTorch port: binary cross-entropy on the softmax averaged over
            classes, and the sum over classes of sigmoid focal terms.
        gamma: of `form="focal"` only.
        class_counts: training samples of each class.
    """
    weight = _weights_on(logits, class_counts, beta)
    if form == "paper":
        whole = fused(logits, labels, "cross_entropy", table=weight)
        if whole is not None:
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


_LAST: dict[str, tuple[Any, ...]] = {}


def _weights_on(logits: Logits, class_counts: Any, beta: float) -> Tensor:
    """The weights on the logits' device, kept from the last call: the same counts come with every batch."""
    key = (logits.shape[1], beta, logits.device, logits.dtype)
    # Under the compiler counts are constants; elsewhere they may have been changed in place.
    mark = 0 if torch.compiler.is_compiling() else _mark(class_counts)
    counts, last, last_mark, weight = _LAST.get("weights", (None, None, None, None))
    if counts is not class_counts or last != key or (last_mark != mark and not torch.compiler.is_compiling()):
        weight = class_balance_weights(class_counts, logits.shape[1], beta).to(logits.device, accumulator(logits.dtype))
        _LAST["weights"] = (class_counts, key, mark, weight)
    kept: Tensor = weight
    return kept


def _mark(class_counts: Any) -> Any:
    """What changes when counts change in place; a tensor is not read, since a device would have to be waited for."""
    if isinstance(class_counts, Tensor):
        return object() if class_counts.is_inference() else class_counts._version
    if hasattr(class_counts, "__array__"):
        return np.asarray(class_counts).tobytes()
    return tuple(class_counts) if isinstance(class_counts, list) else 0


def class_balance_weights(class_counts: Any, num_classes: int, beta: float) -> Tensor:
    """w_k = (1 - beta) / (1 - beta^n_k), rescaled to sum to c."""
    counts = numbers(class_counts, "class_counts").double()
    if counts.shape != (num_classes,):
        raise InputError(
            f"class_counts must be {num_classes} numbers, one per class, got shape {tuple(counts.shape)}; "
            "count the labels of the training set"
        )
    if counts.device.type == "cpu" and not bool((counts >= 1).all()):
        bad = int((~(counts >= 1)).nonzero()[0])
        raise InputError(f"class_counts must be at least 1, got {counts[bad].item():g} for class {bad}; merge it")
    raw = (1 - beta) / (1 - beta**counts)
    return raw * (num_classes / raw.sum())
