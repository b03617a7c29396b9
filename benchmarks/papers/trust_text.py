"""Trust predictors on text: CLINC150 and Banking77, MiniLM features, a linear classifier.

    python -m benchmarks.papers.trust_text --data clinc150/data_full.json --out text/clinc150
    python -m benchmarks.papers.trust_text --data banking77 --out text/banking77

Features are extracted once into OUT and kept; then `confide trust` compares all predictors on the test split.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import torch

import confide
from confide.features import extract
from confide.trust import linear_classifier


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="a text dataset that confide reads")
    parser.add_argument("--extractor", default="minilm")
    parser.add_argument("--out", default="trust-text")
    args = parser.parse_args()
    out = Path(args.out)
    dataset = confide.load_dataset(args.data, val_fraction=0.2)
    rows = {split: extract(args.extractor, dataset, split, out=out / f"{split}-features") for split in dataset.splits}
    labels = torch.as_tensor(rows["train"].labels)
    classify = linear_classifier(rows["train"].values[:], labels, num_classes=dataset.num_classes)
    for split in ("val", "test"):
        logits, part = classify(rows[split].values[:]), rows[split]
        predictions = confide.Predictions(logits, part.labels, part.ids, split, class_names=dataset.class_names)
        predictions.save(out / f"{split}.parquet")
        print(
            f"{split}: {len(predictions)} texts, accuracy {float(predictions.facts.correct.float().mean()):.4f}",
            flush=True,
        )
    words = [
        sys.executable,
        "-m",
        "confide",
        "trust",
        str(out / "val.parquet"),
        str(out / "test.parquet"),
        "--features",
    ]
    words += [str(out / "val-features"), str(out / "test-features"), "--reference", str(out / "train-features")]
    return subprocess.run([*words, "--sweep", "-o", str(out / "trust")]).returncode


if __name__ == "__main__":
    sys.exit(main())
