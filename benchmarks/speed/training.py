"""How fast training is: on a GPU with CIFAR-10 against a plain loop, on the CPU against a hand-written one.

    python -m benchmarks.speed.training cpu
    python -m benchmarks.speed.training gpu [--cifar FOLDER] [--models resnet18 resnet34] [--losses ...]
    python -m benchmarks.speed.training accuracy --cifar FOLDER

`FOLDER` holds CIFAR-10 as its official binary archive unpacks; without it `gpu` trains on noise of the same shape.
"""

from __future__ import annotations

import argparse
import math
import platform
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as functional

from confide import Dataset, Scores, Split, metrics, models
from confide.data import load_dataset
from confide.progress import Progress
from confide.training import Settings, fit, predict

LOSSES: dict[str, dict[str, Any]] = {
    "cross_entropy": {},
    "adafocal": {},
    "difficulty_entropy": {"alpha": 0.6},
    "selective_au": {},
    "crl": {},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=("cpu", "gpu", "accuracy"))
    parser.add_argument("--cifar", type=Path, default=None)
    parser.add_argument("--models", nargs="+", default=["resnet18", "resnet34"])
    parser.add_argument("--losses", nargs="+", default=list(LOSSES))
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=1, help="trainings of `accuracy`")
    args = parser.parse_args()
    Progress.quiet = True
    if args.mode == "cpu":
        cpu(args.repeats)
        return
    if args.cifar is None and args.mode == "accuracy":
        parser.error("--cifar FOLDER is needed: CIFAR-10 in the layout of its binary archive")
    dataset = load_dataset(str(args.cifar), val_fraction=0.1) if args.cifar else synthetic()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {dataset.name}, {len(dataset.train)} images\n")
    if args.mode == "gpu":
        gpu(dataset, args)
    else:
        accuracy(dataset, args)


def synthetic() -> Dataset:
    """Noise of CIFAR-10's shape and sizes: as fast to train on, not to learn."""
    generator = np.random.default_rng(0)

    def split(n: int) -> Split:
        images = generator.integers(0, 256, (n, 3, 32, 32), dtype=np.uint8)
        return Split(images, generator.integers(0, 10, n), np.arange(n))

    splits = {"train": split(45_000), "val": split(5_000), "test": split(10_000)}
    return Dataset("synthetic", "image", splits, tuple(map(str, range(10))))


def gpu(dataset: Dataset, args: argparse.Namespace) -> None:
    """Seconds an epoch: the plain loop, then every loss; the first epoch (capture, tuning) is left out."""
    scores = Scores(dataset.train.ids, np.linspace(-5, 50, len(dataset.train)), "rmd")
    print("| model | loss | epoch s | validation s | step ms | over cross_entropy | notes |")
    print("|---|---|---|---|---|---|---|")
    for model in args.models:
        plain = plain_epoch(dataset, model, args.batch_size)
        steps = math.ceil(len(dataset.train) / args.batch_size)
        print(f"| {model} | plain eager loop | {plain:.2f} | - | {1e3 * plain / steps:.2f} | - | |", flush=True)
        base = None
        for loss in args.losses:
            settings = Settings(
                model=model,
                loss=loss,
                loss_options=LOSSES.get(loss, {}),
                epochs=args.epochs,
                batch_size=args.batch_size,
                augment="crop_flip",
                device="cuda",
            )
            trained = fit(dataset, settings, scores=scores)
            train = statistics.median(trained.timings["train_seconds"][1:])
            val = statistics.median(trained.timings["val_seconds"][1:])
            whole = train + val
            base = base or whole
            notes = "; ".join(trained.notes)
            cells = (f"{whole:.2f}", f"{val:.3f}", f"{1e3 * train / steps:.2f}", f"{whole / base:.3f}", notes)
            print(f"| {model} | {loss} | {' | '.join(cells)} |", flush=True)


def plain_epoch(dataset: Dataset, word: str, batch_size: int) -> float:
    """An eager bfloat16 channels-last loop on resident images without augmentation, as one writes it by hand."""
    device = torch.device("cuda")
    images = torch.from_numpy(np.ascontiguousarray(dataset.train.inputs)).to(device)
    labels = torch.from_numpy(dataset.train.labels).to(device)
    model = models.create(word, tuple(images.shape[1:]), dataset.num_classes).to(device)
    model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, fused=True)
    took = []
    for _ in range(3):
        torch.cuda.synchronize()
        began = time.perf_counter()
        order = torch.randperm(len(images), device=device)
        for rows in order.split(batch_size):
            inputs = images[rows].float().div_(255).contiguous(memory_format=torch.channels_last)
            with torch.autocast("cuda", torch.bfloat16):
                logits = model(inputs)
            loss = functional.cross_entropy(logits.float(), labels[rows])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        torch.cuda.synchronize()
        took.append(time.perf_counter() - began)
    return min(took)


def accuracy(dataset: Dataset, args: argparse.Namespace) -> None:
    """Test accuracy of ResNet-18 with cross-entropy within a minute of training; large batches give the most epochs."""
    epochs = args.epochs if args.epochs > 5 else 60
    for seed in range(args.seeds):
        settings = Settings(
            model="resnet18",
            epochs=epochs,
            batch_size=512,
            learning_rate=0.4,
            nesterov=True,
            weight_decay=5e-4,
            augment="crop_flip",
            seed=seed,
            device="cuda",
        )
        began = time.perf_counter()
        trained = fit(dataset, settings)
        wall = time.perf_counter() - began
        predictions = predict(trained, dataset, "test")
        measured = metrics.measure_many(predictions, ["accuracy", "ece"])
        train = float(trained.timings["train_seconds"].sum())
        print(
            f"resnet18, cross_entropy, {epochs} epochs of batch 512, seed {seed}: "
            f"accuracy {100 * measured['accuracy']:.2f} %, ECE {100 * measured['ece']:.2f} %; "
            f"training {train:.1f} s, with validation and set-up {wall:.1f} s"
        )


def cpu(repeats: int) -> None:
    """The loop against hand-written ones, one thread, CPU time, epochs of all in turn; the median of the ratios."""
    torch.set_num_threads(1)
    dataset = load_dataset("fashion-sample")
    settings = Settings(epochs=1, device="cpu")
    formats = {"torch's own order": torch.contiguous_format, "channels last, batch norms inexact": torch.channels_last}
    ours: list[float] = []
    theirs: dict[str, list[float]] = {name: [] for name in formats}
    for _ in range(repeats):
        for name, memory_format in formats.items():
            theirs[name].append(hand_written(dataset, memory_format))
        began = time.process_time()
        fit(dataset, settings)
        ours.append(time.process_time() - began)
    print(f"{platform.processor() or platform.machine()}, one thread, torch {torch.__version__}\n")
    print("| small_cnn, 8,000 images, one epoch with validation | CPU s | fit over it: median (least, largest) |")
    print(f"|---|---|---|\n| confide.training.fit | {statistics.median(ours):.2f} | |")
    for name, seconds in theirs.items():
        ratios = sorted(mine / hand for mine, hand in zip(ours, seconds, strict=True))
        ratio_text = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}, {ratios[-1]:.2f})"
        print(f"| hand-written, {name} | {statistics.median(seconds):.2f} | {ratio_text} |")


def hand_written(dataset: Dataset, memory_format: torch.memory_format) -> float:
    """CPU seconds of the shortest honest loop: set-up, shuffle, one-cycle, one pass over val."""
    began = time.process_time()
    torch.manual_seed(0)
    images, labels = torch.from_numpy(dataset.train.inputs).float(), torch.from_numpy(dataset.train.labels)
    mean, std = images.mean(), images.std()
    images = (images - mean) / std
    model = models.create("small_cnn", (1, 28, 28), 10).to(memory_format=memory_format)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, fused=True)
    steps = math.ceil(len(images) / 128)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=steps + 1, cycle_momentum=False)
    for rows in torch.randperm(len(images)).split(128):
        loss = functional.cross_entropy(model(images[rows]), labels[rows])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        scheduler.step()
    model.eval()
    with torch.no_grad():
        val = (torch.from_numpy(dataset.val.inputs).float() - mean) / std
        logits = torch.cat([model(part) for part in val.split(1000)])
        functional.cross_entropy(logits, torch.from_numpy(dataset.val.labels))
        (logits.argmax(dim=1) == torch.from_numpy(dataset.val.labels)).float().mean()
    return time.process_time() - began


if __name__ == "__main__":
    main()
