"""From predictions to a verdict: evaluate, compare, operating points."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from confide.evaluation.compare import compare as compare, holm as holm
from confide.evaluation.evaluate import assert_expected as assert_expected, evaluate as evaluate
from confide.evaluation.gallery import gallery as gallery, map_gallery as map_gallery, suspects as suspects
from confide.evaluation.label_thresholds import (
    LabelSets as LabelSets,
    LabelThresholds as LabelThresholds,
    label_thresholds as label_thresholds,
)
from confide.evaluation.ood import Side as Side, ood as ood
from confide.evaluation.operating_points import (
    apply_operating_point as apply_operating_point,
    observed as observed,
    operating_point as operating_point,
)
from confide.evaluation.risks import observed_risks as observed_risks
from confide.evaluation.seeds import (
    GroupComparison as GroupComparison,
    compare_groups as compare_groups,
    over_seeds as over_seeds,
)
from confide.evaluation.sketches import (
    Sketch as Sketch,
    evaluate_sketch as evaluate_sketch,
    sketch_of as sketch_of,
)
from confide.evaluation.slices import Slice as Slice, SliceReport as SliceReport, find_slices as find_slices
from confide.evaluation.trust import (
    TrustValues as TrustValues,
    compare_trust as compare_trust,
    rank_agreement as rank_agreement,
    rates_at_same_tpr as rates_at_same_tpr,
)
from confide.results import OperatingPoint as OperatingPoint, join as join

if TYPE_CHECKING:
    from confide.evaluation.shift import (
        Subject as Subject,
        label_noise_curve as label_noise_curve,
        shift_grid as shift_grid,
    )
    from confide.evaluation.trust_evidence import (
        TrustEvidence as TrustEvidence,
        TrustFiles as TrustFiles,
        fit_and_compare as fit_and_compare,
        read_evidence as read_evidence,
    )

# These bring all corruptions and attacks, or all trust predictors, which an evaluation of a file does not need.
_LATER = {
    **dict.fromkeys(("Subject", "label_noise_curve", "shift_grid"), "shift"),
    **dict.fromkeys(("TrustEvidence", "TrustFiles", "fit_and_compare", "read_evidence"), "trust_evidence"),
}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(f"confide.evaluation.{_LATER[name]}"), name)
    raise AttributeError(f"module 'confide.evaluation' has no attribute '{name}'")
