"""Losses: functions of (logits, labels) that return one value per sample, and `create` for training loops."""

from confide.losses.adafocal import adafocal
from confide.losses.cross_entropy import cross_entropy
from confide.losses.difficulty_entropy import difficulty_entropy
from confide.losses.entropy_regularization import entropy_regularization
from confide.losses.family import LOSSES, LossModule, create, names
from confide.losses.focal import focal

__all__ = [
    "LOSSES",
    "LossModule",
    "adafocal",
    "create",
    "cross_entropy",
    "difficulty_entropy",
    "entropy_regularization",
    "focal",
    "names",
]
