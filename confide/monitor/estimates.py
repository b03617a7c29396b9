"""What can be told of new samples without their labels: accuracy, calibration error, and drift.

Everything is measured against a reference, labelled predictions of the time when all was well. Every estimate assumes
something of what has changed, and names it: no method knows the accuracy of arbitrary new data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr, expit, gammaincc, kolmogorov, logit

from confide.checks import InputError, check_range, check_record
from confide.numerics.binning import width_bin_of
from confide.numerics.logistic import fit_logistic
from confide.predictions import Predictions
from confide.random import uneven_shares
from confide.results import Z
from confide.types import ClassIndices, Floats, JsonObject

BANDS = 5
"""Bands of confidence within which calibration is watched."""
QUANTILES = 1001
SHARPEST = 1e-6
"""Confidences are held this far from 0 and 1 before their logit is taken."""
ECE_BINS = 15
GRID = np.linspace(-14.0, 14.0, 561)
"""Logits of the chance of being right, among which an ECE is estimated; twice as far is how much they may move."""
COLUMNS = ("difficulty", "distance")
"""Columns of predictions that may tell more than confidence: difficulty, and distance to the training data."""
RIDGE, CLEAN_WEIGHT = 0.3, 8.0
"""Of the regression on shifted cells: the penalty of its weights, and how many cells the reference counts as."""
LABEL_SHIFTS = 20
"""Draws of the reference in other shares of the classes."""


@dataclass(frozen=True)
class WatchBatch:
    """What estimates read of a set of predictions; `COLUMNS` where they are known."""

    confidence: Floats
    classes: ClassIndices | None = None
    difficulty: Floats | None = None
    distance: Floats | None = None

    @classmethod
    def of(cls, predictions: Predictions) -> WatchBatch:
        """The batch of predictions; `COLUMNS` are columns of them."""
        facts = predictions.facts
        known = None if facts.predicted is None else facts.prediction.cpu().numpy().astype(np.int64, copy=False)
        columns = {}
        for name in COLUMNS:
            if name in predictions.columns:
                values = np.asarray(predictions.columns[name])
                if values.dtype.kind not in "iuf" or not np.isfinite(values).all():
                    raise InputError(f"column '{name}' must hold finite numbers; leave out samples without one")
                columns[name] = values.astype(np.float64)
        return cls(facts.sureness(), known, **columns)

    def take(self, rows: NDArray[np.int64]) -> WatchBatch:
        """The batch of these rows; one may come twice."""
        columns = {name: values[rows] for name in COLUMNS if (values := getattr(self, name)) is not None}
        classes = None if self.classes is None else self.classes[rows]
        return WatchBatch(self.confidence[rows], classes, **columns)


@dataclass(frozen=True)
class AccuracyEstimate:
    """An estimate with its 95 % interval, which holds where the method's assumption does."""

    method: str
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class CalibrationEstimate:
    """An ECE in bins of equal width, without what chance adds, with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Drift:
    """How far a thing has moved from the reference: a statistic from 0 to 1, and the p of no change at all."""

    what: str
    statistic: float
    p_value: float


@dataclass(frozen=True)
class DifficultyMap:
    """P(right) by logistic regression on the logit of confidence and on difficulty, fitted on the reference."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    weights: tuple[float, ...]
    """Of the two signals, standardised, and of the constant."""
    covariance: tuple[tuple[float, ...], ...]

    @classmethod
    def fit(cls, confidence: Floats, difficulty: Floats, right: Floats) -> DifficultyMap:
        """The regression, with the covariance of its weights."""
        fitted = fit_logistic(_signals(confidence, difficulty), right == 1)
        known = tuple(fitted.mean.tolist()), tuple(fitted.deviation.tolist()), (*fitted.weight.tolist(), fitted.bias)
        rows = cls(*known, ())._rows(confidence, difficulty)
        chance = expit(rows @ np.array(known[2]))
        curvature = (rows * (chance * (1 - chance))[:, None]).T @ rows + 1e-9 * np.eye(3)
        return cls(*known, tuple(map(tuple, np.linalg.inv(curvature).tolist())))

    def _rows(self, confidence: Floats, difficulty: Floats) -> Floats:
        scaled = (_signals(confidence, difficulty) - np.array(self.mean)) / np.array(self.deviation)
        return np.column_stack([scaled, np.ones(len(scaled))])

    def logits(self, confidence: Floats, difficulty: Floats) -> Floats:
        """The logit of every sample's chance of being right."""
        return np.asarray(self._rows(confidence, difficulty) @ np.array(self.weights))

    def estimate(self, confidence: Floats, difficulty: Floats, spread: float) -> AccuracyEstimate:
        """The mean chance of being right; its error is that of the weights beside the spread of the labels."""
        rows = self._rows(confidence, difficulty)
        chance = expit(rows @ np.array(self.weights))
        slope = (rows * (chance * (1 - chance))[:, None]).mean(axis=0)
        variance = float(slope @ np.array(self.covariance) @ slope)
        return _estimate("difficulty", float(chance.mean()), math.hypot(spread, math.sqrt(variance)))


@dataclass(frozen=True)
class CellRegression:
    """Weights of batch statistics that give the logit of accuracy, and the spread of its error on cells left out."""

    names: tuple[str, ...]
    weights: tuple[float, ...]
    error: float

    @classmethod
    def fit(cls, cells: Sequence[Mapping[str, float]], accuracy: Floats, kinds: Sequence[str]) -> CellRegression:
        """Ridge regression on statistics of cells; the last is the reference, which counts as several.

        A column that is far from what it was can lead astray as well as help: which columns are used is decided by the
        error on cells whose kind of shift was left out, and that error makes the interval.
        """
        target = logit(accuracy)
        weights = np.array([1.0] * (len(cells) - 1) + [CLEAN_WEIGHT])
        kind = np.array(kinds)
        always, optional = ([name for name in cells[0] if (name in COLUMNS) is known] for known in (False, True))
        candidates = []
        for number in range(len(optional) + 1):
            for columns in combinations(optional, number):
                names = (*always, *columns)
                rows = np.array([[cell[name] for name in names] for cell in cells])
                errors = []
                for left_out in np.unique(kind[:-1]):
                    others = kind != left_out
                    fitted = _ridge(rows[others], target[others], weights[others])
                    errors += ((rows @ fitted - target)[~others]).tolist()
                error = float(np.sqrt(np.mean(np.square(errors))))
                candidates.append(cls(names, tuple(_ridge(rows, target, weights).tolist()), error))
        return min(candidates, key=lambda candidate: candidate.error)

    def estimate(self, statistics: Mapping[str, float]) -> AccuracyEstimate:
        """The accuracy of a batch; a cell's own noise is in the error already."""
        centre = sum(statistics[name] * weight for name, weight in zip(self.names, self.weights, strict=True))
        value, low, high = (float(expit(centre + k * Z * self.error)) for k in (0, -1, 1))
        return AccuracyEstimate("regression", value, low, high)


@dataclass(frozen=True)
class WatchReference:
    """A summary of labelled predictions: all that estimates and alarms need of them."""

    n: int
    accuracy: float
    confidence: float
    threshold: float
    """Of ATC: the share of confidences above it is the accuracy."""
    quantiles: Mapping[str, tuple[float, ...]]
    """Of confidence and of those `COLUMNS` that it has."""
    class_counts: tuple[int, ...]
    bands: tuple[float, ...]
    """Inner edges of the bands of confidence."""
    tolerance: tuple[float, ...]
    """Two standard errors of each band's gap, and last that of all samples: less could not have been seen here."""
    by_difficulty: DifficultyMap | None = None
    by_cells: CellRegression | None = None
    class_names: tuple[str, ...] = ()

    @classmethod
    def of(cls, predictions: Predictions, cells: Sequence[Predictions] = ()) -> WatchReference:
        """The summary of labelled predictions.

        Args:
            predictions: labelled, neither trained on nor calibrated on.
            cells: labelled batches of shifted samples (one corruption at one severity each), for the regression; a
                column `shift` names the kind of shift, and cells of one kind are left out together.
        """
        predictions.need_drawn_singly("a watch")
        batch = WatchBatch.of(predictions)
        right = predictions.facts.correct.double().cpu().numpy()
        n = len(right)
        if n < 50:
            raise InputError(f"a watch needs at least 50 labelled samples to compare with, got {n}; give more")
        known = {name: getattr(batch, name) for name in ("confidence", *COLUMNS)}
        at = np.linspace(0, 1, QUANTILES)
        quantiles = {k: tuple(np.quantile(v, at).tolist()) for k, v in known.items() if v is not None}
        bands = np.unique(np.quantile(batch.confidence, np.arange(1, BANDS) / BANDS))
        bands = bands[bands < batch.confidence.max()]  # where many are as sure as can be, no band lies above them
        # Confidences of few different values, such as shares of agreement, leave bands between them that hold none.
        counts = np.bincount(np.searchsorted(bands, batch.confidence, side="left"), minlength=len(bands) + 1)
        bands = bands[counts[:-1] > 0]
        band = np.searchsorted(bands, batch.confidence, side="left")
        groups = [right[band == k] for k in range(len(bands) + 1)] + [right]
        accuracy = float(right.mean())
        reference = cls(
            n,
            accuracy,
            float(batch.confidence.mean()),
            float(np.quantile(batch.confidence, 1 - accuracy)),
            quantiles,
            ()
            if batch.classes is None
            else tuple(np.bincount(batch.classes, minlength=predictions.num_classes).tolist()),
            tuple(bands.tolist()),
            tuple(2 * _rate_error(float(group.mean()), len(group)) for group in groups),
            None if batch.difficulty is None else DifficultyMap.fit(batch.confidence, batch.difficulty, right),
            class_names=tuple(predictions.class_names or ()),
        )
        return replace(reference, by_cells=reference._regression(predictions, cells)) if cells else reference

    def _regression(self, predictions: Predictions, cells: Sequence[Predictions]) -> CellRegression:
        """Of accuracy on batch statistics: of shifted cells, of the reference, and of all these in other class shares.

        Other shares of the classes change what a batch looks like and are not difficulty: the regression must see some.
        """
        least = 2 * len(self.statistics(WatchBatch.of(predictions)))
        if len(cells) < least:
            raise InputError(
                f"the regression of {least // 2} batch statistics needs at least {least} cells of "
                f"shifted samples, got {len(cells)}; give one for each corruption and severity"
            )
        if not self.pairs:
            for cell in cells:
                cell.need_classes("the reference", self.num_classes, self.class_names)
        kinds = [str(cell.columns["shift"][0]) if "shift" in cell.columns else f"{k}" for k, cell in enumerate(cells)]
        draws = [(kind, cell, np.arange(len(cell))) for kind, cell in zip(kinds, cells, strict=True)]
        if not self.pairs:
            again = [*((kind, cell) for kind, cell, _ in draws), *[("class shares", predictions)] * LABEL_SHIFTS]
            for k, (kind, cell) in enumerate(again):
                shares = uneven_shares(cell.num_classes, 0, counter=k)[cell.labels.cpu().numpy()]
                rng = np.random.default_rng(k)
                draws.append((kind, cell, rng.choice(len(cell), len(cell), p=shares / shares.sum())))
        draws.append(("reference", predictions, np.arange(len(predictions))))
        statistics, rates = [], []
        for _, cell, rows in draws:
            statistics.append(self.statistics(WatchBatch.of(cell).take(rows)))
            rates.append(float(cell.facts.correct.double().cpu().numpy()[rows].mean()))
        edge = 0.5 / self.n
        return CellRegression.fit(statistics, np.clip(rates, edge, 1 - edge), [kind for kind, *_ in draws])

    @property
    def pairs(self) -> bool:
        """Whether samples have no class, only confidence and correctness."""
        return not self.class_counts

    @property
    def num_classes(self) -> int:
        """As far as the reference shows; 0 for pairs."""
        return max(len(self.class_counts), len(self.class_names))

    def statistics(self, batch: WatchBatch) -> dict[str, float]:
        """Of a batch: logits of mean confidence and of the share above the threshold; their fall together with that of
        the entropy of the predicted classes (a shifted network names few classes, less surely; other class shares
        alone leave it sure); and, where the reference has the column, mean difficulty and log distance in its standard
        deviations."""
        for column in COLUMNS:
            if column in self.quantiles and getattr(batch, column) is None:
                raise InputError(f"the reference has a column '{column}', so its batches need one; add it")
        m = len(batch.confidence)
        share = float((batch.confidence > self.threshold).mean())
        mean = float(logit(batch.confidence.mean()))
        values = {"constant": 1.0, "confidence": mean, "threshold": _rate_logit(share, m)}
        if batch.classes is not None and self.class_counts:
            narrower = _entropy(np.array(self.class_counts)) - _entropy(np.bincount(batch.classes))
            values["collapse"] = (float(logit(self.confidence)) - mean) * narrower
        for column in COLUMNS:
            if column in self.quantiles:
                values[column] = _standardised(column, getattr(batch, column), self.quantiles[column])
        return values

    def estimates(self, batch: WatchBatch) -> tuple[AccuracyEstimate, ...]:
        """The accuracy of a batch by every method that the reference allows, the most trustworthy first."""
        m = len(batch.confidence)
        own_error = _rate_error(self.accuracy, self.n)
        spread = math.sqrt(float((batch.confidence * (1 - batch.confidence)).sum())) / m
        share = float((batch.confidence > self.threshold).mean())
        mean = float(batch.confidence.mean())
        estimates = []
        if self.by_cells:
            estimates.append(self.by_cells.estimate(self.statistics(batch)))
        if self.by_difficulty and batch.difficulty is not None:
            estimates.append(self.by_difficulty.estimate(batch.confidence, batch.difficulty, spread))
        atc = math.hypot(_rate_error(share, m), own_error)
        both = math.hypot(spread, own_error)
        estimates += [
            _estimate("atc", share, atc),
            _estimate("confidence", mean, both),
            _estimate("difference", self.accuracy - (self.confidence - mean), both),
        ]
        return tuple(estimates)

    def calibration_error(self, batch: WatchBatch, accuracy: AccuracyEstimate) -> CalibrationEstimate:
        """The ECE of a batch of that accuracy, if the logit of every sample's chance of being right moved alike.

        Before it moved, the chance is that by confidence and difficulty where the reference knows both, else the
        confidence itself.
        """
        if self.by_difficulty and batch.difficulty is not None:
            chance = self.by_difficulty.logits(batch.confidence, batch.difficulty)
        else:
            chance = _sure_logit(batch.confidence)
        bins, n = width_bin_of(batch.confidence, ECE_BINS), len(batch.confidence)
        # Samples by bin and chance, each shared by the two points of a grid that it lies between.
        place = (np.clip(chance, GRID[0], GRID[-1]) - GRID[0]) / (GRID[1] - GRID[0])
        below = np.minimum(place.astype(np.int64), len(GRID) - 2)
        cells, part = bins * len(GRID) + below, place - below
        size = ECE_BINS * len(GRID)
        counts = np.bincount(cells, 1 - part, size) + np.bincount(cells + 1, part, size)
        moves = 2 * GRID
        right = counts.reshape(ECE_BINS, len(GRID)) @ expit(GRID[:, None] + moves) / n
        error = np.abs(right - np.bincount(bins, batch.confidence, ECE_BINS)[:, None] / n).sum(axis=0)
        ends = np.interp([accuracy.value, accuracy.low, accuracy.high], right.sum(axis=0), moves)
        value, *others = np.interp(ends, moves, error).tolist()
        within = error[(moves >= ends[1]) & (moves <= ends[2])].tolist()
        return CalibrationEstimate(value, min(value, *others, *within), max(value, *others, *within))

    def drift(self, batch: WatchBatch) -> tuple[Drift, ...]:
        """How far confidence, difficulty and the shares of predicted classes have moved."""
        moved = []
        for name in ("confidence", *COLUMNS):
            values = getattr(batch, name)
            if values is not None and name in self.quantiles:
                moved.append(_kolmogorov_smirnov(name, values, self.quantiles[name], self.n))
        if batch.classes is not None and self.class_counts:
            moved.append(_class_drift(batch.classes, self.class_counts))
        return tuple(moved)


def _estimate(method: str, value: float, error: float) -> AccuracyEstimate:
    value = min(max(value, 0.0), 1.0)
    return AccuracyEstimate(method, value, max(0.0, value - Z * error), min(1.0, value + Z * error))


def _rate_error(rate: float, n: int) -> float:
    """The standard error of a rate, with one right and one wrong added so that it is never 0."""
    shrunk = (rate * n + 1) / (n + 2)
    return math.sqrt(shrunk * (1 - shrunk) / (n + 2))


def _rate_logit(rate: float, n: int) -> float:
    """The logit of a share of n samples, finite for none and all."""
    return float(logit(min(max(rate, 0.5 / n), 1 - 0.5 / n)))


def _entropy(counts: NDArray[Any]) -> float:
    return float(entr(counts / counts.sum()).sum())


def _standardised(name: str, values: Floats, quantiles: tuple[float, ...]) -> float:
    own, reference = (np.log(np.maximum(v, 1e-12)) if name == "distance" else v for v in (values, np.array(quantiles)))
    return float((own.mean() - reference.mean()) / (reference.std() or 1.0))


def _ridge(rows: Floats, target: Floats, weights: Floats) -> Floats:
    """Weighted least squares with a penalty on every weight but the first, the constant."""
    penalty = np.diag([0.0] + [RIDGE] * (rows.shape[1] - 1))
    scaled = rows * weights[:, None]
    return np.asarray(np.linalg.solve(rows.T @ scaled + penalty, scaled.T @ target))


def _signals(confidence: Floats, difficulty: Floats) -> Floats:
    return np.column_stack([_sure_logit(confidence), difficulty])


def _sure_logit(confidence: Floats) -> Floats:
    return np.asarray(logit(np.clip(confidence, SHARPEST, 1 - SHARPEST)))


def _kolmogorov_smirnov(name: str, values: Floats, quantiles: tuple[float, ...], n: int) -> Drift:
    """The largest distance between the shares below a value, here and in the reference, and its asymptotic p."""
    ordered, known = np.sort(values), np.asarray(quantiles)
    grid = np.unique(known)
    here = np.searchsorted(ordered, grid, side="right") / len(ordered)
    there = np.searchsorted(known, grid, side="right") / len(known)
    distance = float(np.abs(here - there).max())
    size = math.sqrt(len(values) * n / (len(values) + n))
    # The reference is known to one part in a thousand only: that much is no evidence.
    return Drift(name, distance, float(kolmogorov(max(0.0, distance - 1 / len(known)) * size)))


def _class_drift(classes: ClassIndices, counts: tuple[int, ...]) -> Drift:
    """Half the sum of |share here - share in the reference|, and the p of the chi-squared test of the two tables."""
    size = max(len(counts), int(classes.max(initial=-1)) + 1)
    here = np.bincount(classes, minlength=size).astype(np.float64)
    there = np.bincount(np.arange(len(counts)), weights=counts, minlength=size)
    distance = float(np.abs(here / here.sum() - there / there.sum()).sum() / 2)
    both = here + there
    used = both > 0
    rows = np.stack([here[used], there[used]])
    expected = rows.sum(axis=1, keepdims=True) * rows.sum(axis=0) / rows.sum()
    statistic = float(((rows - expected) ** 2 / expected).sum())
    freedom = int(used.sum()) - 1
    return Drift("classes", distance, float(gammaincc(freedom / 2, statistic / 2)) if freedom else 1.0)


def reference_from(record: JsonObject) -> WatchReference:
    """The reference of a file."""
    by_difficulty, by_cells = record["by_difficulty"], record["by_cells"]
    if by_difficulty:
        covariance = tuple(map(tuple, by_difficulty["covariance"]))
        vectors = {name: tuple(by_difficulty[name]) for name in ("mean", "deviation", "weights")}
        by_difficulty = check_record(DifficultyMap(**vectors, covariance=covariance))
    if by_cells:
        vectors = {name: tuple(by_cells[name]) for name in ("names", "weights")}
        by_cells = check_record(CellRegression(**{**by_cells, **vectors}))
    lists = {name: tuple(record[name]) for name in ("class_counts", "bands", "tolerance", "class_names")}
    quantiles = {name: tuple(values) for name, values in record["quantiles"].items()}
    reference = check_record(
        WatchReference(
            **{**record, **lists, "quantiles": quantiles, "by_difficulty": by_difficulty, "by_cells": by_cells}
        )
    )
    check_range(reference.n, "n", 1)
    for name in ("accuracy", "confidence", "threshold"):
        check_range(getattr(reference, name), name, 0, 1)
    if not all(quantiles.values()) or len(reference.tolerance) != len(reference.bands) + 2:
        raise ValueError("quantiles, bands and tolerances that do not fit each other")
    if reference.class_counts and (min(reference.class_counts) < 0 or not any(reference.class_counts)):
        raise ValueError("class counts without a sample")
    return reference
