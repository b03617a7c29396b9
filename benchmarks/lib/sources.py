"""The data of a grid: datasets, corrupted and out-of-distribution images read once per process, difficulty scores
made once.

`Sources` reads; `prepare` and `keep_task_scores` write what a grid needs before its first cell.

"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.lib.grid import METHODS
from confide import Dataset, Features, Scores, Split, calibrators, data, features, files, pipeline, shift
from confide.checks import InputError
from confide.records import Provenance, default_ids
from confide.store import lock_file
from confide.training import Settings, fit, penultimate

# The data of a grid, read once per process: datasets, difficulty scores, corrupted and out-of-distribution images.

RENAMED: Mapping[str, Mapping[str, str]] = {"tiny32": {"val": "test"}}
"""Tiny-ImageNet's official validation images are its test: the labels of the official test images are not public."""

RESAMPLED = "resampled"
OOD = "foreign"
"""What the files of cells call out-of-distribution images."""
HELD_OUT: Mapping[str, float] = {"tiny32": 1 / 9}
"""Share of the training images that is the test where the official one was shrunk by another filter (2 to 3 times the
power at high frequencies): that one is measured as the split `resampled`, as a shift."""

CORRUPTED_IMAGES = 2000
"""Test images that are corrupted for the networks."""
CORRUPTED_SCORES = "corrupted_bands"
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
            raise InputError(
                f"{kind} of '{name}' must lie at {path}, but it does not; run `python -m benchmarks prepare`"
            )
        return self._once(kind, name, lambda _: Scores.load(path))  # type: ignore[no-any-return]

    def corrupted(self, name: str, device: torch.device) -> Shifted:
        """2,000 test images under each of 16 corruptions x 5 severities."""

        def make(_: str) -> Shifted:
            return shifted_images(spread(self.dataset(name).test, CORRUPTED_IMAGES), device)

        return self._once("corrupted", name, make)  # type: ignore[no-any-return]

    def ood(self, name: str) -> dict[str, Split]:
        """Images of other classes by name, of the size of this dataset's."""
        return self._once("ood", name, lambda _: dict(self._ood_splits(name)))  # type: ignore[no-any-return]

    def _once(self, kind: str, name: str, make: Any) -> Any:
        if (kind, name) not in self._held:
            self._held[kind, name] = make(name)
        return self._held[kind, name]

    def _read(self, name: str) -> Dataset:
        if self.shared and name in self.paths and not has_copy(self.prepared, name):
            with _locked(self.prepared / f"{name}-data.lock"):
                if not has_copy(self.prepared, name):
                    keep_copy(self.prepared, name, self._load(name))
        dataset = _copy(self.prepared, name) if has_copy(self.prepared, name) else self._load(name)
        return _shortened(dataset, self.limit) if self.limit else dataset

    def _load(self, name: str) -> Dataset:
        dataset = data.load_dataset(self.paths.get(name, name), name=name, rename=RENAMED.get(name))
        return _held_out(dataset, HELD_OUT[name]) if name in HELD_OUT else dataset

    def _ood_splits(self, name: str) -> Iterator[tuple[str, Split]]:
        shape = self.dataset(name).test.inputs.shape[1:]
        if name == "cifar10" and ("tiny32" in self.paths or has_copy(self.prepared, "tiny32")):
            pair = shift.ood_pair(name, "tinyimagenet32")
            tiny = self.dataset("tiny32")
            official = replace(tiny, splits={"test": tiny.split(RESAMPLED)})
            yield "tiny32", _unlabelled(shift.ood_split(official, pair))
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
    parts = data.cut(dataset.train, {"test": share}, 0)
    splits = {"train": parts["train"], "val": dataset.val, "test": parts["test"], RESAMPLED: dataset.test}
    cut = {**dataset.provenance.splits, "test": "cut from the training images", RESAMPLED: "the official test"}
    return replace(dataset, splits=splits, provenance=replace(dataset.provenance, splits=cut))


def _unlabelled(split: Split) -> Split:
    """Out-of-distribution samples: their labels are of other classes, and say nothing here."""
    return replace(split, labels=np.zeros(len(split), dtype=np.int64))


def _shuffled(split: Split) -> Split:
    """The same pixels in another order: out-of-distribution images that need no file."""
    pixels = np.asarray(split.inputs)
    order = np.random.default_rng(0).permutation(int(np.prod(pixels.shape[2:])))
    mixed = pixels.reshape(*pixels.shape[:2], -1)[:, :, order].reshape(pixels.shape)
    return Split(mixed, split.labels, np.array([f"shuffled-{sample}" for sample in split.ids]))


def _shortened(dataset: Dataset, limit: int) -> Dataset:
    """Some samples of every split, evenly spread, for trying a grid out."""
    return replace(dataset, splits={name: spread(part, limit) for name, part in dataset.splits.items()})


@contextmanager
def _locked(path: Path) -> Iterator[None]:
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
    return len(splits) > 0 and all(_split_file(folder, name, split).exists() for split in splits)


def _split_file(folder: Path, name: str, split: str) -> Path:
    return folder / f"{name}-data-{split}.npz"


def _copy(folder: Path, name: str) -> Dataset:
    note = files.read_json(folder / f"{name}-data.json")
    splits = {}
    for split in note["splits"]:
        with np.load(_split_file(folder, name, split), allow_pickle=False) as columns:
            splits[split] = Split(columns["inputs"], columns["labels"], columns["ids"])
    return Dataset(name, "image", splits, tuple(note["class_names"]), Provenance.from_dict(note["provenance"]))


def spread(split: Split, n: int) -> Split:
    """At most n samples, evenly spread over the split."""
    return split.take(spread_rows(len(split), n))


def spread_rows(size: int, n: int) -> NDArray[np.int64]:
    """At most n row numbers, evenly spread over so many."""
    return np.unique(np.linspace(0, size - 1, min(n, size)).round().astype(np.int64))


def shifted_images(clean: Split, device: torch.device) -> Shifted:
    """Images under each of 16 corruptions x 5 severities, made on the device."""
    images = torch.from_numpy(np.ascontiguousarray(clean.inputs)).to(device)
    corrupted = {
        f"{word}-{severity}": shift.corrupt(images, word, severity, ids=clean.ids).cpu().numpy()
        for word in shift.names("corruptions")
        for severity in shift.SEVERITIES
    }
    pixels = np.concatenate(list(corrupted.values()))
    return Shifted(tuple(corrupted), Split(pixels, np.tile(clean.labels, len(corrupted)), default_ids(len(pixels))))


def keep_copy(folder: Path, name: str, dataset: Dataset) -> None:
    """The dataset, decoded, as a file per split."""
    files.write_json(
        folder / f"{name}-data.json",
        {
            "class_names": list(dataset.class_names),
            "provenance": dataset.provenance.as_dict(),
            "splits": list(dataset.splits),
        },
    )
    for split, part in dataset.splits.items():
        with files.atomic(_split_file(folder, name, split)) as temporary, open(temporary, "wb") as file:
            np.savez(file, inputs=np.asarray(part.inputs), labels=part.labels, ids=part.ids)


# What a grid needs once: a decoded copy of each dataset, and difficulty scores of all its samples.

SCORE_KINDS: Mapping[str, tuple[str, str | None]] = {
    "difficulty": ("rmd", None),
    "bands": ("rmd", "predicted"),
    "md": ("md", None),
    "kmeans": ("kmeans", None),
}
"""Difficulty scores by the name of their file: the method, and the class that it measures the distance to."""

MOST_CLASSES_ALL_KINDS = 50
"""Up to so many classes all kinds of scores are made, else the first two."""

SEVERITY_IMAGES = 300
"""Test images that are corrupted for the difficulty scores."""


def prepare(sources: Sources, name: str, *, extractor: str) -> dict[str, Any]:
    """Decode a dataset once and score its difficulty once: RMD on an extractor's features, fitted on train."""
    began = time.monotonic()
    dataset = sources.dataset(name)
    if not has_copy(sources.prepared, name):
        keep_copy(sources.prepared, name, dataset)
    missing = [kind for kind in files_of(dataset) if not (sources.prepared / f"{name}-{kind}.parquet").exists()]
    if missing:
        # Corrupted images are scored by the fit on train alone.
        splits = ["train"] if missing == [CORRUPTED_SCORES] else list(dataset.splits)
        rows = {split: _extracted(extractor, dataset.split(split), split) for split in splits}
        if dataset.num_classes <= MOST_CLASSES_ALL_KINDS and dataset.kind == "image" and missing != [CORRUPTED_SCORES]:
            keep_severities(sources, name, rows["train"], extractor)
        if CORRUPTED_SCORES in missing:
            keep_corrupted(sources, name, rows["train"], extractor)
        keep_scores(sources.prepared, name, rows, [kind for kind in missing if kind != CORRUPTED_SCORES])
    scores = sources.scores(name)
    return {
        "dataset": name,
        "sizes": {split: len(part) for split, part in dataset.splits.items()},
        "difficulty": scores.method,
        "extractor": scores.options.get("extractor"),
        "seconds": round(time.monotonic() - began, 1),
    }


def kinds_of(dataset: Dataset) -> tuple[str, ...]:
    """The kinds of scores that are made of all samples of a dataset."""
    return tuple(SCORE_KINDS)[: len(SCORE_KINDS) if dataset.num_classes <= MOST_CLASSES_ALL_KINDS else 2]


def files_of(dataset: Dataset) -> tuple[str, ...]:
    """All kinds of scores of a dataset that have a file; corrupted images are scored where a calibrator goes by it."""
    by_difficulty = any(
        method.here and method.resolved().calibrated.get("by") == calibrators.DIFFICULTY for method in METHODS
    )
    return (*kinds_of(dataset), CORRUPTED_SCORES) if by_difficulty and dataset.kind == "image" else kinds_of(dataset)


def keep_corrupted(sources: Sources, name: str, train: Features, extractor: str) -> None:
    """Difficulty of the corrupted test images, to the likeliest class: what a calibrator may go by under shift."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rows = _extracted(extractor, sources.corrupted(name, device).images, "test")
    fitted = pipeline.fit_difficulty("rmd", train)
    scores = fitted.score(rows, "predicted")
    options = {"extractor": train.extractor, "labels": "predicted"}
    replace(scores, options=options, labels=None).save(sources.prepared / f"{name}-{CORRUPTED_SCORES}.parquet")


def keep_scores(folder: Path, name: str, rows: Mapping[str, Features], kinds: Sequence[str]) -> None:
    """Difficulty of all splits, fitted on the training split, a file per kind."""
    fitted = {word: pipeline.fit_difficulty(word, rows["train"]) for word in {SCORE_KINDS[kind][0] for kind in kinds}}
    for kind in kinds:
        word, labels = SCORE_KINDS[kind]
        values = [fitted[word].score(part, labels).values for part in rows.values()]
        scores = Scores(
            np.concatenate([part.ids for part in rows.values()]),
            np.concatenate(values),
            word,
            {"extractor": rows["train"].extractor, "labels": labels or "given"},
            np.concatenate([part.labels for part in rows.values()]),
        )
        scores.save(folder / f"{name}-{kind}.parquet")


def keep_severities(sources: Sources, name: str, train: Features, extractor: str) -> None:
    """Mean difficulty of corrupted images by severity, and of wrong labels by their share (`label_noise`)."""
    fitted = pipeline.fit_difficulty("rmd", train)
    dataset = sources.dataset(name)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    test = spread(dataset.test, SEVERITY_IMAGES)
    shifted = shifted_images(test, device)
    clean = _extracted(extractor, test, "test")
    rows = _extracted(extractor, shifted.images, "test")
    values = fitted.score(rows).values.reshape(len(shifted.names), len(test))
    levels = [("clean", 0.0, fitted.score(clean).values)]
    for word, difficulties in zip(shifted.names, values, strict=True):
        levels.append((word.rpartition("-")[0], float(word.rpartition("-")[2]), difficulties))
    rng = np.random.default_rng(0)
    for share in (0.1, 0.2, 0.3, 0.4, 0.5):
        other = (test.labels + rng.integers(1, dataset.num_classes, len(test))) % dataset.num_classes
        labels = np.where(rng.random(len(test)) < share, other, test.labels)
        levels.append(("label_noise", share, fitted.score(clean, labels).values))
    files.write_table(
        sources.prepared / f"{name}-severity.parquet",
        {
            "shift": np.array([word for word, _, _ in levels]),
            "severity": np.array([severity for _, severity, _ in levels]),
            "mean": np.array([values.mean() for _, _, values in levels]),
            "deviation": np.array([values.std() for _, _, values in levels]),
            "n": np.array([len(values) for _, _, values in levels]),
        },
    )


def _extracted(word: str, part: Split, split: str) -> Features:
    """Features of a split; the enlarging of small images for EfficientNet happens on the device, a batch at a time."""
    batch_size = 1000 if torch.cuda.is_available() else 50
    if not word.startswith("efficientnet"):
        return features.extract(word, part, split, batch_size=batch_size)
    base = features.create(word)
    side = 224 if word.endswith("lite0") else 260

    def encode(batch: Tensor) -> Tensor:
        large = torch.nn.functional.interpolate(batch.float(), (side, side), mode="bicubic", antialias=True)
        return base.encode((large.clamp(0, 255) - 127) / 128)

    quick = replace(base, prepare=lambda image: torch.from_numpy(np.asarray(image)), encode=encode)
    return features.extract(quick, part, split, batch_size=batch_size)


TASK_SCORE_KINDS = ("task_rmd", "task_loss")


def keep_task_scores(sources: Sources, name: str, settings: Settings) -> list[Path]:
    """Train a network once and write both scores of all splits; what is there stays."""
    paths = [sources.prepared / f"{name}-{kind}.parquet" for kind in TASK_SCORE_KINDS]
    if all(path.exists() for path in paths):
        return paths
    dataset = sources.dataset(name)
    trained = fit(dataset, settings)
    predictions = {split: pipeline.predict(trained, dataset, split) for split in dataset.splits}
    rows = {split: penultimate(trained, dataset, split) for split in dataset.splits}
    fitted = pipeline.fit_difficulty("rmd", rows["train"])
    values = {
        "task_rmd": [fitted.score(part).values for part in rows.values()],
        "task_loss": [part.facts.need("nll").double().numpy() for part in predictions.values()],
    }
    ids = np.concatenate([part.ids for part in rows.values()])
    labels = np.concatenate([part.labels for part in rows.values()])
    for kind, path in zip(TASK_SCORE_KINDS, paths, strict=True):
        about = {"network": settings.model, "epochs": settings.epochs}
        Scores(ids, np.concatenate(values[kind]), kind, about, labels).save(path)
    return paths
