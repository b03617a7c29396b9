"""`confide score --save-fit` and `--fitted`: a fit from one day scores the samples of another."""

import json

import numpy as np
import pytest
from PIL import Image

from confide import difficulty
from confide.cli.main import main
from confide.files import formats
from confide.files.formats import tensor_metadata
from confide.records import FeatureSource, Scores

PLAIN = ["--gallery", "none", "--no-verdicts"]


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Features of three classes: some to fit on, others that come later."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 3, 500)
    rows = (draw.normal(size=(500, 6)) + 4 * draw.normal(size=(3, 6))[labels]).astype(np.float32)
    np.savez(tmp_path / "old.npz", features=rows[:400], labels=labels[:400])
    np.savez(tmp_path / "new.npz", features=rows[400:], labels=labels[400:])
    np.savez(tmp_path / "unlabelled.npz", features=rows[400:])
    np.savez(tmp_path / "narrow.npz", features=rows[400:, 1:], labels=labels[400:])
    return tmp_path, rows, labels


def line_of(capsys):
    """The one line of an error."""
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


@pytest.mark.parametrize("word", ["rmd", "md", "kmeans", "prototype"])
def test_later_samples_get_the_scores_that_fitting_gave(made, capsys, word):
    where, rows, labels = made
    assert main(["score", "old.npz", "--method", word, "--save-fit", "fit.safetensors", *PLAIN]) == 0
    assert "fit: fit.safetensors" in capsys.readouterr().out
    fitted = difficulty.fit(word, rows[:400], labels[:400])
    for kind in ("given", "predicted", "min"):
        assert main(["score", "new.npz", "--fitted", "fit.safetensors", "--labels", kind, "-o", "s.parquet"]) == 0
        scores = Scores.load(where / "s.parquet")
        wanted = fitted.score(rows[400:], labels[400:] if kind == "given" else kind)
        np.testing.assert_array_equal(scores.values, wanted.values)
        assert (scores.method, scores.options) == (word, wanted.options)
        np.testing.assert_array_equal(scores.labels, labels[400:])
        assert "verdict" not in scores.columns
    assert (where / "s.html").exists()


def test_samples_without_labels(made, capsys):
    where, rows, _ = made
    assert main(["score", "old.npz", "--save-fit", "fit.safetensors", *PLAIN]) == 0
    assert main(["score", "old.npz", "--method", "kmeans", "--save-fit", "centres.safetensors", *PLAIN]) == 0
    capsys.readouterr()
    command = ["score", "unlabelled.npz", "--fitted", "fit.safetensors", "-o", "s.parquet"]
    assert main(command) == 1
    assert "unlabelled.npz must have a label for every sample" in (error := line_of(capsys))
    assert "add --labels predicted, or min" in error
    for kind in ("predicted", "min"):
        assert main([*command, "--labels", kind]) == 0
        scores = Scores.load(where / "s.parquet")
        assert scores.labels is None
        wanted = difficulty.load(where / "fit.safetensors").score(rows[400:], kind)
        np.testing.assert_array_equal(scores.values, wanted.values)
    assert main(["score", "unlabelled.npz", "--fitted", "centres.safetensors", *PLAIN]) == 0


def test_a_few_samples_of_one_class_are_scored_and_labels_judged_when_asked(made, capsys):
    where, rows, labels = made
    assert main(["score", "old.npz", "--save-fit", "fit.safetensors", *PLAIN]) == 0
    one = np.flatnonzero(labels[400:] == 1)[:1] + 400
    np.savez(where / "one.npz", features=rows[one], labels=labels[one])
    assert main(["score", "one.npz", "--fitted", "fit.safetensors", "-o", "s.parquet"]) == 0
    assert len(Scores.load(where / "s.parquet")) == 1
    command = ["score", "new.npz", "--fitted", "fit.safetensors", "--find-label-errors", "e.csv", "-o", "s.parquet"]
    assert main([*command, "--json"]) == 0
    assert (where / "e.csv").exists()
    assert "verdict" in Scores.load(where / "s.parquet").columns
    capsys.readouterr()
    assert main([*command, "--labels", "min"]) == 1
    assert "--find-label-errors judges labels, but --labels is 'min'" in line_of(capsys)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--method", "rmd"], "takes no --method; leave it out"),
        (["--option", "shrinkage=oas"], "takes no --option"),
        (["--fit-split", "val"], "takes no --fit-split"),
        (["--augment-runs", "2"], "takes no --augment-runs"),
        (["--log", "log"], "takes no --log"),
        (["--save-fit", "b.safetensors", "--log", "log"], "takes no --log, --save-fit"),
        (["--feature-option", "size=4"], "needs --features"),
        (["--engine", "ray"], "takes no --fitted"),
    ],
)
def test_what_contradicts_a_fit_is_one_line(made, capsys, flags, message):
    assert main(["score", "new.npz", "--fitted", "fit.safetensors", *flags]) == 1
    assert message in line_of(capsys)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--method", "rmd", "--method", "md"], "--save-fit keeps the fit of one method, got rmd, md"),
        (["--method", "confusion", "--log", "log"], "but 'confusion' reads a training"),
        (["--engine", "ray"], "takes no --save-fit"),
    ],
)
def test_what_cannot_be_kept_is_one_line(made, capsys, flags, message):
    assert main(["score", "old.npz", "--save-fit", "fit.safetensors", *flags]) == 1
    assert message in line_of(capsys)
    assert main(["score", "old.npz", "--save-fit", "fit.json"]) == 1
    assert "fit.json must end in .safetensors" in line_of(capsys)
    assert not (made[0] / "scores.parquet").exists()


def test_files_that_are_no_fit_and_features_that_do_not_fit(made, capsys):
    where, _, _ = made
    assert main(["score", "new.npz", "--fitted", "none.safetensors"]) == 1
    assert "none.safetensors must be a fitted difficulty, but there is no such file" in line_of(capsys)
    assert main(["score", "new.npz", "--fitted", "old.npz"]) == 1
    assert "old.npz must be a whole safetensors file" in line_of(capsys)
    assert main(["score", "old.npz", "--save-fit", "fit.safetensors", *PLAIN]) == 0
    capsys.readouterr()
    assert main(["score", "narrow.npz", "--fitted", "fit.safetensors"]) == 1
    assert "features must have the 6 columns of the fit, got 5; use the same extractor" in line_of(capsys)
    # A fit on a file of features does not say how to make them of pictures.
    assert main(["score", "fashion-sample", "--split", "val", "--fitted", "fit.safetensors"]) == 1
    assert "which is 'old' there, for other inputs to be scored by it; add --features WORD" in line_of(capsys)
    assert not (where / "scores.html").exists()


def picture(path, number, side=24):
    draw = np.random.default_rng(number)
    pixels = draw.integers(0, 80, (side, side, 3), dtype=np.uint8)
    pixels[:, : side // 2] += np.uint8(60 * (number % 3))
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """Sixty pictures of three classes and a fit on them by pixels, pooled to 3 x 3."""
    monkeypatch.chdir(tmp_path)
    for number in range(60):
        picture(tmp_path / "photos" / "abc"[number % 3] / f"{number}.png", number)
    command = ["score", "photos", "--features", "pixels", "--feature-option", "size=3", "--split", "all", *PLAIN]
    assert main([*command, "--save-fit", "fit.safetensors", "-o", "old.parquet"]) == 0
    return tmp_path


def test_pictures_by_the_extractor_that_the_file_names(photos, capsys):
    """The extractor and its options come from the file, classes are told apart by name, one or more of them."""
    source = json.loads(tensor_metadata(photos / "fit.safetensors")["source"])
    options = {"extractor": "pixels", "options": {"size": 3}, "split": "all"}
    assert source == {**options, "class_names": ["a", "b", "c"]}
    old = Scores.load(photos / "old.parquet")
    for classes in ("abc", "bc", "c"):
        for number in range(60):
            if "abc"[number % 3] in classes:
                picture(photos / classes / "abc"[number % 3] / f"{number}.png", number)
        assert main(["score", classes, "--fitted", "fit.safetensors", "-o", f"{classes}.parquet"]) == 0
        scores = Scores.load(photos / f"{classes}.parquet")
        np.testing.assert_array_equal(scores.values, old.of(scores.ids))
        assert [classes[label] for label in scores.labels] == [str(name)[0] for name in scores.ids]
        assert len(scores) == 20 * len(classes)
    page = (photos / "bc.html").read_text()
    assert page.count("data:image/") > 10
    assert "note:" not in capsys.readouterr().out


def test_a_heap_of_pictures_without_labels(photos, capsys):
    for number in range(30):
        picture(photos / "heap" / f"{number}.png", number)
    (photos / "heap" / "29.png").write_bytes(b"nonsense")
    capsys.readouterr()
    command = ["score", "heap", "--fitted", "fit.safetensors", "-o", "heap.parquet"]
    assert main(command) == 1
    assert "heap must have a label for every sample, got none at sample 0 of 29; add --labels predicted" in line_of(
        capsys
    )
    assert main([*command, "--labels", "min"]) == 0
    assert "note: 1 input could not be read: 29.png" in capsys.readouterr().out
    scores = Scores.load(photos / "heap.parquet")
    assert scores.labels is None
    assert main(["score", "photos", "--fitted", "fit.safetensors", "--labels", "min", "-o", "again.parquet"]) == 0
    again = Scores.load(photos / "again.parquet")
    known = {str(name).partition("/")[2]: value for name, value in zip(again.ids, again.values, strict=True)}
    assert [known[str(name)] for name in scores.ids] == pytest.approx(scores.values.tolist(), rel=1e-4)
    assert (photos / "heap.html").read_text().count("data:image/") == 16


def test_other_classes_other_words_and_splits_are_told(photos, capsys):
    picture(photos / "other" / "b" / "1.png", 1)
    picture(photos / "other" / "z" / "2.png", 2)
    capsys.readouterr()
    assert main(["score", "other", "--fitted", "fit.safetensors"]) == 1
    assert "must be one of the fit's, but 'z' is none of a, b, c; add --labels predicted, or min" in line_of(capsys)
    assert main(["score", "other", "--fitted", "fit.safetensors", "--labels", "min"]) == 0
    capsys.readouterr()
    for name in ("train", "test"):
        for number in range(6):
            picture(photos / "splits" / name / "abc"[number % 3] / f"{number}.png", number)
    assert main(["score", "splits", "--fitted", "fit.safetensors"]) == 1
    assert "splits has splits of its own, train, test; name one of them with --split" in line_of(capsys)
    command = ["score", "splits", "--fitted", "fit.safetensors", "--split", "test", "-o", "t.parquet"]
    assert main(command) == 0
    assert len(Scores.load(photos / "t.parquet")) == 6
    picture(photos / "held" / "test" / "a" / "1.png", 1)
    assert main(["score", "held", "--fitted", "fit.safetensors", "-o", "h.parquet"]) == 0  # no train split at all
    capsys.readouterr()
    assert main([*command, "--features", "pixels", "-o", "u.parquet"]) == 1
    assert "features must have the 27 columns of the fit, got 1728" in line_of(capsys)


def test_features_of_another_extractor_are_noted(photos, capsys):
    rows = np.random.default_rng(0).normal(size=(5, 27)).astype(np.float32)
    columns = {"features": rows, "label": np.arange(5) % 3}
    formats.write_table(photos / "clip.npz", columns, {"extractor": "clip"})
    capsys.readouterr()
    assert main(["score", "clip.npz", "--fitted", "fit.safetensors", *PLAIN]) == 0
    assert "note: the fit is of features by 'pixels', these are by 'clip'" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (FeatureSource(), "must name the extractor of its features"),
        (FeatureSource(7), "extractor must be a word or nothing, got 7"),
        (FeatureSource("of tomorrow"), "must name the extractor of its features"),
        (FeatureSource("pixels", {"out": "elsewhere"}), "must name the extractor of its features"),
        (FeatureSource("pixels", class_names=({},)), "class_names must be a list, each a word, got"),
    ],
)
def test_a_source_from_outside_cannot_do_more_than_name_an_extractor(photos, capsys, source, message):
    from dataclasses import replace

    replace(difficulty.load(photos / "fit.safetensors"), source=source).save(photos / "odd.safetensors")
    capsys.readouterr()
    assert main(["score", "photos", "--fitted", "odd.safetensors"]) == 1
    line = line_of(capsys)
    assert "odd.safetensors must" in line
    assert message in line
    assert not (photos / "elsewhere").exists()


def test_the_embedded_sample_there_and_back(tmp_path, monkeypatch, capsys):
    """Fitted on train and saved, test is scored as with --fit-split train."""
    monkeypatch.chdir(tmp_path)
    direct = ["score", "fashion-sample", "--split", "test", "--fit-split", "train", "--save-fit", "f.safetensors"]
    assert main([*direct, *PLAIN, "-o", "a.parquet"]) == 0
    command = ["score", "fashion-sample", "--split", "test", "--fitted", "f.safetensors", "-o", "b.parquet"]
    assert main([*command, *PLAIN, "--json"]) == 0
    text = capsys.readouterr().out
    assert json.loads(text[text.index("{") :])["fit"] == "f.safetensors"
    first, second = (Scores.load(tmp_path / f"{name}.parquet") for name in "ab")
    np.testing.assert_array_equal(first.values, second.values)
    np.testing.assert_array_equal(first.labels, second.labels)
