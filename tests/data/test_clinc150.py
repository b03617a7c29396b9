import json

import pytest

from confide.checks import InputError
from confide.data import load_dataset


@pytest.fixture
def folder(tmp_path):
    content = {split: [[f"{split} {i}", f"intent{i % 3}"] for i in range(9)] for split in ("train", "val", "test")}
    content.update({f"oos_{split}": [[f"{split} what", "oos"]] * 2 for split in ("train", "val", "test")})
    (tmp_path / "data_full.json").write_text(json.dumps(content))
    return tmp_path


def test_out_of_scope_queries_are_left_out_and_counted(folder):
    dataset = load_dataset(folder)
    assert (dataset.name, dataset.num_classes) == ("clinc150", 3)
    assert dataset.test.inputs[4] == "test 4"
    assert dataset.provenance.left_out["oos_test"] == "2 out-of-scope queries"


def test_out_of_scope_queries_as_a_class_or_alone(folder):
    assert load_dataset(folder / "data_full.json", out_of_scope="class").class_names[-1] == "oos"
    alone = load_dataset(folder, out_of_scope="only")
    assert {name: split.inputs.tolist() for name, split in alone.splits.items()} == {
        "val": ["val what"] * 2,
        "test": ["test what"] * 2,
    }


def test_another_layout_gets_one_line(folder):
    (folder / "data_full.json").write_text("[]")
    with pytest.raises(InputError, match="must be an object with train, val and test"):
        load_dataset(folder)
    (folder / "data_full.json").write_text('{"train": [["a"]], "val": [], "test": []}')
    with pytest.raises(InputError, match=r"must hold pairs of text and intent, got \['a'\]"):
        load_dataset(folder)
    with pytest.raises(InputError, match="out_of_scope must be one of"):
        load_dataset(folder, out_of_scope="maybe")


def test_a_folder_that_two_sources_know_is_read_by_the_one_asked_first(folder):
    (folder / "train.csv").write_text("text,label\n" + "".join(f"word {i},{'ab'[i % 2]}\n" for i in range(40)))
    assert load_dataset(folder).class_names == ("a", "b")
