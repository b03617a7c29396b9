"""CPU time and memory of an evaluation by sketch, of rows that are made on the fly, 10 classes each.

With --engine two workers share the rows: each makes and counts parts of 2 million and writes their sketches, which are
merged here. With --kill the last rows are counted once more, and a worker is killed in the middle of that.

python -m benchmarks.sketch_scale --rows 1000000 10000000 --out benchmarks/results/sketch.md
python -m benchmarks.sketch_scale --rows 20000000 100000000 --engine ray --kill --parts FOLDER \\
    --out benchmarks/results/sketch_ray.md
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import confide
from confide import scale

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


PART = 2_000_000


@dataclass(frozen=True)
class MadePart:
    """Rows that one call makes and counts, and the file of their sketch."""

    number: int
    rows: int
    seed: int
    target: str


def count_part(part: MadePart) -> None:
    """Make the rows of a part, count them, and write down how long that took and the largest memory so far."""
    if Path(part.target + ".json").exists():
        return
    start = time.process_time()
    sketch = confide.evaluation.sketch_of(shards(part.rows, part.seed + 1000 * part.number))
    sketch.save(part.target)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    spent = {"seconds": time.process_time() - start, "memory": memory, "process": os.getpid()}
    Path(part.target + ".json").write_text(json.dumps(spent), encoding="utf-8")


@dataclass(frozen=True)
class Shared:
    """What workers shared: the row of the table, the evaluation, CPU seconds of a row, and how many processes."""

    line: str
    evaluation: confide.Evaluation
    seconds: float
    processes: int


def kill_one(folder: Path, parts: int) -> None:
    """Kill the worker that wrote the part with which half of them are there."""
    while len(written := sorted(folder.glob("*.json"), key=os.path.getmtime)) < max(parts // 2, 1):
        time.sleep(0.05)
    os.kill(json.loads(written[-1].read_text(encoding="utf-8"))["process"], signal.SIGKILL)


def shared_rows(rows: int, seed: int, engine: str, workers: int, folder: Path, *, kill: bool = False) -> Shared:
    """Rows that workers share; with `kill` one of them dies meanwhile."""
    folder.mkdir(parents=True, exist_ok=True)
    starts = range(0, rows, PART)
    parts = [
        MadePart(k, min(PART, rows - first), seed, str(folder.resolve() / f"{seed}-{k}.npz"))
        for k, first in enumerate(starts)
    ]
    if kill:
        threading.Thread(target=kill_one, args=(folder, len(parts)), daemon=True).start()
    wall = time.perf_counter()
    scale.map_items(count_part, parts, engine=engine, workers=workers, what="make and count")
    wall = time.perf_counter() - wall
    spent = [json.loads(Path(part.target + ".json").read_text(encoding="utf-8")) for part in parts]
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, time.process_time()
    sketch = confide.evaluation.Sketch()
    for part in parts:
        sketch.merge(confide.evaluation.Sketch.load(part.target))
    merged, start = time.process_time() - start, time.process_time()
    evaluation = confide.evaluation.evaluate_sketch(sketch)
    evaluated = time.process_time() - start
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    notes = {m.metric: m.note for m in evaluation.measurements if m.note}
    worst = max(float(note.split("within ")[1].split(" ")[0]) for note in notes.values())
    processes, counted = len({own["process"] for own in spent}), sum(own["seconds"] for own in spent)
    line = (
        f"| {sketch.rows:,} | {len(parts)} | {processes} | {counted:.0f} | {wall:.0f} | "
        f"{merged:.1f} | {evaluated:.1f} | {max(own['memory'] for own in spent):.0f} | {before:.0f} | {memory:.0f} | "
        f"{worst:.1e} | {evaluation.value('ece'):.5f} |"
    )
    return Shared(line, evaluation, counted / rows, processes)


def write_shared(args: argparse.Namespace) -> None:
    """The page of the rows that workers shared."""
    lines = [
        "# Evaluation by sketch, rows shared by workers",
        "",
        f"Rows of {CLASSES} classes made on the fly in parts of {PART:,} by {args.workers} workers of engine "
        f"'{args.engine}'. CPU seconds to make and count, wall seconds of that (without parts that were there from the "
        "row above), CPU seconds to merge the sketches and to evaluate (values, intervals, tests, curves); MB of "
        "memory of a worker at most, of the merging process before and at most; the largest bound that a ranking's "
        "note tells; ECE.",
        "",
        "| rows | parts | processes | make and count, s | wall, s | merge, s | evaluate, s | MB of a worker | "
        "MB before | MB at most | rankings within | ECE |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    parts, measured = Path(args.parts), []
    for rows in args.rows:
        measured.append(shared_rows(rows, args.seed, args.engine, args.workers, parts / "whole"))
        lines.append(measured[-1].line)
        print(lines[-1], flush=True)
    if args.kill:
        killed = shared_rows(rows, args.seed, args.engine, args.workers, parts / "killed", kill=True)
        first, second = (json.dumps(own.evaluation.to_dict(), default=str) for own in (measured[-1], killed))
        same = first == second
        lines += [
            "",
            f"The last row again, one worker killed when half of its parts were there: {killed.processes} processes "
            f"wrote parts, and every number of the evaluation is {'the same' if same else 'NOT THE SAME'}.",
            "",
            killed.line,
        ]
        print(lines[-3], lines[-1], sep="\n", flush=True)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    hours, each = measured[-1].seconds * 1e10 / 3600, measured[-1].seconds * 1e6
    lines += [
        "",
        f"`python -m benchmarks.sketch_scale --rows {' '.join(map(str, args.rows))} --seed {args.seed} "
        f"--engine {args.engine} --workers {args.workers}{' --kill' * args.kill} --parts FOLDER`, commit {commit}, "
        f"{args.machine}.",
        "",
        f"10 billion rows at this rate ({each:.2f} microseconds of CPU a row, made and counted) are {hours:.1f} hours "
        f"of CPU, {60 * hours / 16:.0f} minutes on 16 workers; the memory of each worker stays as it is. That was not "
        "run.",
    ]
    Path(args.out).write_text("\n".join(lines) + "\n", encoding="utf-8")


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
    cells, value = len(sketch.fine.summed().keys), evaluation.value("ece")
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
    parser.add_argument("--engine", choices=("local", "ray"), help="share the rows among workers")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--kill", action="store_true", help="with --engine: once more, with a worker that is killed")
    machine = platform.processor() or platform.machine()
    parser.add_argument("--machine", default=machine, help="its words on the page")
    parser.add_argument("--parts", default="sketch-parts", help="with --engine: a folder for the sketches of parts")
    args = parser.parse_args()
    if args.engine:
        write_shared(args)
        return
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
