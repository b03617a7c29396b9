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

BLOCK = 50_000
"""Images between two writes of the list: a check that is stopped goes on from there."""


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
    unknown = np.flatnonzero(~checked.deep)
    with Progress("find images", len(unknown)) as progress:
        _examine(checked, encoded, unknown, deep=False, progress=progress)
    return checked


def second_look(encoded: Encoded, checked: Checked, folder: Path) -> Checked:
    """Every byte of the images that have not been checked so yet; the result is remembered, block by block."""
    fresh = np.flatnonzero(~checked.deep)
    with Progress("check images", len(fresh)) as progress:
        for begin in range(0, len(fresh), BLOCK):
            rows = fresh[begin : begin + BLOCK]
            _examine(checked, encoded, rows, deep=True, progress=progress)
            checked.deep[rows] = True
            # The list only saves time: where it cannot be written (a read-only home), the next load checks again.
            with contextlib.suppress(OSError):
                _write_list(checked, encoded, folder)
    return checked


def _examine(checked: Checked, encoded: Encoded, rows: NDArray[np.intp], *, deep: bool, progress: Progress) -> None:
    """Fill in these rows, by threads."""
    numbers = rows.tolist()
    results = in_threads(attempt(lambda i: examine(encoded.open(i), deep)), numbers)
    for i, result in zip(numbers, results, strict=True):
        if isinstance(result, Exception):
            checked.wrong[i] = reason(result)
        else:
            checked.height[i], checked.width[i], checked.grey[i] = result
        progress.step()


def _write_list(checked: Checked, encoded: Encoded, folder: Path) -> None:
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
