"""`combined`: one difficulty from four signs that need no label of the sample, each as its place among the fitted ones.

The signs are the relative Mahalanobis distance of the likeliest class, the entropy of the class Gaussians' posterior,
the entropy of the neighbours' votes, and the confusion of these two: the entropy of their mean. They are not weighed
against each other by any fit: every one counts the same. Places are those among the fitted samples, each judged
without itself, so that new samples and fitted ones are measured alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize
from scipy.special import entr, logsumexp, softmax

from confide.checks import InputError, check_range
from confide.difficulty.base import DIFFICULTY, FitState, need_arrays, need_shape
from confide.difficulty.from_features import (
    GaussianDifficulty,
    check_columns,
    fit_gaussian_difficulty,
    restore_gaussians,
)
from confide.numerics.blocks import block_rows, blocks
from confide.numerics.gaussians import check_shrinkage, class_shares, distance_tables
from confide.numerics.neighbours import nearest_neighbours
from confide.registry import Interval
from confide.types import ClassIndices, Columns, Floats, JsonObject

SIGNS = ("rmd", "opinion", "neighbours", "confusion")
PLACES = np.linspace(0, 1, 101)
"""Quantiles by which a sign is turned into its place among the fitted samples."""
TAIL = 10
"""Hundredths of `rmd` whose slope goes on above its last quantile: far from all that was fitted is harder still."""
SAME_PLACE = 1e-4
"""Distance, in deviations within a class, below which the nearest fitted sample is the sample itself."""
TEMPERATURES = (1.0, 1e3)
"""Of the posterior, which is too sure of itself in many directions and is never made surer."""
LEAST_ENTROPY = 1e-12


@dataclass(frozen=True, eq=False)
class CombinedDifficulty:
    """Class Gaussians, the fitted samples in their directions, and the quantiles of the four signs."""

    gaussians: GaussianDifficulty
    points: NDArray[np.float32]
    labels: ClassIndices
    temperature: float
    quantiles: Floats
    neighbours: int

    @property
    def notes(self) -> tuple[str, ...]:
        return self.gaussians.notes

    @property
    def num_classes(self) -> int:
        return self.gaussians.num_classes

    def values_of(self, values: Any, labels: ClassIndices | str | None) -> Floats:
        """Mean place of the four signs; labels are not looked at."""
        check_columns(values, self.gaussians.gaussians.means.shape[1])
        distances, rows = nearest_neighbours(_moved(self.gaussians, values), self.points, self.neighbours + 1)
        itself = distances[:, :1] <= SAME_PLACE
        voters = np.where(itself, rows[:, 1:], rows[:, :-1])
        scaled, relative = _log_posterior(self.gaussians, values)
        votes = _shares_of(self.labels[voters], self.num_classes)
        signs = _signs(relative, softmax(scaled / self.temperature, axis=1), votes)
        places = [_place(quantiles, sign) for quantiles, sign in zip(self.quantiles, signs, strict=True)]
        places[0] += _beyond(self.quantiles[0], relative)
        return np.asarray(np.mean(places, axis=0))

    def state(self) -> FitState:
        numbers, arrays = self.gaussians.state()
        numbers |= {"temperature": self.temperature, "neighbours": self.neighbours}
        return numbers, {**arrays, "points": self.points, "labels": self.labels, "quantiles": self.quantiles}


OWN_ARRAYS = {"points": "float32", "labels": "int64", "quantiles": "float64"}


def restore_combined(numbers: JsonObject, arrays: Columns, notes: tuple[str, ...]) -> CombinedDifficulty:
    """The model of a saved state, checked."""
    own = {name: value for name, value in arrays.items() if name in OWN_ARRAYS}
    need_arrays(own, OWN_ARRAYS)
    others = {name: value for name, value in arrays.items() if name not in OWN_ARRAYS}
    gaussians = restore_gaussians(numbers, others, notes, relative=True)
    n, _ = need_shape(own, "points", (None, len(_directions(gaussians))))
    need_shape(own, "labels", (n,))
    need_shape(own, "quantiles", (len(SIGNS), len(PLACES)))
    temperature, neighbours = float(numbers["temperature"]), int(numbers["neighbours"])
    check_range(neighbours, "neighbours", 1, n - 1)
    check_range(temperature, "temperature", *TEMPERATURES)
    if not 0 <= int(own["labels"].min()) <= int(own["labels"].max()) < gaussians.num_classes:
        raise ValueError(f"labels must be of the {gaussians.num_classes} classes")
    if (np.diff(own["quantiles"], axis=1) < 0).any():
        raise ValueError("quantiles must not fall")
    return CombinedDifficulty(gaussians, own["points"], own["labels"], temperature, own["quantiles"], neighbours)


@DIFFICULTY.add(
    "combined",
    paper="Confide; with Cui et al., 2023 (rmd) and the confusion of Zhou et al., 2025",
    source="features",
    label_free=True,
    restore=restore_combined,
    ranges={"neighbours": Interval(1)},
    check=lambda options: check_shrinkage(options["shrinkage"]),
    corners=({"neighbours": 1}, {"shrinkage": "ledoit_wolf"}),
)
def combined(values: Any, labels: ClassIndices, *, neighbours: int = 50, shrinkage: Any = "auto") -> CombinedDifficulty:
    """Mean place of four signs among the fitted samples: rmd, opinion's entropy, neighbours' disagreement, confusion.

    It does not look at a sample's label: an odd label alone does not make a sample hard.

    When: samples have no labels, or labels must not count.
    When not: labels are suspected: use rmd or the verdicts on labels, which look at them.

    Args:
        values: feature rows `n d`; `difficulty.fit` checks them and puts the result into a `FittedDifficulty`.
        labels: their classes, for the Gaussians and the votes.
        neighbours: fitted samples that vote, in the directions that part the classes; at most all others.
        shrinkage: of the covariances, as of `rmd`.

    Returns:
        The fitted model: `values_of(values, labels)` is one number per row, about 0 to 1, high = hard.

    Raises:
        InputError: where fewer than two classes have samples.

    Example:
        >>> import numpy as np
        >>> labels = np.arange(60) % 2
        >>> rows = 4 * np.eye(2, 3)[labels] + np.random.default_rng(0).normal(size=(60, 3))
        >>> rows[7] = [2, 2, 0]  # half-way between the classes
        >>> fitted = confide.difficulty.fit("combined", rows, labels)
        >>> int(fitted.score(rows).values.argmax())  # no label is asked for
        7
    """
    if len(present := np.unique(labels)) < 2:
        raise InputError(f"combined needs samples of two classes or more, got {len(present)}; give labels of others")
    gaussians = fit_gaussian_difficulty(values, labels, shrinkage, (), relative=True)
    count = min(neighbours, len(labels) - 1)
    points = _moved(gaussians, values)
    voters = nearest_neighbours(points, points, count, exclude_self=True)[1]
    scaled, relative = _log_posterior(gaussians, values, labels)
    temperature = _best_temperature(scaled, labels)
    votes = _shares_of(labels[voters], gaussians.num_classes)
    signs = _signs(relative, softmax(scaled / temperature, axis=1), votes)
    quantiles = np.stack([np.quantile(sign, PLACES) for sign in signs])
    return CombinedDifficulty(gaussians, points, labels, temperature, quantiles, count)


def _moved(model: GaussianDifficulty, values: Any) -> NDArray[np.float32]:
    """Rows in the directions that part the classes best, where within a class every one has deviation 1."""
    origin, matrix = model.projection.origin, model.projection.matrix[:, _directions(model)]
    parts = []
    for _, block in blocks(values, block_rows(values, int(values.shape[1]))):
        parts.append(((block.double().cpu().numpy() - origin) @ matrix).astype(np.float32))
    return np.concatenate(parts)


def _directions(model: GaussianDifficulty) -> NDArray[np.intp]:
    """One fewer than classes: the means span no more, and any other would be a matter of rounding."""
    return np.argsort(model.projection.inverse_total, kind="stable")[: int((model.gaussians.counts > 0).sum()) - 1]


def _log_posterior(
    model: GaussianDifficulty, values: Any, fitted_labels: ClassIndices | None = None
) -> tuple[Floats, Floats]:
    """log prior_k - d_k / 2 `n c`, and rmd of the likeliest class; of fitted rows by the Gaussians of all others."""
    shares = class_shares(model.gaussians)
    tables, relative = [], []
    for _, table, agnostic in distance_tables(model.gaussians, values, fitted_labels=fitted_labels):
        distance = table.double().cpu().numpy()
        log_posterior = np.log(shares) - distance / 2
        likeliest = log_posterior.argmax(axis=1)
        tables.append(log_posterior)
        relative.append(distance[np.arange(len(distance)), likeliest] - agnostic.double().cpu().numpy())
    return np.concatenate(tables), np.concatenate(relative)


def _best_temperature(scaled: Floats, labels: ClassIndices) -> float:
    """The one with the smallest NLL of the labels."""
    own = scaled[np.arange(len(labels)), labels]
    known = np.isfinite(own)  # the only sample of its class is infinitely far from it

    def loss(log_temperature: float) -> float:
        scale = np.exp(-log_temperature)
        return float((logsumexp(scaled[known] * scale, axis=1) - own[known] * scale).mean())

    if not known.any():
        return 1.0
    minimum = optimize.minimize_scalar(loss, bounds=tuple(np.log(TEMPERATURES)), method="bounded")
    return float(np.exp(minimum.x))


def _shares_of(classes: ClassIndices, num_classes: int) -> Floats:
    """Share of every class in each row `n k` of votes."""
    n = len(classes)
    cells = classes + num_classes * np.arange(n)[:, None]
    counts = np.bincount(cells.ravel(), minlength=n * num_classes).reshape(n, num_classes)
    return np.asarray(counts / classes.shape[1])


def _signs(relative: Floats, posterior: Floats, votes: Floats) -> tuple[Floats, ...]:
    """The four signs in the order of `SIGNS`."""
    entropies = [np.asarray(entr(p).sum(axis=1)) for p in (posterior, votes, (posterior + votes) / 2)]
    return relative, *(np.where(entropy < LEAST_ENTROPY, 0.0, entropy) for entropy in entropies)


def _place(quantiles: Floats, sign: Floats) -> Floats:
    """Share of the fitted samples below; a value that many share, such as no disagreement, is in their middle."""
    distinct, first, counts = np.unique(quantiles, return_index=True, return_counts=True)
    low, high = (np.interp(sign, distinct, PLACES[places]) for places in (first, first + counts - 1))
    return np.asarray((low + high) / 2)


def _beyond(quantiles: Floats, distance: Floats) -> Floats:
    """How far above the last quantile, in places: distances have no largest value as entropies do."""
    slope = (PLACES[-1] - PLACES[-1 - TAIL]) / max(float(quantiles[-1] - quantiles[-1 - TAIL]), LEAST_ENTROPY)
    return np.asarray(slope * np.maximum(distance - quantiles[-1], 0.0))
