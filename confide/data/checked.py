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
    """Per image: height, width, grey or not, and what is wrong with it (an empty text if nothing)."""

    height: NDArray[np.int64]
    width: NDArray[np.int64]
    grey: NDArray[np.bool_]
    wrong: NDArray[np.object_]

    @property
    def good(self) -> NDArray[np.bool_]:
        return np.asarray(self.wrong == "", dtype=bool)


def check_images(encoded: Encoded, *, deep: bool, rows: NDArray[np.intp] | None = None) -> Checked:
    """Examine all images (or these rows) in threads: headers only, or deep, every byte."""
    numbers = np.arange(len(encoded)) if rows is None else rows
    results: list[Any] = []
    with Progress("check images" if deep else "find images", len(numbers)) as progress:
        for result in in_threads(attempt(lambda i: examine(encoded.open(i), deep)), numbers.tolist()):
            results.append(result)
            progress.step()
    facts = [(0, 0, False, reason(r)) if isinstance(r, Exception) else (*r, "") for r in results]
    height, width, grey, wrong = zip(*facts, strict=True) if facts else ((), (), (), ())
    return Checked(
        np.array(height, dtype=np.int64),
        np.array(width, dtype=np.int64),
        np.array(grey, dtype=bool),
        np.array(wrong, dtype=object),
    )


def remembered(encoded: Encoded, folder: Path) -> tuple[Checked, NDArray[np.bool_]]:
    """What an earlier deep check found, and for which images it still holds (same name, same stamp)."""
    n = len(encoded)
    checked = Checked(np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, bool), np.full(n, "", dtype=object))
    known = np.zeros(n, dtype=bool)
    path = _list_file(encoded, folder)
    if not path.exists():
        return checked, known
    try:
        table, _ = read_table(path)
        old = {(name, stamp): i for i, (name, stamp) in enumerate(zip(table["name"], table["stamp"], strict=True))}
        columns = [table[key] for key in ("height", "width", "grey", "wrong")]
    except (InputError, KeyError):
        return checked, known  # a damaged list is made anew
    for i, key in enumerate(zip(encoded.names.tolist(), encoded.stamps(np.arange(n)), strict=True)):
        row = old.get(key)
        if row is not None:
            known[i] = True
            checked.height[i], checked.width[i], checked.grey[i], checked.wrong[i] = (c[row] for c in columns)
    return checked, known


def check_and_remember(encoded: Encoded, folder: Path) -> Checked:
    """A deep check of the images that are new or changed; the rest is remembered."""
    checked, known = remembered(encoded, folder)
    fresh = np.flatnonzero(~known)
    if not len(fresh):
        return checked
    found = check_images(encoded, deep=True, rows=fresh)
    checked.height[fresh], checked.width[fresh] = found.height, found.width
    checked.grey[fresh], checked.wrong[fresh] = found.grey, found.wrong
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


def _list_file(encoded: Encoded, folder: Path) -> Path:
    word = hashlib.blake2b(encoded.place.encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()
    return folder / "checked-images" / f"{word}.parquet"
