"""Second opinions on the embedded images and on texts: what a good one gives, and that a weak one does no harm.

    OMP_NUM_THREADS=1 python -m benchmarks.quality.second_opinion OUT [--predictions FOLDER] [--seeds 5]
    OMP_NUM_THREADS=1 python -m benchmarks.quality.second_opinion OUT --data clinc150 [--predictions FOLDER]

A small network is trained with cross-entropy by every seed (some minutes each on one core) and kept in FOLDER.
Temperature scaling and second opinions are fitted on validation samples, opinions on the training samples; all figures
are of the test samples. OUT.json and OUT.md are written.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from confide import Dataset, Features, Predictions, calibrators, features, metrics, pipeline, store, training

SPLITS = ("train", "val", "test")
Opinions = dict[str, tuple[str, dict[str, Any]]]


def opinions_of(good: str) -> Opinions:
    """Title of a row -> the features it looks at and its options."""
    return {
        "temperature alone": ("", {}),
        "gaussian": (good, {}),
        "logistic": (good, {"opinion": "logistic"}),
        "knn": (good, {"opinion": "knn"}),
        "gaussian, classes kept": (good, {"classes": "kept"}),
        "gaussian of random features": ("random", {}),
        "knn of random features": ("random", {"opinion": "knn"}),
        "random, classes kept": ("random", {"classes": "kept"}),
    }


@dataclass(frozen=True)
class Case:
    """Data, the network that is given, and the opinions on it.

    Args:
        about: of the page, what was trained.
        extracted: name of a space of features -> the extractor's word and options.
        shares: what is set apart of the data, as `pipeline.open_data` takes it.
    """

    title: str
    about: str
    network: dict[str, Any]
    opinions: Opinions
    extracted: dict[str, tuple[str, dict[str, Any]]]
    shares: dict[str, float] = field(default_factory=dict)

    def open(self, data: str, seed: int) -> Dataset:
        return pipeline.open_data(data, seed=seed, **self.shares)


IMAGES = Case(
    "Second opinions on the embedded images",
    "`small_cnn`, cross-entropy, 10 epochs; the opinion looks at the 64 features that come with the images",
    {"model": "small_cnn", "epochs": 10, "batch_size": 128},
    {
        **opinions_of("cached"),
        "gaussian of 8 x 8 pixels": ("pixels", {}),
        "knn of 8 x 8 pixels": ("pixels", {"opinion": "knn"}),
    },
    {"cached": ("cached", {}), "pixels": ("pixels", {"size": 8})},
    {"threshold_share": 0.25},
)
TEXTS = Case(
    "Second opinions on queries (CLINC150)",
    "`text_cnn`, cross-entropy, 15 epochs, 150 classes; the opinion looks at MiniLM's features of the query",
    {"model": "text_cnn", "epochs": 15, "batch_size": 128, "optimizer": "adamw", "learning_rate": 3e-3}
    | {"weight_decay": 0.01, "schedule": "cosine"},
    opinions_of("minilm"),
    {"minilm": ("minilm", {})},
)


def predictions(case: Case, dataset: Dataset, seed: int, folder: Path) -> dict[str, Predictions]:
    """Of the network on val and test, trained where they are not there yet."""
    files = {split: folder / f"net{seed}-{split}.npz" for split in ("val", "test")}
    if not all(file.exists() for file in files.values()):
        trained = training.fit(dataset, training.Settings(**case.network, seed=seed, device="cpu"))
        for split, file in files.items():
            pipeline.predict(trained, dataset, split).save(file)
    return {split: Predictions.load(file, split) for split, file in files.items()}


def spaces(case: Case, dataset: Dataset, seed: int, folder: Path) -> dict[str, dict[str, Features]]:
    """Features that say something, and numbers that say nothing; those of a network are kept."""
    draw = np.random.default_rng(seed)
    known: dict[str, dict[str, Features]] = {}
    for name, (word, options) in case.extracted.items():
        places = {split: folder / f"{name}-{split}" if dataset.kind == "text" else None for split in SPLITS}
        known[name] = {split: features.extract(word, dataset, split, out=places[split], **options) for split in SPLITS}
    known["random"] = {
        split: Features(draw.normal(size=(len(part), 64)), part.labels, part.ids, "random", split)
        for split, part in ((split, dataset.split(split)) for split in SPLITS)
    }
    return known


def measured(predictions: Predictions) -> dict[str, float]:
    """Accuracy, NLL, ECE with 15 bins of equal mass, AURC."""
    words = {"accuracy": {}, "nll": {}, "ece": {"binning": "mass"}, "aurc": {}}
    return {word: float(getattr(metrics, word)(predictions, **options)) for word, options in words.items()}


def run(case: Case, data: str, seeds: int, folder: Path) -> list[dict[str, Any]]:
    """One row a seed and opinion."""
    rows: list[dict[str, Any]] = []
    for seed in range(seeds):
        dataset = case.open(data, seed)
        outputs, space = predictions(case, dataset, seed, folder), spaces(case, dataset, seed, folder)
        for name, (view, options) in case.opinions.items():
            if not view:
                row = {"strength": None, **measured(calibrators.fit("temperature", outputs["val"])(outputs["test"]))}
            else:
                part = space[view]
                fitted = calibrators.fit(
                    "second_opinion", outputs["val"], features=part["val"], fitted=part["train"], **options
                )
                row = {"strength": fitted.strength, **measured(fitted(outputs["test"], part["test"]))}
            sizes = {split: len(part) for split, part in outputs.items()}
            rows.append({"seed": seed, "opinion": name, **row, "sizes": sizes})
            print(rows[-1], flush=True)
    return rows


def page(case: Case, rows: list[dict[str, Any]], seeds: int) -> str:
    """The table, with the difference of NLL to temperature alone: mean and spread over the seeds."""

    def column(name: str, what: str) -> np.ndarray:
        return np.array([row[what] for row in rows if row["opinion"] == name], dtype=np.float64)

    plain = column("temperature alone", "nll")
    sizes = rows[0]["sizes"]
    lines = [
        f"# {case.title}",
        "",
        f"{case.about}. {seeds} seeds; calibrators fitted on {sizes['val']:,} samples and judged on {sizes['test']:,}.",
        "± is the standard deviation over seeds; strength 0 counts seeds where the opinion got no weight.",
        "Written by `python -m benchmarks.quality.second_opinion`.",
        "",
        "| opinion | accuracy % | NLL | to temperature | ECE % (15, mass) | AURC x 1000 | strength 0 |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in case.opinions:
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
    parser.add_argument("--data", default="fashion-sample", help="the embedded images, or the folder of CLINC150")
    parser.add_argument("--predictions", type=Path, default=Path("runs/second_opinion"))
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    args.predictions.mkdir(parents=True, exist_ok=True)
    case = IMAGES if args.data == "fashion-sample" else TEXTS
    rows = run(case, args.data, args.seeds, args.predictions)
    args.out.with_suffix(".json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    args.out.with_suffix(".md").write_text(page(case, rows, args.seeds), encoding="utf-8")


if __name__ == "__main__":
    main()
