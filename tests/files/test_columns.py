"""Files of predictions as people have them: names, numbers, words as labels, one column, other separators."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from confide import Predictions, evaluate
from confide.checks import InputError

NAMES = ("cat", "dog", "fox")
DRAW = np.random.default_rng(0)
LOGITS = DRAW.normal(size=(12, 3)).round(3)
LABELS = DRAW.integers(3, size=12)
PROBS = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
WORDS = np.array(NAMES)[LABELS]


def write(path, columns, separator=","):
    rows = zip(*columns.values(), strict=True)
    lines = [separator.join(columns), *(separator.join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


def a_column_each(values, prefix, names=range(3)):
    return {f"{prefix}{name}": values[:, k] for k, name in enumerate(names)}


@pytest.mark.parametrize("label", ["label", "labels", "true_label", "y_true", "target", "targets", "y"])
@pytest.mark.parametrize("prefix", ["logit", "logit_", "logits_"])
def test_a_csv_holds_a_column_of_logits_for_every_class(tmp_path, prefix, label):
    found = Predictions.load(write(tmp_path / "a.csv", {**a_column_each(LOGITS, prefix), label: LABELS}))
    torch.testing.assert_close(found.logits, torch.as_tensor(LOGITS))
    assert found.labels.tolist() == LABELS.tolist()
    assert not found.from_probabilities


@pytest.mark.parametrize("prefix", ["p", "p_", "prob", "prob_", "probs_", "probability_"])
def test_a_csv_holds_a_column_of_probabilities_for_every_class(tmp_path, prefix):
    found = Predictions.load(write(tmp_path / "a.csv", {"label": LABELS, **a_column_each(PROBS, prefix)}))
    torch.testing.assert_close(found.probabilities(), torch.as_tensor(PROBS))


@pytest.mark.parametrize(("prefix", "values"), [("logit_", LOGITS), ("prob_", PROBS)])
@pytest.mark.parametrize("labels", [WORDS, LABELS, np.array([f" {word}" for word in WORDS])])
def test_columns_named_by_class_give_the_names_and_read_words_as_labels(tmp_path, prefix, values, labels):
    columns = {"id": range(12), **a_column_each(values, prefix, NAMES), "label": labels, "site": ["here"] * 12}
    found = Predictions.load(write(tmp_path / "a.csv", columns))
    assert found.class_names == NAMES
    assert found.labels.tolist() == LABELS.tolist()
    assert set(found.columns) == {"site"}
    pq.write_table(pa.table({name: np.asarray(column) for name, column in columns.items()}), tmp_path / "a.parquet")
    assert Predictions.load(tmp_path / "a.parquet").labels.tolist() == LABELS.tolist()


def test_class_names_beside_the_logits_read_words_as_labels(tmp_path):
    np.savez(tmp_path / "a.npz", logits=LOGITS.astype("float16"), labels=WORDS, class_names=np.array(NAMES))
    found = Predictions.load(tmp_path / "a.npz")
    assert (found.labels.tolist(), found.class_names) == (LABELS.tolist(), NAMES)


def test_words_of_a_top_one_file_are_classes_in_the_order_of_the_alphabet(tmp_path):
    said = np.array(NAMES)[PROBS.argmax(1)]
    columns = {"label": WORDS, "prediction": said, "confidence": PROBS.max(1)}
    found = Predictions.load(write(tmp_path / "a.csv", columns))
    assert found.class_names == NAMES
    assert float(found.facts.correct.double().mean()) == (said == WORDS).mean()


@pytest.mark.parametrize("name", ["probs", "prob", "probability", "p"])
def test_one_column_of_probabilities_is_that_of_class_one(tmp_path, name):
    found = Predictions.load(write(tmp_path / "a.csv", {name: PROBS[:, 1], "label": LABELS % 2}))
    torch.testing.assert_close(found.probabilities()[:, 1], torch.as_tensor(PROBS[:, 1]))


@pytest.mark.parametrize("shape", [(12,), (12, 1)])
def test_one_column_of_logits_is_that_of_a_sigmoid(tmp_path, shape):
    np.savez(tmp_path / "a.npz", logits=LOGITS[:, 0].reshape(shape), labels=LABELS % 2)
    found = Predictions.load(tmp_path / "a.npz").probabilities()
    torch.testing.assert_close(found[:, 1], torch.sigmoid(torch.as_tensor(LOGITS[:, 0])))


def test_a_probability_beside_a_predicted_class_is_not_guessed_to_be_of_class_one(tmp_path):
    columns = {"label": LABELS % 2, "prediction": LABELS % 2, "probability": PROBS.max(1)}
    with pytest.raises(InputError, match="may be the confidence in 'prediction' or the probability of class 1"):
        Predictions.load(write(tmp_path / "a.csv", columns))


@pytest.mark.parametrize("separator", [";", "\t"])
def test_spreadsheets_separate_cells_otherwise(tmp_path, separator):
    columns = {**a_column_each(PROBS, "p"), "label": LABELS}
    assert len(Predictions.load(write(tmp_path / "a.csv", columns, separator))) == 12


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {**a_column_each(LOGITS, "", NAMES), "label": WORDS},
            r"a column for every class \(logit_0, logit_cat; prob_0",
        ),
        ({**a_column_each(PROBS, "p"), "label": WORDS}, "labels of .* are words such as .*class_names"),
        ({**a_column_each(PROBS, "prob_", ("a", "b", "c")), "label": WORDS}, "must be among the classes a, b, c, got"),
        ({"p0": PROBS[:, 0], "p2": PROBS[:, 2], "label": LABELS}, "numbered from 0, got p0, p2; add what is missing"),
        ({"p1": PROBS[:, 1], "label": LABELS % 2}, "call one of class 1 alone 'logits' or 'probs'"),
        (
            {"logits": ['"[1, 2]"'] * 12, "label": LABELS},
            r"got the text '\[1, 2\]'; give a column for every class: logit_0",
        ),
        ({"label": LABELS, "y": LABELS, **a_column_each(PROBS, "p")}, "holds the label, got 'label' and 'y'"),
        ({"correct": LABELS % 2, "confidence": PROBS[:, 0], "score": PROBS[:, 1]}, "got 'confidence' and 'score'"),
        ({"correct": LABELS % 2, "is_correct": LABELS % 2, "p": PROBS[:, 0]}, "got 'correct' and 'is_correct'"),
        ({"y_true": LABELS % 2, "y_pred": LABELS % 2, "p": PROBS[:, 0]}, "call it 'confidence', or 'prob' without"),
        ({"correct": LABELS, "confidence": PROBS[:, 0]}, "correct must be 0 or 1, got 2"),
        (
            {"label": WORDS, "pred_label": WORDS, "confidence": PROBS[:, 0], "correct": [0, *[1] * 11]},
            "differs at 1 of 12 samples, first at sample 0; drop 'correct', or",
        ),
    ],
)
def test_what_cannot_be_read_says_how_to_name_it(tmp_path, columns, message):
    with pytest.raises(InputError, match=message):
        Predictions.load(write(tmp_path / "a.csv", columns))


def test_arrays_of_their_own_and_pickled_words_say_what_to_write(tmp_path):
    np.save(tmp_path / "logits.npy", LOGITS)
    with pytest.raises(InputError, match=r"np\.savez"):
        Predictions.load(tmp_path / "logits.npy")
    np.savez(tmp_path / "a.npz", logits=LOGITS, labels=WORDS.astype(object))
    with pytest.raises(InputError, match="never unpickled; save words as dtype=str"):
        Predictions.load(tmp_path / "a.npz")


def test_shards_whose_words_alone_would_number_the_classes_otherwise_are_refused(tmp_path):
    for name, words in (("a", ["cat", "dog"]), ("b", ["bird", "dog"])):
        top = {"label": words, "pred_label": words, "confidence": [0.9, 0.8]}
        write(tmp_path / f"{name}.csv", {"id": [f"{name}0", f"{name}1"], **top})
    with pytest.raises(InputError, match=r"name the same classes in one order, got \('bird', 'dog'\) in shard 1"):
        evaluate(tmp_path, ["accuracy"], False)


def test_shards_that_order_the_classes_otherwise_are_refused(tmp_path):
    for name, order in (("a", NAMES), ("b", NAMES[::-1])):
        write(tmp_path / f"{name}.csv", {**a_column_each(LOGITS, "logit_", order), "label": WORDS})
    with pytest.raises(InputError, match="all shards must name the same classes in one order"):
        evaluate(tmp_path, ["accuracy"], False)


@pytest.mark.parametrize("correct", ["correct", "is_correct", "correctness"])
@pytest.mark.parametrize("confidence", ["confidence", "conf", "score", "p", "prob", "probability"])
def test_confidence_and_correctness_are_read_where_no_class_is_named(tmp_path, correct, confidence):
    columns = {correct: LABELS % 2, confidence: PROBS[:, 0], "prediction": WORDS, "site": ["here"] * 12}
    found = Predictions.load(write(tmp_path / "a.csv", columns))
    assert found.facts.correct.tolist() == (LABELS % 2 == 1).tolist()
    assert found.facts.confidence.tolist() == PROBS[:, 0].tolist()
    assert set(found.columns) == {"prediction", "site"}
    assert not found.has_labels


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet", "npz"])
def test_pairs_come_back_from_every_format(tmp_path, ending):
    pairs = Predictions.from_pairs(LABELS % 2, PROBS[:, 0], [f"q{k}" for k in range(12)], site=WORDS)
    pairs.save(tmp_path / f"a.{ending}")
    found = Predictions.load(tmp_path / f"a.{ending}")
    assert found.facts.correct.tolist() == pairs.facts.correct.tolist()
    assert found.facts.confidence.tolist() == pytest.approx(PROBS[:, 0].tolist())
    assert found.ids.tolist() == pairs.ids.tolist()
    assert found.columns["site"].tolist() == WORDS.tolist()


def test_more_than_two_classes_leave_one_meaning_for_a_score_beside_them(tmp_path):
    columns = {"y_true": WORDS, "y_pred": np.roll(WORDS, 1), "score": PROBS.max(1)}
    found = Predictions.load(write(tmp_path / "a.csv", columns))
    assert float(found.facts.correct.double().mean()) == (np.roll(WORDS, 1) == WORDS).mean()


def test_a_file_without_labels_loads_and_metrics_say_what_they_lack(tmp_path):
    found = Predictions.load(write(tmp_path / "a.csv", {**a_column_each(PROBS, "p"), "truth": LABELS}))
    assert not found.has_labels
    with pytest.raises(InputError, match=r"needs labels, but .* none; their other columns are truth; .*'label'"):
        evaluate(found)
    confidences = Predictions.load(write(tmp_path / "b.csv", {"id": range(12), "confidence": PROBS.max(1)}))
    with pytest.raises(InputError, match="'correct' needs labels"):
        evaluate(confidences)


def test_lines_of_json_hold_lists_words_and_what_else_there_is(tmp_path):
    lines = [
        {"label": int(label), "probs": row, "meta": {"k": k}, "tokens": ["a"] * k}
        for k, (label, row) in enumerate(zip(LABELS, PROBS.tolist(), strict=True))
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = Predictions.load(tmp_path / "a.jsonl")
    torch.testing.assert_close(found.probabilities(), torch.as_tensor(PROBS))
    assert found.columns["meta"][3] == '{"k": 3}'
    assert found.columns["tokens"][2] == '["a", "a"]'
