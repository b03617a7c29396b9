"""Draws, folds, splits and label noise keyed by (seed, sample id, purpose): the same whatever the order or batch.

Each sample has its own SplitMix64 stream (Steele et al., 2014): a key mixed from seed, purpose and id, and draw j of
it is mix(key + j * GAMMA). Nothing is stored, so a resumed or distributed run draws what an unbroken one draws.
`folds`, `split` and `noisy_labels` rest on such keys, so a sample keeps its place when others come or go. `generator`
gives numpy draws for what has no ids (resamples, nulls). `Draws` gives keyed draws as tensors on any device.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from confide.checks import InputError, check_choice, check_ids, check_range

# ---- Numbers per sample: bits, uniform, normal, an order ----

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
        return array.astype(np.uint64)  # a negative one wraps
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


# ---- Folds and splits: a sample's place depends on seed, purpose and its id alone ----


def order_keys(ids: Any, seed: int, purpose: str) -> Bits:
    """The 64-bit number by which a purpose sorts each sample.

    Two purposes are older than `bits` and hash the text of the id. They stay as they are: every split recorded by its
    seed, and every fold behind published numbers, rests on them.
    """
    if purpose == "split":
        texts = (hashlib.blake2b(f"{seed}\0{name}".encode(), digest_size=8).digest() for name in ids.tolist())
        return np.frombuffer(b"".join(texts), dtype=">u8").astype(np.uint64)
    if purpose == "trust folds":
        salt = str(seed).encode()
        texts = (hashlib.blake2b(str(name).encode(), digest_size=8, key=salt).digest() for name in ids.tolist())
        return np.frombuffer(b"".join(texts), dtype="<u8").astype(np.uint64)
    return bits(seed, sample_keys(ids), purpose)


def deal(keys: NDArray[Any], strata: NDArray[Any], number: int) -> NDArray[np.int64]:
    """Fold 0..number-1 of every sample: sorted by stratum, then by key, and dealt out in turn like cards.

    Args:
        keys: one a sample, drawn or not; neighbours in their order get different folds.
        strata: what is to be balanced, one value a sample.
        number: of folds.

    Returns:
        n folds.

    Example:
        >>> import numpy as np
        >>> from confide.random import deal
        >>> deal(np.array([4, 1, 3, 2]), np.array([0, 0, 1, 1]), 2).tolist()
        [1, 0, 1, 0]
    """
    fold = np.empty(len(keys), dtype=np.int64)
    fold[np.lexsort((keys, strata))] = np.arange(len(keys)) % number
    return fold


def uneven_shares(num_classes: int, seed: int, *, counter: int = 0) -> NDArray[np.float64]:
    """Shares of classes from a Dirichlet law that makes few of them large; none is 0."""
    rng = np.random.default_rng(int(stream(seed, "class shares", counter)))
    return np.asarray(rng.dirichlet(np.full(num_classes, 0.3)) + 1e-9)


def folds(ids: Any, strata: NDArray[Any], number: int, *, seed: int, purpose: str) -> NDArray[np.int64]:
    """Fold 0..number-1 of every sample, drawn by seed and id; each stratum is spread evenly.

    Args:
        ids: of the samples: the same id has the same draw, whatever stands beside it.
        strata: what is to be balanced, such as the label or whether the prediction is right.
        number: of folds, at least 2.
        seed: of the draws.
        purpose: a word that keeps draws for different ends apart.

    Returns:
        n folds.

    Raises:
        InputError: fewer than two folds.

    Example:
        >>> import numpy as np
        >>> from confide.random import folds
        >>> fold = folds(np.arange(6), np.array([0, 0, 0, 1, 1, 1]), 3, seed=0, purpose="example")
        >>> sorted(fold[:3].tolist()), sorted(fold[3:].tolist())
        ([0, 1, 2], [0, 1, 2])
    """
    check_range(number, "folds", 2)
    return deal(order_keys(ids, seed, purpose), strata, number)


def split(
    ids: Any, labels: NDArray[np.int64], fractions: Mapping[str, float], *, seed: int, purpose: str = "split"
) -> dict[str, NDArray[np.intp]]:
    """Rows of each named part, and of `train` for the rest; every class keeps its share, rows stay in their order.

    Sizes are rounded by largest remainder over the classes, and unless the parts take everything one sample of every
    class stays in `train`. The purpose `validation` rounds each class by itself, and may empty a small one.

    Args:
        ids: of the samples: the same id has the same draw, whatever stands beside it.
        labels: n class indices.
        fractions: part -> its share of the samples.
        seed: of the draws.
        purpose: a word that keeps draws for different ends apart.

    Returns:
        Part -> its rows, with `train` last.

    Example:
        >>> import numpy as np
        >>> from confide.random import split
        >>> rows = split(np.arange(8), np.repeat([0, 1], 4), {"test": 0.25}, seed=0)
        >>> {part: len(of_part) for part, of_part in rows.items()}
        {'test': 2, 'train': 6}
    """
    counts = np.bincount(labels)
    by_class = np.lexsort((order_keys(ids, seed, purpose), labels))
    rank = np.empty(len(labels), dtype=np.int64)  # of a sample within its class
    rank[by_class] = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    everything = sum(fractions.values()) > 1 - 1e-9
    limit = counts if everything or purpose == "validation" else np.maximum(counts - 1, 0)
    begin = np.zeros(len(counts), dtype=np.int64)
    rows: dict[str, NDArray[np.intp]] = {}
    for name, fraction in fractions.items():
        rounded = np.rint(fraction * counts).astype(np.int64)
        end = np.minimum(begin + (rounded if purpose == "validation" else class_shares(counts, fraction)), limit)
        rows[name] = np.flatnonzero((rank >= begin[labels]) & (rank < end[labels]))
        begin = end
    rows["train"] = np.flatnonzero(rank >= begin[labels])
    return rows


def class_shares(counts: NDArray[np.int64], fraction: float) -> NDArray[np.int64]:
    """How many of each class: fraction * count, rounded by largest remainder so that the total is right."""
    exact: NDArray[np.floating[Any]] = counts * fraction
    # A whole share such as 0.29 * 100 comes out as 28.999999999999996: the nudge keeps it whole.
    shares: NDArray[np.int64] = np.floor(exact + 1e-9).astype(np.int64)
    missing = max(round(float(exact.sum())) - int(shares.sum()), 0)
    shares[np.argsort(shares - exact, kind="stable")[:missing]] += 1
    return shares


# ---- Labels of which some are wrong: any other class, or the class one takes it for ----


def noisy_labels(
    labels: Any, rate: float, *, num_classes: int, ids: Any, seed: int = 0, confusion: Any = None, draw: str = "shares"
) -> NDArray[np.int64]:
    """Labels of which a share is replaced, drawn by seed and sample id; a higher rate keeps what a lower one changed.

    Args:
        labels: n class indices.
        rate: share of the labels to replace.
        num_classes: how many classes there are.
        ids: n ids; a sample's draw depends on nothing but its id and the seed.
        seed: of the draws.
        confusion: `c c` counts or shares (row: true class, column: taken for); a wrong label is then drawn in
            proportion to its row. Without it every other class is as likely.
        draw: how the wrong class comes from its draw u. `shares`: the first class at which the summed chances exceed
            u. `rotation`, the draw of a training with `label_noise`: `(label + 1 + floor(u (c - 1))) mod c`, for
            equally likely classes only. Both replace the same samples, by other classes.

    Returns:
        n int64 class indices.

    Raises:
        InputError: for labels outside the classes, a rate outside [0, 1], ids that are not unique.

    Example:
        >>> from confide.shift import noisy_labels
        >>> noisy_labels([0, 1, 2, 0, 1, 2], 0.5, num_classes=3, ids=range(6), seed=1).tolist()
        [0, 1, 0, 0, 0, 2]
    """
    check_range(rate, "rate", 0, 1)
    check_choice(draw, ("shares", "rotation"), "draw")
    true = np.asarray(labels)
    if true.ndim != 1 or true.dtype.kind not in "iu":
        raise InputError(f"labels must be n whole class indices, got shape {true.shape} of {true.dtype}")
    if len(true) and not (true.min() >= 0 and true.max() < num_classes):
        raise InputError(f"labels must lie in [0, {num_classes}), got {true.min()} to {true.max()}")
    true = true.astype(np.int64)
    if not rate:
        return true
    if num_classes < 2:
        raise InputError(f"label noise needs at least two classes, got {num_classes}")
    draws = uniform(seed, sample_keys(check_ids(ids, len(true))), "label_noise", draws=2)
    if draw == "rotation":
        if confusion is not None:
            raise InputError("draw must be 'shares' where a confusion is given, got 'rotation'")
        wrong = (true + 1 + (draws[:, 1] * (num_classes - 1)).astype(np.int64)) % num_classes
    else:
        shares = _noise_shares(confusion, num_classes)
        wrong = (shares.cumsum(axis=1)[true] <= draws[:, 1:]).sum(axis=1).clip(0, num_classes - 1)
    return np.where(draws[:, 0] < rate, wrong, true)


def _noise_shares(confusion: Any, num_classes: int) -> NDArray[np.float64]:
    """Chance of every wrong label, rows sum to 1; a class that nobody takes for another takes any."""
    table = np.ones((num_classes, num_classes)) if confusion is None else np.array(confusion, dtype=np.float64)
    if table.shape != (num_classes, num_classes) or not np.isfinite(table).all() or (table < 0).any():
        raise InputError(
            f"confusion must be {num_classes} x {num_classes} finite counts of 0 or more, got shape {table.shape}"
        )
    np.fill_diagonal(table, 0.0)
    empty = table.sum(axis=1) == 0
    table[empty] = 1.0
    np.fill_diagonal(table, 0.0)
    shares: NDArray[np.float64] = table / table.sum(axis=1, keepdims=True)
    return shares


# ---- numpy generators for draws that no sample owns ----

_NUMBERS = {
    **{"bootstrap": 7, "null": 11, "reliability band": 13, "permutation rows": 17, "permutation": 19},
    **{"classwise bootstrap": 23, "classwise null": 29, "kernel null": 31, "large null": 37},
    **{"classwise permutation": 41, "kernel bootstrap": 43, "kernel permutation": 47},
    **{"classwise mass bootstrap": 53, "classwise mass permutation": 59, "classwise mass null": 61},
}
"""Purposes whose generator was seeded with a number of their own; a new purpose needs none."""


def generator(seed: int, purpose: str, *counters: int) -> np.random.Generator:
    """numpy's generator for (seed, purpose, counters), where a counter is such as the first of a block of resamples."""
    if purpose == "bootstrap rows":  # keyed by the number of samples alone, beyond a million
        return np.random.default_rng(np.random.SeedSequence([seed, *counters]))
    number = _NUMBERS.get(purpose, int(stream(seed, purpose)))
    return np.random.default_rng(np.random.SeedSequence([seed, number, *counters]))


# ---- Draws as tensors on any device: value j of a sample is a hash of (its 64-bit key, j) ----
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
