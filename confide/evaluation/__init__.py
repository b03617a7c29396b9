"""From predictions to a verdict: evaluate, compare, operating points."""

from confide.evaluation.compare import compare, holm
from confide.evaluation.evaluate import evaluate
from confide.evaluation.gallery import gallery, suspects
from confide.evaluation.ood import Side, ood
from confide.evaluation.operating_points import OperatingPoint, apply_operating_point, observed, operating_point
from confide.evaluation.shift import Subject, label_noise_curve, shift_grid
from confide.evaluation.trust import TrustValues, compare_trust, rates_at_same_tpr
from confide.results import join
