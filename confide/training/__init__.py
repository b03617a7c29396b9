"""Training: one readable loop, exactly resumable; prediction; ensembles; presets."""

from confide.training.checkpoint import Trained
from confide.training.ensemble import fit_members, member_folders, predict_members
from confide.training.loop import fit
from confide.training.objective import GROUPS, LABEL_GROUPS, group_scores_kind
from confide.training.oracle import Oracle, OracleSettings, cross_fit, fit_oracle
from confide.training.prediction import penultimate, predict
from confide.training.settings import PRESETS, Settings, preset
from confide.training.trackers import SampleHistory
