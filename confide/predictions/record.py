"""Predictions: outputs and labels of one split, the record that calibrators, trust, metrics and evaluation share."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from confide.block_sizes import CACHED_FLOAT64, FEATURE_ROWS, rows_in
from confide.checks import (
    InputError,
    as_tensor,
    check_finite,
    check_ids,
    check_labels,
    check_weights,
    did_you_mean,
    known_keywords,
    printable,
)
from confide.facts import ClassCounter, ClassTable, Facts
from confide.files import formats
from confide.files.columns import (
    CANONICAL_COLUMNS,
    CORRECT_COLUMNS,
    ROLE_COLUMNS,
    WEIGHT_COLUMN,
    classes_of_columns,
    column_roles,
    columns_by_class,
)
from confide.files.frames import as_frame, frame_columns
from confide.predictions.outputs import (
    LogitOutputs,
    LogProbOutputs,
    Outputs,
    PairOutputs,
    ProbabilityOutputs,
    StreamedOutputs,
    binary_outputs,
    probability_doubt,
    probability_outputs,
)
from confide.predictions.tables import (
    DATA_FRAME,
    IMAGE,
    LABEL_NAME,
    ROW_WORDS,
    SAMPLE,
    RecordFields,
    class_indices,
    fields_of_columns,
    multilabel_fields,
    top1_outputs,
)
from confide.records import Features, Ids, default_ids, rows_of
from confide.types import AnyArray, Columns, Floats, Indices, Labels, Logits, PerSample, Probs

T = TypeVar("T")


# The rows are samples. Kinds of predictions that have several rows for what was drawn once (the pixels of an image, the
# labels of a sample, the answers to a question) are constructors that lay these out as rows, and name in `unit` the
# column that says which rows belong together. Whoever reads a record then reads them all.
@dataclass(frozen=True, eq=False, init=False, repr=False)
class Predictions:
    """What a classifier said on n samples: outputs, labels where known, ids, split, and optionally trust `n`.

    Logits only, never guessed from values: probabilities enter by `from_probs`, which remembers it.
    Rows are never recomputed: `facts` is one pass over the logits, cached.

    Args:
        logits: `n c`, the network's raw outputs; tensors, arrays, lists or columns of a data frame.
        labels: n class indices; without them whatever compares with the truth says so in one line.
        ids: n unique integers or strings; the position by default.
        split: `train`, `val` or `test`; nothing is fitted on `test`.
        outputs: instead of logits, what else is known of the outputs; the named constructors give it.
        trust: n values, high = safe.
        columns: further values of every sample by name.
        class_names: of the c classes, in their order.
        weights: how much each sample counts, n numbers of 0 or more; only their ratios matter. Metrics, calibrators and
            promises made from the record use them.
        unit: the column that says which samples were drawn as one, such as the question of several answers: intervals,
            tests and folds then count these.

    Example:
        >>> predictions = confide.Predictions([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [0, 1, 1], split="val")
        >>> predictions
        <Predictions on 'val': 3 samples, 2 classes, logits>
        >>> predictions.facts.correct.tolist()
        [True, True, False]
    """

    outputs: Outputs
    split: str | None
    trust: PerSample | None
    columns: Mapping[str, NDArray[Any]]
    class_names: tuple[str, ...] | None
    weights: Floats | None
    unit: str | None
    _labels: Labels | None
    _ids: Ids | None
    _derived: dict[Hashable, Any] = field(repr=False)
    """What was computed from the record and is kept with it: see `derived`."""

    @known_keywords
    def __init__(
        self,
        logits: Any = None,
        labels: Any = None,
        ids: Any = None,
        split: str | None = None,
        *,
        outputs: Outputs | None = None,
        trust: Any = None,
        columns: Mapping[str, AnyArray] | None = None,
        class_names: Sequence[str] | None = None,
        weights: Any = None,
        unit: str | None = None,
    ) -> None:
        if (logits is None) == (outputs is None):
            raise InputError("predictions need logits, or one of the named constructors such as Predictions.from_probs")
        known = LogitOutputs(logits) if outputs is None else outputs
        if outputs is None and (doubt := probability_doubt(known)):
            warnings.warn(f"{doubt}; if they are, use Predictions.from_probs", stacklevel=2)
        n = len(known)
        if labels is not None:
            if isinstance(known, PairOutputs):
                raise InputError("pairs of confidence and correctness take no labels; leave them out")
            labels = class_indices(labels, class_names)
            labels = check_labels(as_tensor(labels, "labels"), n, known.num_classes)
        arrays = {name: np.asarray(values) for name, values in (columns or {}).items()}
        for name, values in arrays.items():
            if not values.ndim or len(values) != n:
                got = len(values) if values.ndim else repr(values.item())[:40]
                raise InputError(f"column '{name}' must have {n} values, got {got}")
        if unit is not None and unit not in arrays:
            raise InputError(f"unit must name a column of the samples, got '{unit}'; {did_you_mean(unit, arrays)}")
        put = object.__setattr__
        put(self, "outputs", known)
        put(self, "_ids", None if ids is None else check_ids(ids, n))
        put(self, "split", split)
        put(self, "trust", None if trust is None else as_tensor(trust, "trust"))
        put(self, "columns", arrays)
        put(self, "class_names", None if class_names is None else tuple(class_names))
        put(self, "weights", None if weights is None else check_weights(weights, n))
        put(self, "unit", unit)
        put(self, "_labels", labels)
        put(self, "_derived", {})

    @classmethod
    def _of(cls, fields: RecordFields) -> Predictions:
        known = {name: getattr(fields, name) for name in RecordFields.__dataclass_fields__}
        return cls(**known)

    @classmethod
    def from_probs(
        cls, probs: Any, labels: Any = None, ids: Any = None, split: str | None = None, **record: Any
    ) -> Predictions:
        """Predictions from probabilities p, kept as they are; their logits are log max(p, 1e-12).

        Scores that need real logits (energy, max_logit) refuse them.

        Args:
            probs: `n c` with rows that sum to one, or n probabilities of class 1.
            labels: n class indices, where known.
            ids: of the samples.
            split: `train`, `val` or `test`.
            record: trust, columns, class_names, weights, unit.

        Returns:
            A record that remembers it came from probabilities.

        Raises:
            InputError: where values lie outside [0, 1] or rows do not sum to one.

        Example:
            >>> predictions = confide.Predictions.from_probs([[0.9, 0.1], [0.4, 0.6]], [0, 0])
            >>> predictions.facts.confidence
            tensor([0.9000, 0.6000], dtype=torch.float64)
        """
        return cls(None, labels, ids, split, outputs=probability_outputs(probs), **record)

    @classmethod
    def from_log_probs(
        cls, log_probs: Any, labels: Any = None, ids: Any = None, split: str | None = None, **record: Any
    ) -> Predictions:
        """Predictions from log p, such as the mean of several passes: the scale of the logits is gone.

        Args:
            log_probs: `n c`; rows need not be normalised.
            labels: n class indices, where known.
            ids: of the samples.
            split: `train`, `val` or `test`.
            record: trust, columns, class_names, weights, unit.

        Returns:
            A record that remembers it came from probabilities.

        Example:
            >>> predictions = confide.Predictions.from_log_probs([[-0.2877, -1.3863]], [0])
            >>> predictions.from_probabilities
            True
        """
        return cls(None, labels, ids, split, outputs=LogProbOutputs(log_probs), **record)

    @classmethod
    def from_binary_logits(
        cls, logits: Any, labels: Any = None, ids: Any = None, split: str | None = None, **record: Any
    ) -> Predictions:
        """Two classes from n sigmoid logits z: the probability of class 1 is 1 / (1 + exp(-z)).

        Args:
            logits: n values, one per sample.
            labels: 0 or 1, where known.
            ids: of the samples.
            split: `train`, `val` or `test`.
            record: trust, columns, class_names, weights, unit.

        Returns:
            A record with the logits [0, z] of two classes.

        Example:
            >>> confide.Predictions.from_binary_logits([0.0, 2.0], [0, 1]).logits.tolist()
            [[0.0, 0.0], [0.0, 2.0]]
        """
        outputs = binary_outputs(logits)
        if doubt := probability_doubt(outputs):
            warnings.warn(f"{doubt}; if they are, use Predictions.from_probs", stacklevel=2)
        return cls(None, labels, ids, split, outputs=outputs, **record)

    @classmethod
    def from_facts(
        cls,
        facts: Facts,
        labels: Any,
        num_classes: int,
        table: ClassTable | None = None,
        *,
        from_probabilities: bool = False,
        **record: Any,
    ) -> Predictions:
        """Predictions of which the facts are known but not the logits: what streaming over shards leaves.

        Args:
            facts: of every sample.
            labels: n class indices.
            num_classes: width of the outputs that were streamed.
            table: class-wise sums in 15 equal-width bins, closed on the right.
            from_probabilities: whether the shards held probabilities.
            record: ids, split, trust, columns, class_names, weights, unit.

        Returns:
            A record that metrics of the facts can measure.

        Example:
            >>> whole = confide.Predictions([[2.0, 0.0], [0.0, 1.0]], [0, 0])
            >>> confide.Predictions.from_facts(whole.facts, whole.labels, 2)
            <Predictions: 2 samples, 2 classes, streamed facts>
        """
        return cls(None, labels, outputs=StreamedOutputs(facts, num_classes, table, from_probabilities), **record)

    @classmethod
    def from_top1(
        cls, labels: Any, prediction: Any, confidence: Any, ids: Any = None, split: str | None = None, **record: Any
    ) -> Predictions:
        """Predictions of which only label, predicted class and confidence are known: a record with facts only.

        Args:
            labels: n class indices or words, or None.
            prediction: n predicted classes, likewise.
            confidence: their probabilities, in [0, 1].
            ids: of the samples.
            split: `train`, `val` or `test`.
            record: trust, columns, class_names, weights, unit.

        Returns:
            A record without class probabilities: calibrators refuse it, rankings and ECE do not.

        Raises:
            InputError: labels, predictions and confidences of different lengths.

        Example:
            >>> predictions = confide.Predictions.from_top1([0, 1], [0, 0], [0.9, 0.6])
            >>> float(confide.metrics.accuracy(predictions))
            0.5
        """
        outputs, truth, names = top1_outputs(labels, prediction, confidence, record.pop("class_names", None))
        return cls(None, truth, ids, split, outputs=outputs, class_names=names, **record)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        label: str = "label",
        probs: Sequence[str] | None = None,
        *,
        logits: Sequence[str] | None = None,
        prediction: str | None = None,
        confidence: str | None = None,
        correct: str | None = None,
        id: str | None = None,
        weight: str | None = None,
        split: str | None = None,
        class_names: Sequence[str] | None = None,
    ) -> Predictions:
        """Predictions from a data frame of pandas or polars, or a dictionary of columns; labels may be words.

        Columns that are not named here are understood by their names, as those of a file; others are kept as `columns`.

        Args:
            frame: a row per sample.
            label: the column of the true classes; without it the samples have no labels.
            probs: columns of probabilities, one per class in the order of the classes, or one of class 1.
            logits: columns of logits, likewise.
            prediction: the column of the predicted classes, with `confidence`.
            confidence: the column of the confidence.
            correct: the column that says whether an answer was right, with `confidence`.
            id: the column of the ids.
            weight: the column that says how much each sample counts.
            split: `train`, `val` or `test`.
            class_names: of the classes; by default the names of the columns of probabilities or logits.

        Returns:
            The record.

        Raises:
            InputError: a column is not there, or two may hold the same thing.

        Example:
            >>> frame = {"cat": [0.9, 0.2], "dog": [0.1, 0.8], "label": ["cat", "cat"], "site": ["A", "B"]}
            >>> predictions = confide.Predictions.from_frame(frame, probs=["cat", "dog"])
            >>> predictions.facts.correct.tolist(), list(predictions.columns)
            ([True, False], ['site'])
        """
        columns = frame_columns(frame)
        outputs = {"probs": probs, "logits": logits}
        one_each = {"prediction": prediction, "confidence": confidence, "correct": correct, "id": id, "weight": weight}
        if label != "label" or label in columns:
            one_each["label"] = label
        by_role = {role: [name] for role, name in one_each.items() if name is not None}
        by_role |= {
            kind: [names] if isinstance(names, str) else list(names) for kind, names in outputs.items() if names
        }
        for name in (name for names in by_role.values() for name in names):
            if name not in columns:
                raise InputError(f"{DATA_FRAME} has no column '{name}'; {did_you_mean(name, columns)}")
        table, metadata = {}, {}
        for role, names in by_role.items():
            several = np.stack([columns[name] for name in names], axis=1) if len(names) > 1 else columns[names[0]]
            table[CANONICAL_COLUMNS[role]] = several
            if role in outputs and len(names) > 1:
                metadata["class_names"] = json.dumps(class_names or classes_of_columns(names))
        if class_names is not None:
            metadata["class_names"] = json.dumps(list(class_names))
        rest = {name: v for name, v in columns.items() if name not in {n for names in by_role.values() for n in names}}
        # A role that was named hides other columns that might have it.
        hidden = {name for name in rest if any(name in ROLE_COLUMNS[role] for role in by_role)}
        table |= {name: values for name, values in rest.items() if name not in hidden}
        predictions = predictions_from_columns(table, metadata, split, DATA_FRAME)
        return predictions.replace(columns={**predictions.columns, **{name: rest[name] for name in hidden}})

    @classmethod
    def from_pairs(
        cls,
        correct: Any,
        confidence: Any,
        ids: Any = None,
        *,
        split: str | None = None,
        trust: Any = None,
        weights: Any = None,
        unit: str | None = None,
        **columns: Any,
    ) -> Predictions:
        """Pairs (confidence, correct) and nothing else: answers of any system that says how sure it is.

        Args:
            correct: 0 or 1, whether the answer was right; None where that is not known.
            confidence: in [0, 1].
            ids: of the samples.
            split: `train`, `val` or `test`.
            trust: n values, high = safe.
            weights: how much each sample counts.
            unit: the column that says which answers were drawn as one, such as those to one question.
            columns: further values of every sample, by name.

        Returns:
            A record without classes: accuracy, ECE, rankings, operating points and calibrators of a confidence
            (temperature, Platt, beta, isotonic, histogram, spline) work, class-wise things do not.

        Example:
            >>> predictions = confide.Predictions.from_pairs([1, 1, 0, 1], [0.9, 0.8, 0.3, 0.6])
            >>> float(confide.metrics.auroc(predictions))
            1.0
        """
        outputs = PairOutputs(correct, confidence)
        record = {"trust": trust, "columns": columns, "weights": weights, "unit": unit}
        return cls(None, None, ids, split, outputs=outputs, **record)

    @classmethod
    def multilabel(
        cls,
        logits: Any = None,
        labels: Any = None,
        ids: Any = None,
        split: str | None = None,
        *,
        probs: Any = None,
        label_names: Sequence[str] | None = None,
        columns: Mapping[str, AnyArray] | None = None,
    ) -> Predictions:
        """Several labels a sample, each yes or no: a row of two classes for every label of a sample that is known.

        The rows name their label in the column `label_name` and their sample in `sample`, which is the unit that
        intervals, tests and folds count.

        Args:
            logits: `n c`, a sigmoid logit for every label.
            labels: `n c` of 0 and 1; NaN, -1 or None where it is not known: such cells make no row. Without labels
                every cell is a row.
            ids: n, of the samples.
            split: `train`, `val` or `test`.
            probs: instead of logits, the probabilities that the labels hold.
            label_names: of the c labels; their numbers by default.
            columns: further values of every sample by name.

        Returns:
            A record of two classes, absent and present; ids are `sample/label`.

        Raises:
            InputError: the shapes differ, or a label is neither 0, 1 nor missing.

        Example:
            >>> logits, labels = [[2.0, -1.0], [0.5, 3.0]], [[1, 0], [-1, 1]]
            >>> p = confide.Predictions.multilabel(logits, labels, label_names=["cat", "dog"])
            >>> p.columns["label_name"].tolist(), p.labels.tolist(), p.columns["sample"].tolist()
            (['cat', 'dog', 'dog'], [1, 0, 1], [0, 0, 1])
        """
        fields = multilabel_fields(logits, labels, ids, split, probs, label_names, columns)
        return cls._of(fields)

    @property
    def is_multilabel(self) -> bool:
        """Whether the rows are labels of samples, as `multilabel` lays them out."""
        return self.unit == SAMPLE and LABEL_NAME in self.columns

    def __len__(self) -> int:
        return len(self.outputs)

    def __repr__(self) -> str:
        """One line for a console."""
        split = f" on '{self.split}'" if self.split else ""
        classes = f", {self.num_classes} classes" if self.num_classes else ""
        judged = isinstance(self.outputs, PairOutputs) and self.outputs.correct is not None
        unlabelled = "" if self._labels is not None or judged else ", no labels"
        return f"<Predictions{split}: {len(self):,} samples{classes}, {self.outputs.words}{unlabelled}>"

    @property
    def ids(self) -> Ids:
        """The id of every sample; positions, made when they are first asked for, where none were given."""
        return self.derived("ids", lambda: default_ids(len(self))) if self._ids is None else self._ids

    @property
    def has_labels(self) -> bool:
        """Whether the true classes are known."""
        return self._labels is not None

    @property
    def labels(self) -> Labels:
        """The true classes; an error where there are none."""
        return self.need_labels("this")

    @property
    def logits(self) -> Logits:
        """The logits `n c`; an error where not every class is known."""
        return self.need_logits("this")

    @property
    def from_probabilities(self) -> bool:
        """Whether the logits are only logarithms of probabilities: their scale is lost."""
        return not self.outputs.real_logits

    @property
    def num_classes(self) -> int:
        """Number of classes; for top-1 records as many as labels and predictions show, for pairs 0."""
        if self.outputs.num_classes is not None:
            return self.outputs.num_classes
        shown = [int(v.max()) for v in (self._labels, self.core_facts.predicted) if v is not None and len(v)]
        return max(shown, default=-1) + 1

    def derived(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` gives, computed once and kept with the record.

        Args:
            key: what it is; the type of the result is a good one.
            make: how it is computed from the record, which never changes.

        Returns:
            The one that was kept.

        Example:
            >>> predictions = confide.Predictions([[2.0, 0.0]], [0])
            >>> predictions.derived("sum", lambda: float(predictions.logits.sum()))
            2.0
        """
        if key not in self._derived:
            self._derived.setdefault(key, make())
        value: T = self._derived[key]
        return value

    @property
    def facts(self) -> Facts:
        """confidence, prediction, correct, entropy, margin, p_true, nll, brier: one pass, cached."""
        return self.derived(Facts, lambda: self.outputs.facts(self._labels))

    @property
    def core_facts(self) -> Facts:
        """The facts that nearly all metrics are made of, without margin and largest logit: less time and memory."""
        if Facts in self._derived:
            return self.facts
        return self.derived((Facts, "core"), lambda: self.outputs.facts(self._labels, core=True))

    @property
    def clusters(self) -> NDArray[np.intp] | None:
        """Which samples were drawn as one, as numbers from 0; None where each was drawn by itself."""
        if self.unit is None:
            return None
        column = self.columns[self.unit]

        def numbered() -> NDArray[np.intp] | None:
            units, member = np.unique(column, return_inverse=True)
            return None if len(units) == len(column) else member.reshape(-1).astype(np.intp)

        return self.derived("clusters", numbered)

    def class_table(self, bins: int = 15, closed: str = "right") -> ClassTable:
        """Sums of p_c per class and equal-width bin, from the same pass as the facts if those were not yet there.

        Args:
            bins: how many.
            closed: `right` for (low, high], `left` for [low, high).

        Returns:
            Count, summed probability and hits, each `c bins`; every sample counts by its weight over the mean weight.

        Example:
            >>> predictions = confide.Predictions.from_probs([[0.9, 0.1], [0.4, 0.6]], [0, 1])
            >>> predictions.class_table(bins=2).count.tolist()
            [[1.0, 1.0], [1.0, 1.0]]
        """
        if isinstance(self.outputs, StreamedOutputs) and self.outputs.table and (bins, closed) == (15, "right"):
            return self.outputs.table

        def counted() -> ClassTable:
            self.need_logits("class-wise calibration")
            counter = ClassCounter(self.num_classes, bins, closed, self.relative_weights)
            self._derived.setdefault((Facts, "core"), self.outputs.facts(self.labels, counter, core=True))
            return counter.table()

        return self.derived((ClassTable, bins, closed), counted)

    def need_logits(self, purpose: str) -> Logits:
        """The logits, or an error where not every class probability is in memory.

        Args:
            purpose: who needs them, for the message.

        Returns:
            `n c`.

        Example:
            >>> confide.Predictions([[2.0, 0.0]], [0]).need_logits("a calibrator").shape
            torch.Size([1, 2])
        """
        return self.outputs.need_logits(purpose)

    def need_labels(self, purpose: str) -> Labels:
        """The true classes, or an error where there are none.

        Args:
            purpose: who needs them, for the message.

        Returns:
            n class indices.

        Raises:
            InputError: the predictions have no labels, or no classes.

        Example:
            >>> confide.Predictions([[2.0, 0.0]], [0]).need_labels("a metric").tolist()
            [0]
        """
        if isinstance(self.outputs, PairOutputs):
            raise InputError(
                f"{purpose} needs classes, but these predictions hold only {self.outputs.words}; "
                f"{instead_of_classes(self)}"
            )
        if self._labels is None:
            hint = f"; their other columns are {', '.join(list(self.columns)[:8])}" if self.columns else ""
            raise InputError(
                f"{purpose} needs labels, but these predictions have none{hint}; give them with the outputs, "
                "in a file as the column 'label'"
            )
        return self._labels

    def probabilities(self) -> Probs:
        """All probabilities `n c`, at least float32: as given, or the softmax of the logits.

        Returns:
            Rows that sum to one.

        Example:
            >>> confide.Predictions([[0.0, 0.0]], [0]).probabilities().tolist()
            [[0.5, 0.5]]
        """
        return self.outputs.need_probs("this")

    def need_not_test(self, purpose: str) -> None:
        """Refuse to fit on a split called `test`.

        Args:
            purpose: what would be fitted, for the message.

        Raises:
            InputError: where the split is `test`.

        Example:
            >>> confide.Predictions([[2.0, 0.0]], [0], split="val").need_not_test("a calibrator")
        """
        if self.split == "test":
            raise InputError(f"{purpose} must not be fitted on the test split; pass the predictions on 'val'")

    def need_drawn_singly(self, purpose: str) -> None:
        """Refuse samples that were drawn several as one, where a promise counts each by itself.

        Args:
            purpose: what is promised, for the message.

        Raises:
            InputError: where the samples have a `unit`, and several of one.

        Example:
            >>> confide.Predictions([[2.0, 0.0]], [0]).need_drawn_singly("an operating point")
        """
        if self.clusters is not None:
            units = int(self.clusters.max()) + 1
            raise InputError(
                f"{purpose} counts samples drawn one by one, but these are {len(self):,} of {units:,} units "
                f"('{self.unit}'); {instead_of_units(self)}"
            )

    def need_classes(self, what: str, num_classes: int, class_names: tuple[str, ...] | None) -> None:
        """Refuse what was made for other classes, or for these in another order.

        Args:
            what: is put to use, for the message.
            num_classes: it was made for.
            class_names: of these, where they were known.

        Raises:
            InputError: where number or names differ; a table of top-1 predictions may lack classes.

        Example:
            >>> confide.Predictions([[2.0, 0.0]], [0]).need_classes("an operating point", 2, ("cat", "dog"))
        """
        if self.outputs.all_classes and num_classes != self.num_classes:
            raise InputError(
                f"the predictions must be of the {num_classes} classes of {what}, got {self.num_classes}; "
                "make it anew for this model"
            )
        if _are_names(class_names) and _are_names(self.class_names):
            for k, (made_for, came) in enumerate(zip_longest(class_names or (), self.class_names or ())):
                if made_for != came:
                    raise InputError(
                        f"class {k} must be {made_for!r} as in {what}, got {came!r}; put the classes of the "
                        "predictions into its order, or make it anew for this model"
                    )

    def replace(self, **changes: Any) -> Predictions:
        """The same samples with some fields changed; facts are kept where outputs and labels stay.

        Args:
            changes: labels, ids, split, trust, columns, class_names, weights, unit or outputs.

        Returns:
            Another record.

        Raises:
            InputError: other logits are given.

        Example:
            >>> confide.Predictions([[2.0, 0.0]], [0]).replace(split="val")
            <Predictions on 'val': 1 samples, 2 classes, logits>
        """
        if "logits" in changes:
            raise InputError("replace keeps the outputs of the samples, got other logits; use with_logits for these")
        names = ("outputs", "split", "trust", "columns", "class_names", "weights", "unit")
        now = {"labels": self._labels, "ids": self._ids, **{name: getattr(self, name) for name in names}}
        if "weights" in changes and isinstance(self.outputs, StreamedOutputs):
            # Its sums of classes were made with the weights it had.
            known, changed_weights = self.weights, changes["weights"]
            same = (
                known is not None
                and changed_weights is not None
                and np.allclose(known / known.mean(), changed_weights / np.mean(changed_weights))
            )
            now["outputs"] = self.outputs if same else replace(self.outputs, table=None)
        changed = Predictions(**{**now, **changes})
        if changed.outputs is self.outputs and "labels" not in changes:
            stay = Facts if "weights" in changes else (Facts, ClassTable)
            changed._derived.update({key: value for key, value in self._derived.items() if isinstance(value, stay)})
        return changed

    def weighted(self, weights: Any) -> Predictions:
        """The same samples with these weights: metrics, calibrators and promises made from the record use them.

        Args:
            weights: n numbers of 0 or more, or the name of a column; None leaves the record as it is.

        Returns:
            Another record. Only ratios of weights matter; a sample of weight 0 counts as if it were not there.

        Raises:
            InputError: a weight is below 0 or no number, all are 0, or there is no such column.

        Example:
            >>> predictions = confide.Predictions([[2.0, 0.0], [0.0, 1.0]], [0, 0])
            >>> float(confide.metrics.accuracy(predictions.weighted([3, 1])))
            0.75
        """
        if weights is None:
            return self
        if isinstance(weights, str):
            if weights not in self.columns:
                if weights == WEIGHT_COLUMN and self.weights is not None:
                    return self
                raise InputError(f"no weights named '{weights}'; {did_you_mean(weights, self.columns)}")
            weights = self.columns[weights]
        return self.replace(weights=weights)

    def class_shares(self) -> Floats:
        """How large a share of the samples every class is, by weight.

        Returns:
            c numbers that sum to one.

        Example:
            >>> confide.Predictions([[2.0, 0.0], [0.0, 1.0]], [0, 1], weights=[3, 1]).class_shares().tolist()
            [0.75, 0.25]
        """
        labels = self.need_labels("the share of every class").cpu().numpy()
        counts = np.bincount(labels, self.weights, minlength=self.num_classes)
        return np.asarray(counts / counts.sum(), dtype=np.float64)

    def weighted_by_class(self, prior: Any) -> Predictions:
        """The same samples, every class counting by its share of another population: of samples drawn by class.

        Args:
            prior: shares (or counts) of the classes there, c numbers in their order or {name: number}; None leaves the
                record as it is.

        Returns:
            Another record, with the weights it had times prior / share of the label.

        Raises:
            InputError: shares that are none, or a class without samples.

        Example:
            >>> predictions = confide.Predictions([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [0, 0, 1])
            >>> predictions.weighted_by_class([0.9, 0.1]).class_shares().round(6).tolist()
            [0.9, 0.1]
        """
        if prior is None:
            return self
        target, shares = self._prior(prior), self.class_shares()
        missing = np.flatnonzero(shares == 0)
        if len(missing):
            raise InputError(
                f"a prior needs samples of every class, but class {class_words(self)[missing[0]]} has none; "
                "leave it out of the model, or add samples of it"
            )
        own = np.ones(len(self)) if self.weights is None else self.weights
        return self.replace(weights=own * (target / shares)[self.labels.cpu().numpy()])

    def with_prior(self, prior: Any, trained: Any) -> Predictions:
        """What the model says of another population, by Bayes: p(k) prior(k) / trained(k), normalised.

        Exact where classes differ only in how frequent they are: of a model that was trained on classes drawn in other
        shares than those it meets, if its probabilities are right for the shares it was trained on.

        Args:
            prior: shares (or counts) of the classes where it is used, c numbers in their order or {name: number}.
            trained: those that its probabilities are for.

        Returns:
            The same samples with the corrected logits or probabilities.

        Raises:
            InputError: shares that are none.

        Example:
            >>> balanced = confide.Predictions.from_probs([[0.5, 0.5]])
            >>> balanced.with_prior([0.9, 0.1], trained=[0.5, 0.5]).probabilities().tolist()
            [[0.9, 0.1]]
        """
        logits = self.need_logits("a correction of class shares")
        ratio = torch.from_numpy(self._prior(prior) / self._prior(trained, "trained")).to(logits.device)
        if isinstance(self.outputs, ProbabilityOutputs):
            probs = self.outputs.probs.double() * ratio
            return self.replace(outputs=ProbabilityOutputs((probs / probs.sum(1, keepdim=True)).to(logits.dtype)))
        return self.with_logits((logits.double() + ratio.log()).to(logits.dtype))

    def _prior(self, prior: Any, name: str = "prior") -> Floats:
        """Shares of the classes, checked."""
        if isinstance(prior, Mapping):
            words = class_words(self)
            unknown = [key for key in prior if str(key) not in words]
            if unknown or len(prior) != len(words):
                named = did_you_mean(str(unknown[0]), words) if unknown else f"classes: {', '.join(words)}"
                raise InputError(f"{name} must give a share to every class, got {', '.join(map(str, prior))}; {named}")
            by_word = {str(key): value for key, value in prior.items()}
            prior = [by_word[word] for word in words]
        shares = as_tensor(prior, name).double().cpu().numpy()
        if shares.shape != (self.num_classes,) or not (np.isfinite(shares) & (shares > 0)).all():
            raise InputError(
                f"{name} must be {self.num_classes} shares above 0, one a class, got {printable(str(shares))[:60]}"
            )
        return np.asarray(shares / shares.sum(), dtype=np.float64)

    @property
    def relative_weights(self) -> Floats | None:
        """The weights over their mean; None where all samples count alike."""

        def relative() -> Floats | None:
            if self.weights is None or not len(self) or (self.weights == self.weights[0]).all():
                return None
            return np.asarray(self.weights / self.weights.mean())

        return self.derived("relative weights", relative)

    @property
    def weighted_rows(self) -> Indices | None:
        """The samples whose weight is above 0; None where that is all of them."""
        if self.weights is None or bool((self.weights > 0).all()):
            return None
        return np.flatnonzero(self.weights > 0)

    def need_unweighted(self, purpose: str) -> None:
        """Refuse samples that do not all count alike, for what has no weighted form.

        Args:
            purpose: what has none, for the message.

        Raises:
            InputError: where weights differ.

        Example:
            >>> confide.Predictions([[2.0, 0.0]], [0], weights=[2.0]).need_unweighted("a count")
        """
        if self.relative_weights is not None:
            raise InputError(
                f"{purpose} needs samples that all count alike, got weights that differ; "
                "leave them out with predictions.replace(weights=None)"
            )

    def counted(self) -> Predictions:
        """Without the samples of weight 0, which count as if they were not there.

        Returns:
            The record itself where there are none.

        Example:
            >>> predictions = confide.Predictions([[2.0, 0.0], [0.0, 1.0]], [0, 0], weights=[1.0, 0.0])
            >>> len(predictions.counted())
            1
        """
        rows = self.weighted_rows
        return self if rows is None else self.take(rows)

    def with_column(self, name: str, values: Any) -> Predictions:
        """The same predictions with one more column, or another in its place.

        Args:
            name: of the column.
            values: one per sample.

        Returns:
            Another record.

        Example:
            >>> list(confide.Predictions([[2.0, 0.0]], [0]).with_column("site", ["A"]).columns)
            ['site']
        """
        return self.replace(columns={**self.columns, name: np.asarray(values)})

    def with_logits(self, logits: Any, *, real: bool | None = None) -> Predictions:
        """The same samples with other logits (what a calibrator returns).

        Args:
            logits: `n c`.
            real: False where they are logarithms of probabilities; by default as the logits were before.

        Returns:
            Another record.

        Example:
            >>> predictions = confide.Predictions([[2.0, 0.0]], [0])
            >>> predictions.with_logits(predictions.logits / 2).logits.tolist()
            [[1.0, 0.0]]
        """
        is_real = self.outputs.real_logits if real is None else real
        return self.replace(outputs=LogitOutputs(logits) if is_real else LogProbOutputs(logits))

    def take(self, rows: Any) -> Predictions:
        """The chosen rows, in the order given.

        Args:
            rows: an index array or a boolean mask.

        Returns:
            A record of these samples; facts that were computed are taken along.

        Example:
            >>> confide.Predictions([[2.0, 0.0], [0.0, 1.0]], [0, 1]).take([1]).ids.tolist()
            [1]
        """
        index = np.asarray(rows)
        index = index.nonzero()[0] if index.dtype == bool else index.astype(np.intp)
        at = torch.as_tensor(index, dtype=torch.int64)
        taken = Predictions(
            None,
            None if self._labels is None else self._labels[at],
            np.where(index < 0, index + len(self), index) if self._ids is None else self._ids[index],
            self.split,
            outputs=self.outputs.take(at),
            trust=None if self.trust is None else self.trust[at],
            columns={name: values[index] for name, values in self.columns.items()},
            class_names=self.class_names,
            unit=self.unit,
        )
        if self.weights is not None:  # a part may hold none but samples of weight 0
            object.__setattr__(taken, "weights", self.weights[index])
        for key in (Facts, (Facts, "core")):
            if key in self._derived:
                taken._derived[key] = self._derived[key].take(at)
        return taken

    def align(self, ids: Ids) -> Predictions:
        """The rows of these ids, in their order.

        Args:
            ids: all of them must be there.

        Returns:
            A record of these samples.

        Example:
            >>> predictions = confide.Predictions([[2.0, 0.0], [0.0, 1.0]], [0, 1], ids=["a", "b"])
            >>> predictions.align(["b", "a"]).labels.tolist()
            [1, 0]
        """
        return self.take(rows_of(ids, self.ids, "predictions"))

    def save(self, path: str | Path) -> None:
        """Write as .parquet (`id, label, logits`), .npz or .csv; metadata keeps split and origin.

        Args:
            path: its ending chooses the format; csv has a column for every class, of what the record holds.

        Raises:
            InputError: a column has a name that a file uses for something else.

        Example:
            >>> confide.Predictions([[2.0, 0.0]], [0], split="val").save("val.parquet")
        """
        columns: dict[str, NDArray[Any]] = {"id": self.ids}
        if self._labels is not None:
            columns["label"] = self._labels.cpu().numpy()
        text = str(path).endswith(".csv")
        outputs = self.outputs.columns(text=text)
        if text and self.class_names and self.outputs.all_classes:
            outputs = columns_by_class(outputs, self.class_names, [*columns, *self.columns])
        columns |= outputs
        if self.trust is not None:
            columns["trust"] = self.trust.cpu().numpy()
        if self.weights is not None:
            columns[WEIGHT_COLUMN] = self.weights
        roles = column_roles([*columns, *(name for name in self.columns if name not in columns)], str(path))
        if lost := [name for name in self.columns if name not in roles.others]:
            raise InputError(
                f"{path} would not give the column '{lost[0]}' back, a file has its own use for that name; rename it"
            )
        columns |= self.columns
        metadata = {"confide": formats.PREDICTIONS.tag, "from_probabilities": str(self.from_probabilities)}
        if self._labels is None:
            metadata["labels"] = "none"
        if self.split:
            metadata["split"] = self.split
        if self.class_names:
            metadata["class_names"] = json.dumps(self.class_names)
        if self.unit:
            metadata["unit"] = self.unit
        formats.write_table(path, columns, metadata)

    def to_frame(self, library: str | None = None) -> Any:
        """A data frame with a row per sample: id, label, predicted class, confidence, correctness, columns.

        Args:
            library: `pandas` or `polars`; by default the one in use or installed.

        Returns:
            The data frame; classes by name where these are known.

        Example:
            >>> confide.Predictions([[2.0, 0.0]], [0]).to_frame().columns  # doctest: +SKIP
            Index(['id', 'label', 'prediction', 'confidence', 'correct'], dtype='object')
        """
        facts, names = self.facts, None if self.class_names is None else np.array(self.class_names)

        def named(classes: Tensor) -> NDArray[Any]:
            return classes.cpu().numpy() if names is None else names[classes.cpu().numpy()]

        rows: dict[str, NDArray[Any]] = {"id": self.ids}
        if self._labels is not None:
            rows["label"] = named(self._labels)
        if facts.predicted is not None:
            rows["prediction"] = named(facts.predicted)
        rows["confidence"] = facts.sureness()
        if facts.right is not None:
            rows["correct"] = facts.right.cpu().numpy()
        if self.trust is not None:
            rows["trust"] = self.trust.cpu().numpy()
        if self.weights is not None:
            rows[WEIGHT_COLUMN] = self.weights
        return as_frame(
            {**rows, **{name: values for name, values in self.columns.items() if name not in rows}}, library
        )

    @classmethod
    def load(cls, path: str | Path, split: str | None = None) -> Predictions:
        """Read .parquet, .npz, .csv or .jsonl: `logits` or `probs`, a top-1 table, or `correct` and `confidence`.

        Args:
            path: of the file.
            split: overrides the split the file names.

        Returns:
            The record, without labels where the file has none; columns that have no role of their own are kept as
            `columns`.

        Raises:
            InputError: where outputs are missing (it lists the names that are understood), or two columns may hold
                the same thing (it names both).

        Example:
            >>> confide.Predictions([[2.0, 0.0]], [0], split="val").save("val.npz")
            >>> confide.Predictions.load("val.npz")
            <Predictions on 'val': 1 samples, 2 classes, logits>
        """
        columns, metadata = formats.read_table(path)
        return predictions_from_columns(columns, metadata, split, str(path))


def row_word(predictions: Predictions) -> str:
    """What the rows of a record are called, by what was drawn as one."""
    if predictions.unit == IMAGE:
        return "boxes" if isinstance(predictions.outputs, PairOutputs) else "pixels"
    return ROW_WORDS.get(predictions.unit or "", "samples")


def class_values(predictions: Predictions, purpose: str) -> Tensor:
    """The probabilities or logits of every class, as they came; an error where not every class is known."""
    outputs = predictions.outputs
    return outputs.probs if isinstance(outputs, ProbabilityOutputs) else outputs.need_logits(purpose)


def need_predictions(value: Any, purpose: str) -> None:
    """Refuse arrays and the like where a record is needed."""
    if not isinstance(value, Predictions):
        raise InputError(
            f"{purpose} needs Predictions, got {type(value).__name__}; wrap outputs: Predictions(logits, labels)"
        )


def label_doubt(predictions: Predictions) -> str:
    """A question where no label is 0 and the class before each label is predicted more often than the label."""
    if not predictions.has_labels or not len(predictions) or int(predictions.labels.min()) != 1:
        return ""
    predicted = predictions.core_facts.predicted
    if predicted is None:
        return ""
    before = int((predicted == predictions.labels - 1).sum())
    if before <= int(predictions.core_facts.correct.sum()):
        return ""
    share = before / len(predictions)
    return f"no label is 0, and the class before the label is predicted for {share:.0%}: do labels start at 1?"


def class_words(predictions: Predictions) -> list[str]:
    """What the classes are called: their names, or their numbers."""
    return list(predictions.class_names or map(str, range(predictions.num_classes)))


def probability_blocks(predictions: Predictions, purpose: str) -> Iterator[tuple[slice, NDArray[np.floating]]]:
    """(rows, their probabilities, at least float32) by blocks that stay in cache, so that memory does not double."""
    values = class_values(predictions, purpose)
    holds_probs = isinstance(predictions.outputs, ProbabilityOutputs)
    step = rows_in(CACHED_FLOAT64, values.shape[1])
    for start in range(0, len(values), step):
        rows = slice(start, min(start + step, len(values)))
        block = values[rows].to(torch.promote_types(values.dtype, torch.float32))
        probs = (block if holds_probs else torch.softmax(block, dim=1)).cpu().numpy()
        if np.isnan(probs[:, 0]).any():
            check_finite(values, "logits")
        yield rows, probs


def predictions_from_columns(
    columns: Columns, metadata: Mapping[str, str], split: str | None, where: str
) -> Predictions:
    """Predictions from named columns. What is doubtful about them is a warning."""
    predictions = Predictions._of(fields_of_columns(columns, metadata, split, where))
    if predictions.is_multilabel:
        return predictions
    _check_judgement(predictions, where)
    if doubt := probability_doubt(predictions.outputs, where):
        warnings.warn(f"{doubt}; if they are, call the column 'probs'", stacklevel=3)
    return predictions


def _check_judgement(predictions: Predictions, where: str) -> None:
    """A column `correct` beside labels and predicted classes must say what these say."""
    name = next((name for name in CORRECT_COLUMNS if name in predictions.columns), None)
    right = predictions.core_facts.right if name is not None else None
    if name is None or right is None or predictions.columns[name].dtype.kind not in "biuf":
        return
    differs = np.flatnonzero(predictions.columns[name].astype(np.float64) != right.cpu().numpy())
    if len(differs):
        raise InputError(
            f"column '{name}' of {where} must agree with its labels and predicted classes, but differs at "
            f"{len(differs)} of {len(right)} samples, first at sample {differs[0]}; drop '{name}', or the columns of "
            "classes where the judgement is what counts"
        )


def feature_rows(predictions: Predictions, features: Any, name: str = "features") -> Tensor:
    """Feature rows `n d` in the order of the predictions, float32 or float64, checked to be finite."""
    n = len(predictions)
    if isinstance(features, Features):
        # Words name samples, so more rows than predictions do no harm; numbers may count rows of another split.
        if len(features) != n and features.ids.dtype.kind != "U":
            raise InputError(f"{name} must be of the {n} predicted samples, got {len(features)}; pass the same split")
        # Arrays without ids of their own count positions, as predictions without ids do.
        at = rows_of(predictions.ids, features.ids, name)
        values = features.values[at] if not np.array_equal(at, np.arange(n)) else features.values[:]
    else:
        values = features
    rows = as_tensor(values, name)
    if rows.ndim != 2 or len(rows) != n:
        raise InputError(f"{name} must be {n} x d, one row per prediction, got shape {tuple(rows.shape)}")
    rows = rows if rows.dtype in (torch.float32, torch.float64) else rows.to(torch.float32)
    # By blocks, and only their sums: a test of every value at once would hold the rows twice more.
    if not all(bool(torch.isfinite(block.sum())) for block in torch.split(rows, FEATURE_ROWS)):
        check_finite(rows, name)
    return rows


def _are_names(class_names: tuple[str, ...] | None) -> bool:
    """Whether these are words; numbers from 0 stand for no names."""
    return class_names is not None and class_names != tuple(map(str, range(len(class_names))))


def instead_of_classes(predictions: Predictions) -> str:
    """What pairs of confidence and correctness have in place of what needs classes."""
    named = f", or group by a column: {', '.join(list(predictions.columns)[:6])}" if predictions.columns else ""
    return f"of these evaluate, calibrate, compare and operating points work{named}"


def instead_of_units(predictions: Predictions) -> str:
    """What samples drawn several as one have in place of what counts each by itself."""
    if predictions.is_multilabel:
        return "of labels there are label_thresholds (confide labels), or take the rows of one label"
    if predictions.unit == IMAGE:
        return "evaluate, calibrate and compare count images; or take one row of each image"
    return "take one of each unit, or replace(unit=None) where they are independent"
