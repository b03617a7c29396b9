"""One full evaluation against the floor and against peers, in one process, by CPU time on one thread.

Floor: one read of the logits, one softmax into a ready buffer, one sort. Evaluation: `metrics="core"`, values alone and
as it is by default, with intervals; both also gather all curves and class means. Peers: for each metric the quickest of
the packages that are installed (the `bench` extra), added up with one softmax. Cold: a whole process.

    python -m benchmarks.speed.metrics --out benchmarks/results/metrics.md      # the page; --rounds, --sizes
    python -m benchmarks.speed.metrics --stream              # 10 million x 100 from an iterator: time and peak memory
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import math
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

import confide
from benchmarks.coverage import commit_here
from benchmarks.speed import start

MOST_FOR_ALL = 1_000_000
"""Logits up to which every metric is timed too."""
SIZES = ((50_000, 1000), (1_000_000, 100), (10_000_000, 10), (1_000_000, 10), (10_000, 20_000), (10_000, 10))


def simulated(n: int, classes: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Overconfident logits: labels are drawn from a softer softmax than the one that is evaluated."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, classes, generator=generator)
    labels = torch.randint(0, classes, (n,), generator=generator)
    logits[torch.arange(n), labels] += 9 * torch.rand(n, generator=generator)
    return logits.mul_(1.5), labels


def seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def floor_of(logits: torch.Tensor) -> Callable[[], None]:
    buffer = torch.empty_like(logits)
    confidence = np.random.default_rng(0).random(len(logits), dtype=np.float32)

    def work() -> None:
        logits.sum()
        torch.softmax(logits, dim=1, out=buffer)
        np.sort(confidence)

    work()
    return work


def peers(logits: torch.Tensor, labels: torch.Tensor) -> dict[str, dict[str, Callable[[], object]]]:
    """Metric -> package -> call; a package that is missing is left out."""
    probs = torch.softmax(logits, dim=1)
    top, predicted = probs.max(dim=1)
    right = (predicted == labels).numpy()
    entropy = -(torch.special.xlogy(probs, probs).sum(dim=1)).numpy()
    sure, truth, table = top.numpy(), labels.numpy(), probs.numpy()
    peers: dict[str, dict[str, Callable[[], object]]] = {
        "softmax and max": {"torch": lambda: torch.softmax(logits, dim=1).max(dim=1)},
        "entropy": {"torch": lambda: torch.special.xlogy(probs, probs).sum(dim=1)},
        "nll": {"torch": lambda: torch.nn.functional.cross_entropy(logits, labels)},
        "brier": {
            "torch": lambda: (probs - torch.nn.functional.one_hot(labels, probs.shape[1])).square().sum(1).mean()
        },
        "aurc": {"numpy": lambda: np.mean(np.cumsum(~right[np.argsort(-sure)]) / np.arange(1, len(sure) + 1))},
    }
    _torchmetrics(peers, probs, labels)
    _scikit_learn(peers, right, {"msp": sure, "entropy": -entropy})
    _uncertainty_calibration(peers, table, truth, sure, right)
    _netcal(peers, table, truth)
    _probmetrics(peers, logits, labels)
    return peers


def _torchmetrics(peers: dict[str, Any], probs: torch.Tensor, labels: torch.Tensor) -> None:
    try:
        from torchmetrics.functional import classification as tm
    except ImportError:
        return
    classes = probs.shape[1]
    peers.setdefault("accuracy", {})["torchmetrics"] = lambda: tm.multiclass_accuracy(
        probs, labels, classes, average="micro"
    )
    peers.setdefault("ece", {})["torchmetrics"] = lambda: tm.multiclass_calibration_error(probs, labels, classes, 15)
    peers.setdefault("classwise_ece", {})["torchmetrics"] = lambda: [
        tm.binary_calibration_error(probs[:, k], (labels == k).int(), 15) for k in range(classes)
    ]


def _scikit_learn(peers: dict[str, Any], right: np.ndarray, scores: dict[str, np.ndarray]) -> None:
    try:
        from sklearn import metrics as sk
    except ImportError:
        return
    for name, score in scores.items():
        peers[f"auroc {name}"] = {"scikit-learn": lambda s=score: sk.roc_auc_score(right, s)}
        peers[f"aupr_error {name}"] = {"scikit-learn": lambda s=score: sk.average_precision_score(~right, -s)}
        peers[f"fpr95 {name}"] = {"scikit-learn": lambda s=score: sk.roc_curve(right, s)}


def _uncertainty_calibration(
    peers: dict[str, Any], table: np.ndarray, truth: np.ndarray, sure: np.ndarray, right: np.ndarray
) -> None:
    try:
        import calibration
    except ImportError:
        return
    peers.setdefault("ece", {})["uncertainty-calibration"] = lambda: calibration.get_ece(table, truth, num_bins=15)
    peers.setdefault("ece_mass", {})["uncertainty-calibration"] = lambda: calibration.get_ece_em(
        table, truth, num_bins=15
    )


def _netcal(peers: dict[str, Any], table: np.ndarray, truth: np.ndarray) -> None:
    try:
        from netcal.metrics import ECE
    except ImportError:
        return
    peers.setdefault("ece", {})["netcal"] = lambda: ECE(15).measure(table, truth)
    peers.setdefault("classwise_ece", {})["netcal"] = lambda: [
        ECE(15).measure(table[:, k], (truth == k).astype(int)) for k in range(table.shape[1])
    ]


def _probmetrics(peers: dict[str, Any], logits: torch.Tensor, labels: torch.Tensor) -> None:
    try:
        from probmetrics.metrics import Metrics
    except ImportError:
        return
    names = {"accuracy": "accuracy", "nll": "logloss", "brier": "brier", "ece": "ece-15"}
    for word, name in names.items():
        metrics = Metrics.from_names([name])
        peers.setdefault(word, {})["probmetrics"] = lambda m=metrics: m.compute_all_from_labels_logits(labels, logits)


def evaluated(logits: torch.Tensor, labels: torch.Tensor, metrics: str = "core", intervals: bool = False) -> None:
    confide.evaluate(confide.Predictions(logits, labels), metrics, intervals)


ALONE, DEFAULT = "values", "default"


def extra_memory(n: int, classes: int, how: str) -> float:
    """Peak resident memory of one evaluation beside logits and labels, in MB, in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.speed.metrics", "--memory", f"{n}x{classes}", how]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def own_memory(n: int, classes: int, how: str) -> float:
    """The same in this process, which has evaluated a few samples before: what is loaded then does not count."""
    evaluated(*simulated(500, classes), intervals=how == DEFAULT)
    logits, labels = torch.empty(n, classes), torch.empty(n, dtype=torch.int64)
    for k, first in enumerate(range(0, n, SHARD)):
        part = slice(first, min(first + SHARD, n))
        logits[part], labels[part] = simulated(part.stop - first, classes, seed=k)
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)  # what was freed counts again where it is used
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = memory_now("VmRSS")
    evaluated(logits, labels, intervals=how == DEFAULT)
    return (memory_now("VmHWM") - before) / 1e6


SHARD = 1 << 12


def memory_now(what: str) -> int:
    """Bytes of a line of Linux' account of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(what))


@dataclass(frozen=True)
class Compared:
    """One size: MB of the logits, CPU milliseconds, ratios within rounds, memory beside the logits, and those of the
    peers as multiples of the floor.
    """

    size: str
    held: float
    floor: float
    values: float
    default: float
    every: float
    every_default: float
    memory: tuple[float, float]
    peers: dict[str, dict[str, float]]

    @property
    def stitched(self) -> float:
        """The quickest package of each metric, added up, in milliseconds."""
        return self.floor * sum(min(packages.values()) for packages in self.peers.values())


def compare(n: int, classes: int, rounds: int, with_peers: bool) -> Compared:
    logits, labels = simulated(n, classes)
    floor = floor_of(logits)
    cases: dict[str, Callable[[], object]] = {
        "floor": floor,
        "values": lambda: evaluated(logits, labels),
        "default": lambda: evaluated(logits, labels, intervals=True),
    }
    if n * classes <= MOST_FOR_ALL:
        cases["every"] = lambda: evaluated(logits, labels, "all")
        cases["every_default"] = lambda: evaluated(logits, labels, "all", intervals=True)
    for work in cases.values():
        work()
    # Round by round, so that other work on the machine slows all of them alike.
    times = [{name: seconds(work) for name, work in cases.items()} for _ in range(rounds)]
    floors = 1e3 * statistics.median(t["floor"] for t in times)
    in_floors = {name: statistics.median(t[name] / t["floor"] for t in times) for name in cases}
    alone, whole = (extra_memory(n, classes, how) for how in (ALONE, DEFAULT))
    row = Compared(
        f"{n:,} x {classes:,}",
        4e-6 * n * classes,
        floors,
        floors * in_floors["values"],
        floors * in_floors["default"],
        floors * in_floors.get("every", math.nan),
        floors * in_floors.get("every_default", math.nan),
        (alone, whole),
        peers_in_floors(logits, labels, floor) if with_peers else {},
    )
    print(row, flush=True)
    return row


def peers_in_floors(
    logits: torch.Tensor, labels: torch.Tensor, floor: Callable[[], None]
) -> dict[str, dict[str, float]]:
    """Metric -> package -> its time in floors; a package that breaks on this input is left out, and said so."""
    floors: dict[str, dict[str, float]] = {}
    for metric, calls in peers(logits, labels).items():
        for package, call in calls.items():
            try:
                floors.setdefault(metric, {})[package] = seconds(call) / seconds(floor)
            except Exception as error:
                print(f"{metric} by {package}: {type(error).__name__}: {error}", file=sys.stderr)
    return floors


PACKAGES = ("torch", "numpy", "torchmetrics", "netcal", "scikit-learn", "probmetrics", "uncertainty-calibration")


def versions() -> str:
    shown = []
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            shown.append(f"{name} {metadata.version(name)}")
    return ", ".join(shown)


def page(rows: list[Compared], cold: list[str], rounds: int, commit: str) -> str:
    """The results as Markdown."""
    known = [row for row in rows if row.peers]
    lines = [
        "# Metrics: what an evaluation costs",
        "",
        "Coverage of the intervals and level of the calibration test: [coverage.md](coverage.md).",
        "",
        "## Warm: values alone, the default with intervals, and peers",
        "",
        f"`python -m benchmarks.speed.metrics`, {date.today()}, commit {commit}, {platform.machine()}, load "
        f"{os.getloadavg()[0]:.0f} on {os.cpu_count()} cores, one thread, CPU time, medians of {rounds} rounds in "
        f"turn. {versions()}. Floor: one read of the logits, one softmax, one sort. Default: "
        "`confide.evaluate(predictions)` with intervals, chance levels, curves and groups. Peers: the quickest package "
        "for each of the "
        f"{len(known[0].peers) if known else 0} metrics that some package has, added up with one softmax, without any "
        "interval. Memory: the peak of a fresh process beside logits and labels, and that over the logits' bytes.",
        "",
        "| size | floor, ms | values alone | default | default / values | MB beside the logits: values; default | "
        "peers | peers / values | peers / default |",
        "|" + "---|" * 9,
    ]
    for row in rows:
        other = [f"{row.stitched:,.0f} ms", f"{row.stitched / row.values:.1f}", f"{row.stitched / row.default:.1f}"]
        memory = "; ".join(f"{value:.0f} ({value / row.held:.2f} x)" for value in row.memory)
        cells = [row.size, f"{row.floor:.1f}", f"{row.values:.1f} ms", f"{row.default:.1f} ms"]
        cells += [f"{row.default / row.values:.1f}", memory, *(other if row.peers else ["–"] * 3)]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", 'Every metric (`metrics="all"`):', ""]
    lines += ["| size | values alone | with intervals | ratio |", "|---|---|---|---|"]
    lines += [
        f"| {r.size} | {r.every:.0f} ms | {r.every_default:.0f} ms | {r.every_default / r.every:.1f} |"
        for r in rows
        if math.isfinite(r.every)
    ]
    lines += ["", "## Cold: a whole process", "", *cold]
    for row in known:
        lines += ["", f"## Peers at {row.size}, as multiples of the floor", "", "| metric | by package |", "|---|---|"]
        for metric, packages in row.peers.items():
            ranked = sorted(packages.items(), key=lambda item: item[1])
            lines.append(f"| {metric} | " + ", ".join(f"{name} {value:.2f}" for name, value in ranked) + " |")
    return "\n".join(lines) + "\n"


def shards(count: int, rows: int, classes: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    for k in range(count):
        yield simulated(rows, classes, seed=k)


def streamed(count: int = 100, rows: int = 100_000, classes: int = 100) -> None:
    """Ten million rows of a hundred classes from an iterator."""
    began = time.process_time()
    evaluation = confide.evaluate(shards(count, rows, classes))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(
        f"stream of {count * rows:,} x {classes}: {time.process_time() - began:.0f} s CPU with making the logits, "
        f"peak memory of the process {peak:.2f} GB, accuracy {evaluation.value('accuracy', group=None):.4f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, help="write the page there")
    parser.add_argument("--sizes", nargs="+", default=[f"{n}x{c}" for n, c in SIZES], help="as 50000x1000")
    parser.add_argument(
        "--no-peers", nargs="*", default=["10000000x10", "1000000x10", "10000x20000"], help="sizes without peers"
    )
    parser.add_argument("--stream", action="store_true", help="ten million rows from an iterator, nothing else")
    parser.add_argument("--memory", nargs=2, metavar=("SIZE", "HOW"), help="peak memory of this process, nothing else")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if args.stream:
        streamed()
        return
    if args.memory:
        n, classes = (int(number) for number in args.memory[0].split("x"))
        print(own_memory(n, classes, args.memory[1]))
        return
    rows = []
    for size in args.sizes:
        n, classes = (int(number) for number in size.split("x"))
        rows.append(compare(n, classes, args.rounds, size not in args.no_peers))
    text = page(rows, start.table(args.rounds), args.rounds, commit_here())
    print(text)
    if args.out:
        args.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
