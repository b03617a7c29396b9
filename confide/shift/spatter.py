"""Water or mud on the lens."""

from __future__ import annotations

import torch
from torch import Tensor

from confide.core.random_torch import Draws
from confide.shift.blurring import gaussian
from confide.shift.family import SHIFTS

WATER = (175 / 255, 238 / 255, 238 / 255)
MUD = (63 / 255, 42 / 255, 20 / 255)
EMBOSS = ((-2, -1, 0), (-1, 1, 1), (0, 1, 2))
FARTHEST = 20


@SHIFTS.add(
    "spatter",
    paper="Hendrycks and Dietterich, 2019, arXiv:1903.12261",
    kind="extra",
    colour=True,
    small=(
        (0.62, 0.1, 0.7, 0.7, 0.5, 0),
        (0.65, 0.1, 0.8, 0.7, 0.5, 0),
        (0.65, 0.3, 1.0, 0.69, 0.5, 0),
        (0.65, 0.1, 0.7, 0.69, 0.6, 1),
        (0.65, 0.1, 0.5, 0.68, 0.6, 1),
    ),
    large=(
        (0.65, 0.3, 4.0, 0.69, 0.6, 0),
        (0.65, 0.3, 3.0, 0.68, 0.6, 0),
        (0.65, 0.3, 2.0, 0.68, 0.5, 0),
        (0.65, 0.3, 1.0, 0.65, 1.5, 1),
        (0.67, 0.4, 1.0, 0.65, 1.5, 1),
    ),
    smallest=lambda parameters: 8,
)
def spatter(images: Tensor, draws: Draws, parameters: tuple[float, ...]) -> Tensor:
    """Drops where smoothed noise passes a threshold, water (severity 1 to 3, embossed edges) or mud (4 and 5).

    Differs from the benchmark: the rim of a drop is where its mask ends, not what an edge detector finds of it.
    """
    mean, deviation, blur, threshold, strength, mud = parameters
    noise = draws.normal("layer", 1, *images.shape[-2:]).mul_(deviation).add_(mean)
    layer = gaussian(noise, blur)
    layer = torch.where(layer < threshold, 0.0, layer)
    if mud:
        mask = gaussian((layer > threshold).float(), strength)
        mask = torch.where(mask < 0.8, 0.0, mask)
        return images * (1 - mask) + mask * torch.tensor(MUD, device=images.device)[:, None, None]
    wet = (layer * 255).floor().clamp_max(255) * _embossed(layer > 0)
    wet = wet / wet.amax(dim=(1, 2, 3), keepdim=True).clamp_min(1e-6)
    return images + strength * wet * torch.tensor(WATER, device=images.device)[:, None, None]


def _embossed(drops: Tensor) -> Tensor:
    """Light from one side on the distance to the rim: at most 20 pixels, smoothed, levelled, embossed, smoothed."""
    distance = _mean_of_nine(_distance_to_rim(drops).clamp_max(FARTHEST)).floor()
    levelled = _levelled(distance)
    kernel = torch.tensor(EMBOSS, dtype=levelled.dtype, device=drops.device)
    lit = torch.zeros_like(levelled)
    padded = torch.nn.functional.pad(levelled, (1, 1, 1, 1), mode="reflect")
    height, width = drops.shape[-2:]
    for row in range(3):
        for column in range(3):
            lit += kernel[row, column] * padded[..., row : row + height, column : column + width]
    return _mean_of_nine(lit.clamp(0, 255))


def _distance_to_rim(drops: Tensor) -> Tensor:
    """Steps (1 to a side, 1.4 to a corner) to the nearest pixel on the rim of a drop, at most 20."""
    inside = drops.float()
    padded = torch.nn.functional.pad(inside, (1, 1, 1, 1), mode="replicate")
    dry_beside = torch.minimum(
        torch.minimum(padded[..., :-2, 1:-1], padded[..., 2:, 1:-1]),
        torch.minimum(padded[..., 1:-1, :-2], padded[..., 1:-1, 2:]),
    )
    rim = (inside > 0) & (dry_beside < 1)
    distance = torch.where(rim, 0.0, float(FARTHEST))
    height, width = drops.shape[-2:]
    for _ in range(FARTHEST):
        around = torch.nn.functional.pad(distance, (1, 1, 1, 1), value=float(FARTHEST))
        for row in range(3):
            for column in range(3):
                cost = 1.4 if row != 1 and column != 1 else 1.0
                near = around[..., row : row + height, column : column + width]
                distance = torch.minimum(distance, near + cost)
    return distance


def _levelled(values: Tensor) -> Tensor:
    """Histogram equalisation of whole numbers 0 .. 20 per image, onto 0 .. 255."""
    n = len(values)
    rows = values.reshape(n, -1).long()
    counts = torch.zeros(n, FARTHEST + 1, dtype=torch.int64, device=values.device)
    counts.scatter_add_(1, rows, torch.ones_like(rows))
    below = counts.cumsum(1)
    lowest = torch.where(counts > 0, below, rows.shape[1]).amin(dim=1, keepdim=True)
    scale = 255.0 / (rows.shape[1] - lowest).clamp_min(1)
    table = ((below - lowest).clamp_min(0) * scale).round()
    return table.gather(1, rows).reshape(values.shape).float()


def _mean_of_nine(values: Tensor) -> Tensor:
    padded = torch.nn.functional.pad(values, (1, 1, 1, 1), mode="reflect")
    return torch.nn.functional.avg_pool2d(padded, 3, stride=1)
