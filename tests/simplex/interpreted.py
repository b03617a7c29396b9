"""The GPU's losses on a CPU: Triton's interpreter runs the kernels, and float64 on the CPU says what they must give.

Run by test_simplex_interpreted.py in a process of its own, for Triton reads TRITON_INTERPRET when it is imported. The
kernels that rank a batch (aurc, selective_au) need more than the interpreter has and are left to a GPU.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor

from confide import losses
from confide.simplex import gpu, statistics as simplex

CASES = ((torch.float32, 24, 10, 1e-4), (torch.float32, 7, 3, 1e-4), (torch.bfloat16, 16, 37, 2e-2))
"""Type, rows, classes, and how far the gradient may be off."""
WIDE = ((torch.float32, 2, 300, 1e-4), (torch.float32, 3, 2501, 1e-4), (torch.bfloat16, 2, 2504, 2e-2))
"""Rows longer than one tile, whose beginnings lie anywhere in memory or at multiples of 16 bytes."""
WIDELY = ("cross_entropy", "mbls", "dual_focal", "entropy_regularization", "brier")
RANKED = ("aurc", "selective_au")


def on_the_kernels(modules: list[Any]) -> list[tuple[Any, str, Any]]:
    """Send tensors of the CPU the way of a GPU's; returns what was there before."""
    outputs, fused = simplex._outputs, simplex.fused

    def statistics(logits: Tensor, labels: Tensor | None, request: Any) -> Any:
        plain = (labels is not None and labels.ndim == 2) or request.order not in (1.0, 2.0)
        return outputs(logits, labels, request) if plain else gpu.statistics(logits, labels, request)

    def whole(logits: Tensor, labels: Tensor, name: str, vector: Any = None, table: Any = None, **numbers: Any) -> Any:
        return None if labels.ndim == 2 else gpu.fused(logits, labels, name, vector, table, **numbers)

    before = [(simplex, "_outputs", outputs)]
    before += [(one, "fused", fused) for one in modules if getattr(one, "fused", None) is fused]
    for module, name, _ in before:
        setattr(module, name, statistics if name == "_outputs" else whole)
    return before


def extras(name: str, options: dict[str, Any], n: int, classes: int) -> dict[str, Any]:
    """What a loss wants beside logits and labels."""
    groups = torch.arange(n) % options.get("num_groups", 2)
    wanted = {
        "crl": {"ids": torch.arange(n)},
        "adaptive_difficulty": {"groups": groups},
        "group_dro": {"groups": groups},
        "difficulty_entropy": {"weights": torch.rand(n, generator=torch.Generator().manual_seed(3))},
        "class_balanced": {"class_counts": torch.arange(1, classes + 1)},
    }
    return wanted.get(name, {})


def value_and_gradient(name: str, options: dict[str, Any], logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Mean of the loss and its gradient."""
    torch.manual_seed(0)
    z = logits.clone().requires_grad_()
    values = losses.create(name, **options)(z, labels, **extras(name, options, *logits.shape))
    values.mean().backward()
    assert z.grad is not None
    return values.detach().double().mean(), z.grad.double()


def off(name: str, options: dict[str, Any], case: tuple[torch.dtype, int, int, float]) -> str:
    """How far the kernels are from float64, empty where they are near enough."""
    dtype, n, classes, allowed = case
    generator = torch.Generator().manual_seed(n)
    logits = (2 * torch.randn((n, classes), generator=generator)).to(dtype)
    labels = torch.randint(0, classes, (n,), generator=generator)
    asked = value_and_gradient(name, options, logits.double(), labels)
    before = on_the_kernels([one for key, one in list(sys.modules.items()) if key.startswith("confide")])
    try:
        found = value_and_gradient(name, options, logits, labels)
    finally:
        for module, word, function in before:
            setattr(module, word, function)
    value = float((found[0] - asked[0]).abs() / asked[0].abs().clamp_min(1e-6))
    slope = float((found[1] - asked[1]).norm() / asked[1].norm().clamp_min(1e-9))
    return f"{name} {options} {n}x{classes} {dtype}: value {value:.1e}, gradient {slope:.1e}" * (
        value > 1e-4 or slope > allowed
    )


def main(few: bool) -> None:
    """All losses on all shapes; or on the smallest, and some of them on wide rows."""
    count, wrong = 0, list[str]()
    for method in (one for one in losses.LOSSES if one.word not in RANKED):
        for corner in ({}, *method.corners):
            options = {"num_groups": 2, **corner} if method.word == "adaptive_difficulty" else dict(corner)
            wide = WIDE if method.word in WIDELY and not corner else ()
            told = [off(method.word, options, case) for case in (*(CASES[1:2] if few else CASES), *wide)]
            count, wrong = count + len(told), wrong + [one for one in told if one]
    print("\n".join([*wrong, f"{count} cases, {len(wrong)} wrong"]))
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main(few=sys.argv[1:] == ["few"])
