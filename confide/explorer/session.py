"""One opened layout with everything that answers for it; its samples and tags as a table for other tools."""

from __future__ import annotations

import re
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from confide import __version__
from confide.checks import InputError, MissingExtra
from confide.explorer.details import FeatureRows, History, Pictures
from confide.explorer.layout import Layout
from confide.explorer.queries import Answers, Order, Question, SampleDatabase
from confide.explorer.samples import LogitsReader, gather_samples
from confide.explorer.tags import SampleTag, TagFile
from confide.files import formats

# Samples and their tags as a table for other tools: CSV, parquet, FiftyOne.

FORMATS = ("csv", "parquet")
RESERVED = {"id", "filepath", "tags", "metadata", "created_at", "last_modified_at", "ground_truth", "relabel"}
FORMULA = r"^([=+@\t\r]|-[^0-9.])"
"""How a cell begins that a spreadsheet would take for a formula."""


def export_table(table: SampleDatabase, question: Question, rows: Order) -> pa.Table:
    """The chosen rows in their order, with every column, what the model says, and the tags."""
    voice = question.voice
    whole = table.arrow(f"SELECT id, {_select(question)} FROM {table.source((voice,))}")
    picked = whole.take(pa.array(rows, pa.int32()))
    found: dict[str, pa.Array] = {"id": picked.column("id")}
    for column in question.columns.values():
        values = picked.column(column.key)
        name = column.key.removeprefix("c.")
        if column.kind == "category":
            found[name] = pa.array(column.values).take(values.combine_chunks())
        elif column.kind == "class":
            found[name] = values
            found[f"{name}_name"] = pa.array([table.samples.name_of(v) for v in values.to_pylist()], pa.string())
        else:
            found[name] = values
    if voice is not None:
        found["model"] = pa.array([voice.model] * len(rows), pa.string())
        found["stage"] = pa.array([voice.stage] * len(rows), pa.string())
    return _with_tags(pa.table(found), table)


def _select(question: Question) -> str:
    quoted = ((c.sql, c.key.replace('"', '""')) for c in question.columns.values())
    return ", ".join(f'{sql} AS "{key}"' for sql, key in quoted)


def _with_tags(found: pa.Table, table: SampleDatabase) -> pa.Table:
    tags = {(tag.split, tag.id): tag for tag in table.tags.all()}
    keys = zip(found.column("split").to_pylist(), found.column("id").to_pylist(), strict=True)
    mine = [tags.get(key) for key in keys] if tags else [None] * found.num_rows
    new = [None if t is None else t.new_label for t in mine]
    more = {
        "tag": pa.array([None if t is None else t.action for t in mine], pa.string()),
        "new_label": pa.array(new, pa.int32()),
        "new_label_name": pa.array([table.samples.name_of(k) for k in new], pa.string()),
        "note": pa.array([None if t is None else t.note for t in mine], pa.string()),
        "changed": pa.array([None if t is None else t.changed for t in mine], pa.string()),
    }
    for name, values in more.items():
        found = found.append_column(name if name not in found.column_names else f"{name}_", values)
    return found


def as_bytes(found: pa.Table, kind: str) -> bytes:
    """The table as a file; in CSV no cell begins like a formula."""
    if kind not in FORMATS:
        raise InputError(f"format must be one of {', '.join(FORMATS)}, got '{kind}'")
    return formats.arrow_bytes(_without_formulas(found) if kind == "csv" else found, kind)


def _without_formulas(found: pa.Table) -> pa.Table:
    columns = {}
    for name in found.column_names:
        values = found.column(name)
        if pa.types.is_string(values.type):
            values = pc.if_else(
                pc.fill_null(pc.match_substring_regex(values, FORMULA), False),
                pc.binary_join_element_wise("'", values, ""),
                values,
            )
        columns[re.sub(FORMULA, r"'\1", name)] = values
    return pa.table(columns)


def write_export(path: Path, found: pa.Table) -> None:
    """Write the table as .csv or .parquet, atomically."""
    content = as_bytes(found, path.suffix[1:])
    with formats.atomic(path) as temporary:
        temporary.write_bytes(content)


def has_fiftyone() -> bool:
    """Whether FiftyOne is installed."""
    return find_spec("fiftyone") is not None


def to_fiftyone(found: pa.Table, rows: Order, pictures: Pictures, folder: Path, name: str) -> Any:
    """A persistent FiftyOne dataset of these samples; their pictures are written to a folder beside the tags."""
    try:
        import fiftyone
    except ImportError:
        raise MissingExtra("fiftyone", "fiftyone", "the export to FiftyOne") from None
    dataset = _new_dataset(fiftyone, name)
    samples = []
    for row, record in zip(rows.tolist(), found.to_pylist(), strict=True):
        content = pictures.content(row)
        if content.image is None:
            continue
        path = folder / f"{row}.{content.media_type.removeprefix('image/')}"
        with formats.atomic(path) as temporary:
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


def _fiftyone_sample(fiftyone: Any, path: Path, record: dict[str, Any]) -> Any:
    sample = fiftyone.Sample(filepath=str(path.resolve()), tags=[record["tag"]] if record["tag"] else [])
    if record.get("label_name") is not None:
        sample["ground_truth"] = fiftyone.Classification(label=record["label_name"])
    if record.get("prediction_name") is not None:
        said = fiftyone.Classification(label=record["prediction_name"], confidence=record.get("confidence"))
        sample["prediction"] = said
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


MAX_CLASSES_FOUND = 60


class Explorer:
    """The parts that answer, each over the same samples."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.samples = gather_samples(layout)
        self.tags = TagFile(layout.tags)
        self.table = SampleDatabase(layout, self.samples, self.tags)
        self.answers = Answers(self.table)
        self.pictures = Pictures(layout, self.samples)
        self.features = FeatureRows(layout, self.samples)
        self.history = History(layout, self.samples)
        self.logits = LogitsReader(layout, self.samples)
        self._warming = False
        self._tagging = threading.Lock()
        """Held from the file to its mirror, so that both see quick changes in the same order."""

    def warm_up(self) -> None:
        """Load in the background, once, what the first look needs: the first model's voice, and the pictures."""
        if self._warming:
            return
        self._warming = True

        def load() -> None:
            try:
                if self.table.models:
                    model = self.table.models[0]
                    self.table.voice(model, self.layout.stages(model)[-1])
                self.pictures.load()
            except Exception:
                # What is wrong with a file is said to the request that needs it; after the end nobody asks.
                self._warming = False

        threading.Thread(target=load, daemon=True).start()

    def close(self) -> None:
        """Let go of the databases."""
        for part in (self.table, self.history, self.logits, self.tags):
            part.close()

    @property
    def name(self) -> str:
        """A plain name for files and other tools."""
        kept = "".join(c if c.isalnum() or c in "-_" else "-" for c in self.layout.title)
        return kept.strip("-")[:80] or "run"

    def about(self) -> dict[str, Any]:
        """What the page must know before its first question; no model is computed for it."""
        layout, samples = self.layout, self.samples
        return {
            "title": layout.title,
            "version": __version__,
            "path": str(layout.path),
            "n": samples.table.num_rows,
            "splits": {split: len(ids) for split, ids in samples.ids.items()},
            "models": {model: list(layout.stages(model)) for model in layout.predictions},
            "trust": layout.trust_name,
            "method": samples.method,
            "num_classes": samples.num_classes,
            "named": bool(samples.classes.names),
            "columns": [column.public() for column in samples.columns.values()],
            "kind": self.pictures.kind if self.pictures.loaded else "loading",
            "pictures": self.pictures.reason,
            "missing": [m.__dict__ for m in layout.missing],
            "fiftyone": has_fiftyone(),
        }

    def classes(self, text: str) -> list[dict[str, Any]]:
        """Classes whose name holds the text, shortest names first; at most a listful."""
        names, wanted = self.samples.classes.names, text.strip().lower()
        if not names:
            # Classes without names are called by their numbers.
            number = int(wanted) if wanted.isdigit() else -1
            few = self.samples.num_classes <= MAX_CLASSES_FOUND
            found = [k for k in range(self.samples.num_classes) if wanted in str(k)] if few else [number]
            return [{"label": k, "name": str(k)} for k in found if 0 <= k < self.samples.num_classes]
        hits = [(len(name), k) for k, name in enumerate(names) if wanted in name.lower()]
        return [{"label": k, "name": names[k]} for _, k in sorted(hits)[:MAX_CLASSES_FOUND]]

    def chosen(self, question: Question, what: str) -> Order:
        """The rows to export: those that fit the question, or all that are tagged."""
        if what == "selection":
            return self.answers.order(question)
        if what != "tags":
            raise InputError(f"what must be 'selection' or 'tags', got '{what}'")
        return self.table.numbers("SELECT row FROM marks ORDER BY row")

    def put_tag(self, row: int, body: dict[str, Any]) -> dict[str, Any]:
        """Write a whole tag, keep its mirror in step, and say what is on disk now."""
        split, sample = self.samples.split_of(row), self.samples.table.column("id")[row].as_py()
        given = {"action": None, "new_label": None, "note": "", **self._given(body)}
        with self._tagging:
            return self._marked(row, self.tags.put(SampleTag(split, sample, **given)))

    def change_tag(self, body: dict[str, Any]) -> dict[str, Any]:
        """Write what the body names of a tag, and leave the rest of it as it is on disk."""
        split, sample = str(body.get("split")), str(body.get("id"))
        row = self.row_of(split, sample)
        with self._tagging:
            return self._marked(row, self.tags.change(split, sample, self._given(body)))

    def _given(self, body: dict[str, Any]) -> dict[str, Any]:
        """What a body says of a tag, checked."""
        found: dict[str, Any] = {key: body[key] for key in ("action", "new_label", "note") if key in body}
        new = found.get("new_label")
        if new is not None and (type(new) is not int or not 0 <= new < self.samples.num_classes):
            raise InputError(f"new_label must be a class index below {self.samples.num_classes}, got {new!r}")
        if "action" in found:
            found["action"] = None if found["action"] is None else str(found["action"])
        if "note" in found:
            found["note"] = str(found["note"] or "").strip()
        return found

    def _marked(self, row: int, tag: SampleTag) -> dict[str, Any]:
        self.table.mark(row, tag.kind)
        self.answers.version += 1
        return {
            "tag": tag.action,
            "kind": tag.kind,
            "new_label": self.samples.name_of(tag.new_label),
            "new_value": tag.new_label,
            "note": tag.note,
            "changed": tag.changed,
        }

    def row_of(self, split: str, sample: str) -> int:
        """The row of a sample."""
        known = self.samples.ids.get(split)
        place = -1 if known is None else known.index(sample).as_py()
        if place < 0:
            raise InputError(f"there is no sample '{sample}' in split '{split}'")
        return int(self.samples.starts[split] + place)
