"""Masked-autoencoder features."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from confide.core.door import check_choice
from confide.features.family import EXTRACTORS, Extractor
from confide.features.hub import hub_model, image_extractor, token_pool


@EXTRACTORS.add("mae", paper="He et al., 2022, arXiv:2111.06377", kind="image", corners=({"pool": "mean"},))
def mae(name: str = "", *, model: str = "facebook/vit-mae-base", pool: str = "cls") -> Extractor:
    """The class token of a masked autoencoder's encoder, nothing masked.

    Args:
        model: hub name or local folder.
        pool: "cls", or "mean" of the patch tokens.
    """
    check_choice(pool, ("cls", "mean"), "pool")
    network: Any = hub_model("mae", model, "ViTMAEModel", mask_ratio=0.0)
    patches = (network.config.image_size // network.config.patch_size) ** 2

    def encode(batch: Tensor) -> Tensor:
        # The encoder sorts patches by this noise; rising noise leaves them in their order.
        noise = torch.arange(patches, dtype=torch.float32, device=batch.device).expand(len(batch), -1)
        return token_pool(network(pixel_values=batch, noise=noise).last_hidden_state, pool)

    return image_extractor("mae", model, network, encode)
