"""Ablations of adaptive difficulty, and whether confusing samples of small networks confuse large ones.

    python -m benchmarks.findings.questions --cifar cifar-10-batches-bin --out questions --time-limit 200

As tune.py: 40,000 images train, 5,000 are adapted to, 5,000 judge; the test images are never looked at; lines of JSON
are appended, and a training that has its line is not run again. Every variant keeps a mean of its weights over one
epoch and is judged plain and averaged over mirror images. On two cores, to try it out:

    python -m benchmarks.findings.questions --cifar fashion-sample --extractor cached --limit 300 --epochs 1 --out try
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import kendalltau, rankdata

from benchmarks.findings import data
from benchmarks.findings.trials import JUDGE, arguments, both_parts, run_variants
from benchmarks.findings.tune import ADAPTIVE
from confide import Dataset, Scores, difficulty, files
from confide.training import Settings, fit

MEAN = {"average": 1.0, "mirror": True}
SMALL = {"rate": 0.5, "most": 0.1}
NEEDS_DIFFICULTY: dict[str, dict[str, Any]] = {
    "small": {"loss": ADAPTIVE, "loss_options": SMALL, **MEAN},
    "small_one_band": {"loss": ADAPTIVE, "loss_options": {**SMALL, "num_groups": 1}, **MEAN},
    "small_labelled": {"loss": ADAPTIVE, "loss_options": SMALL, **MEAN},
    "small_adafocal": {"loss": ADAPTIVE, "loss_options": {**SMALL, "base": "adafocal"}, **MEAN},
    "small_ten_bands": {"loss": ADAPTIVE, "loss_options": {**SMALL, "num_groups": 10}, **MEAN},
    "small_every_gap": {"loss": ADAPTIVE, "loss_options": {**SMALL, "noise": 0.0}, **MEAN},
}
NEEDS_NONE: dict[str, dict[str, Any]] = {
    "plain": MEAN,
    "plain_average3": {"average": 3.0, "mirror": True},
    "entropy_017_mean": {"loss": "entropy_regularization", "loss_options": {"alpha": 0.17}, **MEAN},
    "adafocal_mean": {"loss": "adafocal", **MEAN},
}
MORE_SEEDS = range(1, 5)
"""Of the losses that one training each leaves within two standard errors, and of cross-entropy."""


def _seeded(variants: dict[str, dict[str, Any]], names: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    return {f"{name}_seed{seed}": {**variants[name], "seed": seed} for name in names for seed in MORE_SEEDS}


NEEDS_DIFFICULTY |= _seeded(NEEDS_DIFFICULTY, ("small", "small_ten_bands", "small_every_gap"))
NEEDS_NONE |= _seeded(NEEDS_NONE, ("plain", "entropy_017_mean"))
RECORDED = ("small_cnn", "preresnet56", "resnet18", "resnet34")
"""Networks from small to large whose confusion scores are compared."""


@dataclass
class Record:
    """Keeps the probabilities on judge after every epoch."""

    rows: list[NDArray[np.float16]] = field(default_factory=list)

    def record(self, epoch: int, ids: Any, outputs: Any, *, member: int = 0) -> None:
        """What `fit` tells after an epoch."""
        self.rows.append(torch.softmax(torch.as_tensor(outputs), dim=1).to(torch.float16).numpy())


def run_part(args: argparse.Namespace, part: int, began: float) -> None:
    """The trainings of one process: what needs difficulty, or what does not and the records."""
    dataset, out = data.open_data(args.cifar, judge=JUDGE, limit=args.limit), Path(args.out)
    if part == 0:
        scores, seconds = data.score(dataset, out, ("train", "val", "judge"), args.extractor)
        if not (out / "rmd.json").exists():
            files.write_json(out / "rmd.json", {"seconds": seconds, "samples": len(scores.free)})
        run_variants(args, dataset, NEEDS_DIFFICULTY, scores, began, "questions-0.jsonl")
        return
    run_variants(args, dataset, dict(list(NEEDS_NONE.items())[:1]), None, began, "questions-1.jsonl")
    for model in RECORDED:
        if time.monotonic() - began < args.time_limit:
            record(args, dataset, model, out)
    run_variants(args, dataset, NEEDS_NONE, None, began, "questions-1.jsonl")
    compare(dataset, out, began + args.time_limit + 30)


def record(args: argparse.Namespace, dataset: Dataset, model: str, out: Path) -> None:
    """The confusion score of every judging sample by one network's training, kept as a file."""
    path = out / f"confusion-{model}.npz"
    if path.exists():
        return
    began, record = time.monotonic(), Record()
    changes = {"epochs": args.epochs, "model": model, "record": "judge", "compile": False}
    settings = Settings.from_dict({**data.SHORT, **changes})
    fit(dataset, settings, recorder=record)
    recorded = np.stack(record.rows).astype(np.float32)
    probs = recorded / recorded.sum(axis=2, keepdims=True)
    scores = difficulty.score("confusion", probs, dataset.split("judge").labels, base=2)
    wrong = recorded[-1].argmax(axis=1) != dataset.split("judge").labels
    columns = {"confusion": scores.values, "wrong": wrong, "seconds": np.array([time.monotonic() - began])}
    files.write_table(path, columns)
    print(f"{model}: error {100 * wrong.mean():.2f} %, {columns['seconds'][0]:.1f} s", flush=True)


def compare(dataset: Dataset, out: Path, until: float) -> None:
    """Kendall's tau of every pair of networks, and of each with RMD; how well each ranks the errors of the others."""
    while not (out / "difficulty-labelled.parquet").exists() and time.monotonic() < until:
        time.sleep(1.0)
    by_model = {path.stem[10:]: files.read_table(path)[0] for path in sorted(out.glob("confusion-*.npz"))}
    ranks = {name: columns["confusion"] for name, columns in by_model.items()}
    for kind in ("labelled", "free"):
        path = out / f"difficulty-{kind}.parquet"
        if path.exists():
            ranks[f"rmd_{kind}"] = Scores.load(path).of(dataset.split("judge").ids)
    pairs = [
        {"first": a, "second": b, "kendall": float(kendalltau(ranks[a], ranks[b]).statistic)}
        for a, b in combinations(ranks, 2)
    ]
    errors = [
        {"ranking": name, "errors_of": model, "auroc": auroc(values, by_model[model]["wrong"])}
        for name, values in ranks.items()
        for model in by_model
        if model != name
    ]
    seconds = {name: float(columns["seconds"][0]) for name, columns in by_model.items()}
    files.write_json(out / "confusion.json", {"pairs": pairs, "errors": errors, "seconds": seconds})


def auroc(values: NDArray[Any], wrong: NDArray[Any]) -> float:
    """How often a wrong sample has the higher value than a right one."""
    ranks = rankdata(values)
    bad = np.asarray(wrong, dtype=bool)
    positive, negative = int(bad.sum()), int((~bad).sum())
    return float((ranks[bad].sum() - positive * (positive + 1) / 2) / max(positive * negative, 1))


if __name__ == "__main__":
    both_parts(arguments(__doc__ or "", "questions"), "benchmarks.findings.questions", run_part)
