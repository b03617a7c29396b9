"""The run folder: the names of its files, and a manifest of what made each, so that a run can go on where it was.

A stage is done when the manifest holds its key (a hash of its options and of the keys of the stages it follows) and
every file it wrote is there with the same checksum. Everything else is made again, and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shlex
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

from confide.files import disk, formats
from confide.files.disk import lock_file
from confide.files.signing import is_signed_here, sign
from confide.records import Dataset, Provenance
from confide.types import JsonObject

__all__ = [
    "DataNote",
    "Manifest",
    "RunEnvironment",
    "RunFolder",
    "RunPaths",
    "StageRecord",
    "environment",
    "lock_file",
    "read_manifest",
    "seed_name",
]

KEY_FORMAT = "run/1"
"""Part of every stage's key; older than the format, so that the stages of older run folders count as done."""
PACKAGES = ("confide", "torch", "numpy", "scipy", "pyarrow", "safetensors", "pillow")

R = TypeVar("R")


# The names of files. A folder of one training (`confide train --out`) uses the same for what both hold.

OLD_NAMES = {
    "scores/groups.parquet": ("scores/bands.parquet", "difficulty.parquet"),
    "scores/label_groups.parquet": ("scores/label_bands.parquet", "difficulty.parquet"),
    "scores/predicted_class.parquet": ("scores/unlabelled.parquet", "hardness.parquet"),
}
"""What files were called before: in run folders of format run/1, and in training folders of that time."""
NO_SPLITS = frozenset(Path(name).stem for new, old in OLD_NAMES.items() for name in (new, *old))


def seed_name(model: str, seed: int) -> str:
    """The name of one of several networks that differ in their seed.

    Args:
        model: the name that they share.
        seed: of this one.

    Returns:
        The name of its folder and files.

    Example:
        >>> confide.store.seed_name("focal", 1)
        'focal-seed=1'
    """
    return f"{model}-seed={seed}"


@dataclass(frozen=True)
class RunPaths:
    """Where the files of a run folder, or of a training folder, lie.

    Args:
        folder: the folder; it need not exist.

    Example:
        >>> paths = RunPaths(Path("runs/demo"))
        >>> paths.predictions("adafocal", "test").as_posix()
        'runs/demo/predictions/adafocal-test.parquet'
        >>> paths.calibrator("adafocal", "temperature").as_posix()
        'runs/demo/calibrators/adafocal-temperature.json'
    """

    folder: Path

    @property
    def manifest(self) -> Path:
        """Which stage wrote what, by which options."""
        return self.folder / "manifest.json"

    @property
    def config(self) -> Path:
        """The experiment's config: `confide run` with it makes this folder again."""
        return self.folder / "config.yaml"

    @property
    def finish_command(self) -> str:
        """What finishes the run of this folder, for a shell."""
        return shlex.join(["confide", "run", str(self.config), "--out", str(self.folder)])

    @property
    def data(self) -> Path:
        """Where the data came from (`DataNote`)."""
        return self.folder / "data.json"

    @property
    def evaluation(self) -> Path:
        """All measurements, once the run is concluded."""
        return self.folder / "evaluation.json"

    @property
    def report(self) -> Path:
        """The page."""
        return self.folder / "report.html"

    @property
    def tags(self) -> Path:
        """Tags given in the explorer."""
        return self.folder / "tags.sqlite"

    @property
    def map(self) -> Path:
        """The explorer's map of the samples by their features."""
        return self.folder / "map.npz"

    @property
    def difficulty(self) -> Path:
        """The difficulty fitted on the training split."""
        return self.folder / "difficulty.safetensors"

    def features(self, split: str) -> Path:
        """Features of one split."""
        return self.folder / "features" / f"{split}.npz"

    def scores(self, name: str) -> Path:
        """Difficulty of one split; or `groups`, `label_groups` and `predicted_class`, which span several splits.

        `groups` are the scores by which a loss groups samples, `predicted_class` those that calibrators go by: the
        difficulty to the likeliest class, known without the label.
        """
        return self.folder / "scores" / f"{name}.parquet"

    @property
    def scores_of(self) -> Path:
        """What the scores of a training folder were made of; a run folder's manifest says it."""
        return self.folder / "scores" / "made-of.json"

    def model(self, name: str) -> Path:
        """The folder of one trained model."""
        return self.folder / "models" / name

    def history(self, name: str) -> Path:
        """The folder of what one model predicted after every epoch."""
        return self.model(name) / "history"

    def predictions(self, model: str, split: str) -> Path:
        """Predictions of one model on one split, as trained."""
        return self.folder / "predictions" / f"{model}-{split}.parquet"

    def trust(self, model: str, name: str) -> Path:
        """A trust predictor fitted for one model."""
        return self.folder / "trust" / f"{model}-{name}.json"

    def trust_values(self, model: str, name: str, split: str) -> Path:
        """Its values on one split."""
        return self.folder / "trust" / f"{model}-{name}-{split}.parquet"

    def calibrator(self, model: str, name: str) -> Path:
        """A calibrator fitted for one model."""
        return self.folder / "calibrators" / f"{model}-{name}.json"

    @property
    def first_calibrator(self) -> Path:
        """In a training folder, its recipe's first calibrator under a name that is easy to type."""
        return self.folder / "calibrator.json"

    def model_evaluation(self, model: str, stage: str) -> Path:
        """Measurements on one model at one stage, written before the run is concluded."""
        return self.folder / "evaluations" / f"{model}-{stage}.json"

    def folders(self) -> list[Path]:
        """The folders that files of a run are written to, where they are there."""
        names = ("features", "scores", "predictions", "trust", "calibrators", "evaluations")
        models = list(self.model("").glob("*"))
        of_models = [model / name for model in models for name in ("checkpoints", "history")]
        folders = (self.folder, *(self.folder / name for name in names), *models, *of_models)
        return [folder for folder in folders if folder.is_dir()]

    def existing(self, path: Path) -> Path:
        """The path, or the older name of the same file where only that is there."""
        old = OLD_NAMES.get(path.relative_to(self.folder).as_posix(), ())
        return next((p for p in (path, *(self.folder / name for name in old)) if p.exists()), path)

    def scored_splits(self) -> dict[str, Path]:
        """The files of scores that are there, by split."""
        files = sorted((self.folder / "scores").glob("*.parquet"))
        return {path.stem: path for path in files if path.stem not in NO_SPLITS}


@dataclass(frozen=True)
class DataNote:
    """Where the data of a run came from, as data.json keeps it."""

    name: str
    class_names: tuple[str, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    provenance: Provenance = field(default_factory=Provenance)
    set_aside: tuple[Mapping[str, str], ...] = ()

    @classmethod
    def of(cls, dataset: Dataset) -> DataNote:
        """The note on a dataset."""
        return cls(
            dataset.name,
            tuple(dataset.class_names),
            {name: len(split) for name, split in dataset.splits.items()},
            dataset.provenance,
            tuple({"id": i, "reason": reason} for i, reason in dataset.set_aside),
        )

    def as_dict(self) -> JsonObject:
        """Ready for JSON."""
        return {**vars(self), "provenance": self.provenance.as_dict()}

    def save(self, path: Path) -> None:
        """Write it."""
        formats.write_json(path, self.as_dict())

    @classmethod
    def load(cls, path: Path) -> DataNote:
        """Read it back."""
        row = formats.read_json(path)
        with formats.reading(path, "note on data"):
            return cls.from_dict(row)

    @classmethod
    def from_dict(cls, row: JsonObject) -> DataNote:
        """The note of what `as_dict` gave."""
        return cls(
            str(row.get("name", "")),
            tuple(map(str, row.get("class_names", ()))),
            dict(row.get("sizes", {})),
            Provenance.from_dict(row.get("provenance", {})),
            tuple(row.get("set_aside", ())),
        )


# The manifest.


@dataclass(frozen=True)
class StageRecord:
    """What one stage used, followed and wrote: files with their checksums, its own record first."""

    key: str
    uses: JsonObject
    after: tuple[str, ...]
    files: Mapping[str, str]
    seconds: float


@dataclass(frozen=True)
class Manifest:
    """What made a run folder: its config, the versions, and its stages in the order they were made.

    `signed_here`: this user made the run, and the manifest is as it was written.
    """

    config: JsonObject = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    stages: Mapping[str, StageRecord] = field(default_factory=dict)
    signed_here: bool = False


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a run folder, of this format or an older one; one clear line for anything else.

    Args:
        folder: the run folder.

    Returns:
        Its config, versions and stages.

    Raises:
        InputError: where there is no manifest, or one of a newer format.

    Example:
        >>> from pathlib import Path
        >>> from confide.files.formats import read_json, write_json
        >>> from confide.store import RunFolder, read_manifest
        >>> with RunFolder("run", {"seed": 3}, seed=3) as folder:
        ...     table = folder.stage("one", uses={}, file=folder.path / "one.json", make=dict,
        ...         write=lambda record, path: write_json(path, record), read=read_json)
        >>> read_manifest(Path("run")).config
        {'seed': 3}
    """
    path = RunPaths(folder).manifest
    row = formats.read_json(path)
    with formats.reading(path, "manifest"):
        written = row.get("format") if isinstance(row, dict) else None
        versions = dict(row.get("versions", {})) if isinstance(row, dict) else {}
        formats.RUN.check(written, folder, str(versions.get("confide", "of a newer version")))
        stages = {
            name: StageRecord(str(s["key"]), dict(s["uses"]), tuple(s["after"]), dict(s["files"]), float(s["seconds"]))
            for name, s in row["stages"].items()
        }
        return Manifest(dict(row.get("config", {})), versions, stages, is_signed_here(row))


def _save(record: Any, path: Path) -> object:
    return record.save(path)


class RunFolder:
    """A run folder under an exclusive lock, whose finished stages are not made again.

    Args:
        path: the folder; made where it is missing.
        config: what the manifest keeps of the experiment.
        seed: of everything random.

    Raises:
        InputError: where another process holds the folder, or a newer version of confide wrote it.

    Example:
        >>> def total(folder):
        ...     return folder.stage("sum", uses={"n": 3}, file=folder.path / "sum.json", make=lambda: sum(range(3)),
        ...         write=lambda record, path: formats.write_json(path, record), read=formats.read_json)
        >>> with RunFolder("run", {}, seed=0) as folder:
        ...     total(folder), folder.computed
        (3, ['sum'])
        >>> with RunFolder("run", {}, seed=0) as folder:
        ...     total(folder), folder.computed
        (3, [])
    """

    def __init__(self, path: str | Path, config: JsonObject, seed: int) -> None:
        self.path = Path(path)
        self.paths = RunPaths(self.path)
        self.config = formats.plain(dict(config))
        self.seed = seed
        self.stages: dict[str, StageRecord] = {}
        self.keys: dict[str, str] = {}
        self.computed: list[str] = []
        self._held = ExitStack()

    def __enter__(self) -> RunFolder:
        with ExitStack() as held:
            disk.make_folder(self.path)
            held.enter_context(lock_file(self.path / ".lock", self.path))
            if self.paths.manifest.exists():
                self.stages = dict(read_manifest(self.path).stages)
            disk.remove_leftovers(self.paths.folders())
            self._held = held.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def stage(
        self,
        name: str,
        *,
        uses: JsonObject | None = None,
        after: Iterable[str] = (),
        file: Path,
        make: Callable[[], R],
        write: Callable[[R, Path], object] = _save,
        read: Callable[[Path], R],
        also: Callable[[], Iterable[Path]] = tuple,
    ) -> R:
        """The record of a stage: read back if it is done with these options, else made, written and noted.

        Args:
            name: of the stage; part of its key.
            uses: options that decide the outcome; together with the stages in `after` they make the key. Default: none.
            after: the stages it follows.
            file: where the record is written, in the run folder.
            make: makes the record.
            write: writes it to a path. Default: its own `save`.
            read: reads it from one.
            also: further files the stage leaves behind, asked for after `make`.

        Returns:
            The record as it is read back from its file.
        """
        options = formats.plain(dict(uses or {}))
        key = self.key(name, options, after)
        if (done := self._done(name, key)) is not None:
            # As this process knows them: what another wrote there must not be signed with the rest.
            self.stages[name] = replace(self.stages[name], uses=options)
            return read(done)
        started = time.monotonic()
        write(make(), file)
        written = [file, *also()]
        self.stages[name] = StageRecord(
            key,
            options,
            tuple(after),
            {p.relative_to(self.path).as_posix(): formats.checksum(p) for p in written},
            round(time.monotonic() - started, 3),
        )
        self.computed.append(name)
        self._write_manifest()
        # Read back, so that a first run and a resumed one go on from the very same record.
        return read(file)

    def key(self, name: str, uses: Any, after: Iterable[str]) -> str:
        """The key of a stage with these plain options; remembered for the stages that follow."""
        content = {"stage": name, "format": KEY_FORMAT, "uses": uses, "after": [self.keys[s] for s in after]}
        self.keys[name] = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:24]
        return self.keys[name]

    def _done(self, name: str, key: str) -> Path | None:
        """Where the record of a stage lies that was made with this key, under the name of that time."""
        record = self.stages.get(name)
        if record is None or record.key != key:
            return None
        paths = {self.path / relative: digest for relative, digest in record.files.items()}
        whole = all(p.is_file() and formats.checksum(p) == digest for p, digest in paths.items())
        return next(iter(paths)) if whole else None

    def _write_manifest(self) -> None:
        manifest = {
            "format": formats.RUN.tag,
            "config": self.config,
            "seed": self.seed,
            "made": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            **vars(environment()),
            "stages": {name: asdict(record) for name, record in self.stages.items()},
        }
        formats.write_json(self.paths.manifest, sign(formats.plain(manifest)))


@dataclass(frozen=True)
class RunEnvironment:
    """What a run was made with."""

    versions: Mapping[str, str]
    """By package."""
    hardware: str
    commit: str | None
    """Of the checkout; None from an installed wheel."""


def environment() -> RunEnvironment:
    """What is needed to run it again: versions, hardware, commit of the checkout if there is one.

    Returns:
        `versions` by package, `hardware` in words, and `commit`, None from an installed wheel.

    Example:
        >>> from confide.store import environment
        >>> "torch" in environment().versions
        True
    """
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return RunEnvironment(
        {"python": platform.python_version(), **versions},
        f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}",
        checkout_commit(Path(__file__).parent.parent),
    )


def checkout_commit(checkout: Path) -> str | None:
    """The commit of this package's own checkout; None from an installed wheel."""
    if not (checkout / ".git").exists():
        return None
    try:
        done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=checkout, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
