"""Encoded images by number: files on disk, or the bytes column of a table."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray


class Encoded(Protocol):
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


class Files:
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


class Blobs:
    """A column of image bytes, in memory or memory-mapped; where bytes are missing, a column of paths may help.

    `version` changes when the files that hold the column do.
    """

    def __init__(
        self,
        column: pa.ChunkedArray,
        names: NDArray[np.str_],
        place: str,
        version: str = "",
        paths: pa.ChunkedArray | None = None,
    ) -> None:
        self.column, self.names, self.place, self.version, self.paths = column, names, place, version, paths

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
