"""Trained models on other data: what is found by a word, what is asked of a request, and what is a reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from confide import robustness
from confide.checks import InputError
from confide.records import Split
from confide.robustness import MAX_REFERENCE_SAMPLES, ShiftRequest, find_in_data_folder, ood_name


def test_a_request_is_refused_below_its_limits() -> None:
    assert ShiftRequest(batch_size=1, samples=0).samples == 0
    for name in ("batch_size", "samples"):
        with pytest.raises(InputError, match=f"--{name.replace('_', '-')} must be at least"):
            ShiftRequest(**{name: -1 if name == "samples" else 0})


def test_an_ood_set_is_called_by_its_word_or_file() -> None:
    assert [ood_name(s) for s in ("dtd", "a/b/dtd.npz", "folder/", "x.y.npz", "/")] == [
        "dtd",
        "dtd",
        "folder",
        "x",
        "/",
    ]


def test_a_word_finds_its_entry_of_the_data_folder_and_no_other(tmp_path: Path) -> None:
    for name in ("dtd10_64.npz", "cifar100.npz", "other.npz", "other.csv"):
        (tmp_path / name).write_text("")
    for part in ("images", "labels"):
        (tmp_path / "official" / part).mkdir(parents=True)
    (tmp_path / "half" / "images").mkdir(parents=True)
    for word, expected in {
        "dtd": "dtd10_64.npz",
        "dtd/": "dtd10_64.npz",
        "dtd1": "dtd10_64.npz",
        "dt": None,
        "other": "other.csv",
        "other.npz": "other.npz",
        "cifar10": None,  # a dataset's word means that dataset
        "cifar100": "cifar100.npz",
        "official": "official/images",
        "half": "half",
        "": None,
    }.items():
        found = find_in_data_folder(word, tmp_path)
        assert found == (word.rstrip("/") if expected is None else str(tmp_path / expected)), word
    assert find_in_data_folder("dtd", tmp_path / "nowhere") == "dtd"
    assert find_in_data_folder(str(tmp_path / "other.csv"), tmp_path) == str(tmp_path / "other.csv")


def test_a_reference_is_spread_over_the_whole_training_split(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_REFERENCE_SAMPLES > 9
    monkeypatch.setattr(robustness, "MAX_REFERENCE_SAMPLES", 5)
    train = Split(np.arange(9), np.zeros(9, np.int64), np.arange(9))
    assert robustness._reference_split(train).ids.tolist() == [0, 2, 4, 6, 8]
    assert robustness._reference_split(train.take(np.arange(4))).ids.tolist() == [0, 1, 2, 3]
