"""Any model of the open_clip library."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from confide.core.door import MissingExtra
from confide.features.family import EXTRACTORS, Extractor
from confide.features.hub import fetched
from confide.features.images import as_rgb


@EXTRACTORS.add("open_clip:", paper="Ilharco et al., 2021, OpenCLIP", kind="image", text=True)
def open_clip(name: str, *, pretrained: str | None = "openai") -> Extractor:
    """Image embedding of an open_clip model (`open_clip:ViT-B-32`, `open_clip:RN50`), with its own transform.

    Args:
        pretrained: tag of the weights or a local file; None for random weights.
    """
    try:
        import open_clip as library
    except ImportError:
        raise MissingExtra("open_clip_torch", "timm", f"features 'open_clip:{name}'") from None
    network, _, transform = fetched(
        f"open_clip:{name}", name, lambda: library.create_model_and_transforms(name, pretrained=pretrained)
    )

    def encode_text(texts: list[str]) -> Tensor:
        device = next(network.parameters()).device
        with torch.inference_mode():
            embedded: Tensor = network.encode_text(library.get_tokenizer(name)(texts).to(device))
            return embedded.float().cpu()

    def prepare(item: Any) -> Tensor:
        prepared: Tensor = transform(as_rgb(item))
        return prepared

    return Extractor(
        f"open_clip:{name}", "image", prepare, network.encode_image, torch.stack, network.eval(), encode_text
    )
