"""Post-hoc calibration: fit on held-out predictions -> a frozen map from Predictions to Predictions."""

from confide.calibrators.beta import beta
from confide.calibrators.calibrator import CALIBRATORS, Calibrator
from confide.calibrators.choice import Candidate, Choice, choose
from confide.calibrators.dirichlet import dirichlet
from confide.calibrators.ensemble_temperature import ensemble_temperature
from confide.calibrators.family import fit, load, names
from confide.calibrators.groups import DIFFICULTY, GROUPED, MOST_BANDS, GroupCalibrator
from confide.calibrators.histogram import histogram
from confide.calibrators.isotonic import isotonic
from confide.calibrators.matrix import matrix
from confide.calibrators.metaacc import metaacc
from confide.calibrators.metamis import metamis
from confide.calibrators.spline import spline
from confide.calibrators.temperature import temperature
from confide.calibrators.vector import vector

__all__ = [
    "CALIBRATORS",
    "DIFFICULTY",
    "GROUPED",
    "MOST_BANDS",
    "Calibrator",
    "Candidate",
    "Choice",
    "GroupCalibrator",
    "beta",
    "choose",
    "dirichlet",
    "ensemble_temperature",
    "fit",
    "histogram",
    "isotonic",
    "load",
    "matrix",
    "metaacc",
    "metamis",
    "names",
    "spline",
    "temperature",
    "vector",
]
