"""Reliability metrics: `(predictions, *, options) -> Measurement`, all from one pass over the logits."""

from confide.metrics.base import (
    METRICS,
    Accumulator,
    calibration_test,
    create,
    explain,
    measure_many,
    names,
    table_words,
)
from confide.metrics.calibration import debiased_ece, ece, mce, smooth_ece, sweep_ece
from confide.metrics.classwise_calibration import classwise_ece
from confide.metrics.kernel_calibration import kde_ece
from confide.metrics.one_class import average_precision, class_auroc, f_beta, precision, recall
from confide.metrics.proper_scores import accuracy, brier, confidence_brier, confidence_gap, confidence_nll, nll
from confide.metrics.ranking import (
    augrc,
    aupr_error,
    aupr_success,
    aurc,
    auroc,
    coverage_at_risk,
    eaurc,
    fpr95,
    halving_rejection,
    risk_at_coverage,
    separability_bhattacharyya,
    separability_kl,
    tnr,
    tpr,
)
