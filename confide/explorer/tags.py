"""Tags and saved views of samples, in a SQLite file beside the run; every change is on disk before it is confirmed."""

from __future__ import annotations

import re
import sqlite3
import stat
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypedDict, cast

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
BUSY_SECONDS = 10.0
"""How long a change waits for another program."""
QUERY_SECONDS = 20.0
"""A statement of SQLite that takes longer is ended."""
SUPER_JOURNAL = bytes.fromhex("d9d505f920a163d7")
"""The end of a journal that names another file, which SQLite would delete."""


class TagChange(TypedDict, total=False):
    """What of a tag is changed; keys that are not there stay as they are on disk."""

    action: str | None
    new_label: int | None
    note: str


class SeenTag(TypedDict, total=False):
    """What of a tag someone saw before changing it: the values that each changed field may still have."""

    action: list[str | None]
    new_label: list[int | None]
    note: list[str]


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

    @property
    def content(self) -> tuple[str | None, int | None, str]:
        """What was decided, without when."""
        return self.action, self.new_label, self.note


@dataclass(frozen=True)
class TagStep:
    """A change of one tag, which can be taken back while the tag is still as the change left it."""

    before: SampleTag
    after: SampleTag


class StaleTag(InputError):
    """A change of something that someone else has changed since it was seen; `tag` is how it is now."""

    def __init__(self, tag: SampleTag) -> None:
        words = " ".join(
            filter(None, (tag.action or "not tagged", f"with the note “{tag.note[:60]}”" * bool(tag.note)))
        )
        super().__init__(f"a tag must be changed as it was seen, but someone else changed it meanwhile: it is {words}")
        self.tag = tag


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
        self._check_files()
        connection = None
        try:
            connection = sqlite3.connect(self.path, check_same_thread=False, timeout=BUSY_SECONDS)
            _limit_time(connection)
            # The file may come from elsewhere: nothing that its schema holds is trusted, nor run before it is checked.
            connection.execute("PRAGMA trusted_schema = OFF")
            objects = _schema(connection)
            if objects and objects != EXPECTED_SCHEMA:
                more = sorted(name for _, name, _ in objects ^ EXPECTED_SCHEMA)
                raise sqlite3.DatabaseError(f"its tables are not those of a tags file: {', '.join(more)[:200]}")
            connection.execute("PRAGMA journal_mode = DELETE")
            # On disk before the response: a crash of the program or of the machine loses nothing that was confirmed.
            connection.execute("PRAGMA synchronous = FULL")
            if not objects:
                # At once: someone who opens the file meanwhile must not see a part of its tables.
                connection.executescript(f"BEGIN IMMEDIATE; {SCHEMA}; COMMIT")
        except BaseException as error:
            if connection is not None:
                connection.close()
            if not isinstance(error, sqlite3.Error):
                raise
            raise InputError(
                f"tags must be kept in {self.path}, but it cannot be written or is no tags file ({error}); "
                "make the folder writable, or move the file away"
            ) from None
        self._connection = connection
        weakref.finalize(self, connection.close)  # whoever forgets to close the file leaves nothing open
        return connection

    def _check_files(self) -> None:
        """Refuse what SQLite would follow or delete: links, and a journal that names another file."""
        # Another program may end a journal between two looks at it: that is no error.
        for path in (self.path, *(self.path.with_name(self.path.name + end) for end in ("-journal", "-wal", "-shm"))):
            with suppress(FileNotFoundError):
                if not stat.S_ISREG(path.lstat().st_mode):
                    raise InputError(f"tags must be kept in a plain file, but {path} is none; move it away")
        journal = self.path.with_name(self.path.name + "-journal")
        with suppress(FileNotFoundError):
            if _end(journal, len(SUPER_JOURNAL)) == SUPER_JOURNAL:
                raise InputError(
                    f"{journal} must be of {self.path.name} alone, but it names another file; move it away"
                )

    def _existing(self) -> sqlite3.Connection | None:
        """The connection, if there is a file by now: another explorer may have made it."""
        if self._connection is None and not self.path.exists():
            return None
        try:
            return self._open()
        except InputError:
            return None  # what came there since the start may be no tags file: an error when a tag is written

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection | None]:
        """The connection, if there is a file; what SQLite cannot read becomes one line."""
        with self._lock:
            try:
                yield self._existing()
            except sqlite3.Error as error:
                raise InputError(f"{self.path} must be a readable tags file, but: {error}; {_advice(error)}") from None

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
        with self._reading() as connection:
            if connection is None:
                return []
            sql = f"SELECT {FIELDS} FROM tags ORDER BY changed, split, id"
            return [_tag(row) for row in connection.execute(sql)]

    def get(self, split: str, sample: str) -> SampleTag | None:
        """The tag of a sample."""
        with self._reading() as connection:
            return None if connection is None else _read(connection, split, sample)

    def put(self, tag: SampleTag) -> SampleTag:
        """Write a tag; one without action and note is removed."""
        with self._writing() as connection:
            return _write(connection, tag)

    def change(self, split: str, sample: str, change: TagChange, seen: SeenTag | None = None) -> TagStep:
        """Write only what is changed of action, new_label and note; the rest stays, also where another wrote it.

        Raises:
            StaleTag: a field to change is neither as it was seen nor as it is to become.
        """
        with self._writing() as connection:
            before = _read(connection, split, sample) or SampleTag(split, sample)
            for field, values in (seen or {}).items():
                now = getattr(before, field)
                if field in change and now not in (*cast(list[Any], values), change.get(field)):
                    raise StaleTag(before)
            return TagStep(before, _write(connection, _changed(before, change)))

    def change_many(
        self, samples: Sequence[tuple[str, str]], change: Callable[[str, str], TagChange | None]
    ) -> list[TagStep]:
        """Change many tags, all or none; samples whose change is None are passed over."""
        steps = []
        with self._writing() as connection:
            for split, sample in samples:
                own = change(split, sample)
                if own is not None:
                    before = _read(connection, split, sample) or SampleTag(split, sample)
                    steps.append(TagStep(before, _write(connection, _changed(before, own))))
        return steps

    def take_back(self, steps: Sequence[TagStep]) -> list[SampleTag]:
        """Undo changes; a tag that was changed again since stays. The tags as they are after it."""
        restored = []
        with self._writing() as connection:
            for step in steps:
                now = _read(connection, step.after.split, step.after.id) or SampleTag(step.after.split, step.after.id)
                if now.content == step.after.content:
                    restored.append(_write(connection, step.before))
        return restored

    def stamp(self) -> int | None:
        """Changes with every change that another program makes; None where there is no file."""
        with self._reading() as connection:
            return None if connection is None else int(connection.execute("PRAGMA data_version").fetchone()[0])

    def views(self) -> list[tuple[str, str]]:
        """Saved views as (name, query), by name."""
        with self._reading() as connection:
            if connection is None:
                return []
            rows = connection.execute("SELECT name, query FROM views ORDER BY name")
            return [(str(name), str(query)) for name, query in rows]

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


def _schema(connection: sqlite3.Connection) -> frozenset[tuple[str, str, str]]:
    """Everything a file defines (tables, indexes, views, triggers), as type, name and SQL."""
    rows = connection.execute("SELECT type, name, coalesce(sql, '') FROM sqlite_master").fetchall()
    return frozenset((str(kind), str(name), re.sub(r"\s+", " ", str(sql))) for kind, name, sql in rows)


def _expected_schema() -> frozenset[tuple[str, str, str]]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(SCHEMA)
        return _schema(connection)


EXPECTED_SCHEMA = _expected_schema()


def _limit_time(connection: sqlite3.Connection) -> None:
    """End every statement that takes too long: pages that point at each other can keep SQLite for ever."""
    started = 0.0

    def is_late() -> bool:
        return time.monotonic() - started > QUERY_SECONDS

    def start(_: str) -> None:
        nonlocal started
        started = time.monotonic()

    connection.set_trace_callback(start)
    connection.set_progress_handler(is_late, 10_000)


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _changed(tag: SampleTag, change: TagChange) -> SampleTag:
    """A tag with what is changed of it; a new label leaves with its action."""
    changed = replace(tag, **change)
    if "new_label" not in change and changed.action != "relabel":
        changed = replace(changed, new_label=None)
    return changed


def _read(connection: sqlite3.Connection, split: str, sample: str) -> SampleTag | None:
    sql = f"SELECT {FIELDS} FROM tags WHERE split = ? AND id = ?"
    row = connection.execute(sql, (split, sample)).fetchone()
    return None if row is None else _tag(row)


def _tag(row: tuple[Any, ...]) -> SampleTag:
    """A tag of the file; SQLite lets any column hold any type."""
    tag = SampleTag(*row)
    texts = all(isinstance(value, str) for value in (tag.split, tag.id, tag.note, tag.changed))
    label = tag.new_label is None or (type(tag.new_label) is int and 0 <= tag.new_label < 1 << 31)
    if not texts or not label or tag.action not in (None, *TAG_ACTIONS):
        raise sqlite3.DatabaseError(f"a row of it is no tag: {repr(row)[:100]}")
    return tag


def _end(path: Path, size: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(-min(size, path.stat().st_size), 2)
        return file.read(size)


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
    if "no tag" in words or "malformed" in words or "decode" in words or "interrupted" in words:
        return "move the file away"
    return "make the folder writable"
