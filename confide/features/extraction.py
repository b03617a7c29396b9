"""Batched extraction over a split: in memory, or to memory-mapped shards that a stopped run goes on from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from confide.core import files
from confide.core.door import InputError, check_range
from confide.core.progress import Progress
from confide.core.records import Dataset, Features, Split
from confide.core.shards import MANIFEST, open_features, shard_path, write_manifest, write_shard
from confide.features.augment import augmented
from confide.features.family import Extractor, create, split_word
from confide.features.model import check_rows
from confide.features.preprocess import Preprocess


@dataclass(frozen=True)
class Settings:
    """How an extraction runs; none of it changes the numbers beyond the dtype's rounding."""

    batch_size: int = 64
    device: str | None = None
    workers: int = 0
    amp: bool | None = None
    shard_rows: int = 8192
    dtype: str = "float32"


def extract(
    word: str | Extractor,
    dataset: Dataset | Split,
    split: str = "train",
    *,
    out: str | Path | None = None,
    batch_size: int = 64,
    device: str | None = None,
    workers: int = 0,
    amp: bool | None = None,
    shard_rows: int = 8192,
    dtype: str = "float32",
    augment: int | None = None,
    **options: Any,
) -> Features:
    """Features of one split by an extractor's word (or an Extractor); `cached` takes those the data carries.

    Args:
        out: folder for memory-mapped shards; a stopped extraction into it goes on at the first missing shard.
        device: "cpu", "cuda"; None takes a GPU where there is one.
        workers: processes that decode and prepare inputs.
        amp: half precision products on a GPU; None switches them on there.
        shard_rows: rows per shard file.
        dtype: "float32" or "float16" of the rows.
        augment: seed of a random crop and flip per image (runs for fitting `rmd` on augmentations); None = plain.
    """
    part = dataset.split(split) if isinstance(dataset, Dataset) else dataset
    if word == "cached":
        if augment is not None:
            raise InputError("cached features cannot be augmented; choose an extractor for augmentation runs")
        return cached(part, split)
    if isinstance(word, str):
        split_word(word)
    check_range(batch_size, "batch_size", 1)
    check_range(shard_rows, "shard_rows", 1)
    if dtype not in ("float32", "float16"):
        raise InputError(f"dtype must be 'float32' or 'float16', got {dtype!r}")
    settings = Settings(batch_size, device, workers, amp, shard_rows, dtype)
    if not len(part):
        raise InputError(f"split '{split}' must have samples, got none")
    if out is None:
        extractor = _made(word, options)
        rows = np.concatenate(list(_encoded(extractor, part, np.arange(len(part)), settings, augment)))
        said = word if isinstance(word, str) else extractor.name
        return Features(rows.astype(dtype), part.labels, part.ids, said, split, options)
    return _to_shards(word, part, split, Path(out), settings, augment, options)


def cached(part: Split, split: str) -> Features:
    """The features a split carries in its column `features`."""
    if "features" not in part.columns:
        raise InputError(
            "features 'cached' need data that carries a column 'features', this has none; "
            "choose an extractor, such as 'efficientnet_lite0' or 'pixels'"
        )
    return Features(part.columns["features"], part.labels, part.ids, "cached", split)


def _made(word: str | Extractor, options: dict[str, Any]) -> Extractor:
    return word if isinstance(word, Extractor) else create(word, **options)


def _to_shards(
    word: str | Extractor,
    part: Split,
    split: str,
    folder: Path,
    settings: Settings,
    augment: int | None,
    options: dict[str, Any],
) -> Features:
    facts: dict[str, Any] = {
        "extractor": word if isinstance(word, str) else word.name,
        "options": files.plain(options),
        "split": split,
        "n": len(part),
        "samples": hashlib.sha256(json.dumps(part.ids.tolist()).encode()).hexdigest(),
        "shard_rows": settings.shard_rows,
        "dtype": settings.dtype,
        "augment": augment,
    }
    _check_same(folder, facts)
    todo = [k for k in range(-(-len(part) // settings.shard_rows)) if not _is_done(folder, k, facts)]
    if todo or not (folder / MANIFEST).exists():
        extractor = _made(word, options)
        dim = 0
        with Progress(f"features {extractor.name}", len(part)) as progress:
            progress.done = len(part) - sum(_rows_of(k, len(part), settings.shard_rows).size for k in todo)
            for k in todo:
                rows = _rows_of(k, len(part), settings.shard_rows)
                block = np.concatenate(list(_encoded(extractor, part, rows, settings, augment, progress)))
                dim = block.shape[1]
                write_shard(shard_path(folder, k), block.astype(settings.dtype))
        dim = dim or np.load(shard_path(folder, 0), mmap_mode="r", allow_pickle=False).shape[1]
        write_manifest(folder, {**facts, "dim": dim}, part.labels, part.ids)
    return open_features(folder)


def _rows_of(shard: int, n: int, size: int) -> NDArray[np.intp]:
    return np.arange(shard * size, min((shard + 1) * size, n))


def _check_same(folder: Path, facts: dict[str, Any]) -> None:
    """A folder belongs to one extraction; another one must not be mixed into it."""
    plan = folder / "plan.json"
    # A plan without rows is what a failed start leaves, such as one without the extractor's package.
    if plan.exists() and any(folder.glob("rows-*.npy")):
        found = files.read_json(plan)
        for name, value in facts.items():
            if found.get(name) != value:
                raise InputError(
                    f"{folder} holds another extraction: {name} is {found.get(name)!r} there and {value!r} here; "
                    "choose another folder (--cache on the command line), or remove this one"
                )
    else:
        files.write_json(plan, facts)


def _is_done(folder: Path, shard: int, facts: dict[str, Any]) -> bool:
    path = shard_path(folder, shard)
    if not path.exists():
        return False
    rows = _rows_of(shard, facts["n"], facts["shard_rows"]).size
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError):
        return False
    return bool(found.ndim == 2 and len(found) == rows)


class _Prepared(TorchDataset[Any]):
    """Inputs prepared one by one; the error of a bad input names its id."""

    def __init__(self, extractor: Extractor, part: Split, rows: NDArray[np.intp], augment: int | None) -> None:
        self.extractor, self.part, self.rows, self.augment = extractor, part, rows, augment

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> Any:
        row = int(self.rows[place])
        item = self.part.inputs[row]
        try:
            if self.augment is not None:
                item = augmented(item, self.augment, row)
            return self.extractor.prepare(item)
        except InputError as error:
            # DataLoader workers rebuild errors from their message, so one line is all that may travel.
            raise InputError(f"{error} (sample {self.part.ids[row]!r}); drop it from the data") from None


def _encoded(
    extractor: Extractor,
    part: Split,
    rows: NDArray[np.intp],
    settings: Settings,
    augment: int | None,
    progress: Progress | None = None,
) -> Iterator[NDArray[Any]]:
    if extractor.rows_of is not None:
        yield check_rows(extractor.rows_of(part.take(rows)), len(rows), extractor.name)
        return
    device = torch.device(settings.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    half = device.type == "cuda" if settings.amp is None else settings.amp
    if extractor.module is not None:
        extractor.module.to(device).eval()
        if device.type == "cuda":
            # Half-precision convolutions want the channels last; other layers do not mind.
            extractor.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    own = Progress(f"features {extractor.name}", len(rows)) if progress is None else None
    with own or nullcontext(), torch.inference_mode():
        for batch in _prepared(extractor, part, rows, settings, augment, device):
            with torch.autocast(device.type, enabled=half):
                encoded = extractor.encode(batch)
            rows_out = encoded.float().cpu().numpy()
            if not np.isfinite(rows_out).all():
                raise InputError(f"extractor '{extractor.name}' gave NaN or infinity; check its weights, or amp=False")
            yield rows_out
            shown = progress or own
            assert shown is not None
            shown.step(len(rows_out))


def _prepared(
    extractor: Extractor,
    part: Split,
    rows: NDArray[np.intp],
    settings: Settings,
    augment: int | None,
    device: torch.device,
) -> Iterator[Any]:
    """Prepared batches on the device: one by one in workers, or, off the CPU, whole arrays resized where they go."""
    prepare = extractor.prepare
    if device.type != "cpu" and augment is None and isinstance(prepare, Preprocess) and _is_array(part, prepare):
        for start in range(0, len(rows), settings.batch_size):
            levels = np.ascontiguousarray(part.inputs[rows[start : start + settings.batch_size]])
            yield prepare.batch(torch.from_numpy(levels).to(device)).contiguous(memory_format=torch.channels_last)
        return
    loader = DataLoader(
        _Prepared(extractor, part, rows, augment),
        batch_size=settings.batch_size,
        num_workers=settings.workers,
        collate_fn=extractor.collate,
    )
    for batch in loader:
        yield _to(batch, device)


def _is_array(part: Split, prepare: Preprocess) -> bool:
    """Images of one size in one array: uint8 `n c h w`."""
    inputs = part.inputs
    is_images = isinstance(inputs, np.ndarray) and inputs.dtype == np.uint8 and inputs.ndim == 4
    return is_images and inputs.shape[1] in (1, 3) and prepare.takes_batches()


def _to(batch: Any, device: torch.device) -> Any:
    if isinstance(batch, dict):
        return {name: value.to(device) for name, value in batch.items()}
    return batch.to(device) if hasattr(batch, "to") else batch
