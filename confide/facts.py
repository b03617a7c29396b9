"""Per-sample facts of predictions: confidence, correctness, entropy and the like, in one pass over the logits.

The pass runs by row blocks that stay in cache, and counts class-wise calibration on the way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from importlib.util import find_spec

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from confide.block_sizes import CACHED, CACHED_FLOAT64, DEVICE_MEMORY, rows_in
from confide.checks import InputError
from confide.numerics.binning import width_bin_of, width_edges
from confide.numerics.blocks import in_parts, places_of
from confide.types import Floating, Floats

SMALLEST_PROBABILITY = 1e-12
HAS_TRITON = find_spec("triton") is not None


LABEL_FACTS = ("correct", "p_true", "nll", "brier", "confidence_nll", "confidence_brier")
"""Facts that compare an output with its label."""


@dataclass(frozen=True, eq=False)
class Facts:
    """Vectors of length n; what the outputs do not tell is None, and `need` says why it is not there."""

    confidence: Tensor
    predicted: Tensor | None = None
    """Read as `prediction`; None where only pairs of confidence and correctness are known."""
    right: Tensor | None = None
    """Read as `correct`; None without labels."""
    entropy: Tensor | None = None
    margin: Tensor | None = None
    p_true: Tensor | None = None
    nll: Tensor | None = None
    brier: Tensor | None = None
    max_logit: Tensor | None = None
    energy: Tensor | None = None
    doubt: Tensor | None = None
    """1 - confidence, kept apart because float32 has no numbers between 1 - 6e-8 and 1 but many near 0."""

    @property
    def prediction(self) -> Tensor:
        """The predicted class of every sample."""
        return self.need("prediction")

    @property
    def correct(self) -> Tensor:
        """Whether the predicted class is the label."""
        return self.need("correct")

    @property
    def confidence_nll(self) -> Tensor | None:
        """-log of the probability that the confidence gave to what came: right, or wrong."""
        if self.right is None:
            return None
        doubt = 1 - self.confidence if self.doubt is None else self.doubt
        return -torch.where(self.right, self.confidence, doubt).clamp_min(SMALLEST_PROBABILITY).log()

    @property
    def confidence_brier(self) -> Tensor | None:
        """Squared distance between the confidence and being right."""
        return None if self.right is None else (self.confidence - self.right.to(self.confidence.dtype)).square()

    def need(self, name: str) -> Tensor:
        """The vector of that name, or an error that says what is lacking."""
        values: Tensor | None = getattr(self, {"prediction": "predicted", "correct": "right"}.get(name, name))
        if values is not None:
            return values
        if self.right is None and name in LABEL_FACTS:
            raise InputError(f"'{name}' needs labels, but these predictions have none; give them with the outputs")
        if name == "prediction":
            raise InputError(
                "'prediction' needs the predicted class, but these predictions hold only confidence and correctness"
            )
        raise InputError(
            f"'{name}' needs all probabilities, but these predictions hold only top-1 confidences, or facts without it"
        )

    def sureness(self, rows: slice = slice(None)) -> NDArray[np.float64]:
        """Confidence in float64, exact also where float32 would round it to 1; what rankings sort by."""
        if self.doubt is None or self.doubt.dtype == torch.float64:
            return self.confidence[rows].double().cpu().numpy()
        return np.asarray(np.subtract(1.0, self.doubt[rows].cpu().numpy(), dtype=np.float64), dtype=np.float64)

    def unsureness(self) -> NDArray[np.floating]:
        """1 - sureness in as few bits as hold it: sorting float32 takes half the time of float64.

        Confidences that float64 cannot tell apart stay equal: below 2e-9 the doubt is a multiple of 2^-53.
        """
        narrow = self.doubt is not None and self.doubt.dtype != torch.float64
        unsure: NDArray[np.floating] = np.empty(len(self.confidence), dtype=np.float32 if narrow else np.float64)
        for first in range(0, len(unsure), CACHED):
            part = slice(first, first + CACHED)
            np.subtract(1.0, self.sureness(part), out=unsure[part], casting="same_kind")
        return unsure

    def take(self, rows: Tensor) -> Facts:
        """The facts of the chosen rows."""
        return Facts(**{f.name: _rows_or_none(getattr(self, f.name), rows) for f in fields(self)})  # type: ignore[arg-type]


def _rows_or_none(values: Tensor | None, rows: Tensor) -> Tensor | None:
    return None if values is None else values[rows.to(values.device)]


@dataclass(frozen=True, eq=False)
class ClassTable:
    """Sums per class and equal-width bin of p_c: how many, their probabilities, how often the label was c.

    `squares` are sums of p_c^2, in the first bin of what they add up to over classes shared out by confidence; `truth`
    are sums of p_c where the label was c. Weighted samples count by their weights in the first three, by the squares of
    these in the others, where `hit_squares` are the hits.
    """

    count: NDArray[np.float64]
    confidence: NDArray[np.float64]
    hits: NDArray[np.float64]
    squares: NDArray[np.float64]
    truth: NDArray[np.float64]
    hit_squares: NDArray[np.float64]

    def scaled(self, factor: float) -> ClassTable:
        """The table of samples that weigh so many times as much."""
        first = (v * factor for v in (self.count, self.confidence, self.hits))
        return ClassTable(*first, *(v * factor**2 for v in (self.squares, self.truth, self.hit_squares)))

    def __add__(self, other: ClassTable) -> ClassTable:
        return ClassTable(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


class ClassCounter:
    """Collects a `ClassTable` from blocks: column sums, and only the entries above the first bin.

    At most bins - 1 classes of a row can lie above the first bin, so the first bin is what remains of the column sums.
    Blocks come in the order of the samples, whose `weights` count.
    """

    def __init__(self, num_classes: int, bins: int, closed: str, weights: Floats | None = None) -> None:
        self.num_classes, self.bins, self.closed, self.weights = num_classes, bins, closed, weights
        self.first_edge = float(width_edges(bins)[1])
        self.count, self.confidence = np.zeros(num_classes * self.bins), np.zeros(num_classes * self.bins)
        self.hits, self.columns, self.rows = np.zeros(num_classes * self.bins), np.zeros(num_classes), 0
        self.squares, self.truth = np.zeros(num_classes * self.bins), np.zeros(num_classes * self.bins)
        self.hit_squares, self.all_squares = np.zeros(num_classes * self.bins), 0.0
        self._columns: list[NDArray[np.int64]] = []
        self._probs: list[Floating] = []
        self._weights: list[Floats] = []
        self._held = 0

    def add(
        self, weights: Floating, scale: Floating, top: Floating, prediction: NDArray[np.int64], mask: NDArray[np.bool_]
    ) -> None:
        """A block of unnormalised probabilities: p = weights / scale[:, None]; top is the largest p of each row."""
        own = None if self.weights is None else self.weights[self.rows : self.rows + len(scale)]
        self.rows += len(scale)
        self.columns += column_sums(weights, (1 if own is None else own) / scale)
        if self.bins == 1:
            return
        # Where the rest of a row is less than the first edge, only its largest probability lies above it.
        sure = top > 1 - 0.999 * self.first_edge
        if 2 * np.count_nonzero(sure) > len(sure):
            self._keep(prediction[sure], top[sure], None if own is None else own[sure])
            weights, scale, mask = weights[~sure], scale[~sure], mask[: len(sure) - np.count_nonzero(sure)]
            own = None if own is None else own[~sure]
        first = (scale * weights.dtype.type(self.first_edge))[:, None]
        cells = places_of(np.greater_equal(weights, first, out=mask))
        row = cells // self.num_classes
        above = weights.reshape(-1)[cells] / scale[row]
        self._keep(cells - row * self.num_classes, above, None if own is None else own[row])

    def of_rows(self, part: slice) -> ClassCounter:
        """An empty counter of some rows."""
        weights = None if self.weights is None else self.weights[part]
        return ClassCounter(self.num_classes, self.bins, self.closed, weights)

    def add_counted(self, other: ClassCounter) -> None:
        """What a counter of further rows has seen."""
        other._flush()
        self.rows += other.rows
        self.all_squares += other.all_squares
        for name in ("columns", "count", "confidence", "squares", "hits", "truth", "hit_squares"):
            getattr(self, name).__iadd__(getattr(other, name))

    def _keep(self, columns: NDArray[np.int64], probs: Floating, weights: Floats | None) -> None:
        self._columns.append(columns)
        self._probs.append(probs)
        if weights is not None:
            self._weights.append(weights)
        self._held += len(probs)
        if self._held > CACHED:
            self._flush()

    def add_sums(self, rows: int, columns: Tensor, cells: Tensor) -> None:
        """What a pass on a device has summed: by class, and count, sum and squares (`3 c bins`) from the first edge."""
        self.rows += rows
        self.columns += columns.cpu().numpy()
        count, confidence, squares = cells.flatten(start_dim=1).cpu().numpy()
        self.count += count
        self.confidence += confidence
        self.squares += squares

    def add_truth_there(self, p_true: Tensor, labels: Tensor, brier: Tensor) -> None:
        """The same of tensors on a device: what leaves it are the sums by class and bin."""
        edges = torch.from_numpy(width_edges(self.bins)).to(p_true.device, p_true.dtype)
        cell = labels * self.bins + torch.bucketize(p_true, edges[1:-1], right=self.closed == "left")
        own = torch.ones_like(p_true, dtype=torch.float64)
        if self.weights is not None:
            own = torch.from_numpy(self.weights).to(p_true.device)
        truth = p_true.double()
        for sums, values in (("hits", own), ("hit_squares", own**2), ("truth", own**2 * truth)):
            of_cells = torch.bincount(cell, values, minlength=len(self.hits))
            setattr(self, sums, getattr(self, sums) + of_cells.cpu().numpy())
        self.all_squares += float((own**2 * (brier.double() + 2 * truth - 1)).sum())

    def add_truth(self, p_true: Floating, labels: NDArray[np.int64], brier: Floating) -> None:
        """The probabilities of the labels, for how often each class came true in each of its bins; and Brier scores."""
        for first in range(0, len(labels), CACHED):
            part = slice(first, first + CACHED)
            own = None if self.weights is None else self.weights[part]
            self._add_truth(p_true[part], labels[part], brier[part], own)

    def _add_truth(self, p_true: Floating, labels: NDArray[np.int64], brier: Floating, own: Floats | None) -> None:
        cell = labels * self.bins + width_bin_of(p_true, self.bins, self.closed)
        size = len(self.hits)
        hits = np.bincount(cell, own, minlength=size)
        self.hits += hits
        if own is None:
            self.hit_squares += hits
            self.truth += np.bincount(cell, p_true, minlength=size)
            # Brier is sum p^2 - 2 p_true + 1.
            self.all_squares += float(brier.sum(dtype=np.float64) + 2 * p_true.sum(dtype=np.float64)) - len(brier)
            return
        self.hit_squares += np.bincount(cell, own**2, minlength=size)
        self.truth += np.bincount(cell, own**2 * p_true, minlength=size)
        self.all_squares += float(own**2 @ (brier + 2 * p_true - 1))

    def _flush(self) -> None:
        if not self._probs:
            return
        probs = np.concatenate(self._probs)
        cell = np.concatenate(self._columns) * self.bins + width_bin_of(probs, self.bins, self.closed)
        own = np.concatenate(self._weights) if self._weights else None
        self.count += np.bincount(cell, own, minlength=len(self.count))
        weighted = probs if own is None else probs * own
        self.confidence += np.bincount(cell, weighted, minlength=len(self.count))
        self.squares += np.bincount(cell, np.square(weighted), minlength=len(self.count))
        self._columns, self._probs, self._weights, self._held = [], [], [], 0

    def table(self) -> ClassTable:
        """The table so far."""
        self._flush()
        shape = (self.num_classes, self.bins)
        count, confidence = self.count.reshape(shape).copy(), self.confidence.reshape(shape).copy()
        total = self.rows if self.weights is None else float(self.weights.sum())
        count[:, 0] = total - count[:, 1:].sum(axis=1)
        confidence[:, 0] = self.columns - confidence[:, 1:].sum(axis=1)
        squares = self.squares.reshape(shape).copy()
        below = max(self.all_squares - float(squares[:, 1:].sum()), 0.0)
        squares[:, 0] = below * confidence[:, 0] / max(float(confidence[:, 0].sum()), 1e-300)
        hits, truth, hit_squares = (v.reshape(shape).copy() for v in (self.hits, self.truth, self.hit_squares))
        return ClassTable(count, confidence, hits, squares, truth, hit_squares)


_FACT_NAMES = ("confidence", "entropy", "margin", "p_true", "nll", "brier", "max_logit", "energy", "doubt")
SELDOM = ("margin", "max_logit", "energy")
"""Facts that few metrics ask for; the others are the core."""


def facts_of(
    logits: Tensor,
    labels: Tensor | None,
    *,
    from_probs: bool = False,
    counter: ClassCounter | None = None,
    core: bool = False,
) -> Facts:
    """All facts of logits (or probabilities) and, where known, labels, in their dtype but at least float32.

    Args:
        logits: `n c`, or probabilities.
        labels: n class indices, where known.
        from_probs: the rows are probabilities; they are taken as they are, not normalised again.
        counter: filled on the way, so that class-wise calibration needs no second pass.
        core: without those of `SELDOM`, on a CPU.

    Returns:
        `Facts`: a vector each of confidence, predicted class, entropy, margin, ...

    Raises:
        InputError: where a row has no largest value.

    Example:
        >>> import torch
        >>> from confide.facts import facts_of
        >>> facts = facts_of(torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0]))
        >>> facts.correct.tolist()
        [True, False]
        >>> [round(value, 3) for value in facts.confidence.tolist()]
        [0.881, 0.731]
    """
    if logits.device.type != "cpu" and len(logits):
        return _facts_on_device(logits, labels, from_probs, counter)
    wide = logits.to(torch.float32) if logits.dtype in (torch.float16, torch.bfloat16) else logits
    values = np.ascontiguousarray(wide.cpu().numpy())
    truth = None if labels is None else labels.cpu().numpy()
    n, num_classes = values.shape
    names = [name for name in _FACT_NAMES if _known(name, labels) and not (core and name in SELDOM)]
    out = {name: np.empty(n, dtype=values.dtype) for name in names}
    prediction = np.empty(n, dtype=np.int32 if core else np.int64)
    right = None if truth is None else np.empty(n, dtype=np.bool_)
    rows = min(max(n, 1), rows_in(CACHED_FLOAT64, num_classes))
    fill = _fill_from_probs if from_probs else _fill_from_logits

    def work(part: slice) -> ClassCounter | None:
        own = counter if counter is None or part == slice(0, n) else counter.of_rows(part)
        shifted, weights = np.empty((rows, num_classes), values.dtype), np.empty((rows, num_classes), values.dtype)
        mask = np.empty((rows, num_classes), dtype=bool)
        with np.errstate(all="ignore"):  # NaN and infinity get their own words below
            for start in range(part.start, part.stop, rows):
                block = slice(start, min(start + rows, part.stop))
                size = block.stop - start
                prediction[block] = top = row_argmax(values[block])
                view = {name: vector[block] for name, vector in out.items()}
                ready, block_labels = weights[:size], None if truth is None else truth[block]
                scale = fill(values[block], block_labels, top, view, shifted[:size], ready)
                if right is not None and block_labels is not None:
                    np.equal(top, block_labels, out=right[block])
                if own is not None:
                    own.add(ready, scale, view["confidence"], top, mask[:size])
            if own is not None and truth is not None:
                own.add_truth(out["p_true"][part], truth[part], out["brier"][part])
        return own

    for counted in in_parts(work, n, num_classes, rows):
        if counter is not None and counted is not None and counted is not counter:
            counter.add_counted(counted)
    vectors = {name: torch.from_numpy(vector) for name, vector in out.items()}
    judged = None if right is None else torch.from_numpy(right)
    return _facts_from(vectors, torch.from_numpy(prediction), judged, logits, from_probs)


def _facts_from(
    values: dict[str, Tensor], prediction: Tensor, right: Tensor | None, outputs: Tensor, from_probs: bool
) -> Facts:
    """The record of vectors by name, where all are finite."""
    _check_finite_facts(values["entropy"] if right is None else values["entropy"] + values["nll"], outputs, from_probs)
    known = {name: vector for name, vector in values.items() if not (from_probs and name == "doubt")}
    return Facts(predicted=prediction, right=right, **known)


@dataclass(frozen=True, eq=False)
class _DevicePass:
    """Facts by name, predicted classes, and of every class its sum of probabilities and its sums by bin."""

    values: dict[str, Tensor]
    prediction: Tensor
    columns: Tensor
    cells: Tensor


def _facts_on_device(outputs: Tensor, labels: Tensor | None, from_probs: bool, counter: ClassCounter | None) -> Facts:
    """The same where the outputs live on a GPU: they stay there; what leaves it are sums over classes and bins."""
    edges, weights, closed = None, None, "right"
    if counter is not None:
        # In the type of the probabilities: a float32 of 0.6 lies on the edge 9/15, not above it.
        kind = torch.float64 if outputs.dtype == torch.float64 else torch.float32
        edges, closed = torch.from_numpy(width_edges(counter.bins)).to(outputs.device, kind), counter.closed
        weights = None if counter.weights is None else torch.from_numpy(counter.weights).to(outputs.device)
    device_pass = _device_pass(outputs, labels, from_probs, edges, weights, closed)
    right = None if labels is None else device_pass.prediction == labels
    facts = _facts_from(device_pass.values, device_pass.prediction, right, outputs, from_probs)
    if counter is not None:
        counter.add_sums(len(outputs), device_pass.columns, device_pass.cells)
        if labels is not None:
            counter.add_truth_there(device_pass.values["p_true"], labels, device_pass.values["brier"])
    return facts


def _device_pass(
    outputs: Tensor,
    labels: Tensor | None,
    from_probs: bool,
    edges: Tensor | None,
    weights: Tensor | None,
    closed: str,
) -> _DevicePass:
    """By one kernel where there is one for such rows, else by torch in blocks."""
    if HAS_TRITON and outputs.is_cuda and not from_probs and outputs.dtype != torch.float64:
        from confide.simplex.sample_facts import MOST_BINS, NAMES, WIDEST, sample_facts

        if outputs.shape[1] <= WIDEST and (edges is None or len(edges) <= MOST_BINS + 1):
            result = sample_facts(outputs, labels, edges, weights, closed)
            known = {name: v for name, v in zip(NAMES, result.values, strict=True) if _known(name, labels)}
            return _DevicePass(known, result.prediction, result.columns, result.cells)
    n, num_classes = outputs.shape
    rows = rows_in(DEVICE_MEMORY // 4, num_classes)
    bins = 1 if edges is None else len(edges) - 1
    parts: dict[str, list[Tensor]] = {name: [] for name in (*_FACT_NAMES, "prediction") if _known(name, labels)}
    columns = torch.zeros(num_classes, dtype=torch.float64, device=outputs.device)
    cells = torch.zeros((3, num_classes * bins), dtype=torch.float64, device=outputs.device)
    for start in range(0, n, rows):
        part = slice(start, start + rows)
        truth = None if labels is None else labels[part]
        values, probs = _block_on_device(outputs[part], truth, from_probs)
        for name, vectors in parts.items():
            vectors.append(values[name])
        if edges is None:
            continue
        own = torch.ones(len(probs), dtype=torch.float64, device=probs.device) if weights is None else weights[part]
        columns += own @ probs.double()
        row, column = (probs >= edges[min(1, bins)]).nonzero(as_tuple=True)
        above = probs[row, column]
        cell = column * bins + torch.bucketize(above, edges[1:-1], right=closed == "left")
        weighted = above.double() * own[row]
        for sums, terms in zip(cells, (own[row], weighted, weighted.square()), strict=True):
            sums.index_add_(0, cell, terms)
    joined = {name: torch.cat(vectors) for name, vectors in parts.items()}
    return _DevicePass(joined, joined.pop("prediction"), columns, cells.view(3, num_classes, bins))


def _known(name: str, labels: Tensor | None) -> bool:
    return labels is not None or name not in LABEL_FACTS


def _block_on_device(outputs: Tensor, labels: Tensor | None, from_probs: bool) -> tuple[dict[str, Tensor], Tensor]:
    """Facts and probabilities of some rows, as `_fill_from_logits` and `_fill_from_probs` have them."""
    wide = outputs if outputs.dtype == torch.float64 else outputs.float()
    top, prediction = wide.max(dim=1)
    if from_probs:
        probs, logs = wide, wide.clamp_min(SMALLEST_PROBABILITY).log()
        rival = wide.scatter(1, prediction[:, None], -1.0).amax(dim=1)
        entropy = (-(probs * logs).sum(dim=1)).clamp_min(0)
        max_logit, energy = logs.gather(1, prediction[:, None]).squeeze(1), torch.zeros_like(top)
        values = {"confidence": top, "margin": top - rival, "entropy": entropy, "doubt": 1 - top}
        values |= {"max_logit": max_logit, "energy": energy}
    else:
        logs = wide - top[:, None]
        mass = logs.exp().scatter(1, prediction[:, None], 0.0)
        others = mass.sum(dim=1)
        scale, log_scale = 1 + others, others.log1p()
        spread = (mass * logs.clamp_min(-1e4)).sum(dim=1)  # a class ruled out: 0 * log 0 = 0
        values = {"confidence": 1 / scale, "doubt": others / scale, "margin": (1 - mass.amax(dim=1)) / scale}
        values |= {"entropy": log_scale - spread / scale, "max_logit": top, "energy": top + log_scale}
        probs = mass.scatter(1, prediction[:, None], 1.0) / scale[:, None]
        logs = logs - log_scale[:, None]
    values["prediction"] = prediction
    if labels is not None:
        p_true = probs.gather(1, labels[:, None]).squeeze(1)
        squares = probs.square().sum(dim=1)
        values |= {"p_true": p_true, "nll": -logs.gather(1, labels[:, None]).squeeze(1)}
        values["brier"] = (squares - 2 * p_true + 1).clamp_min(0)
    return values, probs


def _fill_from_logits(
    block: Floating,
    labels: NDArray[np.int64] | None,
    prediction: NDArray[np.int64],
    out: dict[str, Floating],
    shifted: Floating,
    weights: Floating,
) -> Floating:
    """Facts of one block; `weights` becomes exp(z - max), and its row sums are returned."""
    first = np.arange(0, block.size, block.shape[1])
    top_at = first + prediction
    top = block.reshape(-1)[top_at]
    torch.sub(torch.from_numpy(block), torch.from_numpy(top)[:, None], out=torch.from_numpy(shifted))
    np.exp(shifted, out=weights)
    flat = weights.reshape(-1)
    # Without the largest term the sum keeps its digits when all others vanish: 1 - p = others / (1 + others).
    flat[top_at] = 0
    others = row_sums(weights)
    scale: Floating = 1 + others
    spread = row_dot(weights, shifted)
    if not np.isfinite(spread).all():
        # A logit of minus infinity is a class ruled out: 0 * log 0 = 0.
        spread = np.where(np.isfinite(top), row_dot(weights, np.maximum(shifted, -1e4)), np.nan)
    log_scale = np.log1p(others)
    np.divide(1, scale, out=out["confidence"])
    np.divide(others, scale, out=out["doubt"])
    if "margin" in out:
        out["max_logit"][:] = top
        np.add(top, log_scale, out=out["energy"])
        np.divide(1 - row_max(weights), scale, out=out["margin"])
    np.subtract(log_scale, spread / scale, out=out["entropy"])
    squares = (1 + row_dot(weights, weights)) / (scale * scale)
    flat[top_at] = 1
    if labels is None:
        return scale
    truth = first + labels
    np.divide(flat[truth], scale, out=out["p_true"])
    np.subtract(log_scale, shifted.reshape(-1)[truth], out=out["nll"])
    np.maximum(squares - 2 * out["p_true"] + 1, 0, out=out["brier"])
    return scale


def _fill_from_probs(
    block: Floating,
    labels: NDArray[np.int64] | None,
    prediction: NDArray[np.int64],
    out: dict[str, Floating],
    shifted: Floating,
    weights: Floating,
) -> Floating:
    row = np.arange(len(block))
    np.maximum(block, SMALLEST_PROBABILITY, out=shifted)
    torch.log(torch.from_numpy(shifted), out=torch.from_numpy(shifted))
    np.copyto(weights, block)
    top = block[row, prediction]
    out["confidence"][:] = top
    if "margin" in out:
        weights[row, prediction] = -1
        out["margin"][:] = top - row_max(weights)
        weights[row, prediction] = top
        out["max_logit"][:] = shifted[row, prediction]
        out["energy"][:] = 0
    out["entropy"][:] = np.maximum(-row_dot(block, shifted), 0)
    if labels is not None:
        at_label = block[row, labels]
        out["p_true"][:] = at_label
        out["nll"][:] = -shifted[row, labels]
        out["brier"][:] = np.maximum(row_dot(block, block) - 2 * at_label + 1, 0)
    return np.ones(len(block), dtype=block.dtype)


# Sums by torch, which has one thread where parts of the rows have threads of their own, or by numpy's loops.

SHORT_ROW, LONG_ROW = 32, 8192
"""Of fewer classes numpy's own loops are quicker than a call of BLAS a row, of more its BLAS takes threads."""


def row_sums(values: Floating) -> Floating:
    """Sum of each row."""
    return np.asarray(torch.from_numpy(values).sum(dim=1).numpy())


SUMMED = 512
"""Rows that are summed in float32; sums of more would lose digits, and are added up in float64."""


def column_sums(values: Floating, weights: Floating) -> Floats:
    """Sum over the rows, each times its weight."""
    whole = len(values) // SUMMED * SUMMED
    sums = np.einsum("n,nc->c", weights[whole:], values[whole:]).astype(np.float64)
    if whole:
        shape = (-1, SUMMED)
        parts = np.einsum("bn,bnc->bc", weights[:whole].reshape(shape), values[:whole].reshape(*shape, values.shape[1]))
        sums += parts.sum(axis=0, dtype=np.float64)
    return np.asarray(sums)


def row_max(values: Floating) -> Floating:
    """Largest of each row; numpy is slow at it for short rows."""
    return np.asarray(torch.from_numpy(values).amax(dim=1).numpy())


MANY_ROWS = 2048
"""Rows from which on turning a block of short ones costs less than numpy's walk along each."""


def row_argmax(values: Floating) -> NDArray[np.int64]:
    """The first place of the largest of each row, as np.argmax has it; by columns where rows are short."""
    n, width = values.shape
    if width > SHORT_ROW or n < MANY_ROWS:
        return np.asarray(values.argmax(axis=1), dtype=np.int64)
    columns = np.ascontiguousarray(values.T)
    largest = (columns == columns.max(axis=0)).view(np.uint8)
    places = np.einsum("cn,c->n", largest, np.arange(width, dtype=np.uint8)).astype(np.int64)
    # Two that are equally large, or none because of NaN.
    unclear = np.flatnonzero(largest.sum(axis=0, dtype=np.uint8) != 1)
    places[unclear] = values[unclear].argmax(axis=1)
    return np.asarray(places, dtype=np.int64)


def row_dot(left: Floating, right: Floating) -> Floating:
    """Sum over each row of the products."""
    if SHORT_ROW < left.shape[1] < LONG_ROW and hasattr(np, "vecdot"):
        return np.asarray(np.vecdot(left, right))
    return np.asarray(np.einsum("nc,nc->n", left, right))


def _check_finite_facts(checked: Tensor, outputs: Tensor, from_probs: bool) -> None:
    # Finite numbers near the largest may have a sum that is not.
    if not math.isfinite(float(checked.sum())) and not bool((finite := torch.isfinite(checked)).all()):
        bad, what = int((~finite).nonzero()[0]), "probs" if from_probs else "logits"
        shown = "NaN" if bool(outputs[bad].isnan().any()) else "infinity"
        raise InputError(
            f"{what} must be finite, got {shown} at sample {bad} of {len(outputs)}; "
            "drop that sample or mend the model that made it"
        )


# Facts of several records or shards as one.


class FactsBuilder:
    """Facts of shards that become one, in vectors that grow: many small parts would leave holes in memory."""

    def __init__(self) -> None:
        self.vectors: dict[str, Tensor] = {}
        self.unknown: set[str] = set()
        self.size = 0

    def add(self, facts: Facts) -> None:
        """Keep the facts of one more shard."""
        end = self.size + len(facts.confidence)
        for fact in fields(Facts):
            part: Tensor | None = getattr(facts, fact.name)
            if part is None:
                self.unknown.add(fact.name)
                continue
            vector = self.vectors.get(fact.name, part[:0])
            kind = torch.promote_types(vector.dtype, part.dtype)
            if end > len(vector) or kind != vector.dtype:
                room = max(len(vector), end + end // 2 if self.size else end)
                vector, old = part.new_empty(room, dtype=kind), vector[: self.size]
                vector[: len(old)] = old
            vector[self.size : end] = part
            self.vectors[fact.name] = vector
        self.size = end

    def join(self) -> Facts:
        """The facts of all shards; what one shard does not know is unknown."""
        known = {k: v[: self.size] for k, v in self.vectors.items() if k not in self.unknown}
        return Facts(**known)


def join_facts(parts: Sequence[Facts]) -> Facts:
    """The facts of several records as one."""
    together = FactsBuilder()
    for part in parts:
        together.add(part)
    return together.join()
