"""Losses: functions of (logits, labels) that return one value per sample, and `create` for training loops."""

from confide.losses.base import LOSSES as LOSSES, LossModule as LossModule, create as create, names as names
from confide.losses.batch_terms import kde_xe as kde_xe, mdca as mdca, mmce as mmce, mmce_weighted as mmce_weighted
from confide.losses.cross_entropy import (
    brier as brier,
    cross_entropy as cross_entropy,
    label_smoothing as label_smoothing,
    logit_norm as logit_norm,
    mbls as mbls,
    poly1 as poly1,
)
from confide.losses.entropy import (
    adaptive_difficulty as adaptive_difficulty,
    difficulty_entropy as difficulty_entropy,
    entropy_regularization as entropy_regularization,
)
from confide.losses.focal import (
    adafocal as adafocal,
    calfocal as calfocal,
    dual_focal as dual_focal,
    flsd53 as flsd53,
    focal as focal,
    inverse_focal as inverse_focal,
)
from confide.losses.ranking import aurc as aurc, crl as crl, selective_au as selective_au
from confide.losses.reweighting import class_balanced as class_balanced, group_dro as group_dro
