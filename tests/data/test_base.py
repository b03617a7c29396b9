import pytest

import confide
from confide.checks import InputError
from confide.data import DATASETS, data_folder, load_dataset, names


def test_an_unknown_word_gets_the_nearest_one():
    with pytest.raises(
        InputError, match="no dataset named 'fashon-sample', and no such file or folder; did you mean 'fashi"
    ):
        load_dataset("fashon-sample")


def test_a_path_that_does_not_exist_is_told_from_a_word(tmp_path):
    for path in (tmp_path / "nowhere", "images/train", "digits.npz"):
        with pytest.raises(InputError, match="must be a file or folder, but it does not exist; check the path"):
            load_dataset(path)


def test_a_folder_that_is_no_dataset_gets_one_line(tmp_path):
    with pytest.raises(
        InputError, match=r"must be a dataset, but no source knows its layout .it is empty.; `confide list"
    ):
        load_dataset(tmp_path)
    for name in ("a.log", "b.log", "c.log", "d.log"):
        (tmp_path / name).touch()
    with pytest.raises(InputError, match=r"it holds a.log, b.log, c.log, ..."):
        load_dataset(str(tmp_path))
    with pytest.raises(
        InputError, match=r"file .*a.log must be a dataset, but no source knows its layout .ending '.log'"
    ):
        load_dataset(tmp_path / "a.log")


def test_words_that_need_a_place_say_so(tmp_path):
    with pytest.raises(InputError, match="dataset 'npz' must be told where, got the bare word; write 'npz:WHERE'"):
        load_dataset("npz")
    with pytest.raises(InputError, match=r"nowhere.npz must be a file or folder, but it does not exist"):
        load_dataset("npz:nowhere.npz")
    with pytest.raises(InputError, match="pass them: load_dataset"):
        load_dataset("arrays")


def test_the_data_folder_is_the_argument_else_the_environment_else_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("CONFIDE_DATA", str(tmp_path / "env"))
    assert data_folder(tmp_path / "given") == tmp_path / "given"
    assert data_folder() == tmp_path / "env"
    monkeypatch.delenv("CONFIDE_DATA")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_folder() == tmp_path / ".cache" / "confide"


def test_the_public_name_is_the_door():
    assert confide.load_dataset is load_dataset
    assert "fashion-sample" in names()


@pytest.mark.parametrize("method", DATASETS, ids=lambda method: method.word)
def test_every_source_tells_what_it_takes(method):
    assert method.spec.takes in ("word", "path", "name", "memory")
    assert method.summary.endswith(".")
    assert method.paper
    assert method.function.__name__ == method.word.replace("-", "_")


def test_a_folder_of_three_files_is_told_whole(tmp_path):
    for name in ("a.log", "b.log", "c.log"):
        (tmp_path / name).touch()
    with pytest.raises(InputError, match=r"\(it holds a.log, b.log, c.log\)"):
        load_dataset(str(tmp_path))
