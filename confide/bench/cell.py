"""One cell of a grid: train, predict, measure, and write one result file and one file of predictions, atomically."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from confide import calibrators, difficulty
from confide.bench.measuring import by_stage, calibrator_of, on_foreign, tested, under_shift
from confide.bench.plan import Cell
from confide.bench.sources import CORRUPTED, RESAMPLED, Sources
from confide.core import files
from confide.core.door import InputError
from confide.core.predictions import Predictions
from confide.core.records import Dataset, Scores
from confide.store import surroundings
from confide.training import Settings, Trained, fit, predict
from confide.training.bands import BANDS, bands_of
from confide.training.device import Device

FORMAT = "bench-cell/1"
RESCUE_NORM = 1.0
"""Norm that gradients are clipped at when a training is repeated because its loss was no longer finite."""
KEPT = (calibrators.DIFFICULTY,)
"""Columns of predictions that are kept with them."""
MANY = 50
"""With more classes the logits of a cell take megabytes: then the facts of each sample are kept instead."""


@dataclass
class Record:
    """Keeps the validation probabilities of every epoch."""

    rows: list[NDArray[np.float16]] = field(default_factory=list)

    def record(self, epoch: int, ids: Any, outputs: Any, *, member: int = 0) -> None:
        """What `fit` tells after an epoch."""
        self.rows.append(torch.softmax(torch.as_tensor(outputs), dim=1).to(torch.float16).numpy())


def run_cell(cell: Cell, sources: Sources, out: Path, *, resumable: bool = False) -> dict[str, Any]:
    """Run a cell and write its files; the result file comes last, so its presence means the cell is whole.

    Args:
        resumable: checkpoints let a killed training go on; for trainings of more than a minute.
    """
    began = time.monotonic()
    method, settings = cell.method.resolved(), cell.training()
    dataset = sources.dataset(cell.dataset)
    scores = sources.scores(cell.dataset, method.scores or _kind(settings)) if method.difficulty else None
    recorder = Record() if method.record else None
    folder = out / "work" / cell.name if resumable else None
    opened = time.monotonic()
    trained, rescued = train(dataset, settings, scores, folder, recorder)
    done = time.monotonic()
    said = {split: _predicted(cell, trained, dataset, split, sources) for split in ("val", "test")}
    found = _measured(cell, trained, said, dataset, sources)
    kept = out / "predictions" / f"{cell.name}.npz"
    keep_predictions(kept, said, recorder)
    seconds = {"open": opened - began, "train": done - opened, "measure": time.monotonic() - done}
    result = {
        "format": FORMAT,
        "name": cell.name,
        "key": cell.key,
        "cell": cell.as_dict(),
        "method": {
            "loss": method.loss,
            "options": dict(method.options),
            "calibrator": method.calibrator,
            "calibrated": dict(method.calibrated),
        },
        "settings": trained.settings.as_dict(),
        "rescued": rescued,
        **found,
        "strength": mean_strength(settings, scores, dataset),
        "log": {name: [round(float(v), 6) for v in values] for name, values in trained.log.items()},
        "split": _split_note(dataset),
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
        **where(),
    }
    files.write_json(out / "cells" / f"{cell.name}.json", result)
    if folder is not None:
        for leftover in folder.glob("*"):
            leftover.unlink()
        folder.rmdir()
    return result


def train(
    dataset: Dataset, settings: Settings, scores: Scores | None, folder: Path | None, recorder: Record | None
) -> tuple[Trained, str]:
    """(the network, how it was rescued). One rule for all methods, which no test image enters.

    A training whose loss is no longer finite is repeated once with gradients clipped at norm 1, and the cell says so.
    One that ends without having learnt is a result and stays.
    """

    def attempt(one: Settings) -> Trained:
        if recorder is not None:
            recorder.rows.clear()
        return fit(dataset, one, scores=scores, folder=folder, recorder=recorder, if_other="restart")

    try:
        return attempt(settings), ""
    except InputError as error:
        if "NaN or infinite" not in str(error):
            raise
        why = str(error).partition(",")[0]
    return attempt(settings.changed(clip_norm=RESCUE_NORM)), f"{why}; repeated with clip_norm {RESCUE_NORM:g}"


def _kind(settings: Settings) -> str:
    """The scores a loss wants: those of the prepared ones that know the label, or bands that do not."""
    return "bands" if bands_of(settings) == BANDS else "difficulty"


def _by_difficulty(cell: Cell) -> bool:
    return cell.method.resolved().calibrated.get("by") == calibrators.DIFFICULTY


def _predicted(cell: Cell, trained: Trained, dataset: Dataset, split: str, sources: Sources) -> Predictions:
    """What the network says, with the difficulty that its calibrator may go by."""
    said = predict(trained, dataset, split)
    if not _by_difficulty(cell):
        return said
    return said.with_column(calibrators.DIFFICULTY, sources.scores(cell.dataset, "bands").of(said.ids))


def _measured(
    cell: Cell, trained: Trained, said: Mapping[str, Predictions], dataset: Dataset, sources: Sources
) -> dict[str, Any]:
    method = cell.method.resolved()
    stages = {
        "temperature": calibrators.fit("temperature", said["val"]),
        method.calibrator: calibrator_of(method.calibrator, method.calibrated, said["val"]),
    }
    found: dict[str, Any] = {
        "calibrators": {word: {k: v for k, v in one.values.items() if v.numel() == 1} for word, one in stages.items()},
        "measured": by_stage(said["test"], stages),
        "validation": {"raw": tested(said["val"])},
    }
    if RESAMPLED in dataset.splits:
        found[RESAMPLED] = by_stage(_predicted(cell, trained, dataset, RESAMPLED, sources), stages)
    foreign = sources.foreign(cell.dataset)
    if foreign:
        found["foreign"] = on_foreign(trained, said["test"], foreign)
    if method.shifted and dataset.kind == "image":
        device = Device.of(trained.settings).device
        hardness = sources.scores(cell.dataset, CORRUPTED) if _by_difficulty(cell) else None
        found["shift"] = under_shift(trained, sources.corrupted(cell.dataset, device), stages, hardness)
    return found


def keep_predictions(path: Path, said: Mapping[str, Predictions], recorder: Record | None) -> None:
    """Logits of val and test in half precision, or the facts of each sample where there are many classes."""
    columns: dict[str, NDArray[Any]] = {}
    for split, predictions in said.items():
        labels = predictions.labels.cpu().numpy()
        columns[f"{split}_label"] = labels.astype(np.uint8 if predictions.num_classes <= 256 else np.int32)
        columns |= {f"{split}_{name}": values for name, values in predictions.columns.items() if name in KEPT}
        if predictions.num_classes <= MANY:
            columns[f"{split}_logits"] = predictions.logits.to(torch.float16).cpu().numpy()
            continue
        facts = predictions.facts
        columns[f"{split}_prediction"] = facts.prediction.cpu().numpy().astype(columns[f"{split}_label"].dtype)
        # log(p / (1 - p)): next to 1 probabilities in half precision would tie.
        columns[f"{split}_log_odds"] = torch.logit(facts.confidence.double(), 1e-12).float().cpu().numpy()
        columns[f"{split}_nll"] = facts.need("nll").to(torch.float16).cpu().numpy()
        columns[f"{split}_entropy"] = facts.need("entropy").to(torch.float16).cpu().numpy()
    if recorder is not None:
        columns["record"] = np.stack(recorder.rows)
    with files.atomic(path) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, **columns)  # type: ignore[arg-type]


def read_predictions(path: Path, split: str = "test") -> Predictions:
    """The predictions of a cell: a record with logits, or with the top-1 facts where those were kept."""
    with np.load(path, allow_pickle=False) as columns:
        labels = columns[f"{split}_label"].astype(np.int64)
        ids = np.arange(len(labels))
        more = {name: columns[f"{split}_{name}"] for name in KEPT if f"{split}_{name}" in columns}
        if f"{split}_logits" in columns:
            return Predictions(columns[f"{split}_logits"].astype(np.float32), labels, ids, split, columns=more)
        confidence = 1 / (1 + np.exp(-columns[f"{split}_log_odds"].astype(np.float64)))
        return Predictions.from_top1(labels, columns[f"{split}_prediction"].astype(np.int64), confidence, ids, split)


def mean_strength(settings: Settings, scores: Scores | None, dataset: Dataset) -> float | None:
    """Mean weight of the entropy term, alpha times the mean of the difficulty weights."""
    alpha = float(settings.loss_options.get("alpha", 0.0))
    if settings.loss == "entropy_regularization":
        return alpha
    if settings.loss != "difficulty_entropy" or scores is None:
        return None
    values = scores.of(dataset.train.ids)
    return alpha * float(difficulty.weights(values, **settings.weight_options).mean())


def _split_note(dataset: Dataset) -> dict[str, Any]:
    told = dataset.provenance
    return {
        "sizes": {name: len(part) for name, part in dataset.splits.items()},
        "seed": told.get("split_seed"),
        "fingerprint": told.get("fingerprint"),
        "made": told.get("splits"),
    }


def where() -> dict[str, Any]:
    """Hardware, versions, commit, command, time."""
    told = surroundings()
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        **told,
        "hardware": f"{gpu}; {told['hardware']}" if gpu else told["hardware"],
        "torch": torch.__version__,
        "commit": os.environ.get("CONFIDE_COMMIT") or told["commit"],
        "command": os.environ.get("CONFIDE_COMMAND") or " ".join(sys.argv),
        "made": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }
