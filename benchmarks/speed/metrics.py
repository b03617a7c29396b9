"""One full evaluation against the floor and against peers, in one process, by CPU time on one thread.

Floor: one read of the logits, one softmax into a ready buffer, one sort. Evaluation: `metrics="core"`, values alone and
as it is by default, with intervals; both also gather all curves and class means. Peers: for each metric the quickest of
the packages that are installed (the `bench` extra), added up with one softmax.

    python -m benchmarks.speed.metrics                       # floor, evaluation, memory
    python -m benchmarks.speed.metrics --metrics all         # every metric
    python -m benchmarks.speed.metrics --peers               # and the peers
    python -m benchmarks.speed.metrics --stream              # 10 million x 100 from an iterator: time and peak memory
"""

from __future__ import annotations

import argparse
import gc
import resource
import statistics
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

import confide

SIZES = ((50_000, 1000), (1_000_000, 100), (1_000_000, 10), (10_000, 20_000), (10_000, 10))


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


def evaluated(logits: torch.Tensor, labels: torch.Tensor, metrics: str = "core", intervals: bool = False) -> None:
    confide.evaluate(confide.Predictions(logits, labels), metrics, intervals)


def extra_memory(logits: torch.Tensor, labels: torch.Tensor, metrics: str, intervals: bool) -> float:
    """Peak of what numpy allocates during one evaluation, in MB."""
    gc.collect()
    tracemalloc.start()
    evaluated(logits, labels, metrics, intervals)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def compare(n: int, classes: int, rounds: int, with_peers: bool, metrics: str) -> None:
    logits, labels = simulated(n, classes)
    floor = floor_of(logits)
    evaluated(logits, labels, metrics, intervals=True)
    floors, ratios, defaults = [], [], []
    for _ in range(rounds):
        base = seconds(floor)
        floors.append(base)
        alone = seconds(lambda: evaluated(logits, labels, metrics))
        ratios.append(alone / base)
        defaults.append(seconds(lambda: evaluated(logits, labels, metrics, intervals=True)) / alone)
    print(f"\n{n:,} x {classes}: floor {1e3 * statistics.median(floors):.1f} ms")
    for words, numbers, intervals in (
        (f"{statistics.median(ratios):6.2f} x floor (best {min(ratios):.2f})", "values only", False),
        (f"{statistics.median(defaults):6.2f} x values only (best {min(defaults):.2f})", "default", True),
    ):
        memory = extra_memory(logits, labels, metrics, intervals)
        print(f"  confide.evaluate, {numbers:12} {words}, {memory:.0f} MB beyond the logits")
    if with_peers:
        stitched(logits, labels, statistics.median(ratios), floor)


def stitched(logits: torch.Tensor, labels: torch.Tensor, own: float, floor: Callable[[], None]) -> None:
    """The quickest package for each metric, added up."""
    total = 0.0
    for metric, calls in peers(logits, labels).items():
        by_package = {}
        for package, call in calls.items():
            try:
                by_package[package] = seconds(call) / seconds(floor)
            except Exception as error:  # a peer that breaks on this input is left out, and said so
                print(f"    {metric} by {package}: {type(error).__name__}: {error}")
        if by_package:
            best = min(by_package, key=by_package.__getitem__)
            total += by_package[best]
            print(
                f"    {metric:20} {by_package[best]:8.2f} x floor by {best}"
                + "".join(f", {v:.2f} by {k}" for k, v in by_package.items() if k != best)
            )
    print(f"  peers, best of each  {total:8.1f} x floor = {total / own:.1f} x confide")


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
    parser.add_argument("--peers", action="store_true", help="also time the packages of the bench extra")
    parser.add_argument("--metrics", default="core", choices=("core", "all"))
    parser.add_argument("--stream", action="store_true", help="ten million rows from an iterator, nothing else")
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if args.stream:
        streamed()
        return
    for n, classes in SIZES:
        compare(n, classes, args.rounds, args.peers, args.metrics)


if __name__ == "__main__":
    main()
