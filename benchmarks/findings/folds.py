"""Are the validation images to blame for what the recipe's calibrator leaves on test? Ten others, and all together.

    python -m benchmarks.findings.folds --cifar cifar-10-batches-bin --out folds --time-limit 300

CIFAR-10's 50,000 training images in ten folds of 5,000: each is the validation split of one training of the recipe on
the other 45,000, in the schedule of the lite scale. Every network is then calibrated twice: by its own fold, as
anyone would, and by all ten folds together, each told by the network that did not see it. Nothing is chosen by this.
Fitted on half of its fold it is also judged on the other half, images that differ from those of the fit by chance
alone, and beside it on as many of test.
A fold that has its file is not trained again; two processes share the GPU. On two cores, to try it out:

    python -m benchmarks.findings.folds --cifar fashion-sample --extractor cached --limit 300 --epochs 1 --out try
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.findings import data
from benchmarks.findings.cells import markdown
from benchmarks.findings.trials import arguments, numbers
from benchmarks.lib import titles
from benchmarks.lib.cells import calibrator_of
from benchmarks.lib.grid import method_named
from benchmarks.papers.trust_table import machine
from confide import Dataset, Features, Predictions, Split, calibrators, difficulty, files, random
from confide.results import LEVEL
from confide.training import Settings, fit, predict

FOLDS = 10
RECIPE = method_named("confide").resolved()
STAGES = {
    "raw": "none",
    "own": "its own fold",
    "pooled": "all folds together",
    "own_temperature": "its own fold, one temperature",
    "pooled_temperature": "all folds together, one temperature",
}


def main() -> None:
    args = arguments(__doc__ or "", "folds")
    began, out = time.monotonic(), Path(args.out)
    dataset = data.open_data(args.cifar, limit=args.limit)
    pool = joined(dataset.train, dataset.val)
    if args.part is not None:
        train(args, dataset, pool, range(args.part, FOLDS, 2), began)
        return
    other = subprocess.Popen([sys.executable, "-m", "benchmarks.findings.folds", *sys.argv[1:], "--part", "1"])
    train(args, dataset, pool, range(0, FOLDS, 2), began)
    other.wait()
    if all(fold_file(out, fold).exists() for fold in range(FOLDS)):
        score(out, dataset, pool, args.extractor)
        content: dict[str, Any] = {"folds": compared(out), "settings": settings_of(args, 0).as_dict(), **machine()}
        files.write_json(out / "folds.json", content)
        print(table(content["folds"]))


def joined(first: Split, second: Split) -> Split:
    """Both as one."""
    inputs, labels, ids = (
        np.concatenate([getattr(first, name), getattr(second, name)]) for name in ("inputs", "labels", "ids")
    )
    columns = {name: np.concatenate([values, second.columns[name]]) for name, values in first.columns.items()}
    return Split(inputs, labels, ids, columns)


def fold_of(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """The fold of every sample, drawn once; each has its share of every class."""
    keys = np.argsort(np.random.default_rng(0).permutation(len(labels)))
    return random.deal(keys, labels, FOLDS)


def fold_file(out: Path, fold: int, what: str = "said") -> Path:
    """The file of what a fold's network said, or of the `difficulty` of its images and test's."""
    return out / f"{what}-{fold}.npz"


def settings_of(args: argparse.Namespace, fold: int) -> Settings:
    """The recipe in the schedule of the tables; every fold has its own seed too."""
    chosen = {"loss": RECIPE.loss, "loss_options": dict(RECIPE.options), "seed": fold}
    chosen |= {"epochs": args.epochs, "model": args.model}
    return Settings.from_dict({**data.SHORT, **RECIPE.training, **chosen})


def train(args: argparse.Namespace, dataset: Dataset, pool: Split, folds: Sequence[int], began: float) -> None:
    """The network of every one of these folds; what it says of its fold and of test is kept."""
    place = fold_of(pool.labels)
    for fold in folds:
        path = fold_file(Path(args.out), fold)
        if path.exists() or time.monotonic() - began > args.time_limit:
            continue
        splits = {"train": pool.take(np.flatnonzero(place != fold)), "val": pool.take(np.flatnonzero(place == fold))}
        cut = replace(dataset, splits={**splits, "test": dataset.test})
        trained = fit(cut, settings_of(args, fold))
        columns: dict[str, Any] = {}
        for split in ("val", "test"):
            predictions = predict(trained, cut, split)
            columns |= {
                f"{split}_logits": predictions.logits.cpu().numpy(),
                f"{split}_label": predictions.labels.cpu().numpy(),
            }
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_table(path, columns)
        print(f"fold {fold}: {time.monotonic() - began:.1f} s", flush=True)


def score(out: Path, dataset: Dataset, pool: Split, extractor: str) -> None:
    """Difficulty of every fold's images and of test's, by Gaussians of what the fold's network was trained on."""
    missing = [fold for fold in range(FOLDS) if not fold_file(out, fold, "difficulty").exists()]
    if not missing:
        return
    rows, test = (data.extract(extractor, *part) for part in ((pool, "train"), (dataset.test, "test")))
    place = fold_of(pool.labels)
    for fold in missing:
        fitted = difficulty.fit("rmd", _some(rows, place != fold))
        parts = {"val": _some(rows, place == fold), "test": test}
        columns = {split: fitted.score(part, "predicted").values for split, part in parts.items()}
        files.write_table(fold_file(out, fold, "difficulty"), columns)


def compared(out: Path) -> list[dict[str, Any]]:
    """Numbers of every fold's network on its fold and on test, by whom it is calibrated."""
    pairs = [tuple(_read(out, fold, split) for split in ("val", "test")) for fold in range(FOLDS)]
    pooled_val = _together([val for val, _ in pairs])
    pooled = {"pooled": _fitted(pooled_val), "pooled_temperature": calibrators.fit("temperature", pooled_val)}
    rows = []
    for fold, (val, test) in enumerate(pairs):
        stages = {"own": _fitted(val), **pooled, "own_temperature": calibrators.fit("temperature", val)}
        after = {"raw": numbers(test), **{name: numbers(calibrate(test)) for name, calibrate in stages.items()}}
        mixed = np.random.default_rng(fold)
        parts, some = np.array_split(mixed.permutation(len(val)), 2), mixed.permutation(len(test))
        halves = []
        for here, there in (parts, parts[::-1]):
            half = _fitted(val.take(here))
            chosen, some = some[: len(there)], some[len(there) :]
            halves.append({"fold": numbers(half(val.take(there))), "test": numbers(half(test.take(chosen)))})
        rows.append({"fold": fold, "val": numbers(val), "test": after, "halves": halves})
    return rows


def _read(out: Path, fold: int, split: str) -> Predictions:
    outputs, _ = files.read_table(fold_file(out, fold))
    hard, _ = files.read_table(fold_file(out, fold, "difficulty"))
    predictions = Predictions(outputs[f"{split}_logits"], outputs[f"{split}_label"], split=split)
    return predictions.with_column(calibrators.DIFFICULTY, hard[split])


def _together(parts: Sequence[Predictions]) -> Predictions:
    logits, labels = (np.concatenate([getattr(part, name).numpy() for part in parts]) for name in ("logits", "labels"))
    hard = np.concatenate([part.columns[calibrators.DIFFICULTY] for part in parts])
    return Predictions(logits, labels).with_column(calibrators.DIFFICULTY, hard)


def _some(rows: Features, chosen: NDArray[np.bool_]) -> Features:
    return replace(rows, values=rows.values[chosen], labels=rows.labels[chosen], ids=rows.ids[chosen])


def _fitted(val: Predictions) -> calibrators.Calibrator:
    return calibrator_of(RECIPE.calibrator, RECIPE.calibrated, val)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """A line per way of calibrating, then what the folds say of the test images."""
    if not rows:
        return ""
    shown = {("test", title): [row["test"][stage] for row in rows] for stage, title in STAGES.items()}
    for where, title in (("fold", "the other half"), ("test", "as many of test")):
        shown[title, "half its fold"] = [half[where] for row in rows for half in row["halves"]]
    columns = {"confidence_gap": "gap", "ece_mass": "ece_mass", "nll": "nll", "aurc": "aurc"}
    lines = []
    for names, some in shown.items():
        cells = [titles.spread(metric, [row[word] for row in some]) for metric, word in columns.items()]
        passed = sum(row["calibration_p"] > LEVEL for row in some)
        lines.append([*names, *cells, f"{passed} of {len(some)}"])
    head = ["judged on", "calibrated by", *map(titles.heading, columns), "p > 0.05"]
    return markdown(head, lines) + "\n\n" + luck(rows)


def luck(rows: Sequence[dict[str, Any]]) -> str:
    """Accuracy on the folds and on test in one sentence."""
    facts = titles.info("accuracy")
    own = facts.scale * np.array([row["val"]["accuracy"] for row in rows])
    test = facts.scale * np.array([row["test"]["raw"]["accuracy"] for row in rows])
    digits = facts.digits + titles.MORE_DIGITS
    before, after, more = (titles.mean_and_deviation(values, digits) for values in (own, test, own - test))
    error = (own - test).std(ddof=1) / math.sqrt(len(rows))
    gaps = ([row["val"]["gap"] for row in rows], [row["test"]["raw"]["gap"] for row in rows])
    on_folds, on_test = (titles.spread("confidence_gap", values) for values in gaps)
    return (
        f"Accuracy is {before} % on the folds, {after} % on test (more by {more}; its mean ± {error:.2f}); "
        f"raw confidence less accuracy {on_folds} and {on_test} points."
    )


if __name__ == "__main__":
    main()
