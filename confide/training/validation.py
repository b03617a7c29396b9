"""One forward pass over a split, and the few numbers of it that the training log keeps."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from confide.core.binning import bin_of, width_edges
from confide.core.facts import facts_of
from confide.training.device import Device
from confide.training.feed import Feed

BINS = 15


def rows_in_batches(n: int, batch_size: int) -> list[np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Rows 0..n-1 cut into batches."""
    return [np.arange(start, min(start + batch_size, n), dtype=np.int64) for start in range(0, n, batch_size)]


@torch.no_grad()
def forward_all(model: nn.Module, feed: Feed, device: Device, batch_size: int = 1000) -> Tensor:
    """Logits of every sample in order, float32, from the model in eval mode; the mode it had is put back."""
    was_training = model.training
    model.eval()
    parts = []
    for inputs, _ in feed.batches(rows_in_batches(len(feed), batch_size)):
        with device.autocast():
            parts.append(model(inputs).float())
    model.train(was_training)
    return torch.cat(parts)


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
