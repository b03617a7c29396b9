"""An image printed on something soft."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from confide.core.random_torch import Draws
from confide.shift.blurring import gaussian
from confide.shift.family import SHIFTS


def _in_units(side: int, *rows: tuple[float, float, float]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(side * value for value in row) for row in rows)


@SHIFTS.add(
    "elastic_transform",
    paper="Hendrycks and Dietterich, 2019, arXiv:1903.12261; Simard et al., 2003",
    kind="benchmark",
    small=_in_units(32, (0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
    large=_in_units(244, (2, 0.7, 0.1), (2, 0.08, 0.2), (0.05, 0.01, 0.02), (0.07, 0.01, 0.02), (0.12, 0.01, 0.02)),
    smallest=lambda parameters: 8,
)
def elastic_transform(images: Tensor, draws: Draws, parameters: tuple[float, ...]) -> Tensor:
    """A random affine map, then displacements alpha Gaussian(uniform noise in ±1, sigma); bilinear, reflecting.

    The affine map carries three points about the middle to places up to ±a away in both directions.
    """
    alpha, sigma, reach = parameters
    height, width = images.shape[-2:]
    turned = _sample(images, *_affine_places(draws, height, width, reach), edge_twice=False)
    if alpha == 0:
        return turned
    noise = draws.uniform("field", 2, height, width).mul_(2.0).sub_(1.0)
    moves = gaussian(noise, sigma, truncate=3.0, border="reflect").mul_(alpha)
    rows = torch.arange(height, device=images.device)[:, None] + moves[:, 0]
    columns = torch.arange(width, device=images.device) + moves[:, 1]
    return _sample(turned, rows, columns, edge_twice=True)


def _affine_places(draws: Draws, height: int, width: int, reach: float) -> tuple[Tensor, Tensor]:
    """Where each new pixel comes from: the affine map that carries the moved points back to the old ones."""
    middle, leg = np.array([height // 2, width // 2]), min(height, width) // 3
    old = np.stack([middle + leg, middle + np.array([leg, -leg]), middle - leg]).astype(np.float64)
    moved = old + (draws.numbers("affine", 6).reshape(-1, 3, 2) * 2 - 1) * reach
    with_one = np.concatenate([moved, np.ones((len(moved), 3, 1))], axis=2)
    maps = np.linalg.solve(with_one, np.broadcast_to(old, moved.shape))
    table = torch.from_numpy(maps).float().to(draws.device)
    rows = torch.arange(height, device=draws.device)[:, None]
    columns = torch.arange(width, device=draws.device)[None, :]
    down, across = (
        table[:, 0, k, None, None] * rows + table[:, 1, k, None, None] * columns + table[:, 2, k, None, None]
        for k in (0, 1)
    )
    return down, across


def _sample(images: Tensor, rows: Tensor, columns: Tensor, *, edge_twice: bool) -> Tensor:
    """Bilinear values at these places; outside, the image mirrored about its edge or its outermost pixels."""
    height, width = images.shape[-2:]
    if edge_twice:
        places = torch.stack([(2 * columns + 1) / width - 1, (2 * rows + 1) / height - 1], dim=-1)
    else:
        places = torch.stack([2 * columns / (width - 1) - 1, 2 * rows / (height - 1) - 1], dim=-1)
    return torch.nn.functional.grid_sample(
        images, places, mode="bilinear", padding_mode="reflection", align_corners=not edge_twice
    )
