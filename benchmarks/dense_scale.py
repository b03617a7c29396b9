"""Evaluation and calibration of segmented images that are made on the fly: 500 of 1024 x 2048 pixels and 19 classes.

The images are made so that the truth is known: labels are drawn from softmax(z) in blocks of 64 x 64 pixels, and the
model says 1.5 z, so that the right temperature is 1.5. Each worker counts a range of the images and keeps its sketch in
--state after every few; the same command goes on from there, also after --minutes.

python -m benchmarks.dense_scale --images 500 --state dense-state --out benchmarks/results/dense.md
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch

import confide
from confide import scale
from confide.evaluation import Sketch, evaluate_sketch

CLASSES, HEIGHT, WIDTH, BLOCK, SURE = 19, 1024, 2048, 64, 1.5
BANDS = (2.0, 8.0)
KEEP_EVERY = 10
HARDWARE = "two cores of an AMD EPYC"
WORDS = ("accuracy", "confidence_gap", "nll", "ece", "auroc", "aurc")


class Images:
    """Images by number, the same at every call."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        rng = np.random.default_rng((seed, 0))
        self.texture = rng.standard_normal((CLASSES, HEIGHT, WIDTH), dtype=np.float32)
        self.texture *= np.float32(0.3)

    def image(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Logits `c h w` of a model that is too sure, and labels `h w` with a border that does not count."""
        rng = np.random.default_rng((self.seed, 1 + number))
        coarse = rng.standard_normal((CLASSES, HEIGHT // BLOCK, WIDTH // BLOCK), dtype=np.float32)
        coarse *= np.float32(2.5 * rng.gamma(8, 1 / 8))  # some images are easier than others
        roll = int(rng.integers(WIDTH))
        shared = rng.random((HEIGHT // BLOCK, WIDTH // BLOCK), dtype=np.float32).repeat(BLOCK, axis=1)
        wide = coarse.repeat(BLOCK, axis=2)
        logits, labels = np.empty_like(self.texture), np.zeros((HEIGHT, WIDTH), dtype=np.uint8)
        for block in range(HEIGHT // BLOCK):  # strips that stay in the cache
            rows = slice(BLOCK * block, BLOCK * (block + 1))
            strip, own = logits[:, rows], labels[rows]
            strip[:, :, roll:] = self.texture[:, rows, : WIDTH - roll]
            strip[:, :, :roll] = self.texture[:, rows, WIDTH - roll :]
            strip += wide[:, block, None]
            weights = np.exp(strip)
            below = shared[block] * weights.sum(axis=0)
            total = np.zeros_like(below)
            for k in range(CLASSES - 1):
                total += weights[k]
                own += total < below
        labels[:8] = labels[-8:] = 255
        logits *= np.float32(SURE)
        return logits, labels

    def predictions(self, first: int, last: int) -> Iterator[confide.Predictions]:
        """The pixels of one image after the other."""
        for number in range(first, last):
            logits, labels = self.image(number)
            yield from confide.dense.image_predictions([logits], [labels], ids=[number], boundary=BANDS)


def softmax_seconds(images: Images) -> float:
    """CPU seconds of one softmax over the pixels of one image, row by row."""
    rows = torch.from_numpy(images.image(0)[0]).reshape(CLASSES, -1).T.contiguous()
    start = time.process_time()
    torch.softmax(rows, dim=1)
    return time.process_time() - start


def memory() -> float:
    """The largest memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@dataclass
class Spent:
    """What a worker took so far; `memory` is its largest, in MB, by the number of images in its sketch."""

    images: int = 0
    make: float = 0.0
    count: float = 0.0
    memory: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ImageRange:
    """Images that one worker counts into one sketch, beside which it keeps what that took."""

    first: int
    last: int
    seed: int
    minutes: float
    sketch: str

    def spent(self) -> Spent:
        """What it took so far."""
        log = Path(self.sketch + ".json")
        return Spent(**json.loads(log.read_text(encoding="utf-8"))) if log.exists() else Spent()


def count(own: ImageRange) -> None:
    """Continue the sketch of a range from what is kept, until the time is over."""
    images, spent, until = Images(own.seed), own.spent(), time.monotonic() + 60 * own.minutes
    before = max(spent.memory.values(), default=0.0)  # of an earlier process
    sketch = Sketch.load(own.sketch) if spent.images else Sketch(by=("boundary",))
    for k in range(own.first + spent.images, own.last):
        start = time.process_time()
        logits, labels = images.image(k)
        ready = time.process_time()
        for shard in confide.dense.image_predictions([logits], [labels], ids=[k], boundary=BANDS):
            sketch.add(shard)
        spent.make += ready - start
        spent.count += time.process_time() - ready
        spent.images += 1
        if spent.images % KEEP_EVERY == 0 or k + 1 == own.last:
            spent.memory[str(spent.images)] = max(before, memory())
            sketch.save(own.sketch)
            Path(own.sketch + ".json").write_text(json.dumps(asdict(spent)), encoding="utf-8")
            print(f"{k + 1}: {spent.count / spent.images:.2f} s to count an image, {memory():.0f} MB", flush=True)
            if time.monotonic() > until:
                return


def count_all(number: int, workers: int, seed: int, minutes: float, state: Path) -> tuple[Sketch, list[Spent]]:
    """The sketch of all images, shared by workers."""
    edges = np.linspace(0, number, workers + 1).astype(int).tolist()
    names = [str(state.resolve() / f"sketch{k}.npz") for k in range(workers)]
    ranges = [
        ImageRange(first, last, seed, minutes, name) for first, last, name in zip(edges, edges[1:], names, strict=False)
    ]
    scale.map_items(count, ranges, engine="local", workers=workers, what="count images")
    spent = [own.spent() for own in ranges]
    done = sum(own.images for own in spent)
    if done < number:
        raise SystemExit(f"{done} of {number} images are counted; the same command goes on")
    sketch = Sketch()
    for own in ranges:
        sketch.merge(Sketch.load(own.sketch))
    return sketch, spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--fit", type=int, default=20, help="further images that calibrators are fitted on")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop counting after so many; go on later")
    parser.add_argument("--state", required=True, help="a folder for what was counted so far")
    parser.add_argument("--out", default="benchmarks/results/dense.md")
    args = parser.parse_args()
    images, state = Images(args.seed), Path(args.state)
    state.mkdir(parents=True, exist_ok=True)

    sketch, spent = count_all(args.images, args.workers, args.seed, args.minutes, state)

    def held_out() -> Iterator[confide.Predictions]:
        return (shard.replace(split="val") for shard in images.predictions(10_000, 10_000 + args.fit))

    if not (state / "fits.json").exists():
        fits: dict[str, dict[str, float]] = {}
        for word, exact in (("temperature", False), ("temperature", True), ("vector", False), ("isotonic", False)):
            start = time.process_time()
            calibrator = confide.calibrators.fit_stream(word, held_out, exact=exact)
            name = f"{word}, all pixels" if exact else f"{word}, {calibrator.n:,} pixels"
            calibrator.save(state / f"{len(fits)}.json")
            fits[name] = {"seconds": time.process_time() - start, "memory": memory()}
            fits[name]["temperature"] = calibrator.temperature if word == "temperature" else 0.0
            print(name, fits[name], flush=True)
        (state / "fits.json").write_text(json.dumps(fits))
    fits = json.loads((state / "fits.json").read_text())
    start = time.process_time()
    evaluation = evaluate_sketch(sketch, [*WORDS, "classwise_ece"])
    evaluated, merging = time.process_time() - start, memory()
    if not (state / "calibrated.json").exists():
        gaps = {}
        for k, name in enumerate(fits):
            calibrator = confide.calibrators.load(state / f"{k}.json")
            moved = confide.evaluation.sketch_of(calibrator(p) for p in images.predictions(0, 4))
            gaps[name] = evaluate_sketch(moved, ["ece"], False).value("ece")
        gaps["none"] = evaluate_sketch(confide.evaluation.sketch_of(images.predictions(0, 4)), ["ece"], False).value(
            "ece"
        )
        (state / "calibrated.json").write_text(json.dumps(gaps))
    gaps = json.loads((state / "calibrated.json").read_text())
    n, make, counted = args.images, sum(own.make for own in spent), sum(own.count for own in spent)
    memory_by_images = spent[0].memory
    marks = [k for k in memory_by_images if int(k) in (20, 50, 100, 150, 200, 250, 300, 400, spent[0].images)]
    lines = [
        "# Segmented images in streams",
        "",
        f"{n} images of {HEIGHT} x {WIDTH} pixels and {CLASSES} classes, {sketch.rows:,} pixels that count, made on "
        f"the fly (all together {n * CLASSES * HEIGHT * WIDTH * 4 / 1e9:.0f} GB of logits); no real ones. "
        f"{args.workers} processes of one thread, on {HARDWARE}.",
        "",
        f"Made in {make:.0f} s of CPU ({make / n:.2f} s an image), counted in {counted:.0f} s ({counted / n:.2f} s an "
        f"image, of which a softmax alone takes {softmax_seconds(images):.2f} s), merged and evaluated in "
        f"{evaluated:.1f} s. Largest memory of a process, of which one image's logits and the texture that images are "
        f"made of are {2 * CLASSES * HEIGHT * WIDTH * 4 / 2**20:.0f} MB: "
        + ", ".join(f"{memory_by_images[k]:.0f} MB after {k} images" for k in marks)
        + f"; of the one that merges and evaluates {merging:.0f} MB.",
        "",
        "| pixels | n | " + " | ".join(WORDS) + " |",
        "|---" * (len(WORDS) + 2) + "|",
    ]
    for group in (None, *sorted(sketch.groups)):
        rows = {m.metric: m for m in evaluation.measurements if m.group == group}
        cells = [f"{rows[w].value:.4f} ({rows[w].low:.4f} to {rows[w].high:.4f})" for w in WORDS]
        lines.append(f"| {group or 'all'} | {rows['ece'].n:,} | " + " | ".join(cells) + " |")
    notes = {m.metric: m.note for m in evaluation.measurements if m.group is None and m.note}
    lines += [
        "",
        "In brackets the 95 % interval, by images. "
        + "; ".join(f"{word}: {note}" for word, note in notes.items())
        + ".",
        "",
        f"Calibrators fitted in streams on {args.fit} other images of {args.fit * (HEIGHT - 16) * WIDTH:,} pixels that "
        f"count (the right temperature is {SURE}), and ECE on 4 of the images above:",
        "",
        "| fit | CPU, s | memory at most, MB | temperature | ECE |",
        "|---|---|---|---|---|",
        f"| none | | | | {gaps['none']:.4f} |",
    ]
    for name, own in fits.items():
        degree = f"{own['temperature']:.5f}" if own["temperature"] else ""
        lines.append(f"| {name} | {own['seconds']:.0f} | {own['memory']:.0f} | {degree} | {gaps[name]:.4f} |")
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    lines += [
        "",
        f"`python -m benchmarks.dense_scale --images {args.images} --fit {args.fit} --seed {args.seed} --workers "
        f"{args.workers} --state FOLDER`, commit {commit}.",
    ]
    Path(args.out).write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
