"""A watch: false alarms and delays by simulation, and accuracy estimated without labels under corruptions.

Alarms: the promise is a risk of 5 %; labels come one by one. Estimates: a small network on the embedded images,
calibrated by temperature; the regression is fitted on corrupted validation images and judged on the test images of
whole categories of corruption that it has not seen.

    python -m benchmarks.watch --out benchmarks/results/watch.md
    python -m benchmarks.watch --watches 100 --no-estimates         # half a minute
"""

from __future__ import annotations

import argparse
import platform
import subprocess
from pathlib import Path

import numpy as np
import torch

import confide
from confide import calibrators, load_dataset, pipeline, shift, training
from confide.monitor import WatchReference

RISK, DELTA = 0.05, 0.05
LABELS = 20_000
"""Of a watch whose risk is exactly the promise, the worst case."""
CATEGORIES = {
    "noise": ("gaussian_noise", "shot_noise", "impulse_noise"),
    "blur": ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "gaussian_blur"),
    "weather": ("snow", "frost", "fog", "brightness"),
    "digital": ("contrast", "elastic_transform", "pixelate", "jpeg_compression"),
}


def wealth(wrong: np.ndarray) -> confide.monitor.Wealth:
    """What bets against the promise have won after these labels."""
    bets = confide.monitor.Wealth(1, DELTA)
    bets.add(*confide.monitor.risk_bets(wrong.astype(np.float64), RISK, np.ones(len(wrong))))
    return bets


def false_alarms(watches: int, rng: np.random.Generator) -> float:
    """The share of watches that raise an alarm although the risk is what was promised."""
    return float(np.mean([wealth(rng.random(LABELS) < RISK).alarmed for _ in range(watches)]))


def delays(good: int, watches: int, rng: np.random.Generator) -> tuple[float, float, int]:
    """Median and 90 % quantile of labels from the break (risk .03, then .10) to the alarm, and alarms before it."""
    waited, early = [], 0
    for _ in range(watches):
        bets = wealth(np.concatenate([rng.random(good) < 0.03, rng.random(5000) < 0.10]))
        if bets.alarm_at is not None and bets.alarm_at <= good:
            early += 1
        else:
            waited.append(5000 if bets.alarm_at is None else bets.alarm_at - good)
    return float(np.median(waited)), float(np.quantile(waited, 0.9)), early


def estimates(epochs: int) -> list[tuple[str, float, float, float]]:
    """(method, mean absolute error in points, worst, share of intervals that hold) over categories left out."""
    dataset = load_dataset("fashion-sample")
    settings = training.Settings(model="small_cnn", epochs=epochs, batch_size=128, device="cpu")
    model = training.fit(dataset, settings)
    clean = pipeline.predict(model, dataset, "val")
    calibrate = calibrators.fit("temperature", clean)
    cells: dict[tuple[str, str, int], confide.Predictions] = {}
    for split in ("val", "test"):
        for word in (word for words in CATEGORIES.values() for word in words):
            for severity in shift.SEVERITIES:
                worse = shift.corrupt_split(dataset, split, word, severity)
                cells[split, word, severity] = calibrate(pipeline.predict(model, worse, split))
    errors: dict[str, list[float]] = {}
    held: dict[str, list[bool]] = {}
    # The reference is of images that neither the network nor its temperature has seen: half of the test images.
    test = calibrate(pipeline.predict(model, dataset, "test"))
    half = np.arange(len(test)) % 2 == 0
    for left_out, words in CATEGORIES.items():
        known = [cell for (split, word, _), cell in cells.items() if split == "val" and word not in words]
        reference = WatchReference.of(test.take(np.flatnonzero(half)), known)
        for (split, word, severity), cell in cells.items():
            if split != "test" or word not in words:
                continue
            batch = cell.take(np.flatnonzero(~half))
            truth = float(batch.facts.correct.double().mean())
            for estimate in reference.estimates(confide.monitor.WatchBatch.of(batch)):
                errors.setdefault(estimate.method, []).append(100 * abs(estimate.value - truth))
                held.setdefault(estimate.method, []).append(estimate.low <= truth <= estimate.high)
            print(left_out, word, severity, f"{truth:.3f}", flush=True)
    return [
        (name, float(np.mean(values)), float(np.max(values)), float(np.mean(held[name])))
        for name, values in errors.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--watches", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--no-estimates", action="store_true")
    parser.add_argument("--out", help="write the page there")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    rate = false_alarms(args.watches, rng)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    lines = [
        "# A watch: alarms and estimates",
        "",
        f"`python -m benchmarks.watch --watches {args.watches}`; commit {commit}, {platform.machine()}, one thread, "
        "seed 0.",
        "",
        f"**False alarms.** Risk exactly at the promise of {RISK:g}, {LABELS:,} labels, {args.watches:,} watches, "
        f"looked at after every label: {100 * rate:.1f} % raise an alarm; at most {100 * DELTA:g} % are promised, over "
        "any length.",
        "",
        "**Delay.** Risk .03 at first, .10 after the break:",
        "",
        "| good labels before | median labels to the alarm | 90 % of alarms within | alarms before the break |",
        "|---|---|---|---|",
    ]
    for good in (0, 2000, 20_000):
        median, most, early = delays(good, max(args.watches // 5, 20), rng)
        lines.append(f"| {good:,} | {median:,.0f} | {most:,.0f} | {early} of {max(args.watches // 5, 20)} |")
    if not args.no_estimates:
        lines += [
            "",
            "**Accuracy without labels**, embedded images, 16 corruptions x 5 severities, categories left out in turn "
            f"(seed 0, {args.epochs} epochs; CIFAR-10 not measured):",
            "",
            "| method | mean absolute error, points | worst | intervals that hold |",
            "|---|---|---|---|",
        ]
        for name, mean, worst, share in estimates(args.epochs):
            lines.append(f"| {name} | {mean:.1f} | {worst:.1f} | {100 * share:.0f} % |")
        lines += [
            "",
            "Intervals count chance, not what a shift changes; only the regression's counts that too.",
        ]
    text = "\n".join(lines) + "\n"
    print(text)
    if args.out:
        confide.files.write_text(Path(args.out), text)


if __name__ == "__main__":
    main()
