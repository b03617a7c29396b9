"""How often 95 % intervals hold the true value, by theory and by the i.i.d. bootstrap, in named cells.

Labels are drawn from softmax(z); the model says what the cell makes of z. True values come from a population of
4 million in the same bins; where a model is calibrated the true calibration errors are 0. Every cell has 2,000 sets
(`--sets`; weighted ones a fifth), the bootstrap 300 of the same sets with n up to 2,000 (the first hundred and the last
two), with 200 resamples each.

    python -m benchmarks.coverage benchmarks/results/coverage                  # .json and .md; an hour on one core
    python -m benchmarks.coverage benchmarks/results/coverage --again mce ece  # these metrics anew, the others stay

What is there stays: a run that was stopped goes on where it was. `--minutes` stops it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import torch

import confide
from confide.metrics.base import parse_metric, value_of
from confide.metrics.intervals import chance_of, interval_of, too_few
from confide.metrics.resampling import Null, bootstrap, without_chance
from confide.metrics.view import View, metric_samples

POPULATION, SHARD = 4_000_000, 100_000
WORDS = (
    *("accuracy", "confidence_gap", "nll", "brier", "ece", "ece_mass", "classwise_ece", "aurc", "eaurc", "augrc"),
    *("auroc", "aupr_success", "aupr_error", "fpr95", "halving_rejection", "risk_at_coverage", "coverage_at_risk"),
    *("separability_kl", "separability_bhattacharyya", "debiased_ece", "mce"),
)
WITH_INTERVALS = tuple(word for word in WORDS if not parse_metric(word)[0].spec.jumping)
BOOTSTRAPPED = tuple(word for word in WORDS[:15] if word != "classwise_ece")
RESAMPLES, LARGEST_RESAMPLED = 200, 2000
WEIGHTED_PART = 5
"""Weighted cells have that part of the sets."""
CHUNK = 50
"""Sets of a cell before the next cell has its turn."""

WEIGHTED = "weighted: "

Draw = Callable[[torch.Tensor, torch.Generator], tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True)
class Cell:
    """One kind of model and number of samples."""

    name: str
    n: int
    classes: int
    draw: Draw
    calibrated: bool = False
    thinned: bool = False
    """Whether samples whose first logit is low were mostly left out, and those that are there weigh as much more."""


def labels_of(logits: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    uniform = torch.rand(len(logits), 1, generator=generator, dtype=torch.float64)
    below = torch.softmax(logits.double(), dim=1).cumsum(dim=1) < uniform
    return below.sum(dim=1).clamp(max=logits.shape[1] - 1)


def sharpened(z: torch.Tensor, generator: torch.Generator, scale: float, sharpness: float) -> Any:
    """Calibrated at sharpness 1, overconfident above, underconfident below."""
    return sharpness * scale * z, labels_of(scale * z, generator)


def mixed(z: torch.Tensor, generator: torch.Generator) -> Any:
    """Overconfident where it is sure, underconfident where it is not."""
    sure = torch.softmax(2 * z, dim=1).amax(dim=1, keepdim=True) > 0.7
    return torch.where(sure, 3 * z, 1.2 * z), labels_of(2 * z, generator)


def unequal(z: torch.Tensor, generator: torch.Generator) -> Any:
    """Classes whose accuracy falls from .99 to .30; their logits say the same of all."""
    n, classes = z.shape
    labels = torch.randint(0, classes, (n,), generator=generator)
    chance = torch.linspace(0.99, 0.30, classes)[labels]
    right = torch.rand(n, generator=generator) < chance
    predicted = torch.where(right, labels, (labels + 1) % classes)
    logits = z.clone()
    logits[torch.arange(n), predicted] = z.amax(dim=1) + torch.rand(n, generator=generator) * 3
    return logits, labels


def majority(z: torch.Tensor, generator: torch.Generator) -> Any:
    """Says the class of 90 % of the samples every time, with a confidence of .9."""
    labels = (torch.rand(len(z), generator=generator) >= 0.9).long()
    return torch.tensor([math.log(9.0), 0.0]).expand(len(z), 2).contiguous(), labels


def tied(z: torch.Tensor, generator: torch.Generator) -> Any:
    """Logits rounded to whole numbers: a few hundred different confidences."""
    return (3 * z).round(), labels_of(2 * z, generator)


def cells() -> list[Cell]:
    cells = []
    kinds = {"calibrated": 1.0, "overconfident": 2.0, "underconfident": 0.5}
    for classes, scale in ((2, 2.0), (10, 2.0), (100, 3.0)):
        for name, sharpness in kinds.items():
            draw = partial(sharpened, scale=scale, sharpness=sharpness)
            cells += [Cell(f"{name}, {classes} classes", n, classes, draw, sharpness == 1.0) for n in (200, 2000)]
    cells += [Cell("mixed signs", n, 10, mixed) for n in (200, 2000)]
    cells += [Cell("class accuracies .99 to .30", n, 10, unequal) for n in (200, 1000, 2000)]
    cells += [Cell("always the 90 % class", n, 2, majority, True) for n in (200, 2000)]
    cells.append(Cell("one sample a class", 200, 200, partial(sharpened, scale=4.0, sharpness=1.5)))
    cells += [Cell("3 % errors", n, 10, partial(sharpened, scale=12.0, sharpness=1.0), True) for n in (200, 2000)]
    cells += [Cell("0.5 % errors", 2000, 10, partial(sharpened, scale=70.0, sharpness=1.0), True)]
    cells += [Cell("ties", n, 10, tied) for n in (200, 2000)]
    large = {"calibrated, 10 classes", "overconfident, 10 classes", "class accuracies .99 to .30", "ties"}
    cells += [Cell(c.name, 20_000, c.classes, c.draw, c.calibrated) for c in cells if c.n == 2000 and c.name in large]
    weighted = {"calibrated, 10 classes", "overconfident, 10 classes", "mixed signs", "class accuracies .99 to .30"}
    cells += [
        replace(c, name=f"{WEIGHTED}{c.name}", thinned=True) for c in cells if c.n in (200, 2000) and c.name in weighted
    ]
    return cells


def drawn(cell: Cell, n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return cell.draw(torch.randn(n, cell.classes, generator=generator), generator)


def drawn_set(cell: Cell, seed: int) -> confide.Predictions:
    """The samples of one set, thinned and weighted by the inverse of the chance to be there where the cell says so."""
    if not cell.thinned:
        return confide.Predictions(*drawn(cell, cell.n, seed))
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(12 * cell.n, cell.classes, generator=generator)
    chance = torch.sigmoid(2 * z[:, 0]).clamp(0.05, 1.0)
    there = (torch.rand(len(z), generator=generator) < chance).nonzero()[: cell.n, 0]
    logits, labels = cell.draw(z[there], generator)
    return confide.Predictions(logits, labels, weights=1 / chance[there])


def shards(cell: Cell) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    for k in range(POPULATION // SHARD):
        yield drawn(cell, SHARD, 10_000_019 + k)


def truth_key(cell: Cell) -> str:
    """The cell whose population has the true values: of every n; weights undo the thinning."""
    return cell.name.removeprefix(WEIGHTED)


def key_of(cell: Cell) -> str:
    return f"{cell.name}|{cell.n}"


def population(cell: Cell) -> dict[str, float]:
    """True values of the metrics; those of calibration errors of a calibrated model are 0."""
    evaluation = confide.evaluate(shards(cell), list(WORDS), intervals=False, score="msp")
    truth = {m.metric: m.value for m in evaluation.measurements if m.group is None}
    infos = confide.metrics.explain(WORDS)
    return {word: 0.0 if cell.calibrated and infos[word].kind == "calibration" else truth[word] for word in WORDS}


# One set of samples.

Interval = tuple[float, float]


@dataclass(frozen=True)
class Measured:
    """A metric of one set: its value, its interval, and what chance shows of it, as `confide.evaluate` has them."""

    value: float
    bounds: Interval
    chance: Null | None
    few: bool
    """Whether a reader of the interval is told "too few errors"."""


def by_theory(view: View, words: Sequence[str], seed: int) -> dict[str, Measured]:
    """What `confide.evaluate` says of these metrics, without groups and curves."""
    measured = {}
    for word in words:
        method, options = parse_metric(word)
        value = value_of(method, view, options)
        chance = chance_of(method, view, options, value, seed=seed)
        bounds = interval_of(method, view, options, value, chance, seed=seed)
        measured[word] = Measured(value, bounds, chance, too_few(method, view) is not None)
    return measured


def by_bootstrap(view: View, theory: dict[str, Measured], seed: int) -> dict[str, Interval]:
    """Percentile intervals of one bootstrap; calibration errors with the same correction for chance."""
    words = [word for word in theory if word in BOOTSTRAPPED]
    if not words:
        return {}
    methods = [parse_metric(word) for word in words]
    statistics = [partial(method.spec.value, **options) for method, options in methods]
    intervals = {}
    drawn = bootstrap(view.base, statistics, resamples=RESAMPLES, seed=seed)
    for word, (method, _), draws in zip(words, methods, drawn, strict=True):
        own, known = theory[word], draws[np.isfinite(draws)]
        if own.chance is not None:
            known = without_chance(own.value, known, 0.0 if method.spec.debiased else own.chance.mean)
        bounds = np.quantile(known, (0.025, 0.975)) if len(known) and math.isfinite(own.value) else (math.nan, math.nan)
        intervals[word] = (float(bounds[0]), float(bounds[1]))
    return intervals


# What the sets of a cell say of a metric: sums, so that a later run goes on where an earlier one stopped.


def holds(bounds: Interval, truth: float) -> bool | None:
    """Whether an interval holds the truth; None where it is not defined."""
    slack = 1e-12 + 1e-9 * abs(truth)
    return bounds[0] - slack <= truth <= bounds[1] + slack if all(map(math.isfinite, bounds)) else None


@dataclass
class Tally:
    """Sums over sets: how many intervals are defined and hold the truth, their lengths, and those of the bootstrap."""

    sets: int = 0
    held: int = 0
    truth_above: int = 0
    length: float = 0.0
    few: int = 0
    smallest: float = 0.0
    largest: float = 0.0
    paired: int = 0
    theory_held: int = 0
    bootstrap_held: int = 0
    only_theory: int = 0
    only_bootstrap: int = 0
    theory_length: float = 0.0
    bootstrap_length: float = 0.0
    tests: int = 0
    rejected: int = 0

    def add(self, own: Measured, bootstrapped: Interval | None, truth: float) -> None:
        """One more set."""
        if own.chance is not None:
            self.tests += 1
            self.rejected += own.chance.p_value < 0.05
        held = holds(own.bounds, truth)
        if held is None:
            return
        self.sets += 1
        self.held += held
        self.truth_above += not held and truth > own.bounds[1]
        self.length += own.bounds[1] - own.bounds[0]
        self.few += own.few
        self.smallest = own.value if self.sets == 1 else min(self.smallest, own.value)
        self.largest = own.value if self.sets == 1 else max(self.largest, own.value)
        other = None if bootstrapped is None else holds(bootstrapped, truth)
        if bootstrapped is None or other is None:
            return
        self.paired += 1
        self.theory_held += held
        self.bootstrap_held += other
        self.only_theory += held and not other
        self.only_bootstrap += other and not held
        self.theory_length += own.bounds[1] - own.bounds[0]
        self.bootstrap_length += bootstrapped[1] - bootstrapped[0]

    @property
    def share(self) -> float:
        return self.held / self.sets

    @property
    def fixed(self) -> bool:
        """Whether the value never varies, so that every interval holds it."""
        return self.largest - self.smallest <= 1e-9

    @property
    def mostly_few(self) -> bool:
        return 2 * self.few > self.sets


@dataclass
class Progress:
    """The sets done of one cell, by metric."""

    done: dict[str, int]
    tallies: dict[str, Tally]


class Study:
    """All tallies, with their file."""

    def __init__(self, file: Path) -> None:
        self.file = file
        saved: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
        self.truth: dict[str, dict[str, float]] = saved.get("truth", {})
        self.commits: dict[str, str] = saved.get("commits", {})
        self.seconds: float = saved.get("cpu_seconds", 0.0)
        self.cells = {
            key_of(cell): Progress(dict.fromkeys(WORDS, 0), {word: Tally() for word in WORDS}) for cell in cells()
        }
        for key, metrics in saved.get("cells", {}).items():
            for word, entry in metrics.items():
                self.cells[key].done[word] = entry.pop("done")
                self.cells[key].tallies[word] = Tally(**entry)

    def forget(self, words: Sequence[str], only: str = "") -> None:
        """Start these metrics anew, in the cells whose name and n (as `ties|200`) match."""
        for progress in (progress for key, progress in self.cells.items() if re.search(only, key)):
            for word in words:
                progress.done[word], progress.tallies[word] = 0, Tally()

    def save(self) -> None:
        shown = {
            key: {word: {"done": p.done[word], **vars(p.tallies[word])} for word in WORDS if p.done[word]}
            for key, p in self.cells.items()
        }
        content = {"commits": self.commits, "cpu_seconds": self.seconds, "truth": self.truth, "cells": shown}
        partly = self.file.with_suffix(".part")
        partly.write_text(json.dumps(content, indent=1) + "\n")
        partly.replace(self.file)

    def run(self, sets: int, resampled: int, minutes: float) -> None:
        """Measure what is missing, some sets of every cell in turn; keep what there is after every cell."""
        torch.set_num_threads(1)
        began, by_key = time.time(), {key_of(cell): cell for cell in cells()}
        now = commit_here()
        self.commits |= {word: now for word in WORDS if not any(p.done[word] for p in self.cells.values())}
        for upto in range(CHUNK, sets + CHUNK, CHUNK):
            for key, cell in by_key.items():
                if time.time() - began > 60 * minutes:
                    return
                before = time.process_time()
                if truth_key(cell) not in self.truth:
                    self.truth[truth_key(cell)] = population(cell)
                last = min(upto, sets // WEIGHTED_PART if cell.thinned else sets)
                bootstrapped = [*range(resampled // 3), *range(sets - (resampled - resampled // 3), sets)]
                if self._measure(cell, self.cells[key], last, set(bootstrapped)):
                    self.seconds += time.process_time() - before
                    self.save()

    def _measure(self, cell: Cell, progress: Progress, last: int, bootstrapped: set[int]) -> bool:
        """The sets of a cell up to the last, of the metrics that do not have them."""
        first = min(progress.done.values())
        for seed in range(first, last):
            words = [word for word in WORDS if progress.done[word] <= seed]
            view = View(metric_samples(drawn_set(cell, seed), class_table=True))
            theory = by_theory(view, words, seed)
            other = {}
            if seed in bootstrapped and cell.n <= LARGEST_RESAMPLED and not cell.thinned:
                other = by_bootstrap(view, theory, seed)
            for word in words:
                progress.tallies[word].add(theory[word], other.get(word), self.truth[truth_key(cell)][word])
                progress.done[word] = seed + 1
        return first < last


def commit_here() -> str:
    if "COMMIT" in os.environ:
        return os.environ["COMMIT"]
    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    return subprocess.run(git, capture_output=True, text=True).stdout.strip() or "not stated"


# The page.

LOW, HIGH, EDGE, BELOW = "low", "high", "edge", "below the bootstrap"


def judged(study: Study) -> dict[tuple[str, str], set[str]]:
    """By cell and metric: outside 93 to 97 %, or below the bootstrap on the same sets, by more than chance.

    "More than chance" holds for all of them together at 1 %. A value that never varies is in every interval, and
    where the truth is an end of the metric's range an interval can miss it on one side only.
    """
    tallies = ((key, word, cell.tallies[word]) for key, cell in study.cells.items() for word in WITH_INTERVALS)
    entries = [(key, word, tally) for key, word, tally in tallies if tally.sets]
    z = NormalDist().inv_cdf(1 - 0.01 / 2 / len(entries))
    verdicts: dict[tuple[str, str], set[str]] = {}
    for key, word, tally in entries:
        verdict = verdicts.setdefault((key, word), set())
        if tally.share < 0.93 - z * math.sqrt(0.93 * 0.07 / tally.sets):
            verdict.add(LOW)
        if tally.share > 0.97 + z * math.sqrt(0.97 * 0.03 / tally.sets) and not tally.fixed:
            verdict.add(
                EDGE if at_an_end(study.truth[key.split("|")[0].removeprefix(WEIGHTED)][word], word, tally) else HIGH
            )
        lost, won = tally.only_bootstrap, tally.only_theory
        if lost > won and (lost - won - 1) / math.sqrt(lost + won) > z:
            verdict.add(BELOW)
    return verdicts


def at_an_end(truth: float, word: str, tally: Tally) -> bool:
    """Whether the true value is an end of the metric's range, as nearly as the intervals tell."""
    ends = parse_metric(word)[0].spec.range
    return min(abs(truth - end) for end in ends) <= 0.02 * tally.length / tally.sets


def page(study: Study, command: str, sets: int) -> str:
    """The results as Markdown."""
    verdicts = judged(study)
    fewest = min(done for key, cell in study.cells.items() if WEIGHTED not in key for done in cell.done.values())
    unfinished = f" (of {sets:,}: the same command goes on)" if fewest < sets else ""
    few = {place for place in verdicts if study.cells[place[0]].tallies[place[1]].mostly_few}
    fixed = {place for place in verdicts if study.cells[place[0]].tallies[place[1]].fixed}

    def count(kind: str) -> str:
        places = {place for place, verdict in verdicts.items() if kind in verdict}
        warned = len(places & few)
        return f"**{len(places)}**" + (f' ({warned} of them are told "too few errors")' if warned else "")

    def shown(tally: Tally, key: str, word: str) -> str:
        text = f"{100 * tally.share:.1f}"
        marks = verdicts[key, word]
        text = f"**{text}** ↓" if LOW in marks else f"{text} ↑" if HIGH in marks else text
        text = f"{text} end" if EDGE in marks else text
        text = f"{text} <b" if BELOW in marks else text
        return f"({text})" if (key, word) in few else "fixed" if (key, word) in fixed else text

    weighted = [key for key in study.cells if key.startswith(WEIGHTED)]
    resampled_cells = [key for key, cell in study.cells.items() if any(t.paired for t in cell.tallies.values())]
    calibrated = [key_of(cell) for cell in cells() if cell.calibrated]
    tests = [word for word in WORDS if any(study.cells[key].tallies[word].tests for key in calibrated)]
    lines = [
        "# Coverage of the 95 % intervals",
        "",
        f"{len(verdicts)} combinations of {len(study.cells)} cells and {len(WITH_INTERVALS)} metrics, "
        f"{sets_text(study)} sets each{unfinished}. By more than Monte-Carlo error (1 % for all "
        "together):",
        "",
        f"- {count(LOW)} lie below 93 %, {count(HIGH)} above 97 % (and {count(EDGE)} more where the true value is an "
        "end of the metric's range, such as a halving rejection of 1, which an interval can miss on one side only);",
        f"- {count(BELOW)} hold the truth less often than the i.i.d. bootstrap on the same sets.",
        "",
        "`mce` has no interval: the largest of noisy gaps jumps from bin to bin, and an interval by theory held the "
        "truth in 80 to 100 %; it has its chance level and p-value. Class-wise ECE with about one sample a class and "
        "bin has intervals that are too wide.",
        "",
        f"`{command}`, commit {commits_text(study)}, one thread, {platform.processor() or platform.machine()}, torch "
        f"{torch.__version__}, {study.seconds / 60:.0f} minutes of CPU time. Bootstrap: {RESAMPLES} resamples of "
        f"{resampled_text(study)} of the same sets where n is at most {LARGEST_RESAMPLED:,}. True values from "
        f"{POPULATION:,} samples in the same bins; 0 for the calibration errors of a calibrated model. ECE by sweep "
        "has no true value (its bins depend on the sample) and is not listed.",
        "",
        "## Verdict by cell and metric",
        "",
        "Per cent of sets whose interval holds the true value. **Bold ↓**: below 93 % by more than chance; ↑: above "
        '97 %; <b: below the bootstrap; (in brackets): the reader is told "too few errors" in most sets; fixed: the '
        "value is the same in every set, as the AUROC of a constant score; end: above 97 % with the true value at an "
        "end of the metric's range.",
        "",
        *table(study, [key for key in study.cells if key not in weighted], shown),
        "",
        "## Weighted samples",
        "",
        "Samples whose first logit is low are mostly left out (a chance of 0.05 to 1 to be there) and weigh the "
        "inverse of that chance; the true values are those of the whole population. They are worth some 44 % of their "
        f"number. {max(max(study.cells[key].done.values()) for key in weighted)} sets each.",
        "",
        *table(study, weighted, shown),
        "",
        "## On the sets of the bootstrap: theory, bootstrap",
        "",
        *table(study, resampled_cells, paired_text, BOOTSTRAPPED),
        "",
        "## Length of the interval, theory over bootstrap",
        "",
        *table(study, resampled_cells, ratio_text, BOOTSTRAPPED),
        "",
        "## The calibration test: per cent of sets in which it rejects a calibrated model (5 asked)",
        "",
        *table(study, calibrated, lambda t, key, word: f"{100 * t.rejected / t.tests:.1f}" if t.tests else "–", tests),
    ]
    return "\n".join(lines) + "\n"


def commits_text(study: Study) -> str:
    """The commit of most metrics, and those of metrics measured at another."""
    commits = list(study.commits.values())
    usual = max(commits, key=commits.count)
    others = [f"{word} {commit}" for word, commit in study.commits.items() if commit != usual]
    return usual + (f" ({', '.join(others)})" if others else "")


def sets_text(study: Study) -> str:
    counts = [done for key, cell in study.cells.items() if not key.startswith(WEIGHTED) for done in cell.done.values()]
    return f"{min(counts):,} to {max(counts):,}" if min(counts) < max(counts) else f"{max(counts):,}"


def resampled_text(study: Study) -> str:
    counts = [max(t.paired for t in cell.tallies.values()) for cell in study.cells.values()]
    known = [count for count in counts if count]
    return f"{min(known)} to {max(known)}" if min(known) < max(known) else str(max(known))


def paired_text(tally: Tally, key: str, word: str) -> str:
    share = [f"{100 * held / max(tally.paired, 1):.0f}" for held in (tally.theory_held, tally.bootstrap_held)]
    return ", ".join(share) if tally.paired else "–"


def ratio_text(tally: Tally, key: str, word: str) -> str:
    return f"{tally.theory_length / tally.bootstrap_length:.2f}" if tally.bootstrap_length else "–"


def table(
    study: Study, keys: Sequence[str], text: Callable[[Tally, str, str], str], words: Sequence[str] = WITH_INTERVALS
) -> list[str]:
    lines = ["| cell | n | " + " | ".join(words) + " |", "|" + "---|" * (len(words) + 2)]
    for key in keys:
        name, n = key.split("|")
        tallies = study.cells[key].tallies
        values = [text(tallies[word], key, word) if tallies[word].sets else "–" for word in words]
        lines.append(f"| {name} | {int(n):,} | " + " | ".join(values) + " |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", help="path of the .json and .md without their endings")
    parser.add_argument("--sets", type=int, default=2000)
    parser.add_argument("--resampled", type=int, default=300, help="sets of the bootstrap")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after so long; 0 writes the page alone")
    parser.add_argument("--again", nargs="+", default=[], choices=WORDS, help="measure these metrics anew")
    parser.add_argument("--cells", default="", help="only in cells whose name and n (as `ties|200`) match this")
    args = parser.parse_args()
    study = Study(Path(f"{args.out}.json"))
    study.forget(args.again, args.cells)
    study.run(args.sets, args.resampled, args.minutes)
    command = f"python -m benchmarks.coverage {args.out} --sets {args.sets} --resampled {args.resampled}"
    Path(f"{args.out}.md").write_text(page(study, command, args.sets))


if __name__ == "__main__":
    main()
