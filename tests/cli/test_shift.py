"""The verb `shift` from a trained model to a report, also by `evaluate --shift`."""

import json

import numpy as np
import pytest

from confide.cli.main import main


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A dataset of bright and dark colour images, an out-of-distribution one, and two models trained for an epoch."""
    root = tmp_path_factory.mktemp("shift")
    random = np.random.default_rng(0)
    labels = np.arange(160) % 2
    images = (
        random.integers(0, 100, (160, 32, 32, 3), dtype=np.uint8) + (labels * 120).astype(np.uint8)[:, None, None, None]
    )
    wrong = random.random(160) < 0.25
    labels[wrong] = 1 - labels[wrong]  # some are wrong, so that a calibrator has something to do
    np.savez(root / "tones.npz", images=images, labels=labels)
    np.savez(
        root / "stripes.npz", images=np.tile(np.uint8([0, 255]), (30, 48, 24))[..., None], labels=np.arange(30) % 3
    )
    for name, seed in (("first", 0), ("second", 1)):
        options = ["--model", "small_cnn", "--epochs", "1", "--batch-size", "32", "--seed", str(seed), "--quiet"]
        assert main(["train", str(root / "tones.npz"), *options, "--out", str(root / name)]) == 0
    return root


def test_models_are_compared_under_shift_and_on_ood_data(folder, capsys):
    out = folder / "out"
    command = ["shift", str(folder / "first"), str(folder / "second"), "--data", str(folder / "tones.npz")]
    command += [
        "--words",
        "contrast",
        "gaussian_noise",
        "fgsm",
        "--severities",
        "1",
        "5",
        "--rmd",
        "--trust",
        "entropy",
        "steep_slope",
    ]
    command += ["--ood", str(folder / "stripes.npz"), "--no-intervals", "--quiet", "--out", str(out)]
    assert main(command) == 0
    told = capsys.readouterr().out
    assert "severity 5" in told
    assert "ece trust:steep_slope" in told
    assert "ece trust:entropy" not in told  # an order alone claims no chance
    assert "mean of cells" in told
    assert "stripes" in told
    assert "temperature" in told
    assert "trust:steep_slope" in told
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "Severity of the corruption" in page
    assert "ECE of the chances of being right by steep_slope" in page
    assert "Telling stripes from known images" in page
    found = json.loads((out / "evaluation.json").read_text())
    kinds = {c["kind"] for c in found["curves"]}
    assert {"shift_cells", "shift_boxes", "rmd_severity", "rmd_label_noise", "ood_roc", "ood_histogram"} <= kinds
    assert {m["model"] for m in found["measurements"]} == {"first", "second"}
    assert len(list((out / "cells" / "first").iterdir())) == 7


def test_any_folder_of_images_is_ood_data(folder, tmp_path, capsys):
    from PIL import Image

    for number, side in enumerate((20, 50, 90, 33)):
        place = tmp_path / "pictures" / f"kind{number % 2}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((side, side + 5, 3), 40 * number, np.uint8)).save(place / f"{number}.png")
    command = ["shift", str(folder / "first"), "--data", str(folder / "tones.npz"), "--kind", "none", "--quiet"]
    command += ["--ood", str(tmp_path / "pictures"), "--no-intervals", "--out", str(tmp_path / "out")]
    assert main(command) == 0
    assert "pictures" in capsys.readouterr().out
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "This evaluation holds no accuracy" not in page  # clean samples are measured also without a grid
    found = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    assert {m["metric"] for m in found["measurements"] if m["group"] is None} >= {"accuracy", "ece", "nll"}
    words = found["about"]["commands"][0].split()
    assert words[:2] == ["confide", "shift"]
    assert words[words.index("--ood") + 1] == str(tmp_path / "pictures")
    assert "--no-intervals" in words
    assert "--rmd" not in words


def test_ood_data_by_word_lie_in_the_data_folder(folder, tmp_path, monkeypatch, capsys):
    from scipy.io import savemat

    (tmp_path / "svhn").mkdir()
    pictures = np.random.default_rng(1).integers(0, 256, (32, 32, 3, 12), dtype=np.uint8)
    savemat(tmp_path / "svhn" / "test_32x32.mat", {"X": pictures, "y": np.arange(1, 13)[:, None] % 10})
    monkeypatch.setenv("CONFIDE_DATA", str(tmp_path))
    command = ["shift", str(folder / "first"), "--data", str(folder / "tones.npz"), "--kind", "none"]
    command += ["--no-intervals", "--quiet", "--out", str(tmp_path / "out"), "--ood", "svhn"]
    assert main(command) == 0
    assert "svhn" in capsys.readouterr().out
    assert main([*command, "mnist"]) == 1
    told = capsys.readouterr()
    assert "put the four files there" in told.err
    assert not told.out  # nothing was measured before the missing set was told


def test_evaluate_takes_the_same_road(folder, capsys):
    command = ["evaluate", str(folder / "first"), "--shift", "domain", "--data", str(folder / "tones.npz")]
    command += ["--no-intervals", "--json", "--quiet", "--out", str(folder / "domains")]
    assert main(command) == 0
    told = json.loads(capsys.readouterr().out)
    groups = {m["group"] for m in told["measurements"]}
    assert {"shift=grey/5", "shift=sketch/1", "shift=stylised/3", "shift=mean"} <= groups
    kinds = {curve["kind"] for curve in told["curves"]}
    assert {"shift_boxes", "shift_ece_boxes", "shift_cells", "rmd_severity", "rmd_label_noise"} <= kinds


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--words", "fgo"], "no shift or attack named 'fgo'"),
        (["--severities", "9", "--words", "fog"], "severities must be whole numbers from 1 to 5"),
        (["--kind", "none"], "nothing to do: --kind none, and no --ood was given"),
        (["--words", "fog", "--calibrate", "temprature"], "no calibrator named 'temprature'"),
        (
            ["--kind", "none", "--ood", "out-of-scope"],
            "means the out-of-scope queries of clinc150, and 'tones' has none",
        ),
        (["--words", "fog", "--batch-size", "0"], "--batch-size must be at least 1, got 0"),
        (["--words", "fog", "--samples", "-2"], "--samples must be at least 0, got -2"),
    ],
)
def test_bad_input_gets_one_line(folder, tmp_path, words, message, capsys):
    command = ["shift", str(folder / "first"), "--data", str(folder / "tones.npz"), *words, "--out", str(tmp_path)]
    assert main([*command, "--quiet"]) == 1
    told = capsys.readouterr().err.strip()
    assert message in told
    assert "\n" not in told


def test_the_same_data_cannot_be_ood(folder, tmp_path, capsys):
    data = str(folder / "tones.npz")
    command = ["shift", str(folder / "first"), "--data", data, "--kind", "none", "--ood", data, "--out", str(tmp_path)]
    assert main([*command, "--quiet"]) == 1
    assert "must not share ids with the test set" in capsys.readouterr().err


def test_the_same_model_twice_is_refused(folder, tmp_path, capsys):
    command = ["shift", str(folder / "first"), str(folder / "first"), "--data", str(folder / "tones.npz")]
    assert main([*command, "--words", "fog", "--out", str(tmp_path), "--quiet"]) == 1
    assert "models must differ" in capsys.readouterr().err


def test_predictions_cannot_be_corrupted(folder, tmp_path, capsys):
    data, file = str(folder / "tones.npz"), str(tmp_path / "predictions.parquet")
    assert main(["predict", str(folder / "first"), data, "--out", file, "--quiet"]) == 0
    capsys.readouterr()
    for command in (["evaluate", file, "--shift", "corruptions"], ["shift", file, "--data", data]):
        assert main([*command, "--quiet"]) == 1
        told = capsys.readouterr().err.strip()
        assert "must be a trained model, got a file of another kind" in told
        assert "give the folder that confide train --out wrote" in told
        assert "\n" not in told


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--shift", "fog", "--data", "x.npz", "--by", "class"], "--by cannot be used with --shift"),
        (["--shift", "fog", "--data", "x.npz", "--metrics", "ece"], "--metrics cannot be used with --shift"),
        (["--data", "x.npz"], "is a trained model, not predictions; make them with confide predict"),
    ],
)
def test_evaluate_refuses_what_it_would_not_use(folder, words, message, capsys):
    assert main(["evaluate", str(folder / "first"), *words, "--quiet"]) == 1
    assert message in capsys.readouterr().err


def test_words_of_shift_need_it(tmp_path, capsys):
    assert main(["evaluate", str(tmp_path / "predictions.parquet"), "--beside", "other", "--quiet"]) == 1
    assert "--beside goes with --shift alone" in capsys.readouterr().err


def test_evaluate_names_its_folder_after_the_model_also_from_within(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder / "second")
    command = ["evaluate", ".", "--shift", "grey", "--data", str(folder / "tones.npz"), "--no-intervals", "--quiet"]
    assert main(command) == 0
    assert (folder / "second" / "second-shift" / "report.html").exists()


def test_data_without_validation_samples_are_not_calibrated(folder, tmp_path, capsys):
    images = np.random.default_rng(0).integers(0, 256, (20, 32, 32, 3), dtype=np.uint8)
    data = tmp_path / "only.npz"
    np.savez(data, test_images=images, test_labels=np.arange(20) % 2)
    command = ["shift", str(folder / "first"), "--data", str(data), "--words", "grey", "--quiet", "--no-intervals"]
    command += ["--out", str(tmp_path / "out"), "--ood", str(folder / "stripes.npz")]
    assert main(command) == 0
    told = capsys.readouterr().out
    assert "temperature" not in told
    assert "energy" in told
    assert "knn" not in told  # which needs training samples
    assert main([*command, "--calibrate", "temperature"]) == 1
    assert "fitted on 'val', but 'only' has none" in capsys.readouterr().err


def test_evaluate_asks_for_the_data(folder, capsys):
    assert main(["evaluate", str(folder / "first"), "--shift", "corruptions", "--quiet"]) == 1
    assert "--shift needs the dataset" in capsys.readouterr().err


def test_a_word_finds_the_entry_of_its_name_in_the_data_folder(tmp_path):
    from confide.robustness import find_in_data_folder

    for name in ("dtd10_64.npz", "mnist-extra.npz", "cifar100.npz"):
        (tmp_path / name).touch()
    (tmp_path / "photos" / "images").mkdir(parents=True)
    (tmp_path / "photos" / "labels").mkdir()
    assert find_in_data_folder("dtd10_64.npz", tmp_path) == str(tmp_path / "dtd10_64.npz")
    assert find_in_data_folder("photos/", tmp_path) == str(tmp_path / "photos" / "images")
    assert find_in_data_folder("dtd", tmp_path) == str(tmp_path / "dtd10_64.npz")
    assert find_in_data_folder("photos", tmp_path) == str(tmp_path / "photos" / "images")
    assert find_in_data_folder("mnist", tmp_path) == "mnist"  # another name is another set
    assert find_in_data_folder("cifar10", tmp_path) == "cifar10"
    assert find_in_data_folder("svhn", tmp_path / "nowhere") == "svhn"
