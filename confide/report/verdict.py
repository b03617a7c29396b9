"""The verdict: one sentence on what the model says and what it is right about, and at most three more.

Direction is claimed only if the interval of confidence minus accuracy excludes 0 and the calibration test has
p < 0.05; "repairs" only if the calibration error after lies under its chance bound and the likelihood is better by the
paired test.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from markupsafe import Markup

from confide.core.results import Measurement
from confide.report.view import View
from confide.report.words import code, count, fixed, percent, plus_minus, points, stage_phrase, when

LEVEL = 0.05


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


def verdict(view: View) -> Verdict:
    """What an evaluation allows to say about the model in focus."""
    accuracy = view.find("accuracy")
    if accuracy is None:
        return Verdict("This evaluation holds no accuracy, so nothing can be said about the model.")
    only = _only_label(view)
    if only is not None:
        return _one_class(view, accuracy, only)
    gap = view.find("confidence_gap")
    if gap is None:
        return _without_confidence(view, accuracy)
    says = f"This model says {percent(accuracy.value + gap.value)} and is right {percent(accuracy.value)}"
    side = _side(view, gap)
    if side:
        size = plus_minus(gap.value, gap.low, gap.high)
        parts = Verdict(f"{says}: ", f"{side}confident by {size}", _what_calibration_did(view, gap), side)
    else:
        parts = Verdict(says + _no_direction(view, gap))
    return Verdict(parts.before, parts.direction, parts.after, parts.side, lead=tuple(_lead(view)))


def calibration_error(view: View, stage: str, model: str | None = None) -> Measurement | None:
    """The calibration error that verdict and tiles speak of: equal mass, else equal width."""
    return view.find("ece_mass", model, stage) or view.find("ece", model, stage)


def _only_label(view: View) -> str | None:
    counts = view.about.get("label_counts")
    present = [name for name, number in counts.items() if number] if isinstance(counts, dict) else []
    return str(present[0]) if len(present) == 1 else None


def _one_class(view: View, accuracy: Measurement, label: str) -> Verdict:
    who = "The only test label is" if accuracy.n == 1 else f"All {count(accuracy.n)} test labels are"
    interval = ""
    if math.isfinite(accuracy.low) and math.isfinite(accuracy.high):
        interval = f" ({fixed(100 * accuracy.low, 0)} to {fixed(100 * accuracy.high, 0)})"
    return Verdict(
        f"{who} '{label}', so calibration cannot be judged; accuracy is "
        f"{percent(accuracy.value)}{interval}, and a test set with every class is needed."
    )


def _without_confidence(view: View, accuracy: Measurement) -> Verdict:
    error = calibration_error(view, view.before)
    tail = f", with a calibration error of {points(error.value)} points" if error else ""
    return Verdict(f"This model is right on {percent(accuracy.value)} of {count(accuracy.n)} {view.unit}{tail}.")


def _side(view: View, gap: Measurement) -> str:
    error = calibration_error(view, view.before)
    if error is None or error.p_value is None or not error.p_value < LEVEL:
        return ""
    return "over" if gap.low > 0 else "under" if gap.high < 0 else ""


def _what_calibration_did(view: View, gap: Measurement) -> str:
    if view.after is None:
        return "."
    name = stage_phrase(view.after)
    worse = _made_worse(view)
    if worse:
        return f", and {name} makes it worse, {worse}, so leave it out."
    after_error, after_gap = calibration_error(view, view.after), view.find("confidence_gap", stage=view.after)
    if after_error and _within_chance(after_error) and _better_likelihood(view):
        return f", and {name} repairs it."
    if after_gap is None:
        return "."
    if after_gap.value * gap.value < 0 and (after_gap.low > 0 or after_gap.high < 0):
        other = "over" if after_gap.value > 0 else "under"
        return f", and {name} overshoots: {other}confident by {points(abs(after_gap.value))}."
    ratio = abs(after_gap.value / gap.value)
    size = points(abs(after_gap.value))
    if ratio > 0.9:
        return f", and {name} does not mend it."
    return f", and {name} {'halves' if 0.4 < ratio < 0.6 else 'lowers'} it to {size}."


def _no_direction(view: View, gap: Measurement) -> str:
    worse = _made_worse(view)
    if worse and view.after:
        return f"; {stage_phrase(view.after)} made it worse, {worse}, so leave it out."
    error = calibration_error(view, view.before)
    rejected = error is not None and error.p_value is not None and error.p_value < LEVEL
    if error and rejected and gap.low <= 0 <= gap.high:
        bound = f"; chance alone would show up to {points(error.chance_high)}" if error.chance_high else ""
        return f" on average, but not at each level: its calibration error is {points(error.value)} points{bound}."
    if abs(gap.value) >= 0.01:
        bound = ""
        if error and error.chance_high:
            size = 100 * error.chance_high
            bound = f": a perfectly calibrated model would show up to {fixed(size, 0 if size >= 3 else 1)} points"
        return f", but {count(gap.n)} {view.unit} cannot tell that gap from chance{bound}."
    if error is None or error.p_value is None:
        return "."
    return f": well calibrated, as far as {count(gap.n)} {view.unit} can tell."


def _made_worse(view: View) -> str:
    """`from 1.1 to 2.6 points` where the error rose and a paired test prefers the model as trained; else empty."""
    if view.after is None:
        return ""
    before, after = calibration_error(view, view.before), calibration_error(view, view.after)
    rows = f"{view.focus}/{view.before}", f"{view.focus}/{view.after}"
    proven = any(view.beats(metric, *rows) for metric in ("nll", "brier", "ece_mass", "ece"))
    if before is None or after is None or not after.value > before.value or not proven:
        return ""
    return f"from {points(before.value)} to {points(after.value)} points"


def _within_chance(error: Measurement) -> bool:
    return error.chance_high is not None and error.value < error.chance_high


def _better_likelihood(view: View) -> bool:
    return view.beats("nll", f"{view.focus}/{view.after}", f"{view.focus}/{view.before}")


def _lead(view: View) -> list[Markup]:
    return [sentence for sentence in (_errors(view), _halving(view), _best_model(view)) if sentence]


def _errors(view: View) -> Markup | None:
    before = calibration_error(view, view.before)
    if before is None:
        return None
    after = calibration_error(view, view.after) if view.after else None
    chance = (after or before).chance
    tail = f"; a perfectly calibrated model of this size would show {points(chance)}" if chance is not None else ""
    if after is None or view.after is None:
        return Markup("The calibration error is {} points{}.").format(points(before.value), tail)
    sizes = points(before.value), points(after.value)
    note = view.stage_note(view.focus, view.after)
    how = f"{when(view.after)} ({note})" if note else when(view.after)
    if sizes[0] == sizes[1] or (_within_chance(before) and _within_chance(after)):
        # Both are noise: neither rose nor fell.
        words = "The calibration error is {} points {} and {} {}{}."
        return Markup(words).format(sizes[0], when(view.before), sizes[1], how, tail)
    moves = "falls" if after.value < before.value else "rises"
    start = how[0].upper() + how[1:]
    return Markup("{} the calibration error {} from {} to {} points{}.").format(start, moves, *sizes, tail)


def _halving(view: View) -> Markup | None:
    share = view.find("halving_rejection", stage=view.final)
    if share is None:
        return None
    return Markup("Rejecting the least trusted {} halves the error rate.").format(percent(share.value, 1))


def _best_model(view: View) -> Markup | None:
    if len(view.models) < 2:
        return None
    for metric, thing in (
        ("nll", "the best probabilities"),
        ("brier", "the best probabilities"),
        ("aurc", "the best ranking"),
    ):
        rows = [f"{model}/{view.final}" for model in view.models if view.find(metric, model, view.final)]
        winner = view.best(metric, rows)
        if winner:
            number = {2: "two", 3: "three", 4: "four", 5: "five"}.get(len(rows), str(len(rows)))
            return Markup("Of the {} models, {} has {}.").format(number, code(winner.rsplit("/", 1)[0]), thing)
    return None
