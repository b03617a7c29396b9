"""How sharp the two files of Tiny-ImageNet-32 are: steps between neighbouring pixels, and power by frequency.

    python -m benchmarks.findings.pixels --tiny tinyimagenet32 --out benchmarks/results/findings/pixels.json

Images of `train.parquet` and of the official validation file, `val.parquet`, 10,000 of each.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.lib.sources import spread
from confide import data, files

IMAGES = 10_000
HIGH = (8, 12, 16)
"""Frequencies (waves an image, along one axis) from which power is summed to the next one."""


def sharpness(images: Any) -> dict[str, Any]:
    """Mean absolute step between neighbours, and mean power in bands of frequency, of grey values."""
    pixels = np.asarray(images, dtype=np.float64)
    steps = [np.abs(np.diff(pixels, axis=axis)).mean() for axis in (2, 3)]
    grey = pixels.mean(axis=1)
    power = (np.abs(np.fft.fft2(grey - grey.mean(axis=(1, 2), keepdims=True))) ** 2).mean(axis=0)
    waves = np.abs(np.fft.fftfreq(grey.shape[1], 1 / grey.shape[1]))
    highest = np.maximum(waves[:, None], waves[None, :])
    bands = [
        power[(highest >= low) & (highest < high)].mean() for low, high in zip((1, *HIGH), (*HIGH, 99), strict=True)
    ]
    return {"step": float(np.mean(steps)), "power": [float(band) for band in bands]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", required=True, help="folder with train.parquet and val.parquet")
    parser.add_argument("--out", type=Path, default=Path("pixels.json"))
    args = parser.parse_args()
    dataset = data.load_dataset(args.tiny, rename={"val": "test"})
    by_split: dict[str, Any] = {
        name: sharpness(spread(dataset.split(name), IMAGES).inputs) for name in ("train", "test")
    }
    by_split["ratio"] = [b / a for a, b in zip(by_split["train"]["power"], by_split["test"]["power"], strict=True)]
    files.write_json(args.out, {"images": IMAGES, "from": [1, *HIGH], **by_split})
    print(by_split)


if __name__ == "__main__":
    main()
