"""How the images of a benchmark are cut, and which figures stand beside each other."""

import numpy as np
import pytest

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
