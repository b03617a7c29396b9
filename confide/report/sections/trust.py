"""Trust: can a score tell right from wrong? Confidence of both, trust scores compared, and what a cut leaves."""

from __future__ import annotations

import math
from dataclasses import dataclass

from markupsafe import Markup

from confide.report.figure import Empty, Figure, table
from confide.report.glossary import term
from confide.report.sections.oracles import outcome_figures, sweep_figure
from confide.report.sections.outcomes import confidence_curve, cuts, right_and_wrong
from confide.report.svg import PHONE, Canvas, Scale, tick_text, ticks
from confide.report.view import View
from confide.report.words import between, code, fixed, score_name, shorten, tip, when

RANKING = ("auroc", "aurc", "fpr95")
MOST_SCORES = 8


@dataclass(frozen=True)
class Trust:
    """What the section shows."""

    figures: tuple[Figure, ...] = ()
    cuts: tuple[tuple[Figure, dict[str, str]], ...] = ()
    lines: tuple[tuple[Figure, dict[str, str]], ...] = ()
    sweep: Figure | None = None
    no_predictors: Empty | None = None
    empty: Empty | None = None


def trust_section(view: View) -> Trust:
    """Histograms of right and wrong, trust scores side by side, and their cuts."""
    histogram = confidence_curve(view)
    scores = _scores(view)
    compared = _compared(view, scores) if len(scores) > 1 else None
    figures = tuple(f for f in (histogram and right_and_wrong(view, histogram), compared) if f)
    if not figures:
        why = view.why_missing("trust") or "The evaluation holds neither confidence histograms nor trust scores."
        return Trust(empty=Empty("Nothing to show on trust", why, "confide evaluate predictions.parquet"))
    missing = None
    if compared is None:
        why = view.why_missing("trust") or "Only the model's own confidence was measured."
        missing = Empty("No trust predictors to compare", why, "confide trust val.parquet test.parquet")
    stage = _stage(view)
    return Trust(
        figures, tuple(cuts(view, scores, stage)), tuple(outcome_figures(view, stage)), sweep_figure(view), missing
    )


def _scores(view: View) -> list[str]:
    """Scores that ranking metrics of the model in focus were measured for, at the stage to trust with."""
    found = [
        m.score or "msp"
        for m in view.measurements
        if m.metric in RANKING and m.model == view.focus and m.group is None and m.stage == _stage(view)
    ]
    return list(dict.fromkeys(found))[:MOST_SCORES]


def _stage(view: View) -> str:
    """The stage at which most scores were measured; the calibrated one where they are equal."""
    scores = {
        stage: {
            m.score for m in view.measurements if m.metric in RANKING and m.model == view.focus and m.stage == stage
        }
        for stage in (view.final, view.before)
    }
    return max(scores, key=lambda stage: len(scores[stage]))


def _compared(view: View, scores: list[str]) -> Figure:
    """Trust scores by three ranking metrics, dots with whiskers."""
    stage = _stage(view)
    metrics = [m for m in RANKING if any(view.find(m, stage=stage, score=_word(s)) for s in scores)]
    best = _best_score(view, scores, stage)
    lead = metrics[0]
    kind = term(lead)
    order = sorted(
        scores, key=lambda s: -_value(view, lead, stage, s) if kind.better == "higher" else _value(view, lead, stage, s)
    )
    rows = [(score_name(s), *(text for m in metrics for text in _texts(view, m, stage, s))) for s in order]
    header = ["Score", *(h for m in metrics for h in (f"{term(m).title}, {term(m).unit}", "95 % interval"))]
    title: str | Markup = "Trust scores on the same predictions"
    if best:
        title = Markup("{} tells right from wrong best").format(code(score_name(best)))
    top = order[0]
    alt = (
        f"Dot plot of {len(order)} trust scores: {score_name(top)} has the best {kind.title}, {rows[0][1]} {kind.unit}."
    )
    return Figure(
        "scores",
        title,
        Markup("{}; on the predictions of {} {}; whiskers: 95 % intervals; axes do not start at 0").format(
            Markup(", ").join(tip(term(m).title, term(m).meaning) for m in metrics), code(view.focus), when(stage)
        ),
        _panels(view, order, metrics[:2], stage, PHONE, 34, best).render(alt),
        table(header, rows),
        wide=_panels(view, order, metrics, stage, 560, 46, best).render(alt),
    )


def _word(score: str) -> str | None:
    return None if score == "msp" else score


def _value(view: View, metric: str, stage: str, score: str) -> float:
    found = view.find(metric, stage=stage, score=_word(score))
    return found.value if found else math.nan


def _texts(view: View, metric: str, stage: str, score: str) -> tuple[str, str]:
    found, kind = view.find(metric, stage=stage, score=_word(score)), term(metric)
    if found is None:
        return "–", ""
    return fixed(kind.scale * found.value, kind.digits), between(found.low, found.high, kind.digits, kind.scale)


def _best_score(view: View, scores: list[str], stage: str) -> str | None:
    rows = [f"{view.focus}/{stage}/{s}" for s in scores]
    winner = view.best("auroc", rows) or view.best("aurc", rows)
    return winner.rsplit("/", 1)[1] if winner else None


def _panels(
    view: View, order: list[str], metrics: list[str], stage: str, width: int, step: int, best: str | None
) -> Canvas:
    height = 20 + step * len(order)
    canvas = Canvas(width, height + 18)
    left, gap = 104, 30
    each = (width - left - 14 - gap * (len(metrics) - 1)) / len(metrics)
    for place, metric in enumerate(metrics):
        kind, start = term(metric), left + place * (each + gap)
        found = {s: m for s in order if (m := view.find(metric, stage=stage, score=_word(s)))}
        ends = [kind.scale * v for m in found.values() for v in (m.value, m.low, m.high) if math.isfinite(v)]
        marks = ticks(min(ends), max(ends), 4 if width > PHONE else 3)
        scale = Scale(marks[0], marks[-1], start, start + each)
        canvas.text(
            start, 10, f"{kind.title if width > PHONE else kind.title.split(' ')[0]}, {kind.unit} {kind.arrow}", "l"
        )
        for value in marks:
            canvas.line(scale(value), 20, scale(value), height, "g")
            canvas.text(scale(value), height + 14, tick_text(value, marks), "m")
        for row, score in enumerate(order):
            if score in found:
                m, y = found[score], 20 + step * (row + 0.5)
                colour = "1" if score == best else "g"
                if math.isfinite(m.low):
                    canvas.line(
                        scale.clip(kind.scale * m.low), y, scale.clip(kind.scale * m.high), y, f"k{colour}", 1.5
                    )
                canvas.dot(scale(kind.scale * m.value), y, f"f{colour}", 4.5)
    for row, score in enumerate(order):
        canvas.text(0, 24 + step * (row + 0.5), shorten(score_name(score), left - 8), "b" if score == best else "l")
    return canvas
