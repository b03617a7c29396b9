"""The run folder: one file per record, and a manifest that says what made each, so that a run can go on where it was.

A stage is done when the manifest holds its key (a hash of its options and of the keys of the stages it follows) and
every file it wrote is there with the same checksum. Everything else is made again, and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import IO, Any, TypeVar

from confide.checks import InputError
from confide.files import formats

RUN_FORMAT = "run/1"
PACKAGES = ("confide", "torch", "numpy", "scipy", "pyarrow", "safetensors", "pillow")

R = TypeVar("R")


class RunFolder:
    """A run folder under an exclusive lock: `with RunFolder(path, config) as folder: record = folder.stage(...)`."""

    def __init__(self, path: str | Path, config: Mapping[str, Any], seed: int) -> None:
        self.path = Path(path)
        self.config = formats.plain(dict(config))
        self.seed = seed
        self.stages: dict[str, dict[str, Any]] = {}
        self.keys: dict[str, str] = {}
        self.redone: list[str] = []
        self._lock: IO[str] | None = None

    def __enter__(self) -> RunFolder:
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = lock_file(self.path / ".lock", self.path)
        manifest = self.path / "manifest.json"
        if manifest.exists():
            try:
                self.stages = read_manifest(manifest)["stages"]
            except InputError:
                self._lock.close()
                raise
        for leftover in self.path.rglob(".*.part"):
            leftover.unlink(missing_ok=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def stage(
        self,
        name: str,
        *,
        uses: Mapping[str, Any],
        after: Iterable[str] = (),
        file: str,
        make: Callable[[], R],
        write: Callable[[R, Path], object],
        read: Callable[[Path], R],
        also: Callable[[], Iterable[Path]] = tuple,
    ) -> R:
        """The record of a stage: read back if it is done with these options, else made, written and noted.

        Args:
            uses: options that decide the outcome; together with the stages in `after` they make the key.
            file: where the record is written, relative to the run folder.
            also: further files the stage leaves behind, asked for after `make`.
        """
        key = self.key(name, uses, after)
        target = self.path / file
        if self._done(name, key):
            return read(target)
        started = time.monotonic()
        record = make()
        write(record, target)
        written = [target, *also()]
        self.stages[name] = {
            "key": key,
            "uses": formats.plain(dict(uses)),
            "after": list(after),
            "files": {p.relative_to(self.path).as_posix(): formats.checksum(p) for p in written},
            "seconds": round(time.monotonic() - started, 3),
        }
        self.redone.append(name)
        self._write_manifest()
        # Read back, so that a first run and a resumed one go on from the very same record.
        return read(target)

    def key(self, name: str, uses: Mapping[str, Any], after: Iterable[str]) -> str:
        """The key of a stage with these options; remembered for the stages that follow."""
        content = {
            "stage": name,
            "format": RUN_FORMAT,
            "uses": formats.plain(dict(uses)),
            "after": [self.keys[s] for s in after],
        }
        self.keys[name] = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:24]
        return self.keys[name]

    def _done(self, name: str, key: str) -> bool:
        noted = self.stages.get(name)
        if noted is None or noted["key"] != key:
            return False
        paths = {self.path / relative: digest for relative, digest in noted["files"].items()}
        return all(p.is_file() and formats.checksum(p) == digest for p, digest in paths.items())

    def _write_manifest(self) -> None:
        formats.write_json(
            self.path / "manifest.json",
            {
                "format": RUN_FORMAT,
                "config": self.config,
                "seed": self.seed,
                "made": datetime.now(timezone.utc).isoformat(timespec="seconds"),
                **environment(),
                "stages": self.stages,
            },
        )


def read_manifest(path: Path) -> dict[str, Any]:
    """A manifest of this format, or one clear line."""
    manifest = formats.read_json(path)
    found = manifest.get("format") if isinstance(manifest, dict) else None
    if found != RUN_FORMAT:
        raise InputError(
            f"{path.parent} must be a run folder of format '{RUN_FORMAT}', got {found!r}; "
            "choose another folder, or use the version of confide that made it"
        )
    return dict(manifest)


def lock_file(path: Path, folder: Path) -> IO[str]:
    """An exclusive lock that the system gives back when the process ends, however it ends."""
    handle = open(path, "a+", encoding="utf-8")  # noqa: SIM115  the lock lives as long as the handle
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(handle.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        handle.close()
        raise InputError(
            f"run folder {folder} must be written by one process at a time, but another holds it; "
            "wait for it or choose another folder"
        ) from None
    return handle


def environment() -> dict[str, Any]:
    """What is needed to run it again: versions, hardware, commit of the checkout if there is one."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {
        "versions": {"python": platform.python_version(), **versions},
        "hardware": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}",
        "commit": checkout_commit(Path(__file__).parent.parent),
    }


def checkout_commit(checkout: Path) -> str | None:
    """The commit of this package's own checkout; None from an installed wheel."""
    if not (checkout / ".git").exists():
        return None
    try:
        done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=checkout, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
