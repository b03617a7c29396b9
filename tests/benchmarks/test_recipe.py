"""The recipe's target, point by point, in words that fit whether it is met, missed or still open."""

from __future__ import annotations

import shutil

import pytest

from benchmarks.findings.cells import cell_tables
from benchmarks.findings.recipe import check_table, points, sentence, where_the_gap_is


def cell(accuracy: float, p: float, nll: float = 0.25, aurc: float = 0.01) -> dict:
    row = {"accuracy": accuracy, "calibration_p": p, "nll": nll, "aurc": aurc, "ece_mass": 0.01, "auroc": 0.9}
    row |= {"ece_mass_chance": 0.005, "confidence_gap": 0.001}
    method = {"calibrator": "temperature"}
    return {"measured": {"raw": row, "temperature": row}, "validation": {"raw": row}, "method": method}


def grid(seeds: int = 5, p: float = 0.5, nll: float = 0.2, accuracy: float = 0.93) -> dict:
    return {
        "cross_entropy": {seed: cell(0.92 + seed / 1000, 0.01) for seed in range(seeds)},
        "confide": {seed: cell(accuracy + seed / 900, p, nll, nll / 25) for seed in range(seeds)},
        "recorded": {seed: cell(0.92, 0.5, 0.01, 0.001) for seed in range(seeds)},
    }


def test_a_target_that_is_met_says_so():
    found = points(grid(), 0.3)
    assert [one.state for one in found] == ["met"] * 5
    assert sentence(found).startswith("The recipe `confide` meets its target on CIFAR-10")
    # `recorded` is no row of the main table: its lower NLL does not count.
    assert found[3].outcome.startswith("rank 1 of 2: 0.2000 ± 0.0000; the next is `cross_entropy` with 0.2500")
    assert "+1.02 points over 5 shared seeds" in found[0].outcome


def test_a_target_that_is_missed_names_what_and_by_how_much():
    found = points(grid(p=0.01, nll=0.3, accuracy=0.9), 0.001)
    assert [one.state for one in found] == ["missed"] * 5
    assert "the best is `cross_entropy`" in found[3].outcome
    assert "0 of 5 above 0.05" in found[1].outcome
    assert "misses its target" in sentence(found)
    assert check_table(found).count("**missed**") == 5


def test_a_missed_test_is_told_where_the_gap_is():
    cells = grid(p=0.01)
    for one in cells["confide"].values():
        rows = {"accuracy": 0.94, "confidence_gap": 0.02}, {"accuracy": 0.93, "confidence_gap": 0.024}
        one["validation"] = {"raw": rows[0]}
        one["measured"] = {"raw": {**one["measured"]["raw"], **rows[1]}, "temperature": one["measured"]["temperature"]}
        one["measured"]["temperature"] = {**one["measured"]["temperature"], "confidence_gap": 0.007}
    why = where_the_gap_is(cells)
    assert "+2.00 points on val and +2.40 on test (accuracy 94.00 and 93.00 %)" in why
    assert "Of the +0.70 points that the calibrator leaves on test, +0.40 are this difference" in why
    assert "know to 0.34 points (standard error)" in why
    assert why.endswith("+0.30 are its own.")
    assert check_table(points(cells, 0.001), why).endswith(why)
    assert why not in check_table(points(grid(), 0.3), why)


def test_an_earlier_choice_counts_as_a_rival_of_a_later_one_but_not_the_reverse():
    cells = grid()
    cells["cross_entropy_averaged"] = {seed: cell(0.93, 0.01, 0.19, 0.007) for seed in range(5)}
    assert points(cells, 0.3)[3].outcome.startswith("rank 2 of 3")
    cells["adaptive_difficulty_averaged"] = {seed: cell(0.93, 0.01, 0.18, 0.007) for seed in range(5)}
    assert points(cells, 0.3)[3].outcome.startswith("rank 3 of 4")
    assert points(cells, 0.3, "adaptive_difficulty_averaged")[3].outcome.startswith("rank 1 of 3")
    first = points(cells, 0.001, "cross_entropy_averaged")
    assert first[3].outcome.startswith("rank 1 of 2")
    assert sentence(first, "The first choice").startswith("The first choice misses")


def test_fewer_seeds_than_asked_leave_it_open_while_it_can_be_met():
    found = points(grid(seeds=2), 0.3)
    assert [one.state for one in found[1:3]] == ["open", "open"]
    assert "has not shown its target yet" in sentence(found)
    assert points(grid(seeds=2, p=0.01), 0.3)[1].state == "missed"


def test_without_its_cells_nothing_is_said():
    assert points({"cross_entropy": {0: cell(0.9, 0.5)}}) == []
    assert check_table([]) == sentence([])
    assert "has not been run" in sentence([])


def test_a_question_is_answered_by_paired_differences():
    cells = {
        "dual_focal": {seed: cell(0.90 + seed / 1000, 0.5) for seed in range(5)},
        "dual_focal_released": {seed: cell(0.92 + seed / 1100, 0.5) for seed in range(5)},
    }
    said = cell_tables(cells)["pairs-dual"]
    assert "| `dual_focal` less `dual_focal_released` | 5 | -1.98 (p" in said
    assert "`dual_focal` has a lower accuracy than `dual_focal_released`." in said
    assert cell_tables(cells)["pairs-adafocal"] == ""


@pytest.mark.slow
def test_everything_is_renewed_by_one_command_and_a_second_changes_nothing(tmp_path, monkeypatch):
    from benchmarks import evidence

    into = tmp_path / "into"
    for page in ("README.md", "docs/findings.md", "benchmarks/results/findings.md"):
        (into / page).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(evidence.ROOT / page, into / page)
    shutil.copytree(evidence.ROOT / "benchmarks" / "results" / "lite" / "cells", tmp_path / "lite" / "cells")
    monkeypatch.setattr("sys.argv", ["evidence", "--cells", str(tmp_path / "lite"), "--into", str(into)])
    assert evidence.main() == 0
    first = {path: path.read_bytes() for path in into.rglob("*") if path.is_file()}
    assert evidence.main() == 0
    assert {path: path.read_bytes() for path in into.rglob("*") if path.is_file()} == first
    assert len(first) > 30
