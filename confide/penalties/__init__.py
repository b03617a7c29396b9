"""Penalties: functions of (logits, labels) that return one scalar for the batch."""

from confide.penalties.family import PENALTIES, names
from confide.penalties.kde_xe import kde_xe
from confide.penalties.mbls import mbls
from confide.penalties.mdca import mdca
from confide.penalties.mmce import mmce
from confide.penalties.mmce_weighted import mmce_weighted

__all__ = ["PENALTIES", "kde_xe", "mbls", "mdca", "mmce", "mmce_weighted", "names"]
