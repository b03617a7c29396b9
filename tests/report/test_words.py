"""What the report calls things: titles, units and meanings come with the evaluation, from where each is defined."""

import json

import pytest

from confide.metrics import METRICS, explain, table_words
from confide.report import render_report
from confide.report.view import EvaluationView
from confide.report.words import fixed, p_value, percent, shorten, text_letters, with_unit
from confide.results import About, Curve, Evaluation, Measurement


@pytest.mark.parametrize("word", [*METRICS.names(), "ece_mass", "aupr_in", "aupr_out", "mce_mass", "sweep_ece_width"])
def test_no_metric_is_shown_as_a_metric_of_this_evaluation(word):
    info = Evaluation((Measurement(word, 0.25, 10),)).info(word)
    assert info.title != word.replace("_", " ")
    assert info.meaning != Evaluation(()).info(word).meaning
    assert info.unit or word in ("brier", "confidence_brier", "separability_bhattacharyya")


def test_the_share_that_halves_the_error_rate_is_shown_in_per_cent():
    html = render_report(Evaluation((Measurement("accuracy", 0.9, 10), Measurement("halving_rejection", 0.145, 10))))
    assert "Share to set aside to halve the error rate" in html
    assert "14.5\u202f%" in html
    assert "A metric of this evaluation" not in html


def test_halves_are_rounded_up_and_noise_does_not_decide():
    """As scripts round: a page that Python wrote and one that a script wrote show the same number."""
    assert [percent(share, 1) for share in (0.3825, 0.7275, 1 - 0.7275)] == [
        "38.3\u202f%",
        "72.8\u202f%",
        "27.3\u202f%",
    ]
    assert percent(1 - 0.3825, 1) == "61.8\u202f%"
    assert fixed(-0.125, 2) == "\u22120.13"
    assert fixed(-0.001, 2) == "0.00"
    assert fixed(1234567.5, 0) == "1,234,568"


def test_a_word_that_no_metric_has_is_shown_as_it_is():
    info = Evaluation((Measurement("rmd_mean", 12.3456, 10),)).info("rmd_mean")
    assert (info.title, with_unit(info, 12.3456)) == ("rmd mean", "12.346")


@pytest.mark.parametrize(
    ("word", "meaning", "from_features"),
    [("confusion", "H(mean over members of p)", False), ("loss", "after the last epoch", False), ("rmd", "Maha", True)],
)
def test_a_difficulty_score_is_explained_as_what_it_is(word, meaning, from_features):
    histogram = Curve("difficulty_histogram", {"low": (0.0, 1.0), "high": (1.0, 2.0), "count": (3.0, 4.0)})
    html = render_report(Evaluation((Measurement("accuracy", 0.9, 7),), (histogram,), about=About(difficulty=word)))
    assert meaning in html
    assert "neighbours in feature space" not in html
    assert ("The score never sees the model" in html) == from_features


@pytest.mark.parametrize(
    ("stage", "phrase"),
    [
        ("raw", "as trained"),
        ("ensemble_temperature", "after ensemble temperature scaling"),
        ("temperature_by_difficulty", "after temperature scaling by difficulty"),
        ("my own", "after my own"),
    ],
)
def test_a_stage_is_called_what_its_calibrator_is_called(stage, phrase):
    assert EvaluationView(Evaluation((Measurement("accuracy", 0.9, 7, stage=stage),))).when(stage) == phrase


def test_an_evaluation_of_format_1_is_explained_when_it_is_loaded():
    data = Evaluation((Measurement("ece_mass", 0.02, 10, stage="vector"),)).to_dict()
    assert data["format"] == "evaluation/2"
    for name in ("metrics", "stage_titles", "difficulty"):
        del data[name]
    found = Evaluation.from_dict(json.loads(json.dumps({**data, "format": "evaluation/1"})))
    assert found.info("ece_mass") == explain(["ece_mass"])["ece_mass"]
    assert found.stage_titles == {"vector": "vector scaling"}


def test_places_in_a_table_are_taken_once():
    for table in (
        "core",
        "models",
        "headline",
        "summary",
        "calibrated",
        "trust",
        "scores",
        "decisions",
        "shift",
        "ood",
    ):
        places = [info.tables[table] for info in explain(table_words(table)).values()]
        assert places == sorted(set(places)), table


def test_a_column_of_the_training_log_is_named_after_its_metric():
    logged = Curve("training", {"epoch": (0.0, 1.0), "val_ece": (0.1, 0.05), "train_accuracy": (0.5, 0.6)})
    html = render_report(Evaluation((Measurement("accuracy", 0.9, 7),), (logged,)))
    assert "ECE, equal width, validation" in html
    assert "Accuracy, training" in html


def test_names_are_shortened_by_how_wide_their_letters_are():
    assert shorten("difficulty", 80) == "difficulty"
    assert shorten("difficulty entropy", 80) == "difficulty …"
    assert shorten("高精度画像認識", 80) == "高精度画像…"  # twice as wide as Latin letters
    assert shorten("हिन्दी", 32) == "हिन्दी"  # six signs, two of them marks above or below another
    assert text_letters("高a") == 3
    assert len(shorten("W" * 40, 130)) < len(shorten("A" * 40, 130)) < len(shorten("a" * 40, 130))
    assert shorten("", 80) == ""


def test_a_p_that_rejects_is_not_written_as_one_that_does_not():
    assert [p_value(p) for p in (0.18, 0.0496, 0.04999, 0.05, 0.0494, 0.0003)] == [
        "0.18",
        "0.0496",
        "0.0499",
        "0.050",
        "0.049",
        "< 0.001",
    ]
