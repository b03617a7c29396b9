import numpy as np
import pytest
import torch

from confide import features
from confide.checks import InputError, OptionError
from confide.files import formats
from confide.records import Dataset, Features, Split


@pytest.fixture
def images():
    draw = np.random.default_rng(0)
    inputs = draw.integers(0, 256, (20, 1, 6, 6), dtype=np.uint8)
    cached = draw.normal(size=(20, 3)).astype(np.float16)
    split = Split(inputs, draw.integers(0, 3, 20), np.array([f"s{i}" for i in range(20)]), {"features": cached})
    return Dataset("made", "image", {"train": split}, ("a", "b", "c"))


def test_cached_features_are_those_the_data_carries(images):
    rows = features.extract("cached", images, "train")
    np.testing.assert_array_equal(rows.values, images.train.columns["features"])
    np.testing.assert_array_equal(rows.ids, images.train.ids)
    assert rows.extractor == "cached"


def test_cached_features_that_are_not_there_say_what_to_do(images):
    bare = Split(images.train.inputs, images.train.labels, images.train.ids)
    with pytest.raises(InputError, match="choose an extractor"):
        features.extract("cached", bare)


def test_pixels_are_the_images(images):
    rows = features.extract("pixels", images, "train", batch_size=7)
    np.testing.assert_allclose(rows.values, images.train.inputs.reshape(20, 36) / 255, rtol=1e-6)
    pooled = features.extract("pixels", images, "train", size=2)
    assert pooled.values.shape == (20, 4)
    assert pooled.values[3, 0] == pytest.approx(images.train.inputs[3, 0, :3, :3].mean() / 255)


def test_shards_hold_what_memory_would(images, tmp_path):
    whole = features.extract("pixels", images, "train")
    sharded = features.extract("pixels", images, "train", out=tmp_path / "f", shard_rows=6, batch_size=4)
    assert len(list((tmp_path / "f").glob("rows-*.npy"))) == 4
    np.testing.assert_array_equal(sharded.values[:], whole.values)
    np.testing.assert_array_equal(sharded.values[5:13], whole.values[5:13])
    np.testing.assert_array_equal(sharded.values[np.array([19, 0, 7])], whole.values[[19, 0, 7]])
    np.testing.assert_array_equal(Features.load(tmp_path / "f").ids, images.train.ids)


def test_a_stopped_extraction_goes_on_at_the_missing_shard(images, tmp_path):
    folder = tmp_path / "f"
    features.extract("pixels", images, "train", out=folder, shard_rows=6)
    (folder / "manifest.json").unlink()
    (folder / "rows-000002.npy").write_bytes(b"half a file")
    kept = (folder / "rows-000000.npy").stat().st_mtime_ns
    again = features.extract("pixels", images, "train", out=folder, shard_rows=6)
    np.testing.assert_allclose(again.values[:], images.train.inputs.reshape(20, 36) / 255, rtol=1e-6)
    assert (folder / "rows-000000.npy").stat().st_mtime_ns == kept


def test_a_folder_of_another_extraction_is_not_mixed(images, tmp_path):
    features.extract("pixels", images, "train", out=tmp_path / "f", shard_rows=6)
    with pytest.raises(InputError, match="another extraction: options"):
        features.extract("pixels", images, "train", out=tmp_path / "f", shard_rows=6, size=2)


def test_a_damaged_shard_gets_one_line(images, tmp_path):
    sharded = features.extract("pixels", images, "train", out=tmp_path / "f", shard_rows=6)
    (tmp_path / "f" / "rows-000001.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(InputError, match=r"rows-000001\.npy must be a readable array"):
        sharded.values[:10]


def test_an_image_that_does_not_decode_is_named(tmp_path):
    split = Split([b"not an image"], np.zeros(1, dtype=np.int64), np.array(["broken.jpg"]))
    with pytest.raises(InputError, match=r"broken\.jpg"):
        features.extract("pixels", split)


def test_workers_change_nothing(images):
    plain = features.extract("pixels", images, "train")
    by_workers = features.extract("pixels", images, "train", workers=2)
    np.testing.assert_array_equal(by_workers.values, plain.values)


def test_augmentation_runs_differ_by_seed_and_repeat(images):
    first = features.extract("pixels", images, "train", augment=1).values
    assert not np.array_equal(first, features.extract("pixels", images, "train", augment=2).values)
    np.testing.assert_array_equal(first, features.extract("pixels", images, "train", augment=1).values)


def test_unknown_words_and_options_get_one_line(images):
    with pytest.raises(InputError, match="did you mean 'pixels'"):
        features.extract("pixel", images)
    with pytest.raises(OptionError, match="'pixels' has no option 'sise'"):
        features.extract("pixels", images, sise=3)
    with pytest.raises(InputError, match="no split 'val'"):
        features.extract("pixels", images, "val")


def test_half_precision_rows_take_half_the_room(images, tmp_path):
    rows = features.extract("pixels", images, "train", out=tmp_path / "f", dtype="float16").values
    assert rows[:].dtype == np.float16
    assert formats.read_json(tmp_path / "f" / "manifest.json")["dim"] == 36


@pytest.mark.gpu
def test_arrays_resized_on_the_gpu_give_the_rows_of_the_cpu(monkeypatch):
    import torch
    from torch import nn

    from confide.features.images import from_processor

    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(3, 8, 5, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, 2)
    )
    prepare = from_processor({"size": {"shortest_edge": 64}, "crop_size": 56, "resample": 3})
    extractor = features.from_module(network, prepare)
    for channels in (3, 1):
        inputs = np.random.default_rng(0).integers(0, 256, (33, channels, 32, 40), dtype=np.uint8)
        split = Split(inputs, np.zeros(33, dtype=int), np.arange(33))
        there = features.extract(extractor, split, device="cuda", amp=False, batch_size=8).values
        here = features.extract(extractor, split, device="cpu", batch_size=8).values
        np.testing.assert_allclose(there, here, atol=1e-4)


def test_pixels_of_large_images_are_pooled_unless_all_are_asked_for():
    pictures = np.random.default_rng(0).integers(0, 255, (4, 3, 40, 48), dtype=np.uint8)
    split = Split(pictures, np.arange(4) % 2, np.arange(4))
    assert features.extract("pixels", split).values.shape == (4, 3 * 16 * 16)
    assert features.extract("pixels", split, size=0).values.shape == (4, 3 * 40 * 48)
    assert features.extract("pixels", Split(pictures[:, :, :32, :32], split.labels, split.ids)).values.shape == (
        4,
        3072,
    )


def test_features_know_the_word_and_options_they_were_made_by(images, tmp_path):
    """In memory, in shards, in a file: the same extraction can be asked for again."""
    made = features.extract("pixels", images, "train", size=4)
    shards = features.extract("pixels", images, "train", out=tmp_path / "shards", size=4)
    kept = [made, shards, Features.load(tmp_path / "shards")]
    for name in ("a.npz", "a.parquet"):
        made.save(tmp_path / name)
        kept.append(Features.load(tmp_path / name))
        shards.save(tmp_path / f"b-{name}")
        kept.append(Features.load(tmp_path / f"b-{name}"))
    assert {(one.extractor, one.split, tuple(one.options.items())) for one in kept} == {
        ("pixels", "train", (("size", 4),))
    }
    for foreign in ("no json", "[1]"):
        formats.write_table(tmp_path / "c.parquet", {"features": made.values}, {"options": foreign})
        assert Features.load(tmp_path / "c.parquet").options == {}


def test_shards_of_other_images_under_the_same_ids_are_refused(images, tmp_path):
    features.extract("pixels", images, "train", out=tmp_path)
    others = Split(255 - images.train.inputs, images.train.labels, images.train.ids)
    with pytest.raises(InputError, match=r"holds another extraction: inputs is '\w+' there and '\w+' here"):
        features.extract("pixels", others, out=tmp_path)


def test_shards_of_relabelled_samples_have_the_new_labels(images, tmp_path):
    features.extract("pixels", images, "train", out=tmp_path)
    new = (images.train.labels + 1) % 3
    relabelled = Split(images.train.inputs, new, images.train.ids)
    np.testing.assert_array_equal(features.extract("pixels", relabelled, out=tmp_path).labels, new)
    np.testing.assert_array_equal(Features.load(tmp_path).labels, new)


def test_shards_of_a_network_with_other_weights_are_refused(images, tmp_path):
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(36, 4), torch.nn.Linear(4, 2))
    extractor = features.from_module(network, lambda image: torch.as_tensor(image).float())
    features.extract(extractor, images, out=tmp_path, device="cpu")
    with torch.no_grad():
        network[1].weight += 1
    with pytest.raises(InputError, match="holds another extraction: weights is"):
        features.extract(extractor, images, out=tmp_path, device="cpu")
