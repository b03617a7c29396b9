"""What can be opened, and what bad input is told: one clear line each."""

from __future__ import annotations

import csv
import io
import json
import os
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
import torch
from PIL import Image

from confide import dense, evaluate
from confide.checks import InputError
from confide.cli.main import main
from confide.explorer import open_layout
from confide.explorer.launch import bind
from confide.explorer.queries import parse_query, rising_order
from confide.explorer.samples import PredictionsFile, gather_samples, model_table, parquet_row
from confide.explorer.session import Explorer
from confide.files import formats
from confide.predictions import Predictions
from confide.records import Scores, default_ids

duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed (extra: explore)")


def said_to(capsys, *words: str) -> str:
    assert main(["explore", *words]) == 1
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    return printed


def test_scores_alone(serve, tmp_path):
    values = np.linspace(0, 5, 30)
    Scores(default_ids(30), values, "kmeans", {}, np.arange(30) % 3).save(tmp_path / "scores.parquet")
    client = serve(tmp_path / "scores.parquet")
    about = client.get("about")
    assert about["models"] == {}
    assert [m["what"] for m in about["missing"]] == ["Predictions", "Verdicts"]
    assert client.get("find", difficulty="4..")["count"] == 6
    cells = client.get("rows", **{"from": 0, "count": 3})["cells"]
    assert [c["id"] for c in cells] == ["29", "28", "27"]
    sample = client.get("sample", row=5)
    assert sample["top"]["missing"]["what"] == "Top classes"
    assert "--features" in client.get("neighbours", row=5)["missing"]["command"]
    client.put("tag?row=5", {"action": "keep"})
    assert (tmp_path / "scores.parquet.tags.sqlite").exists()


def test_pixels_are_shown_as_maps_of_their_image(serve, tmp_path):
    rng = np.random.default_rng(0)
    labels = np.zeros((2, 8, 12), dtype=int)
    labels[:, 0] = 255
    logits = rng.normal(0, 0.1, (2, 3, 8, 12))
    logits[:, 0] += 2
    logits[1, 1, 4, 6:] += 9  # wrong, and sure of it
    dense.pixels(logits, labels, ids=["street", "field"]).save(tmp_path / "pixels.parquet")
    client = serve(tmp_path / "pixels.parquet")
    about = client.get("about")
    assert about["kind"] == "image"
    assert "the pixel is ringed" in about["pictures"]
    assert client.get("find", outcome="wrong")["count"] == 6
    pictures = []
    for row in (0, 84, 84 + 40):  # of the first image, and two pixels of the second
        status, _, content = client.send("GET", f"/api/picture?row={row}")
        assert status == 200
        pictures.append(np.asarray(Image.open(io.BytesIO(content)).convert("RGB")).astype(int))
    red = [((p[..., 0] - p[..., 1]) > 80).sum() for p in pictures]
    assert red[0] == 0
    assert min(red[1:]) > 100
    assert not np.array_equal(pictures[1], pictures[2])  # the ring stands elsewhere


@pytest.mark.parametrize("ending", ["parquet", "npz", "csv"])
def test_predictions_alone_in_every_format(serve, tmp_path, ending):
    logits = torch.randn(40, 5, generator=torch.Generator().manual_seed(1))
    said = Predictions(logits, torch.arange(40) % 5, columns={"site": np.array(["a", "b"])[np.arange(40) % 2]})
    said.save(tmp_path / f"val.{ending}")
    client = serve(tmp_path / f"val.{ending}")
    assert client.get("about")["models"] == {"val": ["raw"]}
    wrong = client.get("find", outcome="wrong")["count"]
    assert wrong == int((~said.facts.correct).sum())
    top = client.get("sample", row=7)["top"]
    assert top["stage"] is None
    assert top["classes"][0]["before"] == pytest.approx(float(torch.softmax(logits[7], 0).max()), rel=1e-4)
    assert client.get("find", **{"c.site": "a"})["count"] == 20


def test_classes_without_names_can_be_filtered_by(serve, tmp_path):
    Predictions(torch.eye(5)[:4], torch.arange(4)).save(tmp_path / "val.parquet")
    client = serve(tmp_path / "val.parquet")
    assert client.get("about")["num_classes"] == 5
    assert client.get("find", label="3")["count"] == 1
    assert client.get("find", prediction="4")["count"] == 0


CAT_OR_DOG = np.array([[2.0, 0.5], [0.25, 1.0], [1.5, 1.0], [-1.0, 3.0]])
CAT_OR_DOG_PROBS = np.exp(CAT_OR_DOG) / np.exp(CAT_OR_DOG).sum(1, keepdims=True)
CAT, DOG = CAT_OR_DOG.T
FILES_THAT_EVALUATE = {
    "y and logits by number": {"y": [0, 1, 1, 1], "logit_0": CAT, "logit_1": DOG},
    "target and probabilities by name": {
        "target": [0, 1, 1, 1],
        "prob_cat": CAT_OR_DOG_PROBS[:, 0],
        "prob_dog": CAT_OR_DOG_PROBS[:, 1],
    },
    "words as labels": {"targets": ["cat", "dog", "dog", "dog"], "logit_cat": CAT, "logit_dog": DOG},
    "one probability": {"label": [0, 1, 1, 1], "prob": CAT_OR_DOG_PROBS[:, 1]},
    "one logit": {"y_true": [0, 1, 1, 1], "logit": DOG - CAT},
    "words alone": {
        "label": ["cat", "dog", "dog", "dog"],
        "prediction": ["cat", "dog", "cat", "dog"],
        "confidence": CAT_OR_DOG_PROBS.max(1),
    },
}


@pytest.mark.parametrize("ending", ["parquet", "npz", "csv"])
@pytest.mark.parametrize("name", FILES_THAT_EVALUATE)
def test_a_file_that_evaluates_can_be_explored(serve, tmp_path, name, ending):
    columns = {key: np.asarray(values) for key, values in FILES_THAT_EVALUATE[name].items()}
    path = tmp_path / f"mine.{ending}"
    formats.write_table(path, {"id": np.array(list("abcd")), **columns, "site": np.array(list("xyxy"))})
    assert evaluate(path, metrics=["accuracy"], intervals=False).value("accuracy") == 0.75
    client = serve(path)
    assert client.get("about")["num_classes"] == 2
    assert set(client.get("find", open="c.site")["facets"]) == {"split", "label", "c.site", "prediction", "outcome"}
    cells = client.get("rows", outcome="wrong", **{"from": 0, "count": 9})["cells"]
    assert [cell["id"] for cell in cells] == ["c"]
    assert cells[0]["confidence"] == pytest.approx(CAT_OR_DOG_PROBS[2, 0], rel=1e-6)
    named = "words" in name or "name" in name
    assert (cells[0]["label"], cells[0]["prediction"]) == (("dog", "cat") if named else ("1", "0"))
    top = client.get("sample", row=2)["top"]
    if "confidence" in columns:
        assert "missing" in top
    else:
        assert [c["label"] for c in top["classes"]] == [0, 1]
        assert [c["before"] for c in top["classes"]] == pytest.approx(CAT_OR_DOG_PROBS[2], rel=1e-6)


@pytest.mark.parametrize("ending", ["parquet", "npz", "csv"])
def test_a_folder_of_shards_that_evaluates_can_be_explored(serve, tmp_path, ending):
    logits, labels = torch.randn(60, 3, generator=torch.Generator().manual_seed(2)), torch.arange(60) % 3
    for k in range(3):
        rows = slice(20 * k, 20 * k + 20)
        Predictions(logits[rows], labels[rows], split="test").save(tmp_path / "shards" / f"part-{k}.{ending}")
    right = evaluate(tmp_path / "shards", metrics=["accuracy"], intervals=False).value("accuracy")
    client = serve(tmp_path / "shards")
    about = client.get("about")
    assert (about["n"], about["models"], list(about["splits"])) == (
        60,
        {"shards": ["raw"]},
        ["part-0", "part-1", "part-2"],
    )
    assert client.get("find", outcome="right")["count"] == round(60 * right)
    cell = client.get("rows", split="part-2", **{"from": 0, "count": 1})["cells"][0]
    client.put(f"tag?row={cell['row']}", {"action": "drop"})
    assert (tmp_path / "shards.tags.sqlite").exists()
    assert client.get("sample", row=cell["row"])["top"]["classes"]


def test_class_names_beside_logits_are_shown(serve, tmp_path):
    names = np.array(["cat", "dog"])
    np.savez(tmp_path / "mine.npz", logits=CAT_OR_DOG, labels=names[[0, 1, 1, 1]], class_names=names)
    client = serve(tmp_path / "mine.npz")
    cells = client.get("rows", outcome="wrong", **{"from": 0, "count": 9})["cells"]
    assert [(cell["id"], cell["label"], cell["prediction"]) for cell in cells] == [("2", "dog", "cat")]


def test_a_users_own_column_may_be_called_like_a_label(serve, run_folder, tmp_path):
    formats.write_table(tmp_path / "more.csv", {"id": np.array(["test-004"]), "target": np.array([0.5])})
    client = serve(run_folder, columns=str(tmp_path / "more.csv"))
    assert client.get("find", **{"c.target": "0.."})["count"] == 1


def test_predictions_of_the_top_class_only(serve, tmp_path):
    said = Predictions.from_top1(torch.tensor([0, 1, 2]), torch.tensor([0, 1, 1]), torch.tensor([0.9, 0.4, 0.6]))
    said.save(tmp_path / "top.parquet")
    client = serve(tmp_path / "top.parquet")
    assert client.get("find", outcome="wrong")["count"] == 1
    assert "missing" in client.get("sample", row=0)["top"]
    assert "loss" not in client.get("find")["histograms"]


def test_a_folder_of_score_files(serve, tmp_path):
    for part in range(3):
        ids = np.array([f"{part}-{k}" for k in range(10)])
        Scores(ids, np.arange(10.0) + part, "rmd").save(tmp_path / "scores" / f"part-{part}.parquet")
    assert serve(tmp_path / "scores").get("about")["n"] == 30


def test_users_columns_are_joined_by_id(serve, run_folder, tmp_path):
    ids = np.array(["test-004", "test-007", "elsewhere"])
    columns = {"id": ids, "weather": np.array(["rain", "sun", "sun"]), "hour": np.array([3.5, 14.25, 1])}
    formats.write_table(tmp_path / "more.csv", columns)
    client = serve(run_folder, columns=str(tmp_path / "more.csv"))
    assert client.get("find", **{"c.weather": "rain"})["count"] == 1
    assert client.get("find", **{"c.hour": "10.."})["count"] == 1


def test_columns_of_other_samples_are_refused(run_folder, tmp_path, capsys):
    formats.write_table(tmp_path / "more.csv", {"id": np.array(["x"]), "weather": np.array(["rain"])})
    assert "no id of it is" in said_to(capsys, str(run_folder), "--port", "0", "--columns", str(tmp_path / "more.csv"))


def test_an_incomplete_run_shows_what_is_there(serve, run_folder):
    (run_folder / "predictions" / "other-loss-test.parquet").unlink()
    (run_folder / "predictions" / "other-loss-val.parquet").unlink()
    for path in (run_folder / "scores").iterdir():
        path.unlink()
    client = serve(run_folder)
    about = client.get("about")
    assert list(about["models"]) == ["plain"]
    assert {m["what"]: m["why"] for m in about["missing"]} == {
        "Models": "The run stopped before other-loss.",
        "Difficulty": "The run stopped before its samples were scored.",
    }
    assert all("confide run" in m["command"] for m in about["missing"])
    assert client.get("find")["count"] == 120


def test_without_features_or_history_the_panels_name_the_command(serve, run_folder):
    for split in ("train", "val", "test"):
        (run_folder / "features" / f"{split}.npz").unlink()
    for path in (run_folder / "models" / "plain" / "history").iterdir():
        path.unlink()
    client = serve(run_folder)
    for panel in ("neighbours", "parts", "history"):
        assert "confide run" in client.get(panel, row=3)["missing"]["command"]


def test_a_run_that_has_nothing_yet(run_folder, capsys):
    for folder in ("predictions", "scores"):
        for path in (run_folder / folder).iterdir():
            path.unlink()
    assert "finish it with: confide run" in said_to(capsys, str(run_folder))


def test_a_newer_run(run_folder, capsys):
    manifest = json.loads((run_folder / "manifest.json").read_text())
    manifest |= {"format": "run/9", "versions": {"confide": "4.0.0"}}
    (run_folder / "manifest.json").write_text(json.dumps(manifest))
    printed = said_to(capsys, str(run_folder))
    assert "written by confide 4.0.0" in printed
    assert "pip install -U confide" in printed


def test_what_is_no_run(tmp_path, capsys):
    assert "manifest.json" in said_to(capsys, str(tmp_path))
    assert "does not exist" in said_to(capsys, str(tmp_path / "nowhere"))
    formats.write_table(tmp_path / "other.parquet", {"a": np.arange(3)})
    assert "must hold scores" in said_to(capsys, str(tmp_path / "other.parquet"))
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 nothing")
    assert "readable parquet" in said_to(capsys, str(tmp_path / "broken.parquet"))


def test_missing_pictures_leave_the_rows(serve, run_folder):
    (run_folder / "pictures.npz").unlink()
    client = serve(run_folder)
    status, _, content = client.send("GET", "/api/picture?row=3")
    assert status == 404
    assert b"--data" in content
    about = client.get("about")  # the dataset was looked for to answer that
    assert about["kind"] == "none"
    assert "--data DATASET" in about["pictures"]
    assert client.get("find")["count"] == 180


def test_pictures_from_another_place(serve, run_folder, tmp_path):
    (run_folder / "pictures.npz").rename(tmp_path / "moved.npz")
    client = serve(run_folder, data=str(tmp_path / "moved.npz"))
    assert client.send("GET", "/api/picture?row=3")[0] == 200


def test_texts_are_shown_as_texts(serve, tmp_path):
    lines = [f"{k},a text with <b>number {k}</b> {'and more ' * 60},{'ab'[k % 2]}" for k in range(40)]
    (tmp_path / "texts.csv").write_text("id,text,label\n" + "\n".join(lines) + "\n")
    Scores(np.arange(40), np.arange(40.0), "loss", {}, np.arange(40) % 2).save(tmp_path / "s.parquet")
    client = serve(tmp_path / "s.parquet", data=str(tmp_path / "texts.csv"))
    client.send("GET", "/api/picture?row=0")  # waits until the dataset is loaded
    assert client.get("about")["kind"] == "text"
    cells = client.get("rows", **{"from": 0, "count": 40})["cells"]
    assert all(c["text"].startswith(f"a text with <b>number {c['id']}</b>") for c in cells)
    assert {c["label"] for c in cells} == {"a", "b"}  # the dataset brings the names of the classes
    assert max(len(c["text"]) for c in cells) == 220
    assert len(client.get("sample", row=cells[0]["row"])["text"]) > 400


def test_a_port_in_use_is_one_line(run_folder, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"port {port} must be free" in said_to(capsys, str(run_folder), "--port", str(port))


def test_other_bad_addresses():
    with pytest.raises(InputError, match=r"port must lie in \[0, 65535\]"):
        bind("127.0.0.1", 70_000)
    with pytest.raises(InputError, match="address of this machine"):
        bind("203.0.113.7", 0)


def test_two_hundred_thousand_classes(serve, tmp_path):
    n = 200_000
    names = tuple(f"class {k}" for k in range(n))
    ids = np.arange(2000)
    said = Predictions.from_top1(
        torch.arange(2000) * 100, torch.arange(2000) * 100 + (torch.arange(2000) % 2), torch.full((2000,), 0.5)
    )
    columns = {
        "id": ids,
        "label": said.labels.numpy(),
        "pred_label": said.facts.prediction.numpy(),
        "confidence": said.facts.confidence.numpy(),
    }
    formats.write_table(tmp_path / "many.parquet", columns, {"class_names": json.dumps(names)})
    client = serve(tmp_path / "many.parquet")
    assert client.get("about")["num_classes"] == n
    found = client.get("find")
    assert found["facets"]["label"]["distinct"] == 2000
    assert len(found["facets"]["label"]["values"]) == 12
    assert len(json.dumps(found)) < 20_000
    assert client.get("classes", text="class 199999")["classes"] == [{"label": 199_999, "name": "class 199999"}]
    assert client.get("find", label="100")["count"] == 1
    assert "below 200000" in client.refused("find?label=200000")


def test_without_the_packages_the_extra_is_named(run_folder):
    code = (
        "import sys; sys.modules['duckdb'] = None\n"
        "from confide.cli.main import main\n"
        f"raise SystemExit(main(['explore', {str(run_folder)!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "pip install 'confide[explore]'" in done.stderr
    assert done.stderr.count("\n") == 1


def test_tags_are_exported_from_the_command_line(run_folder, tmp_path, capsys):
    from confide.explorer.tags import SampleTag, TagFile

    tags = TagFile(run_folder / "tags.sqlite")
    tags.put(SampleTag("test", "test-001", "drop"))
    tags.close()
    assert main(["explore", str(run_folder), "--export", str(tmp_path / "tags.csv")]) == 0
    assert "1 tagged samples" in capsys.readouterr().out
    assert "test-001" in (tmp_path / "tags.csv").read_text()
    assert "must be a .csv" in said_to(capsys, str(run_folder), "--export", "tags.xlsx")


def test_importing_confide_loads_no_server():
    code = "import confide.explorer, sys; assert not {'fastapi', 'duckdb', 'uvicorn'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_every_asset_is_listed_and_packaged():
    from confide.explorer.server import ASSETS

    folder = Path(open_layout.__code__.co_filename).parent / "assets"
    assert {p.name for p in folder.iterdir()} == set(ASSETS)
    for path in folder.iterdir():
        text = path.read_text(encoding="utf-8")
        assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
        assert "https://" not in text
        assert "innerHTML" not in text


@pytest.mark.parametrize("name", ["run[1]", "label=3", "a*", "back\\slash[1]"])
def test_a_folder_whose_name_is_a_pattern_shows_its_own_numbers(tmp_path, name):
    for number, folder in enumerate((name, "run1", "ab", "other")):
        formats.write_table(tmp_path / folder / "t.parquet", {"label": np.arange(5) + 10 * number})
    row = parquet_row(duckdb.connect(), tmp_path / name / "t.parquet", ["label"], 2)
    assert row.to_pydict() == {"label": [2]}


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_confidence_and_correctness_open_without_any_class(serve, tmp_path, ending):
    draw = np.random.default_rng(0)
    correct, confidence = draw.integers(2, size=30), draw.random(30).round(3)
    Predictions.from_pairs(correct, confidence, site=np.array(["a", "b", "c"] * 10)).save(tmp_path / f"p.{ending}")
    client = serve(tmp_path / f"p.{ending}")
    wrong = client.get("find", **{"outcome": "wrong"})["count"]
    assert wrong == int((correct == 0).sum())
    assert client.get("find", **{"c.site": "a"})["count"] == 10
    assert "top" in client.get("sample", row=3)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_the_first_of_an_order_are_exported(tmp_path, ending):
    draw = np.random.default_rng(0)
    confidence = draw.random(30).round(3)
    Predictions.from_pairs(draw.integers(2, size=30), confidence).save(tmp_path / f"p.{ending}")
    out = tmp_path / "hard.csv"
    assert main(["explore", str(tmp_path / f"p.{ending}"), "--export", str(out), "--top", "5"]) == 0
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert [float(row["confidence"]) for row in rows] == pytest.approx(np.sort(confidence)[:5].tolist())


def test_many_numbers_are_ordered_as_a_stable_sort_orders_them():
    rng = np.random.default_rng(0)
    values = np.round(rng.normal(0, 3, 70_000), 2).astype(np.float32).astype(np.float64)  # many ties
    values[rng.integers(0, 70_000, 500)] = np.nan
    values[:4] = 0.0, -0.0, np.inf, -np.inf
    fine = 1 + np.round(rng.random(70_000), 3) / 2**40  # parted by their last bits alone
    wide = np.concatenate([fine, [1e-300, -1e300]])
    for own in (values, -values, values[:50], np.pi * values, fine, wide, np.full(70_000, np.nan)):
        assert (rising_order(own) == np.argsort(own, kind="stable")).all()


def test_what_follows_from_columns_is_computed_once_for_all_who_ask(tmp_path):
    file = tmp_path / "p.parquet"
    Predictions(np.eye(3), [0, 1, 1]).save(file)
    explorer = Explorer(open_layout(file))
    calls, begun = [], threading.Event()

    def compute():
        calls.append(1)
        begun.wait(5)
        return "made"

    with closing(explorer), ThreadPoolExecutor() as pool:
        answers = [pool.submit(explorer.database.derived, ("own",), compute) for _ in range(4)]
        begun.set()
        assert [answer.result() for answer in answers] == ["made"] * 4
    assert calls == [1]


def test_the_opening_view_is_there_before_it_is_asked_for(tmp_path):
    file = tmp_path / "p.parquet"
    Predictions(np.eye(3), [0, 1, 1]).save(file)
    explorer = Explorer(open_layout(file))
    with closing(explorer):
        explorer.warm_up()
        opening, patience = parse_query(explorer.database, ()), time.monotonic() + 10
        while explorer.queries._remembered_order(opening) is None:
            assert time.monotonic() < patience
            time.sleep(0.01)


def test_a_file_that_was_written_anew_meanwhile_is_matched_by_its_ids(tmp_path):
    file = tmp_path / "val.parquet"
    outputs = Predictions(np.eye(3), [0, 1, 1], ids=["a", "b", "c"])
    outputs.save(file)
    layout = open_layout(file)
    samples, (split,) = gather_samples(layout), layout.splits
    assert samples.places_in(split, PredictionsFile(file, split)) is None
    outputs.take([2, 0, 1]).save(file)
    os.utime(file, ns=(1, 1))
    assert samples.places_in(split, PredictionsFile(file, split)).to_pylist() == [1, 2, 0]
    table = model_table(layout, samples, next(iter(layout.predictions)), "raw")
    assert table.column("hit").to_pylist() == [True, True, False]


@pytest.mark.parametrize(("most", "kind"), [(3, "category"), (2, "text")])
def test_a_column_of_more_words_than_a_list_holds_is_searched(serve, run_folder, tmp_path, monkeypatch, most, kind):
    monkeypatch.setattr("confide.explorer.samples.MAX_CATEGORIES", most)
    ids = np.array(["test-004", "test-007", "test-009", "test-010"])
    words = np.array(["Rainy day", "sunny", "fog", "fog"])
    formats.write_table(tmp_path / "more.csv", {"id": ids, "weather": words})
    client = serve(run_folder, columns=str(tmp_path / "more.csv"))
    (column,) = (c for c in client.get("about")["columns"] if c["key"] == "c.weather")
    assert column["kind"] == kind
    assert client.get("find", **{"c.weather": "fog"})["count"] == 2
    assert client.get("find", **{"c.weather": "rainY" if kind == "text" else "Rainy day"})["count"] == 1


def test_neighbours_of_a_split_that_is_not_shown_have_no_row():
    from confide.explorer.details import SampleFeatures

    samples = SimpleNamespace(ids={"test": pa.array(["a", "b", "c"])}, starts={"test": 7})
    rows_here = partial(SampleFeatures._rows_here, SimpleNamespace(samples=samples))
    assert rows_here("train", None, ["a"], [3]) == [None]
    assert rows_here("test", None, ["a", "b"], [3, 0]) == [10, 7]
    assert rows_here("test", pa.array([0]), ["c", "x", "a"], [0, 1, 2]) == [9, None, 7]


def test_as_many_classes_as_the_explorer_takes_are_opened_and_one_more_is_refused(run_folder, monkeypatch):
    samples = sys.modules["confide.explorer.samples"]
    monkeypatch.setattr(samples, "MAX_CLASSES", 4)
    assert gather_samples(open_layout(run_folder)).num_classes == 4
    monkeypatch.setattr(samples, "MAX_CLASSES", 3)
    with pytest.raises(InputError, match="must have labels below 3, got 3; number them anew"):
        gather_samples(open_layout(run_folder))
