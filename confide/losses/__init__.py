"""Losses: functions of (logits, labels) that return one value per sample, and `create` for training loops."""

from confide.losses.adafocal import adafocal
from confide.losses.adaptive_difficulty import adaptive_difficulty
from confide.losses.aurc import aurc
from confide.losses.brier import brier
from confide.losses.calfocal import calfocal
from confide.losses.class_balanced import class_balanced
from confide.losses.crl import crl
from confide.losses.cross_entropy import cross_entropy
from confide.losses.difficulty_entropy import difficulty_entropy
from confide.losses.dual_focal import dual_focal
from confide.losses.entropy_regularization import entropy_regularization
from confide.losses.family import LOSSES, LossModule, create, names
from confide.losses.flsd53 import flsd53
from confide.losses.focal import focal
from confide.losses.group_dro import group_dro
from confide.losses.inverse_focal import inverse_focal
from confide.losses.kde_xe import kde_xe
from confide.losses.label_smoothing import label_smoothing
from confide.losses.logit_norm import logit_norm
from confide.losses.mbls import mbls
from confide.losses.mdca import mdca
from confide.losses.mmce import mmce
from confide.losses.mmce_weighted import mmce_weighted
from confide.losses.poly1 import poly1
from confide.losses.selective_au import selective_au

__all__ = [
    "LOSSES",
    "LossModule",
    "adafocal",
    "adaptive_difficulty",
    "aurc",
    "brier",
    "calfocal",
    "class_balanced",
    "create",
    "crl",
    "cross_entropy",
    "difficulty_entropy",
    "dual_focal",
    "entropy_regularization",
    "flsd53",
    "focal",
    "group_dro",
    "inverse_focal",
    "kde_xe",
    "label_smoothing",
    "logit_norm",
    "mbls",
    "mdca",
    "mmce",
    "mmce_weighted",
    "names",
    "poly1",
    "selective_au",
]
