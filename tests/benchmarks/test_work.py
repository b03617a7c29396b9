"""Grids: whole cells, failures that stop nothing, time limits, kill and resume, archives."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.lib.cells import calibrator_of, numbers, read_predictions, run_cell
from benchmarks.lib.grid import Cell, Method, lite_cells
from benchmarks.lib.results import CALIBRATED, Results, measured, pack, unpack
from benchmarks.lib.sources import Sources, keep_corrupted, prepare
from benchmarks.lib.workers import _expected, grid_state, run_grid, work
from confide.checks import InputError
from confide.data import load_dataset
from confide.features import extract
from confide.training import fit
from tests.benchmarks.conftest import cells

PLAIN = Method("cross_entropy")
HARD = Method("difficulty_entropy", "difficulty_entropy", {"alpha": 0.3}, difficulty=True)
BROKEN = Method("broken", "focal", {"gamma": -1.0})


def result(place, cell: Cell) -> dict:
    return json.loads((place.out / "cells" / f"{cell.name}.json").read_text())


def test_a_cell_tells_everything_about_itself(place):
    grid = cells(PLAIN, HARD)
    outcome = run_grid(grid, place)
    assert outcome.done == tuple(cell.name for cell in grid)
    found = result(place, grid[1])
    assert found["settings"]["loss_options"] == {"alpha": 0.3}
    # Ranks r / (n - 1) with T = 0.3: the mean of exp((r - 1) / 0.3) is 0.3 (1 - exp(-1 / 0.3)) = 0.289.
    assert found["strength"] == pytest.approx(0.3 * 0.289, rel=0.02)
    assert set(found["measured"]) == {"raw", "temperature"}
    assert found["split"]["sizes"] == {"train": 90, "val": 90, "test": 90}
    for name in ("commit", "hardware", "command", "versions", "seconds", "made"):
        assert name in found
    kept = read_predictions(place.out / "predictions" / f"{grid[1].name}.npz")
    accuracy = (kept.logits.argmax(1) == kept.labels).float().mean()
    assert float(accuracy) == pytest.approx(found["measured"]["raw"]["accuracy"])


@pytest.mark.slow
def test_a_calibrator_by_difficulty_is_measured_on_clean_and_on_corrupted_images(place):
    plain = replace(PLAIN, shifted=True)
    banded = replace(
        plain,
        name="banded",
        calibrator="by_difficulty",
        calibrated={"word": "temperature", "by": "difficulty", "bands": 3, "shrinkage": 0.0},
    )
    grid = cells(plain, banded)
    assert grid[0].key != grid[1].key
    run_grid(grid, place)
    assert "corrupted_bands of 'fashion-sample' must lie at" in grid_state(grid, place.out).failed[grid[1].name]
    sources = Sources({}, place.prepared, place.limit)
    keep_corrupted(sources, "fashion-sample", extract("pixels", sources.dataset("fashion-sample"), "train"), "pixels")
    run_grid(grid, place)
    found = result(place, grid[1])
    assert set(found["measured"]) == {"raw", "temperature", "by_difficulty"}
    assert set(found["shift"]["fog-3"]) == {"raw", "temperature", "by_difficulty"}
    assert found["shift"]["fog-3"]["by_difficulty"]["nll"] != found["shift"]["fog-3"]["temperature"]["nll"]
    # The kept predictions carry what the calibrator goes by: the same numbers come out of them again.
    val, test = (
        read_predictions(place.out / "predictions" / f"{grid[1].name}.npz", split) for split in ("val", "test")
    )
    again = numbers(calibrator_of("by_difficulty", found["method"]["calibrated"], val)(test))
    assert again["nll"] == pytest.approx(found["measured"]["by_difficulty"]["nll"], rel=2e-3)
    results = Results((place.out,), place.prepared)
    shown = measured(results, ["fashion-sample"], ["cross_entropy", "banded"], ["nll"], [CALIBRATED])
    assert {value.method: value.value for value in shown} == {
        "cross_entropy": result(place, grid[0])["measured"]["temperature"]["nll"],
        "banded": found["measured"]["by_difficulty"]["nll"],
    }


def test_corrupted_images_are_scored_where_a_calibrator_goes_by_it_and_nothing_is_made_twice(tmp_path, monkeypatch):
    sources = Sources({}, tmp_path, limit=60)
    plain = replace(PLAIN, shifted=True)
    monkeypatch.setattr("benchmarks.lib.sources.METHODS", (plain,))
    prepare(sources, "fashion-sample", extractor="pixels")
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("*.parquet")}
    assert "fashion-sample-bands.parquet" in before
    assert "fashion-sample-corrupted_bands.parquet" not in before
    banded = replace(plain, calibrator="banded", calibrated={"word": "temperature", "by": "difficulty", "bands": 2})
    monkeypatch.setattr("benchmarks.lib.sources.METHODS", (banded,))
    prepare(sources, "fashion-sample", extractor="pixels")
    scores = sources.scores("fashion-sample", "corrupted_bands")
    assert len(scores) == 16 * 5 * 60
    assert {name: (tmp_path / name).stat().st_mtime_ns for name in before} == before


def test_the_same_seed_gives_the_same_numbers(place, tmp_path):
    grid = cells(PLAIN)
    run_grid(grid, place)
    again = replace(place, out=tmp_path / "again")
    run_grid(grid, again)
    first, second = result(place, grid[0]), result(again, grid[0])
    assert first["measured"] == second["measured"]
    assert first["log"] == second["log"]


def test_a_failed_cell_stops_no_other(place):
    grid = cells(BROKEN, Method("unscored", "difficulty_entropy"), PLAIN)
    outcome = run_grid(grid, place)
    assert outcome.done == (grid[2].name,)
    assert set(outcome.failed) == {grid[0].name, grid[1].name}
    assert "gamma of loss 'focal'" in outcome.failed[grid[0].name]
    assert all("\n" not in line for line in outcome.failed.values())


def test_a_training_that_diverged_is_repeated_with_clipped_gradients(place, monkeypatch):
    def diverges_unclipped(dataset, settings, **given):
        if settings.clip_norm is None:
            raise InputError("the loss became NaN or infinite at epoch 7, step 6, batch with ids a, b, ...")
        return fit(dataset, settings, **given)

    monkeypatch.setattr("benchmarks.lib.cells.fit", diverges_unclipped)
    grid = cells(PLAIN)
    run_grid(grid, place)
    found = result(place, grid[0])
    assert found["rescued"] == "the loss became NaN or infinite at epoch 7; repeated with clip_norm 1"
    assert found["settings"]["clip_norm"] == 1.0
    assert grid_state(grid, place.out).done == (grid[0].name,)


def test_a_whole_cell_is_not_made_again_but_a_changed_one_is(place):
    grid = cells(PLAIN)
    run_grid(grid, place)
    path = place.out / "cells" / f"{grid[0].name}.json"
    before = path.stat().st_mtime_ns
    run_grid(grid, place)
    assert path.stat().st_mtime_ns == before
    compiled = [replace(grid[0], settings={**grid[0].settings, "compile": True})]
    assert grid_state(compiled, place.out).done == (grid[0].name,)
    changed = [replace(grid[0], settings={**grid[0].settings, "learning_rate": 0.01})]
    assert grid_state(changed, place.out).left == (grid[0].name,)
    run_grid(changed, place)
    assert path.stat().st_mtime_ns > before


def test_no_cell_starts_that_would_end_after_the_time_limit(place):
    grid = cells(PLAIN, seeds=50)
    outcome = run_grid(grid, replace(place, seconds=0.5))
    assert len(outcome.done) == 1
    assert len(outcome.left) == 49


def test_what_a_next_cell_may_take_leaves_the_first_out():
    # The first cell of a worker also reads data and warms up: 100 s once would keep 25 s cells from starting.
    assert _expected([]) == 0.0
    assert _expected([100.0]) == 100.0
    assert _expected([100.0, 25.0, 31.0, 24.0]) == 31.0


def test_the_first_process_to_read_a_dataset_leaves_a_copy_for_the_others(tmp_path, monkeypatch):
    source = load_dataset("fashion-sample")
    asked = []
    monkeypatch.setattr("benchmarks.lib.sources.data.load_dataset", lambda *a, **k: asked.append(a) or source)
    paths = {"cifar10": "somewhere"}
    first = Sources(paths, tmp_path / "prepared", 100, shared=True).dataset("cifar10")
    second = Sources(paths, tmp_path / "prepared", 100, shared=True).dataset("cifar10")
    assert len(asked) == 1
    for split in ("train", "val", "test"):
        assert len(first.split(split)) == 100
        assert np.array_equal(first.split(split).inputs, second.split(split).inputs)
        assert np.array_equal(first.split(split).ids, second.split(split).ids)
    Sources(paths, tmp_path / "other", 100).dataset("cifar10")
    assert not (tmp_path / "other").exists()


def test_tiny32_tests_on_held_out_training_images_and_measures_the_official_ones_beside(tmp_path, monkeypatch):
    source = load_dataset("fashion-sample")
    some = {name: split.take(np.arange(0, len(split), 10)) for name, split in source.splits.items()}
    source = replace(source, splits=some)
    monkeypatch.setattr("benchmarks.lib.sources.data.load_dataset", lambda *a, **k: source)
    sources = Sources({"tiny32": "somewhere"}, tmp_path / "prepared", shared=True)
    found = sources.dataset("tiny32")
    assert np.array_equal(found.split("resampled").ids, source.test.ids)
    assert np.array_equal(found.val.ids, source.val.ids)
    assert len(found.test) == pytest.approx(len(source.train) / 9, abs=10)
    assert set(found.train.ids) | set(found.test.ids) == set(source.train.ids)
    assert not set(found.train.ids) & set(found.test.ids)
    copied = Sources({"tiny32": "somewhere"}, tmp_path / "prepared", shared=True).dataset("tiny32")
    assert np.array_equal(copied.split("resampled").inputs, source.test.inputs)
    settings = {"epochs": 1, "batch_size": 256, "learning_rate": 0.05}
    cell = Cell(Method("cross_entropy"), "tiny32", "small_cnn", 0, settings)
    measured = run_cell(cell, sources, tmp_path)
    assert measured["resampled"]["raw"]["accuracy"] != measured["measured"]["raw"]["accuracy"]
    assert set(measured["resampled"]) == set(measured["measured"])
    monkeypatch.setattr("benchmarks.lib.grid.DRAWN_ANEW", {})
    assert cell.key != measured["key"]  # cells of the official split do not count


def test_a_cell_that_takes_its_process_down_is_not_tried_for_ever(place):
    grid = cells(PLAIN)
    claims = place.out / "claims"
    claims.mkdir(parents=True)
    (claims / f"{grid[0].name}.tries").write_text("2")
    payload = {
        "cells": [grid[0].as_dict()],
        "out": str(place.out),
        "prepared": str(place.prepared),
        "data": {},
        "stop": 0,
        "limit": 90,
    }
    assert work({**payload, "resumable": False})["made"] == 0
    assert "died 2 times" in grid_state(grid, place.out).failed[grid[0].name]


def test_results_travel_in_an_archive(place, tmp_path):
    grid = cells(PLAIN, HARD)
    run_grid(grid, place)
    archives = pack(place.out, tmp_path / "results.tar", largest=20_000)
    assert len(archives) > 1
    for archive in archives:
        unpack(archive, tmp_path / "there")
    assert grid_state(grid, tmp_path / "there").done == tuple(cell.name for cell in grid)
    assert (tmp_path / "there" / "prepared-90" / "fashion-sample-difficulty.parquet").exists()


def test_an_archive_with_other_files_is_refused(tmp_path):
    (tmp_path / "evil").write_text("x")
    for name in ("../evil", "cells/../../evil", "other/evil", "cells/deep/evil", "cells/.hidden"):
        with tarfile.open(tmp_path / "bad.tar", "w") as tar:
            tar.add(tmp_path / "evil", name)
        with pytest.raises(InputError, match="cells of a grid only"):
            unpack(tmp_path / "bad.tar", tmp_path / "there")
    with pytest.raises(InputError, match=r"evil must be an archive of a grid, but it is no tar file; fetch it again$"):
        unpack(tmp_path / "evil", tmp_path / "there")
    with pytest.raises(InputError, match="reading it failed: No such file"):
        unpack(tmp_path / "gone.tar", tmp_path / "there")


def test_the_lite_grid_begins_with_what_is_worth_most():
    grid = lite_cells()
    names = [cell.name for cell in grid]
    assert len(set(names)) == len(names)
    assert names[0] == "cifar10-resnet18-cross_entropy-s0"
    seeds = [cell.seed for cell in grid if cell.dataset == "cifar10" and cell.part == "main"]
    assert seeds == sorted(seeds)
    assert max(seeds) == 4
    assert max(cell.seed for cell in grid if cell.dataset == "tiny32") == 2
    for cell in grid:
        assert cell.training().loss == cell.method.resolved().loss


@pytest.mark.slow
def test_a_killed_grid_goes_on_where_it_was(place):
    """Two workers, killed with no warning in the middle; the second start makes only what is missing."""
    grid = cells(PLAIN, HARD, seeds=4)
    script = (
        "import json, sys; from pathlib import Path\n"
        "from benchmarks.lib.grid import Cell\n"
        "from benchmarks.lib.workers import Place, run_grid\n"
        "if __name__ == '__main__':\n"
        f"    place = Place(Path({str(place.out)!r}), workers=2, limit=90)\n"
        "    run_grid([Cell.from_dict(one) for one in json.loads(sys.argv[1])], place)\n"
    )
    words = [sys.executable, "-c", script, json.dumps([cell.as_dict() for cell in grid])]
    # Workers of a killed driver must die with it: one group, killed as a whole, as a lost machine would be.
    child = subprocess.Popen(words, start_new_session=True, stderr=subprocess.DEVNULL)
    made = place.out / "cells"
    limit = time.monotonic() + 120
    while time.monotonic() < limit and len(list(made.glob("*.json"))) < 2:
        time.sleep(0.05)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    whole = {path.name: path.stat().st_mtime_ns for path in made.glob("*.json")}
    assert 2 <= len(whole) < len(grid)
    for path in made.glob("*.json"):
        json.loads(path.read_text())
    outcome = run_grid(grid, place)
    assert outcome.done == tuple(cell.name for cell in grid)
    for name, stamp in whole.items():
        assert (made / name).stat().st_mtime_ns == stamp
    assert np.isfinite([result(place, cell)["measured"]["raw"]["nll"] for cell in grid]).all()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_ray_runs_the_same_cells(place):
    ray = pytest.importorskip("ray", reason="engine 'ray' needs the extra confide[ray]")
    grid = cells(PLAIN, BROKEN, seeds=2)
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        outcome = run_grid(grid, replace(place, engine="ray", workers=2))
    finally:
        ray.shutdown()
    assert set(outcome.done) == {cell.name for cell in grid if cell.method.name != "broken"}
    assert len(outcome.failed) == 2
    assert outcome.left == ()
