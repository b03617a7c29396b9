"""How fast the explorer is on a million samples: start, filters, and frames while scrolling, in real Chromium.

    python -m benchmarks.speed.explorer [--samples 1000000] [--run FOLDER] [--no-browser]

Makes a run folder of two models, ten classes, difficulty, verdicts, trust, user columns and 12 x 12 pictures, starts
`confide explore` on it as a user would, asks random filters over HTTP, and scrolls the grid by wheel and by bar.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import torch

from confide import Predictions, Scores, calibrators, files

CLASSES = 10
QUESTIONS = 100
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
    parser.add_argument("--no-browser", action="store_true")
    args = parser.parse_args()
    folder = Path(args.run) if args.run else Path(tempfile.mkdtemp(prefix="explorer-"))
    try:
        if not (folder / "manifest.json").exists():
            make_run(folder, args.samples)
        print(f"{args.samples:,} samples; {platform.machine()}, {os.cpu_count()} cores; load {os.getloadavg()[0]:.1f}")
        starts = [start_and_stop(folder) for _ in range(5)]
        for name, times in zip(
            ("start, to the page", "start, to the first filter"), zip(*starts, strict=True), strict=True
        ):
            print(f"{name}: {statistics.median(times):.2f} s median of 5, {max(times):.2f} s worst")
        server, port = start(folder)
        try:
            filters(port)
            if not args.no_browser:
                frames(port)
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


def start(folder: Path) -> tuple[subprocess.Popen[str], int]:
    """The explorer as a user starts it, and its port once it is said."""
    source = [str(folder), "--data", str(folder / "pictures.npz")]
    command = [sys.executable, "-m", "confide", "explore", *source, "--port", "0", "--no-token"]
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
    server, port = start(folder)
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


def filters(port: int) -> None:
    """Random questions, each new: count, every histogram and facet, and the first page of cells."""
    draws = np.random.default_rng(1)
    get(port, "/api/find?split=test")
    find, rows = [], []
    for _ in range(QUESTIONS):
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
        query = urlencode(words)
        began = time.perf_counter()
        answer = json.loads(get(port, f"/api/find?{query}&open=c.sharpness"))
        answered = time.perf_counter()
        get(port, f"/api/rows?{query}&from=0&count=240")
        find.append(1000 * (answered - began))
        rows.append(1000 * (time.perf_counter() - answered))
        assert "count" in answer
    both = [a + b for a, b in zip(find, rows, strict=True)]
    for name, times in (("filter", find), ("first cells", rows), ("both", both)):
        p50, p95 = np.percentile(times, [50, 95])
        print(f"{name}: {p50:.0f} ms median, {p95:.0f} ms p95, {max(times):.0f} ms worst of {len(times)}")


def frames(port: int) -> None:
    """Frames a second while the grid scrolls slowly, fast, and by jumps of the bar."""
    from playwright.sync_api import sync_playwright

    chromium = next(p for name in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(name)))
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
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
        browser.close()


if __name__ == "__main__":
    main()
