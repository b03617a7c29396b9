"""The web server: the page's files and the routes, behind the guard. Nothing of a request becomes a path or SQL."""

from __future__ import annotations

import json
import sqlite3
from functools import lru_cache
from importlib import resources

from fastapi import FastAPI, Request, Response

from confide.core.door import InputError, MissingExtra
from confide.explorer.guard import Guard
from confide.explorer.layout import Layout
from confide.explorer.opened import Explorer
from confide.explorer.routes import Routes

SCRIPTS = ("app", "compare", "dialogs", "dom", "drawer", "grid", "net", "outbox", "rail", "state", "tagging")
ASSETS = {
    "index.html": "text/html; charset=utf-8",
    "explorer.css": "text/css; charset=utf-8",
    **{f"{name}.js": "text/javascript; charset=utf-8" for name in SCRIPTS},
}


def create_app(layout: Layout, host: str = "127.0.0.1", token: str | None = None) -> Guard:
    """The guarded ASGI app of a layout; `.explorer` is what answers.

    Args:
        host: the address it will listen on; a request must name it, or an address of this machine.
        token: what a browser must show where the address is not this machine's own.
    """
    explorer = Explorer(layout)
    app = FastAPI(title="Confide explorer", docs_url=None, redoc_url=None, openapi_url=None)
    for path, handler in Routes(explorer).table().items():
        method, _, where = path.partition(" ")
        app.add_api_route(where, handler, methods=[method], response_model=None)
    app.add_api_route("/", lambda: asset("index.html"), methods=["GET"], response_model=None)
    app.add_api_route("/assets/{name}", asset, methods=["GET"], response_model=None)
    app.add_exception_handler(InputError, refused)
    app.add_exception_handler(MissingExtra, refused)
    app.add_exception_handler(sqlite3.Error, refused)
    return Guard(app, host, token, explorer)


def refused(request: Request, error: Exception) -> Response:
    """Bad input as one line."""
    del request
    return Response(json.dumps({"error": str(error)}), 400, media_type="application/json")


def asset(name: str) -> Response:
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
