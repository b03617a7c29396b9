"""The headline table of the README, made from the files of the main table.

python -m benchmarks.headline README.md
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

from benchmarks import ROOT
from benchmarks.lib import titles
from benchmarks.lib.grid import METHODS, Method
from confide import files

SOURCE = ROOT / "benchmarks" / "results" / "papers" / "main.parquet"
START, END = "<!-- headline: made by benchmarks/headline.py -->", "<!-- /headline -->"
COLUMNS = (
    "accuracy",
    "ece_mass",
    "ece_mass, calibrated",
    "nll, calibrated",
    "aurc, calibrated",
    "p of all seeds together, calibrated",
)
"""Quantities of the main table."""


def rows_of(table: dict[str, Any], dataset: str) -> dict[str, dict[str, tuple[float, float, int]]]:
    """method -> quantity -> (mean, deviation, seeds), clean data only."""
    rows: dict[str, dict[str, tuple[float, float, int]]] = {}
    for k in range(len(table["mean"])):
        if table["dataset"][k] == dataset and math.isnan(table["x"][k]):
            numbers = (float(table["mean"][k]), float(table["deviation"][k]), int(table["seeds"][k]))
            rows.setdefault(str(table["method"][k]), {})[str(table["quantity"][k])] = numbers
    return rows


def headline(path: Path = SOURCE) -> str:
    """CIFAR-10, best NLL after calibration first."""
    table, _ = files.read_table(path)
    rows = {name: row for name, row in rows_of(table, "cifar10").items() if "nll, calibrated" in row}
    if not rows:
        raise SystemExit(f"{path} has no rows of CIFAR-10")
    seeds = sorted({row["accuracy"][2] for row in rows.values()})
    shown_seeds = " to ".join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))
    hardware = str(table["hardware"][table["dataset"] == "cifar10"][0]).partition(";")[0]
    lines = [
        f"CIFAR-10, ResNet-18, mean ± standard deviation over {shown_seeds} seeds ({hardware}); best "
        "NLL first; ECE mass is the expected calibration error in bins of equal mass, in percentage points; "
        "calibrated is by temperature scaling on val, of the recipe `confide` by one for each fifth of difficulty."
        f"{averaged(list(rows))} A calibration p of 0.001 is the least that the test can show. "
        "Setting, intervals, tests: [the whole table](benchmarks/results/papers/main.md).",
        "",
        "| loss | " + " | ".join(map(titles.heading, COLUMNS)) + " |",
        "|---|" + "---|" * len(COLUMNS),
    ]
    for name in sorted(rows, key=lambda name: rows[name]["nll, calibrated"][0]):
        lines.append(f"| `{name}` | " + " | ".join(shown(rows[name], quantity) for quantity in COLUMNS) + " |")
    return "\n".join(lines)


def averaged(names: list[str]) -> str:
    """Which rows average weights and mirror images, and so cost twice the predictions: none of the others may."""
    several = [f"`{method.name}`" for method in METHODS if method.name in names and method.here and _mirrors(method)]
    listed = " and ".join(filter(None, (", ".join(several[:-1]), *several[-1:])))
    return (
        f" {listed} average weights and mirror images (two predictions an image), no other row does." if several else ""
    )


def _mirrors(method: Method) -> bool:
    return bool(method.resolved().training.get("mirror"))


def shown(row: dict[str, tuple[float, float, int]], quantity: str) -> str:
    """A number with its spread."""
    if quantity not in row:
        return ""
    mean, deviation, _ = row[quantity]
    metric = titles.metric_of(quantity)
    digits = 3 if metric is None else metric.digits + titles.MORE_DIGITS
    return f"{mean:.{digits}f}" + (f" ± {deviation:.{digits}f}" if math.isfinite(deviation) else "")


def renewed(text: str, path: Path = SOURCE) -> str:
    """The text with what stands between the markers replaced; without markers or numbers it stays as it is."""
    if START not in text or not path.exists():
        return text
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n{headline(path)}\n{END}{after}"


if __name__ == "__main__":
    page = Path(sys.argv[1])
    files.write_text(page, renewed(page.read_text(encoding="utf-8")))
