"""Tags: on disk when answered, seen by filters, exported, and still there after a kill."""

from __future__ import annotations

import http.client
import io
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import types
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from confide.checks import InputError, MissingExtra
from confide.explorer.tags import SCHEMA, SampleTag, TagFile


def row_of(client, sample: str) -> int:
    return int(client.get("locate", split="test", id=sample, **{"in": "test"})["row"])


def test_a_tag_is_in_the_file_when_it_is_answered(client, run_folder):
    row = row_of(client, "test-005")
    saved = client.put(f"tag?row={row}", {"action": "relabel", "new_label": 2, "note": "looks odd"})
    assert (saved["tag"], saved["new_label"]) == ("relabel", "<script>alert(1)</script>")
    other = sqlite3.connect(run_folder / "tags.sqlite")
    kept = other.execute("SELECT split, id, action, new_label, note FROM tags").fetchall()
    other.close()
    assert kept == [("test", "test-005", "relabel", 2, "looks odd")]


def test_filters_follow_the_tags(client):
    for sample, action in (("test-001", "drop"), ("test-002", "drop"), ("test-003", "keep")):
        client.put(f"tag?row={row_of(client, sample)}", {"action": action})
    assert client.get("find", tag="drop")["count"] == 2
    assert client.get("find", tag=["drop", "keep"])["tags"] == {"drop": 2, "keep": 1}
    assert client.get("find", tag="any", split="test")["count"] == 3
    assert client.get("find", tag="none", split="test")["count"] == 77
    client.put(f"tag?row={row_of(client, 'test-001')}", {"action": None})
    assert client.get("find", tag="drop")["count"] == 1
    assert client.get("find", tag="none", split="test")["count"] == 78


def test_a_note_alone_is_a_tag(client):
    row = row_of(client, "test-009")
    client.put(f"tag?row={row}", {"note": "blurred"})
    assert client.get("find", tag="note")["count"] == 1
    cell = client.get("rows", **{"tag": "note", "from": 0, "count": 1})["cells"][0]
    assert (cell["id"], cell["tag"]) == ("test-009", "note")


def test_tags_are_there_again_after_a_restart(client, serve, run_folder):
    client.put(f"tag?row={row_of(client, 'test-011')}", {"action": "drop"})
    again = serve(run_folder)
    assert again.get("find", tag="drop")["count"] == 1
    assert again.get("sample", row=row_of(again, "test-011"))["tag"] == "drop"


def test_tags_are_exported(client):
    client.put(f"tag?row={row_of(client, 'test-004')}", {"action": "relabel", "new_label": 1, "note": "b"})
    client.put(f"tag?row={row_of(client, 'test-002')}", {"action": "drop"})
    _, _, content = client.send("GET", "/api/export?what=tags&format=parquet&outcome=right")
    found = {r["id"]: r for r in pq.read_table(io.BytesIO(content)).to_pylist()}
    assert set(found) == {"test-002", "test-004"}
    assert (found["test-004"]["new_label"], found["test-004"]["new_label_name"]) == (1, "coat")
    assert found["test-004"]["note"] == "b"
    assert found["test-002"]["tag"] == "drop"


def test_views_are_saved_by_name(client):
    assert client.put("view", {"name": "wrong coats", "query": "label=1&outcome=wrong"})["views"] == [
        ["wrong coats", "label=1&outcome=wrong"]
    ]
    client.put("view", {"name": "a", "query": "split=test"})
    assert [name for name, _ in client.get("views")["views"]] == ["a", "wrong coats"]
    assert client.put("view", {"name": "a", "query": ""})["views"] == [["wrong coats", "label=1&outcome=wrong"]]
    assert client.send("PUT", "/api/view", {"name": " ", "query": "x"}, {"X-Confide": "1"})[0] == 400


def test_a_folder_that_cannot_be_written_is_said_so_and_the_rest_works(client, run_folder):
    (run_folder / "tags.sqlite").mkdir()  # as good as read-only, also for a superuser
    status, _, content = client.send("PUT", "/api/tag?row=0", {"action": "drop"}, {"X-Confide": "1"})
    assert status == 400
    assert "must be kept in a plain file" in json.loads(content)["error"]
    assert client.get("find")["count"] == 180


def test_a_file_that_is_no_tags_file_is_one_line(tmp_path):
    (tmp_path / "tags.sqlite").write_text("not a database, " * 100)
    with pytest.raises(InputError, match=r"tags must be kept in .*tags\.sqlite"):
        TagFile(tmp_path / "tags.sqlite")


def test_the_tables_come_all_at_once(tmp_path, monkeypatch):
    """A second explorer that opened the file between two tables took it for a strange one."""
    path = tmp_path / "tags.sqlite"
    with monkeypatch.context() as patch:
        patch.setattr("confide.explorer.tags.SCHEMA", SCHEMA + "CREATE TABLE tags (more TEXT);")
        with pytest.raises(InputError, match="already exists"):
            TagFile(path).put(SampleTag("test", "a", "drop"))
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == []
    with closing(TagFile(path)) as tags:
        tags.put(SampleTag("test", "a", "drop"))
    with closing(TagFile(path)) as tags:
        assert len(tags.all()) == 1


def test_a_journal_that_ends_meanwhile_is_no_error(tmp_path, monkeypatch):
    def gone(path, size):
        raise FileNotFoundError(path)

    monkeypatch.setattr("confide.explorer.tags._end", gone)
    with closing(TagFile(tmp_path / "tags.sqlite")) as tags:
        tags.put(SampleTag("test", "a", "drop"))


def test_an_empty_tag_removes(tmp_path):
    tags = TagFile(tmp_path / "tags.sqlite")
    tags.put(SampleTag("test", "a", "drop"))
    tags.put(SampleTag("test", "a"))
    assert tags.all() == []
    tags.close()


def test_fiftyone_gets_pictures_labels_and_tags(client, run_folder, monkeypatch):
    made: dict[str, object] = {}

    class Dataset(list):  # type: ignore[type-arg]
        def __init__(self, name: str, persistent: bool) -> None:
            super().__init__()
            made.update(name=name, dataset=self, persistent=persistent)

        def add_samples(self, samples: list[object]) -> None:
            self.extend(samples)

    class Sample(dict):  # type: ignore[type-arg]
        def __init__(self, **fields: object) -> None:
            super().__init__(fields)

    stand_in = types.ModuleType("fiftyone")
    stand_in.Dataset, stand_in.Sample, stand_in.Classification = Dataset, Sample, dict  # type: ignore[attr-defined]
    stand_in.dataset_exists = lambda name: name in made.values()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fiftyone", stand_in)
    client.put(f"tag?row={row_of(client, 'test-006')}", {"action": "relabel", "new_label": 0})
    status, _, content = client.send("POST", "/api/fiftyone?what=tags", {}, {"X-Confide": "1"})
    assert (status, json.loads(content)) == (200, {"name": made["name"], "samples": 1})
    assert str(made["name"]).startswith("confide-small-20")
    assert made["persistent"] is True
    (sample,) = made["dataset"]  # type: ignore[misc]
    assert sample["tags"] == ["relabel"]
    assert sample["ground_truth"] == {"label": "<script>alert(1)</script>"}
    assert sample["relabel"] == {"label": "shirt"}
    assert Path(sample["filepath"]).read_bytes().startswith(b"\x89PNG")


def test_a_fiftyone_that_has_the_name_or_no_database_is_one_line():
    from confide.explorer.session import _new_dataset

    stand_in = types.SimpleNamespace(dataset_exists=lambda name: True)
    with pytest.raises(InputError, match="must not have a dataset 'mine' yet"):
        _new_dataset(stand_in, "mine")
    with pytest.raises(InputError, match="must be able to open its database, but: "):
        _new_dataset(types.SimpleNamespace(), "mine")


def test_without_fiftyone_the_extra_is_named(client, monkeypatch):
    monkeypatch.setitem(sys.modules, "fiftyone", None)
    status, _, content = client.send("POST", "/api/fiftyone?what=tags", {}, {"X-Confide": "1"})
    assert status == 400
    assert "pip install 'confide[fiftyone]'" in json.loads(content)["error"]
    assert issubclass(MissingExtra, ImportError)


def start(run_folder: Path) -> tuple[subprocess.Popen[str], int]:
    """The explorer as a user starts it, and its port."""
    command = [sys.executable, "-m", "confide", "explore", str(run_folder), "--port", "0", "--no-token"]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert started.stdout is not None
    return started, int(re.search(r":(\d+)/", started.stdout.readline())[1])  # type: ignore[index]


def test_the_end_comes_also_while_a_query_runs(run_folder):
    """DuckDB refuses to close a connection beside a call of its own: Ctrl-C during the first look was a traceback."""
    from confide.explorer import open_layout
    from confide.explorer.session import Explorer

    explorer = Explorer(open_layout(run_folder))
    cursor, begun, ended = explorer.database._cursor(), threading.Event(), []

    def count():
        begun.set()
        try:
            cursor.execute("SELECT count(*) FROM range(100_000_000_000) AS numbers(n) WHERE n % 7 = 3").fetchall()
        except Exception as error:
            ended.append(type(error).__name__)

    counting = threading.Thread(target=count)
    counting.start()
    begun.wait()
    time.sleep(0.1)
    try:
        explorer.close()
    finally:  # the query would take minutes
        while counting.is_alive():
            cursor.interrupt()
            counting.join(0.05)
    assert ended == ["InterruptException"]


@pytest.mark.slow
def test_an_interrupt_ends_it_with_one_line(run_folder):
    started, port = start(run_folder)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/api/alive")
    assert connection.getresponse().status == 200
    connection.close()
    started.send_signal(signal.SIGINT)
    _, complaints = started.communicate(timeout=60)
    assert complaints.strip() in ("", "confide: stopped; the same command goes on where it was")


@pytest.mark.slow
def test_a_killed_explorer_loses_no_answered_tag(run_folder):
    started, port = start(run_folder)
    for row in range(25):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("PUT", f"/api/tag?row={row}", json.dumps({"action": "drop"}), {"X-Confide": "1"})
        assert connection.getresponse().status == 200
        connection.close()
    os.kill(started.pid, signal.SIGKILL)
    started.communicate(timeout=30)
    tags = TagFile(run_folder / "tags.sqlite")
    assert len(tags.all()) == 25
    tags.close()


def test_what_is_not_named_stays_as_it_is(client, run_folder):
    client.put(f"tag?row={row_of(client, 'test-005')}", {"action": "relabel", "new_label": 2, "note": "odd"})
    steps = [
        ({"note": "odder"}, ("relabel", 2, "odder")),
        ({"action": "drop"}, ("drop", None, "odder")),
        ({"action": None}, (None, None, "odder")),
        ({"action": "relabel", "new_label": 1}, ("relabel", 1, "odder")),
    ]
    for given, wanted in steps:
        saved = change(client, {"split": "test", "id": "test-005", **given})
        assert (saved["tag"], saved["new_value"], saved["note"]) == wanted
    change(client, {"split": "test", "id": "test-005", "action": None, "note": ""})
    tags = TagFile(run_folder / "tags.sqlite")
    assert tags.all() == []
    tags.close()


def change(client, body):
    status, _, content = client.send("PATCH", "/api/tag", body, {"X-Confide": "1"})
    assert status == 200, content
    return json.loads(content)


def test_a_change_names_its_sample_not_a_row(client):
    # A page that comes back to a restarted explorer may know other rows.
    status, _, content = client.send("PATCH", "/api/tag", {"split": "test", "id": "gone"}, {"X-Confide": "1"})
    assert (status, json.loads(content)["error"]) == (400, "there is no sample 'gone' in split 'test'")


def test_others_are_answered_while_a_tag_waits_for_another_program(client, run_folder):
    client.put("tag?row=0", {"action": "drop"})
    other = sqlite3.connect(run_folder / "tags.sqlite", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.put, "tag?row=1", {"action": "keep"})
        for _ in range(5):
            assert client.get("alive") == {"alive": True}
        assert not waiting.done()
        other.execute("COMMIT")
        assert waiting.result()["tag"] == "keep"
    other.close()


def test_a_file_that_another_program_keeps_is_one_line(tmp_path):
    tags = TagFile(tmp_path / "tags.sqlite")
    tags.put(SampleTag("test", "a", "drop"))
    tags._open().execute("PRAGMA busy_timeout = 50")
    other = sqlite3.connect(tmp_path / "tags.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(InputError, match="must be writable, but: database is locked; another program is writing it"):
        tags.put(SampleTag("test", "b", "drop"))
    other.execute("COMMIT")
    other.close()
    tags.close()
    tags.put(SampleTag("test", "b", "drop"))
    assert len(tags.all()) == 2
    tags.close()


def test_a_file_taken_away_is_said_and_the_next_try_writes_a_new_one(tmp_path):
    tags = TagFile(tmp_path / "tags.sqlite")
    tags.put(SampleTag("test", "a", "drop"))
    (tmp_path / "tags.sqlite").unlink()
    with pytest.raises(InputError, match="must be writable, but: attempt to write a readonly database"):
        tags.put(SampleTag("test", "b", "drop"))
    tags.put(SampleTag("test", "b", "drop"))
    assert [tag.id for tag in tags.all()] == ["b"]
    tags.close()


def test_a_full_disk_is_one_line_and_what_was_there_stays(client, serve, run_folder):
    client.put("tag?row=0", {"action": "drop"})
    tags = serve.explorers[-1].tags
    pages = tags._open().execute("PRAGMA page_count").fetchone()[0]
    tags._open().execute(f"PRAGMA max_page_count = {pages}")  # as a disk without room
    body = {"action": "drop", "note": "x" * 9000}
    status, _, content = client.send("PUT", "/api/tag?row=1", body, {"X-Confide": "1"})
    line = json.loads(content)["error"]
    assert status == 400
    assert line.endswith("must be writable, but: database or disk is full; make room on the disk")
    assert client.get("find", tag="any")["count"] == 1
    tags._open().execute("PRAGMA max_page_count = 100000")
    assert client.put("tag?row=1", body)["tag"] == "drop"


def test_an_order_found_while_a_tag_came_is_not_taken_for_the_new_one(client, serve, monkeypatch):
    queries = serve.explorers[-1].queries
    counts = queries._counts

    def tag_meanwhile(*arguments):
        monkeypatch.setattr(queries, "_counts", counts)
        client.put("tag?row=0", {"action": "drop"})
        return counts(*arguments)

    client.get("find", tag="drop")
    monkeypatch.setattr(queries, "_counts", tag_meanwhile)
    client.get("find", tag="none")
    assert client.get("rows", **{"tag": "none", "from": 0, "count": 1})["total"] == 179
    assert client.get("find", tag="none")["count"] == 179


@pytest.mark.slow
def test_two_explorers_of_one_run_lose_no_tag_of_the_other(run_folder):
    first, second = start(run_folder), start(run_folder)

    def tag(port: int, rows: range, body: dict[str, str]) -> list[int]:
        found = []
        for row in rows:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            sample = json.dumps({"split": "test", "id": f"test-{row:03d}", **body})
            connection.request("PATCH", "/api/tag", sample, {"X-Confide": "1"})
            found.append(connection.getresponse().status)
            connection.close()
        return found

    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(tag, first[1], range(40), {"action": "drop"})
        two = pool.submit(tag, second[1], range(40), {"note": "blurred"})
        assert one.result() + two.result() == [200] * 80
    for started, _ in (first, second):
        started.kill()
        started.communicate(timeout=30)
    tags = TagFile(run_folder / "tags.sqlite")
    assert [(t.action, t.note) for t in tags.all()] == [("drop", "blurred")] * 40
    tags.close()
