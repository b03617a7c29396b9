"""Which loss and settings the recipe takes, on validation data alone: train on 40,000, adapt on 5,000, judge on 5,000.

    python -m benchmarks.findings.tune --cifar cifar-10-batches-bin --out tuning --time-limit 150

Two processes share the GPU: one extracts features and trains what needs difficulty, the other what does not. Results
are appended as lines of JSON, logits of val and judge are kept beside them; a variant that has its line is not run
again. The test images are never looked at. On two cores, to try it out:

    python -m benchmarks.findings.tune --cifar fashion-sample --extractor cached --limit 500 --epochs 2 --out try
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.findings import data
from confide.core import files
from confide.core.records import Dataset, Scores
from confide.training import Settings, Trained, fit, predict

ADAPTIVE = "adaptive_difficulty"
NEEDS_DIFFICULTY = {
    "bands": {"loss": ADAPTIVE, "loss_options": {"rate": 1.0}},
    "bands_mirror": {"loss": ADAPTIVE, "loss_options": {"rate": 1.0}, "mirror": True, "average": 1.0},
    "one_band": {"loss": ADAPTIVE, "loss_options": {"rate": 1.0, "num_groups": 1}},
    "bands_adafocal": {"loss": ADAPTIVE, "loss_options": {"rate": 0.5, "base": "adafocal"}},
    "bands_labelled": {"loss": ADAPTIVE, "loss_options": {"rate": 1.0}},
    "bands_fast": {"loss": ADAPTIVE, "loss_options": {"rate": 2.0}},
    "bands_seed1": {"loss": ADAPTIVE, "loss_options": {"rate": 1.0}, "seed": 1},
}
NEEDS_NONE = {
    "cross_entropy": {},
    "cross_entropy_average1": {"average": 1.0},
    "adafocal": {"loss": "adafocal"},
    "cross_entropy_average3": {"average": 3.0},
    "entropy_017": {"loss": "entropy_regularization", "loss_options": {"alpha": 0.17}},
    "brier": {"loss": "brier"},
    "adafocal_seed1": {"loss": "adafocal", "seed": 1},
    "cross_entropy_seed1": {"seed": 1},
}


def main() -> None:
    args = arguments()
    out, began = Path(args.out), time.monotonic()
    if args.part is None:
        other = subprocess.Popen([sys.executable, "-m", "benchmarks.findings.tune", *sys.argv[1:], "--part", "1"])
        run(args, out, 0, began)
        other.wait()
        show(out)
    else:
        run(args, out, args.part, began)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cifar", required=True, help="folder of CIFAR-10's binary files, or any dataset")
    parser.add_argument("--out", default="tuning")
    parser.add_argument("--extractor", default="efficientnet_lite0")
    parser.add_argument("--epochs", type=int, default=data.SHORT["epochs"])
    parser.add_argument("--model", default=data.SHORT["model"])
    parser.add_argument("--time-limit", type=float, default=1e9, help="start no training after so many seconds")
    parser.add_argument("--limit", type=int, default=0, help="samples of every split")
    parser.add_argument("--part", type=int, default=None, help=argparse.SUPPRESS)
    return parser.parse_args()


def run(args: argparse.Namespace, out: Path, part: int, began: float) -> None:
    """The trainings of one process."""
    dataset = data.open_data(args.cifar, judge=1 / 9, limit=args.limit)
    scores = None
    if part == 0:
        scores, seconds = data.score(dataset, out, ("train", "val", "judge"), args.extractor)
        print(f"difficulty of {len(scores.free)} samples: {seconds:.1f} s", flush=True)
    done = {row["variant"] for row in rows_of(out)}
    for name, changes in (NEEDS_NONE if part else NEEDS_DIFFICULTY).items():
        if name in done or time.monotonic() - began > args.time_limit:
            continue
        started = time.monotonic()
        settings = Settings.from_dict({**data.SHORT, "epochs": args.epochs, "model": args.model, **changes})
        used: Scores | None = None
        if scores is not None:
            used = scores.labelled if name.endswith("labelled") else scores.free
        trained = fit(dataset, settings, scores=used)
        row = {"variant": name, "settings": settings.as_dict(), **spoken(trained, dataset, out / f"{name}.npz")}
        row |= {"seconds": time.monotonic() - started, "log": {k: v.tolist() for k, v in trained.log.items()}}
        data.append(out / f"tuning-{part}.jsonl", row)
        print(line_of(row), flush=True)


def spoken(trained: Trained, dataset: Dataset, path: Path) -> dict[str, Any]:
    """Keep logits of val and judge, plain and averaged over mirror images; measure them on judge."""
    columns, found = {}, {}
    for mirror in (False, True):
        object.__setattr__(trained, "settings", trained.settings.changed(mirror=mirror))
        for split in ("val", "judge"):
            said = predict(trained, dataset, split)
            name = split + ("_mirror" if mirror else "")
            columns[name] = said.logits.numpy().astype(np.float32)
            columns[f"{split}_label"] = said.labels.numpy()
            confidence, correct = said.facts.confidence.double().numpy(), said.facts.correct.numpy()
            wrong = np.cumsum(~correct[np.argsort(-confidence, kind="stable")])
            found[name] = {
                "accuracy": float(correct.mean()),
                "nll": float(said.facts.need("nll").double().mean()),
                "gap": float((confidence - correct).mean()),
                "aurc": float((wrong / np.arange(1, len(wrong) + 1)).mean()),
            }
    files.write_table(path, columns)
    return found


def rows_of(out: Path) -> list[dict[str, Any]]:
    """All lines so far."""
    found = []
    for path in sorted(out.glob("tuning-*.jsonl")):
        found += [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return found


def line_of(row: dict[str, Any]) -> str:
    """One row for a person: judge plain and mirrored."""
    parts = [f"{row['variant']:24s} {row['seconds']:5.1f} s"]
    for name in ("judge", "judge_mirror"):
        one = row[name]
        parts.append(
            f"{100 * one['accuracy']:6.2f} % NLL {one['nll']:.4f} gap {100 * one['gap']:+5.2f} "
            f"AURC {1e3 * one['aurc']:.2f}"
        )
    return "  ".join(parts)


def show(out: Path) -> None:
    """All rows."""
    for row in rows_of(out):
        print(line_of(row))
        doubts = [values[-1] for name, values in row["log"].items() if name.startswith("doubt")]
        if doubts:
            print("    doubts at the end", " ".join(f"{value:.3f}" for value in doubts))


if __name__ == "__main__":
    main()
