"""Tables of the re-splits, the rule, and what is missing, from what `trainings` kept.

    OMP_NUM_THREADS=1 python -m benchmarks.resplits judge STATE [--out benchmarks/results/resplits]

Figures of a training that are in OUT/figures.json already are not made again, so trainings may come in several calls
and their files need not be kept. `calibrated` stages are fitted on val, all figures are of test, or of corrupted test
images with the calibrators of clean val. Calibrators that look at features see the discriminant directions (`view`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.findings.cells import markdown
from benchmarks.lib import titles
from benchmarks.lib.cells import numbers
from benchmarks.resplits.splits import SEEDS
from benchmarks.resplits.trainings import METHODS
from confide import Features, Predictions, calibrators, difficulty, files, random, trust
from confide.metrics import aurc, calibration_test
from confide.results import LEVEL

WORDS = ("accuracy", "nll", "ece_mass", "aurc", "confidence_gap")
SHIFTED = ("accuracy", "nll", "ece_mass", "aurc")
LENGTHS = (16, 50)
PLAIN = "cross_entropy"
COMMON = ("raw", "temperature", "temperature by difficulty", "gaussian")
POST_HOC = (
    *("temperature", "temperature by difficulty", "ensemble_temperature", "vector", "structured_vector"),
    *("structured_matrix", "beta", "isotonic", "centred_isotonic", "venn_abers", "platt", "spline", "top_versus_all"),
    *("parameterised_temperature", "dac", "procal", "maxlogit_pnorm"),
)
"""Methods of a given network without an opinion; maxlogit_pnorm ranks, it does not calibrate."""
OPINIONS = ("gaussian", "logistic", "knn")
SECOND = (*OPINIONS, "gaussian, classes kept", "opinion alone")
OPINION_FOLDS = 5
THINNING = 5


def logistic_posteriors(folder: Path, seed: int) -> Any:
    """Of val and test; those made first lie in a plain array."""
    whole, plain = folder / f"logistic-{seed}.npz", folder / f"logistic-{seed}.npy"
    if whole.exists():
        with np.load(whole) as arrays:
            return arrays["log_posterior"].astype(np.float32)
    return np.load(plain).astype(np.float32) if plain.exists() else None


@dataclass(frozen=True, eq=False)
class Seed:
    """What is known of the images of a seed: features of each split, and opinions on val and test."""

    rows: Mapping[str, Features]
    opinions: Mapping[str, Mapping[str, Predictions]]
    fitted: difficulty.FittedDifficulty

    @classmethod
    def read(cls, folder: Path, seed: int) -> Seed:
        with np.load(folder / f"view-{seed}.npz") as view:
            arrays = dict(view)
        rows = {}
        for split in ("train", "val", "test"):
            at = arrays[split]
            labels = arrays["labels"][at].astype(np.int64)
            rows[split] = Features(arrays["rows"][at].astype(np.float32), labels, at.astype(np.str_), "view", split)
        tables = {"knn": arrays["knn"].astype(np.float32)}
        if (logistic := logistic_posteriors(folder, seed)) is not None:
            tables["logistic"] = logistic
        first = len(rows["val"])
        cut = {"val": slice(0, first), "test": slice(first, None)}
        opinions: dict[str, dict[str, Predictions]] = {name: {} for name in tables}
        for name, table in tables.items():
            for split, part in cut.items():
                opinions[name][split] = Predictions(table[part], rows[split].labels, rows[split].ids, split)
        return cls(rows, opinions, difficulty.fit("rmd", rows["train"]))

    @property
    def thinned(self) -> Features:
        """Every fifth training image: neighbours of 80,000 corrupted ones among all of them would take an hour."""
        train = self.rows["train"]
        values = np.asarray(train.values)[::THINNING]
        return Features(values, train.labels[::THINNING], train.ids[::THINNING], train.extractor, "train")

    def predictions(self, logits: Any, split: str, labels: Any = None, rows: Features | None = None) -> Predictions:
        """Predictions with the difficulty to the likeliest class as a column."""
        part = self.rows[split] if rows is None else rows
        known = Predictions(logits.astype(np.float32), part.labels if labels is None else labels, part.ids, split)
        return known.with_column("difficulty", self.fitted.score(part, "predicted").values)


@dataclass(frozen=True, eq=False)
class Stage:
    """Test predictions after a calibrator; `rank` instead of the confidence where it only ranks."""

    calibrate: Any
    rank: Any = None


def stages(seed: Seed, val: Predictions, names: tuple[str, ...]) -> Iterator[tuple[str, Stage]]:
    """Every stage, fitted on val: a function of predictions, their features and opinions."""
    rows = seed.rows
    for name in names:
        if name == "raw":
            yield name, Stage(lambda p, f, o: p)
        elif name == "temperature by difficulty":
            fitted = calibrators.fit("temperature", val, by="difficulty", bands=5)
            yield name, Stage(lambda p, f, o, c=fitted: c(p))
        elif name in ("gaussian", "gaussian, classes kept"):
            classes = "kept" if "kept" in name else "free"
            fitted = calibrators.fit("second_opinion", val, features=rows["val"], fitted=seed.fitted, classes=classes)
            yield name, Stage(lambda p, f, o, c=fitted: c(p, f))
        elif name in ("logistic", "knn"):
            if name in seed.opinions:
                fitted = calibrators.fit("second_opinion", val, opinions={name: seed.opinions[name]["val"]})
                yield name, Stage(lambda p, f, o, c=fitted: None if o is None else c(p, opinions=o))
        elif name == "opinion alone":
            if "logistic" in seed.opinions:
                fitted = calibrators.fit("temperature", seed.opinions["logistic"]["val"])
                yield name, Stage(lambda p, f, o, c=fitted: None if o is None else c(o["logistic"]))
        elif name == "maxlogit_pnorm":
            scale = calibrators.fit("temperature", val)
            yield name, Stage(lambda p, f, o, c=scale: c(p), trust.fit(name, val))
        else:
            fitted = calibrators.fit(name, val, features=rows["val"], fitted=seed.thinned)
            yield name, Stage(lambda p, f, o, c=fitted: c(p, f))


def figures(predictions: Predictions, words: tuple[str, ...] = WORDS, rank: Any = None) -> dict[str, float]:
    """Metrics of one stage; of clean images with the p of the calibration test."""
    figures = numbers(predictions, words)
    if rank is not None:
        figures = {"accuracy": figures["accuracy"], "aurc": float(aurc(predictions, score=rank))}
    elif words is WORDS:
        figures["calibration_p"] = calibration_test(predictions, "ece_mass").p_value
    return figures


def judge_cell(folder: Path, path: Path) -> dict[str, Any]:
    """All figures of one training."""
    _, epochs, method, number = path.stem.split("-")
    seed = Seed.read(folder, int(number))
    with np.load(path) as cell:
        logits, about = {split: cell[split] for split in ("val", "test")}, json.loads(str(cell["about"]))
    val, test = (seed.predictions(logits[split], split) for split in ("val", "test"))
    names = dict.fromkeys((*COMMON, *(POST_HOC + SECOND if method == PLAIN else ())))
    opinions = {name: parts["test"] for name, parts in seed.opinions.items()}
    ready = dict(stages(seed, val, tuple(names)))
    clean = {}
    for name, stage in ready.items():
        rank = None if stage.rank is None else stage.rank(test)
        clean[name] = figures(stage.calibrate(test, seed.rows["test"], opinions), rank=rank)
    row = {"epochs": int(epochs), "method": method, "seed": int(number), "clean": clean, "about": about}
    shifted = folder / f"corrupted-{epochs}-{method}-{number}.npz"
    if shifted.exists():
        row["corrupted"] = judge_corrupted(folder, shifted, seed, ready, int(number))
    return row


def judge_corrupted(folder: Path, path: Path, seed: Seed, ready: Mapping[str, Stage], number: int) -> dict[str, Any]:
    """Means over the corruptions and severities, by stage; opinions that are not known there are left out."""
    with np.load(path) as cell, np.load(folder / f"corrupted-{number}.npz") as view:
        logits, rows, labels = cell["test"], view["test_rows"].astype(np.float32), view["test_labels"].astype(np.int64)
        names = view["names"]
    ids = np.array([f"c{i}" for i in range(len(rows))])
    features = Features(rows, labels, ids, "view", "test")
    whole = seed.predictions(logits, "test", labels, features)
    n = len(rows) // len(names)
    opinions = shifted_opinions(folder, number, whole)
    means: dict[str, Any] = {}
    for name, stage in ready.items():
        if name == "knn" or (name in ("logistic", "opinion alone") and opinions is None):
            continue
        after = stage.calibrate(whole, features, opinions)
        rank = None if stage.rank is None else stage.rank(whole)
        cells = []
        for k in range(len(names)):
            part = np.arange(k * n, (k + 1) * n)
            cells.append(figures(after.take(part), SHIFTED, None if rank is None else rank[part]))
        means[name] = {word: float(np.mean([cell[word] for cell in cells])) for word in cells[0]}
    return means


def shifted_opinions(folder: Path, number: int, whole: Predictions) -> dict[str, Predictions] | None:
    """What logistic regression on all columns says of the corrupted test images, where that is known."""
    path = folder / f"shifted_logistic-{number}.npz"
    if not path.exists():
        return None
    with np.load(path) as arrays:
        return {"logistic": Predictions(arrays["test"].astype(np.float32), whole.labels, whole.ids, "test")}


def cross_fitted(folder: Path, path: Path, opinion: str) -> np.ndarray:
    """NLL of every val sample under a second opinion fitted without its fold: what the rule reads."""
    seed = Seed.read(folder, int(path.stem.rpartition("-")[2]))
    with np.load(path) as cell:
        val = seed.predictions(cell["val"], "val")
    fold = random.folds(val.ids, seed.rows["val"].labels, OPINION_FOLDS, seed=0, purpose="rule")
    losses = np.empty(len(val))
    features, other = seed.rows["val"], seed.opinions.get(opinion, {}).get("val")
    for k in range(OPINION_FOLDS):
        train, held = (np.flatnonzero(mask) for mask in (fold != k, fold == k))
        if opinion == "gaussian":
            parts = [np.asarray(features.values)[rows] for rows in (train, held)]
            fitted = calibrators.fit("second_opinion", val.take(train), features=parts[0], fitted=seed.fitted)
            after = fitted(val.take(held), parts[1])
        else:
            assert other is not None
            fitted = calibrators.fit("second_opinion", val.take(train), opinions={opinion: other.take(train)})
            after = fitted(val.take(held), opinions={opinion: other.take(held)})
        losses[held] = after.facts.need("nll").double().numpy()
    return losses


def rule_losses(folder: Path, out: Path) -> dict[str, np.ndarray]:
    """Cross-fitted NLL by `method/opinion/seed`, of the trainings of the first length."""
    path = out / "rule.npz"
    known = dict(np.load(path)) if path.exists() else {}
    # Cross-entropy first: it decides the opinion that the losses are compared with.
    for cell in sorted(folder.glob(f"cell-{LENGTHS[0]}-*.npz"), key=lambda path: (PLAIN not in path.stem, path.stem)):
        _, _, method, seed = cell.stem.split("-")
        for opinion in OPINIONS if method == PLAIN else (chosen_opinion(known),):
            name = f"{method}/{opinion}/{seed}"
            if name not in known:
                known[name] = cross_fitted(folder, cell, opinion).astype(np.float16)
                print(name, float(known[name].astype(np.float64).mean()), flush=True)
    with files.atomic(path) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, **known)
    return known


def compared(losses: Mapping[str, np.ndarray], first: str, second: str) -> tuple[float, float]:
    """Mean and standard error of the paired difference, over samples and seeds."""
    gaps = np.concatenate(
        [losses[f"{first}/{seed}"].astype(np.float64) - losses[f"{second}/{seed}"].astype(np.float64) for seed in SEEDS]
    )
    return float(gaps.mean()), float(gaps.std(ddof=1) / np.sqrt(len(gaps)))


def chosen_opinion(losses: Mapping[str, np.ndarray]) -> str:
    """Point 3 of the rule: the lowest, but `gaussian` within two standard errors of it, or where not all are there."""
    if not all(f"{PLAIN}/{opinion}/{seed}" in losses for opinion in OPINIONS for seed in SEEDS):
        return OPINIONS[0]
    best = min(OPINIONS, key=lambda opinion: compared(losses, f"{PLAIN}/{opinion}", f"{PLAIN}/{OPINIONS[0]}")[0])
    gap, error = compared(losses, f"{PLAIN}/{OPINIONS[0]}", f"{PLAIN}/{best}")
    return OPINIONS[0] if gap <= 2 * error else best


def rule_text(losses: Mapping[str, np.ndarray]) -> str:
    """What the rule says; of a point whose trainings are not all there, which are missing."""
    lines = []
    if all(f"{PLAIN}/{opinion}/{seed}" in losses for opinion in OPINIONS for seed in SEEDS):
        for opinion in OPINIONS:
            mean = np.mean([losses[f"{PLAIN}/{opinion}/{seed}"].astype(np.float64).mean() for seed in SEEDS])
            gap, error = compared(losses, f"{PLAIN}/{opinion}", f"{PLAIN}/gaussian")
            lines.append(f"- `{opinion}`: L {mean:.4f}, to `gaussian` {gap:+.4f} ± {error:.4f} (standard error)")
        lines.append(f"- opinion by point 3: `{chosen_opinion(losses)}`")
    else:
        lines.append("- opinion: open, trainings of cross-entropy are missing")
    opinion = chosen_opinion(losses)
    whole = [method for method in METHODS if all(f"{method}/{opinion}/{seed}" in losses for seed in SEEDS)]
    for method in whole:
        gap, error = compared(losses, f"{method}/{opinion}", f"{PLAIN}/{opinion}")
        lines.append(f"- `{method}` with it: to cross-entropy {gap:+.4f} ± {error:.4f}")
    if len(whole) < len(METHODS):
        missing = ", ".join(f"`{method}`" for method in METHODS if method not in whole)
        lines.append(f"- loss by point 4: **open**, seeds are missing of {missing}")
    return "\n".join(lines)


def cell_rows(results: list[dict[str, Any]], epochs: int, method: str) -> list[dict[str, Any]]:
    """The results of one method and length, by seed."""
    return sorted((r for r in results if (r["epochs"], r["method"]) == (epochs, method)), key=lambda r: r["seed"])


def fisher(p_values: list[float]) -> float:
    """One p of all seeds: their test sets are disjoint."""
    return float(stats.combine_pvalues(np.clip(p_values, 1e-12, 1.0))[1])


def stage_line(own: list[dict[str, Any]], stage: str) -> list[str]:
    """Means over the seeds, of clean and of corrupted images."""
    clean = [r["clean"][stage] for r in own if stage in r["clean"]]
    shifted = [r["corrupted"][stage] for r in own if stage in r.get("corrupted", {})]

    def spread_text(rows: list[dict[str, float]], word: str, digits: int) -> str:
        values = [titles.scaled(word, row[word]) for row in rows if word in row]
        return f"{np.mean(values):.{digits}f} ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else "-"

    p_values = [row["calibration_p"] for row in clean if "calibration_p" in row]
    tested = f"{sum(p > LEVEL for p in p_values)} of {len(p_values)}; {fisher(p_values):.2g}" if p_values else "-"
    return [
        stage,
        *(spread_text(clean, *how) for how in (("accuracy", 2), ("nll", 4), ("ece_mass", 2))),
        tested,
        spread_text(clean, "aurc", 2),
        *(spread_text(shifted, *how) for how in (("nll", 3), ("ece_mass", 1), ("aurc", 0))),
    ]


LOST = (
    "A first run of 33 trainings of 16 epochs was lost with its machine; only its test accuracies were seen",
    "(cross-entropy 92.98, 92.53, 92.41, 92.45, 92.74 by seed). The rule stood before it and was not changed since.",
    "What is here was trained again with the same seeds; which methods came first was a choice of time.",
)
"""What a reader must know of trainings that are not in the tables."""
HEAD = [
    "stage",
    *map(titles.heading, ("accuracy", "nll", "ece_mass")),
    "p > .05; Fisher",
    titles.heading("aurc"),
    *(f"{titles.heading(word)}, corrupted" for word in ("nll", "ece_mass", "aurc")),
]


def target_rows(results: list[dict[str, Any]], epochs: int, opinion: str) -> list[list[str]]:
    """The targets against cross-entropy with an opinion: what the recipe may become by the rule."""
    own = cell_rows(results, epochs, PLAIN)

    def mean(stage: str, word: str, place: str = "clean") -> float:
        return float(np.mean([r[place][stage][word] for r in own]))

    def best(word: str, place: str = "clean") -> tuple[float, str]:
        return min((mean(name, word, place), name) for name in POST_HOC if word in own[0][place].get(name, {}))

    gain = 100 * (mean(opinion, "accuracy") - mean("raw", "accuracy"))
    lines = [["accuracy, at least +1.0 point", f"{gain:+.2f}", _met(gain >= 1.0)]]
    for word, limit in (("nll", 0.80), ("aurc", 0.70)):
        value, (least, name) = mean(opinion, word), best(word)
        outcome = f"{value / least:.3f} x that of `{name}`"
        lines.append([f"{word}, at most {limit:.2f} x the best", outcome, _met(value <= limit * least)])
    p_values = [r["clean"][opinion]["calibration_p"] for r in own]
    passed, together = sum(p > LEVEL for p in p_values), fisher(p_values)
    outcome = f"{passed} of {len(p_values)}, Fisher {together:.3g} ({', '.join(f'{p:.3f}' for p in p_values)})"
    lines.append(["calibration p > .05, 4 of 5 seeds and Fisher", outcome, _met(passed >= 4 and together > LEVEL)])
    if all(opinion in r.get("corrupted", {}) for r in own):
        for word in ("nll", "ece_mass", "aurc"):
            value, (least, name) = mean(opinion, word, "corrupted"), best(word, "corrupted")
            outcome = f"{value:.4f} against {least:.4f} of `{name}`"
            lines.append([f"corrupted {word}, below all", outcome, _met(value < least)])
    else:
        lines.append(["corrupted NLL, ECE and AURC, below all", "not measured with this opinion", "open"])
    return lines


def _met(state: bool) -> str:
    return "met" if state else "**missed**"


def page(results: list[dict[str, Any]], losses: Mapping[str, np.ndarray]) -> str:
    """The page: the network given, losses beside each other, the rule, the targets, what is missing."""
    lines = [
        "# CIFAR-10 on exchangeable re-splits",
        "",
        "Written by `python -m benchmarks.resplits judge`; protocol and rule: [rule.md](rule.md). Five seeds with",
        "disjoint test sets of 10,000 images, ± is their standard deviation. Corrupted: means over 16 corruptions x 5",
        "severities of 1,000 test images a seed, calibrators fitted on clean val.",
    ]
    for epochs in LENGTHS:
        own = cell_rows(results, epochs, PLAIN)
        if len(own) < len(SEEDS):
            lines += ["", f"**{epochs} epochs: {len(own)} of {len(SEEDS)} trainings of cross-entropy are there.**"]
            continue
        rows = [stage_line(own, stage) for stage in ("raw", *POST_HOC, *SECOND)]
        lines += ["", f"## The network is given: cross-entropy, {epochs} epochs", "", markdown(HEAD, rows)]
        lines += [
            "",
            "`dac` and `procal` look at the discriminant directions of EfficientNet-Lite0's features, as `gaussian`",
            "does, and at every fifth training image; `logistic` and `knn` at all 1,280 columns. `maxlogit_pnorm` only",
            "ranks. `opinion alone` is `logistic` by itself.",
        ]
        for opinion in ("gaussian", "logistic"):
            lines += ["", f"### Targets, {epochs} epochs, cross-entropy with `{opinion}`", ""]
            lines += [markdown(["asked", "found", ""], target_rows(results, epochs, opinion))]
        table = []
        for method in METHODS:
            several = cell_rows(results, epochs, method)
            if len(several) > 1:
                table += [[f"`{method}` ({len(several)})", *stage_line(several, stage)[:6]] for stage in COMMON]
        lines += ["", f"## Losses, {epochs} epochs", "", markdown(["method (seeds)", *HEAD[:6]], table)]
    lines += ["", "## The rule", "", rule_text(losses)]
    there = {(r["epochs"], r["method"], r["seed"]) for r in results}
    count = len(LENGTHS) * len(METHODS) * len(SEEDS)
    lines += ["", f"{len(there)} of {count} trainings are there.", "", *LOST]
    return "\n".join(lines) + "\n"


def run(state: Path, out: Path) -> None:
    """Figures of trainings that are not in OUT/figures.json yet, then the page."""
    path = out / "figures.json"
    results: list[dict[str, Any]] = files.read_json(path) if path.exists() else []
    for cell in sorted(state.glob("cell-*.npz")):
        _, epochs, method, seed = cell.stem.split("-")
        if not any((r["epochs"], r["method"], r["seed"]) == (int(epochs), method, int(seed)) for r in results):
            results.append(judge_cell(state, cell))
            files.write_json(path, results)
            print(cell.stem, {k: round(v["nll"], 4) for k, v in results[-1]["clean"].items() if "nll" in v}, flush=True)
    losses = rule_losses(state, out)
    files.write_text(out / "resplits.md", page(results, losses))
