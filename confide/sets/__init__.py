"""Prediction sets: fit on held-out predictions -> a frozen map from Predictions to sets that hold the true class."""

from confide.sets.base import (
    SETS as SETS,
    PredictionSets as PredictionSets,
    SetGroup as SetGroup,
    quantile_rank as quantile_rank,
)
from confide.sets.coverage import measure as measure, merged as merged, set_columns as set_columns
from confide.sets.fitting import (
    ShiftWeights as ShiftWeights,
    fit as fit,
    likelihood_ratios as likelihood_ratios,
    load as load,
    names as names,
)
from confide.sets.scores import aps as aps, lac as lac, raps as raps, saps as saps, top_k as top_k
