"""Encoded images of all parts -> pixels of one format: in memory when small, decoded when asked for when big."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.core.door import InputError, check_choice, check_range
from confide.core.progress import Progress
from confide.data.checked import Checked, first_look, second_look
from confide.data.decode import PixelFormat, attempt, decode, in_threads, reason
from confide.data.encoded import Encoded
from confide.data.lazy import LazyImages
from confide.data.parts import Found, Part

LARGEST_SIDE = 224


@dataclass(frozen=True)
class ImageOptions:
    """The image options of a source.

    size: side, or (height, width), of every image; the size they all have, else the median short side up to 224.
    fit: `crop` keeps the aspect and cuts the centre, `stretch` keeps all of the image.
    channels: 1 or 3; grey only if all images are.
    memory_gb: up to this the decoded images stay in memory; 0 decodes always when asked for.
    """

    size: int | tuple[int, int] | None = None
    fit: str = "crop"
    channels: int | None = None
    memory_gb: float = 1.0

    def check(self) -> None:
        """Options that make sense."""
        check_choice(self.fit, ("crop", "stretch"), "fit")
        check_choice(self.channels, (None, 1, 3), "channels")
        check_range(self.memory_gb, "memory_gb", 0)
        if self.size is not None:
            sides = (self.size, self.size) if isinstance(self.size, int) else tuple(self.size)
            if len(sides) != 2 or not all(isinstance(side, int) and side > 0 for side in sides):
                raise InputError(f"size must be a side or (height, width) in whole pixels, got {self.size!r}")


def read_images(parts: Mapping[str, tuple[Encoded, Part]], options: ImageOptions, folder: Path, found: Found) -> Found:
    """The parts of `found` with pixels as inputs; images that cannot be read are set aside with their reason."""
    options.check()
    checked = {key: first_look(encoded, folder) for key, (encoded, _) in parts.items()}
    if not any(len(encoded) for encoded, _ in parts.values()):
        return Found({key: part for key, (_, part) in parts.items()}, found.class_names, found.name, found.facts)
    form = _choose(list(checked.values()), options, found.name)
    total = sum(len(encoded) for encoded, _ in parts.values()) * int(np.prod(form.shape))
    lazy = total > options.memory_gb * 1e9
    if lazy:
        checked = {key: second_look(encoded, checked[key], folder) for key, (encoded, _) in parts.items()}
    complete: dict[str, Part] = {}
    aside: list[tuple[str, str]] = list(found.set_aside)
    for key, (encoded, part) in parts.items():
        inputs, wrong = (_later if lazy else _now)(encoded, form, checked[key])
        complete[key] = _without(part, inputs, wrong == "")
        aside += [(str(encoded.names[i]), str(wrong[i])) for i in np.flatnonzero(wrong != "")]
    facts: dict[str, Any] = {
        **found.facts,
        "image_size": [form.height, form.width],
        "fit": form.fit,
        "decoded": "when asked for" if lazy else "in memory",
    }
    return Found(complete, found.class_names, found.name, facts, tuple(aside))


def _choose(checked: list[Checked], options: ImageOptions, name: str) -> PixelFormat:
    good = np.concatenate([c.good for c in checked])
    if not good.any():
        wrong = np.concatenate([c.wrong for c in checked])
        raise InputError(
            f"'{name}' must hold images that can be read, but none of {len(good)} can; the first: {wrong[0]}"
        )
    height = np.concatenate([c.height for c in checked])[good]
    width = np.concatenate([c.width for c in checked])[good]
    grey = bool(np.concatenate([c.grey for c in checked])[good].all())
    if options.size is not None:
        sides = (options.size, options.size) if isinstance(options.size, int) else (options.size[0], options.size[1])
    elif (height == height[0]).all() and (width == width[0]).all():
        sides = (int(height[0]), int(width[0]))
    else:
        side = min(int(np.median(np.minimum(height, width))), LARGEST_SIDE)
        sides = (side, side)
    return PixelFormat(options.channels or (1 if grey else 3), *sides, options.fit)


def _now(encoded: Encoded, form: PixelFormat, checked: Checked) -> tuple[NDArray[np.uint8], NDArray[np.object_]]:
    """All pixels at once; what fails now joins what the first look found."""
    wrong = checked.wrong.copy()
    rows = np.flatnonzero(checked.good)
    pixels = np.empty((len(rows), *form.shape), dtype=np.uint8)
    with Progress("decode images", len(rows)) as progress:
        results = in_threads(attempt(lambda i: decode(encoded.open(i), form)), rows.tolist())
        for i, (row, image) in enumerate(zip(rows.tolist(), results, strict=True)):
            if isinstance(image, Exception):
                wrong[row] = reason(image)
            else:
                pixels[i] = image
            progress.step()
    kept = wrong[rows] == ""
    return (pixels if kept.all() else pixels[kept]), wrong


def _later(encoded: Encoded, form: PixelFormat, checked: Checked) -> tuple[LazyImages, NDArray[np.object_]]:
    return LazyImages(encoded, np.flatnonzero(checked.good), form), checked.wrong


def _without(part: Part, inputs: Any, kept: NDArray[np.bool_]) -> Part:
    ids = part.ids[kept] if part.ids is not None else None
    columns = {name: values[kept] for name, values in part.columns.items()}
    return Part(inputs, np.asarray(part.labels)[kept], ids, columns)
