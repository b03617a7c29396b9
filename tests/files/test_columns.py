"""Files of predictions as people have them: names, numbers, words as labels, one column, other separators."""

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
    with pytest.raises(InputError, match="or 'pred_label' and 'confidence', got label, prediction, probability"):
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
        (a_column_each(PROBS, "p"), "must have a column 'label', got p0, p1, p2; add it"),
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
