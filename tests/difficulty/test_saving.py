"""A fitted difficulty on disk: the same scores to the last digit, and one line for every file that is none."""

import json
import pickle
import struct
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from confide import difficulty
from confide.checks import InputError
from confide.files import formats
from confide.files.formats import tensor_metadata
from confide.records import Features, FeatureSource

CASES = [
    ("rmd", {}),
    ("rmd", {"shrinkage": "ledoit_wolf"}),
    ("rmd", {"shrinkage": "oas"}),
    ("rmd", {"shrinkage": 0.25}),
    ("rmd", {"shrinkage": "none"}),
    ("md", {}),
    ("md", {"shrinkage": 1.0}),
    ("kmeans", {}),
    ("kmeans", {"k": 3, "distance": "cosine"}),
    ("prototype", {}),
    ("prototype", {"distance": "cosine"}),
    ("combined", {"neighbours": 5}),
]
LABELS = ("given", "predicted", "min")


def again(fitted, path):
    fitted.save(path)
    return difficulty.load(path)


def assert_same(fitted, loaded, rows, labels):
    """Every way to score gives the same bits."""
    for word in LABELS:
        before, after = (one.score(rows, labels if word == "given" else word) for one in (fitted, loaded))
        np.testing.assert_array_equal(before.values, after.values)
        assert (before.method, before.options, before.notes) == (after.method, after.options, after.notes)


def test_every_method_over_features_is_tested_here_and_can_be_saved():
    over_features = {method.word for method in difficulty.DIFFICULTY if method.spec.source == "features"}
    assert over_features == {word for word, _ in CASES}


@pytest.mark.parametrize(("word", "options"), CASES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_scores_after_a_load_are_those_before_the_save(tmp_path, clusters, word, options, dtype):
    rows, labels, _ = clusters(dim=7, dtype=dtype)
    others, other_labels, _ = clusters(n=200, dim=7, seed=1, dtype=dtype)
    fitted = difficulty.fit(word, rows, labels, **options)
    loaded = again(fitted, tmp_path / "fit.safetensors")
    assert_same(fitted, loaded, rows, labels)
    assert_same(fitted, loaded, others, other_labels)
    assert (loaded.method, loaded.options, loaded.num_classes) == (fitted.method, fitted.options, fitted.num_classes)


@pytest.mark.parametrize("word", ["rmd", "md", "kmeans", "prototype"])
def test_rows_in_any_order_of_memory(tmp_path, clusters, word):
    rows, labels, _ = clusters(dim=9, dtype=np.float32)
    wide = np.repeat(rows, 2, axis=1)
    shapes = [np.asfortranarray(rows), wide[:, ::2], rows[::-1], torch.from_numpy(rows.T.copy()).T]
    for k, values in enumerate(shapes):
        fitted = difficulty.fit(word, values, labels)
        assert_same(fitted, again(fitted, tmp_path / f"{k}.safetensors"), values, labels)


@pytest.mark.parametrize("word", ["rmd", "md"])
def test_gaussians_that_need_notes(tmp_path, clusters, word):
    """Columns that do not vary, classes without samples or with one, more columns than samples, more classes too."""
    rows, labels, _ = clusters(n=40, dim=60, classes=6)
    rows[:, [3, 20]] = 5.0
    labels = np.where(labels == 2, 3, labels)
    labels[0] = 7
    fitted = difficulty.fit(word, rows, labels)
    assert len(fitted.model.notes) == 3
    assert_same(fitted, again(fitted, tmp_path / "few.safetensors"), rows, labels)
    rows, labels, _ = clusters(n=400, dim=3, classes=20)
    fitted = difficulty.fit(word, rows, labels)
    assert_same(fitted, again(fitted, tmp_path / "many.safetensors"), rows, labels)


@pytest.mark.parametrize("word", ["rmd", "md", "prototype"])
def test_a_class_without_samples_is_still_refused(tmp_path, clusters, word):
    rows, labels, _ = clusters()
    labels = np.where(labels == 2, 3, labels)
    loaded = again(difficulty.fit(word, rows, labels), tmp_path / "fit.safetensors")
    for wrong, message in ((2, "has none"), (5, r"must lie in \[0, 5\)")):
        with pytest.raises(InputError, match=message):
            loaded.score(rows, np.full(len(rows), wrong))
    with pytest.raises(InputError, match="must have the 8 columns of the fit, got 7; use the same extractor"):
        loaded.score(rows[:, 1:], labels)


def test_scores_in_another_process_are_the_same(tmp_path, clusters):
    """What is in the file is all that scoring needs, and nothing is factored again."""
    rows, labels, _ = clusters(dim=32, dtype=np.float32)
    np.save(tmp_path / "rows.npy", rows)
    fitted = difficulty.fit("rmd", rows, labels)
    fitted.save(tmp_path / "fit.safetensors")
    code = (
        "import sys, numpy as np; from confide import difficulty; where = sys.argv[1]; "
        "rows = np.load(where + '/rows.npy'); fitted = difficulty.load(where + '/fit.safetensors'); "
        "np.save(where + '/scores.npy', fitted.score(rows, 'min').values)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=120)
    np.testing.assert_array_equal(np.load(tmp_path / "scores.npy"), fitted.score(rows, "min").values)


def test_augmented_runs_and_a_loaded_fit_saved_again(tmp_path, clusters):
    rows, labels, _ = clusters()
    runs = [rows + 0.1 * np.random.default_rng(k).normal(size=rows.shape) for k in range(2)]
    fitted = difficulty.fit("rmd", rows, labels, augmented=runs)
    loaded = again(fitted, tmp_path / "a.safetensors")
    assert loaded.options["augmented"] == "2 given"
    assert_same(fitted, again(loaded, tmp_path / "b.safetensors"), rows, labels)
    assert tensor_metadata(tmp_path / "a.safetensors") == tensor_metadata(tmp_path / "b.safetensors")  # digest and all


def test_the_file_is_small(tmp_path, clusters):
    """One d x d matrix, not two or three; of k-means and prototypes the centres alone."""
    rows, labels, _ = clusters(n=900, dim=100)
    sizes = {}
    for word in ("rmd", "md", "kmeans", "prototype"):
        difficulty.fit(word, rows, labels).save(tmp_path / f"{word}.safetensors")
        sizes[word] = (tmp_path / f"{word}.safetensors").stat().st_size
    assert sizes["rmd"] < 8 * (100 * 100 + 25 * 100) + 4096
    assert sizes["md"] < 8 * (100 * 100 + 15 * 100) + 4096
    assert max(sizes["kmeans"], sizes["prototype"]) < 8 * 6 * 100 + 4096


def test_where_the_features_came_from_is_kept(tmp_path, clusters):
    rows, labels, _ = clusters()
    record = Features(rows, labels, np.arange(len(rows)), "efficientnet_lite0", "train")
    fitted = difficulty.fit("rmd", record)
    assert fitted.source == FeatureSource("efficientnet_lite0", {}, "train")
    sized = replace(record, extractor="pixels", options={"size": 4})
    assert difficulty.fit("rmd", sized).source == FeatureSource("pixels", {"size": 4}, "train")
    assert difficulty.fit("rmd", rows, labels).source == FeatureSource()
    assert difficulty.fit("rmd", replace(record, extractor="unknown")).source == FeatureSource()
    source = FeatureSource("pixels", {"size": 4, "deep": [1, None, "µ"]}, class_names=("a", "b"))
    loaded = again(replace(fitted, source=source), tmp_path / "fit.safetensors")
    assert loaded.source == source
    assert tensor_metadata(tmp_path / "fit.safetensors")["format"] == "difficulty/1"
    with pytest.raises(InputError, match="must be plain JSON values to be saved"):
        replace(fitted, source=FeatureSource("pixels", {"model": object()})).save(tmp_path / "fit.safetensors")
    assert difficulty.load(tmp_path / "fit.safetensors").source == source  # the earlier file is whole


def test_numbers_of_numpy_are_options(tmp_path, clusters):
    rows, labels, _ = clusters()
    fitted = difficulty.fit("kmeans", rows, labels, k=np.int64(4), seed=np.int32(1))
    assert again(fitted, tmp_path / "fit.safetensors").options == {
        "k": 4,
        "distance": "l2",
        "iterations": 20,
        "seed": 1,
    }


def test_unlabelled_samples_are_scored_by_the_classes_of_the_fit(tmp_path, clusters):
    rows, labels, _ = clusters()
    unlabelled = Features(rows, np.full(len(rows), -1), np.arange(len(rows)), "cached")
    loaded = again(difficulty.fit("rmd", rows, labels), tmp_path / "fit.safetensors")
    scores = loaded.score(unlabelled, "predicted")
    assert scores.labels is None
    np.testing.assert_array_equal(scores.values, loaded.score(rows, "predicted").values)
    with pytest.raises(InputError, match="labels must be given with features that carry none"):
        loaded.score(unlabelled)
    # k-means asks for no labels: neither where it is fitted nor where it scores.
    centres = again(difficulty.fit("kmeans", unlabelled, k=5), tmp_path / "centres.safetensors")
    np.testing.assert_array_equal(centres.score(unlabelled).values, centres.score(rows, labels).values)


def test_what_cannot_be_saved_says_so(tmp_path, clusters, monkeypatch):
    rows, labels, _ = clusters()
    fitted = difficulty.fit("prototype", rows, labels)
    for name in ("fit.json", "fit", "fit.pt"):
        with pytest.raises(InputError, match=r"must end in \.safetensors"):
            fitted.save(tmp_path / name)
    method = difficulty.DIFFICULTY.get("prototype")
    unsaved = replace(method, spec=replace(method.spec, restore=None))
    monkeypatch.setitem(difficulty.DIFFICULTY._methods, "prototype", unsaved)
    with pytest.raises(InputError, match="difficulty 'prototype' cannot be saved"):
        fitted.save(tmp_path / "fit.safetensors")
    monkeypatch.undo()
    broken = replace(fitted, model=replace(fitted.model, means=np.full_like(fitted.model.means, np.nan)))
    with pytest.raises(InputError, match="cannot be saved: means must be finite"):
        broken.save(tmp_path / "fit.safetensors")
    assert not list(tmp_path.iterdir())


@pytest.fixture
def saved(tmp_path, clusters):
    """A saved fit of a word, its header and its tensors."""

    def make(word="rmd"):
        rows, labels, _ = clusters()
        path = tmp_path / f"{word}.safetensors"
        difficulty.fit(word, rows, labels).save(path)
        return path, tensor_metadata(path), load_file(path)

    return make


def refused(path):
    """The one line that a file is refused with."""
    with pytest.raises(InputError) as caught:
        difficulty.load(path)
    line = str(caught.value)
    assert "\n" not in line
    assert path.name in line
    return line


def test_torn_and_foreign_files_are_one_line(tmp_path, saved):
    path, _, _ = saved()
    whole = path.read_bytes()
    for cut in (0, 4, 8, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        assert "must be a whole safetensors file" in refused(path)
    path.write_bytes(whole + b"more")
    assert "must be a whole safetensors file" in refused(path)
    flipped = bytearray(whole)
    flipped[-5] ^= 1
    path.write_bytes(bytes(flipped))
    assert "must hold what its digest says" in refused(path)
    path.write_bytes(pickle.dumps({"means": np.zeros(3)}))
    assert "must be a whole safetensors file" in refused(path)
    path.write_bytes(struct.pack("<Q", 1 << 60) + b"{}")
    assert "must be a whole safetensors file" in refused(path)
    save_file({"weight": torch.zeros(3)}, path)
    assert "must be a fitted difficulty of format 'difficulty/1', got None; give a fitted difficulty" in refused(path)
    assert "there is no such file" in refused(tmp_path)
    assert "there is no such file" in refused(tmp_path / "nowhere.safetensors")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "difficulty/2"}, "'difficulty/2', newer than 'difficulty/1' of this confide"),
        ({"format": "calibrator/1"}, "got 'calibrator/1'; give a fitted difficulty"),
        ({"method": '"confusion"'}, "fitted by 'confusion', which cannot be loaded"),
        ({"method": '"of tomorrow"'}, "fitted by 'of tomorrow', which cannot be loaded"),
        ({"method": "[]"}, "method is []"),
        ({"num_classes": "6"}, "num_classes must be 5, got 6"),
        ({"num_classes": "true"}, "num_classes is True"),
        ({"numbers": "{}"}, "KeyError"),
        ({"numbers": '{"intensity": [0, 0, 0]}'}, "too many values"),
        ({"notes": "[1]"}, "notes must be lines"),
        ({"options": "null"}, "options is None"),
        ({"source": "7"}, "source is 7"),
        ({"source": "{"}, "must be JSON, got something else"),
        ({"source": "[" * 100_000}, "must be JSON of at most 64 levels"),
        ({"source": None}, "KeyError"),
    ],
)
def test_words_that_do_not_fit_are_one_line(saved, change, message):
    path, notes, tensors = saved()
    notes = {name: value for name, value in (notes | change).items() if value is not None}
    formats.write_checkpoint(path, tensors, {name: value for name, value in notes.items() if name != "digest"})
    assert message in refused(path)


def test_a_file_without_digest_was_not_written_by_save(saved):
    path, notes, tensors = saved()
    save_file(tensors, path, {name: value for name, value in notes.items() if name != "digest"})
    assert "it has no digest" in refused(path)


@pytest.mark.parametrize(
    ("word", "name", "change", "message"),
    [
        ("rmd", "counts", lambda t: t[:-1], "counts must be 5 numbers, got 4"),
        ("rmd", "counts", lambda t: -t, "counts must be numbers of samples"),
        ("rmd", "counts", torch.zeros_like, "counts must be numbers of samples"),
        ("rmd", "counts", lambda t: t.to(torch.float64), "counts must be int64, got float64"),
        ("rmd", "means", lambda t: t[:, :-1], "whole.matrix must be 7 x any"),
        ("rmd", "means", lambda t: t.to(torch.float32), "means must be float64, got float32"),
        ("rmd", "means", lambda t: t.to(torch.bfloat16), "BFloat16"),
        ("rmd", "means", lambda t: t[None], "means must be any x any numbers, got 1 x 5 x 8"),
        ("rmd", "means", lambda t: t / 0, "means must be finite"),
        ("rmd", "means", lambda t: t.new_zeros(1 << 40, 0), "means must be finite numbers, got none"),
        ("rmd", "whole.matrix", lambda t: t[:, :3], "whole.centres must be 5 x 3"),
        ("rmd", "whole.origin", lambda t: t[:3], "whole.origin must be 8"),
        ("rmd", "relative.centres", lambda t: t[:1], "relative.centres must be 5 x 5 numbers, got 1 x 5"),
        ("rmd", "relative.inverse_total", lambda t: t[0], "relative.inverse_total must be 5 numbers"),
        ("rmd", "relative.origin", None, "it must hold counts"),
        ("md", "more", lambda t: torch.zeros(3), "it must hold counts, means"),
        ("kmeans", "centres", lambda t: t[0], "centres must be any x any"),
        ("kmeans", "centres", None, "it must hold centres, got nothing"),
        ("prototype", "counts", lambda t: t[:, None], "counts must be 5 numbers, got 5 x 1"),
        ("prototype", "means", lambda t: t[:3], "counts must be 3 numbers, got 5"),
    ],
)
def test_numbers_that_do_not_fit_are_one_line(saved, word, name, change, message):
    path, notes, tensors = saved(word)
    if change is None:
        del tensors[name]
    else:
        tensors[name] = change(tensors.get(name))
    del notes["digest"]
    formats.write_checkpoint(path, tensors, notes)
    assert message in refused(path)


@pytest.mark.parametrize("word", ["kmeans", "prototype"])
def test_another_distance_is_one_line(saved, word):
    path, notes, tensors = saved(word)
    numbers = json.loads(notes["numbers"]) | {"distance": "l3"}
    del notes["digest"]
    formats.write_checkpoint(path, tensors, notes | {"numbers": json.dumps(numbers)})
    assert "distance must be one of 'l2', 'cosine', got 'l3'" in refused(path)


def test_a_loaded_fit_does_not_need_its_file(saved, clusters):
    path, _, _ = saved()
    rows, labels, _ = clusters()
    loaded = difficulty.load(path)
    expected = loaded.score(rows, labels).values
    path.write_bytes(b"\0" * path.stat().st_size)
    np.testing.assert_array_equal(loaded.score(rows, labels).values, expected)
