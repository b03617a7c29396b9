"""Tables for the questions that a grid's cells answer: means over seeds, by method."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

QUESTIONS: dict[str, tuple[str, ...]] = {
    "difficulty": (
        "cross_entropy",
        "difficulty_raw",
        "difficulty_minmax",
        "difficulty_entropy",
        "difficulty_rank_06",
        "entropy_017",
        "difficulty_rank_10",
        "entropy_029",
        "entropy_regularization",
        "adaptive_difficulty",
    ),
    "selective": ("cross_entropy", "selective_au", "selective_au_released"),
    "dual": ("focal", "dual_focal", "dual_focal_released"),
    "adafocal": ("adafocal", "adafocal_steps"),
    "recipe": ("cross_entropy", "confide", "adaptive_difficulty", "adafocal", "difficulty_entropy"),
}
"""Methods of the table of each question, by the names of the grid."""
COLUMNS = (
    ("accuracy", "accuracy %", 100.0, 2),
    ("ece_mass", "ECE %", 100.0, 2),
    ("nll", "NLL", 1.0, 4),
    ("aurc", "AURC x1000", 1000.0, 2),
    ("auroc", "AUROC of errors %", 100.0, 1),
)


def cell_tables(folder: Path, dataset: str = "cifar10", model: str = "resnet18") -> dict[str, str]:
    """The tables by name; a question of which no cell is there has an empty one."""
    cells = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("cells/*.json"))]
    cells = [one for one in cells if one["cell"]["dataset"] == dataset and one["cell"]["model"] == model]
    return {f"cells-{name}": _table(cells, methods) for name, methods in QUESTIONS.items()}


def _table(cells: Sequence[dict[str, Any]], methods: Sequence[str]) -> str:
    head = ["method", "stage", "seeds", "mean strength", *(title for _, title, _, _ in COLUMNS), "p > 0.05"]
    lines = []
    for method in methods:
        own = [one for one in cells if one["cell"]["method"]["name"] == method]
        for stage in ("raw", "temperature") if own else ():
            lines.append(_line(method, stage, own))
    if not lines:
        return ""
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *lines))


def _line(method: str, stage: str, cells: Sequence[dict[str, Any]]) -> list[str]:
    measured = [one["measured"][stage] for one in cells]
    strength = cells[0].get("strength")
    line = [f"`{method}`", stage, str(len(cells)), "-" if strength is None else f"{strength:.2f}"]
    for word, _, scale, digits in COLUMNS:
        values = scale * np.array([one[word] for one in measured])
        spread = f" ± {values.std(ddof=1):.{digits}f}" if len(values) > 1 else ""
        line.append(f"{values.mean():.{digits}f}{spread}")
    passed = sum(one["calibration_p"] > 0.05 for one in measured)
    return [*line, f"{passed} of {len(measured)}"]
