"""Losses: functions of (logits, labels) that return one value per sample, and `create` for training loops."""

from confide.losses.base import LOSSES, LossModule, create, names
from confide.losses.batch_terms import kde_xe, mdca, mmce, mmce_weighted
from confide.losses.cross_entropy import brier, cross_entropy, label_smoothing, logit_norm, mbls, poly1
from confide.losses.entropy import adaptive_difficulty, difficulty_entropy, entropy_regularization
from confide.losses.focal import adafocal, calfocal, dual_focal, flsd53, focal, inverse_focal
from confide.losses.ranking import aurc, crl, selective_au
from confide.losses.reweighting import class_balanced, group_dro
