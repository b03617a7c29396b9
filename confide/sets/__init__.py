"""Prediction sets: fit on held-out predictions -> a frozen map from Predictions to sets that hold the true class."""

from confide.sets.base import SETS, PredictionSets, SetGroup, quantile_rank
from confide.sets.coverage import measure
from confide.sets.fitting import ShiftWeights, fit, likelihood_ratios, load, names
from confide.sets.scores import aps, lac, raps, saps, top_k
