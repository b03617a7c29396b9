"""One cell of a grid: train, predict, measure, and write one result file and one file of predictions, atomically.

Measured are clean data before and after calibration, corruptions, and telling out-of-distribution images.

"""

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

from benchmarks.lib.grid import Cell
from benchmarks.lib.sources import CORRUPTED_SCORES, OOD, RESAMPLED, Shifted, Sources
from confide import Dataset, Predictions, Scores, Split, calibrators, difficulty, evaluation, files, pipeline
from confide.checks import InputError
from confide.config import MethodChoice
from confide.metrics import calibration_test, measure_many
from confide.models import Device
from confide.store import environment
from confide.training import GROUPS, Settings, Trained, fit, group_scores_kind

# Everything measured on one trained model: clean data before and after calibration, corruptions, OOD images.

CLEAN_METRICS = (
    "accuracy",
    "nll",
    "brier",
    "ece",
    "ece_mass",
    "classwise_ece",
    "confidence_gap",
    "aurc",
    "eaurc",
    "augrc",
    "auroc",
    "aupr_success",
    "aupr_error",
    "fpr95",
)
RANKED = ("aurc", "auroc", "aupr_success", "aupr_error", "fpr95")
"""Also measured with the entropy as the score, as `auroc:entropy`."""
SHIFT_METRICS = ("accuracy", "nll", "ece", "ece_mass", "aurc", "auroc")

Stages = Mapping[str, calibrators.Calibrator]


def numbers(predictions: Predictions, words: tuple[str, ...] = CLEAN_METRICS) -> dict[str, float]:
    """Values of these metrics."""
    columns = [(word, f"{word}:entropy") if word in RANKED and words is CLEAN_METRICS else (word,) for word in words]
    return measure_many(predictions, [word for group in columns for word in group])


def tested(predictions: Predictions) -> dict[str, float]:
    """All metrics of clean data, with what the calibration test says of the equal-mass ECE."""
    null = calibration_test(predictions, "ece_mass")
    return {**numbers(predictions), "calibration_p": null.p_value, "ece_mass_chance": null.mean}


def calibrator_of(name: str, calibrated: Mapping[str, Any], val: Predictions) -> calibrators.Calibrator:
    """A method's calibrator, fitted on its validation predictions."""
    options = dict(calibrated) or {"word": name}
    return pipeline.fit_calibrator(MethodChoice(options.pop("word"), options), val)


def by_stage(predictions: Predictions, stages: Stages, words: tuple[str, ...] | None = None) -> dict[str, Any]:
    """Numbers of the raw predictions and after every calibrator, but those by a column that these have not."""
    known = {"", *predictions.columns}
    outputs = {"raw": predictions}
    outputs |= {name: apply(predictions) for name, apply in stages.items() if getattr(apply, "by", "") in known}
    return {name: tested(staged) if words is None else numbers(staged, words) for name, staged in outputs.items()}


def measure_shift(trained: Trained, shifted: Shifted, stages: Stages, scores: Scores | None = None) -> dict[str, Any]:
    """Numbers per corruption and severity ("fog-3"), by stage; one pass over all images.

    Args:
        scores: difficulty of the corrupted images, for calibrators that go by it.
    """
    predictions = pipeline.predict(trained, shifted.images, "test")
    if scores is not None:
        predictions = pipeline.with_difficulty(predictions, scores)
    n = len(shifted.images) // len(shifted.names)
    return {
        name: by_stage(predictions.take(np.arange(k * n, (k + 1) * n)), stages, SHIFT_METRICS)
        for k, name in enumerate(shifted.names)
    }


def measure_ood(trained: Trained, known: Predictions, ood_sets: Mapping[str, Split]) -> dict[str, Any]:
    """AUROC, AUPR and FPR95 of telling the test images from each out-of-distribution set, by score of the logits."""
    by_source: dict[str, Any] = {}
    for name, split in ood_sets.items():
        rows = evaluation.ood(known, pipeline.predict(trained, split, name), name=name, intervals=False).measurements
        by_source[name] = {str(score): {} for score in dict.fromkeys(row.score for row in rows)}
        for row in rows:
            by_source[name][str(row.score)][row.metric] = row.value
    return by_source


# One cell of a grid: train, predict, measure, and write one result file and one file of predictions, atomically.

CELL = files.Format("bench-cell", 1, "a cell of a grid", "make it again")
RESCUE_NORM = 1.0
"""Norm that gradients are clipped at when a training is repeated because its loss was no longer finite."""
SAVED_COLUMNS = (calibrators.DIFFICULTY,)
"""Columns of predictions that are kept with them."""
MOST_CLASSES_WITH_LOGITS = 50
"""With more classes the logits of a cell take megabytes: then the facts of each sample are kept instead."""


@dataclass
class EpochRecorder:
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
    recorder = EpochRecorder() if method.record else None
    folder = out / "work" / cell.name if resumable else None
    opened = time.monotonic()
    trained, rescued = train(dataset, settings, scores, folder, recorder)
    done = time.monotonic()
    by_split = {split: _predicted(cell, trained, dataset, split, sources) for split in ("val", "test")}
    measurements = _measured(cell, trained, by_split, dataset, sources)
    path = out / "predictions" / f"{cell.name}.npz"
    keep_predictions(path, by_split, recorder)
    seconds = {"open": opened - began, "train": done - opened, "measure": time.monotonic() - done}
    result = {
        "format": CELL.tag,
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
        **measurements,
        "strength": mean_strength(settings, scores, dataset),
        "log": {name: [round(float(v), 6) for v in values] for name, values in trained.log.items()},
        "split": _split_note(dataset),
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
        **provenance(),
    }
    files.write_json(out / "cells" / f"{cell.name}.json", result)
    if folder is not None:
        for leftover in folder.glob("*"):
            leftover.unlink()
        folder.rmdir()
    return result


def train(
    dataset: Dataset, settings: Settings, scores: Scores | None, folder: Path | None, recorder: EpochRecorder | None
) -> tuple[Trained, str]:
    """(the network, how it was rescued). One rule for all methods, which no test image enters.

    A training whose loss is no longer finite is repeated once with gradients clipped at norm 1, and the cell says so.
    One that ends without having learnt is a result and stays.
    """

    def attempt(tried: Settings) -> Trained:
        if recorder is not None:
            recorder.rows.clear()
        return fit(dataset, tried, scores=scores, folder=folder, recorder=recorder, if_other="restart")

    try:
        return attempt(settings), ""
    except InputError as error:
        if "NaN or infinite" not in str(error):
            raise
        why = str(error).partition(",")[0]
    return attempt(settings.changed(clip_norm=RESCUE_NORM)), f"{why}; repeated with clip_norm {RESCUE_NORM:g}"


def _kind(settings: Settings) -> str:
    """The scores a loss wants: those of the prepared ones that know the label, or bands that do not."""
    return "bands" if group_scores_kind(settings) == GROUPS else "difficulty"


def _by_difficulty(cell: Cell) -> bool:
    return cell.method.resolved().calibrated.get("by") == calibrators.DIFFICULTY


def _predicted(cell: Cell, trained: Trained, dataset: Dataset, split: str, sources: Sources) -> Predictions:
    """What the network says, with the difficulty that its calibrator may go by."""
    predictions = pipeline.predict(trained, dataset, split)
    if not _by_difficulty(cell):
        return predictions
    return pipeline.with_difficulty(predictions, sources.scores(cell.dataset, "bands"))


def _measured(
    cell: Cell, trained: Trained, by_split: Mapping[str, Predictions], dataset: Dataset, sources: Sources
) -> dict[str, Any]:
    method = cell.method.resolved()
    stages = {
        "temperature": pipeline.fit_calibrator("temperature", by_split["val"]),
        method.calibrator: calibrator_of(method.calibrator, method.calibrated, by_split["val"]),
    }
    measurements: dict[str, Any] = {
        "calibrators": {
            word: {k: v for k, v in calibrator.values.items() if v.numel() == 1} for word, calibrator in stages.items()
        },
        "measured": by_stage(by_split["test"], stages),
        "validation": {"raw": tested(by_split["val"])},
    }
    if RESAMPLED in dataset.splits:
        measurements[RESAMPLED] = by_stage(_predicted(cell, trained, dataset, RESAMPLED, sources), stages)
    ood_sets = sources.ood(cell.dataset)
    if ood_sets:
        measurements[OOD] = measure_ood(trained, by_split["test"], ood_sets)
    if method.shifted and dataset.kind == "image":
        device = Device.of(trained.settings.device).device
        scores = sources.scores(cell.dataset, CORRUPTED_SCORES) if _by_difficulty(cell) else None
        measurements["shift"] = measure_shift(trained, sources.corrupted(cell.dataset, device), stages, scores)
    return measurements


def keep_predictions(path: Path, by_split: Mapping[str, Predictions], recorder: EpochRecorder | None) -> None:
    """Logits of val and test in half precision, or the facts of each sample where there are many classes."""
    columns: dict[str, NDArray[Any]] = {}
    for split, predictions in by_split.items():
        labels = predictions.labels.cpu().numpy()
        columns[f"{split}_label"] = labels.astype(np.uint8 if predictions.num_classes <= 256 else np.int32)
        columns |= {f"{split}_{name}": values for name, values in predictions.columns.items() if name in SAVED_COLUMNS}
        if predictions.num_classes <= MOST_CLASSES_WITH_LOGITS:
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
        more = {name: columns[f"{split}_{name}"] for name in SAVED_COLUMNS if f"{split}_{name}" in columns}
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
    origin = dataset.provenance
    return {
        "sizes": {name: len(part) for name, part in dataset.splits.items()},
        "seed": origin.split_seed,
        "fingerprint": origin.fingerprint,
        "made": dict(origin.splits),
    }


def command() -> str:
    """What was run, by the module's name; of absolute paths, which say something of the machine alone, their end."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    program = f"-m {spec.name.removesuffix('.__main__')}" if spec else Path(sys.argv[0]).name
    return " ".join(["python", program, *(Path(w).name if Path(w).is_absolute() else w for w in sys.argv[1:])])


def provenance() -> dict[str, Any]:
    """Hardware, versions, commit, command, time."""
    known = environment()
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "versions": known.versions,
        "hardware": f"{gpu}; {known.hardware}" if gpu else known.hardware,
        "torch": torch.__version__,
        "commit": os.environ.get("CONFIDE_COMMIT") or known.commit,
        "command": os.environ.get("CONFIDE_COMMAND") or command(),
        "made": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }
