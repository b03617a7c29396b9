"""A watch is its file: rebuilt from it alone, whoever was killed, and however batches and labels came."""

from __future__ import annotations

import json
import multiprocessing
import time
from pathlib import Path

import numpy as np
import pytest

import confide
from confide.checks import InputError
from confide.cli.main import main
from confide.cli.monitor import watch_text
from confide.files import formats
from confide.monitor import Monitor, write_page

FORK = multiprocessing.get_context("fork")


def drawn(n: int, start: int = 0, *, sharper: float = 1.0, seed: int = 0) -> tuple[confide.Predictions, np.ndarray]:
    """Predictions without labels, and labels drawn from their own probabilities; sharper > 1 makes these too sure."""
    rng = np.random.default_rng([seed, start])
    logits = 2 * rng.normal(size=(n, 5))
    probs = np.exp(logits / sharper)
    labels = (rng.random((n, 1)) > (probs / probs.sum(1, keepdims=True)).cumsum(1)).sum(1)
    return confide.Predictions(logits, ids=[f"s{k}" for k in range(start, start + n)]), labels


@pytest.fixture
def watch(tmp_path) -> Monitor:
    reference, labels = drawn(1000)
    return Monitor(confide.Predictions(reference.logits, labels), risk=0.4, file=tmp_path / "watch.jsonl")


def state(monitor: Monitor) -> tuple:
    return monitor.batches, monitor.alarms


def test_a_watch_is_rebuilt_from_its_file_alone(watch):
    week, labels = drawn(300, 1000)
    watch.update(week)
    watch.labels(week.ids[:200], labels[:200])
    again = Monitor(file=watch.file)
    assert state(again) == state(watch)
    assert again.reference == watch.reference


def test_every_digit_of_a_batch_is_in_the_file(tmp_path):
    confidence = np.array([0.0, 1.0, 1 / 3, 5e-324, 1e-9, 0.1 + 0.2, np.nextafter(1, 0)])
    difficulty = np.array([-0.0, 1e30, -1e-30, 7, 2**24 + 1, 0.1, -3], dtype=np.float32)
    known = confide.Predictions.from_pairs(np.arange(56) % 2, np.tile(confidence, 8))
    watch = Monitor(known.with_column("difficulty", np.tile(difficulty, 8)), file=tmp_path / "watch.jsonl")
    watch.update(confide.Predictions.from_pairs(None, confidence).with_column("difficulty", difficulty))
    own = json.loads(watch.file.read_text().splitlines()[1])["predictions"]
    assert own["confidence"] == confidence.tolist()
    assert own["difficulty"] == difficulty.astype(float).tolist()
    for batch in (watch.state.batches[0].batch, Monitor(file=watch.file).state.batches[0].batch):
        assert batch.confidence.tolist() == confidence.tolist()
        assert batch.difficulty.tolist() == difficulty.astype(float).tolist()


def test_labels_may_come_before_their_predictions(watch, tmp_path):
    week, labels = drawn(300, 1000)
    watch.labels(week.ids[:200], labels[:200])
    assert watch.alarms[0].labelled == 0
    told = "200 labels wait for predictions with the same id."
    assert watch_text(watch).endswith(told)
    assert told in write_page(watch, tmp_path / "early.html").read_text()
    watch.update(week)
    assert watch.batches[0].labelled == 200
    assert watch.waiting == 0
    assert "wait" not in watch_text(watch)
    other = Monitor(*_reference(), risk=0.4, file=tmp_path / "other.jsonl")
    other.update(week)
    other.labels(week.ids[:200], labels[:200])
    assert [a.wealth for a in other.alarms] == pytest.approx([a.wealth for a in watch.alarms])


def _reference() -> tuple[confide.Predictions]:
    reference, labels = drawn(1000)
    return (confide.Predictions(reference.logits, labels),)


@pytest.mark.parametrize(
    "names", [("id", "label", "weight"), ("ids", "y", "sample_weight"), ("id", "target", None), ("id", "labels", None)]
)
def test_labels_are_read_under_the_names_that_predictions_have(watch, tmp_path, names):
    week, labels = drawn(30, 1000)
    watch.update(week)
    columns = {names[0]: week.ids, names[1]: labels} | ({} if names[2] is None else {names[2]: np.full(30, 0.5)})
    formats.write_table(tmp_path / "labels.csv", columns)
    watch.read_labels(tmp_path / "labels.csv")
    assert watch.batches[0].labelled == 30


@pytest.mark.parametrize("names", [("name", "label"), ("id", "correct")])
def test_a_table_without_ids_or_classes_is_refused(watch, tmp_path, names):
    """That an answer was right is a label of pairs alone; of classes it would be read as class 0 or 1."""
    formats.write_table(tmp_path / "labels.csv", dict(zip(names, (np.array(["s0"]), np.array([1])), strict=True)))
    with pytest.raises(InputError, match=f"must have the columns id and label, got {names[0]}"):
        watch.read_labels(tmp_path / "labels.csv")


def test_a_repeated_batch_and_repeated_labels_count_once(watch):
    week, labels = drawn(300, 1000)
    first = watch.update(week, name="week 1")
    assert watch.update(week, name="again") == first
    watch.labels(week.ids, labels)
    before = state(watch)
    watch.labels(week.ids, labels)
    assert state(watch) == before
    assert len(watch.batches) == 1


def test_a_torn_last_line_is_cut_off_and_the_rest_kept(watch):
    week, labels = drawn(300, 1000)
    watch.update(week)
    before = state(watch)
    whole = watch.file.read_bytes()
    watch.file.write_bytes(whole + b'{"labels":{"ids":["s1000"],"lab')
    again = Monitor(file=watch.file)
    assert state(again) == before
    assert watch.file.read_bytes() == whole
    again.labels(week.ids, labels)
    assert Monitor(file=watch.file).batches[0].labelled == 300


def test_two_writers_see_each_other(watch):
    other = Monitor(file=watch.file)
    first, _ = drawn(100, 1000)
    second, labels = drawn(100, 2000)
    watch.update(first)
    other.update(second)
    watch.labels(second.ids, labels)
    assert [b.n for b in watch.batches] == [100, 100]
    other.labels(second.ids, labels)
    assert state(other) == state(watch)


def _write_batches(file: Path, first: int, batches: int) -> None:
    for j in range(batches):
        week, labels = drawn(20, 100_000 * first + 100 * j)
        monitor = Monitor(file=file)
        monitor.update(week)
        monitor.labels(week.ids, labels)


def test_writers_at_once_lose_nothing(watch):
    """Three processes append batches and labels to one file at the same time."""
    running = [FORK.Process(target=_write_batches, args=(watch.file, k + 1, 5)) for k in range(3)]
    for process in running:
        process.start()
    for process in running:
        process.join(120)
    assert [process.exitcode for process in running] == [0, 0, 0]
    assert sum(b.labelled for b in Monitor(file=watch.file).batches) == 3 * 5 * 20


def test_a_killed_writer_leaves_a_watch_that_goes_on(watch):
    process = FORK.Process(target=_write_batches, args=(watch.file, 1, 100_000))
    process.start()
    size = watch.file.stat().st_size
    while watch.file.stat().st_size < size + 5000:
        time.sleep(0.005)
    process.kill()
    process.join()
    again = Monitor(file=watch.file)
    assert again.batches
    assert again.update(drawn(50, 5)[0]).n == 50


def test_ids_that_start_again_with_every_batch_are_refused(watch):
    watch.update(drawn(100, 1000)[0])
    other = confide.Predictions(drawn(100, 2000)[0].logits, ids=[f"s{k}" for k in range(1000, 1100)])
    with pytest.raises(InputError, match="came before with another prediction"):
        watch.update(other)


def test_another_label_for_a_sample_is_refused(watch):
    week, labels = drawn(100, 1000)
    watch.update(week)
    watch.labels(week.ids, labels)
    with pytest.raises(InputError, match="a label stays"):
        watch.labels(week.ids[:1], [(labels[0] + 1) % 5])


@pytest.mark.parametrize(
    ("label", "message"), [(9, "a class from 0 to 4"), ("cat", "must be a class"), (1.5, "0 to 4")]
)
def test_labels_that_are_no_class_are_refused(watch, label, message):
    with pytest.raises(InputError, match=message):
        watch.labels(["s1"], [label])


def test_a_batch_of_other_classes_is_refused(watch):
    with pytest.raises(InputError, match="of the 5 classes of the watch, got 3"):
        watch.update(confide.Predictions(drawn(50, 2000)[0].logits[:, :3]))
    assert not watch.batches


def test_a_label_of_a_class_that_the_reference_never_predicts_is_taken(tmp_path):
    reference, labels = drawn(300)
    rarely = reference.logits.clone()
    rarely[:, 4] -= 50
    watch = Monitor(confide.Predictions(rarely, labels), file=tmp_path / "watch.jsonl")
    watch.update(confide.Predictions(rarely, ids=reference.ids), name="week 1")
    watch.labels([reference.ids[0]], [4])
    assert (watch.batches[0].labelled, watch.batches[0].right) == (1, 0)


def test_a_watch_of_another_reference_or_promise_is_refused(watch):
    with pytest.raises(InputError, match="started with others"):
        Monitor(*_reference(), risk=0.3, file=watch.file)
    assert state(Monitor(*_reference(), risk=0.4, file=watch.file)) == state(watch)


def test_a_file_that_is_no_watch_is_refused(tmp_path):
    (tmp_path / "other.jsonl").write_text('{"format":"trust/1"}\n')
    with pytest.raises(InputError, match="must be a watch"):
        Monitor(file=tmp_path / "other.jsonl")
    with pytest.raises(InputError, match="give the reference"):
        Monitor(file=tmp_path / "missing.jsonl")
    (tmp_path / "damaged.jsonl").write_text('{"format":"watch/1","reference":{}}\n')
    with pytest.raises(InputError, match="damaged"):
        Monitor(file=tmp_path / "damaged.jsonl")


def test_pairs_of_confidence_and_correctness_are_watched(tmp_path):
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.5, 1, 600)
    right = rng.random(600) < confidence
    pairs = confide.Predictions.from_pairs(right[:300], confidence[:300])
    watch = Monitor(pairs, risk=0.4, file=tmp_path / "pairs.jsonl")
    watch.update(confide.Predictions.from_pairs(right[300:], confidence[300:], ids=range(300, 600)))
    assert watch.batches[0].labelled == 300
    assert watch.batches[0].right == int(right[300:].sum())
    assert [d.what for d in watch.batches[0].drift] == ["confidence"]


def test_the_operating_point_decides_what_is_accepted(tmp_path):
    reference, labels = drawn(2000)
    labelled = confide.Predictions(reference.logits, labels)
    point = confide.operating_point(labelled, risk=0.1)
    watch = Monitor(labelled, point=point, file=tmp_path / "watch.jsonl")
    week, truth = drawn(500, 5000)
    watch.update(week)
    accepted = confide.apply_operating_point(point, week)
    assert watch.batches[0].accepted == int(accepted.sum())
    alarm = watch.labels(week.ids, truth)[0]
    assert alarm.labelled == int(accepted.sum())
    assert "at most 10 % among the accepted" in alarm.promise


def test_the_command_line_watches_and_exits_with_3_at_an_alarm(tmp_path, capsys):
    reference, labels = drawn(1000)
    confide.Predictions(reference.logits, labels, ids=reference.ids).save(tmp_path / "val.npz")
    file = str(tmp_path / "watch.jsonl")
    assert main(["monitor", file, "--reference", str(tmp_path / "val.npz"), "--risk", "0.45"]) == 0
    assert "no batch yet" in capsys.readouterr().out
    for k, sharper in enumerate((1.0, 4.0)):
        week, truth = drawn(800, 2000 * (k + 1), sharper=sharper)
        week.save(tmp_path / "week.npz")
        assert main(["monitor", file, "--predictions", str(tmp_path / "week.npz"), "--name", f"week {k + 1}"]) == 0
        rows = "\n".join(f"{name},{label}" for name, label in zip(week.ids, truth, strict=True))
        (tmp_path / "labels.csv").write_text(f"id,label\n{rows}\n")
        capsys.readouterr()
        page = str(tmp_path / "watch.html")
        status = main(["monitor", file, "--labels", str(tmp_path / "labels.csv"), "--page", page])
        text = capsys.readouterr().out
        assert status == (3 if k else 0)
        assert ("ALARM: an error rate of at most 45 % does not hold" in text) == bool(k)
    html = (tmp_path / "watch.html").read_text()
    assert "An error rate of at most 45 % and calibration do not hold." in html
    assert main(["monitor", file, "--json"]) == 3
    assert len(json.loads(capsys.readouterr().out)["batches"]) == 2


def test_text_of_a_watch_is_escaped_on_its_page(watch, tmp_path):
    watch.update(drawn(100, 1000)[0], name="<script>alert(1)</script>")
    text = write_page(watch, tmp_path / "page.html").read_text()
    assert "<script>alert" not in text
    assert "1 batch, 100 samples" in text
