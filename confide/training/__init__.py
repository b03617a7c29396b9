"""Training: one readable loop, exactly resumable; prediction; ensembles; presets."""

from confide.training.bands import band_scores, bands_of
from confide.training.cross_fit import cross_fit
from confide.training.ensemble import fit_members, member_folders, predict_members
from confide.training.extractor import read_checkpoint
from confide.training.history import SampleHistory
from confide.training.loop import fit
from confide.training.oracle import fit_oracle
from confide.training.oracle_network import Oracle, OracleSettings
from confide.training.predict import penultimate, predict
from confide.training.presets import PRESETS, preset
from confide.training.settings import Settings
from confide.training.trained import Trained

__all__ = [
    "PRESETS",
    "Oracle",
    "OracleSettings",
    "Settings",
    "Trained",
    "band_scores",
    "bands_of",
    "cross_fit",
    "fit",
    "fit_members",
    "fit_oracle",
    "member_folders",
    "penultimate",
    "predict",
    "predict_members",
    "preset",
    "read_checkpoint",
]
