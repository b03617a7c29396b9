"""A small run folder as a run leaves it: two models, three splits, calibrators, trust, features, history."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
import torch

from confide import calibrators
from confide.explorer.tags import SampleTag, TagFile
from confide.files import formats
from confide.files.signing import sign
from confide.predictions import Predictions
from confide.records import Features, Scores
from confide.training import SampleHistory

CLASSES = ("shirt", "coat", "<script>alert(1)</script>", "=cmd()")
SIZES = {"train": 60, "val": 40, "test": 80}
MODELS = ("plain", "other-loss")
EPOCHS = 4
CELL = "#cells li:not(.sk):not([hidden]) button[data-row]"
LAG = os.environ.get("EXPLORER_LAG", "")
"""Seconds as LOW..HIGH: every answer but pictures is made so much later, and comes so much later again, at random,
unless a test says how late; the tests must pass all the same."""


def make_run(folder: Path, sizes: dict[str, int] = SIZES, title: str = "small") -> Path:
    """Write the run folder."""
    draws = np.random.default_rng(5)
    pictures: dict[str, Any] = {}
    rows: dict[str, Features] = {}
    for split, n in sizes.items():
        labels = np.arange(n) % len(CLASSES)
        ids = np.array([f"{split}-{k:03d}" for k in range(n)])
        pictures |= {f"{split}_inputs": draws.integers(0, 255, (n, 1, 12, 12), dtype=np.uint8)}
        pictures |= {f"{split}_labels": labels, f"{split}_ids": ids}
        values = (labels[:, None] * 2.0 + draws.normal(size=(n, 6))).astype(np.float32)
        rows[split] = Features(values, labels, ids, "made", split)
        rows[split].save(folder / "features" / f"{split}.npz")
        if split != "val":
            save_scores(folder / "scores" / f"{split}.parquet", ids, labels, draws, verdicts=split == "test")
    np.savez(folder / "pictures.npz", **pictures)
    for place, model in enumerate(MODELS):
        save_model(folder, model, place, rows, draws)
    (folder / "calibrators").mkdir(exist_ok=True)
    save_notes(folder, sizes, title)
    return folder


def save_scores(path: Path, ids: Any, labels: Any, draws: np.random.Generator, *, verdicts: bool) -> None:
    columns: dict[str, Any] = {}
    if verdicts:
        words = np.array(["typical", "wrong label", "ambiguous", "hard"])
        columns = {
            "verdict": words[np.arange(len(ids)) % 4],
            "suggested": (labels + 1) % len(CLASSES),
            "camera": np.array(["phone", "studio", ""])[np.arange(len(ids)) % 3],
            "width": draws.normal(100, 20, len(ids)),
        }
    Scores(ids, np.linspace(-3, 9, len(ids)), "rmd", {"shrinkage": "auto"}, labels, columns).save(path)


def save_model(folder: Path, model: str, place: int, rows: dict[str, Features], draws: np.random.Generator) -> None:
    said = {}
    for split in ("val", "test"):
        labels = rows[split].labels
        logits = draws.normal(size=(len(labels), len(CLASSES))).astype(np.float32)
        logits[np.arange(len(labels)), labels] += 1.5 + place
        names = CLASSES
        said[split] = Predictions(torch.tensor(logits), torch.tensor(labels), rows[split].ids, split, class_names=names)
        said[split].save(folder / "predictions" / f"{model}-{split}.parquet")
    calibrators.fit("temperature", said["val"]).save(folder / "calibrators" / f"{model}-temperature.json")
    if model == MODELS[0]:
        calibrators.fit("vector", said["val"]).save(folder / "calibrators" / f"{model}-vector.json")
    trust = {"id": rows["test"].ids, "trust": draws.random(len(rows["test"].ids))}
    formats.write_table(folder / "trust" / f"{model}-mcp-test.parquet", trust)
    history = SampleHistory(folder / "models" / model / "history", rows["test"].labels, "test")
    for epoch in range(EPOCHS):
        history.record(epoch, None, said["test"].logits.numpy() * (epoch + 1) / EPOCHS)


def save_notes(folder: Path, sizes: dict[str, int], title: str) -> None:
    config = {
        "data": str(folder / "pictures.npz"),
        "data_options": {},
        "losses": [{"word": m, "name": m} for m in MODELS],
        "calibrators": [{"word": word, "name": word} for word in ("temperature", "vector")],
        "trust": [{"word": "mcp", "name": "mcp"}],
        "seed": 0,
        "title": title,
    }
    formats.write_json(folder / "data.json", {"name": "made", "class_names": list(CLASSES), "sizes": sizes})
    versions = {"confide": "0.1.0"}
    manifest = {"format": "run/1", "config": config, "versions": versions, "stages": {}}
    formats.write_json(folder / "manifest.json", sign(manifest))


@pytest.fixture(autouse=True)
def map_without_umap(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same map whatever is installed: UMAP takes seconds to load."""
    monkeypatch.setattr("confide.explorer.projection.UMAP_ROWS", -1)


@pytest.fixture(scope="session")
def made_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("made") / "run")


@pytest.fixture(autouse=True)
def _maps_by_pca(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where UMAP is installed, maps of a hundred samples would take seconds, and be others."""
    monkeypatch.setattr("confide.explorer.projection.find_spec", lambda name: None)


@pytest.fixture
def run_folder(made_run: Path, tmp_path: Path) -> Path:
    """A copy of its own, to tag and to damage."""
    shutil.copytree(made_run, tmp_path / "run")
    save_notes(tmp_path / "run", SIZES, "small")
    return tmp_path / "run"


class Client:
    """Requests to a server in a thread, with any header and any path."""

    def __init__(self, port: int, lag: Lag) -> None:
        self.port, self.lag = port, lag

    def send(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        content = None if body is None else json.dumps(body).encode()
        connection.request(method, path, content, headers or {})
        response = connection.getresponse()
        found = response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()
        connection.close()
        return found

    def get(self, path: str, **words: Any) -> Any:
        """JSON of a route; the answer must be well."""
        pairs = [(k.rstrip("_"), v) for k, vs in words.items() for v in (vs if isinstance(vs, list) else [vs])]
        status, _, content = self.send("GET", f"/api/{path}?{urlencode(pairs)}")
        assert status == 200, content
        return json.loads(content)

    def refused(self, path: str) -> str:
        """The line a bad request is answered with."""
        status, _, content = self.send("GET", f"/api/{path}")
        assert status == 400, (status, content)
        return str(json.loads(content)["error"])

    def put(self, path: str, body: Any) -> Any:
        status, _, content = self.send("PUT", f"/api/{path}", body, {"X-Confide": "1"})
        assert status == 200, content
        return json.loads(content)


class Lag:
    """A far or busy server: `late` gives the seconds before and after the answer is made, by method and route."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.late: dict[str, tuple[float, float]] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        route = scope.get("path", "").removeprefix("/api/")
        before = after = 0.0
        named = self.late.get(f"{scope.get('method')} {route}", self.late.get(route))
        if named:
            before, after = named
        elif LAG and scope.get("path", "").startswith("/api/") and route != "picture":
            before, after = (random.uniform(*map(float, LAG.split(".."))) for _ in range(2))
        await asyncio.sleep(before)

        async def slowly(message: Any) -> None:
            if message["type"] == "http.response.start":
                await asyncio.sleep(after)
            await send(message)

        await self.app(scope, receive, slowly)


@pytest.fixture
def serve() -> Iterator[Callable[..., Client]]:
    """Starts a server for a layout on a free port, in a thread; all are stopped at the end."""
    pytest.importorskip("fastapi", reason="fastapi is not installed (extra: explore)")
    pytest.importorskip("duckdb", reason="duckdb is not installed (extra: explore)")
    uvicorn = pytest.importorskip("uvicorn", reason="uvicorn is not installed (extra: explore)")
    from confide.explorer import open_layout
    from confide.explorer.access import server_config
    from confide.explorer.launch import bind
    from confide.explorer.server import create_app
    from confide.explorer.session import Explorer

    running: list[tuple[Any, threading.Thread, Any]] = []

    def start(path: Path, *, host: str = "127.0.0.1", token: str | None = None, **options: Any) -> Client:
        explorer = Explorer(open_layout(path, **options))
        lag = Lag(create_app(explorer, host, token))
        listening = bind("127.0.0.1", 0)
        server = uvicorn.Server(server_config(lag))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        running.append((server, thread, explorer))
        start.explorers.append(explorer)  # type: ignore[attr-defined]
        return Client(listening.getsockname()[1], lag)

    start.explorers = []  # type: ignore[attr-defined]
    yield start
    for server, thread, explorer in running:
        server.should_exit = True
        thread.join(10)
        explorer.close()


@pytest.fixture
def client(serve: Callable[..., Client], run_folder: Path) -> Client:
    return serve(run_folder)


@pytest.fixture
def look(browser: Any, serve: Any) -> Iterator[Callable[..., Any]]:
    """Opens a page of a server; complaints and foreign requests are kept, and must be none at the end."""
    del serve  # its servers must outlive the pages
    contexts: list[Any] = []
    complaints: list[str] = []

    def open_at(client: Any, query: str = "", width: int = 1440, **options: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, accept_downloads=True, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(30_000)
        home = f"http://127.0.0.1:{client.port}"
        page.on("console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda e: complaints.append(str(e)))
        page.on("dialog", lambda d: (complaints.append(f"dialog {d.type} {d.message}"), d.accept()))
        page.on(
            "request", lambda r: complaints.append(r.url) if not r.url.startswith((home, "data:", "blob:")) else None
        )
        page.goto(f"{home}/{query}")
        page.wait_for_selector(
            "#cells li:not(.sk):not([hidden]) button[data-row], #nothing:not([hidden])", state="attached"
        )
        page.complaints = complaints
        return page

    yield open_at
    for context in contexts:
        context.close()
    assert complaints == []


def count(page: Any) -> int:
    """How many samples the page says fit."""
    return int(page.locator("#count").inner_text().split()[0].replace(",", ""))


def wait_for_count(page: Any, wanted: int) -> None:
    """Until the page says that so many samples fit."""
    page.wait_for_function(f"() => document.getElementById('count').textContent.startsWith('{wanted:,} ')")


def wait_for_tags(page: Any, place: Path, wanted: list[tuple[str | None, int | None, str]]) -> None:
    """Until the tags are these (action, new label, note); what they are after a minute is shown."""
    _wait(
        page,
        place,
        sorted(wanted, key=str),
        lambda all: sorted(((t.action, t.new_label, t.note) for t in all), key=str),
    )


def wait_for_actions(page: Any, place: Path, wanted: dict[str, str | None]) -> None:
    """Until the tags are these actions by id."""
    _wait(page, place, wanted, lambda all: {t.id: t.action for t in all})


def _wait(page: Any, place: Path, wanted: Any, read: Callable[[list[SampleTag]], Any]) -> None:
    for _ in range(600):
        tags = TagFile(place if place.suffix == ".sqlite" else place / "tags.sqlite")
        kept = read(tags.all())
        tags.close()
        if kept == wanted:
            return
        page.wait_for_timeout(100)
    assert kept == wanted


def open_first(page: Any) -> str:
    """Open the first sample of the grid; its id."""
    page.locator(CELL).first.click()
    page.wait_for_selector("#drawer .neigh li, #drawer .empty")
    return str(page.locator("#drawer h2").inner_text())


def ids(client: Any, **question: Any) -> list[str]:
    """The samples in the order of a question."""
    cells = client.get("rows", **{**question, "from": 0, "count": 240})["cells"]
    return [cell["id"] for cell in cells]


def wait_for_sample(page: Any, sample: str) -> None:
    page.wait_for_function(f"() => document.querySelector('#drawer h2').textContent === '{sample}'")


def wait_for_order(page: Any, order: list[str]) -> None:
    """Until the cells in sight show these samples at their places."""
    page.wait_for_function(
        """order => {
          const cells = [...document.querySelectorAll('#cells li:not([hidden]) button[data-at]')];
          return cells.length > 0 && cells.every(c => (c.ariaLabel || '').startsWith(order[+c.dataset.at] + ':'));
        }""",
        arg=order,
    )


def wait_for_neighbours(page: Any, samples: int) -> None:
    """Until so many samples were read: the open one, and those that are fetched ahead."""
    page.wait_for_function(
        "many => performance.getEntriesByType('resource').filter(e => e.name.includes('/api/sample?')).length >= many",
        arg=samples,
    )


def cut_off(page: Any) -> None:
    """No answer reaches the page until `unroute`; the first request after `route` may still pass, so one is tried."""
    page.route("**/api/**", lambda route: route.abort())
    page.wait_for_function("() => fetch('/api/alive').then(() => false, () => true)")


def wait_for_place(page: Any, words: str) -> None:
    page.wait_for_function(f"() => document.querySelector('.pos').textContent.startsWith('{words}')")
