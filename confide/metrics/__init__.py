"""Reliability metrics: `(predictions, *, options) -> Measurement`, all from one pass over the logits."""

from confide.metrics.accumulator import Accumulator, create
from confide.metrics.accuracy import accuracy
from confide.metrics.augrc import augrc
from confide.metrics.aupr_error import aupr_error
from confide.metrics.aupr_success import aupr_success
from confide.metrics.aurc import aurc
from confide.metrics.auroc import auroc
from confide.metrics.brier import brier
from confide.metrics.classwise_ece import classwise_ece
from confide.metrics.confidence_gap import confidence_gap
from confide.metrics.coverage_at_risk import coverage_at_risk
from confide.metrics.debiased_ece import debiased_ece
from confide.metrics.eaurc import eaurc
from confide.metrics.ece import ece
from confide.metrics.family import METRICS, calibration_test, names
from confide.metrics.fpr95 import fpr95
from confide.metrics.halving_rejection import halving_rejection
from confide.metrics.kde_ece import kde_ece
from confide.metrics.mce import mce
from confide.metrics.nll import nll
from confide.metrics.risk_at_coverage import risk_at_coverage
from confide.metrics.separability_bhattacharyya import separability_bhattacharyya
from confide.metrics.separability_kl import separability_kl
from confide.metrics.smooth_ece import smooth_ece
from confide.metrics.sweep_ece import sweep_ece
from confide.metrics.tnr import tnr
from confide.metrics.tpr import tpr
