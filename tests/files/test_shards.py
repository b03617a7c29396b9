"""Rows in several files are taken as rows of one array."""

import numpy as np
import pytest

from confide.files.shards import ShardedRows

WHOLE = np.arange(22, dtype=np.float32).reshape(11, 2)


@pytest.fixture
def rows(tmp_path):
    starts = (0, 4, 5, 11)
    paths = tuple(tmp_path / f"rows-{k}.npy" for k in range(3))
    for path, low, high in zip(paths, starts, starts[1:], strict=False):
        np.save(path, WHOLE[low:high])
    return ShardedRows(paths, starts, WHOLE.shape, WHOLE.dtype)


@pytest.mark.parametrize(
    "chosen",
    [
        slice(None),
        slice(3, 6),
        slice(4, 5),
        slice(2, 2),
        slice(7, 3),
        slice(None, None, 2),
        slice(1, None, 3),
        slice(None, None, -1),
        slice(-3, None),
        [10, 0, 4, 4],
        WHOLE[:, 0] > 9,
        5,
        -0,
    ],
    ids=str,
)
def test_rows_of_shards_are_those_of_one_array(rows, chosen):
    assert len(rows) == 11
    np.testing.assert_array_equal(rows[chosen], WHOLE[chosen])
