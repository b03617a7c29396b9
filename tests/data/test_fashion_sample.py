import time
from importlib import import_module

import numpy as np
import pytest

from confide.checks import InputError
from confide.data import fashion_sample, load_dataset
from confide.data.base import DATASETS

MODULE = import_module(fashion_sample.__module__)


def test_layout_of_the_file(monkeypatch, fashion_file):
    monkeypatch.setattr(MODULE, "FASHION_SAMPLE_FILE", fashion_file)
    dataset = load_dataset("fashion-sample")
    assert (dataset.name, dataset.kind, dataset.class_names) == ("fashion-sample", "image", ("shirt", "bag"))
    assert dataset.train.inputs.shape == (40, 1, 28, 28)
    assert dataset.train.columns["features"].shape == (40, 64)
    assert dataset.train.columns["features"].dtype == np.float16
    assert dataset.test.ids[3] == "test-00003"
    assert dataset.provenance.metadata == {"seed": "7"}
    assert dataset.provenance.source == "fashion-sample"


def test_a_missing_file_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setattr(MODULE, "FASHION_SAMPLE_FILE", tmp_path / "none.npz")
    with pytest.raises(
        InputError, match=r"install the package again, or rebuild it with tools/build_fashion_sample.py"
    ):
        load_dataset("fashion-sample")


def test_the_embedded_sample_is_what_it_says():
    assert MODULE.FASHION_SAMPLE_FILE.stat().st_size <= 10e6
    dataset = load_dataset("fashion-sample")
    assert dataset.num_classes == 10
    assert "Ankle boot" in dataset.class_names
    seen = np.concatenate([split.ids for split in dataset.splits.values()])
    assert len(np.unique(seen)) == 14000
    for name, n in (("train", 8000), ("val", 2000), ("test", 4000)):
        split = dataset.split(name)
        assert split.inputs.shape == (n, 1, 28, 28)
        assert split.inputs.dtype == np.uint8
        assert split.columns["features"].shape == (n, 64)
        assert split.columns["features"].dtype == np.float16
        assert np.isfinite(split.columns["features"].astype(np.float32)).all()
        assert (np.bincount(split.labels) == n // 10).all()
    assert dataset.provenance.splits == {"train": "as given", "val": "as given", "test": "as given"}


def test_the_embedded_sample_loads_in_under_0_3_s():
    load_dataset("fashion-sample")
    times = []
    for _ in range(3):
        began = time.process_time()
        load_dataset("fashion-sample")
        times.append(time.process_time() - began)
    assert min(times) < 0.3


def test_it_is_a_word_of_the_registry():
    assert DATASETS.get("fashion-sample").spec.takes == "word"
