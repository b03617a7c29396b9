"""What is special to losses with state: how it moves, and that it can be saved."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

from confide import losses
from confide.checks import InputError


def overconfident(n=400, num_classes=4, accuracy=0.5, seed=0):
    """Logits of confidence near 0.95 that are right with the given probability."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, num_classes, (n,), generator=generator)
    guess = torch.where(torch.rand(n, generator=generator) < accuracy, labels, (labels + 1) % num_classes)
    logits = functional.one_hot(guess, num_classes).double() * 4
    return logits + torch.rand((n, num_classes), generator=generator, dtype=torch.float64), labels


def test_adafocal_raises_gamma_where_the_network_is_too_sure():
    loss = losses.create("adafocal", rate=1.0)
    loss.update(*overconfident())
    assert bool((loss.gammas > 1).all())
    loss.update(*overconfident(accuracy=1.0))
    assert loss.gammas.shape == (15,)
    assert loss.edges[0] > 0.5


def test_adafocal_switches_sign_and_stays_within_its_bounds():
    loss = losses.create("adafocal", rate=20.0, gamma_min=-2.0, gamma_max=7.0)
    for _ in range(4):
        loss.update(*overconfident(accuracy=0.0))
    assert loss.gammas.max() == 7.0
    for _ in range(40):
        loss.update(
            torch.rand((300, 4)).double() * 0.1 + functional.one_hot(torch.zeros(300).long(), 4),
            torch.zeros(300).long(),
        )
    assert loss.gammas.min() < 0
    assert loss.gammas.min() >= -2.0
    logits, labels = overconfident(8)
    p = logits.softmax(dim=1).gather(1, labels[:, None]).squeeze(1)
    loss.gammas.fill_(-1.0)
    torch.testing.assert_close(loss(logits, labels), (-(1 + p) * p.log()).mean())


@pytest.mark.parametrize("switch", [0.2, 0.35, 0.7])
def test_adafocal_that_has_switched_stays_while_a_bin_is_empty(switch):
    loss = losses.create("adafocal", bins=2, rate=0.1, gamma_max=1.0, gamma_min=-1.0, switch=switch)
    loss.gammas.fill_(switch * 1.0001)
    # One sample lies on the lowest edge and is in no bin: no gap, no change.
    one = torch.tensor([[1.0, 0.0]]), torch.tensor([0])
    sure = torch.tensor([[1.0, 0.0], [1.1, 0.0], [1.2, 0.0]], dtype=torch.float64), torch.zeros(3).long()
    loss.update(*sure)
    assert loss.gammas.tolist() == [-switch, -switch]
    loss.update(*one)
    assert loss.gammas.tolist() == [-switch, -switch]


def test_adafocal_moves_by_the_rate_in_double_precision():
    logits, labels = torch.tensor([[1.0, 0.0], [2.0, 0.0]], dtype=torch.float64), torch.tensor([1, 1])
    loss = losses.create("adafocal", bins=1, rate=0.1)
    loss.update(logits, labels)
    # The sample on the lowest edge is in no bin; the other has confidence 1 / (1 + e^-2) and is wrong.
    assert loss.gammas.item() == pytest.approx(math.exp(0.1 / (1 + math.exp(-2))), rel=1e-14)


def test_an_empty_validation_set_is_refused():
    with pytest.raises(InputError, match="at least one sample"):
        losses.create("adafocal").update(torch.zeros((0, 3)), torch.zeros(0, dtype=torch.int64))


def test_calfocal_is_focal_of_gamma_one_until_it_knows_the_validation_set():
    logits, labels = overconfident(20)
    for case in (1, 2):
        loss = losses.create("calfocal", case=case)
        torch.testing.assert_close(loss(logits, labels), losses.focal(logits, labels, gamma=1.0).mean())
        loss.update(*overconfident())
        assert loss(logits, labels) != losses.focal(logits, labels, gamma=1.0).mean()


def test_crl_counts_by_id_in_training_mode_only_and_grows():
    loss = losses.create("crl")
    logits, labels = torch.eye(3), torch.tensor([0, 1, 0])
    loss(logits, labels, ids=torch.tensor([5, 0, 2]))
    assert loss.counts.tolist() == [1, 0, 0, 0, 0, 1]
    loss.eval()(logits, labels, ids=torch.tensor([5, 0, 2]))
    assert loss.counts.tolist() == [1, 0, 0, 0, 0, 1]
    loss.end_epoch()
    assert loss.passes[0] == 1
    loss.end_epoch()
    assert loss.passes[0] == 2


def test_crl_ranks_neighbours_by_their_history():
    loss = losses.create("crl", num_samples=2)
    loss.counts.copy_(torch.tensor([1, 0]))
    logits = torch.tensor([[0.0, 0.0], [2.0, 0.0]], dtype=torch.float64)
    surer = float(torch.sigmoid(torch.tensor(2.0, dtype=torch.float64)))
    # f = (1, 0), confidence = (0.5, surer): both pairs are ranked the wrong way, by 1 + (surer - 0.5)
    each = losses.create("crl", num_samples=2, reduction="none")
    each.load_state_dict(loss.state_dict())
    plain = functional.cross_entropy(logits, torch.tensor([0, 0]), reduction="none")
    found = each(logits, torch.tensor([0, 0]), ids=torch.tensor([0, 1])) - plain
    torch.testing.assert_close(found, torch.full((2,), 0.5 + surer, dtype=torch.float64))
    with pytest.raises(InputError, match=r"ids must lie in \[0, 2\), got 0 to 9"):
        loss(logits, torch.tensor([0, 0]), ids=torch.tensor([0, 9]))


def test_selective_au_gives_equal_samples_equal_weights_and_forgets_after_an_epoch():
    logits, labels = torch.zeros((5, 3), dtype=torch.float64), torch.arange(5) % 3
    found = losses.selective_au(logits, labels)
    assert found.unique().numel() == 1
    loss = losses.create("selective_au", accumulate=True)
    loss(logits, labels)
    loss(logits, labels)
    assert loss.histogram.sum() == 10
    loss.end_epoch()
    assert loss.histogram.sum() == 0


def test_the_released_entropy_score_of_selective_au_is_a_constant_times_cross_entropy():
    logits, labels = overconfident(64)
    ratio = losses.selective_au(logits, labels, score="entropy", form="released") / losses.cross_entropy(logits, labels)
    torch.testing.assert_close(ratio, torch.full_like(ratio, 0.77432), rtol=1e-5, atol=1e-5)


def test_group_dro_moves_weight_to_the_worse_group_in_training_mode_only():
    loss = losses.create("group_dro", step_size=1.0)
    logits = torch.tensor([[4.0, 0.0], [0.0, 4.0]], dtype=torch.float64)
    labels, groups = torch.tensor([0, 0]), torch.tensor([0, 1])
    value = loss(logits, labels, groups=groups)
    easy, hard = math.log1p(math.exp(-4)), math.log1p(math.exp(4))
    q = math.exp(hard) / (math.exp(hard) + math.exp(easy))
    assert value.item() == pytest.approx(q * hard + (1 - q) * easy)
    before = loss.q.clone()
    loss.eval()(logits, labels, groups=groups)
    assert torch.equal(loss.q, before)
    with pytest.raises(InputError, match=r"groups must lie in \[0, 2\), got 0 to 5"):
        loss(logits, labels, groups=torch.tensor([0, 5]))
    with pytest.raises(InputError, match="an adjustment needs group_counts"):
        losses.create("group_dro", adjustment=1.0)


def test_selective_au_with_detached_weights_has_the_gradient_of_weighted_cross_entropy():
    logits = torch.randn(32, 5, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(0, 5, (32,))
    found = losses.selective_au(logits, labels, detach_weight=True)
    torch.testing.assert_close(found, losses.selective_au(logits, labels))
    (gradient,) = torch.autograd.grad(found.sum(), logits)
    plain = losses.cross_entropy(logits, labels)
    (wanted,) = torch.autograd.grad(plain, logits, (found / plain).detach())
    torch.testing.assert_close(gradient, wanted)
    (through,) = torch.autograd.grad(losses.selective_au(logits, labels).sum(), logits)
    assert not torch.allclose(gradient, through)


def test_group_dro_keeps_its_weights_when_every_loss_is_zero():
    loss = losses.create("group_dro", normalize_loss=True)
    loss(torch.tensor([[1e4, 0.0], [0.0, 1e4]]), torch.tensor([0, 1]), groups=torch.tensor([0, 1]))
    assert loss.q.tolist() == [0.5, 0.5]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("score", ["msp", "margin", "entropy"])
def test_the_released_selective_au_takes_half_precision(score, dtype):
    logits, labels = overconfident(8)
    found = losses.selective_au(logits.to(dtype), labels, score=score, form="released")
    expected = losses.selective_au(logits.to(dtype).double(), labels, score=score, form="released")
    torch.testing.assert_close(found.double(), expected, rtol=2e-2, atol=1e-3)


@pytest.mark.parametrize("cast", ["half", "bfloat16", "float", "double"])
@pytest.mark.parametrize(
    ("word", "options", "needs"),
    [
        ("adafocal", {"class_weights": [1.0, 2.0, 3.0, 4.0]}, {}),
        ("calfocal", {}, {}),
        ("crl", {}, {"ids": torch.arange(40)}),
        ("group_dro", {}, {"groups": torch.arange(40) % 2}),
        ("selective_au", {"accumulate": True}, {}),
        ("adaptive_difficulty", {"base": "adafocal"}, {"groups": torch.arange(40) % 5}),
    ],
)
def test_a_model_cast_to_another_precision_leaves_the_state_as_it_is(word, options, needs, cast):
    logits, labels = overconfident(40)
    plain, held = (losses.create(word, **options) for _ in range(2))
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), held)
    getattr(model, cast)()
    assert model[0].weight.dtype == getattr(torch, cast)
    bands = {"groups": torch.arange(400) % 5} if word == "adaptive_difficulty" else {}
    for loss in (plain, held):
        for _ in range(3):
            if loss.update is not None:
                loss.update(*overconfident(), **bands)
            loss(logits, labels, **needs)
    for name, state in held.state_dict().items():
        torch.testing.assert_close(state, plain.state_dict()[name], rtol=0, atol=0)


def test_adafocal_of_a_large_batch_is_that_of_a_small_one():
    """Of gammas on both sides of 0: the quick way of small batches, and the formula."""
    loss = losses.create("adafocal", bins=3, reduction="none")
    loss.gammas.copy_(torch.tensor([2.0, -1.5, -0.5], dtype=torch.float64))
    logits = 3 * torch.randn(30, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = torch.arange(30) % 4
    log_p = logits.log_softmax(dim=1).gather(1, labels[:, None]).squeeze(1)
    torch.testing.assert_close(loss.from_log_p(log_p), loss(logits, labels))
    gamma = loss.gammas[(log_p.exp() * 3).clamp_max(2).long()]
    base = torch.where(gamma > 0, 1 - log_p.exp(), 1 + log_p.exp())
    torch.testing.assert_close(loss.from_log_p(log_p), -(base ** gamma.abs()) * log_p)


@pytest.mark.parametrize("bins", [4, 200])
def test_bins_of_either_sign_weigh_the_same_in_small_and_in_large_batches(bins, monkeypatch):
    """The formula, the small batch's own form, and passes over a large one; 200 bins have no form of their own."""
    logits, labels = overconfident(60)
    p = logits.softmax(dim=1).gather(1, labels[:, None]).squeeze(1)
    gammas = torch.linspace(-2, 3, bins, dtype=torch.float64)
    accuracy = torch.linspace(0.9, 0.1, bins, dtype=torch.float64)
    accuracy[1] = math.nan
    place = (torch.searchsorted(torch.linspace(0, 1, bins + 1).double(), p, right=True) - 1).clamp(0, bins - 1)
    g = gammas[place]
    expected = {"adafocal": -(torch.where(g >= 0, 1 - p, 1 + p) ** g.abs()) * p.log()}
    sure = torch.where(accuracy[place].isnan(), 0.0, p - accuracy[place].nan_to_num())
    expected["calfocal"] = -((1 - p) ** sure.exp()) * p.log()
    for word, values in expected.items():
        loss = losses.create(word, bins=bins, reduction="none")
        if word == "adafocal":
            loss.gammas.copy_(gammas)
        else:
            loss.set_bins(loss.edges, accuracy, accuracy)
        torch.testing.assert_close(loss(logits, labels), values)
        with monkeypatch.context() as patch:
            patch.setattr("confide.simplex.statistics.SMALL", 0)
            torch.testing.assert_close(loss(logits, labels), values)


@pytest.mark.parametrize(("highest", "lowest", "fits"), [(1, 0, True), (2, 0, False), (1, -1, False)])
def test_groups_are_those_there_are(highest, lowest, fits):
    logits, labels = overconfident(4)
    loss = losses.create("group_dro", num_groups=2)
    groups = torch.tensor([lowest, 0, 1, highest])
    if fits:
        assert torch.isfinite(loss(logits, labels, groups=groups))
    else:
        with pytest.raises(InputError, match=rf"in \[0, 2\), got {lowest} to {highest}"):
            loss(logits, labels, groups=groups)
    assert loss(logits[:0], labels[:0], groups=groups[:0]) == 0


@pytest.mark.parametrize(("ids", "fits"), [((0, 3), True), ((0, 4), False), ((-1, 0), False)])
def test_ids_are_positions_in_the_training_set(ids, fits):
    logits, labels = overconfident(2)
    loss = losses.create("crl", num_samples=4)
    if fits:
        loss(logits, labels, ids=torch.tensor(ids))
        assert loss.counts.sum() == (logits.argmax(dim=1) == labels).sum()
    else:
        with pytest.raises(InputError, match=rf"in \[0, 4\), got {ids[0]} to {ids[1]}; set num_samples"):
            loss(logits, labels, ids=torch.tensor(ids))
    grows = losses.create("crl")
    grows(logits, labels, ids=torch.tensor([0, 6]))
    assert len(grows.counts) == 7
    with pytest.raises(InputError, match="got -1 to 6"):
        grows(logits, labels, ids=torch.tensor([-1, 6]))


@pytest.mark.parametrize("counts", [(3, 0), (-1, 2), (3,), (1, 2, 3), None])
def test_an_adjustment_needs_a_positive_count_for_every_group(counts):
    with pytest.raises(InputError, match="needs group_counts: 2 positive numbers, one per group"):
        losses.create("group_dro", adjustment=1.0, group_counts=counts)
    assert losses.create("group_dro", adjustment=1.0, group_counts=(1, 4)).shift.tolist() == [1.0, 0.5]
