"""Worked cases of the report: what its pages say, and what they say of evaluations at the limits of their sentences."""

from __future__ import annotations

import html
import json
import math
import random
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

import confide
from confide import monitor, trust
from confide.cli.monitor import watch_text
from confide.predictions import Predictions
from confide.report import draw, render_report, section_drawings, verdict_sentence, words
from confide.report.sections import SECTIONS, coverage, difficulty, provenance, reliability, shift, training
from confide.results import ComparedRow, Comparison, Curve, Evaluation, Measurement
from tests.kept.entries import NAMES, N, _or_line, brief, by_unit, features, labels, predictions, visible, weighted
from tests.report.conftest import make_evaluation


def page_entries() -> Iterator[tuple[str, Callable[[], Any]]]:
    yield "whole", lambda: visible(_page_of(400))
    yield "few", lambda: visible(_page_of(40))
    yield "marks of the whole", lambda: _whole(_marks(_page_of(400)))
    yield "drawings of the whole", lambda: _rough(_page_of(400))
    yield "data of the whole", lambda: _island(_page_of(400))
    for name, make in _pages().items():
        yield name, lambda make=make: _told_beside(_page_of(40), make)
    for k in range(ODD_PAGES):
        yield f"odd {k}", lambda k=k: _told_beside(_page_of(40), partial(_odd, k), whole=False)
    for section in SECTIONS:
        yield f"standing alone: {section.id}", partial(_standing, section.id)
    yield "captions", lambda: _captions(make_evaluation(400, pictures=False))
    yield "texts", _texts
    yield "findings", _findings


@cache
def _page_of(n: int) -> str:
    return render_report(make_evaluation(n, pictures=False))


def _marks(page: str) -> Any:
    """What a page is made of: its elements by class, and the names that they have for those who do not see."""
    body = re.sub(r"(?s)<(script|style)\b.*?</\1>", " ", page)
    kind = re.compile(r'class="([^"]*)"')
    elements: Counter[str] = Counter()
    for tag, rest in re.findall(r"<(\w+)([^>]*)>", body):
        elements[" ".join([tag, *kind.findall(rest)])] += 1
    return {
        "elements": dict(sorted(elements.items())),
        "names": re.findall(r'(?:aria-label|title|alt|href|data-whose|data-promise)="([^"]*)"', body),
        "values": [value[2] for value in _values(body)],
        "marks": _values(body),
    }


def _island(page: str) -> Any:
    """What a page holds for its own script and for who reads its numbers."""
    held = re.search(r'(?s)<script type="application/json" id="data">(.*?)</script>', page)
    return brief(json.loads(held[1])) if held else None


def _whole(marks: Any) -> Any:
    values = marks["values"]
    digits = Counter(c for c in "".join(values) if c.isdigit())
    return {"elements": marks["elements"], "names": marks["names"], "values": values[::7], "digits": dict(digits)}


def _values(body: str) -> list[Any]:
    """What is said where a mark is pointed at, and the samples that it opens: [x, y, words, filters]."""
    return [value for mark in re.findall(r'data-values="([^"]*)"', body) for value in json.loads(html.unescape(mark))]


DRAWING = re.compile(r'(?s)<svg viewBox="0 0 ([\d.]+) ([\d.]+)" role="img"[^>]*>(.*?)</svg>')
MARK = re.compile(r"<(path|circle|text)([^>]*)>")
STEP = re.compile(r"([MLhvz])(-?[\d.]*) ?(-?[\d.]*)")


def _places(tag: str, rest: str) -> list[tuple[float, float]]:
    """The corners of a mark."""
    own = dict(re.findall(r'([\w-]+)="([^"]*)"', rest))
    if tag != "path":
        names = ("cx", "cy") if tag == "circle" else ("x", "y")
        return [(float(own[names[0]]), float(own[names[1]]))]
    x = y = 0.0
    places = []
    for step, first, second in STEP.findall(own["d"]):
        if step in "ML":
            x, y = float(first), float(second)
        elif step != "z":
            x, y = (x + float(first), y) if step == "h" else (x, y + float(first))
        places.append((x, y))
    return places


def _drawings(page: str) -> Iterator[tuple[float, float, dict[str, list[tuple[float, float]]]]]:
    """Width, height and the corners of the marks by class, of every drawing."""
    for width, height, body in DRAWING.findall(page):
        places: dict[str, list[tuple[float, float]]] = {}
        for tag, rest in MARK.findall(body):
            kind = re.search(r'class="([^"]*)"', rest)
            places.setdefault(f"{tag} {kind[1] if kind else ''}", []).extend(_places(tag, rest))
        yield float(width), float(height), places


def _outside(page: str) -> list[str]:
    """Marks of which some corner lies beside the drawing."""
    return [
        f"{kind} at {x:g}, {y:g} of {width:g} x {height:g}"
        for width, height, places in _drawings(page)
        for kind, corners in places.items()
        for x, y in corners
        if not (-1 <= x <= width + 1 and -1 <= y <= height + 1)
    ]


def _rough(page: str) -> list[Any]:
    """Where the marks of every drawing lie, in thousandths of its sides: least, mean and most."""
    return [
        {
            kind: [
                round(1000 * number / side)
                for side, own in zip((width, height), zip(*corners, strict=True), strict=True)
                for number in (min(own), sum(own) / len(own), max(own))
            ]
            for kind, corners in places.items()
        }
        for width, height, places in _drawings(page)
    ]


def _sums_of_places(page: str) -> dict[str, int]:
    """By class of marks one number that changes where marks of a drawing move or take another class."""
    sums: Counter[str] = Counter()
    for place, drawing in enumerate(_rough(page), 1):
        for kind, numbers in drawing.items():
            sums[kind] += place * sum(k * number for k, number in enumerate(numbers, 1))
    return dict(sorted(sums.items()))


def _standing(section: str) -> Any:
    """The drawings of a section as files of their own: names, captions, and what their marks look like."""
    told: list[Any] = []
    for drawing in section_drawings(_small(), section):
        looks = re.findall(r' ((?:fill|stroke|font|text|width|height|viewBox)[\w-]*)="([^"]*)"', drawing.svg)
        counts = Counter(f"{name}={value}" for name, value in looks)
        told.append([drawing.name, drawing.caption, dict(sorted(counts.items()))])
    return dict(enumerate(told))


def _told_beside(usual: str, make: Callable[[], Any], whole: bool = True) -> Any:
    """What a page says that the usual one does not, and which of its elements differ in number."""
    evaluation = _or_line(make)
    if isinstance(evaluation, str):
        return evaluation
    page, (known, other) = render_report(evaluation), _parts_of(usual)
    own = _marks(page)
    differs = {k: n for k, n in own["elements"].items() if n != other["elements"].get(k)}
    words = [line for line in visible(page) if line not in known]
    names = [name for name in own["names"] if name not in other["names"]]
    return {
        "words": "\n".join(line for line in words if whole or len(line) > LONG),
        "names": "\n".join(dict.fromkeys(names)),
        "elements": differs,
        "outside": _outside(page)[:5],
        "drawn": _sums_of_places(page),
        "digits": dict(sorted(Counter(c for c in "".join((*words, *own["values"])) if c.isdigit()).items())),
        "opened": "\n".join(sorted({v[3] for v in own["marks"] if v[3:]})[::9]),
        "read": {name: value for name, value in _island(page).items() if name != "evaluation"},
    }


@cache
def _parts_of(page: str) -> tuple[set[str], Any]:
    marks = _marks(page)
    return set(visible(page)), {**marks, "names": set(marks["names"])}


LONG = 24
"""Letters from which a line of a page is a sentence and no cell of a table."""
ODD_PAGES = 36


@cache
def _small() -> Any:
    return make_evaluation(40, pictures=False)


def _odd(k: int) -> Any:
    """The small evaluation with some of its numbers at limits, beside each other or gone."""
    draws, usual = random.Random(k), _small()
    measurements = [_odd_row(m, draws) for m in usual.measurements if draws.random() > 0.05]
    curves = [_odd_curve(c, draws) for c in usual.curves if draws.random() > 0.05]
    if k % 4 == 1:  # one model, in one or two stages
        measurements = [m for m in measurements if m.model == "adafocal" and (k % 8 == 1 or m.stage == "raw")]
        curves = [c for c in curves if c.model in ("adafocal", "model")]
    if k % 3 == 0:  # by the predicted class, of which it is known how often it is right
        measurements = [m for own in measurements for m in _by_prediction(own, draws)]
    if k % 8 == 3:  # two models
        measurements = [m for m in measurements if m.model != "adafocal"]
    if k % 8 == 7:  # four
        measurements += [replace(m, model="fourth") for m in measurements if m.model == "adafocal"]
    if k % 4 == 2:  # more models than are drawn
        more = [f"m{j}" for j in range(2 + k % 3)]
        measurements += [replace(m, model=name) for name in more for m in measurements if m.model == "adafocal"]
        curves += [replace(c, model=name) for name in more for c in curves if c.model == "adafocal"]
    comparisons = [
        replace(c, p_holm=draws.choice((0.0, 0.05, 0.049, c.p_holm)), better=draws.choice((c.better, c.better, "a")))
        for c in usual.comparisons
    ]
    points = [
        replace(p, observed=draws.choice((p.observed, None)), point=_odd_point(p.point, draws))
        for p in usual.operating_points[draws.randrange(3) :]
    ]
    return replace(
        usual,
        measurements=tuple(measurements),
        curves=tuple(curves),
        comparisons=tuple(comparisons),
        operating_points=tuple(points),
        sets=tuple(_odd_sets(s, draws) for s in usual.sets),
        decisions=tuple(_odd_decisions(d, draws) for d in usual.decisions),
        samples=usual.samples[:: draws.choice((1, 3, 90))],
        about=_odd_about(usual.about, draws),
    )


def _by_prediction(m: Measurement, draws: random.Random) -> list[Measurement]:
    if not (m.group or "").startswith("class="):
        return [m]
    own = replace(m, group=str(m.group).replace("class=", "predicted="), n=draws.choice((1, 3, 40, 400)))
    rate = draws.choice((0.0, 0.5, 0.9, 1.0))
    return [own, replace(own, metric="accuracy", value=rate, bounds=None)]


def _odd_row(m: Measurement, draws: random.Random) -> Measurement:
    value = draws.choice((m.value, round(m.value, 1), round(m.value, 2), 0.0))
    ends = draws.choice(
        (m.bounds, None, (value, value), (0.0, max(value, 0.0)), (min(value, -0.01), 0.01), (math.nan, math.nan))
    )
    if draws.random() < 0.6:
        return m
    by_chance = m.chance_high is not None
    return replace(
        m,
        value=value,
        bounds=ends,
        n=draws.choice((m.n, 1, 2, 2500)),
        chance=draws.choice((None, value, 0.01)) if by_chance else None,
        chance_high=draws.choice((None, value, 0.02)) if by_chance else None,
        p_value=draws.choice((None, 0.0, 0.001, 0.05, 0.1, 1.0)) if by_chance else m.p_value,
        sd=draws.choice((None, None, 0.01)),
    )


def _odd_curve(c: Curve, draws: random.Random) -> Curve:
    rows = len(next(iter(c.columns.values())))
    kind = draws.choice(("same", "same", "rounded", "one row", "two rows", "last rows", "level", "gap", "scaled"))
    if c.kind == "error_by_difficulty" and "row" in kind:  # all models have the same groups
        kind = "rounded"
    change: Callable[[tuple[float, ...]], tuple[float, ...]] = {
        "same": lambda v: v,
        "rounded": lambda v: tuple(round(x, 1) for x in v),
        "one row": lambda v: v[-1:],
        "two rows": lambda v: v[-2:],
        "last rows": lambda v: v[rows // 2 :],
        "level": lambda v: v[-1:] * rows,
        "gap": lambda v: v,
        "scaled": lambda v: tuple(x / 2 for x in v),
    }[kind]
    columns = {name: change(values) for name, values in c.columns.items()}
    if kind == "gap" and "band_low" in columns:
        columns = {name: v for name, v in columns.items() if not name.startswith("band")}
    return replace(c, columns=columns)


def _odd_point(point: Any, draws: random.Random) -> Any:
    if draws.random() < 0.5:
        return point
    return replace(
        point,
        risk=draws.choice((None, 0.0, 0.05, point.risk)),
        bound=draws.choice((None, 0.05, 0.08)),
        coverage=draws.choice((0.0, 0.5, 1.0)),
        threshold=draws.choice((None, 0.5, point.threshold)),
    )


def _odd_sets(result: Any, draws: random.Random) -> Any:
    groups = [
        replace(
            g,
            low=draws.choice((g.low, result.coverage)),
            high=draws.choice((g.high, result.coverage)),
            covered=draws.choice((g.covered, g.n, 0)),
        )
        for g in result.groups[: draws.choice((1, 6, 16))]
    ]
    return replace(
        result,
        groups=tuple(groups),
        by=draws.choice((None, "difficulty", "class")),
        coverage=draws.choice((0.9, 0.5)),
        sizes=draws.choice((result.sizes, ((0, 3), *result.sizes), ((1, 40),))),
        examples=result.examples[: draws.randrange(3)],
        stage=draws.choice(("raw", "temperature")),
    )


def _odd_decisions(result: Any, draws: random.Random) -> Any:
    saved = draws.choice((None, result.saved, replace(result.saved, bounds=(0.0, 0.2)), replace(result.saved, value=0)))
    shares = dict(list(result.shares.items())[draws.randrange(9) :])
    return replace(
        result,
        shares=draws.choice((result.shares, shares, {**shares, "bee": 0.0})),
        measured=draws.choice((None, result.measured)),
        saved=saved,
        deferred=draws.choice((0, 1, result.deferred)),
        threshold=draws.choice((None, 0.25)),
        break_even=draws.choice((result.break_even, (), result.break_even[:1])),
        warnings=draws.choice((result.warnings, ())),
    )


def _odd_about(about: Any, draws: random.Random) -> Any:
    weights = draws.choice((None, None, "weight"))
    return replace(
        about,
        unit=draws.choice(("images", "texts", None)),
        weighted_by=weights,
        effective_samples=None if weights is None else draws.choice((None, 31.4)),
        focus=draws.choice((None, None, "adafocal", "nobody")),
        chosen_stage=draws.choice((None, "temperature", "raw")),
        label_counts=draws.choice((about.label_counts, about.label_counts, {}, {"Bag": 40}, {"Bag": 39, "Coat": 1})),
        class_names=draws.choice((about.class_names, ())),
        num_classes=draws.choice((None, 2, 10)),
        missing=draws.choice(({}, {"shift": "It takes long.", "trust": "None was fitted.", "ece": "No bins."})),
        stages=draws.choice((about.stages, {})),
        config=draws.choice((about.config, None, "config.yaml", {"data": {"name": "a", "n": [1, 2]}, "empty": {}})),
        data=draws.choice((about.data, None, {"name": "made", "sizes": {"test": 40}})),
        timings=draws.choice((about.timings, {}, {"train": 7200.0, "evaluate": 0.01, "score": 60.0})),
        seeds=draws.choice(({}, {}, {"adafocal": 3})),
        runs=draws.choice(((), (), ("adafocal", "cross_entropy"))),
        seed=draws.choice((3, 0, None)),
        commit=draws.choice((None, "abc")),
        hardware=draws.choice((None, "a machine")),
        interval_note=draws.choice((None, "Intervals are over seeds.")),
        verdict=draws.choice((None, "No predictor beats it.")),
        subject=draws.choice((None, None, None, "shift", "sets", "slices", "decisions")),
        difficulty=draws.choice(("rmd", None, "knn", "loss")),
    )


def _captions(evaluation: Any) -> Any:
    return [verdict_sentence(evaluation), repr(evaluation)]


def _texts() -> Any:
    """What numbers are called, exactly where they turn from one form into another and just before."""
    info = Evaluation((Measurement("ece", 0.2, 9), Measurement("nll", 0.2, 9))).info
    near = (0.0, 0.0005, 0.00099999, 0.001, 0.0499, 0.05, 0.0999, 0.1, 0.95, 0.99999, 1.0)
    large = (-1234.5, -10.0, -9.96, -1.0, -0.996, -0.04, 0.0, 0.04, 0.996, 1.0, 9.96, 10.0, 1234.5, math.nan, math.inf)
    axes = ((0.0, 1.0), (0.0, 0.25, 0.5), (-2.0, 0.0, 2.0), (0.0, 0.1, 0.2), (0.0, 2.5, 5.0), (0.0, 1000.0), (3.0,))
    ends = ((0.03, 0.92), (0.0, 1.0), (0.5, 0.5), (0.0, 0.0), (-1.0, 1.0), (-0.2, -0.1), (0.0, 6.0), (0.0, 6.01))
    gaps = (
        (0.03, 0.022, 0.038),
        (0.03, 0.022, 0.0391),
        (-0.03, -0.038, -0.022),
        (0.03, 0.0221, 0.038),
        (0.0, 0.0, 0.0),
    )
    return {
        "fixed": [words.fixed(v, d, s) for v in large for d, s in ((0, False), (1, True), (2, False))],
        "percent": [words.percent(v, d) for v in near for d in (0, 1)],
        "points": [words.points(v, sign=True) for v in (*near, -0.0004, -0.0005, -0.05)],
        "count": [words.count(v) for v in (0, 0.5, 1.5, 999.6, 1e6)],
        "p": [words.p_value(v) for v in (*near, None, math.nan)],
        "plus": [words.plus_minus(*own) for own in (*gaps, (0.03, math.nan, 0.1))],
        "between": [f(*own[1:], 1, 100) for f in (words.between, words.from_to) for own in (*gaps, (0, math.nan, 1.0))],
        "shares": [
            words.share_words(v, "images") for v in (0, *(1 / k for k in range(1, 13)), 0.3, 0.35, 0.48, 0.4761, 0.5262)
        ],
        "units": [f(info(word), 0.0125) for word in ("ece", "nll") for f in (words.shown, words.with_unit)],
        "capital": [words.unit_word(info(word)) for word in ("ece", "nll")],
        "within": [words.within(title) for title in ("Accuracy", "ECE", "Brier score", "A", "", "aUROC")],
        "scores": [[words.score_name(s), words.same_scores(s)] for s in ("msp", "trust:knn", "entropy", "confidence")],
        "short": [
            words.shorten("difficulty entropy", w, s)
            for w, s in ((80, 12), (0, 12), (114.48, 12), (114.4, 12), (60, 6))
        ],
        "ticks": {f"{own} {most}": draw.ticks(*own, most) for own in (*ends, (0, math.nan)) for most in (4, 6)},
        "tick": [draw.tick_text(v, own, sign) for own in axes for v in own for sign in (False, True)],
        "percents": [draw.percent_tick(v, last) for v, last in ((0, 1), (0.5, 1), (1, 1), (0.5, 0.5))],
        "ranges": [draw.bin_range(0.25, 0.5, closed) for closed in ("both", "left", "right")],
        "accepted": [draw.confidence_range(v, accepted) for v in (0.0, 0.5, 1.0) for accepted in (True, False)],
        "query": draw.explorer_query({"a": "x y", "b": None, "c": "", "d": "1..2"}),
        "places": [draw.coordinate(v) for v in (0.04, 0.05, 1.0, 12.34, math.nan)],
        "scale": [draw.Scale(1, 3, 10, 50)(v) for v in (1, 2, 3, 4)]
        + [draw.Scale(1, 3, 10, 50).clip(v) for v in (0, 2, 4)],
        "level": draw.Scale(2, 2, 10, 50)(2),
        "difficulty": [difficulty.difficulty_text(v) for v in (*large, None)],
        "parts": [difficulty._part(k) for k in range(1, 12)],
        "rates": [difficulty._rate(v) for v in near],
        "groups": [difficulty._group_names(k) for k in (1, 2, 3, 10, 11, 12)],
        "shades": [difficulty._shade([(0, 1), (1, 2), (2, 3)][:k], v) for k in range(4) for v in (0, 1, 1.5, 2, 3)],
        "colours": [str(shift._colour_step(v)) for v in (0, -0.0, 1.9, 2, -2, 8, -8, 15.9, 16, -16, 99)],
        "severities": [shift.severity_text(v) for v in (0, 1, 0.5, 5)],
        "risks": [coverage.risk_text(v) for v in (0, 0.1, 0.05, 0.025, 0.0123, 0.00001234, 1 / 3)],
        "highest": [
            coverage._highest(Curve("risk_coverage", {"coverage": c, "risk": r, "threshold": c}))
            for c, r in (
                ((0.019, 0.02, 1.0), (0.9, 0.8, 0.1)),
                ((0.02,), (0.0,)),
                ((0.01,), (0.5,)),
                ((1.0,), (math.nan,)),
            )
        ],
        "bins": [training._bin_name(k, n) for n in (1, 2, 3, 5) for k in range(n)],
        "levels": [training._chance_words(own, 1) for own in ([], [1.0], [1.0, 1.04], [1.0, 2.0])],
        "timings": [
            provenance._timings(own) for own in ({}, {"a": 1.0}, {c: 2.0 + k for k, c in enumerate("abcdefgh")})
        ],
        "values": [
            provenance._words(v)
            for v in (
                {"a_b": 1, "c": None, "d": [1, 2.5, ()], "e": {}},
                0.1 + 0.2,
                "x y " * 99,
                "",
                None,
                True,
                [[], ["y"]],
            )
        ],
    }


def _findings() -> Any:
    """What is said of bins and gaps: too few, a quarter beyond the band, twice as many on one side as on the other."""
    inside, over, under = ((0.5, 0.4, 0.6), (0.3, 0.4, 0.6), (0.7, 0.4, 0.6))

    def bins(*own: tuple[tuple[float, float, float], int]) -> list[Any]:
        return [reliability.Bin(0.4, 0.6, 0.5, a, n, low, high) for (a, low, high), n in own]

    unbanded = (0.3, math.nan, math.nan)
    cases = (
        [], [(inside, 14)], [(inside, 15)], [(unbanded, 20)], [(over, 15)], [(over, 25), (inside, 75)],
        [(over, 26), (inside, 74)], [(over, 40), (under, 20)], [(over, 41), (under, 20)], [(over, 20), (under, 40)],
        [(over, 20), (under, 41)], [(over, 14), (inside, 20)], [(unbanded, 20), (inside, 20)], [((0.4, 0.4, 0.6), 30)],
        [((0.6, 0.4, 0.6), 30)], [(over, 40), (inside, 20), (under, 30)],
    )  # fmt: skip
    places = {"confidence": (0.79, 0.8, 0.81, 0.83, 0.84), "accuracy": (0.5, 0.7, 0.9, 0.6, 0.95)}
    curve = Curve("reliability_smooth", {**places, "count": (9,) * 5, "width": (0.1,) * 5})
    return {
        "bins": [reliability.finding(bins(*own), p) for own in cases for p in (None, 0.049, 0.05)],
        "sides": [[b.side, b.banded, b.text] for b in bins(*((own, 15) for own in (inside, over, under, unbanded)))],
        "error": [str(reliability._error_of(bins(*own))) for own in cases if own],
        "rows": [reliability._rows_of(curve, start) for start in (0.0, 0.8, 0.8000000001)],
        "farthest": [reliability._farthest(curve, start) for start in (0.0, 0.8)],
        "classes": [reliability._classes(k, n, ("class", "classes")) for k, n in ((1, 1), (1, 3), (2, 3), (3, 3))],
        "verdicts": [
            verdict_sentence(_gap(value, low, high, p)).partition(" is right ")[2]
            for value in (-0.01, -0.0099, 0.0, 0.0099, 0.01)
            for low, high in (
                (math.nan, math.nan), (value - 0.02, value + 0.02), (min(0, 2 * value), max(0, 2 * value)),
                (value - 0.001, value + 0.001),
            )
            for p in (None, 0.049, 0.05)
        ],
        "mended": [
            verdict_sentence(_gap(0.1, 0.05, 0.15, 0.001, after, chance, better)).partition(" is right ")[2]
            for after in (0.0, 0.0099, 0.04, 0.041, 0.06, 0.0601, 0.09, 0.0901, 0.2, -0.02)
            for chance in (None, 0.05)
            for better in (None, "a", "b")
        ],
    }  # fmt: skip


def _gap(
    value: float, low: float, high: float, p: float | None, after: float | None = None, chance: float | None = None,
    better: str | None = None,
) -> Any:  # fmt: skip
    """An evaluation of one model by its gap before calibration and after, and which of the two is better."""

    def stage(name: str, gap: float, ends: tuple[float, float], p_value: float | None) -> list[Measurement]:
        return [
            Measurement("accuracy", 0.8, 900, "test", name, bounds=(0.77, 0.83)),
            Measurement("confidence_gap", gap, 900, "test", name, bounds=ends),
            Measurement("ece_mass", abs(gap), 900, "test", name, chance=0.01, chance_high=chance, p_value=p_value),
        ]

    rows = stage("raw", value, (low, high), p)
    if after is None:
        return Evaluation(tuple(rows))
    rows += stage("temperature", after, (after - 0.001, after + 0.001), 0.5)
    sides = ComparedRow("model", "raw"), ComparedRow("model", "temperature")
    tests = [Comparison("nll", *sides, -0.02, -0.03, -0.01, 0.001, 0.001, better)]
    return Evaluation(tuple(rows), comparisons=tuple(tests))


def _pages() -> dict[str, Callable[[], Any]]:
    """Evaluations of every kind, and what a whole one lacks in turn."""

    @cache
    def small() -> Any:
        return make_evaluation(40, pictures=False)

    def without(*names: str) -> Callable[[], Any]:
        return lambda: replace(small(), **dict.fromkeys(names, ()))

    def rows(change: Callable[[Any], Any]) -> Callable[[], Any]:
        return lambda: replace(small(), measurements=tuple(m for m in map(change, small().measurements) if m))

    def curves(change: Callable[[Any], Any]) -> Callable[[], Any]:
        return lambda: replace(small(), curves=tuple(c for c in map(change, small().curves) if c))

    several = partial(
        Predictions.multilabel, features("val")[:, :3], (features("train")[:, :3] > 0).astype(int), split="val"
    )
    pairs = partial(Predictions.from_pairs, [1, 0, 1, 1, 0, 1] * 10, np.linspace(0.3, 1, 60))
    top = partial(Predictions.from_top1, labels("val"), labels("test"), np.linspace(0.2, 1, N))
    scores = confide.Scores(np.arange(N), np.linspace(-1, 1, N) ** 3, "rmd")
    pages: dict[str, Callable[[], Any]] = {
        name: without(name)
        for name in ("comparisons", "operating_points", "samples", "sets", "decisions", "curves", "warnings")
    }
    pages |= {
        "without intervals": rows(lambda m: replace(m, bounds=(math.nan, math.nan))),
        "without chance": rows(lambda m: replace(m, chance=None, chance_high=None, p_value=None)),
        "certainly off": rows(lambda m: replace(m, p_value=0.0 if m.p_value is not None else None)),
        "certainly calibrated": rows(lambda m: replace(m, p_value=0.9 if m.p_value is not None else None)),
        "raw alone": rows(lambda m: m if m.stage == "raw" else None),
        "one model": rows(lambda m: m if m.model == "cross_entropy" else None),
        "no groups": rows(lambda m: m if m.group is None else None),
        "val alone": rows(lambda m: replace(m, split="val")),
        "no accuracy": rows(lambda m: None if m.metric == "accuracy" else m),
        "nothing known": rows(lambda m: replace(m, value=math.nan)),
        "underconfident": rows(
            lambda m: replace(m, value=-m.value, bounds=None) if m.metric == "confidence_gap" else m
        ),
        **{
            f"without curves of {kind}": curves(lambda c, kind=kind: None if c.kind.startswith(kind) else c)
            for kind in ("reliability", "risk", "confidence", "error", "shift", "ood", "rmd", "difficulty")
        },
        "curves of one model": curves(lambda c: c if c.model == "cross_entropy" else None),
        "curves as trained": curves(lambda c: c if c.stage == "raw" else None),
        "evaluated": lambda: confide.evaluate(predictions("test"), "all", title="Mine"),
        "weighted": lambda: confide.evaluate(weighted("test"), "all"),
        "by unit": lambda: confide.evaluate(by_unit("test")),
        "by site": lambda: confide.evaluate(predictions("test"), by=["site", "class"]),
        "by difficulty": lambda: confide.evaluate(predictions("test"), scores=scores),
        "prior": lambda: confide.evaluate(predictions("test"), prior=(0.1, 0.2, 0.3, 0.4)),
        "trust": lambda: confide.evaluate(predictions("test"), trust={"mcp": trust.fit("mcp")(predictions("test"))}),
        "several labels": lambda: confide.evaluate(several()),
        "pairs": lambda: confide.evaluate(pairs()),
        "top one": lambda: confide.evaluate(top()),
        "one sample": lambda: confide.evaluate(predictions("test").take(np.arange(1))),
        "two samples": lambda: confide.evaluate(predictions("test").take(np.arange(2))),
        "all right": lambda: confide.evaluate(Predictions(9 * np.eye(4)[labels("test")], labels("test"))),
        "all wrong": lambda: confide.evaluate(Predictions(9 * np.eye(4)[(labels("test") + 1) % 4], labels("test"))),
        "no intervals": lambda: confide.evaluate(predictions("test"), intervals=False),
        "two classes": lambda: confide.evaluate(Predictions(predictions("test").logits[:, :2], labels("test") % 2)),
    }
    return pages


# Watches.


def watch_entries() -> Iterator[tuple[str, Callable[[], Any]]]:
    yield "plain", partial(_watched, {})
    yield "risk", partial(_watched, {"risk": 0.2})
    yield "point", partial(_watched, {"risk": 0.3, "point": True})
    yield "cells", partial(_watched, {"cells": True})
    yield "long", _long_watch


def _watched(options: dict[str, Any]) -> Any:
    options = dict(options)
    if options.pop("point", False):
        options["point"] = confide.operating_point(predictions(), coverage=0.8)
    if options.pop("cells", False):
        moved = [predictions("train").logits * 0.9**k + torch.tensor([0, k % 4, 0, 0.0]) for k in range(12)]
        options["cells"] = [Predictions(logits, labels("train"), split="val") for logits in moved]
    with TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        watch = monitor.Monitor(predictions(), file=Path(folder) / "watch.jsonl", **options)
        for week, scale in enumerate((1.0, 0.5, 0.2)):
            ids = np.arange(N) + 1000 * (week + 1)
            watch.update(Predictions(predictions("test").logits * scale, ids=ids, class_names=NAMES), f"week {week}")
            watch.labels(ids[:100], labels("test")[:100].tolist())
        page = Path(folder) / "page.html"
        monitor.write_page(watch, page)
        return {
            "batches": [{name: value for name, value in vars(b).items() if name != "time"} for b in watch.batches],
            "estimates": [asdict(b.estimate) for b in watch.batches],
            "seen": [b.seen for b in watch.batches],
            "alarms": [asdict(a) for a in watch.alarms],
            "page": visible(page.read_text()),
            "drawn": _rough(page.read_text()),
            "beside": _outside(page.read_text()),
            "values": [value[2] for value in _values(page.read_text())],
        }


def _long_watch() -> Any:
    """More batches than a table or an axis names, with what they know besides: difficulty, and no labels at all."""
    draws = np.random.default_rng(0)

    def known(split: str, scale: float, start: int) -> Predictions:
        own = predictions(split)
        columns = {"difficulty": draws.normal(scale, 1, N), "distance": draws.gamma(2, scale, N)}
        with_labels = own.labels if split == "val" else None
        ids = np.arange(start, start + N)
        return Predictions(own.logits * scale, with_labels, ids, columns=columns, class_names=NAMES)

    with TemporaryDirectory() as folder:
        watch = monitor.Monitor(known("val", 1.0, 0), file=Path(folder) / "watch.jsonl", delta=0.2)
        empty = monitor.write_page(watch, Path(folder) / "empty.html").read_text()
        for week in range(23):
            watch.update(known("test", 1.0 - 0.04 * week, 1000 * (week + 1)), f"the week number {week}")
        page = monitor.write_page(watch, Path(folder) / "page.html").read_text()
        return {
            "empty": visible(empty),
            "page": visible(page),
            "drawn": _rough(page),
            "beside": _outside(page),
            "values": [value[2] for value in _values(page)][::5],
            "text": watch_text(watch).splitlines(),
        }
