from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from confide.difficulty.weights import agreement, kendall_tau, pearson
from confide.records import Scores


def test_golden_vector(golden):
    vector = golden("kendall_tau")
    assert kendall_tau(vector["a"], vector["b"]) == pytest.approx(float(vector["tau_b"]), rel=1e-9)
    assert pearson(vector["a"], vector["b"]) == pytest.approx(float(vector["pearson"]), rel=1e-9)


def test_pairs_are_matched_by_id():
    draw = np.random.default_rng(0)
    ids, values = np.arange(50), np.round(draw.normal(size=50), 1)
    order = draw.permutation(50)
    noisy = np.round(values + draw.normal(size=50), 1)
    rows = agreement(
        [Scores(ids, values, "rmd"), Scores(ids[order], noisy[order], "md"), Scores(ids, -values, "kmeans")]
    )
    assert [(r.a, r.b) for r in rows] == [("rmd", "md"), ("rmd", "kmeans"), ("md", "kmeans")]
    assert rows[0].spearman == pytest.approx(float(stats.spearmanr(values, noisy).statistic))
    assert rows[0].kendall == pytest.approx(float(stats.kendalltau(values, noisy).statistic))
    assert rows[1].spearman == pytest.approx(-1)


def test_a_score_that_is_the_same_for_all_agrees_with_nothing():
    ids = np.arange(6)
    flat, rising = Scores(ids, np.full(6, 2.0), "rmd"), Scores(ids, np.arange(6.0), "loss")
    (found,) = agreement([flat, rising])
    assert np.isnan(found.kendall)
    assert np.isnan(found.spearman)
    (same,) = agreement([rising, replace(rising, method="other")])
    assert (same.kendall, same.spearman, same.n) == (pytest.approx(1), pytest.approx(1), 6)
