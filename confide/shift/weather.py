"""Shifts of weather: fog, frost, snow, and spatter on the lens."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from confide.random import Draws
from confide.shift.base import corruption, filter_sides, gaussian_filter, line_blur, luminance, zoom_matrix

# Fog, thicker here and thinner there.


@corruption(
    "fog",
    small=((0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75)),
    large=((1.5, 2.0), (2.0, 2.0), (2.5, 1.7), (2.5, 1.5), (3.0, 1.4)),
)
def fog(images: Tensor, draws: Draws, parameters: tuple[float, ...]) -> Tensor:
    """Fog, (x + c plasma) max / (max + c), where max is the brightest value of the image.

    When: pictures are taken outdoors.
    When not: such pictures cannot occur: a fall in accuracy then says nothing about use.
    """
    strength, decay = parameters
    height, width = images.shape[-2:]
    layer = plasma(draws, max(height, width), decay)[:, None, :height, :width]
    brightest = images.amax(dim=(1, 2, 3), keepdim=True)
    return (images + strength * layer) * (brightest / (brightest + strength))


def plasma(draws: Draws, side: int, decay: float) -> Tensor:
    """Diamond-square fractals scaled to [0, 1], n maps of the power of two that holds the side.

    A new point is the mean of its four neighbours (round the edges) plus uniform noise, whose size starts at 100^2
    and is divided by decay^2 with every halving of the step.
    """
    size = 1 << max(side - 1, 1).bit_length()
    field = torch.zeros(len(draws.keys), size, size, device=draws.device)
    step, spread = size, 1e4
    while step >= 2:
        half, count = step // 2, size // step
        noise = draws.uniform(f"plasma{step}", 3, count, count).mul_(2 * spread).sub_(spread)
        corners = field[:, ::step, ::step]
        below = corners + corners.roll(-1, 1)
        centres = (below + below.roll(-1, 2)) / 4 + noise[:, 0]
        top = (centres + centres.roll(1, 1) + corners + corners.roll(-1, 2)) / 4 + noise[:, 1]
        left = (centres + centres.roll(1, 2) + corners + corners.roll(-1, 1)) / 4 + noise[:, 2]
        field[:, half::step, half::step] = centres
        field[:, ::step, half::step] = top
        field[:, half::step, ::step] = left
        step, spread = half, spread / decay**2
    field -= field.amin(dim=(1, 2), keepdim=True)
    return field / field.amax(dim=(1, 2), keepdim=True)


# Frost on a window: a procedural layer, since the published one is made of other people's photographs.

FROST_NEEDLES = 6
FROST_TINT = (0.82, 0.93, 1.0)


@corruption(
    "frost",
    small=((1.0, 0.2), (1.0, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
    large=((1.0, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),
)
def frost(images: Tensor, draws: Draws, parameters: tuple[float, ...]) -> Tensor:
    """Frost on a window, a x + b (layer of crystals).

    Differs from the benchmark: its layer is a random crop of five photographs, ours is drawn for every image, so
    results are comparable among themselves and not with published frost figures.

    When: pictures are taken through cold glass.
    When not: such pictures cannot occur: a fall in accuracy then says nothing about use.
    """
    keep, cover = parameters
    layer = crystals(draws, *images.shape[-2:])
    if images.shape[1] == 3:
        layer = layer * torch.tensor(FROST_TINT, device=images.device)[:, None, None]
    return keep * images + cover * layer


def crystals(draws: Draws, height: int, width: int) -> Tensor:
    """Needles over clouds, `n 1 h w` in [0, 1]: crests of waves in a few directions, bent by smooth noise."""
    side = max(height, width)
    clouds = smooth_noise(draws, "clouds", side, (2, 4, 8, 16))[:, :height, :width]
    bend = smooth_noise(draws, "bend", side, (2, 4, 8))[:, :height, :width]
    steer = torch.from_numpy(draws.numbers("needles", 3 * FROST_NEEDLES)).float().to(draws.device)
    rows = torch.arange(height, device=draws.device)[:, None] / side
    columns = torch.arange(width, device=draws.device)[None, :] / side
    ridges = torch.zeros_like(clouds)
    for needle in range(FROST_NEEDLES):
        angle, rate, phase = (steer[:, 3 * needle + k, None, None] for k in range(3))
        across = rows * torch.sin(math.pi * angle) + columns * torch.cos(math.pi * angle)
        wave = torch.sin(2 * math.pi * ((2 + 6 * rate) * (across + 0.35 * bend) + phase))
        # The crest of a wave is a thin bright needle.
        ridges = torch.maximum(ridges, (1 - wave.abs()).pow(4))
    return (0.25 + 0.45 * clouds + 0.5 * ridges * clouds.sqrt()).clamp(0.0, 1.0)[:, None]


def smooth_noise(draws: Draws, name: str, side: int, cells: tuple[int, ...]) -> Tensor:
    """Noise of several scales in [0, 1], `n side side`: random grids stretched smoothly, halved in size each time."""
    total = torch.zeros(len(draws.keys), side, side, device=draws.device)
    for octave, count in enumerate(cells):
        grid = draws.uniform(f"{name}{count}", 1, count + 1, count + 1)
        layer = torch.nn.functional.interpolate(grid, size=(side, side), mode="bilinear", align_corners=True)
        total += layer[:, 0] / 2**octave
    total -= total.amin(dim=(1, 2), keepdim=True)
    return total / total.amax(dim=(1, 2), keepdim=True).clamp_min(1e-6)


@corruption(
    "snow",
    small=(
        (0.1, 0.2, 1.0, 0.6, 8, 3.0, 0.95),
        (0.1, 0.2, 1.0, 0.5, 10, 4.0, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4.0, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6.0, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12.0, 0.8),
    ),
    large=(
        (0.1, 0.3, 3.0, 0.5, 10, 4.0, 0.8),
        (0.2, 0.3, 2.0, 0.5, 12, 4.0, 0.7),
        (0.55, 0.3, 4.0, 0.9, 12, 8.0, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8.0, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12, 12.0, 0.55),
    ),
    smallest=lambda parameters: 2 * int(parameters[4]),
)
def snow(images: Tensor, draws: Draws, parameters: tuple[float, ...]) -> Tensor:
    """Falling snow, w x + (1 - w) max(x, 1.5 grey + 0.5), plus a layer of streaks and the same turned by 180°.

    The layer: N(mean, deviation), zoomed, values under t set to 0, moved along an angle of -135° to -45°.

    When: pictures are taken outdoors in winter.
    When not: such pictures cannot occur: a fall in accuracy then says nothing about use.
    """
    mean, deviation, zoom, threshold, radius, sigma, share = parameters
    height, width = images.shape[-2:]
    layer = draws.normal("layer", 1, height, width).mul_(deviation).add_(mean)
    layer = filter_sides(layer, zoom_matrix(height, zoom), zoom_matrix(width, zoom))
    layer = torch.where(layer < threshold, 0.0, layer).clamp_(0.0, 1.0)
    degrees = draws.numbers("angle", 1)[:, 0] * 90.0 - 135.0
    layer = line_blur(layer, int(radius), sigma, degrees)
    whitened = torch.maximum(images, luminance(images) * 1.5 + 0.5)
    return share * images + (1 - share) * whitened + layer + layer.flip(-2, -1)


# Water or mud on the lens.

WATER = (175 / 255, 238 / 255, 238 / 255)
MUD = (63 / 255, 42 / 255, 20 / 255)
EMBOSS = ((-2, -1, 0), (-1, 1, 1), (0, 1, 2))
FARTHEST = 20


@corruption(
    "spatter",
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

    When: drops or dirt sit on the lens.
    When not: such pictures cannot occur: a fall in accuracy then says nothing about use.
    """
    mean, deviation, blur, threshold, strength, mud = parameters
    noise = draws.normal("layer", 1, *images.shape[-2:]).mul_(deviation).add_(mean)
    layer = gaussian_filter(noise, blur)
    layer = torch.where(layer < threshold, 0.0, layer)
    if mud:
        mask = gaussian_filter((layer > threshold).float(), strength)
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
