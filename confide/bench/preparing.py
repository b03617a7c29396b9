"""What a grid needs once: a decoded copy of each dataset, and difficulty scores of all its samples."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from confide import calibrators, difficulty, features
from confide.bench.methods import METHODS
from confide.bench.sources import CORRUPTED, Sources, has_copy, keep_copy, shifted_images, spread
from confide.core import files
from confide.core.records import Dataset, Features, Scores, Split

KINDS: Mapping[str, tuple[str, str | None]] = {
    "difficulty": ("rmd", None),
    "bands": ("rmd", "predicted"),
    "md": ("md", None),
    "kmeans": ("kmeans", None),
}
"""Difficulty scores by the name of their file: the method, and the class that it measures the distance to."""

FEW = 50
"""Up to so many classes all kinds of scores are made, else the first two."""

SEVERITY_IMAGES = 300
"""Test images that are corrupted for the difficulty scores."""


def prepare(sources: Sources, name: str, *, extractor: str) -> dict[str, Any]:
    """Decode a dataset once and score its difficulty once: RMD on an extractor's features, fitted on train."""
    began = time.monotonic()
    dataset = sources.dataset(name)
    if not has_copy(sources.prepared, name):
        keep_copy(sources.prepared, name, dataset)
    missing = [kind for kind in files_of(dataset) if not (sources.prepared / f"{name}-{kind}.parquet").exists()]
    if missing:
        # Corrupted images are scored by the fit on train alone.
        splits = ["train"] if missing == [CORRUPTED] else list(dataset.splits)
        rows = {split: _extracted(extractor, dataset.split(split), split) for split in splits}
        if dataset.num_classes <= FEW and dataset.kind == "image" and missing != [CORRUPTED]:
            keep_severities(sources, name, rows["train"], extractor)
        if CORRUPTED in missing:
            keep_corrupted(sources, name, rows["train"], extractor)
        keep_scores(sources.prepared, name, rows, [kind for kind in missing if kind != CORRUPTED])
    scores = sources.scores(name)
    return {
        "dataset": name,
        "sizes": {split: len(part) for split, part in dataset.splits.items()},
        "difficulty": scores.method,
        "extractor": scores.options.get("extractor"),
        "seconds": round(time.monotonic() - began, 1),
    }


def kinds_of(dataset: Dataset) -> tuple[str, ...]:
    """The kinds of scores that are made of all samples of a dataset."""
    return tuple(KINDS)[: len(KINDS) if dataset.num_classes <= FEW else 2]


def files_of(dataset: Dataset) -> tuple[str, ...]:
    """All kinds of scores of a dataset that have a file; corrupted images are scored where a calibrator goes by it."""
    asked = any(one.here and one.resolved().calibrated.get("by") == calibrators.DIFFICULTY for one in METHODS)
    return (*kinds_of(dataset), CORRUPTED) if asked and dataset.kind == "image" else kinds_of(dataset)


def keep_corrupted(sources: Sources, name: str, train: Features, extractor: str) -> None:
    """Difficulty of the corrupted test images, to the likeliest class: what a calibrator may go by under shift."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rows = _extracted(extractor, sources.corrupted(name, device).images, "test")
    fitted = difficulty.fit("rmd", train)
    scores = fitted.score(rows, "predicted")
    told = {"extractor": train.extractor, "labels": "predicted"}
    replace(scores, options=told, labels=None).save(sources.prepared / f"{name}-{CORRUPTED}.parquet")


def keep_scores(folder: Path, name: str, rows: Mapping[str, Features], kinds: Sequence[str]) -> None:
    """Difficulty of all splits, fitted on the training split, a file per kind."""
    fitted = {word: difficulty.fit(word, rows["train"]) for word in {KINDS[kind][0] for kind in kinds}}
    for kind in kinds:
        word, labels = KINDS[kind]
        values = [fitted[word].score(part, labels).values for part in rows.values()]
        scores = Scores(
            np.concatenate([part.ids for part in rows.values()]),
            np.concatenate(values),
            word,
            {"extractor": rows["train"].extractor, "labels": labels or "given"},
            np.concatenate([part.labels for part in rows.values()]),
        )
        scores.save(folder / f"{name}-{kind}.parquet")


def keep_severities(sources: Sources, name: str, train: Features, extractor: str) -> None:
    """Mean difficulty of corrupted images by severity, and of wrong labels by their share (`label_noise`)."""
    fitted = difficulty.fit("rmd", train)
    dataset = sources.dataset(name)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    test = spread(dataset.test, SEVERITY_IMAGES)
    shifted = shifted_images(test, device)
    clean = _extracted(extractor, test, "test")
    rows = _extracted(extractor, shifted.images, "test")
    values = fitted.score(rows).values.reshape(len(shifted.names), len(test))
    found = [("clean", 0.0, fitted.score(clean).values)]
    for word, one in zip(shifted.names, values, strict=True):
        found.append((word.rpartition("-")[0], float(word.rpartition("-")[2]), one))
    rng = np.random.default_rng(0)
    for share in (0.1, 0.2, 0.3, 0.4, 0.5):
        other = (test.labels + rng.integers(1, dataset.num_classes, len(test))) % dataset.num_classes
        labels = np.where(rng.random(len(test)) < share, other, test.labels)
        found.append(("label_noise", share, fitted.score(clean, labels).values))
    files.write_table(
        sources.prepared / f"{name}-severity.parquet",
        {
            "shift": np.array([word for word, _, _ in found]),
            "severity": np.array([severity for _, severity, _ in found]),
            "mean": np.array([values.mean() for _, _, values in found]),
            "deviation": np.array([values.std() for _, _, values in found]),
            "n": np.array([len(values) for _, _, values in found]),
        },
    )


def _extracted(word: str, part: Split, split: str) -> Features:
    """Features of a split; the enlarging of small images for EfficientNet happens on the device, a batch at a time."""
    batch_size = 1000 if torch.cuda.is_available() else 50
    if not word.startswith("efficientnet"):
        return features.extract(word, part, split, batch_size=batch_size)
    base = features.create(word)
    side = 224 if word.endswith("lite0") else 260

    def encode(batch: Tensor) -> Tensor:
        large = torch.nn.functional.interpolate(batch.float(), (side, side), mode="bicubic", antialias=True)
        return base.encode((large.clamp(0, 255) - 127) / 128)

    quick = replace(base, prepare=lambda image: torch.from_numpy(np.asarray(image)), encode=encode)
    return features.extract(quick, part, split, batch_size=batch_size)
