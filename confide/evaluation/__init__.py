"""From predictions to a verdict: evaluate, compare, operating points."""

from confide.evaluation.compare import compare
from confide.evaluation.evaluate import evaluate
from confide.evaluation.gallery import gallery
from confide.evaluation.join import join
from confide.evaluation.ood import Side, ood
from confide.evaluation.operating import OperatingPoint, apply_operating_point, observed, operating_point
