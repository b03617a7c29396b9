"""The family of shifts, `(images n c h w in [0, 1], draws, parameters) -> images`, `corrupt`, which applies one by its
word, and the filters that shifts are made of.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from confide.block_sizes import CACHED, IMAGES_ON_DEVICE
from confide.checks import InputError, check_choice, check_ids
from confide.random import Bits, Draws, sample_keys
from confide.records import Dataset
from confide.registry import Method, MethodSpec, Registry
from confide.types import Floats

Severity = float | tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class ShiftSpec(MethodSpec):
    """What is said of a shift: `kind` is benchmark, extra or domain; `small` and `large` hold the parameters of the
    five severities for 32 and 224 pixels; `smallest` gives the shortest side that works with such parameters; `colour`
    needs three channels.
    """

    kind: str
    small: tuple[Severity, ...]
    large: tuple[Severity, ...]
    smallest: Callable[[tuple[float, ...]], int] = lambda parameters: 2
    colour: bool = False


SHIFTS = Registry("shift", ShiftSpec)
corruption = partial(SHIFTS.add, paper="Hendrycks and Dietterich, 2019, arXiv:1903.12261", kind="benchmark")
"""Registers a corruption of the benchmark, or with another `kind` one that its authors added."""

SEVERITIES = (1, 2, 3, 4, 5)
FORMS = ("32", "224")


def names(kind: str = "all") -> tuple[str, ...]:
    """Words by kind: `benchmark` (15), `corruptions` (16, with Gaussian blur), `corruptions19`, `domain`, `all`.

    Args:
        kind: which of them.

    Returns:
        Sorted words that `corrupt` takes; of `corruptions` Gaussian blur comes last.

    Example:
        >>> confide.shift.names("domain")
        ('grey', 'sketch', 'stylised')
    """
    check_choice(kind, ("benchmark", "corruptions", "corruptions19", "domain", "all"), "kind")
    kinds = {"all": ("benchmark", "extra", "domain"), "corruptions19": ("benchmark", "extra")}.get(kind, (kind,))
    if kind == "corruptions":
        return (*names("benchmark"), "gaussian_blur")
    return tuple(method.word for method in SHIFTS if method.spec.kind in kinds)


def form_of(height: int, width: int, form: str = "auto") -> str:
    """The form of the parameters for images of this size: `auto` takes the nearer of 32 and 224 pixels.

    Args:
        height: of the images.
        width: of the images.
        form: `32`, `224` or `auto`.

    Returns:
        `32` or `224`.

    Example:
        >>> confide.shift.form_of(28, 28)
        '32'
    """
    check_choice(form, ("auto", *FORMS), "form")
    side = min(height, width)
    return form if form != "auto" else "32" if side - 32 <= 224 - side else "224"


def corrupt(images: Any, word: str, severity: int, *, ids: Any, seed: int = 0, form: str = "auto") -> Any:
    """Images under a shift: uint8 or float in [0, 1], `n c h w`, in and out of the same type and device.

    The draws of an image are keyed by (seed, its id, word, severity), so it gets the same corruption in any batch,
    order or process.

    Args:
        images: a tensor or an array of one or three channels.
        word: see `names`.
        severity: 1 to 5.
        ids: one unique integer or string per image.
        seed: of all draws.
        form: `32` or `224`, the published parameters for that size; `auto` takes the nearer.

    Returns:
        The images made worse.

    Raises:
        InputError: there is no such shift, or images of this size or without colours cannot have it.

    Example:
        >>> import numpy as np
        >>> images = np.full((2, 1, 8, 8), 100, dtype=np.uint8)
        >>> confide.shift.corrupt(images, "brightness", 5, ids=[0, 1])[:, 0, 0, 0]
        array([177, 177], dtype=uint8)
    """
    method = SHIFTS.get(word)
    tensor = images if isinstance(images, Tensor) else _tensor(images)
    check_images(tensor)
    parameters = check_shift(tensor, word, severity, form)
    keys = sample_keys(check_ids(ids, len(tensor)))
    result = _in_blocks(method, tensor, keys, f"shift/{word}/{severity}", parameters, seed)
    return result if isinstance(images, Tensor) else result.numpy()


def check_shift(images: Tensor, word: str, severity: int, form: str = "auto") -> tuple[float, ...]:
    """The published numbers of a shift for images of this size, after a check that it can be applied to them.

    Args:
        images: `n c h w`.
        word: see `names`.
        severity: 1 to 5.
        form: `32`, `224` or `auto`.

    Returns:
        The parameters of the severity.

    Raises:
        InputError: as in `corrupt`.

    Example:
        >>> import torch
        >>> confide.shift.check_shift(torch.zeros(1, 3, 32, 32), "fog", 2)
        (0.5, 3.0)
    """
    method = SHIFTS.get(word)
    if isinstance(severity, bool) or severity not in SEVERITIES:
        raise InputError(f"severity must be a whole number from 1 to 5, got {severity!r}")
    height, width = images.shape[2:]
    published = method.spec.small if form_of(height, width, form) == "32" else method.spec.large
    parameters = published[int(severity) - 1]
    parameters = parameters if isinstance(parameters, tuple) else (parameters,)
    if method.spec.colour and images.shape[1] != 3:
        raise InputError(f"shift '{word}' changes colours, but the images have one channel; leave it out")
    smallest = method.spec.smallest(parameters)
    if min(height, width) < smallest:
        raise InputError(
            f"shift '{word}' needs images of at least {smallest} x {smallest} pixels here, "
            f"got {height} x {width}; use form='32', a lower severity or larger images"
        )
    return parameters


def _tensor(images: Any) -> Tensor:
    array = np.array(images)
    if array.dtype.kind not in "biuf":
        raise InputError(f"images must be an array or tensor of numbers, got {array.dtype}; decode them first")
    return torch.from_numpy(array)


def check_images(images: Tensor) -> None:
    """Images must be n c h w of one or three channels: uint8, or floating in [0, 1]."""
    if images.ndim != 4 or images.shape[1] not in (1, 3):
        raise InputError(
            f"images must be n x c x h x w with one or three channels, got shape {tuple(images.shape)}; "
            "move the channels to the second place"
        )
    if images.dtype == torch.uint8:
        return
    if not images.is_floating_point():
        raise InputError(f"images must be uint8, or floating in [0, 1], got {images.dtype}; convert them")
    inside = (images >= 0) & (images <= 1)
    if not bool(inside.all()):
        if not bool(torch.isfinite(images).all()):
            raise InputError("floating images must be finite and lie in [0, 1], got NaN or infinite values; mend them")
        row = int((~inside).flatten(1).any(dim=1).nonzero()[0])
        low, high = float(images[row].min()), float(images[row].max())
        raise InputError(
            f"floating images must lie in [0, 1], got {low:g} to {high:g} in image {row}; "
            "divide by 255, or undo the normalisation"
        )


def _in_blocks(
    method: Method[ShiftSpec], images: Tensor, keys: Bits, purpose: str, parameters: tuple[float, ...], seed: int
) -> Tensor:
    result = torch.empty_like(images)
    block = max(1, (IMAGES_ON_DEVICE if images.device.type == "cuda" else CACHED) // max(images[:1].numel(), 1))
    for start in range(0, len(images), block):
        part = images[start : start + block].contiguous()
        values = part.float().div_(255.0) if part.dtype == torch.uint8 else part.float()
        draws = Draws(seed, keys[start : start + block], purpose, images.device)
        shifted = method.function(values, draws, parameters).clamp(0.0, 1.0)
        if images.dtype == torch.uint8:
            shifted = shifted.mul_(255.0).round_()
        result[start : start + block] = shifted.to(images.dtype)
    return result


def luminance(images: Tensor) -> Tensor:
    """Grey as the eye sees it, 0.299 r + 0.587 g + 0.114 b, `n 1 h w`; one channel is its own."""
    if images.shape[1] == 1:
        return images
    weights = torch.tensor([0.299, 0.587, 0.114], device=images.device)[:, None, None]
    return (images * weights).sum(dim=1, keepdim=True)


# Filters: linear maps along the sides of an image as matrices (Gaussian smoothing, centre zoom, box resizing), and a
# blur along a line.
#
# A map of h rows is a matrix h x h whatever the width of its kernel, so the borders and kernels wider than the image
# need no padding, and a batch is one matrix product.


def filter_sides(images: Tensor, rows: Floats, columns: Floats) -> Tensor:
    """rows @ image @ columns^T for every channel."""
    # On a GPU float32 products may be cut to 10 bits by a setting of the user; in float64 they never are.
    kind = torch.float64 if images.device.type == "cuda" else images.dtype
    left, right = (torch.from_numpy(m).to(images.device, kind) for m in (rows, columns))
    return (left @ (images.to(kind) @ right.T)).to(images.dtype)


def gaussian_filter(images: Tensor, sigma: float, *, truncate: float = 4.0, border: str = "nearest") -> Tensor:
    """Gaussian smoothing, cut off at `truncate` sigma; beyond the border `nearest` or `reflect` (edge twice)."""
    if sigma <= 0:
        return images
    height, width = images.shape[-2:]
    return filter_sides(
        images, gaussian_matrix(height, sigma, truncate, border), gaussian_matrix(width, sigma, truncate, border)
    )


@lru_cache(maxsize=64)
def gaussian_matrix(side: int, sigma: float, truncate: float, border: str) -> Floats:
    """Row i holds the weights of the pixels that make smoothed pixel i."""
    radius = int(truncate * sigma + 0.5)
    offsets = np.arange(-radius, radius + 1)
    weights = np.exp(-0.5 * (offsets / sigma) ** 2)
    weights /= weights.sum()
    source = np.arange(side)[:, None] + offsets[None, :]
    if border == "nearest":
        source = source.clip(0, side - 1)
    else:
        folded = source % (2 * side)
        source = np.minimum(folded, 2 * side - 1 - folded)
    matrix = np.zeros((side, side))
    np.add.at(matrix, (np.arange(side)[:, None], source), np.broadcast_to(weights, source.shape))
    return matrix


@lru_cache(maxsize=256)
def zoom_matrix(side: int, factor: float) -> Floats:
    """The middle 1/factor of a side stretched linearly, ends on ends, and cut to the side again."""
    crop = math.ceil(side / factor)
    begin = (side - crop) // 2
    stretched = round(crop * factor)
    trim = (stretched - side) // 2
    place = (np.arange(side) + trim) * ((crop - 1) / max(stretched - 1, 1))
    low = np.floor(place).astype(int).clip(0, crop - 1)
    share = place - low
    matrix = np.zeros((side, side))
    matrix[np.arange(side), begin + low] += 1 - share
    matrix[np.arange(side), begin + np.minimum(low + 1, crop - 1)] += share
    return matrix


@lru_cache(maxsize=64)
def box_matrix(source: int, target: int) -> Floats:
    """Resizing by the mean of the pixels whose centres fall into the box of a new pixel (at least the nearest)."""
    scale = source / target
    reach = max(scale, 1.0)
    matrix = np.zeros((target, source))
    for row in range(target):
        centre = (row + 0.5) * scale
        first, last = max(int(centre - 0.5 * reach + 0.5), 0), min(int(centre + 0.5 * reach + 0.5), source)
        distance = (np.arange(first, last) + 0.5 - centre) / reach
        matrix[row, first:last] = (distance > -0.5) & (distance <= 0.5)
        matrix[row] /= matrix[row].sum()
    return matrix


def line_blur(images: Tensor, radius: int, sigma: float, degrees: NDArray[np.float64]) -> Tensor:
    """Sum over i = 0 .. 2 radius of w_i image(moved by i pixels along the angle), w_i ~ exp(-i^2 / 2 sigma^2).

    Pixels beyond the border are those of the border.
    """
    n, channels, height, width = images.shape
    taps = np.arange(2 * radius + 1)
    weights = np.exp(-0.5 * (taps / sigma) ** 2)
    weights /= weights.sum()
    turn = np.deg2rad(degrees)[:, None]
    down, right = (-np.ceil(taps * part(turn) - 0.5).astype(np.int64) for part in (np.sin, np.cos))
    flat = images.reshape(n, channels, height * width)
    rows, columns = torch.arange(height, device=images.device), torch.arange(width, device=images.device)
    result = flat * float(weights[0])
    for tap in taps[1:]:
        if weights[tap] < 1e-7:
            break
        dy, dx = (torch.from_numpy(moves[:, tap]).to(images.device)[:, None] for moves in (down, right))
        from_rows = (rows - dy).clamp_(0, height - 1) * width
        place = (from_rows[:, :, None] + (columns - dx).clamp_(0, width - 1)[:, None, :]).reshape(n, 1, -1)
        result += flat.gather(2, place.expand(n, channels, -1)).mul_(float(weights[tap]))
    return result.reshape(images.shape)


def corrupt_split(dataset: Dataset, split: str, word: str, severity: int) -> Dataset:
    """The dataset with the images of one split made worse; draws are keyed by sample id.

    Args:
        dataset: of images.
        split: whose images are made worse; the others stay.
        word: of the shift (`confide list shift`).
        severity: 1 to 5.

    Returns:
        A dataset of the same samples; features that the data carried for the split are left out, for they are those of
        the images as they were.

    Raises:
        InputError: where the data are no images.

    Example:
        >>> import numpy as np
        >>> from confide import load_dataset, shift
        >>> np.savez("images.npz", images=np.zeros((20, 8, 8), dtype=np.uint8), labels=np.arange(20) % 2)
        >>> dataset = load_dataset("images.npz")
        >>> worse = shift.corrupt_split(dataset, "test", "gaussian_noise", 3)
        >>> int(dataset.test.inputs[0].max()), int(worse.test.inputs[0].max()) > 0
        (0, True)
    """
    if dataset.kind != "image":
        raise InputError(f"--shift takes images, got a dataset of {dataset.kind}; leave it out")
    samples = dataset.split(split)
    images = np.asarray(samples.inputs[np.arange(len(samples))])
    columns = {name: values for name, values in samples.columns.items() if name != "features"}
    worse = replace(samples, inputs=corrupt(images, word, severity, ids=samples.ids), columns=columns)
    return replace(dataset, splits={**dataset.splits, split: worse})
