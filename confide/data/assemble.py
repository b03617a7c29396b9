"""From parts as found to a checked Dataset: class indices, ids, missing splits, provenance."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.core.door import InputError, as_tensor, check_labels, check_range, did_you_mean
from confide.core.records import Dataset, Split, check_ids
from confide.data.parts import WHOLE, Found, Part, default_ids_of, in_order, kind_of
from confide.data.splits import cut

SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class Plan:
    """How missing splits are made: by which seed, how large, and which part plays which role."""

    seed: int = 0
    val_fraction: float = 0.1
    test_fraction: float = 0.1
    rename: Mapping[str, str] | None = None

    def check(self) -> None:
        """Fractions are shares of one whole."""
        check_range(self.val_fraction, "val_fraction", 0, 1)
        check_range(self.test_fraction, "test_fraction", 0, 1)
        if self.val_fraction + self.test_fraction > 1 + 1e-9:
            raise InputError(
                f"val_fraction + test_fraction must be at most 1, got {self.val_fraction + self.test_fraction:g}; "
                "make one smaller"
            )


def assemble(found: Found, name: str, plan: Plan, class_names: Sequence[str] | None = None) -> Dataset:
    """The Dataset of what a source found, or one line that says what is wrong with it."""
    plan.check()
    parts = _renamed(found.parts, plan.rename)
    for part_name, part in parts.items():
        _check_part(part_name, part)
    kind = _one_kind(parts)
    names = tuple(map(str, class_names)) if class_names is not None else found.class_names
    labels, names = _class_indices(parts, names)
    splits = {key: _as_split(key, part, labels[key]) for key, part in parts.items()}
    splits, made = _with_missing_splits(splits, len(names), plan)
    splits = {key: splits[key] for key in SPLITS if key in splits}
    _check_splits(splits, names)
    provenance: dict[str, Any] = {
        **found.facts,
        "splits": {key: made.get(key, "as given") for key in splits},
        "counts": {key: len(split) for key, split in splits.items()},
    }
    if made:
        provenance["split_seed"] = plan.seed
    missing = {key: _classes_without_samples(split, names) for key, split in splits.items()}
    provenance["classes_without_samples"] = {key: absent for key, absent in missing.items() if absent}
    provenance["fingerprint"] = _fingerprint(splits, names)
    return Dataset(name or found.name, kind, splits, names, provenance, found.set_aside)


def _renamed(parts: Mapping[str, Part], rename: Mapping[str, str] | None) -> dict[str, Part]:
    if not rename:
        return dict(parts)
    for old, new in rename.items():
        if old not in parts:
            raise InputError(f"rename must name parts of the data, got '{old}'; {did_you_mean(old, parts)}")
        if new not in SPLITS:
            raise InputError(f"rename must give 'train', 'val' or 'test', got '{new}' for '{old}'; choose one of them")
    renamed = [rename.get(key, key) for key in parts]
    if len(set(renamed)) < len(renamed):
        raise InputError(f"rename must keep split names apart, got {', '.join(renamed)}; rename the other one too")
    return dict(zip(renamed, parts.values(), strict=True))


def _check_part(name: str, part: Part) -> None:
    n = len(part.inputs)
    if n == 0:
        raise InputError(f"split '{name}' must hold at least one sample, got an empty one; add samples or leave it out")
    if np.ndim(part.labels) != 1 or len(part.labels) != n:
        raise InputError(
            f"labels of '{name}' must be one per sample, got shape {np.shape(part.labels)} for {n} inputs; "
            "give inputs and labels of one length"
        )
    for column, values in part.columns.items():
        if len(values) != n:
            raise InputError(f"column '{column}' of '{name}' must have {n} values, got {len(values)}; give one each")


def _one_kind(parts: Mapping[str, Part]) -> str:
    """Kind of the inputs; all parts must have inputs of one kind and one shape."""
    kinds = {key: kind_of(part.inputs) for key, part in parts.items()}
    shapes = {key: tuple(part.inputs.shape[1:]) for key, part in parts.items()}
    first = next(iter(parts))
    for key in parts:
        if kinds[key] != kinds[first] or shapes[key] != shapes[first]:
            raise InputError(
                f"all splits must hold inputs of one kind and shape, got {kinds[first]} {shapes[first]} in '{first}' "
                f"and {kinds[key]} {shapes[key]} in '{key}'; convert one of them"
            )
    return kinds[first]


def _class_indices(
    parts: Mapping[str, Part], names: tuple[str, ...] | None
) -> tuple[dict[str, NDArray[np.int64]], tuple[str, ...]]:
    """Labels as indices into one list of class names; names that are words are sorted when no list is given."""
    raw = {key: _plain_labels(part.labels, key) for key, part in parts.items()}
    if any(values.dtype.kind == "U" for values in raw.values()):
        return _indices_of_words({key: values.astype(np.str_) for key, values in raw.items()}, names)
    count = len(names) if names is not None else 1 + max(int(values.max()) for values in raw.values())
    checked = {
        key: check_labels(as_tensor(values, "labels"), len(values), count, f"labels of '{key}'").numpy()
        for key, values in raw.items()
    }
    return checked, names if names is not None else tuple(map(str, range(count)))


def _plain_labels(labels: Any, where: str) -> NDArray[Any]:
    if hasattr(labels, "detach"):
        labels = labels.detach().cpu().numpy()
    array = np.asarray(labels.to_numpy() if hasattr(labels, "to_numpy") else labels)
    if array.dtype == object:
        missing = [i for i, value in enumerate(array.tolist()) if value is None or value != value]
        if missing:
            raise InputError(f"labels of '{where}' must not be missing, got none at sample {missing[0]}; drop it")
        array = array.astype(np.str_)
    if array.dtype.kind not in "iufbU":
        raise InputError(f"labels of '{where}' must be class indices or class names, got {array.dtype}; convert them")
    return array.astype(np.int64) if array.dtype.kind in "bu" else array


def _indices_of_words(
    raw: Mapping[str, NDArray[Any]], names: tuple[str, ...] | None
) -> tuple[dict[str, NDArray[np.int64]], tuple[str, ...]]:
    if names is None:
        names = in_order(set(np.concatenate(list(raw.values())).tolist()))
    index = {name: i for i, name in enumerate(names)}
    indices = {}
    for key, values in raw.items():
        unknown = [i for i, value in enumerate(values.tolist()) if value not in index]
        if unknown:
            word = str(values[unknown[0]])
            raise InputError(
                f"labels of '{key}' must be class names, got '{word}' at sample {unknown[0]}; "
                f"{did_you_mean(word, names)}"
            )
        indices[key] = np.array([index[value] for value in values.tolist()], dtype=np.int64)
    return indices, names


def _as_split(name: str, part: Part, labels: NDArray[np.int64]) -> Split:
    ids = part.ids if part.ids is not None else default_ids_of(name, len(labels))
    return Split(part.inputs, labels, check_ids(ids, len(labels), f"ids of '{name}'"), part.columns)


def _with_missing_splits(
    splits: dict[str, Split], num_classes: int, plan: Plan
) -> tuple[dict[str, Split], dict[str, str]]:
    """Val and test are cut from `train` (or from the whole) where the source has none."""
    origin = WHOLE if WHOLE in splits else "train"
    if origin not in splits:
        return splits, {}
    wanted = {"test": plan.test_fraction, "val": plan.val_fraction}
    fractions = {key: fraction for key, fraction in wanted.items() if key not in splits and fraction > 0}
    if not fractions and origin == "train":
        return splits, {}
    pieces = cut(splits[origin], num_classes, fractions, plan.seed)
    made = {key: f"cut from '{origin}', stratified, fraction {fraction:g}" for key, fraction in fractions.items()}
    if "train" in pieces:
        made["train"] = f"the rest of '{origin}'"
    return {**{key: split for key, split in splits.items() if key != origin}, **pieces}, made


def _check_splits(splits: Mapping[str, Split], names: tuple[str, ...]) -> None:
    for key, split in splits.items():
        if len(split) == 0:
            raise InputError(
                f"split '{key}' must hold at least one sample, got none; give more samples or a larger {key}_fraction"
            )
    if "train" not in splits:
        return
    if len(names) < 2:
        raise InputError(
            f"a classifier needs at least two classes, got only '{names[0]}' in all {len(splits['train'])} samples; "
            "add samples of another class"
        )
    absent = _classes_without_samples(splits["train"], names)
    if absent:
        raise InputError(
            f"every class must have samples in 'train', got none for '{absent[0]}' "
            f"({len(absent)} of {len(names)} classes); "
            "number labels from 0 without gaps, or drop the class from the class names"
        )


def _classes_without_samples(split: Split, names: tuple[str, ...]) -> list[str]:
    counts = np.bincount(split.labels, minlength=len(names))
    return [names[k] for k in np.flatnonzero(counts == 0)]


def _fingerprint(splits: Mapping[str, Split], names: tuple[str, ...]) -> str:
    """One short word for the content: ids, labels, class names, and inputs that are in memory."""
    digest = hashlib.blake2b("\0".join(names).encode(), digest_size=16)
    for key, split in splits.items():
        digest.update(key.encode())
        digest.update("\0".join(map(str, split.ids.tolist())).encode())
        digest.update(np.ascontiguousarray(split.labels).tobytes())
        inputs = split.inputs
        if not isinstance(inputs, np.ndarray):
            digest.update(str(getattr(inputs, "fingerprint", "")).encode())
        elif inputs.dtype == object:
            digest.update("\0".join(inputs.tolist()).encode())
        else:
            digest.update(np.ascontiguousarray(inputs).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
