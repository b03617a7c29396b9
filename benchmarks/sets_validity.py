"""How often prediction sets hold the true class, over many draws of a calibration set, against what they promise.

Labels are drawn from softmax(z) and the model says softmax(1.5 z), so it is overconfident; difficulty is its true
entropy with noise. Calibration and test samples of a draw are taken from one pool without putting back, so that they
are exchangeable, as the promise asks.

    python -m benchmarks.sets_validity --out benchmarks/results/sets_validity.md
    python -m benchmarks.sets_validity --draws 50 --small         # a minute
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import confide

COVERAGE = 0.9
TEST = 200
"""Test samples of a draw."""
ERRORS = 3.0
"""Monte-Carlo standard errors that a mean may lie outside its bounds."""


@dataclass(frozen=True)
class Case:
    """A way to fit, at k classes and n calibration samples."""

    word: str
    k: int
    n: int
    by: str | None = None
    exact: bool = True
    """Whether the upper bound holds too: scores without ties, empty sets allowed."""


def cases(small: bool) -> Iterator[Case]:
    """Every k and n for one score of values and one of sums; the other scores and the groups at some of them."""
    sizes = (100, 1000) if small else (100, 1000, 10_000)
    for k in (2, 10, 100) if small else (2, 10, 100, 1000):
        for n in sizes:
            for word in ("lac", "aps"):
                yield Case(word, k, n)
    for k, n in ((10, 100), (100, 1000)):
        for word in ("raps", "saps", "top_k"):
            yield Case(word, k, n, exact=word != "top_k")
    for by in ("class", "cluster", "difficulty"):
        yield Case("aps", 10, 1000, by)
        if not small:
            yield Case("aps", 100, 10_000, by)


def pool(k: int, n: int) -> confide.Predictions:
    """Samples enough for a draw of n, and half as many again."""
    size = max(2 * n, int(1.5 * n) + TEST, 2000)
    generator = torch.Generator().manual_seed(k)
    logits = 2 * torch.randn(size, k, generator=generator)
    uniform = torch.rand(size, k, generator=generator).clamp_min_(1e-12)
    labels = (logits - (-uniform.log()).log()).argmax(dim=1)
    chances = torch.softmax(logits, dim=1)
    difficulty = -(chances * chances.clamp_min(1e-30).log()).sum(dim=1)
    difficulty += 0.2 * torch.randn(size, generator=generator)
    return confide.Predictions(1.5 * logits, labels, columns={"difficulty": difficulty.numpy()})


@dataclass(frozen=True)
class Seen:
    """Mean coverage over the draws with its standard error, and what it must lie between."""

    case: Case
    group: str
    mean: float
    error: float
    high: float
    size: float

    @property
    def holds(self) -> bool:
        """At least the promise, and where that can be said at most so much above it, up to Monte-Carlo error."""
        return COVERAGE - ERRORS * self.error <= self.mean <= self.high + ERRORS * self.error


def simulate(case: Case, samples: confide.Predictions, draws: int, edges: Any) -> list[Seen]:
    """Fit and apply in every draw; a row for all samples and one for the worst group, where the promise is by group."""
    generator = np.random.default_rng(0)
    covered, total, fits, sizes = [], [], [], []
    shares: list[float] = []
    options: dict[str, Any] = {"edges": edges} if case.by == "difficulty" else {}
    for _ in range(draws):
        rows = generator.permutation(len(samples))
        test = samples.take(rows[case.n : case.n + TEST])
        fitted = confide.sets.fit(
            case.word, samples.take(rows[: case.n]), COVERAGE, by=case.by, allow_empty=True, **options
        )
        inside = fitted(test).numpy()
        labels = test.labels.numpy()
        hit = inside[np.arange(TEST), labels]
        shares.append(float(hit.mean()))
        sizes.append(float(inside.sum(axis=1).mean()))
        if case.by in ("class", "difficulty"):
            place = labels if case.by == "class" else np.searchsorted(edges, test.columns["difficulty"])
            number = len(fitted.groups)
            covered.append(np.bincount(place, hit, minlength=number))
            total.append(np.bincount(place, minlength=number))
            fits.append([group.n for group in fitted.groups])
    used = fitted.n
    high = COVERAGE + 1 / (used + 1) if case.exact and case.by is None else 1.0
    size = float(np.mean(sizes))
    seen = [Seen(case, "all", float(np.mean(shares)), float(np.std(shares)) / draws**0.5, high, size)]
    if covered:
        hits, counts = np.array(covered), np.array(total)
        means = hits.sum(axis=0) / np.maximum(counts.sum(axis=0), 1)
        # The draws are independent: a ratio of sums over them.
        errors = np.sqrt(((hits - means * counts) ** 2).sum(axis=0)) / np.maximum(counts.sum(axis=0), 1)
        worst = int(np.argmin((means - COVERAGE) / np.maximum(errors, 1e-12)))
        bound = COVERAGE + float(np.mean(1 / (np.array(fits)[:, worst] + 1)))
        seen.append(Seen(case, f"lowest of {len(means)}", float(means[worst]), float(errors[worst]), bound, size))
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--small", action="store_true", help="no 1000 classes, no 10,000 samples")
    parser.add_argument("--out", help="write the page there")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[Seen] = []
    pools: dict[tuple[int, int], confide.Predictions] = {}
    start = time.process_time()
    for case in cases(args.small):
        if (case.k, case.n) not in pools:
            pools = {(case.k, case.n): pool(case.k, case.n)}
        # The edges come from other samples, as those of training data do.
        edges = np.quantile(pool(case.k, 1000).columns["difficulty"], (0.2, 0.4, 0.6, 0.8))
        for seen in simulate(case, pools[case.k, case.n], args.draws, edges):
            rows.append(seen)
            print(line(seen), flush=True)
    text = page(rows, args, time.process_time() - start)
    if args.out:
        confide.files.write_text(Path(args.out), text)
    print(text.splitlines()[2])


def line(seen: Seen) -> str:
    case = seen.case
    high = f"{seen.high:.4f}" if seen.high < 1 else ""
    whose = [f"`{case.word}`", str(case.k), f"{case.n:,}", case.by or "", seen.group]
    holds = "yes" if seen.holds else "NO"
    return " | ".join(
        ["", *whose, f"{seen.mean:.4f}", f"{seen.error:.4f}", str(COVERAGE), high, holds, f"{seen.size:.1f}", ""]
    ).strip()


def page(rows: list[Seen], args: argparse.Namespace, seconds: float) -> str:
    """The whole page of results."""
    broken = sum(not seen.holds for seen in rows)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    head = [
        "# Prediction sets: coverage against the promise",
        "",
        f"{len(rows) - broken} of {len(rows)} rows lie between the promise and its upper bound, up to "
        f"{ERRORS:g} Monte-Carlo errors.",
        "",
        f"{args.draws:,} draws of a calibration set and {TEST} test samples each, promise {COVERAGE}, empty sets "
        "allowed. The upper bound is the promise + 1 / (n + 1), where scores have no ties; n counts the samples of the "
        "threshold (`raps` and `saps` choose their options on a fifth of n, `cluster` its clusters). Of 100 groups the "
        "lowest is expected 2.5 errors below the others.",
        "",
        f"Made by `python -m benchmarks.sets_validity{' --small' * args.small} --draws {args.draws}`, seed 0, "
        f"commit {commit}, {platform.machine()}, one thread, {seconds:.0f} CPU s; numpy {np.__version__}, "
        f"torch {torch.__version__}.",
        "",
        "| score | classes | n | by | group | coverage | error | at least | at most | kept | mean size |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*head, *map(line, rows), ""])


if __name__ == "__main__":
    main()
