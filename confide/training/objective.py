"""Objective: the only place that weights and reduces. Per-sample losses in, one scalar to minimise out; and the
difficulty scores that make a loss's groups.
"""

from __future__ import annotations

from typing import Any, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from confide import difficulty, losses
from confide.checks import InputError
from confide.losses.base import BatchLoss
from confide.records import Scores, Split
from confide.training.settings import Settings


class Objective:
    """A loss of the registry with what it needs per sample, looked up by row of the training split."""

    def __init__(
        self,
        settings: Settings,
        train: Split,
        num_classes: int,
        scores: Scores | None,
        device: torch.device,
        val: Split | None = None,
    ) -> None:
        options = dict(settings.loss_options)
        known = losses.LOSSES.get(settings.loss)
        if "num_samples" in known.options or "num_samples" in known.needs:
            options.setdefault("num_samples", len(train))
        if "num_groups" in known.options:
            options["num_groups"] = num_groups(settings, train, num_classes, scores)
        self.loss = losses.create(settings.loss, reduction="none", **options).to(device)
        self.reduction = settings.reduction
        self.tables = {
            need: torch.as_tensor(_table(need, settings, train, num_classes, scores)).to(device)
            for need in self.loss.needs
        }
        self.val_tables = {
            need: torch.as_tensor(_val_table(need, settings, train, val, scores)).to(device)
            for need in (self.loss.validation_needs() if val is not None else ())
        }
        self.weights: Tensor | None = None
        if settings.weigh:
            weights = torch.as_tensor(_weights(settings, train, scores), dtype=torch.float32)
            self.weights = (weights / weights.mean()).to(device)

    @property
    def learns_from_validation(self) -> bool:
        """Whether the loss adapts to validation predictions (AdaFocal, CalFocal)."""
        return self.loss.update is not None

    def __call__(self, logits: Tensor, labels: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """(the scalar to minimise, the batch mean for the log)."""
        extra = {need: table if need == "class_counts" else table[rows] for need, table in self.tables.items()}
        batch = self.loss.batch(logits, labels, **extra)
        if self.weights is not None:
            batch = BatchLoss(batch.values * self.weights[rows])
        mean = batch.mean()
        return (mean if self.reduction == "mean" else batch.values.sum()), mean.detach()

    def update(self, val_logits: Tensor, val_labels: Tensor) -> None:
        """Let the loss adapt to validation predictions, in place: a captured graph keeps reading the same memory."""
        assert self.loss.update is not None
        before = dict(self.loss.named_buffers())
        self.loss.update(val_logits, val_labels, **self.val_tables)
        for name, buffer in list(self.loss.named_buffers()):
            captured = before.get(name)
            if captured is not None and captured is not buffer and captured.shape == buffer.shape:
                captured.copy_(buffer)
                owner, _, last = name.rpartition(".")
                self.loss.get_submodule(owner)._buffers[last] = captured


def _table(need: str, settings: Settings, train: Split, num_classes: int, scores: Scores | None) -> NDArray[Any]:
    if need == "ids":
        return np.arange(len(train), dtype=np.int64)
    if need == "weights":
        return _weights(settings, train, scores).astype(np.float32)
    if need == "groups":
        return groups_of(settings, train, scores)
    if need == "class_counts":
        return np.bincount(train.labels, minlength=num_classes).astype(np.float32)
    raise InputError(f"loss '{settings.loss}' needs '{need}', which training cannot supply; use another loss")


def _val_table(need: str, settings: Settings, train: Split, val: Split | None, scores: Scores | None) -> NDArray[Any]:
    if need == "groups" and val is not None:
        return groups_of(settings, train, scores, val)
    raise InputError(f"loss '{settings.loss}' needs '{need}' of the validation samples, which training cannot supply")


def _weights(settings: Settings, train: Split, scores: Scores | None) -> NDArray[np.floating[Any]]:
    if scores is None:
        raise InputError(f"loss '{settings.loss}' weighs by difficulty, but no scores came; pass scores= (--scores)")
    own = Scores(train.ids, scores.of(train.ids), scores.method, scores.options)
    return np.asarray(difficulty.weights(own, **settings.weight_options))


def groups_of(
    settings: Settings, train: Split, scores: Scores | None, others: Split | None = None
) -> NDArray[np.int64]:
    """Group of each training sample: by label, by a column, as the scores hold it, or by quantile of difficulty.

    Args:
        others: samples to put into the groups of the training samples, such as those of val.
    """
    samples = train if others is None else others
    if settings.group_by == "label":
        return samples.labels.astype(np.int64)
    if _holds_groups(scores, settings):
        role = "training" if others is None else "validation"
        return _difficulty_of(samples, scores, settings, role).astype(np.int64)
    if settings.group_by == "difficulty":
        values = _difficulty_of(train, scores, settings, "training")
        edges = np.quantile(values, np.linspace(0, 1, _quantiles(settings) + 1)[1:-1])
        if others is not None:
            values = _difficulty_of(others, scores, settings, "validation")
        return np.searchsorted(edges, values, side="left").astype(np.int64)
    names = _names_in_column(settings.group_by, train)
    column = samples.columns.get(settings.group_by)
    if column is None or not np.isin(column, names).all():
        raise InputError(
            f"every sample must have a value of column '{settings.group_by}' that the training samples have"
        )
    return np.searchsorted(names, column).astype(np.int64)


def num_groups(settings: Settings, train: Split, num_classes: int, scores: Scores | None) -> int:
    """How many groups a loss keeps: as many as there are, unless its option asks for more."""
    if _holds_groups(scores, settings):
        source, number = "the scores hold", int(scores.values.max()) + 1
    elif settings.group_by == "difficulty":
        return _quantiles(settings)
    elif settings.group_by == "label":
        source, number = "the labels make", num_classes
    else:
        source = f"column '{settings.group_by}' has"
        number = len(_names_in_column(settings.group_by, train))
    num_kept = int(settings.loss_options.get("num_groups", number))
    if num_kept < number:
        raise InputError(
            f"{source} {number} groups, but num_groups of loss '{settings.loss}' is {num_kept}; leave that option out, "
            "training counts the groups"
        )
    return num_kept


def _holds_groups(scores: Scores | None, settings: Settings) -> TypeGuard[Scores]:
    """Whether the scores are groups already, as `confide harden --groups` writes them."""
    return settings.group_by == "difficulty" and scores is not None and scores.method == difficulty.GROUPED


def _quantiles(settings: Settings) -> int:
    known = {"num_groups": 2, **losses.LOSSES.get(settings.loss).options, **settings.loss_options}
    return int(known["num_groups"])


def _names_in_column(name: str, train: Split) -> NDArray[Any]:
    if name not in train.columns:
        raise InputError(f"group_by must be one of {', '.join(('difficulty', 'label', *train.columns))}, got '{name}'")
    return np.unique(train.columns[name])


def _difficulty_of(samples: Split, scores: Scores | None, settings: Settings, role: str) -> NDArray[np.float64]:
    if scores is None:
        raise InputError("groups by difficulty need scores, but none came; pass scores= (--scores) or group_by")
    missing = ~np.isin(samples.ids.astype(np.str_), scores.ids.astype(np.str_))
    if role == "validation" and missing.any():
        raise InputError(
            f"loss '{settings.loss}' needs the difficulty of the validation samples too, but the scores miss "
            f"{int(missing.sum())} of {len(samples)}; score val as well and pass both (--scores train.parquet "
            "val.parquet)"
        )
    return scores.of(samples.ids)


# Groups of difficulty by which a loss measures calibration: who needs them, and scores that may make them.

GROUPS, LABEL_GROUPS = "groups", "label_groups"
"""Scores by which a loss groups samples: the difficulty of the likeliest class, or that of the label."""


def group_scores_kind(settings: Settings) -> str:
    """Which scores make the groups by which a loss measures the calibration of validation samples.

    Args:
        settings: of a training.

    Returns:
        `groups` (difficulty of the likeliest class), `label_groups` (of the label); nothing where the loss needs none.

    Example:
        >>> confide.training.group_scores_kind(confide.training.Settings(loss="adaptive_difficulty"))
        'groups'
    """
    loss = losses.LOSSES.get(settings.loss).function
    needs = loss.validation_needs() if isinstance(loss, type) and issubclass(loss, losses.LossModule) else ()
    if settings.group_by != "difficulty" or "groups" not in needs:
        return ""
    return LABEL_GROUPS if settings.label_bands else GROUPS
