"""Feeds: crop and flip against a plain loop, resident and streamed alike, texts and rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from confide.models.preparation import PADDING, Feed, Preparation, fit_preparation
from confide.records import Dataset, Split
from confide.training import Settings, fit, predict

CPU = torch.device("cpu")


def images(n: int = 12) -> tuple[Split, Preparation]:
    values = np.random.default_rng(0).integers(0, 256, (n, 3, 6, 5)).astype(np.uint8)
    split = Split(values, np.arange(n) % 2, np.arange(n))
    return split, fit_preparation(Dataset("d", "image", {"train": split}, ("a", "b")), split, model="small_cnn")


def test_crop_and_flip_equal_a_plain_loop() -> None:
    split, preparation = images()
    feed = Feed(split, preparation, CPU, augment="crop_flip", seed=1)
    feed.start_epoch(3)
    rows = torch.tensor([5, 0, 11])
    batch = feed.gather(rows)
    assert batch.shape == (3, 3, 6, 5)
    mean, std = (np.array(v)[:, None, None] for v in (preparation.mean, preparation.std))
    for place, row in enumerate(rows.tolist()):
        padded = np.pad(split.inputs[row], ((0, 0), (PADDING, PADDING), (PADDING, PADDING)))
        down, across = int(feed.down[row]), int(feed.across[row])
        cut = padded[:, down : down + 6, across : across + 5]
        cut = cut[:, :, ::-1] if int(feed.mirror[row]) else cut
        assert_close(batch[place], torch.from_numpy((cut - mean) / std).float(), rtol=1e-5, atol=1e-5)
    assert len({int(v) for v in feed.down}) > 1
    assert 0 < int(feed.mirror.sum()) < 12


def test_draws_change_with_the_epoch_and_not_with_the_split() -> None:
    split, preparation = images()
    whole, part = (Feed(s, preparation, CPU, augment="crop_flip") for s in (split, split.take(np.array([4, 9]))))
    whole.start_epoch(2)
    part.start_epoch(2)
    assert_close(whole.down[[4, 9]], part.down)
    before = whole.down.clone()
    whole.start_epoch(3)
    assert bool((before != whole.down).any())


class Lazy:
    """Inputs that are read when asked for, and remember how."""

    def __init__(self, values: Any) -> None:
        self.values, self.asked = values, []

    def __len__(self) -> int:
        return len(self.values)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.values.shape)

    def __getitem__(self, rows: Any) -> Any:
        self.asked.append(len(rows))
        return self.values[rows]


def test_a_streamed_feed_gives_the_same_batches() -> None:
    split, preparation = images()
    lazy = Lazy(split.inputs)
    streamed = Feed(Split(lazy, split.labels, split.ids), preparation, CPU, augment="crop_flip", memory_budget=0)
    resident = Feed(split, preparation, CPU, augment="crop_flip")
    assert not streamed.resident
    assert resident.resident
    rows = [np.array([1, 7, 3]), np.array([2]), np.array([9, 8]), np.array([0, 4]), np.array([5]), np.array([6])]
    for feed in (streamed, resident):
        feed.start_epoch(1)
    for (one, _), (other, _) in zip(streamed.batches(rows), resident.batches(rows), strict=True):
        assert torch.equal(one, other)
    assert max(lazy.asked) == 3


def test_texts_train_and_predict() -> None:
    generator = np.random.default_rng(0)
    words = [["good", "fine", "lovely"], ["bad", "poor", "awful"]]
    labels = generator.integers(0, 2, 120)
    texts = [" ".join(generator.choice([*words[label], "the", "film", "was"], 9)) for label in labels]
    split = Split(texts, labels.astype(np.int64), np.arange(120))
    dataset = Dataset("films", "text", {"train": split, "test": split}, ("good", "bad"))
    options = {"width": 8, "filters": 8}
    settings = Settings(
        model="text_cnn",
        model_options=options,
        epochs=8,
        batch_size=20,
        optimizer="adamw",
        learning_rate=0.01,
        weight_decay=0.0,
        device="cpu",
    )
    trained = fit(dataset, settings)
    assert float(predict(trained, dataset).facts.correct.float().mean()) > 0.9
    assert trained.preparation.encode(["never seen GOOD"])[0][2] > 1
    assert trained.preparation.encode(["never seen GOOD"])[0][0] == 1


def test_rows_are_standardised() -> None:
    values = np.random.default_rng(0).normal(5, 3, (50, 4)).astype(np.float32)
    values[:, 2] = 7
    split = Split(values, np.arange(50) % 2, np.arange(50))
    preparation = fit_preparation(Dataset("rows", "rows", {"train": split}, ("a", "b")), split, model="mlp")
    batch = Feed(split, preparation, CPU).gather(torch.arange(50))
    assert_close(batch.mean(0), torch.zeros(4), rtol=0, atol=1e-5)
    assert_close(batch.std(0, unbiased=False), torch.tensor([1.0, 1, 0, 1]), rtol=0, atol=1e-5)


def test_colours_are_counted_over_ten_thousand_evenly_spread_pictures_and_rows_over_all() -> None:
    n = 10_007
    values = np.random.default_rng(0).integers(0, 256, (n, 2, 1, 1)).astype(np.uint8)
    split = Split(values, np.arange(n) % 2, np.arange(n))
    preparation = fit_preparation(Dataset("d", "image", {"train": split}, ("a", "b")), split, model="small_cnn")
    some = values[np.linspace(0, n - 1, 10_000).astype(int), :, 0, 0] / (255 if max(preparation.mean) <= 1 else 1)
    np.testing.assert_allclose(preparation.mean, some.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(preparation.std, some.std(axis=0), rtol=1e-9)
    rows = Split(values[:2_500, :, 0, 0].astype(np.float64), np.arange(2_500) % 2, np.arange(2_500))
    preparation = fit_preparation(Dataset("d", "rows", {"train": rows}, ("a", "b")), rows, model="mlp")
    np.testing.assert_allclose(preparation.mean, rows.inputs.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(preparation.std, rows.inputs.std(axis=0), rtol=1e-9)


@pytest.mark.parametrize(("words", "length"), [(1, 8), (8, 8), (9, 9), (512, 512), (513, 512)])
def test_texts_are_cut_at_the_length_of_most_between_8_and_512_words(words: int, length: int) -> None:
    texts = np.array([" ".join(["word"] * words)] * 3)
    split = Split(texts, np.arange(3) % 2, np.arange(3))
    dataset = Dataset("d", "text", {"train": split}, ("a", "b"))
    assert fit_preparation(dataset, split, model="text_cnn").shape == (length,)
    assert fit_preparation(dataset, split, model="hf:x").shape == (min(2 * length, 512),)


def test_the_commonest_words_are_known_and_equals_in_the_order_of_the_alphabet() -> None:
    texts = np.array(["b b c c a", "d b"])
    split = Split(texts, np.arange(2), np.arange(2))
    dataset = Dataset("d", "text", {"train": split}, ("a", "b"))
    assert fit_preparation(dataset, split, model="text_cnn", vocabulary=5).words == ("b", "c", "a")
