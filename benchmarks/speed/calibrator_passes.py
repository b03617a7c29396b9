"""One value and slope of the vector and the matrix map: the calibrators' own row blocks beside the fused primitive.

    OMP_NUM_THREADS=1 python -m benchmarks.speed.calibrator_passes

One thread, CPU time, medians. The primitive takes the logits of the map, so its maps are made by autograd: for all rows
at once, and by the same row blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import torch

from benchmarks.speed.calibrators import peak_megabytes, simulated
from confide.calibrators.linear_maps import ScaledRows, SoftmaxRows
from confide.simplex.statistics import simplex_statistics

SIZES = ((10_000, 100), (25_000, 1_000))
ROUNDS = 5


def by_primitive(logits: Any, labels: Any, start: Any, moved: Callable[[Any, Any], Any], rows: int) -> Any:
    """Value and slope, row blocks through the primitive and autograd."""
    weights, value = start.float().requires_grad_(), 0.0
    for first in range(0, len(logits), rows):
        part = slice(first, first + rows)
        loss = -simplex_statistics(moved(logits[part], weights), labels[part], "log_p_true").log_p_true.sum()
        (loss / len(logits)).backward()
        value += float(loss.detach()) / len(logits)
    return value, weights.grad


def report(word: str, size: tuple[int, int], ways: dict[str, Callable[[], Any]]) -> None:
    """A row per way: milliseconds and extra memory, all ways in turn."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    extra, values = {}, {}
    for _ in range(ROUNDS):
        for name, work in ways.items():
            Path("/proc/self/clear_refs").write_text("5")
            before, began = peak_megabytes(), process_time()
            values[name] = work()
            times[name].append(process_time() - began)
            extra[name] = peak_megabytes() - before
    for name, seconds in times.items():
        value, slope = values[name]
        shown = f"{1e3 * np.median(seconds):.1f} | {extra[name]:.0f} | {value:.6f} | {float(slope.abs().sum()):.5f}"
        print(f"| {word} | {size[0]:,} x {size[1]:,} | {name} | {shown} |", flush=True)


def scaled(logits: Any, weights: Any) -> Any:
    """The vector map of logits."""
    return logits * weights[0] + weights[1]


def mapped(logits: Any, weights: Any) -> Any:
    """The matrix map of logits."""
    return logits @ weights[:, :-1].T + weights[:, -1]


def vector_ways(logits: Any, labels: Any) -> dict[str, Callable[[], Any]]:
    c = logits.shape[1]
    rows, start = ScaledRows(logits, labels), torch.stack([torch.full((c,), 0.4), torch.zeros(c)]).double()
    return {
        "own blocks": lambda: rows.measure(start),
        "primitive, all rows": lambda: by_primitive(logits, labels, start, scaled, len(logits)),
        "primitive, blocks": lambda: by_primitive(logits, labels, start, scaled, 262_144 // c),
    }


def matrix_ways(logits: Any, labels: Any) -> dict[str, Callable[[], Any]]:
    rows, start = SoftmaxRows(logits, labels), 0.4 * torch.eye(logits.shape[1], logits.shape[1] + 1).double()

    def own() -> Any:
        slope = torch.zeros_like(start)
        return rows.loss(start, slope), slope

    return {
        "own blocks": own,
        "primitive, all rows": lambda: by_primitive(logits, labels, start, mapped, len(logits)),
        "primitive, blocks": lambda: by_primitive(logits, labels, start, mapped, rows.block),
    }


def main() -> None:
    torch.set_num_threads(1)
    print("| map | size | pass | ms | extra MB | NLL | sum of abs(slope) |\n|---|---|---|---|---|---|---|")
    for size in SIZES:
        record = simulated(*size)
        report("vector", size, vector_ways(record.logits, record.labels))
        report("matrix", size, matrix_ways(record.logits, record.labels))


if __name__ == "__main__":
    main()
