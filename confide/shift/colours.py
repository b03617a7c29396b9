"""Grey of a colour image."""

from __future__ import annotations

import torch
from torch import Tensor


def luminance(images: Tensor) -> Tensor:
    """Grey as the eye sees it, 0.299 r + 0.587 g + 0.114 b, `n 1 h w`; one channel is its own."""
    if images.shape[1] == 1:
        return images
    weights = torch.tensor([0.299, 0.587, 0.114], device=images.device)[:, None, None]
    return (images * weights).sum(dim=1, keepdim=True)
