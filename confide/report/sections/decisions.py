"""Decisions by cost: what is done how often, what it costs, and from which price on asking a person pays."""

from __future__ import annotations

import math
from dataclasses import dataclass

from confide.report.draw import PHONE, Canvas, Empty, Figure, Scale, percent_tick, table, ticks
from confide.report.view import EvaluationView
from confide.report.words import between, count, fixed, percent
from confide.results import DecisionResult, Measurement

MOST_ACTIONS = 12


@dataclass(frozen=True)
class DecisionsSection:
    """What the section shows: costs as (name, value, interval, meaning), actions as (name, share, count)."""

    costs: tuple[tuple[str, str, str, str], ...] = ()
    actions: tuple[tuple[str, str, str], ...] = ()
    figures: tuple[Figure, ...] = ()
    warnings: tuple[str, ...] = ()
    empty: Empty | None = None

    @property
    def drawings(self) -> tuple[Figure, ...]:
        """All figures, in their order."""
        return self.figures


def decisions_section(view: EvaluationView) -> DecisionsSection:
    """The decisions on the model in focus, or the first there are."""
    results = view.evaluation.decisions
    if not results:
        command = "confide decide calibrated.npz --costs costs.yaml --report DIR"
        return DecisionsSection(empty=Empty("No decisions by cost", "No costs were given.", command))
    result = next((r for r in results if r.model == view.focus), results[0])
    shares = sorted(result.shares.items(), key=lambda row: -row[1])
    actions = [(name, percent(share, 1), count(share * result.n)) for name, share in shares]
    if len(actions) > MOST_ACTIONS:
        left = shares[MOST_ACTIONS:]
        rest = sum(share for _, share in left)
        actions = [
            *actions[:MOST_ACTIONS],
            (f"{len(left)} others", percent(rest, 1), count(rest * result.n)),
        ]
    return DecisionsSection(
        tuple(_costs(view, result)),
        tuple(actions),
        (_remaining(view, result), _price(result)) if len(result.break_even) > 1 else (),
        result.warnings,
    )


def _costs(view: EvaluationView, result: DecisionResult) -> list[tuple[str, str, str, str]]:
    costs: list[tuple[str, Measurement | None, str]] = [
        ("Expected cost", result.expected, "What the probabilities say the decisions cost, on average."),
        ("Measured cost", result.measured, "What they cost by the labels, on average."),
        ("Saved", result.saved, f"What taking the likeliest class would have cost more on the same {view.unit}."),
    ]
    # The likeliest class throughout saves nothing, and is no news.
    costs = [row for row in costs if row[1] and (row[0] != "Saved" or row[1].value)]
    rows = [(name, _number(m.value), between(m.low, m.high, 3), meaning) for name, m, meaning in costs if m]
    if result.threshold is not None:
        meaning = "The second class is decided where its probability is above this."
        rows.append(("Threshold", fixed(result.threshold, 4), "", meaning))
    if "ask" in result.shares:
        rows.append(("Asked about", f"{count(result.deferred)} {view.unit}", "", "A person decides these."))
    return rows


def _number(cost: float) -> str:
    return fixed(cost, 3)


def _by_share(marks: list[float]) -> tuple[Canvas, Scale, Scale]:
    """A drawing whose x is the share asked about, and whose y has these marks."""
    canvas = Canvas(PHONE, 230)
    x, y = Scale(0, 1, 40, PHONE - 10), Scale(marks[0], marks[-1], 186, 18)
    canvas.grid_y(y, marks, 40, PHONE - 10)
    for share in (0, 0.25, 0.5, 0.75, 1):
        canvas.text(x(share), 204, percent_tick(share), "m" if share < 1 else "e")
    return canvas, x, y


def _remaining(view: EvaluationView, result: DecisionResult) -> Figure:
    """The cost of what is decided without asking, by the share that is asked about."""
    points = result.break_even
    measured = any(math.isfinite(point.measured) for point in points)
    values = [v for p in points for v in (p.expected, p.measured) if math.isfinite(v)]
    marks = ticks(min(0.0, *values), max(values), 5)
    canvas, x, y = _by_share(marks)
    canvas.polyline([(x(p.share), y(p.expected)) for p in points], "k1", 2.4)
    canvas.line(150, 30, 170, 30, "k1", 2.4)
    canvas.text(177, 34, "by the probabilities", "l")
    if measured:
        canvas.polyline([(x(p.share), y(p.measured)) for p in points], "ki", 2)
        canvas.line(150, 48, 170, 48, "ki", 2)
        canvas.text(177, 52, "by the labels", "l")
    for point in points[:: max(1, len(points) // 25)]:
        seen = f", by the labels {_number(point.measured)}" if math.isfinite(point.measured) else ""
        words = f"{percent(point.share)} asked about: {_number(point.expected)} by the probabilities{seen}"
        canvas.value(x(point.share), y(point.expected), words)
    canvas.line(40, y(0), PHONE - 10, y(0), "ax")
    canvas.text(40, 8, f"Cost of the rest, over all {view.unit}", "l")
    canvas.text(PHONE - 10, 226, "Share asked about", "l e")
    rows = [
        (percent(p.share), _number(p.expected), _number(p.measured), _number(p.price))
        for p in points[:: max(1, len(points) // 25)]
    ]
    half = points[len(points) // 2]
    # What was counted comes before what the probabilities foretell.
    counted = measured and math.isfinite(points[0].measured)
    costs = [_number(p.measured if counted else p.expected) for p in (points[0], half)]
    alt = f"Cost that remains by share asked about: {costs[0]} with none, {costs[1]} with half."
    return Figure(
        "cost-by-share",
        f"Deciding everything costs {costs[0]} each, by the {'labels' if counted else 'probabilities'}",
        "What remains to be paid when the most doubtful are asked about, without the price of asking",
        canvas.render(alt),
        table(("Asked about", "Cost by the probabilities", "Cost by the labels", "Asking pays below"), rows),
    )


def _price(result: DecisionResult) -> Figure:
    """The price below which it pays to ask about one more sample."""
    points = result.break_even[:-1]
    marks = ticks(min(0.0, *(p.price for p in points)), max(p.price for p in points), 5)
    canvas, x, y = _by_share(marks)
    canvas.polyline([(x(p.share), y(p.price)) for p in points], "k1", 2.4)
    for point in points[:: max(1, len(points) // 25)]:
        words = f"Asking about {percent(point.share)} pays while it costs less than {_number(point.price)}"
        canvas.value(x(point.share), y(point.price), words)
    canvas.line(40, y(0), PHONE - 10, y(0), "ax")
    canvas.text(40, 8, "Price of asking", "l")
    canvas.text(PHONE - 10, 226, "Share worth asking about", "l e")
    tenth = next((p for p in points if p.share >= 0.1), points[-1])
    return Figure(
        "break-even",
        f"Asking about {percent(tenth.share)} pays below {_number(tenth.price)} each",
        "Break-even: the price of asking at which one more question still pays, by the probabilities",
        canvas.render(f"Break-even price of asking by share: {_number(tenth.price)} at {percent(tenth.share)}."),
        table(("Asked about", "Asking pays below"), [(percent(p.share), _number(p.price)) for p in points]),
    )
