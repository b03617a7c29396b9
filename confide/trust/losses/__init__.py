"""Losses of trust predictors, over the oracle's output z: one value per sample."""

from confide.trust.losses.binary_cross_entropy import binary_cross_entropy
from confide.trust.losses.binary_focal import binary_focal
from confide.trust.losses.family import TRUST_LOSSES, create, names
from confide.trust.losses.steep_slope import steep_slope
from confide.trust.losses.tcp import tcp

__all__ = [
    "TRUST_LOSSES",
    "binary_cross_entropy",
    "binary_focal",
    "create",
    "names",
    "steep_slope",
    "tcp",
]
