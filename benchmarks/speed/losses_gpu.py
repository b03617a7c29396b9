"""The GPU half of losses.py: device time inside a CUDA graph and wall time eager, as multiples of the memory floor.

    python -m benchmarks.speed.losses --device cuda

Run by itself, `python -m benchmarks.speed.losses_gpu PART PARTS CLASSES:DTYPE ...`, it compiles that share of the
kernels into Triton's cache.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable

import torch
from torch import Tensor

from benchmarks.speed.losses import PER_SAMPLE, Step, cases

GPU_CASES = (
    *((n, c, dtype) for n, c in ((65536, 1000), (8192, 21843)) for dtype in (torch.float32, torch.bfloat16)),
    (256, 10, torch.float32),
)


def copy_rate() -> float:
    """Bytes per second of a large copy on the device, read and written."""
    from triton.testing import do_bench

    source = torch.empty(2**30, dtype=torch.uint8, device="cuda").random_()
    target = torch.empty_like(source)
    return float(2 * source.numel() / do_bench(lambda: target.copy_(source), return_mode="median") * 1e3)


def graph_milliseconds(step: Step, leaf: Tensor) -> float:
    """Device time of forward + backward inside a captured graph."""
    from triton.testing import do_bench

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            leaf.grad = None
            step().backward()
    torch.cuda.synchronize()
    leaf.grad = None
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step().backward()
    return float(do_bench(graph.replay, warmup=5, rep=30, return_mode="median"))


def eager_milliseconds(step: Step, base: Step, leaf: Tensor, repeats: int) -> tuple[float, float]:
    """Wall time of forward + backward, and its ratio to `base`: ten calls of each in turn, medians."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats + 1):
        for which, each in zip(times, (step, base), strict=True):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(10):
                leaf.grad = None
                each().backward()
            torch.cuda.synchronize()
            which.append((time.perf_counter() - start) * 100)
    own, other = times[0][1:], times[1][1:]
    return statistics.median(own), statistics.median(a / b for a, b in zip(own, other, strict=True))


def precompile(sizes: Iterable[tuple[int, int, torch.dtype]]) -> None:
    """Compile every kernel into Triton's cache on disk, in as many processes as there are cores."""
    workers = max(1, (os.cpu_count() or 2) - 1)
    shapes = sorted({f"{num_classes}:{str(dtype).removeprefix('torch.')}" for _, num_classes, dtype in sizes})
    command = [sys.executable, "-m", "benchmarks.speed.losses_gpu"]
    started = [subprocess.Popen([*command, str(i), str(workers), *shapes]) for i in range(workers)]
    if any(process.wait() for process in started):
        raise SystemExit("a kernel did not compile; see above")


def compile_share(part: int, workers: int, shapes: list[str]) -> None:
    """Run a share of the cases once, on few rows: the kernels know n only by whether 16 divides it."""
    jobs = [(shape, word) for shape in shapes for word in PER_SAMPLE]
    for shape, word in jobs[part::workers]:
        num_classes, dtype = shape.split(":")
        _, steps = cases(64, int(num_classes), getattr(torch, dtype), "cuda", (word,))
        steps[word]().backward()


def gpu_report() -> list[str]:
    precompile(GPU_CASES)
    rate = copy_rate()
    lines = [f"\nCopy rate of the device: {rate / 1e12:.2f} TB/s; floor = logits read twice, gradient written once."]
    for n, num_classes, dtype in GPU_CASES:
        leaf, steps = cases(n, num_classes, dtype, "cuda")
        floor = 3 * leaf.numel() * leaf.element_size() / rate * 1e3
        lines += [f"\n### {n} x {num_classes}, {dtype}, floor {floor:.3f} ms\n"]
        lines += ["| loss | graph, ms | x floor | x CE | eager, ms | x CE |", "|---|---|---|---|---|---|"]
        base = graph_milliseconds(steps["torch"], leaf)
        for name in ("torch", *PER_SAMPLE):
            graph = base if name == "torch" else graph_milliseconds(steps[name], leaf)
            eager, ratio = eager_milliseconds(steps[name], steps["torch"], leaf, 45 if n == 256 else 3)
            times = f"{graph:.4f} | {graph / floor:.2f} | {graph / base:.2f} | {eager:.3f} | {ratio:.2f}"
            lines.append(f"| {name} | {times} |")
            print(size_line(n, num_classes, dtype), lines[-1], flush=True)
        leaf.grad = None
        del leaf, steps
        torch.cuda.empty_cache()
    return lines


def size_line(n: int, num_classes: int, dtype: torch.dtype) -> str:
    return f"{n}x{num_classes} {str(dtype).removeprefix('torch.')}"


if __name__ == "__main__":
    compile_share(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
