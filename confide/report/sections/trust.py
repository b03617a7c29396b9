"""Trust: can a score tell right from wrong? Histograms of both, trust scores compared, cuts, and predictors at their
own threshold.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from confide.report.draw import (
    PHONE,
    Canvas,
    Empty,
    Figure,
    Scale,
    bin_range,
    confidence_range,
    explorer_query,
    percent_tick,
    table,
    tick_text,
    ticks,
)
from confide.report.view import EvaluationView
from confide.report.words import code, count, fixed, interval, percent, score_name, shorten, shown, tip, value_words
from confide.results import OWN_CONFIDENCE, ComparedRow, Curve, MetricInfo

# Histograms of right and wrong, and what a cut leaves.


COLUMNS = ("low", "high", "right", "wrong")
OUTCOMES = ("tp", "fp", "tn", "fn")


@dataclass(frozen=True)
class OutcomeCounts:
    """How many are trusted and right, trusted and wrong, not trusted and wrong, not trusted and right."""

    tp: float
    fp: float
    tn: float
    fn: float
    links: Mapping[str, str] = field(default_factory=dict)
    """Views of the explorer by cell, where its filters can say them."""


def right_and_wrong(view: EvaluationView, curve: Curve) -> Figure:
    """Two histograms on one scale, each the share of its own group."""
    low, high, right, wrong = (curve.columns[k] for k in COLUMNS)
    sure = sum(v for a, v in zip(low, wrong, strict=True) if a >= 0.9 - 1e-9) / (sum(wrong) or 1)
    spans = [f"{percent(a)} to {percent(b)}" for a, b in zip(low, high, strict=True)]
    rows = [(span, count(r), count(w)) for span, r, w in zip(spans, right, wrong, strict=True)]
    stage = view.when(curve.stage)
    title = f"{percent(sure)} of the errors are made with a confidence above {percent(0.9)}"
    if round(100 * sure) == 0:
        title = "Confidence of right and of wrong predictions"
    alt = f"Histograms of confidence: {percent(sure)} of the wrong predictions are made above {percent(0.9)}."
    return Figure(
        "right-and-wrong",
        title if sum(wrong) else "No prediction is wrong",
        Markup("Share of each group by confidence, {} {}").format(code(view.focus), stage),
        _two_histograms(view, curve).render(alt),
        table(("Confidence", "Right", "Wrong"), rows),
    )


def _two_histograms(view: EvaluationView, curve: Curve) -> Canvas:
    shares = {k: [100 * v / (sum(curve.columns[k]) or 1) for v in curve.columns[k]] for k in ("right", "wrong")}
    tops = {k: ticks(0, max(*v, 1), 4 if k == "right" else 2) for k, v in shares.items()}
    # One scale for both: a point of share has the same height above and below.
    unit = min(156 / tops["right"][-1], 110 / tops["wrong"][-1])
    for name, marks in tops.items():
        # Grid lines stand at least 14 px apart, or their numbers touch.
        tops[name] = marks if marks[1] * unit >= 14 else [0.0, marks[-1]]
    canvas = Canvas(PHONE, 0)
    x = Scale(0, 1, 34, PHONE - 12)
    floor = 34.0
    for name, colour in (("right", "fg"), ("wrong", "fw")):
        marks = tops[name]
        floor += marks[-1] * unit + (0 if name == "right" else 46)
        scale = Scale(0, marks[-1], floor, floor - marks[-1] * unit)
        canvas.grid_y(scale, marks if marks[-1] * unit >= 14 else marks[:1], 34, PHONE - 12)
        spans = zip(curve.columns["low"], curve.columns["high"], shares[name], strict=True)
        canvas.bars([(x(a) + 0.5, scale(v), max(x(b) - x(a) - 1, 1), floor - scale(v)) for a, b, v in spans], colour)
        for a, b, v, number in zip(
            *(curve.columns[k] for k in ("low", "high")), shares[name], curve.columns[name], strict=True
        ):
            words = f"{name}, {percent(a)} to {percent(b)}: {count(number)}, {fixed(v, 1)} % of them"
            whose = {"split": curve.split, "model": curve.model, "stage": curve.stage}
            chosen = {**whose, "outcome": name, "confidence": bin_range(a, b, "right" if a > 0 else "both")}
            canvas.value(x(0.5 * (a + b)), scale(v), words, chosen)
        canvas.line(34, floor, PHONE - 12, floor, "ax")
        words = f"{name.capitalize()}, {count(sum(curve.columns[name]))} {view.unit}"
        canvas.text(36, scale(marks[-1]) - 8, words, "b")
    for value in (0, 0.25, 0.5, 0.75, 1):
        canvas.text(x(value), floor + 18, percent_tick(value), "m" if value < 1 else "e")
    canvas.text(34, 8, "% of each group, one scale", "l")
    canvas.text(PHONE - 12, floor + 36, "Confidence" if curve.stage == "raw" else "Confidence after calibration", "l e")
    canvas.height = floor + 42
    return canvas


def cuts(view: EvaluationView, scores: list[str], stage: str) -> list[tuple[Figure, OutcomeCounts]]:
    """For confidence and the best other score that has curves: what the same share set aside leaves."""
    figures = []
    areas = {s: m.value for s in scores if s not in OWN_CONFIDENCE and (m := view.find("auroc", stage=stage, score=s))}
    for score in ("msp", *sorted(areas, key=lambda s: -areas[s])):
        histogram, ranking = (
            view.curve(kind, view.focus, (stage,), score, group=None)
            for kind in ("confidence_histogram", "risk_coverage")
        )
        if histogram and ranking:
            figures.append(_cut(view, score, histogram, ranking))
    return figures[:2] if len(figures) > 1 else []


def _cell_links(ranking: Curve, score: str, threshold: float) -> dict[str, str]:
    """The cells of a cut by the model's own confidence, as views of the explorer."""
    if score not in OWN_CONFIDENCE or not math.isfinite(threshold):
        return {}
    whose = {"split": ranking.split, "model": ranking.model, "stage": ranking.stage}
    cells = {"tp": ("right", True), "fp": ("wrong", True), "tn": ("wrong", False), "fn": ("right", False)}
    return {
        cell: explorer_query({**whose, "outcome": outcome, "confidence": confidence_range(threshold, accepted)})
        for cell, (outcome, accepted) in cells.items()
    }


def _cut(view: EvaluationView, score: str, histogram: Curve, ranking: Curve) -> tuple[Figure, OutcomeCounts]:
    k = view.halving_row(ranking.columns["coverage"], view.final)
    coverage, risk, threshold = (ranking.columns[name][k] for name in ("coverage", "risk", "threshold"))
    low, high, right, wrong = (histogram.columns[name] for name in COLUMNS)
    accepted = coverage * (sum(right) + sum(wrong))
    tp, fp = accepted * (1 - risk), accepted * risk
    counts = OutcomeCounts(tp, fp, sum(wrong) - fp, sum(right) - tp, _cell_links(ranking, score, threshold))
    name = "Confidence as trust" if score == "msp" else Markup("{} as trust").format(code(score_name(score)))
    rows = [(fixed(a, 3), fixed(b, 3), count(r), count(w)) for a, b, r, w in zip(low, high, right, wrong, strict=True)]
    aside = percent(1 - coverage, 1)
    alt = f"Histograms of {score_name(score)}, right above wrong: setting {aside} aside leaves {count(fp)} errors."
    figure = Figure(
        f"cut-{score_name(score)}",
        name,
        f"{aside} set aside, below {fixed(threshold, 3)}; bars are shares of their group",
        _divided_canvas(
            histogram, right, wrong, threshold, ("aside", "accepted →"), ("least trusted", "most trusted")
        ).render(alt),
        table(("From", "To", "Right", "Wrong"), rows),
        level=4,
    )
    return figure, counts


def _divided_canvas(
    curve: Curve,
    right: Sequence[float],
    wrong: Sequence[float],
    cut: float,
    sides: tuple[str, str],
    ends: tuple[str, str],
) -> Canvas:
    """Right above the line, wrong below, each as shares of its own group; what lies below the cut is pale."""
    low, high = curve.columns["low"], curve.columns["high"]
    totals = sum(right) or 1, sum(wrong) or 1
    most = max(*(v / totals[0] for v in right), *(v / totals[1] for v in wrong)) or 1
    canvas = Canvas(PHONE, 222)
    x, middle, unit = Scale(low[0], high[-1], 4, PHONE - 4), 110.0, 78 / most
    for a, b, r, w in zip(low, high, right, wrong, strict=True):
        pale = " pale" if 0.5 * (a + b) < cut else ""
        width = max(x(b) - x(a) - 1, 0.8)
        canvas.bars([(x(a) + 0.5, middle - r / totals[0] * unit, width, r / totals[0] * unit)], "fg" + pale)
        canvas.bars([(x(a) + 0.5, middle, width, w / totals[1] * unit)], "fw" + pale)
        for name, number, y in (
            ("right", r, middle - r / totals[0] * unit),
            ("wrong", w, middle + w / totals[1] * unit),
        ):
            canvas.value(x(0.5 * (a + b)), y, f"{name}, {fixed(a, 3)} to {fixed(b, 3)}: {count(number)}")
    canvas.line(4, middle, PHONE - 4, middle, "ax")
    place = x.clip(cut)
    canvas.line(place, 32, place, 188, "ax")
    # Near an end the two names stand beside each other where there is room, still on their own sides.
    place = min(max(place, 6.5 * len(sides[0]) + 6), PHONE - 6.5 * len(sides[1]) - 6)
    canvas.text(place - 6, 10, sides[0], "l e")
    canvas.text(place + 6, 10, sides[1], "l")
    canvas.text(4, 26, "right", "l")  # above the highest bar, and below the lowest
    canvas.text(PHONE - 4, 202, "wrong", "fw e")
    canvas.text(4, 218, ends[0])
    canvas.text(PHONE - 4, 218, ends[1], "e")
    return canvas


# Predictors at their own threshold.

MOST_PREDICTORS = 6


def outcome_figures(view: EvaluationView, stage: str) -> list[tuple[Figure, OutcomeCounts]]:
    """Max-softmax first, then the predictors that tell right from wrong best, each cut at its own line."""
    curves = {c.score or "": c for c in view.curves("trust_outcomes", model=view.focus)}
    areas = {s: m.value for s in curves if (m := view.find("auroc", stage=stage, score=s))}
    first = [s for s in OWN_CONFIDENCE if s in curves][:1]
    others = sorted((s for s in curves if s not in OWN_CONFIDENCE), key=lambda s: -areas.get(s, -math.inf))
    return [_outcomes(curves[s], s) for s in (first + others)[:MOST_PREDICTORS]]


def _outcomes(curve: Curve, score: str) -> tuple[Figure, OutcomeCounts]:
    low, high, tp, fp, tn, fn = (curve.columns[name] for name in ("low", "high", *OUTCOMES))
    counts = OutcomeCounts(sum(tp), sum(fp), sum(tn), sum(fn))
    right, wrong = counts.tp + counts.fn, counts.fp + counts.tn
    trusted = percent(counts.tp / right, 1) if right else "–"
    caught = percent(counts.tn / wrong, 1) if wrong else "–"
    name = score_name(score)
    # The line is the lower edge of the first bin that holds trusted samples.
    line = next((edge for edge, *inside in zip(low, tp, fp, strict=True) if any(inside)), high[-1])
    canvas = _divided_canvas(
        curve,
        [a + b for a, b in zip(tp, fn, strict=True)],
        [a + b for a, b in zip(fp, tn, strict=True)],
        line,
        ("not trusted", "trusted →"),
        (fixed(low[0], 2), fixed(high[-1], 2)),
    )
    rows = [
        (fixed(start, 3), fixed(end, 3), *map(count, cells))
        for start, end, *cells in zip(low, high, tp, fp, tn, fn, strict=True)
    ]
    figure = Figure(
        f"own-line-{name}",
        Markup("{} at its own line").format(code(name)),
        f"trusts {trusted} of the right predictions (TPR) and catches {caught} of the errors (TNR)",
        canvas.render(f"Histograms of {name}, right above wrong, cut at its own line: TPR {trusted}, TNR {caught}."),
        table(("From", "To", "TP", "FP", "TN", "FN"), rows),
        level=4,
    )
    return figure, counts


def sweep_figure(view: EvaluationView) -> Figure | None:
    """TPR and TNR of steep slope as alpha- grows (Luo et al., 2021, Figure 4b and c)."""
    curve = view.curve("alpha_sweep", view.focus, ("raw",), score="trust:steep_slope")
    if curve is None:
        return None
    alphas, tpr, tnr = (curve.columns[k] for k in ("alpha_neg", "tpr", "tnr"))
    rows = [(f"{a:g}", percent(t, 1), percent(n, 1)) for a, t, n in zip(alphas, tpr, tnr, strict=True)]
    ends = f"from {percent(tnr[0], 1)} at {alphas[0]:g} to {percent(tnr[-1], 1)} at {alphas[-1]:g}"
    return Figure(
        "alpha-sweep",
        "The slope for errors trades right predictions for caught errors",
        Markup("Steep slope at its own line, by {}").format(code("alpha_neg")),
        _sweep_canvas(alphas, tpr, tnr).render(f"TPR and TNR of steep slope by alpha_neg: TNR goes {ends}."),
        table(("alpha_neg", "TPR", "TNR"), rows),
    )


def _sweep_canvas(alphas: tuple[float, ...], tpr: tuple[float, ...], tnr: tuple[float, ...]) -> Canvas:
    canvas = Canvas(PHONE, 270)
    # Even steps: the alphas that matter lie close together near 1.
    x, y = Scale(0, max(len(alphas) - 1, 1), 46, PHONE - 20), Scale(0, 100, 228, 42)
    canvas.grid_y(y, [0, 25, 50, 75, 100], 38, PHONE - 8)
    for values, colour in ((tpr, "1"), (tnr, "w")):
        points = [(x(k), y(100 * v)) for k, v in enumerate(values)]
        canvas.polyline(points, f"k{colour}")
        for alpha, value, place in zip(alphas, values, points, strict=True):
            canvas.dot(*place, f"f{colour}", 3)
            canvas.value(*place, f"{'TPR' if values is tpr else 'TNR'} at {alpha:g}: {percent(value, 1)}")
    for left, words, colour in ((38, "TPR: right ones trusted", "1"), (196, "TNR: errors caught", "w")):
        canvas.line(left, 22, left + 18, 22, f"k{colour}", 2.2)
        canvas.text(left + 24, 26, words, "l")
    shown = range(0, len(alphas), max(1, math.ceil(len(alphas) / 8)))
    for k in shown:
        canvas.text(x(k), 246, tick_text(alphas[k], sorted(alphas)), "m")
    canvas.text(38, 10, "% of the right, % of the wrong predictions", "l")
    canvas.text(PHONE - 8, 266, "alpha_neg", "l e")
    return canvas


# The section, and trust scores compared.

MOST_SCORES = 8


@dataclass(frozen=True)
class TrustSection:
    """What the section shows."""

    figures: tuple[Figure, ...] = ()
    cuts: tuple[tuple[Figure, OutcomeCounts], ...] = ()
    lines: tuple[tuple[Figure, OutcomeCounts], ...] = ()
    lines_left_out: str = ""
    sweep: Figure | None = None
    no_predictors: Empty | None = None
    empty: Empty | None = None

    @property
    def drawings(self) -> tuple[Figure, ...]:
        """All figures, in their order."""
        divided = (figure for figure, _ in (*self.cuts, *self.lines))
        return (*self.figures, *divided, *([self.sweep] if self.sweep else []))


def trust_section(view: EvaluationView) -> TrustSection:
    """Histograms of right and wrong, trust scores side by side, and their cuts."""
    stages = dict.fromkeys((view.final, view.before))
    histogram = view.curve("confidence_histogram", view.focus, stages, group=None)
    stage = _stage(view)
    scores = _scores(view, stage)
    compared = _compared(view, scores, stage) if len(scores) > 1 else None
    figures = tuple(f for f in (histogram and right_and_wrong(view, histogram), compared) if f)
    if not figures:
        why = view.why_missing("trust") or "The evaluation holds neither confidence histograms nor trust scores."
        return TrustSection(empty=Empty("Nothing to show on trust", why, "confide evaluate predictions.parquet"))
    missing = None
    if compared is None:
        why = view.why_missing("trust") or "Only the model's own confidence was measured."
        missing = Empty("No trust predictors to compare", why, "confide trust val.parquet test.parquet")
    lines, known = outcome_figures(view, stage), len(view.curves("trust_outcomes", model=view.focus))
    left_out = f"{len(lines)} of {known} predictors are drawn; rates of all are under Further metrics."
    return TrustSection(
        figures,
        tuple(cuts(view, scores, stage)),
        tuple(lines),
        left_out if len(lines) < known else "",
        sweep_figure(view),
        missing,
    )


def _scores(view: EvaluationView, stage: str) -> list[str]:
    """Scores that ranking metrics of the model in focus were measured for, at the stage to trust with."""
    ranking = _ranking(view)
    scores = [
        m.score or "msp"
        for m in view.measurements
        if m.metric in ranking and m.model == view.focus and m.group is None and m.stage == stage
    ]
    return list(dict.fromkeys(scores))


def _ranking(view: EvaluationView) -> set[str]:
    """The metrics by which scores are compared."""
    return {info.word for info in view.evaluation.columns("scores")}


def _stage(view: EvaluationView) -> str:
    """The stage at which most scores were measured; the calibrated one where they are equal."""
    ranking = _ranking(view)
    scores = {
        stage: {
            m.score for m in view.measurements if m.metric in ranking and m.model == view.focus and m.stage == stage
        }
        for stage in (view.final, view.before)
    }
    return max(scores, key=lambda stage: len(scores[stage]))


def _compared(view: EvaluationView, scores: list[str], stage: str) -> Figure:
    """Trust scores by some ranking metrics, dots with whiskers."""
    columns = view.evaluation.columns("scores")
    metrics = [info for info in columns if any(view.find(info.word, stage=stage, score=s) for s in scores)]
    lead = metrics[0]
    sign = -1 if lead.better == "higher" else 1
    values = {s: m.value for s in scores if (m := view.find(lead.word, stage=stage, score=s))}
    measured = [m for s in scores for info in metrics if (m := view.find(info.word, stage=stage, score=s))]
    unknown = [s for s in scores if math.isnan(values.get(s, math.nan))]
    order = [*sorted(set(scores) - set(unknown), key=lambda s: (sign * values[s], scores.index(s))), *unknown]
    best, how_good = _best_score(view, order, stage)
    rows = [(score_name(s), *(text for info in metrics for text in _texts(view, info, stage, s))) for s in order]
    header = ["Score", *(h for info in metrics for h in (f"{info.title}, {info.unit}", "95 % interval"))]
    title: str | Markup = "Trust scores on the same predictions"
    if best:
        title = Markup("{} tells right from wrong {}").format(code(score_name(best)), how_good)
    top = order[0]
    drawn = [s for s in order if s in OWN_CONFIDENCE or s == best or s in order[: MOST_SCORES - 2]][:MOST_SCORES]
    left_out = f"{len(drawn)} of {len(order)} scores are drawn, the best of them and confidence; the table has all."
    alt = (
        f"Dot plot of {len(drawn)} trust scores: {score_name(top)} has the best {lead.title}, {rows[0][1]} {lead.unit}."
    )
    return Figure(
        "scores",
        title,
        Markup("{}; on the predictions of {} {}{}; axes do not start at 0").format(
            Markup(", ").join(tip(info.title, info.meaning) for info in metrics),
            code(view.focus),
            view.when(stage),
            "; whiskers: 95 % intervals" if any(m.has_interval for m in measured) else "",
        ),
        _panels(view, drawn, metrics, stage, PHONE, best).render(alt),
        table(header, rows),
        wide=_panels(view, drawn, metrics, stage, 560, best).render(alt),
        note=left_out if len(drawn) < len(order) else "",
    )


def _texts(view: EvaluationView, info: MetricInfo, stage: str, score: str) -> tuple[str, str]:
    measured = view.find(info.word, stage=stage, score=score)
    return ("–", "") if measured is None else (shown(info, measured.value), interval(info, measured))


def _best_score(view: EvaluationView, scores: list[str], stage: str) -> tuple[str | None, str]:
    """The score that paired tests prefer, and to what: best of all, or better than the model's own confidence."""
    rows = [ComparedRow(view.focus, stage, s) for s in scores]
    winner = view.best("auroc", rows) or view.best("aurc", rows)
    if winner:
        return winner.score, "best"
    own = ComparedRow(view.focus, stage, "msp")
    better = (row.score for row in rows if view.beats("auroc", row, own) or view.beats("aurc", row, own))
    return next(better, None), "better than confidence"


def _panels(
    view: EvaluationView, order: list[str], metrics: list[MetricInfo], stage: str, width: int, best: str | None
) -> Canvas:
    """A panel a metric, side by side, or one below the other where the page is narrow."""
    stacked = width == PHONE
    step = 34 if stacked else 46
    height = 20 + step * len(order)
    left, gap = 104, 30
    each = width - left - 14 if stacked else (width - left - 14 - gap * (len(metrics) - 1)) / len(metrics)
    panel = height + 42
    canvas = Canvas(width, height + 18 + (panel * (len(metrics) - 1) if stacked else 0))
    for place, info in enumerate(metrics):
        start, top = (left, panel * place) if stacked else (left + place * (each + gap), 0)
        measured = {s: m for s in order if (m := view.find(info.word, stage=stage, score=s))}
        ends = [info.scale * v for m in measured.values() for v in (m.value, m.low, m.high) if math.isfinite(v)]
        marks = ticks(min(ends), max(ends), 4)
        scale = Scale(marks[0], marks[-1], start, start + each)
        canvas.text(start, top + 10, f"{info.title}, {info.unit} {info.arrow}", "l")
        room = max(len(tick_text(value, marks)) for value in marks) * 7 * len(marks) < each + gap
        for value in marks:
            canvas.line(scale(value), top + 20, scale(value), top + height, "g")
            if room or value in (marks[0], marks[-1]):
                canvas.text(scale(value), top + height + 14, tick_text(value, marks), "m")
        for row, score in enumerate(order):
            y = top + 20 + step * (row + 0.5)
            if score in measured:
                m = measured[score]
                colour = "1" if score == best else "g"
                canvas.whisker(scale, y, m, info.scale, colour)
                canvas.dot(scale(info.scale * m.value), y, f"f{colour}", 4.5)
                canvas.value(
                    scale(info.scale * m.value), y, f"{score_name(score)}, {info.title}: {value_words(info, m)}"
                )
            if stacked or not place:
                canvas.text(0, y + 4, shorten(score_name(score), left - 8), "b" if score == best else "l")
    return canvas
