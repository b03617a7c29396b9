"""Counter-based draws as tensors on any device: value j of a sample is a hash of (its 64-bit key, j).

Integer arithmetic of 32 bits that wraps alike on CPU and GPU, so uniform numbers are the same to the bit everywhere;
normal numbers pass through log and cos, whose last bit may differ between devices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from confide.core.random import Bits, bits, uniform


def _signed(value: int) -> int:
    """The 32 bits of a number as int32 holds them."""
    return value - (1 << 32) if value >= 1 << 31 else value


# An odd step of the counter, and the multipliers of a published finaliser of low bias (Wellons, 2018).
STEP, FIRST, SECOND = _signed(0x9E3779B9), _signed(0x21F0AAAD), _signed(0xD35A2D97)


@dataclass(frozen=True)
class Draws:
    """Random numbers of n samples for one purpose; each name is a stream of its own."""

    seed: int
    keys: Bits
    purpose: str
    device: torch.device

    def _words(self, name: str, size: int) -> Tensor:
        """n x size random int32: (counter + low half of the key), mixed, the high half put in on the way."""
        halves = bits(self.seed, self.keys, f"{self.purpose}/{name}").view(np.int32).reshape(-1, 2)
        key = torch.from_numpy(halves.copy()).to(self.device)
        steps = torch.arange(size, dtype=torch.int32, device=self.device).mul_(STEP)
        words = key[:, :1] + steps
        words ^= (words >> 16) & 0xFFFF
        words *= FIRST
        words ^= (words >> 15) & 0x1FFFF
        words ^= key[:, 1:]
        words *= SECOND
        words ^= (words >> 15) & 0x1FFFF
        return words

    def uniform(self, name: str, *shape: int) -> Tensor:
        """n x shape numbers in [0, 1), multiples of 2^-24."""
        words = self._words(name, math.prod(shape))
        return words.bitwise_right_shift_(8).bitwise_and_(0xFFFFFF).float().mul_(2.0**-24).reshape(-1, *shape)

    def normal(self, name: str, *shape: int) -> Tensor:
        """n x shape standard normal numbers: both of each pair of Box and Muller (1958)."""
        size = math.prod(shape)
        half = (size + 1) // 2
        pairs = self.uniform(name, 2, half)
        radius = pairs[:, 0].neg_().log1p_().mul_(-2.0).sqrt_()
        angle = pairs[:, 1].mul_(2.0 * math.pi)
        both = torch.empty(len(pairs), 2, half, device=self.device)
        torch.mul(radius, angle.cos(), out=both[:, 0])
        torch.mul(radius, angle.sin_(), out=both[:, 1])
        return both.reshape(len(pairs), -1)[:, :size].reshape(-1, *shape)

    def numbers(self, name: str, draws: int) -> NDArray[np.float64]:
        """n x draws uniform numbers with 53 bits on the host, for the few that steer a whole image."""
        drawn = uniform(self.seed, self.keys, f"{self.purpose}/{name}", draws=draws)
        return drawn.reshape(len(self.keys), draws)
