"""A config that cannot be run is one clear line before any work, whatever stands in its YAML."""

from __future__ import annotations

from contextlib import suppress
from itertools import product
from pathlib import Path

import pytest

from confide import calibrators, difficulty, features, losses, pipeline, trust
from confide.checks import InputError, OptionError
from confide.cli.main import main
from confide.config import MOST_SHOWN, change_fields, load_config

LEVELS = "[" * 80 + "]" * 80
BOMB = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]" + "".join(
    f", {new}: &{new} [{', '.join([f'*{old}'] * 10)}]" for old, new in zip("abcd", "bcde", strict=True)
)
PAIRS = """losses: [{word: focal, name: a}, {word: focal, name: a-b}]
trust: [{word: mcp, name: b-c}, {word: mcp, name: c}]"""
WRONG = {
    "title: 5": "'title' must be a text",
    "title: !!binary aGVsbG8=": "must be YAML",
    "title: !!python/object/apply:os.system [echo]": "must be YAML",
    "data_options: !!set {a, b}": "must be YAML",
    "seed: !!int abc": "must be YAML",
    "seed: 2020-01-01": "'seed' must be a whole number",
    "seed: 1.0": "'seed' must be a whole number",
    f"seed: {10**23}": "'seed' must be a whole number",
    f"seed: {'9' * 5000}": "must be YAML",
    "seed: 1\nseed: 2": "the key 'seed' comes twice",
    f"data_options: {{a: {LEVELS}}}": "at most 64 levels",
    f"data_options: {'[' * 5000}{']' * 5000}": "at most 64 levels",
    f"data_options: {{{BOMB}}}": "aliases stand for more than",
    "data_options: &a {a: *a}": "at most 64 levels",
    "data_options: {seed: 3}": "must not name 'seed'",
    "1: 2": "keys must be words, got 1",
    "~: 2": "keys must be words, got None",
    "promise: abc": "'promise' must be a number",
    "promise: .nan": "'promise' must lie in",
    "calibrators: [{word: histogram, bins: 0}]": "bins of calibrator 'histogram' must lie in",
    "calibrators: [{word: temperature, criterion: ece}]": "criterion of calibrator 'temperature' must be one of",
    "calibrators: [{word: ensemble_temperature, bounds: 5}]": "'ensemble_temperature' must be a list of a number, a",
    "calibrators: [{word: ensemble_temperature, bounds: [2, 1]}]": "bounds must be two temperatures",
    "calibrators: [{word: second_opinion, opinion: 'knn, x'}]": "opinion must be one of",
    "calibrators: [{word: dac, evidence: 5}]": "evidence of calibrator 'dac' comes with every call",
    "calibrators: [{word: metaacc, rows: 5}]": "rows of calibrator 'metaacc' cannot stand in a config",
    "trust: [{word: knn, k: 0}]": "k of trust predictor 'knn' must lie in",
    "trust: [{word: steep_slope, alpha_neg: 81}]": "alpha_neg of trust predictor 'steep_slope' must lie in",
    "difficulty: {word: rmd, shrinkage: 2}": "shrinkage must lie in",
    "difficulty: {word: loss}": "must be scored from features",
    "promise: 1": "'promise' must lie in",
    "gallery: x": "'gallery' must be a number",
    "gallery: .inf": "'gallery' must lie in",
    "gallery: 1.5": "'gallery' must be a whole number",
    "risks: 5": "'risks' must be a list",
    "risks: [x]": "'risks' must be a number",
    "risks: [1]": "'risks' must lie in",
    "metrics: 5": "'metrics' must be core, all or words",
    "metrics: []": "'metrics' must be core, all or words",
    "metrics: [acuracy]": "did you mean 'accuracy'",
    "data: 5": "'data' must be a text",
    "losses: [{word: cross_entropy, name: ../../../escaped}]": "a file can be named after",
    "losses: [{word: cross_entropy, name: a/b}]": "a file can be named after",
    'losses: [{word: cross_entropy, name: "a\\nb"}]': "a file can be named after",
    f"losses: [{{word: cross_entropy, name: {'x' * 300}}}]": "a file can be named after",
    "calibrators: [{word: temperature, name: ..}]": "a file can be named after",
    "trust: [{word: mcp, name: 5}]": "must be a word, got 5",
    PAIRS: "would share the name 'a-b-c'",
    "losses: [{word: focal, gamma: x}]": "gamma of loss 'focal' must be a number",
    "calibrators: [{word: histogram, bins: x}]": "bins of calibrator 'histogram' must be a whole number",
    "trust: [{word: knn, k: x}]": "k of trust predictor 'knn' must be a whole number",
    "training: {model: nosuch}": "no model named 'nosuch'",
    "training: {model_options: {abc: 1}}": "has no option 'abc'",
    "training: {weight_options: {abc: 1}}": "has no option 'abc'",
    "training: {weight_options: {temperature: 0}}": "temperature must lie in",
    "losses: [{word: group_dro, adjustment: 1, group_counts: x}]": "group_counts",
    "training: {loss: focal}": "must not name 'loss'",
    f"training: {{epochs: {10**23}}}": "epochs must lie in",
    "epocs: 5": "config has no field 'epocs'",
}


@pytest.mark.parametrize("line", WRONG, ids=lambda line: line[:40])
def test_a_wrong_value_is_one_line_before_any_work(line: str, tmp_path: Path) -> None:
    file = tmp_path / "experiment.yaml"
    file.write_text(line + "\n")

    def check() -> None:
        config = load_config(file)
        pipeline.settings_of(config, config.losses[0])

    with pytest.raises((InputError, OptionError)) as caught:
        check()
    assert WRONG[line] in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_config_that_is_not_utf8_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "experiment.yaml").write_bytes(b"title: \xff\xfe\n")
    assert main(["run", str(tmp_path / "experiment.yaml"), "--out", str(tmp_path / "run")]) == 1
    assert "must be YAML in UTF-8" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_date_stays_the_word_that_was_written(tmp_path: Path) -> None:
    (tmp_path / "experiment.yaml").write_text("title: 2020-01-01\n")
    assert load_config(tmp_path / "experiment.yaml").title == "2020-01-01"


WITHOUT_LIMITS = ("model", "weights", "pretrained", "columns", "group_counts")
"""Options that are looked up where they are used, or by the loss when it is made."""


def test_no_option_of_any_stage_is_without_limits_before_the_work() -> None:
    """Each refuses a number that is none, a far too small one, and a word that nobody knows."""
    accepted = []
    for family in (features.EXTRACTORS, difficulty.DIFFICULTY, losses.LOSSES, calibrators.CALIBRATORS, trust.TRUST):
        for method in family:
            if getattr(method.spec, "source", "features") == "log":
                continue  # no config takes it
            for name, odd in product(set(method.options) - set(WITHOUT_LIMITS), (float("nan"), -1e30, "no such word")):
                with suppress(InputError):
                    method.check_values({name: odd})
                    accepted.append((method.word, name, odd))
    assert accepted == []


def test_limits_of_a_config_belong_to_it() -> None:
    """At the limit it is taken, beyond it is refused."""
    for line, inside, outside in (
        ("gallery", (0, MOST_SHOWN), (-1, MOST_SHOWN + 1)),
        ("promise", (0, 0.999), (-0.001, 1)),
        ("seed", (-(2**53), 2**53), (-(2**53) - 1, 2**53 + 1)),
    ):
        for value in inside:
            assert getattr(load_config({"data": "fashion-sample", line: value}), line) == value
        for value in outside:
            with pytest.raises(InputError):
                load_config({"data": "fashion-sample", line: value})
    by = {"word": "temperature", "by": "difficulty", "bands": 2}
    for bands in (2, calibrators.MOST_BANDS):
        load_config({"calibrators": [{**by, "bands": bands}]})
    for bad in ({"bands": 1}, {"bands": calibrators.MOST_BANDS + 1}, {"shrinkage": -0.1}, {"by": "age"}):
        with pytest.raises(InputError):
            load_config({"calibrators": [{**by, **bad}]})
    load_config({"calibrators": [{**by, "shrinkage": 0.0}]})
    for word in ("cached", "auto"):
        assert load_config({"features": word}).features.word == word
        with pytest.raises(InputError):
            load_config({"trust": [word]})
    with pytest.raises(InputError, match="has 'a' twice"):
        load_config({"trust": [{"word": "mcp", "name": "a"}, {"word": "entropy", "name": "a"}]})
    with pytest.raises(InputError, match="must name at least one loss"):
        load_config({"losses": []})
    with pytest.raises(InputError, match="must hold 'key: value' pairs"):
        load_config({"data_options": 5})


def test_a_field_that_is_set_leaves_those_beside_it():
    before = {"loss": "focal", "loss_options": {"gamma": 3, "form": "a"}}
    changed = change_fields(before, {"loss_options.gamma": 2, "new.inner": 1, "loss": "mmce"})
    assert changed == {"loss": "mmce", "loss_options": {"gamma": 2, "form": "a"}, "new": {"inner": 1}}
    assert before["loss_options"] == {"gamma": 3, "form": "a"}
    with pytest.raises(InputError, match="'loss' has no inner fields"):
        change_fields(before, {"loss.gamma": 2})
