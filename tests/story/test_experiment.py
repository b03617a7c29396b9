"""Whole experiments on small data: what is made, what is skipped, what bad input says."""

import json
from collections import Counter
from importlib import import_module

import numpy as np
import pytest

import confide
from confide.checks import InputError, OptionError
from confide.cli.main import main
from confide.explorer.layout import open_layout
from confide.explorer.samples import gather_samples, model_table
from confide.files.formats import plain

SMALL = {
    "title": "Three blobs",
    "training": {"model": "mlp", "epochs": 2, "batch_size": 32},
    "features": "pixels",
    "losses": ["cross_entropy", {"word": "difficulty_entropy", "alpha": 0.3}],
    "trust": ["mcp", "steep_slope"],
    "seed": 1,
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Three overlapping classes of 12 numbers, as an npz file with splits."""
    generator = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("data") / "blobs.npz"
    arrays = {}
    for split, n in (("train", 240), ("val", 150), ("test", 150)):
        labels = np.arange(n) % 3
        centres = np.eye(3, 12)[labels] * 2.0
        arrays[f"x_{split}"] = (centres + generator.normal(size=(n, 12))).astype(np.float32)
        arrays[f"y_{split}"] = labels
    np.savez(path, **arrays)
    return str(path)


@pytest.fixture(scope="module")
def outcome(data, tmp_path_factory):
    return confide.run({**SMALL, "data": data}, tmp_path_factory.mktemp("run"))


def test_a_run_goes_from_data_to_report(outcome):
    names = {p.name for p in outcome.folder.iterdir()}
    assert {"data.json", "manifest.json", "evaluation.json", "report.html"} <= names
    page = outcome.report.read_text(encoding="utf-8")
    assert "cross_entropy" in page
    assert "difficulty_entropy" in page
    assert outcome.evaluation.about.title == "Three blobs"
    assert "Three blobs" in page
    judged = confide.Scores.load(outcome.folder / "scores" / "test.parquet")
    assert {"verdict", "suggested"} <= set(judged.columns)
    accuracy = outcome.evaluation.find("accuracy", model="cross_entropy", stage="raw", group=None)
    assert 0.5 < float(accuracy) < 1
    assert accuracy.low < float(accuracy) < accuracy.high


def test_the_numbers_are_those_of_the_predictions(outcome):
    predictions = confide.Predictions.load(outcome.folder / "predictions" / "cross_entropy-test.parquet")
    shown = outcome.evaluation.value("accuracy", model="cross_entropy", stage="raw", group=None)
    assert shown == pytest.approx(float(predictions.facts.correct.double().mean()))


def test_a_second_call_makes_nothing_and_says_the_same(outcome, data):
    again = confide.run({**SMALL, "data": data}, outcome.folder)
    assert again.computed == ()
    assert plain(again.evaluation.to_dict()) == plain(outcome.evaluation.to_dict())


def test_the_same_seed_gives_the_same_numbers_elsewhere(outcome, data, tmp_path):
    again = confide.run({**SMALL, "data": data}, tmp_path / "other")
    rows = [plain(m.as_row()) for m in again.evaluation.measurements]
    assert rows == [plain(m.as_row()) for m in outcome.evaluation.measurements]


def test_a_changed_option_makes_only_what_depends_on_it(outcome, data):
    changed = confide.run({**SMALL, "data": data, "calibrators": ["temperature", "vector"]}, outcome.folder)
    assert any(stage.startswith("calibrate:cross_entropy:vector") for stage in changed.computed)
    assert not any(stage.startswith(("train:", "predict:", "features:", "difficulty:")) for stage in changed.computed)
    manifest = json.loads((outcome.folder / "manifest.json").read_text())
    assert "train:cross_entropy" in manifest["stages"]


def test_bands_of_difficulty_do_not_know_the_label(data, tmp_path):
    small = {"training": {**SMALL["training"], "average": 1.0, "mirror": True}, "data": data}
    losses = [{"word": "adaptive_difficulty", "name": "confide"}]
    outcome = confide.run("confide", tmp_path / "run", **small, losses=losses)
    bands, own = (confide.Scores.load(outcome.folder / "scores" / f"{name}.parquet") for name in ("groups", "train"))
    assert len(bands) == 240 + 150 - len(
        confide.Predictions.load(outcome.folder / "predictions/confide-promise.parquet")
    )
    assert (bands.of(own.ids) <= own.values + 1e-4).all()
    assert (bands.of(own.ids) < own.values - 1e-4).any()
    assert outcome.evaluation.value("accuracy", model="confide", stage="second_opinion", group=None) > 0.5


@pytest.fixture(scope="module")
def banded(data, tmp_path_factory):
    """A plan whose calibrator goes by difficulty, and its run."""
    choice = {"word": "temperature", "name": "banded", "by": "difficulty", "bands": 3}
    plan = {**SMALL, "data": data, "losses": ["cross_entropy"], "trust": [], "calibrators": [choice, "temperature"]}
    return plan, confide.run(plan, tmp_path_factory.mktemp("banded"))


def test_a_training_folder_names_its_files_as_a_run_folder_does(banded, data, tmp_path):
    """`train --recipe`: the network lies at the top, all else where a run of that plan has the same thing."""
    plan, outcome = banded
    recipe, folder = tmp_path / "recipe.yaml", tmp_path / "trained"
    recipe.write_text(json.dumps({name: plan[name] for name in plan.keys() - {"data"}}), encoding="utf-8")
    assert main(["train", data, "--recipe", str(recipe), "--epochs", "1", "--out", str(folder)]) == 0
    trained, run, model = (
        {path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file()}
        for place in (folder, outcome.folder, outcome.folder / "models" / "cross_entropy")
    )
    same = {"calibrators/cross_entropy-banded.json", "difficulty.safetensors", "scores/predicted_class.parquet"}
    assert same <= trained & run
    assert {"model.safetensors", "log.parquet"} <= trained & model
    assert trained - run - model == {"calibrator.json", "scores/made-of.json"}  # a short name; what a manifest tells


def test_a_calibrator_may_go_by_a_difficulty_that_does_not_know_the_label(banded):
    plan, outcome = banded
    calibrator = confide.calibrators.load(outcome.folder / "calibrators" / "cross_entropy-banded.json")
    assert (calibrator.by, sorted(calibrator.groups)) == ("difficulty", ["0", "1", "2"])
    rows = {
        split: confide.records.Features.load(outcome.folder / "features" / f"{split}.npz")
        for split in ("train", "test")
    }
    hardness = confide.difficulty.fit("rmd", rows["train"]).score(rows["test"], "predicted")
    said = confide.Predictions.load(outcome.folder / "predictions" / "cross_entropy-test.parquet")
    after = calibrator(said.with_column("difficulty", hardness.of(said.ids)))
    shown = outcome.evaluation.value("nll", model="cross_entropy", stage="banded", group=None)
    assert shown == pytest.approx(float(after.facts.need("nll").double().mean()), rel=1e-6)
    assert confide.run(plan, outcome.folder).computed == ()
    logits, moved = said.logits.double(), after.logits.double()
    shown = (logits[:, :1] - logits[:, 1:2]) / (moved[:, :1] - moved[:, 1:2])
    told = json.loads((outcome.folder / "evaluation.json").read_text(encoding="utf-8"))["about"]["stages"]
    assert told["cross_entropy/banded"] == f"T = {float(shown.min()):.2f} to {float(shown.max()):.2f} by difficulty"


def test_a_second_opinion_is_fitted_shown_explored_and_applied_to_new_samples(data, tmp_path, capsys):
    opinion = {"word": "second_opinion", "name": "opinion"}
    plan = {**SMALL, "data": data, "losses": ["cross_entropy"], "trust": [], "metrics": ["accuracy", "nll"]}
    folder = confide.run({**plan, "calibrators": [opinion], "promise": 0.0}, tmp_path / "run").folder
    told = json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))
    assert told["about"]["stages"]["cross_entropy/opinion"].startswith("weights: network ")
    saved, out = folder / "calibrators" / "cross_entropy-opinion.json", tmp_path / "joined.parquet"
    test = confide.Predictions.load(folder / "predictions" / "cross_entropy-test.parquet")
    joined = confide.calibrators.load(saved)(test, confide.Features.load(folder / "features" / "test.npz"))
    words = ["predict", str(folder / "models" / "cross_entropy"), data, "--calibrator", str(saved), "--out", str(out)]
    assert main(words) == 0
    assert "ms a sample" in capsys.readouterr().out
    np.testing.assert_allclose(confide.Predictions.load(out).logits, joined.logits, atol=1e-4)
    layout = open_layout(folder)
    samples = gather_samples(layout)
    shown = model_table(layout, samples, "cross_entropy", "opinion").column("confidence").to_numpy()
    start = samples.starts["test"]
    np.testing.assert_allclose(shown[start : start + len(test)], joined.facts.confidence, atol=1e-5)


def test_words_and_options_are_checked_before_any_work(data, tmp_path):
    out = tmp_path / "run"
    with pytest.raises(InputError, match="did you mean 'cross_entropy'"):
        confide.run({**SMALL, "data": data, "losses": ["cros_entropy"]}, out)
    with pytest.raises(OptionError, match="has no option 'gama'"):
        confide.run({**SMALL, "data": data, "losses": [{"word": "focal", "gama": 2}]}, out)
    with pytest.raises(OptionError, match="config has no field 'loses'"):
        confide.run({"loses": ["focal"]}, out)
    for grouped, told in (
        ({"by": "site", "bands": 3}, "can go by 'difficulty' alone, got by: 'site'"),
        ({"bands": 3}, "can go by 'difficulty' alone, got by: None"),
        ({"by": "difficulty"}, "bands of calibrator 'temperature' must be a number, got None"),
        ({"by": "difficulty", "bands": 2.5}, "bands of calibrator 'temperature' must be a whole number"),
        ({"by": "difficulty", "bands": 3, "shrinkage": -1}, "shrinkage of calibrator 'temperature' must lie in"),
        ({"by": "difficulty", "bandz": 3}, "has no option 'bandz'"),
    ):
        with pytest.raises((InputError, OptionError), match=told):
            confide.run({**SMALL, "data": data, "calibrators": [{"word": "temperature", **grouped}]}, out)
    with pytest.raises((InputError, OptionError), match="epoch"):
        confide.run({**SMALL, "data": data, "training": {"epoch": 3}}, out)
    assert not out.exists()


@pytest.fixture
def counted(monkeypatch):
    """How often a run, a training or a prediction fits a difficulty, reads one or a calibrator, and makes a Config."""
    calls = []

    def count(place, name):
        function, called = getattr(place, name), f"{place.__name__.rpartition('.')[2]}.{name}"
        monkeypatch.setattr(place, name, lambda *a, **k: calls.append(called) or function(*a, **k))

    for place, name in (("difficulty", "fit"), ("difficulty", "load"), ("calibrators", "fit"), ("calibrators", "load")):
        count(getattr(confide, place), name)
    count(confide.config.Config, "__init__")
    return calls


BANDED = {"word": "temperature", "name": "banded", "by": "difficulty", "bands": 3}


def test_difficulty_and_config_are_made_once_and_calibrators_read_once(data, tmp_path, counted):
    changes = {"losses": ["adaptive_difficulty"], "trust": [], "calibrators": ["temperature", BANDED]}
    outcome = confide.run({**SMALL, "data": data, **changes}, tmp_path / "run")
    once_each = {"calibrators.fit": 2, "calibrators.load": 2}
    assert Counter(counted) == {"Config.__init__": 1, "difficulty.fit": 1, **once_each}
    fitted = confide.difficulty.load(outcome.folder / "difficulty.safetensors")
    rows = confide.Features.load(outcome.folder / "features" / "test.npz")
    scores = confide.Scores.load(outcome.folder / "scores" / "test.parquet")
    np.testing.assert_array_equal(fitted.score(rows).values, scores.values)


@pytest.mark.parametrize("opinion", ["gaussian", "logistic"])
def test_a_second_opinion_is_fitted_once_for_all_models(data, tmp_path, monkeypatch, opinion):
    known, fits = import_module("confide.calibrators.second_opinion"), []
    function, posterior = known.OPINIONS[opinion]
    counted = {opinion: (lambda *given: fits.append(opinion) or function(*given), posterior)}
    monkeypatch.setattr(known, "OPINIONS", {**known.OPINIONS, **counted})
    changes = {"trust": [], "calibrators": [{"word": "second_opinion", "opinion": opinion}]}
    confide.run({**SMALL, "data": data, **changes}, tmp_path / "run")
    assert len(SMALL["losses"]) == 2
    assert fits == [opinion]


def test_a_recipe_and_a_prediction_make_and_read_everything_once(data, tmp_path, counted):
    recipe, run, out = (str(tmp_path / name) for name in ("recipe.yaml", "run", "calibrated.npz"))
    (tmp_path / "recipe.yaml").write_text(json.dumps({**SMALL, "data": data, "calibrators": [BANDED], "trust": []}))
    assert main(["train", data, "--recipe", recipe, "--out", run, "--quiet"]) == 0
    assert Counter(counted) == {"Config.__init__": 1, "difficulty.fit": 1, "calibrators.fit": 1}
    counted.clear()
    assert main(["predict", run, data, "--calibrator", f"{run}/calibrator.json", "--out", out, "--quiet"]) == 0
    assert Counter(counted) == {"calibrators.load": 1, "difficulty.load": 1}


@pytest.fixture(scope="module")
def three_seeds(data, tmp_path_factory):
    config = {**SMALL, "data": data, "losses": ["cross_entropy", "focal"], "trust": ["mcp"], "seeds": [0, 1, 2]}
    return confide.run(config, tmp_path_factory.mktemp("seeds"))


def test_seeds_of_a_config_become_one_row_with_their_mean_and_spread(three_seeds):
    evaluation = three_seeds.evaluation
    assert {m.model for m in evaluation.measurements} == {"cross_entropy", "focal"}
    files = [three_seeds.folder / "predictions" / f"cross_entropy-seed={seed}-test.parquet" for seed in range(3)]
    values = [float(confide.Predictions.load(file).facts.correct.double().mean()) for file in files]
    accuracy = evaluation.find("accuracy", model="cross_entropy", stage="raw", group=None)
    assert float(accuracy) == pytest.approx(np.mean(values))
    assert accuracy.sd == pytest.approx(np.std(values, ddof=1))
    assert accuracy.low <= min(values)
    assert evaluation.about.seeds == {"cross_entropy": 3, "focal": 3}
    assert {str(c.a) for c in evaluation.comparisons} == {"cross_entropy/raw", "cross_entropy/temperature", "focal/raw"}


def test_the_report_of_several_seeds_draws_bands_and_names_the_deviation(three_seeds):
    page = three_seeds.report.read_text(encoding="utf-8")
    assert "means over 3 seeds" in page
    for words in ("; band: all seeds", "; bands: all seeds", "; around the lines: all seeds"):
        assert words in page
    log = next(c for c in three_seeds.evaluation.curves if c.kind == "training")
    assert all(
        low <= value <= high
        for low, value, high in zip(
            *(log.columns[name] for name in ("val_nll_seed_low", "val_nll", "val_nll_seed_high")), strict=True
        )
    )
    assert "Thresholds are of one network each" in page


def test_a_run_of_several_seeds_goes_on_where_it_was_and_opens_in_the_explorer(three_seeds, data):
    config = {**SMALL, "data": data, "losses": ["cross_entropy", "focal"], "trust": ["mcp"], "seeds": [0, 1, 2]}
    assert confide.run(config, three_seeds.folder).computed == ()
    layout = open_layout(three_seeds.folder)
    assert list(layout.predictions) == [
        f"{loss}-seed={seed}" for loss in ("cross_entropy", "focal") for seed in range(3)
    ]
    assert not any("network" in missing.what for missing in layout.missing if hasattr(missing, "what"))


@pytest.mark.parametrize("seeds", [3, [1], [1, 1], ["a", 2]])
def test_seeds_that_are_no_list_of_different_numbers_are_refused_in_one_line(seeds):
    with pytest.raises(InputError, match="seeds"):
        confide.run({**SMALL, "seeds": seeds}, "never")


def test_run_takes_seeds_on_the_command_line(data, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = ["--set", f"data={data}", "--set", "training.model=mlp", "--set", "training.epochs=1"]
    options += ["--set", "features=pixels", "--set", "losses=[cross_entropy]", "--set", "metrics=[accuracy]"]
    assert main(["run", "demo", "--seeds", "0", "1", *options, "--out", "two", "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)["measurements"]
    assert measured[0]["sd"] is not None
