"""The Hugging Face library is an extra: a stand-in with the calls that are used takes its place."""

import sys
import types

import pyarrow as pa
import pytest

from confide.checks import InputError, MissingExtra
from confide.data import load_dataset


class Image:
    def __init__(self, decode=True):
        self.decode = decode


class Rows:
    """Rows of one split as that library gives them."""

    def __init__(self, table, features, decoded=True):
        self.table, self.features, self.decoded = table, features, decoded

    def cast_column(self, name, feature):
        return Rows(self.table, {**self.features, name: feature}, feature.decode)

    cache_files = ()

    def with_format(self, word):
        assert word == "arrow"
        return self

    def __getitem__(self, rows):
        assert not any(isinstance(f, Image) and f.decode for f in self.features.values()), "images were decoded"
        return self.table[rows] if not isinstance(rows, slice) else self.table


@pytest.fixture
def hub(monkeypatch):
    """name -> what the library would load."""
    known = {}

    def load(name, config=None):
        if name not in known:
            raise FileNotFoundError(f"Dataset '{name}' doesn't exist on the Hub.\nMore lines.")
        return known[name]

    module = types.ModuleType("datasets")
    module.load_dataset = load
    module.load_from_disk = lambda path: known["saved"]
    monkeypatch.setitem(sys.modules, "datasets", module)
    return known


def texts(n):
    return Rows(pa.table({"text": [f"t{i}" for i in range(n)], "label": [i % 2 for i in range(n)]}), {"text": None})


def test_texts_by_name(hub):
    hub["someone/intents"] = {"train": texts(40), "validation": texts(6), "test": texts(8), "unsupervised": texts(3)}
    dataset = load_dataset("hf:someone/intents", class_names=["no", "yes"])
    assert (dataset.name, dataset.kind) == ("intents", "text")
    assert {name: len(split) for name, split in dataset.splits.items()} == {"train": 40, "val": 6, "test": 8}
    assert dataset.provenance.left_out == {"unsupervised": "not train, val or test"}
    assert dataset.provenance.where == "someone/intents"


def test_images_are_decoded_here_and_damaged_ones_set_aside(hub, encoded_image):
    images = [{"bytes": encoded_image(i), "path": None} for i in range(30)]
    images[5]["bytes"] = b"broken"
    table = pa.table({"img": pa.array(images), "label": [i % 2 for i in range(30)]})
    hub["pets"] = {"train": Rows(table, {"img": Image(), "label": None})}
    dataset = load_dataset("hf:pets")
    assert dict(dataset.set_aside) == {"train-00005": "not an image that can be identified"}
    assert dataset.train.inputs[:, 0, 0, 0].tolist() == [int(name[-5:]) for name in dataset.train.ids]


def test_a_folder_saved_by_the_library(hub, tmp_path):
    (tmp_path / "dataset_info.json").write_text("{}")
    hub["saved"] = texts(20)
    assert len(load_dataset(f"hf:{tmp_path}").train) == 16


def test_what_cannot_be_loaded_gets_one_line(hub):
    with pytest.raises(
        InputError, match="hf:nothing must be a dataset that can be loaded, but loading failed: Dataset 'no"
    ) as caught:
        load_dataset("hf:nothing")
    assert "\n" not in str(caught.value)
    hub["odd"] = {"a": texts(4), "b": texts(4)}
    with pytest.raises(InputError, match="hf:odd must have a split train, val or test, got a, b"):
        load_dataset("hf:odd")
    with pytest.raises(InputError, match="dataset 'hf' must be told where"):
        load_dataset("hf")


def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(
        MissingExtra, match=r"hf:mnist needs the package 'datasets'; install it with: pip install 'confide\[hf\]'"
    ):
        load_dataset("hf:mnist")
