"""What the quantities of tables are called, their factor, unit and decimals: a metric's own, read at its definition."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np

from confide.metrics import explain
from confide.results import MetricInfo

MORE_DIGITS = 1
"""A mean over seeds is shown with one decimal more than a single evaluation."""
PERCENTAGES = ("%", "pts")
OTHER_TITLES = {
    "calibration_p": "p of the calibration test",
    "seeds not rejected": "seeds with p > 0.05, %",
    "mean of all": "under corruption",
}
"""Quantities that are no metric, and what may follow a metric, where their name is not their title."""
OTHER_UNITS = {
    "entropy of errors": "entropy in nats",
    "separability": "KL in nats",
    "mean confusion": "confusion in bits",
    "deviation": "confusion in bits",
    "calibration_p": "p a probability",
    "p of ": "p a probability",
    "Kendall": "tau a plain number",
    "Pearson": "Pearson a plain number",
    "gamma": "gamma a plain number",
    "mean RMD": "RMD a plain number",
    "mean weight": "weights a plain number",
    "temperature": "temperature a plain number",
}
"""Those that are no percentages, by how their names begin."""


@lru_cache
def metric_of(quantity: str) -> MetricInfo | None:
    """The metric that a quantity such as "aurc, calibrated", "auroc:entropy" or "val nll" is of; None of any other."""
    word = quantity.removeprefix("val ").partition(",")[0].partition(":")[0]
    return explain([word]).get(word)


def info(metric: str) -> MetricInfo:
    """The facts of a metric; a KeyError of any other word."""
    facts = metric_of(metric)
    if facts is None:
        raise KeyError(metric)
    return facts


def heading(quantity: str) -> str:
    """The head of a column: the metric's own with its unit, then what the quantity adds."""
    metric = metric_of(quantity)
    if metric is None:
        return ", ".join(OTHER_TITLES.get(part, part) for part in quantity.split(", "))
    return ", ".join([metric.heading, *(OTHER_TITLES.get(part, part) for part in quantity.split(", ")[1:])])


def scaled(quantity: str, value: float) -> float:
    """A value as tables show it; what is no metric stays as it is."""
    metric = metric_of(quantity)
    return value if metric is None else metric.scale * value


def spread(metric: str, values: Any) -> str:
    """Mean ± standard deviation of a metric's values, in its unit; of one value, the value."""
    facts = info(metric)
    return mean_and_deviation(facts.scale * np.asarray(values), facts.digits + MORE_DIGITS)


def mean(metric: str, values: Any) -> str:
    """Their mean alone; with its sign where neither direction is the better one."""
    facts = info(metric)
    sign = "+" if facts.better == "neither" else ""
    return f"{facts.scale * np.mean(values):{sign}.{facts.digits + MORE_DIGITS}f}"


def mean_and_deviation(values: Any, digits: int) -> str:
    """The same of any numbers, with so many decimals."""
    some = np.asarray(values, dtype=np.float64)
    deviation = f" ± {some.std(ddof=1):.{digits}f}" if len(some) > 1 else ""
    return f"{some.mean():.{digits}f}{deviation}" if len(some) else "-"


def digits(quantity: str, value: float) -> int:
    """Decimals of a mean over seeds: two or three by its size, and no fewer than its metric has."""
    metric = metric_of(quantity)
    by_size = 2 if abs(value) >= 10 else 3
    return by_size if metric is None else max(by_size, metric.digits + MORE_DIGITS)


def units(quantities: Iterable[str]) -> list[str]:
    """A sentence for these quantities: percentages, but for a few; none without quantities."""
    texts = [_unit(quantity) for quantity in dict.fromkeys(quantities)]
    listed = ", ".join(dict.fromkeys(text for text in texts if text))
    if not all(texts):
        return [f"Percentages, but {listed}." if listed else "Percentages."]
    return [f"Units: {listed}."] if listed else []


def _unit(quantity: str) -> str:
    """What a quantity is counted in, in the words of that sentence; nothing for a percentage."""
    metric = metric_of(quantity)
    if metric is None:
        return next((unit for word, unit in OTHER_UNITS.items() if quantity.startswith(word)), "")
    if metric.unit in PERCENTAGES:
        return ""
    if not metric.unit:
        return f"{metric.title} a plain number"
    return metric.heading if metric.unit.startswith("×") else f"{metric.title} in {metric.unit}"
