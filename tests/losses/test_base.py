"""The door of the losses: options, what calls bring, and one clear line for what cannot be."""

from __future__ import annotations

import copy
import io
import pickle
import warnings

import numpy as np
import pytest
import torch

from confide import losses, penalties
from confide.checks import InputError, OptionError

NEEDS = {
    "difficulty_entropy": {"weights": torch.rand(4)},
    "class_balanced": {"class_counts": [5, 6, 7]},
    "crl": {"ids": torch.arange(4)},
    "group_dro": {"groups": torch.tensor([0, 1, 0, 1])},
    "adaptive_difficulty": {"groups": torch.tensor([0, 1, 0, 1])},
}
LABELS = torch.tensor([0, 1, 2, 1])


@pytest.fixture
def logits():
    return torch.randn((4, 3), generator=torch.Generator().manual_seed(0))


def test_options_may_be_numbers_of_numpy(logits):
    expected = losses.entropy_regularization(logits, LABELS, alpha=0.5)
    assert torch.equal(losses.entropy_regularization(logits.requires_grad_(), LABELS, alpha=np.float32(0.5)), expected)
    assert len(losses.create("adafocal", bins=np.int64(7)).gammas) == 7
    assert losses.create("mmce", sqrt=np.True_).options == {"sqrt": True}


def test_options_may_be_given_by_position_in_the_order_of_the_signature(logits):
    assert torch.equal(losses.focal(logits, LABELS, 2.0), losses.focal(logits, LABELS, gamma=2.0))
    by_name = losses.selective_au(logits, LABELS, score="margin", coverage=0.7, smoothing=0.1, bins=32, form="released")
    assert torch.equal(losses.selective_au(logits, LABELS, "margin", 0.7, 0.1, 32, "released"), by_name)
    assert torch.equal(penalties.mmce(logits, LABELS, 0.1), penalties.mmce(logits, LABELS, kernel_width=0.1))
    with pytest.raises(OptionError, match="loss 'focal' got its option 'gamma' twice"):
        losses.focal(logits, LABELS, 2.0, gamma=3.0)
    with pytest.raises(OptionError, match="takes these options by position: none; got 1 of them"):
        losses.brier(logits, LABELS, 2.0)


def test_the_factor_of_selective_au_is_known_by_the_spelling_of_the_paper_too(logits):
    expected = losses.selective_au(logits, LABELS, include_c=True)
    assert torch.equal(losses.selective_au(logits, LABELS, include_C=True), expected)


@pytest.mark.parametrize(
    ("word", "options", "line"),
    [
        ("group_dro", {"num_groups": 2.5}, "num_groups of loss 'group_dro' must be a whole number, got 2.5"),
        ("adafocal", {"bins": 15.5}, "bins of loss 'adafocal' must be a whole number, got 15.5"),
        ("focal", {"gamma": None}, "gamma of loss 'focal' must be a number, got None"),
        ("adafocal", {"rate": None}, "rate of loss 'adafocal' must be a number, got None"),
        ("focal", {"detach_weight": "no"}, "detach_weight of loss 'focal' must be one of True, False, got 'no'"),
        ("poly1", {"epsilon": float("nan")}, "epsilon of loss 'poly1' must lie in"),
        ("group_dro", {"adjustment": 1.0, "group_counts": "ab"}, "group_counts must be a tensor, or an array or list"),
        (
            "focal",
            {"class_weights": [1.0, float("inf"), 1.0]},
            "class_weights must be one finite number >= 0 per class",
        ),
        ("focal", {"class_weights": "abc"}, "class_weights must be a tensor, or an array or list of numbers, got str"),
    ],
)
def test_an_option_that_cannot_be_gets_one_clear_line(word, options, line):
    with pytest.raises(InputError) as error:
        losses.create(word, **options)
    assert str(error.value).startswith(line)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("word", losses.names())
def test_what_a_loss_has_no_use_for_is_refused_not_ignored(word, logits):
    with pytest.raises(OptionError, match=f"loss '{word}' takes logits and labels.* got speed; leave it out"):
        losses.create(word)(logits, LABELS, **NEEDS.get(word, {}), speed=torch.rand(4))


@pytest.mark.parametrize("family", [losses, penalties])
def test_what_is_no_tensor_gets_one_clear_line(family, logits):
    for word in family.names():
        needs = NEEDS.get(word, {}) if family is losses else {}
        with pytest.raises(InputError, match=r"logits must be a tensor, .* got NoneType"):
            getattr(family, word)(None, LABELS, **needs)
        with pytest.raises(InputError, match=r"labels must be a tensor, .* got str"):
            getattr(family, word)(logits, "abc", **needs)
        with pytest.raises(InputError, match=r"logits must be floating point of 16, 32 or 64 bits.*float8"):
            getattr(family, word)(logits.to(torch.float8_e4m3fn), LABELS, **needs)
    with pytest.raises(InputError, match=r"labels must be 4 .* got .*shape \(4, 1\)"):
        family.mmce(logits, LABELS[:, None])


def test_a_negative_soft_label_is_named_by_its_row(logits):
    soft = torch.eye(3)[LABELS]
    soft[2] = torch.tensor([-0.5, 1.5, 0.0])
    with pytest.raises(InputError, match=r"got \[-0.5, 1.5, 0\] at sample 2 of 4; normalise them"):
        losses.cross_entropy(logits, soft)


def test_soft_labels_in_half_precision_need_not_sum_to_one_exactly():
    soft = torch.full((4, 1000), 0.1 / 999)
    soft[:, 0] = 0.9
    soft = soft.to(torch.bfloat16)
    assert bool(((soft.float().sum(dim=1) - 1).abs() > 1e-3).all())
    assert torch.isfinite(losses.cross_entropy(torch.zeros((4, 1000)), soft)).all()


@pytest.mark.parametrize("order", [1.0, 2.0, 3.0, 1.5])
def test_every_order_of_the_norm_refuses_bad_rows(order, logits):
    with pytest.raises(InputError, match="labels must lie in \\[0, 3\\), got 7 at sample 2 of 4"):
        losses.logit_norm(logits, torch.tensor([0, 1, 7, 1]), p=order)
    logits[1, 2] = torch.nan
    with pytest.raises(InputError, match="logits must be finite, got nan at sample 1 of 4"):
        losses.logit_norm(logits, LABELS, p=order)


@pytest.mark.parametrize("word", ["label_smoothing", "logit_norm", "mbls", "entropy_regularization"])
def test_a_logit_of_minus_infinity_is_refused_where_the_formula_has_no_value(word, logits):
    logits[3, 0] = -torch.inf
    with pytest.raises(InputError, match="logits must be finite, got -inf at sample 3 of 4"):
        getattr(losses, word)(logits, LABELS)


def test_a_norm_of_high_order_does_not_overflow():
    logits = torch.tensor([[1e4, -1e4, 0.0]], requires_grad=True)
    value = losses.logit_norm(logits, torch.tensor([0]), alpha=1.0, p=50.0)
    torch.testing.assert_close(value, torch.tensor([1e4 * 2 ** (1 / 50)]))
    (slope,) = torch.autograd.grad(value.sum(), logits)
    torch.testing.assert_close(slope, torch.tensor([[1.0, -1.0, 0.0]]) * 2 ** (1 / 50 - 1))


@pytest.mark.parametrize("word", losses.names())
def test_a_loss_can_be_pickled_as_other_modules(word, logits):
    loss = losses.create(word)
    again = pickle.loads(pickle.dumps(loss))
    assert torch.equal(again(logits, LABELS, **NEEDS.get(word, {})), loss(logits, LABELS, **NEEDS.get(word, {})))
    torch.save(torch.nn.Sequential(torch.nn.Linear(3, 3), loss), io.BytesIO())


@pytest.mark.parametrize("kind", [np.array, list, torch.tensor])
def test_class_counts_changed_in_place_are_noticed(kind, logits):
    counts = kind([5, 6, 7])
    losses.class_balanced(logits, LABELS, class_counts=counts)
    counts[0] = 4000
    found = losses.class_balanced(logits, LABELS, class_counts=counts)
    torch.testing.assert_close(found, losses.class_balanced(logits, LABELS, class_counts=[4000, 6, 7]))


def test_class_counts_made_in_inference_mode_and_counts_that_are_not_numbers(logits):
    with torch.inference_mode():
        counts = torch.tensor([5, 6, 7])
    expected = losses.class_balanced(logits, LABELS, class_counts=[5, 6, 7])
    torch.testing.assert_close(losses.class_balanced(logits, LABELS, class_counts=counts), expected)
    with pytest.raises(InputError, match="class_counts must be at least 1, got nan for class 1"):
        losses.class_balanced(logits, LABELS, class_counts=[1, float("nan"), 2])


def test_probabilities_given_as_logits_are_doubted_once():
    probs = torch.softmax(torch.randn((8, 3), generator=torch.Generator().manual_seed(0)), dim=1)
    labels = torch.arange(8) % 3
    loss = losses.create("focal")
    with pytest.warns(UserWarning, match="loss 'focal' takes logits"):
        loss(probs, labels)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss(probs, labels)
        losses.create("focal")(probs.log(), labels)


def test_a_row_that_is_sure_of_a_class_is_doubted_too():
    with pytest.warns(UserWarning, match="loss 'focal' takes logits"):
        losses.create("focal")(torch.tensor([[1.0, 0, 0], [0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0, 0.5, 0.5]]), LABELS)


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ("T", None),
        ("TVT", "a validation pass went by"),
        ("VT", None),  # nothing was trained before it
        ("TVUT", None),
        ("TUVT", None),
        ("XTVT", None),  # the loop says when epochs end
        ("TE", "an epoch went by"),
        ("E", None),
        ("TUE", None),
        ("UTE", None),
        ("TUETE", "an epoch went by"),
        ("TUETVT", None),
        ("TTT", None),
        ("TTTT", "3 batches went by"),
        ("TTTUTTT", None),
        ("TTTUTTTT", "3 batches went by"),
        ("TETTTTTE", "an epoch went by"),  # once is enough
    ],
)
def test_a_loss_that_learns_from_validation_asks_for_it_when_it_went_by(events, told, monkeypatch):
    monkeypatch.setattr("confide.losses.base.BATCHES_WITHOUT_UPDATE", 3)
    loss, logits = losses.create("adafocal", bins=2), torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    steps = {
        "T": lambda: loss(logits.clone().requires_grad_(), [0, 1]),
        "V": lambda: loss(logits, [0, 1]),
        "U": lambda: loss.update(logits, torch.tensor([0, 1])),
        "E": loss.end_epoch,
        "X": loss.expect_epochs,
    }
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for event in events:
            steps[event]()
    assert [told] * (told is not None) == [str(w.message).split("but ")[1].split(" without")[0] for w in caught]


def test_soft_labels_weigh_as_much_as_their_classes(logits):
    soft, weights = logits.flip(0).softmax(dim=1), torch.tensor([1.0, 2.0, 0.5])
    each = losses.cross_entropy(logits, soft)
    torch.testing.assert_close(losses.cross_entropy(logits, soft, class_weights=weights), each * (soft @ weights))
    mean = losses.create("cross_entropy", class_weights=weights)(logits, soft)
    torch.testing.assert_close(mean, (each * (soft @ weights)).sum() / (soft @ weights).sum())


def test_logits_that_are_not_finite_are_named_by_their_row_with_soft_labels_too(logits):
    logits[2, 1] = torch.nan
    with pytest.raises(InputError, match="they are not at sample 2 of 4"):
        losses.cross_entropy(logits, torch.full((4, 3), 1 / 3))


@pytest.mark.parametrize("word", losses.names())
def test_lists_and_arrays_are_taken_in_every_batch(word, logits):
    """The first batch is looked at more closely than those after it."""
    loss, needs = losses.create(word), NEEDS.get(word, {})
    for kind in (torch.Tensor.tolist, torch.Tensor.numpy):
        wanted = copy.deepcopy(loss)(logits.double(), LABELS, **needs)
        found = loss(kind(logits.double()), kind(LABELS), **needs)
        torch.testing.assert_close(found.double(), wanted)


@pytest.mark.parametrize(
    ("sizes", "told"),
    [
        ((4, 4, 2, 4), 1),
        ((4, 2, 4), 1),
        ((4, 2, 4, 2, 4), 1),  # once is enough
        ((4, 4, 4), 0),
        ((4, 2), 0),
        ((4, 2, 2, 4), 0),  # sizes vary: a small one says nothing
        ((4, 2, 3, 4, 2, 4), 0),
        ((2, 4, 2, 4), 0),
        ((4, 2, "update", 4, 4), 0),
        ((4, 2, "update", 4, 2, 4), 1),
        (("epochs are told", 4, 2, 4), 0),
    ],
)
def test_a_small_batch_among_alike_ones_is_the_end_of_an_epoch(sizes, told):
    loss, generator = losses.create("adafocal", bins=2), torch.Generator().manual_seed(0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for size in sizes:
            if size == "update":
                loss.update(torch.eye(2), torch.tensor([0, 1]))
            elif size == "epochs are told":
                loss.expect_epochs()
            else:
                logits = torch.randn((size, 2), generator=generator)
                loss(logits.requires_grad_(), torch.zeros(size, dtype=torch.int64))
    assert ["a smaller batch, as at the end of an epoch, went by" in str(w.message) for w in caught] == [True] * told


def test_functions_pickle_by_name_and_modules_say_what_they_are():
    for word in losses.names():
        function = getattr(losses, word)
        assert pickle.loads(pickle.dumps(function)) is function
        assert (function.__name__, function.__qualname__) == (word, word)
        assert "One value per sample." in function.__doc__
        assert repr(losses.create(word, reduction="sum")).startswith(f"{type(losses.create(word)).__name__}('{word}', ")


@pytest.mark.parametrize("place", [0, 2])
def test_the_first_bad_row_is_named_in_every_refusal_of_soft_labels(place, logits):
    soft = torch.eye(3)[LABELS]
    soft[place:, 0] += 0.5
    with pytest.raises(InputError, match=rf"at sample {place} of 4; normalise them"):
        losses.cross_entropy(logits, soft)
    wide = torch.zeros((4, 6))
    wide[:, 0] = 1
    wide[place, 5] = 1
    with pytest.raises(InputError, match=rf"got \[1, 0, 0, 0, \.\.\.\] at sample {place} of 4"):
        losses.cross_entropy(torch.zeros((4, 6)), wide)
    with pytest.raises(InputError, match=rf"got \[1, 0, 0, 1\] at sample {place} of 4"):
        losses.cross_entropy(torch.zeros((4, 4)), wide[:, [0, 1, 2, 5]])


def test_counts_of_classes_begin_at_one(logits):
    assert torch.isfinite(losses.class_balanced(logits, LABELS, class_counts=[1, 1, 1])).all()
    for counts, bad in (([0.999, 2, 3], "0.999 for class 0"), ([2, 2, -1], "-1 for class 2")):
        with pytest.raises(InputError, match=f"class_counts must be at least 1, got {bad}; merge it"):
            losses.class_balanced(logits, LABELS, class_counts=counts)


@pytest.mark.parametrize("weights", [[1.0, 1.0, -1e-9], [[1.0, 2.0, 3.0]], [float("nan"), 1, 1]])
def test_class_weights_that_cannot_weigh_are_refused(weights, logits):
    with pytest.raises(InputError, match="class_weights must be one finite number >= 0 per class"):
        losses.cross_entropy(logits, LABELS, class_weights=weights)
    none = losses.create("cross_entropy", class_weights=[0, 0, 0])(logits, LABELS)
    assert none == 0
    whole = losses.create("cross_entropy", class_weights=[2, 0, 1])(logits, LABELS)
    each = losses.cross_entropy(logits, LABELS)
    torch.testing.assert_close(whole, (2 * each[0] + each[2]) / 3)


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_labels_of_few_bits_are_class_indices_too(dtype, small, logits, monkeypatch):
    if not small:
        monkeypatch.setattr("confide.simplex.statistics.SMALL", 0)
    for word in losses.names():
        found, wanted = (
            getattr(losses, word)(logits, own, **NEEDS.get(word, {})) for own in (LABELS.to(dtype), LABELS)
        )
        assert torch.equal(found, wanted), word
