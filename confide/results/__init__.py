"""What an evaluation holds and a report may show: measurements, curves, comparisons, decisions, and Evaluation."""

from confide.results.decisions import (
    BreakEvenPoint as BreakEvenPoint,
    ClassThreshold as ClassThreshold,
    DecisionResult as DecisionResult,
    GroupCoverage as GroupCoverage,
    ModelPoint as ModelPoint,
    ObservedPoint as ObservedPoint,
    OperatingPoint as OperatingPoint,
    PromisedRisk as PromisedRisk,
    SetExample as SetExample,
    SetResult as SetResult,
)
from confide.results.evaluation import (
    About as About,
    Evaluation as Evaluation,
    Expectation as Expectation,
    Sample as Sample,
    join as join,
)
from confide.results.measurements import (
    BOX as BOX,
    CURVES as CURVES,
    LEVEL as LEVEL,
    MACRO as MACRO,
    MEAN_OF_CELLS as MEAN_OF_CELLS,
    OF_SEVERITY as OF_SEVERITY,
    OWN_CONFIDENCE as OWN_CONFIDENCE,
    PLAIN_SCORES as PLAIN_SCORES,
    SEED_BAND as SEED_BAND,
    TAILS as TAILS,
    Better as Better,
    ComparedRow as ComparedRow,
    Comparison as Comparison,
    Curve as Curve,
    DifficultyInfo as DifficultyInfo,
    Measurement as Measurement,
    MetricInfo as MetricInfo,
    MetricKind as MetricKind,
    Z as Z,
    group_of as group_of,
    group_parts as group_parts,
)
