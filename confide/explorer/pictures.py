"""Pictures and texts of samples, from the dataset the run was made of; loaded in the background."""

from __future__ import annotations

import io
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from PIL import Image

from confide.core.door import InputError, MissingExtra, OptionError
from confide.core.records import Dataset, Split
from confide.explorer.layout import Layout
from confide.explorer.samples import Samples

LONGEST_SIDE = 512
SHORT_TEXT = 220


@dataclass(frozen=True)
class Content:
    """What a sample is: the bytes of an image with their type, or a text, or the reason why neither is there."""

    image: bytes | None = None
    media_type: str = ""
    text: str | None = None
    reason: str = ""


class Pictures:
    """Loads the dataset once, when first asked; a dataset that cannot be loaded is one line, and the rows stay."""

    def __init__(self, layout: Layout, samples: Samples) -> None:
        self.layout, self.samples = layout, samples
        self._lock = threading.Lock()
        self._dataset: Dataset | None = None
        self._places: dict[str, list[tuple[Split, Any]]] = {}
        self.reason = "" if layout.data is not None else self._advice("no dataset is named")
        self.loaded = layout.data is None

    def _advice(self, what: str) -> str:
        return f"Pictures are not shown: {what}; open with: confide explore {self.layout.path} --data DATASET"

    def load(self) -> None:
        """Load the dataset; its room takes its time, so this is called from a thread of its own."""
        source = self.layout.data
        with self._lock:
            if self.loaded or source is None:
                return
            try:
                from confide import data

                self._dataset = data.load_dataset(source.source, seed=source.seed, **dict(source.options))
            except (InputError, OptionError, MissingExtra, OSError) as error:
                self.reason = self._advice(str(error).split(";")[0])
            if self._dataset is not None and not self.samples.class_names:
                self.samples.class_names = tuple(self._dataset.class_names)
            self.loaded = True

    @property
    def kind(self) -> str:
        """image, text, rows; or none where there is no dataset."""
        self.load()
        return "none" if self._dataset is None else self._dataset.kind

    def content(self, row: int, longest_side: int = LONGEST_SIDE) -> Content:
        """The picture or text of a row."""
        self.load()
        if self._dataset is None:
            return Content(reason=self.reason)
        split = self.samples.split_of(row)
        position = row - self.samples.starts[split]
        found = ((part, position if at is None else at[position].as_py()) for part, at in self._parts(split))
        part, place = next(((part, place) for part, place in found if place is not None), (None, None))
        if part is None or place is None:
            return Content(reason="it is not in the dataset")
        try:
            value = part.inputs[int(place)]
        except (InputError, OSError, IndexError, ValueError) as error:
            return Content(reason=str(error))
        if isinstance(value, str):
            return Content(text=value)
        return _encoded(np.asarray(value), longest_side)

    def texts(self, rows: list[int]) -> list[str | None] | None:
        """The beginnings of the texts of some rows; None where the samples are no texts."""
        if not self.loaded or self.kind != "text":
            return None
        found = [self.content(row).text for row in rows]
        return [None if t is None else t[:SHORT_TEXT] for t in found]

    def _parts(self, split: str) -> list[tuple[Split, Any]]:
        """The dataset's splits that hold the samples of a split here, and where: places, or None for the same order."""
        with self._lock:
            if split not in self._places:
                self._places[split] = self._search(split)
            return self._places[split]

    def _search(self, split: str) -> list[tuple[Split, Any]]:
        assert self._dataset is not None
        wanted = self.samples.ids[split]
        # A run sets a part of val apart under a name of its own: any split may hold it, the like-named one first.
        names = sorted(self._dataset.splits, key=lambda name: (name != split, name != "val"))
        holding: list[tuple[Split, Any]] = []
        for name in names:
            part = self._dataset.splits[name]
            known = pa.array(part.ids).cast(pa.string())
            if known.equals(wanted):
                return [(part, None)]
            places = pc.index_in(wanted, value_set=known)
            if places.null_count == 0:
                return [(part, places)]
            if places.null_count < len(places):
                holding.append((part, places))
        return holding


def _encoded(pixels: Any, longest_side: int) -> Content:
    """A uint8 image `c h w` as PNG when small, else JPEG; anything else is no picture."""
    if pixels.ndim != 3 or pixels.dtype != np.uint8 or pixels.shape[0] not in (1, 3):
        return Content(reason="it is no picture")
    drawn = Image.fromarray(pixels[0] if pixels.shape[0] == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0)))
    if max(drawn.size) > longest_side:
        drawn.thumbnail((longest_side, longest_side))
    kind = "png" if max(drawn.size) <= 96 else "jpeg"
    buffer = io.BytesIO()
    drawn.save(buffer, format=kind, **({"compress_level": 1} if kind == "png" else {"quality": 88}))
    return Content(buffer.getvalue(), f"image/{kind}")
