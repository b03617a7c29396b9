"""What holds for every loss, trust loss and penalty: shapes, limits, gradients, invariances and bad input."""

from __future__ import annotations

import inspect
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor

from confide import losses, penalties
from confide.checks import InputError, OptionError
from confide.penalties import PENALTIES
from confide.trust import losses as trust_losses
from confide.trust.losses import TRUST_LOSSES

CASES = [(m.word, dict(corner)) for m in losses.LOSSES for corner in ({}, *m.corners)]
WORDS = list(losses.names())
SOFT = [m.word for m in losses.LOSSES if m.spec.soft]
HARD = [word for word in WORDS if word not in SOFT]
NOT_SHIFT_INVARIANT = ("logit_norm",)
ORDERED = ("crl",)  # pairs neighbours in the batch
STEPS = ("aurc", "selective_au", "kde_xe", "group_dro")  # ranks, a quantile, a bandwidth, q: constants that move
GROUPED = "adaptive_difficulty"  # its update asks for the bands of the validation samples
FORMS_WITHOUT_A_LIMIT = ({"form": "softmax_bce"}, {"form": "focal"})


def batch(n: int = 12, num_classes: int = 5, scale: float = 2.0, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn((n, num_classes), generator=generator, dtype=torch.float64) * scale
    labels = torch.randint(0, num_classes, (n,), generator=generator)
    labels[::2] = logits[::2].argmax(dim=1)
    return logits, labels


def needs_of(word: str, n: int, num_classes: int = 5) -> dict[str, Tensor]:
    return {
        "difficulty_entropy": {"weights": torch.linspace(0, 1, n)},
        "class_balanced": {"class_counts": torch.arange(1, num_classes + 1)},
        "crl": {"ids": torch.arange(n)},
        "group_dro": {"groups": torch.arange(n) % 2},
        "adaptive_difficulty": {"groups": torch.zeros(n, dtype=torch.int64)},
    }.get(word, {})


def values(word: str, options: dict[str, Any], logits: Tensor, labels: Tensor, **more: Any) -> Tensor:
    module = losses.create(word, reduction="none", **options, **more)
    found: Tensor = module(logits, labels, **needs_of(word, len(logits), logits.shape[1]))
    return found


@pytest.mark.parametrize(("word", "options"), CASES, ids=str)
@pytest.mark.parametrize("n", [0, 1, 7])
def test_one_finite_value_per_sample_and_a_finite_gradient(word: str, options: dict[str, Any], n: int) -> None:
    logits, labels = batch(n)
    logits.requires_grad_()
    found = values(word, options, logits, labels)
    assert found.shape == (n,)
    found.sum().backward()
    assert bool(torch.isfinite(found).all())
    assert logits.grad is not None
    assert bool(torch.isfinite(logits.grad).all())


def both_orders(word: str, options: dict[str, Any], logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Values, the gradient of their mean and of a weighted sum, and how a sum over that gradient changes."""
    leaf = logits.clone().requires_grad_()
    module = losses.create(word, **options)
    needs = needs_of(word, len(logits), logits.shape[1])
    mean = module.batch(leaf, labels, **needs).mean()
    (by_mean,) = torch.autograd.grad(mean, leaf)
    found = losses.create(word, reduction="none", **options)(leaf, labels, **needs)
    (slope,) = torch.autograd.grad((found * torch.linspace(1, 2, len(found))).sum(), leaf, create_graph=True)
    (curvature,) = torch.autograd.grad((slope * logits).sum(), leaf)
    return torch.cat([found.detach(), mean.detach()[None]]), torch.cat([by_mean, slope.detach()]), curvature


TWICE = [(word, options) for word, options in CASES if word not in ("mmce", "mmce_weighted", "kde_xe")]


@pytest.mark.parametrize(("word", "options"), TWICE, ids=str)
def test_a_small_batch_gives_what_the_passes_over_a_large_one_give(
    word: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for num_classes in (5,) if options else (5, 40):
        logits, labels = batch(9, num_classes)
        small = both_orders(word, options, logits, labels)
        with monkeypatch.context() as patch:
            patch.setattr("confide.simplex.statistics.SMALL", 0)
            large = both_orders(word, options, logits, labels)
        for one, other in zip(small, large, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("word", ["cross_entropy", "focal", "adafocal", "difficulty_entropy"])
def test_torch_compile_of_a_step_gives_the_same_loss_and_gradient(word: str) -> None:
    logits, labels = batch()
    module = losses.create(word)
    needs = needs_of(word, len(logits))

    def step(scores: Tensor) -> Tensor:
        loss: Tensor = module(scores * 2, labels, **needs)
        return loss

    eager, traced = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    wanted, found = step(eager), torch.compile(step, backend="eager")(traced)
    wanted.backward()
    found.backward()
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(traced.grad, eager.grad)


@pytest.mark.parametrize(("word", "options"), CASES, ids=str)
def test_logits_of_ten_thousand_stay_finite(word: str, options: dict[str, Any]) -> None:
    if options in FORMS_WITHOUT_A_LIMIT:
        pytest.skip("the port that this form reproduces overflows")
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        logits, labels = batch(scale=1e4)
        leaf = logits.to(dtype).requires_grad_()
        found = values(word, options, leaf, labels)
        found.sum().backward()
        assert bool(torch.isfinite(found).all())
        assert leaf.grad is not None
        assert leaf.grad.dtype == dtype
        assert bool(torch.isfinite(leaf.grad).all())


@pytest.mark.parametrize(("word", "options"), CASES, ids=str)
def test_the_gradient_is_that_of_the_value(word: str, options: dict[str, Any]) -> None:
    if word in STEPS or options.get("detach_weight") or options.get("form") == "released":
        pytest.skip("a constant for the gradient moves with the logits")
    logits, labels = batch(6, 4)
    torch.autograd.gradcheck(lambda z: values(word, options, z, labels), (logits.requires_grad_(),), atol=1e-6)


@pytest.mark.parametrize(("word", "options"), CASES, ids=str)
def test_adding_a_constant_to_the_logits_changes_nothing(word: str, options: dict[str, Any]) -> None:
    if word in NOT_SHIFT_INVARIANT or options.get("form") == "focal":
        pytest.skip("the formula sees the logits themselves")
    logits, labels = batch()
    torch.testing.assert_close(
        values(word, options, logits, labels), values(word, options, logits + 7.0, labels), rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize(("word", "options"), CASES, ids=str)
def test_the_order_of_the_batch_does_not_matter(word: str, options: dict[str, Any]) -> None:
    if word in ORDERED:
        pytest.skip("pairs neighbours in the batch")
    logits, labels = batch()
    order = torch.randperm(12, generator=torch.Generator().manual_seed(1))
    needs = needs_of(word, 12)
    moved = {name: v if name == "class_counts" else v[order] for name, v in needs.items()}
    plain = losses.create(word, reduction="none", **options)(logits, labels, **needs)
    mixed = losses.create(word, reduction="none", **options)(logits[order], labels[order], **moved)
    torch.testing.assert_close(mixed, plain[order], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("word", WORDS)
def test_half_precision_is_accumulated_in_float32(word: str) -> None:
    options = {"bandwidth": 0.1} if word == "kde_xe" else {}
    logits, labels = batch(16, 8)
    for dtype in (torch.bfloat16, torch.float16):
        rounded = logits.to(dtype)
        found = values(word, options, rounded, labels)
        assert found.dtype == torch.float32
        torch.testing.assert_close(
            found.double(), values(word, options, rounded.double(), labels), rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize("word", WORDS)
def test_autocast_changes_nothing(word: str) -> None:
    options = {"bandwidth": 0.1} if word == "kde_xe" else {}
    logits, labels = batch(16, 8)
    results = []
    for enabled in (False, True):
        leaf = logits.float().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            found = values(word, options, leaf, labels)
            found.sum().backward()
        results.append((found.detach(), leaf.grad))
    torch.testing.assert_close(results[1], results[0])


@pytest.mark.parametrize("word", WORDS)
def test_columns_that_are_not_contiguous_give_the_same(word: str) -> None:
    logits, labels = batch()
    torch.testing.assert_close(
        values(word, {}, logits.T.contiguous().T, labels), values(word, {}, logits, labels), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("word", WORDS)
def test_reductions_agree(word: str) -> None:
    logits, labels = batch()
    each = values(word, {}, logits, labels)
    for reduction, wanted in (("mean", each.mean()), ("sum", each.sum())):
        module = losses.create(word, reduction=reduction)
        torch.testing.assert_close(module(logits, labels, **needs_of(word, 12)), wanted)


@pytest.mark.parametrize("word", WORDS)
def test_ignored_samples_count_for_nothing(word: str) -> None:
    logits, labels = batch()
    labels[[2, 5]] = -100
    kept = labels != -100
    needs = needs_of(word, 12)
    fewer = {name: v if name == "class_counts" else v[kept] for name, v in needs.items()}
    each = losses.create(word, reduction="none", ignore_index=-100)(logits, labels, **needs)
    alone = losses.create(word, reduction="none")(logits[kept], labels[kept], **fewer)
    torch.testing.assert_close(each[kept], alone)
    assert each[~kept].tolist() == [0.0, 0.0]
    mean = losses.create(word, ignore_index=-100)(logits, labels, **needs)
    torch.testing.assert_close(mean, alone.mean())


@pytest.mark.parametrize("word", WORDS)
def test_class_weights_multiply_each_sample_and_divide_the_mean(word: str) -> None:
    logits, labels = batch()
    weights = torch.tensor([1.0, 2.0, 0.5, 3.0, 1.0])
    each = values(word, {}, logits, labels)
    torch.testing.assert_close(values(word, {}, logits, labels, class_weights=weights), each * weights[labels].double())
    module = losses.create(word, class_weights=weights)
    mean = module(logits, labels, **needs_of(word, 12))
    torch.testing.assert_close(mean, (each * weights[labels]).sum() / weights[labels].double().sum())
    light = losses.create(word, class_weights=weights / 1000)(logits, labels, **needs_of(word, 12))
    torch.testing.assert_close(light, mean)
    with pytest.raises(InputError, match="class_weights must be 5 numbers"):
        values(word, {}, logits, labels, class_weights=[1.0, 2.0])


@pytest.mark.parametrize("word", WORDS)
def test_a_loss_as_a_function_takes_the_batch_its_needs_its_options_and_what_all_share(word: str) -> None:
    parameters = inspect.signature(getattr(losses, word)).parameters
    first, last = list(parameters)[:2], list(parameters)[-2:]
    assert (first, last) == (["logits", "labels"], ["class_weights", "ignore_index"])
    assert [p.kind.name for p in parameters.values()][2:] == ["KEYWORD_ONLY"] * (len(parameters) - 2)
    options = losses.LOSSES.get(word).options
    assert set(list(parameters)[2:-2]) == {*options, *needs_of(word, 12)}
    assert {name: parameters[name].default for name in options} == dict(options)
    with pytest.raises(OptionError, match="takes these options by position"):
        getattr(losses, word)(*batch(), *([0] * (len(options) + 1)))


@pytest.mark.parametrize("word", SOFT)
def test_one_hot_soft_labels_are_the_class_indices(word: str) -> None:
    logits, labels = batch()
    onehot = torch.nn.functional.one_hot(labels, 5).double()
    first, second = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    soft, hard = values(word, {}, first, onehot), values(word, {}, second, labels)
    torch.testing.assert_close(soft, hard)
    soft.sum().backward()
    hard.sum().backward()
    torch.testing.assert_close(first.grad, second.grad)
    with pytest.raises(InputError, match="sum to 1"):
        values(word, {}, logits, onehot * 2)


@pytest.mark.parametrize("word", HARD)
def test_soft_labels_are_refused_where_the_formula_has_one_true_class(word: str) -> None:
    logits, _ = batch()
    with pytest.raises(InputError, match=f"loss '{word}' needs class indices"):
        values(word, {}, logits, logits.softmax(dim=1))


@pytest.mark.parametrize("word", WORDS)
def test_bad_batches_get_one_clear_line(word: str) -> None:
    logits, labels = batch()
    with pytest.raises(InputError, match=r"labels must lie in \[0, 5\), got 5 at sample 3 of 12"):
        values(word, {}, logits, torch.where(torch.arange(12) == 3, 5, labels))
    with pytest.raises(InputError, match=r"labels must lie in \[0, 5\), got -1 at sample 0"):
        values(word, {}, logits, torch.where(torch.arange(12) == 0, -1, labels))
    for bad in (torch.nan, torch.inf):
        broken = logits.clone()
        broken[4, 1] = bad
        with pytest.raises(InputError, match=r"logits must be finite, got (nan|inf) at sample 4 of 12"):
            values(word, {}, broken, labels)
    for wrong in (logits[:, 0], logits[:, :1], logits[None]):
        with pytest.raises(InputError, match="logits must be n x c"):
            losses.create(word)(wrong, labels, **needs_of(word, 12))
    with pytest.raises(InputError, match="logits must be floating point"):
        values(word, {}, logits.long(), labels)
    with pytest.raises(InputError, match="labels must be 12 class indices"):
        losses.create(word)(logits, labels[:5], **needs_of(word, 12))
    with pytest.raises(InputError, match="labels must be integer"):
        values(word, {}, logits, labels.double())


@pytest.mark.parametrize("word", [word for word in WORDS if needs_of(word, 2)])
def test_a_missing_need_or_one_of_wrong_length_is_named(word: str) -> None:
    logits, labels = batch()
    (name,) = needs_of(word, 12)
    with pytest.raises(InputError, match=f"loss '{word}' needs {name} with every batch; pass {name}="):
        losses.create(word)(logits, labels)
    with pytest.raises(InputError, match=f"{name} must be"):
        losses.create(word)(logits, labels, **{name: torch.ones(7, dtype=torch.int64)})


@pytest.mark.parametrize("method", losses.LOSSES, ids=lambda m: m.word)
def test_options_outside_their_range_are_refused(method: Any) -> None:
    for name, (low, high) in method.spec.ranges.items():
        for value in (low - 1.0, high * 2 + 1.0, float("nan")):
            with pytest.raises(InputError, match=f"{name} of loss '{method.word}' must lie in"):
                losses.create(method.word, **{name: value})
        with pytest.raises(InputError, match="must be a number"):
            losses.create(method.word, **{name: "much"})
    for name in method.spec.choices:
        with pytest.raises(InputError, match="must be one of"):
            losses.create(method.word, **{name: "no such word"})
    with pytest.raises(OptionError, match="has no option 'gama'"):
        losses.create(method.word, gama=1.0)


@pytest.mark.parametrize("word", WORDS)
def test_the_function_and_the_module_agree(word: str) -> None:
    logits, labels = batch()
    function = getattr(losses, word)
    torch.testing.assert_close(function(logits, labels, **needs_of(word, 12)), values(word, {}, logits, labels))


@pytest.mark.parametrize("word", WORDS)
def test_state_survives_a_checkpoint(word: str) -> None:
    logits, labels = batch()
    first = losses.create(word)
    for seed in range(3):
        first(*batch(seed=seed), **needs_of(word, 12))
        if first.update is not None:
            first.update(*batch(200, seed=seed), **({"groups": torch.arange(200) % 5} if word == GROUPED else {}))
        first.end_epoch()
    second = losses.create(word)
    second.load_state_dict(first.state_dict())
    for _ in range(2):
        torch.testing.assert_close(
            second(logits, labels, **needs_of(word, 12)), first(logits, labels, **needs_of(word, 12)), rtol=0, atol=0
        )


@pytest.mark.parametrize(("word", "options"), [(m.word, dict(c)) for m in PENALTIES for c in ({}, *m.corners)], ids=str)
def test_penalties_are_one_finite_scalar(word: str, options: dict[str, Any]) -> None:
    function = getattr(penalties, word)
    for n in (0, 1, 9):
        logits, labels = batch(n)
        logits.requires_grad_()
        found = function(logits, labels, **options)
        assert found.shape == ()
        assert bool(torch.isfinite(found))
        if options.get("form") != "released" or word != "kde_xe":
            found.backward()
            assert logits.grad is not None
            assert bool(torch.isfinite(logits.grad).all())
    with pytest.raises(InputError, match="labels must be 9"):
        function(logits, labels[:3])
    with pytest.raises(OptionError, match="has no option"):
        function(logits, labels, nothing=1)


@pytest.mark.parametrize(
    ("word", "options"), [(m.word, dict(c)) for m in TRUST_LOSSES for c in ({}, *m.corners)], ids=str
)
def test_trust_losses_give_one_finite_value_per_sample(word: str, options: dict[str, Any]) -> None:
    function = getattr(trust_losses, word)
    z = torch.tensor([-1e4, -3.0, -0.1, 0.0, 0.2, 5.0, 1e4], dtype=torch.float64, requires_grad=True)
    target = torch.tensor([0.0, 1.0, 0.0, 1.0, 1.0, 0.0, 1.0])
    found = function(z, target, **options)
    assert found.shape == z.shape
    assert bool(torch.isfinite(found).all())
    found.sum().backward()
    assert bool(torch.isfinite(z.grad).all())  # type: ignore[union-attr]
    torch.testing.assert_close(function(z[:, None], target, **options), found)
    if options.get("form") != "released":
        middle = z.detach()[1:-1].requires_grad_()
        torch.autograd.gradcheck(lambda v: function(v + 0.01, target[1:-1], **options), (middle,))
    torch.testing.assert_close(trust_losses.create(word, **options)(z, target), found.mean())
    with pytest.raises(InputError, match="one per oracle output"):
        function(z, target[:3], **options)
    with pytest.raises(InputError, match="z must be finite"):
        function(z.detach() * torch.nan, target, **options)
    with pytest.raises(InputError, match="got 3 at sample 0"):
        function(z, target + 3, **options)


@pytest.mark.parametrize("word", trust_losses.names())
def test_trust_losses_pickle_and_name_what_is_no_tensor(word: str) -> None:
    z, target = torch.tensor([0.5, -1.0]), torch.tensor([1.0, 0.0])
    loss = trust_losses.create(word)
    assert torch.equal(pickle.loads(pickle.dumps(loss))(z, target), loss(z, target))
    with pytest.raises(InputError, match=r"z must be a tensor, .* got NoneType"):
        loss(None, target)
    with pytest.raises(InputError, match=r"must be a tensor, .* got str"):
        loss(z, "right")
