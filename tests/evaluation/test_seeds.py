"""Groups of runs: both sources of chance are in the interval, by simulation; and what the command line shows."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats

from confide import Predictions, evaluate
from confide.checks import InputError
from confide.cli.main import main
from confide.evaluation import compare_groups, over_seeds
from confide.evaluation.compare import student_tail
from confide.metrics.influence import Spread, mean_interval
from confide.results import Curve, Evaluation, Measurement


def groups(draw, sizes=(3, 3), n=300, of_seeds=0.3, of_samples=0.5, gain=0.0):
    """Runs of two ways of training that differ by `gain`, by what each makes of the samples, and by their seeds."""
    base = draw.normal(1, 1, n)
    sides = []
    for k, size in enumerate(sizes):
        way = base + draw.normal(0, of_samples, n) + k * gain
        odds = [way + draw.normal(0, of_seeds) + draw.normal(0, 0.5, n) for _ in range(size)]
        sides.append([Predictions.from_pairs(z > 0, 1 / (1 + np.exp(-np.abs(z)))) for z in odds])
    return sides


@pytest.mark.parametrize(
    "settings", [{}, {"sizes": (2, 2)}, {"of_seeds": 0.0}, {"of_samples": 0.0}, {"sizes": (3, 5)}], ids=str
)
def test_the_interval_holds_the_truth_as_often_as_it_says(settings):
    draw = np.random.default_rng(0)
    rows = [compare_groups(*groups(draw, **settings), metrics=["accuracy"])[0] for _ in range(200)]
    inside = sum(row.low <= 0 <= row.high for row in rows)
    assert inside >= 180  # 190 expected; fewer than 180 has a probability below 0.002
    assert sum(row.better is not None for row in rows) <= 20


def test_of_the_largest_gap_groups_have_means_and_no_interval():
    a, b = groups(np.random.default_rng(3))
    row = compare_groups(a, b, metrics=["mce"])[0]
    assert row.difference == row.mean_b - row.mean_a != 0
    assert row.sd_seeds > 0
    assert np.isnan([row.low, row.high, row.sd_samples, row.p_value, row.p_holm]).all()
    assert row.better is None


def test_a_run_whose_value_is_missing_leaves_no_test():
    a, b = groups(np.random.default_rng(3))
    a[0] = Predictions.from_pairs(np.ones(300, dtype=bool), np.linspace(0.5, 0.9, 300))  # without errors no AUROC
    row = compare_groups(a, b, metrics=["auroc"])[0]
    assert np.isnan([row.difference, row.low, row.p_value]).all()
    assert row.better is None


def test_a_real_gain_is_found_and_its_parts_are_told():
    a, b = groups(np.random.default_rng(1), sizes=(5, 5), n=2000, of_seeds=0.05, gain=1.0)
    rows = {row.metric: row for row in compare_groups(a, b, metrics=["accuracy", "aurc"])}
    row = rows["accuracy"]
    accuracy = [np.mean([float(p.facts.correct.double().mean()) for p in side]) for side in (a, b)]
    assert (row.mean_a, row.mean_b) == pytest.approx(accuracy)
    assert row.better == rows["aurc"].better == "b"
    assert row.low < row.difference < row.high
    assert row.sd_seeds > 0
    assert row.sd_samples > 0


def test_single_runs_and_other_samples_are_refused():
    a, b = groups(np.random.default_rng(2))
    with pytest.raises(InputError, match="at least two runs each, got 1 and 3"):
        compare_groups(a[:1], b)
    with pytest.raises(InputError, match="compare needs the same samples"):
        compare_groups(a, [p.take(range(100)) for p in b])


def test_the_command_compares_files_of_runs(tmp_path, capsys):
    for name, side in zip(("plain", "new"), groups(np.random.default_rng(3), gain=1.0), strict=True):
        for k, run in enumerate(side):
            run.save(tmp_path / f"{name}-{k}.csv")
    files = [[str(tmp_path / f"{name}-{k}.csv") for k in range(3)] for name in ("plain", "new")]
    words = ["compare", *files[0], "--against", *files[1], "--metrics", "accuracy", "auroc"]
    assert main([*words, "--names", "plain", "new"]) == 0
    shown = capsys.readouterr().out
    assert "plain (mean ±sd)" in shown
    assert "3 and 3 runs, paired by the order of their names, on 300 samples" in shown
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["mean_b"] > 0.8
    assert main([*words[:-2], "ece", "auroc"]) == 0
    shown = capsys.readouterr().out
    error, area = (next(line for line in shown.splitlines() if line.startswith(word)) for word in ("ece", "auroc"))
    assert re.search(r"±\d\.\d+ \(0\.\d+\).*±\d\.\d+ \(0\.\d+\)", error)
    assert "(" not in area
    assert "in brackets: what perfectly calibrated runs would show by chance" in shown


def test_over_seeds_covers_the_mean_of_all_seeds_and_samples():
    # Odds are normal with mean 1 and variance 1 + .25 + .09 + .25, so 78.6 % are above 0.
    draw, covered = np.random.default_rng(3), 0
    for _ in range(60):
        runs, _ = groups(draw, sizes=(3, 3), n=300)
        evaluations = [evaluate(run, "accuracy") for run in runs]
        accuracy = over_seeds(evaluations, "a").find("accuracy", group=None)
        covered += accuracy.low <= 0.786 <= accuracy.high
    assert covered >= 54  # 57 expected at least


@pytest.mark.parametrize("freedom", [1, 2, 3, 7, 30, 40])
def test_p_is_below_5_percent_where_the_interval_of_few_runs_leaves_0_out(freedom):
    spread = Spread(1.0, freedom, 1000)
    _, half = mean_interval(0.0, spread)
    assert student_tail(1.01 * half, spread) < 0.05 < student_tail(0.995 * half, spread)
    assert student_tail(4.0, spread) == pytest.approx(2 * scipy.stats.t.sf(4.0, freedom), rel=2e-3)


def run(*rows, curves=()):
    return Evaluation(tuple(rows), tuple(curves))


def test_a_mean_over_seeds_tells_both_sources_of_chance():
    values, halves = np.array([0.80, 0.81, 0.83]), np.array([0.01, 0.02, 0.03])
    runs = [
        run(
            Measurement("accuracy", v, 100, bounds=(v - h, v + 2 * h)),
            Measurement("ece_mass", v - 0.8, 100, chance=0.1 + h, chance_high=0.2 + h, p_value=h),
        )
        for v, h in zip(values.tolist(), halves.tolist(), strict=True)
    ]
    found = over_seeds(runs, "three")
    accuracy, error = found.measurements
    sd = values.std(ddof=1)
    of_seeds = 4.302652729911275 * sd / np.sqrt(3)  # Student's t of two degrees of freedom
    assert accuracy.model == error.model == "three"
    assert (accuracy.value, accuracy.sd) == pytest.approx((values.mean(), sd))
    ends = np.sqrt((halves**2).mean() + of_seeds**2), np.sqrt((4 * halves**2).mean() + of_seeds**2)
    assert (accuracy.low, accuracy.high) == pytest.approx((values.mean() - ends[0], values.mean() + ends[1]))
    assert (accuracy.chance, accuracy.chance_high, accuracy.p_value) == (None, None, None)
    assert (error.chance, error.chance_high, error.p_value) == pytest.approx((0.12, 0.22, 0.03))
    assert found.about.seeds == {"three": 3}


def test_an_interval_over_seeds_stays_where_the_metric_can_be():
    """Two runs far apart: Student's t makes the interval many times as wide as their distance."""
    wide = {
        word: over_seeds([run(Measurement(word, v, 9, bounds=(v, v))) for v in (0.4, 0.6)], "two").find(word)
        for word in ("accuracy", "ece", "nll", "confidence_gap")
    }
    assert (wide["accuracy"].low, wide["accuracy"].high) == (0, 1)
    assert wide["ece"].low == 0
    assert wide["nll"].high > 1
    assert wide["confidence_gap"].low < 0


def test_of_one_run_there_is_no_mean_over_seeds():
    with pytest.raises(InputError, match="needs two runs or more, got 1"):
        over_seeds([run(Measurement("accuracy", 0.5, 9))], "one")


def test_rows_that_not_every_run_has_are_left_out_and_those_of_one_name_keep_their_order():
    first, second = (Measurement("nll", v, 9, group="class=a") for v in (1.0, 3.0))
    other = Measurement("brier", 0.5, 9)
    found = over_seeds([run(first, second, other), run(second, first)], "two").measurements
    assert [(row.metric, row.value) for row in found] == [("nll", 2.0), ("nll", 2.0)]
    found = over_seeds([run(first, second), run(replace(first, value=2.0), replace(second, value=5.0))], "two")
    assert [row.value for row in found.measurements] == [1.5, 4.0]


def mean_curve(kind, *tables):
    runs = [run(Measurement("accuracy", 0.5, 9), curves=[Curve(kind, table, split="test")]) for table in tables]
    found = over_seeds(runs, "all").curves
    assert all(curve.model == "all" and curve.split == "test" for curve in found)
    return [dict(curve.columns) for curve in found]


def test_of_trainings_the_epochs_are_drawn_that_every_seed_has():
    tables = (
        {"epoch": (1.0, 2.0, 3.0), "val_loss": (3.0, 2.0, 1.0), "own": (0.0, 0.0, 0.0)},
        {"epoch": (2.0, 3.0), "val_loss": (4.0, 5.0)},
        {"epoch": (0.0, 2.0, 3.0), "val_loss": (9.0, 6.0, 3.0)},
    )
    assert mean_curve("training", *tables) == [
        {
            "epoch": (2.0, 3.0),
            "val_loss": (4.0, 3.0),
            "val_loss_seed_low": (2.0, 1.0),
            "val_loss_seed_high": (6.0, 5.0),
        }
    ]


def test_of_risk_at_coverage_the_lines_are_read_at_the_coverages_of_the_first():
    tables = (
        {"coverage": (0.25, 0.5, 1.0), "risk": (0.0, 0.1, 0.2), "threshold": (0.9, 0.5, 0.1)},
        {"coverage": (0.5, 0.75, 1.0), "risk": (0.3, 0.2, 0.4), "threshold": (0.9, 0.5, 0.1)},
    )
    (found,) = mean_curve("risk_coverage", *tables)
    assert found["coverage"] == (0.25, 0.5, 1.0)
    assert found["risk"] == pytest.approx((0.15, 0.2, 0.3))
    assert (found["risk_seed_low"], found["risk_seed_high"]) == ((0.0, 0.1, 0.2), (0.3, 0.3, 0.4))


def test_bins_count_by_their_samples_and_an_empty_one_for_nothing():
    tables = (
        {"low": (0.0, 0.5), "high": (0.5, 1.0), "confidence": (0.4, 0.9), "accuracy": (0.5, 1.0), "count": (1.0, 4.0)},
        {"low": (0.0, 0.5), "high": (0.5, 1.0), "confidence": (0.2, np.nan), "accuracy": (0.1, np.nan)}
        | {"count": (3.0, 0.0)},
    )
    for kind in ("reliability_width", "reliability_mass"):
        (found,) = mean_curve(kind, *tables)
        assert found["confidence"] == pytest.approx((0.25, 0.9))
        assert found["accuracy"] == pytest.approx((0.2, 1.0))
        assert found["count"] == (2.0, 2.0)
    edges = {"low": (0.0, 1.0), "high": (1.0, 2.0)}
    (found,) = mean_curve(
        "error_by_difficulty", *({**edges, "error": (e, np.nan), "count": (3.0, 0.0)} for e in (0.2, 0.4))
    )
    assert found["error"][0] == pytest.approx(0.3)
    assert np.isnan(found["error"][1])


def test_curves_of_other_lengths_have_no_mean():
    assert mean_curve("drawn", {"right": (1.0, 2.0)}, {"right": (1.0,)}) == []
