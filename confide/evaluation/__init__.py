"""From predictions to a verdict: evaluate, compare, operating points."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from confide.evaluation.compare import compare, holm
from confide.evaluation.evaluate import assert_expected, evaluate
from confide.evaluation.gallery import gallery, suspects
from confide.evaluation.ood import Side, ood
from confide.evaluation.operating_points import OperatingPoint, apply_operating_point, observed, operating_point
from confide.evaluation.risks import observed_risks
from confide.evaluation.seeds import GroupComparison, compare_groups
from confide.evaluation.slices import Slice, SliceReport, find_slices
from confide.evaluation.trust import TrustValues, compare_trust, rates_at_same_tpr
from confide.results import join

if TYPE_CHECKING:
    from confide.evaluation.shift import Subject, label_noise_curve, shift_grid
    from confide.evaluation.trust_evidence import TrustEvidence, TrustFiles, fit_and_compare, read_evidence

# These bring all corruptions and attacks, or all trust predictors, which an evaluation of a file does not need.
_LATER = {
    **dict.fromkeys(("Subject", "label_noise_curve", "shift_grid"), "shift"),
    **dict.fromkeys(("TrustEvidence", "TrustFiles", "fit_and_compare", "read_evidence"), "trust_evidence"),
}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(f"confide.evaluation.{_LATER[name]}"), name)
    raise AttributeError(f"module 'confide.evaluation' has no attribute '{name}'")
