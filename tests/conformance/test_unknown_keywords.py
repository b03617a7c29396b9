"""A keyword that nothing knows is refused wherever options are taken: a typo never becomes a silent default."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import confide
from confide import Predictions, calibrators, data, difficulty, features, losses, metrics, models, penalties, training

TYPO = {"sample_wieght": 1}
LOGITS, LABELS = torch.randn(30, 3, generator=torch.Generator().manual_seed(0)), torch.arange(30) % 3
VAL = Predictions(LOGITS, LABELS, split="val")
ROWS = np.random.default_rng(0).normal(size=(30, 4))
SPLIT = data.Split(np.zeros((6, 1, 4, 4), np.uint8), np.arange(6) % 2, np.arange(6), {"features": ROWS[:6]})
NEEDS = {
    "weights": torch.ones(30),
    "groups": torch.zeros(30, dtype=torch.long),
    "class_counts": torch.tensor([10, 10, 10]),
    "ids": torch.arange(30),
}


def calls() -> dict[str, Callable[[], object]]:
    evaluation = confide.Evaluation((confide.Measurement("accuracy", 0.9, 10),))
    known: dict[str, Callable[[], object]] = {
        "load_dataset": lambda: data.load_dataset((ROWS, LABELS.numpy()), **TYPO),
        "extract": lambda: features.extract("pixels", SPLIT, **TYPO),
        "extract cached": lambda: features.extract("cached", SPLIT, **TYPO),
        "extract by an extractor": lambda: features.extract(features.create("pixels"), SPLIT, **TYPO),
        "difficulty.fit": lambda: difficulty.fit("rmd", ROWS, LABELS, **TYPO),
        "difficulty.score": lambda: difficulty.score("entropy", VAL, **TYPO),
        "trust.fit": lambda: confide.trust.fit("mcp", **TYPO),
        "metrics.create": lambda: metrics.create("ece", **TYPO),
        "models.create": lambda: models.create("mlp", (4,), 3, **TYPO),
        "preset": lambda: training.preset("quick", **TYPO),
        "Settings.changed": lambda: training.Settings().changed(**TYPO),
        "from_probs": lambda: Predictions.from_probs(torch.softmax(LOGITS, dim=1), LABELS, **TYPO),
        "replace": lambda: VAL.replace(**TYPO),
        "Evaluation.value": lambda: evaluation.value("accuracy", **TYPO),
        "run": lambda: confide.run("demo", **TYPO),
    }
    known |= {f"calibrator {word}": _call(calibrators.fit, word, VAL) for word in calibrators.CALIBRATORS.names()}
    known |= {f"metric {word}": _call(getattr(metrics, word), VAL) for word in metrics.METRICS.names()}
    known |= {
        f"penalty {word}": _call(getattr(penalties, word), LOGITS, LABELS) for word in penalties.PENALTIES.names()
    }
    for method in losses.LOSSES:
        needs = {name: NEEDS[name] for name in method.needs}
        known[f"loss {method.word}"] = _call(getattr(losses, method.word), LOGITS, LABELS, **needs)
        known[f"losses.create {method.word}"] = _call(losses.create, method.word)
    return known


def _call(function: Callable[..., object], *args: Any, **needs: Any) -> Callable[[], object]:
    return lambda: function(*args, **needs, **TYPO)


CALLS = calls()


@pytest.mark.parametrize("name", CALLS)
def test_a_keyword_that_nothing_knows_is_refused(name: str) -> None:
    with pytest.raises(TypeError, match="sample_wieght"):
        CALLS[name]()
