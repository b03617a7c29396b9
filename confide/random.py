"""Draws keyed by (seed, sample id, purpose): the same whatever the order, batch, process or device.

Each sample has its own SplitMix64 stream (Steele et al., 2014): a key mixed from seed, purpose and id, and draw j of
it is mix(key + j * GAMMA). Nothing is stored, so a resumed or distributed run draws what an unbroken one draws.
`Draws` gives the same as tensors on any device, by 32-bit integers that wrap alike on CPU and GPU: uniform numbers are
equal to the bit everywhere; normal ones pass through log and cos, whose last bit may differ.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# Counter-based draws keyed by (seed, sample id, purpose): the same whatever the order, batch, process or device.
#
# Each sample has its own SplitMix64 stream (Steele et al., 2014): a key mixed from seed, purpose and id, and draw j of
# it is mix(key + j * GAMMA). Nothing is stored, so a resumed or distributed run draws what an unbroken one draws.

GAMMA = np.uint64(0x9E3779B97F4A7C15)
Bits = NDArray[np.uint64]


def _mix(values: Bits) -> Bits:
    # The finaliser of SplitMix64; wrapping multiplication is meant.
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def sample_keys(ids: Any) -> Bits:
    """One 64-bit key per id: integers as they are, strings by a hash of their characters."""
    array = np.asarray(ids)
    if array.dtype.kind in "iu":
        return array.astype(np.int64).view(np.uint64) if array.dtype.kind == "i" else array.astype(np.uint64)
    text = np.ascontiguousarray(array.astype(np.str_))
    characters = text.view(np.uint32).reshape(len(text), -1) if text.size else np.zeros((0, 1), dtype=np.uint32)
    keys = np.full(len(text), 0xCBF29CE484222325, dtype=np.uint64)
    for column in characters.T:
        # Padding zeros must not count: the key of a text may not depend on the longest one beside it.
        keys = np.where(column != 0, _mix(keys ^ column.astype(np.uint64)), keys)
    return keys


def stream(seed: int, purpose: str, counter: int = 0) -> np.uint64:
    """One 64-bit number for (seed, purpose, counter), the root of all streams of that purpose."""
    digest = hashlib.blake2b(f"{seed}/{purpose}/{counter}".encode(), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "little"))


def bits(seed: int, keys: Bits, purpose: str, *, counter: int = 0, draws: int = 1) -> Bits:
    """64 random bits: n of them, or n x draws when several are asked for.

    Args:
        keys: from `sample_keys`.
        counter: a second index of the purpose, such as the epoch.
    """
    keys = np.asarray(keys, dtype=np.uint64)
    start = _mix(_mix(keys + GAMMA) ^ stream(seed, purpose, counter))
    if draws == 1:
        return _mix(start + GAMMA)
    steps = np.arange(1, draws + 1, dtype=np.uint64) * GAMMA
    return _mix(start[:, None] + steps[None, :])


def uniform(seed: int, keys: Bits, purpose: str, *, counter: int = 0, draws: int = 1) -> NDArray[np.float64]:
    """Uniform numbers in [0, 1) with 53 bits."""
    raw = bits(seed, keys, purpose, counter=counter, draws=draws)
    return (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53


def integers(seed: int, keys: Bits, purpose: str, high: int, *, counter: int = 0, draws: int = 1) -> NDArray[np.int64]:
    """Whole numbers in [0, high)."""
    return (uniform(seed, keys, purpose, counter=counter, draws=draws) * high).astype(np.int64)


def normal(seed: int, keys: Bits, purpose: str, *, counter: int = 0, draws: int = 1) -> NDArray[np.float64]:
    """Standard normal numbers (Box and Muller, 1958)."""
    pairs = uniform(seed, keys, purpose, counter=counter, draws=2 * draws)
    radius = np.sqrt(-2.0 * np.log1p(-pairs[:, :draws]))
    values: NDArray[np.float64] = radius * np.cos(2.0 * np.pi * pairs[:, draws:])
    return values[:, 0] if draws == 1 else values


def order(seed: int, keys: Bits, purpose: str, *, counter: int = 0) -> NDArray[np.intp]:
    """A permutation of the samples: rows sorted by a draw of their own."""
    return np.argsort(bits(seed, keys, purpose, counter=counter), kind="stable")


# Counter-based draws as tensors on any device: value j of a sample is a hash of (its 64-bit key, j).
#
# Integer arithmetic of 32 bits that wraps alike on CPU and GPU, so uniform numbers are the same to the bit everywhere;
# normal numbers pass through log and cos, whose last bit may differ between devices.


def _signed(value: int) -> int:
    """The 32 bits of a number as int32 holds them."""
    return value - (1 << 32) if value >= 1 << 31 else value


# An odd step of the counter, and the multipliers of a published finaliser of low bias (Wellons, 2018).
COUNTER_STEP, FIRST_MULTIPLIER, SECOND_MULTIPLIER = _signed(0x9E3779B9), _signed(0x21F0AAAD), _signed(0xD35A2D97)


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
        steps = torch.arange(size, dtype=torch.int32, device=self.device).mul_(COUNTER_STEP)
        words = key[:, :1] + steps
        words ^= (words >> 16) & 0xFFFF
        words *= FIRST_MULTIPLIER
        words ^= (words >> 15) & 0x1FFFF
        words ^= key[:, 1:]
        words *= SECOND_MULTIPLIER
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
