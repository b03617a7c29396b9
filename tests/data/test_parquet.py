import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from confide.checks import InputError
from confide.data import LazyImages, load_dataset, tables


@pytest.fixture
def write(encoded_image):
    """Writes a table of images whose red is the row number."""

    def write_table(path, rows, **columns):
        images = pa.array([encoded_image(i) for i in rows], type=pa.binary())
        labels = pa.array([i % 2 for i in rows], pa.int16())
        pq.write_table(pa.table({"image": images, "label": labels, **columns}), path)

    return write_table


@pytest.fixture
def two_files(tmp_path, write):
    write(tmp_path / "train.parquet", range(40))
    write(tmp_path / "val.parquet", range(40, 50))
    (tmp_path / "classes.json").write_text(
        json.dumps([{"wnid": "n1", "name": "tench"}, {"wnid": "n2", "name": "church"}])
    )
    return tmp_path


def test_image_bytes_and_labels_in_one_file_per_split(two_files):
    dataset = load_dataset(two_files)
    assert dataset.class_names == ("tench", "church")
    assert {name: len(split) for name, split in dataset.splits.items()} == {"train": 36, "val": 10, "test": 4}
    assert dataset.val.inputs[:, 0, 0, 0].tolist() == list(range(40, 50))
    assert dataset.val.ids[0] == "val-00000"


def test_the_validation_file_can_play_the_test_split(two_files):
    dataset = load_dataset(two_files, rename={"val": "test"})
    assert {name: len(split) for name, split in dataset.splits.items()} == {"train": 36, "val": 4, "test": 10}
    assert dataset.test.ids[0] == "val-00000"  # an id tells where the sample came from


def test_shards_are_joined_in_order_and_names_come_from_the_metadata(tmp_path, encoded_image):
    features = {"label": {"names": ["no", "yes"], "_type": "ClassLabel"}}
    for shard in range(3):
        path = tmp_path / "data" / f"train-{shard:05d}-of-00003.parquet"
        path.parent.mkdir(exist_ok=True)
        images = pa.array([{"bytes": encoded_image(10 * shard + i), "path": None} for i in range(10)])
        table = pa.table({"image": images, "label": np.arange(10) % 2})
        pq.write_table(
            table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})}), path
        )
    dataset = load_dataset(tmp_path, val_fraction=0, test_fraction=0.1)
    assert dataset.class_names == ("no", "yes")
    numbers = [int(name.split("-")[1]) for name in dataset.train.ids]
    assert dataset.train.inputs[:, 0, 0, 0].tolist() == numbers


@pytest.mark.parametrize("memory_gb", [1.0, 0.0], ids=["in memory", "memory-mapped"])
def test_damaged_and_missing_bytes_are_set_aside(tmp_path, memory_gb, encoded_image):
    images = [encoded_image(i) for i in range(30)]
    images[3], images[11] = b"no image", None
    pq.write_table(pa.table({"image": images, "label": [i % 2 for i in range(30)]}), tmp_path / "all.parquet")
    dataset = load_dataset(tmp_path / "all.parquet", memory_gb=memory_gb)
    assert dict(dataset.set_aside) == {
        "sample-00003": "not an image that can be identified",
        "sample-00011": "no image bytes",
    }
    assert isinstance(dataset.train.inputs, LazyImages) == (memory_gb == 0)
    for split in dataset.splits.values():
        numbers = np.array([int(name.split("-")[1]) for name in split.ids])
        assert (split.inputs[:][:, 0, 0, 0] == numbers).all()
        assert (split.labels == numbers % 2).all()


def test_files_larger_than_memory_are_unpacked_once(two_files, tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    load_dataset(two_files, memory_gb=0, folder=home)
    unpacked = sorted((home / "unpacked").iterdir())
    times = [file.stat().st_mtime_ns for file in unpacked]
    assert len(unpacked) == 2
    load_dataset(two_files, memory_gb=0, folder=home)
    assert [file.stat().st_mtime_ns for file in unpacked] == times


def test_ids_and_numbers_are_kept_as_columns(tmp_path, write):
    write(tmp_path / "a.parquet", range(20), id=[f"q{i}" for i in range(20)], votes=np.arange(20) * 2)
    dataset = load_dataset(tmp_path / "a.parquet")
    assert dataset.train.columns["votes"].tolist() == [2 * int(name[1:]) for name in dataset.train.ids]


def test_texts_and_feature_lists_are_read_too(tmp_path):
    pq.write_table(pa.table({"text": [f"t{i}" for i in range(20)], "intent": ["a", "b"] * 10}), tmp_path / "t.parquet")
    assert load_dataset(tmp_path / "t.parquet").kind == "text"
    rows = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(60.0)), 3)
    pq.write_table(pa.table({"features": rows, "y": [0, 1] * 10}), tmp_path / "r.parquet")
    assert load_dataset(tmp_path / "r.parquet").train.inputs.shape == (16, 3)


def test_bad_parquet_gets_one_line(tmp_path, two_files):
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 not")
    with pytest.raises(InputError, match=r"bad.parquet must be readable parquet"):
        load_dataset(tmp_path / "bad.parquet")
    with pytest.raises(InputError, match="must have labels named 'klass', got image, label"):
        load_dataset(two_files / "train.parquet", labels="klass")
    pq.write_table(pa.table({"image": [b"x"]}), two_files / "val.parquet")
    with pytest.raises(InputError, match="must have the column 'label' in every split, but 'val' has none"):
        load_dataset(two_files)
    (two_files / "classes.json").write_text("{}")
    with pytest.raises(InputError, match="must be a list of class names, got a dict"):
        load_dataset(two_files)


@pytest.mark.parametrize("fields", [("path", "bytes"), ("bytes", "path"), ("bytes",)])
def test_bytes_beside_their_paths_are_found_wherever_they_stand(encoded_image, fields):
    rows = [{"path": f"folder/{i}.png", "bytes": encoded_image(i)} for i in range(3)]
    column = pa.chunked_array([pa.array([{name: row[name] for name in fields} for row in rows])])
    content, paths = tables._bytes_and_paths(column)
    assert content.to_pylist() == [row["bytes"] for row in rows]
    assert (paths and paths.to_pylist()) == ([row["path"] for row in rows] if "path" in fields else None)
