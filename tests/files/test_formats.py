import json
import os
import zipfile
from io import BytesIO

import numpy as np
import pytest
import torch

from confide.checks import InputError
from confide.files import formats
from confide.files.disk import atomic
from confide.predictions import Predictions


def test_a_failed_write_leaves_the_earlier_file_and_no_rest(tmp_path):
    target = tmp_path / "result.txt"
    formats.write_text(target, "first")

    def fail():
        with atomic(target) as temporary:
            temporary.write_text("half")
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        fail()
    assert target.read_text() == "first"
    assert [p.name for p in tmp_path.iterdir()] == ["result.txt"]


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_a_table_comes_back_as_it_went(tmp_path, suffix):
    columns = {
        "id": np.array(["a", "b", "c"]),
        "label": np.array([0, 1, 2]),
        "logits": np.arange(6, dtype=np.float32).reshape(3, 2),
    }
    path = tmp_path / f"table{suffix}"
    formats.write_table(path, columns, {"split": "val"})
    back, metadata = formats.read_table(path)
    assert metadata == {"split": "val"}
    for name, values in columns.items():
        np.testing.assert_array_equal(back[name], values)
    assert back["logits"].dtype == np.float32


def test_a_csv_spreads_vectors_over_columns(tmp_path):
    path = tmp_path / "table.csv"
    formats.write_table(path, {"label": np.array([1, 0]), "p": np.array([[0.25, 0.75], [0.5, 0.5]])})
    back, _ = formats.read_table(path)
    np.testing.assert_array_equal(back["p1"], [0.75, 0.5])


def test_a_damaged_file_gets_one_line(tmp_path):
    path = tmp_path / "predictions.parquet"
    path.write_bytes(b"not a parquet file at all")
    with pytest.raises(InputError, match="must be a readable parquet file"):
        formats.read_table(path)


def test_an_unknown_suffix_and_a_missing_file_are_said(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        formats.read_table(tmp_path / "gone.npz")
    (tmp_path / "data.txt").write_text("x")
    with pytest.raises(InputError, match="must end in"):
        formats.read_table(tmp_path / "data.txt")


def test_pickled_arrays_are_refused(tmp_path):
    path = tmp_path / "evil.npz"
    np.savez(path, labels=np.array([{"a": 1}], dtype=object))
    with pytest.raises(InputError, match="must be a readable npz file"):
        formats.read_table(path)


def test_json_has_no_nan(tmp_path):
    formats.write_json(tmp_path / "x.json", {"value": float("nan"), "array": np.array([1.0, np.inf])})
    assert formats.read_json(tmp_path / "x.json") == {"value": None, "array": [1.0, None]}


def test_a_written_file_has_ordinary_rights(tmp_path):
    formats.write_text(tmp_path / "x.txt", "x")
    mask = os.umask(0)
    os.umask(mask)
    assert (tmp_path / "x.txt").stat().st_mode & 0o777 == 0o666 & ~mask


def test_an_npz_that_unpacks_to_far_more_than_it_is_is_refused_before_it_does(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "UNPACKED_AT_LEAST", 1 << 20)
    np.savez_compressed(tmp_path / "zeros.npz", logits=np.zeros((1000, 1000)))
    with pytest.raises(InputError, match="it unpacks to 8,000,"):
        formats.read_table(tmp_path / "zeros.npz")


def test_an_array_that_declares_more_than_it_holds_takes_no_memory(tmp_path):
    def write(shape: tuple[int, ...]) -> None:
        header = BytesIO()
        np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": shape})
        with zipfile.ZipFile(tmp_path / "rows.npz", "w") as archive:
            archive.writestr("logits.npy", header.getvalue() + np.arange(12.0).tobytes())

    # The part holds 224 bytes: its header and twelve numbers.
    write((4, 3))
    assert formats.read_table(tmp_path / "rows.npz")[0]["logits"].tolist() == np.arange(12.0).reshape(4, 3).tolist()
    write((10**12, 3))
    with pytest.raises(InputError, match=r"logits\.npy declares 24,000,000,000,000 bytes and holds 224"):
        formats.read_table(tmp_path / "rows.npz")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 5000 + "]" * 5000, "at most 64 levels"),
        ("[" * 65 + "]" * 65, "at most 64 levels"),
        ("9" * 5000, "must be JSON, got something else"),
        ("\udcff", "JSON in UTF-8"),
    ],
    ids=["deep", "a level too deep", "digits", "bytes"],
)
def test_json_beyond_the_limits_is_one_line(tmp_path, text, message):
    path = tmp_path / "a.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError, match=message):
        formats.read_json(path)
    path.write_text("[" * 64 + "]" * 64)
    assert formats.read_json(path)


def test_words_of_a_csv_saved_as_npz_are_read_again(tmp_path):
    """The npz held them as pickled objects, which are never read."""
    (tmp_path / "rows.csv").write_text("label,p0,p1,site\n0,0.7,0.3,x\n1,0.2,0.8,yy\n")
    record = Predictions.load(tmp_path / "rows.csv")
    record.save(tmp_path / "rows.npz")
    assert Predictions.load(tmp_path / "rows.npz").columns["site"].tolist() == ["x", "yy"]
    with pytest.raises(InputError, match=r"column 'mixed' must be numbers or words all through for npz"):
        formats.write_table(tmp_path / "mixed.npz", {"mixed": np.array(["a", None], dtype=object)})
    assert not (tmp_path / "mixed.npz").exists()


def test_a_line_of_more_than_a_megabyte_is_read(tmp_path):
    lines = [{"id": "a", "text": "x" * 1_200_000}, {"id": "b", "text": "y"}]
    (tmp_path / "long.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    columns, _ = formats.read_table(tmp_path / "long.jsonl")
    assert [len(text) for text in columns["text"]] == [1_200_000, 1]


def test_the_columns_of_a_folder_are_those_of_its_first_file(tmp_path):
    for name, column in (("b", "later"), ("a", "first")):
        formats.write_table(tmp_path / f"{name}.parquet", {column: np.arange(2)})
    assert formats.column_names(tmp_path) == ["first"]


def test_notes_of_a_checkpoint_are_in_order_whatever_their_letters(tmp_path):
    """So that the same values are the same bytes."""
    notes = {name: f'["{name}", "größe 量"]' for name in "hgfedcba"}
    formats.write_checkpoint(tmp_path / "w.safetensors", {"w": torch.zeros(2)}, notes)
    content = (tmp_path / "w.safetensors").read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
    assert list(header) == sorted(header)
    assert {name: header[name] for name in notes} == notes
