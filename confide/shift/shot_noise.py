"""Noise of few photons."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from confide.core.random_torch import Draws
from confide.shift.family import SHIFTS

LEVELS = 255


@SHIFTS.add(
    "shot_noise",
    paper="Hendrycks and Dietterich, 2019, arXiv:1903.12261",
    kind="benchmark",
    small=(500.0, 250.0, 100.0, 75.0, 50.0),
    large=(60.0, 25.0, 12.0, 5.0, 3.0),
)
def shot_noise(images: Tensor, draws: Draws, parameters: tuple[float, ...]) -> Tensor:
    """Counts of light, Poisson(x c) / c.

    A Poisson number of rate x c is the sum of one of the rate of the 8-bit level below x, drawn by a table, and one of
    the small rest, drawn term by term.
    """
    scale = parameters[0]
    level = (images * LEVELS + 1e-3).floor()
    counts = _by_table(level, draws.uniform("level", *images.shape[1:]), scale)
    rest = (images * LEVELS - level).clamp_min(0).mul_(scale / LEVELS)
    if bool((rest > 1e-3 * scale / LEVELS).any()):
        counts += _term_by_term(rest, draws.uniform("rest", *images.shape[1:]))
    return counts / scale


def _by_table(level: Tensor, drawn: Tensor, scale: float) -> Tensor:
    steps, first, width = _table(scale)
    # Level by level the distribution functions form one rising sequence, level + P(count <= k), in steps of 2^-24.
    row = level.int()
    place = ((row - 128) << 24) + (drawn * 2.0**24).int()
    found = torch.searchsorted(steps.to(level.device), place, right=True, out_int32=True)
    return first.to(level.device)[row] + (found - row * width)


@lru_cache(maxsize=16)
def _table(scale: float) -> tuple[Tensor, Tensor, int]:
    """(level + distribution function in a window, first count of the window of each level, width of a window)."""
    rates = np.arange(LEVELS + 1) * (scale / LEVELS)
    reach = 6.5 * np.sqrt(rates) + 12
    first = np.maximum(np.floor(rates - reach), 0)
    width = int(np.max(rates + reach - first)) + 1
    counts = first[:, None] + np.arange(width)
    log_terms = np.cumsum(np.log(np.maximum(np.arange(int(counts.max()) + 1), 1)))[counts.astype(int)]
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.exp(np.where(counts > 0, counts * np.log(rates)[:, None], 0) - rates[:, None] - log_terms)
    steps = np.minimum(np.cumsum(terms, axis=1), 1.0)
    # The last step of a window is the start of the next level: no draw may run over.
    steps[:, -1] = 1.0
    flat = np.ceil((steps + np.arange(-128, LEVELS - 127)[:, None]) * 2.0**24).clip(-(2.0**31), 2.0**31 - 1).ravel()
    return torch.from_numpy(flat.astype(np.int32)), torch.from_numpy(first.astype(np.float32)), width


def _term_by_term(rate: Tensor, drawn: Tensor) -> Tensor:
    """Poisson numbers of small rates by inversion: how many steps of the distribution function lie under the draw."""
    term = torch.exp(-rate)
    below, counts = term.clone(), torch.zeros_like(rate)
    for k in range(1, 16):
        counts += drawn >= below
        term = term * rate / k
        below += term
    return counts
