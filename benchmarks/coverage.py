"""How often 95 % intervals hold the true value, by theory and by the i.i.d. bootstrap, in named cells.

Labels are drawn from softmax(z); the model says what the cell makes of z. True values come from a population of
4 million in the same bins; where a model is calibrated the true calibration errors are 0. Every cell has 2,000 sets
(`--sets`), the bootstrap 300 of the same sets with n up to 2,000, with 200 resamples each.

    python -m benchmarks.coverage --workers 16 --out benchmarks/results/coverage     # .json and .md
    python -m benchmarks.coverage --page benchmarks/results/coverage                 # the page again from its numbers,
                    # with those of coverage_again*.json, where metrics have changed, and of coverage_weighted.json
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import platform
import re
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
from confide.metrics.base import parse_metric
from confide.metrics.intervals import chance_of
from confide.metrics.resampling import bootstrap, without_chance
from confide.metrics.view import MetricSamples, View

POPULATION, SHARD = 4_000_000, 100_000
WORDS = (
    *("accuracy", "confidence_gap", "nll", "brier", "ece", "ece_mass", "classwise_ece", "aurc", "eaurc", "augrc"),
    *("auroc", "aupr_success", "aupr_error", "fpr95", "halving_rejection", "risk_at_coverage", "coverage_at_risk"),
    *("separability_kl", "separability_bhattacharyya", "debiased_ece", "mce"),
)
BOOTSTRAPPED = tuple(word for word in WORDS[:15] if word != "classwise_ece")
RESAMPLES, FEW_ERRORS = 200, 10

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
    """The cell whose population has the true values: weights undo the thinning."""
    return f"{cell.name.removeprefix(WEIGHTED)}|{cell.n}"


def key_of(cell: Cell) -> str:
    return f"{cell.name}|{cell.n}"


def population(cell: Cell) -> dict[str, float]:
    """True values of the metrics; those of calibration errors of a calibrated model are 0."""
    evaluation = confide.evaluate(shards(cell), list(WORDS), intervals=False, score="msp")
    truth = {m.metric: m.value for m in evaluation.measurements if m.group is None}
    infos = confide.metrics.explain(WORDS)
    return {word: 0.0 if cell.calibrated and infos[word].kind == "calibration" else truth[word] for word in WORDS}


@dataclass(frozen=True)
class Job:
    """Some sets of a cell; `resampled` of them also by the bootstrap."""

    cell: int
    first: int
    last: int
    resampled: int
    words: tuple[str, ...] = WORDS


def by_bootstrap(predictions: confide.Predictions, seed: int) -> dict[str, tuple[float, float]]:
    """Percentile intervals of one bootstrap; calibration errors with the same correction for chance."""
    base = MetricSamples(predictions, resampled=True)
    methods = [parse_metric(word) for word in BOOTSTRAPPED]
    statistics = [partial(method.spec.value, **options) for method, options in methods]
    intervals = {}
    for word, (method, options), draws in zip(
        BOOTSTRAPPED, methods, bootstrap(base, statistics, resamples=RESAMPLES, seed=seed), strict=True
    ):
        value = float(method.spec.value(View(base), **options))
        known = draws[np.isfinite(draws)]
        chance = chance_of(method, View(base), options, value, draws=300, seed=seed)
        if chance is not None:
            known = without_chance(value, known, 0.0 if method.spec.debiased else chance.mean)
        bounds = np.quantile(known, (0.025, 0.975)) if len(known) and math.isfinite(value) else (math.nan, math.nan)
        intervals[word] = (float(bounds[0]), float(bounds[1]))
    return intervals


def measured(job: Job) -> tuple[Job, list[dict[str, Any]]]:
    """Of every set: intervals by theory, and by the bootstrap where asked for."""
    torch.set_num_threads(1)
    cell, rows = cells()[job.cell], []
    for seed in range(job.first, job.last):
        predictions = drawn_set(cell, seed)
        evaluation = confide.evaluate(predictions, list(job.words), score="msp", seed=seed)
        own = {m.metric: m for m in evaluation.measurements if m.group is None}
        row: dict[str, Any] = {"theory": {word: (m.low, m.high) for word, m in own.items()}}
        row["p"] = {word: m.p_value for word, m in own.items() if m.p_value is not None}
        row["errors"] = int((~predictions.facts.correct).sum())
        if seed < job.resampled:
            row["bootstrap"] = by_bootstrap(predictions, seed)
        rows.append(row)
    return job, rows


def study(
    sets: int, resampled: int, workers: int, minutes: float, known: dict[str, Any], only: str, words: tuple[str, ...]
) -> dict[str, Any]:
    """The shares of intervals that hold the truth, by cell and metric; of fewer sets where the time is up."""
    every, began = cells(), time.time()
    chosen = [k for k, cell in enumerate(every) if re.search(only, key_of(cell))]
    chunk = max(1, min(20, sets // 8))
    jobs = [
        Job(k, first, min(first + chunk, sets), resampled if every[k].n <= 2000 and not every[k].thinned else 0, words)
        for first in range(0, sets, chunk)
        for k in chosen
    ]
    rows: dict[int, list[dict[str, Any]]] = {k: [] for k in range(len(every))}
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        truths = pool.map_async(population, [] if known else [every[k] for k in chosen], chunksize=1)
        for job, part in pool.imap_unordered(measured, jobs):
            rows[job.cell] += part
            if time.time() - began > 60 * minutes and truths.ready():
                break
        stated = [{w: m["truth"] for w, m in known[truth_key(every[k])]["metrics"].items()} for k in chosen if known]
        truth = dict(zip(chosen, truths.get() or stated, strict=True))
    return {key_of(every[k]): summary(every[k], truth[k], rows[k]) for k in chosen if rows[k]}


def holds(bounds: tuple[float, float], truth: float) -> bool | None:
    """Whether an interval holds the truth; None where it is not defined."""
    slack = 1e-12 + 1e-9 * abs(truth)
    return bounds[0] - slack <= truth <= bounds[1] + slack if all(map(math.isfinite, bounds)) else None


def summary(cell: Cell, truth: dict[str, float], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Of every metric: sets with an interval, those that hold the truth, lengths; beside the bootstrap on its sets."""
    by_metric: dict[str, Any] = {}
    for word in rows[0]["theory"]:
        held = [holds(row["theory"][word], truth[word]) for row in rows]
        both = [
            (holds(row["theory"][word], truth[word]), holds(row["bootstrap"][word], truth[word]))
            for row in rows
            if word in row.get("bootstrap", {})
        ]
        pairs = [(a, b) for a, b in both if a is not None and b is not None]
        lengths = [row["theory"][word][1] - row["theory"][word][0] for row in rows]
        resampled = [row["bootstrap"][word] for row in rows if word in row.get("bootstrap", {})]
        other = [high - low for low, high in resampled]
        p_values = [row["p"][word] for row in rows if word in row["p"]]
        by_metric[word] = {
            "truth": truth[word],
            "sets": sum(h is not None for h in held),
            "held": sum(bool(h) for h in held),
            "length": float(np.nanmean(lengths)) if np.isfinite(lengths).any() else None,
            "paired": len(pairs),
            "theory_held": sum(a for a, _ in pairs),
            "bootstrap_held": sum(b for _, b in pairs),
            "only_bootstrap": sum(b and not a for a, b in pairs),
            "only_theory": sum(a and not b for a, b in pairs),
            "bootstrap_length": float(np.nanmean(other)) if other and np.isfinite(other).any() else None,
            "rejected": float(np.mean([p < 0.05 for p in p_values])) if p_values else None,
        }
    errors = [row["errors"] for row in rows]
    few = float(np.mean([e < FEW_ERRORS for e in errors]))
    return {
        "n": cell.n,
        "classes": cell.classes,
        "calibrated": cell.calibrated,
        "few_errors": few,
        "metrics": by_metric,
    }


def judged(results: dict[str, Any]) -> dict[str, list[str]]:
    """Cells and metrics outside 93 to 97 % by more than chance, and below the bootstrap by more than chance."""
    entries = [(key, word, m) for key, cell in results.items() for word, m in cell["metrics"].items() if m["sets"]]
    z = NormalDist().inv_cdf(1 - 0.01 / 2 / len(entries))
    low, high, below = [], [], []
    for key, word, m in entries:
        share, size = m["held"] / m["sets"], m["sets"]
        if share < 0.93 - z * math.sqrt(0.93 * 0.07 / size):
            low.append(f"{key} {word}")
        elif share > 0.97 + z * math.sqrt(0.97 * 0.03 / size):
            high.append(f"{key} {word}")
        lost, won = m["only_bootstrap"], m["only_theory"]
        if lost > won and (lost - won - 1) / math.sqrt(lost + won) > z:
            below.append(f"{key} {word}")
    return {"low": low, "high": high, "below": below}


CHANGED = ("ece", "ece_mass", "classwise_ece", "halving_rejection", "coverage_at_risk", "mce")


def measured_again(later: dict[str, Any]) -> list[str]:
    """What a later, smaller study says of the metrics whose intervals have changed since."""
    flagged = set(judged(later["cells"])["low"])
    words = [word for word in CHANGED if all(word in cell["metrics"] for cell in later["cells"].values())]
    return [
        f"## Measured again: {', '.join(words)}",
        "",
        f"These intervals have changed since the study below: `{later['command']}`, commit {later['commit']}, true "
        f"values of the study below, {sets_text(later['cells'])} sets a cell. Bold: below 93 % by more than "
        "Monte-Carlo error.",
        "",
        *table(later["cells"], lambda m, key, word: share_text(m, f"{key} {word}" in flagged), words),
        "",
    ]


def weighted_samples(study: dict[str, Any]) -> list[str]:
    """What the study of weighted samples says."""
    flagged = set(judged(study["cells"])["low"])
    return [
        "## Weighted samples",
        "",
        "Samples whose first logit is low are mostly left out (a chance of 0.05 to 1 to be there) and weigh the "
        "inverse of that chance; the true values are those of the whole population. They are worth some 44 % of their "
        f"number. `{study['command']}`, commit {study['commit']}, {sets_text(study['cells'])} sets a cell.",
        "",
        *table(study["cells"], lambda m, key, word: share_text(m, f"{key} {word}" in flagged)),
        "",
    ]


def page(data: dict[str, Any], later: Sequence[dict[str, Any]] = (), weighted: dict[str, Any] | None = None) -> str:
    """The results as Markdown, with those of later studies and of weighted samples."""
    results, verdict = data["cells"], judged(data["cells"])
    flagged = set(verdict["low"])
    count = sum(bool(m["sets"]) for cell in results.values() for m in cell["metrics"].values())
    lines = [
        "# Coverage of the 95 % intervals",
        "",
        f"`{data['command']}`, commit {data['commit']}, {data['machine']}, {data['minutes']:.1f} minutes. "
        f"{sets_text(results)} sets a cell by theory; the i.i.d. bootstrap ({RESAMPLES} resamples) on the first "
        f"{data['resampled']} of the same sets where n is at most 2,000. True values from {POPULATION:,} samples in "
        "the same bins; 0 for the calibration errors of a calibrated model.",
        "",
        f"Of {count} combinations of cell and metric {len(verdict['low'])} lie below 93 % and {len(verdict['high'])} "
        "above 97 % by more than Monte-Carlo error (1 % for the whole family); "
        f"{len(verdict['below'])} cover less often than the bootstrap on the same sets by more than chance.",
        "",
        "- Above 97 %: mostly calibration errors whose true value is 0 or near it. An interval that starts at 0 and "
        "holds the printed value cannot miss 0 by being too low.",
        "- Bold: below 93 % by more than Monte-Carlo error. `mce` and `coverage_at_risk` jump from one bin or place of "
        "the ranking to another; their intervals are rough, as are the bootstrap's.",
        "- ECE by sweep has no true value: its bins depend on the sample. It is not listed.",
        "",
        *(line for study in later for line in measured_again(study)),
        *(weighted_samples(weighted) if weighted else []),
        "## By theory",
        "",
    ]
    lines += table(results, lambda m, key, word: share_text(m, f"{key} {word}" in flagged))
    lines += ["", "## On the sets of the bootstrap: theory, bootstrap", ""]
    some = {key: cell for key, cell in results.items() if cell["n"] <= 2000}
    lines += table(some, lambda m, key, word: paired_text(m), BOOTSTRAPPED)
    lines += ["", "## Length of the interval, theory over bootstrap", ""]
    lines += table(some, lambda m, key, word: ratio_text(m), BOOTSTRAPPED)
    lines += ["", "## The calibration test: share of sets in which it rejects a calibrated model (5 % asked)", ""]
    good = {key: cell for key, cell in results.items() if cell["calibrated"]}
    tests = [w for w in WORDS if any(c["metrics"].get(w, {}).get("rejected") is not None for c in good.values())]
    lines += table(good, lambda m, key, word: None if m["rejected"] is None else f"{m['rejected']:.3f}", tests)
    for name, title in (("low", "Below 93 %"), ("below", "Below the bootstrap"), ("high", "Above 97 %")):
        lines += ["", f"{title}: " + ("; ".join(sorted(verdict[name])).replace("|", ", n = ") or "none") + "."]
    return "\n".join(lines) + "\n"


def sets_text(results: dict[str, Any]) -> str:
    counts = [max(m["sets"] for m in cell["metrics"].values()) for cell in results.values()]
    return f"{min(counts):,} to {max(counts):,}" if min(counts) < max(counts) else f"{max(counts):,}"


def share_text(m: dict[str, Any], bold: bool) -> str | None:
    if not m["sets"]:
        return None
    text = f"{100 * m['held'] / m['sets']:.1f}"
    return f"**{text}**" if bold else text


def paired_text(m: dict[str, Any]) -> str | None:
    if not m["paired"]:
        return None
    return f"{100 * m['theory_held'] / m['paired']:.0f}, {100 * m['bootstrap_held'] / m['paired']:.0f}"


def ratio_text(m: dict[str, Any]) -> str | None:
    if not m["length"] or not m["bootstrap_length"]:
        return None
    return f"{m['length'] / m['bootstrap_length']:.2f}"


def table(results: dict[str, Any], text: Callable[..., str | None], words: Any = WORDS) -> list[str]:
    lines = ["| cell | n | " + " | ".join(words) + " |", "|" + "---|" * (len(words) + 2)]
    for key, cell in results.items():
        few = " (too few errors)" if cell["few_errors"] > 0.5 else ""
        values = [text(cell["metrics"][word], key, word) or "–" for word in words if word in cell["metrics"]]
        lines.append(f"| {key.split('|')[0]}{few} | {cell['n']:,} | " + " | ".join(values) + " |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sets", type=int, default=2000)
    parser.add_argument("--resampled", type=int, default=300, help="sets of the bootstrap")
    parser.add_argument("--workers", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after so long, with the sets there are")
    parser.add_argument("--words", nargs="+", default=WORDS, help="only these metrics")
    parser.add_argument("--cells", default="", help="only those whose name and n (as `ties|200`) match this expression")
    parser.add_argument("--truth", help="take the true values from this .json of an earlier study")
    parser.add_argument("--commit", default="not stated")
    parser.add_argument("--out", help="path of the .json and .md without their endings")
    parser.add_argument("--page", help="write the .md again from the .json of that path")
    args = parser.parse_args()
    if args.page:
        folder, name = Path(args.page).parent, Path(args.page).name
        later = [json.loads(file.read_text()) for file in sorted(folder.glob(f"{name}_again*.json"), reverse=True)]
        weighted = json.loads((folder / f"{name}_weighted.json").read_text())
        study_file = folder / f"{name}.json"
        (folder / f"{name}.md").write_text(page(json.loads(study_file.read_text()), later, weighted))
        return
    began = time.time()
    known = json.loads(Path(args.truth).read_text())["cells"] if args.truth else {}
    data = {
        "command": f"python -m benchmarks.coverage --sets {args.sets} --resampled {args.resampled}"
        + (f" --cells '{args.cells}'" if args.cells else "")
        + (f" --words {' '.join(args.words)}" if args.words != WORDS else ""),
        "commit": args.commit,
        "machine": f"{args.workers} processes, {platform.processor() or platform.machine()}, torch {torch.__version__}",
        "sets": args.sets,
        "resampled": args.resampled,
        "cells": study(args.sets, args.resampled, args.workers, args.minutes, known, args.cells, tuple(args.words)),
        "minutes": (time.time() - began) / 60,
    }
    if args.out:
        Path(f"{args.out}.json").write_text(json.dumps(data, indent=1) + "\n")
        Path(f"{args.out}.md").write_text(page(data))
    print(page(data))


if __name__ == "__main__":
    main()
