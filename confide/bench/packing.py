"""A grid's results as one archive, to carry them between machines, and back into a folder."""

from __future__ import annotations

import io
import tarfile
from fnmatch import fnmatch
from pathlib import Path

from confide.core import files
from confide.core.door import InputError

CARRIED = ("cells/*.json", "errors/*.json", "predictions/*.npz", "prepared*/*.parquet", "trust/*.json")
LARGEST = 15 << 20
"""Bytes of one archive: more goes into a next one."""


def pack(folder: Path, target: Path, *, largest: int = LARGEST) -> list[Path]:
    """Write `target.tar`, and `target-2.tar` and so on where one would be too large; returns the archives."""
    found = [path for pattern in CARRIED for path in sorted(folder.glob(pattern))]
    if not found:
        raise InputError(f"{folder} must hold cells of a grid, but there are none; run it first")
    groups: list[list[Path]] = [[]]
    size = 0
    for path in found:
        length = path.stat().st_size + 1024
        if groups[-1] and size + length > largest:
            groups.append([])
            size = 0
        groups[-1].append(path)
        size += length
    written = []
    for number, group in enumerate(groups, 1):
        archive = target.with_name(f"{target.stem}.tar" if number == 1 else f"{target.stem}-{number}.tar")
        with files.atomic(archive) as temporary, tarfile.open(temporary, "w") as tar:
            for path in group:
                tar.add(path, path.relative_to(folder).as_posix())
        written.append(archive)
    return written


def unpack(archive: Path, folder: Path) -> int:
    """Add the files of an archive to a folder, each atomically; returns how many."""
    count = 0
    try:
        tar = tarfile.open(archive)  # noqa: SIM115  closed below, after the errors of opening are told apart
    except tarfile.TarError:  # its words fill a line for every compression tried
        raise InputError(f"{archive} must be an archive of a grid, but it is no tar file; fetch it again") from None
    except OSError as error:
        raise InputError(f"{archive} must be an archive of a grid, but reading it failed: {error.strerror}") from None
    with tar:
        for member in tar:
            room, _, name = member.name.partition("/")
            source = tar.extractfile(member) if member.isfile() else None
            # Names from outside: only a plain file directly in one of the known folders.
            if source is None or not _known(room) or not name or name != Path(name).name or name.startswith("."):
                raise InputError(f"{archive} must hold cells of a grid only, got '{member.name}'; do not use it")
            with files.atomic(folder / room / name) as temporary:
                temporary.write_bytes(io.BytesIO(source.read()).getvalue())
            count += 1
    return count


def _known(room: str) -> bool:
    return any(fnmatch(room, pattern.partition("/")[0]) for pattern in CARRIED)
