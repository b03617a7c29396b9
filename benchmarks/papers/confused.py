"""Confusion scores from cells that recorded the validation probabilities of every epoch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.lib.items import Study
from benchmarks.papers.settings import CONFUSION
from confide import difficulty

LITE = ("resnet18", "small_cnn", "preresnet56")
SMOKE = ("small_cnn", "mlp")
BANDS = 10


def models(study: Study) -> tuple[str, ...]:
    """The networks of a study, the paper's in the order of its settings."""
    if study.scale == "paper":
        return tuple(cell.model for cell in CONFUSION)
    return SMOKE if study.scale == "smoke" else LITE


def scorer(study: Study) -> str:
    """The small network whose confusion foretells the errors of the others; the paper's is its ResNet-50."""
    return CONFUSION[0].model if study.scale == "paper" else "small_cnn"


def recorded(study: Study, dataset: str, model: str) -> tuple[NDArray[Any], NDArray[np.int64]] | None:
    """(probabilities: seeds x epochs x samples x classes, labels), or None where no cell has them."""
    parts, labels = [], None
    for result in study.results.of(dataset, "recorded", model).values():
        with np.load(study.results.path(result), allow_pickle=False) as columns:
            parts.append(columns["record"].astype(np.float32))
            labels = columns["val_label"].astype(np.int64)
    return (np.stack(parts), labels) if parts and labels is not None else None


def confusion(
    probs: NDArray[Any], *, seeds: int | None = None, epochs: Sequence[int] | None = None
) -> NDArray[np.float64]:
    """Confusion in bits, of the first so many seeds and of these epochs."""
    chosen = probs[: seeds or len(probs)]
    chosen = chosen / chosen.sum(axis=3, keepdims=True)
    options: dict[str, Any] = {"base": 2, "epochs": "all" if epochs is None else list(epochs)}
    return np.asarray(difficulty.score("confusion", chosen, **options).values)


def errors(probs: NDArray[Any], labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """Share of the seeds that misread each sample after the last epoch."""
    wrong: NDArray[np.float64] = (probs[:, -1].argmax(axis=2) != labels).mean(axis=0)
    return wrong


def error_by_band(score: NDArray[np.float64], wrong: NDArray[np.float64]) -> list[tuple[float, float, float]]:
    """(middle of the band, error in %, share of samples in %) in ten bands of equal width."""
    edges = np.linspace(0, max(float(score.max()), 1e-9), BANDS + 1)
    place = np.clip(np.searchsorted(edges, score, side="right") - 1, 0, BANDS - 1)
    bands = []
    for k in range(BANDS):
        rows = place == k
        if rows.sum() >= 5:
            bands.append(
                (float((edges[k] + edges[k + 1]) / 2), 100 * float(wrong[rows].mean()), 100 * float(rows.mean()))
            )
    return bands


def pearson(bands: list[tuple[float, float, float]]) -> float:
    """Correlation of the bands' error with their confusion."""
    return float(np.corrcoef([b[0] for b in bands], [b[1] for b in bands])[0, 1]) if len(bands) > 2 else float("nan")
