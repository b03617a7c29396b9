"""Confide: classifiers whose confidence can be trusted, and the proof.

Importing the package loads nothing heavy; every name below loads its module when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confide import (
        answers as answers,
        calibrators as calibrators,
        data as data,
        decisions as decisions,
        dense as dense,
        difficulty as difficulty,
        evaluation as evaluation,
        explorer as explorer,
        features as features,
        integrations as integrations,
        losses as losses,
        metrics as metrics,
        models as models,
        monitor as monitor,
        penalties as penalties,
        pipeline as pipeline,
        plot as plot,
        report as report,
        robustness as robustness,
        scoring as scoring,
        sets as sets,
        shift as shift,
        training as training,
        trust as trust,
    )
    from confide.checks import InputError as InputError
    from confide.data import load_dataset as load_dataset
    from confide.evaluation.compare import compare as compare
    from confide.evaluation.evaluate import evaluate as evaluate
    from confide.evaluation.operating_points import (
        apply_operating_point as apply_operating_point,
        operating_point as operating_point,
    )
    from confide.experiment import run as run
    from confide.predictions import Predictions as Predictions
    from confide.records import Dataset as Dataset, Features as Features, Scores as Scores, Split as Split
    from confide.report import write_report as write_report
    from confide.results import Evaluation as Evaluation, Measurement as Measurement, OperatingPoint as OperatingPoint
    from confide.simplex.statistics import check as check


__version__ = "0.1.0"

_OUTPUTS = ("answers", "calibrators", "decisions", "dense", "metrics", "sets", "trust")
_METHODS = ("difficulty", "features", "losses", "models", "penalties", "shift")
_WORK = (
    "data",
    "evaluation",
    "explorer",
    "integrations",
    "monitor",
    "pipeline",
    "plot",
    "report",
    "robustness",
    "scoring",
    "training",
)
_MODULES = (*_OUTPUTS, *_METHODS, *_WORK)
_NAMES_BY_MODULE = {
    "checks": ("InputError",),
    "predictions": ("Predictions",),
    "records": ("Dataset", "Split", "Features", "Scores"),
    "results": ("Measurement", "Evaluation", "OperatingPoint"),
    "simplex.statistics": ("check",),
    "evaluation": ("evaluate", "compare", "operating_point", "apply_operating_point"),
    "report": ("write_report",),
    "data": ("load_dataset",),
    "experiment": ("run",),
}
_NAMES = {name: f"confide.{module}" for module, names in _NAMES_BY_MODULE.items() for name in names}

__all__ = ["__version__", *_MODULES, *_NAMES]


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(import_module(_NAMES[name]), name)
    if name in _MODULES:
        return import_module(f"confide.{name}")
    raise AttributeError(f"module 'confide' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
