"""Draws an Evaluation as one self-contained HTML file, or as a fragment for a notebook."""

from __future__ import annotations

import json
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from confide import __version__
from confide.files import formats
from confide.predictions.tables import SAMPLE
from confide.report.draw import Empty
from confide.report.sections import SECTIONS
from confide.report.sections.difficulty import Picture
from confide.report.sections.models import models_section
from confide.report.verdict import tiles, verdict
from confide.report.view import EvaluationView
from confide.report.words import code, count
from confide.results import Evaluation
from confide.types import JsonObject

MOST_GROUPS = 2000
NO_CLASSES = Empty(
    "No class-wise view", "The evaluation was not split by class.", "confide evaluate predictions.parquet --by class"
)
NO_PROMISE = Empty(
    "No promised thresholds",
    "A promise needs a threshold chosen on validation data, with multiplicity control.",
    "confide operating-point val.parquet --risk 0.05",
)
PROMISE_BY_SEED = Empty(
    "Thresholds are of one network each",
    "Every seed has its own, chosen on its validation predictions: they are the operating points in evaluation.json.",
    "confide operating-point predictions/MODEL-seed=0-promise.parquet --risk 0.05",
)


def write_report(evaluation: Evaluation, path: str | Path) -> Path:
    """Write the report of an evaluation as one HTML file that opens from disk and loads nothing.

    Args:
        evaluation: made by `confide.evaluate`, or loaded.
        path: of the file.

    Returns:
        The path.

    Example:
        >>> p = confide.Predictions([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 3.0]], [0, 1, 1, 1])
        >>> print(confide.write_report(confide.evaluate(p, "accuracy", intervals=False), "report.html"))
        report.html
    """
    formats.write_text(path, render_report(evaluation))
    return Path(path)


def render_report(evaluation: Evaluation) -> str:
    """The report as a string of HTML.

    Args:
        evaluation: made by `confide.evaluate`, or loaded.

    Returns:
        The whole page.

    Example:
        >>> p = confide.Predictions([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 3.0]], [0, 1, 1, 1])
        >>> page = confide.report.render_report(confide.evaluate(p, "accuracy", intervals=False, title="mine"))
        >>> "<title>Reliability report: mine</title>" in page
        True
    """
    view = EvaluationView(evaluation)
    sections = {section.id: section.build(view) for section in SECTIONS}
    on = "each run's own" if view.about.runs else f"the same {count(view.n)}"
    small_figures = f"Small figures are 95\u202f% intervals on {on} {view.unit}."
    chosen = view.about.sections  # all, where the evaluation does not say what it is about
    template = page_environment().get_template("report.html")
    page: str = template.render(
        version=__version__,
        css=Markup(asset("base.css") + asset("report.css")),
        js=Markup(report_script()),
        data=_island({"evaluation": _numbers(evaluation), "coverage": sections["coverage"].island}),
        contents=[
            section
            for section in SECTIONS
            if (not chosen or section.id in chosen) and (not section.optional or sections[section.id].drawings)
        ],
        title=view.about.title or view.focus,
        kicker=_kicker(view),
        verdict=verdict(view),
        warnings=evaluation.warnings,
        tiles=tiles(view),
        unit=view.unit,
        left_out_note=view.left_out_note,
        stages=[view.when(stage) for stage in (view.before, view.after) if stage],
        interval_note=" ".join(
            filter(None, [view.about.interval_note or small_figures, view.units_note, view.weights_note])
        ),
        models_question=_models_question(view),
        no_classes=_no_classes(view),
        no_promise=_no_promise(view),
        **sections,
    )
    return page


def report_script() -> str:
    """The only script of a report: nothing else in it may run.

    Returns:
        Its text, as it stands in every report.

    Example:
        >>> report_script().startswith("(function")
        True
    """
    return asset("values.js") + asset("report.js")


def notebook_view(evaluation: Evaluation) -> str:
    """Verdict and table of models as HTML, scoped so that a notebook keeps its own style.

    Args:
        evaluation: made by `confide.evaluate`, or loaded.

    Returns:
        A fragment of HTML, which a notebook shows for an Evaluation by itself.

    Example:
        >>> p = confide.Predictions([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 3.0]], [0, 1, 1, 1])
        >>> confide.report.notebook_view(confide.evaluate(p, "accuracy", intervals=False)).startswith("<div")
        True
    """
    view = EvaluationView(evaluation)
    template = page_environment().get_template("notebook.html")
    return str(template.render(verdict=verdict(view), models=models_section(view)))


def verdict_sentence(evaluation: Evaluation) -> str:
    r"""The verdict in one sentence of plain text.

    Args:
        evaluation: made by `confide.evaluate`, or loaded.

    Returns:
        What the model says and what it is right about, with a direction only where the tests bear it.

    Example:
        >>> p = confide.Predictions([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 3.0]], [0, 1, 1, 1])
        >>> confide.report.verdict_sentence(confide.evaluate(p, ["accuracy"], intervals=False))
        'This model is right on 75\u202f% of 4 samples.'
    """
    return verdict(EvaluationView(evaluation)).sentence


@lru_cache(maxsize=1)
def page_environment() -> Environment:
    environment = Environment(
        loader=FunctionLoader(asset), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.globals |= {"thumbnail": _thumbnail, "count": count}
    return environment


def asset(name: str) -> str:
    return resources.files("confide.report").joinpath("assets", name).read_text(encoding="utf-8")


def _thumbnail(picture: Picture) -> Markup:
    """The picture of a sample, its text, or a note that it is missing; where the explorer shows the report, a link."""
    return Markup('<a data-explorer="{}">{}</a>').format(picture.link, _thumbnail_content(picture))


def _thumbnail_content(picture: Picture) -> Markup:
    """Only data URIs of images are let in."""
    source = picture.sample.picture or ""
    if source.startswith("data:image/"):
        return Markup('<img class="thumb" src="{}" alt="{}">').format(source, picture.alt)
    if picture.sample.text:
        return Markup('<span class="words">{}</span>').format(picture.sample.text)
    return Markup('<span class="thumb nopic" role="img" aria-label="{}, picture missing">no picture</span>').format(
        picture.alt
    )


def _numbers(evaluation: Evaluation) -> JsonObject:
    """The evaluation without its pictures, which the page already holds; intervals are asked for.

    Where groups or classes run into the thousands, the page keeps the first and says so.
    """
    whole = [m for m in evaluation.measurements if m.group is None]
    groups = [m for m in evaluation.measurements if m.group is not None]
    shown = whole + groups[:MOST_GROUPS]
    data = {**evaluation.to_dict(), "measurements": [m.with_interval().as_row() for m in shown]}
    names = evaluation.about.class_names
    if len(groups) > MOST_GROUPS or len(names) > MOST_GROUPS:
        data["about"]["class_names"] = names[:MOST_GROUPS]
        data["about"]["left_out"] = "measurements of further groups and names of further classes"
    data["samples"] = [{k: v for k, v in s.items() if k != "picture"} for s in data["samples"]]
    return data


def _island(value: Any) -> Markup:
    """JSON that no text inside it can end: every < is written as an escape."""
    text = json.dumps(formats.plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))


def _kicker(view: EvaluationView) -> Markup:
    names = view.about.class_names
    classes = f", {count(len(names))} classes" if names else ""
    what = view.size(view.n, view.split or "")
    return Markup("{}{}, model {}").format(what, classes, code(view.focus))


def _no_classes(view: EvaluationView) -> Empty:
    why = view.why_missing("classes")
    return Empty(NO_CLASSES.title, f"Classes are {why}.") if why else NO_CLASSES


def _no_promise(view: EvaluationView) -> Empty:
    """Why no threshold is promised."""
    if view.about.seeds and view.evaluation.operating_points:
        return PROMISE_BY_SEED
    if view.about.drawn_as is None:
        return NO_PROMISE
    why = f"A promise counts samples that were drawn one by one; of these {view.unit}, several belong to one "
    command = "confide labels val.parquet --precision 0.9" if view.about.drawn_as == SAMPLE else ""
    return Empty(NO_PROMISE.title, why + f"{view.about.drawn_as}.", command)


def _models_question(view: EvaluationView) -> str:
    number = {1: "one", 2: "two", 3: "three", 4: "four", 5: "five"}
    models = f"{number.get(len(view.models), len(view.models))} model{'s' * (len(view.models) > 1)}".capitalize()
    runs = len(view.about.runs)
    same = f"the same {view.unit}" if not runs else f"{number.get(runs, runs)} run{'s' * (runs > 1)}"
    if len(view.models) == 1 and not view.about.runs:
        return "One model. Each row is a stage of it."
    return f"{models}, {same}. Each row is a model at one stage."
