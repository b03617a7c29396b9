"""The server over a run folder: filters, order, single samples, comparison, export."""

from __future__ import annotations

import csv
import io
from importlib import resources

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from confide import calibrators, difficulty
from confide.predictions import Predictions
from confide.records import Features, Scores

CLASSES = ("shirt", "coat", "<script>alert(1)</script>", "=cmd()")


def rows_of(client, **words):
    return client.get("rows", **{"from": 0, "count": 500}, **words)["cells"]


def test_about_says_what_there_is(client):
    about = client.get("about")
    assert about["n"] == 180
    assert about["splits"] == {"test": 80, "val": 40, "train": 60}
    assert about["models"] == {"plain": ["raw", "temperature", "vector"], "other-loss": ["raw", "temperature"]}
    assert about["opening_stages"] == {"plain": "temperature", "other-loss": "temperature"}
    assert about["num_classes"] == 4
    assert {"c.camera", "c.width"} <= {c["key"] for c in about["columns"]}


def test_facts_are_those_of_the_calibrated_predictions(client, run_folder):
    said = Predictions.load(run_folder / "predictions" / "plain-test.parquet")
    after = calibrators.load(run_folder / "calibrators" / "plain-temperature.json")(said)
    cells = sorted(rows_of(client, split="test"), key=lambda c: c["id"])
    assert [c["id"] for c in cells] == said.ids.tolist()
    assert [c["confidence"] for c in cells] == pytest.approx(after.facts.confidence.tolist(), rel=1e-5)
    assert [c["right"] for c in cells] == after.facts.correct.tolist()


@pytest.mark.parametrize(
    ("filters", "test"),
    [
        ({"outcome": "wrong"}, lambda c: c["right"] is False),
        ({"outcome": "right"}, lambda c: c["right"] is True),
        ({"label": "1"}, lambda c: c["label"] == "coat"),
        ({"label": ["1", "2"]}, lambda c: c["label"] in ("coat", "<script>alert(1)</script>")),
        ({"prediction": "0"}, lambda c: c["prediction"] == "shirt"),
        ({"difficulty": "2..5"}, lambda c: 2 <= c["difficulty"] <= 5),
        ({"difficulty": "5.."}, lambda c: c["difficulty"] >= 5),
        ({"confidence": "..0.5"}, lambda c: c["confidence"] <= 0.5),
        ({"search": "-07"}, lambda c: "-07" in c["id"]),
        ({"difficulty": "0..6", "outcome": "wrong"}, lambda c: 0 <= c["difficulty"] <= 6 and c["right"] is False),
    ],
)
def test_a_filter_keeps_what_fits_and_nothing_else(client, filters, test):
    everything = rows_of(client, split="test")
    kept = rows_of(client, split="test", **filters)
    assert 0 < len(kept) < len(everything)
    assert {c["row"] for c in kept} == {c["row"] for c in everything if test(c)}
    assert client.get("find", split="test", **filters)["count"] == len(kept)


def test_verdict_and_user_columns_filter(client):
    found = client.get("find", split="test", verdict="wrong label")
    assert found["count"] == 20
    camera = client.get("find", **{"split": "test", "c.camera": "studio", "open": "c.camera"})
    assert camera["count"] == 27
    counts = {v["name"]: v["count"] for v in camera["facets"]["c.camera"]["values"]}
    assert counts == {"phone": 27, "studio": 27}  # its own filter does not count, so that others can be chosen
    assert camera["facets"]["c.camera"]["none"] == 26
    assert client.get("find", **{"split": "test", "c.camera": ""})["count"] == 26
    wide = client.get("find", **{"split": "test", "c.width": "100..", "open": "c.width"})
    assert 20 < wide["count"] < 60
    assert sum(wide["histograms"]["c.width"]) == 80


def test_histograms_count_every_sample_once_and_leave_out_the_missing(client):
    found = client.get("find")
    assert sum(found["histograms"]["difficulty"]) == 140  # val has no scores
    assert sum(found["histograms"]["confidence"]) == 120  # train has no predictions
    assert sum(found["histograms"]["trust"]) == 80
    narrowed = client.get("find", split="test", difficulty="5..")
    assert sum(narrowed["histograms"]["difficulty"]) == 80
    assert sum(narrowed["histograms"]["confidence"]) == narrowed["count"]


@pytest.mark.parametrize("key", ["difficulty", "confidence"])
@pytest.mark.parametrize("sign", ["", "-"])
def test_sorting(client, key, sign):
    values = [c[key] for c in rows_of(client, split="test", sort=sign + key)]
    assert values == sorted(values, reverse=sign == "-")


@pytest.mark.parametrize("key", ["trust", "loss", "c.width"])
def test_sorting_by_what_a_cell_does_not_hold_shows_the_value(client, key):
    values = [c["value"] for c in rows_of(client, split="test", sort=key)]
    assert values == sorted(values)
    assert len(set(values)) > 70


def test_samples_without_a_value_come_last(client):
    cells = rows_of(client, sort="-difficulty")
    assert [c["difficulty"] for c in cells[140:]] == [None] * 40


def test_slices_join_to_the_whole(client):
    whole = [c["row"] for c in rows_of(client, split="test", outcome="right")]
    parts = [
        c["row"]
        for start in range(0, len(whole), 7)
        for c in client.get("rows", **{"split": "test", "outcome": "right", "from": start, "count": 7})["cells"]
    ]
    assert parts == whole


def test_when_nothing_fits_the_filter_that_excludes_most_is_named(client):
    found = client.get("find", split="test", difficulty="1000..", outcome="wrong")
    assert found["count"] == 0
    assert found["blame"] == "difficulty"


def test_one_sample_before_and_after_calibration(client, run_folder):
    said = Predictions.load(run_folder / "predictions" / "plain-test.parquet")
    after = calibrators.load(run_folder / "calibrators" / "plain-temperature.json")(said)
    row = client.get("locate", split="test", id="test-013", **{"in": "test"})["row"]
    found = client.get("sample", row=row)
    assert found["top"]["stage"] == "temperature"
    for one in found["top"]["classes"]:
        assert one["before"] == pytest.approx(float(said.probabilities()[13, one["label"]]), rel=1e-5)
        assert one["after"] == pytest.approx(float(torch.softmax(after.logits[13], 0)[one["label"]]), rel=1e-5)
    assert [c["name"] for c in found["top"]["classes"] if c["own"]] == [CLASSES[13 % 4]]
    assert found["suggested"]["name"] == CLASSES[(13 + 1) % 4]
    raw = client.get("sample", row=row, model="plain", stage="raw")["top"]
    assert (raw["stage"], sorted(raw["classes"], key=str)) == ("temperature", sorted(found["top"]["classes"], key=str))


def test_the_nearest_are_the_nearest(client, run_folder):
    with np.load(run_folder / "features" / "train.npz") as train, np.load(run_folder / "features" / "test.npz") as test:
        distance = np.linalg.norm(train["features"] - test["features"][7], axis=1)
        nearest = train["id"][np.argsort(distance)[:6]].tolist()
    row = client.get("locate", split="test", id="test-007", **{"in": "test"})["row"]
    found = client.get("neighbours", row=row)["neighbours"]
    assert [n["id"] for n in found] == nearest
    assert [n["distance"] for n in found] == pytest.approx(np.sort(distance)[:6].tolist(), rel=1e-4)
    own = client.get("neighbours", row=found[0]["row"])["neighbours"]
    assert found[0]["id"] not in [n["id"] for n in own]


def test_the_parts_make_up_the_score(client, run_folder):
    from confide import difficulty
    from confide.records import Features

    train, test = (Features.load(run_folder / "features" / f"{s}.npz") for s in ("train", "test"))
    scores = difficulty.fit("rmd", train).score(test)
    row = client.get("locate", split="test", id="test-020", **{"in": "test"})["row"]
    parts = client.get("parts", row=row)
    assert parts["own"] - parts["all"] == pytest.approx(float(scores.values[20]), rel=1e-4)


def test_the_history_is_that_of_the_sample(client, run_folder):
    said = Predictions.load(run_folder / "predictions" / "plain-test.parquet")
    row = client.get("locate", split="test", id="test-031", **{"in": "test"})["row"]
    found = client.get("history", row=row)
    expected = [float(torch.softmax(said.logits[31] * (e + 1) / 4, 0)[31 % 4]) for e in range(4)]
    assert found["probability"] == pytest.approx(expected, rel=1e-4)
    assert found["epoch"] == [0, 1, 2, 3]
    other = client.get("locate", split="train", id="train-000", **{"in": "train"})["row"]
    missing = client.get("history", row=other)["missing"]
    assert "record: train" in missing["why"]


def test_pictures_are_those_of_the_dataset(client, run_folder):
    from PIL import Image

    row = client.get("locate", split="val", id="val-003", **{"in": "val"})["row"]
    status, headers, content = client.send("GET", f"/api/picture?row={row}")
    assert (status, headers["content-type"]) == (200, "image/png")
    with np.load(run_folder / "pictures.npz") as data:
        assert (np.asarray(Image.open(io.BytesIO(content))) == data["val_inputs"][3, 0]).all()


def test_two_models_are_compared_on_the_samples_both_saw(client, run_folder):
    first, second = (
        Predictions.load(run_folder / "predictions" / f"{m}-test.parquet") for m in ("plain", "other-loss")
    )
    a, b = first.facts.correct.numpy(), second.facts.correct.numpy()
    found = client.get("compare", split="test", with_="other-loss", cell=["rw", "wr"])
    assert found["cells"] == {
        "rr": int((a & b).sum()),
        "rw": int((a & ~b).sum()),
        "wr": int((~a & b).sum()),
        "ww": int((~a & ~b).sum()),
    }
    differ = first.facts.prediction != second.facts.prediction
    assert found["disagree"] == len(found["dots"]) == int(differ.sum())
    from scipy.stats import binomtest

    only = found["cells"]["rw"], found["cells"]["wr"]
    assert found["p"] == pytest.approx(binomtest(only[0], sum(only)).pvalue, rel=1e-9)
    assert len(found["pairs"]) == sum(only)
    gaps = [abs(p["predictions"][0]["confidence"] - p["predictions"][1]["confidence"]) for p in found["pairs"]]
    assert gaps == sorted(gaps, reverse=True)
    in_grid = client.get("find", split="test", with_="other-loss", cells=["rw"])
    assert in_grid["count"] == only[0]


def test_a_comparison_leaves_filters_aside_that_favour_one_model(client):
    plain = client.get("compare", split="test", with_="other-loss")
    narrowed = client.get("compare", split="test", with_="other-loss", outcome="wrong", confidence="..0.6")
    assert narrowed["cells"] == plain["cells"]
    assert narrowed["left_aside"] == ["confidence", "outcome"]


def test_export_is_the_selection_in_its_order(client):
    shown = [c["id"] for c in rows_of(client, split="test", outcome="wrong", sort="confidence")]
    words = "split=test&outcome=wrong&sort=confidence"
    _, headers, content = client.send("GET", f"/api/export?{words}&format=csv")
    rows = list(csv.DictReader(io.StringIO(content.decode())))
    assert [r["id"] for r in rows] == shown
    assert headers["content-disposition"] == 'attachment; filename="small-selection.csv"'
    _, _, content = client.send("GET", f"/api/export?{words}&format=parquet")
    table = pq.read_table(io.BytesIO(content))
    assert table.column("id").to_pylist() == shown
    assert table.column("outcome").to_pylist() == ["wrong"] * len(shown)
    assert {"difficulty", "trust", "camera", "width", "model", "stage", "tag", "note"} <= set(table.column_names)


def test_classes_are_found_by_a_part_of_their_name(client):
    assert client.get("classes", text="COA")["classes"] == [{"label": 1, "name": "coat"}]
    assert len(client.get("classes", text="")["classes"]) == 4


@pytest.mark.parametrize("name", ["predicted_class", "unlabelled"])
def test_a_calibrator_that_goes_by_difficulty_is_shown(serve, run_folder, name):
    val, test = (Predictions.load(run_folder / "predictions" / f"plain-{split}.parquet") for split in ("val", "test"))
    ids = np.concatenate([val.ids, test.ids])
    scores = Scores(ids, np.linspace(0, 1, len(ids))[::-1], "rmd")
    scores.save(run_folder / "scores" / f"{name}.parquet")
    fitted = calibrators.fit("temperature", val.with_column("difficulty", scores.of(val.ids)), by="difficulty", bands=2)
    fitted.save(run_folder / "calibrators" / "plain-temperature.json")
    after = fitted(test.with_column("difficulty", scores.of(test.ids)))
    client = serve(run_folder)
    assert set(client.get("about")["splits"]) == {"test", "val", "train"}  # these scores are no split
    cell = client.get("rows", split="test", search="test-013", **{"from": 0, "count": 1})["cells"][0]
    assert cell["confidence"] == pytest.approx(float(after.facts.confidence[13]), rel=1e-5)
    top = client.get("sample", row=cell["row"])["top"]["classes"]
    assert top[0]["after"] == pytest.approx(float(after.facts.confidence[13]), rel=1e-5)


def test_the_difficulty_that_the_run_fitted_is_used_for_its_parts(serve, run_folder):
    refitted = serve(run_folder).get("parts", row=7)
    features = Features.load(run_folder / "features" / "train.npz")
    difficulty.fit("rmd", features).save(run_folder / "difficulty.safetensors")
    assert serve(run_folder).get("parts", row=7) == pytest.approx(refitted)
    half = Features(features.values[:30], features.labels[:30], features.ids[:30], "made", "train")
    difficulty.fit("rmd", half).save(run_folder / "difficulty.safetensors")
    assert serve(run_folder).get("parts", row=7)["own"] != pytest.approx(refitted["own"])


def test_samples_without_a_score_are_shown_counted_and_sorted_last(client):
    # No scores are kept of val: 40 of the 180 samples have no difficulty.
    found = client.get("find")
    assert sum(found["histograms"]["difficulty"]) == 140
    cells = client.get("rows", **{"from": 0, "count": 240})["cells"]
    without = [cell["difficulty"] is None for cell in cells]
    assert without == [False] * 140 + [True] * 40
    row = next(cell["row"] for cell in cells if cell["difficulty"] is None)
    value = next(v for v in client.get("sample", row=row)["values"] if v["key"] == "difficulty")
    assert (value["value"], value["rank"]) == (None, None)
    assert client.get("find", difficulty="-100..100")["count"] == 140


def test_files_of_the_page_begin_with_those_of_the_report_where_they_share_them():
    from confide.explorer import server

    read = resources.files("confide.explorer").joinpath("assets")
    shared = resources.files("confide.report").joinpath("assets")
    for name in server.ASSETS:
        found, own = server._asset_text.__wrapped__(name), read.joinpath(name).read_text(encoding="utf-8")
        first = shared.joinpath(server.SHARED[name]).read_text(encoding="utf-8") if name in server.SHARED else ""
        assert found == first + own
        assert server.asset(name).status_code == 200
    assert {name for name in server.SHARED if name in server.ASSETS} == set(server.SHARED)
    assert server.asset("../queries.py").status_code == 404


def test_the_classes_of_a_raw_sample_stand_beside_those_of_the_calibrator_that_the_explorer_opens_with(client):
    shown = {stage: client.get("sample", row=0, stage=stage)["top"] for stage in ("raw", "temperature", "vector")}
    assert {stage: top["stage"] for stage, top in shown.items()} == {
        "raw": "temperature",
        "temperature": "temperature",
        "vector": "vector",
    }
