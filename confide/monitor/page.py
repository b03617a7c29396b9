"""The page of a watch: time lines of accuracy, calibration error, evidence and drift, in one HTML file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from confide import __version__
from confide.files import formats
from confide.monitor.alarms import Wealth
from confide.monitor.estimates import AccuracyEstimate, CalibrationEstimate
from confide.monitor.watch import SAMPLING, BatchReport, Monitor
from confide.report.draw import PHONE, WIDE, Canvas, Figure, Scale, table, ticks
from confide.report.page import asset, page_environment
from confide.report.words import between, count, fixed, percent, shorten

METHODS = {
    "regression": "Regression on batch statistics, fitted on shifted samples",
    "difficulty": "Confidence and difficulty, if neither changes its meaning",
    "atc": "Share of confidences above a threshold (ATC)",
    "confidence": "Mean confidence, if calibration still holds",
    "difference": "Accuracy then, minus how far confidence fell",
}


def write_page(monitor: Monitor, path: str | Path) -> Path:
    """Write the page of a watch as one HTML file that opens from disk and loads nothing.

    Args:
        monitor: with at least one batch.
        path: of the file.

    Returns:
        The path.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> reference = confide.Predictions.from_probs(rng.dirichlet([2.0, 1.0], 100), rng.integers(0, 2, 100))
        >>> watch = confide.monitor.Monitor(reference, file="watch.jsonl")
        >>> report = watch.update(confide.Predictions.from_probs(rng.dirichlet([2.0, 1.0], 100), ids=range(100, 200)))
        >>> print(confide.monitor.write_page(watch, "watch.html"))
        watch.html
    """
    batches = monitor.batches
    figures = [f for f in (_accuracy(monitor, batches), _ece(batches), _evidence(monitor), _drift(batches)) if f]
    text = (
        page_environment()
        .get_template("monitor.html")
        .render(
            version=__version__,
            css=Markup(asset("base.css") + asset("report.css")),
            js=Markup(asset("values.js")),
            name=monitor.file.stem,
            headline=headline(monitor),
            waiting=waiting(monitor),
            alarmed=monitor.alarmed,
            batches=len(batches),
            samples=count(sum(b.n for b in batches)),
            labelled=count(sum(b.labelled for b in batches)),
            sampling=SAMPLING,
            figures=figures,
        )
    )
    formats.write_text(path, text)
    return Path(path)


def headline(monitor: Monitor) -> str:
    """The watch in one sentence: alarms first, else the last batch's estimate."""
    raised = [alarm for alarm in monitor.alarms if alarm.raised_at is not None]
    if raised:
        promises = " and ".join(alarm.promise for alarm in raised)
        return f"{promises[0].upper()}{promises[1:]} {'do' if len(raised) > 1 else 'does'} not hold."
    batches = monitor.batches
    if not batches:
        return "No batch has come yet."
    last = batches[-1]
    seen = sum(b.labelled for b in batches)
    labels = f"no alarm after {count(seen)} labels" if seen else "no labels have come, so no promise can be checked"
    return (
        f"{last.name}: accuracy is estimated at {percent(last.estimate.value, 1)} "
        f"({percent(last.estimate.low, 1)} to {percent(last.estimate.high, 1)}); {labels}."
    )


def waiting(monitor: Monitor) -> str:
    """Labels that do not count yet, in one sentence; empty where there are none."""
    if not monitor.waiting:
        return ""
    labels = "1 label waits" if monitor.waiting == 1 else f"{count(monitor.waiting)} labels wait"
    return f"{labels} for predictions with the same id."


def _accuracy(monitor: Monitor, batches: Sequence[BatchReport]) -> Figure | None:
    if not batches:
        return None
    method = batches[-1].estimate.method
    rows = []
    for b in batches:
        seen = b.seen
        measured = f"{percent(seen[0], 1)} ({between(seen[1], seen[2], 1, 100)})" if seen else "–"
        estimates = [f"{percent(e.value, 1)} ({between(e.low, e.high, 1, 100)})" for e in b.accuracy]
        rows.append((b.name, b.time, count(b.n), percent(b.confidence, 1), *estimates, measured, count(b.labelled)))
    header = ("Batch", "Time", "n", "Confidence", *(e.method for e in batches[-1].accuracy), "Seen", "Labels")
    last = batches[-1].estimate
    alt = f"Accuracy by batch: the last is estimated at {percent(last.value, 1)}."
    return Figure(
        "accuracy",
        "Accuracy by batch",
        f"Band: estimate without labels with its 95 % interval ({METHODS[method]}); dots: what labels showed; "
        "dashed: the reference",
        _accuracy_canvas(monitor, batches, PHONE).render(alt),
        table(header, rows),
        wide=_accuracy_canvas(monitor, batches, WIDE).render(alt),
    )


def _accuracy_canvas(monitor: Monitor, batches: Sequence[BatchReport], width: int) -> Canvas:
    reference = monitor.reference.accuracy
    seen = [v for b in batches if (own := b.seen) for v in own]
    canvas, middles, y = _estimates_canvas(
        batches, [b.estimate for b in batches], "Accuracy", [reference, *seen], width
    )
    canvas.line(38, y(100 * reference), width - 8, y(100 * reference), "ref")
    for place, b in zip(middles, batches, strict=True):
        if own := b.seen:
            canvas.line(place + 4, y(100 * own[1]), place + 4, y(100 * own[2]), "ki", 1.5)
            canvas.dot(place + 4, y(100 * own[0]), "f2", 4.5)
            canvas.value(place + 4, y(100 * own[0]), f"{b.name}: {percent(own[0], 1)} of {count(b.labelled)} labels")
    return canvas


def _ece(batches: Sequence[BatchReport]) -> Figure | None:
    if not batches:
        return None
    errors = [b.ece for b in batches]
    rows = [
        (b.name, percent(b.confidence, 1), percent(e.value, 1), between(e.low, e.high, 1, 100))
        for b, e in zip(batches, errors, strict=True)
    ]
    alt = f"Calibration error by batch: the last is estimated at {percent(errors[-1].value, 1)}."
    drawn = [_estimates_canvas(batches, errors, "ECE", [0.0], width)[0].render(alt) for width in (PHONE, WIDE)]
    return Figure(
        "ece",
        "Calibration error by batch",
        "Band: ECE estimated without labels, from the estimated accuracy, with its 95 % interval",
        drawn[0],
        table(("Batch", "Confidence", "ECE", "95 % interval"), rows),
        wide=drawn[1],
        note="If the chance of being right moved alike, on the logit scale, for all samples of a batch.",
    )


def _estimates_canvas(
    batches: Sequence[BatchReport],
    estimates: Sequence[AccuracyEstimate | CalibrationEstimate],
    what: str,
    shown: Sequence[float],
    width: int,
) -> tuple[Canvas, list[float], Scale]:
    """Estimates by batch with their intervals, the middles of the batches, and the scale, which spans `shown` too."""
    ends = [*shown, *(v for e in estimates for v in (e.low, e.high))]
    marks = ticks(100 * min(ends), 100 * max(ends), 5)
    canvas = Canvas(width, 260)
    x, y = Scale(0, len(batches), 38, width - 8), Scale(marks[0], marks[-1], 214, 18)
    canvas.grid_y(y, marks, 38, width - 8)
    middles = [x(k + 0.5) for k in range(len(batches))]
    canvas.area(
        [(place, y(100 * e.high)) for place, e in zip(middles, estimates, strict=True)],
        [(place, y(100 * e.low)) for place, e in zip(middles, estimates, strict=True)],
        "fb",
    )
    canvas.polyline([(place, y(100 * e.value)) for place, e in zip(middles, estimates, strict=True)], "k1")
    for place, b, e in zip(middles, batches, estimates, strict=True):
        canvas.line(place, y(100 * e.low), place, y(100 * e.high), "k1", 1.2)
        canvas.value(place, y(100 * e.value), f"{b.name}: estimated {percent(e.value, 1)}")
    _batch_names(canvas, batches, middles, 232)
    canvas.line(38, 214, width - 8, 214, "ax")
    canvas.text(38, 9, f"{what}, %" + ("" if marks[0] == 0 else f" (axis starts at {marks[0]:g})"), "l")
    canvas.text(width - 8, 254, "Batch", "l e")
    return canvas, middles, y


def _batch_names(canvas: Canvas, batches: Sequence[BatchReport], middles: Sequence[float], y: float) -> None:
    step = max(1, math.ceil(len(batches) * 72 / (canvas.width - 46)))
    for k in range(0, len(batches), step):
        canvas.text(middles[k], y, shorten(batches[k].name, 66, 11), "m")


def _evidence(monitor: Monitor) -> Figure | None:
    state = monitor.state
    lines = [("promised risk", "w", state.risk_wealth)] if state.risk is not None else []
    lines += [("calibration", "1", state.calibration_wealth)]
    lines = [line for line in lines if line[2].seen]
    if not lines:
        return None
    rows = [
        (name, count(seen), f"{value:.3g}") for name, _, wealth in lines for seen, value in _thinned(wealth.history)
    ]
    needed = 1 / state.delta
    alt = "; ".join(f"{name}: wealth {wealth.value:.3g} after {count(wealth.seen)} labels" for name, _, wealth in lines)
    return Figure(
        "evidence",
        "Evidence against the promises",
        f"Wealth of bets against each promise by labels seen, logarithmic; an alarm is raised at {needed:g}",
        _evidence_canvas(lines, needed, PHONE).render(f"Evidence against the promises. {alt}."),
        table(("Promise", "Labels", "Wealth"), rows),
        wide=_evidence_canvas(lines, needed, WIDE).render(f"Evidence against the promises. {alt}."),
        note=f"While a promise holds, its wealth reaches {needed:g} with a probability of at most "
        f"{percent(state.delta)}, however long one watches.",
    )


def _thinned(history: Sequence[tuple[int, float]], most: int = 200) -> list[tuple[int, float]]:
    return [*history[:: max(1, len(history) // most)], history[-1]]


def _evidence_canvas(lines: Sequence[tuple[str, str, Wealth]], needed: float, width: int) -> Canvas:
    most = max(wealth.seen for _, _, wealth in lines)
    # Long after an alarm more evidence tells nothing more.
    top = max(needed, *(min(wealth.highest, 1e3 * needed) for _, _, wealth in lines))
    canvas = Canvas(width, 240)
    highest = math.ceil(math.log10(top))
    x, y = Scale(0, most, 44, width - 8), Scale(-2, highest, 196, 14 + 17 * (len(lines) + 1))
    for power in range(-2, highest + 1, 1 if highest < 3 else 2):
        canvas.line(44, y(power), width - 8, y(power), "g")
        canvas.text(38, y(power) + 4, count(10.0**power) if power >= 0 else f"{10.0**power:g}", "e")
    canvas.line(44, y(math.log10(needed)), width - 8, y(math.log10(needed)), "ref")
    for place, (name, colour, wealth) in enumerate(lines):
        steps = [(0, 1.0), *_thinned(wealth.history)]
        canvas.polyline([(x(seen), y.clip(math.log10(max(value, 1e-9)))) for seen, value in steps], f"k{colour}")
        for seen, value in steps[:: max(1, len(steps) // 25)]:
            words = f"{name}, {count(seen)} labels: wealth {value:.3g}"
            canvas.value(x(seen), y.clip(math.log10(max(value, 1e-9))), words)
        canvas.line(44, 6 + 17 * place, 62, 6 + 17 * place, f"k{colour}", 2.2)
        canvas.text(68, 10 + 17 * place, name, "l")
    canvas.line(44, 6 + 17 * len(lines), 62, 6 + 17 * len(lines), "ref")
    canvas.text(68, 10 + 17 * len(lines), f"alarm, at {needed:g}", "l")
    marks = [m for m in ticks(0, most, 4) if m <= most]
    canvas.ticks_x(x, marks, 214)
    canvas.line(44, 196, width - 8, 196, "ax")
    canvas.text(width - 8, 234, "Labels seen", "l e")
    return canvas


def _drift(batches: Sequence[BatchReport]) -> Figure | None:
    names = list(dict.fromkeys(d.what for b in batches for d in b.drift))
    if not names:
        return None
    marked = [b.name for b in batches if b.drifted]
    title = "Nothing has drifted beyond chance" if not marked else f"Drift in {len(marked)} of {len(batches)} batches"
    rows = [
        (b.name, d.what, fixed(d.statistic, 3), f"{d.p_value:.2g}", "yes" if d.what in b.drifted else "no")
        for b in batches
        for d in b.drift
    ]
    largest = max(d.statistic for b in batches for d in b.drift)
    alt = f"Drift by batch: {title.lower()}; the largest distance is {fixed(largest, 2)}."
    return Figure(
        "drift",
        title,
        "Distance of each distribution from the reference, 0 none to 1 all; filled where chance does not explain it",
        _drift_canvas(batches, names, PHONE).render(alt),
        table(("Batch", "What", "Distance", "p", "Beyond chance"), rows),
        wide=_drift_canvas(batches, names, WIDE).render(alt),
    )


def _drift_canvas(batches: Sequence[BatchReport], names: Sequence[str], width: int) -> Canvas:
    marks = ticks(0, max(0.05, *(d.statistic for b in batches for d in b.drift)), 4)
    canvas = Canvas(width, 234)
    x, y = Scale(0, len(batches), 38, width - 8), Scale(0, marks[-1], 190, 14 + 17 * len(names))
    canvas.grid_y(y, marks, 38, width - 8)
    middles = [x(k + 0.5) for k in range(len(batches))]
    for place, name in enumerate(names):
        colour = str(place + 1)
        series = [(m, b, d) for m, b in zip(middles, batches, strict=True) for d in b.drift if d.what == name]
        canvas.polyline([(m, y(d.statistic)) for m, _, d in series], f"k{colour}", 1.6)
        for m, b, d in series:
            fill = f"f{colour}" if name in b.drifted else "ho"
            canvas.dot(m, y(d.statistic), f"{fill} k{colour}", 4, 1.6)
            canvas.value(m, y(d.statistic), f"{b.name}, {name}: {fixed(d.statistic, 3)}, p = {d.p_value:.2g}")
        canvas.line(44, 6 + 17 * place, 62, 6 + 17 * place, f"k{colour}", 2.2)
        canvas.text(68, 10 + 17 * place, "predicted classes" if name == "classes" else name, "l")
    _batch_names(canvas, batches, middles, 208)
    canvas.line(38, 190, width - 8, 190, "ax")
    canvas.text(width - 8, 230, "Batch", "l e")
    return canvas
