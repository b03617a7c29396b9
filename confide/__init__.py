"""Confide: classifiers whose confidence can be trusted, and the proof.

Importing the package loads nothing heavy; every name below loads its module when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confide import (
        answers,
        calibrators,
        data,
        decisions,
        difficulty,
        evaluation,
        explorer,
        features,
        integrations,
        losses,
        metrics,
        models,
        monitor,
        penalties,
        pipeline,
        plot,
        report,
        robustness,
        scoring,
        sets,
        shift,
        training,
        trust,
    )
    from confide.data import load_dataset
    from confide.evaluation.compare import compare
    from confide.evaluation.evaluate import evaluate
    from confide.evaluation.operating_points import apply_operating_point, operating_point
    from confide.experiment import run
    from confide.predictions import Predictions
    from confide.records import Dataset, Features, Scores, Split
    from confide.report import write_report
    from confide.results import Evaluation, Measurement, OperatingPoint
    from confide.simplex.statistics import check


__version__ = "0.1.0"

_OUTPUTS = ("answers", "calibrators", "decisions", "metrics", "sets", "trust")
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
