"""Tables of predictions: columns of a file or a data frame, and labels by sample, laid out as the rows of a record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from confide.checks import (
    InputError,
    as_tensor,
    check_ids,
    check_labels,
)
from confide.files.columns import (
    SCORE_COLUMNS,
    ColumnRoles,
    are_words,
    class_indices_of,
    class_names_of,
    column_roles,
)
from confide.files.frames import column_array
from confide.predictions.outputs import (
    LogitOutputs,
    LogProbOutputs,
    Outputs,
    PairOutputs,
    Top1Outputs,
    binary_outputs,
    check_confidence,
    probability_outputs,
)
from confide.records import default_ids
from confide.types import AnyArray, Columns

SAMPLE, LABEL_NAME = "sample", "label_name"
"""Columns of multilabel predictions: the sample that a row belongs to, and which of its labels it is."""
IMAGE = "image"
"""The column of the image that a pixel or a box belongs to."""
ROW_WORDS = {SAMPLE: "labels", "question": "answers"}
"""What the rows of a unit are called."""


@dataclass(frozen=True, eq=False)
class RecordFields:
    """What a record of predictions is made of, as its constructor takes it."""

    outputs: Outputs
    labels: Any = None
    ids: Any = None
    split: str | None = None
    trust: Any = None
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    class_names: Sequence[str] | None = None
    weights: Any = None
    unit: str | None = None


def class_indices(labels: Any, class_names: Sequence[str] | None) -> Any:
    """Labels that are words as class indices; others as they are."""
    if isinstance(labels, Tensor):
        return labels
    array = column_array(labels)
    names = None if class_names is None else tuple(class_names)
    words = array.ndim == 1 and len(array) > 0 and are_words(array)
    return class_indices_of(array, names, "the predictions") if words else labels


def top1_outputs(
    labels: Any, prediction: Any, confidence: Any, class_names: Sequence[str] | None
) -> tuple[Top1Outputs, Tensor | None, tuple[str, ...] | None]:
    """Predicted classes with their confidence, labels where known, and names of the classes where these are words."""
    names = None if class_names is None else tuple(class_names)
    words = [column_array(v) for v in (labels, prediction) if v is not None and not isinstance(v, Tensor)]
    if names is None and len(words) == 1 + (labels is not None) and all(map(are_words, words)):
        names = tuple(np.unique(np.concatenate(words).astype(np.str_)).tolist())
    predicted = as_tensor(class_indices(prediction, names), "prediction")
    values = as_tensor(confidence, "confidence")
    truth = None if labels is None else as_tensor(class_indices(labels, names), "labels")
    lengths = [len(vector) for vector in (truth, predicted, values) if vector is not None]
    if len(set(lengths)) > 1:
        raise InputError(f"labels, prediction and confidence must have one length, got {', '.join(map(str, lengths))}")
    predicted = check_labels(predicted, len(values), None, "prediction")
    return Top1Outputs(predicted, check_confidence(values)), truth, names


def multilabel_fields(
    logits: Any,
    labels: Any,
    ids: Any,
    split: str | None,
    probs: Any,
    label_names: Sequence[str] | None,
    columns: Mapping[str, AnyArray] | None,
) -> RecordFields:
    """A row of two classes for every label of a sample that is known, label by label."""
    if (logits is None) == (probs is None):
        raise InputError("multilabel predictions need logits or probs, n x c; give one of them")
    values = as_tensor(logits if probs is None else probs, "logits" if probs is None else "probs")
    if values.ndim != 2:
        raise InputError(f"multilabel outputs must be n x c, a column a label, got shape {tuple(values.shape)}")
    n, c = values.shape
    names = np.array([str(k) for k in range(c)] if label_names is None else list(label_names))
    if len(names) != c or len(set(names.tolist())) != c:
        raise InputError(f"label_names must be {c} different names, one a column, got {len(names)}")
    samples = default_ids(n) if ids is None else check_ids(ids, n)
    known = np.ones((n, c), dtype=bool)
    truth = None
    if labels is not None:
        matrix = labels if isinstance(labels, (Tensor, np.ndarray)) else _without_gaps(labels)
        table = as_tensor(matrix, "labels").double().cpu().numpy()
        if table.shape != (n, c):
            raise InputError(f"multilabel labels must be {n} x {c} as the outputs, got shape {table.shape}")
        known = ~(np.isnan(table) | (table == -1))
        if not np.isin(table[known], (0.0, 1.0)).all():
            row, column = np.argwhere(known & ~np.isin(table, (0.0, 1.0)))[0]
            raise InputError(
                f"multilabel labels must be 0, 1 or missing (NaN, -1), got {table[row, column]:g} at sample {row}, "
                f"label '{names[column]}'; mend it or leave it missing"
            )
        truth = table.T[known.T].astype(np.int64)
    places, rows = np.nonzero(known.T)  # label by label, so that labels come in their order
    cells = values[torch.from_numpy(rows), torch.from_numpy(places)]
    own_columns = {name: np.asarray(own) for name, own in (columns or {}).items()}
    for name, own in own_columns.items():
        if own.shape[:1] != (n,):
            raise InputError(f"column '{name}' must hold {n} values, one a sample, got shape {own.shape}")
    row_columns = {name: own[rows] for name, own in own_columns.items()}
    return RecordFields(
        binary_outputs(cells) if probs is None else probability_outputs(cells),
        truth,
        ids=np.array([f"{samples[i]}/{names[k]}" for i, k in zip(rows, places, strict=True)]),
        split=split,
        columns={**row_columns, SAMPLE: samples[rows], LABEL_NAME: names[places]},
        class_names=("absent", "present"),
        unit=SAMPLE,
    )


def _without_gaps(labels: Any) -> Any:
    """Lists of labels as an array of numbers, None as NaN; other things as they are, for the checks to refuse."""
    try:
        return np.array(labels, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return labels


def fields_of_columns(columns: Columns, metadata: Mapping[str, str], split: str | None, where: str) -> RecordFields:
    """What a record of these named columns holds; `files.columns` knows the names."""
    roles = column_roles(columns, where)
    if several := _label_matrix(columns, roles):
        return _multilabel_of_columns(columns, roles, several, metadata, split, where)
    if not roles.are_predictions:
        roles = _with_score_as_confidence(columns, roles, where)
    labels: Any = columns[roles.label] if roles.label else None
    prediction = columns[roles.prediction] if roles.prediction else None
    outputs = None if roles.outputs is None else roles.outputs.values(columns, where)
    if outputs is not None and outputs.ndim > 2:
        raise InputError(
            f"{where} must have outputs n x c, got {' x '.join(map(str, outputs.shape))}; of segmented images make "
            "predictions of pixels with: confide dense"
        )
    width = 0 if outputs is None else outputs.shape[1] if outputs.ndim == 2 else 2
    names = class_names_of(columns, metadata, roles.outputs.classes if roles.outputs else None, width)
    if outputs is not None and labels is not None and are_words(labels):
        labels = class_indices_of(labels, names, where)
    confidence = columns[roles.confidence] if roles.confidence else None
    n = len(next(values for values in (labels, outputs, prediction, confidence) if values is not None))
    others = {name: columns[name] for name in roles.others if name in columns}
    own = {name: values for name, values in others.items() if values.shape[:1] == (n,)}
    laid_out = SAMPLE if {SAMPLE, LABEL_NAME} <= own.keys() else None
    known: Outputs
    if roles.are_pairs:
        correct = as_tensor(columns[roles.correct], "correct") if roles.correct else None
        known = PairOutputs(correct, as_tensor(confidence, "confidence"))
        labels = None
    elif roles.outputs is None or outputs is None:
        known, labels, names = top1_outputs(labels, prediction, confidence, names)
    elif roles.outputs.kind == "probs":
        known = probability_outputs(outputs)
    elif outputs.ndim == 1 or outputs.shape[1:] == (1,):
        known = binary_outputs(outputs)
    else:
        clipped = metadata.get("from_probabilities") == "True"
        known = (LogProbOutputs if clipped else LogitOutputs)(as_tensor(outputs, "logits"))
    return RecordFields(
        known,
        labels,
        ids=columns[roles.id] if roles.id else None,
        split=split or metadata.get("split"),
        trust=as_tensor(columns[roles.trust], "trust") if roles.trust else None,
        columns=own,
        class_names=names,
        weights=columns[roles.weight] if roles.weight else None,
        unit=metadata["unit"] if metadata.get("unit") in own else laid_out,
    )


def _label_matrix(columns: Mapping[str, NDArray[Any]], roles: ColumnRoles) -> tuple[str, ...]:
    """The columns of 0/1 labels of multilabel predictions: one of n x c, or `label_cat` beside `prob_cat` each."""
    if roles.outputs is None:
        return ()
    if roles.label is not None:
        return (roles.label,) if columns[roles.label].ndim == 2 else ()
    named = tuple(f"label_{name}" for name in roles.outputs.classes or ())
    return named if named and all(name in columns for name in named) else ()


def _multilabel_of_columns(
    columns: Columns,
    roles: ColumnRoles,
    several: tuple[str, ...],
    metadata: Mapping[str, str],
    split: str | None,
    where: str,
) -> RecordFields:
    assert roles.outputs is not None
    outputs = roles.outputs.values(columns, where)
    labels = columns[several[0]] if len(several) == 1 else np.stack([columns[name] for name in several], axis=1)
    if labels.dtype.kind not in "fiub":
        raise InputError(f"labels of {where} must be 0, 1 or empty, got {labels.dtype}; give one column a label")
    names = class_names_of(columns, metadata, roles.outputs.classes, outputs.shape[-1])
    others = {name: columns[name] for name in roles.others if name in columns and name not in several}
    return multilabel_fields(
        outputs if roles.outputs.kind == "logits" else None,
        labels,
        columns[roles.id] if roles.id else None,
        split or metadata.get("split"),
        outputs if roles.outputs.kind == "probs" else None,
        names,
        {name: own for name, own in others.items() if own.shape == (len(labels),)},
    )


DATA_FRAME = "the data frame"
"""Where columns come from, in the words of a message."""


def _with_score_as_confidence(columns: Mapping[str, NDArray[Any]], roles: ColumnRoles, where: str) -> ColumnRoles:
    """Roles of a table whose confidence is called `score` or `p`: unique in meaning beside three classes or more."""
    scores = [name for name in roles.others if name in SCORE_COLUMNS]
    if roles.prediction is None or not scores:
        header = ", ".join(list(columns)[:8]) or "none"
        hint = ", or name those of the classes: from_frame(df, probs=[...])" * (where == DATA_FRAME)
        raise InputError(
            f"{where} must have 'logits' or 'probs', a column for every class (logit_0, logit_cat; prob_0, prob_cat), "
            f"'pred_label' and 'confidence', or 'correct' and 'confidence', got {header}; rename the columns{hint}"
        )
    if len(scores) > 1:
        raise InputError(
            f"{where} must have one column that holds the confidence, got '{scores[0]}' and '{scores[1]}'; "
            "call that one 'confidence'"
        )
    seen = [np.unique(columns[name]) for name in (roles.label, roles.prediction) if name is not None]
    if len(np.unique(np.concatenate(seen).astype(np.str_))) <= 2:
        raise InputError(
            f"column '{scores[0]}' of {where} may be the confidence in '{roles.prediction}' or the probability of "
            f"class 1; call it 'confidence', or 'prob' without the column '{roles.prediction}'"
        )
    others = tuple(name for name in roles.others if name != scores[0])
    return replace(roles, confidence=scores[0], others=others)
