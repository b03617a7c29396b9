"""Data from elsewhere: scores of known and foreign samples, and how well scores tell them apart."""

from __future__ import annotations

from confide.core.results import Curve
from confide.report.figure import Figure, table
from confide.report.svg import PHONE, Canvas, Scale, ticks
from confide.report.view import View
from confide.report.words import count, fixed, percent, score_name, shorten


def group_name(curve: Curve) -> str:
    """The part of a group after its sign: `corruption=fog` is fog."""
    return str(curve.group).split("=", 1)[-1].replace("_", " ")


def foreign_histogram(view: View) -> Figure | None:
    found = view.curves("ood_histogram", model=view.focus)
    if not found:
        return None
    curve = found[0]
    low, high, known, unknown = (curve.columns[k] for k in ("low", "high", "known", "unknown"))
    totals = sum(known) or 1, sum(unknown) or 1
    most = max(*(v / totals[0] for v in known), *(v / totals[1] for v in unknown)) or 1
    canvas = Canvas(PHONE, 238)
    x, middle, unit = Scale(low[0], high[-1], 10, PHONE - 10), 112.0, 88 / most
    canvas.bars(
        [
            (x(a) + 0.5, middle - v / totals[0] * unit, max(x(b) - x(a) - 1, 1), v / totals[0] * unit)
            for a, b, v in zip(low, high, known, strict=True)
        ],
        "fg",
    )
    canvas.bars(
        [
            (x(a) + 0.5, middle, max(x(b) - x(a) - 1, 1), v / totals[1] * unit)
            for a, b, v in zip(low, high, unknown, strict=True)
        ],
        "f2",
    )
    canvas.line(10, middle, PHONE - 10, middle, "ax")
    name = group_name(curve)
    canvas.text(10, 24, f"Test {view.unit}, {count(totals[0])}", "b")
    canvas.text(10, 204, f"{name}, {count(totals[1])}", "b")
    marks = ticks(low[0], high[-1], 5)
    canvas.ticks_x(x, [m for m in marks if low[0] <= m <= high[-1]], 220)
    score = score_name(curve.score or "confidence")
    canvas.text(PHONE - 10, 236, score.capitalize() if score == "confidence" else score, "l e")
    rows = [
        (fixed(a, 2), fixed(b, 2), count(k), count(u)) for a, b, k, u in zip(low, high, known, unknown, strict=True)
    ]
    peak = max(range(len(unknown)), key=lambda k: unknown[k])
    return Figure(
        "foreign-histogram",
        f"{score.capitalize()} of {name} and of known {view.unit}",
        f"Share of each group by {score}; the model has never seen {name}",
        canvas.render(f"Histograms of {score}: most {name} lie near {fixed(0.5 * (low[peak] + high[peak]), 2)}."),
        table(("From", "To", "Known", name), rows),
    )


def foreign_roc(view: View) -> Figure | None:
    curves = view.curves("ood_roc", model=view.focus)[:5]
    if not curves:
        return None
    areas = [view.find("auroc", stage=c.stage, group=c.group, score=c.score) for c in curves]
    order = sorted(range(len(curves)), key=lambda k: -(areas[k].value if areas[k] else 0.0))  # type: ignore[union-attr]
    canvas = Canvas(PHONE, 232)
    x, y = Scale(0, 1, 34, 212), Scale(0, 1, 192, 14)
    for value in (0, 0.5, 1):
        canvas.line(34, y(value), 212, y(value), "g")
        canvas.text(28, y(value) + 4, f"{100 * value:.0f}", "e")
        canvas.text(x(value), 209, f"{100 * value:.0f}" + (" %" if value == 1 else ""), "m")
    canvas.line(x(0), y(0), x(1), y(1), "ref")
    rows = []
    for place, k in enumerate(order):
        curve, colour = curves[k], ("1", "5", "g", "4", "3")[place]
        pairs = list(zip(curve.columns["false_positive"], curve.columns["true_positive"], strict=True))
        canvas.polyline([(x(a), y(b)) for a, b in pairs], f"k{colour}", 2.6 if place == 0 else 1.8)
        canvas.line(222, 34 + 32 * place, 236, 34 + 32 * place, f"k{colour}", 2.4)
        canvas.text(
            241, 38 + 32 * place, shorten(score_name(curve.score or "confidence"), 98), "b" if place == 0 else "l"
        )
        m = areas[k]
        canvas.text(241, 52 + 32 * place, percent(m.value, 1) if m else "")
        rows += [
            (score_name(curve.score or "confidence"), percent(a, 1), percent(b, 1))
            for a, b in pairs[:: max(1, len(pairs) // 12)]
        ]
    canvas.line(34, 192, 212, 192, "ax")
    canvas.text(34, 8, f"Test {view.unit} kept, %", "l")
    canvas.text(212, 228, "foreign taken for known", "l e")
    first, area = curves[order[0]], areas[order[0]]
    size = f" with an AUROC of {percent(area.value, 1)}" if area else ""
    name = score_name(first.score or "confidence")
    return Figure(
        "foreign-roc",
        f"Telling {group_name(first)} from known {view.unit}",
        "Known kept against foreign let in; AUROC under each name, best first",
        canvas.render(f"ROC curves for foreign data: {name} leads{size}."),
        table(("Score", "Foreign taken for known", "Known kept"), rows),
    )
