"""Calls of other libraries beside ours, run on the same numbers: the tables of docs/coming_from.md.

    python -m benchmarks.coming_from

The code that a table shows is the code that runs. A library that is not installed is named, and its table stays.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
import torch

import confide
from benchmarks import ROOT
from benchmarks.findings.cells import markdown
from confide import files

PAGE = ROOT / "docs" / "coming_from.md"
PLACE = re.compile(r"(<!-- made by benchmarks/coming_from\.py: ([\w-]+) -->\n).*?(<!-- /made -->)", re.S)
SAMPLES, CLASSES = 2000, 5


@dataclass(frozen=True)
class Pair:
    """Their call and ours, each an expression with one number as value."""

    theirs: str
    ours: str
    close: float = 1e-6
    """How far the two may lie apart, relatively."""


@dataclass(frozen=True)
class Library:
    """Another library: its distribution, the lines before its calls, and the calls."""

    package: str
    imports: str
    pairs: tuple[Pair, ...]


LIBRARIES = {
    "scikit-learn": Library(
        "scikit-learn",
        "from sklearn.metrics import accuracy_score, average_precision_score, brier_score_loss, log_loss\n"
        "from sklearn.metrics import roc_auc_score",
        (
            Pair("accuracy_score(labels, probs.argmax(1))", "metrics.accuracy(p)"),
            Pair("log_loss(labels, probs)", "metrics.nll(p)"),
            Pair("brier_score_loss(labels, probs)", "metrics.brier(p)"),
            Pair("roc_auc_score(probs.argmax(1) == labels, probs.max(1))", "metrics.auroc(p)"),
            Pair("average_precision_score(probs.argmax(1) == labels, probs.max(1))", "metrics.aupr_success(p)"),
        ),
    ),
    "torchmetrics": Library(
        "torchmetrics",
        "from torchmetrics.functional.classification import multiclass_accuracy, multiclass_calibration_error",
        (
            Pair(
                "multiclass_calibration_error(tensor(probs), tensor(labels), num_classes=5, n_bins=15)",
                "metrics.ece(p)",
                2e-6,  # theirs is summed in float32
            ),
            Pair(
                'multiclass_calibration_error(tensor(probs), tensor(labels), num_classes=5, n_bins=15, norm="max")',
                "metrics.mce(p)",
                2e-6,
            ),
            Pair(
                'multiclass_accuracy(tensor(probs), tensor(labels), num_classes=5, average="micro")',
                "metrics.accuracy(p)",
            ),
        ),
    ),
    "netcal": Library(
        "netcal",
        "from netcal.binning import IsotonicRegression\n"
        "from netcal.metrics import ECE, MCE\n"
        "from netcal.scaling import TemperatureScaling",
        (
            Pair("ECE(15).measure(probs, labels)", "metrics.ece(p)"),
            Pair("MCE(15).measure(probs, labels)", "metrics.mce(p)"),
            Pair(
                "TemperatureScaling().fit(val_probs, val_labels).transform(probs).max(1).mean()",
                'calibrators.fit("temperature", val)(p).facts.confidence.mean()',
                1e-4,  # theirs stops earlier
            ),
            Pair(
                "IsotonicRegression().fit(val_probs, val_labels).transform(probs).max(1).mean()",
                'calibrators.fit("isotonic", val)(p).facts.confidence.mean()',
            ),
        ),
    ),
    "MAPIE": Library(
        "mapie",
        "from mapie.classification import SplitConformalClassifier",
        tuple(
            Pair(
                f'SplitConformalClassifier(model, confidence_level=0.9, conformity_score="{word}")'
                ".conformalize(X_val, val_labels).predict_set(X)[1].sum() / 2000",
                f'sets.fit("{word}", val, coverage=0.9, allow_empty=True)(p).sum() / 2000',
            )
            for word in ("lac", "top_k")
        ),
    ),
    "cleanlab": Library(
        "cleanlab",
        "from cleanlab.rank import get_label_quality_scores",
        (
            Pair("get_label_quality_scores(labels, probs).mean()", "p.facts.p_true.mean()"),
            Pair("get_label_quality_scores(labels, probs).argmin()", "p.facts.nll.argmax()"),
        ),
    ),
    "probmetrics": Library(
        "probmetrics",
        "from probmetrics.calibrators import get_calibrator\nfrom probmetrics.metrics import Metrics",
        (
            *(
                Pair(
                    f'Metrics.from_names(["{theirs}"])'
                    f'.compute_all_from_labels_logits(tensor(labels), tensor(logits))["{theirs}"]',
                    f"metrics.{ours}(p)",
                )
                for theirs, ours in (("logloss", "nll"), ("brier", "brier"))
            ),
            *(
                Pair(
                    f'get_calibrator("{theirs}").fit(val_probs, val_labels).predict_proba(probs).max(1).mean()',
                    f'calibrators.fit("{ours}", val)(p).facts.confidence.mean()',
                    close,
                )
                for theirs, ours, close in (
                    ("temp-scaling", "temperature", 1e-4),
                    ("svs", "structured_vector", 1e-3),
                    ("sms", "structured_matrix", 1e-3),
                )
            ),
        ),
    ),
}


def names() -> dict[str, Any]:
    """What the calls of the page use: one set to fit on, one to judge, and a model whose features are its logits."""
    rng = np.random.default_rng(0)
    both = 3 * rng.normal(size=(2, SAMPLES, CLASSES))
    truth = (both / 2 + rng.gumbel(size=both.shape)).argmax(axis=2)
    val, p = (confide.Predictions(outputs, labels) for outputs, labels in zip(both, truth, strict=True))
    known: dict[str, Any] = {"tensor": torch.tensor, "metrics": confide.metrics, "calibrators": confide.calibrators}
    known |= {"sets": confide.sets, "val": val, "p": p, "val_labels": truth[0], "labels": truth[1]}
    known |= {"val_probs": softmax(both[0]), "probs": softmax(both[1]), "logits": both[1]}
    return {**known, "X_val": both[0], "X": both[1], "model": KnownModel()}


def softmax(logits: Any) -> Any:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


class KnownModel:
    """A fitted classifier in the manner of scikit-learn; its inputs are its logits."""

    classes_ = np.arange(CLASSES)
    _estimator_type = "classifier"

    def fit(self, X: Any, y: Any) -> KnownModel:
        return self

    def predict(self, X: Any) -> Any:
        return X.argmax(axis=1)

    def predict_proba(self, X: Any) -> Any:
        return softmax(X)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        from sklearn.base import BaseEstimator, ClassifierMixin

        class Base(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
            pass

        return Base().__sklearn_tags__()


def values(library: Library, known: Mapping[str, Any]) -> list[tuple[float, float]]:
    """(theirs, ours) of every pair; raises ImportError without the library."""
    space = dict(known)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(library.imports, space)
        return [(float(eval(pair.theirs, space)), float(eval(pair.ours, space))) for pair in library.pairs]


def differ(library: Library, pair_values: list[tuple[float, float]]) -> list[str]:
    """The pairs whose values lie further apart than they may."""
    return [
        f"{pair.theirs} = {theirs!r}, {pair.ours} = {ours!r}"
        for pair, (theirs, ours) in zip(library.pairs, pair_values, strict=True)
        if abs(theirs - ours) > pair.close * max(abs(theirs), 1e-12)
    ]


def table(library: Library, pair_values: list[tuple[float, float]]) -> str:
    """Their call and its value, ours and its value."""
    rows = [
        [f"`{pair.theirs}`", f"{theirs:.6g}", f"`{pair.ours}`", f"{ours:.6g}"]
        for pair, (theirs, ours) in zip(library.pairs, pair_values, strict=True)
    ]
    imports = f"{library.package} {version(library.package)}:\n\n```python\n{library.imports}\n```\n\n"
    return imports + markdown(["theirs", "value", "ours", "value"], rows)


def main() -> None:
    page, known = PAGE.read_text(encoding="utf-8"), names()
    tables = {}
    for name, library in LIBRARIES.items():
        try:
            pair_values = values(library, known)
        except ImportError as error:
            print(f"left as it is, {name}: {error}")
            continue
        if lines := differ(library, pair_values):
            raise SystemExit(f"{name} differs:\n" + "\n".join(lines))
        tables[name] = table(library, pair_values)
        print(f"{name}: {len(pair_values)} calls give the same")

    def renewed(place: re.Match[str]) -> str:
        return f"{place[1]}{tables[place[2]]}\n{place[3]}" if place[2] in tables else place[0]

    files.write_text(PAGE, PLACE.sub(renewed, page))


if __name__ == "__main__":
    main()
