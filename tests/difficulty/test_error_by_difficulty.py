import numpy as np
import pytest

from confide import difficulty
from confide.checks import InputError


def test_bands_from_easy_to_hard_with_wilson_intervals():
    values = np.arange(30.0)
    correct = np.ones(30, dtype=bool)
    correct[25:] = False
    found = difficulty.error_by_difficulty(values, correct)
    assert [b.name for b in found.bands] == ["easy", "medium", "hard"]
    assert [b.error for b in found.bands] == [0.0, 0.0, 0.5]
    # Wilson: n = 10, 5 errors: 0.5 +- 0.2634
    assert found.bands[2].error_low == pytest.approx(0.2366, abs=1e-4)
    assert found.bands[2].error_high == pytest.approx(0.7634, abs=1e-4)
    assert found.bands[0].error_low == 0.0


def test_pearson_of_binned_error():
    draw = np.random.default_rng(0)
    values = draw.random(20_000)
    correct = draw.random(20_000) > values
    assert difficulty.error_by_difficulty(values, correct, bands=10).pearson > 0.99


def test_groups_by_threshold_and_by_equal_parts():
    assert difficulty.groups(np.array([1.0, 5.0, 7.0, 4.9]), threshold=5.0).tolist() == [0, 1, 1, 0]
    assert difficulty.groups(np.array([3.0, 1.0, 2.0, 4.0]), groups=2).tolist() == [1, 0, 0, 1]


def test_lengths_must_match():
    with pytest.raises(InputError, match="correct must be 3 values"):
        difficulty.error_by_difficulty(np.arange(3.0), [True, False])
