"""How often a report and the slice finder claim what is not there, and find what is, by simulation.

    python -m benchmarks.claims_validity [--draws 200] [--first-seed 0] [-o benchmarks/results/claims_validity.md]

Calibrated data: labels are drawn from the model's own probabilities, so every claim of over- or underconfidence is
false. Headings are read from the rendered page. With features and difficulty: five Gaussian classes, the score `rmd` of
the own label, which the finder must leave out, and clusters of the features. Images: 60 of 256 pixels, each right or
wrong by blocks of 16. Beyond chance: the heading of the diagram first shown says so, by the test beside it. Planted: in
one of fifty sites (2 % of 50,000 rows) accuracy is lower than confidence by ten points, everything else is calibrated.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from collections.abc import Callable
from html import unescape
from pathlib import Path

import numpy as np
import torch

from confide import Predictions, dense, evaluate
from confide.difficulty import fit
from confide.evaluation import find_slices
from confide.records import Features
from confide.report import render_report

BEYOND = re.compile(r"beyond chance|runs ahead|lags behind|off both ways")
DIRECTION = re.compile(r"overconfident|underconfident|runs ahead|lags behind|off both ways")
HEADINGS = {
    "verdict": re.compile(r"<h1>(.*?)</h1>", re.S),
    "reliability diagram": re.compile(r"<h3>((?:Beyond |Confidence |Off |Mostly |Within |Too ).*?)</h3>", re.S),
    "gap by class": re.compile(r"<h3>((?:No single class|Every class|\d+ of \d+ classes).*?)</h3>", re.S),
}
NONE = "no single class is clearly"


def drawn(seed: int, n: int, planted: float = 0.0) -> Predictions:
    """Calibrated predictions with three columns; in site 7 of 50 accuracy is lower by `planted`."""
    draw = np.random.default_rng(seed)
    logits = torch.from_numpy(draw.normal(0, 2, (n, 5)))
    labels = torch.multinomial(logits.softmax(1), 1, generator=torch.Generator().manual_seed(seed))[:, 0]
    site, right = draw.integers(0, 50, n), (logits.argmax(1) == labels).numpy()
    wronged = (site == 7) & right & (draw.random(n) < planted / right.mean())
    labels[torch.from_numpy(wronged)] = (labels[torch.from_numpy(wronged)] + 1) % 5
    columns = {"site": site.astype(str), "camera": draw.choice(list("ab"), n), "age": draw.normal(size=n)}
    return Predictions(logits, labels, columns=columns)


def drawn_images(seed: int) -> Predictions:
    """Calibrated pixels of 60 images: the four by four blocks of an image are each right or wrong as one."""
    draw = np.random.default_rng(seed)

    def blocks(values: np.ndarray) -> np.ndarray:
        return values.repeat(4, axis=-1).repeat(4, axis=-2)

    logits = draw.normal(0, 2, (60, 3, 4, 4))
    below = np.cumsum(np.exp(logits), axis=1)
    labels = (draw.random((60, 1, 4, 4)) * below[:, -1:] > below[:, :2]).sum(axis=1)
    return dense.pixels(blocks(logits), blocks(labels))


def claimed_with_difficulty(seed: int, n: int) -> bool:
    """Whether a slice is claimed on calibrated data that come with features and a score which looked at the labels."""
    draw, means = np.random.default_rng(seed), 2.2 * np.eye(5)
    features = means[draw.integers(0, 5, 2 * n)] + draw.normal(size=(2 * n, 5))
    logits = torch.from_numpy(features @ means.T)
    labels = torch.multinomial(logits.softmax(1), 1, generator=torch.Generator().manual_seed(seed))[:, 0]
    ids = [f"{k}" for k in range(n)]
    scores = fit("rmd", features[:n], labels[:n].numpy()).score(features[n:], labels[n:].numpy(), ids=ids)
    predictions = Predictions(logits[n:], labels[n:], ids=ids)
    rows = Features(features[n:], labels[n:].numpy(), scores.ids, "drawn")
    return bool(find_slices(predictions, scores=scores, features=rows).slices)


def claims_of(page: str) -> set[str]:
    """The headings of a page that claim a direction, and whether the diagram that is first shown is beyond chance."""
    claims = set()
    first = HEADINGS["reliability diagram"].search(page)
    if first and BEYOND.search(first[1].lower()):
        claims.add("first diagram")
    for name, heading in HEADINGS.items():
        texts = [unescape(re.sub(r"<[^>]+>", "", text)).lower() for text in heading.findall(page)]
        assert texts, f"the page has no heading of {name}"
        if any(DIRECTION.search(text) and NONE not in text for text in texts):
            claims.add(name)
    return claims


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("-o", "--out", type=Path, default=Path("benchmarks/results/claims_validity.md"))
    args = parser.parse_args()
    draws, seeds = args.draws, range(args.first_seed, args.first_seed + args.draws)
    rows = []
    samples: dict[str, Callable[[int], Predictions]] = {
        "300 calibrated samples": lambda seed: drawn(seed, 300),
        "3,000 calibrated samples": lambda seed: drawn(seed, 3000),
        "calibrated images": drawn_images,
    }
    for name, draw in samples.items():
        claims = [claims_of(render_report(evaluate(draw(seed), by="class"))) for seed in seeds]
        for heading in HEADINGS:
            share = sum(heading in claim for claim in claims) / draws
            rows.append(f"| {heading} claims a direction, {name} | {100 * share:.1f} % | 5 % at most |")
        share = sum("first diagram" in claim for claim in claims) / draws
        rows.append(f"| the diagram first shown is called beyond chance, {name} | {100 * share:.1f} % | about 5 % |")
    for n in (1_500, 20_000):
        share = sum(bool(find_slices(drawn(seed, n)).slices) for seed in seeds) / draws
        rows.append(f"| a slice is claimed, {n:,} calibrated rows | {100 * share:.1f} % | 5 % at most |")
    share = sum(claimed_with_difficulty(seed, 4_000) for seed in seeds) / draws
    rows.append(f"| the same, 4,000 rows with features and difficulty | {100 * share:.1f} % | 5 % at most |")
    planted = [[s.name for s in find_slices(drawn(seed, 50_000, 0.1)).slices] for seed in seeds[: draws // 2]]
    share = sum(any("site=7" in name for name in names) for names in planted) / len(planted)
    first = sum(bool(names) and names[0] == "site=7" for names in planted) / len(planted)
    rows.append(f"| the planted slice is found, 50,000 rows | {100 * share:.0f} % | 90 % |")
    rows.append(f"| it is the first of the list, alone | {100 * first:.0f} % | |")
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    error = 100 * (0.05 * 0.95 / draws) ** 0.5
    args.out.write_text(
        "# Claims that are not there, and slices that are\n\n"
        f"Commit {commit}, {draws} draws each ({draws // 2} of the planted slice), seeds {seeds[0]} on; "
        f"the standard error of 5 % is {error:.1f} points.\n\n"
        f"    python -m benchmarks.claims_validity --draws {draws} --first-seed {seeds[0]}\n\n"
        "| what | share of draws | asked |\n|---|---|---|\n"
        + "\n".join(rows)
        + "\n\n"
        + (__doc__ or "").split("\n\n")[2]
    )
    print(args.out.read_text())


if __name__ == "__main__":
    main()
