"""What a calibrator is: the registry, the frozen `Calibrator` that a fit returns, its torch.nn.Module and its file.

A method is two functions: one fits, `(logits, labels, *, options) -> FittedValues`, and one transforms,
`(values, logits) -> logits`, in torch operations only, so that the same lines serve records, exports and the saved
file. A method that looks at more than logits has the need `evidence`, in its fit and as third argument of its
transform. `fitting.fit` joins them into a `Calibrator`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from confide.block_sizes import CACHED_FLOAT64, rows_in
from confide.calibrators.evidence import Evidence, evidence_for
from confide.checks import InputError
from confide.files import formats
from confide.files.fitted import FittedState, save_fitted
from confide.predictions import Predictions
from confide.records import FeatureSource
from confide.registry import OptionSpec, Registry
from confide.types import Logits, Options, PerSample

# The registry, and what a method says of itself.

Values = Mapping[str, Tensor]
Transform = Callable[..., Logits]
"""(values, logits) -> logits, or (values, logits, evidence) -> logits."""


@dataclass(frozen=True, kw_only=True)
class CalibratorSpec(OptionSpec):
    """What is said of a calibrator: its `title` in a sentence; whether it `keeps_argmax` always, never, or only with
    (option, value); `yields` logits or probabilities; how many `parameters` it fits (alone, per class, per pair of
    classes); the `transform` that applies the fitted values to logits, in torch operations only; whether its map is
    `linear` in the logits, so that a fit may start from another's; whether the fit itself `finds_nan`; what it `wants`
    beside logits: nothing, features, or opinions (from features or of other models); whether a call is one `whole`
    batch, whose rows are not calibrated one by one; how what a fit searched for by cross-validation is `settled`: its
    values as options of a fit on n samples.
    """

    title: str = ""
    keeps_argmax: bool | tuple[str, str]
    yields: str
    parameters: tuple[int, int, int]
    transform: Transform
    linear: bool = False
    finds_nan: bool = False
    wants: Literal["nothing", "features", "opinions"] = "nothing"
    whole: bool = False
    settled: Callable[[Values, int], Options] | None = None


CALIBRATORS = Registry("calibrator", CalibratorSpec)


def stage_titles(stages: Iterable[str]) -> dict[str, str]:
    """What the stages of an evaluation are called in a sentence; those that no calibrator has are left out.

    Args:
        stages: words of calibrators, also with `_by_` and what each group is fitted by.

    Returns:
        Stage -> title.

    Example:
        >>> confide.calibrators.stage_titles(["raw", "temperature", "vector_by_difficulty"])
        {'temperature': 'temperature scaling', 'vector_by_difficulty': 'vector scaling by difficulty'}
    """
    titles = {}
    for stage in stages:
        word, by, column = stage.partition("_by_")
        if word in CALIBRATORS:
            titles[stage] = (CALIBRATORS.get(word).spec.title or word) + (f" by {column}" if by else "")
    return titles


# What a fit returns: a frozen calibrator, and its torch.nn.Module.


@dataclass(frozen=True)
class FittedValues:
    """What a method's fit found: values for its transform, and what a person should know about the fit."""

    values: dict[str, Tensor]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Calibrator:
    """A fitted calibrator: `calibrator(predictions)` gives the same samples with calibrated logits.

    `values` are the fitted numbers (also as attributes: `calibrator.temperature`), `notes` the warnings of the fit.
    One that was fitted with features (`feature_dim` a sample, by the extractor in `source`) or with other models'
    `opinions` needs them in every call.
    """

    word: str
    values: Mapping[str, Tensor]
    num_classes: int
    n: int = 0
    options: Options = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    feature_dim: int | None = None
    opinions: tuple[str, ...] = ()
    source: FeatureSource = field(default_factory=FeatureSource)
    prior: tuple[float, ...] = ()
    """Share of every class among the samples of the fit, by weight: what the calibrated probabilities are for."""

    def __getattr__(self, name: str) -> Any:
        values = self.__dict__.get("values", {})
        if name not in values:
            raise AttributeError(f"calibrator has no attribute '{name}'; its values are {', '.join(values) or 'none'}")
        value = values[name]
        return value.item() if value.ndim == 0 else value

    @property
    def warnings(self) -> tuple[str, ...]:
        """The same as `notes`: what a person should know before using it."""
        return self.notes

    @property
    def keeps_argmax(self) -> bool:
        """Whether the method can never change the predicted class."""
        return keeps_argmax(self.word, self.options)

    def __call__(
        self,
        predictions: Predictions,
        features: Any = None,
        opinions: Mapping[str, Predictions] | None = None,
        *,
        prior: Any = None,
    ) -> Predictions:
        logits = predictions.need_logits(f"calibrator '{self.word}'")
        evidence = self.evidence(predictions, features, opinions)
        # A map of log-probabilities gives no logits of the model: energy and the largest logit stay undefined.
        real = not (predictions.from_probabilities or gives_probabilities(self.word))
        return self.for_prior(predictions.with_logits(self.calibrated(logits, evidence), real=real), prior)

    def for_prior(self, calibrated: Predictions, prior: Any) -> Predictions:
        """Calibrated predictions, corrected from the class shares of the fit to those of another population."""
        if prior is None:
            return calibrated
        if not self.prior:
            raise InputError(f"this calibrator '{self.word}' does not know the class shares of its fit; fit it again")
        return calibrated.with_prior(prior, trained=self.prior)

    def evidence(
        self, predictions: Predictions, features: Any, opinions: Mapping[str, Predictions] | None
    ) -> Evidence | None:
        """What this calibrator was fitted with beside logits, for these samples; None where that is nothing."""
        if CALIBRATORS.get(self.word).spec.wants == "nothing":
            return None
        return evidence_for(self.word, predictions, features, opinions or {}, self.feature_dim, self.opinions)

    def calibrated(self, logits: Logits, evidence: Evidence | None = None) -> Logits:
        """Calibrated logits `n c`, by row blocks; at least float32, otherwise of the dtype that came."""
        dtype = torch.float32 if logits.dtype in (torch.float16, torch.bfloat16) else logits.dtype
        result = torch.empty(logits.shape, dtype=dtype, device=logits.device)
        for start, block in self.calibrated_blocks(logits, dtype, evidence):
            result[start : start + len(block)] = block
        return result

    def calibrated_blocks(
        self, logits: Logits, dtype: torch.dtype, evidence: Evidence | None = None
    ) -> Iterator[tuple[int, Logits]]:
        """(first row, calibrated rows) by blocks."""
        check_classes(self.word, self.num_classes, logits.shape[1])
        values = {name: value.to(logits.device) for name, value in self.values.items()}
        spec = CALIBRATORS.get(self.word).spec
        transform = spec.transform
        rows = max(1, len(logits)) if spec.whole else rows_in(CACHED_FLOAT64, logits.shape[1])
        for start in range(0, len(logits), rows):
            part = slice(start, start + rows)
            block = logits[part]
            beside = () if evidence is None else (evidence.take(part),)
            # In float64, so that a float32 record is rounded once, at the end.
            moved = transform(values, block.double(), *beside).to(dtype)
            yield start, with_argmax_of(block, moved) if self.keeps_argmax else moved

    def module(self) -> nn.Module:
        """A torch.nn.Module, logits -> calibrated logits, to append to a model or to export."""
        if (wants := CALIBRATORS.get(self.word).spec.wants) != "nothing":
            raise InputError(
                f"calibrator '{self.word}' looks at {wants} beside the logits and has no module of logits alone; "
                "call it with predictions"
            )
        return CalibratorModule(self.word, self.values)

    def save(self, path: str | Path) -> None:
        """Write as .json (numbers a person can read) or .safetensors, atomically."""
        save_fitted(path, formats.CALIBRATOR, self.state())

    def state(self) -> FittedState:
        """Everything as plain data and tensors, for a file."""
        record = {
            "word": self.word,
            "num_classes": self.num_classes,
            "n": self.n,
            "options": {k: list(v) if isinstance(v, tuple) else v for k, v in self.options.items()},
            "notes": list(self.notes),
            "prior": list(self.prior),
        }
        if CALIBRATORS.get(self.word).spec.wants != "nothing":
            beside = {"feature_dim": self.feature_dim, "opinions": list(self.opinions)}
            record |= {"evidence": {**beside, "source": self.source.as_record()}}
        return FittedState(record, self.values)


class CalibratorModule(nn.Module):
    """The transform of a fitted calibrator with its values as buffers; computes in the dtype of the logits."""

    def __init__(self, word: str, values: Values) -> None:
        super().__init__()
        self.names, self.transform = tuple(values), CALIBRATORS.get(word).spec.transform
        for name, value in values.items():
            self.register_buffer(name, value.clone())

    def forward(self, logits: Logits) -> Logits:
        values = {name: getattr(self, name) for name in self.names}
        cast = {k: v.to(logits.dtype) if v.is_floating_point() else v for k, v in values.items()}
        return self.transform(cast, logits)


def row_blocks(logits: Logits) -> Iterator[Logits]:
    """Rows in blocks, in float64."""
    for block in torch.split(logits, rows_in(CACHED_FLOAT64, logits.shape[1])):
        yield block.double()


def map_rows(logits: Logits, function: Callable[[Logits], Tensor]) -> Tensor:
    """One float64 number a row, by blocks, into a ready vector: small results between blocks would split the heap."""
    return torch.cat([function(block) for block in row_blocks(logits)])


def log_sums(logits: Logits) -> Tensor:
    """log sum exp of every row, in float64."""
    return map_rows(logits, lambda block: torch.logsumexp(block, dim=1))


def keeps_argmax(word: str, options: Options) -> bool:
    """Whether the method, with these options, never changes the predicted class."""
    method = CALIBRATORS.get(word)
    if isinstance(method.spec.keeps_argmax, bool):
        return method.spec.keeps_argmax
    option, value = method.spec.keeps_argmax
    return bool(options.get(option, method.options[option]) == value)


def gives_probabilities(word: str) -> bool:
    """Whether the method's logits are logarithms of calibrated probabilities."""
    return bool(CALIBRATORS.get(word).spec.yields == "probabilities")


def check_classes(word: str, fitted: int, came: int) -> None:
    """The classes of the predictions must be those of the fit."""
    if fitted != came:
        raise InputError(
            f"calibrator '{word}' was fitted for {fitted} classes, got predictions of {came}; fit one for this model"
        )


def predicted_classes(logits: Logits) -> Tensor:
    """The first largest class of every row; on the CPU by numpy, which takes a third of torch's time."""
    if logits.device.type != "cpu" or logits.dtype == torch.bfloat16:
        return logits.argmax(dim=1)
    return torch.from_numpy(logits.numpy().argmax(axis=1))


def with_argmax_of(before: Logits, after: Logits) -> Logits:
    """`after`, with the class that led `before` put in front again where rounding or a tie took its place."""
    lead = predicted_classes(before)[:, None]
    best = after.amax(dim=1, keepdim=True)
    lost = predicted_classes(after)[:, None] != lead
    if not bool(lost.any()):
        return after
    ahead = torch.where(lost, torch.nextafter(best, torch.full_like(best, torch.inf)), after.gather(1, lead))
    return after.scatter(1, lead, ahead)


def log_odds(logits: Logits, classes: Tensor) -> PerSample:
    """log p_k / (1 - p_k) of the class k of every row, exact also where p_k is 1 to all digits."""
    own = logits.gather(1, classes[:, None])
    return (own - torch.logsumexp(logits.scatter(1, classes[:, None], -torch.inf), dim=1, keepdim=True)).squeeze(1)


def with_log_odds(logits: Logits, classes: Tensor, odds: PerSample) -> Logits:
    """Log-probabilities in which the class has these log odds and stays ahead; the others share the rest as before.

    Where another class would come out ahead the others are drawn towards equal shares, as little as is needed; no class
    that leads among c can be less likely than 1 / c.
    """
    index = classes[:, None]
    others = torch.log_softmax(logits.scatter(1, index, -torch.inf), dim=1)
    # The number of others from the rows themselves: a traced shape is no number.
    even = -(torch.ones_like(logits).sum(dim=1, keepdim=True) - 1).clamp_min(1).log()
    odds = torch.maximum(odds.unsqueeze(1), even)
    largest = others.amax(dim=1, keepdim=True)
    # Just below the class itself, also in float32.
    limit = torch.maximum(odds - 1e-6, even).exp()
    excess = (largest.exp() - limit).clamp_min(0) / (largest.exp() - even.exp()).clamp_min(1e-30)
    excess = excess.clamp_max(1.0)
    mixed = torch.logaddexp(others + torch.log1p(-excess), (torch.log(excess) + even).expand_as(others))
    return torch.where(excess > 0, mixed, others).scatter(1, index, odds)
