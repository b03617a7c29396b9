"""The records that flow before a model predicts: Split, Dataset, Features, Scores; frozen, and ids follow a sample."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from confide.block_sizes import WIDENED_ROWS
from confide.checks import InputError, check_ids, check_record
from confide.files import formats
from confide.files.columns import FEATURE_COLUMNS, ID_COLUMNS, first_column
from confide.files.frames import as_frame
from confide.files.shards import open_shards
from confide.types import JsonObject, Options

T = TypeVar("T")
Ids = NDArray[Any]
"""n integers or strings, unique within a split."""


def default_ids(n: int, prefix: str = "") -> Ids:
    """Ids for samples that came without: their position, as `prefix` + number when a prefix is given.

    Args:
        n: how many samples.
        prefix: what stands before the number; ids are integers without it.

    Returns:
        n unique ids.

    Example:
        >>> from confide.records import default_ids
        >>> default_ids(2, "test-").tolist()
        ['test-0', 'test-1']
    """
    if not prefix:
        return np.arange(n, dtype=np.int64)
    return np.array([f"{prefix}{i}" for i in range(n)], dtype=np.str_)


@dataclass(frozen=True, eq=False)
class Split:
    """One part of a dataset.

    `inputs` is anything of length n that takes an index array: uint8 images `n c h w`, float rows `n d`, a sequence
    of texts, or images decoded when asked for.
    """

    inputs: Any
    labels: NDArray[np.int64]
    ids: Ids
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def fingerprint(self) -> str:
        """One short word for ids, labels and inputs: what was made of them before is made again where it changed.

        Inputs in memory are read whole, at about a second for each GB; what decodes images when asked for has a
        fingerprint of its own.
        """
        digest = hashlib.sha256("\0".join(map(str, self.ids)).encode("utf-8", "surrogatepass"))
        digest.update(np.ascontiguousarray(self.labels, dtype=np.int64).tobytes())
        inputs = self.inputs
        if hasattr(inputs, "fingerprint"):
            digest.update(str(inputs.fingerprint).encode())
        elif isinstance(inputs, (list, tuple)) or np.asarray(inputs[:1]).dtype == object:
            digest.update(b"\0".join(map(_content, inputs)))
        else:
            for start in range(0, len(self), WIDENED_ROWS):
                digest.update(np.ascontiguousarray(inputs[start : start + WIDENED_ROWS]).data)
        return digest.hexdigest()[:16]

    def take(self, rows: NDArray[np.integer]) -> Split:
        """The chosen rows, in the order given.

        Args:
            rows: positions in the split.

        Returns:
            A split of these samples; images that are decoded when asked for are not decoded for it.

        Example:
            >>> split = confide.load_dataset("fashion-sample").test
            >>> split.take([0, 2]).ids.tolist() == split.ids[[0, 2]].tolist()
            True
        """
        if isinstance(self.inputs, (list, tuple)):
            inputs: Any = [self.inputs[int(i)] for i in rows]
        else:
            # Images that are decoded when asked for must not be decoded to choose among them.
            inputs = self.inputs.subset(rows) if hasattr(self.inputs, "subset") else self.inputs[rows]
        return Split(inputs, self.labels[rows], self.ids[rows], {k: v[rows] for k, v in self.columns.items()})


def _content(item: Any) -> bytes:
    """A text, a picture or an array as bytes."""
    values = None if isinstance(item, str) else np.asarray(item)
    if values is None or values.dtype == object:
        return str(item).encode("utf-8", "surrogatepass")
    return values.tobytes()


@dataclass(frozen=True)
class OtherFiles:
    """Files of other kinds among the images of a folder: how many, and the first of them."""

    count: int
    first: tuple[str, ...]


@dataclass(frozen=True)
class Provenance:
    """Where a dataset came from and how it was made; what is not known stays empty.

    A source fills what it knows (`metadata` to `decoded`), `load_dataset` the rest.
    """

    source: str = ""
    """The word of the source: `folder`, `cifar10`."""
    options: Options = field(default_factory=dict)
    """Of the source, as they were given."""
    where: str = ""
    """The path or name that was loaded."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Of the file, as its maker wrote it."""
    place: str = ""
    """Where the source found its files."""
    roles: str = ""
    """Which part plays which role, where that is not plain."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """One word per split that changes when its files do."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """What was not read, and why."""
    other_files: OtherFiles | None = None
    image_size: tuple[int, int] | None = None
    fit: str = ""
    """How images of other shapes were made to fit."""
    decoded: str = ""
    """When images are decoded."""
    splits: Mapping[str, str] = field(default_factory=dict)
    """How each split came about: "as given", or what it was cut from."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Samples of each split."""
    split_seed: int | None = None
    """Of the splits that were cut; None where none was."""
    classes_without_samples: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By split, where there are any."""
    fingerprint: str = ""
    """One word for ids, labels, class names and inputs."""

    def as_dict(self) -> JsonObject:
        """What is known, ready for JSON, as manifests and evaluations hold it."""
        always = ("options", "splits", "counts", "classes_without_samples")
        known = {f.name: getattr(self, f.name) for f in fields(self)}
        if self.other_files is not None:
            known["other_files"] = vars(self.other_files)
        return {
            name: formats.plain(value) for name, value in known.items() if name in always or value not in (None, "", {})
        }

    @classmethod
    def from_dict(cls, values: JsonObject) -> Provenance:
        """The record of what `as_dict` gave; keys of other versions are passed over."""
        names = {f.name for f in fields(cls)}
        known = {name: value for name, value in values.items() if name in names}
        if others := known.get("other_files"):
            known["other_files"] = OtherFiles(int(others["count"]), tuple(others["first"]))
        if size := known.get("image_size"):
            known["image_size"] = (int(size[0]), int(size[1]))
        absent = known.get("classes_without_samples", {})
        known["classes_without_samples"] = {split: tuple(names) for split, names in absent.items()}
        return cls(**known)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Splits by name (`train`, `val`, `test`), class names, and how it was made.

    `set_aside` lists inputs that could not be read, as (id, reason); they are in no split. `cut_from` tells of splits
    that the source did not have which part they were cut from: `train`, or `all` of a source without splits.
    """

    name: str
    kind: str  # "image", "text" or "rows"
    splits: Mapping[str, Split]
    class_names: tuple[str, ...]
    provenance: Provenance = field(default_factory=Provenance)
    set_aside: tuple[tuple[str, str], ...] = ()
    cut_from: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        """One line for a console."""
        sizes = ", ".join(f"{name} {len(part):,}" for name, part in self.splits.items())
        return f"<Dataset '{self.name}': {self.kind}, {self.num_classes} classes; {sizes}>"

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @property
    def unit(self) -> str:
        """What the samples are called: "images", "texts" or "samples"."""
        return {"image": "images", "text": "texts"}.get(self.kind, "samples")

    @property
    def train(self) -> Split:
        return self.split("train")

    @property
    def val(self) -> Split:
        return self.split("val")

    @property
    def test(self) -> Split:
        return self.split("test")

    def split(self, name: str) -> Split:
        """The split of that name, or an error that lists what there is.

        Args:
            name: `train`, `val`, `test`, or another that the source has.

        Returns:
            Inputs, labels and ids.

        Raises:
            InputError: the dataset has no such split.

        Example:
            >>> len(confide.load_dataset("fashion-sample").split("test"))
            4000
        """
        if name not in self.splits:
            raise InputError(f"dataset '{self.name}' has no split '{name}'; it has {', '.join(self.splits)}")
        return self.splits[name]


def _shape(values: Any) -> tuple[int, ...]:
    """The shape of anything sliced by rows; () of lists of several lengths."""
    try:
        return tuple(np.shape(values))
    except ValueError:
        return ()


@dataclass(frozen=True)
class FeatureSource:
    """Where the features of a fit came from; empty where nobody said."""

    extractor: str | None = None
    options: Options = field(default_factory=dict)
    """Of the extractor, plain JSON values where it is to be saved."""
    split: str | None = None
    class_names: tuple[str, ...] = ()

    def as_record(self) -> JsonObject:
        """What is known, for a file."""
        extractor = {} if self.extractor is None else {"extractor": self.extractor, "options": dict(self.options)}
        others = {"split": self.split, "class_names": list(self.class_names)}
        return {**extractor, **{name: value for name, value in others.items() if value}}

    @classmethod
    def from_record(cls, record: JsonObject) -> FeatureSource:
        """The source that a file tells, each field held against its kind."""
        source = check_record(cls(**{own.name: record[own.name] for own in fields(cls) if own.name in record}))
        return replace(source, class_names=tuple(source.class_names))


@dataclass(frozen=True, eq=False)
class Features:
    """Feature rows `n d` of one split; `values` may be memory-mapped or sharded (anything sliced by rows)."""

    values: Any
    labels: NDArray[np.int64]
    ids: Ids
    extractor: str
    split: str | None = None
    options: Options = field(default_factory=dict)
    """Of the extractor, as they were given."""
    fits: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False)
    """What was fitted on these rows alone and is kept with them, for whoever asks for the same fit again."""

    def __post_init__(self) -> None:
        shapes = [_shape(part) for part in (self.values, self.labels, self.ids)]
        if [len(shape) for shape in shapes] != [2, 1, 1] or len({shape[0] for shape in shapes}) != 1:
            values, labels, ids = shapes
            raise InputError(f"features must be n x d with n labels and n ids, got shapes {values}, {labels} and {ids}")
        if np.asarray(self.labels).dtype.kind not in "iu":
            class_indices(self.labels, "features")  # refuses words and fractions

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def dim(self) -> int:
        return int(self.values.shape[1])

    @property
    def source(self) -> FeatureSource:
        """Where the rows came from; empty where the extractor is not known."""
        if self.extractor in ("", "unknown"):
            return FeatureSource()
        return FeatureSource(self.extractor, dict(self.options), self.split or None)

    def save(self, path: str | Path) -> None:
        """Write as npz or parquet: `id, label, features`; extractor and split as metadata.

        Args:
            path: ends in .npz or .parquet.

        Raises:
            InputError: another ending.

        Example:
            >>> confide.Features([[1.0, 2.0]], [0], ["a"], "pixels").save("train.parquet")
        """
        if Path(path).suffix not in (".npz", ".parquet"):
            raise InputError(f"features must be written to .npz or .parquet, got '{path}'")
        about = {"confide": formats.FEATURES.tag, "extractor": self.extractor, "split": self.split or ""}
        about |= {"options": json.dumps(formats.plain(self.options))} if self.options else {}
        formats.write_table(path, {"id": self.ids, "label": self.labels, "features": np.asarray(self.values[:])}, about)

    @classmethod
    def load(cls, path: str | Path, *, ids: Any = None, labels: Any = None) -> Features:
        """Read features: a folder of shards, or .npz / .parquet with `features` (n d) and, where known, `id`, `label`.

        Args:
            path: of the file or folder.
            ids: of the samples in the order of the file, where the file has none.
            labels: likewise; -1 stands for unknown.

        Returns:
            The record; rows of a folder stay on disk until they are asked for.

        Raises:
            InputError: a file without features, or of another number of samples than `ids` or `labels`.

        Example:
            >>> confide.Features([[1.0, 2.0], [3.0, 4.0]], [0, 1], ["a", "b"], "pixels").save("train.npz")
            >>> confide.Features.load("train.npz").values.tolist()
            [[1.0, 2.0], [3.0, 4.0]]
        """
        source = Path(path)
        if source.is_dir():
            rows, samples, manifest = open_shards(source)
            known_ids = samples["id"].astype(np.str_) if samples["id"].dtype == object else samples["id"]
            origin = manifest.extractor, manifest.split, manifest.options
            return cls(rows, samples["label"].astype(np.int64), known_ids, *origin)
        columns, about = formats.read_table(source)
        values = first_column(columns, FEATURE_COLUMNS)
        if values is None or values.ndim != 2:
            raise InputError(
                f"{source} must have a column 'features' of n x d numbers, got {', '.join(columns)}; add it"
            )
        n = len(values)
        ids, labels = first_column(columns, ID_COLUMNS, ids), first_column(columns, ("label", "labels"), labels)
        if (labels is not None and len(labels) != n) or (ids is not None and len(ids) != n):
            raise InputError(f"{source} must have one row per sample, got {n} rows of features; pass the same split")
        return cls(
            values,
            np.full(n, -1, dtype=np.int64) if labels is None else class_indices(labels, str(source)),
            default_ids(n) if ids is None else check_ids(ids, n, f"ids of {source}"),
            about.get("extractor", source.stem),
            about.get("split") or None,
            extractor_options(about),
        )


def class_indices(labels: Any, where: str) -> NDArray[np.int64]:
    """Labels of a file as class indices, -1 for unknown; words and fractions are refused, not cut off."""
    values = np.asarray(labels)
    numbers = values.dtype.kind in "iub" or (values.dtype.kind == "f" and bool((values == np.floor(values)).all()))
    if not numbers:
        first = f", such as {values.flat[0]!r}" if values.size else ""
        raise InputError(
            f"labels of {where} must be class indices, got {values.dtype}{first}; number the classes from 0"
        )
    return values.astype(np.int64)


def as_numbers(values: NDArray[Any], what: str) -> NDArray[np.float64]:
    """A column of a file as numbers."""
    try:
        return values.astype(np.float64)
    except (ValueError, TypeError):
        raise InputError(f"{what} must be numbers, got {values.dtype} values; convert them") from None


def extractor_options(about: Mapping[str, str]) -> Options:
    """Options of an extractor from a file's metadata; what another program keeps under that name is none of ours."""
    return _noted(about, "options", dict)


def _noted(about: Mapping[str, str], name: str, kind: type[T]) -> T:
    """What a file's metadata keeps under a name; what another program keeps there is none of ours."""
    try:
        value = formats.parse_json(about[name], name) if name in about else None
    except InputError:
        value = None
    return value if isinstance(value, kind) else kind()


@dataclass(frozen=True, eq=False)
class Scores:
    """One difficulty value per sample, high = hard, with the method and options that made it."""

    ids: Ids
    values: NDArray[np.float64]
    method: str
    options: Options = field(default_factory=dict)
    labels: NDArray[np.int64] | None = None
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        """One line for a console."""
        low, high = (self.values.min(), self.values.max()) if len(self) else (0.0, 0.0)
        return f"<Scores by '{self.method}': {len(self):,} samples, {low:.4g} (easy) to {high:.4g} (hard)>"

    @property
    def mean(self) -> float:
        """The mean value; exactly 0 where it is rounding beside the spread, as of RMD on the data it was fitted on."""
        mean = float(self.values.mean())
        return 0.0 if abs(mean) < 1e-5 * float(self.values.std()) else mean

    def of(self, ids: Ids) -> NDArray[np.float64]:
        """Values for these ids, in their order; an id without a score is an error.

        Args:
            ids: of the samples.

        Returns:
            n difficulties, high = hard.

        Example:
            >>> confide.difficulty.score("md", [[0.0], [1.0], [3.0]], [0, 0, 0], ids=["a", "b", "c"]).of(["c"]).shape
            (1,)
        """
        return self.values[rows_of(ids, self.ids, "scores")]

    @classmethod
    def joined(cls, parts: Sequence[Scores]) -> Scores:
        """The scores of several splits as one record; columns that all parts have stay.

        Args:
            parts: of one method; no id may come twice.

        Returns:
            All samples, in the order of the parts.

        Raises:
            InputError: scores of several methods, or none.

        Example:
            >>> rows = [[0.0], [1.0]]
            >>> parts = [confide.difficulty.score("md", rows, [0, 0], ids=ids) for ids in (["a", "b"], ["c", "d"])]
            >>> confide.Scores.joined(parts).ids.tolist()
            ['a', 'b', 'c', 'd']
        """
        if len(parts) == 1:
            return parts[0]
        methods = list(dict.fromkeys(part.method for part in parts))
        if len(methods) != 1:
            raise InputError(f"scores to join must come from one method, got {', '.join(methods) or 'none'}")
        kinds = {part.ids.dtype.kind for part in parts}
        ids = np.concatenate([part.ids.astype(np.str_) if len(kinds) > 1 else part.ids for part in parts])
        known = [part.labels for part in parts if part.labels is not None]
        shared = [name for name in parts[0].columns if all(name in part.columns for part in parts)]
        return cls(
            check_ids(ids, len(ids), "ids of joined scores"),
            np.concatenate([part.values for part in parts]),
            methods[0],
            parts[0].options,
            np.concatenate(known) if len(known) == len(parts) else None,
            {name: np.concatenate([part.columns[name] for part in parts]) for name in shared},
            notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
        )

    def to_frame(self, library: str | None = None) -> Any:
        """The scores as a data frame: id, label where known, score, and the other columns.

        Args:
            library: `pandas` or `polars`; by default the one in use or installed.

        Returns:
            The data frame, a row per sample.

        Example:
            >>> scores = confide.difficulty.score("md", [[0.0], [1.0], [3.0]], [0, 0, 0])
            >>> scores.to_frame().sort_values("score").tail(1)["id"]  # doctest: +SKIP
        """
        labels = {} if self.labels is None else {"label": self.labels}
        own = {"id": self.ids, **labels, "score": self.values}
        return as_frame({**own, **{name: values for name, values in self.columns.items() if name not in own}}, library)

    def save(self, path: str | Path) -> None:
        """Write as parquet (or npz, csv): `id, label, score` and further columns; method and options as metadata.

        Args:
            path: its ending chooses the format.

        Example:
            >>> confide.difficulty.score("md", [[0.0], [1.0]], [0, 0]).save("scores.parquet")
        """
        columns: dict[str, NDArray[Any]] = {"id": self.ids}
        if self.labels is not None:
            columns["label"] = self.labels
        columns["score"] = self.values
        columns |= {k: v for k, v in self.columns.items() if k not in columns}
        about = {"method": self.method, "options": json.dumps(formats.plain(dict(self.options)))}
        formats.write_table(path, columns, {"confide": formats.SCORES.tag, **about, "notes": json.dumps(self.notes)})

    @classmethod
    def load(cls, path: str | Path) -> Scores:
        """Read scores written by `save`, or any table with `id` and `score`.

        Args:
            path: of the table.

        Returns:
            The scores; columns that have no role of their own are kept.

        Raises:
            InputError: a file without ids or scores.

        Example:
            >>> confide.difficulty.score("md", [[0.0], [1.0]], [0, 0], ids=["a", "b"]).save("scores.csv")
            >>> confide.Scores.load("scores.csv").ids.tolist()
            ['a', 'b']
        """
        columns, about = formats.read_table(path)
        if "score" not in columns:
            raise InputError(
                f"{path} must have columns 'id' and 'score', got {', '.join(columns)}; make it with confide score"
            )
        values = as_numbers(columns.pop("score"), f"scores of {path}")
        ids, labels = columns.pop("id", columns.pop("ids", None)), columns.pop("label", None)
        return cls(
            ids=default_ids(len(values)) if ids is None else check_ids(ids, len(values)),
            values=values,
            method=about.get("method", "difficulty"),
            options=_noted(about, "options", dict),
            labels=None if labels is None else class_indices(labels, str(path)),
            columns=columns,
            notes=tuple(map(str, _noted(about, "notes", list))),
        )


def rows_of(ids: Ids | Sequence[Any], known: Ids, what: str) -> NDArray[np.intp]:
    """Rows of `known` that hold the ids, in their order.

    Args:
        ids: whose rows are asked for.
        known: unique ids.
        what: what holds the known ones, as the error calls it.

    Returns:
        A row of `known` for every id.

    Raises:
        InputError: an id that is not there.

    Example:
        >>> import numpy as np
        >>> from confide.records import rows_of
        >>> rows_of(["c", "a"], np.array(["a", "b", "c"]), "the features").tolist()
        [2, 0]
    """
    ids = np.asarray(ids)
    if ids.dtype.kind != known.dtype.kind and "U" in (ids.dtype.kind, known.dtype.kind):
        ids, known = ids.astype(np.str_), known.astype(np.str_)
    order = np.argsort(known, kind="stable")
    place = np.searchsorted(known[order], ids)
    rows = order[np.minimum(place, len(known) - 1)] if len(known) else np.zeros(len(ids), dtype=np.intp)
    missing = known[rows] != ids if len(known) else np.ones(len(ids), dtype=bool)
    if missing.any():
        first = ids[missing][0]
        raise InputError(
            f"{what} must have every id asked for, but {int(missing.sum())} of {len(ids)} are missing, "
            f"first {first.item()!r}; use {what} of the same samples"
        )
    return rows
