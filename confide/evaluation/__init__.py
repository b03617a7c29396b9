"""From predictions to a verdict: evaluate, compare, operating points."""

from confide.evaluation.compare import compare
from confide.evaluation.evaluate import evaluate
from confide.evaluation.gallery import gallery, suspects
from confide.evaluation.join import join
from confide.evaluation.ood import Side, ood
from confide.evaluation.operating import OperatingPoint, apply_operating_point, observed, operating_point
from confide.evaluation.shift_cells import Subject
from confide.evaluation.shift_grid import shift_grid
from confide.evaluation.shift_tables import label_noise_curve
