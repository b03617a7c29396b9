"""How fast the explorer is on a million samples: start, filters, twenty people at once, and frames in real Chromium.

    python -m benchmarks.speed.explorer [--samples 1000000] [--run FOLDER] [--only start filters load frames map]

Makes a run folder of two models, ten classes, difficulty, verdicts, trust, features, user columns and 12 x 12 pictures,
starts `confide explore` on it as a user would, asks random filters over HTTP, alone and by twenty people who each ask
every two seconds, scrolls the grid by wheel and by bar, and pans the map.
"""

from __future__ import annotations

import argparse
import http.client
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import torch

from confide import Features, Predictions, Scores, calibrators, files

CLASSES = 10
QUESTIONS = 100
PEOPLE, EVERY, SECONDS = 20, 2.0, 60.0
PARTS = ("start", "filters", "load", "frames", "map")
FRAMES = """async ([wheel, seconds, jumps]) => {
  const box = document.getElementById('grid'), times = [];
  let last = performance.now(), go = true;
  const tick = (now) => { times.push(now - last); last = now; if (go) requestAnimationFrame(tick); };
  requestAnimationFrame(tick);
  const end = performance.now() + 1000 * seconds;
  while (performance.now() < end) {
    if (jumps) box.scrollTop = Math.random() * (box.scrollHeight - box.clientHeight);
    else box.scrollTop += wheel;
    await (jumps ? new Promise(r => setTimeout(r, 60)) : new Promise(r => requestAnimationFrame(r)));
  }
  go = false;
  return times.slice(2);
}"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--run", default=None, help="a run folder made before by this script; kept")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    args = parser.parse_args()
    folder = Path(args.run) if args.run else Path(tempfile.mkdtemp(prefix="explorer-"))
    try:
        if not (folder / "manifest.json").exists():
            make_run(folder, args.samples)
        print(f"{args.samples:,} samples; {platform.machine()}, {os.cpu_count()} cores; load {os.getloadavg()[0]:.1f}")
        if "start" in args.only:
            starts = list(zip(*(start_and_stop(folder) for _ in range(5)), strict=True))
            for name, times in zip(("start, to the page", "start, to the first filter"), starts, strict=True):
                print(f"{name}: {statistics.median(times):.2f} s median of 5, {max(times):.2f} s worst")
        server, port = start(folder, "--data", str(folder / "pictures.npz"))
        try:
            for part in (filters, load, frames, pan):
                if {"pan": "map"}.get(part.__name__, part.__name__) in args.only:
                    part(server.pid, port)
        finally:
            server.terminate()
            server.wait()
    finally:
        if not args.run:
            shutil.rmtree(folder)


def make_run(folder: Path, n: int) -> None:
    """A run folder as the river leaves it, with most of its samples in test."""
    draws = np.random.default_rng(0)
    pictures: dict[str, Any] = {}
    for split, size in {"train": 1000, "val": 1000, "test": n}.items():
        labels = draws.integers(0, CLASSES, size)
        ids = np.char.add(f"{split}-", np.arange(size).astype(str))
        pictures |= {f"{split}_inputs": draws.integers(0, 255, (size, 1, 12, 12), dtype=np.uint8)}
        pictures |= {f"{split}_labels": labels, f"{split}_ids": ids}
        if split != "train":
            for place, model in enumerate(("first", "second")):
                logits = draws.normal(size=(size, CLASSES)).astype(np.float32)
                logits[np.arange(size), labels] += 3 + place
                names = tuple(f"class {k}" for k in range(CLASSES))
                predictions = Predictions(torch.tensor(logits), torch.tensor(labels), ids, split, class_names=names)
                predictions.save(folder / "predictions" / f"{model}-{split}.parquet")
                if split == "val":
                    calibrators.fit("temperature", predictions).save(
                        folder / "calibrators" / f"{model}-temperature.json"
                    )
                else:
                    trust = {"id": ids, "trust": draws.random(size)}
                    files.write_table(folder / "trust" / f"{model}-mcp-{split}.parquet", trust)
        features = draws.normal(size=(size, 16)).astype(np.float32) + labels[:, None] * np.linspace(0, 1, 16)
        Features(features.astype(np.float32), labels, ids, "made", split).save(folder / "features" / f"{split}.npz")
        words = np.array(["typical", "hard", "wrong label", "ambiguous", "atypical"])
        columns = {
            "verdict": words[draws.choice(5, size, p=(0.7, 0.2, 0.04, 0.04, 0.02))],
            "camera": np.array(["phone", "studio", "web"])[draws.integers(0, 3, size)],
            "sharpness": draws.gamma(2, 2, size),
        }
        if split == "test":
            Scores(ids, draws.normal(0, 8, size), "rmd", {}, labels, columns).save(folder / "scores" / "test.parquet")
    np.savez(folder / "pictures.npz", **pictures)
    config = {
        "data": str(folder / "pictures.npz"),
        "losses": [{"word": m, "name": m} for m in ("first", "second")],
        "calibrators": [{"word": "temperature", "name": "temperature"}],
        "trust": [{"word": "mcp", "name": "mcp"}],
        "title": "million",
    }
    files.write_json(folder / "data.json", {"name": "made", "class_names": [f"class {k}" for k in range(CLASSES)]})
    files.write_json(folder / "manifest.json", {"format": "run/1", "config": config, "stages": {}})


def start(source: Path, *options: str) -> tuple[subprocess.Popen[str], int]:
    """The explorer as a user starts it, and its port once it is said."""
    command = [sys.executable, "-m", "confide", "explore", str(source), *options, "--port", "0", "--no-token"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    for line in server.stdout:
        address = re.match(r"explorer: http://127\.0\.0\.1:(\d+)/", line)
        if address:
            return server, int(address[1])
    raise SystemExit("the explorer did not start")


def start_and_stop(folder: Path) -> tuple[float, float]:
    """Seconds from the command to the page with what there is, and to the first filter with a calibrated model."""
    began = time.monotonic()
    server, port = start(folder, "--data", str(folder / "pictures.npz"))
    get(port, "/")
    get(port, "/api/about")
    opened = time.monotonic() - began
    get(port, "/api/find?split=test&outcome=wrong")
    filtered = time.monotonic() - began
    server.terminate()
    server.wait()
    return opened, filtered


def get(port: int, path: str) -> bytes:
    """The body of an answer that must be well."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("GET", path)
    response = connection.getresponse()
    content = response.read()
    connection.close()
    assert response.status == 200, content
    return content


def question(draws: np.random.Generator) -> str:
    """A random view: an order, and up to six filters."""
    words = {"split": "test", "sort": str(draws.choice(["-difficulty", "confidence", "trust", "-loss"]))}
    low = float(draws.normal(0, 8))
    words |= {"difficulty": f"{low:.3f}..{low + draws.uniform(1, 20):.3f}"}
    if draws.random() < 0.5:
        words["outcome"] = str(draws.choice(["right", "wrong"]))
    if draws.random() < 0.4:
        words["label"] = str(draws.integers(0, CLASSES))
    if draws.random() < 0.3:
        words["verdict"] = str(draws.choice(["hard", "wrong label", "typical"]))
    if draws.random() < 0.3:
        words["c.camera"] = "studio"
    if draws.random() < 0.3:
        words["confidence"] = f"{draws.random() / 2:.4f}.."
    return urlencode(words)


def filters(pid: int, port: int) -> None:
    """Random questions, each new: count, every histogram and facet; the first cells; reliability of the rows."""
    draws = np.random.default_rng(1)
    get(port, "/api/find?split=test")
    times: dict[str, list[float]] = {"filter": [], "first cells": [], "reliability": [], "confused classes": []}
    began_cpu = cpu_seconds(pid)
    for _ in range(QUESTIONS):
        query = question(draws)
        routes = (
            f"find?{query}&open=c.sharpness",
            f"rows?{query}&from=0&count=240",
            f"reliability?{query}",
            f"confusion?{query}",
        )
        for name, route in zip(times, routes, strict=True):
            began = time.perf_counter()
            get(port, f"/api/{route}")
            times[name].append(1000 * (time.perf_counter() - began))
    times["all four"] = [sum(four) for four in zip(*times.values(), strict=True)]
    for name, taken in times.items():
        p50, p95 = np.percentile(taken, [50, 95])
        print(f"{name}: {p50:.0f} ms median, {p95:.0f} ms p95, {max(taken):.0f} ms worst of {len(taken)}")
    print(f"CPU seconds a question, all four: {(cpu_seconds(pid) - began_cpu) / QUESTIONS:.3f}")


def cpu_seconds(pid: int) -> float:
    """What a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def load(pid: int, port: int) -> None:
    """Twenty people, each with a new view every two seconds: its filter, then its cells and its reliability."""
    get(port, "/api/find?split=test")
    taken: list[float] = []
    began, began_cpu, own = time.monotonic(), cpu_seconds(pid), time.process_time()

    def person(number: int) -> None:
        draws = np.random.default_rng(100 + number)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        due = began + EVERY * number / PEOPLE
        while due < began + SECONDS:
            time.sleep(max(0.0, due - time.monotonic()))
            query, start = question(draws), time.perf_counter()
            for route in (f"find?{query}", f"rows?{query}&from=0&count=240", f"reliability?{query}"):
                connection.request("GET", f"/api/{route}")
                response = connection.getresponse()
                assert response.status == 200
                response.read()
            taken.append(1000 * (time.perf_counter() - start))
            due = max(due + EVERY, time.monotonic())
        connection.close()

    people = [threading.Thread(target=person, args=(number,)) for number in range(PEOPLE)]
    for thread in people:
        thread.start()
    for thread in people:
        thread.join()
    seconds = time.monotonic() - began
    p50, p95 = np.percentile(taken, [50, 95])
    print(
        f"{PEOPLE} people, a view every {EVERY:.0f} s: {p50:.0f} ms median, {p95:.0f} ms p95, "
        f"{max(taken):.0f} ms worst of "
        f"{len(taken)} views; {(cpu_seconds(pid) - began_cpu) / len(taken):.3f} CPU seconds a view; "
        f"load generator {100 * (time.process_time() - own) / seconds:.0f} % of a core"
    )


def frames(pid: int, port: int) -> None:
    """Frames a second while the grid scrolls slowly, fast, and by jumps of the bar."""
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(f"http://127.0.0.1:{port}/?split=test")
        page.wait_for_selector("#cells img[src]", timeout=120_000)
        for name, wheel, jumps in (
            ("reading, 600 px/s", 10, False),
            ("wheel, 6,000 px/s", 100, False),
            ("flight, 60,000 px/s", 1000, False),
            ("bar, 16 jumps/s", 0, True),
        ):
            page.wait_for_timeout(500)
            times = page.evaluate(FRAMES, [wheel, 5, jumps])
            rate, slow = 1000 * len(times) / sum(times), np.mean(np.array(times) > 20)
            print(f"{name}: {rate:.1f} frames/s, {100 * slow:.1f} % of frames over 20 ms, worst {max(times):.0f} ms")
        seen = page.evaluate("document.querySelectorAll('#cells li:not([hidden])').length")
        print(f"cells in the page: {seen}; samples {page.inner_text('#count')}")


def pan(pid: int, port: int) -> None:
    """The map of all samples and slices of its clusters; frames while it is dragged about, and enlarged."""
    began = time.perf_counter()
    while b"computing" in get(port, "/api/map?split=test"):
        time.sleep(0.2)
    print(f"map: computed in {time.perf_counter() - began:.1f} s")
    times = []
    for _ in range(2):
        began = time.perf_counter()
        get(port, "/api/slices?split=test")
        times.append(time.perf_counter() - began)
    print(f"slices, its clusters among them: {times[0]:.1f} s at first, {times[1]:.1f} s again")
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(f"http://127.0.0.1:{port}/?split=test&panel=map")
        page.wait_for_selector("canvas.map", timeout=120_000)
        page.wait_for_timeout(1500)
        page.evaluate(
            "() => { window.times = []; let last = performance.now();"
            " const tick = (now) => { window.times.push(now - last); last = now; requestAnimationFrame(tick); };"
            " requestAnimationFrame(tick); }"
        )
        box = page.locator("canvas.map").bounding_box()
        assert box is not None
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        draws = np.random.default_rng(2)
        for _ in range(12):
            page.mouse.move(x, y)
            page.mouse.down()
            page.mouse.move(x + draws.uniform(-150, 150), y + draws.uniform(-80, 80), steps=20)
            page.mouse.up()
            page.mouse.wheel(0, float(draws.choice([-100, 100])))
            page.wait_for_timeout(200)
        times = page.evaluate("window.times.slice(2)")
        p50, p95 = np.percentile(times, [50, 95])
        print(f"map, dragged and enlarged: {p50:.0f} ms a frame median, {p95:.0f} ms p95, {max(times):.0f} ms worst")


@contextmanager
def chromium() -> Iterator[Any]:
    """A headless browser, drawing by software."""
    from playwright.sync_api import sync_playwright

    program = next(p for name in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(name)))
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


if __name__ == "__main__":
    main()
