"""LazyImages: images that are decoded when asked for, and otherwise behave like a uint8 array `n c h w`."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.core.door import InputError
from confide.data.decode import PixelFormat, attempt, decode, in_threads, reason
from confide.data.encoded import Encoded


class LazyImages:
    """`images[rows]` decodes those rows by several threads; `subset(rows)` chooses without decoding."""

    def __init__(self, encoded: Encoded, rows: NDArray[np.intp], form: PixelFormat) -> None:
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
        """Changes when an image of them, its bytes or the format does."""
        words = [str(self.form), *self.encoded.names[self.rows].tolist(), *self.encoded.stamps(self.rows)]
        digest = hashlib.blake2b("\0".join(words).encode("utf-8", "surrogateescape"), digest_size=16)
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
                f"({reason(image)}); load the dataset again to set it aside"
            )
        pixels: NDArray[np.uint8] = image
        return pixels
