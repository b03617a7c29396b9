"""Where an oracle's errors come from, on images: training split, out of fold, augmented, held out.

    python -m benchmarks.papers.trust_errors --data fashion-sample --model small_cnn --epochs 8

Prints errors, AUROC, TPR and TNR at z > 0 on the test split for two oracles on stored features, means over the seeds.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch

import confide
from confide import Split
from confide.training import Settings, cross_fit, fit, penultimate, predict
from confide.trust import augmented

WORDS = ("steep_slope", "binary_cross_entropy")
SHIFT = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="fashion-sample")
    parser.add_argument("--model", default="small_cnn")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    args = parser.parse_args()
    rows = [row for seed in args.seeds for row in one_seed(args, seed)]
    print("| errors from | errors | " + " | ".join(f"{word}: AUROC, TPR / TNR %" for word in WORDS) + " |")
    print("|---|---|" + "---|" * len(WORDS))
    for name in dict.fromkeys(row["from"] for row in rows):
        own = [row for row in rows if row["from"] == name]
        cells = [f"{np.mean([row['errors'] for row in own]):,.0f} of {own[0]['n']:,}" if own[0]["n"] else ""]
        for word in WORDS:
            area, true_positives, true_negatives = np.mean([row[word] for row in own], axis=0)
            cells.append(f"{area:.4f}, {100 * true_positives:.1f} / {100 * true_negatives:.1f}")
        print(f"| {name} | " + " | ".join(cells) + " |")


def one_seed(args: argparse.Namespace, seed: int) -> list[dict[str, Any]]:
    """Train a classifier, get its errors in every way, fit both oracles on each."""
    dataset = confide.load_dataset(args.data, seed=seed)
    settings = Settings(model=args.model, epochs=args.epochs, seed=seed)
    classifier = fit(dataset, settings)
    by_split = {split: predict(classifier, dataset, split) for split in dataset.splits}
    features = {split: penultimate(classifier, dataset, split) for split in dataset.splits}
    fits = {
        "the training split as it is": (by_split["train"], features["train"]),
        "out of fold (5 classifiers)": (cross_fit(dataset, settings), features["train"]),
        "the training split, augmented": copies(classifier, dataset.train, "train", 2, seed),
        "held out": (by_split["val"], features["val"]),
        "held out, augmented": copies(classifier, dataset.val, "val", 4, seed),
    }
    right = by_split["test"].facts.correct.numpy()
    area = float(confide.metrics.auroc(by_split["test"]))
    rows: list[dict[str, Any]] = [
        {"from": "(max-softmax)", "errors": 0, "n": 0, **dict.fromkeys(WORDS, (area, np.nan, np.nan))}
    ]
    for name, (predictions, seen) in fits.items():
        row: dict[str, Any] = {"from": name, "errors": int((~predictions.facts.correct).sum()), "n": len(predictions)}
        for word in WORDS:
            z = confide.trust.fit(word, predictions, seen, seed=seed)(by_split["test"], features["test"]).numpy()
            area = float(confide.metrics.auroc(by_split["test"], score=z))
            row[word] = (area, (z[right] > 0).mean(), (z[~right] <= 0).mean())
        rows.append(row)
    return rows


def copies(classifier: Any, samples: Split, split: str, times: int, seed: int) -> Any:
    """Predictions and features of shifted and mirrored copies."""
    model, preparation = classifier.model.eval(), classifier.preparation
    mean, scale = (torch.tensor(v).view(1, -1, 1, 1) for v in (preparation.mean, preparation.std))

    def classify(batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows = model.features((batch - mean) / scale)
        return model.head(rows), rows

    def changed(batch: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        down, across = torch.randint(0, 2 * SHIFT + 1, (2,), generator=generator).tolist()
        padded = torch.nn.functional.pad(batch.float(), (SHIFT,) * 4)
        moved = padded[:, :, down : down + batch.shape[2], across : across + batch.shape[3]]
        return moved.flip(3) if torch.rand((), generator=generator) < 0.5 else moved

    inputs = torch.from_numpy(np.ascontiguousarray(samples.inputs))
    return augmented(classify, inputs, samples.labels, changed, times=times, seed=seed, split=split, batch=64)


if __name__ == "__main__":
    main()
