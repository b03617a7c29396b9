"""Evaluations at their limits: the page is made, says what it can, and never shows NaN."""

from __future__ import annotations

import base64
import io
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from confide import Predictions, evaluate
from confide.report import render_report
from confide.report.draw import tick_text, ticks
from confide.report.sections.decisions import decisions_section
from confide.report.sections.maps import _canvas as maps_canvas
from confide.report.sections.provenance import provenance_section
from confide.report.sections.reliability import bins_of, finding
from confide.report.sections.sets import _coverage
from confide.report.sections.training import training_section
from confide.report.view import EvaluationView
from confide.report.words import share_words, within
from confide.results import About, Curve, Evaluation, GroupCoverage, Measurement, Sample


def words(html: str) -> str:
    """What a reader sees, without scripts and style."""
    body = re.sub(r"<(script|style).*?</\1>", "", html, flags=re.S)
    return re.sub(r"<[^>]+>", " ", body)


def check(evaluation: Evaluation) -> str:
    html = render_report(evaluation)
    text = words(html)
    assert not re.search(r"\b(nan|inf|None|undefined)\b", text), re.search(r".{40}\b(nan|inf|None)\b.{20}", text)
    assert "nan" not in "".join(re.findall(r'\bd="[^"]*"', html))
    return text


def test_without_any_interval(evaluation):
    rows = tuple(replace(m, bounds=(math.nan, math.nan)) for m in evaluation.measurements)
    text = check(replace(evaluation, measurements=rows))
    assert "±" not in text.split("Confidence minus accuracy, as trained")[0]


def test_without_chance_and_tests(evaluation):
    rows = tuple(replace(m, chance=None, chance_high=None, p_value=None) for m in evaluation.measurements)
    text = check(replace(evaluation, measurements=rows, comparisons=()))
    assert "chance " not in text.split("More numbers")[0].split("Small figures")[0].split("Skip to the results")[1]
    assert "overconfident by" not in text


def test_values_that_are_not_numbers_are_left_out(evaluation):
    rows = tuple(replace(m, value=math.nan) if m.metric in ("auroc", "brier") else m for m in evaluation.measurements)
    assert "Brier" not in check(replace(evaluation, measurements=rows)).split("More numbers")[0]


def test_one_stage_that_is_not_raw(evaluation):
    only = replace(
        evaluation,
        measurements=tuple(m for m in evaluation.measurements if m.stage != "raw"),
        curves=tuple(c for c in evaluation.curves if c.stage != "raw"),
    )
    text = check(only)
    assert "cross_entropy says" in text
    assert "Confidence minus accuracy, after temperature scaling" in text


def test_validation_only():
    rows = (Measurement("accuracy", 0.9, 50, "val", bounds=(0.8, 0.95)),)
    assert "50 val samples" in check(Evaluation(rows))


def test_test_is_shown_and_val_is_not():
    rows = (Measurement("accuracy", 0.5, 50, "val"), Measurement("accuracy", 0.9, 70, "test"))
    text = check(Evaluation(rows))
    assert "70 test samples" in text
    assert "50.0" not in text


def test_seven_models_keep_their_rows(evaluation):
    rows = [m for m in evaluation.measurements if m.model == "cross_entropy" and m.group is None]
    curves = [c for c in evaluation.curves if c.model == "cross_entropy"]
    names = [f"a rather long name of model number {k}" for k in range(7)]
    many = Evaluation(
        tuple(replace(m, model=name) for name in names for m in rows),
        tuple(replace(c, model=name) for name in names for c in curves),
        about=evaluation.about,
    )
    text = check(many)
    assert all(name in text for name in names)
    assert EvaluationView(many).colour(names[5]) == "g"


def test_texts_are_shown_as_text():
    samples = tuple(
        Sample(role, str(k), "refund", "card", 0.7, float(k), None, None, f"where is <b>my</b> card {k}")
        for role in ("easiest", "hardest", "suspect")
        for k in range(3)
    )
    html = render_report(Evaluation((Measurement("accuracy", 0.9, 9),), samples=samples, about=About(unit="texts")))
    assert html.count("where is &lt;b&gt;my&lt;/b&gt; card") == 9
    assert "gallery texts" in html


def test_missing_pictures_keep_their_row(evaluation):
    bare = replace(evaluation, samples=tuple(replace(s, picture=None) for s in evaluation.samples))
    html = render_report(bare)
    assert html.count("picture missing") == len(evaluation.samples)
    assert "<img" not in html


def test_no_error_at_all():
    rows = (Measurement("accuracy", 1.0, 100, "test", bounds=(0.97, 1.0)),)
    curves = (
        Curve("risk_coverage", {"coverage": (0.5, 1.0), "risk": (0.0, 0.0), "threshold": (0.99, 0.9)}),
        Curve(
            "confidence_histogram", {"low": (0.0, 0.5), "high": (0.5, 1.0), "right": (0.0, 100.0), "wrong": (0.0, 0.0)}
        ),
    )
    assert "No prediction is wrong" in check(Evaluation(rows, curves))


def test_everything_wrong():
    rows = (Measurement("accuracy", 0.0, 100, "test", bounds=(0.0, 0.03)),)
    curves = (
        Curve("risk_coverage", {"coverage": (0.5, 1.0), "risk": (1.0, 1.0), "threshold": (0.99, 0.9)}),
        Curve(
            "confidence_histogram", {"low": (0.0, 0.5), "high": (0.5, 1.0), "right": (0.0, 0.0), "wrong": (0.0, 100.0)}
        ),
    )
    check(Evaluation(rows, curves))


@pytest.mark.parametrize("kind", ["difficulty_histogram", "error_by_difficulty"])
def test_a_single_difficulty_value(kind):
    columns = {"low": (1.0,), "high": (1.0,), "count": (5.0,), "error": (0.2,)}
    check(Evaluation((Measurement("accuracy", 0.9, 5),), (Curve(kind, columns),)))


def test_one_epoch_of_training():
    curve = Curve("training", {"epoch": (1.0,), "train_loss": (0.5,), "val_loss": (math.nan,)})
    gammas = Curve("gammas", {"epoch": (1.0,), "bin0": (1.0,), "bin1": (1.0,)})
    assert "Training loss" in check(Evaluation((Measurement("accuracy", 0.9, 5),), (curve, gammas)))


def test_curves_without_rows_count_as_missing():
    text = check(
        Evaluation(
            (Measurement("accuracy", 0.9, 5),), (Curve("risk_coverage", {"coverage": (), "risk": (), "threshold": ()}),)
        )
    )
    assert "No risk-coverage curve" in text


def bins(accuracy: float, n: float = 100.0) -> list:
    columns = {"low": (0.8,), "high": (0.9,), "confidence": (0.85,), "accuracy": (accuracy,), "count": (n,)}
    return bins_of(Curve("reliability_width", columns | {"band_low": (0.8,), "band_high": (0.9,)}))


def test_titles_of_diagrams_follow_the_dots():
    assert finding(bins(0.85)) == "within chance"
    assert finding(bins(0.5)) == "confidence runs ahead"
    assert finding(bins(0.95)) == "confidence lags behind"
    assert finding(bins(0.5), p_value=0.2) == "mostly within chance"


def test_no_title_of_a_diagram_contradicts_the_test_beside_it():
    """Neither the p of its own bins, nor that of the verdict."""
    sure, unsure = (Measurement("ece_mass", 0.1, 100, p_value=p) for p in (0.001, 0.4))
    assert finding(bins(0.5), 0.002, sure) == "confidence runs ahead"
    assert finding(bins(0.5), 0.002, unsure) == "beyond chance in these bins alone"
    assert finding(bins(0.5), 0.3, sure) == "within chance in these bins"
    assert finding(bins(0.5), 0.3, unsure) == "mostly within chance"
    assert finding(bins(0.85), 0.002, sure) == "beyond chance, but not by much"
    assert finding(bins(0.85), 0.3, unsure) == "within chance"


def test_few_samples_make_no_title():
    # Fewer than fifteen samples draw no dot, so they carry no claim.
    assert finding(bins(0.5, n=14.0)) == "too few samples to tell"
    assert finding(bins(0.5, n=14.0), 0.2) == "too few samples to tell"
    assert finding(bins(0.5, n=14.0), 0.01) == "beyond chance, in bins too small to draw"  # the test needs no dots


def test_a_broken_promise_is_marked(evaluation):
    points = tuple(
        replace(p, observed=replace(p.observed, risk=0.06)) if p.point.risk == 0.05 else p
        for p in evaluation.operating_points
    )
    assert "above the promise" in check(replace(evaluation, operating_points=points))
    assert "above the promise" not in check(evaluation)


def test_several_calibrators_are_all_in_the_table(evaluation):
    more = tuple(replace(m, stage="isotonic") for m in evaluation.measurements if m.stage == "temperature")
    text = check(replace(evaluation, measurements=evaluation.measurements + more))
    assert "After isotonic calibration" in text
    assert (
        EvaluationView(replace(evaluation, about=replace(evaluation.about, chosen_stage="temperature"))).after
        == "temperature"
    )
    chosen = replace(
        evaluation,
        measurements=evaluation.measurements + more,
        about=replace(evaluation.about, chosen_stage="isotonic", focus="adafocal"),
    )
    assert (EvaluationView(chosen).after, EvaluationView(chosen).focus) == ("isotonic", "adafocal")


def test_a_single_sample_claims_nothing():
    from confide import Predictions, evaluate

    text = check(evaluate(Predictions([[2.0, 1.0, 0.0]], [1])))
    assert "The only test label is" in text
    assert "What is left cannot be told from chance." in text
    assert "more than chance explains" not in text


@pytest.mark.parametrize(
    ("share", "told"), [(0.14, "one in seven samples"), (0.286, "28.6 % of the samples"), (0.0, "0.0 % of the samples")]
)
def test_a_share_is_told_as_a_sentence_needs_it(share, told):
    assert share_words(share, "samples").replace("\u202f", " ") == told


def test_data_are_told_by_name_sizes_and_origin():
    data = {
        "name": "photos",
        "where": "my/photos",
        "options": {"size": 32},
        "counts": {"train": 8000, "val": 1000},
        "splits": {"train": "as given", "val": "cut from 'train', stratified, fraction 0.1"},
        "metadata": {"source": "my camera", "script": "tool.py"},
        "fingerprint": "2f4b",
    }
    facts = dict(provenance_section(EvaluationView(Evaluation((), about=About(data=data)))).facts)
    assert facts["Data"] == (
        "photos; my/photos; 8,000 train, 1,000 val; val cut from 'train', stratified, fraction 0.1; my camera; 2f4b"
    )
    assert (
        dict(provenance_section(EvaluationView(Evaluation((), about=About(data="cifar10")))).facts)["Data"] == "cifar10"
    )


def test_a_calibration_error_is_told_in_points_where_only_other_metrics_were_asked_for():
    from confide import Predictions, evaluate

    logits = [[3.0, 0.0], [0.0, 2.0]] * 100
    text = check(evaluate(Predictions(logits, [0, 1, 0, 0] * 50), ["auroc", "accuracy"]))
    told = re.search(r"ECE, \d+ bins of equal width.*?([\d.]+) (\w+)\s+The same by chance", " ".join(text.split()))
    assert told
    assert (float(told[1]) > 1, told[2]) == (True, "pts")


@pytest.mark.parametrize(
    ("title", "inside"),
    [("Accuracy", "accuracy"), ("ECE, equal mass", "ECE, equal mass"), ("Brier", "Brier"), ("NLL", "NLL"), ("F", "F")],
)
def test_a_metric_is_written_small_within_a_sentence(title, inside):
    assert within(title) == inside


def test_of_many_actions_and_groups_the_page_shows_some_and_counts_the_rest(evaluation):
    shares = {f"action {k}": (20 - k) / 155 for k in range(10)}
    result = replace(evaluation.decisions[0], model="cross_entropy", shares=shares, n=1550)
    for most, rows in ((10, 10), (9, 10), (8, 9)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("confide.report.sections.decisions.MOST_ACTIONS", most)
            actions = decisions_section(EvaluationView(replace(evaluation, decisions=(result,)))).actions
        assert len(actions) == rows
        assert actions[0] == ("action 0", "12.9\u202f%", "200")
    assert actions[-1] == ("2 others", "14.8\u202f%", "230")
    groups = tuple(GroupCoverage("site", f"s{k}", 10, 1.0, 9 - k, 0.1, 1.0) for k in range(5))
    sets = replace(evaluation.sets[0], groups=(GroupCoverage("all", "all", 50, 1.0, 35, 0.5, 0.9), *groups))
    for most, left in ((5, 0), (4, 1), (3, 2)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("confide.report.sections.sets.MOST_GROUPS", most)
            figure = _coverage(EvaluationView(replace(evaluation, sets=(sets,))), sets)
        assert (f"{left} more are in the table" in figure.note) == bool(left)
        assert ["site: s1" in figure.svg, "site: s4" in figure.svg] == [most > 3, True]
        assert all(f"s{k}" in str(figure.table) for k in range(5))


def test_a_decision_costs_what_the_labels_say_where_there_are_labels(evaluation):
    (decided,) = evaluation.decisions
    titles = []
    for seen in (True, False):
        points = tuple(p if seen else replace(p, measured=math.nan) for p in decided.break_even)
        view = EvaluationView(replace(evaluation, decisions=(replace(decided, break_even=points),)))
        titles += [figure.title for figure in decisions_section(view).drawings if figure.name == "cost-by-share"]
    assert titles == ["Deciding everything costs 0.320 each, by the labels",
                      "Deciding everything costs 0.300 each, by the probabilities"]  # fmt: skip


def test_pairs_are_not_told_to_be_split_by_classes():
    text = check(evaluate(Predictions.from_pairs([1, 0, 1, 1] * 30, [0.9, 0.6, 0.8, 0.7] * 30), intervals=False))
    assert "Classes are not known; these predictions hold only confidence and correctness." in text
    assert "--by class" not in text


def test_several_labels_are_drawn_by_label_and_not_by_absent_and_present():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(400, 3)) * [4.0, 1.0, 1.0]
    labels = rng.random((400, 3)) < 1 / (1 + np.exp(-logits / [4.0, 1.0, 1.0]))
    several = Predictions.multilabel(logits, labels.astype(float), label_names=["cat", "dog", "yak"])
    html = render_report(evaluate(several, ["accuracy", "confidence_gap", "ece"]))
    figure = html[html.index("of 3 labels is overconfident") :]
    figure = figure[: figure.index("</table>")]
    assert "1 of 3 labels is overconfident" in html
    assert all(f">{name}<" in figure for name in ("cat", "dog", "yak"))
    assert not any(word in figure for word in ("macro average", ">present<", ">absent<"))


def test_maps_of_wide_images_leave_no_empty_space_below_them():
    def picture(width: int, height: int) -> str:
        image = io.BytesIO()
        Image.new("L", (width, height)).save(image, "PNG")
        return f"data:image/png;base64,{base64.b64encode(image.getvalue()).decode()}"

    def height(*pictures: str) -> float:
        samples = [Sample("map", f"{k}", "", text="5 % wrong", picture=p) for k, p in enumerate(pictures)]
        return maps_canvas(samples, 600).height

    assert height(picture(80, 20)) == pytest.approx(288 / 4 + 34, abs=1)
    assert height(picture(80, 20), picture(20, 80)) == 184
    assert height("data:image/png;base64,none") == 184


def test_a_saturated_model_that_is_always_right_is_not_called_worse_than_chance():
    labels = np.arange(200) % 4
    text = check(evaluate(Predictions(30.0 * np.eye(4)[labels], labels, split="test")))
    assert "well calibrated, as far as 200 samples can tell" in text
    assert "What is left cannot be told from chance" in text


def test_nothing_halves_the_errors_of_a_model_that_is_always_wrong():
    labels = np.arange(200) % 4
    text = check(evaluate(Predictions(30.0 * np.eye(4)[labels], (labels + 1) % 4, split="test")))
    assert "How many to reject to halve the error rate cannot be told" in text
    assert "halves the error rate" not in text
    assert "the other 0" not in text


def test_of_many_trainings_five_are_drawn_and_the_table_has_all():
    models = [f"m{k}" for k in range(7)]
    rows = tuple(Measurement("accuracy", 0.9, 50, "test", model=m) for m in models)
    curves = tuple(Curve("training", {"epoch": (0.0, 1.0), "val_nll": (0.9, 0.5)}, model=m) for m in models)
    view = EvaluationView(Evaluation(rows, curves))
    section = training_section(view)
    assert [name for name, _ in section.models] == models[:5]
    assert {row[0] for row in section.panels[0].table.rows} == set(models)
    page = render_report(view.evaluation)
    assert "5 of 7 models are drawn" in page[page.index('id="training"') :]


def test_ticks_of_values_that_differ_by_roundings_alone_are_told_apart():
    for low, high in ((-1e-12, 0.0), (0.0, 1e-12), (0.7, 0.7 + 1e-12), (0.0, 0.0)):
        marks = ticks(low, high)
        assert len({tick_text(value, marks) for value in marks}) == len(marks)
