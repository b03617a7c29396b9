"""How fast the explorer is on one file of predictions of many rows: start, and random filters.

    python -m benchmarks.speed.explorer_file [--rows 10000000] [--file FILE] [--questions 60]

The file has ten classes, ids, a column of words and one of numbers; it is made in blocks where it is not there yet.
Beside the wall time stands the CPU time of the server, which a busy machine does not stretch.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import time
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.speed.explorer import cpu_seconds, get, start

CLASSES, BLOCK = 10, 500_000


def make_file(path: Path, rows: int) -> None:
    """Predictions in blocks, so that memory does not grow with the rows."""
    about = {"split": "test", "class_names": json.dumps([f"class {k}" for k in range(CLASSES)])}
    writer = None
    for block, first in enumerate(range(0, rows, BLOCK)):
        rng, n = np.random.default_rng(block), min(BLOCK, rows - first)
        logits = 2 * rng.standard_normal((n, CLASSES), dtype=np.float32)
        below = np.cumsum(np.exp(logits), axis=1)
        labels = (below < rng.random((n, 1), dtype=np.float32) * below[:, -1:]).sum(axis=1).clip(max=CLASSES - 1)
        table = pa.table(
            {
                "id": np.arange(first, first + n),
                "label": labels,
                "logits": pa.FixedSizeListArray.from_arrays(pa.array((1.3 * logits).reshape(-1)), CLASSES),
                "camera": np.array(["phone", "studio", "web"])[rng.integers(0, 3, n)],
                "sharpness": rng.gamma(2, 2, n),
            }
        ).replace_schema_metadata(about)
        writer = writer or pq.ParquetWriter(path, table.schema, compression="zstd")
        writer.write_table(table)
    assert writer is not None
    writer.close()


def question(draws: np.random.Generator) -> str:
    """A random view: an order, and up to five filters."""
    low = float(draws.gamma(2, 2))
    words = {"sort": str(draws.choice(["confidence", "-loss", "-confidence"]))}
    words |= {"c.sharpness": f"{low:.3f}..{low + draws.uniform(1, 8):.3f}"}
    if draws.random() < 0.5:
        words["outcome"] = str(draws.choice(["right", "wrong"]))
    if draws.random() < 0.4:
        words["label"] = str(draws.integers(0, CLASSES))
    if draws.random() < 0.3:
        words["c.camera"] = "studio"
    if draws.random() < 0.4:
        words["confidence"] = f"{draws.random() / 2:.4f}.."
    return urlencode(words)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--file", default="explorer-rows.parquet")
    parser.add_argument("--questions", type=int, default=60)
    args = parser.parse_args()
    path = Path(args.file)
    if not path.exists():
        make_file(path, args.rows)
    print(f"{args.rows:,} rows; {platform.machine()}, {os.cpu_count()} cores; load {os.getloadavg()[0]:.1f}")
    began = time.monotonic()
    server, port = start(path)
    try:
        get(port, "/")
        get(port, "/api/about")
        print(f"start, to the page: {time.monotonic() - began:.1f} s, {cpu_seconds(server.pid):.1f} s of CPU")
        get(port, "/api/find?outcome=wrong")
        print(f"to the first filter: {time.monotonic() - began:.1f} s, {cpu_seconds(server.pid):.1f} s of CPU")
        draws = np.random.default_rng(1)
        taken: dict[str, list[tuple[float, float]]] = {"filter": [], "first cells": []}
        for _ in range(args.questions):
            query = question(draws)
            for name, route in zip(taken, (f"find?{query}", f"rows?{query}&from=0&count=240"), strict=True):
                clock, cpu = time.perf_counter(), cpu_seconds(server.pid)
                get(port, f"/api/{route}")
                taken[name].append((1000 * (time.perf_counter() - clock), 1000 * (cpu_seconds(server.pid) - cpu)))
        for name, times in taken.items():
            for kind, own in zip(("wall", "CPU"), zip(*times, strict=True), strict=True):
                median, high = np.percentile(own, [50, 95])
                print(
                    f"{name}, {kind}: {median:.0f} ms median, {high:.0f} ms p95, {max(own):.0f} ms worst of {len(own)}"
                )
    finally:
        server.terminate()
        server.wait()
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"memory of the server at most: {largest:.0f} MB; load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
