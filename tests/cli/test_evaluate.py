"""The verbs evaluate, compare and operating-point: tables, JSON, files and one clear line for bad input."""

import json
import sys

import numpy as np
import pytest
import torch

from confide import Predictions
from confide.cli.main import main
from confide.records import Scores
from confide.results import Evaluation


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    where = tmp_path_factory.mktemp("verbs")
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(300, 3, generator=generator)
    labels = torch.multinomial(torch.softmax(logits, 1), 1, generator=generator).squeeze(1)
    columns = {"site": np.array(["a", "b", "c"] * 100)}
    Predictions(logits, labels, split="test", columns=columns).save(where / "fine.parquet")
    Predictions(3 * logits, labels, split="test").save(where / "sharp.npz")
    Predictions(logits[:50], labels[:50], ids=np.arange(100, 150)).save(where / "other.parquet")
    right = (logits.argmax(1) == labels).numpy()
    top = Predictions.from_top1(labels, logits.argmax(1), torch.softmax(logits, 1).amax(1))
    top.save(where / "top.csv")
    assert right.any()
    return where


def test_evaluate_prints_a_table_and_writes_evaluation_and_report(folder, capsys):
    assert main(["evaluate", str(folder / "fine.parquet"), "--out", str(folder / "out"), "--quiet"]) == 0
    text = capsys.readouterr().out
    assert "300 samples" in text
    for word in ("accuracy", "ece_mass", "auroc (entropy)", "by chance", "by class"):
        assert word in text
    saved = json.loads((folder / "out" / "evaluation.json").read_text())
    assert saved["format"] == "evaluation/2"
    assert "<html" in (folder / "out" / "report.html").read_text()


def test_evaluate_speaks_json_and_groups_by_a_column(folder, capsys):
    words = ["evaluate", str(folder / "fine.parquet"), "--json", "--no-intervals", "--metrics", "accuracy", "ece"]
    assert main([*words, "--by", "site", "--out", str(folder / "json")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["about"]["commands"] == [
        f"confide evaluate {folder}/fine.parquet --no-intervals --metrics accuracy ece --by site --out {folder}/json"
    ]
    groups = {m["group"] for m in found["measurements"]}
    assert {"site=a", "site=b", "site=c"} <= groups


def test_how_far_a_ranking_of_cells_can_be_off_stands_in_the_table(folder, capsys):
    words = ["--sketch", "--no-intervals", "--metrics", "accuracy", "auroc", "--out", str(folder / "cells")]
    (folder / "shards").mkdir()
    Predictions.load(folder / "fine.parquet").save(folder / "shards" / "part-0.parquet")
    assert main(["evaluate", str(folder / "shards"), *words]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line}
    assert "from cells, within" in lines["auroc"]
    assert "within" not in lines["accuracy"]


@pytest.mark.parametrize("asked", [["f_beta", "average_precision"], ["nll", "brier"]])
def test_the_table_by_label_shows_what_was_asked_for_and_not_only_how_many(tmp_path, capsys, asked):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "val.npz", logits=rng.normal(size=(40, 2)), labels=rng.integers(0, 2, (40, 2)))
    assert main(["evaluate", str(tmp_path / "val.npz"), "--no-intervals", "--metrics", *asked]) == 0
    header = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("by label"))
    assert header.split()[2:] == ["samples", *asked]


@pytest.mark.parametrize(("column", "warned"), [("logits", True), ("probs", False)])
def test_probabilities_that_are_called_logits_are_doubted(tmp_path, capsys, column, warned):
    values = np.random.default_rng(0).dirichlet(np.ones(4), 60).astype("float32")
    np.savez(tmp_path / "said.npz", **{column: values}, labels=np.arange(60) % 4)
    assert main(["evaluate", str(tmp_path / "said.npz"), "--metrics", "accuracy", "ece", "--no-intervals"]) == 0
    assert ("warning: every row of the logits in " in capsys.readouterr().out) == warned
    kept = Evaluation.load(tmp_path / "said-evaluation" / "evaluation.json").warnings
    assert any("call the column 'probs'" in one for one in kept) == warned
    (tmp_path / "shards").mkdir()
    (tmp_path / "said.npz").rename(tmp_path / "shards" / "said.npz")
    assert main(["evaluate", str(tmp_path / "shards"), "--metrics", "accuracy", "ece", "--no-intervals"]) == 0
    assert ("warning: every row of the logits in " in capsys.readouterr().out) == warned


def test_a_single_column_of_probabilities_called_logit_is_doubted(tmp_path, capsys):
    rows = "".join(f"{p},{k % 2}\n" for k, p in enumerate(np.linspace(0.01, 0.99, 40)))
    (tmp_path / "said.csv").write_text("logit,label\n" + rows)
    assert main(["operating-point", str(tmp_path / "said.csv"), "--coverage", "0.5"]) == 0
    assert "lie in [0, 1], as probabilities do" in capsys.readouterr().err


def test_without_intervals_the_table_has_no_empty_columns(folder, capsys):
    words = ["evaluate", str(folder / "fine.parquet"), "--metrics", "accuracy", "ece", "--out", str(folder / "bare")]
    assert main([*words, "--no-intervals"]) == 0
    assert "by chance" not in capsys.readouterr().out
    assert main(words) == 0
    assert "by chance" in capsys.readouterr().out


VERBS_THAT_READ_PREDICTIONS = {
    "compare": ["{0}/{1}.npz", "{0}/{1}-test.npz", "--metrics", "accuracy", "--resamples", "20"],
    "operating-point": ["{0}/{1}.npz", "--coverage", "0.5"],
    "calibrate": ["--fit", "{0}/{1}.npz", "--apply", "{0}/{1}-test.npz", "--methods", "temperature"],
    "trust": ["{0}/{1}.npz", "{0}/{1}-test.npz", "--fast", "--only", "entropy", "-o", "{0}/trust"],
    "harden": ["--scores", "{0}/scores.parquet", "--predictions", "{0}/{1}.npz"],
    "score": ["{0}/features.npz", "--method", "loss", "--predictions", "{0}/{1}.npz", "-o", "{0}/s.parquet"],
}


@pytest.mark.parametrize("verb", VERBS_THAT_READ_PREDICTIONS)
def test_every_verb_doubts_probabilities_that_are_called_logits(tmp_path, capsys, verb):
    draw = np.random.default_rng(0)
    probs, labels = draw.dirichlet(np.ones(4), 80).astype("float16"), np.arange(80) % 4
    for name, values in (("probs", probs), ("real", np.log(probs + 1e-6))):
        np.savez(tmp_path / f"{name}.npz", logits=values, labels=labels)
        np.savez(tmp_path / f"{name}-test.npz", logits=values[::-1], labels=labels)
    np.savez(tmp_path / "features.npz", features=draw.normal(size=(80, 3)), labels=labels)
    Scores(np.arange(80), draw.normal(size=80), "rmd").save(tmp_path / "scores.parquet")
    for name, warned in (("probs", True), ("real", False)):
        words = [word.format(tmp_path, name) for word in VERBS_THAT_READ_PREDICTIONS[verb]]
        assert main([verb, *words, "--json"]) == 0
        told = capsys.readouterr()
        assert (f"warning: every row of the logits in {tmp_path}/probs.npz sums to 1" in told.err) == warned
        json.loads(told.out)


def test_evaluate_of_top_one_files_says_what_needs_more(folder, capsys):
    assert main(["evaluate", str(folder / "top.csv"), "--no-intervals", "--out", str(folder / "top")]) == 0
    assert "nll: needs all probabilities" in capsys.readouterr().out


def test_evaluate_prints_its_verdict_and_none_that_was_not_tested(folder, capsys):
    words = ["evaluate", str(folder / "sharp.npz"), "--out", str(folder / "verdict")]
    assert main(words) == 0
    assert capsys.readouterr().out.startswith("This model says ")
    assert main([*words, "--no-intervals"]) == 0
    assert "without intervals nothing tells whether that is chance" in capsys.readouterr().out


def test_compare_names_the_better_one(folder, capsys):
    files = [str(folder / "sharp.npz"), str(folder / "fine.parquet")]
    assert main(["compare", *files, "--metrics", "nll", "ece", "--resamples", "200"]) == 0
    text = capsys.readouterr().out
    assert "fine minus sharp" in text
    assert main(["compare", *files, "--metrics", "nll", "--resamples", "50", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["better"] == "b"


def test_operating_point_is_saved_and_applied(folder, capsys):
    point, accepted = folder / "point.json", folder / "accepted.csv"
    assert main(["operating-point", str(folder / "fine.parquet"), "--risk", "0.3", "--out", str(point)]) == 0
    told = capsys.readouterr().out
    assert "accept a prediction if msp >=" in told
    assert "with confidence 0.95 the risk is at most 0.3," in told  # what was asked for, not the bound of one step
    assert json.loads(point.read_text())["bound"] < 0.3
    assert main(["operating-point", str(folder / "fine.parquet"), "--apply", str(point), "--out", str(accepted)]) == 0
    assert "promised: at most 0.3 with confidence 0.95" in capsys.readouterr().out
    assert accepted.read_text().startswith("id,accepted")
    assert main(["operating-point", str(folder / "fine.parquet"), "--risk", "0.001", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["threshold"] is None
    assert main(["operating-point", str(folder / "fine.parquet"), "--risk", "0.4", "--per-class"]) == 0
    assert "predicted class" in capsys.readouterr().out


def test_the_score_of_confidence_and_correctness_is_called_confidence(tmp_path, capsys):
    path = tmp_path / "pairs.csv"
    path.write_text("correct,confidence\n" + "1,0.9\n" * 60 + "0,0.2\n" * 20)
    assert main(["operating-point", str(path), "--risk", "0.1"]) == 0
    assert capsys.readouterr().out.startswith("accept a prediction if confidence >= 0.9")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["evaluate", "{}/none.parquet"], "does not exist"),
        (["evaluate", "{}/fine.parquet", "--metrics", "acuracy"], "did you mean 'accuracy'"),
        (["evaluate", "{}/fine.parquet", "--scores", "{}/fine.parquet"], "must have columns 'id' and 'score'"),
        (["compare", "{}/fine.parquet", "{}/other.parquet"], "ids of 'other' differ"),
        (["compare", "{}/fine.parquet"], "at least two"),
        (["report", "{}/fine.parquet"], "measure predictions first: confide evaluate"),
        (["operating-point", "{}/fine.parquet"], "give either --risk"),
        (["operating-point", "{}/fine.parquet", "--risk", "0.1", "--coverage", "0.5"], "give either --risk"),
    ],
)
def test_bad_input_is_one_line_and_status_one(folder, capsys, words, message):
    assert main([word.format(folder) for word in words]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("splits", "ids", "message"),
    [
        (("val", "test"), ("a", "b"), "all shards must be of one split, got 'val'"),
        (("test", "test"), ("a", "a"), "'a0' again"),
    ],
)
def test_a_folder_of_several_splits_or_models_is_no_set_of_shards(tmp_path, capsys, splits, ids, message):
    for name, split, prefix in zip("xy", splits[::-1], ids, strict=True):
        named = np.array([f"{prefix}{k}" for k in range(20)])
        Predictions(torch.randn(20, 3), torch.arange(20) % 3, named, split).save(tmp_path / f"{name}.parquet")
    assert main(["evaluate", str(tmp_path), "--no-intervals"]) == 1
    assert message in capsys.readouterr().err


def test_scores_keep_their_verdicts_labels_and_notes(tmp_path, monkeypatch):
    """`--scores` reads what `confide score` wrote, whole."""
    labels = np.arange(20) % 2
    Predictions(np.eye(2)[labels], labels, split="test").save(tmp_path / "p.npz")
    verdicts = np.array(["typical", "hard"])[labels]
    scores = Scores(np.arange(20), np.arange(20.0), "rmd", {}, labels, {"verdict": verdicts}, ("a note",))
    scores.save(tmp_path / "s.parquet")
    seen = []
    module = sys.modules["confide.evaluation.evaluate"]
    measure = module.evaluate
    monkeypatch.setattr(module, "evaluate", lambda *a, **k: seen.append(k["scores"]) or measure(*a, **k))
    assert main(["evaluate", str(tmp_path / "p.npz"), "--scores", str(tmp_path / "s.parquet"), "--no-intervals"]) == 0
    assert seen[0].columns["verdict"].tolist() == verdicts.tolist()
    assert seen[0].labels.tolist() == labels.tolist()
    assert (seen[0].method, seen[0].notes) == ("rmd", ("a note",))


@pytest.mark.parametrize(("words", "workers"), [([], 2), (["--workers", "1"], 1), (["--workers", "3"], 3)])
def test_shards_are_counted_by_two_workers_or_as_many_as_are_asked_for(folder, tmp_path, monkeypatch, words, workers):
    from confide import pipeline

    shards, asked, count = tmp_path / "shards", [], pipeline.evaluate_folder
    shards.mkdir()
    Predictions.load(folder / "fine.parquet").save(shards / "0.parquet")

    def counted(*args, workers, engine, **options):
        asked.append(workers)
        return count(*args, **options)

    monkeypatch.setattr(pipeline, "evaluate_folder", counted)
    command = ["evaluate", str(shards), "--metrics", "accuracy", "--no-intervals", "--exact", "--engine", "local"]
    assert main([*command, *words, "--out", str(tmp_path / "e")]) == 0
    assert asked == [workers]
