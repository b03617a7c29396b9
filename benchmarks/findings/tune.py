"""Which loss and settings the recipe takes, on validation data alone: train on 40,000, adapt on 5,000, judge on 5,000.

    python -m benchmarks.findings.tune --cifar cifar-10-batches-bin --out tuning --time-limit 150

Two processes share the GPU: one extracts features and trains what needs difficulty, the other what does not. Results
are appended as lines of JSON, logits of val and judge are kept beside them; a variant that has its line is not run
again. The test images are never looked at. On two cores, to try it out:

    python -m benchmarks.findings.tune --cifar fashion-sample --extractor cached --limit 500 --epochs 2 --out try
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from benchmarks.findings import data
from benchmarks.findings.trials import JUDGE, arguments, both_parts, run_variants

ADAPTIVE = "adaptive_difficulty"
WIDE = {"rate": 1.0, "most": 0.3}
NEEDS_DIFFICULTY: dict[str, dict[str, Any]] = {
    "bands": {"loss": ADAPTIVE, "loss_options": WIDE},
    "bands_mirror": {"loss": ADAPTIVE, "loss_options": WIDE, "mirror": True, "average": 1.0},
    "one_band": {"loss": ADAPTIVE, "loss_options": {**WIDE, "num_groups": 1}},
    "bands_adafocal": {"loss": ADAPTIVE, "loss_options": {**WIDE, "rate": 0.5, "base": "adafocal"}},
    "bands_labelled": {"loss": ADAPTIVE, "loss_options": WIDE},
    "bands_fast": {"loss": ADAPTIVE, "loss_options": {**WIDE, "rate": 2.0}},
    "bands_seed1": {"loss": ADAPTIVE, "loss_options": WIDE, "seed": 1},
}
NEEDS_NONE: dict[str, dict[str, Any]] = {
    "cross_entropy": {},
    "cross_entropy_average1": {"average": 1.0},
    "adafocal": {"loss": "adafocal"},
    "cross_entropy_average3": {"average": 3.0},
    "entropy_017": {"loss": "entropy_regularization", "loss_options": {"alpha": 0.17}},
    "brier": {"loss": "brier"},
    "adafocal_seed1": {"loss": "adafocal", "seed": 1},
    "cross_entropy_seed1": {"seed": 1},
}


def run_part(args: argparse.Namespace, part: int, began: float) -> None:
    """The trainings of one process."""
    dataset = data.open_data(args.cifar, judge=JUDGE, limit=args.limit)
    scores = None
    if part == 0:
        scores, seconds = data.score(dataset, Path(args.out), ("train", "val", "judge"), args.extractor)
        print(f"difficulty of {len(scores.free)} samples: {seconds:.1f} s", flush=True)
    variants = NEEDS_NONE if part else NEEDS_DIFFICULTY
    run_variants(args, dataset, variants, scores, began, f"tuning-{part}.jsonl")


if __name__ == "__main__":
    both_parts(arguments(__doc__ or "", "tuning"), "benchmarks.findings.tune", run_part)
