"""How the report writes numbers and names (points, per cent, intervals, p, stages) and what its terms mean."""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Decimal
from itertools import accumulate
from unicodedata import category, east_asian_width

from markupsafe import Markup

from confide.predictions.tables import IMAGE, ROW_WORDS
from confide.results import LEVEL, PLAIN_SCORES, About, Comparison, Measurement, MetricInfo

THIN = "\u202f"  # narrow no-break space, before a per cent sign
MINUS = "\u2212"


def fixed(value: float, digits: int, sign: bool = False) -> str:
    """Number with so many decimals, comma in thousands, true minus; a dash where there is none."""
    if value is None or not math.isfinite(value):
        return "–"
    # As the pages' scripts: 1 - 0.7275 and 0.2725 are the same number, and a half is rounded up.
    exact = Decimal(round(abs(float(value)), 9)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)
    text = f"{exact:,f}"
    negative = value < 0 and float(text.replace(",", "")) != 0
    return (MINUS if negative else "+" if sign and value > 0 else "") + text


def percent(share: float, digits: int = 0) -> str:
    """A share as per cent, `92 %`."""
    return f"{fixed(100 * share, digits)}{THIN}%"


def points(share: float, digits: int = 1, sign: bool = False) -> str:
    """A difference of shares in points, `3.0`."""
    return fixed(100 * share, digits, sign)


def count(value: float) -> str:
    """A whole number with commas."""
    return fixed(round(value), 0)


def p_value(value: float | None) -> str:
    """A p as `0.18` or `< 0.001`."""
    if value is None or not math.isfinite(value):
        return "–"
    if value < 0.001:
        return "< 0.001"
    text = fixed(value, 3 if value < 0.1 else 2)
    # A p just below the level that headings go by is not rounded up to it.
    return f"{math.floor(1e4 * value) / 1e4:.4f}" if value < LEVEL <= float(text) else text


def plus_minus(value: float, low: float, high: float, scale: float = 100.0, digits: int = 1) -> str:
    """`3.0 ± 0.8 points` if symmetric to the last digit, else `3.0 points (2.2 to 3.9)`."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return f"{fixed(scale * abs(value), digits)} points"
    # A negative gap is worded by its direction, so its interval turns round too.
    ends = sorted((scale * low, scale * high)) if value >= 0 else sorted((-scale * low, -scale * high))
    middle = scale * abs(value)
    below, above = middle - ends[0], ends[1] - middle
    if abs(below - above) < 0.5 * 10**-digits or fixed(below, digits) == fixed(above, digits):
        return f"{fixed(middle, digits)} ± {fixed(0.5 * (below + above), digits)} points"
    return f"{fixed(middle, digits)} points ({fixed(ends[0], digits)} to {fixed(ends[1], digits)})"


def between(low: float, high: float, digits: int, scale: float = 1.0) -> str:
    """An interval for tables, `2.2–3.9`; empty where there is none. Negative ends are joined by `to`."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return ""
    first, last = fixed(scale * low, digits), fixed(scale * high, digits)
    return f"{first} to {last}" if MINUS in first + last else f"{first}–{last}"


def from_to(low: float, high: float, digits: int, scale: float = 1.0) -> str:
    """An interval for sentences, `2.2 to 3.9`, which may break between its words; empty where there is none."""
    ends = fixed(scale * low, digits), fixed(scale * high, digits)
    return " to ".join(ends) if math.isfinite(low) and math.isfinite(high) else ""


def shown(info: MetricInfo, value: float, sign: bool = False) -> str:
    """A metric's value in its unit, with its decimals."""
    return fixed(info.scale * value, info.digits, sign)


def with_unit(info: MetricInfo, value: float) -> str:
    """The value followed by its unit, `3.0 pts`."""
    space = THIN if info.unit == "%" else " "
    return f"{shown(info, value)}{space}{info.unit}".strip()


def interval(info: MetricInfo, m: Measurement | Comparison) -> str:
    """Its 95 % interval for tables; empty where there is none."""
    return between(m.low, m.high, info.digits, info.scale)


def value_texts(info: MetricInfo, m: Measurement | None) -> tuple[str, str]:
    """Its value with the unit and its 95 % interval; a dash where it was not measured."""
    return (with_unit(info, m.value), interval(info, m)) if m else ("–", "")


def value_words(info: MetricInfo, m: Measurement) -> str:
    """Its value with unit and interval in one, `3.0 pts (2.2–3.9)`."""
    value, ends = value_texts(info, m)
    return f"{value} ({ends})" if ends else value


def unit_word(info: MetricInfo) -> str:
    """The unit at the start of a line: `Per cent`, `Points`, `Nats`."""
    return {"%": "Per cent", "pts": "Points"}.get(info.unit, info.unit.capitalize())


def within(title: str) -> str:
    """A title as it stands within a sentence: `accuracy`, but `ECE` and `Brier`."""
    proper = title.startswith("Brier") or not title[1:2].islower()
    return title if proper else title[0].lower() + title[1:]


def code(word: str) -> Markup:
    """A word of the config in mono type, escaped."""
    return Markup("<code>{}</code>").format(word)


def tip(word: str, meaning: str) -> Markup:
    """A word with its meaning on hover, focus or tap."""
    markup = '<span class="term" tabindex="0">{}<span class="tip" role="tooltip">{}</span></span>'
    return Markup(markup).format(word, meaning)


def share_words(share: float, unit: str) -> str:
    """A share of samples: the nearest `one in seven samples`, or `28.6 % of the samples`."""
    if share <= 0:
        return f"{percent(share, 1)} of the {unit}"
    whole = round(1 / share)
    names = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six", 7: "seven", 8: "eight", 9: "nine", 10: "ten"}
    near = abs(share * whole - 1) < 0.05
    return f"one in {names[whole]} {unit}" if near and whole in names else f"{percent(share, 1)} of the {unit}"


def units_words(about: About) -> str:
    """What several samples were drawn as, with their number: `60 images`, `40 units ('patient')`."""
    word = about.drawn_as or ""
    name = f"{word}s" if word in (IMAGE, *ROW_WORDS) else f"units ('{word}')"
    return name if about.units is None else f"{count(about.units)} {name}"


def score_name(score: str) -> str:
    """The word of a trust score: `trust:steep_slope` is steep_slope, the maximum softmax is plain confidence."""
    return "confidence" if score == "msp" else score.removeprefix("trust:")


def same_scores(score: str | None) -> tuple[str | None, ...]:
    """The names that a score goes by in measurements and curves: the plain confidence has two."""
    return PLAIN_SCORES if score in PLAIN_SCORES else (score,)


def shorten(text: str, width: float, size: float = 12.0) -> str:
    """Text that fits into so many pixels, with an ellipsis; a Latin letter is about half its size wide.

    Args:
        text: the whole text.
        width: pixels there are.
        size: size of the letters in pixels.

    Returns:
        The text, or its beginning and an ellipsis.

    Example:
        >>> confide.report.shorten("difficulty entropy", 80)
        'difficulty …'
    """
    room = max(int(width / (size * 0.53)), 3)
    ends = list(accumulate(map(_letters, text)))
    return text if not ends or ends[-1] <= room else text[: sum(end < room for end in ends)] + "…"


def text_letters(text: str) -> float:
    """How many Latin letters wide a text is: Chinese, Japanese and Korean ones count twice, marks on letters none."""
    return sum(map(_letters, text))


def _letters(letter: str) -> float:
    if category(letter) == "Mn":
        return 0
    if east_asian_width(letter) in "WF":
        return 2
    return 1.7 if letter in "MW@m%" else 1.35 if letter.isupper() or letter == "w" else 1


def plain_text(markup: str) -> str:
    """The words of a piece of markup, for alt texts."""
    return str(Markup(markup).striptags()) if isinstance(markup, Markup) else str(markup)


CHANCE = (
    "The calibration error that a perfectly calibrated model tested on as many samples would show: on average, and the "
    "bound it stays under 95 times of 100."
)
P_CALIBRATED = "How often a perfectly calibrated model of this size would show an error at least this large."
