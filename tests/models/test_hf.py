"""Encoders of the hub, with tiny random weights in a local folder."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from confide import models
from confide.checks import InputError, MissingExtra

try:
    import transformers
except ImportError:
    transformers = None  # type: ignore[assignment]

needs_transformers = pytest.mark.skipif(transformers is None, reason="transformers is not installed")


@pytest.mark.skipif(transformers is not None, reason="transformers is installed")
def test_without_the_package_the_extra_is_named() -> None:
    with pytest.raises(MissingExtra, match=r"pip install 'confide\[text\]'"):
        models.create("hf:someone/something", (16,), 3)


@needs_transformers
def test_a_text_encoder_ignores_padding(tmp_path: Path) -> None:
    config = transformers.BertConfig(
        vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
    )
    transformers.BertModel(config).save_pretrained(tmp_path)
    model = models.create(f"hf:{tmp_path}", (8,), 3).eval()
    short = torch.tensor([[5, 6, 7]])
    padded = torch.tensor([[5, 6, 7, -1, -1, -1]])
    with torch.no_grad():
        torch.testing.assert_close(model(short), model(padded))
    assert models.create(f"hf:{tmp_path}", (8,), 3, pretrained=False)(padded).shape == (1, 3)


@needs_transformers
@pytest.mark.parametrize("kind", ["vit", "resnet"])
def test_image_encoders(tmp_path: Path, kind: str) -> None:
    if kind == "vit":
        config = transformers.ViTConfig(
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            image_size=16,
            patch_size=4,
        )
        transformers.ViTModel(config).save_pretrained(tmp_path)
    else:
        config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
        transformers.ResNetModel(config).save_pretrained(tmp_path)
    model = models.create(f"hf:{tmp_path}", (3, 32, 32), 5)
    logits = model(torch.randn(2, 3, 32, 32))
    assert logits.shape == (2, 5)
    logits.sum().backward()
    assert model.features(torch.randn(2, 3, 32, 32)).shape == (2, 16)


@needs_transformers
def test_a_name_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="could not be loaded"):
        models.create(f"hf:{tmp_path / 'nowhere'}", (8,), 3)
