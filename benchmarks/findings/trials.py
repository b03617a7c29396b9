"""One training of a variant, judged on samples that it did not adapt to: what tune.py and questions.py share."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.findings import data
from confide import Dataset, Predictions, Scores, calibrators, files
from confide.metrics import calibration_test, measure_many
from confide.training import Settings, Trained, fit, predict

CALIBRATORS = ("temperature", "ensemble_temperature", "isotonic", "spline")
"""Those of the rule that keep the predicted class."""
JUDGE = 1 / 9
"""Share of the training images that judges: 5,000 of CIFAR-10's 45,000."""
Variants = Mapping[str, Mapping[str, Any]]


def arguments(description: str, out: str) -> argparse.Namespace:
    """The options of both scripts."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cifar", required=True, help="folder of CIFAR-10's binary files, or any dataset")
    parser.add_argument("--out", default=out)
    parser.add_argument("--extractor", default="efficientnet_lite0")
    parser.add_argument("--epochs", type=int, default=data.SHORT["epochs"])
    parser.add_argument("--model", default=data.SHORT["model"])
    parser.add_argument("--time-limit", type=float, default=1e9, help="start no training after so many seconds")
    parser.add_argument("--limit", type=int, default=0, help="samples of every split")
    parser.add_argument("--part", type=int, default=None, help=argparse.SUPPRESS)
    return parser.parse_args()


def both_parts(args: argparse.Namespace, module: str, run_part: Any) -> None:
    """Part 0 in this process, part 1 in another: two trainings fill one GPU."""
    began = time.monotonic()
    if args.part is not None:
        run_part(args, args.part, began)
        return
    other = subprocess.Popen([sys.executable, "-m", module, *sys.argv[1:], "--part", "1"])
    run_part(args, 0, began)
    other.wait()
    for row in rows_of(Path(args.out)):
        print(line_of(row))


def run_variants(
    args: argparse.Namespace,
    dataset: Dataset,
    variants: Variants,
    scores: data.Difficulty | None,
    began: float,
    file: str,
) -> None:
    """Train and judge every variant that has no line yet, while there is time."""
    out = Path(args.out)
    done = {row["variant"] for row in rows_of(out)}
    for name, changes in variants.items():
        if name in done or time.monotonic() - began > args.time_limit:
            continue
        started = time.monotonic()
        settings = Settings.from_dict({**data.SHORT, "epochs": args.epochs, "model": args.model, **changes})
        used: Scores | None = None
        if scores is not None:
            used = scores.labelled if "labelled" in name else scores.free
        trained = fit(dataset, settings, scores=used)
        row = {"variant": name, "settings": settings.as_dict(), **predicted(trained, dataset, out / f"{name}.npz")}
        row |= {"seconds": time.monotonic() - started, "log": {k: v.tolist() for k, v in trained.log.items()}}
        data.append(out / file, row)
        print(line_of(row), flush=True)


def predicted(trained: Trained, dataset: Dataset, path: Path) -> dict[str, Any]:
    """Keep logits of val and judge, plain and averaged over mirror images, and measure them on judge."""
    columns: dict[str, Any] = {}
    for mirror in (False, True):
        object.__setattr__(trained, "settings", trained.settings.changed(mirror=mirror))
        for split in ("val", "judge"):
            predictions = predict(trained, dataset, split)
            columns[split + ("_mirror" if mirror else "")] = predictions.logits.numpy()
            columns[f"{split}_label"] = predictions.labels.numpy()
    files.write_table(path, columns)
    return judged(path)


def judged(path: Path) -> dict[str, Any]:
    """Numbers on judge, as they are and after every calibrator, from the logits that `spoken` kept."""
    columns, _ = files.read_table(path)
    row = {}
    for end in ("", "_mirror"):
        val, judge = (
            Predictions(columns[split + end], columns[f"{split}_label"], split=split) for split in ("val", "judge")
        )
        stages = {"none": judge, **{word: calibrators.fit(word, val)(judge) for word in CALIBRATORS}}
        row[f"judge{end}"] = {word: numbers(predictions) for word, predictions in stages.items()}
    return row


def numbers(predictions: Predictions) -> dict[str, float]:
    """Accuracy, NLL, gap of confidence to accuracy, AURC, and what the calibration test says."""
    confidence, correct = predictions.facts.confidence.double().numpy(), predictions.facts.correct.numpy()
    wrong = np.cumsum(~correct[np.argsort(-confidence, kind="stable")])
    test = calibration_test(predictions, "ece_mass")
    return {
        "accuracy": float(correct.mean()),
        "nll": float(predictions.facts.need("nll").double().mean()),
        "gap": float((confidence - correct).mean()),
        "aurc": float((wrong / np.arange(1, len(wrong) + 1)).mean()),
        **measure_many(predictions, ["ece_mass"]),
        "calibration_p": float(test.p_value),
    }


def rows_of(out: Path) -> list[dict[str, Any]]:
    """All lines of a folder."""
    rows = []
    for path in sorted(out.glob("*.jsonl")):
        rows += [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [row for row in rows if "variant" in row]


def line_of(row: dict[str, Any]) -> str:
    """One row for a person: judge plain and mirrored, after temperature scaling."""
    parts = [f"{row['variant']:24s} {row['seconds']:5.1f} s"]
    for name in ("judge", "judge_mirror"):
        raw, after = row[name]["none"], row[name]["temperature"]
        parts.append(
            f"{100 * raw['accuracy']:6.2f} % gap {100 * raw['gap']:+5.2f} NLL {raw['nll']:.4f} -> {after['nll']:.4f} "
            f"AURC {1e3 * after['aurc']:.2f}"
        )
    doubts = [values[-1] for name, values in row["log"].items() if name.startswith("doubt")]
    return "  ".join(parts) + ("  doubts " + " ".join(f"{value:.3f}" for value in doubts) if doubts else "")
