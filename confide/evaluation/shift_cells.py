"""One cell of the grid: a model on one corruption at one severity, measured at every stage, kept in a file."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit
from torch import Tensor

from confide import metrics
from confide.core import files
from confide.core.door import InputError
from confide.core.predictions import Predictions
from confide.core.records import Split

MEASURED = ("accuracy", "confidence_gap", "ece", "nll", "aurc", "auroc")
RANKED = ("aurc", "auroc")
CHANCES = ("confidence_gap", "ece")
"""Also measured of trust predictors whose values are chances of being right (`scale` probability or logit)."""
FORMAT = "shift-cell/2"

Outputs = tuple[Tensor, Tensor | None]
Row = dict[str, Any]
"""stage, score, metric, value."""


@dataclass(frozen=True, eq=False)
class Subject:
    """A model to test under shift.

    `forward` takes uint8 images `n c h w` and returns logits `n k` and features `n d` (or None); `stages` are fitted
    calibrators by word; `trust` are fitted trust predictors by word (one with a `scale` of probability or logit is also
    held to its chances); `hardness` takes (features, labels) and returns
    the difficulty of the samples, such as RMD; `attacked` takes images in [0, 1] and returns logits with a gradient;
    `identity` changes when the model does: cells made by another one are not used.
    """

    forward: Callable[[Tensor], Outputs]
    stages: Mapping[str, Callable[[Predictions], Predictions]] = field(default_factory=dict)
    trust: Mapping[str, Callable[[Predictions, Any], Any]] = field(default_factory=dict)
    hardness: Callable[[Any, Any], Any] | None = None
    attacked: Callable[[Tensor], Tensor] | None = None
    identity: str = ""


@dataclass(frozen=True)
class Cell:
    """A word and a severity; severity 0 is clean."""

    word: str
    severity: int

    @property
    def name(self) -> str:
        return f"{self.word}-{self.severity}" if self.severity else "clean"

    @property
    def group(self) -> str:
        return f"shift={self.word}/{self.severity}"


@dataclass(frozen=True)
class Notebook:
    """Cells kept as files, so that a stopped grid goes on where it was; without a folder nothing is kept."""

    folder: Path | None
    about: Mapping[str, Any]

    def _key(self, subject: Subject, cell: Cell) -> str:
        told = {**self.about, "cell": cell.name, "identity": subject.identity}
        told |= {"stages": sorted(subject.stages), "trust": sorted(subject.trust), "rmd": subject.hardness is not None}
        return hashlib.blake2b(json.dumps(told, sort_keys=True).encode(), digest_size=16).hexdigest()

    def read(self, model: str, subject: Subject, cell: Cell) -> list[Row] | None:
        """The rows of a cell made before by the same model on the same samples, or None."""
        path = self._path(model, cell)
        if path is None or not path.exists():
            return None
        found = files.read_json(path)
        if not isinstance(found, dict) or found.get("format") != FORMAT or found.get("key") != self._key(subject, cell):
            return None
        return [{**row, "value": math.nan if row["value"] is None else row["value"]} for row in found["rows"]]

    def write(self, model: str, subject: Subject, cell: Cell, rows: list[Row]) -> None:
        """Keep the rows of a cell, atomically."""
        path = self._path(model, cell)
        if path is not None:
            files.write_json(path, {"format": FORMAT, "key": self._key(subject, cell), "rows": rows})

    def _path(self, model: str, cell: Cell) -> Path | None:
        safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in model)
        return None if self.folder is None else self.folder / "cells" / safe / f"{cell.name}.json"


def about_samples(split: Split, seed: int, form: str) -> dict[str, Any]:
    """What decides the images of a cell: the samples, the seed and the form."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update("\n".join(map(str, split.ids.tolist())).encode())
    digest.update(np.ascontiguousarray(split.labels, dtype=np.int64).tobytes())
    return {"samples": digest.hexdigest(), "seed": seed, "form": form}


def predictions_of(outputs: list[Outputs], split: Split) -> tuple[Predictions, Any]:
    """Predictions and features of all batches of a cell."""
    logits = torch.cat([one[0].float().cpu() for one in outputs])
    if not bool(torch.isfinite(logits).all()):
        raise InputError("the model gave logits that are not finite on shifted images; check its precision")
    rows = [one[1] for one in outputs]
    features = (
        None if any(row is None for row in rows) else torch.cat([row.float().cpu() for row in rows if row is not None])
    )
    return Predictions(logits, torch.as_tensor(split.labels), ids=split.ids, split="test"), features


def measure(predictions: Predictions, features: Any, subject: Subject) -> list[Row]:
    """Rows of a cell: every metric as trained and after every calibrator, ranking by every trust predictor, RMD."""
    rows = [_row("raw", "msp", word, _value(word, predictions)) for word in MEASURED]
    for stage, apply in subject.stages.items():
        calibrated = apply(predictions)
        rows += [_row(stage, "msp", word, _value(word, calibrated)) for word in MEASURED]
    for name, predictor in subject.trust.items():
        values = np.asarray(predictor(predictions, features), dtype=np.float64)
        rows += [_row("raw", f"trust:{name}", word, _value(word, predictions, values)) for word in RANKED]
        if getattr(predictor, "scale", "score") in ("probability", "logit"):
            claimed = _claimed(predictions, values, predictor)
            rows += [_row("raw", f"trust:{name}", word, _value(word, claimed)) for word in CHANCES]
    if subject.hardness is not None:
        hard = np.asarray(subject.hardness(features, predictions.labels.numpy()), dtype=np.float64)
        parts = ("low", "lower_quartile", "median", "upper_quartile", "high")
        quantiles = np.quantile(hard, (0.025, 0.25, 0.5, 0.75, 0.975))
        rows += [_row("raw", "msp", f"rmd_{k}", float(v)) for k, v in zip(parts, quantiles, strict=True)]
        rows.append(_row("raw", "msp", "rmd_mean", float(hard.mean())))
    return rows


def _claimed(predictions: Predictions, values: NDArray[np.float64], predictor: Any) -> Predictions:
    """The predictions with the predictor's chances of being right as their confidence."""
    chances = expit(values) if predictor.scale == "logit" else values
    said = torch.from_numpy(np.clip(chances, 0.0, 1.0))
    return Predictions.from_top1(predictions.labels, predictions.facts.prediction, said, predictions.ids, "test")


def _row(stage: str, score: str, metric: str, value: float) -> Row:
    return {"stage": stage, "score": score, "metric": metric, "value": value}


def _value(word: str, predictions: Predictions, score: Any = None) -> float:
    options = {} if score is None else {"score": score}
    return float(getattr(metrics, word)(predictions, **options))
