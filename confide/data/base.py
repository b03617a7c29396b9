"""`load_dataset`: a word or a path -> the source that reads it -> what it holds -> a checked Dataset with all
splits.

A source is a function `(path | data folder | arrays, *, options) -> RawDataset`; everything after that (class indices,
ids, splits that are missing, provenance) is done here, once for all sources.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide import random
from confide.checks import (
    InputError,
    as_tensor,
    check_finite,
    check_ids,
    check_labels,
    check_range,
    check_seed,
    did_you_mean,
)
from confide.files.columns import DATASET_LABEL_COLUMNS, ID_COLUMNS, INPUT_COLUMNS
from confide.records import Dataset, Ids, Provenance, Split
from confide.registry import Method, MethodSpec, Registry

# ---- What a source hands over, before it is checked: parts as they were found, and what was left out ----

WHOLE = "all"
"""Name of the part of a source that came without splits."""

SPLIT_WORDS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}


@dataclass(frozen=True, eq=False)
class RawSplit:
    """Samples as found: inputs, raw labels (class indices or class names), ids where the source has some."""

    inputs: Any
    labels: Any
    ids: Ids | None = None
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class RawDataset:
    """All that a source knows: parts by name (`train`, `val`, `test` or `all`), class names, where it came from."""

    parts: Mapping[str, RawSplit]
    class_names: tuple[str, ...] | None = None
    name: str = ""
    provenance: Provenance = field(default_factory=Provenance)
    set_aside: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class ColumnNames:
    """Columns of inputs and labels where a user names them; None takes the first of a usual name."""

    inputs: str | None = None
    labels: str | None = None

    def pick(self, known: Collection[str], where: str) -> tuple[str, str]:
        """The columns of inputs and of labels among those there are."""
        inputs = pick_column(known, self.inputs, INPUT_COLUMNS, "inputs", where)
        return inputs, pick_column(known, self.labels, DATASET_LABEL_COLUMNS, "labels", where)


def as_inputs(values: Any, where: str) -> Any:
    """Inputs as the package expects them: uint8 images `n c h w`, float32 rows `n d`, or an object array of texts.

    Layout is told by shape: `n c h w` when the second dimension is 1, 3 or 4, `n h w c` when only the last is.
    """
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    array = np.asarray(values.to_numpy() if hasattr(values, "to_numpy") else values)
    if array.dtype.kind in "UO":
        return _texts(array, where)
    if array.dtype.kind not in "uifb":
        raise InputError(f"inputs of '{where}' must be numbers or texts, got {array.dtype}; convert them")
    if array.ndim == 2:
        return _rows(array, where)
    return _images(array, where)


def _texts(array: NDArray[Any], where: str) -> NDArray[np.object_]:
    texts = array.astype(object)
    bad = [i for i, text in enumerate(texts.reshape(-1)) if not isinstance(text, str)]
    if texts.ndim != 1 or bad:
        came = f"{type(texts.reshape(-1)[bad[0]]).__name__} at sample {bad[0]}" if bad else f"shape {texts.shape}"
        raise InputError(
            f"inputs of '{where}' must be arrays of numbers or one text per sample, got {came}; convert it"
        )
    return texts


def _rows(array: NDArray[Any], where: str) -> NDArray[np.float32]:
    import torch

    rows = np.ascontiguousarray(array, dtype=np.float32)
    check_finite(torch.from_numpy(rows), f"inputs of '{where}'")
    return rows


def _images(array: NDArray[Any], where: str) -> NDArray[np.uint8]:
    if array.ndim not in (3, 4):
        raise InputError(
            f"inputs of '{where}' must be rows (n d) or images (n h w, n c h w, n h w c), got shape {array.shape}"
        )
    if array.dtype != np.uint8:
        raise InputError(
            f"images of '{where}' must be uint8 from 0 to 255, got {array.dtype}; "
            "for pixels from 0 to 1 give (255 * images).round().astype('uint8')"
        )
    if array.ndim == 3:
        return array[:, None]
    if array.shape[1] in (1, 3, 4):
        return array
    if array.shape[3] in (1, 3, 4):
        return np.ascontiguousarray(array.transpose(0, 3, 1, 2))
    raise InputError(f"images of '{where}' must have 1, 3 or 4 channels, got shape {array.shape}; give n c h w")


def default_ids_of(part: str, n: int) -> NDArray[np.str_]:
    """Ids of samples that came without: the name of the part and the position, such as `train-00017`."""
    prefix = "sample" if part == WHOLE else part
    return np.array([f"{prefix}-{i:05d}" for i in range(n)], dtype=np.str_)


def sorted_class_names(names: set[str]) -> tuple[str, ...]:
    """Class names sorted; numbers by value, so that class 10 comes after class 9."""
    if all(name.isdecimal() for name in names):
        return tuple(sorted(names, key=lambda name: (int(name), name)))
    return tuple(sorted(names))


def kind_of(inputs: Any) -> str:
    """`image`, `rows` or `text`, by shape and type."""
    if inputs.dtype == object:
        return "text"
    return "image" if len(inputs.shape) == 4 else "rows"


# ---- Which column is the input, which the label, which the id: by the names people use, or as told ----


def pick_column(known: Collection[str], name: str | None, words: tuple[str, ...], what: str, where: str) -> str:
    """The column of that name, else the first that has a usual name; case does not matter."""
    by_lower = {column.lower(): column for column in known}
    for word in (name,) if name is not None else words:
        if word.lower() in by_lower:
            return by_lower[word.lower()]
    tried = f"'{name}'" if name is not None else "one of " + ", ".join(words)
    raise InputError(
        f"{where} must have {what} named {tried}, got {', '.join(known) or 'nothing'}; name them with the option {what}"
    )


def pick_id_column(known: Collection[str]) -> str | None:
    """The column of ids, if there is one."""
    return next((name for name in known if name.lower() in ID_COLUMNS), None)


def cut(split: Split, fractions: Mapping[str, float], seed: int = 0) -> dict[str, Split]:
    """The split in pieces by name; a piece of fraction 0, and a `train` of which nothing is left, are not made.

    Args:
        split: what is cut.
        fractions: share of each piece by its name; the rest is `train`.
        seed: of the draw; a sample's place depends on seed and id alone.

    Returns:
        The pieces by name, each with its share of every class.

    Example:
        >>> import numpy as np
        >>> from confide import data
        >>> split = data.Split(np.eye(20), np.arange(20) % 2, np.arange(20))
        >>> {name: len(piece) for name, piece in data.cut(split, {"val": 0.2}).items()}
        {'val': 4, 'train': 16}
    """
    positive = {name: fraction for name, fraction in fractions.items() if fraction > 0}
    rows = random.split(split.ids, split.labels, positive, seed=seed)
    if sum(positive.values()) > 1 - 1e-9:
        del rows["train"]
    return {name: split.take(chosen) for name, chosen in rows.items()}


# ---- From parts as found to a checked Dataset: class indices, ids, missing splits, provenance ----

SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class SplitPlan:
    """How missing splits are made: by which seed, how large, and which part plays which role."""

    seed: int = 0
    val_fraction: float = 0.1
    test_fraction: float = 0.1
    rename: Mapping[str, str] | None = None

    def check(self) -> None:
        """Fractions are shares of one whole."""
        check_seed(self.seed)
        check_range(self.val_fraction, "val_fraction", 0, 1)
        check_range(self.test_fraction, "test_fraction", 0, 1)
        if self.val_fraction + self.test_fraction > 1 + 1e-9:
            raise InputError(
                f"val_fraction + test_fraction must be at most 1, got {self.val_fraction + self.test_fraction:g}; "
                "make one smaller"
            )


def assemble(
    raw: RawDataset,
    plan: SplitPlan,
    *,
    name: str = "",
    class_names: Sequence[str] | None = None,
) -> Dataset:
    """The Dataset of what a source read, or one line that says what is wrong with it."""
    plan.check()
    parts = _renamed(raw.parts, plan.rename)
    for part_name, part in parts.items():
        _check_part(part_name, part)
    kind = _one_kind(parts)
    names = tuple(map(str, class_names)) if class_names is not None else raw.class_names
    labels, names = _class_indices(parts, names)
    splits = {key: _as_split(key, part, labels[key]) for key, part in parts.items()}
    splits, cut_from, texts = _with_missing_splits(splits, plan)
    splits = {key: splits[key] for key in SPLITS if key in splits}
    _check_splits(splits, names)
    absent = {key: _classes_without_samples(split, names) for key, split in splits.items()}
    provenance = replace(
        raw.provenance,
        splits={key: texts.get(key, "as given") for key in splits},
        counts={key: len(split) for key, split in splits.items()},
        split_seed=plan.seed if texts else None,
        classes_without_samples={key: tuple(classes) for key, classes in absent.items() if classes},
        fingerprint=_fingerprint(splits, names),
    )
    return Dataset(name or raw.name, kind, splits, names, provenance, raw.set_aside, cut_from)


def _renamed(parts: Mapping[str, RawSplit], rename: Mapping[str, str] | None) -> dict[str, RawSplit]:
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


def _check_part(name: str, part: RawSplit) -> None:
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


def _one_kind(parts: Mapping[str, RawSplit]) -> str:
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
    parts: Mapping[str, RawSplit], names: tuple[str, ...] | None
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
        names = sorted_class_names(set(np.concatenate(list(raw.values())).tolist()))
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


def _as_split(name: str, part: RawSplit, labels: NDArray[np.int64]) -> Split:
    ids = part.ids if part.ids is not None else default_ids_of(name, len(labels))
    return Split(part.inputs, labels, check_ids(ids, len(labels), f"ids of '{name}'"), part.columns)


def _with_missing_splits(
    splits: dict[str, Split], plan: SplitPlan
) -> tuple[dict[str, Split], dict[str, str], dict[str, str]]:
    """(splits, what new ones were cut from, the same in words): val and test come from `train`, or from the whole."""
    origin = WHOLE if WHOLE in splits else "train"
    if origin not in splits:
        return splits, {}, {}
    planned = {"test": plan.test_fraction, "val": plan.val_fraction}
    fractions = {key: fraction for key, fraction in planned.items() if key not in splits and fraction > 0}
    if not fractions and origin == "train":
        return splits, {}, {}
    pieces = cut(splits[origin], fractions, plan.seed)
    texts = {key: f"cut from '{origin}', stratified, fraction {fraction:g}" for key, fraction in fractions.items()}
    if "train" in pieces:
        texts["train"] = f"the rest of '{origin}'"
    others = {key: split for key, split in splits.items() if key != origin}
    return {**others, **pieces}, dict.fromkeys(fractions, origin), texts


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


# ---- A word or a path -> the source that reads it ----


@dataclass(frozen=True, kw_only=True)
class DataSpec(MethodSpec):
    """What is said of a source: it `takes` its word alone, a path, a name, or arrays in memory."""

    takes: str


DATASETS = Registry("dataset", DataSpec)
"""Sources: `(path | data folder | arrays, *, options) -> RawDataset`. The fact `takes` says which of the three."""

_RECOGNISERS: dict[str, Callable[[Path], bool]] = {}
# A path that several sources know is read by the first of these; a user's own source is asked before them.
_RECOGNITION_ORDER = [
    "tiny-imagenet",
    "svhn",
    "parquet",
    "mnist",
    "jsonl",
    "npz",
    "csv",
    "clinc150",
    "cifar100",
    "cifar10",
    "folder",
]


def recognises(word: str, test: Callable[[Path], bool]) -> None:
    """A source tells which paths are its own.

    Args:
        word: of a registered source.
        test: path -> whether the source reads it; the user's own sources are asked before those of the package.

    Example:
        >>> from confide import data
        >>> data.recognises("npz", lambda path: path.is_file() and path.suffix == ".npz")
    """
    _RECOGNISERS[word] = test


def names() -> tuple[str, ...]:
    """All words, sorted.

    Returns:
        The words that `load_dataset` takes.

    Example:
        >>> from confide import data
        >>> "cifar10" in data.names(), "csv" in data.names()
        (True, True)
    """
    return DATASETS.names()


def data_folder(folder: str | Path | None = None) -> Path:
    """Where downloaded data lives: the argument, else the environment's CONFIDE_DATA, else ~/.cache/confide.

    Args:
        folder: a folder to use instead of the usual one.

    Returns:
        The folder; it need not exist.

    Example:
        >>> from confide import data
        >>> data.data_folder("~/sets").name
        'sets'
    """
    return Path(folder or os.environ.get("CONFIDE_DATA") or Path.home() / ".cache" / "confide").expanduser()


def load_dataset(
    source: Any,
    *,
    seed: int = 0,
    val_fraction: float = 0.1,
    test_fraction: float = 0.1,
    rename: Mapping[str, str] | None = None,
    class_names: Sequence[str] | None = None,
    name: str = "",
    folder: str | Path | None = None,
    **options: Any,
) -> Dataset:
    """The dataset of a word (`fashion-sample`, `cifar10`, `hf:<name>`), a path, or arrays in memory.

    Splits that the source lacks are cut from its training part: stratified, by seed, recorded in `provenance`.

    Args:
        source: a word, a path, or arrays `(inputs, labels)`.
        seed: of the splits made here.
        val_fraction: share of the part it is cut from; 0 makes no such split.
        test_fraction: likewise.
        rename: which part plays which role, such as {"val": "test"}.
        class_names: one name per class index, where the source has none or others are wanted.
        name: how the dataset is called in reports.
        folder: where words find (and keep) their files, instead of CONFIDE_DATA or ~/.cache/confide.
        options: of the source; `confide list data` shows them.

    Returns:
        A `Dataset` with the splits train, val and test, class names and provenance.

    Raises:
        InputError: for an unknown word, a path no source knows, or data that are not what they must be.

    Example:
        >>> import numpy as np
        >>> from confide import data
        >>> data.load_dataset((np.eye(40), np.array(["cat", "dog"] * 20)), name="pets")
        <Dataset 'pets': rows, 2 classes; train 32, val 4, test 4>
    """
    _check_kinds(rename, class_names, name, folder)
    home = data_folder(folder)
    method, where = _find(source, home)
    method.check_values(options)
    needs = {"data_folder": home} if "data_folder" in method.needs else {}
    raw = method.function(where, **options, **needs)
    plan = SplitPlan(seed, val_fraction, test_fraction, rename)
    place = str(where) if method.spec.takes in ("path", "name") else ""
    provenance = replace(raw.provenance, source=method.word, options=options, where=place)
    return assemble(replace(raw, provenance=provenance), plan, name=name, class_names=class_names)


def _check_kinds(rename: Any, class_names: Any, name: Any, folder: Any) -> None:
    """What a config or a command line may have got wrong."""
    if rename is not None and not (isinstance(rename, Mapping) and all(isinstance(x, str) for x in rename.values())):
        raise InputError(f"rename must give a split for each part, such as {{val: test}}, got {rename!r}")
    if class_names is not None and (isinstance(class_names, str) or not isinstance(class_names, Iterable)):
        raise InputError(f"class_names must be a list of names, got {class_names!r}")
    for word, value in (("name", name), ("folder", folder)):
        if not isinstance(value, (str, Path, type(None))):
            raise InputError(f"{word} must be a text, got {value!r}; put it in quotes")


def _find(source: Any, folder: Path) -> tuple[Method[DataSpec], Any]:
    if not isinstance(source, (str, Path)):
        return DATASETS.get("arrays"), source
    word, _, rest = str(source).partition(":")
    if word in DATASETS and isinstance(source, str):
        return _by_word(DATASETS.get(word), rest, folder)
    path = Path(source).expanduser()
    if not path.exists() and (path.suffix or len(path.parts) > 1):
        raise InputError(f"{path} must be a file or folder, but it does not exist; check the path")
    if not path.exists():
        raise InputError(
            f"no dataset named '{source}', and no such file or folder; {did_you_mean(str(source), DATASETS.names())}"
        )
    own = [word for word in reversed(_RECOGNISERS) if word not in _RECOGNITION_ORDER]
    for word in (*own, *_RECOGNITION_ORDER):
        if _RECOGNISERS[word](path):
            return DATASETS.get(word), path
    what = "folder" if path.is_dir() else "file"
    raise InputError(
        f"{what} {path} must be a dataset, but no source knows its layout ({_content(path)}); "
        "`confide list data` shows the layouts"
    )


def _by_word(method: Method[DataSpec], rest: str, folder: Path) -> tuple[Method[DataSpec], Any]:
    takes = method.spec.takes
    if takes == "memory":
        raise InputError(f"dataset '{method.word}' is made of arrays; pass them: load_dataset((inputs, labels))")
    if takes == "word" and not rest:
        return method, folder
    if not rest:
        raise InputError(f"dataset '{method.word}' must be told where, got the bare word; write '{method.word}:WHERE'")
    if takes == "name":
        return method, rest
    path = Path(rest).expanduser()
    if not path.exists():
        raise InputError(f"{path} must be a file or folder, but it does not exist; check the path")
    return method, path


def _content(path: Path) -> str:
    if not path.is_dir():
        return f"ending '{path.suffix}'" if path.suffix else "no ending"
    inside = sorted(entry.name for entry in path.iterdir())
    return "it is empty" if not inside else "it holds " + ", ".join(inside[:3]) + (", ..." if len(inside) > 3 else "")
