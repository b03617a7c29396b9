"""Sketches: counts of shards that add up to what all rows show."""

from pathlib import Path

import numpy as np
import pytest

import confide
from confide.checks import InputError
from confide.cli.main import main
from confide.evaluation import Sketch, evaluate_sketch, sketch_of

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
            assert min(limits) - 1e-10 <= e.value <= max(limits) + 1e-10
            off = max(abs(limit - m.value) for limit in limits)
            assert off < 1e-5
            assert f"within {off:.1e} of all rows" in m.note
    merged = Sketch()
    for shard in shards:
        merged.merge(Sketch().add(shard))
    assert evaluate_sketch(merged, ["nll", "auroc"], False).value("auroc") == found.value("auroc")
    assert len(sketch.fine.summed().keys) < 200_000


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


def test_a_sketch_that_was_saved_keeps_no_second_copy_of_its_cells(tmp_path):
    rng = np.random.default_rng(0)
    logits, labels = 3 * rng.normal(0, 1, (3, 5, 500, 500)), rng.integers(0, 5, (3, 500, 500))
    sketch = sketch_of(confide.dense.image_predictions(logits, labels))
    values = evaluate_sketch(sketch, ["accuracy", "ece", "auroc"], False).measurements
    sketch.save(tmp_path / "sketch.npz")
    assert sketch.coarse.every is not None
    assert not len(sketch.coarse.keys)
    assert not len(sketch.coarse.sums)
    assert (
        evaluate_sketch(Sketch.load(tmp_path / "sketch.npz"), ["accuracy", "ece", "auroc"], False).measurements
        == values
    )


def answers_by_question(questions, seed=0):
    rng = np.random.default_rng(seed)
    sure = rng.beta(4, 2, questions).repeat(3)
    right = rng.random(questions).repeat(3) < sure
    noisy = np.clip(sure + rng.normal(0, 0.02, 3 * questions), 0.01, 0.99)
    question = np.array([f"q{k}" for k in range(questions)]).repeat(3)
    return confide.Predictions.from_pairs(right, noisy, unit="question", question=question)


def test_a_sketch_of_many_questions_does_not_grow_with_them_and_keeps_their_intervals():
    words, sizes = ["accuracy", "confidence_gap", "ece", "auroc", "aurc"], []
    for questions in (3000, 12_000):
        whole = answers_by_question(questions)
        thirds = np.array_split(np.arange(len(whole)), 7)  # cuts through a question
        added, merged = sketch_of(whole.take(rows) for rows in thirds), Sketch()
        for rows in thirds[::-1]:
            merged.merge(sketch_of(whole.take(rows)))
        assert not added.units
        cells, same = added.coarse.summed(), merged.coarse.summed()
        sizes.append(len(cells.keys))
        assert (cells.keys == same.keys).all()
        np.testing.assert_allclose(cells.sums, same.sums, rtol=1e-9)
        found, exact = evaluate_sketch(added, words), confide.evaluate(whole, words, score="msp")
        for word in words:
            m, e = (next(m for m in ev.measurements if m.metric == word and m.group is None) for ev in (found, exact))
            assert m.value == pytest.approx(e.value, abs=1e-9 if word in SUMS else 1e-5)
            assert m.high - m.low == pytest.approx(e.high - e.low, rel=0.25)  # a variance of 256 parts: 9 % in 1 sd
    assert sizes[1] < 256 * 2 * 15 * 64
    few, many = sketch_of(answers_by_question(50)), sketch_of(answers_by_question(300, seed=1))
    assert (few.are_parts, len(few.units), many.are_parts) == (False, 50, True)
    assert few.merge(many).are_parts


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
    assert main(["evaluate", "shards", "--sketch", "--unit", "id"]) == 1
    assert main(["evaluate", "shards", "--workers", "3"]) == 1
    assert "takes no --unit" in (text := capsys.readouterr().err)
    assert "takes no --workers" in text


def saved_shards(folder, record, parts, **changes):
    folder.mkdir(exist_ok=True)
    for k, rows in enumerate(np.array_split(np.arange(len(record)), parts)):
        record.take(rows).replace(**changes).save(folder / f"{k}.parquet")


def test_groups_of_cells_are_those_of_all_rows():
    p = predictions(3000)
    p = p.with_column("site", np.where(np.arange(3000) % 3 == 0, "north", "south"))
    words = ["accuracy", "ece", "auroc"]
    whole = confide.evaluate(p, words, by=["site", "class"], score="msp")
    merged = Sketch(by=("site", "class"))
    for k in range(3):
        part = sketch_of(p.take(np.arange(1000 * k, 1000 * k + 1000)), by=("site", "class"))
        merged.merge(part)
    found = evaluate_sketch(merged, words)
    for m in whole.measurements:
        if m.group and m.group.startswith(("site", "class")) and m.metric in words:
            own = next(own for own in found.measurements if (own.metric, own.group) == (m.metric, m.group))
            assert own.n == m.n
            assert own.value == pytest.approx(m.value, abs=1e-5)
    with pytest.raises(InputError, match="at most 100"):
        sketch_of(p.with_column("row", np.arange(3000)), by="row")


def test_an_external_sort_gives_the_rankings_of_all_rows_in_memory(tmp_path):
    p = predictions(4000)
    p = p.with_logits(p.logits.mul(2).round().div(2))  # with ties
    saved_shards(tmp_path / "shards", p, 5)
    words = [*RANKS, "coverage_at_risk", "risk_at_coverage"]
    whole = confide.evaluate(p, words, False, score="msp")
    evaluation = confide.pipeline.evaluate_folder(
        tmp_path / "shards", tmp_path / "parts", words, False, exact=True, rows=700
    )
    for word in words:
        assert evaluation.value(word) == pytest.approx(whole.value(word), abs=1e-12)
    assert all(m.note is None for m in evaluation.measurements)
    assert len(list((tmp_path / "parts").glob("range-*"))) >= 5
    assert not list((tmp_path / "parts").glob("run-*"))  # runs are removed once they are merged


def test_a_stream_is_calibrated_by_drawn_rows_and_a_temperature_by_all_of_them(tmp_path):
    shards = [predictions(1000, seed).replace(split="val") for seed in range(5)]
    whole = confide.calibrators.joined(shards)
    assert len(whole) == 5000
    assert len(set(whole.ids.tolist())) == 5000
    best = confide.calibrators.fit("temperature", whole).temperature
    found = confide.calibrators.fit_stream("temperature", lambda: iter(shards), rows=500, exact=True)
    drawn = confide.calibrators.fit_stream("temperature", iter(shards), rows=500)
    assert (found.n, drawn.n) == (5000, 500)
    assert found.temperature == pytest.approx(best, rel=1e-6)
    assert drawn.temperature != found.temperature
    assert confide.calibrators.fit_stream("isotonic", shards, rows=800).n == 800
    with pytest.raises(InputError, match="several times"):
        confide.calibrators.fit_stream("temperature", iter(shards), exact=True)
    with pytest.raises(InputError, match="leave exact out"):
        confide.calibrators.fit_stream("isotonic", shards, exact=True)
    saved_shards(tmp_path / "val", whole, 4)
    sample, total = confide.pipeline.sample_folder(tmp_path / "val", rows=1000)
    work = confide.pipeline.Workers(tmp_path / "parts")
    first = confide.calibrators.fit("temperature", sample)
    moved = confide.pipeline.fit_temperature_on_folder(first, sample, tmp_path / "val", work)
    assert (total, moved.n) == (5000, 5000)
    assert moved.temperature == pytest.approx(best, rel=1e-6)


def test_every_set_of_rows_of_a_stream_is_drawn_as_often():
    shards = [
        confide.Predictions(np.full((n, 2), -1.0), np.zeros(n, dtype=int), ids=[f"{n}-{k}" for k in range(n)])
        for n in (1, 7, 20, 2)
    ]
    counts = {}
    for seed in range(600):
        drawn, total = confide.calibrators.sample_stream(shards, rows=6, seed=seed)
        assert (len(drawn), total) == (6, 30)
        for name in drawn.ids.tolist():
            counts[name] = counts.get(name, 0) + 1
    # 600 x 6 / 30 = 120 each, with a standard deviation of 10.
    assert len(counts) == 30
    assert max(abs(count - 120) for count in counts.values()) < 45


def test_sets_of_a_folder_are_those_of_its_rows_together(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    val, test = predictions(1500).replace(split="val"), predictions(1200, seed=1)
    saved_shards(tmp_path / "test", test, 3)
    val.save("val.parquet")
    fitted = confide.sets.fit("lac", val, by="class")
    whole = confide.sets.measure(fitted, test)
    found = confide.pipeline.sets_of_folder(fitted, "test", "sets", work=confide.pipeline.Workers(tmp_path / "parts"))
    assert (found.groups, found.sizes) == (whole.groups, whole.sizes)
    assert confide.files.read_table("sets/1.parquet")[0]["size"].tolist() == [
        int(size) for size in np.concatenate([b.sum(axis=1) for _, b in fitted.blocks(test)])[400:800]
    ]
    call = ["sets", "--fit", "val.parquet", "--apply", "test", "--by", "class"]
    assert main([*call, "--out", "again"]) == 0
    assert "1,200" in capsys.readouterr().out
    assert sorted(p.name for p in Path("again").iterdir()) == ["0.parquet", "1.parquet", "2.parquet"]
    assert main([*call, "--out", "test"]) == 1
    assert main(["sets", "--fit", "val.parquet", "--engine", "local"]) == 1
    assert "another folder" in (text := capsys.readouterr().err)
    assert "leave it out" in text


def test_shards_whose_ids_are_words_are_drawn_by_workers_too(tmp_path):
    p = predictions(60).replace(split="val")
    named = confide.Predictions(
        p.logits, p.labels, [f"row {k}" for k in range(60)], "val", columns={"site": ["a", "b"] * 30}
    )
    saved_shards(tmp_path / "val", named, 2)
    work = confide.pipeline.Workers(tmp_path / "parts", "local", 1)
    drawn, _ = confide.pipeline.sample_folder(tmp_path / "val", rows=30, work=work)
    alone, _ = confide.pipeline.sample_folder(tmp_path / "val", rows=30)
    assert 0 < len(drawn) < 60
    assert drawn.ids.tolist() == alone.ids.tolist()
    assert drawn.columns["site"].tolist() == alone.columns["site"].tolist()


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
