"""Data from elsewhere: scores of known and foreign samples, and how well scores tell them apart."""

from __future__ import annotations

from confide.core.results import Curve, Measurement
from confide.report.figure import Figure, table
from confide.report.svg import PHONE, Canvas, Scale, ticks
from confide.report.view import View
from confide.report.words import count, fixed, percent, score_name, shorten

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
