"""The folder that `benchmarks.label_errors.verdicts` reads: features of published data, as far as they are given.

    python -m benchmarks.label_errors.inputs FOLDER --cifar cifar-10-batches-bin --people cifar10n.npz
        --banking train.csv --clinc data_full.json --nette train.parquet [--packages PACKAGES]

About four minutes on one core. Of CIFAR-10 the first 4,096 training images, of Banking77 and CLINC150 texts drawn with
seed 0 from the training split, of Imagenette what the table holds (columns `image`, `label`). Images are seen at 112
pixels; `pixels` are means of 4 x 4. Which published labels of Banking77 are in doubt is asked of cleanlab, by the words
of all its training texts alone: `banking_doubted.npy`. What stands in FOLDER is kept. --packages as in extract.py.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.label_errors.extract import training_images

CIFAR_ROWS = 4096
BANKING_ROWS = 4000
CLINC_ROWS = 6000
NETWORK: dict[str, Any] = {"extractor": "efficientnet_lite0", "size": 112}


def keep(file: Path, inputs: Any, labels: np.ndarray, *, extractor: str, **options: Any) -> None:
    """Extract into a file, unless it is there."""
    from confide import Split, features

    if file.exists():
        return
    split = Split(inputs, labels, np.arange(len(labels)))
    rows = features.extract(extractor, split, workers=0, **options)
    rows.save(file)
    print(f"{file}: {len(labels)} x {rows.values.shape[1]}", flush=True)


def draw_order(total: int, n: int) -> np.ndarray:
    """Rows of the texts that are drawn."""
    return np.random.default_rng(0).permutation(total)[:n]


def drawn(texts: Sequence[tuple[str, str]], n: int) -> tuple[list[str], np.ndarray]:
    """So many texts with the numbers of their classes, in the order of names."""
    names = sorted({name for _, name in texts})
    chosen = draw_order(len(texts), n)
    return [texts[row][0] for row in chosen], np.array([names.index(texts[row][1]) for row in chosen])


def doubted(texts: Sequence[tuple[str, str]]) -> np.ndarray:
    """Which published labels cleanlab calls an issue, by out-of-fold logistic regression on the words."""
    from cleanlab.filter import find_label_issues
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_predict
    from sklearn.pipeline import make_pipeline

    names = sorted({name for _, name in texts})
    labels = np.array([names.index(name) for _, name in texts])
    model = make_pipeline(TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True), LogisticRegression(C=10))
    probs = cross_val_predict(model, [text for text, _ in texts], labels, cv=5, method="predict_proba")
    return np.asarray(find_label_issues(labels, probs, n_jobs=1))


def banking_texts(table: Path) -> list[tuple[str, str]]:
    """Text and class of every row."""
    with table.open(encoding="utf-8", newline="") as file:
        return [(row["text"], row["category"]) for row in csv.DictReader(file)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    for name in ("cifar", "people", "banking", "clinc", "nette", "packages"):
        parser.add_argument(f"--{name}", type=Path)
    args = parser.parse_args()
    if args.packages:
        sys.path.insert(0, str(args.packages))
    args.folder.mkdir(parents=True, exist_ok=True)
    if args.cifar:
        images, labels = (part[:CIFAR_ROWS] for part in training_images(args.cifar))
        keep(args.folder / "pixels.npz", images, labels, extractor="pixels", size=8)
        keep(args.folder / "lite0.npz", images, labels, **NETWORK)
    if args.people:
        shutil.copyfile(args.people, args.folder / "cifar10n.npz")
    if args.banking:
        texts = banking_texts(args.banking)
        keep(args.folder / "banking.npz", *drawn(texts, BANKING_ROWS), extractor="minilm")
        if not (args.folder / "banking_doubted.npy").exists():
            np.save(args.folder / "banking_doubted.npy", doubted(texts)[draw_order(len(texts), BANKING_ROWS)])
    if args.clinc:
        texts = [(text, name) for text, name in json.loads(args.clinc.read_text(encoding="utf-8"))["train"]]
        keep(args.folder / "clinc.npz", *drawn(texts, CLINC_ROWS), extractor="minilm")
    if args.nette:
        import pyarrow.parquet as pq
        from PIL import Image

        table = pq.read_table(args.nette).to_pydict()
        pictures = [Image.open(io.BytesIO(image)).convert("RGB") for image in table["image"]]
        keep(args.folder / "nette.npz", pictures, np.array(table["label"], dtype=np.int64), **NETWORK)


if __name__ == "__main__":
    main()
