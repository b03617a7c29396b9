"""Prediction sets: coverage against the promise, overall and by group, how large the sets are, and the largest."""

from __future__ import annotations

from dataclasses import dataclass

from confide.report.draw import PHONE, Canvas, Empty, Figure, Scale, table, tick_text, ticks
from confide.report.view import EvaluationView
from confide.report.words import between, count, fixed, percent, shorten
from confide.results import GroupCoverage, SetResult

MOST_GROUPS = 12
"""Groups of a kind that are drawn, those with the lowest coverage first to stay."""
MOST_SIZES = 10
"""Bars of the histogram of sizes; the last holds all larger sets."""


@dataclass(frozen=True)
class ExampleRow:
    """A sample with its set, in words."""

    id: str
    label: str
    size: str
    classes: str
    missed: bool  # the set lacks the true class


@dataclass(frozen=True)
class SetsSection:
    """What the section shows."""

    promise: str = ""
    figures: tuple[Figure, ...] = ()
    examples: tuple[ExampleRow, ...] = ()
    hardest: bool = False
    notes: tuple[str, ...] = ()
    empty: Empty | None = None

    @property
    def drawings(self) -> tuple[Figure, ...]:
        """All figures, in their order."""
        return self.figures


def sets_section(view: EvaluationView) -> SetsSection:
    """The sets of the model in focus, or the first there are."""
    results = view.evaluation.sets
    if not results:
        command = "confide sets --fit val.npz --apply test.npz --coverage 0.9 --report DIR"
        return SetsSection(empty=Empty("No prediction sets", "None were fitted.", command))
    result = next((r for r in results if r.model == view.focus), results[0])
    figures = [figure for figure in (_coverage(view, result), _sizes(view, result)) if figure]
    by = {None: "", "class": " within each class", "cluster": " within each cluster of classes"}
    within = by.get(result.by, f" within each group of {result.by}")
    promise = (
        f"At least {percent(result.coverage, 1)} of the sets are promised to hold the true class{within}, on average "
        f"over calibration sets ({result.word}, fitted on {count(result.n_fit)} {view.unit})."
    )
    others = [f"{r.word} on {r.model}" for r in results if r is not result]
    notes = (*result.notes, *([f"Not drawn: {', '.join(others)}."] if others else ()))
    return SetsSection(
        promise,
        tuple(figures),
        tuple(
            ExampleRow(
                e.id,
                e.label or "",
                count(e.size),
                ", ".join(e.classes) + (", …" if e.size > len(e.classes) else ""),
                e.label is not None and e.size <= len(e.classes) and e.label not in e.classes,
            )
            for e in result.examples
        ),
        any(e.difficulty is not None for e in result.examples),
        notes,
    )


# Coverage of every group with its interval, beside the line of the promise.


def _coverage(view: EvaluationView, result: SetResult) -> Figure | None:
    known = [group for group in result.groups if group.covered is not None]
    if not known:
        return None
    drawn = []
    for kind in dict.fromkeys(group.kind for group in known):
        own = [group for group in known if group.kind == kind]
        if len(own) > MOST_GROUPS:
            lowest = sorted(own, key=lambda group: group.share)[:MOST_GROUPS]
            own = [group for group in own if group in lowest]
        drawn += own
    whole, broken = result.whole, [group for group in known if group.broken]
    title = f"{percent(whole.share, 1)} of the sets hold the true class"
    if broken:
        title += f"; {'a promise is' if len(broken) == 1 else f'{len(broken)} promises are'} not kept"
    left_out = len(known) - len(drawn)
    rows = [
        (
            _name(group),
            count(group.n),
            percent(group.share, 1),
            between(group.low, group.high, 1, 100),
            fixed(group.size, 2),
            "not kept" if group.broken else "made" if group.promised else "none",
        )
        for group in known
    ]
    note = "Red: so low a coverage would be rare if the promise held. " * bool(broken)
    note += (
        f"Of more than {MOST_GROUPS} groups of a kind the lowest are drawn; {left_out} more are in the table."
        * bool(left_out)
    )
    alt = (
        f"Coverage of the prediction sets by group: {percent(whole.share, 1)} overall, against a promise of "
        f"{percent(result.coverage, 1)}."
    )
    return Figure(
        "set-coverage",
        title,
        f"Covered share with its exact 95 % interval; the line is the promise of {percent(result.coverage, 1)}; hollow "
        "where no promise was made",
        _draw_coverage(view, result, drawn).render(alt),
        table(("Group", "Count", "Covered", "95 % interval", "Mean size", "Promise"), rows),
        note=note.strip(),
    )


def _name(group: GroupCoverage) -> str:
    return group.name if group.kind in ("all", "cluster") else f"{group.kind}: {group.name}"


def _draw_coverage(view: EvaluationView, result: SetResult, groups: list[GroupCoverage]) -> Canvas:
    left, step, top = 128, 19, 22
    height = top + step * len(groups) + 34
    canvas = Canvas(PHONE, height)
    lowest = min(min((group.low for group in groups), default=0.9), result.coverage)
    marks = [mark for mark in ticks(100 * lowest, 100, 4) if mark <= 100]
    x = Scale(marks[0], 100, left, PHONE - 12)
    bottom = top + step * len(groups)
    for mark in marks:
        canvas.line(x(mark), top - 8, x(mark), bottom, "g")
        canvas.text(x(mark), bottom + 15, tick_text(mark, marks), "m" if mark < 100 else "e")
    promised = x(100 * result.coverage)
    canvas.line(promised, top - 8, promised, bottom, "ref")
    side = "m" if promised < PHONE - 52 else "e"  # a high promise stands at the edge
    canvas.text(promised, 10, f"promised {percent(result.coverage, 1)}", f"{side} l")
    for place, group in enumerate(groups):
        y = top + step * (place + 0.5)
        colour = "w" if group.broken else "1"
        canvas.text(left - 8, y + 4, shorten(group.name, left - 12), "e b" if group.kind == "all" else "e l")
        canvas.line(x.clip(100 * group.low), y, x.clip(100 * group.high), y, f"k{colour}", 1.5)
        if group.promised:
            canvas.dot(x.clip(100 * group.share), y, f"f{colour}")
        else:
            canvas.dot(x.clip(100 * group.share), y, f"ho k{colour}", width=1.6)
        words = f"{_name(group)}: {percent(group.share, 1)} of {count(group.n)} {view.unit} covered"
        canvas.value(x.clip(100 * group.share), y, f"{words}, {fixed(group.size, 2)} classes a set")
    canvas.line(left, bottom, PHONE - 12, bottom, "ax")
    canvas.text(PHONE - 12, height - 3, "Sets that hold the true class, %", "l e")
    return canvas


# How many classes the sets hold.


def _sizes(view: EvaluationView, result: SetResult) -> Figure:
    total = sum(number for _, number in result.sizes)
    last = max(size for size, _ in result.sizes)
    bars: dict[str, int] = {}
    for size, number in result.sizes:
        name = str(size) if size < MOST_SIZES or last == MOST_SIZES else f"{MOST_SIZES}+"
        bars[name] = bars.get(name, 0) + number
    single = dict(result.sizes).get(1, 0) / total
    mean = sum(size * number for size, number in result.sizes) / total
    canvas = Canvas(PHONE, 230)
    marks = ticks(0, 100 * max(bars.values()) / total, 5)
    x, y = Scale(0, len(bars), 34, PHONE - 6), Scale(0, marks[-1], 190, 22)
    canvas.grid_y(y, marks, 34, PHONE - 6)
    width = min(0.8 * (x(1) - x(0)), 34)
    for place, (name, number) in enumerate(bars.items()):
        share = number / total
        canvas.bars([(x(place + 0.5) - width / 2, y(100 * share), width, 190 - y(100 * share))], "f1")
        canvas.text(x(place + 0.5), 206, name, "m")
        words = "1 class" if name == "1" else f"{name} classes"
        canvas.value(x(place + 0.5), y(100 * share), f"{words}: {percent(share, 1)}, {count(number)} {view.unit}")
    canvas.line(34, 190, PHONE - 6, 190, "ax")
    canvas.text(34, 10, f"{view.unit.capitalize()}, %", "l")
    canvas.text(PHONE - 6, 226, "Classes in the set", "l e")
    rows = [(count(size), count(number), percent(number / total, 1)) for size, number in result.sizes]
    return Figure(
        "set-sizes",
        f"{percent(single, 1)} of the sets name one class",
        f"How many classes a set holds; {fixed(mean, 2)} on average",
        canvas.render(f"Bars of the sizes of the prediction sets: {percent(single, 1)} hold one class."),
        table(("Classes", "Sets", "Share"), rows),
    )
