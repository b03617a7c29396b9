"""Trained models on other data: what is found by a word, what is asked of a request, and what is a reference."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from confide import robustness
from confide.checks import InputError
from confide.data import load_dataset
from confide.models.preparation import Preparation
from confide.records import Split
from confide.robustness import MAX_REFERENCE_SAMPLES, ShiftRequest, find_in_data_folder, ood_name
from confide.training import Settings, fit


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


def test_without_images_there_is_nothing_to_corrupt(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(90, 3))
    source = str(tmp_path / "rows.npz")
    np.savez(source, x=rows, y=np.arange(90) % 2)
    fit(load_dataset(source), Settings(model="mlp", epochs=1, device="cpu"), folder=tmp_path / "model")
    for request, why in (
        (ShiftRequest(), "'rows' has no images to corrupt"),
        (ShiftRequest(shifts="none"), "--kind none"),
    ):
        with pytest.raises(InputError, match=f"nothing to do: {why}, and no --ood was given"):
            robustness.evaluate_shift([tmp_path / "model"], source, request)


def test_an_attack_sees_the_logits_of_the_levels_that_its_images_stand_for() -> None:
    levels = torch.arange(2 * 3 * 4 * 4, dtype=torch.float32).reshape(2, 3, 4, 4) * 2.5
    prepared = Preparation("image", (3, 4, 4), (10.0, 20.0, 30.0), (2.0, 3.0, 4.0))
    seen = SimpleNamespace(preparation=prepared, model=lambda images: images.sum(dim=(2, 3)))
    model = robustness.ModelOnDevice(seen, None)  # type: ignore[arg-type]
    expected = ((levels - torch.tensor(prepared.mean)[:, None, None]) / torch.tensor(prepared.std)[:, None, None]).sum(
        dim=(2, 3)
    )
    torch.testing.assert_close(model.attacked(levels / 255), expected, rtol=1e-5, atol=1e-4)
