"""The record of predictions: what each kind of outputs tells, and what it says where something is missing."""

import csv
import warnings
from functools import partial

import numpy as np
import pytest
import torch

import confide
from confide import Predictions, metrics
from confide.checks import InputError
from confide.files import formats
from confide.predictions import LogitOutputs
from confide.predictions.outputs import LogProbOutputs, binary_outputs, probability_doubt, probability_outputs
from confide.predictions.record import class_words, feature_rows, instead_of_units, probability_blocks, row_word
from confide.records import Features

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
    assert set(evaluation.about.missing) == {"nll", "brier", "classwise_ece", "classes"}


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


@pytest.mark.parametrize(
    ("names", "header"),
    [
        (("cat", 'naïve, "x"', "鳥"), ["prob_cat", 'prob_naïve, "x"', "prob_鳥"]),
        (("2", "1", "0"), ["p0", "p1", "p2"]),
        (("a", "1", "b"), ["p0", "p1", "p2"]),
        (("a", "b", "two\nlines"), ["p0", "p1", "p2"]),
        (("a", "b", ""), ["p0", "p1", "p2"]),
    ],
    ids=["words", "numbers", "a number", "two lines", "nothing"],
)
def test_a_table_names_its_classes_where_they_can_be_read_back(tmp_path, names, header):
    predictions = Predictions.from_probs(torch.softmax(LOGITS, 1), [0, 1, 2], class_names=names)
    predictions.save(tmp_path / "p.csv")
    with open(tmp_path / "p.csv", newline="", encoding="utf-8") as file:
        assert next(csv.reader(file)) == ["id", "label", *header]
    again = Predictions.load(tmp_path / "p.csv")
    assert again.class_names == (None if header[0] == "p0" else names)
    assert again.labels.tolist() == [0, 1, 2]
    torch.testing.assert_close(again.outputs.probs.double(), predictions.outputs.probs.double())


def test_a_column_that_looks_like_a_class_stays_a_column(tmp_path):
    predictions = Predictions(LOGITS, class_names=("a", "b", "c"), columns={"logit_d": np.arange(3)})
    predictions.save(tmp_path / "p.csv")
    again = Predictions.load(tmp_path / "p.csv")
    assert again.columns["logit_d"].tolist() == [0, 1, 2]
    assert torch.equal(again.logits, predictions.logits)


def test_what_was_made_for_other_classes_is_refused():
    draw = np.random.default_rng(0)

    def of(c, names=None):
        logits = 3 * draw.normal(size=(400, c))
        return Predictions(logits, (logits + draw.gumbel(size=logits.shape)).argmax(axis=1), class_names=names)

    val = of(3, ("a", "b", "c"))
    point, by_class = (confide.operating_point(val, risk=0.3, per_class=k) for k in (False, True))
    uses = [confide.sets.fit("lac", val, coverage=0.8)]
    uses += [partial(confide.apply_operating_point, own) for own in (point, by_class)]
    for use in uses:
        for same in (of(3), of(3, ("a", "b", "c")), of(3, ("0", "1", "2"))):
            use(same)
        with pytest.raises(InputError, match=r"must be of the 3 classes of .*, got 5"):
            use(of(5))
        with pytest.raises(InputError, match=r"class 1 must be 'b' as in .*, got 'x'"):
            use(of(3, ("a", "x", "c")))
    top = Predictions.from_top1([0, 1], [0, 1], [0.9, 0.8])  # two classes in sight, of who knows how many
    assert confide.apply_operating_point(by_class, top).tolist() == [True, True]


def test_replacing_trust_keeps_the_facts_and_nothing_else_that_was_derived():
    record = Predictions(LOGITS, [0, 1, 2])
    float(metrics.ece(record))
    changed = record.replace(trust=torch.tensor([1.0, 2.0, 3.0]))
    assert changed.core_facts is record.core_facts
    assert float(metrics.aurc(changed, score="trust")) != float(metrics.aurc(record))
    assert record.replace(labels=[1, 1, 1]).core_facts is not record.core_facts
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


EVEN = [[2.0, 0.0], [0.0, 1.0], [1.5, 0.5]]


@pytest.mark.parametrize(
    ("shape", "passes"),
    [((3,), True), ((3, 4), True), ((), False), ((2,), False), ((4,), False), ((1, 3), False)],
)
def test_a_column_has_a_value_of_every_sample(shape, passes):
    column = np.ones(shape)
    if passes:
        assert Predictions(EVEN, [0, 1, 0], columns={"x": column}).columns["x"].shape == shape
    else:
        with pytest.raises(InputError, match="column 'x' must have 3 values"):
            Predictions(EVEN, [0, 1, 0], columns={"x": column})


def test_logits_or_other_outputs_but_not_both_nor_neither():
    outputs = Predictions(EVEN).outputs
    assert Predictions(outputs=outputs).outputs is outputs
    for given in ({}, {"logits": EVEN, "outputs": outputs}):
        with pytest.raises(InputError, match="named constructors"):
            Predictions(**given)
    with pytest.raises(InputError, match="unit must name a column"):
        Predictions(EVEN, unit="visit")


@pytest.mark.parametrize(
    ("logits", "doubted"),
    [
        ([[0.25, 0.75], [1.0, 0.0]], True),
        ([[0.25, 0.75], [-0.25, 1.25]], False),
        ([[0.25, 0.75], [0.5, 0.6]], False),
        ([[0.25, 0.7509765625]], True),
        ([[0.25, 0.7490234375]], True),
        ([[0.25, 0.752]], False),
        ([[0.25, 0.748]], False),
        ([[1.0, 0.0], [0.0, 1.0]], False),
        ([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]], True),
        ([[0.0, 1.0], [0.0, 0.5]], True),
        ([[0.0, 0.0], [0.0, 1.0]], True),
        ([[0.0, 1.5], [0.0, 0.5]], False),
        ([[0.0, -0.5], [0.0, 0.5]], False),
        ([[0.0, 0.5], [0.5, 0.5]], False),
        ([[0.0, 0.5]], False),
        ([[0.0, 0.5, 0.0], [0.0, 0.25, 0.0]], False),
        ([[0.25, 0.75]] * 101 + [[3.0, -1.0]], False),
        ([[0.25, 0.75]] * 101 + [[0.5, 0.5]], True),
    ],
    ids=lambda v: str(v)[-30:],
)
def test_logits_that_look_like_probabilities_are_doubted_and_no_others(logits, doubted):
    said = probability_doubt(LogitOutputs(torch.tensor(logits, dtype=torch.float64)))
    assert bool(said) is doubted
    assert ("single" in said) is (doubted and len(logits[0]) == 2 and all(row[0] == 0 for row in logits))
    assert probability_doubt(LogProbOutputs(torch.tensor(logits))) == ""


def test_no_samples_are_no_doubt():
    assert probability_doubt(LogitOutputs(torch.zeros(0, 3))) == ""


@pytest.mark.parametrize(
    ("values", "becomes"),
    [([1, -2], [[0, 1], [0, -2]]), ([[1.5], [2.5]], [[0, 1.5], [0, 2.5]]), ([], [])],
)
def test_sigmoid_logits_are_those_of_the_second_class(values, becomes):
    assert binary_outputs(values).logits.tolist() == becomes
    with pytest.raises(InputError, match="n values"):
        binary_outputs(np.zeros((2, 2)))


@pytest.mark.parametrize(
    ("values", "becomes"),
    [
        ([0, 1], [[1, 0], [0, 1]]),
        ([0.25], [[0.75, 0.25]]),
        ([[0.25], [0.5]], [[0.75, 0.25], [0.5, 0.5]]),
        ([[1, 0]], [[1, 0]]),
    ],
)
def test_probabilities_of_class_1_are_those_of_two_classes(values, becomes):
    assert probability_outputs(values).probs.tolist() == becomes


@pytest.mark.parametrize(
    ("confidence", "correct", "passes"),
    [
        ([0, 1], [0, 1], True),
        ([0.5, 1.0], [True, False], True),
        ([0.5, 1.0], None, True),
        ([0.5, 1.0], [1.0, 0.0], True),
        ([0.5, 1.0001], [0, 1], False),
        ([-0.0001, 1.0], [0, 1], False),
        ([0.5, float("nan")], [0, 1], False),
        ([0.5, 1.0], [0, 2], False),
        ([0.5, 1.0], [0, 0.5], False),
        ([0.5, 1.0], [0], False),
        ([[0.5, 1.0]], [[0, 1]], False),
    ],
)
def test_pairs_are_a_confidence_and_yes_or_no(confidence, correct, passes):
    if passes:
        pairs = Predictions.from_pairs(correct, confidence)
        assert pairs.facts.confidence.tolist() == confidence
        assert pairs.facts.right is None if correct is None else pairs.facts.right.tolist() == correct
        assert pairs.num_classes == 0
        assert pairs.take([1]).facts.confidence.tolist() == confidence[1:]
        assert (pairs.take([1]).outputs.correct is None) is (correct is None)
    else:
        with pytest.raises(InputError):
            Predictions.from_pairs(correct, confidence)


def test_the_first_bad_confidence_or_judgement_is_named():
    with pytest.raises(InputError, match=r"got 2.0 at sample 1 of 3"):
        Predictions.from_pairs([0, 1, 1], [0.5, 2.0, 3.0])
    with pytest.raises(InputError, match=r"got 2 at sample 1 of 3"):
        Predictions.from_pairs([0, 2, 3], [0.5, 0.5, 0.5])


@pytest.mark.parametrize(
    ("weights", "relative", "rows", "counted"),
    [
        (None, None, None, 3),
        ([2, 2, 2], None, None, 3),
        ([1, 2, 3], [0.5, 1, 1.5], None, 3),
        ([0, 2, 1], [0, 2, 1], [1, 2], 2),
        ([2, 0, 1], [2, 0, 1], [0, 2], 2),
    ],
)
def test_weights_count_by_their_ratios_and_those_of_zero_are_not_there(weights, relative, rows, counted):
    predictions = Predictions(EVEN, [0, 1, 0], weights=weights)
    found = predictions.relative_weights
    assert found is None if relative is None else found.tolist() == relative
    assert predictions.weighted_rows is None if rows is None else predictions.weighted_rows.tolist() == rows
    assert len(predictions.counted()) == counted
    if relative is None:
        predictions.need_unweighted("this")
    else:
        with pytest.raises(InputError, match="count alike"):
            predictions.need_unweighted("this")


def test_no_samples_have_no_relative_weights():
    assert Predictions(np.zeros((0, 2)), [], weights=[]).relative_weights is None
    nothing = Predictions(EVEN, [0, 1, 0], weights=[0, 2, 1]).take([0])
    assert nothing.weights.tolist() == [0]


def test_weights_by_the_name_of_a_column():
    plain = Predictions(EVEN, [0, 1, 0], columns={"age": [1.0, 2.0, 3.0]})
    assert plain.weighted(None) is plain
    assert plain.weighted("age").weights.tolist() == [1, 2, 3]
    held = plain.replace(weights=[3, 1, 1])
    assert held.weighted("sample_weight") is held
    for record, name in ((plain, "sample_weight"), (held, "site")):
        with pytest.raises(InputError, match="no weights named"):
            record.weighted(name)


@pytest.mark.parametrize("weights", [None, [1, 1, 3, 3]])
def test_classes_are_weighted_to_the_shares_of_another_population(weights):
    predictions = Predictions(np.eye(2)[[0, 0, 1, 0]] * 3, [0, 0, 1, 0], weights=weights, class_names=("no", "yes"))
    assert predictions.class_shares().tolist() == ([0.75, 0.25] if weights is None else [0.625, 0.375])
    for prior in ([1, 3], {"yes": 3, "no": 1}):
        moved = predictions.weighted_by_class(prior)
        np.testing.assert_allclose(moved.class_shares(), [0.25, 0.75])
        own = np.ones(4) if weights is None else np.array(weights)
        factors = [1 / 3, 3] if weights is None else [0.4, 2]
        np.testing.assert_allclose(moved.weights, own * np.array(factors)[[0, 0, 1, 0]])
    assert predictions.weighted_by_class(None) is predictions


@pytest.mark.parametrize(
    "prior", [[1, 0], [1, 2, 3], [1, float("inf")], [1, -1], {"no": 1}, {"no": 1, "maybe": 1}, {"no": 1, "yes": 0}]
)
def test_a_prior_gives_every_class_a_share_above_0(prior):
    predictions = Predictions(EVEN, [0, 1, 0], class_names=("no", "yes"))
    with pytest.raises(InputError, match="prior must"):
        predictions.weighted_by_class(prior)


def test_a_prior_needs_samples_of_every_class():
    with pytest.raises(InputError, match="class 2 has none"):
        Predictions(np.eye(3), [0, 1, 0]).weighted_by_class([1, 1, 1])
    with pytest.raises(InputError, match="class c has none"):
        Predictions(np.eye(3), [0, 1, 0], class_names=["a", "b", "c"]).weighted_by_class([1, 1, 1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("held", ["logits", "log_probs", "probs"])
def test_probabilities_of_other_class_shares_are_those_of_bayes(held, dtype):
    probs = torch.tensor([[0.5, 0.25, 0.25], [0.125, 0.5, 0.375]], dtype=dtype)
    make = {"logits": Predictions, "log_probs": Predictions.from_log_probs, "probs": Predictions.from_probs}[held]
    record = make(probs if held == "probs" else probs.log(), [0, 2], ids=["a", "b"])
    moved = record.with_prior([1, 1, 2], trained=[0.5, 0.25, 0.25])
    ratio = probs * torch.tensor([0.5, 1.0, 2.0])
    torch.testing.assert_close(moved.probabilities(), ratio / ratio.sum(dim=1, keepdim=True), rtol=1e-5, atol=1e-6)
    assert moved.probabilities().dtype == dtype
    assert moved.from_probabilities is (held != "logits")
    assert moved.ids.tolist() == ["a", "b"]


@pytest.mark.parametrize("before", [None, [1, 2, 3]])
@pytest.mark.parametrize("after", [None, [2, 4, 6], [3, 2, 1]])
def test_streamed_sums_of_classes_go_with_the_weights_they_were_made_with(before, after):
    whole = Predictions(EVEN, [0, 1, 0], weights=before)
    table = whole.class_table()
    streamed = Predictions.from_facts(whole.facts, whole.labels, 2, table, weights=before)
    assert streamed.class_table() is table
    for bins, closed in ((15, "left"), (10, "right")):
        with pytest.raises(InputError, match="streamed"):
            streamed.class_table(bins, closed)
    after_all = streamed.replace(weights=None if after is None else np.array(after))
    stays = before is not None and after == [2, 4, 6]
    assert (after_all.outputs.table is table) is stays
    assert streamed.replace(split="val").outputs.table is table
    assert streamed.take([0]).outputs.table is None


def test_what_was_derived_stays_where_it_still_holds():
    predictions = Predictions(EVEN, [0, 1, 0])
    table, facts = predictions.class_table(), predictions.facts
    kept = predictions.replace(split="val")
    assert kept.facts is facts
    assert kept.class_table() is table
    weighted = predictions.replace(weights=[1, 2, 3])
    assert weighted.facts is facts
    assert weighted.class_table() is not table
    assert predictions.replace(labels=[1, 1, 1]).facts is not facts
    assert predictions.with_logits(predictions.logits / 2).facts is not facts
    assert predictions.take([2, 0]).facts.confidence.tolist() == facts.confidence[[2, 0]].tolist()
    assert predictions.take([True, False, True]).ids.tolist() == [0, 2]


@pytest.mark.parametrize(("units", "member"), [(["b", "a", "b"], [1, 0, 1]), (["a", "b", "c"], None), (None, None)])
def test_units_of_several_samples_are_numbered(units, member):
    columns = {} if units is None else {"visit": units}
    predictions = Predictions(EVEN, [0, 1, 0], columns=columns, unit=None if units is None else "visit")
    found = predictions.clusters
    assert found is None if member is None else found.tolist() == member
    if member is None:
        predictions.need_drawn_singly("this")
    else:
        with pytest.raises(InputError, match="3 of 2 units"):
            predictions.need_drawn_singly("this")


@pytest.mark.parametrize(
    ("labels", "prediction", "classes"),
    [([0, 4], [2, 1], 5), ([0, 1], [2, 1], 3), (None, [2, 1], 3), ([], [], 0)],
)
def test_top_1_records_have_as_many_classes_as_they_show(labels, prediction, classes):
    assert Predictions.from_top1(labels, prediction, [0.5] * len(prediction)).num_classes == classes


def test_rows_are_called_by_what_was_drawn_as_one():
    logits, two = EVEN[:2], {"columns": {"image": [0, 0], "question": [0, 0], "visit": [0, 0]}}
    words = [row_word(Predictions(logits, [0, 1], unit=unit, **two)) for unit in (None, "image", "question", "visit")]
    assert words == ["samples", "pixels", "answers", "samples"]
    boxes = Predictions.from_pairs([1, 0], [0.5, 0.5], unit="image", image=[0, 0])
    labels = Predictions.multilabel([[0.5, 2.0]], [[1, 0]])
    assert [row_word(boxes), row_word(labels)] == ["boxes", "labels"]
    assert [r.is_multilabel for r in (boxes, labels, labels.replace(unit=None))] == [False, True, False]
    hints = [instead_of_units(r) for r in (labels, boxes, Predictions(logits, [0, 1], unit="visit", **two))]
    assert ["label" in hint for hint in hints] == [True, False, False]
    assert ["image" in hint for hint in hints] == [False, True, False]


def test_words_are_names_of_classes_or_their_numbers():
    assert class_words(Predictions(EVEN)) == ["0", "1"]
    assert class_words(Predictions(EVEN, class_names=["no", "yes"])) == ["no", "yes"]


@pytest.mark.parametrize("size", [2, 3, 4, 6, 100])
@pytest.mark.parametrize("held", ["logits", "probs"])
def test_blocks_of_probabilities_are_all_of_them_once(size, held, monkeypatch):
    monkeypatch.setattr("confide.predictions.record.CACHED_FLOAT64", size)
    probs = torch.softmax(torch.arange(14.0).reshape(7, 2).sin(), dim=1)
    record = Predictions.from_probs(probs) if held == "probs" else Predictions(probs.log())
    blocks = list(probability_blocks(record, "this"))
    assert [k for rows, _ in blocks for k in range(rows.start, rows.stop)] == list(range(7))
    np.testing.assert_allclose(np.concatenate([own for _, own in blocks]), probs.numpy(), rtol=1e-6)


@pytest.mark.parametrize(
    ("features", "passes"),
    [
        (np.ones((3, 2)), True),
        (np.ones((3, 1), dtype=np.float16), True),
        (np.ones((3, 2), dtype=np.int64), True),
        (np.ones(3), False),
        (np.ones((3, 2, 2)), False),
        (np.ones((2, 2)), False),
        (np.array([[1, 2], [3, np.nan], [0, 0]]), False),
        (np.array([[1, 2], [3, 4], [0, np.inf]]), False),
    ],
    ids=str,
)
def test_features_are_a_finite_row_of_every_sample(features, passes, monkeypatch):
    monkeypatch.setattr("confide.predictions.record.FEATURE_ROWS", 2)
    if passes:
        rows = feature_rows(Predictions(EVEN), features)
        assert rows.tolist() == features.tolist()
        assert rows.dtype == (torch.float64 if features.dtype == np.float64 else torch.float32)
    else:
        with pytest.raises(InputError, match="features must be"):
            feature_rows(Predictions(EVEN), features)


def test_large_features_whose_sum_overflows_are_finite():
    rows = torch.full((3, 2), 3e38)
    assert feature_rows(Predictions(EVEN), rows).tolist() == rows.tolist()


def test_features_with_ids_come_in_the_order_of_the_samples():
    words = Features(np.arange(8.0).reshape(4, 2), np.zeros(4, dtype=int), np.array(["a", "b", "c", "d"]), "drawn")
    named = Predictions(EVEN, ids=["c", "a", "b"])
    assert feature_rows(named, words).tolist() == [[4, 5], [0, 1], [2, 3]]
    numbers = Features(np.arange(6.0).reshape(3, 2), np.zeros(3, dtype=int), np.array([0, 1, 2]), "drawn")
    assert feature_rows(Predictions(EVEN), numbers).tolist() == [[0, 1], [2, 3], [4, 5]]
    assert feature_rows(Predictions(EVEN, ids=[2, 0, 1]), numbers).tolist() == [[4, 5], [0, 1], [2, 3]]
    with pytest.raises(InputError, match="pass the same split"):
        feature_rows(Predictions(EVEN), Features(np.ones((4, 2)), np.zeros(4, dtype=int), np.arange(4), "drawn"))


@pytest.mark.parametrize(
    ("labels", "ids", "found"),
    [
        ([[1, 0], [0, 1]], ["0/0", "1/0", "0/1", "1/1"], [1, 0, 0, 1]),
        ([[1, None], [-1, 1]], ["0/0", "1/1"], [1, 1]),
        ([[1, float("nan")], [0, 1]], ["0/0", "1/0", "1/1"], [1, 0, 1]),
        (None, ["0/0", "1/0", "0/1", "1/1"], None),
    ],
    ids=str,
)
def test_labels_that_are_known_make_a_row_each(labels, ids, found):
    for given in ({"logits": [[0.5, 2.0], [-1.0, 3.0]]}, {"probs": [[0.5, 0.25], [0.75, 1.0]]}):
        record = Predictions.multilabel(labels=labels, **given, columns={"site": ["x", "y"]})
        assert record.ids.tolist() == ids
        assert (record.labels.tolist() if record.has_labels else None) == found
        assert record.columns["site"].tolist() == ["xy"[int(name[0])] for name in ids]
        assert record.columns["sample"].tolist() == [int(name[0]) for name in ids]
        value = record.probabilities()[:, 1] if "probs" in given else record.logits[:, 1]
        (table,) = given.values()
        assert value.tolist() == [table[int(name[0])][int(name[2])] for name in ids]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "logits or probs"),
        ({"logits": [[1.0]], "probs": [[0.5]]}, "logits or probs"),
        ({"logits": [1.0, 2.0]}, "n x c"),
        ({"logits": [[1.0, 2.0]], "label_names": ["a"]}, "2 different names"),
        ({"logits": [[1.0, 2.0]], "label_names": ["a", "a"]}, "2 different names"),
        ({"logits": [[1.0, 2.0]], "labels": [[1]]}, "must be 1 x 2"),
        ({"logits": [[1.0, 2.0]], "labels": [[1, 2]]}, "got 2 at sample 0, label '1'"),
        ({"logits": [[1.0, 2.0]], "labels": [[1, 0.5]]}, "got 0.5 at sample 0"),
        ({"logits": [[1.0, 2.0]], "columns": {"x": [1, 2]}}, "column 'x' must hold 1 values"),
    ],
)
def test_labels_that_are_neither_yes_nor_no_are_refused(options, words):
    with pytest.raises(InputError, match=words):
        Predictions.multilabel(**options)


def test_replace_sends_other_logits_to_their_own_method():
    with pytest.raises(InputError, match="use with_logits"):
        Predictions([[2.0, 0.0]], [0]).replace(logits=[[1.0, 0.0]])


def test_sums_of_streamed_classes_stay_where_weights_keep_their_shares_and_are_gone_elsewhere():
    whole = Predictions(torch.randn(30, 3, generator=torch.Generator().manual_seed(0)), np.arange(30) % 3)
    weights = np.linspace(1, 2, 30)
    streamed = Predictions.from_facts(whole.facts, whole.labels, 3, whole.weighted(weights).class_table())
    counted = streamed.replace(weights=weights)
    assert counted.outputs.table is None  # they were made without weights
    known = Predictions.from_facts(whole.facts, whole.labels, 3, whole.class_table(), weights=weights)
    assert known.replace(weights=3 * weights).outputs.table is not None
    assert known.replace(weights=weights[::-1].copy()).outputs.table is None
    assert known.replace(weights=None).outputs.table is None
    assert known.replace(split="val").outputs.table is not None


def test_probabilities_of_one_class_may_stand_in_a_column():
    column = Predictions.from_probs([[0.2], [0.75]])
    flat = Predictions.from_probs([0.2, 0.75])
    assert column.probabilities().tolist() == flat.probabilities().tolist()
    np.testing.assert_allclose(flat.probabilities(), [[0.8, 0.2], [0.25, 0.75]])


@pytest.mark.parametrize(("value", "fits"), [(0.0, True), (1.0, True), (1 + 1e-6, False), (-1e-9, False), (2, False)])
def test_a_confidence_beyond_its_range_is_named_by_its_sample(value, fits):
    if fits:
        assert len(Predictions.from_pairs([1, 0, 1], [0.5, value, 1])) == 3
    else:
        with pytest.raises(InputError, match=rf"confidence must lie in \[0, 1\], got {value}.* at sample 1 of 3"):
            Predictions.from_pairs([1, 0, 1], np.array([0.5, value, 1]))


def test_shares_of_classes_go_by_name_whatever_their_order_and_unknown_names_are_told_the_nearest():
    even = Predictions.from_probs([[0.5, 0.5]], class_names=("cat", "dog"))
    assert even.with_prior({"dog": 0.9, "cat": 0.1}, trained=[0.5, 0.5]).probabilities().tolist() == [[0.1, 0.9]]
    for prior, said in (
        ({"cat": 0.5, "dgo": 0.5}, "got cat, dgo; did you mean 'dog'"),
        ({"cat": 1.0}, "got cat; classes: cat, dog"),
        ({"bird": 0.2, "dog": 0.3, "cat": 0.5}, "got bird, dog, cat; "),
    ):
        with pytest.raises(InputError, match=f"prior must give a share to every class, {said}"):
            even.with_prior(prior, trained=[0.5, 0.5])


def test_a_column_of_one_value_is_refused_with_what_it_holds():
    for value, said in (("x" * 60, "'" + "x" * 39), (3, "3"), ([1, 2, 3], "3")):
        with pytest.raises(InputError, match=f"column 'site' must have 2 values, got {said}$"):
            Predictions([[1.0, 0.0], [0.0, 1.0]], [0, 1], columns={"site": value})


def test_one_label_that_is_a_word_is_a_class_too():
    one = Predictions([[2.0, 0.0]], ["dog"], class_names=("cat", "dog"))
    assert one.labels.tolist() == [1]
    assert Predictions(np.zeros((0, 2)), [], class_names=("cat", "dog")).labels.tolist() == []


def test_a_table_of_one_probability_is_of_two_classes_and_one_of_maps_is_told_where_to_go(tmp_path):
    np.savez(
        tmp_path / "one.npz", probs=np.array([0.2, 0.9]), labels=np.array(["no", "yes"]), class_names=["no", "yes"]
    )
    one = Predictions.load(tmp_path / "one.npz")
    assert (one.num_classes, one.class_names, one.labels.tolist()) == (2, ("no", "yes"), [0, 1])
    np.savez(tmp_path / "three.npz", probs=np.array([0.2, 0.9]), labels=[0, 1], class_names=["no", "yes", "other"])
    assert Predictions.load(tmp_path / "three.npz").class_names is None  # they are not those of its classes
    np.savez(tmp_path / "maps.npz", logits=np.zeros((2, 3, 4)), labels=np.zeros(2))
    with pytest.raises(InputError, match="must have outputs n x c, got 2 x 3 x 4; of segmented images make"):
        Predictions.load(tmp_path / "maps.npz")
