import json
import sys

import numpy as np
import pytest
from PIL import Image

from confide.cli.main import main
from confide.data import load_dataset
from confide.files import formats
from confide.predictions import Predictions
from confide.records import Scores, Split
from confide.training import Settings
from confide.training.objective import groups_of


@pytest.fixture
def made(tmp_path, monkeypatch):
    """A small npz of features with a few wrong labels, and images of the same samples."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    truth = draw.integers(0, 3, 300)
    rows = (draw.normal(size=(300, 6)) + 4 * draw.normal(size=(3, 6))[truth]).astype(np.float32)
    labels = truth.copy()
    labels[:8] = (labels[:8] + 1) % 3
    np.savez(tmp_path / "features.npz", features=rows, labels=labels)
    return tmp_path, rows, labels


def test_scores_of_a_features_file(made, capsys):
    where, _, labels = made
    assert main(["score", "features.npz", "--method", "rmd", "--method", "kmeans", "-o", "s.parquet"]) == 0
    text = capsys.readouterr().out
    assert "Kendall" in text
    assert "wrong label" in text
    scores = Scores.load(where / "s.parquet")
    assert scores.method == "rmd"
    np.testing.assert_array_equal(scores.labels, labels)
    assert {"verdict", "suspicion", "suggested", "score_kmeans"} <= set(scores.columns)
    page = (where / "s.html").read_text()
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "Training weights" in page


def test_label_errors_are_exported_ranked(made, capsys):
    where, _, _ = made
    arguments = ["score", "features.npz", "-o", "s.parquet", "--gallery", "none", "--find-label-errors", "e.csv"]
    assert main([*arguments, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    suspects, _ = formats.read_table(where / "e.csv")
    assert summary["label_errors"]["suspects"] == len(suspects["id"])
    assert set(range(8)) <= set(suspects["id"].tolist())
    assert (np.diff(suspects["suspicion"]) <= 0).all()
    assert not (where / "s.html").exists()


def test_the_embedded_sample_gets_a_page_with_its_pictures(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["score", "fashion-sample", "--split", "val", "--fit-split", "train", "-o", "s.parquet"]) == 0
    page = (tmp_path / "s.html").read_text()
    assert page.count("data:image/") > 100
    assert 'data-verdict="wrong label"' in page or 'data-verdict="ambiguous"' in page
    assert len(Scores.load(tmp_path / "s.parquet")) == 2000


def test_a_log_gives_confusion_scores(made, capsys):
    from confide import difficulty

    where, _, labels = made
    draw = np.random.default_rng(0)
    recorder = difficulty.Recorder(np.arange(300), labels, folder=where / "log", kind="probs")
    for epoch in range(3):
        recorder.record(epoch, np.arange(300), draw.dirichlet(np.ones(3), size=300))
    command = [
        "score",
        "features.npz",
        "--method",
        "confusion",
        "--log",
        "log",
        "--option",
        "base=2",
        "-o",
        "c.parquet",
    ]
    assert main(command) == 0
    assert Scores.load(where / "c.parquet").values.max() <= np.log2(3) + 1e-6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["score", "features.npz", "--method", "rmt"], "did you mean 'rmd'"),
        (["score", "features.npz", "--option", "shrinkag=oas"], "did you mean 'shrinkage'"),
        (["score", "features.npz", "--method", "confusion"], "pass --log FOLDER"),
        (["score", "features.npz", "--option", "oas"], "NAME=VALUE"),
        (["score", "nowhere"], "nowhere"),
        (["score", "fashion-sample", "--augment-runs", "2"], "cannot be augmented"),
        (["score", "fashion-sample", "--split", "val", "--words", "none.txt"], "none.txt"),
        (["harden", "--scores", "none.parquet", "--groups", "g.csv"], "does not exist"),
    ],
)
def test_bad_input_is_one_line_and_status_one(made, capsys, arguments, message):
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("word", ["cached", "pixels"])
def test_words_for_features_without_a_text_side_name_what_has_one(made, capsys, word):
    (made[0] / "words.txt").write_text("night\nfog\n")
    np.savez("images.npz", images=np.zeros((60, 4, 4), np.uint8), labels=np.arange(60) % 2, features=np.eye(60))
    assert main(["score", "images.npz", "--features", word, "--words", "words.txt"]) == 1
    assert f"needs an extractor with a text side, such as 'clip', got '{word}'" in capsys.readouterr().err


@pytest.mark.parametrize("labelled", [True, False])
def test_a_log_of_another_split_names_the_split_to_score(tmp_path, monkeypatch, capsys, labelled):
    from confide import difficulty

    monkeypatch.chdir(tmp_path)
    split = load_dataset("fashion-sample").val
    labels = split.labels if labelled else None
    recorder = difficulty.Recorder(split.ids, labels, folder=tmp_path / "log", kind="probs")
    recorder.record(0, split.ids, np.random.default_rng(0).dirichlet(np.ones(10), len(split.ids)))
    command = ["score", "fashion-sample", "--method", "confusion", "--log", "log", "-o", "c.parquet"]
    assert main(command) == 1
    error = capsys.readouterr().err
    assert "log is of the split 'val', but 'train' is scored; add --split val" in error
    assert error.count("\n") == 1
    assert main([*command, "--split", "val"]) == 0


def test_augmentation_runs_fit_on_augmented_pictures(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command = ["score", "fashion-sample", "--split", "val", "--features", "pixels", "--feature-option", "size=4"]
    assert main([*command, "--augment-runs", "2", "--gallery", "none", "--no-verdicts", "-o", "a.parquet"]) == 0
    assert main([*command, "--gallery", "none", "--no-verdicts", "-o", "b.parquet"]) == 0
    with_runs, without = (Scores.load(tmp_path / f"{k}.parquet") for k in "ab")
    assert with_runs.options["augmented"] == "2 given"
    assert 0.7 < np.corrcoef(with_runs.values, without.values)[0, 1] < 0.9999
    assert (tmp_path / "a.features" / "val-augmented-1" / "manifest.json").exists()


def test_harden_exports_pictures_with_a_card(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["score", "fashion-sample", "--split", "val", "-o", "s.parquet", "--gallery", "none"]) == 0
    arguments = ["harden", "fashion-sample", "--split", "val", "--scores", "s.parquet", "--fraction", "0.02"]
    assert main([*arguments, "--stratify", "-o", "hard"]) == 0
    assert "near-duplicates: 0 left out" in capsys.readouterr().out  # by the features the data carries
    table, _ = formats.read_table(tmp_path / "hard" / "about" / "samples.csv")
    assert len(table["id"]) == 40
    again = load_dataset(tmp_path / "hard")
    assert again.class_names[:2] == ("0000-T-shirt_top", "0001-Trouser")
    assert (np.bincount(again.test.labels) == 4).all()
    assert all((tmp_path / "hard" / name).exists() for name in table["file"])
    assert "the same share of every class: 40 of 2,000" in (tmp_path / "hard" / "README.md").read_text()
    # Fewer samples into the same folder leave none of the earlier ones; a file of another's hand stays.
    assert main([*arguments[:-1], "0.01", "--stratify", "-o", "hard"]) == 0
    assert len(load_dataset(tmp_path / "hard").test.labels) == 20
    (tmp_path / "hard" / "test" / "mine.png").write_bytes(b"mine")
    assert main([*arguments, "-o", "hard"]) == 1
    assert "must be a new folder or an earlier hard benchmark" in capsys.readouterr().err
    assert len(list((tmp_path / "hard").rglob("*.png"))) == 21
    assert main([*arguments, "-o", "hard.parquet"]) == 0
    columns, _ = formats.read_table(tmp_path / "hard.parquet")
    assert columns["image"][0][:4] == b"\x89PNG"
    assert (tmp_path / "hard.md").exists()


def test_one_class_is_scored_without_a_verdict(tmp_path, capsys):
    rows = np.random.default_rng(0).normal(size=(40, 3))
    np.savez(tmp_path / "one.npz", features=rows, labels=np.zeros(40, dtype=np.int64))
    command = [
        "score",
        str(tmp_path / "one.npz"),
        "--method",
        "md",
        "--gallery",
        "none",
        "-o",
        str(tmp_path / "s.parquet"),
    ]
    assert main(command) == 0
    assert "note: all samples have one label" in capsys.readouterr().out
    assert len(Scores.load(tmp_path / "s.parquet")) == 40
    assert main([*command, "--find-label-errors", str(tmp_path / "e.csv")]) == 1
    assert "two classes or more" in capsys.readouterr().err


def test_hard_texts_and_classes_without_a_hard_sample_load_again(tmp_path, capsys):
    texts = np.array([f"query {i}" for i in range(30)], dtype=object)
    np.savez(tmp_path / "pictures.npz", images=np.zeros((30, 8, 8), dtype=np.uint8), labels=np.arange(30) % 3)
    formats.write_table(tmp_path / "texts.csv", {"text": texts, "label": np.array(list("abc"))[np.arange(30) % 3]})
    for name in ("texts.csv", "pictures.npz"):
        dataset = load_dataset(tmp_path / name)
        values = np.where(dataset.train.labels == 1, -1.0, 1.0)
        Scores(dataset.train.ids, values, "rmd", {}, dataset.train.labels).save(tmp_path / "s.parquet")
        command = ["harden", str(tmp_path / name), "--scores", str(tmp_path / "s.parquet"), "--fraction", "0.5"]
        assert main([*command, "-o", str(tmp_path / f"hard-{name[:4]}")]) == 0
        assert "not looked for" in capsys.readouterr().out
    assert set(load_dataset(tmp_path / "hard-text").test.inputs) <= set(texts)
    assert set(load_dataset(tmp_path / "hard-pict").test.labels) == {0, 2}


def test_harden_shows_errors_by_band_and_writes_groups(made, capsys):
    where, _, labels = made
    assert main(["score", "features.npz", "-o", "s.parquet", "--gallery", "none"]) == 0
    scores = Scores.load(where / "s.parquet")
    wrong = scores.values > np.quantile(scores.values, 0.8)
    said = np.where(wrong, (labels + 1) % 3, labels)
    Predictions(np.eye(3)[said] * 3, labels, split="val").save(where / "p.parquet")
    command = ["harden", "--scores", "s.parquet", "--predictions", "p.parquet", "--groups", "g.parquet", "--json"]
    capsys.readouterr()
    assert main(command) == 0
    summary = json.loads(capsys.readouterr().out)
    assert [band["name"] for band in summary["bands"]["rows"]] == ["easy", "medium", "hard"]
    assert summary["bands"]["rows"][0]["error"] == 0
    assert summary["bands"]["rows"][2]["error"] == pytest.approx(0.6)
    assert summary["groups"]["counts"] == [100, 100, 100]
    # `confide train --loss group_dro --scores g.parquet` takes the groups as they are written.
    written, train = Scores.load(where / "g.parquet"), Split(np.zeros((300, 1)), labels, scores.ids)
    groups = groups_of(Settings(loss="group_dro"), train, written)
    assert groups.tolist() == written.values.astype(int).tolist()


@pytest.mark.parametrize(
    "flags", [["--find-label-errors", "suspects.csv"], ["--split", "test"], ["--words", "words.txt"]]
)
def test_a_cluster_refuses_what_looks_at_single_samples(tmp_path, capsys, flags):
    assert main(["score", str(tmp_path), "--engine", "ray", *flags, "-o", str(tmp_path / "out")]) == 1
    assert f"takes no {flags[0]}" in capsys.readouterr().err


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """Sixty coloured pictures of two classes, two of them in the other's folder, and one that cannot be read."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    for number in range(60):
        pixels = draw.integers(0, 80, (40, 40, 3), dtype=np.uint8)
        pixels[:, :20] += np.uint8(150 * (number % 2))
        folder = tmp_path / "photos" / ("left", "right")[number % 2 if number not in (7, 20) else 1 - number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / f"my picture {number}.png")
    (tmp_path / "photos" / "left" / "broken.png").write_bytes(b"nonsense")
    return tmp_path


def test_a_folder_of_ones_own_is_scored_whole_when_asked(photos, capsys):
    command = ["score", "photos", "--features", "pixels", "--gallery", "none"]
    assert main(command) == 0
    told = capsys.readouterr().out
    assert "note: 48 of 60 samples were scored: val and test were cut off for evaluation; --split all" in told
    assert "note: 1 input could not be read: left/broken.png" in told
    assert "note: images were pooled to 16 x 16 pixels; --feature-option size=N keeps more" in told
    assert main([*command, "--split", "all", "--find-label-errors", "suspects.csv", "-o", "all.parquet"]) == 0
    assert "samples were scored" not in capsys.readouterr().out
    assert len(Scores.load(photos / "all.parquet")) == 60
    suspects, _ = formats.read_table(photos / "suspects.csv")
    assert {str(one) for one in suspects["id"]} == {"left/my picture 7.png", "right/my picture 20.png"}
    assert main(["harden", "photos", "--scores", "all.parquet", "--fraction", "0.5", "-o", "hard"]) == 1
    assert "hard samples are not in the split 'train'" in capsys.readouterr().err
    assert (
        main(["harden", "photos", "--split", "all", "--scores", "all.parquet", "--fraction", "0.5", "-o", "hard"]) == 0
    )
    assert main(["score", "fashion-sample", "--split", "all"]) == 1
    assert "splits of its own" in capsys.readouterr().err


def test_without_the_usual_extractor_pixels_are_named_and_its_folder_stays_free(photos, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    assert main(["score", "photos"]) == 1
    error = capsys.readouterr().err
    assert "efficientnet_lite_pytorch" in error
    assert error.rstrip().endswith("features 'pixels' need nothing, and tell less")
    assert main(["score", "photos", "--features", "pixels", "--gallery", "none"]) == 0


def test_predictions_alone_are_judged_without_data(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    truth = np.arange(300) % 3
    draw = np.random.default_rng(0)
    logits = 60 * np.eye(3)[truth] + draw.normal(size=(300, 3))
    labels = truth.copy()
    labels[:6] = (labels[:6] + 1) % 3
    np.savez("out-of-fold.npz", logits=logits, labels=labels)
    command = ["score", "--predictions", "out-of-fold.npz", "--find-label-errors", "suspects.csv"]
    assert main(command) == 0
    assert "labels: 6 labels look wrong" in capsys.readouterr().out
    suspects, _ = formats.read_table("suspects.csv")
    assert set(suspects["id"].tolist()) == set(range(6))
    assert main([*command, "--method", "rmd"]) == 1
    assert "give DATA beside --predictions" in capsys.readouterr().err
    assert main(["score"]) == 1
