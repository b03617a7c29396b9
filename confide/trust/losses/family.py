"""Losses of trust predictors: (oracle output z, correctness or p_true) -> one value per sample; registry and door."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from confide.core.door import InputError, OptionError, check_choice, check_range, numbers
from confide.core.registry import Method, Registry
from confide.core.shapes import PerSample
from confide.trust.kinds import check_kinds

TRUST_LOSSES = Registry("trust loss")
BESIDE = ("correct", "p_max")
"""Options that hold one value per sample."""
TrustLoss = Callable[..., PerSample]


def trust_loss(
    word: str,
    *,
    paper: str,
    target: str,
    corners: tuple[Mapping[str, Any], ...] = (),
    ranges: Mapping[str, tuple[float, float]] | None = None,
    choices: Mapping[str, tuple[Any, ...]] | None = None,
) -> Callable[[TrustLoss], TrustLoss]:
    """Register a trust loss and put the family's door before it.

    Args:
        target: what the second argument is: `correct` (0 or 1) or `p_true` (in [0, 1]).
    """

    def register(function: TrustLoss) -> TrustLoss:
        facts = {"target": target, "ranges": ranges or {}, "choices": choices or {}}
        TRUST_LOSSES.add(word, paper=paper, corners=corners, **facts)(function)
        return _with_door(TRUST_LOSSES.get(word))

    return register


def names() -> tuple[str, ...]:
    """All words of the family."""
    return TRUST_LOSSES.names()


def create(word: str, *, reduction: str = "mean", **options: Any) -> TrustLossModule:
    """The trust loss of that word as nn.Module: forward(z, target); `.target` says what the target is."""
    method = TRUST_LOSSES.get(word)
    method.check_options(options)
    check_choice(reduction, ("mean", "sum", "none"), "reduction")
    _check_values(method, options)
    return TrustLossModule(method, options, reduction)


class TrustLossModule(nn.Module):
    """A trust loss with its options bound."""

    def __init__(self, method: Method, options: Mapping[str, Any], reduction: str) -> None:
        super().__init__()
        self.word, self.target = method.word, str(method.facts["target"])
        self.options, self.reduction = dict(options), reduction

    def forward(self, z: Tensor, target: Tensor, **needs: Any) -> Tensor:
        # Looked up at each call: a function behind a door cannot be pickled with the module.
        values = _with_door(TRUST_LOSSES.get(self.word))(z, target, **self.options, **needs)
        if self.reduction == "none":
            return values
        return values.mean() if self.reduction == "mean" and len(values) else values.sum()


def _with_door(method: Method) -> TrustLoss:
    @functools.wraps(method.function)
    def checked(z: Tensor, target: Tensor, *positional: Any, **options: Any) -> PerSample:
        # The papers' code passes alpha_pos and the like by position; keyword-only options keep their order here.
        placed = dict(zip(method.options, positional, strict=False))
        if len(positional) > len(placed) or placed.keys() & options.keys():
            known = ", ".join(method.options)
            raise OptionError(f"trust loss '{method.word}' takes {known} after z and the target, each once")
        options = {**placed, **options}
        method.check_options(options)
        _check_values(method, options)
        z, target = _check_pair(z, target, str(method.facts["target"]))
        beside = {name: _beside(options[name], z, name) for name in BESIDE if options.get(name) is not None}
        values: Tensor = method.function(z, target, **{**options, **beside})
        return values

    return checked


def _beside(values: Any, z: Tensor, name: str) -> Tensor:
    """What a loss looks at beside the target: as many values as there are oracle outputs."""
    given = numbers(values, name).detach()
    given = given.squeeze(1) if given.ndim == 2 and given.shape[1] == 1 else given
    if given.shape != z.shape:
        raise InputError(f"{name} must be {len(z)} values, one per oracle output, got shape {tuple(given.shape)}")
    given = given.to(device=z.device, dtype=z.dtype)
    if z.device.type == "cpu" and not bool(((given >= 0) & (given <= 1) & ((given > 0) | (name == "correct"))).all()):
        allowed = "0 or 1" if name == "correct" else "in (0, 1]"
        raise InputError(f"{name} must be {allowed}, got {float(given.min()):g} to {float(given.max()):g}")
    return given


def _check_values(method: Method, options: Mapping[str, Any]) -> None:
    check_kinds(method, options)
    for name, (low, high) in method.facts["ranges"].items():
        if options.get(name) is not None:
            check_range(float(options[name]), f"{name} of trust loss '{method.word}'", low, high)
    for name, words in method.facts["choices"].items():
        if name in options:
            check_choice(options[name], words, f"{name} of trust loss '{method.word}'")


def _check_pair(z: Any, target: Any, name: str) -> tuple[Tensor, Tensor]:
    """Both must be vectors of length n: n x 1 against n would silently become n x n."""
    z, target = numbers(z, "z"), numbers(target, name).detach()
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
