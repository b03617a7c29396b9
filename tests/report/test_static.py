"""Static figures: the same charts, by matplotlib."""

from __future__ import annotations

import sys

import pytest
from PIL import Image

from confide.checks import MissingExtra
from confide.report import write_figures
from confide.report.static import FILLS, STROKES, _path, named_figures
from confide.report.view import EvaluationView
from confide.results import Curve, Evaluation, Measurement


def test_every_chart_has_a_name_of_its_own_that_does_not_follow_the_data(evaluation):
    names = [name for name, _ in named_figures(EvaluationView(evaluation))]
    assert len(names) == len(set(names))
    for expected in (
        "models-nll",
        "reliability-width-15-before",
        "reliability-mass-20-after",
        "reliability-by-class",
        "reliability-model-adafocal",
        "coverage-risk",
        "coverage-accuracy-rejection",
        "trust-right-and-wrong",
        "trust-scores",
        "trust-cut-steep-slope",
        "trust-own-line-steep-slope",
        "trust-alpha-sweep",
        "difficulty-distribution",
        "difficulty-error-rate",
        "shift-severity",
        "shift-severity-ece",
        "shift-rmd-severity",
        "shift-rmd-label-noise",
        "shift-corruptions",
        "shift-ood-histogram",
        "shift-ood-roc",
        "training-val-ece",
        "training-gammas-adafocal",
    ):
        assert expected in names


def test_every_class_of_a_chart_is_known_outside_the_browser(evaluation):
    import re

    plain = {"m", "e", "l", "b", "nh", "ln", "pale", "thin", "bx", "op"}
    for _, figure in named_figures(EvaluationView(evaluation)):
        for words in re.findall(r'<(?:path|circle|text)[^>]* class="([^"]*)"', str(figure.wide or figure.svg)):
            assert set(words.split()) <= plain | set(FILLS) | set(STROKES), words


def test_paths_are_read_as_they_are_written():
    points, codes = _path("M1 2L3 4h5v-1h-5z")
    assert points == [(1, 2), (3, 4), (8, 4), (8, 3), (3, 3), (1, 2)]
    assert codes == [1, 2, 2, 2, 2, 79]


def test_without_matplotlib_the_extra_is_named(evaluation, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"confide\[report\]"):
        write_figures(evaluation, tmp_path)


def test_writes_svg_and_png_and_captions(tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed (extra: report)")
    coverage = {"coverage": (0.5, 1.0), "risk": (0.05, 0.1), "threshold": (0.9, 0.2)}
    rows = (Measurement("accuracy", 0.9, 100, "test", model="a $ <b>", bounds=(0.8, 0.95)),)
    evaluation = Evaluation(rows, (Curve("risk_coverage", coverage, model="a $ <b>", split="test"),))
    written = write_figures(evaluation, tmp_path)
    names = sorted(path.name for path in written)
    assert names == [f"coverage-{n}.{s}" for n in ("accuracy-rejection", "risk") for s in ("png", "svg")]
    svg = (tmp_path / "coverage-risk.svg").read_text()
    assert "a $ &lt;b&gt;" in svg
    assert "Wrong among accepted, %" in svg
    with Image.open(tmp_path / "coverage-risk.png") as picture:
        assert picture.width > 1500
        assert len(picture.convert("RGB").getcolors(1 << 20) or []) > 5
    assert "`coverage-risk`" in (tmp_path / "captions.md").read_text()
