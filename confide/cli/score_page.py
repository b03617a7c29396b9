"""The page of `confide score`: histograms of scores and weights, agreement, the easiest and hardest, and suspects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup
from numpy.typing import NDArray

from confide import __version__, difficulty
from confide.cli.score_data import ScoringSources
from confide.evaluation.gallery import gallery, picture
from confide.files import formats
from confide.records import Scores
from confide.report.draw import PHONE, THIRD, Canvas, Scale, tick_text, ticks
from confide.results import Sample

BARS = 40
TEMPERATURES = (0.3, 0.7, 2.0)
NORMALIZATIONS = ("none", "minmax", "rank")
SUSPECTS = 60


@dataclass(frozen=True)
class Drawing:
    """A chart with its words and its numbers."""

    title: str
    subtitle: str
    svg: Markup
    rows: tuple[tuple[str, str, str], ...]


def write_page(
    path: str | Path, sources: ScoringSources, main: Scores, found: Sequence[Scores], summary: dict[str, Any]
) -> None:
    """Write the page, one file that loads nothing."""
    environment = Environment(
        loader=FunctionLoader(_asset), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    split = sources.split
    shown = () if split is None else gallery(split, main, sources.class_names, each=8)
    text = environment.get_template("score.html").render(
        version=__version__,
        css=Markup(_asset("base.css") + _asset("report.css")),
        name=sources.dataset.name if sources.dataset is not None else Path(sources.args.data).name,
        n=len(main),
        method=main.method,
        histograms=[_score_histogram(scores) for scores in found],
        weights=[_weight_histogram(main, n, t) for n in NORMALIZATIONS for t in TEMPERATURES],
        agreement=summary.get("agreement", []),
        verdicts=summary.get("verdicts", {}),
        rows=_rows(_with_verdicts(shown, main)),
        suspects=_suspects(sources, main),
        words=summary.get("words", []),
        notes=[*sources.notes, *main.notes],
    )
    formats.write_text(path, text)


def _asset(name: str) -> str:
    where = "confide.cli" if name == "score.html" else "confide.report"
    return resources.files(where).joinpath("assets", name).read_text(encoding="utf-8")


def _score_histogram(scores: Scores) -> Drawing:
    counts, edges = np.histogram(scores.values, bins=BARS)
    peak = int(counts.argmax())
    alt = (
        f"Histogram of {scores.method}: most samples near {(edges[peak] + edges[peak + 1]) / 2:.3g}, "
        f"from {edges[0]:.3g} to {edges[-1]:.3g}."
    )
    skew = "the tail at the right is the hard part" if _mean_above_median(scores.values) else "higher is harder"
    return Drawing(
        f"{scores.method}: {skew}",
        f"{len(scores):,} samples by {scores.method}; mean {scores.mean:.3g}, deviation {scores.values.std():.3g}",
        _bars(counts, edges, PHONE, "← easier", "harder →").render(alt),
        _table(counts, edges),
    )


def _mean_above_median(values: NDArray[np.float64]) -> bool:
    return float(values.mean() - np.median(values)) > 0.05 * float(values.std())


def _weight_histogram(scores: Scores, normalize: str, temperature: float) -> Drawing:
    weights = difficulty.weights(scores, normalize=normalize, temperature=temperature)
    counts, edges = np.histogram(weights, bins=20, range=(0.0, 1.0))
    vanished = float((weights < 0.01).mean())
    said = f"{100 * vanished:.0f} % have next to no weight" if vanished > 0.5 else f"mean {weights.mean():.2f}"
    alt = f"Histogram of training weights, {normalize}, T {temperature:g}: {said}."
    return Drawing(
        f"{normalize}, T = {temperature:g}",
        said,
        _bars(counts, edges, THIRD, "0", "1", height=120, marks=False).render(alt),
        _table(counts, edges),
    )


def _bars(
    counts: NDArray[Any], edges: NDArray[Any], width: int, left: str, right: str, height: int = 220, marks: bool = True
) -> Canvas:
    canvas = Canvas(width, height)
    floor = height - (34 if marks else 20)
    shown = ticks(float(edges[0]), float(edges[-1]), 6) if marks else [float(edges[0]), float(edges[-1])]
    x = Scale(min(shown[0], float(edges[0])), max(shown[-1], float(edges[-1])), 8, width - 8)
    y = Scale(0, max(int(counts.max()), 1), floor, 22)
    boxes = [
        (x(float(a)) + 0.4, y(int(c)), max(x(float(b)) - x(float(a)) - 0.8, 0.6), floor - y(int(c)))
        for a, b, c in zip(edges, edges[1:], counts, strict=False)
    ]
    canvas.bars(boxes, "f1")
    canvas.line(8, floor, width - 8, floor, "ax")
    canvas.text(8, 12, f"up to {int(counts.max()):,} a bar", "l")
    if marks:
        for value in shown:
            canvas.text(x(value), floor + 15, tick_text(value, shown), "m")
    canvas.text(8, height - 4, left, "l")
    canvas.text(width - 8, height - 4, right, "l e")
    return canvas


def _table(counts: NDArray[Any], edges: NDArray[Any]) -> tuple[tuple[str, str, str], ...]:
    return tuple((f"{a:.4g}", f"{b:.4g}", f"{int(c):,}") for a, b, c in zip(edges, edges[1:], counts, strict=False))


def _with_verdicts(shown: Sequence[Sample], main: Scores) -> list[Sample]:
    if "verdict" not in main.columns:
        return list(shown)
    verdict = dict(zip(main.ids.astype(np.str_).tolist(), main.columns["verdict"].tolist(), strict=True))
    return [replace(sample, verdict=verdict.get(sample.id)) for sample in shown]


def _rows(shown: Sequence[Sample]) -> list[dict[str, Any]]:
    labels = dict.fromkeys(sample.label for sample in shown)
    return [
        {
            "label": label,
            "ends": [
                (role.capitalize(), [s for s in shown if s.label == label and s.role == role])
                for role in ("easiest", "hardest")
            ],
        }
        for label in labels
    ]


def _suspects(sources: ScoringSources, main: Scores) -> list[dict[str, Any]]:
    if "verdict" not in main.columns:
        return []
    rows = np.flatnonzero(main.columns["verdict"] == "wrong label")
    rows = rows[np.argsort(-main.columns["suspicion"][rows], kind="stable")][:SUSPECTS]
    split = sources.split
    inputs = sources.inputs()
    place = {} if split is None else {str(i): k for k, i in enumerate(split.ids.tolist())}
    found = []
    for row in rows:
        where = place.get(str(main.ids[row]))
        content = inputs[where] if inputs is not None and where is not None else None
        found.append(
            {
                "id": str(main.ids[row]),
                "label": sources.name(int(main.labels[row])) if main.labels is not None else "",
                "suggested": sources.name(int(main.columns["suggested"][row])),
                "suspicion": f"{main.columns['suspicion'][row]:.1f}",
                "picture": None if content is None or isinstance(content, str) else picture(content),
                "text": content[:280] if isinstance(content, str) else None,
            }
        )
    return found
