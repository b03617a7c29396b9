"""Calibration by group: each group's map drawn towards the overall one by how few samples the group has.

A group of n samples counts n / (n + k), the overall map the rest; k is chosen by cross-validated likelihood. Where the
logits are linear in the parameters (temperature, vector, matrix, dirichlet) the mean of both logits is the map with the
mean parameters; for the other methods the probabilities are averaged. Numbers, such as a difficulty, are cut into bands
of equal size first; the cuts are part of the calibrator.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from confide import random
from confide.calibrators.base import CALIBRATORS, Calibrator, gives_probabilities, with_argmax_of
from confide.calibrators.confidence import TwoClassMap
from confide.calibrators.evidence import Evidence
from confide.checks import MOST_CLASSES, InputError, check_number, did_you_mean
from confide.files.fitted import FittedState, need_fields
from confide.predictions import Predictions
from confide.records import FeatureSource
from confide.types import JsonObject, Logits, Words

SHRINKAGES = (0.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10000.0, math.inf)
GROUPED = ("by", "bands", "shrinkage")
"""Options that every method takes beside its own."""
DIFFICULTY = "difficulty"
"""The column that holds how hard a sample is, known without its label."""
SHRINKAGE_FOLDS = 5
MOST_BANDS = 1000
MOST_VALUES = 100
"""Numbers of more values than these are no groups: each would have a sample or two."""
Fit = Callable[[Predictions], Calibrator]


@dataclass(frozen=True)
class Grouping:
    """The column by which samples are grouped; with `edges` by the band that its number falls into."""

    by: str
    edges: tuple[float, ...] | None = None

    def names(self, predictions: Predictions) -> Words:
        """The group of every sample, as text; a number that is none has the group "nan"."""
        column = column_of(predictions, self.by)
        if self.edges is None:
            return column.astype(np.str_)
        numbers = _numbers(column, self.by)
        names = np.searchsorted(self.edges, numbers).astype(np.str_)
        return np.where(np.isnan(numbers), "nan", names)


@dataclass(frozen=True, eq=False)
class GroupCalibrator(Calibrator):
    """A calibrator per value or band of the column `by`; values that were not there at the fit get the overall one."""

    by: str = ""
    edges: tuple[float, ...] | None = None
    overall: Calibrator = None  # type: ignore[assignment]  # given by every constructor call
    groups: Mapping[str, Calibrator] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    shrinkage: float = math.inf

    def __call__(
        self,
        predictions: Predictions,
        features: Any = None,
        opinions: Mapping[str, Predictions] | None = None,
        *,
        prior: Any = None,
    ) -> Predictions:
        names = Grouping(self.by, self.edges).names(predictions)
        logits = predictions.need_logits(f"calibrator '{self.word}'")
        moved = self.overall.calibrated(logits)
        for name, calibrator in self.groups.items():
            rows = torch.from_numpy(np.flatnonzero(names == name)).to(logits.device)
            if len(rows) and self.weights[name] > 0:
                own = blended(self.word, calibrator.calibrated(logits[rows]), moved[rows], self.weights[name])
                moved[rows] = with_argmax_of(logits[rows], own) if self.keeps_argmax else own
        real = not (predictions.from_probabilities or gives_probabilities(self.word))
        return self.for_prior(predictions.with_logits(moved, real=real), prior)

    def calibrated(self, logits: Logits, evidence: Evidence | None = None) -> Logits:
        """Logits alone do not know their group: the overall map."""
        return self.overall.calibrated(logits, evidence)

    def module(self, group: str | None = None) -> nn.Module:
        """The torch.nn.Module of one group, or of the overall map."""
        if group is None or group not in self.groups or not self.weights[group]:
            return self.overall.module()
        return _BlendModule(self.word, self.groups[group].module(), self.overall.module(), self.weights[group])

    def state(self) -> FittedState:
        """Everything as plain data and tensors, for a file."""
        tensors = {f"overall/{name}": value for name, value in self.overall.values.items()}
        groups = []
        for k, (name, calibrator) in enumerate(self.groups.items()):
            groups.append({"group": name, "weight": self.weights[name], "calibrator": calibrator.state().record})
            tensors |= {f"{k}/{part}": value for part, value in calibrator.values.items()}
        shrinkage = None if math.isinf(self.shrinkage) else self.shrinkage
        record = {**self.overall.state().record, "notes": list(self.notes)}
        record |= {"by": self.by, "shrinkage": shrinkage, "groups": groups}
        if self.edges is not None:
            record["edges"] = list(self.edges)
        return FittedState(record, tensors)


class _BlendModule(nn.Module):
    def __init__(self, word: str, own: nn.Module, overall: nn.Module, weight: float) -> None:
        super().__init__()
        self.word, self.own, self.overall, self.weight = word, own, overall, weight

    def forward(self, logits: Logits) -> Logits:
        return blended(self.word, self.own(logits), self.overall(logits), self.weight)


def blended(word: str, own: Logits, overall: Logits, weight: float) -> Logits:
    """weight * own + (1 - weight) * overall, of logits where the method is linear in them, else of probabilities."""
    if weight >= 1.0:
        return own
    if CALIBRATORS.get(word).spec.linear:
        return torch.lerp(overall, own, weight)
    parts = [torch.log_softmax(own, dim=1) + math.log(weight), torch.log_softmax(overall, dim=1) + math.log1p(-weight)]
    return torch.logaddexp(*parts)


def column_of(predictions: Predictions, by: str) -> NDArray[Any]:
    """The column to group by."""
    if by not in predictions.columns:
        hint = did_you_mean(by, predictions.columns) if predictions.columns else "these predictions have no columns"
        raise InputError(f"predictions have no column '{by}' to group by; {hint}")
    return predictions.columns[by]


def _numbers(column: NDArray[Any], by: str) -> NDArray[np.float64]:
    if column.dtype.kind not in "fiu":
        raise InputError(f"bands are made of numbers, but column '{by}' holds {column.dtype}; leave `bands` out")
    return column.astype(np.float64)


def grouping(predictions: Predictions, by: str | None, bands: int | None) -> Grouping | None:
    """Every value of the column a group, or with `bands` its numbers cut into so many parts of equal size."""
    if by is None:
        if bands is not None:
            raise InputError("bands are made of a column, but none was named; pass by=, such as by='difficulty'")
        return None
    column = column_of(predictions, by)
    if bands is None:
        different = len(np.unique(column)) if column.dtype.kind == "f" else 0
        if different > MOST_VALUES:
            raise InputError(
                f"column '{by}' holds {different:,} different numbers; pass bands=5 to cut them into bands"
            )
        return Grouping(by)
    bands = check_number(bands, "bands", 5, 2, MOST_BANDS)
    numbers = _numbers(column, by)
    bad = np.flatnonzero(np.isnan(numbers))
    if len(bad):
        raise InputError(f"column '{by}' must hold numbers to make bands, but sample {bad[0]} has none; drop it")
    # Cuts that fall together, where many numbers are equal, make fewer bands.
    return Grouping(by, tuple(np.unique(np.quantile(numbers, np.arange(1, bands) / bands)).tolist()))


def fit_groups(fit: Fit, predictions: Predictions, by: Grouping, shrinkage: float | None) -> GroupCalibrator:
    """Overall fit, a fit per group, and the weights of the groups.

    Args:
        fit: fits one set of predictions.
        shrinkage: the k of n / (n + k); None chooses it by cross-validated likelihood.
    """
    overall, groups = fit(predictions), group_fits(fit, predictions, by)
    names = by.names(predictions)
    k = best_shrinkage(fit, predictions, by) if shrinkage is None else shrinkage
    weights = {name: weight_of(int((names == name).sum()), k) for name in groups}
    notes = (*overall.notes, *_group_notes(predictions, by, groups, k))
    return GroupCalibrator(
        **{**vars(overall), "notes": notes},
        by=by.by,
        edges=by.edges,
        overall=overall,
        groups=groups,
        weights=weights,
        shrinkage=k,
    )


def weight_of(size: int, k: float) -> float:
    """n / (n + k)."""
    return 0.0 if math.isinf(k) or not size else size / (size + k)


def group_fits(fit: Fit, predictions: Predictions, by: Grouping) -> dict[str, Calibrator]:
    """A calibrator for every group that the method can be fitted on."""
    names, calibrators = by.names(predictions), {}
    for name in np.unique(names):
        # Too few samples for this method: the group keeps the overall map, and a note says so.
        with suppress(InputError):
            calibrators[str(name)] = fit(predictions.take(names == name))
    return calibrators


def best_shrinkage(fit: Fit, predictions: Predictions, by: Grouping) -> float:
    """The k with the smallest held-out NLL; of equals the largest, which stays nearest to the overall fit."""
    fold = label_folds(predictions, SHRINKAGE_FOLDS, 0)
    losses = np.zeros(len(SHRINKAGES))
    for k in range(SHRINKAGE_FOLDS):
        train, held = predictions.take(fold != k), predictions.take(fold == k)
        if len(train) and len(held):
            losses += _held_out_losses(fit, train, held, by)
    best = float(losses.min())
    return SHRINKAGES[int(np.flatnonzero(losses <= best + 1e-12 * abs(best))[-1])]


def _held_out_losses(fit: Fit, train: Predictions, held: Predictions, by: Grouping) -> NDArray[np.float64]:
    overall, groups = fit(train), group_fits(fit, train, by)
    names, train_names = by.names(held), by.names(train)
    losses = np.zeros(len(SHRINKAGES))
    for name in np.unique(names):
        part = held.take(names == name)
        plain = overall.calibrated(part.logits).double()
        own = groups[str(name)].calibrated(part.logits).double() if str(name) in groups else plain
        size = int((train_names == name).sum())
        for c, k in enumerate(SHRINKAGES):
            weight = weight_of(size, k)
            mixed = plain if weight == 0 else blended(overall.word, own, plain, weight)
            nll = functional.cross_entropy(mixed, part.labels, reduction="none")
            losses[c] += float(nll.sum() if part.weights is None else nll.double() @ torch.from_numpy(part.weights))
    return losses


def label_folds(predictions: Predictions, folds: int, seed: int, *, renamed_alike: bool = False) -> NDArray[np.int64]:
    """Fold of every sample: drawn from its id and the seed, balanced within labels, or right and wrong.

    Samples that were drawn as one go to one fold. With `renamed_alike` the numbers of the classes do not matter: they
    are dealt in the order in which the drawn samples show them.
    """
    if predictions.clusters is not None and predictions.unit is not None:
        units, member = np.unique(predictions.columns[predictions.unit], return_inverse=True)
        unstratified = np.zeros(len(units))
        return random.folds(units, unstratified, folds, seed=seed, purpose="calibrator folds")[member.reshape(-1)]
    only_confidence = predictions.outputs.only_confidence
    labels = (predictions.facts.correct if only_confidence else predictions.labels).cpu().numpy()
    if renamed_alike:
        drawn = labels[np.argsort(random.order_keys(predictions.ids, seed, "calibrator folds"), kind="stable")]
        names, first = np.unique(drawn, return_index=True)
        labels = first[np.searchsorted(names, labels)]
    return random.folds(predictions.ids, labels, folds, seed=seed, purpose="calibrator folds")


def _group_notes(predictions: Predictions, by: Grouping, groups: Iterable[str], k: float) -> list[str]:
    notes = []
    unfitted = sorted(set(by.names(predictions).tolist()) - set(groups))
    if unfitted:
        notes.append(f"groups with too few samples keep the overall map: {', '.join(unfitted[:5])}")
    if math.isinf(k):
        notes.append(f"groups of '{by.by}' do not predict better than the overall map, so all use that one")
    return notes


def _saved_edges(values: Any) -> tuple[float, ...]:
    numbers = isinstance(values, list) and all(isinstance(edge, (int, float)) for edge in values)
    if not numbers or not np.all(np.diff(values) > 0):
        raise InputError(f"edges of a saved calibrator must be numbers that rise, got {values!r:.60}; save it again")
    return tuple(map(float, values))


def calibrator_from_state(state: FittedState) -> Calibrator:
    """The calibrator of a saved state, with groups or without."""
    record = state.record
    if "groups" in record:
        return _group_calibrator_from_state(state)
    need_fields(record, {"word": str, "num_classes": int, "n": int, "options": dict, "notes": list})
    word = CALIBRATORS.get(record["word"]).word
    facts = (record["num_classes"], record["n"], record["options"], tuple(map(str, record["notes"])))
    prior = tuple(map(float, record.get("prior", ())))  # files of version 3 and before have none
    if record.get("of"):
        return _tried(TwoClassMap(word, state.tensors, *facts))
    beside = record.get("evidence")
    if beside is None:
        return _tried(Calibrator(word, state.tensors, *facts, prior=prior))
    need_fields(beside, {"feature_dim": (int, type(None)), "opinions": list, "source": dict})
    names, source = tuple(map(str, beside["opinions"])), FeatureSource.from_record(beside["source"])
    return _tried(Calibrator(word, state.tensors, *facts, beside["feature_dim"], names, source, prior))


def _tried(calibrator: Calibrator) -> Calibrator:
    """A calibrator read from a file, once it has calibrated something: values that do not fit fail here, not later."""
    classes, dim = calibrator.num_classes, calibrator.feature_dim
    if not 2 <= classes <= MOST_CLASSES or not 0 <= (dim or 0) <= MOST_CLASSES:
        raise ValueError(f"num_classes is {classes}, feature_dim is {dim}")
    if not all(bool(torch.isfinite(value).all()) for value in calibrator.values.values()):
        raise ValueError("its values are not finite")
    evidence = None
    if CALIBRATORS.get(calibrator.word).spec.wants != "nothing":
        opinions = {name: torch.full((2, classes), -math.log(classes)) for name in calibrator.opinions}
        evidence = Evidence(None if dim is None else torch.ones(2, dim), opinions)
    logits = torch.zeros(2, classes, dtype=torch.float64)
    logits[0, 0], logits[1, 0] = 50.0, 1.0  # the first reaches the ends of every table
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        finite = bool(torch.isfinite(calibrator.calibrated(logits, evidence)).all())
    if not finite:
        raise ValueError("its values give logits that are not finite")
    return calibrator


def _group_calibrator_from_state(state: FittedState) -> GroupCalibrator:
    def part(record: JsonObject, prefix: str) -> Calibrator:
        tensors = {k.split("/", 1)[1]: v for k, v in state.tensors.items() if k.startswith(f"{prefix}/")}
        return calibrator_from_state(FittedState(record, tensors))

    record = dict(state.record)
    rows = record.pop("groups")
    overall = part({**record, "notes": []}, "overall")
    return GroupCalibrator(
        **{**vars(overall), "notes": tuple(record["notes"])},
        by=record["by"],
        edges=_saved_edges(record["edges"]) if "edges" in record else None,
        overall=overall,
        groups={row["group"]: part(row["calibrator"], str(k)) for k, row in enumerate(rows)},
        weights={row["group"]: row["weight"] for row in rows},
        shrinkage=math.inf if record["shrinkage"] is None else record["shrinkage"],
    )
