"""`confide train` and `confide predict`, called as a person would."""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import confide
from confide.checks import InputError
from confide.cli import train
from confide.cli.main import main
from confide.config import load_config
from confide.files import read_json, write_json
from confide.predictions import Predictions
from confide.records import FeatureSource, Scores
from confide.shift import corrupt, corrupt_split
from confide.training import Trained, predict, predict_members

SMALL = ["--epochs", "1", "--set", "model_options.width=4", "--set", "model_options.hidden=8", "--device", "cpu"]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> str:
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, 300)
    values = generator.integers(0, 150, (300, 8, 8))
    values[np.arange(300), :, labels * 2] += 90
    path = tmp_path_factory.mktemp("data") / "images.npz"
    np.savez(path, images=values.astype(np.uint8), labels=labels)
    return str(path)


def test_train_then_predict(images: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, out = str(tmp_path / "run"), str(tmp_path / "predictions.parquet")
    assert main(["train", images, "--loss", "focal", "--set", "loss_options.gamma=2", "--out", run, *SMALL]) == 0
    printed = capsys.readouterr().out
    assert f"next: confide predict {run} {images} --split test" in printed
    assert re.search(r"\d \(by chance \d+\.\d\)", printed)
    assert main(["predict", run, images, "--out", out]) == 0
    assert re.search(r"ece \S+ pts \(by chance \S+ pts\)", capsys.readouterr().out)
    assert main(["predict", run, images, "--out", out, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert 0 < told["ece_by_chance"] < 1
    predictions = Predictions.load(out)
    assert len(predictions) == told["samples"]
    assert predictions.split == "test"
    assert float(predictions.facts.correct.float().mean()) == pytest.approx(told["accuracy"])
    with np.load(images) as data:
        np.savez(tmp_path / "new.npz", images=data["images"][:20])
    assert main(["predict", run, str(tmp_path / "new.npz"), "--out", out]) == 0
    assert "20 predictions of 1 model on" in capsys.readouterr().out
    served = Predictions.load(out)
    assert not served.has_labels
    assert served.num_classes == 3
    (tmp_path / "pictures").mkdir()
    for name, picture in {"as-trained": served_as(images), "photo": Image.new("RGB", (30, 20))}.items():
        picture.save(tmp_path / "pictures" / f"{name}.png")
    assert main(["predict", run, str(tmp_path / "pictures"), "--out", out]) == 0
    assert Predictions.load(out).ids.tolist() == ["as-trained.png", "photo.png"]
    np.testing.assert_array_equal(Predictions.load(out).logits[0], served.logits[0])


def served_as(images: str) -> Image.Image:
    """The first image as a picture."""
    with np.load(images) as data:
        return Image.fromarray(data["images"][0])


PIXELS = ["--recipe", "confide", "--features", "pixels"]  # the usual ones need weights


def test_a_recipe_brings_loss_averages_and_calibrator(
    images: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, out = str(tmp_path / "run"), str(tmp_path / "calibrated.parquet")
    assert main(["train", images, *PIXELS, "--out", run, *SMALL]) == 0
    assert f"--calibrator {run}/calibrator.json --out" in capsys.readouterr().out
    trained, plan = Trained.load(run), load_config("confide")
    assert (Path(run) / "calibrators" / "confide-second_opinion.json").exists()
    calibrator = confide.calibrators.load(run + "/calibrator.json")
    assert (calibrator.word, calibrator.source.extractor) == ("second_opinion", "pixels")
    assert confide.calibrators.opinion_names(calibrator) == ("logistic",)
    assert (trained.settings.loss, trained.settings.mirror) == (plan.losses[0].word, True)
    assert main(["predict", run, images, "--calibrator", run + "/calibrator.json", "--out", out]) == 0
    plain, calibrated = predict(trained, confide.load_dataset(images)), Predictions.load(out)
    assert (plain.facts.confidence != calibrated.facts.confidence).any()


def test_an_ensemble_of_a_recipe_has_a_calibrator_too(images: str, tmp_path: Path) -> None:
    run, out = str(tmp_path / "run"), str(tmp_path / "calibrated.parquet")
    assert main(["train", images, *PIXELS, "--members", "2", "--out", run, *SMALL]) == 0
    assert main(["predict", run, images, "--calibrator", run + "/calibrator.json", "--out", out]) == 0
    said = predict_members(run, confide.load_dataset(images))
    assert (said.facts.confidence != Predictions.load(out).facts.confidence).any()


def test_a_recipe_takes_scores_and_features_that_are_given(
    images: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scores, run, recipe = str(tmp_path / "scores.parquet"), tmp_path / "run", tmp_path / "banded.yaml"
    recipe.write_text(
        "title: banded\ndata: any\nfeatures: pixels\ndifficulty: rmd\nlosses: [cross_entropy]\n"
        "calibrators: [{word: temperature, by: difficulty, bands: 2}]\n",
        encoding="utf-8",
    )
    banded = ["--recipe", str(recipe), "--features", "pixels"]
    assert main(["score", images, "--features", "pixels", "--gallery", "none", "-o", scores]) == 0
    # The loss's scores are given; what the calibrator goes by is made all the same, before the training.
    words = ["train", images, "--scores", scores, "--out", str(run), *SMALL]
    assert main([*words, *banded]) == 0
    assert confide.calibrators.load(run / "calibrator.json").by == "difficulty"
    saved = run / "scores" / "predicted_class.parquet"
    made = saved.stat().st_mtime_ns
    assert main([*words, *banded]) == 0
    assert saved.stat().st_mtime_ns == made
    # A training folder of the first days calls them otherwise; they are found all the same.
    saved.rename(run / "hardness.parquet")
    assert main([*words, *banded]) == 0
    assert not saved.exists()
    # A difficulty of other features than are asked for now is made again.
    note = run / "scores" / "made-of.json"
    write_json(note, {**read_json(note), "features": {"word": "another"}})
    assert main([*words, *banded]) == 0
    assert saved.exists()
    assert read_json(note)["features"]["word"] == "pixels"
    capsys.readouterr()
    assert main(["train", images, "--features", "pixels", "--out", str(tmp_path / "none")]) == 1
    assert "without --recipe reads no features and takes no --features" in capsys.readouterr().err


def test_scores_of_two_splits_make_the_bands(images: str, tmp_path: Path) -> None:
    scores = [str(tmp_path / "train.parquet"), str(tmp_path / "val.parquet")]
    common = ["score", images, "--features", "pixels", "--labels", "predicted", "--gallery", "none"]
    assert main([*common, "-o", scores[0]]) == 0
    assert main([*common, "--split", "val", "--fit-split", "train", "-o", scores[1]]) == 0
    loss = ["--loss", "adaptive_difficulty", "--out", str(tmp_path / "run")]
    assert main(["train", images, *loss, "--scores", *scores, *SMALL]) == 0
    assert "doubt4" in Trained.load(tmp_path / "run").log


@pytest.mark.parametrize("label_bands", [True, False])
def test_a_recipe_whose_loss_needs_bands_scores_the_data_itself(tmp_path: Path, label_bands: bool) -> None:
    recipe = tmp_path / "banded.yaml"
    knows = "true" if label_bands else "false"
    lines = f"features: auto\nlosses: [adaptive_difficulty]\ntraining: {{label_bands: {knows}}}\n"
    recipe.write_text(lines, encoding="utf-8")
    generator = np.random.default_rng(0)
    labels = np.arange(300) % 3
    rows = (np.eye(3, 6)[labels] * 3 + generator.normal(size=(300, 6))).astype(np.float32)
    np.savez(tmp_path / "rows.npz", x=rows, y=labels)
    run = tmp_path / "run"
    words = ["--recipe", str(recipe), "--model", "mlp", "--epochs", "1", "--device", "cpu"]
    assert main(["train", str(tmp_path / "rows.npz"), *words, "--out", str(run)]) == 0
    dataset, found = (
        confide.load_dataset(tmp_path / "rows.npz"),
        Scores.load(run / "scores" / f"{'label_' * label_bands}groups.parquet"),
    )
    assert len(found) == 300 - len(dataset.test)
    # The difficulty to the label's class is never below that to the likeliest one.
    fitted = confide.difficulty.fit("rmd", dataset.train.inputs, dataset.train.labels)
    free = fitted.score(dataset.train.inputs, "predicted").values
    mine = found.values[: len(free)]
    assert (mine > free + 1e-3).any() == label_bands
    assert (run / "calibrator.json").exists()


def test_a_recipe_whose_calibrator_goes_by_difficulty_takes_it_along(
    images: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, run = tmp_path / "banded.yaml", tmp_path / "run"
    calibrator = "{word: temperature, by: difficulty, bands: 3, shrinkage: 0}"
    lines = f"features: pixels\nlosses: [cross_entropy]\ncalibrators: [{calibrator}]\n"
    recipe.write_text(lines, encoding="utf-8")
    assert main(["train", images, "--recipe", str(recipe), "--out", str(run), *SMALL]) == 0
    dataset = confide.load_dataset(images)
    alone = tmp_path / "alone.npz"  # samples that come later: no training split beside them
    np.savez(alone, x_test=dataset.test.inputs, y_test=dataset.test.labels)
    saved, out = str(run / "calibrator.json"), str(tmp_path / "out.parquet")
    assert main(["predict", str(run), str(alone), "--calibrator", saved, "--out", out]) == 0
    rows = confide.difficulty.fit("rmd", confide.features.extract("pixels", dataset, "train"))
    scores = rows.score(confide.features.extract("pixels", dataset, "test"), "predicted")
    plain = predict(Trained.load(run), dataset).with_column("difficulty", scores.values)
    found = Predictions.load(out)
    expected = confide.calibrators.load(saved)(plain)
    np.testing.assert_allclose(found.logits.numpy(), expected.logits.numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.columns["difficulty"], scores.values, rtol=1e-6)
    # What the file says of its features is checked before it is used.
    fitted = confide.difficulty.load(run / "difficulty.safetensors")
    bad = FeatureSource("pixels", {"out": str(tmp_path / "elsewhere")})
    replace(fitted, source=bad).save(run / "difficulty.safetensors")
    assert main(["predict", str(run), str(alone), "--calibrator", saved, "--out", out]) == 1
    assert "the features for it cannot be had" in capsys.readouterr().err
    assert not (tmp_path / "elsewhere").exists()
    # Without the fitted difficulty its scores may be given; without either one line says what to do.
    scores.save(tmp_path / "scores.parquet")
    (run / "difficulty.safetensors").unlink()
    words = ["predict", str(run), images, "--calibrator", saved, "--out", out]
    assert main([*words, "--scores", str(tmp_path / "scores.parquet")]) == 0
    np.testing.assert_allclose(Predictions.load(out).logits.numpy(), expected.logits.numpy(), rtol=1e-5, atol=1e-6)
    capsys.readouterr()
    assert main(words) == 1
    assert "difficulty.safetensors is not there; keep both files together, or pass --scores" in capsys.readouterr().err


def test_features_that_data_carry_are_not_those_of_corrupted_images(tmp_path: Path) -> None:
    dataset = confide.load_dataset("fashion-sample")
    assert "features" in dataset.test.columns
    worse = corrupt_split(dataset, "test", "fog", 3)
    assert "features" not in worse.test.columns
    assert "features" in worse.train.columns


def test_an_ensemble_is_recorded_and_predicts_together(images: str, tmp_path: Path) -> None:
    run, out = str(tmp_path / "run"), str(tmp_path / "together.npz")
    assert main(["train", images, "--members", "2", "--record", "test", "--out", run, *SMALL]) == 0
    assert len(list((tmp_path / "run" / "recorded").rglob("epoch-*.npy"))) == 2
    assert main(["predict", run, images, "--out", out]) == 0
    assert Predictions.load(out).from_probabilities


def test_what_a_killed_recorder_left_is_removed_and_dropout_is_the_ensembles(images: str, tmp_path: Path) -> None:
    run, out = tmp_path / "run", str(tmp_path / "out.parquet")
    left = run / "recorded" / "member-000" / ".confide-ab12.part"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half")
    words = ["--members", "2", "--record", "test", "--set", "model_options.dropout=0.4"]
    assert main(["train", images, "--out", str(run), *SMALL, *words]) == 0
    assert not left.exists()
    assert main(["predict", str(run), images, "--passes", "3", "--out", out]) == 0
    columns = Predictions.load(out).columns
    assert "ensemble_entropy" in columns
    assert "mc_entropy" not in columns


def test_dropout_passes_and_ood_data(images: str, tmp_path: Path) -> None:
    run, out = str(tmp_path / "run"), str(tmp_path / "out.parquet")
    assert main(["train", images, "--out", run, *SMALL, "--set", "model_options.dropout=0.4"]) == 0
    assert main(["predict", run, images, "--passes", "4", "--out", out]) == 0
    assert "mc_entropy" in Predictions.load(out).columns
    assert main(["predict", run, images, "--ood", "--out", out]) == 0
    ood = Predictions.load(out)
    assert set(ood.labels.tolist()) == {0}
    assert len(set(ood.columns["foreign_label"].tolist())) == 3


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--loss", "fokal"], "no loss named 'fokal'; did you mean 'focal'?"),
        (["--model", "resnet81"], "no model named 'resnet81'; did you mean"),
        (["--preset", "paper-cifr"], "did you mean 'paper-cifar'?"),
        (["--set", "epoch=3"], "training has no setting 'epoch'; did you mean 'epochs'?"),
        (["--set", "loss_options.gama=3", "--loss", "focal"], "loss 'focal' has no option 'gama'"),
        (["--loss", "difficulty_entropy"], "no scores came"),
        (["--model", "text_cnn"], "takes text inputs"),
        (["--set", "average=much"], "average must be a number, got 'much'"),
        (["--set", "mirror=maybe"], "mirror must be true or false, got 'maybe'"),
        (["--set", "model_options=3"], "model_options must be options by name, got 3"),
        (["--set", "loss="], "loss must be a word, got None"),
        (["--set", "nesterov=true", "--set", "momentum=0"], "nesterov needs a momentum above 0"),
        (["--set", "epochs=[1"], "the value of 'epochs' must be YAML"),
        (["--schedule", "step", "--set", "schedule_options.milestones=5"], "'milestones' must be a list of epochs"),
        (["--set", "schedule_options.warmup=long"], "'warmup' must be a number, got 'long'"),
        (["--members", "0"], "members must lie in [1, 10000], got 0"),
        (["--workers", "0"], "workers must lie in [1, 1024], got 0"),
        (["--grid", "loss"], "a grid must be FIELD=A,B, got 'loss'"),
    ],
)
def test_bad_input_gets_one_line(
    images: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], line: str
) -> None:
    assert main(["train", images, "--out", str(tmp_path / "run"), "--device", "cpu", *words]) == 1
    error = capsys.readouterr().err.strip()
    assert line in error
    assert "\n" not in error


def test_shifted_images_are_predicted(images: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, out = str(tmp_path / "run"), str(tmp_path / "out.parquet")
    assert main(["train", images, "--out", run, *SMALL]) == 0
    capsys.readouterr()
    assert main(["predict", run, images, "--shift", "gaussian_noise", "--severity", "4", "--out", out, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["severity"] == 4
    test = confide.load_dataset(images).split("test")
    noisy = corrupt(test.inputs, "gaussian_noise", 4, ids=test.ids)
    expected = predict(run, replace(test, inputs=noisy))
    assert (Predictions.load(out).logits == expected.logits).all()
    for words, line in (
        (["--shift", "gausian_noise"], "did you mean 'gaussian_noise'?"),
        (["--shift", "fog", "--severity", "6"], "severity must"),
    ):
        assert main(["predict", run, images, *words, "--out", out]) == 1
        assert line in capsys.readouterr().err


def planned(words: list[str]) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser()
    train.configure(parser)
    return [job.settings.as_dict() for job in train.training_jobs(parser.parse_args(["data", *words]))]


def test_numbers_with_an_exponent_are_numbers() -> None:
    (settings,) = planned(["--set", "learning_rate=1e-3", "--loss", "focal", "--set", "loss_options.gamma=2e0"])
    assert (settings["learning_rate"], settings["loss_options"]["gamma"]) == (1e-3, 2.0)
    assert [one["learning_rate"] for one in planned(["--grid", "learning_rate=1e-1,5E-2"])] == [0.1, 0.05]


def test_another_schedule_does_not_inherit_the_options_of_a_preset() -> None:
    for words in (["--schedule", "cosine"], ["--set", "schedule=cosine"]):
        (settings,) = planned(["--preset", "paper-cifar", *words])
        assert (settings["schedule"], settings["schedule_options"]) == ("cosine", {})
    (kept,) = planned(["--preset", "paper-cifar", "--set", "schedule_options.factor=0.3"])
    assert kept["schedule_options"] == {"milestones": [60, 120, 160], "factor": 0.3}


def test_a_recipe_without_flips_predicts_no_mirror_images() -> None:
    def mirrors(*words: str) -> bool:
        return bool(planned(["--recipe", "confide", *words])[0]["mirror"])

    assert mirrors()
    assert mirrors("--augment", "flip")
    assert not mirrors("--augment", "none")
    assert not mirrors("--set", "augment=crop")
    assert mirrors("--augment", "none", "--set", "mirror=true")
    with pytest.raises(InputError, match="augment"):
        mirrors("--set", "augment=5")


def test_a_grid_is_not_started_by_torchrun(
    images: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["train", images, "--grid", "seed=0,1", "--out", str(tmp_path), *SMALL]) == 1
    assert "start them without torchrun" in capsys.readouterr().err


def test_commas_in_brackets_do_not_part_the_values_of_a_grid() -> None:
    jobs = planned(["--schedule", "step", "--grid", "schedule_options.milestones=[1,2],[3]"])
    assert [one["schedule_options"]["milestones"] for one in jobs] == [[1, 2], [3]]


def test_predicting_without_a_model(images: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", str(tmp_path), images]) == 1
    assert "must be a trained model" in capsys.readouterr().err


@pytest.mark.slow
def test_a_grid_in_local_processes(images: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--grid", "loss=cross_entropy,focal", "--grid", "seed=0,1", "--workers", "2"]
    assert main(["train", images, "--out", str(tmp_path), *words, *SMALL, "--json"]) == 0
    answers = json.loads(capsys.readouterr().out)
    assert len(answers) == 4
    assert (tmp_path / "loss=focal_seed=1" / "model.safetensors").exists()


@pytest.mark.slow
def test_a_cell_that_diverges_does_not_stop_the_grid(
    images: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", images, "--out", str(tmp_path), "--grid", "learning_rate=1e30,0.05", *SMALL]) == 1
    out, error = capsys.readouterr()
    assert (tmp_path / "learning_rate=0.05" / "model.safetensors").exists()
    assert "learning_rate=0.05" in out
    assert re.search(r"learning_rate=1e30: (the loss|a weight) became NaN", error)


def test_cells_of_a_grid_have_folders_of_their_own() -> None:
    parser = argparse.ArgumentParser()
    train.configure(parser)
    words = ["data", "--out", "grid", "--loss", "focal", "--grid", "loss_options.gamma=0.5,1.5", "--grid", "seed=0"]
    folders = [
        str(job.out) for job in train.training_jobs(parser.parse_args([*words, "--grid", "model=hf:a/x,hf:b/x"]))
    ]
    assert folders[0] == "grid/gamma=0.5_seed=0_model=hf:a-x"
    assert len({Path(folder).name for folder in folders}) == 4


def test_the_help_tells_the_values_of_the_settings() -> None:
    from confide.cli.train import FLAGS
    from confide.training.settings import preset

    usual = preset("quick")
    for field, (kind, meaning) in FLAGS.items():
        told = re.findall(r"\((auto|[^():]+)[^()]*\)$", meaning)
        assert told, meaning
        assert kind(told[0]) == getattr(usual, field), meaning
