"""Worked cases of charts: every line, text and colour of the axes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np

import confide
from confide import sets
from confide.predictions import Predictions
from tests.kept.entries import (
    N,
    _or_line,
    predictions,
)


def plot_entries() -> Iterator[tuple[str, Callable[[], Any]]]:
    from confide import plot
    from confide.results import Curve, Evaluation

    test, many = predictions("test"), Predictions(np.eye(31), np.arange(31))
    other = Predictions(0.5 * test.logits, test.labels, split="test")
    scores = confide.Scores(test.ids, np.linspace(0, 1, N) ** 2, "rmd")

    @cache
    def two() -> Evaluation:
        parts = [
            confide.evaluate(record, ["accuracy"], model=name, stage=stage, scores=scores)
            for record, name, stage in ((test, "a", "raw"), (other, "b", "raw"), (other, "b", "vector"))
        ]
        return confide.evaluation.join(parts)

    def boxes(kind: str, model: str) -> Curve:
        columns = ("severity", "low", "lower_quartile", "median", "upper_quartile", "high")
        values = {name: [k + 0.1 * place for k in range(3)] for place, name in enumerate(columns)}
        return Curve(kind, {**values, "severity": [0, 1, 3]}, model)

    shifted = [
        Evaluation((), tuple(boxes(kind, m) for kind in ("shift_boxes", "shift_ece_boxes") for m in models))
        for models in (("a",), ("a", "b"), tuple("abcdef"))
    ]
    for name, make in {
        "reliability": lambda: plot.reliability(test),
        "reliability mass": lambda: plot.reliability(test, binning="mass", bins=10),
        "reliability stage": lambda: plot.reliability(two(), stage="vector"),
        "reliability bins": lambda: plot.reliability(test, bins=7),
        "risk": lambda: plot.risk_coverage(test),
        "risks": lambda: plot.risk_coverage(two()),
        "risks of a stage": lambda: plot.risk_coverage(two(), stage="vector"),
        "risk of nothing": lambda: plot.risk_coverage(test, score="nobody"),
        "difficulty": lambda: plot.difficulty(test, scores=scores),
        "difficulties": lambda: plot.difficulty(two()),
        "difficulty of nothing": lambda: plot.difficulty(test),
        "confusion": lambda: plot.confusion(test),
        "confusion of counts": lambda: plot.confusion(other, share=False),
        "confusion of six": lambda: plot.confusion(Predictions(np.eye(6), [0, 1, 2, 3, 4, 4])),
        "confusion of five": lambda: plot.confusion(Predictions(np.eye(5), [0, 1, 2, 3, 3])),
        "confusion of 31": lambda: plot.confusion(many),
        "confusion of 30": lambda: plot.confusion(Predictions(np.eye(30), np.arange(30))),
        "sets": lambda: plot.sets(sets.fit("lac", predictions(), 0.8), test),
        "sets without samples": lambda: plot.sets(sets.fit("lac", predictions(), 0.8)),
        "sets without labels": lambda: plot.sets(sets.fit("lac", predictions(), 0.8), Predictions(test.logits)),
        "shift": lambda: plot.shift(shifted[0]),
        "shift of two": lambda: plot.shift(shifted[1]),
        "shift of six": lambda: plot.shift(shifted[2], of="ece"),
        "shift of nothing": lambda: plot.shift(two()),
    }.items():
        yield name, lambda make=make: _drawn(make)


def _drawn(make: Callable[[], Any]) -> Any:
    import matplotlib as mpl
    from matplotlib import pyplot
    from matplotlib.colors import to_hex

    mpl.use("agg")
    ax = _or_line(make)
    if isinstance(ax, str):
        return ax
    colours = {
        type(own).__name__ + str(k): [to_hex(c) for c in (own.get_edgecolor() if own.get_edgecolor().size else [])]
        for k, own in enumerate(ax.collections)
    }
    drawn = {
        "lines": [[own.get_xdata(), own.get_ydata(), to_hex(own.get_color()), own.get_label()] for own in ax.lines],
        "texts": [[*own.get_position(), own.get_text(), to_hex(own.get_color())] for own in ax.texts],
        "offsets": [np.asarray(own.get_offsets()).reshape(-1) for own in ax.collections],
        "paths": [[np.round(path.vertices, 6).reshape(-1) for path in own.get_paths()[:20]] for own in ax.collections],
        "colours": colours,
        "patches": [[own.get_x(), own.get_width(), own.get_height()] for own in ax.patches if hasattr(own, "get_x")],
        "images": [np.asarray(own.get_array()) for own in ax.images],
        "labels": [ax.get_xlabel(), ax.get_ylabel(), ax.get_title()],
        "limits": [*ax.get_xlim(), *ax.get_ylim()],
        "ticks": [[own.get_text(), own.get_rotation()] for own in ax.get_xticklabels()] if ax.images else None,
        "legend": None if ax.get_legend() is None else [t.get_text() for t in ax.get_legend().get_texts()],
        "frame": [side for side, own in ax.spines.items() if own.get_visible()],
        "grid": [own.get_visible() for own in ax.get_ygridlines()[:1]],
        "integer": bool(ax.xaxis.get_major_locator().__dict__.get("_integer")),
        "new": ax.figure.get_size_inches().tolist(),
    }
    pyplot.close(ax.figure)
    return drawn
