"""All changes to the disk: files that are whole or not there, folders, removal, and locks.

A file is written under a temporary name beside its target, flushed and renamed over it, and then its folder is flushed:
after a crash of the program or of the machine the old file is there or the new one, never half of either. What a killed
writer leaves has a name that nothing else has. Tests make each of these functions fail in turn (`tests/faults`).
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from confide.checks import InputError

TEMPORARY = (".confide-", ".part")
"""Beginning and end of the names of temporary files."""

# The single changes. `atomic` and everything else that writes goes through them.


def new_file(folder: Path) -> tuple[int, Path]:
    """A temporary file in a folder: its open handle and its path."""
    handle, name = tempfile.mkstemp(dir=folder, prefix=TEMPORARY[0], suffix=TEMPORARY[1])
    return handle, Path(name)


def flush(handle: int, path: Path) -> None:
    """Wait until the content of a file, open as `handle`, is on the disk."""
    os.fsync(handle)


def flush_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    if sys.platform == "win32":
        return  # a folder cannot be opened there, and renames are written through
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def rename(temporary: Path, target: Path) -> None:
    """Give a file its name, over what had it before."""
    os.replace(temporary, target)


def name_new(temporary: Path, target: Path) -> None:
    """Give a file a second name that no other has yet."""
    os.link(temporary, target)


def remove(path: Path) -> None:
    """Remove a file, or a folder that is empty; what is not there is none the worse for it."""
    with suppress(FileNotFoundError):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


def make_folder(path: Path) -> None:
    """Make a folder and those above it, where they are missing."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        flush_folder(folder.parent)


# Files that are whole or not there.


@contextmanager
def atomic(path: str | Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`; on success it is flushed to disk and renamed over `path`.

    Args:
        path: of the file, which stays as it was where the block raises; folders are made.

    Returns:
        A context: the path to write to.

    Example:
        >>> from confide import files
        >>> with files.atomic("rows.txt") as temporary:
        ...     _ = temporary.write_text("a reader never sees half of it")
    """
    target = Path(path)
    make_folder(target.parent)
    handle, temporary = new_file(target.parent)
    try:
        # The lock tells `remove_leftovers` of another process that the writer is alive.
        if sys.platform != "win32":  # where it would keep the writer out too
            _try_lock(handle)
        yield temporary
        flush(handle, temporary)
        # mkstemp makes private files; a result has the rights any new file of this user has.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        if sys.platform == "win32":
            os.close(handle)  # an open file cannot be renamed there
        rename(temporary, target)
        flush_folder(target.parent)
    except BaseException:
        remove(temporary)
        raise
    finally:
        with suppress(OSError):
            os.close(handle)


@contextmanager
def appending(path: Path, patience: float = 30.0) -> Iterator[IO[bytes]]:
    """A file of lines, held against other writers: what a killed writer left of a last line is cut off first.

    Yields:
        The open file at its beginning. What is written at its end is on the disk when the block ends.
    """
    make_folder(path.parent)
    new = not path.exists()
    with open(path, "a+b") as lines:
        waited = 0.0
        while not _try_lock(lines.fileno()):
            if waited >= patience:
                raise InputError(f"{path} must be free to write, but another process holds it; wait for it")
            time.sleep(0.05)
            waited += 0.05
        lines.seek(0)
        end = _end_of_last_line(lines)
        if end != lines.seek(0, os.SEEK_END):
            lines.truncate(end)
        lines.seek(0)
        yield lines
        lines.flush()
        flush(lines.fileno(), path)
    if new:
        flush_folder(path.parent)


def _end_of_last_line(lines: IO[bytes], step: int = 1 << 16) -> int:
    """The place after the last newline."""
    place = lines.seek(0, os.SEEK_END)
    while place > 0:
        start = max(0, place - step)
        lines.seek(start)
        line_end = lines.read(place - start).rfind(b"\n")
        if line_end >= 0:
            return start + line_end + 1
        place = start
    return 0


def new_private_file(path: Path, content: bytes) -> None:
    """Write a file that only this user may read, whole or not at all; one that is there already is an error."""
    handle, temporary = new_file(path.parent)
    try:
        os.write(handle, content)
        flush(handle, temporary)
        name_new(temporary, path)
        flush_folder(path.parent)
    finally:
        os.close(handle)
        remove(temporary)


def remove_leftovers(folders: Iterable[Path]) -> None:
    """Remove temporary files of killed writers from these folders; other files and those below are not touched."""
    first, last = TEMPORARY
    for folder in folders:
        for path in folder.glob(f"{first}*{last}"):
            try:
                handle = os.open(path, os.O_RDWR)
            except OSError:
                continue
            try:
                alone = _try_lock(handle)
            finally:
                os.close(handle)
            if alone:
                remove(path)


# Locks, which the system gives back when a process ends, however it ends.

_locked_by: dict[Path, int] = {}
"""Folders locked in this process, with the thread that did."""


def lock_file(path: Path, folder: Path) -> IO[str]:
    """An exclusive lock that the system gives back when the process ends, however it ends.

    Args:
        path: of the lock file.
        folder: what is locked, for the message.

    Returns:
        The open file; closing it gives the lock back.

    Raises:
        InputError: where another process holds it.

    Example:
        >>> from pathlib import Path
        >>> from confide.store import lock_file
        >>> lock_file(Path("run.lock"), Path("run")).close()
    """
    handle = open(path, "a+", encoding="utf-8")  # noqa: SIM115  the lock lives as long as the handle
    if not _try_lock(handle.fileno()):
        handle.close()
        raise InputError(
            f"folder {folder} must be written by one process at a time, but another holds it; "
            "wait for it or choose another folder"
        )
    return handle


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder, made where it is missing, against other processes; what holds it may call what holds it too."""
    make_folder(folder)
    place = folder.resolve()
    if _locked_by.get(place) == threading.get_ident():
        yield
        return
    with lock_file(folder / ".lock", folder):
        _locked_by[place] = threading.get_ident()
        try:
            yield
        finally:
            del _locked_by[place]


def _try_lock(handle: int) -> bool:
    """Whether the file is now locked by this process, or lies where files cannot be locked."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:
        return True
    return True
