"""The record of predictions: what each kind of outputs tells, and what it says where something is missing."""

import warnings

import numpy as np
import pytest
import torch

import confide
from confide import Predictions, metrics
from confide.checks import InputError
from confide.files import formats
from confide.predictions import LogitOutputs

LOGITS = torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.5], [0.2, 0.1, 0.0]])


def test_without_labels_what_the_outputs_tell_is_there_and_the_rest_says_it_needs_labels():
    bare, full = Predictions(LOGITS), Predictions(LOGITS, [0, 1, 2])
    for name in ("confidence", "entropy", "margin", "max_logit", "energy", "doubt", "prediction"):
        torch.testing.assert_close(bare.facts.need(name), full.facts.need(name), rtol=0, atol=0)
    for name in ("correct", "p_true", "nll", "brier"):
        with pytest.raises(InputError, match=f"'{name}' needs labels"):
            bare.facts.need(name)
    with pytest.raises(InputError, match="metric needs labels"):
        metrics.ece(bare)
    with pytest.raises(InputError, match="needs labels"):
        confide.evaluate(bare)
    assert not bare.has_labels
    assert "no labels" in repr(bare)


def test_probabilities_without_labels_keep_their_facts():
    probs = torch.softmax(LOGITS, dim=1)
    bare, full = Predictions.from_probs(probs), Predictions.from_probs(probs, [0, 1, 2])
    torch.testing.assert_close(bare.facts.need("entropy"), full.facts.need("entropy"), rtol=0, atol=0)
    assert bare.facts.nll is None


@pytest.mark.parametrize("name", ["p.parquet", "p.npz"])
def test_predictions_without_labels_come_back_from_a_file(tmp_path, name):
    Predictions(LOGITS, ids=["a", "b", "c"]).save(tmp_path / name)
    again = Predictions.load(tmp_path / name)
    assert not again.has_labels
    assert again.ids.tolist() == ["a", "b", "c"]


def test_a_calibrator_applies_to_predictions_without_labels():
    draws = np.random.default_rng(0)
    calibrator = confide.calibrators.fit(
        "temperature", Predictions(draws.normal(size=(60, 3)), draws.integers(0, 3, 60))
    )
    assert not calibrator(Predictions(LOGITS)).has_labels


@pytest.fixture(scope="module")
def pairs():
    draws = np.random.default_rng(1)
    confidence = draws.random(300)
    correct = draws.random(300) < confidence
    return Predictions.from_pairs(correct, confidence, site=draws.integers(0, 2, 300))


def test_pairs_measure_what_a_top1_record_measures(pairs):
    correct = pairs.facts.correct.long()
    top1 = Predictions.from_top1(correct, torch.ones_like(correct), pairs.facts.confidence)
    for word in ("accuracy", "confidence_gap", "ece", "aurc", "auroc", "fpr95", "halving_rejection"):
        assert float(getattr(metrics, word)(pairs)) == float(getattr(metrics, word)(top1)), word
    evaluation = confide.evaluate(pairs, by="site")
    assert evaluation.find("ece").low <= float(metrics.ece(pairs)) <= evaluation.find("ece").high
    assert set(evaluation.about.missing) == {"nll", "brier", "classwise_ece"}


def test_pairs_are_compared_and_get_operating_points(pairs):
    other = Predictions.from_pairs(pairs.facts.correct, pairs.facts.confidence**2)
    assert confide.compare(pairs, other)
    assert confide.operating_point(pairs, risk=0.4).coverage > 0


def test_pairs_say_that_they_hold_no_classes(pairs):
    for asked in (lambda: pairs.logits, lambda: pairs.facts.prediction, lambda: metrics.classwise_ece(pairs)):
        with pytest.raises(InputError, match=r"hold only confidence and correctness|needs labels"):
            asked()
    with pytest.raises(InputError, match="correct must be 0 or 1, got 2"):
        Predictions.from_pairs([0, 2], [0.1, 0.2])
    with pytest.raises(InputError, match="confidence must lie in"):
        Predictions.from_pairs([0, 1], [0.1, 1.2])


@pytest.mark.parametrize("name", ["p.parquet", "p.npz", "p.csv"])
def test_pairs_come_back_from_a_file(tmp_path, pairs, name):
    pairs.save(tmp_path / name)
    again = Predictions.load(tmp_path / name)
    assert torch.equal(again.facts.correct, pairs.facts.correct)
    assert again.columns["site"].tolist() == pairs.columns["site"].tolist()


def test_replacing_trust_keeps_the_facts_and_nothing_else_that_was_derived():
    record = Predictions(LOGITS, [0, 1, 2])
    float(metrics.ece(record))
    changed = record.replace(trust=torch.tensor([1.0, 2.0, 3.0]))
    assert changed.facts is record.facts
    assert float(metrics.aurc(changed, score="trust")) != float(metrics.aurc(record))
    assert record.replace(labels=[1, 1, 1]).facts is not record.facts
    with pytest.raises(TypeError, match="trsut"):
        record.replace(trsut=None)


def test_outputs_say_whether_logits_are_real():
    assert not Predictions(LOGITS, [0, 1, 2]).from_probabilities
    assert Predictions.from_log_probs(torch.log_softmax(LOGITS, 1), [0, 1, 2]).from_probabilities
    assert Predictions.from_probs(torch.softmax(LOGITS, 1), [0, 1, 2]).with_logits(LOGITS).from_probabilities
    assert isinstance(Predictions(LOGITS).outputs, LogitOutputs)


def test_a_streamed_record_refuses_to_be_saved(tmp_path):
    whole = Predictions(LOGITS, [0, 1, 2])
    with pytest.raises(InputError, match="saving needs all probabilities in memory"):
        Predictions.from_facts(whole.facts, whole.labels, 3).save(tmp_path / "p.parquet")


@pytest.mark.parametrize(
    ("labels", "hint"),
    [
        ([1, 2, 3], "do labels start at 1\\? they go from 1 to 3"),
        ([2, 3, 3], "do labels start at 1"),
        ([-1, 0, 1], "give class indices from 0"),
        ([0, 1, 3], "give one logit per class"),
    ],
)
def test_labels_outside_the_classes_are_asked_about_not_dropped(labels, hint):
    with pytest.raises(InputError, match=hint):
        Predictions(LOGITS, labels)


def test_probabilities_within_the_tolerance_do_not_stay_out_of_range():
    predictions = Predictions.from_probs([[1.0005, 0.0, -0.0004], [0.6003, 0.4, 0.0]], [0, 0])
    assert float(predictions.facts.confidence[0]) == 1.0
    assert float(predictions.facts.nll.min()) >= 0
    assert predictions.outputs.probs[1].tolist() == [0.6003, 0.4, 0.0]  # in range: to the last digit


@pytest.mark.parametrize("suffix", [".csv", ".npz", ".parquet"])
def test_ties_of_float32_logits_survive_a_file(tmp_path, suffix):
    draw = np.random.default_rng(0)
    logits = (9 * draw.normal(size=(500, 4))).astype(np.float32)
    predictions = Predictions(logits, draw.integers(0, 4, 500))
    predictions.save(tmp_path / f"test{suffix}")
    again = Predictions.load(tmp_path / f"test{suffix}")
    assert torch.equal(again.logits, predictions.logits)
    assert torch.equal(again.facts.confidence, predictions.facts.confidence)


@pytest.mark.parametrize(
    ("logits", "message"),
    [
        (np.ones((3, 2), dtype=complex), "must be real numbers"),
        (torch.ones(3, 2, dtype=torch.complex64), "must be real numbers"),
        (np.zeros(3, dtype=[("a", "f4"), ("b", "f4")]), "must be numbers"),
        ([[1, 2], [3], [4]], "must be an array of numbers"),
        ([[10**400, 1]] * 3, "must be an array of numbers"),
    ],
    ids=["complex", "complex tensor", "record", "ragged", "huge"],
)
def test_arrays_that_are_no_real_numbers_are_one_line(logits, message):
    with pytest.raises(InputError, match=message):
        Predictions(logits, [0, 1, 0])


@pytest.mark.parametrize("dtype", [np.longdouble, ">f4", ">f8", np.uint16, np.uint64])
def test_arrays_of_unusual_numbers_are_read(dtype):
    values = np.array([[2, 0], [0, 1], [3, 0]])
    assert Predictions(values.astype(dtype), [0, 1, 0]).logits.tolist() == values.tolist()


@pytest.mark.parametrize("label", [-1, 10**12])
def test_a_top_1_label_that_is_no_class_is_one_line(label):
    with pytest.raises(InputError, match=r"labels must lie in \[0, 10000000\), got"):
        Predictions.from_top1([label, 0], [0, 0], [0.5, 0.5])
    with pytest.raises(InputError, match="prediction must lie in"):
        Predictions.from_top1([0, 0], [label, 0], [0.5, 0.5])


@pytest.mark.parametrize("names", ['{"0": "cat"}', "[[1]]", "5", "[" * 3000, "null"])
def test_class_names_of_another_type_in_a_file_are_none_of_ours(tmp_path, names):
    formats.write_table(
        tmp_path / "a.parquet", {"label": np.array([0]), "logits": np.eye(1, 2)}, {"class_names": names}
    )
    assert Predictions.load(tmp_path / "a.parquet").class_names is None


def test_probabilities_given_as_logits_are_doubted_wherever_they_enter():
    probs = torch.softmax(LOGITS, dim=1)
    with pytest.warns(UserWarning, match="every row of the logits sums to 1, .* use Predictions.from_probs"):
        Predictions(probs, [0, 1, 2])
    with pytest.warns(UserWarning, match="all single logits lie in"):
        Predictions.from_binary_logits([0.2, 0.9], [0, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Predictions(LOGITS, [0, 1, 2]).with_logits(probs)
        Predictions.from_probs(probs, [0, 1, 2])
        Predictions.from_binary_logits([-0.2, 0.9], [0, 1])


@pytest.mark.parametrize("name", ["sample_weight", "confidence", "label", "id", "y", "trust"])
def test_a_column_that_a_file_would_take_for_something_else_is_not_lost_in_silence(name, tmp_path):
    record = Predictions([[2.0, 0.0], [0.0, 1.0]], [0, 1], columns={name: np.array([3, 4])})
    with pytest.raises(InputError, match="rename"):
        record.save(tmp_path / "val.parquet")


def test_columns_of_a_structured_array_do_not_end_in_a_traceback():
    table = np.array([(1, "a", 0.9), (0, "b", 0.4)], dtype=[("correct", "i8"), ("group", "U1"), ("confidence", "f8")])
    predictions = Predictions.from_pairs(table["correct"], table["confidence"])
    assert predictions.facts.confidence.tolist() == pytest.approx([0.9, 0.4])
