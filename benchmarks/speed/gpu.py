"""What a GPU is asked for in little time: losses of small batches, and the evaluation of logits that live on it.

    python -m benchmarks.speed.gpu FOLDER          losses_small.md and evaluate.md in that folder; under 90 s on an H200

Losses: eager, forward + backward, every per-sample loss against the plain torch formula of the same loss (asked: at
most 1.15 x). Evaluation at 1,000,000 x 1000: the pass over the logits against one read of them (a sum; asked: at most
3 x), and `confide.evaluate(..., intervals=False)` as a whole (asked: at most 30 ms).
"""

from __future__ import annotations

import argparse
import statistics
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


def agreement_lines(n: int = 20_000, classes: int = 100) -> list[str]:
    """The largest difference of any measurement between the device and the host, on the same logits."""
    logits, labels = simulated(n, classes)
    there = confide.evaluate(confide.Predictions(logits, labels), intervals=False)
    here = confide.evaluate(confide.Predictions(logits.cpu(), labels.cpu()), intervals=False)
    pairs = zip(here.measurements, there.measurements, strict=True)
    apart = max(abs(a.value - b.value) for a, b in pairs if a.value == a.value)
    return [
        f"Largest difference of a measurement to that of the same logits on the host ({n:,} x {classes}): {apart:.1e}."
    ]


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    command = "python -m benchmarks.speed.gpu FOLDER"
    lines = heading("cuda", command, "Device times between two events; the others wall times until the device is done.")
    lines[0] = "# Evaluation of logits that live on a GPU, without intervals\n"
    lines += [
        "",
        "| size | one read, ms | kernel, ms | x read | pass with its sums, ms | whole call, ms |",
        "|" + "---|" * 6,
    ]
    lines += [evaluation_row(n, c, options.rounds) for n, c in ((1_000_000, 1000), (1_000_000, 100), (50_000, 1000))]
    lines += ["", *agreement_lines()]
    (options.folder / "evaluate.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (options.folder / "evaluate_profile.txt").write_text(where_time_goes(1_000_000, 1000), encoding="utf-8")
    ratios = "Ratios are to the plain torch formula of the same loss, in the same run."
    lines = heading("cuda", command, ratios)
    lines[0] = lines[0].replace("Losses", "Losses of small batches")
    lines += table("cuda", options.rounds)
    (options.folder / "losses_small.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
