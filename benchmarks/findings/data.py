"""CIFAR-10 for the findings: its splits, and difficulty scores that know the label or do not."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.lib.grid import COMPILED
from confide import Dataset, Features, Scores, Split, data, difficulty, features, files

SHORT: dict[str, Any] = {"model": "resnet18", **COMPILED}
"""How every network here is trained: the schedule of the tables at lite scale."""


@dataclass(frozen=True, eq=False)
class Difficulty:
    """RMD of all samples by Gaussians of the training split: to their label's class, and to the likeliest class."""

    labelled: Scores
    free: Scores


def open_data(path: str, *, judge: float = 0.0, limit: int = 0) -> Dataset:
    """The dataset; with `judge` a share of its training samples becomes a split of that name.

    Args:
        limit: samples of every split, for trying a script out.
    """
    dataset = data.load_dataset(path, seed=0)
    if judge:
        parts = data.cut(dataset.train, {"judge": judge}, 0)
        dataset = replace(dataset, splits={**dataset.splits, **parts})
    if limit:
        splits = {name: part.take(np.arange(min(limit, len(part)))) for name, part in dataset.splits.items()}
        dataset = replace(dataset, splits=splits)
    return dataset


def score(dataset: Dataset, folder: Path, splits: tuple[str, ...], extractor: str) -> tuple[Difficulty, float]:
    """(scores of these splits, seconds it took), made once and kept in the folder."""
    paths = {kind: folder / f"difficulty-{kind}.parquet" for kind in ("labelled", "free")}
    began = time.monotonic()
    if not all(path.exists() for path in paths.values()):
        rows = {split: extract(extractor, dataset.split(split), split) for split in splits}
        fitted = difficulty.fit("rmd", rows["train"])
        for kind, path in paths.items():
            scores = [fitted.score(part, None if kind == "labelled" else "predicted") for part in rows.values()]
            ids, values = (
                np.concatenate([getattr(part_scores, name) for part_scores in scores]) for name in ("ids", "values")
            )
            Scores(ids, values, "rmd", {"extractor": extractor, "labels": kind}).save(path)
        held = {split: part for split, part in rows.items() if split != "train"}
        files.write_table(
            folder / "difficulty-classes.npz",
            {split: _to_each_class(fitted, part, dataset.num_classes) for split, part in held.items()},
        )
    return Difficulty(*(Scores.load(path) for path in paths.values())), time.monotonic() - began


def _to_each_class(fitted: Any, rows: Features, num_classes: int) -> Any:
    """RMD of every sample to every class, n x c: that of a predicted class can be looked up in it."""
    columns = [fitted.score(rows, np.full(len(rows), k)).values for k in range(num_classes)]
    return np.stack(columns, axis=1).astype(np.float32)


def extract(word: str, split: Split, name: str) -> Features:
    """Features of a split; small images are enlarged for EfficientNet on the device, a batch at a time."""
    if word == "cached" or not word.startswith("efficientnet"):
        return features.extract(word, split, name)
    base = features.create(word)

    def encode(batch: Tensor) -> Tensor:
        large = torch.nn.functional.interpolate(batch.float(), (224, 224), mode="bicubic", antialias=True)
        return base.encode((large.clamp(0, 255) - 127) / 128)

    quick = replace(base, prepare=lambda image: torch.from_numpy(np.asarray(image)), encode=encode)
    return features.extract(quick, split, name, batch_size=1000)


def append(path: Path, row: dict[str, Any]) -> None:
    """One more line of a results file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(files.plain(row)) + "\n")
