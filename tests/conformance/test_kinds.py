"""Every kind of predictions goes through every door that it has; what has no meaning is refused in one line."""

import warnings

import numpy as np
import pytest

import confide
from confide.checks import InputError
from confide.cli.main import main
from confide.metrics import METRICS


def _logits(n, c, seed=0):
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 2, (n, c))
    below = np.cumsum(np.exp(logits), axis=1)
    return logits, (below < rng.random((n, 1)) * below[:, -1:]).sum(axis=1)


def _classes():
    return confide.Predictions(*_logits(120, 3))


def _pairs():
    rng = np.random.default_rng(1)
    confidence = rng.uniform(0.3, 0.99, 120)
    return confide.Predictions.from_pairs(rng.random(120) < confidence, confidence)


def _choices():
    logits, labels = _logits(120, 4)
    return confide.answers.multiple_choice(logits, labels)


def _answers():
    pairs = _pairs()
    return confide.answers.verbalised(
        [f"{c:.2f}" for c in pairs.facts.confidence.tolist()], pairs.facts.correct, questions=np.arange(120) // 3
    )


def _agreement():
    rng = np.random.default_rng(2)
    samples = [[str(k) for k in rng.integers(0, 3, 5)] for _ in range(120)]
    return confide.answers.agreement(samples, ["0"] * 120)


def _labels():
    rng = np.random.default_rng(3)
    logits = rng.normal(0, 2, (60, 3))
    return confide.Predictions.multilabel(logits, (rng.random((60, 3)) < 1 / (1 + np.exp(-logits))).astype(float))


def _pixels():
    logits, labels = _logits(20 * 16, 3)
    return confide.dense.pixels(logits.reshape(20, 4, 4, 3).transpose(0, 3, 1, 2), labels.reshape(20, 4, 4))


def _boxes():
    rng = np.random.default_rng(4)
    corner = rng.uniform(0, 50, (20, 6, 2))
    found = np.concatenate([corner, corner + 20], axis=2)
    truth = found + rng.normal(0, 4, found.shape)
    kinds = np.zeros((20, 6), dtype=int)
    return confide.dense.boxes(found, rng.uniform(0.2, 0.95, (20, 6)), kinds, truth, kinds)


KINDS = {
    "classes": _classes,
    "pairs": _pairs,
    "multiple choice": _choices,
    "answers": _answers,
    "agreement": _agreement,
    "labels": _labels,
    "pixels": _pixels,
    "boxes": _boxes,
}
INSTEAD = ("evaluate", "label_thresholds", "Predictions.multilabel", "operating_point", "take one", "give logits")
"""What a refusal names: something that the kind does have."""
kinds = pytest.mark.parametrize("kind", KINDS)


def quietly(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return KINDS[kind]()


def refusal(call):
    """Why a call is refused, in one line that says what is needed or what to do; None where it is not."""
    try:
        call()
    except InputError as error:
        text = str(error)
        return text if "\n" not in text and ("needs" in text or ";" in text) else f"NOT ONE CLEAR LINE: {text}"
    return None


@kinds
def test_every_metric_measures_or_says_in_one_line_what_it_needs(kind):
    p = quietly(kind)
    refused = {method.word: refusal(lambda method=method: method.function(p)) for method in METRICS}
    assert all(text is None or "needs" in text for text in refused.values()), refused
    assert sum(text is None for text in refused.values()) >= 15


@kinds
def test_rows_files_and_units_come_back_as_they_were(kind, tmp_path):
    p = quietly(kind)
    p.save(tmp_path / "p.parquet")
    read = confide.Predictions.load(tmp_path / "p.parquet")
    assert (len(read), read.unit, read.is_multilabel) == (len(p), p.unit, p.is_multilabel)
    assert read.facts.sureness() == pytest.approx(p.facts.sureness())
    assert read.facts.correct.tolist() == p.facts.correct.tolist()
    part = read.take(np.arange(0, len(p), 2))
    assert (part.unit, set(part.columns)) == (p.unit, set(p.columns))


@kinds
def test_evaluate_compare_calibrate_and_report_work(kind, tmp_path):
    p = quietly(kind)
    calibrator = confide.calibrators.fit("temperature", p)
    calibrator.save(tmp_path / "c.json")
    calibrated = confide.calibrators.load(tmp_path / "c.json")(p)
    assert (calibrated.unit, calibrated.is_multilabel) == (p.unit, p.is_multilabel)
    words = ["accuracy", "ece", "aurc"]
    evaluation = confide.evaluate(p, words)
    assert all(m.low <= m.value <= m.high for m in evaluation.measurements if m.group is None)
    assert evaluation.about.unit in ("samples", "answers", "labels", "pixels", "boxes")
    assert len(confide.compare(p, calibrated, metrics=["aurc"])) == 1
    confide.write_report(evaluation, tmp_path / "r.html")
    assert evaluation.about.unit in (tmp_path / "r.html").read_text(encoding="utf-8")
    sketch = confide.evaluation.sketch_of(p)
    assert sketch.rows == len(p)
    assert confide.evaluation.evaluate_sketch(sketch, words).value("accuracy") == pytest.approx(
        evaluation.value("accuracy", group=None)
    )


@kinds
def test_promises_of_single_samples_hold_or_name_the_unit(kind):
    p = quietly(kind)
    for call in (lambda: confide.operating_point(p, risk=0.3), lambda: confide.sets.fit("lac", p)):
        text = refusal(call)
        if p.clusters is None:
            assert text is None or "needs" in text
        else:
            assert f"'{p.unit}'" in text or "needs" in text


@kinds
def test_every_verb_works_on_a_file_of_the_kind_or_names_what_does(kind, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    p = quietly(kind)
    p.replace(split="val").save("a.parquet")
    p.replace(split="test").save("b.parquet")
    pair = ["--fit", "a.parquet", "--apply", "b.parquet"]
    works = {
        "evaluate": ["evaluate", "b.parquet", "--out", "e", "--no-intervals"],
        "calibrate": ["calibrate", *pair, "--methods", "temperature", "--out", "c.parquet"],
        "sets": ["sets", *pair],
        "operating-point": ["operating-point", "a.parquet", "--risk", "0.4"],
        "labels": ["labels", "a.parquet", "--f-beta", "1"],
        "monitor": ["monitor", "watch.jsonl", "--reference", "a.parquet", "--predictions", "b.parquet"],
    }
    done = set()
    for verb, call in works.items():
        status = main(call)
        line = capsys.readouterr().err.strip().splitlines()[-1:]
        if status in (0, 3):
            done.add(verb)
        else:
            assert status == 1, call
            assert ";" in line[0] or "needs" in line[0], line
            assert any(word in line[0] for word in INSTEAD), line
    expected = {"evaluate", "calibrate", *(["labels"] if p.is_multilabel else [])}
    if p.clusters is None:
        expected |= {"operating-point", "monitor"} | ({"sets"} if p.outputs.all_classes else set())
    assert done == expected


def test_shares_of_few_values_can_be_watched(tmp_path):
    p = quietly("agreement")
    watch = confide.monitor.Monitor(p, file=tmp_path / "watch.jsonl")
    assert np.isfinite(watch.reference.tolerance).all()
    confide.monitor.Monitor(file=tmp_path / "watch.jsonl")


@kinds
def test_a_folder_of_shards_is_evaluated_as_its_rows_are(kind, tmp_path):
    p = quietly(kind)
    (tmp_path / "shards").mkdir()
    for k, rows in enumerate(np.array_split(np.arange(len(p)), 3)):
        p.take(rows).save(tmp_path / "shards" / f"{k}.parquet")
    words = ["accuracy", "ece", "auroc", "aurc"]
    folder = confide.pipeline.evaluate_folder(tmp_path / "shards", tmp_path / "parts", words, False, exact=True)
    whole = confide.evaluate(p, words, False, score="msp")
    for word in words:
        found = next(m.value for m in folder.measurements if m.metric == word and m.group is None)
        assert found == pytest.approx(whole.value(word, group=None), abs=1e-9)


@kinds
def test_what_belongs_to_one_kind_names_it_to_the_others(kind):
    p = quietly(kind)
    of_labels = refusal(lambda: confide.evaluation.label_thresholds(p, f_beta=1.0))
    of_pixels = refusal(lambda: confide.dense.maps(p, 0, (4, 4)))
    assert of_labels is None if p.is_multilabel else "Predictions.multilabel" in of_labels
    assert of_pixels is None if kind == "pixels" else "confide.dense.pixels" in of_pixels
