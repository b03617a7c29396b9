"""The data of a grid, read once per process: datasets, difficulty scores, corrupted and foreign images."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from confide import data, shift
from confide.core import files
from confide.core.door import InputError
from confide.core.records import Dataset, Scores, Split, default_ids
from confide.store import lock_file

RENAMED: Mapping[str, Mapping[str, str]] = {"tiny32": {"val": "test"}}
"""Tiny-ImageNet's official validation images are its test: the labels of the official test images are not public."""

RESAMPLED = "resampled"
HELD_OUT: Mapping[str, float] = {"tiny32": 1 / 9}
"""Share of the training images that is the test where the official one was shrunk by another filter (2 to 3 times the
power at high frequencies): that one is measured as the split `resampled`, as a shift."""

SHIFTED = 2000
"""Test images that are corrupted for the networks."""
CORRUPTED = "corrupted_bands"
"""The kind of scores that are the difficulty of those, to the likeliest class."""


@dataclass(frozen=True, eq=False)
class Shifted:
    """The same samples under every corruption in turn, as one split; `names` are those of the corruptions."""

    names: tuple[str, ...]
    images: Split


@dataclass
class Sources:
    """Where the data lies (`paths` by name), what was prepared (`prepared`), and what this process has read.

    With `shared`, the first process to read a dataset leaves a decoded copy for the others.
    """

    paths: Mapping[str, str]
    prepared: Path
    limit: int = 0
    shared: bool = False
    _held: dict[tuple[str, str], Any] = field(default_factory=dict)

    def dataset(self, name: str) -> Dataset:
        """The dataset of that name: the decoded copy where there is one, else from its path or word."""
        return self._once("dataset", name, self._read)  # type: ignore[no-any-return]

    def scores(self, name: str, kind: str = "difficulty") -> Scores:
        """Difficulty of all samples of a dataset: `difficulty` to their label's class, `bands` to the likeliest one."""
        path = self.prepared / f"{name}-{kind}.parquet"
        if not path.exists():
            raise InputError(f"{kind} of '{name}' must lie at {path}, but it does not; run `confide bench prepare`")
        return self._once(kind, name, lambda _: Scores.load(path))  # type: ignore[no-any-return]

    def corrupted(self, name: str, device: torch.device) -> Shifted:
        """2,000 test images under each of 16 corruptions x 5 severities."""

        def make(_: str) -> Shifted:
            return shifted_images(spread(self.dataset(name).test, SHIFTED), device)

        return self._once("corrupted", name, make)  # type: ignore[no-any-return]

    def foreign(self, name: str) -> dict[str, Split]:
        """Images of other classes by name, of the size of this dataset's."""
        return self._once("foreign", name, lambda _: dict(self._foreign(name)))  # type: ignore[no-any-return]

    def _once(self, kind: str, name: str, make: Any) -> Any:
        if (kind, name) not in self._held:
            self._held[kind, name] = make(name)
        return self._held[kind, name]

    def _read(self, name: str) -> Dataset:
        if self.shared and name in self.paths and not has_copy(self.prepared, name):
            with _alone(self.prepared / f"{name}-data.lock"):
                if not has_copy(self.prepared, name):
                    keep_copy(self.prepared, name, self._load(name))
        found = _copy(self.prepared, name) if has_copy(self.prepared, name) else self._load(name)
        return _shortened(found, self.limit) if self.limit else found

    def _load(self, name: str) -> Dataset:
        found = data.load_dataset(self.paths.get(name, name), name=name, rename=RENAMED.get(name))
        return _held_out(found, HELD_OUT[name]) if name in HELD_OUT else found

    def _foreign(self, name: str) -> Iterator[tuple[str, Split]]:
        shape = self.dataset(name).test.inputs.shape[1:]
        if name == "cifar10" and ("tiny32" in self.paths or has_copy(self.prepared, "tiny32")):
            pair = shift.pair_of(name, "tinyimagenet32")
            tiny = self.dataset("tiny32")
            official = replace(tiny, splits={"test": tiny.split(RESAMPLED)})
            yield "tiny32", _unlabelled(shift.foreign_split(official, pair))
        if name == "fashion-sample":
            yield "shuffled", _unlabelled(_shuffled(self.dataset(name).test))
        if "textures" in self.paths:
            columns, _ = files.read_table(self.paths["textures"])
            images = torch.from_numpy(np.ascontiguousarray(columns["images"])).permute(0, 3, 1, 2).float()
            small = torch.nn.functional.interpolate(images, shape[1:], mode="area").round().to(torch.uint8).numpy()
            n = len(small)
            yield "textures", Split(small, np.zeros(n, dtype=np.int64), np.array([f"textures-{i}" for i in range(n)]))


def _held_out(dataset: Dataset, share: float) -> Dataset:
    """A test from the training images; the official one becomes the split `resampled`."""
    parts = data.cut(dataset.train, dataset.num_classes, {"test": share}, 0)
    splits = {"train": parts["train"], "val": dataset.val, "test": parts["test"], RESAMPLED: dataset.test}
    told = {**dataset.provenance, "splits": f"test from the training images, official test as '{RESAMPLED}'"}
    return replace(dataset, splits=splits, provenance=told)


def _unlabelled(split: Split) -> Split:
    """Foreign samples: their labels are of other classes, and say nothing here."""
    return replace(split, labels=np.zeros(len(split), dtype=np.int64))


def _shuffled(split: Split) -> Split:
    """The same pixels in another order: foreign images that need no file."""
    pixels = np.asarray(split.inputs)
    order = np.random.default_rng(0).permutation(int(np.prod(pixels.shape[2:])))
    mixed = pixels.reshape(*pixels.shape[:2], -1)[:, :, order].reshape(pixels.shape)
    return Split(mixed, split.labels, np.array([f"shuffled-{one}" for one in split.ids]))


def _shortened(dataset: Dataset, limit: int) -> Dataset:
    """Some samples of every split, evenly spread, for trying a grid out."""
    return replace(dataset, splits={name: spread(part, limit) for name, part in dataset.splits.items()})


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold the lock, waiting for whoever does; the system frees it when a process dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = None
    while lock is None:
        with suppress(InputError):
            lock = lock_file(path, path.parent)
        if lock is None:
            time.sleep(0.1)
    try:
        yield
    finally:
        lock.close()


def has_copy(folder: Path, name: str) -> bool:
    """Whether a whole decoded copy of a dataset is there."""
    note = folder / f"{name}-data.json"
    splits = files.read_json(note).get("splits", ()) if note.exists() else ()
    return len(splits) > 0 and all(_split_file(folder, name, one).exists() for one in splits)


def _split_file(folder: Path, name: str, split: str) -> Path:
    return folder / f"{name}-data-{split}.npz"


def _copy(folder: Path, name: str) -> Dataset:
    note = files.read_json(folder / f"{name}-data.json")
    splits = {}
    for split in note["splits"]:
        with np.load(_split_file(folder, name, split), allow_pickle=False) as columns:
            splits[split] = Split(columns["inputs"], columns["labels"], columns["ids"])
    return Dataset(name, "image", splits, tuple(note["class_names"]), note["provenance"])


def spread(split: Split, n: int) -> Split:
    """At most n samples, evenly spread over the split."""
    return split.take(np.unique(np.linspace(0, len(split) - 1, min(n, len(split))).round().astype(np.int64)))


def shifted_images(clean: Split, device: torch.device) -> Shifted:
    """Images under each of 16 corruptions x 5 severities, made on the device."""
    images = torch.from_numpy(np.ascontiguousarray(clean.inputs)).to(device)
    made = {
        f"{word}-{severity}": shift.corrupt(images, word, severity, ids=clean.ids).cpu().numpy()
        for word in shift.names("corruptions")
        for severity in shift.SEVERITIES
    }
    pixels = np.concatenate(list(made.values()))
    return Shifted(tuple(made), Split(pixels, np.tile(clean.labels, len(made)), default_ids(len(pixels))))


def keep_copy(folder: Path, name: str, dataset: Dataset) -> None:
    """The dataset, decoded, as a file per split."""
    files.write_json(
        folder / f"{name}-data.json",
        {
            "class_names": list(dataset.class_names),
            "provenance": dict(dataset.provenance),
            "splits": list(dataset.splits),
        },
    )
    for split, part in dataset.splits.items():
        with files.atomic(_split_file(folder, name, split)) as temporary, open(temporary, "wb") as file:
            np.savez(file, inputs=np.asarray(part.inputs), labels=part.labels, ids=part.ids)
