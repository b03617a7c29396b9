"""Any model of the timm library."""

from __future__ import annotations

from typing import Any

import torch

from confide.core.door import MissingExtra
from confide.features.family import EXTRACTORS, Extractor
from confide.features.hub import fetched
from confide.features.images import as_rgb


@EXTRACTORS.add("timm:", paper="Wightman, 2019, PyTorch image models", kind="image")
def timm(name: str, *, pretrained: bool = True) -> Extractor:
    """Pooled features of a timm model before its classifier, with the model's own transform.

    Args:
        pretrained: False for random weights.
    """
    try:
        import timm as library
        import timm.data as data
    except ImportError:
        raise MissingExtra("timm", "timm", f"features 'timm:{name}'") from None
    network: Any = fetched(
        f"timm:{name}", name, lambda: library.create_model(name, pretrained=pretrained, num_classes=0)
    )
    transform = data.create_transform(**data.resolve_model_data_config(network), is_training=False)
    return Extractor(
        f"timm:{name}", "image", lambda item: transform(as_rgb(item)), network, torch.stack, network.eval()
    )
