"""Data from elsewhere: scores of known and foreign samples, and how well scores tell them apart."""

from __future__ import annotations

import math

from confide.core.results import Curve, Measurement
from confide.report.figure import Figure, table
from confide.report.svg import PHONE, THIRD, Canvas, Scale, ticks
from confide.report.view import View
from confide.report.words import between, count, fixed, percent, score_name, shorten

MEASURES = {"auroc": "AUROC", "aupr_in": "AUPR, known", "aupr_out": "AUPR, foreign", "fpr95": "FPR at 95\u202f% TPR"}
COLOURS = ("1", "5", "g", "4", "3")  # of the scores, best first


def group_name(curve: Curve) -> str:
    """The part of a group after its sign: `corruption=fog` is fog."""
    return str(curve.group).split("=", 1)[-1].replace("_", " ")


def foreign_histogram(view: View) -> Figure | None:
    """Known samples above the line, foreign ones below, each as shares of its group."""
    found = view.curves("ood_histogram", model=view.focus)
    if not found:
        return None
    curve = found[0]
    low, high, known, unknown = (curve.columns[k] for k in ("low", "high", "known", "unknown"))
    name, score = group_name(curve), score_name(curve.score or "confidence")
    rows = [
        (fixed(a, 2), fixed(b, 2), count(k), count(u)) for a, b, k, u in zip(low, high, known, unknown, strict=True)
    ]
    peak = max(range(len(unknown)), key=lambda k: unknown[k])
    return Figure(
        "foreign-histogram",
        f"{score.capitalize()} of {name} and of known {view.unit}",
        f"Share of each group by {score}; the model has never seen {name}",
        _mirror(curve, f"Test {view.unit}, {count(sum(known))}", f"{name}, {count(sum(unknown))}").render(
            f"Histograms of {score}: most {name} lie near {fixed(0.5 * (low[peak] + high[peak]), 2)}."
        ),
        table(("From", "To", "Known", name), rows),
    )


def _mirror(curve: Curve, above: str, below: str) -> Canvas:
    low, high = curve.columns["low"], curve.columns["high"]
    shares = {k: [v / (sum(curve.columns[k]) or 1) for v in curve.columns[k]] for k in ("known", "unknown")}
    canvas = Canvas(PHONE, 238)
    x, middle = Scale(low[0], high[-1], 10, PHONE - 10), 112.0
    unit = 88 / (max(*shares["known"], *shares["unknown"]) or 1)
    spans = [(x(a) + 0.5, max(x(b) - x(a) - 1, 1)) for a, b in zip(low, high, strict=True)]
    up, down = (list(zip(spans, shares[k], strict=True)) for k in ("known", "unknown"))
    canvas.bars([(left, middle - v * unit, width, v * unit) for (left, width), v in up], "fg")
    canvas.bars([(left, middle, width, v * unit) for (left, width), v in down], "f2")
    canvas.line(10, middle, PHONE - 10, middle, "ax")
    canvas.text(10, 24, above, "b")
    canvas.text(10, 204, below, "b")
    canvas.ticks_x(x, [m for m in ticks(low[0], high[-1], 5) if low[0] <= m <= high[-1]], 220)
    score = score_name(curve.score or "confidence")
    canvas.text(PHONE - 10, 236, score.capitalize() if score == "confidence" else score, "l e")
    return canvas


def foreign_roc(view: View) -> Figure | None:
    """Known kept against foreign let in, one line a score, best first."""
    curves = view.curves("ood_roc", model=view.focus)[: len(COLOURS)]
    if not curves:
        return None
    pairs = [(c, view.find("auroc", stage=c.stage, group=c.group, score=c.score)) for c in curves]
    pairs.sort(key=lambda pair: -(pair[1].value if pair[1] else 0.0))
    first, area = pairs[0]
    size = f" with an AUROC of {percent(area.value, 1)}" if area else ""
    rows = []
    for curve, _ in pairs:
        points = list(zip(curve.columns["false_positive"], curve.columns["true_positive"], strict=True))
        kept = points[:: max(1, len(points) // 12)]
        rows += [(score_name(curve.score or "confidence"), percent(a, 1), percent(b, 1)) for a, b in kept]
    return Figure(
        "foreign-roc",
        f"Telling {group_name(first)} from known {view.unit}",
        "Known kept against foreign let in; AUROC under each name, best first",
        _roc(view, pairs).render(
            f"ROC curves for foreign data: {score_name(first.score or 'confidence')} leads{size}."
        ),
        table(("Score", "Foreign taken for known", "Known kept"), rows),
    )


def _roc(view: View, pairs: list[tuple[Curve, Measurement | None]]) -> Canvas:
    canvas = Canvas(PHONE, 232)
    x, y = Scale(0, 1, 34, 212), Scale(0, 1, 192, 14)
    for value in (0, 0.5, 1):
        canvas.line(34, y(value), 212, y(value), "g")
        canvas.text(28, y(value) + 4, f"{100 * value:.0f}", "e")
        canvas.text(x(value), 209, f"{100 * value:.0f}" + ("\u202f%" if value == 1 else ""), "m")
    canvas.line(x(0), y(0), x(1), y(1), "ref")
    for place, (curve, area) in enumerate(pairs):
        colour, points = (
            COLOURS[place],
            zip(curve.columns["false_positive"], curve.columns["true_positive"], strict=True),
        )
        canvas.polyline([(x(a), y(b)) for a, b in points], f"k{colour}", 2.6 if place == 0 else 1.8)
        canvas.line(222, 34 + 32 * place, 236, 34 + 32 * place, f"k{colour}", 2.4)
        name = shorten(score_name(curve.score or "confidence"), 98)
        canvas.text(241, 38 + 32 * place, name, "b" if place == 0 else "l")
        canvas.text(241, 52 + 32 * place, percent(area.value, 1) if area else "")
    canvas.line(34, 192, 212, 192, "ax")
    canvas.text(34, 8, f"Test {view.unit} kept, %", "l")
    canvas.text(212, 228, "foreign taken for known", "l e")
    return canvas


def foreign_areas(view: View) -> tuple[Figure, ...]:
    """AUROC of every score and model, a figure for each foreign set; the other measures are in its table."""
    rows = [m for m in view.measurements if m.metric == "auroc" and (m.group or "").startswith("ood=")]
    return tuple(
        _areas(view, str(group), [m for m in rows if m.group == group and m.model in view.models[: len(COLOURS)]])
        for group in dict.fromkeys(m.group for m in rows)
    )


def _areas(view: View, group: str, found: list[Measurement]) -> Figure:
    name = group.split("=", 1)[1].replace("_", " ")
    values = [100 * v for m in found for v in (m.value, m.low, m.high) if math.isfinite(v)]
    marks = ticks(min([*values, 100.0]), 100.0, 5)
    best = max(found, key=lambda m: m.value)
    alt = (
        f"Dot plot of the AUROC of telling {name} from known {view.unit} by score and model: the highest is "
        f"{percent(best.value, 1)}, {score_name(str(best.score))} of {best.model}."
    )
    rows = [
        (m.model, score_name(str(m.score)), *(text for word in MEASURES for text in _value(view, m, word)))
        for m in found
    ]
    header = [text for word in MEASURES.values() for text in (word, "95\u202f% interval")]
    start = "" if marks[0] == 0 else f"; axis starts at {marks[0]:g}"
    return Figure(
        f"foreign-areas-{name}",
        f"Telling {name} from known {view.unit}, by score",
        f"AUROC, per cent, higher is better{start}",
        _dots(view, found, marks, PHONE).render(alt),
        table(("Model", "Score", *header), rows),
        wide=_dots(view, found, marks, THIRD).render(alt),
        note=f"The first {len(COLOURS)} of {len(view.models)} models." if len(view.models) > len(COLOURS) else "",
        level=4,
    )


def _value(view: View, like: Measurement, word: str) -> tuple[str, str]:
    """A measure of the same model, set and score: its value and its interval."""
    found = view.find(word, like.model, like.stage, like.group, like.score)
    return (percent(found.value, 1), between(found.low, found.high, 1, 100)) if found else ("–", "")


def _dots(view: View, found: list[Measurement], marks: list[float], width: int) -> Canvas:
    """A block a score, in it a dot a model."""
    scores, models = dict.fromkeys(m.score for m in found), dict.fromkeys(m.model for m in found)
    key = 17 * len(models) + 8 if len(models) > 1 else 0
    height = key + 12 + sum(18 + 10 * sum(m.score == score for m in found) for score in scores)
    canvas = Canvas(width, height + 24)
    x, y = Scale(marks[0], marks[-1], 8, width - 12), key + 12.0
    for place, model in enumerate(models if key else ()):
        canvas.bars([(8, 17 * place, 10, 10)], f"f{view.colour(model)}")
        canvas.text(24, 9 + 17 * place, shorten(model, width - 30), "l")
    for mark in marks:
        canvas.line(x(mark), key, x(mark), height + 2, "g")
    canvas.ticks_x(x, marks, height + 18)
    canvas.line(8, height + 2, width - 12, height + 2, "ax")
    for score in scores:
        canvas.text(8, y, shorten(score_name(str(score)), width - 30), "l")
        for m in (one for one in found if one.score == score):
            y += 10
            colour = view.colour(m.model)
            if math.isfinite(m.low) and math.isfinite(m.high):
                canvas.line(x.clip(100 * m.low), y, x.clip(100 * m.high), y, f"k{colour}", 1.5)
            canvas.dot(x.clip(100 * m.value), y, f"f{colour}", 4)
        y += 18
    return canvas
