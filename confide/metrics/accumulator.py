"""Metrics in someone else's loop: update batch by batch, compute, reset, merge across processes."""

from __future__ import annotations

from typing import Any

import torch

from confide.core.door import InputError
from confide.core.facts import ClassTable, Facts
from confide.core.joined import join_facts
from confide.core.predictions import Predictions
from confide.core.registry import Method
from confide.core.results import Measurement
from confide.metrics.family import measure, parse


class Accumulator:
    """One metric over batches: `update(logits, labels)`, `compute()`, `reset()`, `merge(other)`, `sync()`.

    Keeps a few numbers per sample (facts), the class-wise sums for class-wise ECE, or the whole batches where a
    metric needs all probabilities at once.
    """

    def __init__(self, method: Method, options: dict[str, Any]) -> None:
        self.method, self.options = method, options
        self.reset()

    def reset(self) -> None:
        """Forget all batches."""
        self._facts: list[Facts] = []
        self._labels: list[torch.Tensor] = []
        self._trust: list[torch.Tensor] = []
        self._whole: list[Predictions] = []
        self._table: ClassTable | None = None
        self._classes = 0
        self._from_probabilities = False

    def __len__(self) -> int:
        return sum(len(labels) for labels in self._labels) + sum(len(record) for record in self._whole)

    def update(self, predictions: Any, labels: Any = None, *, from_probs: bool = False) -> None:
        """Add a batch: Predictions, or logits (probabilities if said so) and labels."""
        record = predictions if isinstance(predictions, Predictions) else self._record(predictions, labels, from_probs)
        if not len(record):
            return
        if self._classes and record.top1 is None and record.num_classes != self._classes:
            raise InputError(f"every batch must have {self._classes} classes, got {record.num_classes}")
        self._classes = max(self._classes, record.num_classes)
        self._from_probabilities |= record.from_probabilities
        if self._needs_everything:
            record.need_logits(f"metric '{self.method.word}'")
            self._whole.append(record)
            return
        if self.method.facts.get("whole"):
            table = record.class_table()
            self._table = table if self._table is None else self._table + table
        self._facts.append(record.facts)
        self._labels.append(record.labels.cpu())
        if record.trust is not None:
            self._trust.append(record.trust)

    @staticmethod
    def _record(values: Any, labels: Any, from_probs: bool) -> Predictions:
        if labels is None:
            raise InputError("update needs Predictions, or logits and labels; give both")
        return Predictions.from_probs(values, labels) if from_probs else Predictions(values, labels)

    @property
    def _needs_everything(self) -> bool:
        standard = self.method.word == "classwise_ece" and all(
            self.options.get(name, default) == default for name, default in self.method.options.items()
        )
        return bool(self.method.facts.get("whole") or self.options.get("of") == "classes") and not standard

    def compute(self) -> Measurement:
        """The measurement of all batches so far."""
        if not len(self):
            raise InputError(f"metric '{self.method.word}' has no samples yet; call update first")
        return measure(self.method, self._joined(), self.options)

    def _joined(self) -> Predictions:
        if self._whole:
            values = [r.probs if r.probs is not None else r.logits for r in self._whole]
            labels = torch.cat([r.labels for r in self._whole])
            make = Predictions.from_probs if self._from_probabilities else Predictions
            return make(torch.cat(values), labels)
        labels = torch.cat(self._labels)
        complete = sum(map(len, self._trust)) == len(labels)
        return Predictions.from_facts(
            join_facts(self._facts),
            labels,
            max(self._classes, int(labels.max()) + 1),
            self._table,
            trust=torch.cat(self._trust) if complete and self._trust else None,
            from_probabilities=self._from_probabilities,
        )

    def merge(self, other: Accumulator) -> None:
        """Add the batches of another accumulator of the same metric, such as that of another process."""
        if other.method.word != self.method.word or other.options != self.options:
            raise InputError(f"cannot merge metric '{other.method.word}' into '{self.method.word}'; they must be alike")
        if self._classes and other._classes and self._classes != other._classes and self._table is not None:
            raise InputError(f"merge needs {self._classes} classes on both sides, got {other._classes}")
        self._facts += other._facts
        self._labels += other._labels
        self._trust += other._trust
        self._whole += other._whole
        if other._table is not None:
            self._table = other._table if self._table is None else self._table + other._table
        self._classes = max(self._classes, other._classes)
        self._from_probabilities |= other._from_probabilities

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        state["method"] = self.method.word
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.method = parse(state["method"])[0]

    def sync(self) -> None:
        """In a torch.distributed group: every process afterwards holds the batches of all, in the order of ranks."""
        if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            return
        parts: list[Any] = [None] * torch.distributed.get_world_size()
        torch.distributed.all_gather_object(parts, self)
        self.reset()
        for part in parts:
            self.merge(part)


def create(word: str, **options: Any) -> Accumulator:
    """An accumulator of that metric: `update(logits, labels)`, `compute()`, `reset()`, `merge(other)`."""
    method, extra = parse(word)
    method.check_options(options)
    return Accumulator(method, {**extra, **options})
