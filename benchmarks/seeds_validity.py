"""How often the interval of `compare_groups` holds the true difference of two ways of training, by simulation.

    python -m benchmarks.seeds_validity [--draws 400] [-o benchmarks/results/seeds_validity.md]

Every draw has its own test samples and runs. The margin of a sample is skill of the way + effect of the run -
difficulty of the sample + noise of this run on this sample; the true difference is that of the expected metric over
runs and samples, from a million margins of each way.
"""

from __future__ import annotations

import argparse
import math
import subprocess
from pathlib import Path

import numpy as np
import torch

from confide import Predictions
from confide.evaluation import compare_groups

SKILLS = {"equal": (1.0, 1.0), "b better": (1.0, 1.3)}
METRICS = ("accuracy", "nll")


def margins(skill: float, effects: np.ndarray, difficulty: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Margins `runs n`."""
    noise = 0.7 * draw.normal(size=(len(effects), len(difficulty)))
    return np.asarray(skill + effects[:, None] - difficulty + noise)


def predictions(margin: np.ndarray) -> list[Predictions]:
    """One record for each run; all labels are class 0."""
    labels = torch.zeros(margin.shape[1], dtype=torch.int64)
    return [Predictions(torch.from_numpy(np.stack([row, np.zeros_like(row)], axis=1)), labels) for row in margin]


def truth(skill: float, spread: float, draw: np.random.Generator) -> dict[str, float]:
    """Expected metrics of a way."""
    sd = math.sqrt(spread**2 + 1 + 0.7**2)
    margin = skill + sd * draw.normal(size=1_000_000)
    return {"accuracy": float((margin > 0).mean()), "nll": float(np.logaddexp(0, -margin).mean())}


def held(runs: int, n: int, spread: float, skills: tuple[float, float], draws: int) -> dict[str, float]:
    """Share of draws whose interval holds the true difference, by metric."""
    draw = np.random.default_rng([runs, n, int(100 * spread), int(100 * skills[1])])
    true = [truth(skill, spread, draw) for skill in skills]
    hits = dict.fromkeys(METRICS, 0)
    for _ in range(draws):
        difficulty = draw.normal(size=n)
        groups = [predictions(margins(skill, spread * draw.normal(size=runs), difficulty, draw)) for skill in skills]
        for test in compare_groups(*groups, metrics=METRICS):
            word = test.metric
            hits[word] += test.low <= true[1][word] - true[0][word] <= test.high
    return {word: count / draws for word, count in hits.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("-o", "--out", type=Path, default=Path("benchmarks/results/seeds_validity.md"))
    args = parser.parse_args()
    rows: list[str] = []
    shares: list[float] = []
    for name, skills in SKILLS.items():
        for runs in (2, 3, 5):
            for spread in (0.05, 0.2):
                share = held(runs, 300, spread, skills, args.draws)
                shares += share.values()
                rows.append(
                    f"| {name} | {runs} | {spread} | " + " | ".join(f"{100 * v:.1f} %" for v in share.values()) + " |"
                )
                print(rows[-1], flush=True)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    error = 100 * math.sqrt(0.05 * 0.95 / args.draws)
    text = f"""# Groups of runs: how often the 95 % interval holds the true difference

{100 * min(shares):.1f} to {100 * max(shares):.1f} % of {args.draws} draws (standard error {error:.1f} points); CPU,
commit {commit}. 300 test samples, shared by all runs; `sd of runs` is that of a run's effect on the margin, whose sd
over samples is 1.2.

    python -m benchmarks.seeds_validity --draws {args.draws}

| ways | runs of each | sd of runs | accuracy | NLL |
|---|---|---|---|---|
"""
    args.out.write_text(text + "\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
