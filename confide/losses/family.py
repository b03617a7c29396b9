"""The family of losses: (logits, labels) -> one value per sample; registry, door and the module for training loops.

Every loss takes logits `n c` and labels: n class indices, or where the formula allows it n x c soft labels whose rows
sum to one. Two keywords are common to all: `class_weights` (c numbers; each sample's value is multiplied by the weight
of its class) and `ignore_index` (samples with that label give 0 and do not count in the mean).
"""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from confide.core.door import InputError, check_choice, numbers
from confide.core.registry import Method, Registry
from confide.core.shapes import Labels, Logits, PerSample
from confide.losses.batch import check_needs, evaluate_batch, reduce_values

LOSSES = Registry("loss")
REDUCTIONS = ("mean", "sum", "none")

LossFunction = Callable[..., PerSample]
L = TypeVar("L", bound="LossModule")


def loss(
    word: str,
    *,
    paper: str,
    corners: tuple[Mapping[str, Any], ...] = (),
    ranges: Mapping[str, tuple[float, float]] | None = None,
    choices: Mapping[str, tuple[Any, ...]] | None = None,
    soft: bool = False,
    batch: bool = False,
) -> Callable[[LossFunction], LossFunction]:
    """Register a loss without state and put the family's door before it.

    Args:
        paper: author, year and identifier.
        corners: option values at their limits; conformance tests run them all.
        ranges: option -> smallest and largest allowed value.
        choices: option -> allowed words.
        soft: whether the formula takes soft labels.
        batch: whether a sample's value depends on the other samples.
    """

    def register(function: LossFunction) -> LossFunction:
        facts = {"ranges": ranges or {}, "choices": choices or {}, "soft": soft, "batch": batch}
        LOSSES.add(word, paper=paper, corners=corners, **facts)(function)
        return _with_door(LOSSES.get(word))

    return register


def stateful_loss(
    word: str,
    *,
    paper: str,
    corners: tuple[Mapping[str, Any], ...] = (),
    ranges: Mapping[str, tuple[float, float]] | None = None,
    choices: Mapping[str, tuple[Any, ...]] | None = None,
    batch: bool = False,
    aliases: Mapping[str, str] | None = None,
) -> Callable[[type[L]], type[L]]:
    """Register a loss with state: a LossModule whose keyword-only constructor arguments are the options.

    Args:
        aliases: other spelling of an option -> the option.
    """

    def register(module: type[L]) -> type[L]:
        facts = {"ranges": ranges or {}, "choices": choices or {}, "soft": False, "batch": batch, "stateful": True}
        LOSSES.add(word, paper=paper, corners=corners, aliases=aliases or {}, **facts)(module)
        module.word = word
        return module

    return register


def one_call(module: type[LossModule]) -> LossFunction:
    """A loss with state as a function: one call from fresh state."""

    def call(
        logits: Logits,
        labels: Labels,
        *positional: Any,
        class_weights: Any = None,
        ignore_index: int | None = None,
        **options_and_needs: Any,
    ) -> PerSample:
        needs = {name: options_and_needs.pop(name) for name in module.needs if name in options_and_needs}
        options = LOSSES.get(module.word).named(positional, options_and_needs)
        fresh = create(module.word, reduction="none", class_weights=class_weights, ignore_index=ignore_index, **options)
        values: Tensor = fresh(logits, labels, **needs)
        return values

    call.__name__ = call.__qualname__ = module.word
    call.__doc__ = f"{inspect.getdoc(module)}\n\nAs a function: one call from fresh state; `create` keeps the state."
    call.__module__ = module.__module__
    return call


def names() -> tuple[str, ...]:
    """All words of the family."""
    return LOSSES.names()


def create(
    word: str,
    *,
    reduction: str = "mean",
    class_weights: Any = None,
    ignore_index: int | None = None,
    **options: Any,
) -> LossModule:
    """The loss of that word as nn.Module: forward(logits, labels, **needs); `.needs` names what each call must bring.

    Args:
        reduction: `mean`, `sum` or `none` (one value per sample).
        class_weights: c numbers; the mean divides by the sum of the weights, as torch does.
        ignore_index: label of samples to leave out.
    """
    method = LOSSES.get(word)
    options = method.checked(options)
    check_choice(reduction, REDUCTIONS, "reduction")
    if method.facts.get("stateful"):
        module: LossModule = method.function(**options)
    else:
        module = FunctionLoss(method, options)
    module.word, module.reduction, module.ignore_index = word, reduction, ignore_index
    if class_weights is not None:
        module.register_buffer("class_weights", _as_weights(class_weights))
    return module


class LossModule(nn.Module, ABC):
    """A loss in someone's training loop; subclasses say what one value per sample is."""

    word: str = ""
    needs: tuple[str, ...] = ()
    reduction: str = "mean"
    ignore_index: int | None = None
    class_weights: Tensor | None

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("class_weights", None)

    @abstractmethod
    def values(self, logits: Logits, labels: Labels, **needs: Any) -> PerSample:
        """One value per sample; logits and labels have passed the door."""

    def forward(self, logits: Logits, labels: Labels, **needs: Any) -> Tensor:
        method = LOSSES.get(self.word)
        given = {**self.bound_needs(), **needs}
        check_needs(self.word, (*self.needs, *self.bound_needs()), given)
        values, mass = evaluate_batch(method, self.values, logits, labels, given, self.class_weights, self.ignore_index)
        return reduce_values(values, mass, self.reduction)

    def bound_needs(self) -> dict[str, Any]:
        """Needs that were given once, at creation."""
        return {}

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
        """State moves with the model but keeps its precision: 8 bits hold neither a chain of gammas nor counts."""

        def moved(state: Tensor) -> Tensor:
            there = fn(state)
            return there if there.dtype == state.dtype else state.to(there.device)

        done: nn.Module = super()._apply(moved, recurse)  # type: ignore[no-untyped-call]
        return done

    def end_epoch(self) -> None:
        """What the loss does when a pass over the training set ends; most do nothing."""

    def log(self) -> dict[str, float]:
        """What a training log should keep of the loss after every epoch; most have nothing to tell."""
        return {}

    def extra_repr(self) -> str:
        return f"'{self.word}', reduction='{self.reduction}'"


class FunctionLoss(LossModule):
    """A loss without state, with its options bound."""

    def __init__(self, method: Method, options: Mapping[str, Any]) -> None:
        super().__init__()
        self.method = method
        self.options = {k: v for k, v in options.items() if k in method.options}
        self.bound = {k: v for k, v in options.items() if k not in method.options}
        self.needs = tuple(name for name in method.needs if name not in self.bound)

    def values(self, logits: Logits, labels: Labels, **needs: Any) -> PerSample:
        values: Tensor = self.method.function(logits, labels, **self.options, **needs)
        return values

    def bound_needs(self) -> dict[str, Any]:
        return self.bound

    def __getstate__(self) -> dict[str, Any]:
        # The registered function hides behind the door that has its name, where pickle does not find it.
        return {**self.__dict__, "method": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.method = LOSSES.get(self.word)


def _with_door(method: Method) -> LossFunction:
    function = method.function

    @functools.wraps(function)
    def checked(
        logits: Logits,
        labels: Labels,
        *positional: Any,
        class_weights: Any = None,
        ignore_index: int | None = None,
        **given: Any,
    ) -> PerSample:
        given = method.checked(method.named(positional, given) if positional else given)
        needs = {name: given.pop(name) for name in method.needs if name in given}
        check_needs(method.word, method.needs, needs)
        weights = None if class_weights is None else _as_weights(class_weights)
        bound = functools.partial(function, **given)
        return evaluate_batch(method, bound, logits, labels, needs, weights, ignore_index)[0]

    signature = inspect.signature(function)
    extra = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None)
        for name in ("class_weights", "ignore_index")
    ]
    checked.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *extra])  # type: ignore[attr-defined]
    return checked


def _as_weights(class_weights: Any) -> Tensor:
    weights = numbers(class_weights, "class_weights").detach()
    if weights.ndim != 1 or not bool(((weights >= 0) & torch.isfinite(weights)).all()):
        raise InputError("class_weights must be one finite number >= 0 per class; give c of them")
    return weights if weights.is_floating_point() else weights.to(torch.float32)
