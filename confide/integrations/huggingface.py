"""Hugging Face Trainer: any loss of `confide.losses` as its `compute_loss_func`.

from confide.integrations.huggingface import compute_loss_func
trainer = transformers.Trainer(model, arguments, train_dataset=train, compute_loss_func=compute_loss_func("focal"))
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from confide.checks import InputError
from confide.losses import create


class LossForTrainer:
    """Called by the Trainer with (outputs, labels, num_items_in_batch); `.loss` is the module, with its state."""

    def __init__(self, word: str, **options: Any) -> None:
        self.loss = create(word, **options)
        self.reduction = self.loss.reduction
        if self.loss.needs:
            raise InputError(
                f"loss '{word}' needs {', '.join(self.loss.needs)} with every batch, which the Trainer does not pass; "
                "bind it at creation or override Trainer.compute_loss"
            )

    def __call__(self, outputs: Any, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
        logits = outputs["logits"] if isinstance(outputs, dict) else getattr(outputs, "logits", None)
        if logits is None:
            logits = outputs[0]
        logits, labels = logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)
        # With gradient accumulation the Trainer counts the labels of all micro-batches and wants their mean.
        accumulated = num_items_in_batch is not None and self.reduction == "mean"
        self.loss.reduction = "sum" if accumulated else self.reduction
        value: Tensor = self.loss.to(logits.device)(logits, labels)
        return value / num_items_in_batch if accumulated else value


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
