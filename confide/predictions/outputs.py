"""Outputs: what a model gave for n samples, one small type for each thing that can be known."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from confide.checks import (
    InputError,
    as_tensor,
    check_logits,
    check_probs,
)
from confide.facts import SMALLEST_PROBABILITY, ClassCounter, ClassTable, Facts, facts_of
from confide.files.columns import (
    CORRECT_COLUMNS,
)
from confide.types import Labels, Logits, PerSample, Probs


class Outputs(ABC):
    """What a model gave for n samples; frozen. A new kind of output is one more subclass, and nothing else changes."""

    words: ClassVar[str]
    """What it holds, in the words of a message."""
    all_classes: ClassVar[bool] = False
    """Whether every class probability is in memory: calibrators, sets and whole-distribution metrics need that."""
    only_confidence: ClassVar[bool] = False
    """Whether the confidence is all that a calibrator can move; `with_confidence` then gives the moved outputs."""

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    def num_classes(self) -> int | None:
        """Number of classes; None where the outputs do not tell."""
        return None

    @property
    def real_logits(self) -> bool:
        """Whether the logits carry their scale, so that energy and max_logit mean something."""
        return True

    @abstractmethod
    def take(self, rows: Tensor) -> Outputs:
        """The outputs of the chosen rows."""

    @abstractmethod
    def facts(self, labels: Labels | None, counter: ClassCounter | None = None, *, core: bool = False) -> Facts:
        """The facts of every sample, or those of `facts.CORE` alone; a counter is filled in the same pass."""

    def need_logits(self, purpose: str) -> Logits:
        """The logits `n c`, or an error where not every class is known."""
        raise InputError(
            f"{purpose} needs all probabilities, but these predictions hold only {self.words}; give logits or probs"
        )

    def need_probs(self, purpose: str) -> Probs:
        """All probabilities `n c`, at least float32."""
        return torch.softmax(_wide(self.need_logits(purpose)), dim=1)

    def with_confidence(self, confidence: PerSample) -> Outputs:
        """The same outputs with other confidences, where these are all that is known of the probabilities."""
        raise InputError(f"a map of confidences needs predictions that hold no more than those, got {self.words}")

    @abstractmethod
    def columns(self, *, text: bool) -> dict[str, NDArray[Any]]:
        """As they stand in a file; text files have a column a class."""


def _wide(values: Tensor) -> Tensor:
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


@dataclass(frozen=True, eq=False)
class LogitOutputs(Outputs):
    """Logits `n c`, as the network gave them."""

    logits: Logits
    words: ClassVar[str] = "logits"
    all_classes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "logits", check_logits(as_tensor(self.logits, "logits")))

    def __len__(self) -> int:
        return len(self.logits)

    @property
    def num_classes(self) -> int:
        return int(self.logits.shape[1])

    def take(self, rows: Tensor) -> LogitOutputs:
        return type(self)(self.logits[rows])

    def facts(self, labels: Labels | None, counter: ClassCounter | None = None, *, core: bool = False) -> Facts:
        return facts_of(self.logits, labels, counter=counter, core=core)

    def need_logits(self, purpose: str) -> Logits:
        return self.logits

    def columns(self, *, text: bool) -> dict[str, NDArray[Any]]:
        wide = self.logits.float() if self.logits.dtype == torch.bfloat16 else self.logits
        return {"logit" if text else "logits": wide.cpu().numpy()}


def binary_outputs(logits: Any) -> LogitOutputs:
    """Logits [0, z] of two classes from n sigmoid logits z."""
    values = as_tensor(logits, "logits")
    values = values if values.is_floating_point() else values.to(torch.float32)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise InputError(f"binary logits must be n values, got shape {tuple(values.shape)}; give one per sample")
    return LogitOutputs(torch.stack([torch.zeros_like(values), values], dim=1))


@dataclass(frozen=True, eq=False)
class LogProbOutputs(LogitOutputs):
    """Logarithms of probabilities `n c`: an average of passes or members, or a calibrator that gives probabilities."""

    words: ClassVar[str] = "probabilities"

    @property
    def real_logits(self) -> bool:
        return False

    def columns(self, *, text: bool) -> dict[str, NDArray[Any]]:
        # A text file cannot say that these are no real logits.
        return {"p": self.need_probs("saving").cpu().numpy()} if text else super().columns(text=text)


@dataclass(frozen=True, eq=False)
class ProbabilityOutputs(Outputs):
    """Probabilities `n c`, kept as they came: 0.6 stays 0.6 for the metrics."""

    probs: Probs
    words: ClassVar[str] = "probabilities"
    all_classes: ClassVar[bool] = True

    def __len__(self) -> int:
        return len(self.probs)

    @property
    def num_classes(self) -> int:
        return int(self.probs.shape[1])

    @property
    def real_logits(self) -> bool:
        return False

    @cached_property
    def logits(self) -> Logits:
        """Log-probabilities, clipped at 1e-12."""
        return self.probs.clamp_min(SMALLEST_PROBABILITY).log()

    def take(self, rows: Tensor) -> ProbabilityOutputs:
        return ProbabilityOutputs(self.probs[rows])

    def facts(self, labels: Labels | None, counter: ClassCounter | None = None, *, core: bool = False) -> Facts:
        return facts_of(self.probs, labels, from_probs=True, counter=counter, core=core)

    def need_logits(self, purpose: str) -> Logits:
        return self.logits

    def need_probs(self, purpose: str) -> Probs:
        return _wide(self.probs)

    def columns(self, *, text: bool) -> dict[str, NDArray[Any]]:
        return {"p" if text else "probs": self.probs.cpu().numpy()}


def probability_outputs(probs: Any) -> ProbabilityOutputs:
    """Probabilities `n c`, or n of class 1 beside those of class 0, checked to be some."""
    values = as_tensor(probs, "probs")
    if not values.is_floating_point():
        values = values.to(torch.float32)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim == 1:
        values = torch.stack([1 - values, values], dim=1)
    return ProbabilityOutputs(check_probs(check_logits(values, "probs")))


@dataclass(frozen=True, eq=False)
class Top1Outputs(Outputs):
    """The predicted class and its confidence."""

    prediction: Labels
    confidence: PerSample
    words: ClassVar[str] = "top-1 confidences"
    only_confidence: ClassVar[bool] = True

    def __len__(self) -> int:
        return len(self.confidence)

    def with_confidence(self, confidence: PerSample) -> Top1Outputs:
        return Top1Outputs(self.prediction, check_confidence(confidence))

    def take(self, rows: Tensor) -> Top1Outputs:
        return Top1Outputs(self.prediction[rows], self.confidence[rows])

    def facts(self, labels: Labels | None, counter: ClassCounter | None = None, *, core: bool = False) -> Facts:
        return Facts(self.confidence, self.prediction, None if labels is None else self.prediction == labels)

    def need_logits(self, purpose: str) -> Logits:
        raise InputError(f"{purpose} needs all probabilities, but these predictions hold only the top-1 confidence")

    def columns(self, *, text: bool) -> dict[str, NDArray[Any]]:
        return {"pred_label": self.prediction.cpu().numpy(), "confidence": self.confidence.cpu().numpy()}


@dataclass(frozen=True, eq=False)
class PairOutputs(Outputs):
    """A confidence and, where known, whether the answer was right; no class at all, so no labels either."""

    correct: PerSample | None
    confidence: PerSample
    words: ClassVar[str] = "confidence and correctness"
    only_confidence: ClassVar[bool] = True

    def __post_init__(self) -> None:
        confidence = as_tensor(self.confidence, "confidence")
        if confidence.ndim != 1:
            raise InputError(f"confidence must be n values, got shape {tuple(confidence.shape)}; give one per sample")
        object.__setattr__(self, "confidence", check_confidence(confidence))
        if self.correct is None:
            return
        correct = as_tensor(self.correct, "correct")
        if correct.shape != confidence.shape:
            raise InputError(
                f"correct and confidence must be n values each, got {tuple(correct.shape)}, {tuple(confidence.shape)}"
            )
        if not bool(((correct == 0) | (correct == 1)).all()):
            bad = int(((correct != 0) & (correct != 1)).nonzero()[0])
            raise InputError(
                f"correct must be 0 or 1, got {correct[bad].item()} at sample {bad} of {len(correct)}; "
                "a judgement in between must be cut into right and wrong first"
            )
        object.__setattr__(self, "correct", correct.bool())

    def __len__(self) -> int:
        return len(self.confidence)

    def with_confidence(self, confidence: PerSample) -> PairOutputs:
        return PairOutputs(self.correct, confidence)

    def take(self, rows: Tensor) -> PairOutputs:
        return PairOutputs(None if self.correct is None else self.correct[rows], self.confidence[rows])

    def facts(self, labels: Labels | None, counter: ClassCounter | None = None, *, core: bool = False) -> Facts:
        return Facts(self.confidence, right=self.correct)

    def columns(self, *, text: bool) -> dict[str, NDArray[Any]]:
        judged = {} if self.correct is None else {CORRECT_COLUMNS[0]: self.correct.cpu().numpy().astype(np.int64)}
        return {**judged, "confidence": self.confidence.cpu().numpy()}


@dataclass(frozen=True, eq=False)
class StreamedOutputs(Outputs):
    """Facts of shards whose logits were not kept; `table` holds class-wise sums in 15 bins, closed on the right."""

    known: Facts
    classes: int
    table: ClassTable | None = None
    from_probabilities: bool = False
    words: ClassVar[str] = "streamed facts"

    def __len__(self) -> int:
        return len(self.known.confidence)

    @property
    def num_classes(self) -> int:
        return self.classes

    @property
    def real_logits(self) -> bool:
        return not self.from_probabilities

    def take(self, rows: Tensor) -> StreamedOutputs:
        return StreamedOutputs(self.known.take(rows), self.classes, None, self.from_probabilities)

    def facts(self, labels: Labels | None, counter: ClassCounter | None = None, *, core: bool = False) -> Facts:
        return self.known

    def need_logits(self, purpose: str) -> Logits:
        raise InputError(f"{purpose} needs all probabilities in memory, but these were streamed; pass one record")

    def columns(self, *, text: bool) -> dict[str, NDArray[Any]]:
        return {"logits": self.need_logits("saving").numpy()}


def check_confidence(confidence: Tensor) -> Tensor:
    """Confidences must lie in [0, 1]; whole numbers become float32."""
    values = confidence if confidence.is_floating_point() else confidence.to(torch.float32)
    inside = (values >= 0) & (values <= 1)
    if not bool(inside.all()):
        bad = int((~inside).nonzero()[0])
        raise InputError(f"confidence must lie in [0, 1], got {float(values[bad])} at sample {bad} of {len(values)}")
    return values


FIRST_ROWS = 100


def probability_doubt(outputs: Outputs, where: str = "") -> str:
    """A sentence where every row of the logits sums to one within [0, 1]; what they are is never guessed."""
    if not isinstance(outputs, LogitOutputs) or not outputs.real_logits or not len(outputs):
        return ""
    logits, place = outputs.logits, f" in {where}" if where else ""
    single = logits.shape[1] == 2 and bool((logits[:, 0] == 0).all())
    if single and len(logits) > 1 and bool(((logits[:, 1] >= 0) & (logits[:, 1] <= 1)).all()):
        return f"all single logits{place} lie in [0, 1], as probabilities do"
    # Real logits are told by their first rows; only doubtful ones are read to their end.
    for rows in (logits[:FIRST_ROWS], logits):
        # The smallest first: it alone tells nearly all logits, in one call.
        if not float(rows.min()) >= 0 or not bool(((rows.sum(1, dtype=torch.float64) - 1).abs() <= 1e-3).all()):
            return ""
    if bool(((logits == 0) | (logits == 1)).all()):
        return ""  # one class each, as made by hand: no model gives such probabilities
    return f"every row of the logits{place} sums to 1, as probabilities do"
