"""Tables with a column of inputs and one of labels: csv and tsv, JSON lines, parquet, Hugging Face datasets."""

from __future__ import annotations

import csv as csv_format
import gzip
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from confide.checks import InputError, MissingExtra
from confide.data.base import (
    DATASETS,
    SPLIT_WORDS,
    WHOLE,
    ColumnNames,
    RawDataset,
    RawSplit,
    as_inputs,
    default_ids_of,
    pick_id_column,
    recognises,
)
from confide.data.images import ImageBytes, ImageOptions, file_stamp, read_images
from confide.files.disk import atomic
from confide.files.formats import arrow_to_numpy, parse_json, read_json
from confide.records import Provenance
from confide.types import AnyArray, JsonObject

# ---- Which files belong to which split: one file, or a folder with splits (and shards) in the file names ----


def part_files(path: Path, endings: tuple[str, ...]) -> tuple[dict[str, list[Path]], dict[str, str]]:
    """Split name -> its files in order (`train.csv`, `train-00000-of-00002.parquet`), and files left out with why."""
    if path.is_file():
        return {WHOLE: [path]}, {}
    splits: dict[str, list[Path]] = {}
    for file in data_files(path, endings):
        word = SPLIT_WORDS.get(re.split(r"[-_.]", file.name.lower())[0], WHOLE)
        splits.setdefault(word, []).append(file)
    without_split = splits.pop(WHOLE, []) if len(splits) > 1 else []
    return splits, {file.name: "no split in its name" for file in without_split}


def data_files(path: Path, endings: tuple[str, ...]) -> list[Path]:
    """Files of these endings in a folder, or in its folder `data`, sorted."""
    for place in (path, path / "data"):
        if place.is_dir():
            files = sorted(f for f in place.iterdir() if f.name.lower().endswith(endings) and f.is_file())
            if files:
                return files
    return []


def holds(path: Path, endings: tuple[str, ...]) -> bool:
    """Whether a path is such a file, or a folder with some."""
    return path.name.lower().endswith(endings) if path.is_file() else bool(data_files(path, endings))


# ---- Rows of text files -> parts ----

NumberedRows = Iterator[tuple[int, JsonObject]]
"""Line numbers and the cells of a csv line or a JSON line, by their names in the file."""


def open_text(path: Path) -> IO[str]:
    """A text file, plain or gzipped; a byte-order mark is not part of the text."""
    if path.suffix == ".gz":
        return cast(IO[str], gzip.open(path, "rt", encoding="utf-8-sig", newline=""))
    return open(path, encoding="utf-8-sig", newline="")


def read_texts(
    path: Path, endings: tuple[str, ...], reader: Callable[[Path], NumberedRows], names: ColumnNames
) -> RawDataset:
    """Texts and labels of a file, or of a folder with one file or more per split."""
    files, left_out = part_files(path, endings)
    parts = {}
    for split, shards in files.items():
        columns = TextColumns()
        for file in shards:
            columns.extend(file, reader, names)
        parts[split] = columns.part()
    return RawDataset(parts, None, path.resolve().name.split(".")[0], Provenance(left_out=left_out))


@dataclass
class TextColumns:
    """Texts, labels and (where every file has them) ids of the files of one split, as they are read."""

    texts: list[str] = field(default_factory=list)
    labels: list[Any] = field(default_factory=list)
    ids: list[Any] = field(default_factory=list)

    def extend(self, file: Path, reader: Callable[[Path], NumberedRows], names: ColumnNames) -> None:
        """Read one file to its end."""
        chosen: tuple[str, str, str | None] | None = None
        try:
            for line, row in reader(file):
                if chosen is None:
                    chosen = (*names.pick(row, str(file)), pick_id_column(row))
                self._append(row, chosen, f"{file}, line {line},")
        except UnicodeDecodeError as error:
            raise InputError(
                f"{file} must be UTF-8 text, got byte {error.object[error.start]:#x}; convert it"
            ) from None

    def _append(self, row: JsonObject, names: tuple[str, str, str | None], where: str) -> None:
        text, label = row.get(names[0]), row.get(names[1])
        if not isinstance(text, str) or label is None or label == "":
            missing = names[1] if isinstance(text, str) else names[0]
            raise InputError(f"{where} must have a '{missing}', got none; add it or drop the row")
        for name in filter(None, names[1:]):
            if isinstance(row.get(name), (list, dict)):
                raise InputError(
                    f"{where} must have a word or a number as '{name}', got {repr(row[name])[:40]}; mend it"
                )
        self.texts.append(text)
        self.labels.append(label)
        if names[2] is not None:
            self.ids.append(row.get(names[2]))

    def part(self) -> RawSplit:
        """All that was read."""
        texts = np.empty(len(self.texts), dtype=object)
        texts[:] = self.texts
        labels = np.array(self.labels) if self.labels else np.zeros(0, dtype=np.int64)
        return RawSplit(texts, labels, np.array(self.ids) if self.ids and len(self.ids) == len(texts) else None)


# ---- Texts and labels from csv, tsv and JSON lines ----

LONGEST_FIELD = 1 << 27


def _rows_of_csv(file: Path) -> NumberedRows:
    # The format's own limit of 128 KiB is less than a long document; it holds for the whole process.
    csv_format.field_size_limit(max(csv_format.field_size_limit(), LONGEST_FIELD))
    with open_text(file) as lines:
        reader = csv_format.DictReader(lines, delimiter="\t" if ".tsv" in file.suffixes else ",")
        try:
            for row in reader:
                yield reader.line_num, {key: value for key, value in row.items() if key is not None}
        except csv_format.Error as error:
            raise InputError(f"{file} must be csv, got a bad line {reader.line_num} ({error}); mend it") from None


def _rows_of_jsonl(file: Path) -> NumberedRows:
    with open_text(file) as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = parse_json(line, f"line {number}")
            except InputError as error:
                raise InputError(f"{file} must hold one JSON object per line, but {error}") from None
            if not isinstance(row, dict):
                raise InputError(
                    f"{file} must hold one JSON object per line, got a {type(row).__name__} in line {number}"
                )
            yield number, row


@dataclass(frozen=True)
class TextFormat:
    """A format of text files: its word, how its files end, how their rows are read, and what `help()` says of it."""

    word: str
    endings: tuple[str, ...]
    rows: Callable[[Path], NumberedRows]
    paper: str
    title: str
    field: str
    when: str
    example: tuple[str, ...]
    """Lines of a small file."""

    def register(self) -> Callable[..., RawDataset]:
        """The source of this format, registered; its `help()` is that of a function written out."""

        def read(path: Path, *, inputs: str | None = None, labels: str | None = None) -> RawDataset:
            """{self.title}; a file, or a folder with train, val, test in the names.

            When: {self.when}.
            When not: columns hold images: take parquet.

            Args:
                path: of the file or folder.
                inputs: {self.field} of texts; the first of text, sentence, utterance, query and the like by default.
                labels: {self.field} of labels; the first of label, category, intent, class and the like by default.

            Returns:
                The texts and labels as they stand there; `load_dataset` makes a `Dataset` of them.

            Raises:
                InputError: for a file that is not of the format, or rows without a text or label.

            Example:
                >>> from pathlib import Path
                >>> from confide import data
                >>> path = Path("train{self.endings[0]}")
                >>> lines = {self.example}
                >>> _ = path.write_text(chr(10).join(lines))
                >>> data.{self.word}(path).parts["all"].labels.tolist()
                ['greeting', 'farewell']
            """
            return read_texts(path, self.endings, self.rows, ColumnNames(inputs, labels))

        read.__name__ = read.__qualname__ = self.word
        read.__doc__ = (read.__doc__ or "").format(self=self)
        recognises(self.word, lambda path: holds(path, self.endings))
        return DATASETS.add(self.word, paper=self.paper, takes="path")(read)


TEXT_FORMATS = (
    TextFormat(
        "csv",
        (".csv", ".tsv", ".csv.gz", ".tsv.gz"),
        _rows_of_csv,
        paper="format: comma- or tab-separated values with a header",
        title="Texts and labels from csv or tsv with a header",
        field="column",
        when="texts in a table",
        example=("text,label", "hello,greeting", "bye,farewell"),
    ),
    TextFormat(
        "jsonl",
        (".jsonl", ".jsonl.gz", ".ndjson"),
        _rows_of_jsonl,
        paper="format: one JSON object per line",
        title="Texts and labels from JSON lines",
        field="key",
        when="texts with other fields, one object a line",
        example=('{"text": "hello", "label": "greeting"}', '{"text": "bye", "label": "farewell"}'),
    ),
)
csv, jsonl = (text_format.register() for text_format in TEXT_FORMATS)


# ---- Arrow tables -> parts: images from bytes, texts from strings, rows from lists of numbers ----


def read_tables(
    tables: Mapping[str, pa.Table], raw: RawDataset, names: ColumnNames, options: ImageOptions, data_folder: Path
) -> RawDataset:
    """`raw` with parts from one table per split."""
    first = next(iter(tables.values()))
    inputs, labels = names.pick(first.column_names, raw.name)
    raw = replace(raw, class_names=raw.class_names or _names_in_metadata(first, labels))
    parts = {split: _part(table, inputs, labels, split, raw.name) for split, table in tables.items()}
    if not _is_bytes(first.schema.field(inputs).type):
        values = {split: as_inputs(arrow_to_numpy(table.column(inputs)), split) for split, table in tables.items()}
        return replace(raw, parts={split: replace(part, inputs=values[split]) for split, part in parts.items()})
    encoded = {}
    for split, part in parts.items():
        column, paths = _bytes_and_paths(tables[split].column(inputs))
        assert part.ids is not None
        place, version = f"{raw.provenance.place or raw.name}\0{split}", raw.provenance.versions.get(split, "")
        encoded[split] = (ImageBytes(column, part.ids.astype(np.str_), place, version, paths), part)
    return read_images(encoded, options, data_folder, raw)


def _part(table: pa.Table, inputs: str, labels: str, split: str, where: str) -> RawSplit:
    missing = [name for name in (inputs, labels) if name not in table.column_names]
    if missing:
        raise InputError(f"{where} must have the column '{missing[0]}' in every split, but '{split}' has none; add it")
    id_column = pick_id_column(table.column_names)
    ids = arrow_to_numpy(table.column(id_column)) if id_column else default_ids_of(split, len(table))
    columns = {}
    for name in table.column_names:
        kind = table.schema.field(name).type
        if name not in (inputs, labels, id_column) and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            columns[name] = arrow_to_numpy(table.column(name))
    return RawSplit(inputs, arrow_to_numpy(table.column(labels)), ids, columns)


def _is_bytes(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(kind.field(i).name == "bytes" for i in range(kind.num_fields))
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _bytes_and_paths(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.ChunkedArray | None]:
    if not pa.types.is_struct(column.type):
        return column, None
    has_paths = column.type.get_field_index("path") >= 0
    return pc.struct_field(column, "bytes"), pc.struct_field(column, "path") if has_paths else None


def _names_in_metadata(table: pa.Table, labels: str) -> tuple[str, ...] | None:
    """Class names as Hugging Face datasets keeps them in the metadata of its parquet files."""
    raw = (table.schema.metadata or {}).get(b"huggingface")
    if raw is None:
        return None
    try:
        names = json.loads(raw)["info"]["features"][labels]["names"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return None  # of another layout
    return tuple(map(str, names)) if isinstance(names, list) and names else None


# ---- Parquet files with image bytes (or texts, or feature lists) and labels ----

PARQUET_ENDINGS = (".parquet",)


@DATASETS.add("parquet", paper="format: Apache Parquet", takes="path")
def parquet(
    path: Path,
    *,
    data_folder: Path,
    inputs: str | None = None,
    labels: str | None = None,
    size: int | tuple[int, int] | None = None,
    fit: str = "crop",
    channels: int | None = None,
    memory_gb: float = 1.0,
) -> RawDataset:
    """Parquet with image bytes, texts or lists of numbers, and labels; a file, or a folder with one or more per split.

    Class names come from the files' metadata or from `classes.json` beside them.

    When: large tables of images, texts or numbers, in one or many files.
    When not: a person shall edit them.

    Args:
        path: of the file or folder.
        data_folder: where unpacked copies of large files are kept; `load_dataset` fills it in.
        inputs: column of inputs; the first of image, img, x, features, text and the like by default.
        labels: column of labels; the first of label, category, intent, class and the like by default.
        size: side, or (height, width); by default the size all images have, else their median short side up to 224.
        fit: crop cuts the centre of the wanted aspect, stretch keeps all of the image.
        channels: 1 or 3; by default 1 if all images are grey.
        memory_gb: more than this, decoded, is decoded when asked for; files of more are unpacked and memory-mapped.

    Returns:
        The parts as the source holds them; `load_dataset` makes a checked `Dataset` of them.

    Raises:
        InputError: for files that cannot be read, or lack a column.

    Example:
        >>> import pyarrow as pa, pyarrow.parquet
        >>> from confide import data
        >>> table = pa.table({"text": ["hello", "bye"] * 10, "label": [0, 1] * 10})
        >>> pyarrow.parquet.write_table(table, "small.parquet")
        >>> data.load_dataset("small.parquet", class_names=("greeting", "farewell"))
        <Dataset 'small': text, 2 classes; train 16, val 2, test 2>
    """
    files, left_out = part_files(path, PARQUET_ENDINGS)
    versions = {split: _version_of_files(shards) for split, shards in files.items()}
    provenance = Provenance(place=str(path.resolve()), versions=versions, left_out=left_out)
    large = sum(file.stat().st_size for shards in files.values() for file in shards) > memory_gb * 1e9
    tables = {
        split: _memory_mapped(shards, data_folder / "unpacked" / f"{versions[split]}.arrow")
        if large
        else _read_parquet(shards)
        for split, shards in files.items()
    }
    raw = RawDataset({}, _class_names(path), path.resolve().stem, provenance)
    options = ImageOptions(size, fit, channels, memory_gb)
    return read_tables(tables, raw, ColumnNames(inputs, labels), options, data_folder)


recognises("parquet", lambda path: holds(path, PARQUET_ENDINGS))


def _version_of_files(files: list[Path]) -> str:
    words = [f"{file.resolve()}:{file_stamp(file)}" for file in files]
    return hashlib.blake2b("\0".join(words).encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()


def _read_parquet(files: list[Path]) -> pa.Table:
    try:
        return pa.concat_tables([pq.ParquetFile(file).read() for file in files], promote_options="permissive")
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(files, error) from None


def _memory_mapped(files: list[Path], target: Path) -> pa.Table:
    """The same table memory-mapped from an unpacked copy, so that files larger than memory can be read by row."""
    try:
        if not target.exists():
            with atomic(target) as temporary, pa.OSFile(str(temporary), "wb") as sink:
                schema = pq.read_schema(files[0])
                with pa.ipc.new_file(sink, schema) as writer:
                    for file in files:
                        for batch in pq.ParquetFile(file).iter_batches(batch_size=1024):
                            writer.write_table(pa.Table.from_batches([batch]).cast(schema))
        return pa.ipc.open_file(pa.memory_map(str(target))).read_all()
    except pa.ArrowException as error:
        raise _unreadable(files, error) from None


def _unreadable(files: list[Path], error: Exception) -> InputError:
    where = files[0] if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"
    return InputError(
        f"{where} must be readable parquet of one schema, but reading failed: {' '.join(str(error).split())}"
    )


def _class_names(path: Path) -> tuple[str, ...] | None:
    """Names in `classes.json`: texts, or objects with a name."""
    file = (path if path.is_dir() else path.parent) / "classes.json"
    if not file.exists():
        return None
    entries = read_json(file)
    if not isinstance(entries, list):
        raise InputError(f"{file} must be a list of class names, got a {type(entries).__name__}; list them by label")
    return tuple(str(entry.get("name", entry)) if isinstance(entry, dict) else str(entry) for entry in entries)


# ---- `hf:<name>`: datasets of the Hugging Face hub, or saved by that library ----


@DATASETS.add("hf", paper="Lhoest et al., 2021, arXiv:2109.02846", takes="name")
def hf(
    name: str,
    *,
    data_folder: Path,
    config: str | None = None,
    inputs: str | None = None,
    labels: str | None = None,
    size: int | tuple[int, int] | None = None,
    fit: str = "crop",
    channels: int | None = None,
    memory_gb: float = 1.0,
) -> RawDataset:
    """Hugging Face datasets, `hf:<name>` or `hf:<folder saved by it>`: images or texts with labels.

    When: a dataset of the hub, or one saved by its library.
    When not: there is no network access and no saved folder.

    Args:
        name: on the hub, or a folder that the library saved.
        data_folder: where lists of checked images are kept; `load_dataset` fills it in.
        config: which configuration, where the dataset has several.
        inputs: column of inputs; the first of image, img, x, features, text and the like by default.
        labels: column of labels; the first of label, category, intent, class and the like by default.
        size: side, or (height, width); by default the size all images have, else their median short side up to 224.
        fit: crop cuts the centre of the wanted aspect, stretch keeps all of the image.
        channels: 1 or 3; by default 1 if all images are grey.
        memory_gb: decoded images up to this stay in memory, more are decoded when asked for.

    Returns:
        The parts as the source holds them; `load_dataset` makes a checked `Dataset` of them.

    Raises:
        MissingExtra: without the package datasets.
        InputError: for a dataset that cannot be loaded, or has no split train, val or test.

    Example:
        >>> from confide import data
        >>> data.load_dataset("hf:ylecun/mnist")  # doctest: +SKIP
    """
    splits = _load_hf(name, config)
    tables: dict[str, AnyArray] = {}
    left_out: dict[str, str] = {}
    for split, rows in splits.items():
        word = SPLIT_WORDS.get(split, WHOLE if len(splits) == 1 else "")
        if word and word not in tables:
            tables[word] = _undecoded(rows).with_format("arrow")[:]
        else:
            left_out[split] = "not train, val or test"
    if not tables:
        raise InputError(
            f"hf:{name} must have a split train, val or test, got {', '.join(splits)}; choose another config"
        )
    versions = {SPLIT_WORDS.get(split, WHOLE): _version_of_rows(rows) for split, rows in splits.items()}
    provenance = Provenance(place=f"hf:{name}:{config}", versions=versions, left_out=left_out)
    raw = RawDataset({}, None, name.rstrip("/").rsplit("/", 1)[-1], provenance)
    options = ImageOptions(size, fit, channels, memory_gb)
    return read_tables(tables, raw, ColumnNames(inputs, labels), options, data_folder)


def _load_hf(name: str, config: str | None) -> Mapping[str, AnyArray]:
    try:
        import datasets
    except ImportError:
        raise MissingExtra("datasets", "hf", f"hf:{name}") from None
    try:
        saved = any((Path(name) / file).exists() for file in ("dataset_dict.json", "dataset_info.json"))
        loaded = datasets.load_from_disk(name) if saved else datasets.load_dataset(name, config)
    except Exception as error:  # the library raises its own, the hub's and the network's errors
        why = str(error).strip().split("\n", 1)[0] or type(error).__name__
        raise InputError(f"hf:{name} must be a dataset that can be loaded, but loading failed: {why}") from None
    return loaded if isinstance(loaded, Mapping) else {WHOLE: loaded}


def _version_of_rows(rows: Any) -> str:
    """Stamps of the files that hold the rows."""
    return " ".join(file_stamp(entry["filename"]) for entry in rows.cache_files)


def _undecoded(rows: Any) -> Any:
    """Image columns as stored bytes: decoding is done here, in threads, and finds damaged images."""
    for column, feature in rows.features.items():
        if type(feature).__name__ == "Image":
            rows = rows.cast_column(column, type(feature)(decode=False))
    return rows
