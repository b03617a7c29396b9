"""Vision transformer features."""

from __future__ import annotations

from typing import Any

from confide.core.door import check_choice
from confide.features.family import EXTRACTORS, Extractor
from confide.features.hub import hub_model, image_extractor, token_pool


@EXTRACTORS.add("vit", paper="Dosovitskiy et al., 2021, arXiv:2010.11929", kind="image", corners=({"pool": "mean"},))
def vit(name: str = "", *, model: str = "google/vit-base-patch16-224-in21k", pool: str = "cls") -> Extractor:
    """The normalised class token of a vision transformer.

    Args:
        model: hub name or local folder.
        pool: "cls", or "mean" of the patch tokens.
    """
    check_choice(pool, ("cls", "mean"), "pool")
    network: Any = hub_model("vit", model, "ViTModel", add_pooling_layer=False)
    return image_extractor(
        "vit", model, network, lambda batch: token_pool(network(pixel_values=batch).last_hidden_state, pool)
    )
