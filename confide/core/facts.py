"""Per-sample facts of a prediction, from one pass over the logits by row blocks that stay in cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from confide.core.binning import bin_of
from confide.core.door import InputError

SMALLEST_PROBABILITY = 1e-12
BLOCK_ELEMENTS = 1 << 18

Block = NDArray[np.floating]


@dataclass(frozen=True, eq=False)
class Facts:
    """Vectors of length n. Top-1 files know only confidence, prediction and correct; the rest is None there."""

    confidence: Tensor
    prediction: Tensor
    correct: Tensor
    entropy: Tensor | None = None
    margin: Tensor | None = None
    p_true: Tensor | None = None
    nll: Tensor | None = None
    brier: Tensor | None = None
    max_logit: Tensor | None = None
    energy: Tensor | None = None
    doubt: Tensor | None = None
    """1 - confidence, kept apart because float32 has no numbers between 1 - 6e-8 and 1 but many near 0."""

    def need(self, name: str) -> Tensor:
        """The vector of that name, or an error where only top-1 confidences are known."""
        values: Tensor | None = getattr(self, name)
        if values is None:
            raise InputError(f"'{name}' needs all probabilities, but these predictions hold only the top-1 confidence")
        return values

    def sureness(self) -> NDArray[np.float64]:
        """Confidence in float64, exact also where float32 would round it to 1; what rankings sort by."""
        if self.doubt is None or self.doubt.dtype == torch.float64:
            return self.confidence.double().cpu().numpy()
        return np.asarray(1.0 - self.doubt.double().cpu().numpy(), dtype=np.float64)

    def take(self, rows: Tensor) -> Facts:
        """The facts of the chosen rows."""
        return Facts(**{f.name: _rows(getattr(self, f.name), rows) for f in fields(self)})  # type: ignore[arg-type]


def _rows(values: Tensor | None, rows: Tensor) -> Tensor | None:
    return None if values is None else values[rows.to(values.device)]


def join_facts(parts: Sequence[Facts]) -> Facts:
    """The facts of several shards as one; a vector that a shard does not know is unknown."""
    joined = {}
    for field in fields(Facts):
        vectors = [getattr(part, field.name) for part in parts]
        joined[field.name] = None if any(v is None for v in vectors) else torch.cat(vectors)
    return Facts(**joined)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class ClassTable:
    """Sums per class and equal-width bin of p_c: how many, their probabilities, how often the label was c."""

    count: NDArray[np.float64]
    confidence: NDArray[np.float64]
    hits: NDArray[np.float64]

    def __add__(self, other: ClassTable) -> ClassTable:
        return ClassTable(self.count + other.count, self.confidence + other.confidence, self.hits + other.hits)


class ClassCounter:
    """Collects a `ClassTable` from blocks: column sums, and only the entries above the first bin.

    At most bins - 1 classes of a row can lie above the first bin, so the first bin is what remains of the column sums.
    """

    def __init__(self, num_classes: int, edges: NDArray[np.float64], closed: str) -> None:
        self.edges, self.closed, self.num_classes = edges, closed, num_classes
        shape = (num_classes, len(edges) - 1)
        self.count, self.confidence, self.hits = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        self.columns, self.truth, self.rows = np.zeros(num_classes), np.zeros(num_classes), 0

    def add(self, weights: Block, scale: Block, labels: NDArray[np.int64], mask: NDArray[np.bool_]) -> None:
        """A block of unnormalised probabilities: p = weights / scale[:, None]."""
        self.rows += len(labels)
        self.columns += (1 / scale) @ weights
        self.truth += np.bincount(labels, minlength=self.num_classes)
        if len(self.edges) == 2:
            return
        first = (scale * weights.dtype.type(self.edges[1]))[:, None]
        above = np.greater if self.closed == "right" else np.greater_equal
        found = np.flatnonzero(above(weights, first, out=mask))
        row, column = np.divmod(found, self.num_classes)
        probs = weights.reshape(-1)[found] / scale[row]
        bins = len(self.edges) - 1
        cell = column * bins + bin_of(probs, self.edges, self.closed)
        shape, size = self.count.shape, self.count.size
        self.count += np.bincount(cell, minlength=size).reshape(shape)
        self.confidence += np.bincount(cell, weights=probs, minlength=size).reshape(shape)
        self.hits += np.bincount(cell[labels[row] == column], minlength=size).reshape(shape)

    def table(self) -> ClassTable:
        """The table so far."""
        count, confidence, hits = self.count.copy(), self.confidence.copy(), self.hits.copy()
        count[:, 0] = self.rows - count[:, 1:].sum(axis=1)
        confidence[:, 0] = self.columns - confidence[:, 1:].sum(axis=1)
        hits[:, 0] = self.truth - hits[:, 1:].sum(axis=1)
        return ClassTable(count, confidence, hits)


_NAMES = ("confidence", "entropy", "margin", "p_true", "nll", "brier", "max_logit", "energy", "doubt")


def facts_of(logits: Tensor, labels: Tensor, *, from_probs: bool = False, counter: ClassCounter | None = None) -> Facts:
    """All facts of logits (or probabilities) and labels, in their dtype but at least float32.

    Args:
        from_probs: the rows are probabilities; they are taken as they are, not normalised again.
        counter: filled on the way, so that class-wise calibration needs no second pass.
    """
    wide = logits.to(torch.float32) if logits.dtype in (torch.float16, torch.bfloat16) else logits
    # The host's vector units win below a few million rows, and a GPU tensor is evaluated once: one copy, one code.
    values, truth = np.ascontiguousarray(wide.cpu().numpy()), labels.cpu().numpy()
    n, num_classes = values.shape
    out = {name: np.empty(n, dtype=values.dtype) for name in _NAMES}
    prediction = np.empty(n, dtype=np.int64)
    rows = max(1, min(n, BLOCK_ELEMENTS // num_classes))
    shifted, weights = np.empty((rows, num_classes), values.dtype), np.empty((rows, num_classes), values.dtype)
    mask = np.empty((rows, num_classes), dtype=bool)
    fill = _fill_from_probs if from_probs else _fill_from_logits
    with np.errstate(all="ignore"):  # NaN and infinity get their own words below
        for start in range(0, n, rows):
            block = values[start : start + rows]
            part, size = slice(start, start + len(block)), len(block)
            prediction[part] = block.argmax(axis=1)
            view = {name: vector[part] for name, vector in out.items()}
            ready = weights[:size]
            scale = fill(block, truth[part], prediction[part], view, shifted[:size], ready)
            if counter is not None:
                counter.add(ready, scale, truth[part], mask[:size])
    _check_finite(out["entropy"] + out["nll"], values, from_probs)
    tensors: dict[str, Tensor | None] = {name: torch.from_numpy(vector).to(wide.device) for name, vector in out.items()}
    if from_probs:
        tensors["doubt"] = None
    said = torch.from_numpy(prediction).to(wide.device)
    return Facts(prediction=said, correct=said == labels, **tensors)  # type: ignore[arg-type]


def _fill_from_logits(
    block: Block,
    labels: NDArray[np.int64],
    prediction: NDArray[np.int64],
    out: dict[str, Block],
    shifted: Block,
    weights: Block,
) -> Block:
    """Facts of one block; `weights` becomes exp(z - max), and its row sums are returned."""
    row = np.arange(len(block))
    top = block[row, prediction]
    np.subtract(block, top[:, None], out=shifted)
    torch.exp(torch.from_numpy(shifted), out=torch.from_numpy(weights))
    # Without the largest term the sum keeps its digits when all others vanish: 1 - p = others / (1 + others).
    weights[row, prediction] = 0
    others = weights.sum(axis=1)
    scale: Block = 1 + others
    spread = row_dot(weights, shifted)
    if not np.isfinite(spread).all():
        # A logit of minus infinity is a class ruled out: 0 * log 0 = 0.
        spread = np.where(np.isfinite(top), row_dot(weights, np.maximum(shifted, -1e4)), np.nan)
    out["max_logit"][:] = top
    out["energy"][:] = top + np.log1p(others)
    out["confidence"][:] = 1 / scale
    out["doubt"][:] = others / scale
    out["margin"][:] = (1 - weights.max(axis=1)) / scale
    out["entropy"][:] = np.log1p(others) - spread / scale
    squares = (1 + row_dot(weights, weights)) / (scale * scale)
    weights[row, prediction] = 1
    at_label = weights[row, labels] / scale
    out["p_true"][:] = at_label
    out["nll"][:] = np.log1p(others) - shifted[row, labels]
    out["brier"][:] = np.maximum(squares - 2 * at_label + 1, 0)
    return scale


def _fill_from_probs(
    block: Block,
    labels: NDArray[np.int64],
    prediction: NDArray[np.int64],
    out: dict[str, Block],
    shifted: Block,
    weights: Block,
) -> Block:
    row = np.arange(len(block))
    np.maximum(block, SMALLEST_PROBABILITY, out=shifted)
    torch.log(torch.from_numpy(shifted), out=torch.from_numpy(shifted))
    np.copyto(weights, block)
    top, at_label = block[row, prediction], block[row, labels]
    weights[row, prediction] = -1
    runner_up = weights.max(axis=1)
    weights[row, prediction] = top
    out["confidence"][:] = top
    out["margin"][:] = top - runner_up
    out["entropy"][:] = np.maximum(-row_dot(block, shifted), 0)
    out["max_logit"][:] = shifted[row, prediction]
    out["energy"][:] = 0
    out["p_true"][:] = at_label
    out["nll"][:] = -shifted[row, labels]
    out["brier"][:] = np.maximum(row_dot(block, block) - 2 * at_label + 1, 0)
    return np.ones(len(block), dtype=block.dtype)


def row_dot(left: Block, right: Block) -> Block:
    """Sum over each row of the products."""
    if hasattr(np, "vecdot"):
        return np.asarray(np.vecdot(left, right))
    return np.asarray(np.einsum("nc,nc->n", left, right))


def _check_finite(checked: Block, values: Block, from_probs: bool) -> None:
    bad = np.flatnonzero(~np.isfinite(checked))
    if len(bad):
        what = "probs" if from_probs else "logits"
        row = values[bad[0]]
        shown = "NaN" if np.isnan(row).any() else "infinity"
        raise InputError(
            f"{what} must be finite, got {shown} at sample {int(bad[0])} of {len(values)}; "
            "drop that sample or mend the model that made it"
        )
