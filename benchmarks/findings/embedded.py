"""The questions that a small CNN on the embedded Fashion images answers, three seeds each.

    python -m benchmarks.findings.embedded --out benchmarks/results/findings/embedded.jsonl

Lines of JSON are appended; a training that has its line is not run again. About a quarter of an hour on two cores.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks.findings import data
from benchmarks.findings.cells import markdown
from benchmarks.findings.trials import numbers
from benchmarks.findings.tune import ADAPTIVE, WIDE
from benchmarks.lib import titles
from benchmarks.papers.trust_table import machine
from confide.penalties import likely_bandwidth
from confide.training import Settings, fit, predict

SEEDS = range(3)
COLUMNS = ("accuracy", "ece_mass", "nll")
SELECTIVE = {"loss": "selective_au", "batch_size": 512, "epochs": 8}
PAPER = {"coverage": 0.88, "smoothing": 0.1}
FORMS: dict[str, dict[str, Any]] = {
    "selective_au": PAPER,
    "selective_au_released": {**PAPER, "form": "released"},
    "selective_au_detached": {**PAPER, "detach_weight": True},
}
RATES = (0.4, 0.1, 0.02)
VARIANTS: dict[str, dict[str, Any]] = {
    "cross_entropy": {"epochs": 12},
    "adaptive_difficulty": {"epochs": 12, "loss": ADAPTIVE, "loss_options": WIDE},
    **{
        f"{name}, rate {rate:g}": {**SELECTIVE, "loss_options": options, "learning_rate": rate}
        for name, options in FORMS.items()
        for rate in RATES
    },
    "cross_entropy, 4 epochs": {"epochs": 4},
    "kde_xe": {"epochs": 4, "loss": "kde_xe", "loss_options": {"weight": 0.3}},
    "kde_xe_fixed": {"epochs": 4, "loss": "kde_xe", "loss_options": {"weight": 0.3, "bandwidth": 0.1}},
}


@dataclass
class Bandwidths:
    """The bandwidth that KDE-XE would choose for a batch of validation samples, after every epoch."""

    values: list[float] = field(default_factory=list)

    def record(self, epoch: int, ids: Any, outputs: Any, *, member: int = 0) -> None:
        """What `fit` tells after an epoch."""
        probs = torch.softmax(torch.as_tensor(outputs)[:128].double(), dim=1)
        self.values.append(float(likely_bandwidth(probs)))


def lines(path: Path) -> list[dict[str, Any]]:
    """What is there already."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("embedded.jsonl"))
    parser.add_argument("--scores", type=Path, default=Path("embedded"), help="folder that keeps the difficulty")
    parser.add_argument("--limit", type=int, default=0, help="samples of every split, for trying it out")
    args = parser.parse_args()
    dataset = data.open_data("fashion-sample", limit=args.limit)
    scores, _ = data.score(dataset, args.scores, ("train", "val"), "cached")
    done = {(row["variant"], row["settings"]["seed"]) for row in lines(args.out)}
    for name, changes in VARIANTS.items():
        for seed in SEEDS:
            if (name, seed) in done:
                continue
            began, bandwidths = time.monotonic(), Bandwidths()
            settings = Settings.from_dict({**changes, "seed": seed})
            recorder = bandwidths if changes.get("loss") == "kde_xe" else None
            used = scores.free if settings.loss == ADAPTIVE else None
            trained = fit(dataset, settings, scores=used, recorder=recorder)
            row: dict[str, Any] = {
                "variant": name,
                "settings": settings.as_dict(),
                "test": numbers(predict(trained, dataset, "test")),
            }
            row |= {"bandwidths": bandwidths.values, "seconds": time.monotonic() - began, **machine()}
            data.append(args.out, row)
            measured = row["test"]
            print(
                f"{name:32s} {seed} {100 * measured['accuracy']:6.2f} % ECE {100 * measured['ece_mass']:5.2f} "
                f"{measured['nll']:.4f}"
            )


def table(path: Path) -> str:
    """Mean and deviation over the seeds of each variant."""
    rows = lines(path)
    cells = []
    for name in VARIANTS:
        some = [row for row in rows if row["variant"] == name]
        if not some:
            continue
        shown = [titles.spread(metric, [row["test"][metric] for row in some]) for metric in COLUMNS]
        first = some[0]["settings"]
        cells.append(
            [f"`{name}`", str(first["epochs"]), str(first["batch_size"]), f"{first['learning_rate']:g}", *shown]
        )
    head = ["variant", "epochs", "batch", "rate", *map(titles.heading, COLUMNS)]
    return markdown(head, cells) if cells else ""


if __name__ == "__main__":
    main()
