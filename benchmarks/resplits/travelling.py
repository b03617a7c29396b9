"""Calibration that travels, judged on categories of corruption that it was not fitted on.

    OMP_NUM_THREADS=1 python -m benchmarks.resplits travelling STATE [--out benchmarks/results/resplits]

Of every seed: fitted on clean val and on val under the corruptions of three categories, judged on test under those of
the fourth, on clean test, and on clean test with other shares of the classes. The regression's
statistics are those of the calibrator; difficulty and distance are used where shifts left out of val say so.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.findings.cells import markdown
from benchmarks.lib import titles
from benchmarks.lib.cells import numbers
from benchmarks.resplits.judge import PLAIN, Seed
from benchmarks.resplits.splits import SEEDS
from confide import Predictions, calibrators, files

CATEGORIES = {
    "noise": ("gaussian_noise", "shot_noise", "impulse_noise"),
    "blur": ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "gaussian_blur"),
    "weather": ("snow", "frost", "fog", "brightness"),
    "digital": ("contrast", "elastic_transform", "pixelate", "jpeg_compression"),
}
MODES = ("batch", "sample")
WORDS = ("ece_mass", "nll")
SMALL = 100
"""Images of a batch that is too small to be told apart from clean ones."""


def judge(folder: Path, seed: int, epochs: int = 16) -> list[dict[str, Any]]:
    """One row a category and mode."""
    known = Seed.read(folder, seed)
    with np.load(folder / f"cell-{epochs}-{PLAIN}-{seed}.npz") as cell:
        val, test = (known.predictions(cell[split], split) for split in ("val", "test"))
    shifted_logits = folder / f"corrupted-{epochs}-{PLAIN}-{seed}.npz"
    with np.load(shifted_logits) as cell, np.load(folder / f"corrupted-{seed}.npz") as view:
        logits = {split: cell[split].astype(np.float32) for split in ("val", "test")}
        rows = {split: view[f"{split}_rows"].astype(np.float32) for split in logits}
        labels = {split: view[f"{split}_labels"].astype(np.int64) for split in logits}
        names = [str(name) for name in view["names"]]
    sizes = {split: len(part) // len(names) for split, part in rows.items()}
    n = sizes["test"]
    clean_rows = {split: np.asarray(known.rows[split].values) for split in ("val", "test")}
    plain = calibrators.fit("temperature", val)
    draw = np.random.default_rng(seed)
    weights = np.where(test.labels.numpy() < 3, 8.0, 1.0)
    shifted = draw.choice(len(test), 4000, p=weights / weights.sum())
    outcomes = []
    for left, words in CATEGORIES.items():
        unseen = [k for k, name in enumerate(names) if name.rpartition("-")[0] in words]
        seen = np.setdiff1d(np.arange(len(names)), unseen)
        at = np.concatenate([np.arange(k * sizes["val"], (k + 1) * sizes["val"]) for k in seen])
        column = np.concatenate([np.full(len(val), ""), np.repeat(np.array(names)[seen], sizes["val"])])
        both = Predictions(
            np.concatenate([val.logits.numpy(), logits["val"][at]]),
            np.concatenate([val.labels.numpy(), labels["val"][at]]),
            split="val",
        ).with_column("shift", column)
        features = np.concatenate([clean_rows["val"], rows["val"][at]])
        for mode in MODES:
            fitted = calibrators.fit("travelling", both, features=features, fitted=known.fitted, mode=mode)
            pairs = []
            for k in unseen:
                part = slice(k * n, (k + 1) * n)
                batch = Predictions(logits["test"][part], labels["test"][part])
                pairs.append([numbers(p, WORDS) for p in (plain(batch), fitted(batch, rows["test"][part]))])
            row: dict[str, Any] = {"seed": seed, "left out": left, "mode": mode}
            for word in WORDS:
                row[word] = np.mean([[each[word] for each in pair] for pair in pairs], axis=0).tolist()
            places = {
                "clean": np.arange(len(test)),
                "other class shares": shifted,
                "small batch": np.arange(min(SMALL, len(test))),
            }
            for name, which in places.items():
                some = Predictions(test.logits[which], test.labels[which])
                after = fitted(some, clean_rows["test"][which])
                row[name] = [numbers(p, WORDS)["ece_mass"] for p in (plain(some), after)]
            outcomes.append(row)
            print(row, flush=True)
    return outcomes


def page(rows: list[dict[str, Any]]) -> str:
    """Means over the seeds by category and mode."""

    def spread_text(some: list[dict[str, Any]], column: str, word: str, digits: int) -> str:
        before, after = (titles.scaled(word, float(v)) for v in np.mean([row[column] for row in some], axis=0))
        return f"{before:.{digits}f} → {after:.{digits}f}"

    error, loss = titles.heading("ece_mass"), titles.heading("nll")
    columns = [("ece_mass", "ece_mass", 2), ("nll", "nll", 3), ("clean", "ece_mass", 2)]
    columns.append(("other class shares", "ece_mass", 2))
    lines = []
    for mode in MODES:
        for left in (*CATEGORIES, "all"):
            some = [row for row in rows if row["mode"] == mode and left in ("all", row["left out"])]
            lines.append([mode, left, *(spread_text(some, *how) for how in columns)])
    wheres = (f"{error} there", f"{loss} there", f"{error} clean", f"{error} other class shares")
    head = ["mode", "unseen category", *wheres]
    seeds = len({row["seed"] for row in rows})
    own = [row for row in rows if row["mode"] == "batch"]
    unseen = 100 * float(np.mean([row["ece_mass"][1] for row in own]))
    clean = 100 * float(np.mean([row["clean"][1] - row["clean"][0] for row in own]))
    return f"""# Calibration that travels

CIFAR-10 re-splits, cross-entropy of 16 epochs, {seeds} seeds: temperature fitted on clean val → `travelling`, fitted on
clean val and the corruptions of the other three categories. Batches of 1,000 images; `all` weights the four categories
alike. Written by `python -m benchmarks.resplits travelling`.

{markdown(head, lines)}

Asked: unseen ECE at most 6.5 % ({_met(unseen <= 6.5)}: {unseen:.2f}), clean ECE at most 0.1 points above
({_met(clean <= 0.1)}: {clean:+.2f}), both of `batch`. Where it fails: noise, when no noise was fitted on; clean images
(`sample`). A `batch` below 200 images, or one that moves no further than the farthest of 20 draws of clean images with
other class shares, keeps the clean temperature. In simulated fits 5 % of batches of other class shares are moved all
the same. With the mean distance of those draws instead of the largest, earlier trainings of these splits had 6.24 on
unseen categories, but 17 to 20 % of such batches were moved: not taking other shares for difficulty costs that much.

The statistics were chosen by the error of the estimated accuracy on validation cells of categories left out (some
twenty sets; with the collapse of classes 4.9 points, without 5.9). Figures on test cells were in sight, so that these
here may flatter it a little.
"""


def _met(state: bool) -> str:
    return "met" if state else "**missed**"


def run(state: Path, out: Path) -> None:
    """Figures and page of all seeds."""
    rows = [row for seed in SEEDS for row in judge(state, seed)]
    files.write_json(out / "travelling.json", rows)
    files.write_text(out / "travelling.md", page(rows))
