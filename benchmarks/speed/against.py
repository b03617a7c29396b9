"""How fast this tree is beside another commit: losses, evaluation and training of both, in turn.

    python -m benchmarks.speed.against COMMIT                       a commit of this repository, or a folder with one
    python -m benchmarks.speed.against COMMIT --only "1024x1000"    the cases whose name holds a pattern
    python -m benchmarks.speed.against COMMIT --bar 1.05            exit with an error where a ratio is above it

Each tree has a process of its own, which makes a case once and runs it when asked. A round is here, there, there,
here: who comes first finds the caches full of the other's work and takes up to a tenth longer. A ratio is the median
over rounds of CPU time here over CPU time there, on one thread; beside it stands the ratio of the least times, which
other work on the machine moves less. Several pairs of processes, since one may lie better in memory than another for
as long as it lives.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parents[2] if "__file__" in globals() else Path()
LOSS_SIZES = {"256x10": 40, "1024x1000": 4, "4096x1000": 1}
OTHERS = {
    "evaluate values only 1000000x100": 1,
    "evaluate values only 50000x1000": 1,
    "evaluate values only 50000x100": 1,
    "evaluate values only 10000x10": 10,
    "ece 20000x10": 20,
    "epoch mlp adafocal": 1,
    "epoch small_cnn cross_entropy": 1,
}
"""Size or case -> calls that are timed together."""

Case = Callable[[], object]
Turn = tuple[float | str, float | str]
"""The milliseconds of both trees, or what went wrong."""


# In each tree's own process, which runs this file's text: only names that both trees have.


def serve() -> None:
    """Answer each line, `calls name`, with the CPU seconds of that many calls, or with what went wrong."""
    import torch

    torch.set_num_threads(1)
    cases: dict[str, Case] = {}
    for line in sys.stdin:
        calls, name = line.split(maxsplit=1)
        try:
            if name not in cases:
                cases[name] = make_case(name.strip())
                cases[name]()
            began = time.process_time()
            for _ in range(int(calls)):
                cases[name]()
            reply: Any = time.process_time() - began
        except Exception as error:  # an older tree may lack what a case needs: its row says so
            reply = f"{type(error).__name__}: {error}"
        print("reply", json.dumps(reply), flush=True)


def make_case(name: str) -> Case:
    kind, *words = name.split()
    if kind == "loss":
        return loss_step(*words)
    if kind == "epoch":
        return epoch(*words)
    import confide

    logits, labels = batch(words[-1])
    predictions = functools.partial(confide.Predictions, logits, labels)
    if kind == "ece":
        return lambda: confide.metrics.ece(predictions())
    return lambda: confide.evaluate(predictions(), intervals=False)


@functools.cache
def batch(size: str) -> tuple[Any, Any]:
    """Logits that favour their labels."""
    import torch

    n, num_classes = (int(number) for number in size.split("x"))
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, num_classes, (n,), generator=generator)
    logits = torch.randn((n, num_classes), generator=generator) * 2
    logits[torch.arange(n), labels] += 4
    return logits, labels


def loss_step(word: str, size: str) -> Case:
    """Forward and backward of a loss's mean."""
    import torch

    from confide import losses

    logits, labels = batch(size)
    n, num_classes = logits.shape
    generator = torch.Generator().manual_seed(1)
    needs = {
        "difficulty_entropy": {"weights": torch.rand(n, generator=generator)},
        "class_balanced": {"class_counts": torch.randint(1, 100, (num_classes,), generator=generator)},
    }
    leaf = logits.clone().requires_grad_()
    module = losses.create(word)

    def step() -> None:
        leaf.grad = None
        module(leaf, labels, **needs.get(word, {})).backward()

    return step


def epoch(model: str, loss: str) -> Case:
    """One epoch of the bundled images, with its validation."""
    from confide.data import load_dataset
    from confide.training import Settings, fit

    dataset = load_dataset("fashion-sample")
    return lambda: fit(dataset, Settings(model=model, loss=loss, epochs=1, device="cpu"))


# In this process: turns and ratios.


class Tree:
    """A process that runs the cases of one tree."""

    def __init__(self, folder: Path) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "PYTHONPATH": str(folder)}
        command = [sys.executable, "-c", Path(__file__).read_text(encoding="utf-8"), "--serve"]
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, cwd=folder, env=environment, text=True, **pipes)

    def milliseconds(self, name: str, calls: int) -> float | str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(calls, name, file=self.process.stdin, flush=True)
        for line in self.process.stdout:
            if line.startswith("reply "):
                reply: float | str = json.loads(line.removeprefix("reply "))
                return reply if isinstance(reply, str) else reply / calls * 1e3
        raise SystemExit(f"the process of a tree ended at: {name}")


def turns(folders: tuple[Path, Path], cases: dict[str, int], starts: int, rounds: int) -> Iterator[tuple[str, Turn]]:
    """Case, and the milliseconds of one call in each tree, once a round."""
    for _ in range(starts):
        trees = [Tree(folder) for folder in folders]
        for name, calls in cases.items():
            for _ in range(max(2, rounds // 5) if name.startswith("epoch") else rounds):
                first, last = ([tree.milliseconds(name, calls) for tree in order] for order in (trees, trees[::-1]))
                yield name, (mean_time(first[0], last[1]), mean_time(first[1], last[0]))
        for tree in trees:
            tree.process.communicate()


def mean_time(first: float | str, second: float | str) -> float | str:
    """Of both halves of a round, or what went wrong."""
    if isinstance(first, str):
        return first
    return second if isinstance(second, str) else (first + second) / 2


def row(name: str, rounds: list[Turn]) -> tuple[str, float]:
    """A line of the table, and the ratio in it; infinite where a tree cannot run the case."""
    pairs = [(ours, theirs) for ours, theirs in rounds if isinstance(ours, float) and isinstance(theirs, float)]
    if len(pairs) < len(rounds):
        wrong = next(time for turn in rounds for time in turn if isinstance(time, str))
        return f"| {name} | {wrong} | | | |", float("inf")
    here, there = (statistics.median(times) for times in zip(*pairs, strict=True))
    low, ratio, high = statistics.quantiles([ours / theirs for ours, theirs in pairs], n=4)
    least = min(ours for ours, _ in pairs) / min(theirs for _, theirs in pairs)
    return f"| {name} | {here:.3f} | {there:.3f} | {ratio:.3f} ({low:.3f}, {high:.3f}) | {least:.3f} |", ratio


@contextmanager
def tree_of(commit: str) -> Iterator[Path]:
    """The folder itself, or the files of a commit in a folder that goes away."""
    if Path(commit).is_dir():
        yield Path(commit).resolve()
        return
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "-C", str(HERE), "archive", commit], check=True, stdout=subprocess.PIPE)
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        yield Path(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", help="what this tree is compared with")
    parser.add_argument("--only", default="", help="a pattern of the cases to run")
    parser.add_argument("--starts", type=int, default=3, help="pairs of processes")
    parser.add_argument("--rounds", type=int, default=11, help="of a pair; epochs get a fifth")
    parser.add_argument("--bar", type=float, help="largest ratio that is fine")
    options = parser.parse_args()
    from benchmarks.speed.losses import PER_SAMPLE

    losses = {f"loss {word} {size}": calls for size, calls in LOSS_SIZES.items() for word in PER_SAMPLE}
    cases = {name: calls for name, calls in (losses | OTHERS).items() if re.search(options.only, name)}
    times: dict[str, list[Turn]] = {name: [] for name in cases}
    with tree_of(options.commit) as other:
        for name, turn in turns((HERE, other), cases, options.starts, options.rounds):
            times[name].append(turn)
    print(f"| case | here, ms | {options.commit}, ms | ratio: median (quartiles) | of the least |")
    print("|---|---|---|---|---|")
    above = []
    for name, rounds in times.items():
        line, ratio = row(name, rounds)
        print(line)
        if options.bar and ratio > options.bar:
            above.append(name)
    if above:
        raise SystemExit(f"above {options.bar}: {', '.join(above)}")


if __name__ == "__main__":
    serve() if "--serve" in sys.argv else main()
