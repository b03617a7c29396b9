"""CPU time and memory of an evaluation by sketch, of rows that are made on the fly, 10 classes each.

python -m benchmarks.sketch_scale --rows 1000000 10000000 100000000 --out benchmarks/results/sketch.md
"""

from __future__ import annotations

import argparse
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import confide

CHUNK, CLASSES = 65_536, 10


def shards(rows: int, seed: int) -> Iterator[confide.Predictions]:
    """Logits of a model that is too sure, with labels from the true probabilities."""
    for number, first in enumerate(range(0, rows, CHUNK)):
        rng = np.random.default_rng((seed, number))
        n = min(CHUNK, rows - first)
        logits = 2 * rng.standard_normal((n, CLASSES), dtype=np.float32)
        below = np.cumsum(np.exp(logits), axis=1)
        labels = (below < rng.random((n, 1), dtype=np.float32) * below[:, -1:]).sum(axis=1).clip(max=CLASSES - 1)
        yield confide.Predictions(1.3 * logits, labels)


def table_row(rows: int, seed: int) -> str:
    """A row of the table, in a process of its own: its largest memory is that of this number of rows."""
    confide.evaluation.evaluate_sketch(confide.evaluation.sketch_of(shards(1000, seed)))  # loads what is needed
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    making = [0.0]

    def timed() -> Iterator[confide.Predictions]:
        source = shards(rows, seed)
        while True:
            start = time.process_time()
            shard = next(source, None)
            making[0] += time.process_time() - start
            if shard is None:
                return
            yield shard

    start = time.process_time()
    sketch = confide.evaluation.sketch_of(timed())
    making_s = making[0]
    counted = time.process_time() - start - making_s
    start = time.process_time()
    evaluation = confide.evaluation.evaluate_sketch(sketch)
    evaluated = time.process_time() - start
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    limits, auroc = sketch.ranking_limits(["auroc"])["auroc"], evaluation.value("auroc")
    bound = max(abs(limit - auroc) for limit in limits)
    cells, value = len(sketch.fine.settle().keys), evaluation.value("ece")
    return (
        f"| {rows:,} | {making_s:.1f} | {counted:.1f} | {evaluated:.1f} | {cells:,} | {before:.0f} | {memory:.0f} | "
        f"{bound:.1e} | {value:.5f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 4_000_000])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="benchmarks/results/sketch.md")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(table_row(args.rows[0], args.seed))
        return
    lines = [
        "# Evaluation by sketch",
        "",
        f"Rows of {CLASSES} classes made on the fly, one process, one thread: CPU seconds to make them, to count them "
        "and to evaluate the cells (values, intervals, tests, curves), cells, MB of memory before and at most, what "
        "AUROC can be off by, ECE.",
        "",
        "| rows | make, s | count, s | evaluate, s | cells | MB before | MB at most | AUROC within | ECE |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for rows in args.rows:
        flags = ["--one", "--rows", str(rows), "--seed", str(args.seed)]
        command = [sys.executable, "-m", "benchmarks.sketch_scale", *flags]
        lines.append(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    rows_text = " ".join(map(str, args.rows))
    lines += [
        "",
        f"`python -m benchmarks.sketch_scale --rows {rows_text} --seed {args.seed}`, commit {commit}, "
        f"{platform.processor() or platform.machine()}.",
    ]
    Path(args.out).write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
