"""Everything measured on one trained model: clean data before and after calibration, corruptions, foreign images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from confide import calibrators
from confide.bench.sources import Shifted
from confide.core.predictions import Predictions
from confide.core.records import Scores, Split
from confide.evaluation import ood
from confide.evaluation.measuring import Asked
from confide.metrics.family import calibration_test, label_of, parse
from confide.metrics.view import View, base_of
from confide.training import Trained, predict

CLEAN = (
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
SHIFTED = ("accuracy", "nll", "ece", "ece_mass", "aurc", "auroc")

Stages = Mapping[str, calibrators.Calibrator]


def numbers(predictions: Predictions, words: tuple[str, ...] = CLEAN) -> dict[str, float]:
    """Values of these metrics."""
    view = View(base_of(predictions))
    found = {}
    for word in words:
        method, options = parse(word)
        found[label_of(method, options)] = Asked(method, options)(view)
        if word in RANKED and words is CLEAN:
            found[f"{word}:entropy"] = Asked(method, {**options, "score": "entropy"})(view)
    return found


def tested(predictions: Predictions) -> dict[str, float]:
    """All metrics of clean data, with what the calibration test says of the equal-mass ECE."""
    null = calibration_test(predictions, "ece_mass")
    return {**numbers(predictions), "calibration_p": null.p_value, "ece_mass_chance": null.mean}


def calibrator_of(name: str, calibrated: Mapping[str, Any], val: Predictions) -> calibrators.Calibrator:
    """A method's calibrator, fitted on its validation predictions."""
    options = dict(calibrated) or {"word": name}
    return calibrators.fit(options.pop("word"), val, **options)


def by_stage(predictions: Predictions, stages: Stages, words: tuple[str, ...] | None = None) -> dict[str, Any]:
    """Numbers of the raw predictions and after every calibrator, but those by a column that these have not."""
    known = {"", *predictions.columns}
    found = {"raw": predictions}
    found |= {name: apply(predictions) for name, apply in stages.items() if getattr(apply, "by", "") in known}
    return {name: tested(one) if words is None else numbers(one, words) for name, one in found.items()}


def under_shift(trained: Trained, shifted: Shifted, stages: Stages, hardness: Scores | None = None) -> dict[str, Any]:
    """Numbers per corruption and severity ("fog-3"), by stage; one pass over all images.

    Args:
        hardness: difficulty of the corrupted images, for calibrators that go by it.
    """
    said = predict(trained, shifted.images, "test")
    if hardness is not None:
        said = said.with_column(calibrators.DIFFICULTY, hardness.of(said.ids))
    n = len(shifted.images) // len(shifted.names)
    return {
        name: by_stage(said.take(np.arange(k * n, (k + 1) * n)), stages, SHIFTED)
        for k, name in enumerate(shifted.names)
    }


def on_foreign(trained: Trained, known: Predictions, foreign: Mapping[str, Split]) -> dict[str, Any]:
    """AUROC, AUPR and FPR95 of telling the test images from each foreign set, by score of the logits."""
    found: dict[str, Any] = {}
    for name, split in foreign.items():
        rows = ood(known, predict(trained, split, name), name=name, intervals=False).measurements
        found[name] = {str(score): {} for score in dict.fromkeys(row.score for row in rows)}
        for row in rows:
            found[name][str(row.score)][row.metric] = row.value
    return found
