"""The family of shifts: `(images n c h w in [0, 1], draws, parameters) -> images`; `corrupt` is its door."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from confide.core.door import InputError, check_choice
from confide.core.random import Bits, sample_keys
from confide.core.random_torch import Draws
from confide.core.records import check_ids
from confide.core.registry import Method, Registry

SHIFTS = Registry("shift")
"""Facts: `kind` (benchmark, extra or domain), `small` and `large` (parameters of the five severities for 32 and 224
pixels), `smallest` (parameters -> shortest side that works), `colour` (needs three channels)."""

SEVERITIES = (1, 2, 3, 4, 5)
FORMS = ("32", "224")
BLOCK = {"cpu": 1 << 19, "cuda": 1 << 23}
"""Values worked on at a time: a block that stays in the cache on a CPU, that fills the device on a GPU."""


def names(kind: str = "all") -> tuple[str, ...]:
    """Words by kind: `benchmark` (15), `corruptions` (16, with Gaussian blur), `corruptions19`, `domain`, `all`."""
    check_choice(kind, ("benchmark", "corruptions", "corruptions19", "domain", "all"), "kind")
    kinds = {"all": ("benchmark", "extra", "domain"), "corruptions19": ("benchmark", "extra")}.get(kind, (kind,))
    if kind == "corruptions":
        return (*names("benchmark"), "gaussian_blur")
    return tuple(method.word for method in SHIFTS if method.facts["kind"] in kinds)


def form_of(height: int, width: int, form: str = "auto") -> str:
    """The form of the parameters for images of this size: `auto` takes the nearer of 32 and 224 pixels."""
    check_choice(form, ("auto", *FORMS), "form")
    side = min(height, width)
    return form if form != "auto" else "32" if side - 32 <= 224 - side else "224"


def corrupt(images: Any, word: str, severity: int, *, ids: Any, seed: int = 0, form: str = "auto") -> Any:
    """Images under a shift: uint8 or float in [0, 1], `n c h w`, in and out of the same type and device.

    The draws of an image are keyed by (seed, its id, word, severity), so it gets the same corruption in any batch,
    order or process.

    Args:
        word: see `names`.
        severity: 1 to 5.
        ids: one unique integer or string per image.
        form: `32` or `224`, the published parameters for that size; `auto` takes the nearer.
    """
    method = SHIFTS.get(word)
    tensor = images if isinstance(images, Tensor) else _tensor(images)
    check_images(tensor)
    parameters = check_shift(tensor, word, severity, form)
    keys = sample_keys(check_ids(ids, len(tensor)))
    result = _in_blocks(method, tensor, keys, f"shift/{word}/{severity}", parameters, seed)
    return result if isinstance(images, Tensor) else result.numpy()


def check_shift(images: Tensor, word: str, severity: int, form: str = "auto") -> tuple[float, ...]:
    """The published numbers of a shift for images of this size, after a check that it can be applied to them."""
    method = SHIFTS.get(word)
    if isinstance(severity, bool) or severity not in SEVERITIES:
        raise InputError(f"severity must be a whole number from 1 to 5, got {severity!r}")
    parameters = parameters_of(method, int(severity), form_of(images.shape[2], images.shape[3], form))
    check_fits(method, parameters, images)
    return parameters


def _tensor(images: Any) -> Tensor:
    array = np.array(images)
    if array.dtype.kind not in "biuf":
        raise InputError(f"images must be an array or tensor of numbers, got {array.dtype}; decode them first")
    return torch.from_numpy(array)


def parameters_of(method: Method, severity: int, form: str) -> tuple[float, ...]:
    """The published numbers of a severity, as a tuple."""
    found = method.facts["small" if form == "32" else "large"][severity - 1]
    return found if isinstance(found, tuple) else (found,)


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


def check_fits(method: Method, parameters: tuple[float, ...], images: Tensor) -> None:
    """Grey images cannot lose their colours, and a kernel must fit into the image."""
    if method.facts.get("colour") and images.shape[1] != 3:
        raise InputError(f"shift '{method.word}' changes colours, but the images have one channel; leave it out")
    smallest = method.facts["smallest"](parameters) if "smallest" in method.facts else 2
    side = min(images.shape[2:])
    if side < smallest:
        raise InputError(
            f"shift '{method.word}' needs images of at least {smallest} x {smallest} pixels here, "
            f"got {images.shape[2]} x {images.shape[3]}; use form='32', a lower severity or larger images"
        )


def _in_blocks(
    method: Method, images: Tensor, keys: Bits, purpose: str, parameters: tuple[float, ...], seed: int
) -> Tensor:
    result = torch.empty_like(images)
    block = max(1, BLOCK.get(images.device.type, BLOCK["cpu"]) // max(images[:1].numel(), 1))
    for start in range(0, len(images), block):
        part = images[start : start + block].contiguous()
        values = part.float().div_(255.0) if part.dtype == torch.uint8 else part.float()
        draws = Draws(seed, keys[start : start + block], purpose, images.device)
        made = method.function(values, draws, parameters).clamp(0.0, 1.0)
        if images.dtype == torch.uint8:
            made = made.mul_(255.0).round_()
        result[start : start + block] = made.to(images.dtype)
    return result
