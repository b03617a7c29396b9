"""A small run folder to damage, and a way to ask an explorer without a socket."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from confide.explorer import open_layout
from tests.explorer.conftest import make_run, save_notes, serve as serve

SMALL = {"train": 16, "val": 12, "test": 12}


@dataclass(frozen=True)
class Reply:
    """What came back."""

    status: int
    headers: dict[str, str]
    content: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.content)


def ask(app: Any, target: str, method: str = "GET", body: bytes = b"", **headers: str) -> Reply:
    """One request to an ASGI app; what the app raises is raised here."""
    return asyncio.run(_ask(app, target, method, body, headers))


def ask_all(app: Any, targets: Iterable[str]) -> list[Reply]:
    """Requests to read, one after the other."""

    async def replies() -> list[Reply]:
        return [await _ask(app, target, "GET", b"", {}) for target in targets]

    return asyncio.run(replies())


async def _ask(app: Any, target: str, method: str, body: bytes, headers: dict[str, str]) -> Reply:
    path, _, query = target.partition("?")
    pairs = {"host": "127.0.0.1", **{name.replace("_", "-"): value for name, value in headers.items()}}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "server": ("127.0.0.1", 8765),
        "client": ("127.0.0.1", 1),
        "scheme": "http",
        "method": method,
        "root_path": "",
        "path": path,
        "raw_path": path.encode("utf-8", "replace"),
        "query_string": query.encode("latin-1", "replace"),
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in pairs.items()],
    }
    messages: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        messages.append(message)

    await app(scope, receive, send)
    received = {name.decode(): value.decode("latin-1") for name, value in messages[0]["headers"]}
    return Reply(messages[0]["status"], received, b"".join(m.get("body", b"") for m in messages[1:]))


@pytest.fixture(scope="session")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("hostile") / "run", SMALL)


@pytest.fixture
def copied(whole_run: Path, tmp_path: Path) -> Callable[[], Path]:
    """A fresh copy of the run folder, over the last one."""

    def copy() -> Path:
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        shutil.copytree(whole_run, tmp_path / "run", ignore=shutil.ignore_patterns("other-loss*"))
        save_notes(tmp_path / "run", SMALL, "small")
        return tmp_path / "run"

    return copy


@pytest.fixture(scope="module")
def app(whole_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The app over a whole run folder."""
    pytest.importorskip("duckdb", reason="duckdb is not installed (extra: explore)")
    from confide.explorer.server import create_app
    from confide.explorer.session import Explorer

    folder = tmp_path_factory.mktemp("asked") / "run"
    shutil.copytree(whole_run, folder)
    explorer = Explorer(open_layout(folder))
    yield create_app(explorer)
    explorer.close()
