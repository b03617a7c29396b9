"""Shift: the gap as samples get worse, by corruption and severity; difficulty under shift; and out-of-distribution
data.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from markupsafe import Markup

from confide.report.draw import PHONE, THIRD, Canvas, Empty, Figure, Scale, percent_tick, table, ticks
from confide.report.view import EvaluationView
from confide.report.words import (
    code,
    count,
    fixed,
    percent,
    points,
    score_name,
    shorten,
    unit_word,
    value_texts,
    value_words,
)
from confide.results import BOX, Curve, Measurement, group_parts

# Out-of-distribution data.

SCORE_COLOURS = ("1", "5", "g", "4", "3")  # of scores and trust predictors of one model, best first
MOST_SERIES = len(SCORE_COLOURS)


def group_name(curve: Curve) -> str:
    """The part of a group after its sign: `corruption=fog` is fog."""
    return group_parts(curve.group)[1].replace("_", " ")


def ood_histogram(view: EvaluationView) -> Figure | None:
    """Known samples above the line, OOD ones below, each as shares of its group."""
    curves = view.curves("ood_histogram", model=view.focus)
    if not curves:
        return None
    curve = curves[0]
    low, high, known, unknown = (curve.columns[k] for k in ("low", "high", "known", "unknown"))
    name, score = group_name(curve), score_name(curve.score or "confidence")
    rows = [
        (fixed(a, 2), fixed(b, 2), count(k), count(u)) for a, b, k, u in zip(low, high, known, unknown, strict=True)
    ]
    peak = max(range(len(unknown)), key=lambda k: unknown[k])
    return Figure(
        "ood-histogram",
        f"{score.capitalize()} of {name} and of known {view.unit}",
        f"Share of each group by {score}; the model has never seen {name}",
        _ood_histogram_canvas(curve, f"Test {view.unit}, {count(sum(known))}", f"{name}, {count(sum(unknown))}").render(
            f"Histograms of {score}: most {name} lie near {fixed(0.5 * (low[peak] + high[peak]), 2)}."
        ),
        table(("From", "To", "Known", name), rows),
    )


def _ood_histogram_canvas(curve: Curve, above: str, below: str) -> Canvas:
    low, high = curve.columns["low"], curve.columns["high"]
    shares = {k: [v / (sum(curve.columns[k]) or 1) for v in curve.columns[k]] for k in ("known", "unknown")}
    canvas = Canvas(PHONE, 250)
    x, middle = Scale(low[0], high[-1], 10, PHONE - 10), 106.0
    unit = 88 / (max(*shares["known"], *shares["unknown"]) or 1)
    spans = [(x(a) + 0.5, max(x(b) - x(a) - 1, 1)) for a, b in zip(low, high, strict=True)]
    up, down = (list(zip(spans, shares[k], strict=True)) for k in ("known", "unknown"))
    canvas.bars([(left, middle - v * unit, width, v * unit) for (left, width), v in up], "fg")
    canvas.bars([(left, middle, width, v * unit) for (left, width), v in down], "f2")
    for name, key, way, rows in ((above, "known", -1, up), (below, "unknown", 1, down)):
        for ((left, width), share), number, a, b in zip(rows, curve.columns[key], low, high, strict=True):
            words = f"{name.rsplit(',', 1)[0]}, {fixed(a, 2)} to {fixed(b, 2)}: {count(number)}"
            canvas.value(left + width / 2, middle + way * share * unit, words)
    canvas.line(10, middle, PHONE - 10, middle, "ax")
    canvas.text(10, 12, above, "b")  # above the highest bar, and below the lowest
    canvas.text(10, 210, below, "b")
    canvas.ticks_x(x, [m for m in ticks(low[0], high[-1], 5) if low[0] <= m <= high[-1]], 228)
    score = score_name(curve.score or "confidence")
    canvas.text(PHONE - 10, 246, score.capitalize() if score == "confidence" else score, "l e")
    return canvas


def ood_roc(view: EvaluationView) -> Figure | None:
    """Known kept against OOD let in, one line a score, best first."""
    curves = view.curves("ood_roc", model=view.focus)[:MOST_SERIES]
    if not curves:
        return None
    pairs = [(c, view.find("auroc", stage=c.stage, group=c.group, score=c.score)) for c in curves]
    pairs.sort(key=lambda pair: -(pair[1].value if pair[1] else 0.0))
    first, area = pairs[0]
    size = f" with an AUROC of {percent(area.value, 1)}" if area else ""
    rows = []
    for curve, _ in pairs:
        points = list(zip(curve.columns["false_positive"], curve.columns["true_positive"], strict=True))
        shown = points[:: max(1, len(points) // 12)]
        rows += [(score_name(curve.score or "confidence"), percent(a, 1), percent(b, 1)) for a, b in shown]
    return Figure(
        "ood-roc",
        f"Telling {group_name(first)} from known {view.unit}",
        "Known kept against out-of-distribution (OOD) let in; AUROC under each name, best first",
        _ood_roc_canvas(view, pairs).render(
            f"ROC curves for out-of-distribution data: {score_name(first.score or 'confidence')} leads{size}."
        ),
        table(("Score", "OOD taken for known", "Known kept"), rows),
    )


def _ood_roc_canvas(view: EvaluationView, pairs: list[tuple[Curve, Measurement | None]]) -> Canvas:
    canvas = Canvas(PHONE, 232)
    x, y = Scale(0, 1, 34, 212), Scale(0, 1, 192, 14)
    for value in (0, 0.5, 1):
        canvas.line(34, y(value), 212, y(value), "g")
        canvas.text(28, y(value) + 4, f"{100 * value:.0f}", "e")
        canvas.text(x(value), 209, percent_tick(value), "m")
    canvas.line(x(0), y(0), x(1), y(1), "ref")
    for place, (curve, area) in enumerate(pairs):
        colour = SCORE_COLOURS[place]
        points = list(zip(curve.columns["false_positive"], curve.columns["true_positive"], strict=True))
        canvas.polyline([(x(a), y(b)) for a, b in points], f"k{colour}", 2.6 if place == 0 else 1.8)
        for a, b in points[:: max(1, len(points) // 25)]:
            score = score_name(curve.score or "confidence")
            canvas.value(
                x(a), y(b), f"{score}: {percent(b, 1)} of the known kept, {percent(a, 1)} of the others let in"
            )
        canvas.line(222, 34 + 32 * place, 236, 34 + 32 * place, f"k{colour}", 2.4)
        name = shorten(score_name(curve.score or "confidence"), 98)
        canvas.text(241, 38 + 32 * place, name, "b" if place == 0 else "l")
        canvas.text(241, 52 + 32 * place, percent(area.value, 1) if area else "")
    canvas.line(34, 192, 212, 192, "ax")
    canvas.text(34, 8, f"Test {view.unit} kept, %", "l")
    canvas.text(212, 228, "OOD taken for known", "l e")
    return canvas


def ood_areas(view: EvaluationView) -> tuple[Figure, ...]:
    """AUROC of every score and model, a figure for each OOD set; the other measures are in its table."""
    rows = [m for m in view.measurements if m.metric == "auroc" and m.group_kind == "ood"]
    shown = [m for m in rows if m.model in view.drawn]
    groups = dict.fromkeys(m.group for m in rows)
    return tuple(_ood_area_figure(view, str(group), [m for m in shown if m.group == group]) for group in groups)


def _ood_area_figure(view: EvaluationView, group: str, measurements: list[Measurement]) -> Figure:
    name = group_parts(group)[1].replace("_", " ")
    values = [100 * v for m in measurements for v in (m.value, m.low, m.high) if math.isfinite(v)]
    marks = ticks(min([*values, 100.0]), 100.0, 5)
    best = max(measurements, key=lambda m: m.value)
    alt = (
        f"Dot plot of the AUROC of telling {name} from known {view.unit} by score and model: the highest is "
        f"{percent(best.value, 1)}, {score_name(str(best.score))} of {best.model}."
    )
    measures, area = view.evaluation.columns("ood"), view.info(best.metric)
    rows = []
    for m in measurements:
        texts = [value_texts(info, view.find(info.word, m.model, m.stage, m.group, m.score)) for info in measures]
        rows.append((m.model, score_name(str(m.score)), *chain.from_iterable(texts)))
    header = [text for info in measures for text in (info.title, "95\u202f% interval")]
    start = "" if marks[0] == 0 else f"; axis starts at {marks[0]:g}"
    return Figure(
        f"ood-areas-{name}",
        f"Telling {name} from known {view.unit}, by score",
        f"{area.title}, {unit_word(area).lower()}, {area.better} is better{start}",
        _ood_area_canvas(view, measurements, marks, PHONE).render(alt),
        table(("Model", "Score", *header), rows),
        wide=_ood_area_canvas(view, measurements, marks, THIRD).render(alt),
        note=view.left_out_note,
        level=4,
    )


def _ood_area_canvas(view: EvaluationView, measurements: list[Measurement], marks: list[float], width: int) -> Canvas:
    """A block a score, in it a dot a model."""
    scores, models = dict.fromkeys(m.score for m in measurements), dict.fromkeys(m.model for m in measurements)
    key = 17 * len(models) + 8 if len(models) > 1 else 0
    height = key + 12 + sum(18 + 10 * sum(m.score == score for m in measurements) for score in scores)
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
        for m in [row for row in measurements if row.score == score]:
            y += 10
            colour = view.colour(m.model)
            canvas.whisker(x, y, m, 100, colour)
            canvas.dot(x.clip(100 * m.value), y, f"f{colour}", 4)
            words = f"{m.model}, {score_name(str(m.score))}: {value_words(view.info(m.metric), m)}"
            canvas.value(x.clip(100 * m.value), y, words)
        y += 18
    return canvas


# Boxes by severity.


TITLES = ("Least", "Lower quartile", "Median", "Upper quartile", "Most")


@dataclass(frozen=True)
class BoxPlot:
    """How one kind of boxes is drawn: a value times `scale` has the unit of its axis."""

    curve: str
    name: str
    axis: str
    across: str
    step: str  # the column a box stands at
    scale: float = 100
    digits: int = 1
    sign: bool = False
    zero: bool = True
    size: tuple[int, int] = (THIRD, 270)  # on large pages


@dataclass(frozen=True)
class BoxSeries:
    """Boxes of one colour."""

    name: str
    colour: str
    curve: Curve


SEVERITY = "Severity of the corruption"
RMD_AXIS = "Relative Mahalanobis distance"
GAP_TITLE = "Confidence minus accuracy"
GAP = BoxPlot("shift_boxes", "severity", f"{GAP_TITLE}, points", SEVERITY, "severity", sign=True, size=(560, 376))
ECE = BoxPlot("shift_ece_boxes", "severity-ece", "ECE, points", SEVERITY, "severity")
BEFORE = replace(ECE, name="severity-ece-before")
TRUST = BoxPlot("shift_trust_ece_boxes", "severity-ece-trust", "ECE, points", SEVERITY, "severity")
RMD = BoxPlot("rmd_severity", "rmd-severity", RMD_AXIS, SEVERITY, "severity", 1, zero=False, size=(PHONE, 270))
NOISE = replace(RMD, curve="rmd_label_noise", name="rmd-label-noise", across="Share of wrong labels, %", step="rate")


def first_boxes(view: EvaluationView) -> Figure | None:
    """The gap over the corruptions; where it was not measured, the calibration error as trained."""
    gap = _box_series(view, GAP, _box_stages(view))
    if gap:
        return _box_figure(view, GAP, gap)
    error = _box_series(view, ECE, (view.before, "raw", view.final))
    return _box_figure(view, replace(ECE, name=BEFORE.name, size=GAP.size), error) if error else None


def calibration_boxes(view: EvaluationView) -> tuple[Figure, ...]:
    """The calibration error as trained, after calibration and of trust predictors' chances, on one scale."""
    before, after = _box_series(view, ECE, (view.before, "raw")), _box_series(view, ECE, _box_stages(view))
    both = bool(before and after) and before[0].curve.stage != after[0].curve.stage
    # Without gaps the errors as trained stand first in the section already.
    gap = bool(_box_series(view, GAP, _box_stages(view)))
    errors = [(BEFORE, before if gap and both else []), (ECE, after if gap or both else [])]
    shown = [(kind, series) for kind, series in (*errors, (TRUST, _trust_series(view))) if series]
    marks = _box_marks(ECE, [boxes for _, series in shown for boxes in series]) if shown else []
    names = max((len(series) for _, series in shown), default=0)
    return tuple(_box_figure(view, kind, series, marks, names) for kind, series in shown)


def difficulty_boxes(view: EvaluationView) -> tuple[Figure, ...]:
    """The relative Mahalanobis distance by severity and by the share of wrong labels."""
    plots = [(kind, _box_series(view, kind, _box_stages(view))) for kind in (RMD, NOISE)]
    return tuple(_box_figure(view, kind, series) for kind, series in plots if series)


def _box_stages(view: EvaluationView) -> tuple[str, ...]:
    return view.final, view.before, "raw"


def _box_series(view: EvaluationView, kind: BoxPlot, stages: Iterable[str]) -> list[BoxSeries]:
    curves = [c for m in view.drawn if (c := view.curve(kind.curve, m, dict.fromkeys(stages)))]
    return [BoxSeries(c.model, view.colour(c.model), c) for c in curves]


def _trust_series(view: EvaluationView) -> list[BoxSeries]:
    """One predictor: every model; several: those of the model in focus."""
    curves = view.curves(TRUST.curve)
    if len({c.score for c in curves}) > 1:
        own = [c for c in curves if c.model == view.focus][:MOST_SERIES]
        return [BoxSeries(score_name(str(c.score)), colour, c) for c, colour in zip(own, SCORE_COLOURS, strict=False)]
    return [BoxSeries(c.model, view.colour(c.model), c) for c in curves if c.model in view.drawn]


def _box_marks(kind: BoxPlot, series: Sequence[BoxSeries]) -> list[float]:
    values = [
        kind.scale * v for boxes in series for k in ("low", "high") for v in boxes.curve.columns[k] if math.isfinite(v)
    ]
    values += [0.0] if kind.zero else []
    return ticks(min(values), max(values), 8)


def _box_figure(
    view: EvaluationView, kind: BoxPlot, series: list[BoxSeries], marks: Sequence[float] = (), names: int = 0
) -> Figure:
    """The boxes; panels side by side share `marks` and leave the same room for `names`."""
    marks, names = marks or _box_marks(kind, series), names or len(series)
    own_boxes = next((boxes for boxes in series if boxes.curve.model == view.focus), series[0])
    own = own_boxes.curve.columns
    first, last = (fixed(kind.scale * own["median"][k], kind.digits, sign=kind.sign) for k in (0, -1))
    rows = []
    for boxes in series:
        for i, step in enumerate(boxes.curve.columns[kind.step]):
            box = (fixed(kind.scale * boxes.curve.columns[k][i], kind.digits, sign=kind.sign) for k in BOX)
            rows.append((boxes.name, _step_text(kind, step), *box))
    alt = f"Box plots of {kind.axis.lower()} by {kind.across.lower()}: the median goes from {first} to {last}."
    named = "Model" if any(boxes.name == boxes.curve.model for boxes in series) else "Trust predictor"
    return Figure(
        kind.name,
        _box_title(view, kind, own_boxes.curve),
        _box_subtitle(view, kind, series),
        _box_canvas(kind, series, marks, names, PHONE, 270).render(alt),
        table((named, kind.step.capitalize(), *TITLES), rows),
        wide=_box_canvas(kind, series, marks, names, *kind.size).render(alt) if kind.size[0] != PHONE else None,
        note=view.left_out_note,
    )


def _box_title(view: EvaluationView, kind: BoxPlot, own: Curve) -> str:
    """What is seen: a claim only where the boxes of the model in focus and the tests of its cells bear it."""
    median = own.columns["median"]
    grows, worse = median[-1] > median[0] + 0.01, f"as {view.unit} get worse"
    if kind.curve in (RMD.curve, NOISE.curve):
        what = "severity" if kind.curve == RMD.curve else "wrong labels"
        return f"Difficulty grows with {what}" if grows else f"Difficulty by {what}"
    claims = grows and _mostly_beyond_chance(view, own)
    if kind.curve == GAP.curve:
        return f"Confidence outruns accuracy {worse}" if claims and median[-1] > 0 else f"{GAP_TITLE} by severity"
    if kind.curve == TRUST.curve:
        return f"Trust's chances are lost {worse}" if claims else "Calibration error of trust"
    if kind is BEFORE:
        return f"Calibration error {view.when(own.stage)}"
    what = "Calibration" if own.stage == "raw" else "Calibration on clean data"
    return f"{what} is lost {worse}" if claims else "Calibration error by severity"


def _mostly_beyond_chance(view: EvaluationView, boxes: Curve) -> bool:
    """Whether most cells of the last severity show a larger calibration error than a calibrated model would.

    A gap of some points may be chance, and where confidence falls chance alone makes a larger error.
    """
    ending = f"/{boxes.columns['severity'][-1]:g}"
    beyond = [
        m.chance_high is not None and m.value > m.chance_high
        for m in view.measurements
        if (m.metric, m.model, m.stage) == ("ece", boxes.model, boxes.stage)
        and m.group_kind == "shift"
        and m.group_name.endswith(ending)
        and (m.plain if boxes.score is None else m.score == boxes.score)
    ]
    return 2 * sum(beyond) > len(beyond)


def _box_subtitle(view: EvaluationView, kind: BoxPlot, series: list[BoxSeries]) -> str:
    if kind.curve == NOISE.curve:
        return "The same samples with more and more labels wrong; box: middle half, whiskers: 95 %"
    if kind.curve == RMD.curve:
        return "Means over the corruptions; box: middle half of the samples, whiskers: 95 %"
    boxes = "box: middle half, whiskers: extremes"
    if kind.curve == TRUST.curve:
        curve = series[0].curve
        whose = score_name(str(curve.score)) if series[0].name == curve.model else f"predictors of {view.focus}"
        chance = _by_chance(view, curve.stage, {str(boxes.curve.score) for boxes in series})
        return (
            f"ECE of the chances of being right by {whose}, fitted on clean data, over the corruptions{chance}; {boxes}"
        )
    stage = series[0].curve.stage
    which = view.when(stage) + ("" if stage == "raw" else " on clean data")
    if kind.curve == GAP.curve:
        return f"Gap over the corruptions, {which}; {boxes}"
    return f"ECE over the corruptions, {which}{_by_chance(view, stage)}; {boxes}"


NO_LEVEL = ", chance level not measured"


def _by_chance(view: EvaluationView, stage: str, scores: Collection[str] = ()) -> str:
    """What perfectly calibrated models would show of the ECE in the cells, or of these trust predictors' chances."""
    errors = [m for m in view.measurements if (m.metric, m.stage) == ("ece", stage)]
    limits: dict[bool, list[float]] = {True: [], False: []}
    for m in errors:
        if m.chance_high is not None and (m.score in scores if scores else m.plain):
            limits[m.group_kind == "shift"].append(m.chance_high)
    if limits[True]:
        return f", by chance up to {points(max(limits[True]))} points"
    # Where confidence falls under shift, more would be shown by chance than on clean data.
    return f", by chance up to {points(max(limits[False]))} points on clean data" if limits[False] else NO_LEVEL


def _step_text(kind: BoxPlot, value: float) -> str:
    return f"{100 * value:g}" if kind.step == "rate" else severity_text(value)


def severity_text(value: float) -> str:
    """A severity on an axis; 0 is clean."""
    return "clean" if value == 0 else f"{value:g}"


def _box_canvas(
    kind: BoxPlot, series: list[BoxSeries], marks: Sequence[float], names: int, width: int, plot: int
) -> Canvas:
    """Names of the series above the plot, for boxes of the mildest severities may reach its top."""
    top = 18 + (17 * names + 6 if names > 1 else 0)
    height = plot + top - 18
    canvas = Canvas(width, height)
    steps = list(dict.fromkeys(s for boxes in series for s in boxes.curve.columns[kind.step]))
    x, y = Scale(0, len(steps), 38, width - 6), Scale(marks[0], marks[-1], height - 36, top)
    canvas.grid_y(y, marks, 38, width - 6, sign=kind.sign)
    canvas.line(38, y.clip(0), width - 6, y.clip(0), "ax")
    each = min(0.8 * (x(1) - x(0)) / len(series), 34)
    for place, boxes in enumerate(series):
        for i, step in enumerate(boxes.curve.columns[kind.step]):
            middle = x(steps.index(step) + 0.5) + (place - (len(series) - 1) / 2) * each
            low, first, median, third, high = (y(kind.scale * boxes.curve.columns[k][i]) for k in BOX)
            half = each / 2 - 1.5
            canvas.line(middle, low, middle, high, f"k{boxes.colour}", 1.5)
            canvas.bars([(middle - half, third, 2 * half, max(first - third, 0.1))], "ho")
            canvas.bars(
                [(middle - half, third, 2 * half, max(first - third, 0.1))], f"f{boxes.colour} k{boxes.colour} bx"
            )
            canvas.line(middle - half, median, middle + half, median, f"k{boxes.colour}", 2.2)
            texts = [fixed(kind.scale * boxes.curve.columns[k][i], kind.digits, sign=kind.sign) for k in BOX]
            words = f"{boxes.name}, {_step_text(kind, step)}: median {texts[2]}, from {texts[0]} to {texts[4]}"
            canvas.value(middle, median, words)
        if names > 1:
            canvas.bars([(38, 17 * place, 10, 10)], f"f{boxes.colour}")
            canvas.text(54, 9 + 17 * place, shorten(boxes.name, width - 60), "l")
    for place, step in enumerate(steps):
        canvas.text(x(place + 0.5), height - 20, _step_text(kind, step), "m")
    canvas.text(38, top - 10, kind.axis, "l")
    canvas.text(width - 6, height - 3, kind.across, "l e")
    return canvas


# The section, and its heat maps.

STEPS = (2.0, 8.0, 16.0)  # points where the diverging colours change, symmetric about 0
MOST_CORRUPTIONS = 24


@dataclass(frozen=True)
class ShiftSection:
    """What the section shows."""

    corruptions: tuple[Figure, ...] = ()
    calibration: tuple[Figure, ...] = ()
    others: tuple[Figure, ...] = ()
    difficulty: tuple[Figure, ...] = ()
    unknown: tuple[Figure, ...] = ()
    areas: tuple[Figure, ...] = ()
    missing: tuple[Empty, ...] = ()
    empty: Empty | None = None

    @property
    def drawings(self) -> tuple[Figure, ...]:
        """All figures, in their order."""
        kinds = (self.corruptions, self.calibration, self.others, self.difficulty, self.unknown, self.areas)
        return tuple(figure for kind in kinds for figure in kind)


def shift_section(view: EvaluationView) -> ShiftSection:
    """Corruptions and out-of-distribution data, or what is missing."""
    cells = {model: grid for model in view.drawn if (grid := _cells(view, model))}
    maps = [_heat_map(view, model, *grid, _row_order(view, cells)) for model, grid in cells.items()]
    own = [figure for model, figure in zip(cells, maps, strict=True) if model == view.focus]
    # The heat map stands beside the first boxes, which show the same gap.
    corruptions = tuple(f for f in (first_boxes(view), *own) if f)
    others = tuple(figure for model, figure in zip(cells, maps, strict=True) if model != view.focus)
    unknown, areas = tuple(f for f in (ood_histogram(view), ood_roc(view)) if f), ood_areas(view)
    if not (corruptions or unknown or areas):
        why = view.why_missing("shift") or "The model was not tested on corrupted or out-of-distribution data."
        return ShiftSection(empty=Empty("No test under shift", why, "confide shift MODEL --data DATA --ood OTHER_DATA"))
    missing = []
    if not corruptions and view.unit != "texts":
        missing.append(
            Empty("No corruptions", "The model was not tested on corrupted data.", "confide shift MODEL --data DATA")
        )
    if not (unknown or areas):
        missing.append(
            Empty(
                "No out-of-distribution data",
                "The model was not tested on data of classes it has never seen.",
                "confide shift MODEL --data DATA --ood OTHER_DATA",
            )
        )
    calibration, difficulty = calibration_boxes(view), difficulty_boxes(view)
    return ShiftSection(corruptions, calibration, others, difficulty, unknown, areas, tuple(missing))


def _cells(view: EvaluationView, model: str) -> tuple[str, list[Curve]] | None:
    """The gap in every cell of a model, a curve a corruption; where it was not measured, the error as trained."""
    every = [c for c in view.curves("shift_cells", model=model) if c.group]
    gap = any("gap" in c.columns for c in every)
    what, stage = ("gap", view.final) if gap else ("ece", view.before)
    curves = [c for c in every if what in c.columns]
    curves = [c for c in curves if c.stage == stage] or curves
    return (what, curves) if curves else None


def _row_order(view: EvaluationView, cells: Mapping[str, tuple[str, list[Curve]]]) -> list[str]:
    """One order of corruptions for all heat maps: the worst of the model in focus first."""
    order: dict[str, None] = {}
    for model in (view.focus, *cells):
        what, curves = cells.get(model, ("", []))
        order |= dict.fromkeys(str(c.group) for c in sorted(curves, key=lambda c: -abs(c.columns[what][-1])))
    return list(order)


def _heat_map(view: EvaluationView, model: str, what: str, curves: list[Curve], order: list[str]) -> Figure:
    gap = what == "gap"
    curves = sorted(curves, key=lambda c: order.index(str(c.group)))
    shown = curves[:MOST_CORRUPTIONS]
    by_size = sorted(curves, key=lambda c: abs(c.columns[what][-1]))
    (worst, most), (mildest, least) = ((group_name(c), c.columns[what][-1]) for c in (by_size[-1], by_size[0]))
    more = f"; {len(shown)} of {len(curves)}, the rest in the table" if len(curves) > len(shown) else ""
    name, measure = ("Gap", "confidence minus accuracy") if gap else ("ECE", "the calibration error")
    rows = [
        (group_name(c), severity_text(s), points(g, sign=gap))
        for c in curves
        for s, g in zip(c.columns["severity"], c.columns[what], strict=True)
    ]
    alt = (
        f"Heat map of {measure} by corruption and severity: {worst} reaches {points(most, sign=gap)} "
        f"points, {mildest} {points(least, sign=gap)}."
    )
    last = severity_text(shown[0].columns["severity"][-1])
    ends = f"widest under {worst}, narrowest" if gap else f"highest under {worst}, lowest"
    claim = f"At severity {last} the {name if name == 'ECE' else name.lower()} is {ends} under {mildest}"
    if len(shown) == 1:
        claim = f"{name} by severity"
    return Figure(
        "corruptions" if model == view.focus else f"corruptions-{model}",
        claim if model == view.focus else code(model),
        Markup("{} of {} by corruption and severity, {}, points{}{}").format(
            name, code(model), view.when(shown[0].stage), "" if gap else _by_chance(view, shown[0].stage), more
        ),
        _heat_map_canvas(shown, what, PHONE).render(alt),
        table(("Corruption", "Severity", f"{name}, points"), rows),
        wide=None if model == view.focus else _heat_map_canvas(shown, what, THIRD).render(alt),
    )


def _heat_map_canvas(shown: list[Curve], what: str, width: int) -> Canvas:
    severities = [s for s in dict.fromkeys(s for c in shown for s in c.columns["severity"]) if s > 0]
    canvas = Canvas(width, 18 + 21 * len(shown) + 42)
    x = Scale(0, len(severities), 104, width)
    for k, severity in enumerate(severities):
        canvas.text(x(k + 0.5), 11, severity_text(severity), "m")
    for row, curve in enumerate(shown):
        top = 18 + 21 * row
        canvas.text(96, top + 14, shorten(group_name(curve), 96), "l e")
        for severity, value in zip(curve.columns["severity"], curve.columns[what], strict=True):
            if severity > 0 and math.isfinite(value):
                k, step = severities.index(severity), _colour_step(100 * value)
                canvas.bars([(x(k), top, x(k + 1) - x(k) - 1, 20)], f"d{step}")
                canvas.text(x(k + 0.5), top + 14, fixed(100 * value, 0, sign=what == "gap"), f"m nh t{step}")
                words = f"{group_name(curve)}, severity {severity:g}: {points(value, sign=what == 'gap')} points"
                canvas.value(x(k + 0.5), top + 10, words)
    _ramp(canvas, 18 + 21 * len(shown) + 14, what)
    return canvas


def _colour_step(value: float) -> int:
    size = sum(abs(value) >= limit for limit in STEPS)
    return 3 + size if value > 0 else 3 - size


def _ramp(canvas: Canvas, y: float, what: str) -> None:
    """The colours, with the points at which they change."""
    steps = range(7) if what == "gap" else range(3, 7)
    limits = [-v for v in reversed(STEPS)] + list(STEPS) if what == "gap" else list(STEPS)
    each = (canvas.width - 104) / len(steps)
    for place, step in enumerate(steps):
        canvas.bars([(104 + each * place, y, each - 1, 10)], f"d{step}")
    for place, limit in enumerate(limits):
        canvas.text(104 + each * (place + 1), y + 24, fixed(limit, 0, sign=what == "gap"), "m")
    canvas.text(96, y + 9, "points", "l e")
