"""Right and wrong drawn: histograms of confidence, and of trust scores with a cut (TP, FP, TN, FN)."""

from __future__ import annotations

from markupsafe import Markup

from confide.core.results import Curve
from confide.report.figure import Figure, table
from confide.report.svg import PHONE, Canvas, Scale, ticks
from confide.report.view import PLAIN_SCORES, View
from confide.report.words import code, count, fixed, percent, score_name, when

SAME = ("msp", "trust:mcp")  # the maximum softmax probability under both its names
COLUMNS = ("low", "high", "right", "wrong")


def confidence_curve(view: View) -> Curve | None:
    """The histogram of the model's own confidence at the stage to trust with."""
    stages = dict.fromkeys((view.final, view.before))
    for score in PLAIN_SCORES:
        found = view.curve("confidence_histogram", view.focus, stages, group=None, score=score)
        if found:
            return found
    return None


def right_and_wrong(view: View, curve: Curve) -> Figure:
    """Two histograms on one scale, each the share of its own group."""
    low, high, right, wrong = (curve.columns[k] for k in COLUMNS)
    sure = sum(v for a, v in zip(low, wrong, strict=True) if a >= 0.9 - 1e-9) / (sum(wrong) or 1)
    spans = [f"{percent(a)} to {percent(b)}" for a, b in zip(low, high, strict=True)]
    rows = [(span, count(r), count(w)) for span, r, w in zip(spans, right, wrong, strict=True)]
    stage = when(curve.stage)
    title = f"{percent(sure)} of the errors are made with a confidence above {percent(0.9)}"
    alt = f"Histograms of confidence: {percent(sure)} of the wrong predictions are made above {percent(0.9)}."
    return Figure(
        "right-and-wrong",
        title if sum(wrong) else "No prediction is wrong",
        Markup("Share of each group by confidence, {} {}").format(code(view.focus), stage),
        _two_histograms(view, curve).render(alt),
        table(("Confidence", "Right", "Wrong"), rows),
    )


def _two_histograms(view: View, curve: Curve) -> Canvas:
    shares = {k: [100 * v / (sum(curve.columns[k]) or 1) for v in curve.columns[k]] for k in ("right", "wrong")}
    tops = {k: ticks(0, max(*v, 1), 4 if k == "right" else 2) for k, v in shares.items()}
    # One scale for both: a point of share has the same height above and below.
    unit = min(156 / tops["right"][-1], 110 / tops["wrong"][-1])
    for name, marks in tops.items():
        # Grid lines stand at least 14 px apart, or their numbers touch.
        tops[name] = marks if marks[1] * unit >= 14 else [0.0, marks[-1]]
    canvas = Canvas(PHONE, 0)
    x = Scale(0, 1, 34, PHONE - 12)
    floor = 18.0
    for name, colour in (("right", "fg"), ("wrong", "fw")):
        marks = tops[name]
        floor += marks[-1] * unit + (0 if name == "right" else 46)
        scale = Scale(0, marks[-1], floor, floor - marks[-1] * unit)
        canvas.grid_y(scale, marks, 34, PHONE - 12)
        spans = zip(curve.columns["low"], curve.columns["high"], shares[name], strict=True)
        canvas.bars([(x(a) + 0.5, scale(v), max(x(b) - x(a) - 1, 1), floor - scale(v)) for a, b, v in spans], colour)
        canvas.line(34, floor, PHONE - 12, floor, "ax")
        words = f"{name.capitalize()}, {count(sum(curve.columns[name]))} {view.unit}"
        canvas.text(36, scale(marks[-1]) + (16 if name == "right" else -8), words, "b")
    for value in (0, 0.25, 0.5, 0.75, 1):
        canvas.text(
            x(value), floor + 18, f"{100 * value:.0f}" + ("\u202f%" if value == 1 else ""), "m" if value < 1 else "e"
        )
    canvas.text(34, 8, "% of each group, one scale", "l")
    canvas.text(PHONE - 12, floor + 36, "Confidence" if curve.stage == "raw" else "Confidence after calibration", "l e")
    canvas.height = floor + 42
    return canvas


def cuts(view: View, scores: list[str], stage: str) -> list[tuple[Figure, dict[str, str]]]:
    """For confidence and the best other score that has curves: what the same share set aside leaves."""
    found = []
    areas = {s: m.value for s in scores if s not in SAME and (m := view.find("auroc", stage=stage, score=s))}
    for score in ("msp", *sorted(areas, key=lambda s: -areas[s])):
        words = PLAIN_SCORES if score == "msp" else (score,)
        pair = [
            next((c for w in words if (c := view.curve(kind, view.focus, (stage,), group=None, score=w))), None)
            for kind in ("confidence_histogram", "risk_coverage")
        ]
        if pair[0] and pair[1]:
            found.append(_cut(view, score, pair[0], pair[1]))
    return found[:2] if len(found) > 1 else []


def _cut(view: View, score: str, histogram: Curve, ranking: Curve) -> tuple[Figure, dict[str, str]]:
    halving = view.find("halving_rejection", stage=view.final)
    wanted = 1 - halving.value if halving else 0.9
    k = min(range(len(ranking.columns["coverage"])), key=lambda i: abs(ranking.columns["coverage"][i] - wanted))
    coverage, risk, threshold = (ranking.columns[name][k] for name in ("coverage", "risk", "threshold"))
    low, high, right, wrong = (histogram.columns[name] for name in COLUMNS)
    accepted = coverage * (sum(right) + sum(wrong))
    kept = {"right": accepted * (1 - risk), "wrong": accepted * risk}
    counts = {
        "tp": count(kept["right"]),
        "fp": count(kept["wrong"]),
        "fn": count(sum(right) - kept["right"]),
        "tn": count(sum(wrong) - kept["wrong"]),
    }
    name = "Confidence as trust" if score == "msp" else Markup("{} as trust").format(code(score_name(score)))
    rows = [(fixed(a, 3), fixed(b, 3), count(r), count(w)) for a, b, r, w in zip(low, high, right, wrong, strict=True)]
    aside = percent(1 - coverage, 1)
    alt = f"Histograms of {score_name(score)}, right above wrong: setting {aside} aside leaves {counts['fp']} errors."
    figure = Figure(
        f"cut-{score_name(score)}",
        name,
        f"{aside} set aside, below {fixed(threshold, 3)}; bars are shares of their group",
        _cut_canvas(histogram, threshold).render(alt),
        table(("From", "To", "Right", "Wrong"), rows),
        level=4,
    )
    return figure, counts


def _cut_canvas(curve: Curve, threshold: float) -> Canvas:
    low, high, right, wrong = (curve.columns[k] for k in COLUMNS)
    totals = sum(right) or 1, sum(wrong) or 1
    most = max(*(v / totals[0] for v in right), *(v / totals[1] for v in wrong)) or 1
    canvas = Canvas(PHONE, 196)
    x, middle, unit = Scale(low[0], high[-1], 4, PHONE - 4), 96.0, 78 / most
    for a, b, r, w in zip(low, high, right, wrong, strict=True):
        pale = " pale" if 0.5 * (a + b) < threshold else ""
        width = max(x(b) - x(a) - 1, 0.8)
        canvas.bars([(x(a) + 0.5, middle - r / totals[0] * unit, width, r / totals[0] * unit)], "fg" + pale)
        canvas.bars([(x(a) + 0.5, middle, width, w / totals[1] * unit)], "fw" + pale)
    canvas.line(4, middle, PHONE - 4, middle, "ax")
    cut = x.clip(threshold)
    canvas.line(cut, 14, cut, 178, "ax")
    canvas.text(max(cut - 6, 40), 10, "aside", "l e")
    canvas.text(min(cut + 6, PHONE - 66), 10, "accepted →", "l")
    canvas.text(4, 40, "right", "l")
    canvas.text(PHONE - 4, 160, "wrong", "fw e")
    canvas.text(4, 192, "least trusted")
    canvas.text(PHONE - 4, 192, "most trusted", "e")
    return canvas
