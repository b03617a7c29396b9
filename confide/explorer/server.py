"""The web server: routes over one opened layout. Answers are JSON; nothing of a request becomes a path or SQL."""

from __future__ import annotations

import json
import threading
from functools import lru_cache
from importlib import resources
from typing import Any

from fastapi import FastAPI, Request, Response

from confide import __version__
from confide.core import files
from confide.core.door import InputError, MissingExtra
from confide.explorer import export
from confide.explorer.answers import Answers
from confide.explorer.compare import compare
from confide.explorer.guard import Guard
from confide.explorer.layout import Layout, Missing
from confide.explorer.panels import FeatureRows, History
from confide.explorer.pictures import Pictures
from confide.explorer.questions import Question, ask
from confide.explorer.said import LogitsReader
from confide.explorer.sample import describe, describe_rows
from confide.explorer.samples import gather_samples
from confide.explorer.table import Table
from confide.explorer.tags import Tag, Tags

ASSETS = {
    "index.html": "text/html; charset=utf-8",
    "explorer.css": "text/css; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "net.js": "text/javascript; charset=utf-8",
    "state.js": "text/javascript; charset=utf-8",
    "dom.js": "text/javascript; charset=utf-8",
    "grid.js": "text/javascript; charset=utf-8",
    "rail.js": "text/javascript; charset=utf-8",
    "drawer.js": "text/javascript; charset=utf-8",
    "compare.js": "text/javascript; charset=utf-8",
    "dialogs.js": "text/javascript; charset=utf-8",
}
MOST_ROWS = 500
MOST_FOUND = 60
OWN = {"from", "count", "row", "open", "text", "format", "what", "cell", "column"}
"""Parameters of a route that are no filters."""


class Explorer:
    """One opened layout with everything that answers for it."""

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

    def warm_up(self) -> None:
        """Load in the background, once, what the first look needs: the first model's voice, and the pictures."""
        if self._warming:
            return
        self._warming = True

        def load() -> None:
            if self.table.models:
                model = self.table.models[0]
                self.table.voice(model, self.layout.stages(model)[-1])
            self.pictures.load()

        threading.Thread(target=load, daemon=True).start()

    def question(self, request: Request) -> Question:
        """What the query string asks, without the parameters of the route itself."""
        return ask(self.table, [(k, v) for k, v in request.query_params.multi_items() if k not in OWN])

    def row(self, request: Request) -> int:
        """The row a route is about."""
        return _whole(request, "row", 0, self.samples.table.num_rows - 1)


def create_app(layout: Layout, host: str = "127.0.0.1", token: str | None = None) -> Any:
    """The guarded ASGI app of a layout."""
    explorer = Explorer(layout)
    app = FastAPI(title="Confide explorer", docs_url=None, redoc_url=None, openapi_url=None)
    for path, handler in _routes(explorer).items():
        method, _, where = path.partition(" ")
        app.add_api_route(where, handler, methods=[method], response_model=None)
    app.add_exception_handler(InputError, _refused)
    app.add_exception_handler(MissingExtra, _refused)
    app.add_api_route("/", lambda: _asset("index.html"), methods=["GET"], response_model=None)
    app.add_api_route("/assets/{name}", _asset, methods=["GET"], response_model=None)
    guarded = Guard(app, host, token)
    guarded.explorer = explorer  # type: ignore[attr-defined]
    return guarded


def _routes(explorer: Explorer) -> dict[str, Any]:
    """Every route by method and path."""
    table, answers = explorer.table, explorer.answers

    def about() -> Response:
        explorer.warm_up()
        return _json(describe_layout(explorer))

    def find(request: Request) -> Response:
        opened = tuple(request.query_params.getlist("open"))
        return _json(answers.find(explorer.question(request), opened))

    def rows(request: Request) -> Response:
        question = explorer.question(request)
        start, count = _whole(request, "from", 0, 1 << 31), _whole(request, "count", 1, MOST_ROWS)
        wanted = answers.order(question)[start : start + count].tolist()
        cells = describe_rows(table, question, wanted)
        texts = explorer.pictures.texts(wanted)
        for cell, text in zip(cells, texts or [], strict=False):
            cell["text"] = text
        return _json({"from": start, "cells": cells})

    def locate(request: Request, split: str, id: str) -> Response:
        """The row of a sample, and its position in the order of the question."""
        known = explorer.samples.ids.get(split)
        place = -1 if known is None else known.index(id).as_py()
        if place < 0 or known is None:
            raise InputError(f"there is no sample '{id}' in split '{split}'")
        row = explorer.samples.starts[split] + place
        pairs = [(k, v) for k, v in request.query_params.multi_items() if k not in (*OWN, "split", "id")]
        # `split` names the sample here; as a filter it comes as its own word.
        pairs += [("split", v) for v in request.query_params.getlist("in")]
        order = answers.order(ask(table, [(k, v) for k, v in pairs if k != "in"]))
        found = (order == row).nonzero()[0]
        return _json({"row": row, "position": int(found[0]) if len(found) else None})

    def sample(request: Request) -> Response:
        row, question = explorer.row(request), explorer.question(request)
        shown = explorer.pictures
        content = shown.content(row) if shown.loaded and shown.kind == "text" else None
        told = describe(table, question, row, explorer.logits)
        return _json({**told, "text": None if content is None else content.text})

    def neighbours(request: Request) -> Response:
        found = explorer.features.nearest(explorer.row(request))
        if isinstance(found, Missing):
            return _json({"missing": found.__dict__})
        name = explorer.samples.name_of
        return _json({"neighbours": [{**n.__dict__, "name": name(n.label)} for n in found]})

    def parts(request: Request) -> Response:
        found = explorer.features.parts(explorer.row(request))
        if isinstance(found, Missing):
            return _json({"missing": found.__dict__})
        return _json({**found, "closest_name": explorer.samples.name_of(found["closest"])})

    def history(request: Request) -> Response:
        question = explorer.question(request)
        if question.voice is None:
            return _json({"missing": Missing("History", "There is no model.", "confide run").__dict__})
        row = explorer.row(request)
        found = explorer.history.of(question.voice.model, row)
        if isinstance(found, Missing):
            return _json({"missing": found.__dict__})
        label = explorer.samples.table.column("label")[row].as_py()
        said = found["prediction"]
        names = [explorer.samples.name_of(k) for k in said]
        return _json({**found, "names": names, "right": [k == label for k in said]})

    def picture(request: Request) -> Response:
        side = 96 if request.query_params.get("small") else 512
        content = explorer.pictures.content(explorer.row(request), side)
        if content.image is None:
            return Response(content.reason, 404, media_type="text/plain; charset=utf-8")
        return Response(content.image, media_type=content.media_type, headers={"Cache-Control": "private, max-age=600"})

    def both(request: Request) -> Response:
        cells = tuple(request.query_params.getlist("cell"))
        return _json(compare(table, explorer.question(request), cells))

    def classes(text: str = "") -> Response:
        return _json({"classes": find_classes(explorer, text)})

    def exported(request: Request) -> Response:
        return _export(explorer, request)

    async def fiftyone(request: Request) -> Response:
        question = explorer.question(request)
        rows = _chosen(explorer, question, request.query_params.get("what", "selection"))
        name = f"confide-{layout_name(explorer.layout)}"
        folder = explorer.layout.tags.with_name("fiftyone")
        made = export.to_fiftyone(export.export_table(table, question, rows), rows, explorer.pictures, folder, name)
        return _json({"name": name, "samples": len(made)})

    async def tag(request: Request) -> Response:
        return _json(_put_tag(explorer, explorer.row(request), await _body(request)))

    async def save_view(request: Request) -> Response:
        body = await _body(request)
        explorer.tags.save_view(str(body.get("name", "")), str(body.get("query", "")))
        return _json({"views": explorer.tags.views()})

    return {
        "GET /api/about": about,
        "GET /api/find": find,
        "GET /api/rows": rows,
        "GET /api/locate": locate,
        "GET /api/sample": sample,
        "GET /api/neighbours": neighbours,
        "GET /api/parts": parts,
        "GET /api/history": history,
        "GET /api/picture": picture,
        "GET /api/compare": both,
        "GET /api/classes": classes,
        "GET /api/export": exported,
        "GET /api/alive": lambda: _json({"alive": True}),
        "GET /api/views": lambda: _json({"views": explorer.tags.views()}),
        "POST /api/fiftyone": fiftyone,
        "PUT /api/tag": tag,
        "PUT /api/view": save_view,
    }


def describe_layout(explorer: Explorer) -> dict[str, Any]:
    """What the page must know before its first question; no model is computed for it."""
    layout, samples = explorer.layout, explorer.samples
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
        "columns": [
            {"key": c.key, "title": c.title, "kind": c.kind, "low": c.low, "high": c.high}
            for c in samples.columns.values()
        ],
        "kind": explorer.pictures.kind if explorer.pictures.loaded else "loading",
        "pictures": explorer.pictures.reason,
        "missing": [m.__dict__ for m in layout.missing],
        "fiftyone": export.has_fiftyone(),
    }


def layout_name(layout: Layout) -> str:
    """A plain name for other tools."""
    kept = "".join(c if c.isalnum() or c in "-_" else "-" for c in layout.title)
    return kept.strip("-")[:80] or "run"


def find_classes(explorer: Explorer, text: str) -> list[dict[str, Any]]:
    """Classes whose name holds the text, shortest names first; at most a listful."""
    names, wanted = explorer.samples.class_names, text.strip().lower()
    if not names:
        known = range(explorer.samples.num_classes)
        found = [
            k
            for k in (known if len(known) <= MOST_FOUND else ([int(wanted)] if wanted.isdigit() else []))
            if k in known
        ]
        return [{"label": k, "name": str(k)} for k in found if wanted in str(k)]
    hits = [(len(name), k) for k, name in enumerate(names) if wanted in name.lower()]
    return [{"label": k, "name": names[k]} for _, k in sorted(hits)[:MOST_FOUND]]


def _chosen(explorer: Explorer, question: Question, what: str) -> Any:
    if what == "selection":
        return explorer.answers.order(question)
    if what != "tags":
        raise InputError(f"what must be 'selection' or 'tags', got '{what}'")
    return explorer.table.numbers("SELECT row FROM marks ORDER BY row")


def _export(explorer: Explorer, request: Request) -> Response:
    question = explorer.question(request)
    what, kind = request.query_params.get("what", "selection"), request.query_params.get("format", "csv")
    found = export.export_table(explorer.table, question, _chosen(explorer, question, what))
    content = export.as_bytes(found, kind)
    name = f"{layout_name(explorer.layout)}-{what}.{kind}"
    media = "text/csv; charset=utf-8" if kind == "csv" else "application/vnd.apache.parquet"
    return Response(content, media_type=media, headers={"Content-Disposition": f'attachment; filename="{name}"'})


def _put_tag(explorer: Explorer, row: int, body: dict[str, Any]) -> dict[str, Any]:
    """Write a tag, keep its mirror in step, and say what is on disk now."""
    new = body.get("new_label")
    if new is not None and (not isinstance(new, int) or not 0 <= new < explorer.samples.num_classes):
        raise InputError(f"new_label must be a class index below {explorer.samples.num_classes}, got {new!r}")
    action, note = body.get("action"), str(body.get("note") or "")
    split = explorer.samples.split_of(row)
    sample = explorer.samples.table.column("id")[row].as_py()
    tag = explorer.tags.put(Tag(split, sample, None if action is None else str(action), new, note.strip()))
    explorer.table.mark(row, tag.kind)
    explorer.answers.version += 1
    return {
        "tag": tag.action,
        "kind": tag.kind,
        "new_label": explorer.samples.name_of(tag.new_label),
        "note": tag.note,
        "changed": tag.changed,
    }


async def _body(request: Request) -> dict[str, Any]:
    """A small JSON object."""
    content = await request.body()
    try:
        found = json.loads(content) if len(content) <= 1 << 17 else None
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise InputError("the request must be a JSON object of at most 128 kB")
    return found


def _whole(request: Request, name: str, low: int, high: int) -> int:
    text = request.query_params.get(name, "")
    if not text.isdigit() or not low <= int(text) <= high:
        raise InputError(f"'{name}' must be a whole number from {low} to {high}, got '{text}'")
    return int(text)


def _json(value: Any) -> Response:
    text = json.dumps(files.plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Response(text, media_type="application/json", headers={"Cache-Control": "no-store"})


def _refused(request: Request, error: Exception) -> Response:
    del request
    return Response(json.dumps({"error": str(error)}), 400, media_type="application/json")


def _asset(name: str) -> Response:
    """A file of the page; only the names listed here exist."""
    if name not in ASSETS:
        return Response("There is no such file.", 404, media_type="text/plain; charset=utf-8")
    return Response(_text(name), media_type=ASSETS[name], headers={"Cache-Control": "no-cache"})


@lru_cache(maxsize=len(ASSETS))
def _text(name: str) -> str:
    text = resources.files("confide.explorer").joinpath("assets", name).read_text(encoding="utf-8")
    if name != "explorer.css":
        return text
    shared = resources.files("confide.report").joinpath("assets", "base.css").read_text(encoding="utf-8")
    return shared + text
