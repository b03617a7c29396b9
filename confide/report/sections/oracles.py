"""Predictors at their own line: who is trusted rightly and wrongly (TP, FP, TN, FN), and what alpha does to both."""

from __future__ import annotations

import math

from markupsafe import Markup

from confide.core.results import Curve
from confide.report.figure import Figure, table
from confide.report.sections.outcomes import SAME
from confide.report.svg import PHONE, Canvas, Scale, tick_text
from confide.report.view import View
from confide.report.words import code, count, fixed, percent, score_name

OUTCOMES = ("tp", "fp", "tn", "fn")
MOST_PREDICTORS = 6


def outcome_figures(view: View, stage: str) -> list[tuple[Figure, dict[str, str]]]:
    """Max-softmax first, then the predictors that tell right from wrong best, each cut at its own line."""
    curves = {c.score or "": c for c in view.curves("trust_outcomes", model=view.focus)}
    areas = {s: m.value for s in curves if (m := view.find("auroc", stage=stage, score=s))}
    first = [s for s in SAME if s in curves][:1]
    others = sorted((s for s in curves if s not in SAME), key=lambda s: -areas.get(s, -math.inf))
    return [_outcomes(curves[s], s) for s in (first + others)[:MOST_PREDICTORS]]


def _outcomes(curve: Curve, score: str) -> tuple[Figure, dict[str, str]]:
    totals = {k: sum(curve.columns[k]) for k in OUTCOMES}
    right, wrong = totals["tp"] + totals["fn"], totals["fp"] + totals["tn"]
    kept = percent(totals["tp"] / right, 1) if right else "–"
    caught = percent(totals["tn"] / wrong, 1) if wrong else "–"
    name = score_name(score)
    rows = [
        (fixed(low, 3), fixed(high, 3), *(count(curve.columns[k][i]) for k in OUTCOMES))
        for i, (low, high) in enumerate(zip(curve.columns["low"], curve.columns["high"], strict=True))
    ]
    figure = Figure(
        f"own-line-{name}",
        Markup("{} at its own line").format(code(name)),
        f"trusts {kept} of the right predictions (TPR) and catches {caught} of the errors (TNR)",
        _outcome_canvas(curve).render(
            f"Histograms of {name}, right above wrong, cut at its own line: TPR {kept}, TNR {caught}."
        ),
        table(("From", "To", "TP", "FP", "TN", "FN"), rows),
        level=4,
    )
    return figure, {k: count(v) for k, v in totals.items()}


def _outcome_canvas(curve: Curve) -> Canvas:
    """Right above the line, wrong below, each as shares of its own group; what is not trusted is pale."""
    columns = curve.columns
    right = [a + b for a, b in zip(columns["tp"], columns["fn"], strict=True)]
    wrong = [a + b for a, b in zip(columns["fp"], columns["tn"], strict=True)]
    totals = sum(right) or 1, sum(wrong) or 1
    most = max(*(v / totals[0] for v in right), *(v / totals[1] for v in wrong), 1e-9)
    canvas = Canvas(PHONE, 196)
    x, middle, unit = Scale(columns["low"][0], columns["high"][-1], 4, PHONE - 4), 96.0, 78 / most
    line = next(
        (low for low, tp, fp in zip(columns["low"], columns["tp"], columns["fp"], strict=True) if tp + fp),
        columns["high"][-1],
    )
    for low, high, r, w in zip(columns["low"], columns["high"], right, wrong, strict=True):
        pale = " pale" if high <= line else ""
        width = max(x(high) - x(low) - 1, 0.8)
        canvas.bars([(x(low) + 0.5, middle - r / totals[0] * unit, width, r / totals[0] * unit)], "fg" + pale)
        canvas.bars([(x(low) + 0.5, middle, width, w / totals[1] * unit)], "fw" + pale)
    canvas.line(4, middle, PHONE - 4, middle, "ax")
    canvas.line(x(line), 14, x(line), 178, "ax")
    canvas.text(max(x(line) - 6, 60), 10, "not trusted", "l e")
    canvas.text(min(x(line) + 6, PHONE - 60), 10, "trusted →", "l")
    canvas.text(4, 40, "right", "l")
    canvas.text(PHONE - 4, 160, "wrong", "fw e")
    canvas.text(4, 192, fixed(columns["low"][0], 2))
    canvas.text(PHONE - 4, 192, fixed(columns["high"][-1], 2), "e")
    return canvas


def sweep_figure(view: View) -> Figure | None:
    """TPR and TNR of steep slope as alpha- grows (Luo et al., 2021, Figure 4b and c)."""
    curve = view.curve("alpha_sweep", view.focus, ("raw",), score="trust:steep_slope")
    if curve is None:
        return None
    alphas, kept, caught = (curve.columns[k] for k in ("alpha_neg", "tpr", "tnr"))
    rows = [(f"{a:g}", percent(t, 1), percent(n, 1)) for a, t, n in zip(alphas, kept, caught, strict=True)]
    ends = f"from {percent(caught[0], 1)} at {alphas[0]:g} to {percent(caught[-1], 1)} at {alphas[-1]:g}"
    return Figure(
        "alpha-sweep",
        "The slope for errors trades right predictions for caught errors",
        Markup("Steep slope at its own line, by {}").format(code("alpha_neg")),
        _sweep_canvas(alphas, kept, caught).render(f"TPR and TNR of steep slope by alpha_neg: TNR goes {ends}."),
        table(("alpha_neg", "TPR", "TNR"), rows),
    )


def _sweep_canvas(alphas: tuple[float, ...], kept: tuple[float, ...], caught: tuple[float, ...]) -> Canvas:
    canvas = Canvas(PHONE, 250)
    # Even steps: the alphas that matter lie close together near 1.
    x, y = Scale(0, max(len(alphas) - 1, 1), 46, PHONE - 20), Scale(0, 100, 208, 22)
    canvas.grid_y(y, [0, 25, 50, 75, 100], 38, PHONE - 8)
    for values, colour in ((kept, "1"), (caught, "w")):
        points = [(x(k), y(100 * v)) for k, v in enumerate(values)]
        canvas.polyline(points, f"k{colour}")
        for place in points:
            canvas.dot(*place, f"f{colour}", 3)
    # Below the line that falls at its start, below the one that rises at its middle: there is room.
    middle = len(caught) // 2
    canvas.text(x(0) + 4, y(100 * kept[0]) + 34, "TPR: right ones trusted", "f1")
    canvas.text(min(x(middle) + 8, PHONE - 118), y(100 * caught[middle]) + 18, "TNR: errors caught", "fw")
    shown = range(0, len(alphas), max(1, math.ceil(len(alphas) / 8)))
    for k in shown:
        canvas.text(x(k), 226, tick_text(alphas[k], sorted(alphas)), "m")
    canvas.text(38, 10, "% of the right, % of the wrong predictions", "l")
    canvas.text(PHONE - 8, 246, "alpha_neg", "l e")
    return canvas
