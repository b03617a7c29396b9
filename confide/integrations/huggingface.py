"""Hugging Face: any loss of `confide.losses` as the Trainer's `compute_loss_func`, our metrics as its
`compute_metrics`, and as a module in the style of `evaluate`.

from confide.integrations.huggingface import compute_loss_func, compute_metrics
trainer = transformers.Trainer(
    model, arguments, train_dataset=train, eval_dataset=val,
    compute_loss_func=compute_loss_func("adafocal"), compute_metrics=compute_metrics(),
)
metric = confide.integrations.huggingface.load("ece", "aurc")    # as evaluate.load: add_batch, compute
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from confide.checks import InputError, as_tensor
from confide.integrations.epoch_log import IGNORED, WORDS, gathered, logged_metrics
from confide.losses import create
from confide.metrics.base import parse_metric

__all__ = ["LossForTrainer", "MetricModule", "compute_loss_func", "compute_metrics", "load"]


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
        self.epoch_is_ending = False
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
                self._notice_epochs()
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

    def _notice_epochs(self) -> None:
        """Tell the loss that an epoch ended: the loader was at its end, and now is not."""
        accelerate = sys.modules.get("accelerate")  # the Trainer has loaded it, and feeds its batches with it
        ending = accelerate is not None and bool(accelerate.state.GradientState().end_of_dataloader)
        if self.epoch_is_ending and not ending:
            self.loss.end_epoch()
        self.epoch_is_ending = ending


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
    if hasattr(words, "predictions"):
        raise InputError(
            "compute_metrics makes the function that a Trainer calls; give compute_metrics=compute_metrics()"
        )
    for word in words:
        parse_metric(word.partition(":")[0])

    def measured(evaluated: Any) -> dict[str, float]:
        outputs = evaluated.predictions
        return logged_metrics(outputs[0] if isinstance(outputs, tuple) else outputs, evaluated.label_ids, words)

    return measured


class MetricModule:
    """Metrics in the style of the package evaluate: `add`, `add_batch`, then `compute`, which forgets what was added.

    `predictions` are logits `n c`, or probabilities where the module was loaded with `probs=True`; `references` are
    class indices. In several processes of torch.distributed every one computes the number of all.
    """

    def __init__(self, words: Sequence[str], *, probs: bool = False) -> None:
        for word in words:
            parse_metric(word.partition(":")[0])
        self.words, self.probs = tuple(words), probs
        self.name = "_".join(self.words)
        self._batches: list[tuple[Tensor, Tensor]] = []

    def add(self, *, prediction: Any, reference: Any) -> None:
        """One sample."""
        self.add_batch(predictions=[prediction], references=[reference])

    def add_batch(self, *, predictions: Any, references: Any) -> None:
        """Several samples."""
        rows, labels = as_tensor(predictions, "predictions").float(), as_tensor(references, "references").reshape(-1)
        if len(rows) != len(labels):
            raise InputError(f"predictions and references must be as many, got {len(rows)} and {len(labels)}")
        self._batches.append((rows.cpu(), labels.cpu()))

    def compute(self, *, predictions: Any = None, references: Any = None) -> dict[str, float]:
        """Word -> value over all that was added and these; `word_by_chance` beside calibration errors."""
        if (predictions is None) != (references is None):
            raise InputError("compute takes predictions and references together, got one of them; pass both or neither")
        if predictions is not None:
            self.add_batch(predictions=predictions, references=references)
        if not self._batches:
            raise InputError("compute needs samples, got none; add_batch before, or pass predictions and references")
        rows, labels = (gathered(torch.cat(parts)) for parts in zip(*self._batches, strict=True))
        self._batches = []
        return logged_metrics(rows.clamp_min(1e-12).log() if self.probs else rows, labels, self.words)


def load(*words: str, probs: bool = False) -> MetricModule:
    """Metrics of these words as a module in the style of `evaluate.load`; the package evaluate is not needed.

    Args:
        words: of metrics; `confide.metrics.names()` lists them. Default: accuracy, nll, ece, aurc.
        probs: predictions are probabilities, not logits.

    Returns:
        A `MetricModule`.

    Raises:
        InputError: a word that no metric has.

    Example:
        >>> from confide.integrations.huggingface import load
        >>> metric = load("accuracy", "auroc")
        >>> metric.add_batch(predictions=[[2.0, 0.0]], references=[0])
        >>> metric.compute(predictions=[[0.0, 1.0]], references=[0])
        {'accuracy': 0.5, 'auroc': 1.0}
    """
    return MetricModule(words or WORDS, probs=probs)
