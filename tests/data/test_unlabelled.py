"""Inputs without labels, from folders and files that have none."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from confide.checks import InputError
from confide.data import load_dataset, load_unlabelled
from confide.files import formats

IMAGES = np.random.default_rng(0).integers(0, 255, (7, 6, 5, 3), dtype=np.uint8)
TEXTS = ["to be", "or not", "to be, or"]


def write(folder, names):
    folder.mkdir(parents=True, exist_ok=True)
    for name, pixels in zip(names, IMAGES, strict=False):
        Image.fromarray(pixels).save(folder / name)


def only(dataset):
    """The one split of a dataset, whose labels are unknown."""
    assert list(dataset.splits) == ["all"]
    part = dataset.split("all")
    assert (part.labels == -1).all()
    assert part.labels.dtype == np.int64
    return part


def test_a_folder_of_images(tmp_path):
    write(tmp_path / "heap", ["b.png", "a.png", "c.PNG"])
    (tmp_path / "heap" / "notes.txt").write_text("not an image")
    dataset = load_unlabelled(tmp_path / "heap")
    part = only(dataset)
    assert part.ids.tolist() == ["a.png", "b.png", "c.PNG"]
    np.testing.assert_array_equal(part.inputs[0], IMAGES[1].transpose(2, 0, 1))
    assert (dataset.kind, dataset.class_names) == ("image", ("unlabelled",))
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "a.png").write_bytes(b"nonsense")
    with pytest.raises(InputError, match="must hold images that can be read"):
        load_unlabelled(tmp_path / "bad")


def test_pictures_of_any_size_become_those_asked_for(tmp_path):
    write(tmp_path / "heap", ["0.png", "1.png"])
    Image.new("L", (40, 30), 9).save(tmp_path / "heap" / "2.png")
    part = only(load_unlabelled(tmp_path / "heap", size=(6, 5), channels=1))
    assert [image.shape for image in part.inputs] == [(1, 6, 5)] * 3
    assert (part.inputs[2] == 9).all()
    with pytest.raises(InputError, match="channels"):
        load_unlabelled(tmp_path / "heap", channels=2)


def test_files_of_images(tmp_path):
    np.savez(tmp_path / "a.npz", images=IMAGES)
    np.savez(tmp_path / "b.npz", images=IMAGES, ids=np.arange(7) + 3)
    write(tmp_path / "heap", ["0.png"])
    encoded = [(tmp_path / "heap" / "0.png").read_bytes()] * 2
    pq.write_table(pa.table({"image": encoded, "id": ["x", "y"]}), tmp_path / "a.parquet")
    np.testing.assert_array_equal(only(load_unlabelled(tmp_path / "a.npz")).inputs, IMAGES.transpose(0, 3, 1, 2))
    assert only(load_unlabelled(tmp_path / "b.npz")).ids.tolist() == [3, 4, 5, 6, 7, 8, 9]
    part = only(load_unlabelled(tmp_path / "a.parquet"))
    assert part.ids.tolist() == ["x", "y"]
    np.testing.assert_array_equal(part.inputs[1], IMAGES[0].transpose(2, 0, 1))


def test_files_of_texts(tmp_path):
    formats.write_table(tmp_path / "a.csv", {"text": np.array(TEXTS), "id": np.array(["x", "y", "z"])})
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"query": text}) + "\n" for text in TEXTS))
    for name in ("a.csv", "a.jsonl"):
        dataset = load_unlabelled(tmp_path / name)
        assert list(only(dataset).inputs) == TEXTS
        assert dataset.kind == "text"
    assert only(load_unlabelled(tmp_path / "a.csv")).ids.tolist() == ["x", "y", "z"]


def test_what_has_labels_or_cannot_be_read_is_for_the_other_door(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "classes" / "a", ["1.png"])
    write(tmp_path / "classes", ["2.png"])
    np.savez(tmp_path / "a.npz", images=IMAGES, Labels=np.arange(7))
    np.savez(tmp_path / "b.npz", images_train=IMAGES, y_train=np.arange(7), images_test=IMAGES)
    formats.write_table(tmp_path / "a.csv", {"text": np.array(TEXTS), "intent": np.array(["x", "y", "z"])})
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "bad.jsonl").write_text("{")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1")
    (tmp_path / "bad.npz").write_bytes(b"PK")
    (tmp_path / "none").mkdir()
    write(tmp_path / "fashion-sample", ["1.png"])
    names = ["classes", "a.npz", "b.npz", "a.csv", "empty.csv", "bad.jsonl", "bad.parquet", "bad.npz", "none"]
    assert [load_unlabelled(name) for name in [*names, "nowhere", "fashion-sample"]] == [None] * 11
    for name in ("bad.jsonl", "bad.parquet", "bad.npz"):
        with pytest.raises(InputError, match=name):
            load_dataset(name)
