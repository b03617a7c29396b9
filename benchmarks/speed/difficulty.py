"""Speed of difficulty against its floor and its peers.

    python -m benchmarks.speed.difficulty [--quick]          CPU, one thread, CPU time, interleaved, medians of ratios
    python -m benchmarks.speed.difficulty --gpu              RMD of 1.28 million x 768 with 1000 classes on a GPU
    python -m benchmarks.speed.difficulty --extractors WORD… throughput of extractors on a GPU against their flops

Floor of RMD: the two products it cannot avoid, X'X (numpy's symmetric one) and X W with a d x d matrix. Floor of the
confusion score: one read of the stored probabilities. faiss-cpu is asked where it is installed.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    if "--gpu" not in sys.argv and "--extractors" not in sys.argv:
        os.environ.setdefault(name, "1")

import numpy as np  # noqa: E402 (threads are set before the libraries load)
import torch  # noqa: E402

from confide import difficulty  # noqa: E402


def cpu_seconds(function: Callable[[], object]) -> float:
    """CPU time of one call."""
    began = time.process_time()
    function()
    return time.process_time() - began


def ratios(floor: Callable[[], object], cases: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median over interleaved repeats of each case's CPU time in units of the floor's."""
    by_case: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(repeats):
        base = cpu_seconds(floor)
        for name, function in cases.items():
            by_case[name].append(cpu_seconds(function) / base)
    return {name: float(np.median(values)) for name, values in by_case.items()}


def rows_of(n: int, dim: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Class Gaussians with an offset, float32."""
    draw = np.random.default_rng(0)
    labels = draw.integers(0, classes, n)
    rows = draw.standard_normal((n, dim), dtype=np.float32) + np.float32(1)
    rows += 0.3 * draw.standard_normal((classes, dim), dtype=np.float32)[labels]
    return rows, labels


def by_hand(rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """RMD as one would write it in numpy: two covariances, two inverses, two quadratic forms."""
    means = np.stack([rows[labels == k].mean(axis=0) for k in range(labels.max() + 1)])
    distances = []
    for centred in (rows - means[labels], rows - rows.mean(axis=0)):
        inverse = np.linalg.inv(centred.T @ centred / len(rows))
        distances.append(np.einsum("nd,nd->n", centred @ inverse, centred))
    return np.asarray(distances[0] - distances[1])


def rmd(n: int, dim: int, classes: int, repeats: int) -> None:
    rows, labels = rows_of(n, dim, classes)
    square = np.ascontiguousarray(rows[:dim])

    def floor() -> None:
        np.matmul(rows.T, rows)
        np.matmul(rows, square)

    cases: dict[str, Callable[[], object]] = {"confide": lambda: difficulty.score("rmd", rows, labels)}
    if n <= 50_000:
        cases["numpy by hand"] = lambda: by_hand(rows, labels)
    by_case = ratios(floor, cases, repeats)
    exact = difficulty.score("rmd", rows[:20_000].astype(np.float64), labels[:20_000]).values
    error = np.abs(difficulty.score("rmd", rows[:20_000], labels[:20_000]).values - exact).max() / dim
    text = ", ".join(f"{name} {value:.2f}" for name, value in by_case.items())
    print(f"RMD {n:,} x {dim}, {classes} classes, in units of its products: {text}; error {error:.1e} x d", flush=True)


def memory(n: int, dim: int, classes: int) -> None:
    """Peak of anonymous memory while features of a memory-mapped file are fitted and scored."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        mapped = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(n, dim))
        draw = np.random.default_rng(0)
        labels = draw.integers(0, classes, n)
        for start in range(0, n, 10_000):
            mapped[start : start + 10_000] = draw.standard_normal((min(10_000, n - start), dim), dtype=np.float32)
        mapped.flush()
        del mapped
        rows = np.load(path, mmap_mode="r")
        difficulty.score("rmd", rows[: 4 * dim], labels[: 4 * dim])  # libraries loaded, buffers of the BLAS made
        before, peak, done = anonymous(), [0], threading.Event()

        def watch() -> None:
            while not done.is_set():
                peak[0] = max(peak[0], anonymous())
                time.sleep(0.005)

        watcher = threading.Thread(target=watch)
        watcher.start()
        difficulty.score("rmd", rows, labels)
        done.set()
        watcher.join()
        print(f"RMD {n:,} x {dim} ({n * dim * 4 / 1e6:.0f} MB mapped): extra memory {(peak[0] - before) / 1e6:.0f} MB")


def anonymous() -> int:
    """Bytes of memory of this process that no file backs."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon"))


def kmeans(n: int, dim: int, k: int, repeats: int) -> None:
    rows, _ = rows_of(n, dim, k)
    ours = difficulty.kmeans(rows, None, k=k, iterations=20)
    try:
        import faiss
    except ImportError:
        print(f"k-means {n:,} x {dim}, k {k}: faiss is not installed, inertia {ours.inertia:.4g}")
        return
    faiss.omp_set_num_threads(1)

    def peer() -> Any:
        model = faiss.Kmeans(dim, k, niter=20, seed=0, max_points_per_centroid=n)
        model.train(rows)
        return model

    theirs = float(peer().obj[-1])
    by_case = ratios(peer, {"confide": lambda: difficulty.kmeans(rows, None, k=k, iterations=20)}, repeats)
    print(
        f"k-means {n:,} x {dim}, k {k}, 20 iterations: {by_case['confide']:.2f} of faiss; "
        f"inertia {ours.inertia / theirs - 1:+.2%}",
        flush=True,
    )


def confusion(members: int, epochs: int, n: int, classes: int, repeats: int) -> None:
    draw = np.random.default_rng(0)
    probs = draw.random((members, epochs, n, classes), dtype=np.float32) ** 4
    probs /= probs.sum(axis=-1, keepdims=True)
    for dtype in ("float32", "float16"):
        stored = probs.astype(dtype)
        log = difficulty.ProbabilityLog(tuple(tuple(m) for m in stored), tuple(range(epochs)), np.arange(n))
        words = stored.reshape(-1).view(np.uint64)
        by_case = ratios(words.sum, {"confide": partial(difficulty.score, "confusion", log)}, repeats)
        print(
            f"confusion score {members} members x {epochs} epochs x {n:,} x {classes}, {dtype}: "
            f"{by_case['confide']:.1f} reads of the stored probabilities",
            flush=True,
        )


def gpu(n: int = 1_280_000, dim: int = 768, classes: int = 1000, device: str = "cuda") -> None:
    """Fit and score of own-class RMD between two events of the device: all of it, waits for the host included."""
    generator = torch.Generator(device).manual_seed(0)
    labels = np.random.default_rng(0).integers(0, classes, n)
    rows = torch.randn(n, dim, device=device, generator=generator)
    rows += 0.3 * torch.randn(classes, dim, device=device, generator=generator)[torch.as_tensor(labels, device=device)]
    difficulty.score("rmd", rows[: 20 * dim], labels[: 20 * dim])  # kernels are loaded and tuned
    torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated()
    times = []
    for _ in range(5):
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
        torch.cuda.synchronize()
        marks[0].record()
        fitted = difficulty.fit("rmd", rows, labels)
        marks[1].record()
        scores = fitted.score(rows, labels)
        marks[2].record()
        torch.cuda.synchronize()
        times.append((marks[0].elapsed_time(marks[1]) / 1000, marks[1].elapsed_time(marks[2]) / 1000))
    fit, score = np.median(times[1:], axis=0)
    print(
        f"RMD {n:,} x {dim}, {classes} classes on {torch.cuda.get_device_name()}: fit + score {fit + score:.3f} s "
        f"(fit {fit:.3f}, score {score:.3f}; median of {len(times) - 1}); "
        f"extra memory {(torch.cuda.max_memory_allocated() - held) / 1e9:.2f} GB; mean RMD {scores.values.mean():.1e}"
    )
    some = slice(0, 60_000)
    exact = difficulty.score("rmd", rows[some].double(), labels[some]).values
    apart = np.abs(difficulty.score("rmd", rows[some], labels[some]).values - exact).max() / dim
    print(f"largest error of float32 against float64 on 60,000 of them: {apart:.1e} x d")


def extractors(words: list[str], n: int = 8192, batch_size: int = 512, device: str = "cuda") -> None:
    """Images per second and TFLOP/s, by torch's own count of the model's flops: the network alone, and all of it."""
    from torch.utils.flop_counter import FlopCounterMode

    from confide import Split, features

    images = np.random.default_rng(0).integers(0, 256, (n, 3, 32, 32), dtype=np.uint8)
    split = Split(images, np.zeros(n, dtype=np.int64), np.arange(n))
    for word in words:
        # Without a network to fetch weights from, timm's models run with random ones: the speed is the same.
        extractor = features.create(word, **({"pretrained": False} if word.startswith("timm:") else {}))
        assert extractor.module is not None
        batch = torch.stack([extractor.prepare(image) for image in images[:batch_size]]).to(device)
        batch = batch.contiguous(memory_format=torch.channels_last)
        extractor.module.to(device).to(memory_format=torch.channels_last).eval()  # type: ignore[call-overload]
        with torch.inference_mode(), FlopCounterMode(display=False) as counter:
            extractor.encode(batch[:1])
        flops = counter.get_total_flops()
        with torch.inference_mode(), torch.autocast(device):
            network = batch_size / seconds_of(partial(extractor.encode, batch), device)
        features.extract(extractor, split.take(np.arange(batch_size)), batch_size=batch_size, device=device)
        began = time.perf_counter()
        features.extract(extractor, split, batch_size=batch_size, device=device)
        whole = n / (time.perf_counter() - began)
        print(
            f"{word}: {flops / 1e9:.2f} GFLOP an image ({batch.shape[-1]} px); network {network:,.0f} images/s = "
            f"{network * flops / 1e12:.1f} TFLOP/s; from 32 px arrays to rows in memory {whole:,.0f} images/s",
            flush=True,
        )


def seconds_of(function: Callable[[], object], device: str, repeats: int = 20) -> float:
    """Seconds of one call, after three that warm up."""
    for _ in range(3):
        function()
    if device == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(repeats):
        function()
    if device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - began) / repeats


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller sizes")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--extractors", nargs="+", default=None)
    parser.add_argument("--packages", type=Path, default=None, help="folder with packages of weights")
    args = parser.parse_args()
    if args.packages:
        sys.path.insert(0, str(args.packages))
    if args.gpu:
        gpu()
    if args.extractors:
        extractors(args.extractors)
    if args.gpu or args.extractors:
        return
    torch.set_num_threads(1)
    repeats = 3 if args.quick else 5
    rmd(50_000, 512, 10, repeats)
    rmd(50_000, 512, 100, repeats)
    rmd(50_000 if args.quick else 200_000, 768, 1000, repeats if args.quick else 3)
    memory(50_000 if args.quick else 200_000, 768, 1000)
    kmeans(50_000, 512, 100, 3)
    confusion(3, 10, 20_000, 100, repeats)


if __name__ == "__main__":
    main()
