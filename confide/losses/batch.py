"""One batch at the door of the losses: what must hold, class weights, ignored samples, and the reduction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from confide.core.door import InputError, OptionError, numbers
from confide.core.registry import Method
from confide.core.simplex import mean_of

PER_SAMPLE_NEEDS = ("ids", "weights", "groups")
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def evaluate_batch(
    method: Method,
    values_of: Callable[..., Tensor],
    logits: Any,
    labels: Any,
    needs: Mapping[str, Any],
    class_weights: Tensor | None,
    ignore_index: int | None,
) -> tuple[Tensor, Tensor | None]:
    """One value per sample, and the sum of weights that a mean divides by (None: the number of samples)."""
    logits, labels = check_batch(method.word, logits, labels, bool(method.facts["soft"]))
    given = (
        {name: check_need(method.word, name, value, logits.shape[0]) for name, value in needs.items()} if needs else {}
    )
    if ignore_index is None or labels.ndim == 2:
        values, keep = values_of(logits, labels, **given), None
        if labels.ndim == 2 and values.device.type == "cpu" and not bool(torch.isfinite(values).all()):
            row = int((~torch.isfinite(values)).nonzero()[0])
            raise InputError(f"logits and soft labels must be finite, they are not at sample {row} of {len(values)}")
    else:
        keep = labels != ignore_index
        values = _values_of_kept(method, values_of, logits, labels, given, keep)
    if class_weights is None:
        return values, None if keep is None else keep.sum().to(values.dtype)
    weights = weights_of_samples(class_weights.to(values), labels, logits.shape[1], keep)
    return values * weights, weights.sum()


def _values_of_kept(
    method: Method,
    values_of: Callable[..., Tensor],
    logits: Tensor,
    labels: Tensor,
    needs: Mapping[str, Any],
    keep: Tensor,
) -> Tensor:
    """Zero for ignored samples. Where samples act on each other the ignored ones are taken out first."""
    if not method.facts["batch"]:
        values = values_of(logits, torch.where(keep, labels, 0), **needs)
        return torch.where(keep, values, torch.zeros_like(values))
    rows = keep.nonzero().squeeze(1)
    kept_needs = {k: v[rows] if k in PER_SAMPLE_NEEDS else v for k, v in needs.items()}
    kept = values_of(logits[rows], labels[rows], **kept_needs)
    return kept.new_zeros(len(logits)).index_put((rows,), kept)


def weights_of_samples(class_weights: Tensor, labels: Tensor, num_classes: int, keep: Tensor | None) -> Tensor:
    """The weight of each sample's class; for soft labels the expected weight; 0 for ignored samples."""
    if len(class_weights) != num_classes:
        raise InputError(f"class_weights must be {num_classes} numbers, one per class, got {len(class_weights)}")
    if labels.ndim == 2:
        return (labels.to(class_weights.dtype) * class_weights).sum(dim=1)
    weights = class_weights[labels.clamp(0, num_classes - 1)]
    return weights if keep is None else torch.where(keep, weights, torch.zeros_like(weights))


def reduce_values(values: Tensor, mass: Tensor | None, reduction: str) -> Tensor:
    """Mean, sum or the values themselves; the mean of nothing is 0."""
    if reduction == "none":
        return values
    if reduction == "mean" and mass is None and values.shape[0]:
        return mean_of(values)
    total = values.sum()
    if reduction == "sum" or mass is None:
        return total
    return total / torch.where(mass > 0, mass, torch.ones_like(mass))


def check_needs(word: str, wanted: tuple[str, ...], given: Mapping[str, Any]) -> None:
    """Every need of the loss must come with the call, and nothing else: what a loss ignored would seem to act."""
    for name in wanted:
        if given.get(name) is None:
            raise InputError(f"loss '{word}' needs {name} with every batch; pass {name}=...")
    for name in given:
        if name not in wanted:
            takes = " and ".join(("logits", "labels", *wanted))
            raise OptionError(f"loss '{word}' takes {takes} with every batch, got {name}; leave it out")


def check_need(word: str, name: str, value: Any, n: int) -> Any:
    """What a call brings beside logits and labels: one value per sample where the name says so."""
    if name not in PER_SAMPLE_NEEDS:
        return value
    tensor = numbers(value, name)
    if tensor.shape != (n,):
        raise InputError(f"{name} must be {n} values, one per sample of the batch, got shape {tuple(tensor.shape)}")
    return tensor.detach()


def check_batch(word: str, logits: Any, labels: Any, soft: bool) -> tuple[Tensor, Tensor]:
    """Shapes and dtypes of a batch; values are checked by the pass over the logits itself."""
    logits, labels = numbers(logits, "logits"), numbers(labels, "labels")
    if logits.ndim != 2 or logits.shape[1] < 2:
        raise InputError(
            f"logits must be n x c with at least two classes, got shape {tuple(logits.shape)}; reshape them"
        )
    if logits.dtype not in DTYPES:
        raise InputError(
            f"logits must be floating point of 16, 32 or 64 bits, got {logits.dtype}; pass the model's raw outputs"
        )
    if labels.device != logits.device:
        raise InputError(f"labels must be on the device of the logits, {logits.device}, got {labels.device}; move them")
    if labels.ndim == 2 and labels.is_floating_point():
        return logits, _check_soft(word, logits, labels, soft)
    if labels.shape != logits.shape[:1]:
        raise InputError(
            f"labels must be {len(logits)} class indices, one per row of logits, got shape {tuple(labels.shape)}; "
            "make them one vector"
        )
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise InputError(f"labels must be integer class indices, got {labels.dtype}; convert them with .long()")
    return logits, labels if labels.dtype == torch.int64 else labels.to(torch.int64)


def _check_soft(word: str, logits: Tensor, labels: Tensor, soft: bool) -> Tensor:
    if labels.shape != logits.shape:
        raise InputError(
            f"soft labels must be of the logits' shape {tuple(logits.shape)}, got shape {tuple(labels.shape)}; "
            "give one share per class"
        )
    if not soft:
        raise InputError(
            f"loss '{word}' needs class indices: its formula has one true class, got soft labels; "
            "for mixup take lam * loss(logits, a) + (1 - lam) * loss(logits, b)"
        )
    if labels.device.type == "cpu" and len(labels):
        # Shares rounded to 8 bits sum to one only within those.
        narrow = labels.element_size() < 4
        sums = labels.sum(dim=1, dtype=torch.float32 if narrow else None)
        fine = ((sums - 1).abs() <= (1e-2 if narrow else 1e-3)) & (labels.amin(dim=1) >= 0)
        if not bool(fine.all()):
            row = int((~fine).nonzero()[0])
            raise InputError(
                f"soft labels must be >= 0 and sum to 1 in every row, got {_few(labels[row])} at sample {row} of "
                f"{len(labels)}; normalise them"
            )
    return labels.detach()


def _few(values: Tensor) -> str:
    """The first numbers of a row, for a message."""
    shown = ", ".join(f"{value:.4g}" for value in values[:4].tolist())
    return f"[{shown}{', ...' if len(values) > 4 else ''}]"
