"""Training: one readable loop, exactly resumable; prediction; ensembles; presets."""

from confide.training.checkpoint import Trained as Trained
from confide.training.ensemble import (
    fit_members as fit_members,
    member_folders as member_folders,
    predict_members as predict_members,
)
from confide.training.loop import fit as fit
from confide.training.objective import (
    GROUPS as GROUPS,
    LABEL_GROUPS as LABEL_GROUPS,
    group_scores_kind as group_scores_kind,
)
from confide.training.oracle import (
    Oracle as Oracle,
    OracleSettings as OracleSettings,
    cross_fit as cross_fit,
    fit_oracle as fit_oracle,
)
from confide.training.prediction import penultimate as penultimate, predict as predict
from confide.training.settings import PRESETS as PRESETS, Settings as Settings, preset as preset
from confide.training.trackers import SampleHistory as SampleHistory
