"""What is special to single losses without state: worked numbers and the known losses they become."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

from confide import losses, penalties
from confide.checks import InputError

LOGITS = torch.randn((30, 6), generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2
LABELS = torch.randint(0, 6, (30,), generator=torch.Generator().manual_seed(1))
CROSS_ENTROPY = functional.cross_entropy(LOGITS, LABELS, reduction="none")


def test_focal_of_a_worked_sample():
    logits = torch.tensor([[0.75, 0.25]], dtype=torch.float64).log()
    # (1 - 3/4)^2 * -log(3/4) = 0.0625 * 0.2876821
    assert losses.focal(logits, torch.tensor([0]), gamma=2.0).item() == pytest.approx(0.0625 * 0.28768207245178)


@pytest.mark.parametrize(
    ("word", "options"),
    [
        ("cross_entropy", {}),
        ("focal", {"gamma": 0.0}),
        ("inverse_focal", {"gamma": 0.0}),
        ("dual_focal", {"gamma": 0.0}),
        ("label_smoothing", {"smoothing": 0.0}),
        ("entropy_regularization", {"alpha": 0.0}),
        ("logit_norm", {"alpha": 0.0}),
        ("poly1", {"epsilon": 0.0}),
        ("mbls", {"alpha": 0.0}),
        ("mmce", {"weight": 0.0}),
        ("kde_xe", {"weight": 0.0, "bandwidth": 0.1}),
        ("mdca", {"weight": 0.0}),
    ],
)
def test_it_becomes_cross_entropy_at_its_limit(word, options):
    torch.testing.assert_close(getattr(losses, word)(LOGITS, LABELS, **options), CROSS_ENTROPY)


def test_class_weights_and_ignored_labels_follow_torch():
    weights = torch.tensor([1.0, 2.0, 0.5, 1.0, 3.0, 1.0], dtype=torch.float64)
    labels = LABELS.clone()
    labels[:4] = -1
    found = losses.create("cross_entropy", class_weights=weights, ignore_index=-1)(LOGITS, labels)
    torch.testing.assert_close(found, functional.cross_entropy(LOGITS, labels, weight=weights, ignore_index=-1))


def test_all_ignored_is_zero_not_nan():
    assert losses.create("focal", ignore_index=2)(LOGITS, torch.full((30,), 2)).item() == 0.0


def test_label_smoothing_is_that_of_torch_also_with_soft_labels():
    found = losses.label_smoothing(LOGITS, LABELS, smoothing=0.1)
    torch.testing.assert_close(found, functional.cross_entropy(LOGITS, LABELS, label_smoothing=0.1, reduction="none"))
    soft = LOGITS.flip(0).softmax(dim=1)
    wanted = functional.cross_entropy(LOGITS, soft, label_smoothing=0.1, reduction="none")
    torch.testing.assert_close(losses.label_smoothing(LOGITS, soft, smoothing=0.1), wanted)


def test_mixup_of_two_labels_is_the_mixture_of_two_losses():
    other = (LABELS + 1) % 6
    soft = 0.3 * functional.one_hot(LABELS, 6).double() + 0.7 * functional.one_hot(other, 6).double()
    wanted = 0.3 * CROSS_ENTROPY + 0.7 * functional.cross_entropy(LOGITS, other, reduction="none")
    torch.testing.assert_close(losses.cross_entropy(LOGITS, soft), wanted)


def test_flsd53_takes_gamma_three_at_exactly_a_fifth():
    fifth = torch.tensor([[0.2, 0.8]], dtype=torch.float64).log()
    assert losses.flsd53(fifth, torch.tensor([0])).item() == pytest.approx(0.8**3 * math.log(5))
    below = torch.tensor([[0.19, 0.81]], dtype=torch.float64).log()
    assert losses.flsd53(below, torch.tensor([0])).item() == pytest.approx(-(0.81**5) * math.log(0.19))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("level", [0.0, 0.1, -3.5, 1e4])
def test_flsd53_takes_gamma_three_where_five_classes_are_alike(dtype, level):
    value = losses.flsd53(torch.full((1, 5), level, dtype=dtype), torch.tensor([2])).item()
    assert value == pytest.approx(0.8**3 * math.log(5), rel=1e-5)


def test_dual_focal_forms_differ_on_misclassified_samples_only():
    probs = torch.tensor([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2], [0.5, 0.3, 0.2]], dtype=torch.float64)
    labels = torch.tensor([0, 1, 2])
    paper, released = (losses.dual_focal(probs.log(), labels, gamma=1.0, form=f) for f in ("paper", "released"))
    # paper: p_j is 0.3, 0.5, 0.5; released: 0.3, 0.2, none
    log = -probs[0].log()
    torch.testing.assert_close(paper, torch.stack([0.8 * log[0], 1.2 * log[1], 1.3 * log[2]]))
    torch.testing.assert_close(released, torch.stack([0.8 * log[0], 0.9 * log[1], 0.8 * log[2]]))


def test_aurc_weights_the_surest_sample_by_the_harmonic_number():
    logits = torch.tensor([[3.0, 0.0], [1.0, 0.0], [2.0, 0.0]], dtype=torch.float64)
    each = functional.cross_entropy(logits, torch.zeros(3, dtype=torch.int64), reduction="none")
    # H_3 = 11/6 for the surest, 1/3 for the least, 1/3 + 1/2 between
    weights = torch.tensor([11 / 6, 1 / 3, 5 / 6], dtype=torch.float64)
    torch.testing.assert_close(losses.aurc(logits, torch.zeros(3, dtype=torch.int64)), weights * each)


@pytest.mark.parametrize("num_classes", [2, 3, 10])
def test_the_slope_of_dual_focal_does_not_cancel_where_the_rival_is_certain(num_classes):
    generator = torch.Generator().manual_seed(0)
    logits = torch.linspace(-1e4, 1e4, num_classes)[torch.rand((64, num_classes), generator=generator).argsort(dim=1)]
    labels, weights = logits.argmin(dim=1), torch.randn(64, generator=generator)
    slopes = []
    for wide in (logits.requires_grad_(), logits.detach().double().requires_grad_()):
        values = losses.dual_focal(wide, labels, gamma=5.0) * weights.to(wide.dtype)
        slopes += torch.autograd.grad(values.sum(), wide)
    # -2^5 log p_y: the slope is 32 at the label and -32 at the rival, beside terms of a million that must vanish.
    torch.testing.assert_close(slopes[0].double(), slopes[1], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("score", ["msp", "margin", "entropy"])
def test_the_released_aurc_ranks_half_precision_by_softmax_in_single(score):
    logits = torch.randn((64, 10), generator=torch.Generator().manual_seed(1)).to(torch.bfloat16)
    labels = torch.arange(64) % 10
    found = losses.aurc(logits, labels, score=score, form="released")
    torch.testing.assert_close(found, losses.aurc(logits.float(), labels, score=score, form="released"))


def test_brier_of_a_worked_sample():
    logits = torch.tensor([[0.5, 0.3, 0.2]], dtype=torch.float64).log()
    # 0.5^2 + 0.3^2 + 0.8^2
    assert losses.brier(logits, torch.tensor([2])).item() == pytest.approx(0.98)


def test_mbls_and_mdca_are_cross_entropy_plus_their_penalty():
    mbls = losses.create("mbls", alpha=0.2, margin=1.0)(LOGITS, LABELS)
    torch.testing.assert_close(mbls, CROSS_ENTROPY.mean() + 0.2 * penalties.mbls(LOGITS, LABELS, margin=1.0))
    mdca = losses.create("mdca", weight=2.0)(LOGITS, LABELS)
    shares = functional.one_hot(LABELS, 6).double().mean(dim=0)
    wanted = (LOGITS.softmax(dim=1).mean(dim=0) - shares).abs().mean()
    torch.testing.assert_close(mdca, CROSS_ENTROPY.mean() + 2 * wanted)


def test_class_balanced_weights_sum_to_the_number_of_classes():
    counts = [1000, 100, 10, 5, 2, 1]
    values = losses.class_balanced(LOGITS, LABELS, beta=0.999, class_counts=counts)
    ratio = values / CROSS_ENTROPY
    by_class = torch.stack([ratio[k == LABELS][0] for k in range(6)])
    assert by_class.sum().item() == pytest.approx(6.0)
    assert by_class.diff().min() > 0
    with pytest.raises(InputError, match="class_counts must be at least 1, got 0 for class 2"):
        losses.class_balanced(LOGITS, LABELS, class_counts=[1, 1, 0, 1, 1, 1])


def test_difficulty_weights_outside_the_unit_interval_are_refused():
    with pytest.raises(InputError, match=r"weights must lie in \[0, 1\], got 2 at sample 0 of 30"):
        losses.difficulty_entropy(LOGITS, LABELS, weights=torch.full((30,), 2.0))


def test_an_unknown_loss_is_told_the_nearest():
    with pytest.raises(InputError, match="no loss named 'fokal'; did you mean 'focal'"):
        losses.create("fokal")
