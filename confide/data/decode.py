"""One encoded image -> uint8 pixels `c h w`, and the threads that do many at once."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import IO, Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

T = TypeVar("T")

GREY_MODES = ("1", "L", "LA", "La", "I", "I;16", "I;16L", "I;16B", "I;16N")
# Decoding a JPEG at no more than twice the wanted size is several times quicker and looks the same after resizing.
REDUCING_GAP = 2.0


@dataclass(frozen=True)
class PixelFormat:
    """What every image becomes: channels (1 grey, 3 colour), height, width, and how another shape is fitted."""

    channels: int
    height: int
    width: int
    fit: str = "crop"

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.channels, self.height, self.width


def decode(file: IO[bytes], form: PixelFormat) -> NDArray[np.uint8]:
    """Pixels `c h w` of one image; whatever is wrong with it is raised."""
    with file, Image.open(file) as image:
        box = _box(image.size, form)
        if image.format == "JPEG" and image.size != (form.width, form.height):
            full = image.size
            wanted = _size_that_fills(image.size, form)
            image.draft(None, (int(wanted[0] * REDUCING_GAP), int(wanted[1] * REDUCING_GAP)))
            box = tuple(edge * image.size[k % 2] / full[k % 2] for k, edge in enumerate(box))
        plain = _eight_bits(image, form.channels)
        if plain.size != (form.width, form.height):
            plain = plain.resize((form.width, form.height), Image.Resampling.BILINEAR, box=box)
        pixels = np.asarray(plain, dtype=np.uint8)
    return pixels[None] if form.channels == 1 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def examine(file: IO[bytes], deep: bool) -> tuple[int, int, bool]:
    """Height, width and whether it is grey; deep reads all bytes, so that a truncated image is found out."""
    with file, Image.open(file) as image:
        width, height = image.size
        grey = image.mode in GREY_MODES
        if image.mode == "F":
            raise ValueError("floating-point pixels")
        if deep:
            if image.format == "JPEG":
                image.draft(None, (1, 1))  # all bytes are still read, at an eighth of the size
            image.load()
    return height, width, grey


def _size_that_fills(size: tuple[int, int], form: PixelFormat) -> tuple[float, float]:
    """Size of the whole image after resizing: at least the wanted one on both sides."""
    if form.fit == "stretch":
        return form.width, form.height
    scale = max(form.width / size[0], form.height / size[1])
    return size[0] * scale, size[1] * scale


def _box(size: tuple[int, int], form: PixelFormat) -> tuple[float, ...]:
    """The centred part of the image that is kept: all of it, or the largest of the wanted aspect."""
    if form.fit == "stretch":
        return 0.0, 0.0, float(size[0]), float(size[1])
    scale = max(form.width / size[0], form.height / size[1])
    width, height = min(form.width / scale, size[0]), min(form.height / scale, size[1])
    left, top = (size[0] - width) / 2, (size[1] - height) / 2
    return left, top, left + width, top + height


def _eight_bits(image: Image.Image, channels: int) -> Image.Image:
    mode = "L" if channels == 1 else "RGB"
    if image.mode.startswith("I"):
        # Sixteen-bit greys: their high byte. A plain conversion would clip them all to white.
        image = Image.fromarray(np.clip(np.asarray(image, dtype=np.int64) >> 8, 0, 255).astype(np.uint8))
    if image.mode == "P":
        image = image.convert("RGBA")  # palettes with transparency lose colours otherwise
    return image if image.mode == mode else image.convert(mode)


_POOLS: dict[int, ThreadPoolExecutor] = {}


def workers() -> int:
    """How many images are decoded at once: the processors this process may use, at most 16."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(allowed, 16)


def in_threads(work: Callable[[int], T], numbers: Sequence[int]) -> Iterator[T]:
    """Results in order, with few blocks under way at a time, so that neither tasks nor results pile up."""
    block = max(1, min(64, len(numbers) // (4 * workers())))
    begins = iter(range(0, len(numbers), block))
    pool = _pool()

    def submit(begin: int) -> Future[list[T]]:
        return pool.submit(lambda: [work(number) for number in numbers[begin : begin + block]])

    pending = deque(submit(begin) for begin in islice(begins, 4 * workers()))
    while pending:
        yield from pending.popleft().result()
        pending.extend(submit(begin) for begin in islice(begins, 1))


def _pool() -> ThreadPoolExecutor:
    """One pool per process, since threads do not survive a fork."""
    process = os.getpid()
    if process not in _POOLS:
        _POOLS.clear()
        _POOLS[process] = ThreadPoolExecutor(workers(), thread_name_prefix="confide-decode")
    return _POOLS[process]


def reason(error: Exception) -> str:
    """What was wrong, on one line, without memory addresses."""
    text = " ".join(str(error).split())
    if "cannot identify image file" in text:
        return "not an image that can be identified"
    return text or type(error).__name__


def attempt(work: Callable[[int], Any]) -> Callable[[int], Any]:
    """The same work, with what goes wrong as a value: decoders raise many kinds of errors for damaged images."""

    def attempted(number: int) -> Any:
        try:
            return work(number)
        except Exception as error:
            return error

    return attempted
