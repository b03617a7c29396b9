"""Predictions: outputs and labels of one split, and the per-sample facts that metrics, calibrators and trust share.

Facts (confidence, correctness, entropy, ...) come from one pass over the logits by row blocks that stay in cache.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from confide.checks import InputError, as_tensor, check_ids, check_labels, check_logits, check_probs
from confide.files import formats
from confide.files.columns import (
    are_words,
    class_indices_of,
    class_names_of,
    column_roles,
)
from confide.numerics.binning import width_bin_of, width_edges
from confide.records import Ids, default_ids, rows_of

# Per-sample facts of a prediction, from one pass over the logits by row blocks that stay in cache.

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
            raise InputError(
                f"'{name}' needs all probabilities, but these predictions hold only top-1 confidences, "
                "or facts without it"
            )
        return values

    def sureness(self) -> NDArray[np.float64]:
        """Confidence in float64, exact also where float32 would round it to 1; what rankings sort by."""
        if self.doubt is None or self.doubt.dtype == torch.float64:
            return self.confidence.double().cpu().numpy()
        return np.asarray(1.0 - self.doubt.double().cpu().numpy(), dtype=np.float64)

    def unsureness(self) -> NDArray[np.floating]:
        """1 - sureness in as few bits as hold it: sorting float32 takes half the time of float64.

        Confidences that float64 cannot tell apart stay equal: below 2e-9 the doubt is a multiple of 2^-53.
        """
        sure = self.sureness()
        kind = np.float64 if self.doubt is None or self.doubt.dtype == torch.float64 else np.float32
        return np.subtract(1.0, sure, out=sure).astype(kind, copy=False) if kind == np.float32 else 1.0 - sure

    def take(self, rows: Tensor) -> Facts:
        """The facts of the chosen rows."""
        return Facts(**{f.name: _rows_or_none(getattr(self, f.name), rows) for f in fields(self)})  # type: ignore[arg-type]


def _rows_or_none(values: Tensor | None, rows: Tensor) -> Tensor | None:
    return None if values is None else values[rows.to(values.device)]


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

    def __init__(self, num_classes: int, bins: int, closed: str) -> None:
        self.num_classes, self.bins, self.closed = num_classes, bins, closed
        self.first_edge = float(width_edges(bins)[1])
        self.count, self.confidence = np.zeros(num_classes * self.bins), np.zeros(num_classes * self.bins)
        self.hits, self.columns, self.rows = np.zeros(num_classes * self.bins), np.zeros(num_classes), 0
        self._columns: list[NDArray[np.int64]] = []
        self._probs: list[Block] = []
        self._held = 0

    def add(
        self, weights: Block, scale: Block, top: Block, prediction: NDArray[np.int64], mask: NDArray[np.bool_]
    ) -> None:
        """A block of unnormalised probabilities: p = weights / scale[:, None]; top is the largest p of each row."""
        self.rows += len(scale)
        self.columns += (1 / scale) @ weights
        if self.bins == 1:
            return
        # Where the rest of a row is less than the first edge, only its largest probability lies above it.
        sure = top > 1 - 0.999 * self.first_edge
        if 2 * np.count_nonzero(sure) > len(sure):
            self._keep(prediction[sure], top[sure])
            weights, scale, mask = weights[~sure], scale[~sure], mask[: len(sure) - np.count_nonzero(sure)]
        first = (scale * weights.dtype.type(self.first_edge))[:, None]
        found = np.flatnonzero(np.greater_equal(weights, first, out=mask))
        row = found // self.num_classes
        self._keep(found - row * self.num_classes, weights.reshape(-1)[found] / scale[row])

    def _keep(self, columns: NDArray[np.int64], probs: Block) -> None:
        self._columns.append(columns)
        self._probs.append(probs)
        self._held += len(probs)
        if self._held > 1 << 19:
            self._flush()

    def add_truth(self, p_true: Block, labels: NDArray[np.int64]) -> None:
        """The probabilities of the labels, for how often each class came true in each of its bins."""
        cell = labels * self.bins + width_bin_of(p_true, self.bins, self.closed)
        self.hits += np.bincount(cell, minlength=len(self.hits))

    def _flush(self) -> None:
        if not self._probs:
            return
        probs = np.concatenate(self._probs)
        cell = np.concatenate(self._columns) * self.bins + width_bin_of(probs, self.bins, self.closed)
        self.count += np.bincount(cell, minlength=len(self.count))
        self.confidence += np.bincount(cell, probs, minlength=len(self.count))
        self._columns, self._probs, self._held = [], [], 0

    def table(self) -> ClassTable:
        """The table so far."""
        self._flush()
        shape = (self.num_classes, self.bins)
        count, confidence = self.count.reshape(shape).copy(), self.confidence.reshape(shape).copy()
        count[:, 0] = self.rows - count[:, 1:].sum(axis=1)
        confidence[:, 0] = self.columns - confidence[:, 1:].sum(axis=1)
        return ClassTable(count, confidence, self.hits.reshape(shape).copy())


_FACT_NAMES = ("confidence", "entropy", "margin", "p_true", "nll", "brier", "max_logit", "energy", "doubt")


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
    out = {name: np.empty(n, dtype=values.dtype) for name in _FACT_NAMES}
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
                counter.add(ready, scale, view["confidence"], prediction[part], mask[:size])
    if counter is not None:
        counter.add_truth(out["p_true"], truth)
    _check_finite_facts(out["entropy"] + out["nll"], values, from_probs)
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
    first = np.arange(0, block.size, block.shape[1])
    said, truth = first + prediction, first + labels
    top = block.reshape(-1)[said]
    torch.sub(torch.from_numpy(block), torch.from_numpy(top)[:, None], out=torch.from_numpy(shifted))
    np.exp(shifted, out=weights)
    flat = weights.reshape(-1)
    # Without the largest term the sum keeps its digits when all others vanish: 1 - p = others / (1 + others).
    flat[said] = 0
    others = weights @ np.ones(weights.shape[1], weights.dtype)
    scale: Block = 1 + others
    spread = row_dot(weights, shifted)
    if not np.isfinite(spread).all():
        # A logit of minus infinity is a class ruled out: 0 * log 0 = 0.
        spread = np.where(np.isfinite(top), row_dot(weights, np.maximum(shifted, -1e4)), np.nan)
    log_scale = np.log1p(others)
    out["max_logit"][:] = top
    np.add(top, log_scale, out=out["energy"])
    np.divide(1, scale, out=out["confidence"])
    np.divide(others, scale, out=out["doubt"])
    np.divide(1 - row_max(weights), scale, out=out["margin"])
    np.subtract(log_scale, spread / scale, out=out["entropy"])
    squares = (1 + row_dot(weights, weights)) / (scale * scale)
    flat[said] = 1
    np.divide(flat[truth], scale, out=out["p_true"])
    np.subtract(log_scale, shifted.reshape(-1)[truth], out=out["nll"])
    np.maximum(squares - 2 * out["p_true"] + 1, 0, out=out["brier"])
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
    runner_up = row_max(weights)
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


def row_max(values: Block) -> Block:
    """Largest of each row; numpy is slow at it for short rows."""
    return np.asarray(torch.from_numpy(values).amax(dim=1).numpy())


def row_dot(left: Block, right: Block) -> Block:
    """Sum over each row of the products."""
    if hasattr(np, "vecdot"):
        return np.asarray(np.vecdot(left, right))
    return np.asarray(np.einsum("nc,nc->n", left, right))


def _check_finite_facts(checked: Block, values: Block, from_probs: bool) -> None:
    bad = np.flatnonzero(~np.isfinite(checked))
    if len(bad):
        what = "probs" if from_probs else "logits"
        shown = "NaN" if np.isnan(values[bad[0]]).any() else "infinity"
        raise InputError(
            f"{what} must be finite, got {shown} at sample {int(bad[0])} of {len(values)}; "
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
            kept = self.vectors.get(fact.name, part[:0])
            kind = torch.promote_types(kept.dtype, part.dtype)
            if end > len(kept) or kind != kept.dtype:
                room = max(len(kept), end + end // 2 if self.size else end)
                kept, old = part.new_empty(room, dtype=kind), kept[: self.size]
                kept[: len(old)] = old
            kept[self.size : end] = part
            self.vectors[fact.name] = kept
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


# Predictions: logits and labels of one split, the record that calibrators, trust, metrics and evaluation share.


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a classifier said on n samples: logits `n c`, labels, ids, split, and optionally trust `n`.

    Logits only, never guessed from values: probabilities enter by `from_probs`, which remembers it.
    Rows are never recomputed: `facts` is one pass over the logits, cached.
    """

    logits: Tensor
    labels: Tensor
    ids: Ids = None  # type: ignore[assignment]  # filled by position below
    split: str | None = None
    trust: Tensor | None = None
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    class_names: tuple[str, ...] | None = None
    from_probabilities: bool = False
    top1: tuple[Tensor, Tensor] | None = None  # (prediction, confidence) where only these are known
    probs: Tensor | None = field(default=None, repr=False)  # as given to from_probs: 0.6 stays 0.6 for the metrics
    given: Facts | None = field(default=None, repr=False)  # facts streamed from shards whose logits are not kept
    given_classes: int | None = None
    given_table: ClassTable | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        put = object.__setattr__
        labels = as_tensor(self.labels, "labels")
        if self.top1 is None and self.given is None:
            logits = check_logits(as_tensor(self.logits, "logits"))
            put(self, "logits", logits)
            labels = check_labels(labels, len(logits), logits.shape[1])
        else:
            labels = check_labels(labels, len(labels), self.given_classes)
        put(self, "labels", labels)
        put(self, "ids", default_ids(len(labels)) if self.ids is None else check_ids(self.ids, len(labels)))
        columns = {name: np.asarray(values) for name, values in self.columns.items()}
        for name, values in columns.items():
            if len(values) != len(labels):
                raise InputError(f"column '{name}' must have {len(labels)} values, got {len(values)}")
        put(self, "columns", columns)

    @classmethod
    def from_probs(cls, probs: Any, labels: Any, ids: Any = None, split: str | None = None, **more: Any) -> Predictions:
        """Predictions from probabilities, `n c` or `n` (binary, the probability of class 1).

        Stored as log-probabilities clipped at 1e-12; scores that need real logits refuse them.
        """
        values = as_tensor(probs, "probs")
        if not values.is_floating_point():
            values = values.to(torch.float32)
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        if values.ndim == 1:
            values = torch.stack([1 - values, values], dim=1)
        check_probs(values)
        logits = values.clamp_min(SMALLEST_PROBABILITY).log()
        return cls(logits, as_tensor(labels, "labels"), ids, split, from_probabilities=True, probs=values, **more)

    @classmethod
    def from_binary_logits(
        cls, logits: Any, labels: Any, ids: Any = None, split: str | None = None, **more: Any
    ) -> Predictions:
        """Two classes from n sigmoid logits z: the probability of class 1 is 1 / (1 + exp(-z))."""
        values = as_tensor(logits, "logits")
        values = values if values.is_floating_point() else values.to(torch.float32)
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        if values.ndim != 1:
            raise InputError(f"binary logits must be n values, got shape {tuple(values.shape)}; give one per sample")
        return cls(torch.stack([torch.zeros_like(values), values], dim=1), labels, ids, split, **more)

    @classmethod
    def from_facts(
        cls, facts: Facts, labels: Any, num_classes: int, table: ClassTable | None = None, **more: Any
    ) -> Predictions:
        """Predictions of which the facts are known but not the logits: what streaming over shards leaves.

        Args:
            table: class-wise sums in 15 equal-width bins, closed on the right.
        """
        truth = as_tensor(labels, "labels")
        empty = torch.empty(len(truth), 0)
        return cls(empty, truth, given=facts, given_classes=num_classes, given_table=table, **more)

    @classmethod
    def from_top1(
        cls, labels: Any, prediction: Any, confidence: Any, ids: Any = None, split: str | None = None, **more: Any
    ) -> Predictions:
        """Predictions of which only label, predicted class and confidence are known: a record with facts only."""
        truth, said, sure = (
            as_tensor(labels, "labels"),
            as_tensor(prediction, "prediction"),
            as_tensor(confidence, "confidence"),
        )
        sure = sure if sure.is_floating_point() else sure.to(torch.float32)
        if not (len(truth) == len(said) == len(sure)):
            raise InputError(
                f"labels, prediction and confidence must have one length, got {len(truth)}, {len(said)}, {len(sure)}"
            )
        if len(sure) and not bool(((sure >= 0) & (sure <= 1)).all()):
            bad = int((~((sure >= 0) & (sure <= 1))).nonzero()[0])
            raise InputError(f"confidence must lie in [0, 1], got {float(sure[bad])} at sample {bad} of {len(sure)}")
        empty = torch.empty(len(truth), 0)
        return cls(empty, truth, ids, split, top1=(said.to(torch.int64), sure), **more)

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        """One line for a console."""
        split = f" on '{self.split}'" if self.split else ""
        kind = "probabilities" if self.from_probabilities else "top-1 confidences" if self.top1 else "logits"
        return f"<Predictions{split}: {len(self):,} samples, {self.num_classes} classes, {kind}>"

    @property
    def num_classes(self) -> int:
        """Number of classes; for top-1 records, as many as labels and predictions show."""
        if self.given_classes is not None:
            return self.given_classes
        if self.top1 is None:
            return int(self.logits.shape[1])
        return int(max(self.labels.max(), self.top1[0].max())) + 1 if len(self) else 0

    @cached_property
    def facts(self) -> Facts:
        """confidence, prediction, correct, entropy, margin, p_true, nll, brier: one pass, cached."""
        if self.given is not None:
            return self.given
        if self.top1 is not None:
            prediction, confidence = self.top1
            return Facts(confidence, prediction, prediction == self.labels)
        return self._pass(None)

    def _pass(self, counter: ClassCounter | None) -> Facts:
        """One pass over the probabilities where they were given, over the logits where not."""
        if self.probs is not None:
            return facts_of(self.probs, self.labels, from_probs=True, counter=counter)
        return facts_of(self.logits, self.labels, counter=counter)

    def class_table(self, bins: int = 15, closed: str = "right") -> ClassTable:
        """Class-wise sums in equal-width bins; computed in the same pass as the facts if those were not yet."""
        tables: dict[tuple[int, str], ClassTable] = self.__dict__.setdefault("_tables", {})
        if (bins, closed) == (15, "right") and self.given_table is not None:
            return self.given_table
        if (bins, closed) not in tables:
            self.need_logits("class-wise calibration")
            counter = ClassCounter(self.num_classes, bins, closed)
            facts = self._pass(counter)
            self.__dict__.setdefault("facts", facts)
            tables[bins, closed] = counter.table()
        return tables[bins, closed]

    def need_logits(self, purpose: str) -> Tensor:
        """The logits, or an error where only top-1 confidences or streamed facts are known."""
        if self.top1 is not None:
            raise InputError(f"{purpose} needs all probabilities, but these predictions hold only the top-1 confidence")
        if self.given is not None:
            raise InputError(f"{purpose} needs all probabilities in memory, but these were streamed; pass one record")
        return self.logits

    def probabilities(self) -> Tensor:
        """All probabilities `n c`, at least float32: as given, or the softmax of the logits."""
        logits = self.need_logits("this") if self.probs is None else self.probs
        wide = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
        return wide if self.probs is not None else torch.softmax(wide, dim=1)

    def need_not_test(self, purpose: str) -> None:
        """Refuse to fit on a split called `test`."""
        if self.split == "test":
            raise InputError(f"{purpose} must not be fitted on the test split; pass the predictions on 'val'")

    def with_column(self, name: str, values: Any) -> Predictions:
        """The same predictions with one more column, or another in its place."""
        return replace(self, columns={**self.columns, name: np.asarray(values)})

    def with_logits(self, logits: Tensor) -> Predictions:
        """The same samples with other logits (what a calibrator returns)."""
        return replace(self, logits=logits, top1=None, probs=None, given=None, given_classes=None, given_table=None)

    def take(self, rows: Any) -> Predictions:
        """The chosen rows, in the order given: an index array or a boolean mask."""
        index = np.asarray(rows)
        index = index.nonzero()[0] if index.dtype == bool else index.astype(np.intp)
        at = torch.as_tensor(index, dtype=torch.int64)
        taken = replace(
            self,
            logits=self.logits[at],
            labels=self.labels[at],
            ids=self.ids[index],
            trust=None if self.trust is None else self.trust[at],
            columns={k: v[index] for k, v in self.columns.items()},
            top1=None if self.top1 is None else (self.top1[0][at], self.top1[1][at]),
            probs=None if self.probs is None else self.probs[at],
            given=None if self.given is None else self.given.take(at),
            given_table=None,
        )
        if "facts" in self.__dict__:
            taken.__dict__["facts"] = self.facts.take(at)
        return taken

    def align(self, ids: Ids) -> Predictions:
        """The rows of these ids, in their order."""
        return self.take(rows_of(ids, self.ids, "predictions"))

    def save(self, path: str | Path) -> None:
        """Write as .parquet (`id, label, logits`), .npz or .csv; metadata keeps split and origin."""
        columns: dict[str, NDArray[Any]] = {"id": self.ids, "label": self.labels.cpu().numpy()}
        if self.top1 is not None:
            columns |= {"pred_label": self.top1[0].cpu().numpy(), "confidence": self.top1[1].cpu().numpy()}
        elif str(path).endswith(".csv"):
            given = self.probs if self.probs is not None else torch.softmax(self.logits.double(), dim=1)
            columns["p"] = given.cpu().numpy()
        elif self.probs is not None:
            columns["probs"] = self.probs.cpu().numpy()
        else:
            wide = self.logits.float() if self.logits.dtype == torch.bfloat16 else self.logits
            columns["logits"] = wide.cpu().numpy()
        if self.trust is not None:
            columns["trust"] = self.trust.cpu().numpy()
        columns |= {k: v for k, v in self.columns.items() if k not in columns}
        metadata = {"confide": formats.PREDICTIONS.tag, "from_probabilities": str(self.from_probabilities)}
        if self.split:
            metadata["split"] = self.split
        if self.class_names:
            metadata["class_names"] = json.dumps(self.class_names)
        formats.write_table(path, columns, metadata)

    @classmethod
    def load(cls, path: str | Path, split: str | None = None) -> Predictions:
        """Read .parquet, .npz or .csv with `logits` or `probs` and labels, or a top-1 table.

        Args:
            split: overrides the split the file names.
        """
        columns, metadata = formats.read_table(path)
        return predictions_from_columns(columns, metadata, split, str(path))


def predictions_from_columns(
    columns: dict[str, NDArray[Any]], metadata: Mapping[str, str], split: str | None, where: str
) -> Predictions:
    """Predictions from named columns; `files.columns` knows the names."""
    given = ", ".join(list(columns)[:8]) or "none"
    roles = column_roles(columns, where)
    if roles.label is None:
        raise InputError(f"{where} must have a column 'label', got {given}; add it, or rename the one that holds it")
    if not roles.are_predictions:
        raise InputError(
            f"{where} must have 'logits' or 'probs', a column for every class (logit_0, logit_cat; prob_0, prob_cat), "
            f"or 'pred_label' and 'confidence', got {given}; rename the columns"
        )
    labels, prediction = columns[roles.label], columns[roles.prediction] if roles.prediction else None
    outputs = None if roles.outputs is None else roles.outputs.values(columns, where)
    width = 0 if outputs is None else outputs.shape[1] if outputs.ndim == 2 else 2
    names = class_names_of(columns, metadata, roles.outputs.classes if roles.outputs else None, width)
    if outputs is None and prediction is not None and are_words(labels) and are_words(prediction):
        names = names or tuple(np.unique(np.concatenate([labels, prediction]).astype(np.str_)).tolist())
        prediction = class_indices_of(prediction, names, where)
    labels = class_indices_of(labels, names, where) if are_words(labels) else labels
    others = {name: columns[name] for name in roles.others if name in columns}
    common: dict[str, Any] = {
        "ids": columns[roles.id] if roles.id else None,
        "split": split or metadata.get("split"),
        "columns": {k: v for k, v in others.items() if v.shape[:1] == (len(labels),)},
        "class_names": names,
        "trust": as_tensor(columns[roles.trust], "trust") if roles.trust else None,
    }
    if roles.outputs is None or outputs is None:
        return Predictions.from_top1(labels, prediction, columns[str(roles.confidence)], **common)
    if roles.outputs.kind == "probs":
        return Predictions.from_probs(outputs, labels, **common)
    if outputs.ndim == 1 or outputs.shape[1:] == (1,):
        return Predictions.from_binary_logits(outputs, labels, **common)
    clipped = metadata.get("from_probabilities") == "True"
    return Predictions(outputs, labels, from_probabilities=clipped, **common)  # type: ignore[arg-type]
