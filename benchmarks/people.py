"""Difficulty against people: rank correlation with the disagreement of CIFAR-10N's three annotators.

    OMP_NUM_THREADS=1 python -m benchmarks.people STATE --cifar cifar-10-batches-bin --people cifar10n.npz

STATE is the folder that `benchmarks.resplits.trainings` wrote: EfficientNet-Lite0's features in the discriminant
directions of each seed's training images, and the outputs of networks. Judged are the val and test images of a seed
that are official training images, which no fit of that seed has seen. No human judgement is used in any fit.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.special import entr, softmax

from benchmarks.findings.cells import markdown
from benchmarks.lib.cells import provenance
from benchmarks.resplits.judge import PLAIN, Seed
from benchmarks.resplits.splits import SEEDS, open_pool
from confide import Features, difficulty, files
from confide.types import Floats

COMMAND = "python -m benchmarks.people STATE --cifar cifar-10-batches-bin --people cifar10n.npz"
HELD = ("val", "test")
OTHER_LOSSES = ("confide", "adaptive_difficulty")
WITHOUT_LABEL = ("rmd, likeliest class", "kNN disagreement", "entropy of logistic regression", "combined")


def disagreement(path: Path) -> NDArray[np.int64]:
    """Of each official training image: 0 where all three annotators agree, 1 where two do, 2 where none do."""
    with np.load(path) as arrays:
        votes = np.sort(np.stack([arrays[f"random_label{k}"] for k in (1, 2, 3)], axis=1), axis=1)
    return np.asarray((np.diff(votes.astype(np.int64), axis=1) != 0).sum(axis=1))


def entropy(logits: Floats) -> Floats:
    """Of softmax(logits)."""
    return np.asarray(entr(softmax(logits.astype(np.float64), axis=1)).sum(axis=1))


def scores_of(folder: Path, number: int) -> dict[str, Floats]:
    """Every difficulty of the held-out images of a seed, val before test."""
    seed = Seed.read(folder, number)
    parts = [seed.rows[split] for split in HELD]
    rows = Features(
        np.concatenate([np.asarray(part.values) for part in parts]),
        np.concatenate([part.labels for part in parts]),
        np.concatenate([part.ids for part in parts]),
        "view",
    )
    scores = {
        "rmd, own class": seed.fitted.score(rows).values,
        "rmd, likeliest class": seed.fitted.score(rows, "predicted").values,
        "combined": difficulty.fit("combined", seed.rows["train"]).score(rows).values,
    }
    for name, title in (("knn", "kNN disagreement"), ("logistic", "entropy of logistic regression")):
        scores[title] = entropy(np.concatenate([seed.opinions[name][split].logits.numpy() for split in HELD]))
    networks = []
    for loss in (PLAIN, *OTHER_LOSSES):
        path = folder / f"cell-16-{loss}-{number}.npz"
        if path.exists():
            with np.load(path) as cell:
                networks.append(np.concatenate([cell[split] for split in HELD]).astype(np.float64))
    scores["entropy of one network"] = entropy(networks[0])
    scores[f"confusion of {1 + len(OTHER_LOSSES)} networks"] = np.asarray(
        entr(np.mean([softmax(logits, axis=1) for logits in networks], axis=0)).sum(axis=1)
    )
    both = (scores["combined"], scores["entropy of one network"])
    scores["combined and one network, mean rank"] = np.mean([stats.rankdata(part) for part in both], axis=0)
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("state", type=Path)
    parser.add_argument("--cifar", required=True)
    parser.add_argument("--people", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/people.md"))
    args = parser.parse_args()
    people, pool = disagreement(args.people), open_pool(args.cifar)[1]
    correlations: dict[str, list[float]] = {}
    images = 0
    for number in SEEDS:
        with np.load(args.state / f"seen-{number}.npz") as seen:
            ids = pool.ids[np.concatenate([seen[split] for split in HELD])]
        known = np.char.startswith(ids, "train-")
        marks = people[np.char.replace(ids[known], "train-", "").astype(np.int64)]
        images += len(marks)
        for name, values in scores_of(args.state, number).items():
            correlations.setdefault(name, []).append(float(stats.spearmanr(values[known], marks)[0]))
        print(number, {name: round(values[-1], 4) for name, values in correlations.items()}, flush=True)
    about = {**provenance(), "command": COMMAND}
    files.write_json(args.out.with_suffix(".json"), {"spearman": correlations, "images": images, "about": about})
    files.write_text(args.out, page(correlations, images, np.bincount(people) / len(people), about["commit"]))


def page(correlations: dict[str, list[float]], images: int, shares: Floats, commit: str) -> str:
    """The table, the highest first, and what limits it."""
    mean = {name: float(np.mean(values)) for name, values in correlations.items()}
    lines = [
        [name, f"{mean[name]:.3f} ± {np.std(correlations[name], ddof=1):.3f}"]
        for name in sorted(mean, key=lambda name: -mean[name])
    ]
    best = max(WITHOUT_LABEL, key=lambda name: mean[name])
    verdict = (
        "is the best of those that see neither the label nor a trained network"
        if best == "combined"
        else f"is **not** the best of those that see neither the label nor a trained network: {best} is"
    )
    return f"""# Difficulty and people

Spearman's rank correlation with how far the three annotators of CIFAR-10N disagree (all agree on {shares[0]:.1%} of the
images, two of three on {shares[1]:.1%}, none on {shares[2]:.1%}). Mean ± standard deviation over {len(SEEDS)} seeds,
{images:,} scores in all, of images held out of every fit of their seed; no human judgement is used in a fit. Written by
`python -m benchmarks.people`, commit {commit}.

{markdown(["difficulty", "Spearman"], lines)}

`combined` {verdict}.
It is {mean["combined"] - mean["rmd, likeliest class"]:+.3f} from `rmd` of the likeliest class. A trained network's own
entropy is at {mean["entropy of one network"]:.3f}, ranks of both together at
{mean["combined and one network, mean rank"]:.3f}. `rmd` of the own class sees the label, which people disagree about.

Limits: three votes an image make three values, so no score could come near 1. Features are EfficientNet-Lite0's in the
discriminant directions of the training images (`kNN disagreement` and logistic regression: all 1,280 columns). The
networks of the last rows are ResNet-18 of 16 epochs; the confusion is over three losses (two for seed 4).
Signs weighed by a logistic regression of held-out errors, and their mean in standard deviations, were looked at on seed
0 (.170 and .170, against .177 for the mean place): the simplest was taken, which was the best there too, so that its
row may flatter a little.
"""


if __name__ == "__main__":
    main()
