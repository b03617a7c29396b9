"""The family of penalties: (logits, labels) -> scalar, terms over a whole batch that are added to a loss."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from confide.core.door import InputError, numbers
from confide.core.registry import Method, Registry
from confide.core.shapes import Labels, Logits, Scalar

PENALTIES = Registry("penalty")
Penalty = Callable[..., Scalar]
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def penalty(
    word: str,
    *,
    paper: str,
    corners: tuple[Mapping[str, Any], ...] = (),
    ranges: Mapping[str, tuple[float, float]] | None = None,
    choices: Mapping[str, tuple[Any, ...]] | None = None,
) -> Callable[[Penalty], Penalty]:
    """Register a penalty and put the family's door before it."""

    def register(function: Penalty) -> Penalty:
        PENALTIES.add(word, paper=paper, corners=corners, ranges=ranges or {}, choices=choices or {})(function)
        return _with_door(PENALTIES.get(word))

    return register


def names() -> tuple[str, ...]:
    """All words of the family."""
    return PENALTIES.names()


def _with_door(method: Method) -> Penalty:
    @functools.wraps(method.function)
    def checked(logits: Logits, labels: Labels, *positional: Any, **options: Any) -> Scalar:
        options = method.checked(method.named(positional, options) if positional else options)
        value: Tensor = method.function(*_check_batch(logits, labels), **options)
        return value

    return checked


def _check_batch(logits: Any, labels: Any) -> tuple[Tensor, Tensor]:
    logits, labels = numbers(logits, "logits"), numbers(labels, "labels")
    if logits.ndim != 2 or logits.shape[1] < 2 or logits.dtype not in DTYPES:
        raise InputError(
            f"logits must be floating point of 16, 32 or 64 bits, n x c with at least two classes, got {logits.dtype} "
            f"of shape {tuple(logits.shape)}; pass the model's raw outputs"
        )
    if labels.shape != logits.shape[:1] or labels.is_floating_point() or labels.dtype == torch.bool:
        raise InputError(
            f"labels must be {len(logits)} integer class indices, one per row of logits, got {labels.dtype} of shape "
            f"{tuple(labels.shape)}; penalties take no soft labels"
        )
    if labels.device != logits.device:
        raise InputError(f"labels must be on the device of the logits, {logits.device}, got {labels.device}; move them")
    return logits, labels.to(torch.int64)
