"""Post-hoc calibration: fit on held-out predictions -> a frozen map from Predictions to Predictions."""

from confide.calibrators.base import CALIBRATORS as CALIBRATORS, Calibrator as Calibrator, stage_titles as stage_titles
from confide.calibrators.binary_maps import (
    centred_isotonic as centred_isotonic,
    platt as platt,
    top_versus_all as top_versus_all,
    venn_abers as venn_abers,
)
from confide.calibrators.fitting import (
    Candidate as Candidate,
    Choice as Choice,
    choose as choose,
    fit as fit,
    load as load,
    names as names,
)
from confide.calibrators.groups import (
    DIFFICULTY as DIFFICULTY,
    GROUPED as GROUPED,
    MOST_BANDS as MOST_BANDS,
    GroupCalibrator as GroupCalibrator,
)
from confide.calibrators.linear_maps import dirichlet as dirichlet, matrix as matrix, vector as vector
from confide.calibrators.meta_cal import metaacc as metaacc, metamis as metamis
from confide.calibrators.per_sample import (
    dac as dac,
    parameterised_temperature as parameterised_temperature,
    procal as procal,
)
from confide.calibrators.probability_maps import (
    beta as beta,
    histogram as histogram,
    isotonic as isotonic,
    spline as spline,
)
from confide.calibrators.second_opinion import opinion_names as opinion_names, second_opinion as second_opinion
from confide.calibrators.streams import (
    fit_stream as fit_stream,
    joined as joined,
    sample_stream as sample_stream,
)
from confide.calibrators.structured_scaling import (
    structured_matrix as structured_matrix,
    structured_vector as structured_vector,
)
from confide.calibrators.temperature_scaling import (
    ensemble_temperature as ensemble_temperature,
    temperature as temperature,
)
from confide.calibrators.travelling import travelling as travelling
