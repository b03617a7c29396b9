"""Pixels and boxes: which rows they make, what counts as one draw, maps, files."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import confide
from confide import dense
from confide.checks import InputError
from confide.cli.main import main


def images(n=12, seed=0, classes=3, side=8):
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 2, (n, classes, side, side)) + 3 * rng.normal(0, 1, (n, classes, 1, 1))
    labels = rng.integers(0, classes, (n, side, side))
    labels[:, 0, 0] = 255
    return logits, labels


def test_every_pixel_that_counts_is_a_row_of_its_image():
    logits, labels = images()
    p = dense.pixels(logits, labels, ids=[f"i{k}" for k in range(12)])
    assert (len(p), p.unit, p.num_classes) == (12 * 63, "image", 3)
    row = 63 + 8  # image 1; place 0 is ignored, so this is place 9
    assert (p.columns["image"][row], p.columns["place"][row]) == ("i1", 9)
    assert p.logits[row].tolist() == pytest.approx(logits[1, :, 1, 1].tolist())
    assert int(p.labels[row]) == labels[1, 1, 1]
    confidence, wrong = dense.maps(p, "i1", (8, 8))
    assert np.isnan(confidence[0, 0])
    expected = logits[1].argmax(axis=0) != labels[1]
    assert np.array_equal(wrong.ravel()[1:] == 1, expected.ravel()[1:])


def test_an_image_of_which_no_pixel_counts_is_left_out_and_all_of_them_are_refused():
    logits, labels = images(3)
    labels[1] = 255
    p = dense.pixels(logits, labels, ids=["a", "b", "c"])
    assert (len(p), set(p.columns["image"])) == (2 * 63, {"a", "c"})
    with pytest.raises(InputError, match="at least one that is not ignored, got none"):
        dense.pixels(logits[1:2], labels[1:2])


def test_images_of_different_sizes_are_read_one_by_one_and_some_pixels_are_kept():
    drawn = [(torch.randn(2, side, 5), torch.zeros(side, 5, dtype=torch.long)) for side in (3, 7)]
    p = dense.pixels((one for one, _ in drawn), (one for _, one in drawn), most=10)
    assert np.bincount(p.columns["image"]).tolist() == [10, 10]
    again = dense.pixels([one for one, _ in drawn], [one for _, one in drawn], most=10)
    assert again.columns["place"].tolist() == p.columns["place"].tolist()
    with pytest.raises(InputError, match="labels of image 0 must be 3 x 5"):
        dense.pixels([drawn[0][0]], [drawn[1][1]])
    with pytest.raises(InputError, match="not ignored, got none"):
        dense.pixels([drawn[0][0]], [drawn[0][1] + 255])


def test_bands_are_distances_to_the_nearest_change_of_label():
    labels = np.zeros((1, 1, 6), dtype=int)
    labels[0, 0, 5] = 1
    p = dense.pixels(np.full((1, 2, 1, 6), 3.0), labels, boundary=(1, 3))
    bands = ["3 px and more", "3 px and more", "1 to 3 px", "1 to 3 px", "0 to 1 px", "0 to 1 px"]
    assert p.columns["boundary"].tolist() == bands
    assert np.isinf(dense.boundary_distance(np.zeros((2, 2)))).all()
    assert np.isinf(dense.boundary_distance([[0, 255, 1]])).all()  # what is ignored makes no boundary


def test_intervals_and_folds_count_images():
    p = dense.pixels(*images())
    by_image, by_pixel = confide.metrics.nll(p), confide.metrics.nll(p.replace(unit=None))
    assert by_image.high - by_image.low > 1.5 * (by_pixel.high - by_pixel.low)
    losses = p.facts.nll.numpy()
    means = np.array([losses[p.columns["image"] == k].mean() for k in range(12)])  # images of one size
    assert (by_image.high - by_image.value) == pytest.approx(2.201 * means.std(ddof=1) / np.sqrt(12), rel=1e-3)
    assert confide.evaluate(p, ["nll"], intervals=False).about.unit == "pixels"
    with pytest.raises(InputError, match="756 of 12 units"):
        confide.sets.fit("lac", p)


def test_the_report_shows_the_maps_of_the_worst_images_and_lets_nothing_else_in(tmp_path):
    logits, labels = images(4)
    p = dense.pixels(logits, labels)
    maps = confide.evaluation.map_gallery(p, (8, 8), most=2)
    errors = [(logits[k].argmax(0) != labels[k]).ravel()[1:].mean() for k in range(4)]
    assert maps[0].id == str(int(np.argmax(errors)))
    assert maps[0].text == f"{max(errors):.0%} of 63 pixels wrong".replace("%", " %")
    evil = replace(maps[1], picture='data:image/png;base64,x" onload="alert(1)')
    evaluation = replace(confide.evaluate(p, ["accuracy"], False), samples=(maps[0], evil))
    confide.write_report(evaluation, tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert maps[0].picture in page
    assert 'onload="alert' not in page


def test_a_box_is_right_if_it_takes_a_true_box_that_no_surer_one_has():
    found = [[[0, 0, 40, 40], [0, 0, 40, 38], [100, 100, 200, 200]], [[0, 0, 5, 5]]]
    truth = [[[0, 0, 40, 40], [100, 100, 200, 210]], np.zeros((0, 4))]
    p = dense.boxes(found, [[0.7, 0.9, 0.6], [0.2]], [[1, 1, 0], [0]], truth, [[1, 0], []], class_names=["a", "b"])
    assert p.facts.correct.tolist() == [False, True, True, False]
    assert p.columns["size"].tolist() == ["medium", "medium", "large", "small"]
    assert p.columns["box_class"].tolist() == ["b", "b", "a", "a"]
    assert p.columns["overlap"].tolist() == pytest.approx([0.0, 38 / 40, 100 / 110, 0.0])
    other = dense.boxes(found[:1], [[0.7, 0.9, 0.6]], [[0, 0, 0]], truth[:1], [[1, 0]])
    assert other.facts.correct.tolist() == [False, False, True]  # another class is no match


def test_the_command_reads_images_and_boxes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    logits, labels = images(6)
    np.savez("images.npz", logits=logits, labels=labels)
    (tmp_path / "each").mkdir()
    for k in range(6):
        np.savez(f"each/{k}.npz", logits=logits[k], labels=labels[k])
    assert main(["dense", "images.npz", "--boundary", "1", "--out", "a.parquet"]) == 0
    assert main(["dense", "each", "--boundary", "1", "--out", "b.parquet"]) == 0
    one, other = (confide.Predictions.load(name) for name in ("a.parquet", "b.parquet"))
    assert torch.equal(one.logits, other.logits)
    assert one.unit == "image"
    assert main(["evaluate", "images.npz"]) == 1
    assert "confide dense" in capsys.readouterr().err
    assert main(["evaluate", "a.parquet", "--metrics", "accuracy", "--by", "boundary", "--out", "e"]) == 0
    assert "378 pixels" in capsys.readouterr().out
    box = {"image_id": 1, "category_id": 5, "bbox": [0, 0, 10, 10]}
    (tmp_path / "d.json").write_text(json.dumps([{**box, "score": 0.9}]))
    (tmp_path / "t.json").write_text(json.dumps({"annotations": [box], "categories": [{"id": 5, "name": "cup"}]}))
    assert main(["dense", "d.json", "--truth", "t.json", "--out", "c.parquet"]) == 0
    assert confide.Predictions.load("c.parquet").columns["box_class"].tolist() == ["cup"]
    assert main(["dense", "t.json", "--truth", "t.json", "--out", "c.parquet"]) == 1
    assert "layout of COCO" in capsys.readouterr().err
    assert main(["dense", "d.json", "--out", "c.parquet"]) == 1
    assert "boxes of d.json need the true ones; give --truth FILE" in capsys.readouterr().err


def test_labels_and_classes_that_are_fractions_are_refused_and_not_cut_off():
    with pytest.raises(InputError, match="labels of image 0 must be whole numbers"):
        dense.pixels(np.zeros((1, 3, 2, 2)), np.full((1, 2, 2), 0.5))
    box = [[[0, 0, 10, 10]]]
    with pytest.raises(InputError, match="classes of image 0 must be whole numbers"):
        dense.boxes(box, [[0.9]], [[0.5]], box, [[0]])
    with pytest.raises(InputError, match="image 1 has no labels"):
        dense.pixels(np.zeros((2, 3, 2, 2)), np.zeros((1, 2, 2), dtype=int))


def test_fewer_ids_than_images_are_one_line():
    with pytest.raises(InputError, match="ids must be one for each image, got 1 and more images"):
        dense.pixels(np.zeros((2, 3, 4, 4)), np.zeros((2, 4, 4), int), ids=["a"])
    with pytest.raises(InputError, match="ids must be one for each image, got 0 and more images"):
        dense.boxes([[[0, 0, 1, 1]]], [[0.5]], [[0]], [[]], [[]], ids=[])


def test_a_border_that_does_not_count_is_blue_and_does_not_blur_the_map():
    from confide.evaluation.gallery import UNCOUNTED, map_picture

    confidence = np.where(np.arange(24)[:, None] == 0, np.nan, np.linspace(0.4, 1, 32)[None])
    drawn = map_picture(confidence, np.zeros((24, 32)))
    assert drawn.shape[1] == 4 * 24
    assert (drawn[:, :4, : 4 * 32] == np.array(UNCOUNTED)[:, None, None]).all()
    assert len(np.unique(drawn[0, 10, : 4 * 32])) == 32
    kept = np.random.default_rng(0).random((24, 32)) < 0.1
    assert len(np.unique(map_picture(np.where(kept, confidence, np.nan), np.zeros((24, 32)))[0, 10])) < 32


def test_an_image_of_one_pixel_has_maps():
    p = dense.pixels(torch.full((2, 2, 1, 1), 3.0), torch.tensor([[[0]], [[1]]]))
    assert [own.tolist() for own in dense.maps(p, 1)] == [[[0.5]], [[1.0]]]
