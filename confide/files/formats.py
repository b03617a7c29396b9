"""The only code that knows file formats: JSON, YAML, npz, parquet and csv tables, safetensors.

Everything is written by `disk.atomic`, so a reader never sees half a file.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import os
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import yaml
from numpy.lib.format import MAGIC_PREFIX, read_array_header_1_0, read_array_header_2_0
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from confide import __version__
from confide.checks import InputError, MissingExtra, OptionError, printable
from confide.files.disk import atomic
from confide.types import AnyArray, Columns

# What confide writes, and in which version: the only place that knows either.


@dataclass(frozen=True)
class Format:
    """A kind of file: `tag`, its name and version, stands in every one that is written.

    A changed layout raises `version`; the ones before it that can still be read stay in `reads`.
    """

    kind: str
    version: int
    what: str
    """For messages: "a calibrator"."""
    remake: str
    """What to do where a file cannot be read: "fit it again"."""
    reads: tuple[int, ...] = ()
    endings: tuple[str, ...] = ()
    """Of paths that may hold one; empty: any, and JSON is written."""
    inline: bool = False
    """Whether tensors stand in the JSON itself, for a person to read, instead of beside it."""

    @property
    def tag(self) -> str:
        return f"{self.kind}/{self.version}"

    def fits(self, tag: object) -> bool:
        """Whether a file with this tag can be read."""
        return tag in [f"{self.kind}/{version}" for version in (self.version, *self.reads)]

    def check(self, tag: object, where: str | Path, writer: str = "of a newer version") -> None:
        """Refuse what another program, or a version that is not known here, wrote.

        Args:
            writer: the version of confide that wrote it, where the file tells.
        """
        if self.fits(tag):
            return
        kind, _, number = str(tag).partition("/")
        if kind == self.kind and number.isdecimal() and int(number) > self.version:
            raise InputError(
                f"{where} was written by confide {writer} in format '{tag}', newer than '{self.tag}' of this confide "
                f"{__version__}; upgrade with: pip install -U confide"
            )
        raise InputError(
            f"{where} must be {self.what} of format '{self.tag}', got {repr(tag)[:60]}; "
            f"give {self.what}, or {self.remake}"
        )


CALIBRATOR = Format(
    "calibrator", 4, "a calibrator", "fit it again", reads=(1, 2, 3), endings=(".json", ".safetensors"), inline=True
)
SETS = Format("sets", 1, "prediction sets", "fit them again", endings=(".json", ".safetensors"), inline=True)
DECISIONS = Format("decisions", 1, "a decision rule", "make it again", endings=(".json",))
TRUST = Format("trust", 1, "a trust predictor", "fit it again")
DIFFICULTY = Format("difficulty", 1, "a fitted difficulty", "fit it again", endings=(".safetensors",))
OPERATING_POINT = Format("operating-point", 1, "an operating point", "make it again")
RISKS_POINT = Format("operating-point", 2, "an operating point", "make it again", reads=(1,))
"""The same with several risks; a point of one error rate stays in version 1, which every confide reads."""
LABEL_THRESHOLDS = Format("label-thresholds", 1, "thresholds of labels", "make them again", endings=(".json",))
ORACLE = Format("oracle", 1, "an oracle", "train it again")
TRAINED = Format("trained", 2, "a trained model", "train it again", reads=(1,), endings=(".safetensors",))
CHECKPOINT = Format("checkpoint", 1, "a checkpoint", "choose another folder")
RUN = Format("run", 2, "a run folder", "choose another folder", reads=(1,))
EVALUATION = Format("evaluation", 2, "an evaluation", "make it again", reads=(1,))
SHIFT_CELL = Format("shift-cell", 4, "a cell of a shift grid", "make it again")
FEATURES = Format("features", 1, "features", "extract them again")
PROBABILITIES = Format("probabilities", 1, "a recorder's folder", "record it again")
PREDICTIONS = Format("predictions", 1, "predictions", "save them again")
SCORES = Format("scores", 1, "scores", "score again")
HISTORY = Format("history", 1, "an epoch of a training's history", "train it again")
WATCH = Format("watch", 1, "a watch", "start it again")
HARD = Format("hard", 1, "a hard benchmark", "export it again")


# Values that people write: YAML, with numbers such as 1e-3 read as numbers; and JSON. Both have limits that no file of
# ours comes near, so that a small file cannot take the memory or the time of a large one.

DEEPEST = 64
"""Lists and mappings inside each other."""
LARGEST_YAML = 1 << 20
"""Characters of a YAML text."""
MOST_YAML_VALUES = 100_000
"""Values of a YAML text with every alias written out."""
LARGEST_JSON = 1 << 30
"""Bytes of a JSON file."""


class _YamlLoader(yaml.SafeLoader):
    """What JSON can hold, with the floats of YAML 1.2: version 1.1, which the library reads, takes 1e-3 for a word.

    Dates stay words, other tags are refused, and a key that comes twice is an error instead of a silent choice.
    """

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for key in keys:
            if keys.count(key) > 1 and key != "<<":
                raise yaml.YAMLError(f"the key '{key}' comes twice, line {node.start_mark.line + 1}")
        return super().construct_mapping(node, deep)


_YamlLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_YamlLoader.yaml_constructors = {
    tag: constructor
    for tag, constructor in yaml.SafeLoader.yaml_constructors.items()
    if tag is None or tag.rpartition(":")[2] in ("null", "bool", "int", "float", "str", "seq", "map")
}
_YamlLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


def read_yaml(text: str, where: str) -> Any:
    """The value of a YAML text, with numbers such as 1e-3 read as numbers.

    Args:
        text: in YAML, of what JSON can hold.
        where: for the error: the file it came from.

    Returns:
        The value.

    Raises:
        InputError: what is no YAML, or beyond the limits on size and depth, in one line that says where it stood.

    Example:
        >>> from confide import files
        >>> files.read_yaml("rate: 1e-3", "config.yaml")
        {'rate': 0.001}
    """
    if len(text) > LARGEST_YAML:
        raise InputError(f"{where} must be YAML of at most {LARGEST_YAML:,} characters, got {len(text):,}")
    try:
        value = yaml.load(text, Loader=_YamlLoader)
        _count_values(value, 0, {})
    except RecursionError:
        raise InputError(f"{where} must be YAML of at most {DEEPEST} levels, got more") from None
    except (yaml.YAMLError, ValueError) as error:
        raise InputError(f"{where} must be YAML: {' '.join(str(error).split())[:300]}") from None
    return value


def _count_values(value: Any, depth: int, counted: dict[int, int]) -> int:
    """Values with every alias written out; keys that are no words, and what is beyond the limits, are refused."""
    if not isinstance(value, (dict, list)):
        return 1
    if depth > DEEPEST:
        raise RecursionError
    if id(value) not in counted:
        if isinstance(value, dict) and (odd := [key for key in value if not isinstance(key, str)]):
            raise ValueError(f"keys must be words, got {odd[0]!r}; put it in quotes")
        parts = value.values() if isinstance(value, dict) else value
        counted[id(value)] = 1 + sum(_count_values(part, depth + 1, counted) for part in parts)
        if counted[id(value)] > MOST_YAML_VALUES:
            raise ValueError(f"its aliases stand for more than {MOST_YAML_VALUES:,} values")
    return counted[id(value)]


def split_pair(text: str, form: str, last: bool = False) -> tuple[str, str]:
    """Both sides of a NAME=VALUE word.

    Args:
        text: the word.
        form: how a word that is no pair is refused: "an option must be NAME=VALUE".
        last: whether it is parted at the last sign, instead of the first.

    Returns:
        Name and value, without the blanks around them.

    Raises:
        InputError: no sign, or no name before it.

    Example:
        >>> from confide import files
        >>> files.split_pair("gamma = 0.5", "an option must be NAME=VALUE")
        ('gamma', '0.5')
    """
    name, sign, value = text.rpartition("=") if last else text.partition("=")
    if not sign or not name.strip():
        raise InputError(f"{form}, got '{text}'")
    return name.strip(), value.strip()


def read_yaml_file(path: Path) -> Any:
    """The value of a YAML file in UTF-8."""
    return read_yaml(_text_of(path, LARGEST_YAML, "YAML"), str(path))


def _text_of(path: Path, largest: int, what: str) -> str:
    if (size := path.stat().st_size) > largest:
        raise InputError(f"{path} must be {what} of at most {largest:,} bytes, got {size:,}; is it another file?")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} must be {what} in UTF-8, got other bytes ({error}); save it as UTF-8") from None


def parse_json(text: str | bytes, where: str | Path) -> Any:
    """The value of a JSON text; what is no JSON, or nested too deep, gets one clear line."""
    try:
        value = json.loads(text)
        depth, level = 0, [value]
        while level := [part for whole in level for part in _parts(whole)]:
            depth += 1
            if depth >= DEEPEST:
                raise RecursionError
    except RecursionError:
        raise InputError(f"{where} must be JSON of at most {DEEPEST} levels, got more; write it again") from None
    except ValueError as error:  # also of numbers with thousands of digits, and of bytes that are not UTF-8
        raise InputError(f"{where} must be JSON, got something else ({str(error)[:200]}); write it again") from None
    return value


def _parts(value: Any) -> Iterable[Any]:
    """The dicts and lists in a value; of a list of a million numbers only the types are looked at."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return () if {dict, list}.isdisjoint(map(type, parts)) else (p for p in parts if isinstance(p, (dict, list)))


# Tensors to a safetensors file; what the disk refuses is an OSError, as with every other file.


def save_tensors(tensors: dict[str, Tensor], path: Path, notes: dict[str, str]) -> None:
    """Write contiguous CPU tensors that share no memory, with notes in the header."""
    try:
        save_file(tensors, str(path), metadata=notes)
        _sort_notes(path)
    except SafetensorError as error:
        # The library hides the system's error in one of its own; only its number is left, in words.
        number = re.search(r"os error (\d+)", str(error))
        if number is None:
            raise
        code = int(number[1])
        raise OSError(code, os.strerror(code), str(path.parent)) from None


def _sort_notes(path: Path) -> None:
    """Put the notes in the header in order: the library writes them in another one every time."""
    with open(path, "r+b") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        header["__metadata__"] = dict(sorted(header.get("__metadata__", {}).items()))
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        if len(text) <= size:
            file.seek(8)
            file.write(text.ljust(size))


def tensor_metadata(path: str | Path) -> dict[str, str]:
    """The notes in a file's header; no tensor is read, however large the file may be."""
    if not Path(path).is_file():
        raise InputError(f"{path} must be a safetensors file, but there is no such file; check the path")
    try:
        with safe_open(str(path), framework="pt") as archive:
            return dict(archive.metadata() or {})
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(f"{path} must be a whole safetensors file, but reading it failed: {error}") from None


def write_text(path: str | Path, text: str) -> None:
    """Write text atomically, UTF-8.

    Args:
        path: of the file; folders are made.
        text: the whole content.

    Example:
        >>> from confide import files
        >>> files.write_text("notes/one.txt", "seen")
    """
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: str | Path, value: Any) -> None:
    """Write JSON atomically; arrays become lists, NaN and infinity become null.

    Args:
        path: of the file; folders are made.
        value: what `plain` can make of JSON's kinds.

    Example:
        >>> import math
        >>> from confide import files
        >>> files.write_json("value.json", {"ece": math.nan})
        >>> files.read_json("value.json")
        {'ece': None}
    """
    write_text(path, json.dumps(plain(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def json_text(value: Any) -> str:
    """JSON of plain values in one line."""
    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False)


def plain(value: Any) -> Any:
    """Value as JSON can hold it: numpy and torch scalars and arrays to Python, non-finite numbers to None.

    Args:
        value: mappings, lists, tuples, arrays, numbers, texts and paths, nested as they come.

    Returns:
        The same of dictionaries, lists, numbers and texts.

    Example:
        >>> import numpy as np
        >>> from confide import files
        >>> files.plain({"counts": np.array([1, 2])})
        {'counts': [1, 2]}
    """
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and not np.isfinite(value):
        return None
    if isinstance(value, Path):
        return str(value)
    return value


def read_json(path: str | Path) -> Any:
    """Read JSON.

    Args:
        path: of the file, in UTF-8.

    Returns:
        The value.

    Raises:
        InputError: a file that is not JSON, or beyond the limits on size and depth.

    Example:
        >>> from confide import files
        >>> files.write_json("value.json", [1, 2])
        >>> files.read_json("value.json")
        [1, 2]
    """
    return parse_json(_text_of(Path(path), LARGEST_JSON, "JSON"), path)


def checksum(path: str | Path) -> str:
    """SHA-256 of a file."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


TABLE_ENDINGS = (".parquet", ".npz", ".csv", ".jsonl")


@contextmanager
def reading(path: str | Path, kind: str = "file of its kind") -> Iterator[None]:
    """One line that names the file, for whatever reading it raises: it may be damaged, or come from anywhere."""
    try:
        if Path(path).exists() and not Path(path).is_file() and not Path(path).is_dir():
            raise InputError(f"{path} must be a plain file, but it is none; move it away")
        yield
    except (OptionError, MissingExtra, MemoryError):
        raise
    except InputError as error:
        raise InputError(printable(str(error))) from None
    except Exception as error:  # the libraries' errors for a damaged file are many; the person needs one line
        name = "" if isinstance(error, (pa.ArrowException, OSError, UnicodeError)) else f"{type(error).__name__} "
        why = printable(f"{name}{error}")[:300]
        raise InputError(f"{path} must be a readable {kind}, but reading it failed: {why}") from None


def read_table(path: str | Path) -> tuple[Columns, dict[str, str]]:
    """Columns and metadata of an npz, parquet, csv or jsonl file; a vector per row becomes an n x c column.

    Args:
        path: of the file; its ending decides the format.

    Returns:
        Columns by name, and the metadata that `write_table` was given.

    Raises:
        InputError: a missing or damaged file, or one of another ending.

    Example:
        >>> from confide import files
        >>> files.write_table("rows.npz", {"label": [0, 1]}, {"split": "test"})
        >>> files.read_table("rows.npz")
        ({'label': array([0, 1])}, {'split': 'test'})
    """
    path = Path(path)
    if not path.exists():
        raise InputError(f"{path} must be a file, but it does not exist; check the path")
    readers = {".npz": _read_npz, ".parquet": _read_parquet, ".csv": _read_csv, ".jsonl": _read_jsonl}
    suffixes = [s for s in path.suffixes if s != ".gz"]
    suffix = suffixes[-1] if suffixes else ""
    if suffix not in readers:
        mend = "join arrays: np.savez('all.npz', logits=logits, labels=labels)" if suffix == ".npy" else "convert it"
        raise InputError(f"{path} must end in {', '.join(TABLE_ENDINGS)}, got '{path.suffix}'; {mend}")
    with reading(path, f"{suffix[1:]} file"):
        return readers[suffix](path)


def write_table(
    path: str | Path,
    columns: Mapping[str, NDArray[Any]],
    metadata: Mapping[str, str] | None = None,
    *,
    group_rows: int | None = None,
) -> None:
    """Write columns as npz, parquet, csv or jsonl by the suffix of the path, atomically.

    Args:
        path: of the file; folders are made.
        columns: n values, or n x c, by name.
        metadata: texts that travel with them, where the format can hold some.
        group_rows: of parquet, rows that are read at once by `read_between`.

    Raises:
        InputError: an ending of no known format, or of npz a column that is neither numbers nor words.

    Example:
        >>> from confide import files
        >>> files.write_table("rows.csv", {"id": ["a", "b"], "label": [0, 1]})
        >>> files.read_table("rows.csv")[0]["label"]
        array([0, 1])
    """
    path = Path(path)
    if path.suffix == ".npz":
        with atomic(path) as temporary, open(temporary, "wb") as file:
            arrays = {name: _npz_array(name, values) for name, values in columns.items()}
            arrays |= {"metadata": np.array(json.dumps(dict(metadata)))} if metadata else {}
            np.savez_compressed(file, **arrays)
    elif path.suffix == ".parquet":
        table = pa.table({name: _arrow_column(values) for name, values in columns.items()})
        table = table.replace_schema_metadata(dict(metadata or {}))
        with atomic(path) as temporary:
            pq.write_table(table, temporary, compression="zstd", row_group_size=group_rows)
    elif path.suffix == ".csv":
        _write_csv(path, columns)
    elif path.suffix == ".jsonl":
        rows = zip(*(plain(values) for values in columns.values()), strict=True)
        write_text(path, "".join(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in rows))
    else:
        raise InputError(f"{path} must end in {', '.join(TABLE_ENDINGS)}, got '{path.suffix}'; choose one")


def _npz_array(name: str, values: Any) -> AnyArray:
    """Values as npz holds them without pickling: words that were read as objects are texts."""
    array: AnyArray = np.asarray(values)
    if array.dtype.kind != "O":
        return array
    if all(isinstance(value, str) for value in array.reshape(-1)):
        return array.astype(str)
    raise InputError(f"column '{name}' must be numbers or words all through for npz, got a mixture; choose .parquet")


def write_tensors(path: str | Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write torch tensors as safetensors, atomically."""

    with atomic(path) as temporary:
        save_tensors({k: v.detach().cpu().contiguous() for k, v in tensors.items()}, temporary, dict(metadata or {}))


def read_tensors(path: str | Path) -> dict[str, Tensor]:
    """Torch tensors of a safetensors file; a damaged file gets one clear line."""
    if not Path(path).exists():
        raise InputError(f"{path} must be a file, but it does not exist; check the path")
    try:
        return dict(load_file(path))
    except SafetensorError as error:
        raise InputError(f"{path} must be a readable safetensors file, but reading it failed: {error}") from None


UNPACKED_AT_LEAST, UNPACKED_RATIO = 1 << 30, 50
"""Bytes that an npz may always unpack to; and how many times its own size, where that is more."""


def _read_npz(path: Path) -> tuple[Columns, dict[str, str]]:
    _check_sizes(path)
    try:
        with np.load(path, allow_pickle=False) as archive:
            columns = {name: archive[name] for name in archive.files}
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        raise ValueError("it holds Python objects, which are never unpickled; save words as dtype=str") from None
    metadata = columns.pop("metadata", None)
    return columns, {} if metadata is None else _words_of(parse_json(str(metadata), f"'metadata' of {path}"))


def _check_sizes(path: Path) -> None:
    """Refuse what would unpack to far more than it is, by the sizes it declares; no more than these is ever read.

    Nor may an array declare more than its part holds: the memory for it would be taken before a byte of it is read.
    """
    with zipfile.ZipFile(path) as archive:
        parts = archive.infolist()
        size = sum(part.file_size for part in parts)
        limit = max(UNPACKED_AT_LEAST, UNPACKED_RATIO * path.stat().st_size)
        if size > limit:
            raise ValueError(f"it unpacks to {size:,} bytes, more than the limit of {limit:,}; save it with np.savez")
        for part in parts:
            with archive.open(part) as file:
                declared = _declared_bytes(file)
            if declared > part.file_size:
                raise ValueError(f"{part.filename} declares {declared:,} bytes and holds {part.file_size:,}")


def _declared_bytes(file: IO[bytes]) -> int:
    """How many bytes the header of an array asks for; none where there is no array, or one that is never read."""
    if file.read(len(MAGIC_PREFIX)) != MAGIC_PREFIX:
        return 0
    major = file.read(2)[0]
    shape, _, dtype = (read_array_header_1_0 if major == 1 else read_array_header_2_0)(file)
    return 0 if dtype.hasobject else math.prod(shape) * dtype.itemsize


def _words_of(metadata: Any) -> dict[str, str]:
    """Metadata as texts by name; what is none of it is left out."""
    items = metadata.items() if isinstance(metadata, dict) else ()
    return {name: value for name, value in items if isinstance(value, str)}


def _arrow_column(values: NDArray[Any]) -> pa.Array:
    values = np.asarray(values)
    if values.ndim == 2:
        flat = pa.array(np.ascontiguousarray(values).reshape(-1))
        return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
    return pa.array(values)


def arrow_to_numpy(column: pa.ChunkedArray) -> NDArray[Any]:
    """An arrow column as numpy: lists of one length as n x c, the rest as a vector."""
    kind = column.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        try:
            return np.asarray(column.to_numpy(zero_copy_only=False))
        except (pa.ArrowException, UnicodeDecodeError) as error:
            raise InputError(f"a column must hold text in UTF-8, got other bytes ({printable(str(error))})") from None
    joined = column.combine_chunks()
    if isinstance(joined, pa.ChunkedArray):
        joined = pa.concat_arrays(joined.chunks)
    values = joined.flatten().to_numpy(zero_copy_only=False)
    width = len(values) // max(len(joined), 1)
    if not pa.types.is_fixed_size_list(kind):
        offsets = joined.offsets.to_numpy()
        if not (np.diff(offsets) == width).all():
            bad = int((np.diff(offsets) != width).nonzero()[0][0])
            raise InputError(f"list column must have one length, got another at row {bad}; give one value per class")
    return np.asarray(values).reshape(len(joined), width)


def _read_parquet(path: Path) -> tuple[Columns, dict[str, str]]:
    table = pq.read_table(path)
    metadata = text_metadata(table.schema.metadata)
    return {name: arrow_to_numpy(table.column(name)) for name in table.column_names}, metadata


def text_metadata(metadata: Mapping[bytes, bytes] | None) -> dict[str, str]:
    """Metadata of a parquet file as text, without what other libraries keep there."""
    own = (metadata or {}).items()
    return {k.decode(): v.decode() for k, v in own if k not in (b"pandas", b"ARROW:schema")}


def _read_csv(path: Path) -> tuple[Columns, dict[str, str]]:
    from pyarrow import csv as arrow_csv

    with pa.input_stream(path) as lines:
        header = lines.read(1 << 16).split(b"\n", 1)[0]
    delimiter = next((mark for mark in ",;\t" if mark.encode() in header), ",")  # spreadsheets also write ; and tabs
    table = arrow_csv.read_csv(path, parse_options=arrow_csv.ParseOptions(delimiter=delimiter))
    return {name: arrow_to_numpy(table.column(name)) for name in table.column_names}, {}


def _read_jsonl(path: Path) -> tuple[Columns, dict[str, str]]:
    """A JSON object a line; lists of numbers of one length become n x c, other nested values stay JSON text."""
    from pyarrow import json as arrow_json

    table = arrow_json.read_json(path, arrow_json.ReadOptions(block_size=max(1 << 20, path.stat().st_size)))
    columns = {}
    for name in table.column_names:
        column = table.column(name)
        if pa.types.is_nested(column.type) and not _holds_vectors(column):
            columns[name] = np.array([json.dumps(value) for value in column.to_pylist()], dtype=np.str_)
        else:
            columns[name] = arrow_to_numpy(column)
    return columns, {}


def _holds_vectors(column: pa.ChunkedArray) -> bool:
    """Whether every row is a list of numbers, all of one length."""
    if not pa.types.is_list(column.type) or column.null_count:
        return False
    import pyarrow.compute as pc  # loaded for lists alone: most tables have none

    kind, lengths = column.type.value_type, pc.list_value_length(column)
    return (pa.types.is_integer(kind) or pa.types.is_floating(kind)) and len(lengths.unique()) == 1


def _write_csv(path: Path, columns: Mapping[str, NDArray[Any]]) -> None:
    flat: dict[str, list[Any]] = {}
    for name, values in columns.items():
        values = np.asarray(values)
        if values.ndim == 2:
            flat.update({f"{name}{k}": values[:, k].tolist() for k in range(values.shape[1])})
        else:
            flat[name] = values.tolist()
    with atomic(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(flat)
        writer.writerows(zip(*flat.values(), strict=True))


def write_checkpoint(
    path: str | Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> None:
    """Write named torch tensors as safetensors, atomically, with a digest of everything in the header."""

    # Clones, because safetensors refuses tensors that share memory; contiguous, because it stores plain rows.
    clones = {name: value.detach().cpu().clone().contiguous() for name, value in tensors.items()}
    notes = dict(metadata or {})
    notes["digest"] = _tensor_digest(clones, notes)
    with atomic(path) as temporary:
        save_tensors(clones, temporary, notes)


def read_checkpoint(path: str | Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata of a safetensors file; one that is torn or was changed is refused."""
    if not Path(path).exists():
        raise InputError(f"{path} must be a file, but it does not exist; check the path")
    try:
        with safe_open(str(path), framework="pt") as archive:
            notes = dict(archive.metadata() or {})
            tensors = {name: archive.get_tensor(name) for name in archive.keys()}  # noqa: SIM118  not a dictionary
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(f"{path} must be a whole safetensors file, but reading it failed: {error}") from None
    expected = notes.pop("digest", None)
    if expected is not None and expected != _tensor_digest(tensors, notes):
        raise InputError(f"{path} must hold what its digest says, but it was damaged; use an earlier one")
    return tensors, notes


def _tensor_digest(tensors: Mapping[str, Tensor], notes: Mapping[str, str]) -> str:
    digest = hashlib.sha256(json.dumps(dict(notes), sort_keys=True).encode())
    for name in sorted(tensors):
        value = tensors[name]
        digest.update(f"{name}{value.dtype}{tuple(value.shape)}".encode())
        if value.numel():
            digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def table_batches(
    path: str | Path, rows: int, columns: Sequence[str] | None = None
) -> Iterator[tuple[Columns, dict[str, str]]]:
    """A table in parts of about so many rows: parquet is read part by part, other formats whole.

    Args:
        columns: of a parquet file, those to read; all of them when left out.
    """
    path = Path(path)
    if path.suffix != ".parquet":
        yield read_table(path)
        return
    if not path.exists():
        raise InputError(f"{path} must be a file, but it does not exist; check the path")
    try:
        with pq.ParquetFile(path) as file:
            metadata = text_metadata(file.schema_arrow.metadata)
            for batch in file.iter_batches(batch_size=rows, columns=columns):
                table = pa.Table.from_batches([batch])
                yield {name: arrow_to_numpy(table.column(name)) for name in table.column_names}, metadata
    except pa.ArrowException as error:
        raise InputError(f"{path} must be a readable parquet file, but reading it failed: {error}") from None


def read_between(path: str | Path, column: str, low: int, high: int) -> Columns:
    """The rows of a parquet file, sorted by that column, whose value is at least `low` and below `high`."""
    with reading(path, "parquet file"):
        table = pq.read_table(Path(path), filters=[(column, ">=", low), (column, "<", high)])
    return {name: arrow_to_numpy(table.column(name)) for name in table.column_names}


# Tables as arrow: columns of one value a row, without a Python object for each, for a million rows and more.


def read_arrow(path: str | Path, columns: Sequence[str] | None = None) -> tuple[pa.Table, dict[str, str]]:
    """The columns of one value a row as an arrow table, and the metadata; of parquet nothing else is read.

    A folder is read as the parquet files in it, one after the other.

    Args:
        columns: those to read where they have one value a row; all of them when left out.
    """
    path = Path(path)
    if path.is_dir():
        parts = [read_arrow(part, columns) for part in sorted(path.glob("*.parquet"))]
        return pa.concat_tables([table for table, _ in parts], promote_options="permissive"), parts[0][1]
    if path.suffix != ".parquet":
        table, metadata = read_table(path)
        flat = [name for name, values in table.items() if values.ndim == 1 and (columns is None or name in columns)]
        return pa.table({name: pa.array(table[name]) for name in flat}), metadata
    if not path.exists():
        raise InputError(f"{path} must be a file, but it does not exist; check the path")
    try:
        schema = pq.read_schema(path)
        flat = [
            field.name
            for field in schema
            if not pa.types.is_nested(field.type) and (columns is None or field.name in columns)
        ]
        return pq.read_table(path, columns=flat), text_metadata(schema.metadata)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} must be a readable parquet file, but reading it failed: {error}") from None


def column_names(path: str | Path) -> list[str]:
    """The names of a table's columns; of parquet and npz nothing else is read."""
    path = Path(path)
    if path.is_dir():
        path = min(path.glob("*.parquet"))
    try:
        if path.suffix == ".npz":
            with zipfile.ZipFile(path) as archive:
                names = (name.removesuffix(".npy") for name in archive.namelist())
                return [name for name in names if name != "metadata"]
        if path.suffix != ".parquet":
            return list(read_table(path)[0])
        return list(pq.read_schema(path).names)
    except (pa.ArrowException, OSError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} must be a readable {path.suffix[1:]} file, but reading it failed: {error}") from None


def arrow_bytes(table: pa.Table, kind: str) -> bytes:
    """An arrow table as the bytes of a parquet or csv file."""
    sink = pa.BufferOutputStream()
    if kind == "parquet":
        pq.write_table(table, sink, compression="zstd")
    else:
        from pyarrow import csv as arrow_csv

        arrow_csv.write_csv(table, sink)
    return bytes(sink.getvalue())


def row_count(path: str | Path) -> int:
    """Rows of a table; of parquet its footer alone is read."""
    if Path(path).suffix == ".parquet":
        with reading(path, "parquet file"):
            return int(pq.read_metadata(Path(path)).num_rows)
    return max((len(values) for values in read_table(path)[0].values() if values.ndim), default=0)


def parquet_metadata(path: str | Path) -> dict[str, str]:
    """The metadata of a parquet file as text."""
    return text_metadata(pq.read_schema(Path(path)).metadata)


def list_width(path: str | Path, names: tuple[str, ...]) -> int:
    """Values per row of the first of these columns that a parquet file has; 0 without one."""
    footer = pq.read_metadata(Path(path))
    leaves = [footer.schema.column(k).path.split(".")[0] for k in range(footer.num_columns)]
    for name in names:
        if name in leaves and footer.num_rows:
            values = sum(
                footer.row_group(g).column(leaves.index(name)).num_values for g in range(footer.num_row_groups)
            )
            return int(values) // int(footer.num_rows)
    return 0
