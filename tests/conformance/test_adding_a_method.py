"""A method is added by its function alone: a user's loss, metric, calibrator and trust score appear everywhere."""

import json
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

from confide import Evaluation, Predictions, evaluate, losses
from confide.calibrators import CALIBRATORS
from confide.calibrators.base import FittedValues
from confide.checks import InputError
from confide.cli.main import main
from confide.config import load_config
from confide.losses import LOSSES
from confide.losses.base import loss
from confide.metrics import METRICS
from confide.metrics.base import metric
from confide.report import render_report
from confide.trust import TRUST
from confide.trust.scores import OutputScore, output_score_facts


@pytest.fixture(autouse=True)
def own_methods(monkeypatch):
    """One of each family for the time of a test."""
    for registry in (LOSSES, METRICS, CALIBRATORS, TRUST):
        monkeypatch.setattr(registry, "_methods", dict(registry._methods))

    @loss("my_loss", paper="mine")
    def my_loss(logits, labels, *, power: float = 1.0):
        """My loss, (-log p_y)^power."""
        return torch.nn.functional.cross_entropy(logits, labels, reduction="none") ** power

    @metric(
        "my_error",
        paper="mine",
        title="My error",
        meaning="The share of samples that are wrong, as I call it.",
        kind="mean",
        better="lower",
        range=(0.0, 1.0),
        unit="pts",
        tables={"models": 9, "summary": 9, "core": 99},
    )
    def my_error(view):
        """My error, 1 - accuracy."""
        return 1 - view.mean("correct")

    @CALIBRATORS.add(
        "my_halving",
        paper="mine",
        title="my halving",
        keeps_argmax=True,
        yields="logits",
        parameters=(0, 0, 0),
        transform=lambda values, logits: logits / values["factor"],
    )
    def my_halving(logits, labels, *, factor: float = 2.0):
        """My halving, z / factor."""
        return FittedValues({"factor": torch.tensor(factor, dtype=torch.float64)})

    def first_logit(predictions):
        return predictions.logits[:, 0].double()

    @TRUST.add("my_score", paper="mine", **output_score_facts(first_logit))
    def my_score(predictions=None, features=None):
        """My score, z_0."""
        return OutputScore(first_logit)


def samples(split, n=80, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(n, 3, generator=generator)
    labels = torch.multinomial(torch.softmax(logits / 2, 1), 1, generator=generator).squeeze(1)
    return Predictions(logits, labels, ids=np.array([f"{split}{k}" for k in range(n)]), split=split)


@pytest.fixture
def files(tmp_path):
    for seed, split in enumerate(("val", "test")):
        samples(split, seed=seed).save(tmp_path / f"{split}.npz")
    return tmp_path


@pytest.mark.parametrize(
    ("family", "word", "option"),
    [
        ("losses", "my_loss", "power"),
        ("metrics", "my_error", None),
        ("calibrators", "my_halving", "factor"),
        ("trust", "my_score", None),
    ],
)
def test_each_is_listed(family, word, option, capsys):
    assert main(["list", family, "--json"]) == 0
    rows = {row["word"]: row for row in json.loads(capsys.readouterr().out)[family]}
    assert rows[word]["paper"] == "mine"
    assert option is None or option in rows[word]["options"]


def test_a_metric_is_listed_with_its_title_and_unit(capsys):
    assert main(["list", "metrics", "--json"]) == 0
    rows = {row["word"]: row for row in json.loads(capsys.readouterr().out)["metrics"]}
    facts = rows["my_error"]["facts"]
    assert (facts["title"], facts["unit"], facts["scale"], facts["digits"]) == ("My error", "pts", 100.0, 1)
    assert rows["ece"]["facts"]["variants"] == ["ece_mass"]


def test_each_stands_in_the_tables_of_the_docs():
    tool = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "write_method_table.py"))
    for word in ("my_loss", "my_error", "my_halving", "my_score"):
        assert word in tool["method_table"]()
    (row,) = [line for line in tool["metric_table"]().splitlines() if "my_error" in line]
    assert "My error" in row
    assert "pts" in row


def test_a_loss_is_trained_from_the_command_line_and_named_in_a_report(tmp_path, capsys):
    draw = np.random.default_rng(0)
    np.savez(tmp_path / "rows.npz", inputs=draw.normal(size=(60, 3)).astype("float32"), labels=np.arange(60) % 2)
    words = ["train", str(tmp_path / "rows.npz"), "--model", "mlp", "--epochs", "1", "--out", str(tmp_path / "run")]
    assert main([*words, "--loss", "my_los"]) == 1
    assert "my_loss" in capsys.readouterr().err
    assert main([*words, "--loss", "my_loss", "--quiet"]) == 0
    paths = [str(tmp_path / name) for name in ("run", "rows.npz", "test.npz")]
    assert main(["predict", *paths[:2], "--split", "test", "--out", paths[2], "--quiet"]) == 0
    found = evaluate(Predictions.load(paths[2]), ["accuracy"], False, model="my_loss")
    assert "my_loss" in render_report(found)


def test_a_loss_is_made_and_checked_by_word():
    logits, labels = torch.zeros(2, 4), torch.tensor([0, 1])
    assert losses.create("my_loss", power=2.0)(logits, labels).item() == pytest.approx(np.log(4) ** 2)
    config = load_config("demo", losses=["my_loss"], calibrators=["my_halving"], trust=["my_score"])
    assert [choice.word for choice in (*config.losses, *config.calibrators, *config.trust)] == [
        "my_loss",
        "my_halving",
        "my_score",
    ]
    with pytest.raises(InputError, match="my_loss"):
        load_config("demo", losses=["my_los"])


def test_a_metric_is_evaluated_from_the_command_line_and_reported(files, capsys):
    assert main(["evaluate", str(files / "test.npz"), "--no-intervals", "--out", str(files / "out")]) == 0
    assert "my_error" in capsys.readouterr().out  # it has a place among the core metrics
    value = Evaluation.load(files / "out" / "evaluation.json").value("my_error")
    html = (files / "out" / "report.html").read_text()
    assert "My error" in html
    assert "The share of samples that are wrong, as I call it." in html
    assert f">{100 * value:.1f}<" in html.replace("\n", "")


def test_an_evaluation_explains_a_metric_that_is_no_longer_registered(files):
    found = evaluate(samples("test"), ["accuracy", "my_error"], False)
    found.save(files / "evaluation.json")
    del METRICS._methods["my_error"]
    info = Evaluation.load(files / "evaluation.json").info("my_error")
    assert (info.title, info.unit) == ("My error", "pts")


def test_a_calibrator_is_chosen_from_the_command_line_and_named_in_a_report(files, capsys):
    paths = ["calibrate", "--fit", str(files / "val.npz"), "--apply", str(files / "test.npz")]
    assert main([*paths, "--methods", "my_halving", "--out", str(files / "halved.npz")]) == 0
    assert "my_halving" in capsys.readouterr().out
    assert main([*paths, "--methods", "my_halvin"]) == 1
    assert "my_halving" in capsys.readouterr().err
    found = evaluate(Predictions.load(files / "halved.npz"), ["accuracy", "nll"], False, stage="my_halving")
    assert "After my halving" in render_report(found)


def test_a_trust_score_is_measured_from_the_command_line_and_reported(files, capsys):
    paths = ["trust", str(files / "val.npz"), str(files / "test.npz"), "-o", str(files / "trust")]
    assert main([*paths, "--only", "my_score", "--fast"]) == 0
    assert "my_score" in capsys.readouterr().out
    assert main([*paths, "--only", "my_scor"]) == 1
    assert "my_score" in capsys.readouterr().err
    assert "my_score" in render_report(Evaluation.load(files / "trust" / "evaluation.json"))
