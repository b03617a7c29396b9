"""Feature rows in a folder of memory-mapped shards: written one by one, read like one array, resumable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.core import files
from confide.core.door import InputError
from confide.core.records import Features

MANIFEST = "manifest.json"
FORMAT = "features/1"


@dataclass(frozen=True, eq=False)
class ShardedRows:
    """Rows `n d` over .npy files; slices read only the shards they touch."""

    paths: tuple[Path, ...]
    starts: tuple[int, ...]  # first row of every shard, and n at the end
    shape: tuple[int, int]
    dtype: np.dtype[Any]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> NDArray[Any]:
        if isinstance(rows, slice):
            start, stop, step = rows.indices(self.shape[0])
            if step == 1:
                return self._span(start, max(stop, start))
            rows = np.arange(start, stop, step)
        wanted = np.asarray(rows)
        wanted = wanted.nonzero()[0] if wanted.dtype == bool else wanted
        result = np.empty((wanted.size, self.shape[1]), dtype=self.dtype)
        shard = np.searchsorted(self.starts, wanted.reshape(-1), side="right") - 1
        for k in np.unique(shard):
            here = shard == k
            result[here] = self._open(int(k))[wanted.reshape(-1)[here] - self.starts[k]]
        return result[0] if wanted.ndim == 0 else result

    def _span(self, start: int, stop: int) -> NDArray[Any]:
        parts: list[NDArray[Any]] = []
        for k in range(len(self.paths)):
            low, high = max(start, self.starts[k]), min(stop, self.starts[k + 1])
            if low < high:
                parts.append(self._open(k)[low - self.starts[k] : high - self.starts[k]])
        if not parts:
            return np.empty((0, self.shape[1]), dtype=self.dtype)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _open(self, k: int) -> NDArray[Any]:
        shape = (self.starts[k + 1] - self.starts[k], self.shape[1])
        return read_shard(self.paths[k], shape)


def shard_path(folder: Path, number: int) -> Path:
    """File of the shard of that number."""
    return folder / f"rows-{number:06d}.npy"


def read_shard(path: Path, shape: tuple[int, int]) -> NDArray[Any]:
    """One shard, memory-mapped; damage gets one line that says how to mend it."""
    try:
        # Copy-on-write: torch takes such arrays without a copy, and the file stays as it is.
        rows: NDArray[Any] = np.load(path, mmap_mode="c", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise InputError(
            f"shard {path} must be a readable array, but: {error}; delete it and run the same extraction again"
        ) from None
    if rows.shape != shape:
        raise InputError(f"shard {path} must have shape {shape}, got {rows.shape}; delete it and extract again")
    return rows


def write_shard(path: Path, rows: NDArray[Any]) -> None:
    """Write one shard, atomically."""
    with files.atomic(path) as temporary, open(temporary, "wb") as file:
        np.save(file, rows, allow_pickle=False)


def write_manifest(folder: Path, facts: Mapping[str, Any], labels: NDArray[Any], ids: NDArray[Any]) -> None:
    """Labels, ids and the facts of the extraction, written once all shards are there."""
    files.write_table(folder / "samples.parquet", {"id": ids, "label": labels})
    files.write_json(folder / MANIFEST, {"format": FORMAT, **facts})


def open_features(folder: str | Path) -> Features:
    """Features over a finished folder of shards."""
    folder = Path(folder)
    if not (folder / MANIFEST).exists():
        raise InputError(f"{folder} must be a finished folder of features, but {MANIFEST} is missing; extract again")
    facts = files.read_json(folder / MANIFEST)
    if facts.get("format") != FORMAT:
        raise InputError(f"{folder / MANIFEST} must be of format '{FORMAT}', got {facts.get('format')!r}")
    columns, _ = files.read_table(folder / "samples.parquet")
    ids = columns["id"].astype(np.str_) if columns["id"].dtype == object else columns["id"]
    n, size = len(ids), int(facts["shard_rows"])
    starts = (*range(0, n, size), n)
    paths = tuple(shard_path(folder, k) for k in range(len(starts) - 1))
    values = ShardedRows(paths, starts, (n, int(facts["dim"])), np.dtype(facts["dtype"]))
    labels, options = columns["label"].astype(np.int64), facts.get("options", {})
    return Features(values, labels, ids, facts["extractor"], facts.get("split"), options)
