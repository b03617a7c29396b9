"""Searches step by step, regressions, kernels with their gradients, Gaussians of few or equal rows, blocks, tails."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from confide.numerics import binning, binomial, blocks, gaussians, kernels, logistic, minimise, neighbours
from tests.kept import entries
from tests.kept.edges import or_line

Entry = tuple[str, Callable[[], Any]]
BENT = torch.tensor([[2.0, 0.3, 0.0], [0.3, 1.0, 0.1], [0.0, 0.1, 0.5]], dtype=torch.float64)
AIM = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)


def searches() -> Iterator[Entry]:
    for name in FUNCTIONS:
        for option in ({}, {"memory": 1}, {"idle": 1, "change": 1e-2}, {"iterations": 2}, {"tolerance": 0.5}):
            yield f"lbfgs {name} {option}", lambda n=name, o=option: _lbfgs(n, o)
        for option in ({}, {"change": 1e-2}, {"iterations": 2}, {"tolerance": 0.5}):
            yield f"newton {name} {option}", lambda n=name, o=option: _newton(n, o)
        for low, high in ((-9.0, 9.0), (-1.0, 0.25), (0.0, 0.0)):
            yield f"box {name} {low} {high}", lambda n=name, low=low, high=high: _box(n, low, high)
    yield "lbfgs float32", lambda: _lbfgs("square", {"memory_dtype": torch.float32})
    yield from regressions()
    yield from kernel_entries()
    yield from gaussian_entries()
    yield from tails_and_blocks()


def _square(at: torch.Tensor) -> torch.Tensor:
    return 0.5 * (at - AIM) @ BENT @ (at - AIM) + 3


def _soft(at: torch.Tensor) -> torch.Tensor:
    """Without a minimum along one direction, steep along another."""
    return torch.logsumexp(torch.stack([4 * at[0], -at[1], at[2] - at[0], at.new_zeros(())]), dim=0) + 0.01 * at[1] ** 2


def _steep(at: torch.Tensor) -> torch.Tensor:
    return torch.cosh(3 * (at - AIM)).sum() / 100


def _flat(at: torch.Tensor) -> torch.Tensor:
    return 1 + 0.0 * at.sum()


FUNCTIONS = {"square": _square, "soft": _soft, "steep": _steep, "flat": _flat}


def _lbfgs(name: str, options: dict[str, Any]) -> Any:
    seen = []

    def objective(at: torch.Tensor) -> tuple[float, torch.Tensor]:
        own = at.clone().requires_grad_()
        value = FUNCTIONS[name](own)
        value.backward()
        seen.append(float(value.detach()))
        return seen[-1], own.grad

    chosen = {"tolerance": 1e-6, "change": 1e-10, "idle": 3, "iterations": 30, "memory": 5, **options}
    found = minimise.lbfgs(objective, 3, **chosen)
    return [found.at.tolist(), round(found.steepest, 5), found.converged, len(seen), seen[:8]]


class _Watched:
    """A function that notes what it was asked."""

    def __init__(self, name: str) -> None:
        self.function, self.seen = FUNCTIONS[name], []

    def measure(self, at: torch.Tensor) -> tuple[float, torch.Tensor]:
        own = at.clone().requires_grad_()
        value = self.function(own)
        value.backward()
        self.curvature = torch.autograd.functional.hessian(self.function, at.clone())
        self.seen.append(float(value.detach()))
        return self.seen[-1], own.grad

    def product(self, direction: torch.Tensor) -> torch.Tensor:
        self.seen.append(0.0)
        return self.curvature @ direction

    def inverse(self) -> Callable[[torch.Tensor], torch.Tensor]:
        scale = self.curvature.diagonal().clamp_min(1e-3)
        return lambda direction: direction / scale


def _newton(name: str, options: dict[str, Any]) -> Any:
    function = _Watched(name)
    chosen = {"tolerance": 1e-6, "change": 1e-10, "iterations": 20, **options}
    found = minimise.truncated_newton(function, torch.zeros(3, dtype=torch.float64), **chosen)
    return [found.at.tolist(), round(found.steepest, 5), found.converged, len(function.seen), function.seen[:10]]


def _box(name: str, low: float, high: float) -> Any:
    function, seen = _Watched(name), []

    def moments(at: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        value, slope = function.measure(torch.from_numpy(at.copy()))
        seen.append(value)
        return value, slope.numpy(), function.curvature.numpy()

    ends = np.full(3, low), np.full(3, high)
    return [
        [minimise.box_newton(moments, np.array(start), *ends).tolist(), len(seen), seen[:8]]
        for start in ([0.0, 0.0, 0.0], [5.0, -5.0, 0.2])
    ]


# Regressions.


def regressions() -> Iterator[Entry]:
    draw = np.random.default_rng(0)
    rows = draw.normal(size=(3, 40)) * np.array([[1.0], [3.0], [0.0]])
    right = draw.random((3, 40)) < 1 / (1 + np.exp(-rows))
    columns = [rows, np.ones_like(rows)]
    sums = np.stack([(x * right).sum(axis=1) for x in columns], axis=1)
    counts = draw.integers(0, 4, (3, 40)).astype(float)
    weighted = np.stack([(x * right * counts).sum(axis=1) for x in columns], axis=1)
    free = np.array([[True, True], [True, False], [False, True]])
    start = np.array([[3.0, -2.0], [0.1, 0.0], [0.0, 9.0]])
    regress = logistic.logistic_regressions
    yield (
        "regressions",
        lambda: [
            regress(columns, None, sums),
            regress(columns, counts, weighted),
            regress(columns, None, sums, free),
            regress(columns, counts, weighted, free, start),
            regress(columns, None, sums, None, start),
            regress([np.sign(rows[:2] - 0.1) * 2], None, (np.abs(rows[:2]) * 0 + 2).sum(axis=1)[:, None] / 2),
        ],
    )
    for pooled in (39, 40):
        for times in (None, np.linspace(0, 2, 40)):
            yield (
                f"pooled {pooled} {times is not None}",
                lambda pooled=pooled, times=times: _pooled(pooled, rows, times),
            )
    signals = np.column_stack([rows[0], rows[1] ** 2, np.full(40, 7.0)])
    apart = signals[:, 0] > 0
    for penalty in (0.0, 1.0, 50.0):
        yield (
            f"signals {penalty}",
            lambda p=penalty: [
                vars(logistic.fit_logistic(signals[:, : 3 if p else 2], own, p))
                for own in (right[0], apart, apart | True)
            ],
        )
    fitted = logistic.Logistic(np.array([1.0, 2.0]), np.array([2.0, 4.0]), np.array([3.0, -1.0]), 0.5)
    yield "contributions", lambda: [fitted.contributions(np.array([[2.0, 0.0]])), fitted.restored(fitted.state()).bias]
    odds = logistic.Odds(np.append(rows[1, :39], 900.0), right[1], np.linspace(0.5, 1.5, 40))
    folds = np.arange(40) % 4
    penalties = (0.01, 1.0, 100.0, math.inf)
    yield (
        "odds",
        lambda: [
            odds.losses(),
            odds.losses(np.array([0.5, 1.0])),
            *(odds.line(p) for p in penalties),
            odds.chosen_map(folds, penalties),
            logistic.Odds(-odds.values, odds.right, odds.weights).chosen_map(folds, penalties),
            logistic.Odds(np.zeros(40), odds.right, odds.weights).chosen_map(folds, (1.0, 1.0)),
        ],
    )
    yield "classifier", lambda: _classifier(signals)


def _pooled(pooled: int, rows: np.ndarray, times: np.ndarray | None) -> Any:
    with patch.object(logistic, "POOLED_FROM", pooled):
        points = logistic.PooledPoints.of(rows, times)
    part = points.only(np.array([True, False, True]))
    counts = np.ones(points.at.shape) if points.counts is None else points.counts
    moments = [(counts * points.at**power).sum(axis=1).tolist() for power in (0, 1, 2)]
    return [list(points.at.shape), moments, points.counts is None, list(part.at.shape), part.at[:, -1].tolist()]


def _classifier(signals: np.ndarray) -> Any:
    fitted = logistic.fit_linear_classifier(torch.from_numpy(signals).float(), torch.arange(40) % 3, 3, 0.1)
    return fitted(torch.from_numpy(signals[:5]))


# Kernels of batches, with gradients.


def _graded(make: Callable[..., torch.Tensor], *leaves: torch.Tensor) -> Any:
    own = [leaf.detach().clone().requires_grad_() for leaf in leaves]
    value = make(*own)
    value.backward()
    return [float(value.detach()), *(leaf.grad for leaf in own)]


def kernel_entries() -> Iterator[Entry]:
    draw = torch.Generator().manual_seed(0)
    confidence = torch.rand(30, generator=draw, dtype=torch.float64).mul(20).round().div(20)
    correct = (torch.rand(30, generator=draw, dtype=torch.float64) < confidence).double()
    for width in (0.4, 0.01, 0.0016, 1 / 600, 1e-4):
        yield (
            f"laplacian {width}",
            lambda w=width: _graded(lambda c, r: kernels.laplacian_form(c, r, w), confidence, correct - confidence),
        )
        for sqrt in (False, True):
            yield (
                f"mmce {width} {sqrt}",
                lambda w=width, s=sqrt: _graded(lambda c: kernels.mmce_of(c, correct, w, s), confidence),
            )
    for form, n in itertools.product(("paper", "released"), (30, 3, 1)):
        yield (
            f"weighted mmce {form} {n}",
            lambda f=form, n=n: [
                _graded(lambda c, own=own: kernels.mmce_weighted_of(c, own, form=f), confidence[:n])
                for own in (
                    correct[:n],
                    correct[:n] * 0,
                    correct[:n] * 0 + 1,
                    (torch.arange(n) == 0).double(),
                    (torch.arange(n) > 0).double(),
                )
            ],
        )
    yield (
        "no samples",
        lambda: [
            float(kernels.laplacian_form(confidence[:0], correct[:0], 0.4)),
            float(kernels.mmce_of(confidence[:0], correct[:0])),
        ],
    )
    yield "mmce of one", lambda: _graded(lambda c: kernels.mmce_of(c, correct[:1]), confidence[:1])
    logits = torch.randn(14, 3, generator=draw, dtype=torch.float64)
    labels = torch.arange(14) % 3
    for form, power, bandwidth in (
        ("paper", 1.0, 0.1), ("paper", 2.0, 0.1), ("original", 1.0, None), ("paper", 1.0, None), ("paper", 1.5, 0.5)
    ):  # fmt: skip
        yield (
            f"kde {form} {power} {bandwidth}",
            lambda f=form, p=power, b=bandwidth: [
                _graded(lambda z: kernels.kde_calibration_error(z, labels, b, p, f), logits),
                _graded(lambda z: kernels.kde_calibration_error(z, labels[:2], b, p, f), logits[:2]),
                _graded(lambda z: kernels.kde_calibration_error(z, labels[:1], b, p, f), logits[:1]),
                _graded(lambda z: kernels.kde_calibration_error(z, labels * 2 - 1, b, p, f), logits),
            ],
        )
    yield (
        "bandwidths",
        lambda: [
            float(kernels.likely_bandwidth(torch.softmax(scale * logits[:n], dim=1), extra))
            for scale, n, extra in itertools.product((0.1, 1.0, 9.0), (1, 2, 14), (False, True))
        ],
    )
    yield (
        "class gaps",
        lambda: [
            _graded(lambda m, n=n: kernels.class_mean_gap(m, labels[:n]), torch.softmax(logits[:n], dim=1).mean(dim=0))
            for n in (1, 2, 14)
        ],
    )


# Gaussians.


def gaussian_entries() -> Iterator[Entry]:
    rows, labels = entries.features("train"), entries.labels("train")
    few = np.array([0, 1, 2, 5, 9, 20])
    same = rows.copy()
    same[:, 2] = 5.0
    twice = np.column_stack([rows, rows[:, 0]])
    lone = np.where(np.arange(len(labels)) == 7, 4, labels)
    cases: dict[str, tuple[np.ndarray, np.ndarray, int]] = {
        "plain": (rows, labels, 4),
        "absent": (rows, labels, 6),
        "one": (rows, lone, 5),
        "constant": (same, labels, 4),
        "twice": (twice, labels, 4),
        "wide": (rows[:40].reshape(10, 24), np.arange(10) % 2, 2),
        "square": (rows[:6], np.arange(6) % 2, 2),
        "one column": (rows[:, :1], labels, 4),
        "many classes": (rows, np.arange(len(rows)) % 9, 9),
        "single": (rows.astype(np.float32), labels, 4),
    }
    for name, case in cases.items():
        for shrinkage in ("auto", "none", "oas", 0.0, 0.2, 1.0):
            yield f"gaussian {name} {shrinkage}", lambda c=case, s=shrinkage: or_line(lambda: _fitted(*c, s))
    yield "gaussian equal", lambda: or_line(lambda: _fitted(rows[few // 30], few // 30, 1, "auto"))
    yield "gaussian no row", lambda: or_line(lambda: gaussians.moments_of(rows[:0], labels[:0], 2))
    parts = (rows[:50], labels[:50], 4), (rows[50:], labels[50:], 4), (rows[:9], np.zeros(9, dtype=int), 1)
    yield (
        "merged moments",
        lambda: [
            [m.mean, m.means, m.within(), m.total(), m.n]
            for a, b in itertools.permutations(range(3), 2)
            for m in [gaussians.moments_of(*parts[a]).merge(gaussians.moments_of(*parts[b]))]
        ],
    )
    yield (
        "centres",
        lambda: [
            gaussians.class_means(rows, labels, 5),
            gaussians.fourth_moment(rows, labels, gaussians.class_means(rows, labels, 4)[0]),
            gaussians.fourth_moment(rows, None, rows.mean(axis=0)[None]),
            gaussians.pilot_means(rows, labels, 5),
            gaussians.pilot_means(np.repeat(rows, 13, axis=0), np.repeat(labels, 13), 4),
        ],
    )
    table = rows.T @ rows / len(rows)
    yield (
        "intensities",
        lambda: [
            [gaussians.intensity_of(rule, c, n, fourth) for rule in ("ledoit_wolf", "oas", 0.3)]
            for c in (table, np.eye(3), np.diag([1.0, 2.0]), table[:1, :1])
            for n, fourth in ((1, 0.0), (10, 300.0), (160, 1e4))
        ],
    )


def _fitted(rows: np.ndarray, labels: np.ndarray, classes: int, shrinkage: Any) -> Any:
    fitted = gaussians.fit_gaussians(rows, labels, classes, shrinkage=shrinkage)
    left_out = [table for _, table, _ in gaussians.distance_tables(fitted, rows, fitted_labels=labels)]
    return {
        "notes": [note[:30] for note in fitted.notes],
        "intensity": fitted.intensity,
        "kind": type(fitted).__name__,
        "own": [gaussians.own_distances(fitted, rows, labels, relative=r) for r in (True, False)],
        "fit": vars(gaussians.class_fit(fitted, rows)),
        "left out": [torch.nan_to_num(table, posinf=-1.0) for table in left_out],
    }


# Tails of counts, edges of bins, blocks of rows, neighbours.


def tails_and_blocks() -> Iterator[Entry]:
    draw = np.random.default_rng(5)
    values, weights = draw.random(1203).round(3), draw.random(1203)
    sure = np.array([0.0, 1.0, 1.0, 0.25])
    for name, chances in {
        "few": draw.random(20), "rare": draw.random(300) * 0.05, "often": 1 - draw.random(300) * 0.05,
        "many": draw.random(400), "limit": np.full(160, 0.5), "sure": sure, "skewed": np.full(900, 0.06),
        "none": np.zeros(0),
    }.items():  # fmt: skip
        middle = int(chances.sum())
        yield (
            f"right tails {name}",
            lambda c=chances, m=middle: [
                binomial.right_tails(k, c) for k in (0, m // 2, m, m + 1, m + 9, len(c)) if k <= len(c)
            ],
        )
    yield (
        "count tails",
        lambda: [binomial.count_tails(k, 50.0, 30.0, t) for k in (0, 40, 50, 99) for t in (-9.0, 0.0, 400.0)],
    )
    means, variances = np.array([0.0, 0.5, 3.0, 3.2, 40.0]), np.array([0.0, 0.25, 0.0, 3.1, 10.0])
    yield (
        "matched",
        lambda: [
            binomial.matched_binomial(means, variances),
            binomial.binomial_quantiles(*binomial.matched_binomial(means, variances), (0.025, 0.5, 0.975)),
        ],
    )
    yield "wilson", lambda: [binomial.wilson_interval(r, n, 1.96) for r in (0.0, 0.3, 1.0) for n in (1, 7, math.inf)]
    losses = draw.random(30)
    yield (
        "stakes",
        lambda: (
            [
                [binomial.weighted_mean_p(losses[:n], np.ones(n), m) for m in (0.0, 0.01, 0.5, 0.99, 1.0)]
                for n in (0, 1, 30)
            ]
            + [[binomial.weighted_upper_bound(losses, w, 0.1) for w in (np.zeros(30), np.ones(30), np.eye(30)[3])]]
        ),
    )
    for bins in (1, 7, 1000, 1001, 1203, 1300):
        yield (
            f"bins {bins}",
            lambda b=bins: [
                [
                    binning.width_bin_of(v, b, c)
                    for c in ("right", "left")
                    for v in (values, values[:999], values[:1000])
                ],
                binning.width_bin_of(values.astype(np.float32), b),
                [
                    edges(values, b, w)
                    for w in (None, weights)
                    for edges in (binning.split_edges, binning.interpolated_edges, binning.order_edges)
                ],
                binning.mass_starts(1203, b),
            ],
        )
    right = draw.random(1203) < values
    yield (
        "errors of bins",
        lambda: [
            binning.calibration_error(values[:n], right[:n], bins, kind, w)
            for n in (1, 40, 1203)
            for bins in (1, 15)
            for kind in ("width", "mass")
            for w in (None, weights[:n])
        ],
    )
    yield (
        "sums of bins",
        lambda: [vars(binning.BinSums.of(np.arange(6) % 3, 4, values[:6], right[:6], w)) for w in (None, weights[:6])],
    )
    for threads, width, n in ((1, 8, 100), (2, 8, 100), (3, 8, 100), (3, 1, 100), (4, 7, 99)):
        yield f"parts {threads} {width} {n}", lambda t=threads, w=width, n=n: _parts(t, w, n)
    yield "row of a block", lambda: [or_line(lambda r=r: blocks.check_block(_one_bad(r), 40, 99)) for r in (0, 2)]
    yield (
        "rows of blocks",
        lambda: [
            blocks.working_block(np.arange(6).reshape(2, 3)[:, ::-1]).tolist(),
            or_line(lambda: blocks.working_block(np.array(["a"]), 7)),
        ],
    )
    points = draw.normal(size=(70, 3)).round(1)
    tight = np.concatenate([points[:35] * 1e-6, points[35:] * 1e-6 + 1e3])
    for name, table in {"plain": points, "tight": tight, "twins": np.repeat(points[:10], 7, axis=0)}.items():
        for k, own in ((1, False), (1, True), (5, True), (69, True), (70, False), (70, True), (0, False)):
            for dtype in (np.float64, np.float32):
                rows = table.astype(dtype)
                yield (
                    f"nearest {name} {k} {own} {np.dtype(dtype).name}",
                    lambda t=rows, k=k, own=own: or_line(
                        lambda: neighbours.nearest_neighbours(t, t, k, exclude_self=own)
                    ),
                )
    zero = np.concatenate([points[:4], np.zeros((1, 3))])
    yield (
        "unit rows",
        lambda: [
            neighbours.UnitRows(zero)[:5],
            len(neighbours.UnitRows(zero)),
            neighbours.nearest_centre(zero, points[5:9], distance="cosine"),
            neighbours.distances_to(zero, points[5:9], np.array([0, 1, 2, 3, 3])),
            [or_line(lambda f=f: f()) for f in (lambda: neighbours.nearest_centre(zero, zero, distance="l1"),)],
        ],
    )
    yield (
        "smallest",
        lambda: [
            np.sort(neighbours.smallest_of_rows(values[None, :w], k)) for w in (5, 64, 130, 1203) for k in (1, 2, 5, w)
        ],
    )


def _parts(threads: int, width: int, n: int) -> Any:
    with patch.object(blocks, "allowed_threads", lambda: threads), patch.object(blocks, "PART_ELEMENTS", 200):
        return [[part.start, part.stop] for part in blocks.in_parts(lambda part: part, n, width, 8)]


def _one_bad(row: int) -> torch.Tensor:
    block = torch.zeros(4, 3)
    block[row:, 1] = torch.inf
    return block
