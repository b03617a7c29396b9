"""One forward pass over a split, and the few numbers of it that the training log keeps."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from confide.core.binning import bin_of, width_edges
from confide.core.door import InputError
from confide.core.facts import facts_of
from confide.training.batch_norm import exact_batch_norms
from confide.training.device import Device, short_of_memory
from confide.training.distributed import bare
from confide.training.feed import Feed
from confide.training.state import State

BINS = 15
SETTLING = 2000
"""Training samples from which batch norms of averaged weights take their statistics."""


def rows_in_batches(n: int, batch_size: int) -> list[np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Rows 0..n-1 cut into batches."""
    return [np.arange(start, min(start + batch_size, n), dtype=np.int64) for start in range(0, n, batch_size)]


def logits_of(
    model: nn.Module, feed: Feed, device: Device, batch_size: int | None = None, rows: slice = slice(None)
) -> Tensor:
    """Logits of the samples in order, float32, from the model in eval mode; the mode it had is put back.

    A batch that does not fit into memory is halved until it does.
    """
    was_training, size = model.training, batch_size or device.forward_batch
    start, stop, _ = rows.indices(len(feed))
    model.eval()
    try:
        while True:
            try:
                return _logits_in_batches(model, feed, device, range(start, stop), size)
            except RuntimeError as error:
                if not short_of_memory(error):
                    raise
            # Only here has the failed batch been let go.
            if size == 1:
                raise InputError(f"one sample does not fit into the memory of {device.device}; use a smaller model")
            size //= 2
            if device.on_gpu:
                torch.cuda.empty_cache()
    finally:
        model.train(was_training)


@torch.no_grad()
def _logits_in_batches(model: nn.Module, feed: Feed, device: Device, rows: range, size: int) -> Tensor:
    batches = [batch + rows.start for batch in rows_in_batches(len(rows), size)]
    return torch.cat([said_of(model, inputs, feed, device) for inputs, _ in feed.batches(batches)])


def said_of(model: nn.Module, inputs: Tensor, feed: Feed, device: Device) -> Tensor:
    """Logits of a batch, float32; the mean with those of its mirror images where the feed asks for it."""
    with device.autocast():
        said: Tensor = model(inputs).float()
        return (said + model(inputs.flip(-1)).float()) / 2 if feed.mirror_twice else said


def settle_average(state: State, feed: Feed) -> None:
    """Make the running mean of the weights, where one is kept, ready to predict: some training samples pass through."""
    if state.average is None:
        return
    rows = np.unique(np.linspace(0, len(feed) - 1, min(len(feed), SETTLING)).astype(np.int64))
    parts = np.array_split(rows, math.ceil(len(rows) / state.device.forward_batch))
    # Several processes share batches and statistics here as they do in a step.
    parts = [part[state.world.own(len(part))] for part in parts]
    with state.device.autocast(), exact_batch_norms(state.device.device, state.world):
        state.average.settle(bare(state.model), (inputs for inputs, _ in feed.batches(parts)))


def forward_all(state: State, feed: Feed) -> Tensor:
    """Logits of a split during training; several processes share the work."""
    if len(feed) < state.world.size:
        return logits_of(state.speaker, feed, state.device)
    part = logits_of(state.speaker, feed, state.device, rows=state.world.own(len(feed)))
    return state.world.gather(part, len(feed))


def learn_from_validation(state: State, feed: Feed, *, adapt: bool) -> Tensor:
    """Validation logits, after the loss has adapted to them if it does."""
    logits = forward_all(state, feed)
    if adapt and state.objective.learns_from_validation:
        state.objective.update(logits, feed.labels)
    return logits


def summary(logits: Tensor, labels: Tensor) -> dict[str, float]:
    """nll, accuracy, brier and ece (15 bins of equal width) of validation predictions, from one softmax."""
    facts = facts_of(logits, labels)
    correct = facts.correct.double().cpu().numpy()
    confidence = facts.confidence.double().cpu().numpy()
    bins = bin_of(confidence, width_edges(BINS))
    gap = np.bincount(bins, weights=confidence - correct, minlength=BINS)
    return {
        "nll": float(facts.need("nll").double().mean()),
        "accuracy": float(correct.mean()),
        "brier": float(facts.need("brier").double().mean()),
        "ece": float(np.abs(gap).sum() / max(len(correct), 1)),
    }
