"""Time and memory of every loss, forward + backward, as ratios to torch.nn.functional.cross_entropy in the same run.

    python -m benchmarks.speed.losses                     the CPU, with fresh pages and with a reused heap
    python -m benchmarks.speed.losses --device cuda       a GPU: inside a CUDA graph, and eager
    python -m benchmarks.speed.losses --out FILE.md       also write the table

On the CPU cross-entropy's own time depends on the allocator, so every size runs twice, each in a process of its own:
one where glibc returns large blocks at once (every tensor is fresh pages), one where it keeps them.
"""

from __future__ import annotations

import argparse
import functools
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from confide import losses, penalties
from confide.numerics.kernels import mmce_of

ALLOCATORS = {
    "fresh": {"MALLOC_MMAP_THRESHOLD_": "1000000"},
    "reused": {
        "MALLOC_MMAP_THRESHOLD_": "4000000000",
        "MALLOC_TRIM_THRESHOLD_": "8000000000",
        "MALLOC_TOP_PAD_": "1000000000",
    },
}
CPU_SIZES = ((4096, 1000), (1024, 21843))
PER_SAMPLE = (
    "cross_entropy",
    "label_smoothing",
    "focal",
    "flsd53",
    "inverse_focal",
    "dual_focal",
    "calfocal",
    "adafocal",
    "aurc",
    "selective_au",
    "entropy_regularization",
    "difficulty_entropy",
    "logit_norm",
    "poly1",
    "brier",
    "class_balanced",
    "mbls",
)
BATCH = ("mmce", "mmce_weighted", "crl", "group_dro", "mdca")
Step = Callable[[], Tensor]


def cases(
    n: int, num_classes: int, dtype: torch.dtype, device: str, words: tuple[str, ...] = ()
) -> tuple[Tensor, dict[str, Step]]:
    """Logits and, by name, a function that gives the mean loss; of all words where none are given."""
    torch.manual_seed(0)
    labels = torch.randint(0, num_classes, (n,), device=device)
    logits = torch.randn((n, num_classes), device=device) * 2
    logits[torch.arange(n, device=device), labels] += 4
    leaf = logits.to(dtype).requires_grad_()
    needs: dict[str, dict[str, Any]] = {
        "difficulty_entropy": {"weights": torch.rand(n, device=device)},
        "class_balanced": {"class_counts": torch.randint(1, 100, (num_classes,), device=device)},
        "crl": {"ids": torch.arange(n, device=device)},
        "group_dro": {"groups": torch.arange(n, device=device) % 2},
    }
    steps: dict[str, Step] = {"torch": lambda: functional.cross_entropy(leaf, labels)}
    for word in words or (*PER_SAMPLE, *BATCH):
        options: dict[str, Any] = {"num_samples": n} if word == "crl" else {}
        module = losses.create(word, **options).to(device)
        steps[word] = functools.partial(module, leaf, labels, **needs.get(word, {}))
    return leaf, steps


def cpu_table(n: int, num_classes: int, repeats: int) -> dict[str, tuple[float, float]]:
    """Name -> (milliseconds of CPU time, ratio to cross-entropy); every case once per round, medians over rounds."""
    torch.set_num_threads(1)
    leaf, steps = cases(n, num_classes, torch.float32, "cpu")
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(repeats):
        for name, step in steps.items():
            leaf.grad = None
            start = time.process_time()
            step().backward()
            times[name].append(time.process_time() - start)
    base = times["torch"][1:]
    return {
        name: (statistics.median(t) * 1e3, statistics.median(a / b for a, b in zip(t[1:], base, strict=True)))
        for name, t in times.items()
    }


def cpu_memory(n: int, num_classes: int, word: str) -> float:
    """Growth of the peak resident memory by one forward + backward, in n x c float32 matrices."""
    torch.set_num_threads(1)
    _, steps = cases(n, num_classes, torch.float32, "cpu")
    small = torch.zeros((2, num_classes), requires_grad=True)
    functional.cross_entropy(small, torch.zeros(2, dtype=torch.int64)).backward()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    steps[word]().backward()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return grown * 1024 / (4 * n * num_classes)


def kde_ratio(n: int = 4096, num_classes: int = 1000, repeats: int = 3) -> tuple[float, float]:
    """KDE-XE at a given bandwidth: (seconds, ratio to its three matrix products)."""
    torch.set_num_threads(1)
    logits = (torch.randn((n, num_classes)) * 2).requires_grad_()
    labels = torch.randint(0, num_classes, (n,))
    probs, weights = logits.detach().softmax(dim=1), torch.rand((n, n))
    whole, products = [], []
    for _ in range(repeats):
        start = time.process_time()
        penalties.kde_xe(logits, labels, bandwidth=0.1).backward()
        whole.append(time.process_time() - start)
        start = time.process_time()
        probs @ probs.T, weights @ probs, weights.T @ probs
        products.append(time.process_time() - start)
    return statistics.median(whole), statistics.median(a / b for a, b in zip(whole, products, strict=True))


def mmce_milliseconds(n: int = 100_000, repeats: int = 7) -> float:
    """MMCE's kernel sum, forward + backward, on given confidences."""
    torch.set_num_threads(1)
    confidence = torch.rand(n).requires_grad_()
    correct = (torch.rand(n) < confidence.detach()).float()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        mmce_of(confidence, correct).backward()
        times.append(time.process_time() - start)
    return statistics.median(times) * 1e3


def _child(kind: str, *arguments: str, allocator: str = "") -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **ALLOCATORS.get(allocator, {})}
    command = [sys.executable, "-m", "benchmarks.speed.losses", "--child", kind, *arguments]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


def cpu_report(repeats: int) -> list[str]:
    lines = []
    for n, num_classes in CPU_SIZES:
        size = f"{n}x{num_classes}"
        lines += [f"\n### CPU, {n} x {num_classes}, float32, one thread\n"]
        lines += ["| loss | fresh pages, ms | x CE | reused heap, ms | x CE |", "|---|---|---|---|---|"]
        tables = [_rows(_child("time", size, str(repeats), allocator=name)) for name in ("fresh", "reused")]
        lines += [f"| {name} | {' | '.join(' | '.join(t[name]) for t in tables)} |" for name in tables[0]]
    size = "4096x1000"
    memory = {word: float(_child("memory", size, word, allocator="fresh")) for word in ("torch", *PER_SAMPLE)}
    lines += ["\n### CPU, peak memory of one forward + backward at 4096 x 1000, in n x c float32 matrices\n"]
    lines += ["| loss | matrices | x CE |", "|---|---|---|"]
    lines += [f"| {word} | {value:.2f} | {value / memory['torch']:.2f} |" for word, value in memory.items()]
    seconds, ratio = (float(v) for v in _child("kde").split())
    lines += [f"\nKDE-XE, 4096 x 1000, bandwidth given: {seconds:.2f} s, {ratio:.2f} x its three matrix products."]
    lines += [f"MMCE, n = 100,000, forward + backward: {float(_child('mmce')):.1f} ms."]
    return lines


def _rows(text: str) -> dict[str, tuple[str, str]]:
    rows = (line.split() for line in text.splitlines())
    return {name: (f"{float(ms):.2f}", f"{float(ratio):.2f}") for name, ms, ratio in rows}


def heading(device: str, command: str, ratios: str) -> list[str]:
    git = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    commit = os.environ.get("COMMIT", "")
    if not commit and shutil.which("git"):
        commit = subprocess.run(git, capture_output=True, text=True).stdout.strip()
    hardware = torch.cuda.get_device_name() if device == "cuda" else f"{platform.machine()}, one thread"
    return [
        f"# Losses, forward + backward, {'GPU' if device == 'cuda' else 'CPU'}\n",
        f"{hardware}; torch {torch.__version__}; {date.today()}; commit {commit or 'unknown'}; `{command}`.",
        ratios,
    ]


def child(kind: str, rest: list[str]) -> None:
    if kind == "kde":
        print(*kde_ratio())
    elif kind == "mmce":
        print(mmce_milliseconds())
    else:
        n, num_classes = (int(v) for v in rest[0].split("x"))
        if kind == "memory":
            print(cpu_memory(n, num_classes, rest[1]))
        else:
            for name, (milliseconds, ratio) in cpu_table(n, num_classes, int(rest[1])).items():
                print(name, milliseconds, ratio)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--repeats", type=int, default=15, help="rounds on the CPU")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child[0], options.child[1:])
        return
    command = f"python -m benchmarks.speed.losses --device {options.device}"
    ratios = "Ratios are to `torch.nn.functional.cross_entropy` (row `torch`) in the same run."
    if options.device == "cuda":
        from benchmarks.speed.losses_gpu import gpu_report  # it imports this module: the cases are the same

        lines = heading("cuda", command, ratios) + gpu_report()
    else:
        lines = heading("cpu", command, ratios) + cpu_report(options.repeats)
    print("\n".join(lines))
    if options.out:
        options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
