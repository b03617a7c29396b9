"""torchmetrics: every metric of confide as a `torchmetrics.Metric`, by its word in CamelCase.

from confide.integrations.torchmetrics import AURC, ECE
metrics = torchmetrics.MetricCollection([ECE(bins=15), AURC()])
metrics.update(logits, labels)
metrics.compute()
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from confide.checks import MissingExtra, did_you_mean
from confide.metrics.base import METRICS, measure
from confide.predictions import Predictions

try:
    from torchmetrics import Metric as TorchMetric
    from torchmetrics.utilities.data import dim_zero_cat
except ImportError:
    raise MissingExtra("torchmetrics", "lightning", "a metric of torchmetrics") from None

ACRONYMS = {"ece", "nll", "mce", "aurc", "eaurc", "augrc", "auroc", "aupr", "fpr95", "tpr", "tnr", "kde", "kl"}


class ConfideMetric(TorchMetric):  # type: ignore[misc]
    """A metric of confide over batches: `update(logits, labels)`, `compute()`; keeps all outputs, so it is exact.

    Args:
        from_probs: whether outputs are probabilities; never guessed from values.
        options: of the metric, such as `bins`; and keywords of `torchmetrics.Metric`, such as `dist_sync_on_step`.
    """

    word: ClassVar[str] = ""
    is_differentiable = False
    full_state_update = False
    logits: list[Tensor]
    labels: list[Tensor]

    def __init__(self, *, from_probs: bool = False, **options: Any) -> None:
        method = METRICS.get(self.word)
        own = {name: value for name, value in options.items() if name in (*method.options, *method.needs)}
        super().__init__(**{name: value for name, value in options.items() if name not in own})
        self.from_probs, self.metric_options = from_probs, own
        self.add_state("logits", default=[], dist_reduce_fx="cat")
        self.add_state("labels", default=[], dist_reduce_fx="cat")

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Add a batch: outputs `n c`, or n of class 1, and class indices."""
        self.logits.append(preds.detach())
        self.labels.append(target.detach())

    def compute(self) -> Tensor:
        """The value over all batches and processes."""
        outputs, labels = dim_zero_cat(self.logits), dim_zero_cat(self.labels)
        if self.from_probs:
            record = Predictions.from_probs(outputs, labels)
        elif outputs.ndim == 1:
            record = Predictions.from_binary_logits(outputs, labels)
        else:
            record = Predictions(outputs, labels)
        value = measure(METRICS.get(self.word), record, self.metric_options).value
        return torch.tensor(value, dtype=torch.float32, device=outputs.device)

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """The value, or values given, drawn by torchmetrics; returns figure and axes."""
        return self._plot(val, ax)


def class_name(word: str) -> str:
    """CamelCase of a metric's word: `classwise_ece` is ClasswiseECE."""
    return "".join(part.upper() if part in ACRONYMS else part.capitalize() for part in word.split("_"))


def _metric_class(word: str) -> type[ConfideMetric]:
    info = METRICS.get(word).spec.info
    low, high = METRICS.get(word).spec.range
    facts: dict[str, Any] = {
        "word": word,
        "__doc__": f"{info.title}: {info.meaning}\n\n    Options are those of `confide.metrics.{word}`.",
        "__module__": __name__,
        "higher_is_better": {"higher": True, "lower": False}.get(info.better),
        "plot_lower_bound": low,
        "plot_upper_bound": high,
    }
    return type(class_name(word), (ConfideMetric,), facts)


_CLASSES = {class_name(word): _metric_class(word) for word in METRICS.names()}
_BY_LETTERS = {name.lower(): made for name, made in _CLASSES.items()}
globals().update(_CLASSES)

__all__ = ["ConfideMetric", "class_name", *_CLASSES]


def __getattr__(name: str) -> type[ConfideMetric]:
    if name.startswith("__"):
        raise AttributeError(name)
    if name.lower() in _BY_LETTERS:
        return _BY_LETTERS[name.lower()]
    raise AttributeError(f"no metric is called '{name}'; {did_you_mean(name, _CLASSES)}")
