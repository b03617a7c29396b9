"""isotonic: a monotone step map of every class's probability."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from confide.calibrators.calibrator import (
    BLOCK_ELEMENTS,
    CALIBRATORS,
    Fitted,
    Values,
    log_sums,
    row_blocks,
    transform_of,
)
from confide.calibrators.curve import Vector, interpolated, isotonic_nodes, normalised, padded
from confide.core.door import check_choice
from confide.core.shapes import Labels, Logits

RANKING = 1e-9
"""Share of the old probability added so that equal steps keep their order (Zhang et al., 2020)."""


@CALIBRATORS.add(
    "isotonic",
    paper="Zadrozny and Elkan, 2002; accuracy-preserving form: Zhang et al., 2020, arXiv:2003.07329",
    corners=({"form": "one_map"}, {"form": "ranked"}),
    keeps_argmax=("form", "one_map"),
    yields="probabilities",
    parameters=(0, 10, 0),
)
def isotonic(logits: Logits, labels: Labels, *, form: str = "one_vs_rest") -> Fitted:
    """Isotonic regression, q_k proportional to m_k(p_k) with m_k monotone, fitted to 1[y = k].

    Args:
        form: `one_vs_rest` fits a map per class; `ranked` adds 1e-9 p to it, so that classes on one step keep their
            order (IROvA); `one_map` shares one such map among all classes and never changes the argmax (IRM).
    """
    check_choice(form, ("one_vs_rest", "ranked", "one_map"), "form")
    share = 0.0 if form == "one_vs_rest" else RANKING
    values = {"ranking": torch.tensor(share, dtype=torch.float64)}
    if form == "one_map":
        found = isotonic_nodes((chunk.ravel() for chunk in _chunks(logits)), _true_probs(logits, labels))
        nodes, levels = (padded([part])[0] for part in found)
    else:
        nodes, levels = (padded(list(part)) for part in zip(*_class_maps(logits, labels), strict=True))
    return Fitted({"nodes": nodes, "levels": levels, **values})


@transform_of("isotonic")
def stepped(values: Values, logits: Logits) -> Logits:
    """Log of the maps' values, normalised by row."""
    probs = torch.softmax(logits, dim=1)
    scores = interpolated(values["nodes"], values["levels"], probs.T).T
    return normalised(scores + values["ranking"] * probs, logits)


def _chunks(logits: Logits) -> Iterator[Vector]:
    for block in row_blocks(logits):
        yield torch.softmax(block, dim=1).numpy()


def _true_probs(logits: Logits, labels: Labels) -> Vector:
    # From the same chunks as the scores: a hit must be found among them to the last bit.
    start, result = 0, np.empty(len(labels))
    for chunk in _chunks(logits):
        part = slice(start, start + len(chunk))
        result[part] = chunk[np.arange(len(chunk)), labels.numpy()[part]]
        start += len(chunk)
    return result


def _class_maps(logits: Logits, labels: Labels) -> Iterator[tuple[Vector, Vector]]:
    for first, probs in class_columns(logits):
        for k, column in enumerate(probs.T, start=first):
            hits = column[labels.numpy() == k]
            # A class that never occurs keeps its probabilities.
            yield isotonic_nodes([column], hits) if len(hits) else (np.array([0.0, 1.0]), np.array([0.0, 1.0]))


def class_columns(logits: Logits) -> Iterator[tuple[int, Vector]]:
    """(first class, probabilities `n k`) by groups of classes, so that never all of n x c is held in float64.

    All groups share one buffer: a group is gone when the next is asked for.
    """
    shift = log_sums(logits)
    width = max(1, 4 * BLOCK_ELEMENTS // max(len(logits), 1))
    buffer = torch.empty(len(logits), min(width, logits.shape[1]), dtype=torch.float64)
    for first in range(0, logits.shape[1], width):
        columns = logits[:, first : first + width]
        part = buffer[:, : columns.shape[1]].copy_(columns)
        yield first, part.sub_(shift[:, None]).exp_().numpy()
