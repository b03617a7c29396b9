"""Run folders that are damaged, or made to do harm: each is opened with one line, or shown without what is broken."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from confide import store
from confide.checks import InputError
from confide.explorer import open_layout
from confide.explorer.layout import DataSource, Missing
from confide.explorer.tags import SCHEMA, SampleTag, TagFile
from confide.files import formats, signing
from tests.hostile.conftest import SMALL, ask, ask_all

pytest.importorskip("duckdb", reason="duckdb is not installed (extra: explore)")

Damage = Callable[[Path], object]
SCORES, PREDICTIONS, TRUST = "scores/test.parquet", "predictions/plain-test.parquet", "trust/plain-mcp-test.parquet"
CALIBRATOR, HISTORY = "calibrators/plain-temperature.json", "models/plain/history"
N = SMALL["test"]
ROUTES = (
    "/api/about",
    "/api/find?open=c.camera",
    "/api/rows?from=0&count=40",
    "/api/sample?row=0",
    "/api/neighbours?row=0",
    "/api/parts?row=0",
    "/api/history?row=0",
    "/api/picture?row=0",
    "/api/export?format=csv",
    "/api/views",
)


def written(name: str, content: bytes | str) -> Damage:
    return lambda folder: (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())


def manifest(change: Callable[[dict[str, Any]], Any]) -> Damage:
    def damage(folder: Path) -> None:
        row = json.loads((folder / "manifest.json").read_text())
        changed = change(row)
        (folder / "manifest.json").write_text(json.dumps(row if changed is None else changed))

    return damage


def config(**values: Any) -> Damage:
    return manifest(lambda row: row["config"].update(values))


def table(name: str, change: Callable[[pa.Table], pa.Table]) -> Damage:
    return lambda folder: pq.write_table(change(pq.read_table(folder / name)), folder / name)


def column(name: str, key: str, values: Any) -> Damage:
    array = values if isinstance(values, pa.Array) else pa.array([values] * N)
    return table(name, lambda rows: rows.set_column(rows.column_names.index(key), key, array))


def metadata(name: str, **notes: bytes) -> Damage:
    return table(name, lambda rows: rows.replace_schema_metadata({**(rows.schema.metadata or {}), **notes}))


def tags(script: str) -> Damage:
    def damage(folder: Path) -> None:
        connection = sqlite3.connect(folder / "tags.sqlite")
        connection.executescript(script)
        connection.close()

    return damage


def replaced(name: str, make: Callable[[Path], object]) -> Damage:
    def damage(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        make(folder / name)

    return damage


def copied_to(name: str) -> Damage:
    return lambda folder: shutil.copy(folder / PREDICTIONS, folder / name)


def halved(name: str) -> Damage:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-40])


def broken_folders() -> dict[str, Damage]:
    cases: dict[str, Damage] = {}
    for row in (None, 1, "x", [1], {}, {"format": "run/2"}, {"format": 5}, {"format": "run/" + "9" * 5000}):
        cases[f"manifest {str(row)[:40]}"] = manifest(lambda _, row=row: row)
        cases[f"data.json {str(row)[:40]}"] = written("data.json", json.dumps(row))
    for key, value in (("stages", []), ("stages", {"a": 1}), ("stages", {"a": {}}), ("config", 5), ("versions", 3)):
        cases[f"manifest {key} {value}"] = manifest(lambda row, key=key, value=value: {**row, key: value})
    for name in ("manifest.json", "data.json"):
        cases[f"{name} deep"] = written(name, "[" * 100_000)
        cases[f"{name} digits"] = written(name, '{"a":' + "9" * 5000 + "}")
        cases[f"{name} bytes"] = written(name, b"\xff\xfe\x00")
        cases[f"{name} folder"] = replaced(name, Path.mkdir)
    names = (
        5,
        "x",
        [5],
        [{}],
        [{"name": 5}],
        {"a": 1},
        [{"name": "../../x"}],
        [{"name": "a\x00"}],
        [{"name": "\ud800"}],
    )
    for family in ("losses", "calibrators", "trust"):
        for value in (*names, [{"name": "a" * 5000}]):
            cases[f"{family} {str(value)[:40]!r}"] = config(**{family: value})
    for key, values in {
        "title": (5, ["a"], "\ud800", "\x1b[31mred", "日本語", "a\r\nb: c"),
        "seed": ("x", None, 1e300),
        "data": (5, ["a"], "\x00", "hf:someone/elses", "/etc"),
        "data_options": (5, [1]),
    }.items():
        cases |= {f"config {key} {value!r}": config(**{key: value}) for value in values}
    for note in (
        '{"class_names":5}',
        '{"class_names":[[1]]}',
        '{"class_names":["\\ud800","b","c","d"]}',
        '{"sizes":5}',
    ):
        cases[f"data.json {note}"] = written("data.json", note)
    for name in (SCORES, PREDICTIONS, TRUST, CALIBRATOR, "features/test.npz", "features/train.npz"):
        cases[f"{name} empty"] = written(name, b"")
        cases[f"{name} noise"] = written(name, b"PAR1" + bytes(range(200)) + b"PAR1")
        cases[f"{name} folder"] = replaced(name, Path.mkdir)
        cases[f"{name} half"] = halved(name)
        cases[f"{name} gone"] = replaced(name, lambda _: None)
        cases[f"{name} links to itself"] = replaced(name, lambda path: path.symlink_to(path))
        cases[f"{name} fifo"] = replaced(name, os.mkfifo)
    for key, values in {
        "id": (None, 0, b"\xff", [1], True, 1.5, {"a": 1}, "twice"),
        "score": (None, "x", [1.0], float("nan"), float("inf"), True),
        "label": (None, "x", -1, 2**31 - 2, 2**40, float("nan"), 1e300, 0.5),
        "verdict": (None, 5, b"\xff", {"a": 1}),
        "suggested": (None, "x", 2**40, -5, 0.5),
        "camera": ({"a": 1}, [1], b"\xff", "a\x00b"),
    }.items():
        cases |= {f"scores {key} {value!r}": column(SCORES, key, value) for value in values}
    for key, values in {
        "id": (None, b"\xff", [1], {"a": 1}),
        "label": (None, "x", -1, 2**40, float("nan")),
        "logits": (None, "x", [], [1.0], [1.0, float("nan"), 0, 0], 1.0, [[1.0]], ["a", "b"]),
    }.items():
        cases |= {f"predictions {key} {value!r}": column(PREDICTIONS, key, value) for value in values}
    cases["logits of two lengths"] = column(PREDICTIONS, "logits", pa.array([[1.0, 2.0]] * (N - 1) + [[1.0]]))
    for name, key in ((SCORES, "score"), (SCORES, "id"), (PREDICTIONS, "logits"), (TRUST, "trust"), (TRUST, "id")):
        cases[f"{name} without {key}"] = table(name, lambda rows, key=key: rows.drop([key]))
    cases["no predictions"], cases["no scores"] = (
        table(n, lambda rows: rows.slice(0, 0)) for n in (PREDICTIONS, SCORES)
    )
    cases["columns of no name"] = table(
        SCORES, lambda rows: rows.append_column("", rows["id"]).append_column("\x00", rows["id"])
    )
    cases["a column twice"] = table(SCORES, lambda rows: rows.append_column("id", rows["id"]))
    for value in (b"5", b"x", b"[[1]]", b'"abc"', b"[" * 99_999, b"\xff", b"null"):
        cases[f"class_names {value[:6]!r}"] = metadata(PREDICTIONS, class_names=value)
        cases[f"options {value[:6]!r}"] = metadata(SCORES, options=value)
    cases["method"] = metadata(SCORES, method=b"\xff")
    for value in (None, "x", [1.0]):
        cases[f"trust {value!r}"] = column(TRUST, "trust", value)
    for text in ("5", "null", "{}", '{"format":"calibrator/2"}', '{"format":"calibrator/2","method":5}'):
        cases[f"calibrator {text}"] = written(CALIBRATOR, text)
    cases["history noise"] = lambda folder: [path.write_bytes(b"PAR1") for path in (folder / HISTORY).iterdir()]
    cases["history names"] = lambda folder: next((folder / HISTORY).iterdir()).rename(folder / HISTORY / "abc.parquet")
    cases["features of nothing"] = lambda folder: np.savez(folder / "features/test.npz", values=np.zeros((3, 2)))
    for name in ("-.parquet", "a.parquet", "plain-.parquet"):
        cases[f"predictions/{name}"] = copied_to(f"predictions/{name}")
    for row in (
        "(1, 2, 'drop', null, '', '')",
        "('test', 'a', 'evil', null, '', '')",
        "('test', x'ff', 'drop', null, '', '')",
        "('test', 'a', 'relabel', 'x', '', '')",
        "('test', 'a', 'relabel', 99999999999, '', '')",
        "('test', cast(x'ff' as text), 'drop', null, '', '')",
    ):
        cases[f"tags {row}"] = tags(f"{SCHEMA} INSERT INTO tags VALUES {row}")
    cases["tags noise"] = written("tags.sqlite", b"SQLite format 3\x00" + bytes(range(256)) * 20)
    cases["tags text"] = written("tags.sqlite", "hello")
    cases["tags folder"] = replaced("tags.sqlite", Path.mkdir)
    cases["tags fifo"] = replaced("tags.sqlite", os.mkfifo)
    return cases


CASES = broken_folders()


# numpy leaves a damaged npz open until the error is forgotten.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("part", range(4))
def test_a_broken_folder_is_one_line_or_shown_without_what_is_broken(copied, part):
    from confide.explorer.server import create_app
    from confide.explorer.session import Explorer

    tried, lines = 0, []
    for name, damage in list(CASES.items())[part::4]:
        folder = copied()
        damage(folder)
        tried += 1
        try:
            explorer = Explorer(open_layout(folder))
        except InputError as error:
            lines.append((name, str(error)))
            continue
        except Exception as error:
            raise AssertionError(f"{name}: {type(error).__name__} {error}") from error
        try:
            replies = ask_all(create_app(explorer), ROUTES)
        except Exception as error:
            raise AssertionError(f"{name}: {type(error).__name__} {error}") from error
        assert {reply.status for reply in replies} <= {200, 400, 404}, (name, replies)
        explorer.close()
    assert [line for line in lines if not line[1].isprintable()] == []
    assert tried >= 50


# What a folder from elsewhere must not choose: the data that is opened.


def test_data_named_by_a_folder_of_someone_else_is_not_opened(copied):
    folder = copied()
    config(data="/etc; rm -rf ~")(folder)  # the signature is no longer right
    layout = open_layout(folder)
    assert isinstance(layout.data, Missing)
    assert layout.data.command == f"confide explore {folder} --data '/etc; rm -rf ~'"
    shown = shown_about(layout)
    assert "was not made by you on this machine; if you trust it: confide explore" in shown["pictures"]
    assert shown["kind"] == "none"


def shown_about(layout: Any) -> Any:
    from confide.explorer.server import create_app
    from confide.explorer.session import Explorer

    explorer = Explorer(layout)
    about = ask(create_app(explorer), "/api/about").json
    picture = ask(create_app(explorer), "/api/picture?row=0")
    assert picture.status == (404 if about["pictures"] else 200)
    explorer.close()
    return about


def test_data_is_opened_of_a_run_made_here_and_where_the_command_line_names_it(copied):
    folder = copied()
    assert open_layout(folder).data == DataSource(str(shared_pictures(folder)), {}, 0)
    manifest(lambda row: {**row, "signature": "0" * 64})(folder)
    assert isinstance(open_layout(folder).data, Missing)
    pictures = str(folder / "pictures.npz")
    config(data=pictures, data_options={"folder": "/elsewhere"})(folder)
    # What the folder says of how to open it is not taken either.
    assert open_layout(folder, data=pictures).data == DataSource(pictures, {}, 0)


def shared_pictures(folder: Path) -> Path:
    return Path(json.loads((folder / "manifest.json").read_text())["config"]["data"])


def test_another_users_key_signs_nothing_here(copied, monkeypatch, tmp_path):
    folder = copied()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "other"))
    assert isinstance(open_layout(folder).data, Missing)
    assert not (tmp_path / "other").exists()  # looking makes no key
    assert signing.is_signed_here(signing.sign({"a": 1}))
    assert (tmp_path / "other" / "confide" / "key").stat().st_mode & 0o777 == 0o600
    assert not signing.is_signed_here({**signing.sign({"a": 1}), "a": 2})


def test_without_a_place_for_a_key_a_run_is_made_all_the_same(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    assert signing.sign({"a": 1}) == {"a": 1}
    assert not signing.is_signed_here({"a": 1})


def test_a_resumed_folder_of_someone_else_gets_no_signature_for_what_they_wrote(tmp_path):
    def note(folder: store.RunFolder) -> None:
        folder.stage(
            "data",
            uses={"note": {"provenance": {"where": "/mine"}}},
            file=folder.path / "data.json",
            make=dict,
            write=lambda record, path: formats.write_json(path, record),
            read=formats.read_json,
        )

    with store.RunFolder(tmp_path, {"data": "mine"}, seed=0) as folder:
        note(folder)
    row = json.loads((tmp_path / "manifest.json").read_text())
    row["stages"]["data"]["uses"]["note"]["provenance"]["where"] = "/etc"
    (tmp_path / "manifest.json").write_text(json.dumps(row))
    assert not store.read_manifest(tmp_path).signed_here
    with store.RunFolder(tmp_path, {"data": "mine"}, seed=0) as folder:
        note(folder)
        folder._write_manifest()
    read = store.read_manifest(tmp_path)
    assert read.signed_here
    assert read.stages["data"].uses["note"]["provenance"]["where"] == "/mine"


# Tags: SQLite files that run what they bring.


@pytest.mark.parametrize(
    "script",
    [
        f"{SCHEMA} CREATE TRIGGER lie AFTER INSERT ON tags BEGIN DELETE FROM tags; END;",
        f"{SCHEMA} CREATE TABLE other (a);",
        f"{SCHEMA} CREATE INDEX more ON tags (note);",
        "CREATE VIEW tags AS SELECT 'test' AS split;",
        SCHEMA.replace("note TEXT NOT NULL DEFAULT ''", "note TEXT GENERATED ALWAYS AS (zeroblob(1e9))"),
        SCHEMA.replace(
            "changed TEXT NOT NULL, PRIMARY", "changed TEXT NOT NULL CHECK (length(hex(zeroblob(9)))), PRIMARY"
        ),
    ],
)
def test_a_tags_file_that_is_more_than_tags_is_refused_before_anything_runs(tmp_path, script):
    tags(script)(tmp_path)
    before = (tmp_path / "tags.sqlite").read_bytes()
    with pytest.raises(InputError, match="tables are not those of a tags file"):
        TagFile(tmp_path / "tags.sqlite")
    assert (tmp_path / "tags.sqlite").read_bytes() == before


def test_a_view_that_never_ends_is_ended(tmp_path, monkeypatch):
    from confide.explorer import tags as module

    monkeypatch.setattr(module, "QUERY_SECONDS", 0.05)
    tag_file = TagFile(tmp_path / "tags.sqlite")
    tag_file.put(SampleTag("test", "a", "drop"))
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n"
    with pytest.raises(InputError, match="interrupted"), tag_file._reading() as connection:
        connection.execute(endless)
    assert len(tag_file.all()) == 1
    tag_file.close()


def test_tags_follow_no_link(tmp_path):
    for name in ("tags.sqlite", "tags.sqlite-journal", "tags.sqlite-wal"):
        (tmp_path / name).symlink_to(tmp_path / "elsewhere")
        with pytest.raises(InputError, match="must be kept in a plain file"):
            TagFile(tmp_path / "tags.sqlite").put(SampleTag("test", "a", "drop"))
        (tmp_path / name).unlink()
    assert not (tmp_path / "elsewhere").exists()


def test_a_journal_cannot_have_another_file_deleted(tmp_path):
    TagFile(tmp_path / "tags.sqlite").put(SampleTag("test", "a", "drop"))
    name = str(tmp_path / "victim").encode()
    journal = bytes(512) + b"\x00" * 4 + name + len(name).to_bytes(4, "big") + sum(name).to_bytes(4, "big")
    (tmp_path / "tags.sqlite-journal").write_bytes(journal + bytes.fromhex("d9d505f920a163d7"))
    with pytest.raises(InputError, match="names another file"):
        TagFile(tmp_path / "tags.sqlite")


def test_names_of_a_folder_cannot_steer_the_terminal(copied):
    from confide.checks import printable
    from confide.explorer.launch import start_lines

    folder = copied()
    config(data="\x1b]0;owned\x07\x1b[2J")(folder)
    lines = [printable(line) for line in start_lines(open_layout(folder), "http://127.0.0.1:1/", True)]
    assert any("Pictures" in line for line in lines)
    assert all(line.isprintable() for line in lines)


def test_a_tags_file_whose_pages_stand_for_endless_rows_is_ended(tmp_path, monkeypatch):
    """Eight pages above one leaf, each of 300 references to the next: 300^8 rows in 57 kB."""
    from confide.explorer import tags as module

    monkeypatch.setattr(module, "QUERY_SECONDS", 0.1)
    path, size = tmp_path / "tags.sqlite", 4096
    TagFile(path).put(SampleTag("test", "a", "drop"))
    with closing(sqlite3.connect(path)) as connection:
        (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'tags'").fetchone()
    data = bytearray(path.read_bytes())
    pages = [bytes(data[(root - 1) * size : root * size])]
    for _ in range(8):
        pages.append(_inner_page(len(data) // size + len(pages), size))
    data[(root - 1) * size : root * size] = _inner_page(len(data) // size + len(pages), size)
    data += b"".join(pages)
    data[28:32] = (len(data) // size).to_bytes(4, "big")
    path.write_bytes(data)
    began = time.monotonic()
    with pytest.raises(InputError, match="interrupted; move the file away"):
        TagFile(path).all()
    assert time.monotonic() - began < 20


def _inner_page(child: int, size: int, children: int = 300) -> bytes:
    """A page of a table's tree that refers to the same page so many times."""
    cell, page = child.to_bytes(4, "big") + b"\x0a", bytearray(size)
    cells = children - 1
    page[0] = 5
    page[3:5], page[5:7] = cells.to_bytes(2, "big"), (size - cells * len(cell)).to_bytes(2, "big")
    page[8:12] = child.to_bytes(4, "big")
    for k in range(cells):
        at = size - (k + 1) * len(cell)
        page[at : at + len(cell)] = cell
        page[12 + 2 * k : 14 + 2 * k] = at.to_bytes(2, "big")
    return bytes(page)
