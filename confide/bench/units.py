"""What the numbers of a page are measured in."""

from __future__ import annotations

from collections.abc import Iterable

UNITS = {
    "aurc": "AURC x 1000",
    "nll": "NLL in nats",
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
"""Quantities that are no percentages, by how their names begin."""


def units(quantities: Iterable[str]) -> list[str]:
    """A sentence for these quantities: percentages, but for a few; none without quantities."""
    names = dict.fromkeys(one.removeprefix("val ") for one in quantities)
    other = {one: unit for one in names for word, unit in UNITS.items() if one.startswith(word)}
    told = ", ".join(dict.fromkeys(other.values()))
    if len(other) < len(names):
        return [f"Percentages, but {told}." if told else "Percentages."]
    return [f"Units: {told}."] if told else []
