"""DINOv2 image features."""

from __future__ import annotations

from typing import Any

from confide.core.door import check_choice
from confide.features.family import EXTRACTORS, Extractor
from confide.features.hub import hub_model, image_extractor, token_pool


@EXTRACTORS.add("dinov2", paper="Oquab et al., 2023, arXiv:2304.07193", kind="image", corners=({"pool": "mean"},))
def dinov2(name: str = "", *, model: str = "facebook/dinov2-base", pool: str = "cls") -> Extractor:
    """DINOv2's normalised class token.

    Args:
        model: hub name or local folder.
        pool: "cls", or "mean" of the patch tokens.
    """
    check_choice(pool, ("cls", "mean"), "pool")
    network: Any = hub_model("dinov2", model, "Dinov2Model")
    return image_extractor(
        "dinov2", model, network, lambda batch: token_pool(network(pixel_values=batch).last_hidden_state, pool)
    )
