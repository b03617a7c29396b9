"""Numbers for the log of a training: metrics of the validation predictions, with what chance alone would show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from confide.checks import as_tensor
from confide.metrics import calibration_test, measure_many
from confide.metrics.base import parse_metric
from confide.predictions import Predictions
from confide.training.prediction import CHANCE_DRAWS

WORDS = ("accuracy", "nll", "ece", "aurc")
IGNORED = -100
"""The label of padding, as torch and the Trainer have it."""


def logged_metrics(logits: Any, labels: Any, words: Sequence[str] = WORDS) -> dict[str, float]:
    """Values of the metrics, and beside each calibration error what a perfectly calibrated model would show.

    Args:
        logits: `n c`, or with further dimensions before the classes, as of tokens.
        labels: of the same shape without the classes; -100 is left out.
        words: of metrics.

    Returns:
        Word -> value, and `word_by_chance` after each calibration error.

    Example:
        >>> from confide.integrations.epoch_log import logged_metrics
        >>> logged = logged_metrics([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [0, 1, 1], ["accuracy", "ece"])
        >>> list(logged)
        ['accuracy', 'ece', 'ece_by_chance']
    """
    rows, truth = as_tensor(logits, "logits"), as_tensor(labels, "labels").reshape(-1)
    rows = rows.reshape(-1, rows.shape[-1])
    known = truth != IGNORED
    predictions = Predictions(rows[known].float(), truth[known])
    values = measure_many(predictions, words)
    logged = {}
    for word, value in values.items():
        logged[word] = value
        if parse_metric(word.partition(":")[0])[0].spec.info.kind == "calibration":
            logged[f"{word}_by_chance"] = calibration_test(predictions, word, resamples=CHANCE_DRAWS).mean
    return logged


def gathered(rows: Tensor) -> Tensor:
    """The rows of all processes of a torch.distributed group, in the order of ranks; these rows without one."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return rows
    parts: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(parts, rows.cpu())
    return torch.cat(parts)
