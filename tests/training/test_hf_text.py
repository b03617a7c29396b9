"""Fine-tuning a text encoder of the hub, tiny and with random weights, from a local folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from confide.records import Dataset, Split
from confide.training import Settings, fit, predict

transformers = pytest.importorskip("transformers")


@pytest.mark.filterwarnings("ignore")
def test_a_text_encoder_is_fine_tuned(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = ["[PAD]", "[UNK]", "good", "fine", "bad", "poor", "the", "film"]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    home = tmp_path / "encoder"
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]"
    ).save_pretrained(home)
    config = transformers.BertConfig(
        vocab_size=8, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    transformers.BertModel(config).save_pretrained(home)
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 2, 100)
    kinds = [["good", "fine"], ["bad", "poor"]]
    texts = [" ".join(generator.choice([*kinds[label], "the", "film"], 6)) for label in labels]
    split = Split(texts, labels.astype(np.int64), np.arange(100))
    dataset = Dataset("films", "text", {"train": split, "test": split}, ("good", "bad"))
    settings = Settings(
        model=f"hf:{home}",
        epochs=5,
        batch_size=20,
        optimizer="adamw",
        learning_rate=5e-3,
        weight_decay=0.0,
        schedule="cosine",
        device="cpu",
    )
    fit(dataset, settings, folder=tmp_path / "run")
    assert float(predict(tmp_path / "run", dataset).facts.correct.float().mean()) > 0.85
