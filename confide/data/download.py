"""Archives of official sites: fetched with a checksum, unpacked file by file."""

from __future__ import annotations

import hashlib
import http.client
import tarfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from confide.core.door import InputError
from confide.core.files import atomic
from confide.core.progress import Progress


@dataclass(frozen=True)
class Archive:
    """A tar archive: where it is published, its MD5 as published there, and the folder and files within."""

    url: str
    md5: str
    folder: str
    files: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.url.rsplit("/", 1)[-1]


def provide(archive: Archive, data_folder: Path, download: bool) -> Path:
    """The folder with the archive's files: there already, or from the archive there, or downloaded."""
    target = data_folder / archive.folder
    if all((target / name).exists() for name in archive.files):
        return target
    packed = data_folder / archive.name
    if not packed.exists():
        if not download:
            raise InputError(f"{target} must hold {archive.files[0]} and others, but it does not; {_by_hand(archive)}")
        _fetch(archive, packed)
    _unpack(packed, archive.files, target)
    return target


def _by_hand(archive: Archive) -> str:
    return f"put {archive.name} from {archive.url} there, or say where it is by folder= or CONFIDE_DATA"


def _fetch(archive: Archive, target: Path) -> None:
    digest = hashlib.md5(usedforsecurity=False)
    try:
        with (
            urllib.request.urlopen(archive.url, timeout=30) as response,
            atomic(target) as temporary,
            open(temporary, "wb") as file,
            Progress(f"download {archive.name}", int(response.headers.get("Content-Length") or 0)) as progress,
        ):
            while block := response.read(1 << 20):
                file.write(block)
                digest.update(block)
                progress.step(len(block))
            if digest.hexdigest() != archive.md5:
                raise InputError(
                    f"{archive.url} must have the checksum {archive.md5}, got {digest.hexdigest()}; "
                    "it was not kept: try again, or get it by another way"
                )
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        why = " ".join(str(getattr(error, "reason", error)).split())
        raise InputError(
            f"{archive.folder} is not in {target.parent}, and could not be downloaded ({why}); {_by_hand(archive)}"
        ) from None


def _unpack(packed: Path, files: Collection[str], target: Path) -> None:
    """Only files known by name are taken, under their bare name: an archive cannot write anywhere else."""
    wanted = set(files)
    try:
        with tarfile.open(packed) as archive:
            for member in archive:
                name = member.name.rsplit("/", 1)[-1]
                source = archive.extractfile(member) if name in wanted and member.isfile() else None
                if source is not None:
                    with atomic(target / name) as temporary:
                        temporary.write_bytes(source.read())
                    wanted.discard(name)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise InputError(f"{packed} must be a whole archive, but it cannot be read ({error}); delete it") from None
    if wanted:
        raise InputError(f"{packed} must hold {', '.join(sorted(wanted))}, but it does not; delete it and try again")
