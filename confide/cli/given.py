"""Predictions that a verb is given, and the one warning about what stands in them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from confide.core.predictions import Predictions

LOOKED_AT_FIRST = 100


def load_predictions(path: str | Path) -> Predictions:
    """The predictions of a file; a warning on stderr where its logits are probabilities to all appearances."""
    from confide.core.predictions import Predictions

    predictions = Predictions.load(path)
    if doubted := doubt(predictions, path):
        print(f"warning: {doubted}", file=sys.stderr)
    return predictions


def doubt(predictions: Predictions, path: str | Path) -> str:
    """A sentence where every row of the logits sums to one within [0, 1]; what they are is never guessed."""
    import torch

    logits = predictions.logits
    if predictions.from_probabilities or len(logits) == 0:
        return ""
    if (
        logits.shape[1] == 2
        and bool((logits[:, 0] == 0).all())
        and bool(((logits[:, 1] >= 0) & (logits[:, 1] <= 1)).all())
    ):
        return f"all single logits in {path} lie in [0, 1], as probabilities do; if they are, call the column 'probs'"
    # A file of real logits is told by its first rows; only a doubtful one is read to its end.
    for rows in (logits[:LOOKED_AT_FIRST], logits):
        if bool((rows < 0).any()) or bool(((rows.sum(1, dtype=torch.float64) - 1).abs() > 1e-3).any()):
            return ""
    return f"every row of the logits in {path} sums to 1, as probabilities do; if they are, call the column 'probs'"
