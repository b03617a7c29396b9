"""Encoded images -> uint8 pixels of one format: decoded by threads, checked and remembered, in memory or when asked
for.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import IO, Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from PIL import Image

from confide.checks import InputError, check_choice, check_range
from confide.data.base import RawDataset, RawSplit
from confide.files.formats import read_table, write_table
from confide.progress import Progress

# ---- Encoded images by number: files on disk, or the bytes column of a table ----


class EncodedImages(Protocol):
    """Images as they are stored, each with a name; `place` names the whole."""

    place: str
    names: NDArray[np.str_]

    def __len__(self) -> int: ...

    def open(self, number: int) -> IO[bytes]:
        """A binary file to decode from."""
        ...

    def stamps(self, numbers: NDArray[np.intp]) -> list[str]:
        """One word for each of these images that changes when its bytes do."""
        ...


class ImageFiles:
    """Image files of one part below a folder; names are paths relative to the folder."""

    def __init__(self, root: Path, part: str, names: Sequence[str]) -> None:
        self.root, self.names = str(root), np.array(names, dtype=np.str_)
        self.place = f"{root.resolve()}\0{part}"

    def __len__(self) -> int:
        return len(self.names)

    def open(self, number: int) -> IO[bytes]:
        return open(os.path.join(self.root, self.names[number]), "rb")

    def stamps(self, numbers: NDArray[np.intp]) -> list[str]:
        return [self._stamp(name) for name in self.names[numbers].tolist()]

    def _stamp(self, name: str) -> str:
        try:
            return file_stamp(os.path.join(self.root, name))
        except OSError:
            return "gone"


@dataclass(eq=False)
class ImageBytes:
    """A column of image bytes, in memory or memory-mapped; where bytes are missing, a column of paths may help.

    `version` changes when the files that hold the column do.
    """

    column: pa.ChunkedArray
    names: NDArray[np.str_]
    place: str
    version: str = ""
    paths: pa.ChunkedArray | None = None

    def __len__(self) -> int:
        return len(self.column)

    def open(self, number: int) -> IO[bytes]:
        content = self.column[number].as_py()
        path = self.paths[number].as_py() if content is None and self.paths is not None else None
        if path is not None:
            return open(path, "rb")
        if content is None:
            raise ValueError("no image bytes")
        return io.BytesIO(content)

    def stamps(self, numbers: NDArray[np.intp]) -> list[str]:
        lengths = pc.fill_null(pc.binary_length(self.column), -1).to_numpy()
        return [f"{self.version}:{length}" for length in lengths[numbers].tolist()]


def file_stamp(file: str | Path) -> str:
    """One word that changes when the file does."""
    status = os.stat(file)
    return f"{status.st_size}:{status.st_mtime_ns}"


# ---- uint8 pixels `c h w` -> a picture, and its bytes ----


def as_picture(pixels: Any, *, channels: tuple[int, ...] = (1, 3)) -> Image.Image | None:
    """The picture of uint8 pixels `c h w` with so many channels; None for anything else."""
    pixels = np.asarray(pixels)
    if pixels.ndim != 3 or pixels.dtype != np.uint8 or pixels.shape[0] not in channels:
        return None
    return Image.fromarray(pixels[0] if pixels.shape[0] == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0)))


def picture_bytes(picture: Image.Image, kind: str = "png", **options: Any) -> bytes:
    """A picture as the bytes of a file: `png` or `jpeg`, with the options of that format."""
    buffer = io.BytesIO()
    picture.save(buffer, format=kind, **options)
    return buffer.getvalue()


# ---- One encoded image -> uint8 pixels `c h w`, and the threads that do many at once ----

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
            width, height = _size_that_fills(image.size, form)
            image.draft(None, (int(width * REDUCING_GAP), int(height * REDUCING_GAP)))
            box = tuple(edge * image.size[k % 2] / full[k % 2] for k, edge in enumerate(box))
        plain = _eight_bits(image, form.channels)
        if plain.size != (form.width, form.height):
            plain = plain.resize((form.width, form.height), Image.Resampling.BILINEAR, box=box)
        pixels = np.asarray(plain, dtype=np.uint8)
    return pixels[None] if form.channels == 1 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def inspect_image(file: IO[bytes], deep: bool) -> tuple[int, int, bool]:
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


def decode_workers() -> int:
    """How many images are decoded at once: the processors this process may use, at most 16."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(allowed, 16)


def in_threads(work: Callable[[int], T], numbers: Sequence[int]) -> Iterator[T]:
    """Results in order, with few blocks under way at a time, so that neither tasks nor results pile up."""
    block = max(1, min(64, len(numbers) // (4 * decode_workers())))
    begins = iter(range(0, len(numbers), block))
    pool = _pool()

    def submit(begin: int) -> Future[list[T]]:
        return pool.submit(lambda: [work(number) for number in numbers[begin : begin + block]])

    pending = deque(submit(begin) for begin in islice(begins, 4 * decode_workers()))
    while pending:
        yield from pending.popleft().result()
        pending.extend(submit(begin) for begin in islice(begins, 1))


def _pool() -> ThreadPoolExecutor:
    """One pool per process, since threads do not survive a fork."""
    process = os.getpid()
    if process not in _POOLS:
        _POOLS.clear()
        _POOLS[process] = ThreadPoolExecutor(decode_workers(), thread_name_prefix="confide-decode")
    return _POOLS[process]


def reason_of(error: Exception) -> str:
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


# ---- Which images can be read, and their sizes: found by threads, remembered for big sets ----

IMAGES_PER_WRITE = 50_000
"""Images between two writes of the list: a check that is stopped goes on from there."""


@dataclass(frozen=True, eq=False)
class ImageCheck:
    """Per image: height, width, grey or not, what is wrong (an empty text if nothing), whether all bytes were read."""

    height: NDArray[np.int64]
    width: NDArray[np.int64]
    grey: NDArray[np.bool_]
    wrong: NDArray[np.object_]
    deep: NDArray[np.bool_]

    @property
    def good(self) -> NDArray[np.bool_]:
        return np.asarray(self.wrong == "", dtype=bool)


def check_headers(encoded: EncodedImages, folder: Path) -> ImageCheck:
    """Sizes of all images: what an earlier deep check found where it still holds, else from their headers."""
    n = len(encoded)
    empty = np.zeros(n, dtype=np.int64)
    checked = ImageCheck(empty, empty.copy(), np.zeros(n, bool), np.full(n, "", dtype=object), np.zeros(n, bool))
    _recall(checked, encoded, folder)
    unknown = np.flatnonzero(~checked.deep)
    with Progress("find images", len(unknown)) as progress:
        _inspect_rows(checked, encoded, unknown, deep=False, progress=progress)
    return checked


def check_all_bytes(encoded: EncodedImages, checked: ImageCheck, folder: Path) -> ImageCheck:
    """Every byte of the images that have not been checked so yet; the result is remembered, block by block."""
    fresh = np.flatnonzero(~checked.deep)
    with Progress("check images", len(fresh)) as progress:
        for begin in range(0, len(fresh), IMAGES_PER_WRITE):
            rows = fresh[begin : begin + IMAGES_PER_WRITE]
            _inspect_rows(checked, encoded, rows, deep=True, progress=progress)
            checked.deep[rows] = True
            # The list only saves time: where it cannot be written (a read-only home), the next load checks again.
            with contextlib.suppress(OSError):
                _write_list(checked, encoded, folder)
    return checked


def _inspect_rows(
    checked: ImageCheck, encoded: EncodedImages, rows: NDArray[np.intp], *, deep: bool, progress: Progress
) -> None:
    """Fill in these rows, by threads."""
    numbers = rows.tolist()
    results = in_threads(attempt(lambda i: inspect_image(encoded.open(i), deep)), numbers)
    for i, result in zip(numbers, results, strict=True):
        if isinstance(result, Exception):
            checked.wrong[i] = reason_of(result)
        else:
            checked.height[i], checked.width[i], checked.grey[i] = result
        progress.step()


def _write_list(checked: ImageCheck, encoded: EncodedImages, folder: Path) -> None:
    rows = np.flatnonzero(checked.deep)
    columns = {
        "name": encoded.names[rows],
        "stamp": np.array(encoded.stamps(rows)),
        "height": checked.height[rows],
        "width": checked.width[rows],
        "grey": checked.grey[rows],
        "wrong": checked.wrong[rows].astype(np.str_),
    }
    write_table(_list_file(encoded, folder), columns)


def _recall(checked: ImageCheck, encoded: EncodedImages, folder: Path) -> None:
    """Fill in what the list of an earlier check says of images with the same name and stamp."""
    path = _list_file(encoded, folder)
    if not path.exists():
        return
    try:
        table, _ = read_table(path)
        columns: list[Any] = [table[key].tolist() for key in ("name", "stamp", "height", "width", "grey", "wrong")]
    except (InputError, KeyError):
        return  # a damaged list is made anew
    old = {(name, stamp): facts for name, stamp, *facts in zip(*columns, strict=True)}
    stamps = encoded.stamps(np.arange(len(encoded)))
    for i, key in enumerate(zip(encoded.names.tolist(), stamps, strict=True)):
        if key in old:
            checked.height[i], checked.width[i], checked.grey[i], checked.wrong[i] = old[key]
            checked.deep[i] = True


def _list_file(encoded: EncodedImages, folder: Path) -> Path:
    word = hashlib.blake2b(encoded.place.encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()
    return folder / "checked-images" / f"{word}.parquet"


SAMPLED_IMAGES, SAMPLED_BYTES = 256, 1 << 16
"""Images whose first bytes are part of the fingerprint."""


class LazyImages:
    """`images[rows]` decodes those rows by several threads; `subset(rows)` chooses without decoding."""

    def __init__(self, encoded: EncodedImages, rows: NDArray[np.intp], form: PixelFormat) -> None:
        self.encoded, self.rows, self.form = encoded, rows, form
        self.dtype = np.dtype(np.uint8)
        self.ndim = 4

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return len(self.rows), *self.form.shape

    @property
    def nbytes(self) -> int:
        """What all of them would take in memory."""
        return int(np.prod(self.shape))

    @property
    def fingerprint(self) -> str:
        """Changes when an image of them or the format does.

        It reads the size and time of every file, some 10 s for a million, and the beginning of some files spread over
        all, which tells of others put in their place under the same sizes and times.
        """
        words = [str(self.form), *self.encoded.names[self.rows].tolist(), *self.encoded.stamps(self.rows)]
        digest = hashlib.blake2b("\0".join(words).encode("utf-8", "surrogateescape"), digest_size=16)
        for number in np.unique(np.linspace(0, len(self) - 1, min(len(self), SAMPLED_IMAGES)).astype(np.intp)):
            # What cannot be read any more has another stamp already.
            with contextlib.suppress(OSError, ValueError), self.encoded.open(int(self.rows[number])) as file:
                digest.update(file.read(SAMPLED_BYTES))
        return digest.hexdigest()

    def subset(self, rows: Any) -> LazyImages:
        """The chosen rows, still undecoded."""
        return LazyImages(self.encoded, self.rows[rows], self.form)

    def __getitem__(self, rows: Any) -> NDArray[np.uint8]:
        if isinstance(rows, tuple):
            raise TypeError("images decoded when asked for are indexed by rows alone: write images[rows][:, 0]")
        index = np.asarray(rows) if hasattr(rows, "__len__") else rows
        chosen = self.rows[index.astype(np.intp) if np.size(index) == 0 else index]
        if np.ndim(chosen) == 0:
            return self._decoded(int(chosen))
        pixels = np.empty((len(chosen), *self.form.shape), dtype=np.uint8)
        numbers = chosen.tolist()
        many = in_threads(self._decoded, numbers) if len(numbers) > 1 else map(self._decoded, numbers)
        for i, image in enumerate(many):
            pixels[i] = image
        return pixels

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("images decoded when asked for cannot become an array without a copy")
        return self[:] if dtype is None else self[:].astype(dtype, copy=False)

    def _decoded(self, number: int) -> NDArray[np.uint8]:
        image = attempt(lambda i: decode(self.encoded.open(i), self.form))(number)
        if isinstance(image, Exception):
            raise InputError(
                f"image '{self.encoded.names[number]}' could be read when the dataset was loaded, but not now "
                f"({reason_of(image)}); load the dataset again to set it aside"
            )
        pixels: NDArray[np.uint8] = image
        return pixels


# ---- Encoded images of all parts -> pixels of one format: in memory when small, decoded when asked for when big ----

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
            sides = tuple(self.size) if isinstance(self.size, Sequence) else (self.size, self.size)
            if len(sides) != 2 or not all(isinstance(side, int) and side > 0 for side in sides):
                raise InputError(f"size must be a side or (height, width) in whole pixels, got {self.size!r}")


def read_images(
    parts: Mapping[str, tuple[EncodedImages, RawSplit]], options: ImageOptions, folder: Path, raw: RawDataset
) -> RawDataset:
    """The parts of `raw` with pixels as inputs; images that cannot be read are set aside with their reason."""
    options.check()
    checked = {key: check_headers(encoded, folder) for key, (encoded, _) in parts.items()}
    if not any(len(encoded) for encoded, _ in parts.values()):
        return replace(raw, parts={key: part for key, (_, part) in parts.items()}, set_aside=())
    form = _pixel_format(list(checked.values()), options, raw.name)
    total = sum(len(encoded) for encoded, _ in parts.values()) * int(np.prod(form.shape))
    lazy = total > options.memory_gb * 1e9
    if lazy:
        checked = {key: check_all_bytes(encoded, checked[key], folder) for key, (encoded, _) in parts.items()}
    complete: dict[str, RawSplit] = {}
    aside: list[tuple[str, str]] = list(raw.set_aside)
    for key, (encoded, part) in parts.items():
        inputs, wrong = (_lazy_pixels if lazy else _all_pixels)(encoded, form, checked[key])
        complete[key] = _readable_part(part, inputs, wrong == "")
        aside += [(str(encoded.names[i]), str(wrong[i])) for i in np.flatnonzero(wrong != "")]
    decoded = "when asked for" if lazy else "in memory"
    provenance = replace(raw.provenance, image_size=(form.height, form.width), fit=form.fit, decoded=decoded)
    return replace(raw, parts=complete, provenance=provenance, set_aside=tuple(aside))


def _pixel_format(checked: list[ImageCheck], options: ImageOptions, name: str) -> PixelFormat:
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


def _all_pixels(
    encoded: EncodedImages, form: PixelFormat, checked: ImageCheck
) -> tuple[NDArray[np.uint8], NDArray[np.object_]]:
    """All pixels at once; what fails now joins what the first look found."""
    wrong = checked.wrong.copy()
    rows = np.flatnonzero(checked.good)
    pixels = np.empty((len(rows), *form.shape), dtype=np.uint8)
    with Progress("decode images", len(rows)) as progress:
        results = in_threads(attempt(lambda i: decode(encoded.open(i), form)), rows.tolist())
        for i, (row, image) in enumerate(zip(rows.tolist(), results, strict=True)):
            if isinstance(image, Exception):
                wrong[row] = reason_of(image)
            else:
                pixels[i] = image
            progress.step()
    readable = wrong[rows] == ""
    return (pixels if readable.all() else pixels[readable]), wrong


def _lazy_pixels(
    encoded: EncodedImages, form: PixelFormat, checked: ImageCheck
) -> tuple[LazyImages, NDArray[np.object_]]:
    return LazyImages(encoded, np.flatnonzero(checked.good), form), checked.wrong


def _readable_part(part: RawSplit, inputs: Any, readable: NDArray[np.bool_]) -> RawSplit:
    ids = part.ids[readable] if part.ids is not None else None
    columns = {name: values[readable] for name, values in part.columns.items()}
    return RawSplit(inputs, np.asarray(part.labels)[readable], ids, columns)
