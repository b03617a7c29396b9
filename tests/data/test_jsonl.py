import json

import pytest

from confide.checks import InputError
from confide.data import load_dataset


def test_texts_and_labels_by_line(tmp_path):
    rows = [{"id": f"q{i}", "utterance": f"text {i}", "intent": ["hi", "bye"][i % 2]} for i in range(20)]
    (tmp_path / "a.jsonl").write_text("\n\n".join(map(json.dumps, rows)))
    dataset = load_dataset(tmp_path / "a.jsonl")
    assert dataset.class_names == ("bye", "hi")
    assert dataset.train.ids[0].startswith("q")
    assert [f"text {name[1:]}" for name in dataset.train.ids] == dataset.train.inputs.tolist()


def test_labels_that_are_numbers_are_class_indices(tmp_path):
    (tmp_path / "a.jsonl").write_text("".join(f'{{"text": "t", "label": {i % 3}}}\n' for i in range(30)))
    assert load_dataset(tmp_path / "a.jsonl", class_names=["x", "y", "z"]).class_names == ("x", "y", "z")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{not json", "must hold one JSON object per line, but line 2 must be JSON"),
        ("[" * 3000 + "]" * 3000, "but line 2 must be JSON of at most 64 levels"),
        ('{"text": ' + "9" * 5000 + "}", "but line 2 must be JSON, got something else"),
        ("[1, 2]", "must hold one JSON object per line, got a list in line 2"),
        ('{"text": 5, "label": "a"}', "line 2, must have a 'text', got none"),
        ('{"text": "t", "label": null}', "line 2, must have a 'label', got none"),
    ],
)
def test_bad_lines_are_named(tmp_path, line, message):
    (tmp_path / "a.jsonl").write_text(f'{{"text": "t", "label": "a"}}\n{line}\n')
    with pytest.raises(InputError, match=message):
        load_dataset(tmp_path / "a.jsonl")


def test_the_same_rows_as_csv_give_the_same_dataset(tmp_path):
    """One reader reads both: ids, classes and splits are the same."""
    rows = [{"id": f"r{i}", "text": f"text, {i}", "label": "ab"[i % 2]} for i in range(40)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "a.csv").write_text(
        "id,text,label\n" + "".join(f'{r["id"]},"{r["text"]}",{r["label"]}\n' for r in rows)
    )
    first, second = (load_dataset(tmp_path / name) for name in ("a.jsonl", "a.csv"))
    assert first.class_names == second.class_names
    for name, split in first.splits.items():
        other = second.split(name)
        assert (list(split.inputs), split.labels.tolist()) == (list(other.inputs), other.labels.tolist())
        assert split.ids.tolist() == other.ids.tolist()
