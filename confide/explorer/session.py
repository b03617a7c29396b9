"""One opened layout: `Explorer` holds what its queries need and writes its tags; below, the export of samples and tags
as a table for other tools (CSV, parquet, FiftyOne).
"""

from __future__ import annotations

import io
import json
import re
import secrets
import threading
import zipfile
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from xml.sax.saxutils import quoteattr

import pyarrow as pa
import pyarrow.compute as pc

from confide.checks import InputError, MissingExtra, number_of_digits
from confide.explorer.details import History, NamedClass, Pictures, SampleFeatures, TagState
from confide.explorer.layout import Layout
from confide.explorer.marks import TagMarks
from confide.explorer.pixels import PixelPictures, has_pixels
from confide.explorer.projection import FeatureMap
from confide.explorer.queries import Order, Query, QueryRunner, SampleDatabase, parse_query
from confide.explorer.samples import LogitsReader, gather_samples
from confide.explorer.tags import SampleTag, SeenTag, TagChange, TagFile, TagStep
from confide.files import formats
from confide.files.disk import atomic
from confide.types import JsonObject

MAX_CLASSES_FOUND = 60
"""Classes listed for a text typed."""


MAX_BULK = 20_000
"""Samples tagged at once."""
MAX_UNDO = 200
"""Changes that can be taken back."""


@dataclass(frozen=True)
class TagAnswer:
    """A tag as it was written, the name to take the change back by, and the version of all tags after it."""

    state: TagState
    undo: str
    version: int


@dataclass(frozen=True)
class BulkAnswer:
    """How many samples were changed and how many passed over, the name to take it back by, the version after it."""

    changed: int
    skipped: int
    undo: str
    version: int


def _seen(body: Any) -> SeenTag | None:
    """What the page saw of a tag: for each field the values that it may still have."""
    if body is None:
        return None
    known = isinstance(body, dict) and set(body) <= {"action", "new_label", "note"}
    if not known or not all(isinstance(values, list) for values in body.values()):
        raise InputError("seen must name lists of action, new_label or note, got something else")
    return cast(SeenTag, body)


class Explorer:
    """The samples of a layout with everything that is asked about them; a tag is written here and nowhere else."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.samples = gather_samples(layout)
        self.tags = TagFile(layout.tags)
        self.marks = TagMarks(self.samples, self.tags)
        self.database = SampleDatabase(layout, self.samples, self.marks)
        self.features = SampleFeatures(layout, self.samples)
        self.map = FeatureMap(layout, self.samples, self.features)
        self.queries = QueryRunner(self.database, self.map.inside)
        self.pictures = PixelPictures(self.database) if has_pixels(self.database) else Pictures(layout, self.samples)
        self.history = History(layout, self.samples)
        self.logits = LogitsReader(layout, self.samples)
        self._warming = False
        self._journal: OrderedDict[str, list[TagStep]] = OrderedDict()

    def warm_up(self) -> None:
        """Load in the background, once, what the first look needs: the opening view and the pictures."""
        if self._warming:
            return
        self._warming = True

        def load() -> None:
            try:
                opening = parse_query(self.database, ())
                self.queries.summarise(opening)
                self.queries.order(opening)
                self.pictures.load()
            except Exception:
                # The request that needs a file reports what is wrong with it; after the end there is none.
                self._warming = False

        threading.Thread(target=load, daemon=True).start()

    def close(self) -> None:
        """Let go of the databases."""
        for part in (self.database, self.history, self.logits, self.tags):
            part.close()

    @property
    def name(self) -> str:
        """A plain name for files and other tools."""
        plain = "".join(c if (c.isascii() and c.isalnum()) or c in "-_" else "-" for c in self.layout.title)
        return plain.strip("-")[:80] or "run"

    def classes(self, text: str) -> list[NamedClass]:
        """Classes whose name holds the text, shortest names first; at most a listful."""
        names, text = self.samples.classes.names, text.strip().lower()
        if not names:
            # Classes without names are called by their numbers.
            few = self.samples.num_classes <= MAX_CLASSES_FOUND
            labels = [k for k in range(self.samples.num_classes) if text in str(k)] if few else [number_of_digits(text)]
            return [NamedClass(k, str(k)) for k in labels if k is not None and k < self.samples.num_classes]
        hits = [(len(name), k) for k, name in enumerate(names) if text in name.lower()]
        return [NamedClass(k, names[k]) for _, k in sorted(hits)[:MAX_CLASSES_FOUND]]

    def rows_to_export(self, query: Query, what: str) -> Order:
        """The rows that fit the query (`selection`), or all that are tagged (`tags`)."""
        if what == "selection":
            return self.queries.order(query)
        if what != "tags":
            raise InputError(f"what must be 'selection' or 'tags', got '{what}'")
        return self.marks.rows()

    def put_tag(self, row: int, body: JsonObject) -> TagState:
        """Write a whole tag."""
        split, sample = self._name(row)
        change = self._checked(body)
        with self.marks.writing:
            tag = self.tags.put(SampleTag(split, sample, **change))
            self.marks.mark([(row, tag)])
        return TagState.of(tag, self.samples)

    def change_tag(self, body: JsonObject) -> TagAnswer:
        """Write what the body names of a tag, and leave the rest of it as it is on disk.

        Raises:
            StaleTag: the body says what was `seen` of the tag, and it is something else by now.
        """
        split, sample = str(body.get("split")), str(body.get("id"))
        row, change, seen = self.row_of(split, sample), self._checked(body), _seen(body.get("seen"))
        with self.marks.writing:
            step = self.tags.change(split, sample, change, seen)
            self.marks.mark([(row, step.after)])
            return TagAnswer(TagState.of(step.after, self.samples), self._noted([step]), self.marks.version)

    def change_tags(self, rows: list[int], body: JsonObject) -> BulkAnswer:
        """Tag many samples at once; with `new_label` "suggested" each is relabelled to the class suggested for it."""
        if not 0 < len(rows) <= MAX_BULK:
            raise InputError(f"at most {MAX_BULK:,} samples can be tagged at once, and one at least, got {len(rows):,}")
        suggested = body.get("new_label") == "suggested"
        change = self._checked({k: v for k, v in body.items() if not (suggested and k == "new_label")})
        by_name = {self._name(row): row for row in rows}

        def change_of(split: str, sample: str) -> TagChange | None:
            if not suggested:
                return change
            label = self.suggestion(by_name[split, sample])
            return None if label is None else {**change, "action": "relabel", "new_label": label}

        with self.marks.writing:
            steps = self.tags.change_many(list(by_name), change_of)
            self.marks.mark([(by_name[step.after.split, step.after.id], step.after) for step in steps])
            return BulkAnswer(len(steps), len(rows) - len(steps), self._noted(steps), self.marks.version)

    def undo(self, name: str) -> BulkAnswer:
        """Take back a change by its name; tags that were changed again since stay."""
        with self.marks.writing:
            steps = self._journal.get(name)
            if steps is None:
                raise InputError("a change must be of the last ones since the start to be taken back, but it is older")
            tags = self.tags.take_back(steps)
            self.marks.mark([(self.row_of(tag.split, tag.id), tag) for tag in tags])
            del self._journal[name]
            return BulkAnswer(len(tags), len(steps) - len(tags), "", self.marks.version)

    def suggestion(self, row: int) -> int | None:
        """The class that a sample's scores suggest instead of its label."""
        if "suggested" not in self.samples.table.column_names:
            return None
        label: int | None = self.samples.table.column("suggested")[row].as_py()
        return None if label == self.samples.label_of(row) else label

    def _noted(self, steps: list[TagStep]) -> str:
        """A name by which a change can be taken back."""
        name = secrets.token_urlsafe(9)
        self._journal[name] = steps
        while len(self._journal) > MAX_UNDO:
            self._journal.popitem(last=False)
        return name

    def _name(self, row: int) -> tuple[str, str]:
        return self.samples.split_of(row), self.samples.table.column("id")[row].as_py()

    def _checked(self, body: JsonObject) -> TagChange:
        """The change that the JSON body of a request asks for."""
        change: TagChange = {}
        if "action" in body:
            change["action"] = None if body["action"] is None else str(body["action"])
        if "new_label" in body:
            label, num_classes = body["new_label"], self.samples.num_classes
            if label is not None and (type(label) is not int or not 0 <= label < num_classes):
                raise InputError(f"new_label must be a class index below {num_classes}, got {label!r}")
            change["new_label"] = label
        if "note" in body:
            change["note"] = str(body["note"] or "").strip()
        return change

    def row_of(self, split: str, sample: str) -> int:
        """The row of a sample."""
        known = self.samples.ids.get(split)
        place = -1 if known is None else known.index(sample).as_py()
        if place < 0:
            raise InputError(f"there is no sample '{sample}' in split '{split}'")
        return int(self.samples.starts[split] + place)


# Export.

FORMATS = ("csv", "parquet")
ARCHIVES = ("labelstudio", "fiftyone")
"""Folders that other labelling tools import, as zip files."""
MAX_CHOICES = 1_000
MAX_ARCHIVED = 5_000
"""Samples of such a folder: it holds their pictures."""
RESERVED = {"id", "filepath", "tags", "metadata", "created_at", "last_modified_at", "ground_truth", "relabel"}
FORMULA = r"^[\pZ\pC]*[=+\-@＝＋－＠]|^[\t\r\n]"
"""How a cell begins that a spreadsheet could take for a formula, also after blanks, which some drop."""
NUMBER = r"^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?$"
"""A cell that only looks like one."""


def export_table(database: SampleDatabase, query: Query, rows: Order) -> pa.Table:
    """The chosen rows in their order, with every column, what the model predicts, and the tags."""
    model = query.model_stage
    # By position: people's names of columns need not be different for DuckDB.
    whole = database.arrow(
        f"SELECT {', '.join(['id', *(c.sql for c in query.columns.values())])} FROM {database.source(model)}"
    )
    picked = whole.take(pa.array(rows, pa.int32()))
    columns: dict[str, pa.Array] = {"id": picked.column(0)}
    for place, column in enumerate(query.columns.values(), start=1):
        values, name = picked.column(place), column.key.removeprefix("c.")
        columns[name] = pa.array(column.values).take(values.combine_chunks()) if column.kind == "category" else values
        if column.kind == "class":
            columns[f"{name}_name"] = pa.array([database.samples.name_of(v) for v in values.to_pylist()], pa.string())
    if model is not None:
        columns["model"] = pa.array([model.model] * len(rows), pa.string())
        columns["stage"] = pa.array([model.stage] * len(rows), pa.string())
    return _with_tags(pa.table(columns), database)


def _with_tags(table: pa.Table, database: SampleDatabase) -> pa.Table:
    tags = {(tag.split, tag.id): tag for tag in database.marks.tags.all()}
    keys = zip(table.column("split").to_pylist(), table.column("id").to_pylist(), strict=True)
    row_tags = [tags.get(key) for key in keys]
    new_labels = [None if tag is None else tag.new_label for tag in row_tags]
    more = {
        "tag": pa.array([None if tag is None else tag.action for tag in row_tags], pa.string()),
        "new_label": pa.array(new_labels, pa.int32()),
        "new_label_name": pa.array([database.samples.name_of(label) for label in new_labels], pa.string()),
        "note": pa.array([None if tag is None else tag.note for tag in row_tags], pa.string()),
        "changed": pa.array([None if tag is None else tag.changed for tag in row_tags], pa.string()),
    }
    for name, values in more.items():
        table = table.append_column(name if name not in table.column_names else f"{name}_", values)
    return table


def as_bytes(table: pa.Table, kind: str) -> bytes:
    """The table as a file; in CSV no cell begins like a formula."""
    if kind not in FORMATS:
        raise InputError(f"format must be one of {', '.join((*FORMATS, *ARCHIVES))}, got '{kind}'")
    return formats.arrow_bytes(_without_formulas(table) if kind == "csv" else table, kind)


def _without_formulas(table: pa.Table) -> pa.Table:
    columns = [_quoted(c) if pa.types.is_string(c.type) else c for c in table.columns]
    return pa.table(columns, names=_quoted(pa.array(table.column_names, pa.string())).to_pylist())


def _quoted(texts: Any) -> Any:
    """Texts with an apostrophe before what a spreadsheet could take for a formula."""
    starts, number = (pc.match_substring_regex(texts, pattern) for pattern in (FORMULA, NUMBER))
    formula = pc.fill_null(pc.and_not(starts, number), False)
    return pc.if_else(formula, pc.binary_join_element_wise("'", texts, ""), texts)


def write_export(path: Path, table: pa.Table) -> None:
    """Write the table as .csv or .parquet, atomically."""
    content = as_bytes(table, path.suffix[1:])
    with atomic(path) as temporary:
        temporary.write_bytes(content)


def as_archive(table: pa.Table, rows: Order, explorer: Explorer, kind: str) -> bytes:
    """The samples as a folder that Label Studio or FiftyOne imports, zipped: pictures, and a JSON file of labels."""
    if len(rows) > MAX_ARCHIVED:
        raise InputError(
            f"at most {MAX_ARCHIVED:,} samples can leave with their pictures, got {len(rows):,}; filter more"
        )
    content, folder = io.BytesIO(), "images" if kind == "labelstudio" else "data"
    names: dict[int, str] = {}
    texts: dict[int, str] = {}
    with zipfile.ZipFile(content, "w") as archive:
        for row in rows.tolist():
            sample = explorer.pictures.content(row)
            if sample.image is not None:
                names[row] = f"{folder}/{row}.{sample.media_type.removeprefix('image/')}"
                archive.writestr(names[row], sample.image)
            elif sample.text is not None:
                texts[row] = sample.text
        records = dict(zip(rows.tolist(), table.to_pylist(), strict=True))
        if kind == "fiftyone":
            archive.writestr("labels.json", json.dumps(_fiftyone_labels(records, names, explorer)))
        else:
            tasks = [_task(row, record, names, texts, explorer.name) for row, record in records.items()]
            archive.writestr("tasks.json", json.dumps(formats.plain(tasks), ensure_ascii=False))
            archive.writestr("labels.xml", _labelling(records, bool(names), explorer))
    return content.getvalue()


def _task(row: int, record: JsonObject, names: dict[int, str], texts: dict[int, str], name: str) -> JsonObject:
    """A task of Label Studio: the sample, what a person decided, and what the model predicts with its confidence."""
    shown = "image" if row in names else "text"
    where = f"/data/local-files/?d={name}/{names[row]}" if row in names else texts.get(row, str(record["id"]))

    def choice(label: str) -> JsonObject:
        return {"from_name": "label", "to_name": shown, "type": "choices", "value": {"choices": [label]}}

    decided = record.get("new_label_name") or (record.get("label_name") if record.get("tag") == "keep" else None)
    predicted = record.get("prediction_name")
    model = f"{record.get('model', '')} {record.get('stage', '')}".strip()
    return {
        "data": {shown: where, **{key: value for key, value in record.items() if value is not None and key != shown}},
        "annotations": [] if decided is None else [{"result": [choice(decided)]}],
        "predictions": []
        if predicted is None
        else [{"model_version": model, "score": record.get("confidence"), "result": [choice(predicted)]}],
    }


def _labelling(records: dict[int, JsonObject], images: bool, explorer: Explorer) -> str:
    """The set-up of a Label Studio project for these tasks; classes beyond the listed are those of the samples."""
    names = explorer.samples.classes.names[:MAX_CHOICES]
    used = [
        record.get(key) for record in records.values() for key in ("label_name", "prediction_name", "new_label_name")
    ]
    choices = "".join(f"<Choice value={quoteattr(n)}/>" for n in dict.fromkeys([*names, *filter(None, used)]))
    shown = '<Image name="image" value="$image"/>' if images else '<Text name="text" value="$text"/>'
    to = "image" if images else "text"
    return f'<View>{shown}<Choices name="label" toName="{to}">{choices}</Choices></View>'


def _fiftyone_labels(records: dict[int, JsonObject], names: dict[int, str], explorer: Explorer) -> JsonObject:
    """Labels of FiftyOne's image classification folders, as corrected: the class to relabel to, else the label."""
    corrected = {
        row: record.get("new_label") if record.get("tag") == "relabel" else None for row, record in records.items()
    }
    labels = {
        row: records[row].get("label") if label is None else label for row, label in corrected.items() if row in names
    }
    known = [label for label in labels.values() if label is not None]
    classes = [str(explorer.samples.name_of(k)) for k in range(max(known, default=-1) + 1)]
    return {"classes": classes, "labels": {str(row): label for row, label in labels.items()}}


def to_fiftyone(table: pa.Table, rows: Order, pictures: Pictures, folder: Path, name: str) -> Any:
    """A persistent FiftyOne dataset of these samples; their pictures are written to a folder beside the tags."""
    try:
        import fiftyone
    except ImportError:
        raise MissingExtra("fiftyone", "fiftyone", "the export to FiftyOne") from None
    dataset = _new_dataset(fiftyone, name)
    samples = []
    for row, record in zip(rows.tolist(), table.to_pylist(), strict=True):
        content = pictures.content(row)
        if content.image is None:
            continue
        path = folder / f"{row}.{content.media_type.removeprefix('image/')}"
        with atomic(path) as temporary:
            temporary.write_bytes(content.image)
        samples.append(_fiftyone_sample(fiftyone, path, record))
    dataset.add_samples(samples)
    return dataset


def _new_dataset(fiftyone: Any, name: str) -> Any:
    """A dataset of a name that is not taken; what FiftyOne's own database refuses is one line."""
    try:
        taken = fiftyone.dataset_exists(name)
        dataset = None if taken else fiftyone.Dataset(name, persistent=True)
    except Exception as error:  # its database is a program of its own, with errors of many kinds
        raise InputError(f"FiftyOne must be able to open its database, but: {str(error).splitlines()[0]}") from None
    if taken:
        raise InputError(f"FiftyOne must not have a dataset '{name}' yet, but it has; choose another name")
    return dataset


def _fiftyone_sample(fiftyone: Any, path: Path, record: JsonObject) -> Any:
    sample = fiftyone.Sample(filepath=str(path.resolve()), tags=[record["tag"]] if record["tag"] else [])
    if record.get("label_name") is not None:
        sample["ground_truth"] = fiftyone.Classification(label=record["label_name"])
    if record.get("prediction_name") is not None:
        sample["prediction"] = fiftyone.Classification(
            label=record["prediction_name"], confidence=record.get("confidence")
        )
    if record.get("new_label_name") is not None:
        sample["relabel"] = fiftyone.Classification(label=record["new_label_name"])
    done = {"id", "tag", "label", "label_name", "prediction", "prediction_name", "new_label", "new_label_name"}
    sample["sample_id"] = record["id"]
    for key, value in record.items():
        if key not in done and value is not None:
            # Names FiftyOne keeps for itself get a mark of their own.
            plain = re.sub(r"\W", "_", key)
            sample[f"column_{plain}" if plain in RESERVED or not plain[:1].isalpha() else plain] = value
    return sample
