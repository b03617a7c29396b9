"""Monotone and piecewise linear maps of one number: nodes found in numpy, applied in torch."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression
from torch import Tensor

from confide.calibrators.calibrator import leaders, of_rows
from confide.core.facts import SMALLEST_PROBABILITY
from confide.core.shapes import Logits, Probs

Vector = NDArray[np.float64]


def isotonic_nodes(chunks: Iterable[Vector], hits: Vector) -> tuple[Vector, Vector]:
    """Nodes of the isotonic regression of 0/1 outcomes on scores: ends of its steps, joined by lines.

    Only the scores of the hits (outcome 1) are kept: a step can only begin at one of them, because whatever follows
    a hit without another hit has a smaller mean and is pooled with it. So the scores may come in chunks, in any order,
    and memory grows with the hits, not with the scores.
    """
    starts, multiplicity = np.unique(hits, return_counts=True)
    count = np.zeros(len(starts) + 1)
    last = np.full(len(starts) + 1, -np.inf)  # largest score of every interval [start, next start)
    first = np.inf
    for chunk in chunks:
        ordered = np.sort(chunk)
        ends = np.append(np.searchsorted(ordered, starts, side="left"), len(ordered))
        sizes = np.diff(ends, prepend=0)
        count += sizes
        some = sizes > 0
        last[some] = np.maximum(last[some], ordered[ends[some] - 1])
        first = min(first, float(ordered[0])) if len(ordered) else first
    begin, outcome = np.insert(starts, 0, first), np.insert(multiplicity / np.maximum(count[1:], 1), 0, 0.0)
    keep = count > 0
    fitted = isotonic_regression(outcome[keep], weights=count[keep])
    edges = fitted.blocks
    level = np.asarray(fitted.x)[edges[:-1]]
    left, right = begin[keep][edges[:-1]], last[keep][edges[1:] - 1]
    nodes, levels = np.stack([left, right], axis=1).ravel(), np.repeat(level, 2)
    distinct = np.append(True, np.diff(nodes) > 0)
    return nodes[distinct], levels[distinct]


def padded(rows: list[Vector]) -> Tensor:
    """Nodes or levels of many maps as one matrix; short ones repeat their last entry, which changes nothing."""
    width = max(2, *map(len, rows))
    return torch.from_numpy(np.stack([np.pad(row, (0, width - len(row)), mode="edge") for row in rows]))


def interpolated(nodes: Tensor, levels: Tensor, values: Tensor) -> Tensor:
    """Piecewise linear maps, constant outside the nodes: one for all values (nodes `k`) or one per row (`m k`)."""
    right = inner_below(nodes, values) + 1
    low, high = looked_up(nodes, right - 1), looked_up(nodes, right)
    share = ((values - low) / (high - low).clamp_min(torch.finfo(nodes.dtype).tiny)).clamp(0.0, 1.0)
    return torch.lerp(looked_up(levels, right - 1), looked_up(levels, right), share)


def inner_below(nodes: Tensor, values: Tensor) -> Tensor:
    """How many inner nodes lie below each value: the interval (low, high] that it falls into."""
    inner = nodes[..., 1:-1].contiguous()
    if torch.onnx.is_in_onnx_export():
        # ONNX has no binary search.
        return (inner[..., None, :] < values[..., None]).sum(dim=-1)
    return torch.searchsorted(inner, values.contiguous())


def looked_up(table: Tensor, index: Tensor) -> Tensor:
    """Entries of one table `k` at any index, or of a table per row `m k` at an index `m n`."""
    return table[index] if table.dim() == 1 else table.gather(1, index)


def normalised(scores: Probs, logits: Logits) -> Logits:
    """Log of rows that sum to one; a row of zeros keeps the probabilities it came with."""
    empty = scores.sum(dim=1, keepdim=True) <= 0
    safe = torch.where(empty, torch.softmax(logits, dim=1), scores)
    return (safe / safe.sum(dim=1, keepdim=True)).clamp_min(SMALLEST_PROBABILITY).log()


def top_of(logits: Logits) -> tuple[Tensor, Tensor]:
    """Largest probability `n 1` and its class `n 1`, the first of equals."""
    lead = logits.argmax(dim=1, keepdim=True)
    return torch.softmax(logits, dim=1).gather(1, lead), lead


def all_tops(logits: Logits) -> tuple[Vector, NDArray[np.int64]]:
    """Confidence and predicted class of every row, in float64, by row blocks."""
    confidence = of_rows(logits, lambda block: top_of(block)[0].squeeze(1))
    return confidence.numpy(), leaders(logits).numpy()


def with_top(logits: Logits, lead: Tensor, confidence: Tensor) -> Logits:
    """Log-probabilities where the leading class has this confidence `n 1` and the others share the rest as before."""
    chosen = torch.zeros_like(logits).scatter(1, lead, 1.0) > 0
    others = torch.where(chosen, torch.full_like(logits, -torch.inf), logits)
    sure = confidence.clamp(SMALLEST_PROBABILITY, 1.0)
    rest = (1.0 - confidence).clamp(SMALLEST_PROBABILITY, 1.0)
    return torch.where(chosen, sure.log(), torch.log_softmax(others, dim=1) + rest.log())
