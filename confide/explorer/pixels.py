"""What a pixel of a segmented image is shown as: maps of confidence and error of its image, with the pixel ringed."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray

from confide import dense
from confide.explorer.details import LONGEST_SIDE, Content, Pictures, encoded_picture
from confide.explorer.layout import DataSource
from confide.explorer.queries import SampleDatabase
from confide.predictions import IMAGE

COLUMNS = tuple(f"c.{name}" for name in (IMAGE, dense.PLACE, dense.HEIGHT, dense.WIDTH))
MOST_IMAGES = 8
"""Images whose maps are kept: samples beside each other are often of one image."""
LARGEST = 1 << 26
"""Pixels of an image at most: columns of a file may say anything."""


def has_pixels(database: SampleDatabase) -> bool:
    """Whether the rows are pixels of images, and no dataset brings pictures of its own."""
    columns = database.samples.columns
    known = set(COLUMNS) <= set(columns) and bool(database.models)
    return known and columns[COLUMNS[1]].kind == "number" and not isinstance(database.layout.data, DataSource)


class PixelPictures(Pictures):
    """Maps of the image that a pixel lies in, by the first model at the stage that it opens at."""

    def __init__(self, database: SampleDatabase) -> None:
        super().__init__(database.layout, database.samples)
        self.database, self.loaded = database, True
        self.reason = (
            "Pictures are maps of the image that a pixel is in: its confidence in grey on the left, errors in red on "
            "the right, in blue what does not count; the pixel is ringed."
        )
        self._maps: OrderedDict[Hashable, tuple[NDArray[np.float32], NDArray[np.float32]]] = OrderedDict()
        self._guard = threading.Lock()

    @property
    def kind(self) -> str:
        return "image"

    def content(self, row: int, longest_side: int = LONGEST_SIDE) -> Content:
        """The maps of a row's image."""
        from confide.evaluation.gallery import map_picture  # takes a second to load, and few files are of pixels

        names = ", ".join(self.samples.columns[key].sql for key in COLUMNS)
        numbers = self.database.fetch(f"SELECT {names} FROM samples WHERE row = ?", [row])[0]
        if any(number is None for number in numbers):
            return Content(reason="its image or its place is not known")
        sides = [self._size(key, number) for key, number in zip(COLUMNS[2:], numbers[2:], strict=True)]
        if min(sides) < 1 or sides[0] * sides[1] > LARGEST or not 0 <= numbers[1] < sides[0] * sides[1]:
            return Content(reason="its image has no size that a map could have")
        confidence, wrong = self._of_image(numbers[0], (sides[0], sides[1]))
        pixel = divmod(int(numbers[1]), sides[1])
        return encoded_picture(map_picture(confidence, wrong, pixel), longest_side)

    def whole(self, row: int) -> Content:
        """The maps at their full size."""
        return self.content(row, 2048)

    def _size(self, key: str, number: float) -> int:
        """A side of the image: the number, or of few different ones the word in the list."""
        column = self.samples.columns[key]
        return int(number if column.kind == "number" else float(column.values[int(number)]))

    def _of_image(self, image: Hashable, shape: tuple[int, int]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Confidence and error of an image, read once while it is looked at."""
        with self._guard:
            if image not in self._maps:
                self._maps[image] = self._read(image, shape)
                while len(self._maps) > MOST_IMAGES:
                    self._maps.popitem(last=False)
            self._maps.move_to_end(image)
            return self._maps[image]

    def _read(self, image: Hashable, shape: tuple[int, int]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        model = self.database.models[0]
        stage = self.database.model_stage(model, self.layout.opening_stage(model))
        column, place = (self.samples.columns[key].sql for key in COLUMNS[:2])
        table = self.database.arrow(
            f"SELECT CAST({place} AS BIGINT) AS place, confidence, hit FROM {self.database.source(stage)} "
            f"WHERE {column} = ?",
            [image],
        )
        places = table.column("place").to_numpy()
        inside = (places >= 0) & (places < shape[0] * shape[1])
        confidence, wrong = (np.full(shape, np.nan, dtype=np.float32) for _ in range(2))
        confidence.reshape(-1)[places[inside]] = table.column("confidence").to_numpy()[inside]
        hit = table.column("hit").cast("float").to_numpy()
        wrong.reshape(-1)[places[inside]] = 1 - hit[inside]
        return confidence, wrong
