"""One optimisation step, eagerly: forward, objective, backward, clip, update; sums stay on the device."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from confide.training.batch_norm import exact_batch_norms
from confide.training.distributed import bare
from confide.training.settings import Settings
from confide.training.state import State


def forward_backward(state: State, inputs: Tensor, labels: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of the objective on a batch; returns (batch mean of the loss, hits).

    `inputs` are this process's slice, `labels` and `rows` those of the whole batch.
    """
    with state.device.autocast(), exact_batch_norms(state.device.device, state.world):
        logits = state.forward(inputs)
    logits = state.world.gather(logits.float(), len(rows))
    target, mean = state.objective(logits, labels, rows)
    # Gradients are averaged over processes, but each holds only the part through its own logits: sum is meant.
    target = target * state.world.size if state.world.size > 1 else target
    state.optimizer.zero_grad(set_to_none=True)
    if state.scaler is not None:
        state.scaler.scale(target).backward()  # type: ignore[no-untyped-call]
    else:
        target.backward()  # type: ignore[no-untyped-call]
    return mean, (logits.detach().argmax(dim=1) == labels).sum()


def apply_gradients(state: State, settings: Settings) -> None:
    """Clip if asked, then let the optimiser move the weights."""
    if state.scaler is None:
        if settings.clip_norm is not None:
            clip_grad_norm_(state.model.parameters(), settings.clip_norm)
        state.optimizer.step()
        return
    if settings.clip_norm is not None:
        state.scaler.unscale_(state.optimizer)
        clip_grad_norm_(state.model.parameters(), settings.clip_norm)
    state.scaler.step(state.optimizer)
    state.scaler.update()


def train_step(state: State, settings: Settings, inputs: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
    """One whole step; adds to the epoch's sums and returns the batch mean of the loss, still on the device."""
    mean, hits = forward_backward(state, inputs, labels, rows)
    apply_gradients(state, settings)
    if state.average is not None:
        state.average.update(bare(state.model))
    count = len(rows)
    mean = mean.double()
    state.sums += torch.stack([mean * count, hits.double(), torch.full_like(mean, count)])
    return mean


def note_bad(state: State, mean: Tensor, step: Tensor) -> None:
    """Keep the first step whose loss is not finite, without waiting for the device."""
    fresh = (state.first_bad < 0) & ~torch.isfinite(mean)
    state.first_bad.copy_(torch.where(fresh, step, state.first_bad))


def set_rate(optimizer: torch.optim.Optimizer, rate: float, momentum: float | None) -> None:
    """Learning rate (and momentum where it cycles) of the next step."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate
        if momentum is not None and "momentum" in group:
            group["momentum"] = momentum
