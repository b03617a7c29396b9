"""The section on shift: boxes at every stage and of trust predictors, heat maps side by side, OOD sets."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from confide.report import render_report
from confide.report.sections.shift import calibration_boxes, first_boxes, shift_section
from confide.report.view import EvaluationView
from confide.results import Curve, Evaluation, Measurement

STEPS = (0.0, 1.0, 3.0, 5.0)


def boxes(kind: str, start: float, model: str = "first", stage: str = "raw", score: str | None = None) -> Curve:
    """Boxes that grow with the severity; the extremes lie a tenth around the median."""
    middle = [start + 0.04 * s for s in STEPS]
    names = {"low": -0.1, "lower_quartile": -0.05, "median": 0.0, "upper_quartile": 0.05, "high": 0.1}
    columns = {"severity": STEPS, **{name: tuple(m + d for m in middle) for name, d in names.items()}}
    return Curve(kind, columns, model, stage, "test", score=score)


def cells(model: str, what: str, stage: str = "raw") -> list[Curve]:
    return [
        Curve("shift_cells", {"severity": STEPS, what: (0.01, 0.02, slope, 2 * slope)}, model, stage, "test", group)
        for group, slope in (("corruption=fog", 0.05), ("corruption=snow", 0.12))
    ]


def errors(model: str, stage: str, beyond: int, score: str | None = None) -> list[Measurement]:
    """Calibration errors of four cells of the last severity, so many of them beyond what chance would show."""
    return [
        Measurement("ece", 0.1, 100, "test", stage, f"shift={word}/5", model, score, 0.05, 0.08 if k < beyond else 0.12)
        for k, word in enumerate(("fog", "snow", "frost", "spatter"))
    ]


def area(model: str, group: str, score: str, value: float, metric: str = "auroc") -> Measurement:
    bounds = (value - 0.02, value + 0.02)
    return Measurement(metric, value, 100, "test", "raw", group, model, score, bounds=bounds)


@pytest.fixture
def found() -> Evaluation:
    """Two models as trained and after temperature scaling, one trust predictor, two OOD sets."""
    models, stages = ("first", "second"), ("raw", "temperature")
    measurements = [
        Measurement(metric, 0.9, 100, "test", stage, model=model)
        for model in models
        for stage in stages
        for metric in ("accuracy", "ece")
    ]
    curves: list[Curve] = []
    for model in models:
        measurements += [*errors(model, "temperature", 4), *errors(model, "raw", 4, "trust:steep_slope")]
        curves += [boxes("shift_boxes", 0.1, model, stage) for stage in stages]
        curves += [boxes("shift_ece_boxes", 0.3 if stage == "raw" else 0.15, model, stage) for stage in stages]
        curves.append(boxes("shift_trust_ece_boxes", 0.2, model, score="trust:steep_slope"))
        curves += cells(model, "gap", "temperature")
        for group, value in (("ood=digits", 0.8), ("ood=textures", 0.7)):
            for metric in ("auroc", "aupr_in", "aupr_out", "fpr95"):
                measurements += [area(model, group, score, value, metric) for score in ("msp", "energy")]
    return Evaluation(tuple(measurements), tuple(curves))


def test_calibration_is_drawn_as_trained_after_calibrators_and_of_trust_on_one_scale(found):
    before, after, trust = calibration_boxes(EvaluationView(found))
    assert (before.name, after.name, trust.name) == ("severity-ece-before", "severity-ece", "severity-ece-trust")
    assert "as trained" in before.subtitle
    assert "after temperature scaling on clean data" in after.subtitle
    assert "by steep_slope, fitted on clean data" in trust.subtitle
    # 30 points at the median as trained, 15 after, 20 of the trust predictor: the same ticks.
    ticks = [re.findall(r'class="e">([^<]*)<', str(f.svg)) for f in (before, after, trust)]
    assert ticks[0] == ticks[1] == ticks[2] == ["0", "10", "20", "30", "40", "50", "60"]
    assert trust.table.rows[0] == ("first", "clean", "10.0", "15.0", "20.0", "25.0", "30.0")
    page = render_report(found)
    assert "Trust&#39;s chances are lost as samples get worse" in page


def test_several_trust_predictors_are_those_of_the_model_in_focus(found):
    more = boxes("shift_trust_ece_boxes", 0.25, "first", score="trust:other")
    drawn = calibration_boxes(EvaluationView(replace(found, curves=(*found.curves, more))))[-1]
    assert {row[0] for row in drawn.table.rows} == {"steep_slope", "other"}
    assert drawn.table.header[0] == "Trust predictor"
    assert "predictors of first" in drawn.subtitle


def test_one_stage_alone_is_drawn_once(found):
    raw = [c for c in found.curves if c.stage == "raw" and "trust" not in c.kind]
    alone = replace(found, curves=tuple(raw))
    assert [f.name for f in calibration_boxes(EvaluationView(alone))] == ["severity-ece"]


def test_without_gaps_the_error_as_trained_stands_first_and_in_the_heat_map(found):
    curves = [c for c in found.curves if c.kind not in ("shift_boxes", "shift_cells")]
    view = EvaluationView(replace(found, curves=(*curves, *cells("first", "ece"), *cells("second", "ece"))))
    first = first_boxes(view)
    assert first is not None
    assert "ECE over the corruptions, as trained" in first.subtitle
    assert [f.name for f in calibration_boxes(view)] == ["severity-ece", "severity-ece-trust"]
    heat = shift_section(view).corruptions[1]
    assert heat.title == "At severity 5 the ECE is highest under snow, lowest under fog"
    assert "ECE of <code>first</code> by corruption and severity, as trained" in heat.subtitle
    assert ("snow", "5", "24.0") in heat.table.rows
    assert "±" not in heat.note


def test_every_model_has_its_heat_map(found):
    section = shift_section(EvaluationView(found))
    assert [f.name for f in section.others] == ["corruptions-second"]
    assert ("snow", "5", "+24.0") in section.others[0].table.rows


def test_heat_maps_share_one_order_of_rows(found):
    """Snow is worst for the first model, fog for the second: both list snow first, as the model in focus does."""
    turned = {"corruption=fog": "corruption=snow", "corruption=snow": "corruption=fog"}
    curves = [
        replace(c, group=turned[str(c.group)]) if c.kind == "shift_cells" and c.model == "second" else c
        for c in found.curves
    ]
    section = shift_section(EvaluationView(replace(found, curves=tuple(curves))))
    for figure in (section.corruptions[1], *section.others):
        assert figure.table.rows[0][0] == "snow"


def test_the_widest_gap_is_the_farthest_from_zero_on_either_side(found):
    """Fog ends at +1 point and snow at -24: snow has the widest gap, though it makes no model overconfident."""
    curves = [
        replace(c, columns={**c.columns, "gap": (0.0, 0.0, 0.0, -0.24 if c.group == "corruption=snow" else 0.01)})
        if c.kind == "shift_cells"
        else c
        for c in found.curves
    ]
    heat = shift_section(EvaluationView(replace(found, curves=tuple(curves)))).corruptions[1]
    assert heat.title == "At severity 5 the gap is widest under snow, narrowest under fog"
    assert heat.table.rows[0][0] == "snow"


@pytest.mark.parametrize(("beyond", "claimed"), [(4, True), (3, True), (2, False), (0, False)])
def test_a_loss_is_claimed_only_where_most_cells_show_more_error_than_chance(found, beyond, claimed):
    kept = [m for m in found.measurements if not (m.group or "").startswith("shift=")]
    for model in ("first", "second"):
        kept += [*errors(model, "temperature", beyond), *errors(model, "raw", beyond, "trust:steep_slope")]
    view = EvaluationView(replace(found, measurements=tuple(kept)))
    gap, (_, after, trust) = first_boxes(view), calibration_boxes(view)
    assert gap is not None
    titles = [str(f.title) for f in (gap, after, trust)]
    assert [" as samples get worse" in title for title in titles] == [claimed] * 3, titles


def test_confidence_that_stays_below_accuracy_does_not_outrun_it(found):
    down = [
        replace(c, columns={k: v if k == "severity" else tuple(x - 0.5 for x in v) for k, v in c.columns.items()})
        if c.kind == "shift_boxes"
        else c
        for c in found.curves
    ]
    gap = first_boxes(EvaluationView(replace(found, curves=tuple(down))))
    assert gap is not None
    assert gap.title == "Confidence minus accuracy by severity"


def test_every_ood_set_has_all_scores_models_and_measures(found):
    digits, textures = shift_section(EvaluationView(found)).areas
    assert digits.name == "ood-areas-digits"
    assert [row[:2] for row in textures.table.rows] == [
        ("first", "confidence"),
        ("first", "energy"),
        ("second", "confidence"),
        ("second", "energy"),
    ]
    assert textures.table.header[2::2] == ("AUROC", "AUPR, known", "AUPR, OOD", "FPR at 95\u202f% TPR")
    assert textures.table.rows[0][2:4] == ("70.0\u202f%", "68.0–72.0")
    assert str(textures.svg).count("<circle") == 4


def test_of_more_than_five_models_the_first_are_drawn_and_it_is_said(found):
    curves = [replace(c, model=f"model {k}") for c in found.curves for k in range(7) if c.model == "first"]
    rows = [replace(m, model=f"model {k}") for m in found.measurements for k in range(7) if m.model == "first"]
    section = shift_section(EvaluationView(replace(found, measurements=tuple(rows), curves=tuple(curves))))
    for figure in (section.corruptions[0], *section.calibration, *section.areas):
        assert figure.note == "5 of 7 models are drawn; the table of models has all."
        assert {row[0] for row in figure.table.rows} == {f"model {k}" for k in range(5)}
    assert len(section.others) == 4
