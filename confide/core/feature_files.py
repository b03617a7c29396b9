"""Features from a file or a folder of shards: what every verb that takes features reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from confide.core import files
from confide.core.door import InputError
from confide.core.records import Features, check_ids, default_ids, extractor_options
from confide.core.shards import open_features

COLUMNS = ("features", "values", "embeddings")


def load_features(path: str | Path, *, ids: Any = None, labels: Any = None) -> Features:
    """A folder of shards, or .npz / .parquet with `features` (n d) and, where known, `id` and `label`.

    Args:
        ids: of the samples in the order of the file, where the file has none.
        labels: likewise; -1 stands for unknown.
    """
    source = Path(path)
    if source.is_dir():
        return open_features(source)
    columns, metadata = files.read_table(source)
    name = next((c for c in COLUMNS if c in columns), None)
    if name is None or columns[name].ndim != 2:
        raise InputError(f"{source} must have a column 'features' of n x d numbers, got {', '.join(columns)}; add it")
    values = columns[name]
    n = len(values)
    known = next((columns[c] for c in ("id", "ids") if c in columns), ids)
    truth = next((columns[c] for c in ("label", "labels") if c in columns), labels)
    if (truth is not None and len(truth) != n) or (known is not None and len(known) != n):
        raise InputError(f"{source} must have one row per sample, got {n} rows of features; pass the same split")
    return Features(
        values,
        np.full(n, -1, dtype=np.int64) if truth is None else np.asarray(truth).astype(np.int64),
        default_ids(n) if known is None else check_ids(known, n, f"ids of {source}"),
        metadata.get("extractor", source.stem),
        metadata.get("split"),
        extractor_options(metadata),
    )
