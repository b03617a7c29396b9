"""Predictions: logits and labels of one split, the record that calibrators, trust, metrics and evaluation share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from confide.core import files
from confide.core.door import InputError, as_tensor, check_labels, check_logits, check_probs
from confide.core.facts import SMALLEST_PROBABILITY, ClassCounter, ClassTable, Facts, facts_of
from confide.core.prediction_columns import LABELS, TOP, are_words, indices_of, names_of, pop_first, take_outputs
from confide.core.records import Ids, check_ids, default_ids, rows_of


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
        metadata = {"confide": "predictions/1", "from_probabilities": str(self.from_probabilities)}
        if self.split:
            metadata["split"] = self.split
        if self.class_names:
            metadata["class_names"] = json.dumps(self.class_names)
        files.write_table(path, columns, metadata)

    @classmethod
    def load(cls, path: str | Path, split: str | None = None) -> Predictions:
        """Read .parquet, .npz or .csv with `logits` or `probs` and labels, or a top-1 table.

        Args:
            split: overrides the split the file names.
        """
        columns, metadata = files.read_table(path)
        return from_columns(columns, metadata, split, str(path))


def from_columns(
    columns: dict[str, NDArray[Any]], metadata: Mapping[str, str], split: str | None, where: str
) -> Predictions:
    """Predictions from named columns; `prediction_columns` knows the names."""
    given = ", ".join(list(columns)[:8]) or "none"
    labels = pop_first(columns, LABELS)
    if labels is None:
        raise InputError(f"{where} must have a column 'label', got {given}; add it, or rename the one that holds it")
    outputs, named = take_outputs(columns, where)
    width = next((v.shape[1] if v.ndim == 2 else 2 for v in outputs.values()), 0)
    names = names_of(columns, metadata, named, width)
    prediction, confidence = pop_first(columns, TOP), columns.pop("confidence", None)
    if not outputs and (prediction is None or confidence is None):
        raise InputError(
            f"{where} must have 'logits' or 'probs', a column for every class (logit_0, logit_cat; prob_0, prob_cat), "
            f"or 'pred_label' and 'confidence', got {given}; rename the columns"
        )
    if prediction is not None and not outputs and are_words(labels) and are_words(prediction):
        names = names or tuple(np.unique(np.concatenate([labels, prediction]).astype(np.str_)).tolist())
        prediction = indices_of(prediction, names, where)
    labels = indices_of(labels, names, where) if are_words(labels) else labels
    ids, trust = pop_first(columns, ("id", "ids")), columns.pop("trust", None)
    common: dict[str, Any] = {
        "ids": ids,
        "split": split or metadata.get("split"),
        "columns": {k: v for k, v in columns.items() if v.shape[:1] == (len(labels),)},
        "class_names": names,
        "trust": None if trust is None else as_tensor(trust, "trust"),
    }
    if "logits" in outputs:
        logits = outputs["logits"]
        if logits.ndim == 1 or logits.shape[1:] == (1,):
            return Predictions.from_binary_logits(logits, labels, **common)
        clipped = metadata.get("from_probabilities") == "True"
        return Predictions(logits, labels, from_probabilities=clipped, **common)  # type: ignore[arg-type]
    if "probs" in outputs:
        return Predictions.from_probs(outputs["probs"], labels, **common)
    return Predictions.from_top1(labels, prediction, confidence, **common)
