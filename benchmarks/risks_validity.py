"""How often an operating point breaks its promises, over many calibration sets, against the confidence it states.

Three classes, labels drawn from softmax(z); true rates come from a population of 60,000. A promise with confidence
1 - delta may be broken in a share delta of all sets; one in expectation must hold on average.

    python -m benchmarks.risks_validity --out benchmarks/results/risks_validity.md
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import confide

DELTA = 0.1
CASES: tuple[tuple[dict[str, float], dict[str, Any]], ...] = (
    ({"error": 0.12}, {}),
    ({"fpr[1]": 0.05}, {}),
    ({"fpr": 0.05}, {}),
    ({"recall[1]": 0.5}, {}),
    ({"fnr": 0.5}, {}),
    ({"precision[1]": 0.9}, {}),
    ({"accepted_error": 0.08}, {}),
    ({"error": 0.12, "fpr[1]": 0.05}, {}),
    ({"error": 0.12, "recall[1]": 0.5}, {}),
    ({"error": 0.12, "fpr": 0.05, "recall": 0.45}, {"method": "fallback"}),
    ({"precision": 0.85, "fpr": 0.05}, {"per_class": True}),
    ({"harm": 0.05}, {}),
    ({"fpr[1]": 0.05}, {"promise": "expectation"}),
    ({"recall[1]": 0.5}, {"promise": "expectation"}),
    ({"accepted_error": 0.08}, {"promise": "expectation"}),
)


def population(n: int, seed: int) -> confide.Predictions:
    generator = torch.Generator().manual_seed(seed)
    logits = 2.5 * torch.randn(n, 3, generator=generator)
    uniform = torch.rand(n, 3, generator=generator).clamp_min_(1e-12)
    return confide.Predictions(logits, (logits - (-uniform.log()).log()).argmax(dim=1))


def harm(predictions: confide.Predictions) -> Any:
    """A loss in [0, 1]: an error costs more the farther apart the classes are."""
    facts = predictions.facts
    return (facts.prediction - predictions.labels).abs().double() / 2


def line(risks: dict[str, float], options: dict[str, Any], whole: confide.Predictions, n: int, draws: int) -> str:
    """One row: how often a point was found, how often a promise was broken, how much was accepted."""
    rng, broken, promised, coverage = np.random.default_rng(0), 0, 0, 0.0
    rates: list[list[float]] = []
    for _ in range(draws):
        part = whole.take(rng.choice(len(whole), n, replace=False))
        point = confide.operating_point(part, risks, 1 - DELTA, losses={"harm": harm(part)}, **options)
        if not point.certified:
            continue
        promised += 1
        coverage += point.coverage
        seen = confide.evaluation.observed_risks(point, whole, losses={"harm": harm(whole)})
        broken += any(risk.rate < risk.limit if risk.at_least else risk.rate > risk.limit for risk in seen)
        rates.append([risk.rate for risk in seen])
    words = ", ".join(f"{name} {limit:g}" for name, limit in risks.items())
    how = ", ".join(str(v) if v is not True else k for k, v in options.items())
    if options.get("promise") == "expectation":
        means, errors = np.mean(rates, axis=0), np.std(rates, axis=0) / max(promised, 1) ** 0.5
        limit = next(iter(risks.values()))
        held = abs(means[0] - limit) < 3 * errors[0] or (means[0] > limit) == ("recall" in words)
        measured = f"mean {means[0]:.4f} ± {errors[0]:.4f}"
    else:
        share = broken / draws
        held = share <= DELTA + 3 * (DELTA * (1 - DELTA) / draws) ** 0.5
        measured = f"{share:.4f}"
    mean = f"{coverage / promised:.3f}" if promised else ""
    return f"| {words} | {how} | {n:,} | {promised / draws:.3f} | {measured} | {'yes' if held else 'NO'} | {mean} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--population", type=int, default=60_000)
    parser.add_argument("--out", help="write the page there")
    args = parser.parse_args()
    torch.set_num_threads(1)
    whole, start, rows = population(args.population, 1), time.process_time(), []
    for risks, options in CASES:
        for n in (300, 2000):
            rows.append(line(risks, options, whole, n, args.draws))
            print(rows[-1], flush=True)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    broken = sum("| NO |" in row for row in rows)
    head = [
        "# Several promised risks: how often a promise is broken",
        "",
        f"{len(rows) - broken} of {len(rows)} rows keep their promise, up to three Monte-Carlo errors: broken in at "
        f"most {DELTA:g} of all calibration sets, or on average not above the limit.",
        "",
        f"{args.draws:,} calibration sets each; sets for which no threshold is found count as kept. Made by "
        f"`python -m benchmarks.risks_validity --draws {args.draws}`, seed 0, commit {commit}, {platform.machine()}, "
        f"one thread, {time.process_time() - start:.0f} CPU s.",
        "",
        "| risks | how | n | found | broken | kept | accepted |",
        "|---|---|---|---|---|---|---|",
    ]
    if args.out:
        confide.files.write_text(Path(args.out), "\n".join([*head, *rows, ""]))
    print(head[2])


if __name__ == "__main__":
    main()
