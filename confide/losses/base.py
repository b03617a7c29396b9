"""What every loss shares: the registry, the module for training loops, and the checks of a batch.

Every loss takes logits `n c` and labels: n class indices, or where the formula allows it n x c soft labels whose rows
sum to one. Two keywords are common to all: `class_weights` (c numbers; each sample's value is multiplied by the weight
of its class) and `ignore_index` (samples with that label give 0 and do not count in the mean).

A loss without state is a function with `@loss(word, ...)` above it; one with state is a LossModule with
`@stateful_loss(word, ...)`. `create` makes either an nn.Module for a training loop.
"""

from __future__ import annotations

import functools
import inspect
import sys
import textwrap
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from confide.checks import (
    InputError,
    OptionError,
    as_tensor,
    check_choice,
    check_labels,
    check_logits,
    tensor_with_graph,
)
from confide.registry import Method, OptionSpec, Registry
from confide.simplex.reference import BAD_NUMBER, FusedLoss, LossValues, set_flag
from confide.types import AnyArray, Labels, Logits, Options, PerSample, Scalar

# The registry: word -> loss.


@dataclass(frozen=True, kw_only=True)
class LossSpec(OptionSpec):
    """What is said of a loss: takes soft labels; a value depends on the batch; a module with state, not a function."""

    soft: bool
    batch: bool
    stateful: bool = False
    quick_mean: Callable[[Logits, Labels], Scalar | None] | None = None
    """The mean of a plain batch without its values, or None where the function is as quick."""


LOSSES = Registry("loss", LossSpec)
REDUCTIONS = ("mean", "sum", "none")

LossFunction = Callable[..., PerSample]
Needs = Mapping[str, AnyArray]
"""What a loss needs beside logits and labels, by the names of its signature: ids, weights, groups and the like."""
L = TypeVar("L", bound="LossModule")


def loss(
    word: str, *, paper: str, soft: bool = False, batch: bool = False, **facts: Any
) -> Callable[[Callable[..., LossValues]], LossFunction]:
    """Register a loss without state and put the family's checks before it.

    Args:
        paper: author, year and identifier.
        soft: whether the formula takes soft labels.
        batch: whether a sample's value depends on the other samples.
        facts: `corners`, option values at their limits, all run by conformance tests; `ranges`, option -> smallest and
            largest allowed value; `choices`, option -> allowed words; `aliases`, other spelling of an option -> the
            option.
    """
    facts = {"ranges": {}, "choices": {}, **facts}

    def register(function: Callable[..., LossValues]) -> LossFunction:
        LOSSES.add(word, paper=paper, soft=soft, batch=batch, **facts)(function)
        return _with_checks(LOSSES.get(word))

    return register


def stateful_loss(word: str, *, paper: str, batch: bool = False, **facts: Any) -> Callable[[type[L]], type[L]]:
    """Register a loss with state: a LossModule whose keyword-only constructor arguments are the options."""
    facts = {"ranges": {}, "choices": {}, **facts}

    def register(module: type[L]) -> type[L]:
        LOSSES.add(word, paper=paper, soft=False, batch=batch, stateful=True, **facts)(module)
        module.word = word
        return module

    return register


def names() -> tuple[str, ...]:
    """All words of the family, sorted.

    Returns:
        Words that `create` takes.

    Example:
        >>> "adafocal" in confide.losses.names()
        True
    """
    return LOSSES.names()


def create(
    word: str, *, reduction: str = "mean", class_weights: Any = None, ignore_index: int | None = None, **options: Any
) -> LossModule:
    """The loss of that word as nn.Module: forward(logits, labels, **needs) gives the batch's mean of one value each.

    Args:
        word: which loss; `names()` lists them.
        reduction: `mean`, `sum` or `none` (one value per sample).
        class_weights: c numbers; the mean divides by the sum of the weights, as torch does.
        ignore_index: label of samples to leave out.
        options: of the loss, by name; what a loss needs with every call may be given here once.

    Returns:
        The module, with the loss's state; `.needs` names what each call must bring beside logits and labels.

    Raises:
        InputError: no loss has that word, or an option has a value that it cannot have.
        OptionError: the loss has no such option.

    Example:
        >>> loss = confide.losses.create("focal", gamma=2.0)
        >>> loss([[2.0, 0.0], [0.0, 1.0]], [0, 0])
        tensor(0.3518)
        >>> confide.losses.create("crl").needs
        ('ids',)
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


# The module: a loss in someone's training loop.


BATCHES_WITHOUT_UPDATE = 5_000


class UpdateWatch:
    """Notices where a loss that learns from validation predictions is not given any: an epoch ended, or the model was
    set to eval mode or predictions without gradients were looked at, or a batch was smaller than all the others, or
    very many batches went by, and `update` was not called.
    """

    def __init__(self) -> None:
        self.batches, self.validated, self.warned = 0, False, False
        self.updated_in_epoch = self.told_of_epochs = False
        self.usual_size, self.short_batch = 0, False  # of all batches before a short one; -1 where sizes vary
        self.epoch: int | None = None

    def updated(self) -> None:
        """`update` is being called."""
        self.batches, self.validated, self.updated_in_epoch = 0, False, True
        self.short_batch, self.epoch = False, None

    def validating(self) -> None:
        """Predictions without gradients, or eval mode: a validation pass."""
        self.validated = self.batches > 0 and not self.told_of_epochs

    def trained(self, word: str, size: int) -> None:
        """A batch of training."""
        self.batches += 1
        if self.warned or self.told_of_epochs:
            return
        epoch = lightning_epoch()
        self.epoch = epoch if self.epoch is None else self.epoch
        if self.validated:
            self.warn(word, "a validation pass went by")
        elif epoch != self.epoch:
            self.warn(word, "an epoch went by")
        elif self._came_after_short_batch(size):
            self.warn(word, "a smaller batch, as at the end of an epoch, went by")
        elif self.batches > BATCHES_WITHOUT_UPDATE:
            self.warn(word, f"{BATCHES_WITHOUT_UPDATE:,} batches went by")

    def _came_after_short_batch(self, size: int) -> bool:
        if self.short_batch and size == self.usual_size:
            return True
        if self.usual_size in (0, size):
            self.usual_size = size
        elif size < self.usual_size and not self.short_batch:
            self.short_batch = True
        else:
            self.usual_size = -1
        return False

    def epoch_ended(self, word: str) -> None:
        """The loop says that an epoch ended."""
        if self.batches and not self.updated_in_epoch:
            self.warn(word, "an epoch went by")
        self.batches, self.updated_in_epoch, self.told_of_epochs = 0, False, True

    def warn(self, word: str, what: str) -> None:
        """Say it, once."""
        if not self.warned:
            self.warned = True
            warnings.warn(
                f"loss '{word}' learns from validation predictions, but {what} without update(val_logits, val_labels), "
                "so it stays as it was; call update after every epoch (Lightning: callbacks=[loss_callback()]; Hugging "
                "Face: eval_strategy='epoch')",
                stacklevel=4,
            )


def lightning_epoch() -> int | None:
    """The epoch of the Lightning trainer that calls, if one does: nothing tells a loss of it."""
    loaded = (sys.modules.get(name) for name in ("lightning.pytorch", "pytorch_lightning"))
    trainers = tuple(module.Trainer for module in loaded if module is not None and hasattr(module, "Trainer"))
    frame = sys._getframe() if trainers else None
    while frame is not None:
        if isinstance(caller := frame.f_locals.get("self"), trainers):
            return int(caller.current_epoch)
        frame = frame.f_back
    return None


AnyLoss = TypeVar("AnyLoss", bound="LossModule")


class LossModule(nn.Module, ABC):
    """A loss in someone's training loop; subclasses say what one value per sample is.

    One that adapts to validation predictions has `update(val_logits, val_labels, *, needs)`, which the loop calls after
    every `update_every` batches or, at 0, after every epoch; it warns once where an epoch goes by without. One with a
    history overrides `end_epoch`.
    """

    word: str = ""
    needs: tuple[str, ...] = ()
    reduction: str = "mean"
    ignore_index: int | None = None
    update: ClassVar[Callable[..., None] | None] = None
    update_every: int = 0
    class_weights: Tensor | None

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("class_weights", None)
        self._watch = UpdateWatch()
        self._doubted = False  # the first batch is looked at: probabilities in place of logits train without a word

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if (update := cls.__dict__.get("update")) is not None:

            @functools.wraps(update)
            def watched(self: LossModule, *predictions: Any, **needs: Any) -> None:
                self._watch.updated()
                update(self, *predictions, **needs)

            cls.update = watched

    @abstractmethod
    def values(self, logits: Logits, labels: Labels, **needs: Any) -> LossValues:
        """One value per sample; logits and labels have been checked."""

    def forward(self, logits: Logits, labels: Labels, **needs: Any) -> Tensor:
        return self.batch(logits, labels, **needs).reduced(self.reduction)

    def batch(self, logits: Logits, labels: Labels, **needs: Any) -> BatchLoss:
        """The batch before its reduction."""
        method = LOSSES.get(self.word)
        if not self._doubted and not torch.compiler.is_compiling():
            self._doubted = True
            doubt_probabilities(self.word, logits)
        if self.update is not None and not torch.compiler.is_compiling():
            if isinstance(logits, Tensor) and logits.requires_grad:
                self._watch.trained(self.word, len(logits))
            else:
                self._watch.validating()
        bound = self.bound_needs()
        if needs or self.needs or bound:
            needs = {**bound, **needs}
            check_needs(self.word, (*self.needs, *bound), needs)
        # Not by its name, which torch looks for in three dictionaries.
        class_weights = self._buffers["class_weights"]
        return evaluate_batch(method, self.values, logits, labels, needs, class_weights, self.ignore_index)

    def bound_needs(self) -> Needs:
        """Needs that were given once, at creation."""
        return {}

    @classmethod
    def validation_needs(cls) -> tuple[str, ...]:
        """What `update` takes of the validation samples beside logits and labels, by its signature."""
        if cls.update is None:
            return ()
        parameters = inspect.signature(cls.update).parameters.values()
        return tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty)

    def end_epoch(self) -> None:
        """What the loss does when a pass over the training set ends; most do nothing."""
        if self.update is not None:
            self._watch.epoch_ended(self.word)

    def expect_epochs(self) -> None:
        """The loop will say when epochs end, so that a validation pass within one is no sign of a missed update."""
        self._watch.told_of_epochs = True

    def train(self: AnyLoss, mode: bool = True) -> AnyLoss:
        if not mode and self.update is not None:
            self._watch.validating()
        return super().train(mode)

    def log(self) -> dict[str, float]:
        """What a training log should keep of the loss after every epoch; most have nothing to tell."""
        return {}

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
        """State moves with the model but keeps its precision: 8 bits hold neither a chain of gammas nor counts."""

        def moved(state: Tensor) -> Tensor:
            there = fn(state)
            return there if there.dtype == state.dtype else state.to(there.device)

        done: nn.Module = super()._apply(moved, recurse)  # type: ignore[no-untyped-call]
        return done

    def extra_repr(self) -> str:
        return f"'{self.word}', reduction='{self.reduction}'"


class FunctionLoss(LossModule):
    """A loss without state, with its options bound."""

    def __init__(self, method: Method[LossSpec], options: Options) -> None:
        super().__init__()
        self.method = method
        self.options = {k: v for k, v in options.items() if k in method.options}
        self.bound = {k: v for k, v in options.items() if k not in method.options}
        self.needs = tuple(name for name in method.needs if name not in self.bound)

    def forward(self, logits: Logits, labels: Labels, **needs: Any) -> Tensor:
        plain = self.reduction == "mean" and self.ignore_index is None and self._buffers["class_weights"] is None
        if not self._doubted or not plain or not is_plain_batch(logits, labels):
            return super().forward(logits, labels, **needs)
        # The shortest way: at 64 x 10 every call on it would be seen.
        if needs or self.method.needs:
            needs = {**self.bound, **needs}
            check_needs(self.word, self.method.needs, needs)
            needs = {name: check_need(name, value, labels.numel()) for name, value in needs.items()}
        quick_mean = self.method.spec.quick_mean
        if quick_mean is not None and (mean := quick_mean(logits, labels)) is not None:
            return mean
        values: LossValues = self.method.function(logits, labels, **self.options, **needs)
        if not isinstance(values, FusedLoss):
            return values.mean()
        return values.mean() if callable(values.mean) else values.mean

    def values(self, logits: Logits, labels: Labels, **needs: Any) -> LossValues:
        values: LossValues = self.method.function(logits, labels, **self.options, **needs)
        return values

    def bound_needs(self) -> Needs:
        return self.bound

    def __getstate__(self) -> Options:
        # The registered function hides behind the checked one that has its name, where pickle does not find it.
        return {**self.__dict__, "method": None}

    def __setstate__(self, state: Options) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.method = LOSSES.get(self.word)


# Losses as functions: checks before a registered function, one call of a module from fresh state.


def doubt_probabilities(word: str, logits: Any) -> None:
    """Warn where every row of what should be logits sums to one within [0, 1]."""
    if not isinstance(logits, Tensor) or logits.ndim != 2 or not len(logits) or logits.is_meta:
        return
    first = logits[0].detach().float()
    if not bool(((first >= 0) & (first <= 1)).all()):  # nearly always; the rest is read only in doubt
        return
    from confide.predictions import LogitOutputs, probability_doubt

    if doubt := probability_doubt(LogitOutputs(logits.detach().float())):
        warnings.warn(f"{doubt}; loss '{word}' takes logits, before any softmax", stacklevel=4)


def _with_checks(method: Method[LossSpec]) -> LossFunction:
    function = method.function
    doubted = False

    @functools.wraps(function)
    def checked(
        logits: Logits,
        labels: Labels,
        *positional: Any,
        class_weights: Any = None,
        ignore_index: int | None = None,
        **options: Any,
    ) -> PerSample:
        nonlocal doubted
        if not doubted and not torch.compiler.is_compiling():
            doubted = True
            doubt_probabilities(method.word, logits)
        options = method.checked(method.named(positional, options) if positional else options)
        needs = {name: options.pop(name) for name in method.needs if name in options}
        check_needs(method.word, method.needs, needs)
        weights = None if class_weights is None else _as_weights(class_weights)
        bound = functools.partial(function, **options)
        return evaluate_batch(method, bound, logits, labels, needs, weights, ignore_index).values

    _describe(checked, method, inspect.getdoc(function) or "", list(inspect.signature(function).parameters.values()))
    return checked


def as_function(module: type[LossModule]) -> LossFunction:
    """A loss with state as a function: one call from fresh state."""
    method = LOSSES.get(module.word)

    def call(
        logits: Logits,
        labels: Labels,
        *positional: Any,
        class_weights: Any = None,
        ignore_index: int | None = None,
        **options_and_needs: Any,
    ) -> PerSample:
        needs = {name: options_and_needs.pop(name) for name in module.needs if name in options_and_needs}
        options = method.named(positional, options_and_needs)
        fresh = create(module.word, reduction="none", class_weights=class_weights, ignore_index=ignore_index, **options)
        values: Tensor = fresh(logits, labels, **needs)
        return values

    call.__name__ = call.__qualname__ = module.word
    call.__module__ = module.__module__
    first, *rest = (inspect.getdoc(module) or "").split("\n", 1)
    doc = "\n".join([f"{first}\n\nAs a function: one call from fresh state; `create` keeps the state.", *rest])
    batch = list(inspect.signature(LossModule.values).parameters.values())[1:3]
    needs = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in module.needs]
    _describe(call, method, doc, [*batch, *needs, *list(inspect.signature(module).parameters.values())])
    return call


def _describe(function: LossFunction, method: Method[LossSpec], doc: str, parameters: list[inspect.Parameter]) -> None:
    """Signature and help of a loss as a function: its own arguments and those that all losses share."""
    soft = ", or n x c soft labels whose rows sum to one" if method.spec.soft else ""
    function.__doc__ = shared_help(
        doc,
        before=f"logits: n x c, the model's raw outputs.\nlabels: n class indices{soft}.",
        after="class_weights: c numbers; each value is multiplied by the weight of its class.\n"
        "ignore_index: label of samples whose value is 0.",
        returns="One value per sample.",
    )
    common = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None)
        for name in ("class_weights", "ignore_index")
    ]
    function.__signature__ = inspect.Signature([*parameters, *common], return_annotation="PerSample")  # type: ignore[attr-defined]


def shared_help(doc: str, *, before: str, after: str = "", returns: str) -> str:
    """A method's docstring with the arguments and the result that its whole family shares."""
    doc, _, example = doc.partition("\n\nExample:\n")
    doc, _, own = doc.partition("\n\nArgs:\n")
    first, last = (textwrap.indent(text, "    ") for text in (before, after))
    arguments = "\n".join(text for text in (first, own.rstrip("\n"), last) if text)
    return f"{doc}\n\nArgs:\n{arguments}\n\nReturns:\n    {returns}\n\nExample:\n{example}"


# One batch: what must hold, class weights, ignored samples, and the reduction.

PER_SAMPLE_NEEDS = ("ids", "weights", "groups")
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


class BatchLoss(NamedTuple):
    """One value per sample, with what a mean of them takes."""

    per_sample: PerSample | Callable[[], PerSample]
    mass: Tensor | None = None
    """Sum of weights that a mean divides by; None: the number of samples."""
    fused_mean: Scalar | Callable[[], Scalar] | None = None
    """The plain mean of the values, where what made them gave it, or a function that makes it."""

    @property
    def values(self) -> PerSample:
        """One value per sample."""
        return self.per_sample() if callable(self.per_sample) else self.per_sample

    def mean(self) -> Scalar:
        """The plain mean of the values."""
        if self.fused_mean is None:
            return self.values.mean()
        return self.fused_mean() if callable(self.fused_mean) else self.fused_mean

    def reduced(self, reduction: str) -> Tensor:
        """Mean, sum or the values themselves; the mean of nothing is 0."""
        if reduction == "mean" and self.mass is None and (callable(self.per_sample) or self.per_sample.shape[0]):
            return self.mean()
        if reduction == "none":
            return self.values
        total = self.values.sum()
        if reduction == "sum" or self.mass is None:
            return total
        return total / torch.where(self.mass > 0, self.mass, torch.ones_like(self.mass))


def evaluate_batch(
    method: Method[LossSpec],
    values_of: Callable[..., LossValues],
    logits: Any,
    labels: Any,
    needs: Needs,
    class_weights: Tensor | None,
    ignore_index: int | None,
) -> BatchLoss:
    """The values of a batch after all checks, with class weights and without ignored samples."""
    logits, labels = check_batch(method, logits, labels, method.spec.soft)
    if needs:
        needs = {name: check_need(name, value, logits.shape[0]) for name, value in needs.items()}
    if ignore_index is None or labels.ndim == 2:
        values = values_of(logits, labels, **needs)
        if class_weights is None and isinstance(values, FusedLoss):
            return BatchLoss(values.values, None, values.mean)
        values, keep = _values_of(values), None
        if labels.ndim == 2 and values.device.type == "cpu" and not bool(torch.isfinite(values).all()):
            row = int((~torch.isfinite(values)).nonzero()[0])
            raise InputError(f"logits and soft labels must be finite, they are not at sample {row} of {len(values)}")
    else:
        keep = labels != ignore_index
        values = _values_without_ignored(method, values_of, logits, labels, needs, keep)
    if class_weights is None:
        return BatchLoss(values, None if keep is None else keep.sum().to(values.dtype))
    weights = weights_of_samples(class_weights.to(values), labels, logits.shape[1], keep)
    return BatchLoss(values * weights, weights.sum())


def _values_of(values: LossValues) -> PerSample:
    return BatchLoss(*values[:1]).values if isinstance(values, FusedLoss) else values


def _values_without_ignored(
    method: Method[LossSpec],
    values_of: Callable[..., LossValues],
    logits: Tensor,
    labels: Tensor,
    needs: Needs,
    keep: Tensor,
) -> Tensor:
    """Zero for ignored samples. Where samples act on each other the ignored ones are taken out first."""
    if not method.spec.batch:
        values = _values_of(values_of(logits, torch.where(keep, labels, 0), **needs))
        return torch.where(keep, values, torch.zeros_like(values))
    rows = keep.nonzero().squeeze(1)
    needs = {k: v[rows] if k in PER_SAMPLE_NEEDS else v for k, v in needs.items()}
    values = _values_of(values_of(logits[rows], labels[rows], **needs))
    return values.new_zeros(len(logits)).index_put((rows,), values)


def weights_of_samples(class_weights: Tensor, labels: Tensor, num_classes: int, keep: Tensor | None) -> Tensor:
    """The weight of each sample's class; for soft labels the expected weight; 0 for ignored samples."""
    if len(class_weights) != num_classes:
        raise InputError(f"class_weights must be {num_classes} numbers, one per class, got {len(class_weights)}")
    if labels.ndim == 2:
        return (labels.to(class_weights.dtype) * class_weights).sum(dim=1)
    weights = class_weights[labels.clamp(0, num_classes - 1)]
    return weights if keep is None else torch.where(keep, weights, torch.zeros_like(weights))


def check_needs(word: str, required: tuple[str, ...], needs: Needs) -> None:
    """Every need of the loss must come with the call, and nothing else: what a loss ignored would seem to act."""
    for name in required:
        if needs.get(name) is None:
            raise InputError(f"loss '{word}' needs {name} with every batch; pass {name}=...")
    for name in needs:
        if name not in required:
            takes = " and ".join(("logits", "labels", *required))
            raise OptionError(f"loss '{word}' takes {takes} with every batch, got {name}; leave it out")


def check_need(name: str, value: Any, n: int) -> Any:
    """What a call brings beside logits and labels: one value per sample where the name says so."""
    if name not in PER_SAMPLE_NEEDS:
        return value
    tensor = tensor_with_graph(value, name)
    if tensor.shape != (n,):
        raise InputError(f"{name} must be {n} values, one per sample of the batch, got shape {tuple(tensor.shape)}")
    return tensor.detach()


def check_batch(method: Method[OptionSpec], logits: Any, labels: Any, soft: bool) -> tuple[Tensor, Tensor]:
    """Shapes and dtypes of a batch; values are checked by the pass over the logits itself."""
    if not (isinstance(logits, Tensor) and isinstance(labels, Tensor)):
        logits, labels = tensor_with_graph(logits, "logits"), tensor_with_graph(labels, "labels")
    if is_plain_batch(logits, labels):
        return logits, labels
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
        return logits, _check_soft(method, logits, labels, soft)
    if labels.shape != logits.shape[:1]:
        raise InputError(
            f"labels must be {len(logits)} class indices, one per row of logits, got shape {tuple(labels.shape)}; "
            "make them one vector"
        )
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise InputError(f"labels must be integer class indices, got {labels.dtype}; convert them with .long()")
    return logits, labels if labels.dtype == torch.int64 else labels.to(torch.int64)


def is_plain_batch(logits: Any, labels: Any) -> bool:
    """What nearly every batch on a CPU is, at a glance: a small one is over in the time that ten looks take."""
    if not (isinstance(logits, Tensor) and isinstance(labels, Tensor)):
        return False
    shape = logits.shape  # len() of a tensor takes as long as all of the others
    return (
        labels.dtype is torch.int64
        and logits.dtype in DTYPES
        and logits.is_cpu
        and labels.is_cpu
        and len(shape) == 2
        and labels.ndim == 1
        and 0 < labels.numel() == shape[0]
        and shape[1] >= 2
    )


def _check_soft(method: Method[OptionSpec], logits: Tensor, labels: Tensor, soft: bool) -> Tensor:
    if labels.shape != logits.shape:
        raise InputError(
            f"soft labels must be of the logits' shape {tuple(logits.shape)}, got shape {tuple(labels.shape)}; "
            "give one share per class"
        )
    if not soft:
        raise InputError(
            f"{method.family} '{method.word}' needs class indices: its formula has one true class, got soft labels; "
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


def check_groups(groups: Tensor, num_groups: int) -> Tensor:
    """Group indices 0 .. num_groups - 1; on a GPU a bad one sets the device's flag, so that nothing waits."""
    if groups.is_floating_point():
        raise InputError(f"groups must be whole numbers, group indices, got {groups.dtype}")
    groups = groups.to(torch.int64)
    if groups.device.type != "cpu":
        set_flag((groups < 0) | (groups >= num_groups), BAD_NUMBER)
    elif len(groups):
        low, high = int(groups.min()), int(groups.max())
        if low < 0 or high >= num_groups:
            raise InputError(f"groups must lie in [0, {num_groups}), got {low} to {high}; set num_groups")
    return groups.clamp(0, num_groups - 1)


def check_validation(logits: Any, labels: Any) -> tuple[Tensor, Tensor]:
    """Logits and labels of a validation set, on the CPU."""
    logits = check_logits(as_tensor(logits, "validation logits").cpu(), "validation logits")
    labels = as_tensor(labels, "validation labels").cpu()
    return logits, check_labels(labels, len(logits), logits.shape[1], "validation labels")


def _first_numbers(values: Tensor) -> str:
    """The first numbers of a row, for a message."""
    shown = ", ".join(f"{value:.4g}" for value in values[:4].tolist())
    return f"[{shown}{', ...' if len(values) > 4 else ''}]"


def _as_weights(class_weights: Any) -> Tensor:
    weights = tensor_with_graph(class_weights, "class_weights").detach()
    if weights.ndim != 1 or not bool(((weights >= 0) & torch.isfinite(weights)).all()):
        raise InputError("class_weights must be one finite number >= 0 per class; give c of them")
    return weights if weights.is_floating_point() else weights.to(torch.float32)
