"""Folders of shards: parts and names of the work, what is not made again, and what is drawn."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import confide
from confide import Predictions, calibrators, pipeline, scale, sets
from confide.checks import InputError
from confide.pipeline import Workers, shards


def predictions(n: int, seed: int = 0, split: str | None = "val") -> Predictions:
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 3, n)
    return Predictions(2 * (np.eye(3)[labels] + draw.normal(size=(n, 3))), labels, split=split)


def saved(folder: Path, record: Predictions, parts: int) -> Path:
    folder.mkdir()
    for k, rows in enumerate(np.array_split(np.arange(len(record)), parts)):
        record.take(rows).save(folder / f"{k:03d}.parquet")
    return folder


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, str, int]]:
    """An engine that works here and notes what it was asked for."""
    calls: list[tuple[str, int, str, int]] = []

    def map_items(
        function: Callable[[Any], Any], items: Sequence[Any], *, engine: str, workers: int, what: str
    ) -> None:
        calls.append((engine, workers, what, len(items)))
        for item in items:
            function(item)

    monkeypatch.setattr(scale, "map_items", map_items)
    return calls


def test_shards_are_counted_in_at_most_64_parts_and_each_once(tmp_path: Path) -> None:
    record = predictions(66)
    for shards_, parts in ((3, 3), (64, 64), (65, 33)):
        folder = saved(tmp_path / f"s{shards_}", record, shards_)
        sketch = pipeline.sketch_folder(folder, tmp_path / f"p{shards_}", engine=None)
        assert sketch.rows == 66
        assert len(list((tmp_path / f"p{shards_}").glob("sketch-*.npz"))) == parts


def test_what_is_there_is_not_counted_again_until_a_shard_changes(tmp_path: Path) -> None:
    folder, out = saved(tmp_path / "s", predictions(40), 2), tmp_path / "parts"
    pipeline.sketch_folder(folder, out, engine=None)
    before = {path.name: path.stat().st_mtime_ns for path in out.iterdir()}
    pipeline.sketch_folder(folder, out, engine=None)
    assert {path.name: path.stat().st_mtime_ns for path in out.iterdir()} == before
    assert all(len(name.partition("-")[2].partition(".")[0]) == 16 for name in before)
    os.utime(folder / "000.parquet", ns=(1, 1))
    assert pipeline.sketch_folder(folder, out, engine=None).rows == 40
    assert len(list(out.iterdir())) == 3


def test_a_folder_without_rows_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path / "s", predictions(0), 1)
    with pytest.raises(InputError, match="must hold at least one row, got none"):
        pipeline.sketch_folder(folder, tmp_path / "parts", engine=None)
    with pytest.raises(InputError, match="must hold at least one row"):
        pipeline.sample_folder(folder)


@pytest.mark.parametrize("rows", [1, 7, 25, 26, 1000])
def test_an_exact_ranking_is_that_of_all_rows_whatever_fits_into_memory(tmp_path: Path, rows: int) -> None:
    record = predictions(50)
    folder = saved(tmp_path / "s", record, 4)
    words = ["auroc", "aurc"]
    found = pipeline.evaluate_folder(folder, tmp_path / "parts", words, False, exact=True, rows=rows)
    whole = confide.evaluate(record, words, False)
    for word in words:
        assert found.value(word) == pytest.approx(whole.value(word), abs=1e-12)
    assert not list((tmp_path / "parts").glob("run-*"))
    names = {path.name for path in (tmp_path / "parts").iterdir()}
    pipeline.evaluate_folder(folder, tmp_path / "parts", words, False, exact=True, rows=rows)
    assert {path.name for path in (tmp_path / "parts").iterdir()} == names
    with pytest.raises(InputError, match="rows must"):
        pipeline.evaluate_folder(folder, tmp_path / "parts", words, False, exact=True, rows=0)


def test_a_lost_range_is_made_again_alone(tmp_path: Path) -> None:
    folder, out = saved(tmp_path / "s", predictions(50), 4), tmp_path / "parts"
    first = pipeline.evaluate_folder(folder, out, ["auroc"], False, exact=True, rows=10).value("auroc")
    ranges = sorted(out.glob("range-*"))
    assert len(ranges) > 1
    ranges[0].unlink()
    kept = {path: path.stat().st_mtime_ns for path in ranges[1:]}
    assert pipeline.evaluate_folder(folder, out, ["auroc"], False, exact=True, rows=10).value("auroc") == first
    assert {path: path.stat().st_mtime_ns for path in ranges[1:]} == kept


def test_runs_hold_about_as_many_rows_as_asked_and_all_of_them(
    tmp_path: Path, engine: list[tuple[str, int, str, int]]
) -> None:
    folder = saved(tmp_path / "s", predictions(40), 4)
    for rows, runs in ((9, 4), (10, 4), (19, 3), (20, 2), (39, 2), (40, 1)):
        engine.clear()
        out = tmp_path / f"parts{rows}"
        pipeline.evaluate_folder(folder, out, ["auroc"], False, exact=True, rows=rows, engine="local", workers=5)
        assert ("local", 5, "sort shards", runs) in engine


def test_rows_are_drawn_the_same_here_and_by_workers(
    tmp_path: Path, engine: list[tuple[str, int, str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    record = predictions(300)
    folder = saved(tmp_path / "s", record, 3)
    everything, total = pipeline.sample_folder(folder)
    assert (len(everything), total) == (300, 300)
    assert everything.logits.tolist() == record.logits.tolist()
    here, total = pipeline.sample_folder(folder, rows=100)
    assert total == 300
    assert 60 < len(here) < 140
    assert len({row.tobytes() for row in here.logits.numpy()}) == len(here)
    work = Workers(tmp_path / "parts", "local", 3)
    assert pipeline.sample_folder(folder, rows=100, work=work)[0].logits.tolist() == here.logits.tolist()
    assert engine == [("local", 3, "draw rows", 3)]
    monkeypatch.setattr(shards, "_drawn", None)  # what is there is not drawn again
    assert pipeline.sample_folder(folder, rows=100, work=work)[0].logits.tolist() == here.logits.tolist()


def test_ids_that_name_samples_are_kept_and_numbers_of_shards_are_not(tmp_path: Path) -> None:
    record = predictions(20)
    named = record.replace(ids=np.array([f"s{k}" for k in range(20)]))
    folder = saved(tmp_path / "named", named, 2)
    assert pipeline.sample_folder(folder)[0].ids.tolist() == named.ids.tolist()
    (tmp_path / "counted").mkdir()
    for k in range(2):
        part = record.take(np.arange(10 * k, 10 * k + 10))
        part.replace(ids=np.arange(10)).save(tmp_path / "counted" / f"{k}.parquet")
    assert pipeline.sample_folder(tmp_path / "counted")[0].ids.tolist() == list(range(20))


def test_names_of_classes_beside_the_rows_of_a_shard_are_no_rows(tmp_path: Path) -> None:
    record = predictions(30)
    (tmp_path / "s").mkdir()
    for k in range(2):
        rows = slice(15 * k, 15 * k + 15)
        own = {"logits": record.logits.numpy()[rows], "labels": record.labels.numpy()[rows], "id": np.arange(30)[rows]}
        np.savez(tmp_path / "s" / f"{k}.npz", **own)
    drawn, total = pipeline.sample_folder(tmp_path / "s", rows=1000)
    assert (len(drawn), total) == (30, 30)
    one = tmp_path / "one"
    one.mkdir()
    np.savez(one / "0.npz", **own, class_names=np.array(list("abc")))
    drawn, total = pipeline.sample_folder(one, rows=1000)
    assert (len(drawn), total) == (15, 15)
    assert drawn.class_names == ("a", "b", "c")


def test_a_temperature_of_all_rows_is_that_of_memory(tmp_path: Path) -> None:
    record = predictions(260)
    first, best = calibrators.fit("temperature", record.take(np.arange(60))), calibrators.fit("temperature", record)
    for parts in (2, 66):
        folder = saved(tmp_path / f"s{parts}", record, parts)
        work = Workers(tmp_path / f"p{parts}")
        found = pipeline.fit_temperature_on_folder(first, record.take(np.arange(60)), folder, work)
        assert found.temperature == pytest.approx(best.temperature, rel=1e-6)
        names = {path: path.stat().st_mtime_ns for path in work.parts.iterdir()}
        assert len(names) % {2: 2, 66: 33}[parts] == 0  # at most 64 parts at each temperature that is tried
        again = pipeline.fit_temperature_on_folder(first, record.take(np.arange(60)), folder, work)
        assert again.temperature == found.temperature
        assert {path: path.stat().st_mtime_ns for path in work.parts.iterdir()} == names
    with pytest.raises(InputError, match="of temperature alone, got 'vector'"):
        pipeline.fit_temperature_on_folder(calibrators.fit("vector", record), record, folder, work)


def test_calibrated_shards_go_elsewhere_under_names_of_their_own(
    tmp_path: Path, engine: list[tuple[str, int, str, int]]
) -> None:
    record = predictions(20)
    folder, fitted = saved(tmp_path / "s", record, 2), calibrators.fit("temperature", record)
    targets = pipeline.apply_to_folder(fitted, folder, tmp_path / "out")
    assert targets == [tmp_path / "out" / "000.parquet", tmp_path / "out" / "001.parquet"]
    assert Predictions.load(targets[1]).logits.tolist() == fitted(record).logits[10:].tolist()
    assert engine == []
    pipeline.apply_to_folder(fitted, folder, tmp_path / "out", work=Workers(tmp_path / "parts", "local", 4))
    assert engine == [("local", 4, "calibrate shards", 2)]
    with pytest.raises(InputError, match="must go to another folder"):
        pipeline.apply_to_folder(fitted, folder, tmp_path / "x" / ".." / "s")
    record.save(folder / "000.npz")
    with pytest.raises(InputError, match="must have names of their own without their endings"):
        pipeline.apply_to_folder(fitted, folder, tmp_path / "out")


def test_sets_of_a_folder_are_counted_once_and_written_where_asked(
    tmp_path: Path, engine: list[tuple[str, int, str, int]]
) -> None:
    record = predictions(60)
    folder, fitted = saved(tmp_path / "s", record, 3), sets.fit("lac", record, 0.8)
    work = Workers(tmp_path / "parts", "local", 2)
    whole = sets.measure(fitted, record)
    for out, made in ((None, 3), (None, 0), (tmp_path / "sets", 3), (tmp_path / "sets", 3)):
        engine.clear()
        found = pipeline.sets_of_folder(fitted, folder, out, work=work, model="mine")
        assert (found.model, found.groups, found.whole) == ("mine", whole.groups, whole.whole)
        assert engine == [("local", 2, "make sets", made)]
    assert len(list((tmp_path / "sets").iterdir())) == 3
    columns = confide.files.read_table(tmp_path / "sets" / "002.parquet")[0]
    assert len(columns["id"]) == 20
