"""Every check lets pass what it says it does, up to its limits, and refuses the next value beyond them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from confide import checks
from confide.checks import InputError, OptionError

TOP = np.iinfo(np.int64).max


def accepted(check: Any, *args: Any, **options: Any) -> bool:
    try:
        check(*args, **options)
    except InputError:
        return False
    return True


class Column:
    """A column of a data frame."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def to_numpy(self) -> Any:
        return np.array(self.values)

    def __repr__(self) -> str:  # tests are named after their values
        return f"Column({self.values})"


class NAType:
    """What a data frame has where a value is missing."""

    def __repr__(self) -> str:
        return "NA"


ROWS = np.empty(2, dtype=object)
ROWS[:] = [[1, 2], [3, 4]]
RAGGED = np.empty(2, dtype=object)
RAGGED[:] = [[1, 2], [3]]
MIXED = np.empty(2, dtype=object)
MIXED[:] = [[1, 2], 3]
RECORDS = np.array([(1, 2.5), (3, 4.5)], dtype=[("a", "i1"), ("b", "f8")])
FROZEN = np.arange(3)
FROZEN.flags.writeable = False


@pytest.mark.parametrize(
    ("values", "becomes", "dtype"),
    [
        ([1, 2], [1, 2], torch.int64),
        ([True, False], [1, 0], torch.bool),
        (np.array([7, 250], dtype=np.uint8), [7, 250], torch.uint8),
        (np.array([7, 65_000], dtype=np.uint16), [7, 65_000], torch.int64),
        (np.array([7, 4_000_000_000], dtype=np.uint32), [7, 4_000_000_000], torch.int64),
        (np.array([7, TOP], dtype=np.uint64), [7, TOP], torch.int64),
        (np.array([], dtype=np.uint64), [], torch.int64),
        (np.array([1.5, 2], dtype=np.longdouble), [1.5, 2.0], torch.float64),
        (np.array([1, 2], dtype=">i4"), [1, 2], torch.int32),
        (np.array([1.5, 2], dtype=">f8"), [1.5, 2.0], torch.float64),
        (np.arange(4)[::-1], [3, 2, 1, 0], torch.int64),
        (np.arange(4)[::2], [0, 2], torch.int64),
        (np.arange(4).reshape(2, 2)[::-1], [[2, 3], [0, 1]], torch.int64),
        (np.broadcast_to(np.float64(2), (2,)), [2.0, 2.0], torch.float64),
        (FROZEN, [0, 1, 2], torch.int64),
        (RECORDS["b"], [2.5, 4.5], torch.float64),
        (RECORDS["a"], [1, 3], torch.int8),
        (ROWS, [[1, 2], [3, 4]], torch.int64),
        (Column([1, 2]), [1, 2], torch.int64),
        (np.array([1, None], dtype=object), [1.0, float("nan")], torch.float64),
        (np.array([1, NAType()], dtype=object), [1.0, float("nan")], torch.float64),
        (np.array([[1, None], [2, 3.5]], dtype=object), [[1.0, float("nan")], [2.0, 3.5]], torch.float64),
        (np.array([np.int8(1), np.bool_(True), 2.5], dtype=object), [1.0, 1.0, 2.5], torch.float64),
        (np.array([], dtype=object), [], torch.float64),
        (torch.tensor([1.0], requires_grad=True), [1.0], torch.float32),
    ],
    ids=str,
)
def test_numbers_of_every_kind_become_a_tensor(values, becomes, dtype):
    tensor = checks.as_tensor(values, "x")
    assert tensor.dtype == dtype
    assert not tensor.requires_grad
    np.testing.assert_array_equal(tensor.numpy(), np.array(becomes))


@pytest.mark.parametrize(
    "values",
    [
        ["a"],
        np.array(["1"], dtype=object),
        np.array([1, "1"], dtype=object),
        [1 + 2j],
        torch.tensor([1 + 2j]),
        np.array([1, 2 + 1j], dtype=object),
        RAGGED,
        MIXED,
        [[1, 2], [3]],
        np.array([7, TOP + 1], dtype=np.uint64),
        np.array(["2020-01-01"], dtype="datetime64[D]"),
        RECORDS,
        {"a": 1},
    ],
    ids=str,
)
def test_what_are_no_numbers_is_refused(values):
    assert not accepted(checks.as_tensor, values, "x")


def test_a_tensor_keeps_its_graph_where_that_is_wanted_and_shares_memory_where_it_can():
    leaf = torch.ones(2, requires_grad=True)
    assert checks.tensor_with_graph(leaf, "x") is leaf
    assert checks.tensor_with_graph([1, 2], "x").tolist() == [1, 2]
    assert checks.tensor_with_graph(np.array([1, 2], dtype=np.uint16), "x").dtype == torch.int64
    assert not accepted(checks.tensor_with_graph, "word", "x")
    assert not accepted(checks.tensor_with_graph, np.array(["word"]), "x")
    own = np.zeros(3)
    checks.as_tensor(own, "x")[1] = 5
    assert own.tolist() == [0, 5, 0]


@pytest.mark.parametrize(
    ("shape", "passes"), [((3, 2), True), ((0, 2), True), ((3, 1), False), ((3, 0), False), ((3,), False)]
)
def test_logits_are_samples_by_two_classes_or_more(shape, passes):
    assert accepted(checks.check_logits, torch.zeros(shape)) is passes
    assert not accepted(checks.check_logits, torch.zeros(2, 3, 2))


def test_whole_logits_become_float32_and_others_stay():
    assert checks.check_logits(torch.ones(1, 2, dtype=torch.int64)).dtype == torch.float32
    assert checks.check_logits(torch.ones(1, 2, dtype=torch.float64)).dtype == torch.float64


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("shape", [(4,), (4, 3)])
def test_the_first_sample_that_is_not_finite_is_named(value, shape):
    values = torch.zeros(shape)
    checks.check_finite(values, "x")
    values.reshape(4, -1)[2, -1] = value
    values.reshape(4, -1)[3, 0] = value
    with pytest.raises(InputError, match="at sample 2 of 4"):
        checks.check_finite(values, "x")


@pytest.mark.parametrize(
    ("labels", "n", "classes", "passes"),
    [
        ([0, 2], 2, 3, True),
        ([0, 3], 2, 3, False),
        ([-1, 0], 2, 3, False),
        ([0.0, 2.0], 2, 3, True),
        ([0.5, 2.0], 2, 3, False),
        ([0], 2, 3, False),
        ([[0, 1]], 1, 3, False),
        ([], 0, 3, True),
        ([checks.MOST_CLASSES - 1], 1, None, True),
        ([checks.MOST_CLASSES], 1, None, False),
        ([-1], 1, None, False),
        ([True, False], 2, 2, True),
    ],
)
def test_labels_are_classes_from_0(labels, n, classes, passes):
    tensor = torch.tensor(labels)
    assert accepted(checks.check_labels, tensor, n, classes) is passes
    if passes:
        assert checks.check_labels(tensor, n, classes).dtype == torch.int64


def test_the_first_wrong_label_is_named_and_its_likely_cause():
    for labels, words in (([1, 2, 4], "4 at sample 2 of 3"), ([1, 2, 4], "start at 1"), ([0, -1, 5], "-1 at sample 1")):
        with pytest.raises(InputError, match=words):
            checks.check_labels(torch.tensor(labels), 3, 4)
    hints = [checks.label_hint(low, 5) for low in (-1, 0, 1, 2)]
    assert ["start at 1" in hint for hint in hints] == [False, False, True, True]
    assert ["not known" in hint for hint in hints] == [True, False, False, False]


@pytest.mark.parametrize(
    ("row", "passes"),
    [
        ([0.4, 0.6], True),
        ([0.0, 1.0], True),
        ([0.4, 0.6009], True),
        ([0.4, 0.5991], True),
        ([0.4, 0.6011], False),
        ([0.4, 0.5989], False),
        ([-0.0009, 1.0], True),
        ([-0.0011, 1.0], False),
        ([-0.0011, 1.0011], False),
        ([0.0, 1.0009], True),
        ([0.0, 1.0011], False),
    ],
)
def test_probabilities_may_be_a_thousandth_off(row, passes):
    probs = torch.tensor([[0.5, 0.5], row], dtype=torch.float64)
    assert accepted(checks.check_probs, probs) is passes
    if passes:
        found = checks.check_probs(probs)
        assert float(found.min()) >= 0
        assert float(found.max()) <= 1
        inside = min(row) >= 0 and max(row) <= 1
        assert found[1].tolist() == (row if inside else [0, 1])


def test_only_rows_outside_are_normalised_and_the_first_bad_one_is_named():
    probs = torch.tensor([[0.25, 0.7502], [-0.0005, 1.0], [0.0, 0.9995], [1.0, 0.0005]], dtype=torch.float64)
    assert checks.check_probs(probs).tolist() == [[0.25, 0.7502], [0, 1], [0, 0.9995], [1, 0.0005]]
    assert len(checks.check_probs(torch.zeros(0, 3))) == 0
    fine = [0.5, 0.25, 0.25]
    for row in ([2.0, -0.5, -0.5], [0.5, 0.502, -0.002], [1.0015, -0.0005, -0.001]):
        with pytest.raises(InputError, match=r"lie in \[0, 1\].* at sample 1"):
            checks.check_probs(torch.tensor([fine, row, row, fine]))
    with pytest.raises(InputError, match=r"got 0\.7 at sample 1 of 3"):
        checks.check_probs(torch.tensor([[0.5, 0.5], [0.5, 0.2], [0.5, 0.1]]))
    for row, passes in (([1.25, -0.25], True), ([0.5, 0.25], True), ([0.5, 0.125], False), ([1.5, -0.5], False)):
        assert accepted(checks.check_probs, torch.tensor([row]), tolerance=0.25) is passes
    with pytest.raises(InputError, match="at sample 1"):
        checks.check_probs(torch.tensor([[1.25, -0.25], [1.5, -0.25]]), tolerance=0.25)
    with pytest.raises(InputError, match="at sample 1"):
        checks.check_probs(torch.tensor([[1.25, -0.25], [1.25, -0.5]]), tolerance=0.25)


@pytest.mark.parametrize(
    ("ids", "n", "passes"),
    [
        ([3, 1, 2], 3, True),
        ([1, 2, 3], 3, True),
        ([1, 1], 2, False),
        ([1, 2, 2], 3, False),
        ([2, 1, 2], 3, False),
        (["a", "b"], 2, True),
        (["a", "a"], 2, False),
        (np.array([1, "a"], dtype=object), 2, True),
        (np.array([1, "1"], dtype=object), 2, False),
        (np.array([1, 2], dtype=np.uint8), 2, True),
        ([1.5, 2.5], 2, False),
        ([True, False], 2, False),
        ([1, 2], 3, False),
        ([[1, 2]], 1, False),
        ([1], 1, True),
        (np.array([], dtype=np.int64), 0, True),
    ],
    ids=str,
)
def test_ids_are_unique_whole_numbers_or_words(ids, n, passes):
    assert accepted(checks.check_ids, ids, n) is passes


@pytest.mark.parametrize(
    ("weights", "n", "passes"),
    [
        ([1, 2], 2, True),
        ([0, 1e-9], 2, True),
        ([0, 0], 2, False),
        ([], 0, True),
        ([1, -1e-9], 2, False),
        ([1, float("nan")], 2, False),
        ([1, float("inf")], 2, False),
        ([1], 2, False),
        ([[1, 2]], 1, False),
    ],
)
def test_weights_are_finite_and_one_is_above_0(weights, n, passes):
    assert accepted(checks.check_weights, weights, n) is passes
    if passes:
        assert checks.check_weights(weights, n).tolist() == weights


@pytest.mark.parametrize(
    ("value", "default", "becomes"),
    [
        (3, 1, 3),
        (3.0, 1, 3),
        (np.int8(3), 1, 3),
        (np.float32(3), 1, 3),
        (np.float32(2.5), 1.0, 2.5),
        (2.5, 1.0, 2.5),
        (2.5, None, 2.5),
        (0, 1, 0),
        (5, 1, 5),
        (None, None, None),
        (None, 1, InputError),
        (2.5, 1, InputError),
        (np.float64(2.5), 1, InputError),
        (5.01, 1.0, InputError),
        (-0.01, 1.0, InputError),
        (float("nan"), 1.0, InputError),
        (True, 1, InputError),
        (np.bool_(True), 1, InputError),
        ("3", 1, InputError),
        ([3], 1, InputError),
    ],
    ids=str,
)
def test_a_number_is_plain_and_whole_where_its_default_is(value, default, becomes):
    if becomes is InputError:
        assert not accepted(checks.check_number, value, "x", default, 0, 5)
    else:
        found = checks.check_number(value, "x", default, 0, 5)
        assert found == becomes
        assert type(found) is type(becomes)


def test_the_ends_of_a_number_and_of_a_range_are_open_where_it_is_said():
    for open_, passes in ((False, True), (True, False)):
        assert accepted(checks.check_number, 0, "x", 1.0, 0, 5, low_open=open_) is passes
        assert accepted(checks.check_number, 5, "x", 1.0, 0, 5, high_open=open_) is passes
    assert accepted(checks.check_range, 1e300, "x")
    assert not accepted(checks.check_range, "a", "x", 0)
    with pytest.raises(InputError, match=r"\(-inf, 1\]"):
        checks.check_range(2, "x", high=1)
    with pytest.raises(InputError, match=r"\[0, inf\)"):
        checks.check_range(-1, "x", 0)
    with pytest.raises(InputError, match=r"\(0, 1\)"):
        checks.check_range(2, "x", 0, 1, low_open=True, high_open=True)
    assert accepted(checks.check_choice, 1, (1, 2), "x")
    assert not accepted(checks.check_choice, 3, (1, 2), "x")


@pytest.mark.parametrize(
    ("value", "passes"),
    [
        (0, True),
        (2**53, True),
        (-(2**53), True),
        (2**53 + 1, False),
        (-(2**53) - 1, False),
        (np.int32(7), True),
        (True, False),
        (1.0, False),
        ("1", False),
        (None, False),
    ],
)
def test_seeds_are_whole_numbers_that_a_float_holds(value, passes):
    assert accepted(checks.check_seed, value) is passes
    if passes:
        assert type(checks.check_seed(value)) is int


@pytest.mark.parametrize(
    ("value", "passes"),
    [
        ("run", True),
        ("a" * 80, True),
        ("a" * 81, False),
        ("ü" * 40, True),
        ("ü" * 41, False),
        ("", False),
        (5, False),
        (".run", False),
        ("r.un", True),
        ("a/b", False),
        ("a\\b", False),
        ("a\nb", False),
        ("a b", True),
        (None, False),
    ],
)
def test_names_stay_in_their_folder(value, passes):
    assert accepted(checks.check_name, value, "name") is passes


@pytest.mark.parametrize(
    ("value", "annotation", "passes"),
    [
        *((v, "int", p) for v, p in ((1, True), (1.0, True), (1.5, False), ("1", False), (True, False), (None, False))),
        *((v, "int", abs(v) < 2**63) for v in (2**63 - 1, 2**63, -(2**63) + 1, -(2**63))),
        *((v, "float", p) for v, p in ((1, True), (1.5, True), (True, False), ("1", False), (None, False))),
        *((v, "float", abs(v) < 10**300) for v in (10**300 - 1, 10**300, -(10**300))),
        *((v, "str", p) for v, p in (("a", True), (1, False), (None, False), (True, False))),
        *((v, "bool", p) for v, p in ((True, True), (False, True), (1, False), (None, False))),
        *((v, "None", p) for v, p in ((None, True), (0, False), (False, False))),
        *((v, "int | None", p) for v, p in ((1, True), (None, True), ("a", False))),
        *((v, "Options", p) for v, p in (({"a": 1}, True), ({1: 1}, False), ([1], False), ({}, True))),
        *((v, "tuple[int, ...]", p) for v, p in (([1, 2], True), ((), True), ([1, "a"], False), (1, False))),
        *(
            (v, "tuple[int, str]", p)
            for v, p in (([1, "a"], True), ([1], False), (["a", 1], False), ([1, 2], False), ("1a", False))
        ),
        *((v, "tuple[int, str]", p) for v, p in (([1, "a", 2], False), ([], False))),
        *((v, "Mapping[str, int]", p) for v, p in (({"a": 1}, True), ({"a": "b"}, False), ({1: 1}, False))),
        *((v, "Mapping[str, int]", p) for v, p in (({}, True), ([], False), (5, False))),
        *((v, "Predictions", True) for v in (1, None, "a")),
        *((v, "not an annotation", True) for v in (1, None)),
    ],
    ids=lambda v: repr(v)[:24],
)
def test_a_value_is_of_the_kind_that_its_field_says(value, annotation, passes):
    assert accepted(checks.check_kind, value, annotation, "x") is passes


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        ("int | None", "a whole number or nothing"),
        ("tuple[str, ...]", "a list, each a word"),
        ("tuple[int, str]", "a list of a whole number, a word"),
        ("Mapping[str, float]", "names, each with a number"),
        ("Options", "values by name"),
    ],
)
def test_a_refused_kind_is_told_in_words(annotation, words):
    with pytest.raises(InputError, match=f"must be {words}, got"):
        checks.check_kind(object(), annotation, "x")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("12345678901", 12345678901),
        ("123456789012", None),
        ("²", None),
        ("-1", None),
        ("", None),
        ("٣", None),
    ],
)
def test_only_plain_digits_are_a_number(text, number):
    assert checks.number_of_digits(text) == number


def test_an_unknown_word_is_answered_by_the_nearest_or_by_all():
    assert "'weights'" in checks.did_you_mean("sample_weight", [])
    assert "'weights'" in checks.did_you_mean("sample_weights", ["a"])
    assert checks.did_you_mean("temprature", ["vector", "temperature"]) == "did you mean 'temperature'?"
    assert checks.did_you_mean("zzz", ["b", "a"]) == "known: a, b"
    assert checks.did_you_mean("zzz", []) == "known: none"
    checks.check_options("w", "family", {"a": 1}, ["a"])
    for option, known, answer in (("b", ["a"], "known: a"), ("b", [], "it takes none"), ("sample_weight", [], "weig")):
        with pytest.raises(OptionError, match=answer):
            checks.check_options("w", "family", {option: 1}, known)
    assert checks.printable("a\x1b[1m\n b") == "a\ufffd[1m b"
