"""How often 95 % intervals hold the truth where a question has several answers: by questions and by answers.

Every question has an ability, Beta(2, 2), with which each of its answers is right; the model says that ability, moved
by a bias of its own. True values are those of 2 million questions. The calibration error in bins is left out: its truth
depends on the bins.

    python -m benchmarks.answers_units --out benchmarks/results/answers_units.md
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import time
from pathlib import Path

import numpy as np

import confide

METRICS = ("accuracy", "confidence_gap", "confidence_brier", "auroc", "aurc")


def answers(questions: int, each: int, rng: np.random.Generator) -> confide.Predictions:
    ability = rng.beta(2, 2, questions).repeat(each)
    confidence = np.clip(ability + rng.normal(0, 0.15, questions).repeat(each), 0.01, 0.99)
    right = rng.random(questions * each) < ability
    return confide.Predictions.from_pairs(
        right, confidence, unit="question", question=np.arange(questions).repeat(each)
    )


def held(questions: int, each: int, sets: int, seed: int) -> list[tuple[str, float, float, float, float]]:
    """Metric, share of sets whose interval holds the truth and mean width, by questions and by answers."""
    truth = confide.metrics.measure_many(answers(2_000_000, 1, np.random.default_rng(seed)), METRICS)
    inside, width = np.zeros((2, len(METRICS))), np.zeros((2, len(METRICS)))
    for number in range(sets):
        record = answers(questions, each, np.random.default_rng((seed, number)))
        for way, p in enumerate((record, record.replace(unit=None))):
            for k, word in enumerate(METRICS):
                m = getattr(confide.metrics, word)(p)
                inside[way, k] += m.low <= truth[word] <= m.high
                width[way, k] += m.high - m.low
    shares, widths = inside / sets, width / sets
    return [(word, *shares[:, k].tolist(), *widths[:, k].tolist()) for k, word in enumerate(METRICS)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="benchmarks/results/answers_units.md")
    args = parser.parse_args()
    start = time.process_time()
    rows = held(200, 5, args.sets, args.seed)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    error = 196 * (0.95 * 0.05 / args.sets) ** 0.5
    lines = [
        "# Intervals of answers, by questions and by answers",
        "",
        f"200 questions with 5 answers each, {args.sets:,} sets; how often the 95 % interval holds the truth, and its "
        f"mean width. A share of 95 % is known to ±{error:.1f} points.",
        "",
        "| metric | holds, by questions | holds, by answers | width, by questions | width, by answers |",
        "|---|---|---|---|---|",
        *(f"| {w} | {a:.1%} | {b:.1%} | {c:.4f} | {d:.4f} |" for w, a, b, c, d in rows),
        "",
        f"`python -m benchmarks.answers_units --sets {args.sets} --seed {args.seed}`, commit {commit}, "
        f"{platform.processor() or platform.machine()}, {time.process_time() - start:.0f} s of CPU. Generated answers "
        "with known truth; no real ones.",
    ]
    Path(args.out).write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
