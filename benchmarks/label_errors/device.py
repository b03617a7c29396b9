"""The heavy part of the CIFAR-10N comparison on one machine: features, our suspects, out-of-fold probabilities.

    python -m benchmarks.label_errors.device CIFAR_FOLDER cifar10n.npz OUT.npz [--packages FOLDER] [--jobs 15]

OUT.npz (about 13 MB for all 50,000 images) holds, per noise, our suspicion and decisions (by the features alone, and
with the model averaged in), RMD, and the probabilities of the model, logistic regression out of fold (5 folds,
standardised features), for each strength C; compare.py --from OUT.npz then ranks them by cleanlab, wherever that is
installed. Features are extracted and judged on a GPU where there is one.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.label_errors.compare import NOISE
from benchmarks.label_errors.extract import training_images


def extracted(images: np.ndarray, labels: np.ndarray, device: str, batch_size: int) -> np.ndarray:
    """EfficientNet-Lite0 rows, float32."""
    from confide import Split, features

    began = time.perf_counter()
    split = Split(images, labels, np.arange(len(labels)))
    extracted = features.extract("efficientnet_lite0", split, device=device, batch_size=batch_size)
    seconds = time.perf_counter() - began
    print(f"features: {len(images)} images in {seconds:.1f} s, {len(images) / seconds:.0f} images/s", flush=True)
    return np.asarray(extracted.values)


def judged(rows: np.ndarray, labels: np.ndarray, device: str, probs: np.ndarray | None = None) -> dict[str, np.ndarray]:
    """Our suspicion, decision and RMD of every sample, and how long the verdicts took.

    Args:
        probs: a model's out-of-fold probabilities, averaged in.
    """
    from confide import Predictions, difficulty

    values = torch.from_numpy(rows).to(device)
    predictions = None if probs is None else Predictions(torch.from_numpy(np.log(probs.clip(1e-12))), labels)
    began = time.perf_counter()
    verdicts = difficulty.verdicts(values, labels, predictions=predictions)
    seconds = time.perf_counter() - began
    plain = difficulty.score("rmd", values, labels).values
    print(f"verdicts in {seconds:.1f} s: {verdicts.evidence}", flush=True)
    return {
        "suspicion": verdicts.fit.suspicion.astype(np.float32),
        "wrong": verdicts.verdict == "wrong label",
        "rmd": plain.astype(np.float32),
        "seconds": np.array(seconds),
    }


def fold_probabilities(
    rows: np.ndarray, labels: np.ndarray, train: np.ndarray, held: np.ndarray, strength: float
) -> np.ndarray:
    """Probabilities of the held-out rows by logistic regression on the others."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    warnings.simplefilter("ignore")
    model = make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=400))
    return np.asarray(model.fit(rows[train], labels[train]).predict_proba(rows[held]), dtype=np.float32)


def out_of_fold(
    rows: np.ndarray, noisy_labels: dict[str, np.ndarray], strengths: list[float], jobs: int
) -> dict[str, np.ndarray]:
    """Probabilities `n c` of every noise and strength, all folds side by side."""
    from joblib import Parallel, delayed
    from sklearn.model_selection import StratifiedKFold

    began = time.perf_counter()
    tasks = [
        (name, strength, train, held)
        for name, labels in noisy_labels.items()
        for strength in strengths
        for train, held in StratifiedKFold(5).split(rows, labels)
    ]
    parts = Parallel(n_jobs=jobs)(
        delayed(fold_probabilities)(rows, noisy_labels[name], train, held, strength)
        for name, strength, train, held in tasks
    )
    result = {
        f"{name}/probs {strength:g}": np.zeros((len(rows), int(labels.max()) + 1), dtype=np.float32)
        for name, labels in noisy_labels.items()
        for strength in strengths
    }
    for (name, strength, _, held), part in zip(tasks, parts, strict=True):
        result[f"{name}/probs {strength:g}"][held] = part
    print(f"logistic regression: {len(tasks)} fits in {time.perf_counter() - began:.1f} s", flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cifar", type=Path)
    parser.add_argument("noisy", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--packages", type=Path, default=None, help="folder with the weights' packages")
    parser.add_argument("--noise", nargs="+", default=list(NOISE), choices=list(NOISE))
    parser.add_argument("--strength", type=float, nargs="+", default=[0.01, 1.0], help="C of logistic regression")
    parser.add_argument("--images", type=int, default=0, help="only the first so many (default: all)")
    parser.add_argument("--jobs", type=int, default=15, help="fits at a time")
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    if args.packages:
        sys.path.insert(0, str(args.packages))
    images, labels = training_images(args.cifar)
    n = args.images or len(images)
    with np.load(args.noisy, allow_pickle=False) as archive:
        if not np.array_equal(archive["clean_label"][: len(labels)], labels):
            sys.exit("the clean labels of cifar10n.npz must be those of the images, in their order")
        noisy_labels = {name: archive[NOISE[name]][:n].astype(np.int64) for name in args.noise}
    rows = extracted(images[:n], labels[:n], args.device, args.batch_size)
    result: dict[str, Any] = {"n": np.array(n)}
    for name, noisy in noisy_labels.items():
        result |= {f"{name}/{key}": value for key, value in judged(rows, noisy, args.device).items()}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(args.out, **result)  # what took a GPU is kept whatever comes after
    out_of_fold_probs: dict[str, Any] = out_of_fold(rows, noisy_labels, args.strength, args.jobs)
    np.savez_compressed(args.out, **result, **out_of_fold_probs)
    for name, noisy in noisy_labels.items():
        verdicts = judged(rows, noisy, args.device, out_of_fold_probs[f"{name}/probs {args.strength[0]:g}"])
        result |= {f"{name}/with model/{key}": verdicts[key] for key in ("suspicion", "wrong")}
    np.savez_compressed(args.out, **result, **out_of_fold_probs)
    print(f"{args.out}: {args.out.stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
