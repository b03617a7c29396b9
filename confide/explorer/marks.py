"""Which rows are tagged, and how: a mirror of the file of tags that also follows what other programs write there."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from confide.checks import InputError
from confide.explorer.samples import SampleTable
from confide.explorer.tags import TAG_KINDS, SampleTag, TagFile
from confide.types import Flags

MAX_CHANGES = 10_000
"""Changes that a page can catch up with; a page further behind reads all anew."""


@dataclass(frozen=True)
class TagChanges:
    """Rows whose tags changed since a version, with what they are tagged now; None where they are too many to list."""

    version: int
    rows: tuple[tuple[int, str | None], ...] | None


class TagMarks:
    """The tags by row. `version` goes up with every change, so that what a tag decided is computed anew."""

    def __init__(self, samples: SampleTable, tags: TagFile) -> None:
        self.samples, self.tags = samples, tags
        self.kinds: NDArray[np.int8] = np.full(samples.table.num_rows, -1, dtype=np.int8)
        """A place in TAG_KINDS, or -1."""
        self.version = 0
        self.writing = threading.Lock()
        """Held from the file to this mirror, so that both see quick changes in the same order."""
        self._lock = threading.Lock()
        self._known: dict[int, SampleTag] = {}
        self._changes: deque[tuple[int, int]] = deque(maxlen=MAX_CHANGES)
        self._stamp: int | None = None
        self._read_all()
        self._changes.clear()

    @property
    def tagged(self) -> int:
        """How many rows are tagged."""
        return len(self._known)

    def rows(self) -> NDArray[np.int32]:
        """The rows that are tagged, in their order."""
        return np.flatnonzero(self.kinds >= 0).astype(np.int32)

    def counts(self, fits: Flags) -> dict[str, int]:
        """How many of these rows are tagged in which way."""
        tagged = self.rows()
        counts = np.bincount(self.kinds[tagged[fits[tagged]]], minlength=len(TAG_KINDS))
        return {kind: int(count) for kind, count in zip(TAG_KINDS, counts, strict=True) if count}

    def follow(self) -> None:
        """Take over what another program has written since; while a change is being written, or of a file that cannot
        be read any more, what is known stays.
        """
        if not self.writing.acquire(blocking=False):
            return
        try:
            with suppress(InputError):
                if self.tags.stamp() != self._stamp:
                    self._read_all()
        finally:
            self.writing.release()

    def mark(self, tags: Iterable[tuple[int, SampleTag]]) -> None:
        """Take over tags that were written here."""
        with self._lock:
            for row, tag in tags:
                self._set(row, tag)

    def changes(self, since: int) -> TagChanges:
        """What changed after a version."""
        self.follow()
        with self._lock:
            if since > self.version or self.version - since > len(self._changes):
                return TagChanges(self.version, None if since != self.version else ())
            rows = dict.fromkeys(row for version, row in self._changes if version > since)
            return TagChanges(self.version, tuple((row, self._kind(row)) for row in rows))

    def _kind(self, row: int) -> str | None:
        tag = self._known.get(row)
        return None if tag is None else tag.kind

    def _read_all(self) -> None:
        stamp = self.tags.stamp()
        tagged = dict(self._tagged_rows())
        with self._lock:
            for row in [row for row in self._known if row not in tagged]:
                self._set(row, SampleTag("", ""))
            for row, tag in tagged.items():
                if self._known.get(row) != tag:
                    self._set(row, tag)
            self._stamp = stamp

    def _tagged_rows(self) -> list[tuple[int, SampleTag]]:
        """Tags of samples that are here; others stay in their file."""
        tags = self.tags.all()
        tagged = []
        for split, start in self.samples.starts.items():
            in_split = [tag for tag in tags if tag.split == split and tag.kind]
            if not in_split:
                continue
            # Samples are looked up among tags, which are far fewer.
            tag_numbers = pc.index_in(
                self.samples.ids[split], value_set=pa.array([tag.id for tag in in_split], pa.string())
            )
            rows = np.flatnonzero(tag_numbers.is_valid().to_numpy(zero_copy_only=False))
            numbers = tag_numbers.drop_null().to_pylist()
            tagged += [(start + row, in_split[k]) for row, k in zip(rows.tolist(), numbers, strict=True)]
        return tagged

    def _set(self, row: int, tag: SampleTag) -> None:
        self.version += 1
        self._changes.append((self.version, row))
        self.kinds[row] = -1 if tag.kind is None else TAG_KINDS.index(tag.kind)
        if tag.kind is None:
            self._known.pop(row, None)
        else:
            self._known[row] = tag
