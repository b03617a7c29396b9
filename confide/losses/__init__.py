"""Losses: functions of (logits, labels) that return one value per sample, and `create` for training loops."""

from confide.losses.base import LOSSES, LossModule, create, names
from confide.losses.batch_terms import kde_xe, mdca, mmce, mmce_weighted
from confide.losses.cross_entropy import brier, cross_entropy, label_smoothing, logit_norm, mbls, poly1
from confide.losses.entropy import adaptive_difficulty, difficulty_entropy, entropy_regularization
from confide.losses.focal import adafocal, calfocal, dual_focal, flsd53, focal, inverse_focal
from confide.losses.ranking import aurc, crl, selective_au
from confide.losses.reweighting import class_balanced, group_dro

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
