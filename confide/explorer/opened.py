"""One opened layout with everything that answers for it, and what is done to it as a whole."""

from __future__ import annotations

import threading
from typing import Any

from confide import __version__
from confide.core.door import InputError
from confide.explorer import export
from confide.explorer.answers import Answers, Order
from confide.explorer.layout import Layout
from confide.explorer.panels import FeatureRows, History
from confide.explorer.pictures import Pictures
from confide.explorer.questions import Question
from confide.explorer.said import LogitsReader
from confide.explorer.samples import gather_samples
from confide.explorer.table import Table
from confide.explorer.tags import Tag, Tags

MOST_FOUND = 60


class Explorer:
    """The parts that answer, each over the same samples."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.samples = gather_samples(layout)
        self.tags = Tags(layout.tags)
        self.table = Table(layout, self.samples, self.tags)
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
            "named": bool(samples.class_names),
            "columns": [column.public() for column in samples.columns.values()],
            "kind": self.pictures.kind if self.pictures.loaded else "loading",
            "pictures": self.pictures.reason,
            "missing": [m.__dict__ for m in layout.missing],
            "fiftyone": export.has_fiftyone(),
        }

    def classes(self, text: str) -> list[dict[str, Any]]:
        """Classes whose name holds the text, shortest names first; at most a listful."""
        names, wanted = self.samples.class_names, text.strip().lower()
        if not names:
            # Classes without names are called by their numbers.
            number = int(wanted) if wanted.isdigit() else -1
            few = self.samples.num_classes <= MOST_FOUND
            found = [k for k in range(self.samples.num_classes) if wanted in str(k)] if few else [number]
            return [{"label": k, "name": str(k)} for k in found if 0 <= k < self.samples.num_classes]
        hits = [(len(name), k) for k, name in enumerate(names) if wanted in name.lower()]
        return [{"label": k, "name": names[k]} for _, k in sorted(hits)[:MOST_FOUND]]

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
            return self._marked(row, self.tags.put(Tag(split, sample, **given)))

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

    def _marked(self, row: int, tag: Tag) -> dict[str, Any]:
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
