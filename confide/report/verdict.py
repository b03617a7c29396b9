"""The verdict (one sentence on what the model says and what it is right about, and at most three more) and the key
tiles under it.

Direction is claimed only if the interval of confidence minus accuracy excludes 0 and the calibration test has
p < 0.05; "repairs" only if the calibration error after lies under its chance bound and the likelihood is better by the
paired test. The sentence speaks of the gap alone; the calibration error, another quantity, has a sentence of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from markupsafe import Markup

from confide.report.draw import PHONE, Canvas, Scale, tick_text, ticks
from confide.report.sections.reliability import calibration_grouping, class_sides
from confide.report.view import EvaluationView
from confide.report.words import code, count, fixed, from_to, p_value, percent, plus_minus, points
from confide.results import LEVEL, ComparedRow, DecisionResult, Measurement, SetResult


@dataclass(frozen=True)
class Verdict:
    """`before` + `direction` + `after` is the sentence; only the direction is coloured."""

    before: str
    direction: str = ""
    after: str = ""
    side: str = ""  # "over", "under", or nothing
    lead: tuple[Markup, ...] = ()

    @property
    def sentence(self) -> str:
        """The whole sentence as text."""
        return self.before + self.direction + self.after


def verdict(view: EvaluationView) -> Verdict:
    """What an evaluation allows to say about its subject, which is the model in focus unless it says otherwise."""
    if view.about.verdict:
        return Verdict(view.about.verdict)
    own = _of_subject(view)
    if own is not None:
        return replace(own, lead=(Markup("{}").format(_of_model(view).sentence),) if view.find("accuracy") else ())
    return (_of_runs(view) if view.about.runs else None) or _of_model(view)


def _of_model(view: EvaluationView) -> Verdict:
    """What the model in focus says and what it is right about."""
    accuracy = view.find("accuracy")
    if accuracy is None:
        return _under_shift(view) or Verdict(
            "This evaluation holds no accuracy, so nothing can be said about the model."
        )
    only = _only_label(view)
    if only is not None:
        return _one_class(accuracy, only)
    gap = view.find("confidence_gap")
    if gap is None:
        return _without_confidence(view, accuracy)
    # Of several models the sentence names the one that it speaks of.
    who = view.focus if len(view.models) > 1 else "This model"
    says = f"{who} says {percent(accuracy.value + gap.value, 1)} and is right {percent(accuracy.value, 1)}"
    lead = tuple(words for words in (_error_sentence(view), _halving_sentence(view), _best_model(view)) if words)
    side = _side(view, gap)
    if not side:
        return Verdict(says + _no_direction(view, gap), lead=lead)
    size = plus_minus(gap.value, gap.low, gap.high)
    return Verdict(f"{says}: ", f"{side}confident by {size}", _what_calibration_did(view, gap), side, lead)


def _of_subject(view: EvaluationView) -> Verdict | None:
    """What a report on shift, prediction sets, slices or decisions has found; None for one on models."""
    if view.about.subject == "shift":
        return _under_shift(view)
    if view.about.subject == "sets" and view.evaluation.sets:
        return _of_sets(view.evaluation.sets[0], view.unit)
    if view.about.subject == "slices":
        return _of_slices(view)
    if view.about.subject == "decisions" and view.evaluation.decisions:
        return _of_decisions(view.evaluation.decisions[0], view.unit)
    return None


def _of_sets(result: SetResult, unit: str) -> Verdict:
    whole = result.whole
    size = f"{fixed(whole.size, 1)} {'class' if fixed(whole.size, 1) == '1.0' else 'classes'} on average"
    promised = percent(result.coverage, 1)
    if whole.covered is None or not whole.n:
        return Verdict(f"The sets hold {size}; without labels nobody can tell whether the promised {promised} is kept.")
    seen = f"{percent(whole.share, 1)} of the sets hold the true class ({from_to(whole.low, whole.high, 1, 100)})"
    broken = [group for group in result.groups if group.broken]
    outcome = f"the promise of {promised} is kept, as far as {count(whole.n)} {unit} can tell"
    if not any(group.promised for group in result.groups):
        outcome = f"{promised} was asked for and nothing promised"
    elif whole.broken:
        outcome = f"the promise of {promised} is not kept"
    elif broken:
        promises = sum(group.promised for group in result.groups)
        where = f"in {len(broken)} of {promises} groups" if len(broken) < promises else f"in any of {promises} groups"
        outcome = f"the promise of {promised} is not kept {where}"
    return Verdict(f"{seen}: {outcome}; a set holds {size}.")


def _of_slices(view: EvaluationView) -> Verdict:
    gaps = view.by_group("confidence_gap", "slice", view.focus, view.before)
    if not gaps:
        return Verdict(f"Of {count(view.n)} {view.unit}, no slice is found whose confidence is wrong beyond chance.")
    widest = max(gaps, key=lambda name: abs(gaps[name].value))
    gap = gaps[widest]
    number = "one slice is" if len(gaps) == 1 else f"{len(gaps)} slices are"
    return Verdict(
        f"Confidence is wrong beyond chance: {number} found, the widest gap where {widest}: ",
        f"{'over' if gap.value > 0 else 'under'}confident by {plus_minus(gap.value, gap.low, gap.high)}",
        ".",
        "over" if gap.value > 0 else "under",
    )


def _of_decisions(result: DecisionResult, unit: str) -> Verdict:
    cost = result.measured or result.expected
    by = "by the labels" if result.measured else "by the probabilities"
    ends = from_to(cost.low, cost.high, 3)
    deferred = f"; {count(result.deferred)} of {count(result.n)} {unit} are left to a person" if result.deferred else ""
    saved = ""
    if result.saved and result.saved.low > 0:
        saved = f", {fixed(result.saved.value, 3)} less than the likeliest class would"
    return Verdict(f"A decision costs {fixed(cost.value, 3)}{f' ({ends})' if ends else ''} {by}{saved}{deferred}.")


LEAST_GAP = 0.0005  # below it a gap is 0.0 points
MOST_NAMED = 3  # runs that a headline has room for


def _of_runs(view: EvaluationView) -> Verdict | None:
    """Models of several runs side by side, each by its name; None where fewer than two have a gap."""
    rows = []
    for model in view.models:
        stage = next((s for s in view.stages if view.find("confidence_gap", model, s)), view.before)
        accuracy, gap = view.find("accuracy", model, stage), view.find("confidence_gap", model, stage)
        if accuracy and gap:
            rows.append((model, accuracy.value, gap))
    if len(rows) < 2:
        return None

    def size(gap: Measurement) -> str:
        return f"{points(gap.value, sign=True)}{f' ({_ends(gap)})' if gap.has_interval else ''}"

    if len(rows) <= MOST_NAMED:
        says = [f"{model} says {percent(a + g.value, 1)} and is right {percent(a, 1)}" for model, a, g in rows]
        *first, last = (size(g) for _, _, g in rows)
        return Verdict(f"{'; '.join(says)}: confidence minus accuracy is {', '.join(first)} and {last} points.")
    rows.sort(key=lambda row: abs(row[2].value))
    (least, _, small), (most, _, large) = rows[0], rows[-1]
    return Verdict(
        f"Of {len(rows)} models side by side, {least} has the smallest gap between confidence and accuracy, "
        f"{size(small)} points, and {most} the widest, {size(large)}."
    )


def _ends(m: Measurement) -> str:
    return f"{points(m.low, sign=True)} to {points(m.high, sign=True)}"


def _under_shift(view: EvaluationView) -> Verdict | None:
    """What happens to confidence as severity grows; None where it was not measured at two severities."""
    stage = next((s for s in (view.final, view.before) if view.by_group("accuracy", "shift", view.focus, s)), "raw")
    accuracy, gap = (view.by_group(word, "shift", view.focus, stage) for word in ("accuracy", "confidence_gap"))
    severities = [name for name in accuracy if name.startswith("severity ") and name in gap]
    if len(severities) < 2:
        return None
    first, last = severities[0], severities[-1]
    start = "clean" if first == "severity 0" else first
    right = [percent(accuracy[name].value, 1) for name in (first, last)]
    sure = [percent(accuracy[name].value + gap[name].value, 1) for name in (first, last)]
    gaps = [points(gap[name].value, sign=True) for name in (first, last)]
    whose = f" of {view.focus}" if len(view.models) > 1 else ""
    when = "" if stage == "raw" else f" {view.when(stage)}"
    return Verdict(
        f"From {start} to {last}, accuracy{whose} goes from {right[0]} to {right[1]} and confidence{when} from "
        f"{sure[0]} to {sure[1]}: confidence minus accuracy goes from {gaps[0]} to {gaps[1]} points."
    )


def _only_label(view: EvaluationView) -> str | None:
    present = [name for name, number in view.about.label_counts.items() if number]
    return str(present[0]) if len(present) == 1 else None


def _one_class(accuracy: Measurement, label: str) -> Verdict:
    who = "The only test label is" if accuracy.n == 1 else f"All {count(accuracy.n)} test labels are"
    interval = ""
    if accuracy.has_interval:
        interval = f" ({fixed(100 * accuracy.low, 0)} to {fixed(100 * accuracy.high, 0)})"
    return Verdict(
        f"{who} '{label}', so calibration cannot be judged; accuracy is "
        f"{percent(accuracy.value)}{interval}, and a test set with every class is needed."
    )


def _without_confidence(view: EvaluationView, accuracy: Measurement) -> Verdict:
    error = view.calibration_error(view.before)
    tail = f", with a calibration error of {points(error.value)} points" if error else ""
    if error and error.chance_high is not None:
        tail += f" (by chance up to {points(error.chance_high)})"
    return Verdict(f"This model is right on {percent(accuracy.value)} of {count(accuracy.n)} {view.unit}{tail}.")


def _side(view: EvaluationView, gap: Measurement) -> str:
    error = view.calibration_error(view.before)
    if error is None or not error.rejected or not _apart(gap):
        return ""
    return "over" if gap.value > 0 else "under"


def _apart(gap: Measurement) -> bool:
    """Whether the interval of a gap excludes 0, and the gap would not be written as 0.0 points."""
    return (gap.low > 0 or gap.high < 0) and abs(gap.value) >= LEAST_GAP


def _what_calibration_did(view: EvaluationView, gap: Measurement) -> str:
    if view.after is None:
        return "."
    name = view.stage_phrase(view.after)
    if _made_worse(view, view.after):
        return f", and {name} makes it worse, so leave it out."
    after_error, after_gap = view.calibration_error(view.after), view.find("confidence_gap", stage=view.after)
    rows = ComparedRow(view.focus, view.after), ComparedRow(view.focus, view.before)
    if after_error and after_error.within_chance and view.beats("nll", *rows):
        return f", and {name} repairs it."
    if after_gap is None:
        return "."
    if after_gap.value * gap.value < 0 and _apart(after_gap):
        other = "over" if after_gap.value > 0 else "under"
        return f", and {name} overshoots: {other}confident by {points(abs(after_gap.value))}."
    ratio = abs(after_gap.value / gap.value)
    size = points(abs(after_gap.value))
    if ratio > 0.9:
        return f", and {name} does not mend it."
    return f", and {name} {'halves' if 0.4 < ratio < 0.6 else 'lowers'} it to {size}."


def _no_direction(view: EvaluationView, gap: Measurement) -> str:
    if not gap.has_interval:
        return "; without intervals nothing tells whether that is chance."
    if view.after and _made_worse(view, view.after):
        return f"; {view.stage_phrase(view.after)} made it worse, so leave it out."
    error = view.calibration_error(view.before)
    if _apart(gap):
        size = plus_minus(gap.value, gap.low, gap.high)
        if error is None or error.p_value is None:
            return f", a gap of {size}; no calibration test was made."
        return f", a gap of {size} that the calibration test does not confirm (p = {p_value(error.p_value)})."
    wide = abs(gap.value) >= 0.01
    if error and error.beyond_chance:
        if not wide:
            return " on average, but confidence and accuracy differ at some levels of confidence."
        return (
            ": confidence and accuracy differ at some levels of confidence; on average chance alone may be why "
            f"({_ends(gap)} points)."
        )
    if wide:
        return (
            f", but {view.size(gap.n)} cannot tell that gap from chance: it may be anything from {_ends(gap)} points."
        )
    if error is None or error.p_value is None:
        return "."
    known = f"as far as {view.size(gap.n)} can tell"
    after = view.calibration_error(view.after) if view.after else None
    if view.after and after and after.beyond_chance:
        return f": well calibrated as trained, {known}, but not {view.when(view.after)}."
    if apart := len(class_sides(view, view.before)):
        together = f"over all {calibration_grouping(view).noun[1]} together"
        return f": well calibrated {together}, {known}, but not within {apart} of them."
    return f": well calibrated, {known}."


def _made_worse(view: EvaluationView, stage: str) -> bool:
    """Whether the calibration error rose at this stage and a paired test prefers the model as trained."""
    before, after = view.calibration_error(view.before), view.calibration_error(stage)
    rows = ComparedRow(view.focus, view.before), ComparedRow(view.focus, stage)
    proven = any(view.beats(metric, *rows) for metric in ("nll", "brier", "ece_mass", "ece"))
    return before is not None and after is not None and after.value > before.value and proven


def _error_sentence(view: EvaluationView) -> Markup | None:
    before = view.calibration_error(view.before)
    if before is None:
        return None
    after = view.calibration_error(view.after) if view.after else None
    chance = (after or before).chance
    tail = f"; a perfectly calibrated model of this size would show {points(chance)}" if chance is not None else ""
    if after is None or view.after is None:
        return Markup("The calibration error is {} points{}.").format(points(before.value), tail)
    sizes = points(before.value), points(after.value)
    note = view.stage_note(view.focus, view.after)
    how = f"{view.when(view.after)} ({note})" if note else view.when(view.after)
    rows = ComparedRow(view.focus, view.after), ComparedRow(view.focus, view.before)
    test = view.test(before.metric, *rows)
    if test is None or test.p_holm >= LEVEL:
        words = "The calibration error is {} points {} and {} {}{}{}."
        alike = ", which a paired test cannot tell apart" if test and sizes[0] != sizes[1] else ""
        return Markup(words).format(sizes[0], view.when(view.before), sizes[1], how, alike, tail)
    moves = "falls" if after.value < before.value else "rises"
    start = how[0].upper() + how[1:]
    return Markup("{} the calibration error {} from {} to {} points{}.").format(start, moves, *sizes, tail)


def _halving_sentence(view: EvaluationView) -> Markup | None:
    share = view.find("halving_rejection", stage=view.final)
    if share is None:
        return None
    if not view.halves(share):
        return Markup("How many to reject to halve the error rate cannot be told.")
    ends = f" ({from_to(share.low, share.high, 1, 100)})" if share.has_interval else ""
    return Markup("Rejecting the least trusted {}{} halves the error rate.").format(percent(share.value, 1), ends)


def _best_model(view: EvaluationView) -> Markup | None:
    if len(view.models) < 2:
        return None
    for metric, thing in (("nll", "probabilities"), ("brier", "probabilities"), ("aurc", "ranking")):
        rows = [ComparedRow(model, view.final) for model in view.models if view.find(metric, model, view.final)]
        winner = view.best(metric, rows)
        if winner:
            number = {2: "two", 3: "three", 4: "four", 5: "five"}.get(len(rows), str(len(rows)))
            return Markup("Of the {} models, {} has the best {}.").format(number, code(winner.model), thing)
    return None


# Key tiles under the verdict.


@dataclass(frozen=True)
class Tile:
    """One key figure."""

    label: str
    figure: str
    unit: str
    strip: Markup
    direction: str
    meaning: str


def tiles(view: EvaluationView) -> tuple[Tile, ...]:
    """At most three tiles: the gap, the calibration error, the share to set aside."""
    chosen = (_gap_tile(view), _error_tile(view), _halving_tile(view) or _accuracy_tile(view))
    return tuple(tile for tile in chosen if tile)


def _whose(view: EvaluationView) -> str:
    """Of several models side by side a tile names its own: the headline speaks of others too."""
    return f" of {view.focus}" if view.about.runs and len(view.models) > 1 else ""


def _interval_strip(m: Measurement, low_end: float | None, zone: tuple[float, float] | None) -> Markup:
    """A number line in points or per cent: grey chance zone, whisker, dot."""
    known = [100 * v for v in (m.value, m.low, m.high, *(zone or ())) if v is not None and math.isfinite(v)]
    marks = ticks(min(known) if low_end is None else min(low_end, *known), max([*known, 0.0]), 6)
    canvas = Canvas(PHONE, 46)
    x = Scale(marks[0], marks[-1], 8, PHONE - 8)
    if zone:
        canvas.bars([(x.clip(100 * zone[0]), 4, x.clip(100 * zone[1]) - x.clip(100 * zone[0]), 18)], "fb")
    canvas.line(8, 22, PHONE - 8, 22, "ax")
    for value in marks:
        canvas.line(x(value), 22, x(value), 26, "ax")
        canvas.text(x(value), 39, tick_text(value, marks), "m")
    if m.has_interval:
        canvas.line(x(100 * m.low), 13, x(100 * m.high), 13, "ki", 2)
    canvas.dot(x(100 * m.value), 13, "f1", 5)
    canvas.value(x(100 * m.value), 13, f"{fixed(100 * m.value, 1)}{f', {_interval(m)}' if _interval(m) else ''}")
    return canvas.render(f"{fixed(100 * m.value, 1)}, {_interval(m) or 'no interval given'}")


def _interval(m: Measurement) -> str:
    return f"95 % interval {points(m.low)} to {points(m.high)}" if m.has_interval else ""


def _interval_sentence(m: Measurement) -> str:
    return f"{_interval(m)}. " if m.has_interval else ""


def _gap_tile(view: EvaluationView) -> Tile | None:
    gap, accuracy = view.find("confidence_gap"), view.find("accuracy")
    if gap is None or accuracy is None:
        return None
    zone = (-gap.chance_high, gap.chance_high) if gap.chance_high is not None else None
    grey = f"; grey is chance, ±{points(gap.chance_high)}" if gap.chance_high is not None else ""
    says, right = percent(accuracy.value + gap.value, 1), count(1000 * accuracy.value)
    return Tile(
        f"Confidence minus accuracy{_whose(view)}, {view.when(view.before)}",
        points(gap.value, sign=True),
        "points",
        _interval_strip(gap, 0.0, zone),
        f"{_interval_sentence(gap)}Zero is ideal{grey}.",
        f"Of 1,000 predictions made with an average confidence of {says}, about {right} are right.",
    )


def _error_tile(view: EvaluationView) -> Tile | None:
    error = view.calibration_error(view.final)
    if error is None:
        return None
    zone = (0.0, error.chance_high) if error.chance_high is not None else None
    meaning = "The average gap between confidence and accuracy over bins."
    if error.chance is not None and error.chance_high is not None:
        meaning = (
            f"A perfectly calibrated model tested on {view.size(error.n)} shows {points(error.chance)} "
            f"by chance, up to {points(error.chance_high)} (grey)."
        )
        within, beyond = " What is left cannot be told from chance.", " The error is more than chance explains."
        meaning += within if error.within_chance else beyond
    return Tile(
        f"Calibration error{_whose(view)} {view.when(view.final)}",
        points(error.value),
        "points",
        _interval_strip(error, 0.0, zone),
        f"{_interval_sentence(error)}Lower is better.",
        meaning,
    )


def _halving_tile(view: EvaluationView) -> Tile | None:
    share, accuracy = view.find("halving_rejection", stage=view.final), view.find("accuracy", stage=view.final)
    if share is None or accuracy is None or share.value >= 1:
        return None
    aside = share.value * share.n
    hand = f"the {count(aside)} least trusted {view.unit} to a person: the other {count(share.n - aside)}"
    if view.about.weighted_by is not None:  # a share by weight is no number of samples
        hand = f"the least trusted {percent(share.value, 1)} by weight to a person: the others"
    return Tile(
        f"Share to set aside to halve the error rate{_whose(view)}",
        fixed(100 * share.value, 1),
        "%",
        _interval_strip(share, 0.0, None),
        f"{_interval_sentence(share)}Lower is better.",
        f"Hand {hand} are wrong half as often as the {percent(1 - accuracy.value, 1)} of all.",
    )


def _accuracy_tile(view: EvaluationView) -> Tile | None:
    accuracy = view.find("accuracy", stage=view.final) or view.find("accuracy")
    if accuracy is None:
        return None
    weighted = view.about.weighted_by is not None
    right = percent(accuracy.value, 1) if weighted else count(accuracy.value * accuracy.n)
    return Tile(
        f"Accuracy{_whose(view)}",
        fixed(100 * accuracy.value, 1),
        "%",
        _interval_strip(accuracy, None, None),
        f"{_interval_sentence(accuracy)}Higher is better.",
        f"{right} of {count(accuracy.n)} {view.unit} are predicted right.",
    )
