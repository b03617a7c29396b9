"""Confusion scores of the grid's recorded trainings against each other and against RMD, on the validation images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from benchmarks.findings.cells import markdown
from benchmarks.lib.items import Study
from benchmarks.lib.results import Results
from benchmarks.papers import confused
from confide.checks import InputError

SCORES = {"rmd_labelled": "difficulty", "rmd_free": "bands"}
"""RMD to the label's class and to the likeliest one, by the file of their scores."""


def recorded_tables(folder: Path, dataset: str = "cifar10") -> dict[str, str]:
    """Kendall's tau of every two rankings, and how well each finds the errors of each network; empty without data."""
    study = Study(Results((folder,), folder / "prepared"), "lite", (dataset,), folder)
    try:
        held = {name: confused.recorded(study, dataset, name) for name in confused.LITE}
    except InputError:  # the cells are there, their predictions are not
        return {}
    known = {name: recording for name, recording in held.items() if recording is not None}
    if not known:
        return {}
    rankings = {name: confused.confusion(recording[0]) for name, recording in known.items()}
    labels = next(iter(known.values()))[1]
    rankings |= _distances(study, dataset, labels)
    taus = [[_tau(a, b) for b in rankings.values()] for a in rankings.values()]
    rows = [
        [name, *("-" if a == b else f"{taus[a][b]:.2f}" for b in range(len(taus)))] for a, name in enumerate(rankings)
    ]
    seconds = {
        name: sum(float(cell["seconds"]["train"]) for cell in study.results.of(dataset, "recorded", name).values())
        for name in known
    }
    lines = []
    for name, ranking in rankings.items():
        cells = [f"{100 * _auroc(ranking, *recording):.1f}" for recording in known.values()]
        lines.append([name, *cells, f"{seconds[name]:.0f}" if name in seconds else "-"])
    seeds = ", ".join(f"{name} {len(recording[0])}" for name, recording in known.items())
    head = ["ranking", *(f"errors of {name}" for name in known), "seconds of training"]
    return {
        "cells-confusion": f"{markdown(['tau', *rankings], rows)}\n\nSeeds of each network: {seeds}.",
        "cells-errors": markdown(head, lines),
    }


def _distances(study: Study, dataset: str, labels: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
    """RMD of the validation images, whose scores lie between those of train and test."""
    rankings = {}
    for name, kind in SCORES.items():
        scores = study.results.scores(dataset, kind)
        if scores is None or scores.labels is None:
            continue
        rows = np.array([k for k, sample in enumerate(scores.ids) if str(sample).startswith("train-")])
        # Train comes first, then val, both from the official training images; their labels must be the cells' own.
        rows = rows[-len(labels) :]
        if np.array_equal(scores.labels[rows], labels):
            rankings[name] = scores.values[rows]
    return rankings


def _tau(first: NDArray[Any], second: NDArray[Any]) -> float:
    return float(stats.kendalltau(first, second).statistic)


def _auroc(ranking: NDArray[np.float64], probs: NDArray[Any], labels: NDArray[np.int64]) -> float:
    """AUROC of a ranking for the errors after the last epoch, mean over the seeds."""
    ranks = stats.rankdata(ranking)
    areas = []
    for seed in probs[:, -1]:
        wrong = seed.argmax(axis=1) != labels
        count = int(wrong.sum())
        if 0 < count < len(wrong):
            areas.append((ranks[wrong].sum() - count * (count + 1) / 2) / (count * (len(wrong) - count)))
    return float(np.mean(areas)) if areas else float("nan")
