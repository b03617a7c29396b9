"""What every loss shares: the registry, the checks of a batch, class weights, ignored samples, and the module for
training loops.

Every loss takes logits `n c` and labels: n class indices, or where the formula allows it n x c soft labels whose rows
sum to one. Two keywords are common to all: `class_weights` (c numbers; each sample's value is multiplied by the weight
of its class) and `ignore_index` (samples with that label give 0 and do not count in the mean).
"""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from confide.checks import InputError, OptionError, check_choice, tensor_with_graph
from confide.registry import Method, OptionSpec, Registry
from confide.simplex.statistics import mean_of
from confide.types import Labels, Logits, PerSample

# One batch at the door of the losses: what must hold, class weights, ignored samples, and the reduction.

PER_SAMPLE_NEEDS = ("ids", "weights", "groups")
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def evaluate_batch(
    method: Method[LossSpec],
    values_of: Callable[..., Tensor],
    logits: Any,
    labels: Any,
    needs: Mapping[str, Any],
    class_weights: Tensor | None,
    ignore_index: int | None,
) -> tuple[Tensor, Tensor | None]:
    """One value per sample, and the sum of weights that a mean divides by (None: the number of samples)."""
    logits, labels = check_batch(method.word, logits, labels, bool(method.spec.soft))
    given = (
        {name: check_need(method.word, name, value, logits.shape[0]) for name, value in needs.items()} if needs else {}
    )
    if ignore_index is None or labels.ndim == 2:
        values, keep = values_of(logits, labels, **given), None
        if labels.ndim == 2 and values.device.type == "cpu" and not bool(torch.isfinite(values).all()):
            row = int((~torch.isfinite(values)).nonzero()[0])
            raise InputError(f"logits and soft labels must be finite, they are not at sample {row} of {len(values)}")
    else:
        keep = labels != ignore_index
        values = _values_without_ignored(method, values_of, logits, labels, given, keep)
    if class_weights is None:
        return values, None if keep is None else keep.sum().to(values.dtype)
    weights = weights_of_samples(class_weights.to(values), labels, logits.shape[1], keep)
    return values * weights, weights.sum()


def _values_without_ignored(
    method: Method[LossSpec],
    values_of: Callable[..., Tensor],
    logits: Tensor,
    labels: Tensor,
    needs: Mapping[str, Any],
    keep: Tensor,
) -> Tensor:
    """Zero for ignored samples. Where samples act on each other the ignored ones are taken out first."""
    if not method.spec.batch:
        values = values_of(logits, torch.where(keep, labels, 0), **needs)
        return torch.where(keep, values, torch.zeros_like(values))
    rows = keep.nonzero().squeeze(1)
    kept_needs = {k: v[rows] if k in PER_SAMPLE_NEEDS else v for k, v in needs.items()}
    kept = values_of(logits[rows], labels[rows], **kept_needs)
    return kept.new_zeros(len(logits)).index_put((rows,), kept)


def weights_of_samples(class_weights: Tensor, labels: Tensor, num_classes: int, keep: Tensor | None) -> Tensor:
    """The weight of each sample's class; for soft labels the expected weight; 0 for ignored samples."""
    if len(class_weights) != num_classes:
        raise InputError(f"class_weights must be {num_classes} numbers, one per class, got {len(class_weights)}")
    if labels.ndim == 2:
        return (labels.to(class_weights.dtype) * class_weights).sum(dim=1)
    weights = class_weights[labels.clamp(0, num_classes - 1)]
    return weights if keep is None else torch.where(keep, weights, torch.zeros_like(weights))


def reduce_values(values: Tensor, mass: Tensor | None, reduction: str) -> Tensor:
    """Mean, sum or the values themselves; the mean of nothing is 0."""
    if reduction == "none":
        return values
    if reduction == "mean" and mass is None and values.shape[0]:
        return mean_of(values)
    total = values.sum()
    if reduction == "sum" or mass is None:
        return total
    return total / torch.where(mass > 0, mass, torch.ones_like(mass))


def check_needs(word: str, wanted: tuple[str, ...], given: Mapping[str, Any]) -> None:
    """Every need of the loss must come with the call, and nothing else: what a loss ignored would seem to act."""
    for name in wanted:
        if given.get(name) is None:
            raise InputError(f"loss '{word}' needs {name} with every batch; pass {name}=...")
    for name in given:
        if name not in wanted:
            takes = " and ".join(("logits", "labels", *wanted))
            raise OptionError(f"loss '{word}' takes {takes} with every batch, got {name}; leave it out")


def check_need(word: str, name: str, value: Any, n: int) -> Any:
    """What a call brings beside logits and labels: one value per sample where the name says so."""
    if name not in PER_SAMPLE_NEEDS:
        return value
    tensor = tensor_with_graph(value, name)
    if tensor.shape != (n,):
        raise InputError(f"{name} must be {n} values, one per sample of the batch, got shape {tuple(tensor.shape)}")
    return tensor.detach()


def check_batch(word: str, logits: Any, labels: Any, soft: bool) -> tuple[Tensor, Tensor]:
    """Shapes and dtypes of a batch; values are checked by the pass over the logits itself."""
    logits, labels = tensor_with_graph(logits, "logits"), tensor_with_graph(labels, "labels")
    if logits.ndim != 2 or logits.shape[1] < 2:
        raise InputError(
            f"logits must be n x c with at least two classes, got shape {tuple(logits.shape)}; reshape them"
        )
    if logits.dtype not in DTYPES:
        raise InputError(
            f"logits must be floating point of 16, 32 or 64 bits, got {logits.dtype}; pass the model's raw outputs"
        )
    if labels.device != logits.device:
        raise InputError(f"labels must be on the device of the logits, {logits.device}, got {labels.device}; move them")
    if labels.ndim == 2 and labels.is_floating_point():
        return logits, _check_soft(word, logits, labels, soft)
    if labels.shape != logits.shape[:1]:
        raise InputError(
            f"labels must be {len(logits)} class indices, one per row of logits, got shape {tuple(labels.shape)}; "
            "make them one vector"
        )
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise InputError(f"labels must be integer class indices, got {labels.dtype}; convert them with .long()")
    return logits, labels if labels.dtype == torch.int64 else labels.to(torch.int64)


def _check_soft(word: str, logits: Tensor, labels: Tensor, soft: bool) -> Tensor:
    if labels.shape != logits.shape:
        raise InputError(
            f"soft labels must be of the logits' shape {tuple(logits.shape)}, got shape {tuple(labels.shape)}; "
            "give one share per class"
        )
    if not soft:
        raise InputError(
            f"loss '{word}' needs class indices: its formula has one true class, got soft labels; "
            "for mixup take lam * loss(logits, a) + (1 - lam) * loss(logits, b)"
        )
    if labels.device.type == "cpu" and len(labels):
        # Shares rounded to 8 bits sum to one only within those.
        narrow = labels.element_size() < 4
        sums = labels.sum(dim=1, dtype=torch.float32 if narrow else None)
        fine = ((sums - 1).abs() <= (1e-2 if narrow else 1e-3)) & (labels.amin(dim=1) >= 0)
        if not bool(fine.all()):
            row = int((~fine).nonzero()[0])
            raise InputError(
                f"soft labels must be >= 0 and sum to 1 in every row, got {_first_numbers(labels[row])} "
                f"at sample {row} of {len(labels)}; normalise them"
            )
    return labels.detach()


def _first_numbers(values: Tensor) -> str:
    """The first numbers of a row, for a message."""
    shown = ", ".join(f"{value:.4g}" for value in values[:4].tolist())
    return f"[{shown}{', ...' if len(values) > 4 else ''}]"


# The family of losses: (logits, labels) -> one value per sample; registry, door and the module for training loops.
#
# Every loss takes logits `n c` and labels: n class indices, or where the formula allows it n x c soft labels whose
# rows sum to one. Two keywords are common to all: `class_weights` (c numbers; each sample's value is multiplied by
# the weight of its class) and `ignore_index` (samples with that label give 0 and do not count in the mean).


@dataclass(frozen=True, kw_only=True)
class LossSpec(OptionSpec):
    """What is said of a loss: takes soft labels; a value depends on the batch; a module with state, not a function."""

    soft: bool
    batch: bool
    stateful: bool = False


LOSSES = Registry("loss", LossSpec)
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
        return _with_checks(LOSSES.get(word))

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


def as_function(module: type[LossModule]) -> LossFunction:
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
    if method.spec.stateful:
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

    def __init__(self, method: Method[LossSpec], options: Mapping[str, Any]) -> None:
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


def _with_checks(method: Method[LossSpec]) -> LossFunction:
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
    weights = tensor_with_graph(class_weights, "class_weights").detach()
    if weights.ndim != 1 or not bool(((weights >= 0) & torch.isfinite(weights)).all()):
        raise InputError("class_weights must be one finite number >= 0 per class; give c of them")
    return weights if weights.is_floating_point() else weights.to(torch.float32)
