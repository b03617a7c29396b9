"""Sketches: counts of shards that add up to what all rows show."""

import os
from pathlib import Path

import numpy as np
import pytest

import confide
from confide.checks import InputError
from confide.cli.main import main
from confide.evaluation import Sketch, evaluate_sketch, sketch_of
from confide.pipeline import SketchJob, sketch_files

SUMS = ("accuracy", "confidence_gap", "nll", "brier", "ece")
RANKS = ("auroc", "aurc", "eaurc", "augrc", "aupr_success", "aupr_error", "fpr95", "halving_rejection")


def predictions(n, seed=0):
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 2, (n, 5))
    labels = (np.cumsum(np.exp(logits), 1) < rng.random((n, 1)) * np.exp(logits).sum(1, keepdims=True)).sum(1)
    return confide.Predictions((1.4 * logits).astype(np.float32), labels)


def test_sums_rankings_and_intervals_are_those_of_all_rows():
    whole = predictions(200_000)
    shards = [whole.take(np.arange(k, 200_000, 4)) for k in range(4)]
    sketch = sketch_of(iter(shards))
    exact, found = confide.evaluate(whole, [*SUMS, *RANKS], score="msp"), evaluate_sketch(sketch, [*SUMS, *RANKS])
    for word in (*SUMS, *RANKS):
        m, e = (next(m for m in ev.measurements if m.metric == word and m.group is None) for ev in (found, exact))
        assert m.n == 200_000
        assert m.value == pytest.approx(e.value, abs=1e-9 if word in SUMS else 1e-5)
        assert m.high - m.low == pytest.approx(e.high - e.low, rel=0.4)
        if word in RANKS:
            limits = sketch.ranking_limits([word])[word]
            assert min(limits) - 1e-12 <= e.value <= max(limits) + 1e-12
            off = max(abs(limit - m.value) for limit in limits)
            assert off < 2e-5
            assert f"within {off:.1e} of all rows" in m.note
    merged = Sketch()
    for shard in shards:
        merged.merge(Sketch().add(shard))
    assert evaluate_sketch(merged, ["nll", "auroc"], False).value("auroc") == found.value("auroc")
    assert len(sketch.fine.keys) < 200_000


def test_cells_by_image_give_the_intervals_of_images():
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 1, (20, 3, 6, 6)) + 2 * rng.normal(0, 1, (20, 3, 1, 1))
    labels = rng.integers(0, 3, (20, 6, 6))
    whole = confide.evaluate(confide.dense.pixels(logits, labels), ["nll", "accuracy"])
    found = evaluate_sketch(sketch_of(confide.dense.image_predictions(logits, labels)), ["nll", "accuracy"])
    for m in found.measurements:
        e = next(e for e in whole.measurements if e.metric == m.metric and e.group is None)
        assert (m.value, m.low, m.high) == pytest.approx((e.value, e.low, e.high), abs=1e-9)
    assert found.about.unit == "pixels"


def test_shards_that_do_not_belong_together_and_weights_are_refused():
    p = predictions(50)
    with pytest.raises(InputError, match="one split"):
        Sketch().add(p).add(p.replace(split="test"))
    with pytest.raises(InputError, match="have weights"):
        Sketch().add(p.replace(weights=np.arange(50.0)))


def test_a_folder_is_counted_from_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shards").mkdir()
    whole = predictions(900)
    for k in range(3):
        whole.take(np.arange(300 * k, 300 * k + 300)).save(f"shards/{k}.parquet")
    assert main(["evaluate", "shards", "--sketch", "--out", "e"]) == 0
    assert "900 samples" in capsys.readouterr().out
    found = confide.Evaluation.load("e/evaluation.json")
    assert found.value("nll") == pytest.approx(float(confide.metrics.nll(whole)), abs=1e-9)
    assert main(["evaluate", "shards", "--sketch", "--by", "class"]) == 1
    assert main(["evaluate", "shards", "--engine", "local"]) == 1
    assert "takes no --by" in (text := capsys.readouterr().err)
    assert "takes no --engine" in text


def test_a_folder_is_calibrated_shard_by_shard_by_a_fit_on_drawn_rows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    whole, other = predictions(1200), predictions(600, seed=1)
    for folder, record in (("val", whole), ("test", other)):
        (tmp_path / folder).mkdir()
        for k in range(3):
            logits, labels = (v.tensor_split(3)[k] for v in (record.logits, record.labels))
            confide.Predictions(logits, labels, split=folder).save(f"{folder}/{k}.parquet")  # ids count rows anew
    drawn, total = confide.pipeline.sample_folder("val", rows=300)
    assert total == 1200
    assert 220 < len(drawn) < 380
    assert confide.pipeline.sample_folder("val", rows=300)[0].labels.tolist() == drawn.labels.tolist()
    call = ["calibrate", "--fit", "val", "--apply", "test", "--methods", "temperature", "--out"]
    assert main([*call, "calibrated", "--save", "t.json"]) == 0
    calibrator = confide.calibrators.load("t.json")
    assert calibrator.temperature == pytest.approx(confide.calibrators.fit("temperature", whole).temperature)
    moved = confide.Predictions.load("calibrated/1.parquet")
    assert moved.logits.numpy() == pytest.approx(calibrator(other).logits[200:400].numpy(), rel=1e-5)
    assert main([*call, "test"]) == 1
    assert "another folder" in capsys.readouterr().err


def dies_once(job: SketchJob) -> str:
    """Counts, but its first process is killed on the way."""
    mark = Path(job.target + ".tried")
    if not mark.exists():
        mark.parent.mkdir(exist_ok=True)
        mark.write_text("")
        os._exit(9)
    return sketch_files(job)


@pytest.mark.slow
def test_a_killed_worker_changes_no_number(tmp_path, monkeypatch):
    (tmp_path / "shards").mkdir()
    whole = predictions(2000)
    for k in range(2):
        whole.take(np.arange(1000 * k, 1000 * k + 1000)).save(tmp_path / f"shards/{k}.parquet")
    plain = confide.pipeline.sketch_folder(tmp_path / "shards", tmp_path / "a", workers=1)
    monkeypatch.setattr(confide.pipeline.shards, "sketch_files", dies_once)
    killed = confide.pipeline.sketch_folder(tmp_path / "shards", tmp_path / "b", workers=1)
    assert list((tmp_path / "b").glob("*.tried"))
    values = [[m.value for m in evaluate_sketch(s).measurements] for s in (plain, killed)]
    assert np.array_equal(*values, equal_nan=True)
