"""A temperature for every label, drawn towards a shared one: does the cross-validated strength find what is best?

Generated predictions of 8 labels that go together, each too sure by a factor of its own: 2 exp(spread x normal). The
held-out NLL of 6,000 other samples is compared with that of the true probabilities.

    python -m benchmarks.label_shrinkage --sets 40 --out benchmarks/results/label_shrinkage.md
"""

from __future__ import annotations

import argparse
import math
import subprocess
import warnings
from pathlib import Path

import numpy as np

import confide

LABELS, HELD_OUT = 8, 6000
SPREADS, SIZES = (0.0, 0.1, 0.3, 0.6), (60, 200, 1000)
HARDWARE = "two cores of an AMD EPYC"


def simulated(n: int, factors: np.ndarray, seed: int) -> confide.Predictions:
    """Labels from common and rare ones, and logits that are too sure by these factors."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(np.linspace(1, -2.5, LABELS), 1.5, (n, LABELS)) + rng.normal(0, 1, (n, 1))
    labels = (rng.random((n, LABELS)) < 1 / (1 + np.exp(-logits))).astype(float)
    return confide.Predictions.multilabel(logits * factors, labels)


def nll(predictions: confide.Predictions) -> float:
    return confide.evaluate(predictions, ["nll"], False).value("nll")


def one_set(n: int, spread: float, seed: int) -> tuple[float, list[float]]:
    """The strength that was chosen, and what shared, own and drawn maps lose to the truth."""
    factors = 2 * np.exp(spread * np.random.default_rng((seed, 0)).normal(size=LABELS))
    val, test = simulated(n, factors, 2 * seed), simulated(HELD_OUT, factors, 2 * seed + 1)
    truth = nll(simulated(HELD_OUT, np.ones(LABELS), 2 * seed + 1))
    shared = confide.calibrators.fit("temperature", val)
    own = confide.calibrators.fit("temperature", val, by="label_name", shrinkage=0.0)
    drawn = confide.calibrators.fit("temperature", val, by="label_name")
    return drawn.shrinkage, [nll(calibrator(test)) - truth for calibrator in (shared, own, drawn)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="benchmarks/results/label_shrinkage.md")
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # that all labels use the shared map is counted here
    lines = [
        "# A map for every label, drawn towards a shared one",
        "",
        f"{LABELS} generated labels, each too sure by 2 exp(spread x normal); temperatures fitted on n samples. NLL "
        f"above that of the true probabilities on {HELD_OUT:,} other samples, in thousandths: mean of {args.sets} sets "
        "± its standard error. The last column: how often all labels got the shared map. No real predictions.",
        "",
        "| spread | n | one shared map | a map for each label | drawn, strength by cross-validation | wholly shared |",
        "|---|---|---|---|---|---|",
    ]
    for spread in SPREADS:
        for n in SIZES:
            results = [one_set(n, spread, args.seed + k) for k in range(args.sets)]
            lost = 1000 * np.array([own for _, own in results])
            error = lost.std(axis=0, ddof=1) / math.sqrt(args.sets)
            cells = [f"{m:.2f} ± {e:.2f}" for m, e in zip(lost.mean(axis=0), error, strict=True)]
            whole = np.mean([math.isinf(k) for k, _ in results])
            lines.append(f"| {spread:g} | {n:,} | " + " | ".join(cells) + f" | {whole:.0%} |")
            print(lines[-1], flush=True)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    lines += [
        "",
        f"`python -m benchmarks.label_shrinkage --sets {args.sets} --seed {args.seed}`, commit {commit}, {HARDWARE}.",
    ]
    Path(args.out).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
