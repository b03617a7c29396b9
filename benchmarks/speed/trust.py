"""Speed and memory of trust predictors on stored features.

    python -m benchmarks.speed.trust                # TrustScore, RMD, neighbours, oracle, combined
    python -m benchmarks.speed.trust --peer         # TrustScore also by scikit-learn's per-class trees, at a tenth

Wall and CPU seconds on as many threads as OMP_NUM_THREADS allows; memory is the peak of this process above its start.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

import confide


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=int, default=50_000)
    parser.add_argument("--test", type=int, default=10_000)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--only", nargs="*", default=["trust_score", "rmd", "knn", "steep_slope", "combined"])
    parser.add_argument("--peer", action="store_true")
    args = parser.parse_args()
    train, train_features = simulated(args.train, args.dim, args.classes, 0, "train")
    val, val_features = simulated(5000, args.dim, args.classes, 2, "val")
    test, test_features = simulated(args.test, args.dim, args.classes, 1, "test")
    reference = confide.Features(train_features, train.labels.numpy(), train.ids, "made", "train")
    start = peak()
    print(
        f"{args.train} x {args.dim} training, {args.test} test features, {args.classes} classes; threads "
        f"{torch.get_num_threads()}; {start:.0f} MB at the start, data included"
    )
    for word in args.only:
        near = word in ("trust_score", "rmd", "knn")
        learn = (train, train_features) if near else (val, val_features)
        options: dict[str, Any] = {"reference": reference} if word == "combined" else {}
        trust, fitted = timed(partial(confide.trust.fit, word, *learn, **options))
        _, scored = timed(partial(trust, test, test_features))
        print(
            f"{word:12} fit {fitted[0]:6.2f} s ({fitted[1]:6.2f} CPU)   score {scored[0]:6.2f} s ({scored[1]:6.2f} CPU)"
            f"   peak +{peak() - start:.0f} MB, {peak():.0f} MB in all"
        )
    if args.peer:
        against_peer(train, train_features, test, test_features)


def simulated(n: int, dim: int, classes: int, seed: int, split: str) -> tuple[confide.Predictions, Any]:
    """Class blobs in feature space and a classifier that is wrong now and then, in float32."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(classes, dim)).astype(np.float32) * 0.35
    labels = rng.integers(0, classes, n)
    features = rng.standard_normal((n, dim), dtype=np.float32)
    for start in range(0, n, 4096):
        features[start : start + 4096] += centres[labels[start : start + 4096]]
    logits = features[:, : dim // 8] @ centres[:, : dim // 8].T * 3
    return confide.Predictions(logits, labels, split=split), features


def timed(work: Callable[[], Any]) -> tuple[Any, tuple[float, float]]:
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return result, (time.perf_counter() - wall, time.process_time() - cpu)


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def against_peer(train: Any, train_features: Any, test: Any, test_features: Any) -> None:
    """The usual way, a tree per class, on a tenth of the test samples; both in this process, CPU seconds."""
    from sklearn.neighbors import KDTree

    part = np.arange(len(test) // 10)
    few, rows = test.take(part), test_features[part]
    trust, ours_fit = timed(lambda: confide.trust.fit("trust_score", train, train_features))
    ours, ours_score = timed(lambda: trust(few, rows).numpy())

    def usual() -> Any:
        labels = train.labels.numpy()
        trees = [KDTree(train_features[labels == c]) for c in range(train.num_classes)]
        distances = np.stack([tree.query(rows, k=1)[0][:, -1] for tree in trees], axis=1)
        predicted = few.facts.prediction.numpy()
        own = distances[part, predicted]
        distances[part, predicted] = np.inf
        return distances.min(axis=1) / (own + 1e-12)

    theirs, usual_time = timed(usual)
    ours_total = ours_fit[1] + ours_score[1]
    print(
        f"trees of scikit-learn, {len(part)} samples: {usual_time[1]:.2f} CPU s, ours {ours_total:.2f}: "
        f"{usual_time[1] / ours_total:.0f} times; largest relative difference {np.abs(ours / theirs - 1).max():.1e}"
    )


if __name__ == "__main__":
    main()
