"""Which images can be read, and their sizes: found by threads, remembered for big sets."""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.core.door import InputError
from confide.core.files import read_table, write_table
from confide.core.progress import Progress
from confide.data.decode import attempt, examine, in_threads, reason
from confide.data.encoded import Encoded


@dataclass(frozen=True, eq=False)
class Checked:
    """Per image: height, width, grey or not, what is wrong (an empty text if nothing), whether all bytes were read."""

    height: NDArray[np.int64]
    width: NDArray[np.int64]
    grey: NDArray[np.bool_]
    wrong: NDArray[np.object_]
    deep: NDArray[np.bool_]

    @property
    def good(self) -> NDArray[np.bool_]:
        return np.asarray(self.wrong == "", dtype=bool)


def first_look(encoded: Encoded, folder: Path) -> Checked:
    """Sizes of all images: what an earlier deep check found where it still holds, else from their headers."""
    n = len(encoded)
    empty = np.zeros(n, dtype=np.int64)
    checked = Checked(empty, empty.copy(), np.zeros(n, bool), np.full(n, "", dtype=object), np.zeros(n, bool))
    _remember(checked, encoded, folder)
    _examine(checked, encoded, np.flatnonzero(~checked.deep), deep=False)
    return checked


def second_look(encoded: Encoded, checked: Checked, folder: Path) -> Checked:
    """Every byte of the images that have not been checked so yet; the result is remembered."""
    fresh = np.flatnonzero(~checked.deep)
    if not len(fresh):
        return checked
    _examine(checked, encoded, fresh, deep=True)
    columns = {
        "name": encoded.names,
        "stamp": np.array(encoded.stamps(np.arange(len(encoded)))),
        "height": checked.height,
        "width": checked.width,
        "grey": checked.grey,
        "wrong": checked.wrong.astype(np.str_),
    }
    # The list only saves time: where it cannot be written (a read-only home), the next load checks again.
    with contextlib.suppress(OSError):
        write_table(_list_file(encoded, folder), columns)
    return checked


def _examine(checked: Checked, encoded: Encoded, rows: NDArray[np.intp], *, deep: bool) -> None:
    """Fill in these rows, by threads."""
    with Progress("check images" if deep else "find images", len(rows)) as progress:
        numbers = rows.tolist()
        results = in_threads(attempt(lambda i: examine(encoded.open(i), deep)), numbers)
        for i, result in zip(numbers, results, strict=True):
            if isinstance(result, Exception):
                checked.wrong[i] = reason(result)
            else:
                checked.height[i], checked.width[i], checked.grey[i] = result
            progress.step()
    checked.deep[rows] = deep


def _remember(checked: Checked, encoded: Encoded, folder: Path) -> None:
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


def _list_file(encoded: Encoded, folder: Path) -> Path:
    word = hashlib.blake2b(encoded.place.encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()
    return folder / "checked-images" / f"{word}.parquet"
