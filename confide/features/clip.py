"""CLIP image embeddings."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from confide.core.door import InputError
from confide.features.family import EXTRACTORS, Extractor
from confide.features.hub import fetched, hub_model, hub_preprocess, pooled, transformers_for

MODELS = {
    "ViT-B/32": "openai/clip-vit-base-patch32",
    "ViT-B/16": "openai/clip-vit-base-patch16",
    "ViT-L/14": "openai/clip-vit-large-patch14",
}


@EXTRACTORS.add("clip", paper="Radford et al., 2021, arXiv:2103.00020", kind="image", text=True)
def clip(name: str = "", *, model: str = "ViT-B/32") -> Extractor:
    """CLIP's image embedding in the space it shares with text.

    Args:
        model: "ViT-B/32", "ViT-B/16", "ViT-L/14", a hub name or a local folder. Default: that of Cui et al. (2023).
    """
    if model.startswith("RN"):
        raise InputError(f"transformers has no CLIP '{model}'; use features 'open_clip:{model}'")
    where = MODELS.get(model, model)
    network: Any = hub_model("clip", where, "CLIPModel")

    def encode(batch: Tensor) -> Tensor:
        return pooled(network.get_image_features(pixel_values=batch))

    return Extractor(
        f"clip:{model}",
        "image",
        hub_preprocess("clip", where),
        encode,
        torch.stack,
        network,
        lambda texts: _text(network, where, texts),
    )


def _text(network: Any, model: str, texts: list[str]) -> Tensor:
    package = transformers_for("clip")
    tokenizer = fetched("clip", model, lambda: package.AutoTokenizer.from_pretrained(model))
    tokens = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
    device = next(nn.Module.parameters(network)).device
    chosen = {k: v.to(device) for k, v in tokens.items() if k in ("input_ids", "attention_mask")}
    with torch.inference_mode():
        return pooled(network.get_text_features(**chosen)).float().cpu()
