"""What a GPU is asked for in little time: losses of small batches, and the evaluation of logits that live on it.

    python -m benchmarks.speed.gpu FOLDER                   both; under 90 s on an H200
    python -m benchmarks.speed.gpu FOLDER --only evaluate   evaluate.md, evaluate_profile.txt; exits 1 if values differ
    python -m benchmarks.speed.gpu FOLDER --only losses     losses_small.md
    python -m benchmarks.speed.gpu FOLDER --only shapes     shapes.md: the pass by rows and warps of a tile

Losses: eager, forward + backward, every per-sample loss against the plain torch formula of the same loss (asked: at
most 1.15 x). Evaluation at 1,000,000 x 1000: the pass over the logits against one read of them (a sum; asked: at most
3 x), and `confide.evaluate(..., intervals=False)` as a whole (asked: at most 30 ms). Before that every measurement,
curve and per-sample fact of the device is compared with the host's of the same logits.
"""

from __future__ import annotations

import argparse
import functools
import math
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

import confide
from benchmarks.speed.losses import heading
from benchmarks.speed.small_batches import table
from confide.facts import ClassCounter, facts_of


def milliseconds(work: Callable[[], object], rounds: int) -> float:
    """The median wall time, until the device is done; the first calls compile and fill the caches."""
    times = []
    for _ in range(rounds + 2):
        torch.cuda.synchronize()
        began = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - began))
    return statistics.median(times[2:])


def simulated(n: int, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Overconfident logits, made on the device."""
    generator = torch.Generator("cuda").manual_seed(0)
    logits = torch.randn(n, classes, generator=generator, device="cuda")
    labels = torch.randint(0, classes, (n,), generator=generator, device="cuda")
    logits[torch.arange(n, device="cuda"), labels] += 9 * torch.rand(n, generator=generator, device="cuda")
    return logits.mul_(1.5), labels


def device_milliseconds(work: Callable[[], object], rounds: int) -> float:
    """The median time on the device alone, between two events."""
    work()
    times = []
    for _ in range(rounds):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        work()
        last.record()
        torch.cuda.synchronize()
        times.append(first.elapsed_time(last))
    return float(statistics.median(times))


def kernel_pass(logits: torch.Tensor, labels: torch.Tensor) -> Callable[[], object]:
    """The kernel of the pass by itself."""
    from confide.simplex.sample_facts import sample_facts

    edges = torch.linspace(0, 1, 16, device="cuda")
    return lambda: sample_facts(logits, labels, edges, None)


def evaluation_row(n: int, classes: int, rounds: int) -> str:
    logits, labels = simulated(n, classes)
    read = device_milliseconds(logits.sum, rounds)
    kernel = device_milliseconds(kernel_pass(logits, labels), rounds)
    facts = milliseconds(lambda: facts_of(logits, labels, counter=ClassCounter(classes, 15, "right")), rounds)
    call = milliseconds(lambda: confide.evaluate(confide.Predictions(logits, labels), intervals=False), rounds)
    row = f"| {n:,} x {classes} | {read:.2f} | {kernel:.2f} | {kernel / read:.2f} | {facts:.1f} | {call:.1f} |"
    print(row, flush=True)
    return row


CHECKED = (
    (20_000, 100, torch.float32, False),
    (5_000, 1000, torch.float32, False),
    (5_000, 1000, torch.bfloat16, False),
    (20_000, 10, torch.float32, True),
)
"""Rows, classes, type of the logits and whether samples have weights."""
ALLOWED = {"measurements": 2e-4, "curves": 5e-3, "facts": 2e-5}
"""Facts differ by the order of float32 sums; that may carry a sample over a bin's edge, or swap two ranks."""


def differences(n: int, classes: int, kind: torch.dtype, weighted: bool) -> dict[str, float]:
    """What lies furthest from the host's figure on the same logits, of measurements, curves and facts."""
    logits, labels = simulated(n, classes)
    weights = torch.linspace(0.5, 2.0, n) if weighted else None
    there = confide.Predictions(logits.to(kind), labels, weights=weights)
    here = confide.Predictions(logits.to(kind).cpu(), labels.cpu(), weights=weights)
    theirs, known = (confide.evaluate(record, intervals=False) for record in (there, here))
    columns = [
        (pair[0].columns[name], pair[1].columns[name])
        for pair in zip(theirs.curves, known.curves, strict=True)
        for name in pair[1].columns
    ]
    vectors = ("confidence", "entropy", "margin", "p_true", "nll", "brier", "max_logit", "energy")
    return {
        "measurements": max(
            _apart([a.value], [b.value]) for a, b in zip(theirs.measurements, known.measurements, strict=True)
        ),
        "curves": max(_apart(a, b) for a, b in columns),
        "facts": max(_apart(getattr(there.facts, v).cpu(), getattr(here.facts, v)) for v in vectors),
    }


def _apart(value: object, known: object) -> float:
    """The largest difference, relative to 1 or to the value where that is larger; infinite where one is unknown."""
    a, b = (torch.as_tensor(values, dtype=torch.float64) for values in (value, known))
    if a.shape != b.shape or not torch.equal(a.isnan(), b.isnan()):
        return math.inf
    return float(((a - b).abs() / b.abs().clamp_min(1.0)).nan_to_num(0.0).max()) if a.numel() else 0.0


def agreement_table() -> tuple[list[str], bool]:
    """Rows of the largest differences, and whether all are small."""
    lines = ["| size | logits | weights | measurements | curves | facts |", "|" + "---|" * 6]
    alike = True
    for n, classes, kind, weighted in CHECKED:
        apart = differences(n, classes, kind, weighted)
        alike &= all(value <= ALLOWED[name] for name, value in apart.items())
        cells = (f"{n:,} x {classes}", str(kind).removeprefix("torch."), "yes" if weighted else "no")
        lines.append(f"| {' | '.join((*cells, *(f'{value:.1e}' for value in apart.values())))} |")
        print(lines[-1], flush=True)
    return lines, alike


def _fixed_shape(shape: tuple[int, int], block: int) -> tuple[int, int]:
    return shape


def shape_lines(rounds: int) -> list[str]:
    """The kernel at 1,000,000 x 1000 and x 100 by the shape of a tile, and without the sums by class."""
    from confide.simplex import sample_facts as kernel

    lines = ["| size | rows | warps | programs | ms | without class sums | one read |", "|" + "---|" * 7]
    own, programs = kernel.tile_shape, kernel.PROGRAMS
    for classes, shapes in ((1000, ((2, 4), (1, 4), (1, 2), (1, 1), (2, 2))), (100, ((16, 4), (8, 4), (8, 1), (4, 1)))):
        logits, labels = simulated(1_000_000, classes)
        read = device_milliseconds(logits.sum, rounds)
        edges = torch.linspace(0, 1, 16, device="cuda")
        for shape in shapes:
            setattr(kernel, "tile_shape", functools.partial(_fixed_shape, shape))  # noqa: B010
            for kernel.PROGRAMS in (16, 32):
                whole, bare = (
                    device_milliseconds(functools.partial(kernel.sample_facts, logits, labels, e, None), rounds)
                    for e in (edges, None)
                )
                numbers = f"{whole:.2f} | {bare:.2f} | {read:.2f}"
                lines.append(f"| 1,000,000 x {classes} | {shape[0]} | {shape[1]} | {kernel.PROGRAMS} | {numbers} |")
                print(lines[-1], flush=True)
    setattr(kernel, "tile_shape", own)  # noqa: B010
    kernel.PROGRAMS = programs
    return lines


def where_time_goes(n: int, classes: int) -> str:
    """The functions in which one whole call spends its time."""
    import cProfile
    import io
    import pstats

    logits, labels = simulated(n, classes)
    confide.evaluate(confide.Predictions(logits, labels), intervals=False)
    profile, text = cProfile.Profile(), io.StringIO()
    profile.enable()
    confide.evaluate(confide.Predictions(logits, labels), intervals=False)
    profile.disable()
    pstats.Stats(profile, stream=text).strip_dirs().sort_stats("tottime").print_stats(25)
    return text.getvalue()


def evaluate_page(folder: Path, rounds: int) -> bool:
    """Writes the page; whether the values are those of the host."""
    command = "python -m benchmarks.speed.gpu FOLDER --only evaluate"
    lines = heading("cuda", command, "Device times between two events; the others wall times until the device is done.")
    lines[0] = "# Evaluation of logits that live on a GPU, without intervals\n"
    checked, alike = agreement_table()
    lines += [
        "",
        "Largest differences to the host on the same logits, relative to 1 or the value if that is larger:",
        "",
    ]
    lines += [*checked, ""]
    lines += [
        "| size | one read, ms | kernel, ms | x read | pass with its sums, ms | whole call, ms |",
        "|" + "---|" * 6,
    ]
    lines += [evaluation_row(n, c, rounds) for n, c in ((1_000_000, 1000), (1_000_000, 100), (50_000, 1000))]
    (folder / "evaluate.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "evaluate_profile.txt").write_text(where_time_goes(1_000_000, 1000), encoding="utf-8")
    print("values agree" if alike else f"VALUES DIFFER by more than {ALLOWED}", flush=True)
    return alike


def losses_page(folder: Path, rounds: int) -> None:
    ratios = "Ratios are to the plain torch formula of the same loss, in the same run."
    lines = heading("cuda", "python -m benchmarks.speed.gpu FOLDER --only losses", ratios)
    lines[0] = lines[0].replace("Losses", "Losses of small batches")
    lines += table("cuda", rounds)
    (folder / "losses_small.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", choices=("evaluate", "losses", "shapes"))
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    if options.only == "shapes":
        (options.folder / "shapes.md").write_text("\n".join(shape_lines(options.rounds)) + "\n", encoding="utf-8")
        return
    alike = options.only == "losses" or evaluate_page(options.folder, options.rounds)
    if options.only != "evaluate":
        losses_page(options.folder, options.rounds)
    sys.exit(0 if alike else 1)


if __name__ == "__main__":
    main()
