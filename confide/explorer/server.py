"""The server: the routes and the page's files, behind access control; nothing of a request becomes a path or SQL."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import math
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import asdict, is_dataclass
from datetime import datetime
from functools import lru_cache
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool

from confide import __version__
from confide.checks import InputError, MissingExtra, number_of_digits
from confide.explorer import session
from confide.explorer.access import AccessControl
from confide.explorer.comparison import WHOLE, Area, compare_models
from confide.explorer.details import TagState, TopClasses, describe, describe_rows
from confide.explorer.layout import Missing
from confide.explorer.projection import Box, map_view
from confide.explorer.queries import NoLongerAsked, Query, kept_words, parse_query
from confide.explorer.reliability import confusion, row_reliability, slice_filters
from confide.explorer.session import BulkAnswer, Explorer
from confide.explorer.tags import StaleTag
from confide.files import formats
from confide.report import render_report
from confide.report.page import report_script
from confide.results import Evaluation
from confide.types import JsonObject

# The routes: each turns a request into a query, and its result into JSON, a picture or a file.

MOST_ROWS = 500
LARGEST_BODY = 1 << 17
BODY_SECONDS = 20.0
ROUTE_PARAMETERS = {
    *("from", "count", "row", "open", "text", "format", "what", "id", "in", "since"),
    *("small", "whole", "cell", "area", "box"),  # of a picture, a comparison, the map
}
"""Parameters of a route that are no filters."""
MEDIA = {
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
    **dict.fromkeys(session.ARCHIVES, "application/zip"),
}


class Routes:
    """Every route as a method; `table` lists them by method and path."""

    def __init__(self, explorer: Explorer) -> None:
        self.explorer = explorer

    def table(self) -> dict[str, Callable[..., Any]]:
        """Handlers by HTTP method and path."""
        page = (self.about, self.alive, self.views, self.changes, self.check)
        samples = (self.rows, self.locate, self.compare, self.classes, self.export)
        groups = (self.reliability, self.confusion, self.slices, self.map)
        one_sample = (self.sample, self.neighbours, self.parts, self.history, self.picture)
        reading: tuple[Callable[..., Response], ...] = (*page, *samples, *groups, *one_sample)
        return {
            **{f"GET /api/{handler.__name__}": handler for handler in reading},
            "GET /api/find": self.find,
            "GET /report": self.report,
            "POST /api/fiftyone": self.fiftyone,
            "PUT /api/tag": self.tag,
            "PATCH /api/tag": self.change_tag,
            "POST /api/tags": self.change_tags,
            "POST /api/undo": self.undo,
            "PUT /api/view": self.save_view,
        }

    def pairs(self, request: Request) -> list[tuple[str, str]]:
        """The words of a query string, without the parameters of the route itself."""
        return [(k, v) for k, v in request.query_params.multi_items() if k not in ROUTE_PARAMETERS]

    def query(self, request: Request) -> Query:
        """The query of a query string."""
        return parse_query(self.explorer.database, self.pairs(request))

    def row(self, request: Request) -> int:
        """The row a route is about."""
        return whole_number(request, "row", 0, self.explorer.samples.table.num_rows - 1)

    def about(self) -> Response:
        """What the page must know before its first query; no model is computed for it."""
        explorer, layout, samples = self.explorer, self.explorer.layout, self.explorer.samples
        explorer.warm_up()
        return json_response(
            {
                "title": layout.title,
                "version": __version__,
                "path": layout.path,
                "n": samples.table.num_rows,
                "splits": {split: len(ids) for split, ids in samples.ids.items()},
                "models": {model: layout.stages(model) for model in layout.predictions},
                "opening_stages": {model: layout.opening_stage(model) for model in layout.predictions},
                "trust": layout.trust_name,
                "method": samples.method,
                "num_classes": samples.num_classes,
                "named": bool(samples.classes.names),
                "columns": [column.public() for column in samples.columns.values()],
                "kind": explorer.pictures.kind if explorer.pictures.loaded else "loading",
                "pictures": explorer.pictures.reason,
                "missing": [asdict(missing) for missing in layout.missing],
                "fiftyone": find_spec("fiftyone") is not None,
                "report": layout.evaluation is not None,
                "tags_version": explorer.marks.version,
                "mislabelled": "verdict" in samples.columns and "wrong label" in samples.columns["verdict"].values,
            }
        )

    def report(self) -> Response:
        """The report of the run, drawn anew: its own file may come from someone else. Only the report's script runs."""
        path = self.explorer.layout.evaluation
        if path is None:
            return Response("There is no evaluation here.", 404, media_type="text/plain; charset=utf-8")
        with formats.reading(path):
            page = render_report(Evaluation.load(path))
        script = base64.b64encode(hashlib.sha256(report_script().encode()).digest()).decode()
        policy = (
            f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{script}'; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        headers = {"Content-Security-Policy": policy}
        return Response(page, media_type="text/html; charset=utf-8", headers=headers)

    def alive(self) -> Response:
        return json_response({"alive": True})

    def check(self, request: Request) -> Response:
        """The part of a query string that means something here, and why the rest does not."""
        valid, reasons = kept_words(self.explorer.database, self.pairs(request))
        return json_response({"kept": urlencode(valid), "dropped": reasons})

    def changes(self, request: Request) -> Response:
        """Tags that were changed since a version, by whoever and from wherever."""
        return json_response(asdict(self.explorer.marks.changes(whole_number(request, "since", 0, 1 << 53))))

    async def find(self, request: Request) -> Response:
        """Count and spread of the rows that fit; given up when who asked has asked something else meanwhile."""
        opened, gone = tuple(request.query_params.getlist("open")), threading.Event()

        def answer() -> Response:
            if gone.is_set():
                raise NoLongerAsked
            self.explorer.marks.follow()
            summary = self.explorer.queries.summarise(self.query(request), opened, lambda: not gone.is_set())
            return json_response({**vars(summary), "columns": [column.public() for column in summary.columns]})

        watch = asyncio.create_task(_when_gone(request, gone))
        try:
            return await run_in_threadpool(answer)
        except NoLongerAsked:
            return Response(status_code=499)
        finally:
            watch.cancel()

    def slices(self, request: Request) -> Response:
        """Slices of the splits; until the map is computed, whose clusters are among them, only that it is being."""
        query, clusters = self.query(request), None
        if self.explorer.map.start() is None:
            if not self.explorer.map.ready:
                return json_response({"computing": True})
            clusters = self.explorer.map.clusters()
        result = slice_filters(self.explorer.queries, query, clusters)
        if isinstance(result, Missing):
            return json_response(_or_missing(result))
        return json_response({"slices": None if result is None else asdict(result)})

    def map(self, request: Request) -> Response:
        """A part of the map; until it is computed only that it is being."""
        missing = self.explorer.map.start()
        if missing is not None:
            return json_response(_or_missing(missing))
        if not self.explorer.map.ready:
            return json_response({"computing": True})
        box, colour = request.query_params.get("box"), request.query_params.get("colour", "gap")
        seen = None if box is None else Box(*_four_numbers("box", box))
        query = self.query(request)
        return json_response(asdict(map_view(self.explorer.queries, query, self.explorer.map, seen, colour)))

    def reliability(self, request: Request) -> Response:
        result = row_reliability(self.explorer.queries, self.query(request))
        return json_response({"reliability": result})

    def confusion(self, request: Request) -> Response:
        result = confusion(self.explorer.queries, self.query(request))
        return json_response({"confusion": result})

    def rows(self, request: Request) -> Response:
        query = self.query(request)
        start, count = whole_number(request, "from", 0, 1 << 31), whole_number(request, "count", 1, MOST_ROWS)
        order, total = self.explorer.queries.page(query, start, count)
        rows = order.tolist()
        cells: list[Any] = describe_rows(self.explorer.database, query, rows)
        texts = self.explorer.pictures.texts(rows)
        if texts:
            cells = [{**vars(cell), "text": text} for cell, text in zip(cells, texts, strict=True)]
        return json_response({"from": start, "total": total, "cells": cells})

    def locate(self, request: Request, split: str, id: str) -> Response:
        """Where a sample stands in the order of the query; its own split filter comes as `in`.

        `before` counts the samples that fit and stand before it, also for one that does not fit (any more).
        """
        row = self.explorer.row_of(split, id)
        pairs = [(k, v) for k, v in request.query_params.multi_items() if k not in ROUTE_PARAMETERS and k != "split"]
        pairs += [("split", v) for v in request.query_params.getlist("in")]
        position, before = self.explorer.queries.place(parse_query(self.explorer.database, pairs), row)
        return json_response({"row": row, "position": position, "before": before})

    def sample(self, request: Request) -> Response:
        row, pictures = self.row(request), self.explorer.pictures
        details = describe(self.explorer.database, self.query(request), row, self.explorer.logits)
        text = pictures.content(row).text if pictures.loaded and pictures.kind == "text" else None
        return json_response(
            {
                **asdict(details.cell),
                "top": _or_missing(details.top),
                "values": [asdict(value) for value in details.values],
                "suggested": None if details.suggested is None else asdict(details.suggested),
                **asdict(details.tag),
                "text": text,
            }
        )

    def neighbours(self, request: Request) -> Response:
        near, name = self.explorer.features.nearest(self.row(request)), self.explorer.samples.name_of
        if isinstance(near, Missing):
            return json_response(_or_missing(near))
        return json_response({"neighbours": [{**asdict(n), "name": name(n.label)} for n in near]})

    def parts(self, request: Request) -> Response:
        parts = self.explorer.features.parts(self.row(request))
        if isinstance(parts, Missing):
            return json_response(_or_missing(parts))
        return json_response(
            {
                "own": parts.own,
                "all": parts.all_data,
                "closest": parts.nearest_class,
                "closest_name": self.explorer.samples.name_of(parts.nearest_class),
                "closest_distance": parts.nearest,
                "relative": parts.is_relative,
            }
        )

    def history(self, request: Request) -> Response:
        row, model, samples = self.row(request), self.query(request).model_stage, self.explorer.samples
        if model is None:
            return json_response(_or_missing(Missing("History", "There is no model.", "confide run")))
        history = self.explorer.history.read(model.model, row)
        if isinstance(history, Missing):
            return json_response(_or_missing(history))
        names = [samples.name_of(k) for k in history.prediction]
        right = [k == samples.label_of(row) for k in history.prediction]
        return json_response({**asdict(history), "names": names, "right": right})

    def picture(self, request: Request) -> Response:
        row, pictures, side = (
            self.row(request),
            self.explorer.pictures,
            96 if request.query_params.get("small") else 512,
        )
        content = pictures.whole(row) if request.query_params.get("whole") else pictures.content(row, side)
        if content.image is None:
            return Response(content.reason, 404, media_type="text/plain; charset=utf-8")
        return Response(content.image, media_type=content.media_type, headers={"Cache-Control": "private, max-age=600"})

    def compare(self, request: Request) -> Response:
        cells, area = tuple(request.query_params.getlist("cell")), request.query_params.get("area")
        brushed = WHOLE if area is None else Area(*_four_numbers("area", area))
        return json_response(asdict(compare_models(self.explorer.queries, self.query(request), cells, brushed)))

    def classes(self, text: str = "") -> Response:
        return json_response({"classes": [asdict(named) for named in self.explorer.classes(text)]})

    def export(self, request: Request) -> Response:
        query = self.query(request)
        what, kind = request.query_params.get("what", "selection"), request.query_params.get("format", "csv")
        rows = self.explorer.rows_to_export(query, what)
        table = session.export_table(self.explorer.database, query, rows)
        archived = kind in session.ARCHIVES
        content = session.as_archive(table, rows, self.explorer, kind) if archived else session.as_bytes(table, kind)
        ending = f"{kind}.zip" if archived else kind
        name = f'attachment; filename="{self.explorer.name}-{what}.{ending}"'
        return Response(content, media_type=MEDIA[kind], headers={"Content-Disposition": name})

    def fiftyone(self, request: Request) -> Response:
        query = self.query(request)
        rows = self.explorer.rows_to_export(query, request.query_params.get("what", "selection"))
        name = f"confide-{self.explorer.name}-{datetime.now():%Y%m%d-%H%M%S}"
        table = session.export_table(self.explorer.database, query, rows)
        folder = self.explorer.layout.tags.with_name("fiftyone")
        dataset = session.to_fiftyone(table, rows, self.explorer.pictures, folder, name)
        return json_response({"name": name, "samples": len(dataset)})

    # Writing waits for the disk, and for another program that writes too: in a thread, so that no other request waits.
    async def tag(self, request: Request) -> Response:
        body = await json_body(request)
        return json_response(asdict(await run_in_threadpool(self.explorer.put_tag, self.row(request), body)))

    async def change_tag(self, request: Request) -> Response:
        body = await json_body(request)
        try:
            answer = await run_in_threadpool(self.explorer.change_tag, body)
        except StaleTag as error:
            state = asdict(TagState.of(error.tag, self.explorer.samples))
            return json_response({"error": str(error), "state": state}, 409)
        return json_response({**asdict(answer.state), "undo": answer.undo, "version": answer.version})

    async def change_tags(self, request: Request) -> Response:
        """Tag the rows that the body names, or all that fit the query."""
        body = await json_body(request)

        def change() -> BulkAnswer:
            if body.get("all") is True:
                order = self.explorer.queries.order(self.query(request))
                rows = order[: session.MAX_BULK + 1].tolist()
            else:
                rows = _rows_of(body.get("rows"), self.explorer.samples.table.num_rows)
            return self.explorer.change_tags(rows, {k: v for k, v in body.items() if k not in ("rows", "all")})

        return json_response(asdict(await run_in_threadpool(change)))

    async def undo(self, request: Request) -> Response:
        body = await json_body(request)
        return json_response(asdict(await run_in_threadpool(self.explorer.undo, str(body.get("undo", "")))))

    def views(self) -> Response:
        return json_response({"views": self.explorer.tags.views()})

    async def save_view(self, request: Request) -> Response:
        body = await json_body(request)
        name, query = str(body.get("name", "")), str(body.get("query", ""))
        await run_in_threadpool(self.explorer.tags.save_view, name, query)
        return json_response({"views": self.explorer.tags.views()})


async def _when_gone(request: Request, gone: threading.Event) -> None:
    """Say so when who asked closes the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        await asyncio.sleep(0.05)
    gone.set()


def _rows_of(rows: Any, num_rows: int) -> list[int]:
    """Rows that a body names, each once."""
    if not isinstance(rows, list) or not all(type(row) is int and 0 <= row < num_rows for row in rows):
        raise InputError(f"rows must be a list of whole numbers from 0 to {num_rows - 1}, got something else")
    return list(dict.fromkeys(rows))


def _four_numbers(name: str, text: str) -> tuple[float, float, float, float]:
    """The ends of a rectangle."""
    try:
        left, right, bottom, top = (float(part) for part in text.split(","))
    except ValueError:
        left = right = bottom = top = math.nan
    if not math.isfinite(left + right + bottom + top):
        raise InputError(f"{name} must be four numbers such as 0,0.5,0.9,1, got '{text[:40]}'")
    return left, right, bottom, top


class BodyRefused(InputError):
    """A body that is not read to its end."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(f"the request must be a JSON object of at most {LARGEST_BODY >> 10} kB, {why}")
        self.status = status


async def json_body(request: Request) -> JsonObject:
    """A small JSON object."""
    try:
        content = await asyncio.wait_for(_body_bytes(request), BODY_SECONDS)
    except asyncio.TimeoutError:
        raise BodyRefused(408, f"sent within {BODY_SECONDS:.0f} seconds") from None
    try:
        body = json.loads(content)
        # Half a surrogate pair is JSON but no text: neither tables nor responses can hold it.
        json.dumps(body, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise BodyRefused(400, "got something else")
    return body


async def _body_bytes(request: Request) -> bytes:
    """The body; one that is too large is refused before it is read, or as soon as it turns out to be."""
    size = int(request.headers.get("content-length", 0))
    content = bytearray()
    if size <= LARGEST_BODY:
        async for part in request.stream():
            content += part
            size = max(size, len(content))
            if size > LARGEST_BODY:
                break
    if size > LARGEST_BODY:
        raise BodyRefused(413, "got more")
    return bytes(content)


def whole_number(request: Request, name: str, low: int, high: int) -> int:
    """A whole number of the query string, in its range."""
    text = request.query_params.get(name, "")
    number = number_of_digits(text)
    if number is None or not low <= number <= high:
        raise InputError(f"'{name}' must be a whole number from {low} to {high}, got '{text[:40]}'")
    return number


def json_response(value: Any, status: int = 200) -> Response:
    """A value, or records of values, as JSON; what is not finite becomes null."""
    try:
        text = _json_text(value)
    except ValueError:
        text = _json_text(formats.plain(json.loads(json.dumps(value, default=_plain))))
    # Half a surrogate pair in a name of someone's file is no text.
    content = text.encode("utf-8", "replace")
    return Response(content, status, media_type="application/json", headers={"Cache-Control": "no-store"})


def _json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)


def _plain(value: Any) -> Any:
    """What JSON does not know: a record is its fields."""
    return vars(value) if is_dataclass(value) else formats.plain(value)


def _or_missing(answer: TopClasses | Missing) -> JsonObject:
    """As JSON; what is missing stands under a key of its own."""
    return {"missing": asdict(answer)} if isinstance(answer, Missing) else asdict(answer)


# The app: the routes and the page's files, behind access control.

MEDIA_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
ASSETS = {
    file.name: f"{MEDIA_TYPES[Path(file.name).suffix]}; charset=utf-8"
    for file in resources.files("confide.explorer").joinpath("assets").iterdir()
    if Path(file.name).suffix in MEDIA_TYPES
}


SHARED = {"explorer.css": "base.css", "dom.js": "values.js"}
"""What begins with a file of the report: tokens and colours of drawings, and how a mark tells its value."""


def create_app(explorer: Explorer, host: str = "127.0.0.1", token: str | None = None) -> AccessControl:
    """The ASGI app of an explorer.

    Args:
        host: the address it will listen on; a request must name it, or an address of this machine.
        token: what a browser must show; None: nothing.
    """
    app = FastAPI(title="Confide explorer", docs_url=None, redoc_url=None, openapi_url=None)
    for path, handler in Routes(explorer).table().items():
        method, _, where = path.partition(" ")
        app.add_api_route(where, handler, methods=[method], response_model=None)
    app.add_api_route("/", lambda: asset("index.html"), methods=["GET"], response_model=None)
    app.add_api_route("/assets/{name}", asset, methods=["GET"], response_model=None)
    for error in (InputError, MissingExtra, sqlite3.Error):
        app.add_exception_handler(error, error_response)
    return AccessControl(app, host, token)


def error_response(_: Request, error: Exception) -> Response:
    """Bad input as one line."""
    status = error.status if isinstance(error, BodyRefused) else 400
    return Response(json.dumps({"error": str(error)}), status, media_type="application/json")


def asset(name: str) -> Response:
    """A file of the page; only the names listed here exist."""
    if name not in ASSETS:
        return Response("There is no such file.", 404, media_type="text/plain; charset=utf-8")
    return Response(_asset_text(name), media_type=ASSETS[name], headers={"Cache-Control": "no-cache"})


@lru_cache(maxsize=len(ASSETS))
def _asset_text(name: str) -> str:
    text = resources.files("confide.explorer").joinpath("assets", name).read_text(encoding="utf-8")
    if name not in SHARED:
        return text
    shared = resources.files("confide.report").joinpath("assets", SHARED[name]).read_text(encoding="utf-8")
    return shared + text
