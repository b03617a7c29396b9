"""Hugging Face Trainer: any loss of `confide.losses` as its `compute_loss_func`, our metrics as its `compute_metrics`.

from confide.integrations.huggingface import compute_loss_func, compute_metrics
trainer = transformers.Trainer(
    model, arguments, train_dataset=train, eval_dataset=val,
    compute_loss_func=compute_loss_func("adafocal"), compute_metrics=compute_metrics(),
)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from confide.checks import InputError
from confide.integrations.epoch_log import IGNORED, WORDS, gathered, logged_metrics
from confide.losses import create
from confide.metrics.base import parse_metric

__all__ = ["LossForTrainer", "compute_loss_func", "compute_metrics"]


class LossForTrainer:
    """Called by the Trainer with (outputs, labels, num_items_in_batch); `.loss` is the module, with its state.

    A loss that learns from validation predictions (AdaFocal, CalFocal) is updated from those of the Trainer's own
    evaluations: what it is called with there is kept, and used when training goes on. Without evaluations
    (`eval_strategy="no"`) it warns once and stays as it was.
    """

    def __init__(self, word: str, **options: Any) -> None:
        self.loss = create(word, **options)
        self.reduction = self.loss.reduction
        self.evaluated: list[tuple[Tensor, Tensor]] = []
        needs = {*self.loss.needs, *self.loss.validation_needs()}
        if needs:
            raise InputError(
                f"loss '{word}' needs {', '.join(sorted(needs))} with every batch, which the Trainer does not pass; "
                "bind it at creation or override Trainer.compute_loss"
            )

    def __call__(self, outputs: Any, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
        logits = outputs["logits"] if isinstance(outputs, dict) else getattr(outputs, "logits", None)
        if logits is None:
            logits = outputs[0]
        logits, labels = logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)
        if self.loss.update is not None:
            if logits.requires_grad:
                self.update()
            else:
                known = labels != (IGNORED if self.loss.ignore_index is None else self.loss.ignore_index)
                self.evaluated.append((logits[known].float().cpu(), labels[known].cpu()))
        # With gradient accumulation the Trainer counts the labels of all micro-batches and wants their mean.
        accumulated = num_items_in_batch is not None and self.reduction == "mean"
        self.loss.reduction = "sum" if accumulated else self.reduction
        value: Tensor = self.loss.to(logits.device)(logits, labels)
        return value / num_items_in_batch if accumulated else value

    def update(self) -> None:
        """Let the loss learn from the predictions of the last evaluation, of all processes; nothing without one."""
        if self.evaluated and self.loss.update is not None:
            logits, labels = (torch.cat(parts) for parts in zip(*self.evaluated, strict=True))
            self.evaluated = []
            self.loss.update(gathered(logits), gathered(labels))


def compute_loss_func(word: str, **options: Any) -> LossForTrainer:
    """The loss of that word for `Trainer(compute_loss_func=...)`.

    Args:
        word: which loss; `confide.losses.names()` lists them.
        options: of `confide.losses.create`; `ignore_index=-100` for padded labels.

    Returns:
        A function of (outputs, labels, num_items_in_batch).

    Raises:
        InputError: the loss needs more with every batch than the Trainer passes.

    Example:
        >>> import torch
        >>> from confide.integrations.huggingface import compute_loss_func
        >>> loss = compute_loss_func("focal", gamma=2.0)
        >>> loss({"logits": torch.tensor([[2.0, 0.0]])}, torch.tensor([0]))
        tensor(0.0018)
    """
    return LossForTrainer(word, **options)


def compute_metrics(words: Sequence[str] = WORDS) -> Callable[[Any], dict[str, float]]:
    """Metrics for `Trainer(compute_metrics=...)`, with what chance alone would show beside calibration errors.

    Args:
        words: of metrics; `confide.metrics.names()` lists them.

    Returns:
        A function of an EvalPrediction: word -> value.

    Raises:
        InputError: a word that no metric has.

    Example:
        >>> from types import SimpleNamespace
        >>> from confide.integrations.huggingface import compute_metrics
        >>> evaluated = SimpleNamespace(predictions=[[2.0, 0.0], [0.0, 1.0]], label_ids=[0, 0])
        >>> compute_metrics(["accuracy", "auroc"])(evaluated)
        {'accuracy': 0.5, 'auroc': 1.0}
    """
    for word in words:
        parse_metric(word.partition(":")[0])

    def measured(evaluated: Any) -> dict[str, float]:
        outputs = evaluated.predictions
        return logged_metrics(outputs[0] if isinstance(outputs, tuple) else outputs, evaluated.label_ids, words)

    return measured
