"""From predictions to a verdict: evaluate, compare, operating points."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from confide.evaluation.compare import compare, holm
from confide.evaluation.evaluate import evaluate
from confide.evaluation.expectations import assert_expected
from confide.evaluation.gallery import gallery, suspects
from confide.evaluation.label_thresholds import LabelSets, LabelThresholds, label_thresholds
from confide.evaluation.ood import Side, ood
from confide.evaluation.operating_points import OperatingPoint, apply_operating_point, observed, operating_point
from confide.evaluation.risks import observed_risks
from confide.evaluation.seeds import GroupComparison, compare_groups
from confide.evaluation.slices import Slice, SliceReport, find_slices
from confide.evaluation.trust import TrustValues, compare_trust, rates_at_same_tpr
from confide.results import join

if TYPE_CHECKING:
    from confide.evaluation.shift import Subject, label_noise_curve, shift_grid


def __getattr__(name: str) -> Any:
    # The shift grid brings all corruptions and attacks, which an evaluation of a file does not need.
    if name in ("Subject", "label_noise_curve", "shift_grid"):
        return getattr(import_module("confide.evaluation.shift"), name)
    raise AttributeError(f"module 'confide.evaluation' has no attribute '{name}'")
