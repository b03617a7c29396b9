"""What the explorer says of confidence: of the rows that fit, of confused classes, slices, two models, and the map."""

from __future__ import annotations

import io
import json
import re
import sys
import zipfile
from dataclasses import replace
from html import unescape

import numpy as np
import pytest
import torch
from scipy import stats

pytest.importorskip("duckdb", reason="duckdb is not installed (extra: explore)")

import confide
from confide.explorer.reliability import ConfidenceSums, _unit_spread, confidence_cells, reliability_of
from confide.predictions import Predictions
from confide.records import Features, Scores


def test_the_gap_of_the_rows_in_sight_is_that_of_the_evaluation(client, run_folder):
    from confide import evaluate

    whole = evaluate(Predictions.load(run_folder / "predictions" / "plain-test.parquet"))
    found = client.get("reliability", split="test", stage="raw")["reliability"]
    gap = whole.find("confidence_gap")
    assert found["confidence"] - found["accuracy"] == pytest.approx(gap.value, abs=1e-6)
    assert (found["low"], found["high"]) == pytest.approx((gap.low, gap.high), abs=1e-4)
    assert sum(b["n"] for b in found["bins"]) == 80
    assert found["risk"][-1][:2] == pytest.approx([1.0, 1 - found["accuracy"]])


def test_the_filter_of_a_bin_holds_as_many_samples_as_the_bin_says(serve, tmp_path):
    """As the page writes it: just above the low end, which belongs to the bin before, up to the high end."""
    rng = np.random.default_rng(3)
    sure = np.concatenate([rng.uniform(0, 1, 3000), np.arange(16) / 15, np.arange(16) / 15])
    Predictions.from_pairs(rng.random(len(sure)) < sure, sure).save(tmp_path / "p.parquet")
    client = serve(tmp_path / "p.parquet")
    bins = client.get("reliability")["reliability"]["bins"]
    counts = [
        client.get("find", confidence=f"{b['low'] * (1 + sys.float_info.epsilon)!r}..{b['high']!r}")["count"]
        for b in bins
    ]
    assert counts == [b["n"] for b in bins]
    assert sum(counts) == len(sure)


def test_rows_chosen_by_the_label_are_not_judged(client):
    assert client.get("reliability", split="test", prediction="1")["reliability"]["verdict"] != "chosen"
    for key, value in (("outcome", "right"), ("label", "1"), ("loss", "0.5.."), ("difficulty", "0..")):
        assert client.get("reliability", split="test", **{key: value})["reliability"]["verdict"] == "chosen", key


def test_what_judges_the_label_is_no_slice_and_no_ground_to_judge_confidence_by(serve, tmp_path):
    """Columns of judged labels (suspicion and others) sit among the user's own: they choose right and wrong apart."""
    rng, n = np.random.default_rng(6), 2000
    sure = rng.uniform(0.5, 1, n)
    right = rng.random(n) < sure
    labels, predicted = np.zeros(n, dtype=np.int64), np.where(right, 0, 1)  # no label names the second class
    columns = {"suspicion": np.where(right, -1.0, 1.0) + rng.random(n), "width": rng.normal(size=n)}
    Predictions.from_top1(labels, predicted, sure, columns=columns).save(tmp_path / "p.parquet")
    client = serve(tmp_path / "p.parquet")
    found = client.get("slices")["slices"]
    assert found["attributes"] == ["width", "predicted"]
    assert client.get("reliability", **{"c.suspicion": "0.."})["reliability"]["verdict"] == "chosen"
    assert client.get("reliability", **{"c.width": "0.."})["reliability"]["verdict"] != "chosen"


def test_calibrated_rows_are_called_wrong_in_five_per_cent_of_draws_at_most():
    def verdict(sure, right):
        return reliability_of(ConfidenceSums.of(sure, confidence_cells(sure, right)), few=sure).verdict

    rng = np.random.default_rng(4)
    claimed = 0
    for _ in range(150):
        sure = rng.beta(6, 1.5, 300)
        claimed += verdict(sure, rng.random(300) < sure) in ("over", "under")
    assert claimed <= 15  # 5 % of 150 and 2.8 standard deviations
    assert verdict(sure, rng.random(300) < sure - 0.15) == "over"


def test_the_gap_of_pixels_counts_images_and_slices_of_them_are_refused(serve, tmp_path):
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 2, (20, 3, 1, 1)) * np.ones((1, 1, 6, 6))
    pixels = confide.dense.pixels(logits, rng.integers(0, 3, (20, 1, 1)) * np.ones((1, 6, 6), int))
    pixels.save(tmp_path / "pixels.parquet")
    client = serve(tmp_path / "pixels.parquet")
    found, gap = client.get("reliability")["reliability"], confide.metrics.confidence_gap(pixels)
    assert (found["low"], found["high"]) == pytest.approx((gap.low, gap.high), abs=1e-6)
    assert (found["n"], found["units"]) == (720, 20)
    apart = confide.metrics.confidence_gap(pixels.replace(unit=None))
    assert found["high"] - found["low"] > 4 * (apart.high - apart.low)
    one = client.get("reliability", **{"c.image": "3..3"})["reliability"]
    assert (one["low"], one["high"], one["verdict"]) == (-1.0, 1.0, "chance")
    assert "They count samples drawn one by one" in client.get("slices")["missing"]["why"]


def test_calibrated_images_are_called_wrong_in_five_per_cent_of_draws_at_most():
    rng, called = np.random.default_rng(1), 0
    for _ in range(300):
        sure, units = rng.uniform(0.4, 1, 40).repeat(25), np.arange(40).repeat(25)
        right = rng.random(40).repeat(25) < sure
        spread = _unit_spread(sure - right, units)
        called += (
            reliability_of(ConfidenceSums.of(sure, confidence_cells(sure, right)), spread=spread).verdict != "chance"
        )
    assert called <= 24  # 15 expected, and three standard deviations of 15 draws at 5 %


def test_confused_classes_are_counted_with_how_sure_they_are(client):
    found = client.get("confusion", split="test", outcome="wrong", label="1")["confusion"]
    cells = client.get("rows", split="test", outcome="wrong", **{"from": 0, "count": 240})["cells"]
    pair = found["pairs"][0]
    names = dict(found["classes"])
    same = [c for c in cells if (c["label"], c["prediction"]) == (names[pair["label"]], names[pair["prediction"]])]
    assert pair["count"] == len(same)
    assert pair["confidence"] == pytest.approx(np.mean([c["confidence"] for c in same]), rel=1e-5)
    assert found["wrong"] == len(cells) == sum(p["count"] for p in found["pairs"])


def test_samples_whose_class_only_another_model_was_told_are_confused_with_none(serve, run_folder):
    """Samples have the labels of the first model's file; of another model it is known all the same what was wrong."""
    path = run_folder / "predictions" / "plain-val.parquet"
    told = Predictions.load(path)
    Predictions(told.logits, None, told.ids, "val", class_names=told.class_names).save(path)
    client = serve(run_folder)
    assert client.get("find", split="val", outcome="wrong", model="other-loss")["count"] > 0
    found, of_test = (client.get("confusion", model="other-loss", **only) for only in ({}, {"split": "test"}))
    assert found["confusion"] == of_test["confusion"]


def test_a_planted_slice_is_found_and_is_a_filter(serve, tmp_path):
    rng = np.random.default_rng(0)
    night, sure = rng.random(4000) < 0.1, rng.uniform(0.7, 1.0, 4000)
    right = rng.random(4000) < sure - 0.3 * night
    light = np.where(night, "night", "day")
    Predictions.from_pairs(right, sure, light=light, size=rng.normal(size=4000)).save(tmp_path / "p.parquet")
    client = serve(tmp_path / "p.parquet")
    found = client.get("slices")["slices"]["slices"]
    assert found[0]["filters"] == {"c.light": "night"}
    assert client.get("reliability", **found[0]["filters"])["reliability"]["verdict"] == "over"


def test_a_planted_cluster_of_features_is_found_and_its_lasso_holds_its_samples(serve, tmp_path):
    rng = np.random.default_rng(0)
    far, sure = rng.random(4000) < 0.15, rng.uniform(0.7, 1.0, 4000)
    right = rng.random(4000) < sure - 0.3 * far
    ids = np.array([f"s{k}" for k in range(4000)])
    Predictions.from_pairs(right, sure, ids=ids).save(tmp_path / "p.parquet")
    values = rng.normal(size=(4000, 5)) + 12 * far[:, None]
    Features(values.astype(np.float32), np.zeros(len(ids), np.int64), ids, "made").save(tmp_path / "features.npz")
    client = serve(tmp_path / "p.parquet", features=tmp_path / "features.npz")
    while (found := client.get("slices")).get("computing"):
        pass
    assert "cluster of the map" in found["slices"]["attributes"]
    assert found["slices"]["slices"]
    members = set()
    for s in found["slices"]["slices"]:
        assert re.fullmatch(r"cluster \d+ of the map", s["names"]["lasso"])
        rows = client.get("rows", **{**s["filters"], "from": 0, "count": 240})
        assert client.get("reliability", **s["filters"])["reliability"]["verdict"] == "over"
        members |= {cell["id"] for cell in rows["cells"]}
    assert members <= set(ids[far])


def test_clusters_of_the_map_share_out_all_samples():
    from confide.explorer.projection import Box, _nearest_parts

    rng = np.random.default_rng(1)
    corners = _nearest_parts(rng.normal(size=(12, 2)), Box(-4.0, 4.0, -3.0, 3.0))
    areas = [0.5 * abs(x @ np.roll(y, 1) - y @ np.roll(x, 1)) for x, y in (line.T for line in corners)]
    assert sum(areas) == pytest.approx(48)


def test_a_map_that_cannot_be_computed_says_why_and_slices_go_on_without_it(serve, tmp_path, monkeypatch):
    from confide.explorer.projection import FeatureMap

    def fails(self, method):
        raise ValueError("no two directions")

    monkeypatch.setattr(FeatureMap, "_compute", fails)
    rng = np.random.default_rng(0)
    ids = np.array([f"s{k}" for k in range(400)])
    sure = rng.uniform(0.7, 1.0, 400)
    light = rng.choice(["day", "night"], 400)
    Predictions.from_pairs(rng.random(400) < sure, sure, ids=ids, light=light).save(tmp_path / "p.parquet")
    Features(rng.normal(size=(400, 5)).astype(np.float32), np.zeros(len(ids), np.int64), ids, "made").save(
        tmp_path / "features.npz"
    )
    client = serve(tmp_path / "p.parquet", features=tmp_path / "features.npz")
    while (seen := client.get("map")).get("computing"):
        pass
    assert seen["missing"]["why"] == "It could not be computed: no two directions."
    assert client.get("slices")["slices"]["attributes"] == ["light"]


def test_two_models_are_compared_on_confidence(client):
    found = client.get("compare", split="test", with_="other-loss", stage="raw", cell=["rw", "wr"])
    gap, first = found["gap"], client.get("reliability", split="test", stage="raw")["reliability"]
    assert (gap["confidence"][0], gap["accuracy"][0]) == pytest.approx((first["confidence"], first["accuracy"]))
    assert gap["low"] < gap["change"] < gap["high"]
    filters = {"split": "test", "with_": "other-loss", "stage": "raw", "cells": ["rw", "ww"], "surer": "0.1.."}
    assert client.get("find", **filters)["count"] == gap["surer_wrong"][1]
    area = client.get("compare", split="test", with_="other-loss", stage="raw", cell=["rw", "wr"], area="0,0.6,0.5,1")
    filters = {"split": "test", "with_": "other-loss", "stage": "raw", "cells": ["rw", "wr"]}
    assert area["chosen"] == client.get("find", confidence="0..0.6", other="0.5..1", **filters)["count"]


def test_the_map_is_kept_and_a_lasso_on_it_is_a_filter(client, serve, run_folder):
    from confide.explorer.projection import COLOURS

    while client.get("map").get("computing"):
        pass
    kept = (run_folder / "map.npz").read_bytes()
    seen = client.get("map", split="test", colour="class")
    assert (seen["method"], seen["n"], sum(seen["cells"]["n"])) == ("PCA", 80, 80)
    assert all(client.get("map", split="test", colour=colour)["n"] == 80 for colour in COLOURS)
    x, y = np.array(seen["points"]["x"]), np.array(seen["points"]["y"])
    middle = float(np.median(x))
    corners = f"{middle},{y.min() - 1};{x.max() + 1},{y.min() - 1};{x.max() + 1},{y.max() + 1};{middle},{y.max() + 1}"
    assert client.get("find", split="test", lasso=corners)["count"] == int((x > middle).sum())
    assert "3 to 60 corners" in client.refused("find?lasso=1,2;3,4")
    (run_folder / "map.npz").write_bytes(b"damaged")
    again = serve(run_folder)
    while again.get("map").get("computing"):
        pass
    assert (run_folder / "map.npz").read_bytes()[:4] == kept[:4]


def test_a_map_of_someone_else_that_unpacks_to_far_more_than_it_is_is_not_read(tmp_path, monkeypatch):
    from confide.explorer.projection import _read_plane

    plane = np.zeros((50_000, 2), dtype=np.float32)
    np.savez_compressed(tmp_path / "map.npz", plane=plane, key=np.array("key"))
    assert _read_plane(tmp_path / "map.npz", "key", len(plane)) is not None
    monkeypatch.setattr("confide.files.formats.UNPACKED_AT_LEAST", 1 << 16)
    assert _read_plane(tmp_path / "map.npz", "key", len(plane)) is None


def test_the_whole_map_holds_a_stray_sample_and_the_first_view_does_not_shrink_for_it(serve, run_folder):
    path = run_folder / "features" / "test.npz"
    rows = Features.load(path)
    values = rows.values.copy()
    values[7] *= 1000
    replace(rows, values=values).save(path)
    client = serve(run_folder)
    while client.get("map").get("computing"):
        pass
    first = client.get("map", split="test")
    assert first["n"] == len(rows.ids) - 1
    whole = ",".join(str(first["whole"][side]) for side in ("left", "right", "bottom", "top"))
    assert client.get("map", split="test", box=whole)["n"] == len(rows.ids)


def test_several_samples_are_tagged_at_once_and_taken_back(client, run_folder):
    def post(path, body):
        return client.send("POST", f"/api/{path}", body, {"X-Confide": "1"})

    client.put("tag?row=5", {"action": "keep"})
    status, _, content = post("tags?split=test&outcome=wrong", {"all": True, "action": "drop"})
    wrong = client.get("find", split="test", outcome="wrong")["count"]
    answer = json.loads(content)
    assert (status, answer["changed"]) == (200, wrong)
    assert client.get("find", tag="drop")["count"] == wrong
    status, _, _ = post("tags", {"rows": [5, 6], "new_label": "suggested"})
    assert (status, client.get("find", tag="relabel")["count"]) == (200, 2)
    assert post("undo", {"undo": answer["undo"]})[0] == 200
    assert client.get("find", tag="drop")["count"] == 0
    assert post("undo", {"undo": answer["undo"]})[0] == 400
    assert post("tags", {"rows": [-1], "action": "drop"})[0] == 400


def test_the_last_changes_can_be_taken_back_and_no_older_one(client, monkeypatch):
    from confide.explorer import session

    monkeypatch.setattr(session, "MAX_UNDO", 2)
    sure = {"X-Confide": "1"}
    steps = [client.send("POST", "/api/tags", {"rows": [row], "action": "drop"}, sure)[2] for row in (3, 4, 5)]
    taken = [client.send("POST", "/api/undo", {"undo": json.loads(step)["undo"]}, sure)[0] for step in steps]
    assert taken == [400, 200, 200]
    assert client.get("find", tag="drop")["count"] == 1


def test_a_change_of_what_was_not_seen_is_refused(client):
    def patch(body):
        return client.send("PATCH", "/api/tag", {"split": "test", "id": "test-004", **body}, {"X-Confide": "1"})

    assert patch({"action": "drop", "seen": {"action": [None]}})[0] == 200
    assert patch({"action": "drop", "seen": {"action": [None]}})[0] == 200  # sent twice is as sent once
    assert patch({"action": "keep", "seen": {"action": [None]}})[0] == 409
    assert patch({"note": "mine", "seen": {"action": [None], "note": [""]}})[0] == 200  # another field
    assert patch({"action": "keep", "seen": {"action": ["drop"]}})[0] == 200


def test_changes_of_another_program_are_followed(client, run_folder):
    from confide.explorer.tags import SampleTag, TagFile

    client.put("tag?row=5", {"action": "keep"})
    version = client.get("changes", since=0)["version"]
    other = TagFile(run_folder / "tags.sqlite")
    other.put(SampleTag("test", "test-003", "drop"))
    other.close()
    changes = client.get("changes", since=version)
    assert [kind for _, kind in changes["rows"]] == ["drop"]
    assert client.get("find", tag="drop")["count"] == 1


def test_how_often_a_model_changed_its_mind_is_a_column(serve, tmp_path):
    import torch

    from confide.training import SampleHistory

    epochs = np.array([[0, 0, 0], [1, 0, 0], [0, 0, 1]])  # predictions after three epochs
    logits = torch.eye(2)[torch.tensor(epochs[-1])]
    run = tmp_path / "run"
    Predictions(logits, torch.tensor([0, 0, 1]), split="test").save(run / "predictions" / "m-test.parquet")
    history = SampleHistory(run / "models" / "m" / "history", np.array([0, 0, 1]), "test")
    for epoch, predicted in enumerate(epochs):
        history.record(epoch, None, np.eye(2, dtype=np.float32)[predicted])
    changed = serve(run)
    assert [changed.get("find", changes=f"{k}..{k}")["count"] for k in (0, 1, 2)] == [1, 1, 1]


def test_samples_leave_as_folders_for_label_studio_and_fiftyone(client):
    client.put("tag?row=1", {"action": "relabel", "new_label": 2})
    client.put("tag?row=2", {"action": "keep"})
    archives = {}
    for kind in ("labelstudio", "fiftyone"):
        status, headers, content = client.send("GET", f"/api/export?what=tags&format={kind}")
        assert (status, headers["content-type"]) == (200, "application/zip")
        archives[kind] = zipfile.ZipFile(io.BytesIO(content))
    tasks = json.loads(archives["labelstudio"].read("tasks.json"))
    decided = [task["annotations"][0]["result"][0]["value"]["choices"][0] for task in tasks]
    assert decided == ["<script>alert(1)</script>", tasks[1]["data"]["label_name"]]
    assert tasks[0]["data"]["image"] == "/data/local-files/?d=small/images/1.png"
    assert 0 < tasks[0]["predictions"][0]["score"] <= 1
    assert "images/1.png" in archives["labelstudio"].namelist()
    assert "&lt;script&gt;" in archives["labelstudio"].read("labels.xml").decode()
    labels = json.loads(archives["fiftyone"].read("labels.json"))
    assert labels["labels"]["1"] == 2
    assert labels["classes"][2] == "<script>alert(1)</script>"
    assert set(archives["fiftyone"].namelist()) == {"data/1.png", "data/2.png", "labels.json"}


def write_evaluation(run_folder) -> None:
    from confide import evaluate

    predictions = Predictions.load(run_folder / "predictions" / "plain-test.parquet", split="test")
    evaluate(predictions, model="plain", title="<b>mine</b>").save(run_folder / "evaluation.json")


def test_the_report_is_drawn_with_marks_that_are_filters(serve, run_folder):
    write_evaluation(run_folder)
    (run_folder / "report.html").write_text("<script>someone else's</script>")
    client = serve(run_folder)
    status, headers, page = client.send("GET", "/report")
    assert (status, b"someone else" in page, b"<b>mine</b>" in page) == (200, False, False)
    assert "script-src 'sha256-" in headers["content-security-policy"]
    marks = [m for values in re.findall(r'data-values="([^"]+)"', page.decode()) for m in json.loads(unescape(values))]
    queries = {mark[3] for mark in marks if len(mark) > 3}
    assert any("confidence=" in query for query in queries)
    by_class = next(query for query in queries if "prediction=coat" in query)
    found = json.loads(client.send("GET", f"/api/find?{by_class}")[2])
    assert found["count"] == client.get("find", split="test", model="plain", stage="raw", prediction="1")["count"]
    assert serve(run_folder / "predictions" / "plain-test.parquet").send("GET", "/report")[0] == 404


def test_quick_counts_pages_and_sums_are_those_of_the_plain_way(serve, tmp_path, monkeypatch):
    """Rows are counted on the smaller side, first rows found without an order of all, reliability taken from sums."""
    from urllib.parse import parse_qsl

    from confide.explorer import queries
    from confide.explorer.reliability import row_reliability

    rng, n = np.random.default_rng(3), 3000
    sure, camera = rng.uniform(0.3, 1, n), np.array(["a", "b", "c", "d"])[rng.integers(0, 4, n)]
    blur = np.where(rng.random(n) < 0.1, np.nan, rng.normal(size=n))
    Predictions.from_pairs(rng.random(n) < sure, sure, camera=camera, blur=blur).save(tmp_path / "p.parquet")
    serve(tmp_path / "p.parquet")
    explorer = serve.explorers[0]
    monkeypatch.setattr(queries, "FIRST_ROWS", 40)
    opened = ("c.camera", "c.blur")
    for text in (
        "sort=-confidence",
        "confidence=0.4..&sort=confidence",
        "c.blur=-1..1&c.camera=a&c.camera=c&sort=-c.blur",
        "c.blur=1..&c.camera=b&outcome=wrong&sort=c.blur",
        "confidence=0.9..0.91&sort=-confidence",
        "c.camera=b&outcome=right&c.blur=..0&sort=c.blur",
    ):
        query = queries.parse_query(explorer.database, parse_qsl(text, keep_blank_values=True))
        fits, whole = explorer.queries.fits(query), explorer.queries._sorted(query)
        expected = whole[fits[whole]]
        for start in (0, 7, 38):
            rows, total = explorer.queries.page(query, start, 5)
            assert (rows.tolist(), total) == (expected[start : start + 5].tolist(), fits.sum()), text
        assert explorer.queries.order(query).tolist() == expected.tolist()
        summary = explorer.queries.summarise(query, opened)
        for column in query.columns.values():
            codes = explorer.database.codes(column)[explorer.queries.fits(query, (column.key,))]
            if column.kind == "number":
                assert summary.histograms[column.key] == np.bincount(codes, minlength=37)[1:].tolist(), text
            elif column.kind == "category":
                facet = summary.facets[column.key]
                assert {v.value: v.count for v in facet.values if v.count} == {
                    column.values[k]: int((codes == k + 1).sum()) for k in range(len(column.values)) if k + 1 in codes
                }
                assert facet.none == (codes == 0).sum()
        found = row_reliability(explorer.queries, query)
        model = query.model_stage
        says = explorer.database.values(model.columns["confidence"])[fits]
        hit = explorer.database.codes(model.columns["outcome"])[fits] == 2
        gaps = says - hit
        assert (found.n, found.confidence, found.accuracy) == pytest.approx((len(says), says.mean(), hit.mean()))
        assert found.high + found.low == pytest.approx(2 * gaps.mean(), abs=0.02)
        if len(gaps) > 100:
            assert found.high - found.low == pytest.approx(2 * 1.96 * gaps.std() / np.sqrt(len(gaps)), rel=0.05)
        assert found.chance == pytest.approx(1.96 * np.sqrt((says * (1 - says)).sum()) / len(says), rel=1e-3)
        assert sum(b.n for b in found.bins) == len(says)


def test_bins_of_the_report_open_as_many_samples_as_they_hold(serve, run_folder):
    """Also where single precision rounds confidences to 1, and where difficulties lie on the edges of bins."""
    path = run_folder / "predictions" / "plain-test.parquet"
    said = Predictions.load(path, split="test")
    sharp = said.logits.double() * torch.linspace(0.5, 6, len(said))[:, None]
    Predictions(sharp.float(), said.labels, said.ids, "test", class_names=said.class_names).save(path)
    place = run_folder / "scores" / "test.parquet"
    scores = Scores.load(place)
    replace(scores, values=np.round(scores.values)).save(place)
    found = confide.evaluate(Predictions.load(path, split="test"), model="plain", scores=Scores.load(place))
    found.save(run_folder / "evaluation.json")
    client = serve(run_folder)
    page = client.send("GET", "/report")[2].decode()
    marks = [m for values in re.findall(r'data-values="([^"]+)"', page) for m in json.loads(unescape(values))]
    told = {m[3]: m[2] for m in marks if re.search("confidence=|difficulty=(?!.*outcome)", str(m[3:]))}
    opened = {query: json.loads(client.send("GET", f"/api/find?{query}")[2])["count"] for query in told}
    held = {query: int(re.search(r"(?:n = |%: )(\d+)", words)[1]) for query, words in told.items()}
    assert len(held) > 60
    assert max(held.values()) < len(said)
    assert opened == held


def test_two_models_on_rows_drawn_together_are_compared_unit_by_unit():
    from confide.explorer.comparison import _unit_test

    units = np.repeat(np.arange(6), 2)
    first = np.array([1, 1, 0, 1, 1, 0, 1, 1, 0, 0, 1, 0], dtype=bool)
    second = first.copy()
    assert _unit_test([first, second], units) is None
    second[[2, 7, 8, 9]] = ~second[[2, 7, 8, 9]]
    means = (second.astype(float) - first).reshape(6, 2).mean(axis=1)
    assert _unit_test([first, second], units) == pytest.approx(stats.ttest_1samp(means, 0).pvalue)
    assert _unit_test([first, second], np.zeros(12, dtype=int)) == 1.0
    even = np.tile([True, False], 6)
    assert _unit_test([even, ~even], units) == 1.0  # every unit says the same: no mean, no spread


def test_texts_leave_for_label_studio_as_texts_and_a_sample_without_one_by_its_id(serve, tmp_path):
    path, ids = tmp_path / "predictions.parquet", np.array([f"t{k}" for k in range(13)])
    Predictions(np.eye(2)[np.arange(13) % 2], np.arange(13) % 2, ids, "test").save(path)
    lines = [{"id": f"t{k}", "text": f"text {k}", "label": "ab"[k % 2]} for k in range(12)]
    (tmp_path / "texts.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    client = serve(path, data=str(tmp_path / "texts.jsonl"))
    serve.explorers[0].pictures.load()
    archive = zipfile.ZipFile(io.BytesIO(client.send("GET", "/api/export?format=labelstudio")[2]))
    tasks = json.loads(archive.read("tasks.json"))
    assert {task["data"]["id"]: task["data"]["text"] for task in tasks} == {
        **{f"t{k}": f"text {k}" for k in range(12)},
        "t12": "t12",
    }
    assert sorted(archive.namelist()) == ["labels.xml", "tasks.json"]
    assert "<Text " in archive.read("labels.xml").decode()
