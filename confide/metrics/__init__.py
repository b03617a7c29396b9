"""Reliability metrics: `(predictions, *, options) -> Measurement`, all from one pass over the logits."""

from confide.metrics.base import (
    METRICS as METRICS,
    Accumulator as Accumulator,
    calibration_test as calibration_test,
    create as create,
    explain as explain,
    measure_many as measure_many,
    names as names,
    table_words as table_words,
)
from confide.metrics.calibration import (
    debiased_ece as debiased_ece,
    ece as ece,
    mce as mce,
    smooth_ece as smooth_ece,
    sweep_ece as sweep_ece,
)
from confide.metrics.classwise_calibration import classwise_ece as classwise_ece
from confide.metrics.kernel_calibration import kde_ece as kde_ece
from confide.metrics.one_class import (
    average_precision as average_precision,
    class_auroc as class_auroc,
    f_beta as f_beta,
    precision as precision,
    recall as recall,
)
from confide.metrics.proper_scores import (
    accuracy as accuracy,
    brier as brier,
    confidence_brier as confidence_brier,
    confidence_gap as confidence_gap,
    confidence_nll as confidence_nll,
    nll as nll,
)
from confide.metrics.ranking import (
    augrc as augrc,
    aupr_error as aupr_error,
    aupr_success as aupr_success,
    aurc as aurc,
    auroc as auroc,
    coverage_at_risk as coverage_at_risk,
    eaurc as eaurc,
    fpr95 as fpr95,
    halving_rejection as halving_rejection,
    risk_at_coverage as risk_at_coverage,
    separability_bhattacharyya as separability_bhattacharyya,
    separability_kl as separability_kl,
    tnr as tnr,
    tpr as tpr,
)
