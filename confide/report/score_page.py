"""The page of `confide score`: histograms of scores and weights, agreement, the easiest and hardest, and suspects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from confide import __version__, difficulty
from confide.files import formats
from confide.records import Scores
from confide.report.draw import PHONE, THIRD, Canvas, Scale, tick_text, ticks
from confide.report.page import asset, page_environment
from confide.results import Sample
from confide.types import JsonObject

if TYPE_CHECKING:
    from confide.scoring import ScoredData

BARS = 40
TEMPERATURES = (0.3, 0.7, 2.0)
NORMALIZATIONS = ("none", "minmax", "rank")


@dataclass(frozen=True)
class ScoreHistogram:
    """A chart with its words and its numbers."""

    title: str
    subtitle: str
    svg: Markup
    rows: tuple[tuple[str, str, str], ...]


def write_score_page(path: str | Path, scored: ScoredData) -> Path:
    """Write the page of scored data as one HTML file that opens from disk and loads nothing.

    Args:
        path: of the file.
        scored: what `confide.scoring.score_data` returned.

    Returns:
        The path.

    Example:
        >>> import numpy as np
        >>> from confide.report import write_score_page
        >>> from confide.scoring import score_data
        >>> draw, labels = np.random.default_rng(0), np.arange(60) % 2
        >>> np.savez("features.npz", features=draw.normal(size=(60, 3)) + 4 * labels[:, None], labels=labels)
        >>> write_score_page("scores.html", score_data("features.npz")).name
        'scores.html'
    """
    main = scored.scores
    template = page_environment().get_template("score.html")
    text = template.render(
        version=__version__,
        css=Markup(asset("base.css") + asset("report.css")),
        js=Markup(asset("values.js")),
        name=scored.name,
        n=len(main),
        method=main.method,
        histograms=[_score_histogram(scores) for scores in scored.by_method],
        weights=[_weight_histogram(main, n, t) for n in NORMALIZATIONS for t in TEMPERATURES],
        agreement=scored.agreement,
        verdicts=scored.verdict_counts(),
        evidence="" if scored.verdicts is None else str(scored.verdicts.evidence),
        rows=_rows(scored.gallery()),
        suspects=scored.suspects(),
        words=scored.explanation_rows(),
        notes=scored.notes,
    )
    formats.write_text(path, text)
    return Path(path)


def _score_histogram(scores: Scores) -> ScoreHistogram:
    counts, edges = np.histogram(scores.values, bins=BARS)
    peak = int(counts.argmax())
    alt = (
        f"Histogram of {scores.method}: most samples near {(edges[peak] + edges[peak + 1]) / 2:.3g}, "
        f"from {edges[0]:.3g} to {edges[-1]:.3g}."
    )
    skewed = float(scores.values.mean() - np.median(scores.values)) > 0.05 * float(scores.values.std())
    skew = "the tail at the right is the hard part" if skewed else "higher is harder"
    return ScoreHistogram(
        f"{scores.method}: {skew}",
        f"{len(scores):,} samples by {scores.method}; mean {scores.mean:.3g}, deviation {scores.values.std():.3g}",
        _bars(counts, edges, PHONE, "← easier", "harder →").render(alt),
        _table(counts, edges),
    )


def _weight_histogram(scores: Scores, normalize: str, temperature: float) -> ScoreHistogram:
    weights = difficulty.weights(scores, normalize=normalize, temperature=temperature)
    counts, edges = np.histogram(weights, bins=20, range=(0.0, 1.0))
    vanished = float((weights < 0.01).mean())
    spread = f"{100 * vanished:.0f} % have next to no weight" if vanished > 0.5 else f"mean {weights.mean():.2f}"
    alt = f"Histogram of training weights, {normalize}, T {temperature:g}: {spread}."
    return ScoreHistogram(
        f"{normalize}, T = {temperature:g}",
        spread,
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
    for (start, top, wide, _), a, b, c in zip(boxes, edges, edges[1:], counts, strict=False):
        canvas.value(start + wide / 2, top, f"{a:.3g} to {b:.3g}: {int(c):,}")
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


def _rows(shown: Sequence[Sample]) -> list[JsonObject]:
    rows = []
    for label in dict.fromkeys(sample.label for sample in shown):
        own = [s for s in shown if s.label == label]
        ends = [(role.capitalize(), [s for s in own if s.role == role]) for role in ("easiest", "hardest")]
        rows.append({"label": label, "ends": ends})
    return rows
