"""Speed of the calibrators: passes of the temperature search, seconds of every fit, memory, beside peers.

    OMP_NUM_THREADS=1 python -m benchmarks.speed.calibrators passes fits peers memory
    OMP_NUM_THREADS=1 python -m benchmarks.speed.calibrators peers --methods vector --size 25000x1000

One thread, CPU time, every case interleaved with its reference in one process, medians of ratios. Peers that are not
installed are named and left out; install them beside confide: scikit-learn netcal probmetrics numba.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.speed.calibrator_peers import PEERS
from confide import Predictions, calibrators

OF_LOGITS = tuple(method.word for method in calibrators.CALIBRATORS if method.spec.wants == "nothing")
"""Calibrators that look at logits alone."""
SIZES = ((5_000, 10), (10_000, 100), (25_000, 1_000))
PASS_LIMITS = {(5_000, 10): 10, (10_000, 100): 10, (25_000, 1_000): 4}
SECONDS = {"dirichlet": 5.0, "spline": 5.0}
SLOW_SECONDS = 5.0
CAP = [300]
"""Seconds of CPU that a peer may take from 1000 classes on; then it is stopped and its row says so."""


def simulated(n: int, num_classes: int, temperature: float = 2.5, seed: int = 0) -> Predictions:
    """Overconfident logits: labels are drawn from softmax(logits / temperature)."""
    random = np.random.default_rng(seed)
    logits, labels = np.empty((n, num_classes), np.float32), np.empty(n, np.int64)
    for start in range(0, n, 1000):
        z = random.standard_normal((min(1000, n - start), num_classes))
        rows = np.arange(len(z))
        z[rows, random.integers(0, num_classes, len(z))] += np.log(num_classes) + 1.5
        probs = np.exp(z - z.max(axis=1, keepdims=True))
        probs /= probs.sum(axis=1, keepdims=True)
        labels[start : start + len(z)] = (probs.cumsum(axis=1) > random.random((len(z), 1))).argmax(axis=1)
        logits[start : start + len(z)] = temperature * z
    return Predictions(torch.from_numpy(logits), torch.from_numpy(labels), split="val")


def cpu_seconds(work: Callable[[], Any]) -> float:
    """CPU seconds of one call."""
    began = time.process_time()
    work()
    return time.process_time() - began


def one_pass(predictions: Predictions) -> Callable[[], Any]:
    """The unit: log_softmax into a ready buffer + gather."""
    logits, labels, buffer = predictions.logits, predictions.labels[:, None], torch.empty_like(predictions.logits)

    def work() -> Any:
        torch.log_softmax(logits, dim=1, out=buffer)
        return buffer.gather(1, labels).mean()

    return work


def nll(predictions: Predictions) -> float:
    """Mean negative log-likelihood."""
    return float(predictions.facts.need("nll").double().mean())


def passes() -> None:
    """Temperature in passes, and how far its T is from the float64 optimum."""
    print("| size | passes | limit | T | error of log T |\n|---|---|---|---|---|")
    for size in SIZES:
        predictions = simulated(*size)
        unit = one_pass(predictions)
        fit = partial(calibrators.fit, "temperature", predictions)
        fit()
        ratios = [cpu_seconds(fit) / cpu_seconds(unit) for _ in range(15)]
        temperature = fit().temperature
        exact = calibrators.fit("temperature", Predictions(predictions.logits.double(), predictions.labels)).temperature
        print(
            f"| {size[0]:,} x {size[1]:,} | {np.median(ratios):.1f} | {PASS_LIMITS[size]} | {temperature:.7f} "
            f"| {abs(np.log(temperature / exact)):.1e} |"
        )


def fits() -> None:
    """CPU seconds of every calibrator at 10,000 x 100."""
    predictions = simulated(10_000, 100)
    print("| calibrator | CPU s at 10,000 x 100 | limit |\n|---|---|---|")
    for word in OF_LOGITS:
        seconds = np.median([cpu_seconds(partial(calibrators.fit, word, predictions)) for _ in range(3)])
        print(f"| {word} | {seconds:.3f} | {SECONDS.get(word, 2.0):g} |", flush=True)
    print(f"| choose, default candidates | {cpu_seconds(partial(calibrators.choose, predictions)):.3f} | 3 |")


def memory(words: list[str]) -> None:
    """Extra memory of a fit at 25,000 x 1000, each in a process of its own, run to its end."""
    print("| calibrator | extra MB | limit MB | CPU s | NLL |\n|---|---|---|---|---|")
    for word in words or OF_LOGITS:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.speed.calibrators", "one", word],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        print(f"| {word} | {done.stdout.strip()} |", flush=True)


def one_method(word: str) -> None:
    """Peak memory above that of the logits, for the parent process."""
    predictions = simulated(25_000, 1_000)
    calibrators.fit(word, simulated(300, 4))
    Path("/proc/self/clear_refs").write_text("5")
    before = peak_megabytes()
    began = time.process_time()
    fitted = calibrators.fit(word, predictions)
    seconds, extra = time.process_time() - began, peak_megabytes() - before
    for note in fitted.notes:
        print(f"{word}: {note}", file=sys.stderr)
    print(f"{extra:.0f} | {3 * 25_000 * 1_000 * 4 / 1e6 + 64:.0f} | {seconds:.1f} | {nll(fitted(predictions)):.5f}")


def peak_megabytes() -> float:
    """Largest resident memory since the counter was cleared."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024 / 1e6


def peers(words: list[str], size: tuple[int, int] | None, names: list[str]) -> None:
    """CPU seconds of confide and of each peer in one run, and the likelihood both reach on the fitted set."""
    print("| method | size | confide s | NLL | peer | s | NLL | ratio |\n|---|---|---|---|---|---|---|---|")
    for word in words or PEERS:
        options, peers = PEERS[word]
        for each in (size,) if size else SIZES[1:]:
            predictions = simulated(*each)
            for name, prepare in peers.items():
                if not names or name in names:
                    print(_peer_row(word, options, each, predictions, name, prepare), flush=True)


def _peer_row(word: str, options: Any, size: Any, predictions: Predictions, name: str, prepare: Any) -> str:
    try:
        peer = prepare(predictions)
    except ImportError as error:
        return f"| {word} | {size[0]:,} x {size[1]:,} | | | {name} | not installed: {error.name} | | |"
    own = partial(calibrators.fit, word, predictions, **options)
    if size[1] < 1_000:
        own()
    times: list[tuple[float, float | None]] = []
    # One round is enough where it takes long: three would not fit into minutes.
    while not times or (len(times) < 3 and all(t is not None and t < SLOW_SECONDS for t in times[-1])):
        began = time.process_time()
        fitted = own()
        mine = time.process_time() - began
        times.append((mine, *(result := capped(peer, predictions))[:1]))
    shown = f"| {word} | {size[0]:,} x {size[1]:,} | {np.median([t for t, _ in times]):.3f} "
    shown += f"| {nll(fitted(predictions)):.5f} | {name} |"
    if result[0] is None:
        return f"{shown} stopped at {CAP[0]} | | > {CAP[0] / times[0][0]:.1f} |"
    theirs = [t for _, t in times if t is not None]
    ratio = np.median([b / a for a, b in times if b is not None])
    return f"{shown} {np.median(theirs):.2f} | {result[1]:.5f} | {ratio:.1f} |"


def capped(peer: Callable[[], Any], predictions: Predictions) -> tuple[float | None, float]:
    """CPU seconds of the peer and the NLL it reaches; many classes in a process of its own, None past the cap."""

    def work() -> tuple[float, float]:
        began = time.process_time()
        fitted = peer()
        seconds = time.process_time() - began
        true = np.asarray(fitted)[np.arange(len(predictions)), predictions.labels.numpy()]
        return seconds, -float(np.log(np.clip(true.astype(np.float64), 1e-12, 1)).mean())

    if predictions.num_classes < 1_000:
        return work()

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (CAP[0], CAP[0]))
        sender.send(work())

    receiver, sender = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=limited)
    child.start()
    sender.close()
    try:
        measured: tuple[float | None, float] = receiver.recv()
    except EOFError:
        measured = (None, np.nan)
    child.join()
    return measured


def size_of(text: str) -> tuple[int, int]:
    """(samples, classes) from `10000x100`."""
    n, num_classes = text.split("x")
    return int(n), int(num_classes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", help="passes fits peers memory")
    parser.add_argument("--methods", nargs="+", default=[], help="of peers and memory (default: all)")
    parser.add_argument("--peers", nargs="+", default=[], help="of peers, by their names in the table (default: all)")
    parser.add_argument("--cap", type=int, default=CAP[0], help="CPU seconds of a peer from 1000 classes on")
    parser.add_argument("--size", type=size_of, help="of peers, such as 10000x100 (default: all)")
    args = parser.parse_args()
    CAP[0] = args.cap
    if args.parts[0] == "one":
        one_method(args.parts[1])
        return
    torch.set_num_threads(1)
    for part in args.parts:
        print(f"\n## {part}\n")
        if part == "peers":
            peers(args.methods, args.size, args.peers)
        elif part == "memory":
            memory(args.methods)
        else:
            {"passes": passes, "fits": fits}[part]()


if __name__ == "__main__":
    main()
