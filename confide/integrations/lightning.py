"""Lightning: a callback that lets a loss learn from the validation set (AdaFocal, CalFocal) and know when epochs end,
and one that logs metrics of the validation predictions.

class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.loss = confide.losses.create("adafocal")
        ...
trainer = lightning.Trainer(callbacks=[confide.integrations.lightning.loss_callback()])
trainer.fit(classifier, train_loader, val_loader)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from confide.checks import InputError, MissingExtra
from confide.integrations.epoch_log import WORDS, gathered, logged_metrics
from confide.losses import LossModule
from confide.losses.base import Needs
from confide.simplex.statistics import check

__all__ = ["loss_callback", "metrics_callback", "predictions_of"]


def loss_callback(
    loss: str = "loss",
    *,
    batch_to: Callable[[Any], tuple[Any, Tensor]] | None = None,
    loader: Any = None,
    needs: Needs | None = None,
) -> Any:
    """A Lightning callback for the LossModule that the LightningModule holds under the name `loss`.

    After every epoch, or every `update_every` batches where the loss says so, it predicts the validation set in eval
    mode without gradients and calls `loss.update`; then the module's mode is as before. At the end of every epoch it
    calls `loss.end_epoch`, and `confide.check` for rows that went wrong on a GPU.

    Args:
        loss: attribute of the LightningModule that holds the loss.
        batch_to: makes (inputs, labels) of a batch. Default: the batch is such a pair.
        loader: batches to predict. Default: the trainer's validation loader.
        needs: what else the loss's update takes of the validation samples, in the loader's order, such as the
            `groups` of adaptive_difficulty.

    Returns:
        The callback, for `lightning.Trainer(callbacks=[...])`.

    Raises:
        MissingExtra: Lightning is not installed.
        InputError: while fitting, where the loss lacks validation predictions or what it needs of them.

    Example:
        >>> from confide.integrations.lightning import loss_callback
        >>> callback = loss_callback()  # doctest: +SKIP
    """
    try:
        from lightning.pytorch.callbacks import Callback
    except ImportError as error:
        raise MissingExtra("lightning", "lightning", "the Lightning callback") from error

    class LossCallback(Callback):  # type: ignore[misc]
        def on_train_start(self, trainer: Any, module: Any) -> None:
            _loss_of(module, loss).expect_epochs()

        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            every = _loss_of(module, loss).update_every
            if every and (batch_idx + 1) % every == 0:
                self.update(trainer, module)

        def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
            if not _loss_of(module, loss).update_every:
                self.update(trainer, module)
            _loss_of(module, loss).end_epoch()
            check()

        def update(self, trainer: Any, module: Any) -> None:
            held, known = _loss_of(module, loss), needs or {}
            if held.update is None:
                return
            # Lightning drops the validation loader of a module without a validation_step.
            batches = loader if loader is not None else trainer.val_dataloaders
            if batches is None:
                raise InputError(
                    f"loss '{held.word}' learns from validation predictions, but the trainer has none; give it a "
                    "loader and the module a validation_step, or pass loader= to loss_callback"
                )
            for need in held.validation_needs():
                if need not in known:
                    raise InputError(
                        f"loss '{held.word}' needs {need} of the validation samples; "
                        f"pass needs={{'{need}': ...}} to loss_callback"
                    )
            held.update(*predictions_of(module, batches, batch_to), **known)

    return LossCallback()


def metrics_callback(
    words: Sequence[str] = WORDS,
    *,
    batch_to: Callable[[Any], tuple[Any, Tensor]] | None = None,
    loader: Any = None,
) -> Any:
    """A Lightning callback that logs metrics of the validation predictions after every epoch.

    Args:
        words: of metrics; beside a calibration error `val_<word>_by_chance` is what a calibrated model would show.
        batch_to: makes (inputs, labels) of a batch. Default: the batch is such a pair.
        loader: batches to predict. Default: the trainer's validation loader.

    Returns:
        The callback, for `lightning.Trainer(callbacks=[...])`; it logs `val_<word>`.

    Raises:
        MissingExtra: Lightning is not installed.
        InputError: while fitting, where the trainer has no validation predictions.

    Example:
        >>> from confide.integrations.lightning import metrics_callback
        >>> callback = metrics_callback(["ece", "aurc"])  # doctest: +SKIP
    """
    try:
        from lightning.pytorch.callbacks import Callback
    except ImportError as error:
        raise MissingExtra("lightning", "lightning", "the Lightning callback") from error

    class MetricsCallback(Callback):  # type: ignore[misc]
        def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
            batches = loader if loader is not None else trainer.val_dataloaders
            if batches is None:
                raise InputError(
                    "metrics need validation predictions, but the trainer has none; give it a loader and the module a "
                    "validation_step, or pass loader= to metrics_callback"
                )
            logits, labels = predictions_of(module, batches, batch_to)
            logged = logged_metrics(gathered(logits), gathered(labels), words)
            module.log_dict({f"val_{word}": value for word, value in logged.items()}, rank_zero_only=True)

    return MetricsCallback()


def _loss_of(module: Any, name: str) -> LossModule:
    loss = getattr(module, name, None)
    if not isinstance(loss, LossModule):
        raise InputError(
            f"the LightningModule must hold a loss of confide.losses.create under '{name}', got {type(loss).__name__}; "
            "name the attribute with loss_callback(loss=...)"
        )
    return loss


@torch.no_grad()
def predictions_of(
    module: Any, batches: Iterable[Any], batch_to: Callable[[Any], tuple[Any, Tensor]] | None = None
) -> tuple[Tensor, Tensor]:
    """Logits and labels of all batches by `module(inputs)` in eval mode; the mode is restored afterwards.

    Args:
        module: a network on its device.
        batches: such as a loader.
        batch_to: makes (inputs, labels) of a batch. Default: the batch is such a pair.

    Returns:
        Logits `n c` and labels `n`, on the CPU.

    Example:
        >>> import torch
        >>> from confide.integrations.lightning import predictions_of
        >>> batches = [(torch.zeros(3, 4), torch.tensor([0, 1, 1]))]
        >>> predictions_of(torch.nn.Linear(4, 2), batches)[0].shape
        torch.Size([3, 2])
    """
    modes = {part: part.training for part in module.modules()}
    device = next(module.parameters()).device
    module.eval()
    logits, labels = [], []
    try:
        for batch in batches:
            inputs, truth = batch_to(batch) if batch_to is not None else batch
            logits.append(module(inputs.to(device) if isinstance(inputs, Tensor) else inputs).float().cpu())
            labels.append(truth.cpu())
    finally:
        for part, mode in modes.items():
            part.training = mode
    return torch.cat(logits), torch.cat(labels)
