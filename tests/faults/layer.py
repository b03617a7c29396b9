"""A disk that fails: every change that confide makes to the disk goes through `confide.files.disk`, and here each can
fail, be left half done, find the disk full, or be the last thing that the process did.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from confide.files import disk

CHANGES = ("new_file", "flush", "rename", "name_new", "flush_folder", "remove", "make_folder")
KINDS = ("fail", "full", "half", "kill")
OF_FILES = ("disk.py", "formats.py", "shards.py", "fitted.py", "contextlib.py", "layer.py")


class Killed(BaseException):
    """The process is dead: nothing it does after this reaches the disk."""


@dataclass(frozen=True)
class Change:
    """One change to the disk: what is done to which path, and the code that asked for it."""

    name: str
    path: Path
    site: str

    @property
    def key(self) -> tuple[str, str]:
        return self.name, self.site


@dataclass
class FaultyDisk:
    """Notes all changes; those that `when` points at go wrong in the way of `kind`."""

    when: Callable[[int, Change], bool] = lambda number, change: False
    kind: str = "fail"
    changes: list[Change] = field(default_factory=list)
    hits: list[Change] = field(default_factory=list)
    dead: bool = False

    def wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def changed(*args: Any) -> Any:
            if self.dead:
                raise Killed
            path = Path(args[-1])
            if (name == "make_folder" and path.exists()) or (name == "remove" and not path.exists()):
                return real(*args)  # changes nothing
            change = Change(name, path, call_site())
            self.changes.append(change)
            if self.when(len(self.changes), change):
                self.hits.append(change)
                self.go_wrong(name, path)
            return real(*args)

        return changed

    def go_wrong(self, name: str, path: Path) -> None:
        if name == "flush" and self.kind in ("full", "half"):
            os.truncate(path, path.stat().st_size // 2)
        if self.kind in ("kill", "half"):
            self.dead = True
            raise Killed
        code = errno.ENOSPC if self.kind == "full" else errno.EIO
        raise OSError(code, os.strerror(code), str(path))


@contextmanager
def on(faulty: FaultyDisk) -> Iterator[FaultyDisk]:
    """Everything that is written meanwhile is written to this disk."""
    with pytest.MonkeyPatch.context() as patch:
        for name in CHANGES:
            patch.setattr(disk, name, faulty.wrap(name, getattr(disk, name)))
        yield faulty


def call_site() -> str:
    """The function outside of `confide.files` that asked for a change."""
    frame = sys._getframe(1)
    while frame.f_back is not None and Path(frame.f_code.co_filename).name in OF_FILES:
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_code.co_name}"
