"""A small run folder as the river leaves it: two models, three splits, calibrators, trust, features, history."""

from __future__ import annotations

import http.client
import json
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
from confide.core import files
from confide.core.predictions import Predictions
from confide.core.records import Features, Scores
from confide.training import SampleHistory

CLASSES = ("shirt", "coat", "<script>alert(1)</script>", "=cmd()")
SIZES = {"train": 60, "val": 40, "test": 80}
MODELS = ("plain", "other-loss")
EPOCHS = 4


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
    trust = {"id": rows["test"].ids, "trust": draws.random(len(rows["test"].ids))}
    files.write_table(folder / "trust" / f"{model}-mcp-test.parquet", trust)
    history = SampleHistory(folder / "models" / model / "history", rows["test"].labels, "test")
    for epoch in range(EPOCHS):
        history.record(epoch, None, said["test"].logits.numpy() * (epoch + 1) / EPOCHS)


def save_notes(folder: Path, sizes: dict[str, int], title: str) -> None:
    config = {
        "data": str(folder / "pictures.npz"),
        "data_options": {},
        "losses": [{"word": m, "name": m} for m in MODELS],
        "calibrators": [{"word": "temperature", "name": "temperature"}],
        "trust": [{"word": "mcp", "name": "mcp"}],
        "seed": 0,
        "title": title,
    }
    files.write_json(folder / "data.json", {"name": "made", "class_names": list(CLASSES), "sizes": sizes})
    versions = {"confide": "0.1.0"}
    files.write_json(
        folder / "manifest.json", {"format": "run/1", "config": config, "versions": versions, "stages": {}}
    )


@pytest.fixture(scope="session")
def made_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("made") / "run")


@pytest.fixture
def run_folder(made_run: Path, tmp_path: Path) -> Path:
    """A copy of its own, to tag and to damage."""
    shutil.copytree(made_run, tmp_path / "run")
    save_notes(tmp_path / "run", SIZES, "small")
    return tmp_path / "run"


class Client:
    """Requests to a server in a thread, with any header and any path."""

    def __init__(self, port: int) -> None:
        self.port = port

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


@pytest.fixture
def serve() -> Iterator[Callable[..., Client]]:
    """Starts a server for a layout on a free port, in a thread; all are stopped at the end."""
    pytest.importorskip("fastapi", reason="fastapi is not installed (extra: explore)")
    pytest.importorskip("duckdb", reason="duckdb is not installed (extra: explore)")
    uvicorn = pytest.importorskip("uvicorn", reason="uvicorn is not installed (extra: explore)")
    from confide.explorer import open_layout
    from confide.explorer.launch import bind
    from confide.explorer.server import create_app

    running: list[tuple[Any, threading.Thread, Any]] = []

    def start(path: Path, *, host: str = "127.0.0.1", token: str | None = None, **options: Any) -> Client:
        app = create_app(open_layout(path, **options), host, token)
        listening = bind("127.0.0.1", 0)
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False, lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        running.append((server, thread, app))
        return Client(listening.getsockname()[1])

    yield start
    for server, thread, app in running:
        server.should_exit = True
        thread.join(10)
        app.explorer.close()


@pytest.fixture
def client(serve: Callable[..., Client], run_folder: Path) -> Client:
    return serve(run_folder)
