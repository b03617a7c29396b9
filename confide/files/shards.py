"""Feature rows in a folder of memory-mapped shards: written one by one, read like one array, resumable."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.checks import InputError
from confide.files import formats
from confide.files.disk import atomic
from confide.types import Options

SHARDS_MANIFEST = "manifest.json"


@dataclass(frozen=True)
class ExtractionPlan:
    """What a folder of shards holds: a stopped extraction goes on only where all of this is equal."""

    extractor: str
    options: Options
    split: str
    n: int
    inputs: str
    """The fingerprint of ids and inputs; labels may change, features do not depend on them."""
    weights: str
    """A digest of the user's own network; empty for extractors that are the same under the same word."""
    shard_rows: int
    dtype: str
    augment: int | None

    def shard(self, number: int) -> NDArray[np.intp]:
        """Rows of the split that a shard holds."""
        return np.arange(number * self.shard_rows, min((number + 1) * self.shard_rows, self.n))


@dataclass(frozen=True)
class ShardManifest:
    """What stands in the manifest of a finished folder, as far as a reader needs it."""

    extractor: str
    shard_rows: int
    dtype: str
    dim: int
    split: str | None = None
    options: Options = field(default_factory=dict)


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
        chosen = np.asarray(rows)
        chosen = chosen.nonzero()[0] if chosen.dtype == bool else chosen
        result = np.empty((chosen.size, self.shape[1]), dtype=self.dtype)
        shard = np.searchsorted(self.starts, chosen.reshape(-1), side="right") - 1
        for k in np.unique(shard):
            here = shard == k
            result[here] = self._open(int(k))[chosen.reshape(-1)[here] - self.starts[k]]
        return result[0] if chosen.ndim == 0 else result

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
    with atomic(path) as temporary, open(temporary, "wb") as file:
        np.save(file, rows, allow_pickle=False)


def write_manifest(folder: Path, plan: ExtractionPlan, dim: int, labels: NDArray[Any], ids: NDArray[Any]) -> None:
    """Labels, ids and the plan of the extraction, written once all shards are there."""
    write_samples(folder, labels, ids)
    formats.write_json(folder / SHARDS_MANIFEST, {"format": formats.FEATURES.tag, **vars(plan), "dim": dim})


def write_samples(folder: Path, labels: NDArray[Any], ids: NDArray[Any]) -> None:
    """The labels and ids of the rows."""
    formats.write_table(folder / "samples.parquet", {"id": ids, "label": labels})


def open_shards(folder: Path) -> tuple[ShardedRows, dict[str, NDArray[Any]], ShardManifest]:
    """Rows, columns of the samples and the manifest of a finished folder."""
    if not (folder / SHARDS_MANIFEST).exists():
        raise InputError(
            f"{folder} must be a finished folder of features, but {SHARDS_MANIFEST} is missing; extract again"
        )
    manifest = _read_manifest(folder / SHARDS_MANIFEST)
    samples, _ = formats.read_table(folder / "samples.parquet")
    n, size = len(samples["id"]), manifest.shard_rows
    starts = (*range(0, n, size), n)
    paths = tuple(shard_path(folder, k) for k in range(len(starts) - 1))
    return ShardedRows(paths, starts, (n, manifest.dim), np.dtype(manifest.dtype)), samples, manifest


def _read_manifest(path: Path) -> ShardManifest:
    values = formats.read_json(path)
    formats.FEATURES.check(values.get("format") if isinstance(values, dict) else None, path)
    with formats.reading(path, "manifest of features"):
        return ShardManifest(
            str(values["extractor"]),
            int(values["shard_rows"]),
            str(np.dtype(values["dtype"])),
            int(values["dim"]),
            values.get("split"),
            dict(values.get("options", {})),
        )
