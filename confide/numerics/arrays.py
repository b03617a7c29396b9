"""One set of functions over numpy arrays and tensors that live on a device: what both name, or answer, otherwise.

Everything of the size of the samples stays where it lives; what leaves a device is looked up at a few places.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from confide.types import AnyArray, Floats, Indices


def namespace(values: AnyArray) -> Any:
    """The module whose functions take such values."""
    return torch if isinstance(values, Tensor) else np


def as_numpy(values: AnyArray) -> NDArray[Any]:
    """As an array of the host."""
    return np.asarray(values.cpu().numpy() if isinstance(values, Tensor) else values)


def doubles(values: AnyArray) -> AnyArray:
    """In double precision."""
    return values.double() if isinstance(values, Tensor) else values.astype(np.float64)


def exact(values: AnyArray) -> AnyArray:
    """Whole numbers that meet fractions: torch would do so in single precision, numpy does it in double."""
    return values.double() if isinstance(values, Tensor) else values


def after_zero(values: AnyArray) -> AnyArray:
    """The values with a 0 before them."""
    return torch.cat((values.new_zeros(1), values)) if isinstance(values, Tensor) else np.append(0.0, values)


def true_places(flags: AnyArray) -> AnyArray:
    """Where they are true."""
    return flags.nonzero().flatten() if isinstance(flags, Tensor) else np.flatnonzero(flags)


def taken(values: AnyArray, places: Indices) -> NDArray[Any]:
    """The values at a few places, as an array of the host."""
    if isinstance(values, Tensor):
        return as_numpy(values[torch.from_numpy(np.ascontiguousarray(places, dtype=np.int64)).to(values.device)])
    return np.asarray(values[places])


def searched(rising: AnyArray, values: NDArray[Any], side: str = "left") -> Indices:
    """Where a few values of the host would be put into rising ones."""
    if isinstance(rising, Tensor):
        # Both of one type: among whole numbers the next whole number has the same place.
        alike = values if rising.is_floating_point() else np.ceil(values) if side == "left" else np.floor(values)
        there = torch.from_numpy(np.ascontiguousarray(alike)).to(rising.device, rising.dtype)
        return as_numpy(torch.searchsorted(rising, there, side=side))
    return np.asarray(np.searchsorted(rising, values, side="left" if side == "left" else "right"), dtype=np.intp)


def sums_by(index: AnyArray, values: AnyArray, size: int) -> Floats:
    """Sums of the values that belong to each of so many numbers."""
    if isinstance(index, Tensor):
        return as_numpy(torch.bincount(index, values, minlength=size))
    return np.asarray(np.bincount(index, values, minlength=size), dtype=np.float64)


def dot(left: AnyArray, right: AnyArray) -> float:
    """Sum of products. Not by BLAS, which would take threads for it beside those that the metrics have."""
    return float(namespace(left).einsum("i,i->", left, right))
