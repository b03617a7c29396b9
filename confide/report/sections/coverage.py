"""Risk and coverage: what setting the least trusted aside spares, with a point to drag, and thresholds with a
guaranteed risk.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from markupsafe import Markup

from confide.report.draw import (
    PHONE,
    WIDE,
    Canvas,
    Empty,
    Figure,
    Scale,
    coordinate as number_text,
    explorer_query,
    percent_tick,
    table,
    ticks,
)
from confide.report.view import EvaluationView
from confide.report.words import code, count, fixed, percent, share_words, shorten, shown
from confide.results import OWN_CONFIDENCE, SEED_BAND, Curve, ModelPoint
from confide.types import JsonObject

# Thresholds with a guaranteed risk, chosen on validation, and what was seen of them on the test split.


@dataclass(frozen=True)
class ThresholdRow:
    """A ready-made threshold; empty texts where no threshold can be promised."""

    risk: str
    threshold: str
    coverage: str
    seen: str
    spared: str
    broken: bool = False  # the error rate seen lies above the promised one


def operating_points_of(view: EvaluationView) -> list[ModelPoint]:
    """Operating points of the model in focus by its own confidence, most generous first."""
    own = [
        p
        for p in view.evaluation.operating_points
        if p.model in (None, view.focus) and p.point.score in OWN_CONFIDENCE and p.point.promised is not None
    ]
    at_stage = [p for p in own if p.stage in (None, view.final)] or own
    return sorted(at_stage, key=lambda p: -(p.point.promised or 0.0))


def promises(view: EvaluationView) -> tuple[ThresholdRow, ...]:
    """Rows of the table of thresholds."""
    accuracy = view.find("accuracy", stage=view.final) or view.find("accuracy")
    rows = []
    for p in operating_points_of(view):
        threshold, risk = p.point.threshold, p.point.promised or 0.0
        coverage, seen = p.point.coverage, math.nan
        spared = "–"
        if p.observed:
            coverage, seen = p.observed.coverage, p.observed.risk
            if accuracy and math.isfinite(coverage * seen):
                errors = (1 - accuracy.value) * accuracy.n
                spared = f"{count(errors - coverage * seen * accuracy.n)} of {count(errors)}"
        rows.append(
            ThresholdRow(
                risk_text(risk),
                fixed(threshold, 3) if threshold is not None else "",
                percent(coverage, 1) if math.isfinite(coverage) else "–",
                percent(seen, 1) if math.isfinite(seen) else "–",
                spared,
                seen > risk,
            )
        )
    return tuple(rows)


def risk_text(risk: float) -> str:
    """A promised error rate with the decimals it needs."""
    return percent(risk, next((digits for digits in range(6) if abs(risk - round(risk, digits + 2)) < 1e-9), 6))


def chosen_on(view: EvaluationView) -> str:
    """What the thresholds were chosen on, and how sure the promise is."""
    points = [p.point for p in operating_points_of(view)]
    sizes = {point.n for point in points if point.n}
    sure = {point.confidence for point in points if math.isfinite(point.confidence)}
    samples = f"{count(sizes.pop())} validation {view.unit}" if len(sizes) == 1 else f"validation {view.unit}"
    return f"with {percent(sure.pop())} confidence, chosen on {samples}" if len(sure) == 1 else f"chosen on {samples}"


# The section: risk-coverage curves with a point to drag.


@dataclass(frozen=True)
class ReadPromise:
    """A promised risk, as the dragged point names it."""

    risk: float | None
    threshold: float | None
    confidence: float
    words: str
    """The promised error rate, as the table of thresholds has it."""


@dataclass(frozen=True)
class CoverageData:
    """What the dragged point reads: a value a step in every column, as the page's script takes them."""

    coverage: tuple[float | None, ...]
    risk: tuple[float | None, ...]
    threshold: tuple[float | None, ...]
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]
    promise: tuple[int | None, ...]
    """Which of the promises stands at the step."""
    n: int
    errors: float
    top: float
    promises: tuple[ReadPromise, ...]
    unit: str


@dataclass(frozen=True)
class CoverageSection:
    """What the section shows; `data` is what the dragged point reads."""

    curve: Figure | None = None
    rejection: Figure | None = None
    promises: tuple[ThresholdRow, ...] = ()
    chosen_on: str = ""
    start: int = 0
    readout: dict[str, str] | None = None
    data: CoverageData | None = None
    whose: str = ""
    """The model and stage of the curve, as a view of the explorer."""
    empty: Empty | None = None

    @property
    def island(self) -> JsonObject | None:
        """The data as the page's script reads them."""
        return None if self.data is None else asdict(self.data)

    @property
    def drawings(self) -> tuple[Figure, ...]:
        """All figures, in their order."""
        return tuple(figure for figure in (self.curve, self.rejection) if figure)


def coverage_section(view: EvaluationView) -> CoverageSection:
    """Risk-coverage curves of all models, with the operating point of the one in focus."""
    curves = _curves(view)
    if not curves or curves[0].model != view.focus:
        why = view.why_missing("coverage") or "The evaluation holds no risk-coverage curve."
        command = "confide evaluate predictions.parquet"
        return CoverageSection(empty=Empty("No risk-coverage curve", why, command), promises=promises(view))
    focus = curves[0]
    steps = _steps(view, focus)
    start = view.halving_row([step.coverage for step in steps], focus.stage)
    top = ticks(0, 100 * max(_highest(c) for c in curves), 6)
    data = _data(view, focus, steps, top[-1])
    return CoverageSection(
        _figure(view, curves, top, steps[start]),
        _rejection(view, curves),
        promises(view),
        chosen_on(view),
        start,
        _readout(data, steps[start]),
        data,
        explorer_query({"split": focus.split, "model": focus.model, "stage": focus.stage}),
    )


def _curves(view: EvaluationView) -> list[Curve]:
    """One curve a model, the one in focus first, at the stage to trust with."""
    order = [view.focus, *(m for m in view.drawn if m != view.focus)]
    stages = dict.fromkeys((view.final, view.before))
    return [c for model in order if (c := view.curve("risk_coverage", model, stages, group=None))]


def _highest(curve: Curve) -> float:
    """The largest risk to show: curves are noisy where few samples are accepted, so the first 2 % do not count."""
    pairs = zip(curve.columns["coverage"], curve.columns["risk"], strict=True)
    return max((r for c, r in pairs if c >= 0.02 and math.isfinite(r)), default=0.01) or 0.01


@dataclass(frozen=True)
class Step:
    """A place of the operating point: a row of the curve, or a promised threshold as seen on the test split."""

    coverage: float
    risk: float
    threshold: float
    low: float = math.nan
    high: float = math.nan
    promise: int | None = None  # which of the operating points it is


def _steps(view: EvaluationView, curve: Curve) -> list[Step]:
    """The rows of the curve with the promised thresholds between them: a promise is read at its own threshold."""
    rows = curve.columns
    unknown = (math.nan,) * len(rows["risk"])
    columns = (rows["coverage"], rows["risk"], rows["threshold"])
    ends = (rows.get(name, unknown) for name in ("risk_low", "risk_high"))
    steps = [Step(*row) for row in zip(*columns, *ends, strict=True)]
    for place, p in enumerate(operating_points_of(view)):
        if p.point.threshold is not None and p.observed and p.observed.coverage > 0:
            seen = p.observed
            steps.append(Step(seen.coverage, seen.risk, p.point.threshold, seen.low, seen.high, place))
    return sorted(steps, key=lambda step: (step.coverage, -step.threshold))


def _data(view: EvaluationView, curve: Curve, steps: list[Step], top: float) -> CoverageData:
    accuracy = view.find("accuracy", stage=curve.stage) or view.find("accuracy")
    n = accuracy.n if accuracy else 0
    total = curve.columns["risk"][-1] * curve.columns["coverage"][-1]
    points = [p.point for p in operating_points_of(view)]

    def column(name: str) -> tuple[float | None, ...]:
        return tuple(_rounded(getattr(step, name)) for step in steps)

    return CoverageData(
        coverage=column("coverage"),
        risk=column("risk"),
        threshold=tuple(s.threshold if math.isfinite(s.threshold) else None for s in steps),
        low=column("low"),
        high=column("high"),
        promise=tuple(step.promise for step in steps),
        n=n,
        errors=total * n,
        top=top / 100,
        promises=tuple(
            ReadPromise(point.promised, point.threshold, point.confidence, risk_text(point.promised or 0.0))
            for point in points
        ),
        unit=view.unit,
    )


def _rounded(value: float | None) -> float | None:
    return round(value, 9) if value is not None and math.isfinite(value) else None


def _readout(data: CoverageData, step: Step) -> dict[str, str]:
    """The read-out of the point as it stands at first, for print and for pages without scripts."""
    spared = data.errors - step.coverage * step.risk * data.n
    low, high = step.low, step.high
    return {
        "threshold": fixed(step.threshold, 3),
        "coverage": percent(step.coverage, 1),
        "risk": percent(step.risk, 1),
        "interval": f"{fixed(100 * low, 1)}–{percent(high, 1)}" if math.isfinite(low) and math.isfinite(high) else "",
        "spared": f"{count(spared)} of {count(data.errors)}",
    }


def _figure(view: EvaluationView, curves: list[Curve], top: list[float], start: Step) -> Figure:
    focus = curves[0]
    alt = (
        f"Risk-coverage curve: accepting {percent(start.coverage, 1)} of the {view.unit} gives "
        f"{percent(start.risk, 1)} errors, "
        f"accepting all gives {percent(focus.columns['risk'][-1], 1)}."
    )
    halving = view.find("halving_rejection", stage=focus.stage)
    title = "Error rate by accepted share"
    if halving and view.halves(halving):
        title = f"Setting aside {share_words(halving.value, view.unit)} halves the error rate"
    band = "; band: 95 % interval of the model in focus" if "risk_low" in focus.columns else ""
    band += "; bands: all seeds" if any(_seed_band(curve) for curve in curves) else ""
    step = max(1, len(focus.columns["coverage"]) // 25)
    columns = (focus.columns[name][::step] for name in ("coverage", "risk", "threshold"))
    rows = [(percent(c, 1), percent(r, 1), fixed(t, 3)) for c, r, t in zip(*columns, strict=True)]
    return Figure(
        "risk",
        title,
        Markup("Error rate of the accepted {} by accepted share, most confident first; {}, {}{}").format(
            view.unit, code(view.focus), view.when(focus.stage), band
        ),
        _draw(view, curves, top, start, PHONE).render(alt, "rcs"),
        table(("Accepted", "Wrong among accepted", "Threshold"), rows),
        wide=_draw(view, curves, top, start, WIDE).render(alt, "rcs"),
        note=view.left_out_note,
    )


def _draw(view: EvaluationView, curves: list[Curve], top: list[float], start: Step, width: int) -> Canvas:
    # The key stands above the plot: a poor ranking's curve, and the band of any, may reach every place in it.
    ceiling = 22 + 17 * (len(curves) + 1)
    height = ceiling + (276 if width == PHONE else 316)
    canvas = Canvas(width, height)
    x, y = Scale(0, 1, 34, width - 10), Scale(0, top[-1], height - 40, ceiling)
    canvas.grid_y(y, top, 34, width - 10)
    for value in (0, 0.25, 0.5, 0.75, 1) if width == PHONE else [k / 10 for k in range(11)]:
        canvas.text(x(value), height - 22, percent_tick(value), "e" if value == 1 else "m")
    canvas.text(36, ceiling - 6, "Wrong among accepted, %", "l")
    canvas.text(width - 10, height - 4, "Accepted share (coverage)", "l e")
    focus = curves[0].columns
    if "risk_low" in focus and "risk_high" in focus:
        rows = [k for k, c in enumerate(focus["coverage"]) if c >= 0.02 and math.isfinite(focus["risk_low"][k])]
        canvas.area(
            [(x(focus["coverage"][k]), y.clip(100 * focus["risk_high"][k])) for k in rows],
            [(x(focus["coverage"][k]), y.clip(100 * focus["risk_low"][k])) for k in rows],
            "fb",
        )
    for curve in curves:
        if sides := [[(x(c), y.clip(100 * r)) for c, r in side] for side in _seed_band(curve)]:
            canvas.area(sides[0], sides[1], f"f{view.colour(curve.model)} bx")
    all_wrong = 100 * focus["risk"][-1]
    canvas.line(34, y(all_wrong), width - 10, y(all_wrong), "ref")
    for curve in reversed(curves):
        columns = curve.columns
        canvas.polyline(
            [(x(c), y.clip(100 * r)) for c, r in zip(columns["coverage"], columns["risk"], strict=True) if c > 0],
            f"k{view.colour(curve.model)}",
            2.6 if curve is curves[0] else 1.6,
        )
    for curve in curves:
        columns, step = curve.columns, max(1, len(curve.columns["risk"]) // 25)
        whose = f"{curve.model}, " if len(curves) > 1 else ""
        for c, r, t in list(zip(columns["coverage"], columns["risk"], columns["threshold"], strict=True))[::step]:
            text = f"{whose}{percent(c, 1)} accepted, confidence {fixed(t, 3)} and above: {percent(r, 1)} wrong"
            canvas.value(x(c), y.clip(100 * r), text)
    _key(canvas, view, curves, 36, 6)
    _perfect(canvas, focus["risk"][-1], x, y)
    canvas.line(36, 6 + 17 * len(curves), 56, 6 + 17 * len(curves), "ref")
    dashed = f"accept everything: {percent(focus['risk'][-1], 1)}; perfect ranking"
    canvas.text(63, 10 + 17 * len(curves), dashed, "l")
    canvas.line(34, y(0), width - 10, y(0), "ax")
    px, py = number_text(x(start.coverage)), number_text(y.clip(100 * start.risk))
    canvas.raw(
        f'<g class="op" data-x0="34" data-x1="{width - 10}" data-y0="{height - 40}" data-y1="{ceiling}">'
        f'<line class="k1" y1="{ceiling}" y2="{height - 40}" x1="0" x2="0" transform="translate({px} 0)"/>'
        f'<circle r="8" class="f1" cx="{px}" cy="{py}"/><circle r="3" class="ho" cx="{px}" cy="{py}"/></g>'
    )
    return canvas


def _seed_band(curve: Curve) -> list[list[tuple[float, float]]]:
    """The highest and the lowest risk of the seeds by coverage; empty where there is one seed."""
    names = ["risk" + ending for ending in reversed(SEED_BAND)]
    if not all(name in curve.columns for name in names):
        return []
    return [
        [(c, r) for c, r in zip(curve.columns["coverage"], curve.columns[name], strict=True) if c >= 0.02]
        for name in names
    ]


def _perfect(canvas: Canvas, errors: float, x: Scale, y: Scale) -> None:
    """The curve of a ranking that puts every error last, for reference."""
    shares = [1 - errors + errors * k / 40 for k in range(41)]
    points = [(x(0), y(0)), *((x(c), y(100 * (c - 1 + errors) / c)) for c in shares if c > 0)]
    canvas.path("M" + "L".join(f"{number_text(a)} {number_text(b)}" for a, b in points), "ref")


def _key(canvas: Canvas, view: EvaluationView, curves: list[Curve], left: float, y: float) -> None:
    """Curves run close together, so a key names them, the model in focus in bold."""
    for place, curve in enumerate(curves):
        canvas.line(left, y + 17 * place, left + 20, y + 17 * place, f"k{view.colour(curve.model)}", 2.2)
        area = view.find("aurc", curve.model, curve.stage)
        words = shorten(curve.model, 150 if canvas.width == PHONE else 260)
        info = view.info("aurc")
        tail = f"  {info.title} {shown(info, area.value)}" if area else ""
        canvas.text(left + 27, y + 4 + 17 * place, words + tail, "b" if place == 0 else "l")


def _rejection(view: EvaluationView, curves: list[Curve]) -> Figure:
    """The same curves as accuracy against the rejected share, up to half rejected."""
    lines = [
        [(1 - c, 1 - r) for c, r in zip(v.columns["coverage"], v.columns["risk"], strict=True) if c >= 0.5]
        for v in curves
    ]
    low = 100 * min(a for points in lines for _, a in points)
    marks = ticks(low, 100, 5)
    canvas = Canvas(PHONE, 214)
    x, y = Scale(0, 0.5, 34, PHONE - 12), Scale(marks[0], marks[-1], 174, 14)
    canvas.grid_y(y, marks, 34, PHONE - 12)
    for value in (0, 0.1, 0.2, 0.3, 0.4, 0.5):
        canvas.text(x(value), 192, percent_tick(value, 0.5), "m" if value < 0.5 else "e")
    for curve, points in reversed(list(zip(curves, lines, strict=True))):
        for r, a in points[:: max(1, len(points) // 25)]:
            canvas.value(x(r), y(100 * a), f"{curve.model}, {percent(r, 1)} rejected: {percent(a, 1)} right")
        canvas.polyline(
            [(x(r), y(100 * a)) for r, a in points], f"k{view.colour(curve.model)}", 2 if curve is curves[0] else 1.4
        )
    canvas.line(34, 174, PHONE - 12, 174, "tk")
    canvas.text(36, 9, f"Accuracy on the rest, %{'' if marks[0] == 0 else f' (axis starts at {marks[0]:g})'}", "l")
    canvas.text(PHONE - 12, 210, "Rejected share", "l e")
    rows = [
        (c.model, percent(r, 1), percent(a, 1))
        for c, points in zip(curves, lines, strict=True)
        for r, a in points[:: max(1, len(points) // 10)]
    ]
    all_in = 1 - curves[0].columns["risk"][-1]
    half = lines[0][0][1]
    return Figure(
        "accuracy-rejection",
        "Accuracy by rejected share",
        "The same curves, as accuracy; colours as above",
        canvas.render(
            f"Accuracy-rejection curve: {percent(all_in, 1)} with none rejected, {percent(half, 1)} with half rejected."
        ),
        table(("Model", "Rejected", "Accuracy on the rest"), rows),
        level=4,
    )
