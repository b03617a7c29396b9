"""Post-hoc calibration: fit on held-out predictions -> a frozen map from Predictions to Predictions."""

from confide.calibrators.base import CALIBRATORS, Calibrator, stage_titles
from confide.calibrators.binary_maps import centred_isotonic, platt, top_versus_all, venn_abers
from confide.calibrators.fitting import Candidate, Choice, choose, fit, load, names
from confide.calibrators.groups import DIFFICULTY, GROUPED, MOST_BANDS, GroupCalibrator
from confide.calibrators.linear_maps import dirichlet, matrix, vector
from confide.calibrators.meta_cal import metaacc, metamis
from confide.calibrators.per_sample import dac, parameterised_temperature, procal
from confide.calibrators.probability_maps import beta, histogram, isotonic, spline
from confide.calibrators.second_opinion import opinion_names, second_opinion
from confide.calibrators.structured_scaling import structured_matrix, structured_vector
from confide.calibrators.temperature_scaling import ensemble_temperature, temperature
from confide.calibrators.travelling import travelling
