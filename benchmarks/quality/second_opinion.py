"""Second opinions on the embedded images: what a good one gives, and that a weak one does no harm.

    OMP_NUM_THREADS=1 python -m benchmarks.quality.second_opinion OUT [--predictions FOLDER] [--seeds 5]

The demo's network is trained with cross-entropy for ten epochs by every seed (two minutes each on one core) and kept in
FOLDER. Temperature scaling and second opinions are fitted on the 1,500 validation images, opinions on the training
images; all figures are of the 4,000 test images. OUT.json and OUT.md are written.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from confide import Features, Predictions, calibrators, features, metrics, pipeline, store, training

EPOCHS = 10
SPLITS = ("train", "val", "test")
OPINIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "temperature alone": ("", {}),
    "gaussian": ("cached", {}),
    "logistic": ("cached", {"opinion": "logistic"}),
    "knn": ("cached", {"opinion": "knn"}),
    "gaussian, classes kept": ("cached", {"classes": "kept"}),
    "gaussian of 8 x 8 pixels": ("pixels", {}),
    "knn of 8 x 8 pixels": ("pixels", {"opinion": "knn"}),
    "gaussian of random features": ("random", {}),
    "knn of random features": ("random", {"opinion": "knn"}),
    "random, classes kept": ("random", {"classes": "kept"}),
}


def predictions(seed: int, folder: Path) -> dict[str, Predictions]:
    """Of the demo's network on val and test, trained where they are not there yet."""
    files = {split: folder / f"net{seed}-{split}.npz" for split in ("val", "test")}
    if not all(file.exists() for file in files.values()):
        dataset = pipeline.open_data("fashion-sample", threshold_share=0.25, seed=seed)
        settings = training.Settings(model="small_cnn", epochs=EPOCHS, batch_size=128, seed=seed, device="cpu")
        trained = training.fit(dataset, settings)
        for split, file in files.items():
            pipeline.predict(trained, dataset, split).save(file)
    return {split: Predictions.load(file, split) for split, file in files.items()}


def spaces(seed: int) -> dict[str, dict[str, Features]]:
    """The embedded features, small pixels, and numbers that say nothing."""
    dataset = pipeline.open_data("fashion-sample", threshold_share=0.25, seed=seed)
    draw = np.random.default_rng(seed)
    return {
        "cached": {split: features.extract("cached", dataset, split) for split in SPLITS},
        "pixels": {split: features.extract("pixels", dataset, split, size=8) for split in SPLITS},
        "random": {
            split: Features(draw.normal(size=(len(part), 64)), part.labels, part.ids, "random", split)
            for split, part in ((split, dataset.split(split)) for split in SPLITS)
        },
    }


def measured(predictions: Predictions) -> dict[str, float]:
    """Accuracy, NLL, ECE with 15 bins of equal mass, AURC."""
    words = {"accuracy": {}, "nll": {}, "ece": {"binning": "mass"}, "aurc": {}}
    return {word: float(getattr(metrics, word)(predictions, **options)) for word, options in words.items()}


def run(seeds: int, folder: Path) -> list[dict[str, Any]]:
    """One row a seed and opinion."""
    rows: list[dict[str, Any]] = []
    for seed in range(seeds):
        outputs, space = predictions(seed, folder), spaces(seed)
        for name, (view, options) in OPINIONS.items():
            if not view:
                row = {"strength": None, **measured(calibrators.fit("temperature", outputs["val"])(outputs["test"]))}
            else:
                part = space[view]
                fitted = calibrators.fit(
                    "second_opinion", outputs["val"], features=part["val"], fitted=part["train"], **options
                )
                row = {"strength": fitted.strength, **measured(fitted(outputs["test"], part["test"]))}
            rows.append({"seed": seed, "opinion": name, **row})
            print(rows[-1], flush=True)
    return rows


def page(rows: list[dict[str, Any]], seeds: int) -> str:
    """The table, with the difference of NLL to temperature alone: mean and spread over the seeds."""

    def column(name: str, what: str) -> np.ndarray:
        return np.array([row[what] for row in rows if row["opinion"] == name], dtype=np.float64)

    plain = column("temperature alone", "nll")
    lines = [
        "# Second opinions on the embedded images",
        "",
        f"`small_cnn`, cross-entropy, {EPOCHS} epochs, {seeds} seeds; calibrators fitted on 1,500 images and judged",
        "on 4,000. ± is the standard deviation over seeds; strength 0 counts seeds where the opinion got no weight.",
        "Written by `python -m benchmarks.quality.second_opinion`.",
        "",
        "| opinion | accuracy % | NLL | to temperature | ECE % (15, mass) | AURC x 1000 | strength 0 |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in OPINIONS:
        loss = column(name, "nll")
        nothing = f"{int((column(name, 'strength') == 0).sum())} of {seeds}" if name != "temperature alone" else ""
        gain, accuracy, error, area = loss - plain, *(column(name, word).mean() for word in ("accuracy", "ece", "aurc"))
        lines.append(
            f"| {name} | {100 * accuracy:.2f} | {loss.mean():.4f} | {gain.mean():+.4f} ± {gain.std(ddof=1):.4f} "
            f"| {100 * error:.2f} | {1000 * area:.2f} | {nothing} |"
        )
    lines += [
        "",
        "; ".join(f"{key} {value}" for key, value in vars(store.environment()).items() if isinstance(value, str)),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="path without ending")
    parser.add_argument("--predictions", type=Path, default=Path("runs/second_opinion"))
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    args.predictions.mkdir(parents=True, exist_ok=True)
    rows = run(args.seeds, args.predictions)
    args.out.with_suffix(".json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    args.out.with_suffix(".md").write_text(page(rows, args.seeds), encoding="utf-8")


if __name__ == "__main__":
    main()
