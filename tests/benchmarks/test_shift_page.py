"""The page of CIFAR-10 under shift, made from cells."""

from __future__ import annotations

import json
import math
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import ROOT
from benchmarks.lib.results import Results
from benchmarks.lib.shift import shift_evaluation
from benchmarks.papers import items
from benchmarks.papers.shift_page import WITH_FREIGHT_CARS, write_page
from confide import files
from confide.checks import InputError
from confide.report import render_report
from confide.report.static import standing_alone

WORDS = ("fog", "snow")
CLEAN = ("accuracy", "nll", "brier", "ece", "ece_mass", "confidence_gap", "aurc", "auroc", "auroc:entropy")
SHIFTED = ("accuracy", "nll", "ece", "ece_mass", "aurc", "auroc")


def numbers(names: tuple[str, ...], accuracy: float, error: float) -> dict[str, float]:
    return {name: accuracy if name == "accuracy" else error for name in names}


def write_cell(
    folder: Path, method: str, seed: int, accuracy: float = 0.9, error: float = 0.02, model: str = "resnet18"
) -> None:
    """A cell whose ECE grows by 0.1 a severity under snow, by half as much under fog, and by 0.01 a seed."""
    start = error + 0.01 * seed

    def stages(names: tuple[str, ...], level: float, right: float) -> dict[str, dict[str, float]]:
        return {
            "raw": numbers(names, right, start + level),
            "temperature": numbers(names, right, (start + level) / 2),
        }

    measured = stages(CLEAN, 0.0, accuracy)
    for row in measured.values():
        row |= {"calibration_p": 0.01 * (1 + seed), "ece_mass_chance": 0.004}
    score = {"auroc": 0.8, "aupr_in": 0.9, "aupr_out": 0.7, "fpr95": 0.5}
    name = f"cifar10-{model}-{method}-s{seed}"
    settings = {"epochs": 2, "batch_size": 8, "learning_rate": 0.1}
    result = {
        "format": "bench-cell/1",
        "name": name,
        "cell": {
            "dataset": "cifar10",
            "model": model,
            "seed": seed,
            "method": {"name": method},
            "settings": settings,
        },
        "settings": settings,
        "measured": measured,
        "validation": {"raw": {"accuracy": accuracy}},
        "foreign": {"tiny32": {"msp": score, "energy": score}, "textures": {"msp": score}},
        "shift": {
            f"{word}-{s}": stages(SHIFTED, 0.1 * s / (1 + (word == "fog")), accuracy - 0.05 * s)
            for word in WORDS
            for s in range(1, 6)
        },
        "log": {"epoch": [0.0, 1.0], "val_nll": [1.0, 0.5 + seed], "gamma0": [0.0, 1.0]},
        "split": {"sizes": {"test": 10000}},
        "hardware": "a GPU",
        "commit": "abc1234",
        "made": "2026-01-01T00:00:00+00:00",
    }
    files.write_json(folder / "cells" / f"{name}.json", result)


@pytest.fixture
def folder(tmp_path) -> Path:
    for seed in range(3):
        write_cell(tmp_path, "cross_entropy", seed)
        write_cell(tmp_path, "adafocal", seed, error=0.01)
    write_cell(tmp_path, "selective_au", 0, accuracy=0.1)
    return tmp_path


def evaluation_of(folder: Path):
    results = Results((folder,), folder / "prepared")
    methods = ("cross_entropy", "adafocal", "selective_au", "none")
    return shift_evaluation(results, "cifar10", methods, ood_sets={"textures": "DTD"})


def test_values_are_means_over_the_seeds_with_students_interval(folder):
    found = evaluation_of(folder)
    error = found.find("ece", model="cross_entropy", stage="raw", group=None)
    assert error.value == pytest.approx(0.03)
    half = 4.302652729911275 * 0.01 / math.sqrt(3)  # Student's t, two degrees of freedom, deviation 0.01
    assert (error.low, error.high) == pytest.approx((0.03 - half, 0.03 + half))
    assert found.find("ece_mass", model="cross_entropy", stage="raw").p_value == 0.03  # of the calmest seed
    assert found.value("auroc", model="adafocal", stage="raw", score="entropy") == pytest.approx(0.02)
    # Of two corruptions at five severities the ECE rises by 0.3 and 0.15 on average.
    assert found.value("ece", model="cross_entropy", stage="raw", group="shift=mean") == pytest.approx(0.03 + 0.225)
    fifth = found.value("ece", model="cross_entropy", stage="temperature", group="shift=severity 5")
    assert fifth == pytest.approx((0.03 + 0.375) / 2)
    assert found.value("fpr95", group="ood=DTD", model="adafocal", score="msp") == 0.5
    assert {m.group for m in found.measurements if (m.group or "").startswith("ood")} == {"ood=DTD", "ood=tiny32"}


def test_cells_of_another_network_are_not_taken_for_its_own(folder):
    write_cell(folder, "cross_entropy", 0, error=0.5, model="resnet34")
    results = Results((folder,), folder / "prepared")
    with pytest.raises(
        InputError, match="'cross_entropy' on 'cifar10' has cells of resnet18 and of resnet34; name one"
    ):
        results.of("cifar10", "cross_entropy")
    found = shift_evaluation(results, "cifar10", ("cross_entropy",), model="resnet18", ood_sets={})
    assert found.value("ece", model="cross_entropy", stage="raw", group=None) == pytest.approx(0.03)
    assert write_page(folder, folder / "out")  # names its network too


def test_curves_hold_cells_boxes_and_logs(folder):
    found = evaluation_of(folder)
    snow = next(c for c in found.curves if c.group == "corruption=snow" and c.stage == "raw")
    assert snow.columns["ece"] == pytest.approx((0.03, 0.13, 0.23, 0.33, 0.43, 0.53))
    boxes = next(c for c in found.curves if c.kind == "shift_ece_boxes" and c.stage == "raw")
    assert boxes.columns["median"][-1] == pytest.approx(0.405)
    assert boxes.columns["high"][-1] == pytest.approx(0.53)
    log = next(c for c in found.curves if c.kind == "training")
    assert log.columns == {"epoch": (0.0, 1.0), "val_nll": (1.0, 1.5)}


def test_a_network_that_did_not_learn_is_told_and_not_drawn(folder):
    write_cell(folder, "adafocal", 3, accuracy=0.1)
    found = evaluation_of(folder)
    assert {m.model for m in found.measurements} == {"cross_entropy", "adafocal"}
    assert found.value("accuracy", model="adafocal", stage="raw", group=None) == pytest.approx(0.9)
    assert found.warnings == (
        "adafocal did not learn with 1 of 4 seeds; they are not in the report.",
        "selective_au did not learn with 1 of 1 seeds; they are not in the report.",
    )


def test_methods_are_compared_by_the_seeds_they_share(tmp_path):
    for seed, gap in enumerate((0.0101, 0.01, 0.0099)):
        write_cell(tmp_path, "cross_entropy", seed, error=0.05)
        write_cell(tmp_path, "adafocal", seed, error=0.05 - gap)
    test = next(c for c in evaluation_of(tmp_path).comparisons if c.metric == "nll" and c.a.stage == "raw")
    assert (str(test.a), str(test.b)) == ("cross_entropy/raw", "adafocal/raw")
    assert test.difference == pytest.approx(-0.01)
    assert test.low < -0.01 < test.high < 0
    assert test.p_value == pytest.approx(3.333e-5, rel=1e-3)
    assert test.better == "b"


def test_the_page_its_drawings_and_the_report(folder, tmp_path):
    out = tmp_path / "out"
    page, report, *drawn = write_page(folder, out)
    text = page.read_text(encoding="utf-8")
    assert "mean ± standard deviation over 1 or 3 seeds" in text
    assert "| cross_entropy | 90.00 ± 0.00 | 75.00 ± 0.00 | 3.00 ± 1.00 | 25.50 ± 1.00 |" in text
    assert "| as trained | cross_entropy | 10.50 ± 1.00 |" in text
    assert "| DTD | msp | adafocal | 80.00 ± 0.00 | 90.00 ± 0.00 | 70.00 ± 0.00 | 50.00 ± 0.00 |" in text
    assert "| selective_au | 10.00 |" in text  # in the tables also what did not learn
    assert "| snow | 13.0 / 23.0 / 33.0 / 43.0 / 53.0 |" in text
    for path in drawn:
        assert f"](shift_cifar10/{path.name})" in text
        assert ElementTree.parse(path).getroot().tag.endswith("svg")
    html = report.read_text(encoding="utf-8")
    assert "Values are means over 3 seeds; small figures are 95\u202f% intervals over them (Student&#39;s t)." in html
    assert 'id="shift"' in html
    assert 'id="reliability"' not in html
    assert 'href="#reliability"' not in html


def test_a_drawing_stands_alone_with_its_colours():
    svg = '<svg viewBox="0 0 10 10" role="img" aria-label="x"><path class="f1 k1 bx" d="M1 1h2v2z"/>'
    svg += '<text x="1" y="2" class="l e">name</text></svg>'
    root = ElementTree.fromstring(standing_alone(svg))
    path = next(e for e in root if e.tag.endswith("path"))
    assert path.attrib["fill"] == path.attrib["stroke"] == "#0A6478"
    assert path.attrib["fill-opacity"] == "0.28"
    text = next(e for e in root if e.tag.endswith("text"))
    assert text.attrib["text-anchor"] == "end"
    assert "class" not in text.attrib


def test_without_cells_under_shift_one_line_says_what_to_do(tmp_path):
    write_cell(tmp_path, "cross_entropy", 0)
    path = next((tmp_path / "cells").iterdir())
    files.write_json(path, {**json.loads(path.read_text()), "shift": {}})
    with pytest.raises(InputError, match="no cell of 'cifar10' holds corruptions; run `python -m benchmarks grid`"):
        evaluation_of(tmp_path)
    assert write_page(tmp_path, tmp_path / "out") == []


def test_a_report_about_everything_has_every_section(folder):
    assert 'id="reliability"' in render_report(evaluation_of(folder))


@pytest.mark.parametrize("name", ["p1-table4", "p5-figure6"])
def test_a_page_of_ood_images_names_the_cells_that_saw_other_ones(name):
    item = items()[name]
    seen = {method: set() for method in item.methods}
    for path in (ROOT / "benchmarks" / "results" / "lite" / "cells").glob("cifar10-resnet18-*.json"):
        one = files.read_json(path)
        if one["commit"] == WITH_FREIGHT_CARS and one["cell"]["method"]["name"] in seen:
            seen[one["cell"]["method"]["name"]].add(one["cell"]["seed"])
    told = item.here.partition("Seeds 0 and 1 of ")[2].partition(" also saw 50 freight cars")[0]
    assert {method: seeds for method, seeds in seen.items() if seeds} == {
        method: {0, 1} for method in told.replace(" and", ",").split(", ") if method
    }
