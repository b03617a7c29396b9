"""How the images of a benchmark are cut, and which figures stand beside each other."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import ROOT
from benchmarks.lib import cells
from benchmarks.resplits import judge, splits


@pytest.fixture(scope="module")
def opened():
    return splits.open_pool("fashion-sample", limit=1200)


@pytest.mark.parametrize("name", list(splits.PLANS)[:2])
def test_every_image_is_train_val_or_test_of_a_seed_and_test_sets_are_disjoint_or_the_published_one(opened, name):
    plan = splits.PLANS[name]
    tests = []
    for seed in plan.seeds:
        rows = splits.rows_by_split(opened, seed, plan)
        assert (np.sort(np.concatenate(list(rows.values()))) == np.arange(1200)).all()
        tests.append(set(opened[1].ids[rows["test"]]))
    if plan.folds:
        assert len(set.union(*tests)) == sum(map(len, tests)) == 1000
    else:
        assert all(test == set(opened[0].test.ids) & set(opened[1].ids) for test in tests)


def test_the_share_of_dropout_is_chosen_by_val_and_only_where_all_seeds_are_there():
    def row(method, seed, nll):
        return {"plan": "resplits", "epochs": 16, "method": method, "seed": seed, "nll_val": nll}

    rows = [row("dropout0.2", seed, 0.3) for seed in range(5)] + [row("dropout0.5", seed, 0.2) for seed in range(4)]
    assert judge.chosen_dropout(rows, 16) == "dropout0.2"
    assert judge.chosen_dropout([*rows, row("dropout0.5", 4, 0.2)], 16) == "dropout0.5"
    assert judge.chosen_dropout(rows[:4], 16) == ""


def test_losses_are_compared_with_cross_entropy_by_seed_and_only_where_all_seeds_are_there():
    def row(method, seed, nll):
        clean = {"temperature": {"nll": nll}}
        return {"plan": "resplits", "epochs": 50, "method": method, "seed": seed, "clean": clean}

    # Seeds differ by far more than losses: only the differences by seed tell them apart. Differences .01 and .03 in
    # turn: mean .018, t = .018 / (.01095 / sqrt(5)) = 3.674 with 4 degrees of freedom, p = .0213.
    plain = [row("cross_entropy", seed, 1.0 + seed) for seed in (3, 1, 4, 0, 2)]
    focal = [row("focal", seed, 1.0 + seed + (0.03 if seed % 2 else 0.01)) for seed in range(5)]
    table = judge.paired_table([*plain, *focal, row("adafocal", 0, 9.0)], 50)
    assert "| `focal` | +0.0180 ± 0.0110, p 0.021 | - | - |" in table
    assert "adafocal" not in table
    assert "cross_entropy" not in table
    text = "\n".join(judge.missing_text([*plain, *focal, row("adafocal", 0, 9.0)]))
    assert "11 of 80 trainings" in text
    assert "`adafocal` of 50 epochs (4 of 5)" in text
    assert "`focal` of 50 epochs" not in text


def test_the_command_of_a_result_names_the_module_and_no_folder_of_the_machine(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/somewhere/else/__main__.py", "train", "--data", "/somewhere/carry", "a/b"])
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", SimpleNamespace(name="benchmarks.resplits.__main__"))
    assert cells.command() == "python -m benchmarks.resplits train --data carry a/b"
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    assert cells.command() == "python __main__.py train --data carry a/b"


def test_no_kept_result_names_a_folder_of_the_machine_it_was_made_on():
    for path in (ROOT / "benchmarks" / "results").rglob("*.json"):
        assert '"command": "/' not in path.read_text(encoding="utf-8"), path.name
