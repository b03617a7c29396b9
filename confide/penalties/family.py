"""The family of penalties: (logits, labels) -> scalar, terms over a whole batch that are added to a loss."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from confide.core.door import InputError, check_choice, check_range
from confide.core.registry import Method, Registry
from confide.core.shapes import Labels, Logits, Scalar

PENALTIES = Registry("penalty")
Penalty = Callable[..., Scalar]


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
    def checked(logits: Logits, labels: Labels, **options: Any) -> Scalar:
        method.check_options(options)
        for name, (low, high) in method.facts["ranges"].items():
            if options.get(name) is not None:
                check_range(options[name], f"{name} of penalty '{method.word}'", low, high)
        for name, words in method.facts["choices"].items():
            if name in options:
                check_choice(options[name], words, f"{name} of penalty '{method.word}'")
        value: Tensor = method.function(*_check_batch(logits, labels), **options)
        return value

    return checked


def _check_batch(logits: Any, labels: Any) -> tuple[Tensor, Tensor]:
    logits = logits if isinstance(logits, Tensor) else torch.as_tensor(logits)
    labels = labels if isinstance(labels, Tensor) else torch.as_tensor(labels)
    if logits.ndim != 2 or logits.shape[1] < 2 or not logits.is_floating_point():
        raise InputError(
            f"logits must be floating point, n x c with at least two classes, got {logits.dtype} of shape "
            f"{tuple(logits.shape)}"
        )
    if labels.shape != logits.shape[:1] or labels.is_floating_point() or labels.dtype == torch.bool:
        raise InputError(
            f"labels must be {len(logits)} integer class indices, one per row of logits, got {labels.dtype} of shape "
            f"{tuple(labels.shape)}"
        )
    return logits, labels.to(torch.int64)
