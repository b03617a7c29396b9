"""The last layer of an oracle: from hidden values to one number z per sample, trustworthy iff z > 0."""

from __future__ import annotations

import torch
from torch import Tensor

from confide.core.door import check_choice

HEADS = ("signed_distance", "linear")


def signed_distance(hidden: Tensor, weight: Tensor, bias: Tensor, epsilon: float = 1e-7) -> Tensor:
    """Signed distance to a hyperplane, z = (w . x + b) / (|w| + 1e-7); the bias is divided too.

    `hidden` is `... n d`, `weight` is `... d`, `bias` is `...`: leading dimensions are members of an ensemble.
    """
    length: Tensor = torch.linalg.vector_norm(weight, dim=-1)
    return linear(hidden, weight, bias) / (length + epsilon)[..., None]


def linear(hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Plain linear head, z = w . x + b."""
    return (hidden @ weight[..., None]).squeeze(-1) + bias[..., None]


def apply_head(head: str, hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The head of that word."""
    check_choice(head, HEADS, "head")
    return signed_distance(hidden, weight, bias) if head == "signed_distance" else linear(hidden, weight, bias)
