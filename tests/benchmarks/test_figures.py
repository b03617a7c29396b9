"""Numbers that figures are made of: each sample meets its own score, each dataset its own axis."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.lib.items import Study
from benchmarks.lib.quantities import by_difficulty
from benchmarks.lib.results import Results
from benchmarks.papers import p1_figure2, p5_figure4
from confide import Scores, files
from confide.checks import InputError

SIZES = {"train": 300, "val": 100, "test": 200, "resampled": 200}


def a_study(folder: Path, labels_of_test: int = 7) -> Study:
    """A cell that errs on the harder half of its test samples; the official test images lie behind them."""
    cell = {"dataset": "tiny32", "model": "m", "seed": 0, "method": {"name": "cross_entropy"}, "settings": {}}
    told = {"format": "bench-cell/1", "name": "one", "cell": cell, "split": {"sizes": SIZES}}
    files.write_json(folder / "cells" / "one.json", told)
    rng = np.random.default_rng(0)
    values, labels = rng.normal(size=sum(SIZES.values())), rng.integers(0, 10, sum(SIZES.values()))
    labels[400:600] = labels_of_test
    hard = values[400:600] > np.median(values[400:600])
    logits = np.zeros((200, 10), dtype=np.float32)
    logits[np.arange(200), np.where(hard, 3, 7)] = 5.0
    (folder / "predictions").mkdir()
    np.savez(folder / "predictions" / "one.npz", test_logits=logits, test_label=np.full(200, 7))
    ids = np.array([f"sample-{k}" for k in range(len(values))])
    Scores(ids, values, "rmd", {}, labels).save(folder / "tiny32-difficulty.parquet")
    return Study(Results((folder,), folder), "lite", ("tiny32",), folder)


def test_errors_are_sorted_by_the_difficulty_of_the_test_samples_themselves(tmp_path):
    study = a_study(tmp_path)
    curve = [one.value for one in by_difficulty(("cross_entropy",))(study)]
    assert curve == [0.0] * 5 + [100.0] * 5
    assert [one.value for one in p1_figure2.hardest(study)] == [100.0]


def test_scores_of_other_samples_are_refused(tmp_path):
    with pytest.raises(InputError, match="labels of the test samples"):
        by_difficulty(("cross_entropy",))(a_study(tmp_path, labels_of_test=1))


def test_the_later_half_is_that_of_each_datasets_own_epochs(tmp_path):
    for dataset, epochs in (("cifar10", 16), ("tiny32", 8)):
        cell = {"dataset": dataset, "model": "m", "seed": 0, "method": {"name": "adafocal"}, "settings": {}}
        log = {"val_accuracy": [0.5] * epochs, "val_ece": [0.4] * (epochs // 2) + [0.1] * (epochs // 2)}
        told = {"format": "bench-cell/1", "name": dataset, "cell": cell, "log": log}
        files.write_json(tmp_path / "cells" / f"{dataset}.json", told)
    study = Study(Results((tmp_path,), tmp_path), "lite", ("cifar10", "tiny32"), tmp_path)
    found = {(one.dataset, one.quantity): one.value for one in p5_figure4.later_half(study)}
    assert found["cifar10", "ece on val, later half"] == pytest.approx(10.0)
    assert found["tiny32", "ece on val, later half"] == pytest.approx(10.0)
