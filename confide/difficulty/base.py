"""Registry of the difficulty methods, the two calls `score` and `fit`, and a fitted difficulty on disk. High = hard.

A method over features is a function `(values, labels, *, options) -> model`; the model has `values_of(values, labels)`
and `notes`. One that can be saved has a `state()` too and registers `restore(numbers, arrays, notes) -> model`, which
checks what it is given. A method over a training log is a function `(log, *, options) -> n values`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from confide.checks import InputError, as_tensor, check_ids, check_labels
from confide.difficulty.training_logs import as_log
from confide.files import fitted, formats
from confide.files.columns import are_words
from confide.files.fitted import FittedState
from confide.records import Features, FeatureSource, Ids, Scores, default_ids
from confide.registry import OptionSpec, Registry
from confide.results import DifficultyInfo
from confide.types import ClassIndices, Columns, Floats, JsonObject, Options

FitState = tuple[JsonObject, Columns]
"""What a model is made of: plain numbers and words, and arrays."""


def check_ending(path: str | Path) -> None:
    """Only one format is written; whoever wants another should know before the fit.

    Args:
        path: where a fitted difficulty is to be saved.

    Raises:
        InputError: it does not end in .safetensors.

    Example:
        >>> confide.difficulty.check_ending("fitted.safetensors")
    """
    fitted.check_ending(path, formats.DIFFICULTY)


def need_arrays(arrays: Columns, kinds: Mapping[str, str]) -> None:
    """Exactly these arrays, each of its dtype, not empty and finite."""
    if set(arrays) != set(kinds):
        raise ValueError(f"it must hold {', '.join(sorted(kinds))}, got {', '.join(sorted(arrays))[:200] or 'nothing'}")
    for name, kind in kinds.items():
        if arrays[name].dtype != np.dtype(kind):
            raise ValueError(f"{name} must be {kind}, got {arrays[name].dtype}")
        if not arrays[name].size or not np.isfinite(arrays[name]).all():
            raise ValueError(f"{name} must be finite numbers, got {'others' if arrays[name].size else 'none'}")


def need_shape(arrays: Columns, name: str, shape: tuple[int | None, ...]) -> tuple[int, ...]:
    """The shape of an array; None stands for any length."""
    lengths = arrays[name].shape
    if len(lengths) != len(shape) or any(n not in (None, length) for n, length in zip(shape, lengths, strict=True)):
        expected = " x ".join("any" if n is None else str(n) for n in shape)
        raise ValueError(f"{name} must be {expected} numbers, got {' x '.join(map(str, lengths))}")
    return tuple(lengths)


def need_counts(counts: NDArray[np.int64]) -> None:
    """Numbers of samples by class: none below zero, not all zero."""
    if int(counts.min()) < 0 or not counts.any():
        raise ValueError(f"counts must be numbers of samples, got {int(counts.min())} to {int(counts.max())}")


# What a method is, and what it says of itself.


@dataclass(frozen=True, kw_only=True)
class DifficultySpec(OptionSpec):
    """What is said of a score: its `source` is features or a training log; whether it uses `labels`, and whether a fit
    does not look at those of the samples that it scores (`label_free`); `restore` (numbers, arrays, notes) -> the
    fitted model, where it can be saved.
    """

    source: str
    labels: bool = True
    label_free: bool = False
    restore: Callable[..., DifficultyModel] | None = None


DIFFICULTY = Registry("difficulty", DifficultySpec)


def difficulty_info(word: str) -> DifficultyInfo | None:
    """What a reader is told about a difficulty score, or None where no method has that word.

    Args:
        word: the method of the scores.

    Returns:
        Its word, the first line of its help, and what it is made from.

    Example:
        >>> confide.difficulty.difficulty_info("confusion").meaning
        'Confusion score, the mean over epochs of H(mean over members of p).'
    """
    if word not in DIFFICULTY:
        return None
    method = DIFFICULTY.get(word)
    return DifficultyInfo(word, method.summary, method.spec.source, looks_at_labels(word))


def looks_at_labels(word: str) -> bool:
    """Whether a score looks at the labels of the samples that it scores, as one that nobody knows may.

    Args:
        word: the method of the scores.

    Returns:
        False only for a known method that needs no label of the samples it scores.

    Example:
        >>> confide.difficulty.looks_at_labels("rmd"), confide.difficulty.looks_at_labels("combined")
        (True, False)
    """
    if word not in DIFFICULTY:
        return True
    spec = DIFFICULTY.get(word).spec
    return spec.labels and not spec.label_free


class DifficultyModel(Protocol):
    """What a method over features returns: fitted, frozen."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What was done beyond the formula, one line each."""

    def values_of(self, values: Any, labels: ClassIndices | str | None) -> Floats:
        """One value per row, high = hard."""


@dataclass(frozen=True, eq=False)
class FittedDifficulty:
    """A difficulty fitted on one split; scores any other."""

    method: str
    options: Options
    model: DifficultyModel
    num_classes: int
    source: FeatureSource = field(default_factory=FeatureSource)
    """Where the features came from."""

    @property
    def uses_labels(self) -> bool:
        """Whether it looks at the labels of the samples that it scores."""
        return looks_at_labels(self.method)

    def score(self, features: Any, labels: Any = None, *, ids: Any = None) -> Scores:
        """Difficulty of these samples: by their labels, by "predicted" (likeliest class) or "min" over the classes."""
        uses_labels = self.uses_labels
        rows = check_features(features, labels, ids, need_labels=uses_labels)
        if uses_labels and isinstance(rows.labels, np.ndarray) and int(rows.labels.max()) >= self.num_classes:
            bad = int((rows.labels >= self.num_classes).nonzero()[0][0])
            raise InputError(
                f"labels must lie in [0, {self.num_classes}), got {rows.labels[bad]} at sample {bad} of "
                f"{len(rows.labels)}; fit on data with samples of that class"
            )
        with np.errstate(all="ignore"):  # what overflows is told below
            values = self.model.values_of(rows.values, rows.labels)
        if not np.isfinite(values).all():
            bad = int((~np.isfinite(values)).nonzero()[0][0])
            raise InputError(
                f"features must be small enough for distances between them, got an overflow at sample {bad} of "
                f"{len(values)}; rescale them"
            )
        known = rows.labels if isinstance(rows.labels, np.ndarray) else rows.true_labels
        return Scores(rows.ids, values, self.method, dict(self.options), known, {}, self.model.notes)

    def save(self, path: str | Path) -> None:
        """Write it as one .safetensors file; `difficulty.load` gives it back, to the last digit."""
        check_ending(path)
        restore, state = DIFFICULTY.get(self.method).spec.restore, getattr(self.model, "state", None)
        if restore is None or state is None:
            raise InputError(
                f"difficulty '{self.method}' cannot be saved: it has no state to write; fit it where it is used"
            )
        numbers, arrays = state()
        try:
            restore(numbers, arrays, self.model.notes)  # what could not be read again is not written
        except ValueError as error:
            raise InputError(f"difficulty '{self.method}' cannot be saved: {error}; fit it on other features") from None
        record = {name: getattr(self, name) for name in ("method", "options", "num_classes")}
        record |= {"source": self.source.as_record(), "notes": self.model.notes, "numbers": numbers}
        tensors = {name: torch.from_numpy(np.array(values, order="C")) for name, values in arrays.items()}
        fitted.save_fitted(path, formats.DIFFICULTY, FittedState(record, tensors))


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Checked features: rows `n d`, their labels or a word, and ids."""

    values: Any
    labels: ClassIndices | str | None
    ids: Ids
    true_labels: ClassIndices | None = field(default=None)


def check_features(features: Any, labels: Any, ids: Any = None, *, need_labels: bool = True) -> LabelledRows:
    """Features (record, array, tensor) and labels (array or word), checked."""
    known = features.labels if isinstance(features, Features) else None
    if known is not None and bool((known < 0).all()):
        known = None  # a record of unlabelled samples
    if isinstance(features, Features):
        ids = features.ids if ids is None else ids
        labels = known if labels is None else labels
        features = features.values
    if not hasattr(features, "shape") or not hasattr(features, "dtype"):
        features = as_tensor(features, "features").numpy()
    if len(features.shape) != 2 or not features.shape[1]:
        raise InputError(f"features must be n x d (two dimensions), got shape {tuple(features.shape)}; flatten them")
    if not isinstance(features, Tensor) and np.dtype(features.dtype).kind not in "fiub":
        raise InputError(f"features must be numbers, got {features.dtype} values; convert them first")
    n = int(features.shape[0])
    if not n:
        raise InputError("features must have at least one row, got none; give samples to score")
    ids = default_ids(n) if ids is None else check_ids(ids, n)
    if labels is None and need_labels:
        raise InputError("labels must be given with features that carry none; pass one class index per sample")
    return LabelledRows(features, _labels(labels, n), ids, known)


def _labels(labels: Any, n: int) -> ClassIndices | str | None:
    if labels is None:
        return None
    if isinstance(labels, str):
        if labels not in ("min", "predicted"):
            raise InputError(f"labels must be class indices, 'min' or 'predicted', got {labels!r}")
        return labels
    try:
        checked: ClassIndices = check_labels(as_tensor(labels, "labels").cpu(), n, None).numpy()
    except InputError:
        words = np.zeros(0) if isinstance(labels, Tensor) else np.asarray(labels, dtype=object)
        if not words.size or not are_words(words):
            raise
        # Numbering them here would number other samples, of fewer classes, otherwise.
        raise InputError(
            f"labels must be class indices, got words such as '{words.flat[0]}'; number them once for all samples: "
            "names, labels = np.unique(words, return_inverse=True)"
        ) from None
    return checked


def fit(word: str, features: Any, labels: Any = None, **options: Any) -> FittedDifficulty:
    """Fit a difficulty over features on one split; the result scores this or any other.

    Args:
        word: a method over features: `rmd`, `md`, `prototype`, `kmeans`, `combined`.
        features: a `Features` record, an array or a tensor `n d`.
        labels: class indices; a record brings its own.
        options: those of the method.

    Returns:
        A `FittedDifficulty`: `score` gives the difficulty of these or any other samples, `save` writes it.

    Raises:
        InputError: a word that reads a training log, or features and labels that do not fit together.

    Example:
        >>> import numpy as np
        >>> labels = np.arange(60) % 2
        >>> rows = 4 * np.eye(2, 3)[labels] + np.random.default_rng(0).normal(size=(60, 3))
        >>> rows[7] = [4, 0, 0]  # of class 1, but it looks like class 0
        >>> fitted = confide.difficulty.fit("rmd", rows[:40], labels[:40])
        >>> fitted.score(rows[40:], "predicted").values.shape  # later samples, without labels
        (20,)
    """
    method = DIFFICULTY.get(word)
    options = method.checked(options)
    if method.spec.source != "features":
        raise InputError(f"difficulty '{word}' is read from a training log, not fitted on features; call score")
    rows = check_features(features, labels, need_labels=method.spec.labels)
    if isinstance(rows.labels, str):
        raise InputError(f"labels to fit on must be class indices, got {rows.labels!r}; words are for scoring")
    model = method.function(rows.values, rows.labels, **options)
    num_classes = int(rows.labels.max()) + 1 if rows.labels is not None else 0
    source = features.source if isinstance(features, Features) else FeatureSource()
    return FittedDifficulty(word, _plain_options({**method.options, **options}), model, num_classes, source)


def score(word: str, features: Any, labels: Any = None, *, ids: Any = None, **options: Any) -> Scores:
    """Difficulty of every sample by a method's word, fitted on the same samples.

    `features` is a Features record, an array or a tensor `n d`; for the words that read a training (`confusion`,
    `loss`, `correctness`, `entropy`) a recorder, its log, Predictions, or probabilities [member, epoch,] n x c.

    Args:
        word: the method; `names()` lists them.
        features: what the method looks at, see above.
        labels: class indices; a record brings its own. After a fit also "predicted" or "min".
        ids: of the samples, where the features carry none.
        options: those of the method.

    Returns:
        `Scores`: one value per sample with its id, high = hard.

    Example:
        >>> import numpy as np
        >>> labels = np.arange(60) % 2
        >>> rows = 4 * np.eye(2, 3)[labels] + np.random.default_rng(0).normal(size=(60, 3))
        >>> rows[7] = [4, 0, 0]  # of class 1, but it looks like class 0
        >>> scores = confide.difficulty.score("rmd", rows, labels)
        >>> int(scores.values.argmax())
        7
    """
    method = DIFFICULTY.get(word)
    options = method.checked(options)
    if method.spec.source == "log":
        log = as_log(features, labels, ids)
        values = method.function(log, **options)
        return Scores(log.ids, values, word, {**method.options, **options}, log.labels)
    return fit(word, features, labels, **options).score(features, labels, ids=ids)


def _plain_options(options: Options) -> Options:
    simple = (str, int, float, bool, type(None))
    options = {k: v.item() if isinstance(v, np.generic) else v for k, v in options.items()}
    chosen = {k: v for k, v in options.items() if isinstance(v, simple) or len(v)}
    return {k: v if isinstance(v, simple) else f"{len(v)} given" for k, v in chosen.items()}


def names() -> tuple[str, ...]:
    """All words of the family.

    Returns:
        Every word that `score` and `confide score` take.

    Example:
        >>> confide.difficulty.names()
        ('combined', 'confusion', 'correctness', 'entropy', 'kmeans', 'loss', 'md', 'prototype', 'rmd')
    """
    return DIFFICULTY.names()


# Fitted difficulties from their files, checked: what comes from outside is one clear line or a model that scores.

FIELD_KINDS = {"method": str, "options": dict, "num_classes": int, "notes": list, "source": dict, "numbers": dict}
"""Of what kind the fields of a saved one are."""


def load(path: str | Path) -> FittedDifficulty:
    """Read what `FittedDifficulty.save` wrote; it scores as the one that was saved, to the last digit on a CPU.

    Args:
        path: a .safetensors file.

    Returns:
        The `FittedDifficulty` as it was fitted.

    Raises:
        InputError: the file is missing, damaged, no fitted difficulty, or of a newer confide.

    Example:
        >>> import numpy as np
        >>> labels = np.arange(60) % 2
        >>> rows = 4 * np.eye(2, 3)[labels] + np.random.default_rng(0).normal(size=(60, 3))
        >>> rows[7] = [4, 0, 0]  # of class 1, but it looks like class 0
        >>> fitted = confide.difficulty.fit("prototype", rows, labels)
        >>> fitted.save("fitted.safetensors")
        >>> again = confide.difficulty.load("fitted.safetensors")
        >>> bool((again.score(rows, labels).values == fitted.score(rows, labels).values).all())
        True
    """
    return fitted.load_fitted(path, formats.DIFFICULTY, _restored)


def _restored(state: FittedState) -> FittedDifficulty:
    record = state.record
    fitted.need_fields(record, FIELD_KINDS)
    if not all(isinstance(note, str) for note in record["notes"]):
        raise TypeError("notes must be lines of text")
    word = record["method"]
    restore = DIFFICULTY.get(word).spec.restore if word in DIFFICULTY else None
    if restore is None:
        raise ValueError(f"it was fitted by {repr(word)[:60]}, which cannot be loaded by this version")
    # Copies: the file may go, and a difficulty that was loaded must not change with it.
    arrays = {name: np.array(tensor.numpy()) for name, tensor in state.tensors.items()}
    model = restore(record["numbers"], arrays, tuple(record["notes"]))
    classes = getattr(model, "num_classes", max(record["num_classes"], 0))
    if classes != record["num_classes"]:
        raise ValueError(f"num_classes must be {classes}, got {record['num_classes']}")
    source = FeatureSource.from_record(record["source"])
    return FittedDifficulty(word, record["options"], model, record["num_classes"], source)
