"""How often 95 % intervals hold the truth where several rows were drawn as one: by unit, and as if drawn apart.

Generated predictions with known truth. Answers: 200 questions of 5 answers that stand or fall together. Labels: 300
samples of 6 labels that go together, a tenth missing. Pixels: 60 images of 256 pixels, whose errors come in blocks.
True values are those of a population of the same model.

    python -m benchmarks.units --sets 500 --out benchmarks/results/units.md
"""

from __future__ import annotations

import argparse
import math
import platform
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import confide


def answers(units: int, rng: np.random.Generator) -> confide.Predictions:
    each = 5
    ability = rng.beta(2, 2, units).repeat(each)
    stated = np.clip(ability + rng.normal(0, 0.15, units).repeat(each), 0.01, 0.99)
    right = rng.random(units * each) < ability
    return confide.Predictions.from_pairs(right, stated, unit="question", question=np.arange(units).repeat(each))


def labels(units: int, rng: np.random.Generator) -> confide.Predictions:
    logits = rng.normal(np.linspace(-2.5, 0.5, 6), 1.0, (units, 6)) + rng.normal(0, 1.0, (units, 1))
    shared = rng.random((units, 1))  # labels of a sample come true together half of the time
    chance = np.where(rng.random((units, 6)) < 0.5, shared, rng.random((units, 6)))
    truth = (chance < 1 / (1 + np.exp(-logits))).astype(float)
    truth[rng.random((units, 6)) < 0.1] = np.nan
    return confide.Predictions.multilabel(1.5 * logits, truth)


def pixels(units: int, rng: np.random.Generator) -> confide.Predictions:
    """Images of 16 x 16 pixels in 3 classes: blocks of 4 x 4 err together, and images differ in difficulty."""

    def blocks(values: np.ndarray) -> np.ndarray:
        return values.repeat(4, axis=-1).repeat(4, axis=-2)

    logits = blocks(rng.normal(0, 2, (units, 3, 4, 4))) / rng.gamma(4, 0.25, (units, 1, 1, 1))
    below = np.cumsum(np.exp(logits - logits.max(axis=1, keepdims=True)), axis=1)
    truth = (blocks(rng.random((units, 1, 4, 4))) * below[:, -1:] > below[:, :2]).sum(axis=1)
    return confide.dense.pixels(1.3 * logits, truth)


@dataclass(frozen=True)
class Cell:
    """A kind of predictions: how it is drawn, how many units, its metrics, and how large its population is."""

    name: str
    draw: Callable[[int, np.random.Generator], confide.Predictions]
    units: int
    metrics: tuple[str, ...]
    population: int


CELLS = (
    Cell("answers", answers, 200, ("accuracy", "confidence_gap", "confidence_brier", "auroc", "aurc"), 400_000),
    Cell("pixels", pixels, 60, ("accuracy", "confidence_gap", "nll", "auroc", "aurc"), 8_000),
    Cell("labels", labels, 300, ("accuracy", "nll", "f_beta", "class_auroc", "average_precision"), 100_000),
)


@dataclass
class Row:
    """A metric of a group: how often both intervals held the truth, and their summed widths."""

    held: list[int]
    width: list[float]
    sets: int = 0


def measured(cell: Cell, predictions: confide.Predictions, intervals: bool) -> dict[str, confide.Measurement]:
    """Metrics of all rows, and of multilabel predictions their macro averages."""
    rows = confide.evaluate(predictions, list(cell.metrics), intervals).measurements
    shown = [m for m in rows if m.score in (None, "msp") and (m.group is None or "macro" in m.group)]
    return {f"{m.metric}, {'macro' if m.group else 'all'}": m for m in shown}


def cell_rows(cell: Cell, sets: int, seed: int) -> dict[str, Row]:
    truth = measured(cell, cell.draw(cell.population, np.random.default_rng(seed)), False)
    rows = {name: Row([0, 0], [0.0, 0.0]) for name in truth}
    for number in range(sets):
        record = cell.draw(cell.units, np.random.default_rng((seed, number + 1)))
        alone = record.replace(unit=None)
        by_unit, by_row = measured(cell, record, True), measured(cell, alone, True)
        for name, row in rows.items():
            for way, by_name in enumerate((by_unit, by_row)):
                if name not in by_name:
                    continue
                m = by_name[name]
                row.held[way] += m.low <= truth[name].value <= m.high
                row.width[way] += m.high - m.low
            row.sets += 1
    return rows


def page(sets: int, seed: int, seconds: float, cells: dict[str, dict[str, Row]]) -> str:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    error = 196 * math.sqrt(0.95 * 0.05 / sets)
    lines = [
        "# Intervals where several rows were drawn as one",
        "",
        f"How often the 95 % interval holds the truth in {sets:,} sets, and its mean width: by unit (question, "
        f"sample, image), and as if rows were drawn apart. A share of 95 % is known to ±{error:.1f} points. Generated "
        "predictions; no real ones.",
        "",
        "| kind | metric | holds, by unit | holds, rows apart | width, by unit | width, rows apart |",
        "|---|---|---|---|---|---|",
    ]
    for name, rows in cells.items():
        for metric, row in rows.items():
            apart = ("–", "–") if not row.width[1] else (f"{row.held[1] / sets:.1%}", f"{row.width[1] / sets:.4f}")
            own = f"{row.held[0] / sets:.1%}", f"{row.width[0] / sets:.4f}"
            lines.append(f"| {name} | {metric} | {own[0]} | {apart[0]} | {own[1]} | {apart[1]} |")
    machine = platform.processor() or platform.machine()
    command = f"`python -m benchmarks.units --sets {sets} --seed {seed}`"
    lines += ["", f"{command}, commit {commit}, {machine}, {seconds:.0f} s of CPU."]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="benchmarks/results/units.md")
    args = parser.parse_args()
    start = time.process_time()
    cells = {cell.name: cell_rows(cell, args.sets, args.seed) for cell in CELLS}
    text = page(args.sets, args.seed, time.process_time() - start, cells)
    Path(args.out).write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
