"""Which calibrator for how many validation samples and classes: NLL and ECE on held-out outputs of real networks.

    OMP_NUM_THREADS=1 python -m benchmarks.quality.calibrator_sizes FOLDER_OF_NPZ

Each file's samples are halved by seed; calibrators are fitted on the first 100, 1,000 and 5,000 of one half and judged
on the other. Writes benchmarks/results/calibrator_sizes.json and .md, and the table of docs/which_method.md.
"""

from __future__ import annotations

import argparse
import platform
import re
import subprocess
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import ROOT
from benchmarks.findings.cells import markdown
from benchmarks.quality.calibrators import halves, summary
from confide import Predictions, calibrators, files

RESULTS = ROOT / "benchmarks" / "results" / "calibrator_sizes.json"
PAGE = ROOT / "docs" / "which_method.md"
PLACE = re.compile(r"(<!-- made by benchmarks/quality/calibrator_sizes\.py -->\n).*?(<!-- /made -->)", re.S)
NETWORKS = {"wideresnet-16-4-cifar-10": 10, "wideresnet-16-4-cifar-100": 100}
SIZES = (100, 1000, 5000)
SEEDS = 3
NONE = "none"
METHODS = (
    NONE,
    *("temperature", "platt", "beta", "vector", "structured_vector", "structured_matrix", "matrix", "dirichlet"),
    *("isotonic", "centred_isotonic"),
)


def calibrated(word: str, val: Predictions, test: Predictions) -> Predictions:
    return test if word == NONE else calibrators.fit(word, val)(test)


def measure(folder: Path) -> list[dict[str, Any]]:
    """A row for every network, size and method: NLL and ECE of every seed."""
    rows = []
    for network, classes in NETWORKS.items():
        splits = [halves(folder / f"{network}.npz", seed) for seed in range(SEEDS)]
        for size in SIZES:
            for word in METHODS:
                summaries = []
                for val, test in splits:
                    summaries.append(summary(calibrated(word, val.take(np.arange(size)), test)))
                accuracy, nll, ece = (list(column) for column in zip(*summaries, strict=True))
                rows.append(
                    {"classes": classes, "n": size, "method": word, "accuracy": accuracy, "nll": nll, "ece": ece}
                )
                print(f"{network} {size} {word}: {np.mean(nll):.4f}", flush=True)
    return rows


def mean(rows: list[dict[str, Any]], classes: int, n: int, word: str, value: str = "nll") -> float:
    (row,) = (row for row in rows if (row["classes"], row["n"], row["method"]) == (classes, n, word))
    return float(np.mean(row[value]))


def table(rows: list[dict[str, Any]], value: str, scale: float, digits: int) -> str:
    """A row for every number of classes and samples, a column for every method; the lowest is bold."""
    lines = []
    for classes in NETWORKS.values():
        for n in SIZES:
            values = [scale * mean(rows, classes, n, word, value) for word in METHODS]
            texts = [f"{number:.{digits}f}" for number in values]
            texts[int(np.argmin(values))] = f"**{texts[int(np.argmin(values))]}**"
            lines.append([str(classes), f"{n:,}", *texts])
    return markdown(["classes", "samples", *(word if word == NONE else f"`{word}`" for word in METHODS)], lines)


def advice(rows: list[dict[str, Any]]) -> str:
    """What to take: the three lowest by NLL, beside one temperature and the network itself."""
    lines = []
    for classes in NETWORKS.values():
        for n in SIZES:
            order = sorted(METHODS[1:], key=lambda word: mean(rows, classes, n, word))
            best = ", ".join(f"`{word}` {mean(rows, classes, n, word):.3f}" for word in order[:3])
            worse = [word for word in order if mean(rows, classes, n, word) > mean(rows, classes, n, NONE)]
            known = [f"{mean(rows, classes, n, word):.3f}" for word in ("temperature", NONE)]
            lines.append([str(classes), f"{n:,}", best, *known, ", ".join(f"`{word}`" for word in worse) or "none"])
    head = ["classes", "validation samples", "lowest NLL", "`temperature`", "uncalibrated", "worse than uncalibrated"]
    return markdown(head, lines)


def page(results: dict[str, Any]) -> str:
    rows = results["rows"]
    return f"""# Calibrators by number of validation samples and of classes

WideResNet-16-4 on CIFAR-10 and CIFAR-100: its saved outputs of the 10,000 test images, halved by {SEEDS} seeds; fitted
on the first so many of one half, judged on the other (5,000). Means over the seeds; the lowest is bold. Limits: one
network for each number of classes, and the halves of different seeds share samples.

{results["how"]}

## NLL

{table(rows, "nll", 1.0, 3)}

## ECE in 15 bins of equal width, %

{table(rows, "ece", 100.0, 2)}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="of npz files; left out: pages from the kept numbers")
    args = parser.parse_args()
    if args.folder is not None:
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        start = time.process_time()
        rows = measure(args.folder)
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
        how = (
            f"Made by `python -m benchmarks.quality.calibrator_sizes FOLDER`, seeds 0 to {SEEDS - 1}, commit {commit}, "
            f"{platform.machine()}, one thread, {time.process_time() - start:.0f} CPU s; torch {torch.__version__}."
        )
        files.write_json(RESULTS, {"how": how, "rows": rows})
    results = files.read_json(RESULTS)
    files.write_text(RESULTS.with_suffix(".md"), page(results))
    text = PAGE.read_text(encoding="utf-8")
    files.write_text(PAGE, PLACE.sub(lambda place: f"{place[1]}{advice(results['rows'])}\n{place[2]}", text))


if __name__ == "__main__":
    main()
