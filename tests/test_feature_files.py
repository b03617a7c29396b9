"""Features from files."""

import numpy as np
import pytest

from confide.checks import InputError
from confide.files.formats import write_table
from confide.records import Features

ROWS = np.arange(12.0).reshape(4, 3).astype(np.float32)


@pytest.mark.parametrize("name", ["a.npz", "a.parquet"])
def test_columns_of_a_file(tmp_path, name):
    ids = np.array(["a", "b", "c", "d"])
    write_table(tmp_path / name, {"features": ROWS, "label": np.arange(4), "id": ids}, {"extractor": "made"})
    found = Features.load(tmp_path / name)
    assert (np.asarray(found.values) == ROWS).all()
    assert (found.ids == ids).all()
    assert (found.labels == np.arange(4)).all()
    assert found.extractor == "made"


def test_ids_and_labels_from_beside(tmp_path):
    np.savez(tmp_path / "a.npz", features=ROWS)
    assert (Features.load(tmp_path / "a.npz", ids=[7, 8, 9, 10]).ids == [7, 8, 9, 10]).all()
    assert (Features.load(tmp_path / "a.npz").labels == -1).all()


def test_bad_files_are_one_clear_line(tmp_path):
    np.savez(tmp_path / "a.npz", rows=ROWS)
    with pytest.raises(InputError, match="must have a column 'features'"):
        Features.load(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", features=ROWS)
    with pytest.raises(InputError, match="one row per sample, got 4 rows"):
        Features.load(tmp_path / "b.npz", ids=[1, 2])
    with pytest.raises(InputError, match="does not exist"):
        Features.load(tmp_path / "none.npz")
    with pytest.raises(InputError, match="finished folder of features"):
        Features.load(tmp_path)
