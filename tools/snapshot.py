"""A read-only snapshot of the explorer: its own page and scripts, with the answers of a run that was asked beforehand.

    python tools/snapshot.py runs/demo build/snapshot

The first samples of a number of views can be opened; tags are not kept. Where a view was not asked for the page says
which command shows it.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from confide.explorer.layout import open_layout
from confide.explorer.server import ASSETS, create_app
from confide.explorer.session import Explorer

BLOCK = 240  # rows that the page asks for at once
OF_A_SAMPLE = ("sample", "neighbours", "parts", "history")
PICTURE = re.compile(r"/api/picture\?row=(\$\{[^}]+\})(?:&(?:small|whole)=1)?")


class Recorder:
    """Asks the explorer's app as its page would, and keeps the answers."""

    def __init__(self, run: Path) -> None:
        self.explorer = Explorer(open_layout(str(run)))
        self.app = create_app(self.explorer)
        self.answers: dict[str, Any] = {}

    def get(self, path: str) -> tuple[int, bytes]:
        """Status and body of a GET, without a socket."""
        place, _, query = path.partition("?")
        status, body = 0, b""

        async def ask() -> None:
            async def receive() -> dict[str, Any]:
                await asyncio.sleep(0)
                return {"type": "http.request", "body": b"", "more_body": False}

            async def send(message: dict[str, Any]) -> None:
                nonlocal status, body
                status = message.get("status", status)
                body += message.get("body", b"")

            headers = [(b"host", b"127.0.0.1:8765")]
            scope = {"type": "http", "method": "GET", "path": place, "raw_path": place.encode(), "headers": headers}
            scope |= {"query_string": query.encode(), "http_version": "1.1", "scheme": "http", "root_path": ""}
            scope |= {"server": ("127.0.0.1", 8765), "client": ("127.0.0.1", 1)}
            await self.app(scope, receive, send)

        asyncio.run(ask())
        return status, body

    def ask(self, path: str, pairs: list[tuple[str, str]] | None = None) -> Any:
        """An answer, kept under the words that were asked."""
        pairs = pairs or []
        status, body = self.get(f"/api/{path}?{urlencode(pairs)}")
        if status != 200:
            return None
        self.answers[path + "?" + "&".join(sorted(f"{k}={v}" for k, v in pairs))] = json.loads(body)
        return json.loads(body)


def views_of(about: dict[str, Any], found: dict[str, Any]) -> list[list[tuple[str, str]]]:
    """What can be chosen with one click from the first view."""
    first = [("split", "test")]
    numbers = [name for name in found["histograms"] if name in ("difficulty", "confidence", "trust", "loss", "changes")]
    views = [first] + [[*first, ("sort", sign + name)] for name in numbers for sign in ("", "-")]
    views += [[*first, ("model", model)] for model in about["models"]]
    views += [[*first, ("stage", stage)] for stage in next(iter(about["models"].values()), [])]
    views += [[*first, ("outcome", outcome)] for outcome in ("right", "wrong")]
    views += [[*first, ("outcome", "wrong"), ("confidence", "0.9.."), ("sort", "-confidence")]]
    views += [[*first, ("outcome", "right"), ("confidence", "..0.5"), ("sort", "confidence")]]
    views += [[*first, (name, str(k))] for name in ("label", "prediction") for k in range(about["num_classes"])]
    return views


def record(run: Path, target: Path) -> int:
    """Write the snapshot into a folder; returns how many answers it holds."""
    recorder = Recorder(run)
    try:
        about = recorder.ask("about")
        while about["kind"] == "loading":
            time.sleep(0.2)
            about = recorder.ask("about")
        recorder.answers["about?"] = {**about, "path": "a snapshot", "fiftyone": False}
        recorder.ask("views")
        recorder.ask("classes", [("text", "")])
        first = [("split", "test")]
        found = recorder.ask("find", first)
        for panel in ("confusion", "slices"):
            recorder.ask(panel, first)
        while (answer := recorder.ask("map", [*first, ("colour", "gap")])) and answer.get("computing"):
            time.sleep(0.5)
        rows: set[int] = set()
        for view in views_of(about, found):
            recorder.ask("find", view)
            recorder.ask("reliability", [pair for pair in view if pair[0] != "sort"])
            page = recorder.ask("rows", [*view, ("from", "0"), ("count", str(BLOCK))])
            if page and len(view) == 1:
                rows |= {cell["row"] for cell in page["cells"][:60]}
            if page and len(view) > 1:
                rows |= {cell["row"] for cell in page["cells"][:12]}
        pictures = {
            cell["row"] for word, page in recorder.answers.items() if word.startswith("rows?") for cell in page["cells"]
        }
        for row in sorted(rows):
            for path in OF_A_SAMPLE:
                answer = recorder.ask(path, [("row", str(row))])
                pictures |= {n["row"] for n in (answer or {}).get("neighbours", []) if n["row"] is not None}
        write(recorder, pictures, target)
        return len(recorder.answers)
    finally:
        recorder.explorer.close()


def write(recorder: Recorder, pictures: set[int], target: Path) -> None:
    (target / "assets").mkdir(parents=True, exist_ok=True)
    (target / "pictures").mkdir(exist_ok=True)
    for name in ASSETS:
        text = recorder.get(f"/assets/{name}")[1].decode()
        (target / "assets" / name).write_text(PICTURE.sub(r"pictures/\1", text), encoding="utf-8")
    page = recorder.get("/")[1].decode().replace("/assets/", "assets/").replace('"/report"', '"report.html"')
    page = page.replace('<script type="module"', '<script src="snapshot.js"></script><script type="module"')
    (target / "index.html").write_text(page, encoding="utf-8")
    shutil.copy(Path(__file__).with_suffix(".js"), target / "snapshot.js")
    answers = json.dumps({"answers": recorder.answers}, separators=(",", ":"), ensure_ascii=False)
    (target / "snapshot.json").write_text(answers, encoding="utf-8")
    (target / "report.html").write_bytes(recorder.get("/report")[1])
    for row in pictures:
        status, picture = recorder.get(f"/api/picture?row={row}")
        if status == 200:
            (target / "pictures" / str(row)).write_bytes(picture)


def main() -> None:
    count = record(Path(sys.argv[1]), Path(sys.argv[2]))
    print(f"{count} answers: {Path(sys.argv[2]) / 'index.html'}; serve it: python -m http.server -d {sys.argv[2]}")


if __name__ == "__main__":
    main()
