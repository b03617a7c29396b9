"""The page: one file, every section or its empty state, everything escaped."""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from importlib import import_module
from itertools import pairwise

import numpy as np
import pytest
from jinja2 import UndefinedError

import confide
from confide.checks import InputError
from confide.cli.main import VERBS
from confide.report import draw, notebook_view, page, render_report, side_by_side, write_report
from confide.report.sections import SECTIONS
from confide.report.sections.coverage import risk_text
from confide.report.sections.reliability import name_gap_sides
from confide.report.sections.trust import trust_section
from confide.report.view import EvaluationView
from confide.results import About, ComparedRow, Comparison, Evaluation, Measurement, Sample

NASTY = '</script><script>alert("x")</script>'


class Page(HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text.append(data)

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


@pytest.fixture(scope="module")
def html(evaluation):
    return render_report(evaluation)


def test_one_file_of_at_most_two_and_a_half_megabytes(evaluation, tmp_path):
    path = write_report(evaluation, tmp_path / "report.html")
    assert path.stat().st_size < 2.5e6
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]
    assert confide.write_report is write_report


def test_loads_nothing_from_anywhere(html):
    for tag, attributes in Page(html).tags:
        assert tag not in ("link", "iframe", "object")
        for name in ("src", "href", "srcset", "action"):
            assert (attributes.get(name) or "#").startswith(("#", "data:image/")), (tag, attributes)
    assert "@import" not in html
    assert "url(" not in html


def test_has_one_h1_and_the_landmarks(html):
    page = Page(html)
    assert (
        page.count("h1") == page.count("main") == page.count("header") == page.count("nav") == page.count("footer") == 1
    )
    sections = [a for tag, a in page.tags if tag == "section"]
    assert [a["id"] for a in sections] == [section.id for section in SECTIONS if section.id not in ("slices", "maps")]
    ids = [a["id"] for _, a in page.tags if "id" in a]
    assert len(ids) == len(set(ids))
    assert all(a["aria-labelledby"] in ids for a in sections)


def test_every_picture_and_chart_has_words(html):
    for tag, attributes in Page(html).tags:
        if tag == "svg" and attributes.get("aria-hidden") != "true":
            assert attributes["role"] == "img"
            assert len(attributes["aria-label"] or "") > 3
        if tag == "img":
            assert ", predicted " in (attributes["alt"] or "")


def test_every_chart_has_a_data_table(html):
    for figure in re.findall(r'<figure class="fig".*?</figure>', html, flags=re.S):
        assert "<table" in figure


def test_no_colour_is_written_into_a_chart(html):
    for svg in re.findall(r"<svg.*?</svg>", html, flags=re.S):
        assert not re.search(r"#[0-9A-Fa-f]{3,6}\b|rgb\(", svg)


def test_names_from_the_data_stay_text():
    sample = Sample("hardest", NASTY, NASTY, NASTY + "!", 0.4, 3.0, NASTY, None, NASTY)
    rows = (
        Measurement("accuracy", 0.9, 100, "test", model=NASTY, bounds=(0.8, 0.95)),
        Measurement("accuracy", 0.9, 100, "test", model="other", stage=NASTY),
        Measurement(NASTY, 0.9, 100, "test", model=NASTY),
        Measurement("confidence_gap", 0.02, 100, "test", model=NASTY, group=f"class={NASTY}"),
    )
    about = dict.fromkeys(("title", "unit", "data", NASTY), NASTY) | {
        "class_names": [NASTY],
        "commands": [NASTY],
    }
    about |= {"config": {NASTY: NASTY}, "missing": {"shift": NASTY}, "label_counts": {NASTY: 100}}
    test = Comparison(NASTY, ComparedRow(NASTY), ComparedRow(NASTY), 0, 0, 0, 1, 1)
    samples = (sample, replace(sample, role="suspect"), replace(sample, role="easiest", picture='x" onerror="alert(1)'))
    html = render_report(Evaluation(rows, (), (test,), samples, (), About.from_dict(about), (NASTY,)))
    page = Page(html)
    scripts = [a for tag, a in page.tags if tag == "script"]
    assert scripts == [{"type": "application/json", "id": "data"}, {}]
    assert not any(name.startswith("on") for _, a in page.tags for name in a)
    assert html.count("&lt;/script&gt;&lt;script&gt;alert") > 10
    assert '<script>alert("x")' not in html
    assert '<script>alert("x")' not in notebook_view(Evaluation(rows, about=About.from_dict(about)))


def test_a_picture_that_is_no_image_uri_is_not_let_in():
    sample = Sample("hardest", "1", "Bag", "Bag", picture="https://example.org/x.png")
    html = render_report(Evaluation((Measurement("accuracy", 0.9, 10),), samples=(sample,)))
    assert "example.org/x.png" not in html
    assert "no picture" in html


def test_bold_only_where_the_tests_beat_every_other_row(html, evaluation):
    marked = "best by the paired test"
    assert html.count(marked) == 2  # NLL of one model, at each of two stages
    fewer = replace(evaluation, comparisons=tuple(c for c in evaluation.comparisons if c.a.model != "adafocal"))
    assert marked not in render_report(fewer)
    assert "No paired tests were made" in render_report(replace(evaluation, comparisons=()))


def test_missing_parts_show_what_mends_them():
    bare = Evaluation((Measurement("accuracy", 0.9, 100, "test", bounds=(0.8, 0.95)),))
    html = render_report(bare)
    for words in (
        "No reliability diagram",
        "No risk-coverage curve",
        "No promised thresholds",
        "Nothing to show on trust",
        "No difficulty scores",
        "No test under shift",
        "No training log",
        "No commands were recorded",
    ):
        assert words in html, words
    assert html.count("<code>confide ") >= 7
    assert "nan" not in " ".join(Page(html).text).lower().split()


def test_an_empty_evaluation_is_still_a_page():
    assert Page(render_report(Evaluation(()))).count("h1") == 1


def test_the_reason_for_a_missing_section_is_shown():
    about = About(missing={"shift": "torchvision is not installed"})
    assert "torchvision is not installed" in render_report(Evaluation((Measurement("accuracy", 0.9, 10),), about=about))


def test_the_page_holds_its_numbers(html, evaluation):
    text = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, flags=re.S)
    assert text
    data = json.loads(text.group(1))
    again = Evaluation.from_dict(data["evaluation"])
    assert again.value("accuracy", model="adafocal", stage="raw") == evaluation.value(
        "accuracy", model="adafocal", stage="raw"
    )
    assert all(s.picture is None for s in again.samples)
    assert len(data["coverage"]["coverage"]) == len(data["coverage"]["risk"])


def test_a_million_classes_do_not_fill_the_page():
    rows = [Measurement("accuracy", 0.9, 100, "test")]
    rows += [Measurement("confidence_gap", k / 1e6, 9, "test", group=f"class={k}") for k in range(3000)]
    names = [str(k) for k in range(1_000_000)]
    html = render_report(Evaluation(tuple(rows), about=About(class_names=tuple(names))))
    assert len(html) < 2.5e6
    assert "and 999,970 more" in html


def test_an_evaluation_shows_itself_in_a_notebook(evaluation):
    html = evaluation._repr_html_()
    assert "cross_entropy says" in html
    assert "<style" not in html
    assert "difficulty_entropy" in html


def test_headings_never_skip_a_level(html):
    levels = [int(tag[1]) for tag, _ in Page(html).tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_commands_of_empty_states_can_be_given():
    html = render_report(Evaluation((Measurement("accuracy", 0.9, 100, "test"),)))
    commands = re.findall(r"<code>(confide [^<]*)</code>", html)
    assert len(commands) >= 6
    for command in commands:
        verb, *rest = command.split()[1:]
        assert verb in VERBS, command
        parser = argparse.ArgumentParser(exit_on_error=False)
        import_module(f"confide.cli.{verb.replace('-', '_')}").configure(parser)
        parser.parse_args(rest)


def test_a_predictor_at_its_own_line_shows_what_it_lets_through(evaluation, html):
    curve = next(c for c in evaluation.curves if c.kind == "trust_outcomes" and c.model == "cross_entropy")
    totals = {name: sum(curve.columns[name]) for name in ("tp", "fp", "tn", "fn")}
    caught = 100 * totals["tn"] / (totals["tn"] + totals["fp"])
    assert f"catches {caught:.1f}\u202f% of the errors" in html
    for name, value in totals.items():
        assert f"{value:,.0f} <small>{name.upper()}</small>" in html


def test_boxes_of_calibration_error_claim_a_loss_only_where_medians_rise(evaluation):
    cell = Measurement("ece", 0.2, 4000, "test", "temperature", "shift=fog/5", "cross_entropy", None, 0.01, 0.02)
    evaluation = replace(evaluation, measurements=(*evaluation.measurements, cell))
    assert "Calibration on clean data is lost as images get worse" in render_report(evaluation)
    flat = [
        replace(c, columns={**c.columns, "median": (0.03,) * 6}) if c.kind == "shift_ece_boxes" else c
        for c in evaluation.curves
    ]
    assert "Calibration error by severity" in render_report(replace(evaluation, curves=tuple(flat)))


@pytest.mark.parametrize("drawn", [write_report, lambda given, path: render_report(given)])
@pytest.mark.parametrize("given", ["evaluation.json", None, {"measurements": []}])
def test_only_an_evaluation_is_drawn(tmp_path, drawn, given):
    with pytest.raises(InputError, match=r"drawn from an Evaluation, got .*; make one with confide\.evaluate"):
        drawn(given, tmp_path / "page")
    assert not list(tmp_path.glob("*.html"))


def headings(page: str) -> list[str]:
    """What a reader sees of a page first: its verdict and the titles of its charts."""
    found = re.findall(r"<h1>(.*?)</h1>|<h3[^>]*>(.*?)</h3>", page, re.S)
    return [unescape(re.sub(r"<[^>]+>", "", first or second)) for first, second in found]


@pytest.mark.slow
def test_calibrated_models_are_called_overconfident_by_no_heading_in_95_of_100_reports():
    """Labels are drawn from the model's own probabilities, so every such claim is false."""
    rng, called, draws = np.random.default_rng(0), 0, 120
    for _ in range(draws):
        logits = rng.normal(0, 2, (400, 4))
        chances = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        labels = (chances.cumsum(1) < rng.random((400, 1))).sum(1).clip(max=3)
        titles = headings(render_report(confide.evaluate(confide.Predictions(logits, labels))))
        assert any("single class" in title or "classes" in title for title in titles)
        claims = [title for title in titles if re.search("overconfident|runs ahead", title) and "clearly" not in title]
        called += bool(claims)
    assert called <= 0.05 * draws + 2 * (0.05 * 0.95 * draws) ** 0.5


def test_runs_on_different_samples_are_never_said_to_share_them():
    def run(n: int) -> Evaluation:
        rng = np.random.default_rng(n)
        return confide.evaluate(confide.Predictions(rng.normal(size=(n, 3)), rng.integers(0, 3, n)), ["accuracy"])

    page = " ".join(Page(render_report(side_by_side([run(40), run(60)], ["monday", "friday"]))).text)
    assert "their rows cannot be compared" in page
    assert "the same 40" not in page
    assert "same samples" not in page


def test_bins_of_every_number_name_their_error_chance_and_test():
    rng = np.random.default_rng(0)
    evaluation = confide.evaluate(confide.Predictions(rng.normal(0, 2, (500, 3)), rng.integers(0, 3, 500)))
    page = render_report(evaluation)
    for kind in ("width", "mass"):
        for number in (10, 15, 20):
            facts = re.search(rf'<dl data-variant="{kind}-{number}".*?</dl>', page, re.S)[0]
            assert f"ECE, {number} bins of equal {kind}" in facts
            assert "The same by chance" in facts
            assert f"p, calibrated, {number} bins of equal {kind}" in facts
    assert "band: 95" in page  # of the risk-coverage curve


def test_a_promise_is_worded_with_the_decimals_it_has():
    assert [risk_text(risk) for risk in (0.05, 0.29, 0.025, 0.0525, 0.0001)] == [
        f"{text}\u202f%" for text in ("5", "29", "2.5", "5.25", "0.01")
    ]


def test_of_many_trust_scores_the_best_are_drawn_and_it_is_said():
    rows = [Measurement("accuracy", 0.8, 500)]
    rows += [Measurement("auroc", 0.6 + 0.01 * k, 500, score=f"trust:s{k:02d}") for k in range(14)]
    rows += [Measurement("auroc", 0.7, 500, score="msp")]
    page = render_report(Evaluation(tuple(rows)))
    figure = re.search(r"<figure class=\"fig\">(?:(?!</figure>).)*Trust scores on the same.*?</figure>", page, re.S)[0]
    drawn = re.findall(r">(s\d\d|confidence)</text>", figure)
    assert {"s13", "confidence"} <= set(drawn)
    assert "s00" not in drawn
    assert "of 15 scores are drawn" in figure
    assert ">s00</th>" in figure  # in its table


def test_every_metric_that_scores_are_compared_by_is_drawn_at_both_widths(evaluation):
    figures = trust_section(EvaluationView(evaluation)).drawings
    figure = next(f for f in figures if f.name == "scores")
    for drawing in (figure.svg, figure.wide):
        assert all(f">{title}, " in drawing for title in ("AUROC", "AURC", "FPR at 95\u202f% TPR"))


def test_a_group_has_one_row_whatever_scores_rank_its_samples():
    rng = np.random.default_rng(0)
    predictions = confide.Predictions(rng.normal(size=(200, 3)), rng.integers(0, 3, 200))
    found = confide.evaluate(predictions, by="predicted", score=["msp", "entropy"])
    page = render_report(found)
    assert "By group (6)" in page  # three classes of the label, three predicted
    assert "AUROC, by entropy" in page
    assert page.count('<th scope="row">predicted=0</th>') == 1
    assert "One model. Each row is a stage of it." in page


@pytest.mark.parametrize(("classes", "left_out"), [(3, False), (4, True)])
def test_names_beyond_the_most_are_left_out_and_it_is_said(evaluation, monkeypatch, classes, left_out):
    monkeypatch.setattr(page, "MOST_GROUPS", 3)
    names = tuple(f"class {k}" for k in range(classes))
    few = replace(evaluation, about=replace(evaluation.about, class_names=names), measurements=(), samples=())
    about = page._numbers(few)["about"]
    assert list(about["class_names"]) == list(names[:3])
    assert ("left_out" in about) == left_out


def test_pages_of_samples_drawn_several_as_one_count_what_was_drawn():
    """Pixels of images and labels of samples: the size says both; no command is shown that would refuse them."""
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 2, (6, 3, 8, 8))
    pixels = confide.dense.pixels(logits, rng.integers(0, 3, (6, 8, 8)))
    text = " ".join(Page(render_report(confide.evaluate(pixels))).text)
    assert "384 pixels of 6 images" in text
    assert "tested on 384 pixels of 6 images" in text
    assert "Intervals, tests and chance levels count 6 images, not pixels" in text
    assert "several belong to one image" in text
    assert "operating-point" not in text
    labels = confide.Predictions.multilabel(rng.normal(0, 2, (50, 3)), rng.integers(0, 2, (50, 3)))
    text = " ".join(Page(render_report(confide.evaluate(labels))).text)
    assert "150 labels of 50 samples" in text
    assert "confide labels val.parquet --precision 0.9" in text
    single = confide.evaluate(confide.Predictions(rng.normal(0, 2, (50, 3)), [0, 1] * 25))
    text = " ".join(Page(render_report(single)).text)
    assert "50 samples, model" in text
    assert "confide operating-point" in text


def test_a_page_of_a_fresh_environment_keeps_names_as_text_and_holds_no_empty_lines():
    page.page_environment.cache_clear()
    named = render_report(Evaluation((Measurement("accuracy", 0.9, 10, model="<b>mine</b>"),)))
    assert "<b>mine" not in named
    assert "&lt;b&gt;mine&lt;/b&gt;" in named
    body = re.sub(r"<(script|style).*?</\1>", "", named, flags=re.S)
    assert sum(not line.strip() for line in body.splitlines()) < len(body.splitlines()) / 3
    with pytest.raises(UndefinedError):
        page.page_environment().from_string("{{ nothing.of_it }}").render()


@pytest.mark.parametrize(
    ("low", "high", "start", "sides"),
    [
        (-10, 10, 14, "uo"),
        (0, 10, 150, "o"),  # nothing lies left of no gap, though there is room
        (-10, 0, 14, "u"),
        (-0.5, 0.5, 14, "uo"),
        (-2, 10, 14, "o"),  # no room for its name
        (-10, 2, 14, "u"),
    ],
)
def test_sides_of_no_gap_are_named_where_they_are_drawn_and_have_room(low, high, start, sides):
    canvas, scale = draw.Canvas(343, 40), draw.Scale(low, high, start, 329)
    name_gap_sides(canvas, scale)
    drawn = re.findall(r'<text x="([\d.]+)" y="11"[^>]*>(\w+)</text>', str(canvas.render("x")))
    wanted = {"u": (scale(0) - 6, "underconfident"), "o": (scale(0) + 6, "overconfident")}
    assert [(pytest.approx(float(x), abs=0.06), word) for x, word in drawn] == [wanted[side] for side in sides]
