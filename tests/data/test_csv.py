import gzip

import pytest

from confide.checks import InputError
from confide.data import load_dataset


def test_one_file_per_split_with_quotes_commas_and_line_breaks(tmp_path):
    rows = "".join(f'"row {i}, with ""quotes"" and\nbreaks",{"ab"[i % 2]}\n' for i in range(20))
    (tmp_path / "train.csv").write_text("text,category\n" + rows, encoding="utf-8-sig")
    (tmp_path / "test.csv").write_text("text,category\nänders,b\n<script>,a\n", encoding="utf-8")
    dataset = load_dataset(tmp_path)
    assert (dataset.kind, dataset.class_names) == ("text", ("a", "b"))
    assert {name: len(split) for name, split in dataset.splits.items()} == {"train": 18, "val": 2, "test": 2}
    assert dataset.train.inputs[0] == 'row 0, with "quotes" and\nbreaks'
    assert dataset.test.inputs.tolist() == ["änders", "<script>"]
    assert dataset.test.labels.tolist() == [1, 0]


def test_tabs_gzip_ids_and_named_columns(tmp_path):
    with gzip.open(tmp_path / "a.tsv.gz", "wt", encoding="utf-8") as file:
        file.write("id\tbody\tstars\n" + "".join(f"r{i}\tbody {i}\t{1 + i % 12}\n" for i in range(36)))
    dataset = load_dataset(tmp_path / "a.tsv.gz", inputs="body", labels="stars")
    # Classes that are numbers are in the order of numbers.
    assert dataset.class_names == tuple(map(str, range(1, 13)))
    assert dataset.train.ids[0].startswith("r")
    assert dataset.name == "a"


def test_very_long_documents_are_read(tmp_path):
    (tmp_path / "a.csv").write_text("text,label\n" + f"{'long ' * 60000},a\nshort,b\n" * 10)
    assert max(map(len, load_dataset(tmp_path / "a.csv").train.inputs)) == 300000


def test_a_file_beside_the_splits_is_left_out_and_said_so(tmp_path):
    for name in ("train", "test", "notes"):
        (tmp_path / f"{name}.csv").write_text("text,label\n" + "t,a\nu,b\n" * 10)
    assert load_dataset(tmp_path).provenance.left_out == {"notes.csv": "no split in its name"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"text,label\n", "split 'all' must hold at least one sample, got an empty one"),
        (b"text,label\nfine,a\nshort\n", "a.csv, line 3, must have a 'label', got none; add it or drop the row"),
        (
            b"title,label\nfine,a\n",
            "a.csv must have inputs named one of .* got title, label; name them with the option",
        ),
        (b"text,label\nf\xfcr,a\n", "a.csv must be UTF-8 text, got byte 0xfc; convert it"),
        (b"text,label\n" + b"t,a\n" * 20, "at least two classes, got only 'a' in all 16 samples"),
    ],
)
def test_bad_files_get_one_line(tmp_path, content, message):
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(InputError, match=message):
        load_dataset(tmp_path / "a.csv")
