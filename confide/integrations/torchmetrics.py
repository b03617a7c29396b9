"""torchmetrics: every metric of confide as a `torchmetrics.Metric`, by its word in CamelCase.

from confide.integrations.torchmetrics import AURC, ECE
metrics = torchmetrics.MetricCollection([ECE(bins=15), AURC()])
metrics.update(logits, labels)
metrics.compute()
"""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar

import torch
from torch import Tensor

from confide.checks import MissingExtra, did_you_mean
from confide.metrics.base import METRICS, measure
from confide.predictions import Predictions

ACRONYMS = {"ece", "nll", "mce", "aurc", "eaurc", "augrc", "auroc", "aupr", "fpr95", "tpr", "tnr", "kde", "kl"}


def class_name(word: str) -> str:
    """CamelCase of a metric's word.

    Args:
        word: such as `classwise_ece`.

    Returns:
        The name of its class in this module.

    Example:
        >>> from confide.integrations.torchmetrics import class_name
        >>> class_name("classwise_ece")
        'ClasswiseECE'
    """
    return "".join(part.upper() if part in ACRONYMS else part.capitalize() for part in word.split("_"))


@cache
def metric_class(word: str) -> Any:
    """The `torchmetrics.Metric` of a word; also an attribute of this module, by its name in CamelCase.

    Args:
        word: of a metric; `confide.metrics.names()` lists them.

    Returns:
        The class. Its options are those of the metric, `from_probs` (outputs are probabilities; never guessed from
        values) and the keywords of `torchmetrics.Metric`. It keeps all outputs, so that its value is exact.

    Raises:
        MissingExtra: torchmetrics is not installed.

    Example:
        >>> from confide.integrations.torchmetrics import metric_class
        >>> ece = metric_class("ece")(bins=10)  # doctest: +SKIP
    """
    try:
        from torchmetrics import Metric as TorchMetric
        from torchmetrics.utilities.data import dim_zero_cat
    except ImportError:
        raise MissingExtra("torchmetrics", "lightning", "a metric of torchmetrics") from None
    method = METRICS.get(word)
    info = method.spec.info

    class BatchedMetric(TorchMetric):  # type: ignore[misc]
        is_differentiable: ClassVar[bool] = False
        full_state_update: ClassVar[bool] = False
        higher_is_better: ClassVar[bool | None] = {"higher": True, "lower": False}.get(info.better)
        plot_lower_bound: ClassVar[float] = method.spec.range[0]
        plot_upper_bound: ClassVar[float] = method.spec.range[1]
        logits: list[Tensor]
        labels: list[Tensor]

        def __init__(self, *, from_probs: bool = False, **options: Any) -> None:
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
            value = measure(method, record, self.metric_options).value
            return torch.tensor(value, dtype=torch.float32, device=outputs.device)

        def plot(self, val: Any = None, ax: Any = None) -> Any:
            """The value, or values given, drawn by torchmetrics; returns figure and axes."""
            return self._plot(val, ax)

    BatchedMetric.__name__ = BatchedMetric.__qualname__ = class_name(word)
    BatchedMetric.__module__ = __name__
    BatchedMetric.__doc__ = f"{info.title}: {info.meaning}\n\nOptions are those of `confide.metrics.{word}`."
    return BatchedMetric


def __dir__() -> list[str]:
    return sorted(["class_name", "metric_class", *map(class_name, METRICS.names())])


def __getattr__(name: str) -> Any:
    words = {class_name(word).lower(): word for word in METRICS.names()}
    if name.startswith("_") or name.lower() not in words:
        hint = did_you_mean(name, map(class_name, words.values()))
        raise AttributeError(f"no metric is called '{name}'; {hint}")
    return metric_class(words[name.lower()])
