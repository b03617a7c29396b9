"""Objective: the only place that weights and reduces. Per-sample losses in, one scalar to minimise out."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from confide import difficulty, losses
from confide.core.door import InputError
from confide.core.records import Scores, Split
from confide.training.settings import Settings


class Objective:
    """A loss of the registry with what it needs per sample, looked up by row of the training split."""

    def __init__(
        self, settings: Settings, train: Split, num_classes: int, scores: Scores | None, device: torch.device
    ) -> None:
        options = dict(settings.loss_options)
        known = losses.LOSSES.get(settings.loss)
        if "num_samples" in known.options or "num_samples" in known.needs:
            options.setdefault("num_samples", len(train))
        self.loss: nn.Module = losses.create(settings.loss, reduction="none", **options).to(device)
        self.needs: tuple[str, ...] = tuple(getattr(self.loss, "needs", ()))
        self.reduction = settings.reduction
        self.tables = {
            need: torch.as_tensor(_table(need, settings, train, num_classes, scores)).to(device) for need in self.needs
        }
        self.weights: Tensor | None = None
        if settings.weigh:
            weights = torch.as_tensor(_weights(settings, train, scores), dtype=torch.float32)
            self.weights = (weights / weights.mean()).to(device)

    @property
    def learns_from_validation(self) -> bool:
        """Whether the loss adapts to validation predictions (AdaFocal, CalFocal)."""
        return callable(getattr(self.loss, "update", None))

    @property
    def update_every(self) -> int:
        """Batches between the loss's updates from validation; 0 is once an epoch."""
        return int(getattr(self.loss, "update_every", 0))

    def __call__(self, logits: Tensor, labels: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """(the scalar to minimise, the batch mean for the log)."""
        extra = {need: table if need == "class_counts" else table[rows] for need, table in self.tables.items()}
        values: Tensor = self.loss(logits, labels, **extra)
        if self.weights is not None:
            values = values * self.weights[rows]
        mean = values.mean()
        return (mean if self.reduction == "mean" else values.sum()), mean.detach()

    def update(self, val_logits: Tensor, val_labels: Tensor) -> None:
        """Let the loss adapt to validation predictions, in place: a captured graph keeps reading the same memory."""
        before = dict(self.loss.named_buffers())
        self.loss.update(val_logits, val_labels)  # type: ignore[operator]
        for name, buffer in list(self.loss.named_buffers()):
            held = before.get(name)
            if held is not None and held is not buffer and held.shape == buffer.shape:
                held.copy_(buffer)
                owner, _, last = name.rpartition(".")
                self.loss.get_submodule(owner)._buffers[last] = held

    def end_epoch(self) -> None:
        """Tell a loss with a history that an epoch is over (CRL)."""
        told = getattr(self.loss, "end_epoch", None)
        if callable(told):
            told()

    def log(self) -> dict[str, float]:
        """Columns of the training log: AdaFocal's gamma per bin."""
        gammas = getattr(self.loss, "gammas", None)
        if gammas is None:
            return {}
        return {f"gamma{i}": value for i, value in enumerate(torch.as_tensor(gammas).tolist())}


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


def _weights(settings: Settings, train: Split, scores: Scores | None) -> NDArray[np.floating[Any]]:
    if scores is None:
        raise InputError(f"loss '{settings.loss}' weighs by difficulty, but no scores came; pass scores= (--scores)")
    own = Scores(train.ids, scores.of(train.ids), scores.method, scores.options)
    return np.asarray(difficulty.weights(own, **settings.weight_options))


def groups_of(settings: Settings, train: Split, scores: Scores | None) -> NDArray[np.int64]:
    """Group of each training sample: by label, by a column, or by quantile of difficulty."""
    if settings.group_by == "label":
        return train.labels.astype(np.int64)
    wanted = int(settings.loss_options.get("num_groups", 2))
    if settings.group_by == "difficulty":
        if scores is None:
            raise InputError("groups by difficulty need scores, but none came; pass scores= (--scores) or group_by")
        values = scores.of(train.ids)
        edges = np.quantile(values, np.linspace(0, 1, wanted + 1)[1:-1])
        return np.searchsorted(edges, values, side="left").astype(np.int64)
    if settings.group_by not in train.columns:
        known = ", ".join(("difficulty", "label", *train.columns))
        raise InputError(f"group_by must be one of {known}, got '{settings.group_by}'")
    groups = np.unique(train.columns[settings.group_by], return_inverse=True)[1].astype(np.int64)
    if groups.max(initial=0) >= wanted:
        raise InputError(
            f"column '{settings.group_by}' has {int(groups.max()) + 1} groups, but the loss was made for {wanted}; "
            "set its option num_groups"
        )
    return groups
