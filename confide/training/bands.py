"""Bands of difficulty by which a loss measures calibration: who needs them, and scores that may make them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confide import difficulty
from confide.core.records import Features, Scores
from confide.training.objective import validation_needs
from confide.training.settings import Settings

BANDS, LABEL_BANDS = "bands", "label_bands"


def bands_of(settings: Settings) -> str:
    """Which scores make the bands by which a loss measures the calibration of validation samples; empty: none do."""
    if settings.group_by != "difficulty" or "groups" not in validation_needs(settings.loss):
        return ""
    return LABEL_BANDS if settings.label_bands else BANDS


def band_scores(kind: str, word: str, rows: Mapping[str, Features], **options: Any) -> Scores:
    """Difficulty of train and val to the likeliest class, or for LABEL_BANDS to the label's, fitted on train.

    A difficulty that knows the label puts misread samples into the hard band, which then looks too sure even where
    the network is calibrated; docs/findings.md tells what came of either.
    """
    fitted = difficulty.fit(word, rows["train"], **options)
    labels = None if kind == LABEL_BANDS else "predicted"
    return Scores.joined([fitted.score(rows[split], labels) for split in ("train", "val") if split in rows])
