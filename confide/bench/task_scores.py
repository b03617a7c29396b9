"""Difficulty from a network of the task itself: its loss on every sample, and RMD on its own features."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from confide import difficulty
from confide.bench.sources import Sources
from confide.core.records import Scores
from confide.training import Settings, fit, penultimate, predict

KINDS = ("task_rmd", "task_loss")


def keep_task_scores(sources: Sources, name: str, settings: Settings) -> list[Path]:
    """Train a network once and write both scores of all splits; what is there stays."""
    paths = [sources.prepared / f"{name}-{kind}.parquet" for kind in KINDS]
    if all(path.exists() for path in paths):
        return paths
    dataset = sources.dataset(name)
    trained = fit(dataset, settings)
    said = {split: predict(trained, dataset, split) for split in dataset.splits}
    rows = {split: penultimate(trained, dataset, split) for split in dataset.splits}
    fitted = difficulty.fit("rmd", rows["train"])
    values = {
        "task_rmd": [fitted.score(part).values for part in rows.values()],
        "task_loss": [one.facts.need("nll").double().numpy() for one in said.values()],
    }
    ids = np.concatenate([part.ids for part in rows.values()])
    labels = np.concatenate([part.labels for part in rows.values()])
    for kind, path in zip(KINDS, paths, strict=True):
        about = {"network": settings.model, "epochs": settings.epochs}
        Scores(ids, np.concatenate(values[kind]), kind, about, labels).save(path)
    return paths
