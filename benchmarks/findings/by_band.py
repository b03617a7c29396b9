"""Temperature by band of difficulty against one temperature: point 3 of the rule, for trainings that are there.

    python -m benchmarks.findings.by_band --cifar cifar-10-batches-bin --out questions

Reads the logits that tune.py or questions.py left in the folder; writes by_band.json and by_band.npz (the NLL of every
judging image) beside them. Bands are fifths of the validation images by a difficulty that does not know the label.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.findings import data
from benchmarks.findings.trials import JUDGE, numbers, rows_of
from confide import Predictions, Scores, calibrators, files

BANDS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cifar", required=True, help="the dataset of the trainings")
    parser.add_argument("--out", type=Path, required=True, help="their folder")
    args = parser.parse_args()
    dataset = data.open_data(args.cifar, judge=JUDGE)
    scores = Scores.load(args.out / "difficulty-free.parquet")
    hard = {split: scores.of(dataset.split(split).ids) for split in ("val", "judge")}
    rows, losses = {}, {}
    for name in (row["variant"] for row in rows_of(args.out)):
        rows[name], losses[name] = compared(args.out / f"{name}.npz", hard)
        before, after = (rows[name][stage]["nll"] for stage in ("temperature", "by_band"))
        print(f"{name:24s} NLL {before:.4f} -> {after:.4f} ± {rows[name]['error']:.4f}")
    files.write_json(args.out / "by_band.json", rows)
    files.write_table(args.out / "by_band.npz", losses)


def compared(path: Path, hard: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    """Numbers on judge, mirrored, after one temperature and after one a band; the NLL of every image after the last."""
    columns, _ = files.read_table(path)
    val, judge = (
        Predictions(columns[f"{split}_mirror"], columns[f"{split}_label"], split=split).with_column(
            "difficulty", values
        )
        for split, values in hard.items()
    )
    banded = calibrators.fit("temperature", val, by="difficulty", bands=BANDS)
    stages = {"temperature": calibrators.fit("temperature", val)(judge), "by_band": banded(judge)}
    first, second = (predictions.facts.need("nll").double().numpy() for predictions in stages.values())
    row = {
        **{name: numbers(predictions) for name, predictions in stages.items()},
        "error": float((second - first).std(ddof=1) / math.sqrt(len(first))),
        "temperatures": [float(group.values["temperature"]) for group in banded.groups.values()],
        "shrinkage": banded.shrinkage if math.isfinite(banded.shrinkage) else None,
    }
    return row, second.astype(np.float16)


if __name__ == "__main__":
    main()
