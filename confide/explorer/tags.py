"""Tags and saved views of samples, in a SQLite file beside the run; every change is on disk before it is confirmed."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TypedDict

from confide.checks import InputError

TAG_ACTIONS = ("relabel", "drop", "keep")
TAG_KINDS = (*TAG_ACTIONS, "note")
"""What a sample can be filtered by: its action, or that it has only a note."""
LONGEST_NOTE = 10_000
FIELDS = "split, id, action, new_label, note, changed"
SCHEMA = """
CREATE TABLE IF NOT EXISTS tags (
    split TEXT NOT NULL, id TEXT NOT NULL, action TEXT, new_label INTEGER, note TEXT NOT NULL DEFAULT '',
    changed TEXT NOT NULL, PRIMARY KEY (split, id));
CREATE TABLE IF NOT EXISTS views (name TEXT PRIMARY KEY, query TEXT NOT NULL, changed TEXT NOT NULL);
"""


class TagChange(TypedDict, total=False):
    """What of a tag is changed; keys that are not there stay as they are on disk."""

    action: str | None
    new_label: int | None
    note: str


@dataclass(frozen=True)
class SampleTag:
    """What someone decided about a sample: an action or none, the class to relabel to, a note."""

    split: str
    id: str
    action: str | None = None
    new_label: int | None = None
    note: str = ""
    changed: str = ""

    @property
    def kind(self) -> str | None:
        """The action, or `note` where there is only a note."""
        return self.action or ("note" if self.note else None)


class TagFile:
    """The file of tags; it is made with the first tag, and a folder that cannot be written is an error only then."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        if path.exists():
            self._open()

    def _open(self) -> sqlite3.Connection:
        if self._connection is not None:
            return self._connection
        try:
            connection = sqlite3.connect(self.path, check_same_thread=False, timeout=10)
            connection.execute("PRAGMA journal_mode = DELETE")
            # On disk before the response: a crash of the program or of the machine loses nothing that was confirmed.
            connection.execute("PRAGMA synchronous = FULL")
            connection.executescript(SCHEMA)
        except sqlite3.Error as error:
            raise InputError(
                f"tags must be kept in {self.path}, but it cannot be written or is no tags file ({error}); "
                "make the folder writable"
            ) from None
        self._connection = connection
        return connection

    def _existing(self) -> sqlite3.Connection | None:
        """The connection, if there is a file by now: another explorer may have made it."""
        if self._connection is None and not self.path.exists():
            return None
        try:
            return self._open()
        except InputError:
            return None  # what came there since the start may be no tags file: an error when a tag is written

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One change as a whole; what the disk or another program refuses becomes one line."""
        with self._lock:
            connection = self._open()
            try:
                with connection:
                    connection.execute("BEGIN IMMEDIATE")
                    yield connection
            except sqlite3.Error as error:
                if "readonly" in str(error):
                    self.close()  # the next try opens the file as it is then
                raise InputError(f"{self.path} must be writable, but: {error}; {_advice(error)}") from None

    def all(self) -> list[SampleTag]:
        """Every tag, oldest first."""
        with self._lock:
            connection = self._existing()
            if connection is None:
                return []
            rows = connection.execute(f"SELECT {FIELDS} FROM tags ORDER BY changed, split, id").fetchall()
        return [SampleTag(*row) for row in rows]

    def get(self, split: str, sample: str) -> SampleTag | None:
        """The tag of a sample."""
        with self._lock:
            connection = self._existing()
            return None if connection is None else _read(connection, split, sample)

    def put(self, tag: SampleTag) -> SampleTag:
        """Write a tag; one without action and note is removed."""
        with self._writing() as connection:
            return _write(connection, tag)

    def change(self, split: str, sample: str, change: TagChange) -> SampleTag:
        """Write only what is changed of action, new_label and note; the rest stays, also where another wrote it."""
        with self._writing() as connection:
            tag = replace(_read(connection, split, sample) or SampleTag(split, sample), **change)
            if "new_label" not in change and tag.action != "relabel":
                tag = replace(tag, new_label=None)
            return _write(connection, tag)

    def views(self) -> list[tuple[str, str]]:
        """Saved views as (name, query), by name."""
        with self._lock:
            connection = self._existing()
            if connection is None:
                return []
            return [tuple(row) for row in connection.execute("SELECT name, query FROM views ORDER BY name")]

    def save_view(self, name: str, query: str) -> None:
        """Keep a view under a name; an empty query removes it."""
        name = name.strip()
        if not name or len(name) > 200 or len(query) > LONGEST_NOTE:
            raise InputError("a view must have a name of 1 to 200 letters and a query of at most 10,000")
        with self._writing() as connection:
            if query:
                connection.execute("INSERT OR REPLACE INTO views VALUES (?, ?, ?)", (name, query, _now()))
            else:
                connection.execute("DELETE FROM views WHERE name = ?", (name,))

    def close(self) -> None:
        """Let go of the file."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _read(connection: sqlite3.Connection, split: str, sample: str) -> SampleTag | None:
    sql = f"SELECT {FIELDS} FROM tags WHERE split = ? AND id = ?"
    row = connection.execute(sql, (split, sample)).fetchone()
    return None if row is None else SampleTag(*row)


def _write(connection: sqlite3.Connection, tag: SampleTag) -> SampleTag:
    if tag.action is not None and tag.action not in TAG_ACTIONS:
        raise InputError(f"action must be one of {', '.join(TAG_ACTIONS)}, got {tag.action!r}")
    if tag.new_label is not None and tag.action != "relabel":
        raise InputError("new_label must come with the action 'relabel'")
    if len(tag.note) > LONGEST_NOTE:
        raise InputError(f"a note must have at most {LONGEST_NOTE:,} letters, got {len(tag.note):,}")
    tag = replace(tag, changed=_now())
    if tag.kind is None:
        connection.execute("DELETE FROM tags WHERE split = ? AND id = ?", (tag.split, tag.id))
    else:
        values = (tag.split, tag.id, tag.action, tag.new_label, tag.note, tag.changed)
        connection.execute(f"INSERT OR REPLACE INTO tags ({FIELDS}) VALUES (?, ?, ?, ?, ?, ?)", values)
    return tag


def _advice(error: sqlite3.Error) -> str:
    """What to do, by what SQLite says."""
    words = str(error)
    if "locked" in words:
        return "another program is writing it: end that one, or try again"
    if "full" in words:
        return "make room on the disk"
    return "make the folder writable"
