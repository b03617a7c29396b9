"""What a grid found, read back by dataset, network, method and seed; and packed into archives that carry it
elsewhere.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.lib.cells import CELL, read_predictions
from benchmarks.lib.grid import Cell, lite_cells
from benchmarks.lib.titles import scaled
from benchmarks.lib.values import Value
from confide import Predictions, Scores, files
from confide.checks import InputError

# What a grid found, read back: result files and predictions by dataset, network, method and seed.

CALIBRATED = "calibrated"
"""The stage after each method's own calibrator: temperature, but for a recipe with another."""

ROUNDING_SETTINGS = ("compile", "graph")
"""Settings that change the rounding of a training, no more."""

Result = Mapping[str, Any]


@dataclass(frozen=True)
class Results:
    """The whole cells of one or more folders; `prepared` holds the difficulty scores.

    With `models`, what is asked for without a network is that of one of these: a table must not mix networks.
    """

    folders: tuple[Path, ...]
    prepared: Path
    models: tuple[str, ...] = ()

    @cached_property
    def cells(self) -> dict[str, tuple[Path, Result]]:
        """Every cell by name, with its folder; a later folder wins, and stale cells count as not there."""
        cells: dict[str, tuple[Path, Result]] = {}
        for folder in self.folders:
            for path in sorted((folder / "cells").glob("*.json")):
                result = files.read_json(path)
                CELL.check(result.get("format") if isinstance(result, dict) else None, path)
                if not is_stale(result):
                    cells[str(result["name"])] = (folder, result)
        return cells

    def check_alike(self) -> None:
        """All cells of a dataset and network must have been trained alike, or their table would compare schedules."""
        seen: dict[tuple[str, str], tuple[str, Any]] = {}
        for name, (_, result) in self.cells.items():
            cell = result["cell"]
            own = {word: value for word, value in cell["settings"].items() if word not in ROUNDING_SETTINGS}
            first, settings = seen.setdefault((cell["dataset"], cell["model"]), (name, own))
            if own != settings:
                raise InputError(
                    f"cells of one table must be trained alike, but '{first}' has {settings} and '{name}' {own}; make "
                    "one of them again, or move it away"
                )

    def of(self, dataset: str, method: str, model: str | None = None) -> dict[int, Result]:
        """The results of a method by seed; of one network, which must be named where there are cells of several."""
        by_seed: dict[int, Result] = {}
        for _, result in self.cells.values():
            cell = result["cell"]
            same = cell["dataset"] == dataset and cell["method"]["name"] == method
            same_network = cell["model"] == model if model else not self.models or cell["model"] in self.models
            if not (same and same_network):
                continue
            other = by_seed.setdefault(int(cell["seed"]), result)["cell"]["model"]
            if other != cell["model"]:
                raise InputError(
                    f"'{method}' on '{dataset}' has cells of {other} and of {cell['model']}; name one of the networks"
                )
        return dict(sorted(by_seed.items()))

    def predictions(self, result: Result, split: str = "test") -> Predictions:
        """The predictions of a cell."""
        return read_predictions(self.path(result), split)

    def path(self, result: Result) -> Path:
        """The predictions' file of a cell."""
        name = str(result["name"])
        path = self.cells[name][0] / "predictions" / f"{name}.npz"
        if not path.exists():
            raise InputError(f"predictions of '{name}' must lie at {path}, but they do not; unpack the archive again")
        return path

    def scores(self, dataset: str, kind: str = "difficulty") -> Scores | None:
        """Difficulty scores, where they are there."""
        path = self.prepared / f"{dataset}-{kind}.parquet"
        return Scores.load(path) if path.exists() else None

    def split_scores(self, result: Result, kind: str = "difficulty", split: str = "test") -> NDArray[np.float64] | None:
        """Difficulty of a split's samples of a cell, None where it is not there or of a dataset of another size.

        The scores of all splits lie one after the other; behind the test samples there may be further splits.
        """
        name, sizes = str(result["cell"]["dataset"]), dict(result["split"]["sizes"])
        scores = self.scores(name, kind)
        if scores is None or len(scores) != sum(sizes.values()):
            return None
        splits = list(sizes)
        start = sum(sizes[earlier] for earlier in splits[: splits.index(split)])
        rows = slice(start, start + sizes[split])
        labels = self.predictions(result, split).labels.cpu().numpy()
        if scores.labels is not None and not np.array_equal(scores.labels[rows], labels):
            raise InputError(
                f"{kind} scores of '{name}' must have the labels of the {split} samples of '{result['name']}', but "
                "they differ; run `python -m benchmarks prepare` again"
            )
        return scores.values[rows]


@lru_cache
def _planned() -> dict[str, Cell]:
    return {cell.name: cell for cell in lite_cells()}


def is_stale(result: Result) -> bool:
    """Whether a cell of the grid was made when its method was another: its loss, options, scores or calibrator."""
    name = str(result.get("name"))
    if name not in _planned() or "key" not in result:
        return False
    keys = _keys_of(name, json.dumps(result["cell"]["settings"], sort_keys=True))
    return bool(keys) and result["key"] not in keys


@cache
def _keys_of(name: str, settings: str) -> tuple[str, ...]:
    """The keys of a planned cell, trained with these settings; kept, for every item looks at every cell."""
    return replace(_planned()[name], settings=json.loads(settings)).keys


def stage_of(result: Result, stage: str) -> str:
    """The name of a stage in a cell's numbers: `calibrated` is that of the method's own calibrator."""
    return str(result["method"]["calibrator"]) if stage == CALIBRATED else stage


def measured(
    results: Results,
    datasets: Sequence[str],
    methods: Iterable[str],
    metrics: Sequence[str],
    stages: Sequence[str] = ("raw",),
    model: str | None = None,
) -> list[Value]:
    """Values of metrics on clean test data; after a calibrator the quantity reads "ece, temperature"."""
    values = []
    names = list(methods)
    for dataset in datasets:
        for method in names:
            for seed, result in results.of(dataset, method, model).items():
                for stage in stages:
                    row = result["measured"].get(stage_of(result, stage), {})
                    values += [
                        Value(
                            dataset,
                            method,
                            metric if stage == "raw" else f"{metric}, {stage}",
                            seed,
                            scaled(metric, row[metric]),
                        )
                        for metric in metrics
                        if row.get(metric) is not None
                    ]
    return values


# A grid's results as one archive, to carry them between machines, and back into a folder.

CARRIED = ("cells/*.json", "errors/*.json", "predictions/*.npz", "prepared*/*.parquet", "trust/*.json")
LARGEST = 15 << 20
"""Bytes of one archive: more goes into a next one."""


def pack(folder: Path, target: Path, *, largest: int = LARGEST) -> list[Path]:
    """Write `target.tar`, and `target-2.tar` and so on where one would be too large; returns the archives."""
    paths = [path for pattern in CARRIED for path in sorted(folder.glob(pattern))]
    if not paths:
        raise InputError(f"{folder} must hold cells of a grid, but there are none; run it first")
    groups: list[list[Path]] = [[]]
    size = 0
    for path in paths:
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
