"""Bands of difficulty by which a loss measures calibration: who needs them, and scores that may make them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confide import difficulty
from confide.core.records import Features, Scores
from confide.training.objective import validation_needs
from confide.training.settings import Settings


def needs_bands(settings: Settings) -> bool:
    """Whether the loss measures the calibration of validation samples by band of difficulty."""
    return settings.group_by == "difficulty" and "groups" in validation_needs(settings.loss)


def band_scores(word: str, rows: Mapping[str, Features], **options: Any) -> Scores:
    """Difficulty of train and val to the likeliest class, not to the label's, by a method fitted on train.

    A difficulty that knows the label puts misread samples into the hard band, which then looks too sure even where
    the network is calibrated.
    """
    fitted = difficulty.fit(word, rows["train"], **options)
    return Scores.joined([fitted.score(rows[split], "predicted") for split in ("train", "val") if split in rows])
