"""Post-hoc calibration: fit on held-out predictions -> a frozen map from Predictions to Predictions."""

from confide.calibrators.calibrator import CALIBRATORS, Calibrator
from confide.calibrators.family import fit, load, names
from confide.calibrators.temperature import temperature

__all__ = ["CALIBRATORS", "Calibrator", "fit", "load", "names", "temperature"]
