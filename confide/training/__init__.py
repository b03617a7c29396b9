"""Training: one readable loop, exactly resumable; prediction; ensembles."""

from confide.training.loop import fit
from confide.training.predict import penultimate, predict
from confide.training.settings import Settings
from confide.training.trained import Trained

__all__ = ["Settings", "Trained", "fit", "penultimate", "predict"]
