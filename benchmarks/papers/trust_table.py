"""Table 2 of Luo et al. (2021) on CIFAR-10, with their errors corrected: trust predictors of a ResNet-18, three seeds.

    python -m benchmarks.papers.trust_table --data cifar-10-batches-bin --out results/trust

Training and scoring write scores-SEED.npz and test-SEED.parquet; intervals and paired tests, which need no GPU, make
trust_table.md, trust_table.json and an evaluation per seed from them (`--collect` and `--tabulate` do one of the two;
several processes may collect seeds into one folder). With `--extractor efficientnet_lite0` the combined predictor is
also fitted with two signals from pre-trained features, whose extraction into OUT/features goes on where it stopped
(`--extract` does nothing else). A dry run on two cores in a few minutes:

    python -m benchmarks.papers.trust_table --data fashion-sample --model small_cnn --epochs 4 --seeds 0 --out dry
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import confide
from benchmarks.lib import titles
from benchmarks.lib.cells import provenance
from confide import Features, Split, files
from confide.evaluation import TrustValues, compare_trust, rates_at_same_tpr
from confide.features import extract
from confide.records import rows_of
from confide.training import Settings, cross_fit, fit, fit_oracle, penultimate, predict
from confide.trust import augmented

LOSSES = ("steep_slope", "tcp", "binary_cross_entropy", "binary_focal")
METRICS = ("auroc", "aurc", "eaurc", "aupr_success", "aupr_error", "fpr95", "tpr", "tnr", "separability_kl")
STORED = (*LOSSES, "class_balanced", "mcp", "entropy", "margin", "max_logit", "energy")
ALPHAS = (1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8, 2.0, 2.5)
LEAST_TPR = 0.98
PASSES = 50


def main() -> None:
    args = arguments()
    out = Path(args.out)
    if args.extract:
        pretrained_features(args, confide.load_dataset(args.data, val_fraction=0.1), out)
        return
    if not args.tabulate:
        files.write_json(out / "machine.json", {**machine(), "command": command(args), "model": args.model})
        for seed in args.seeds:
            collect(args, seed, out)
    if not args.collect:
        rows = [row for seed in args.seeds for row in tabulate(seed, out)]
        files.write_json(out / "trust_table.json", {"options": vars(args), "rows": rows})
        files.write_text(out / "trust_table.md", markdown(args, files.read_json(out / "machine.json"), rows))
        print((out / "trust_table.md").read_text())


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder of CIFAR-10, or any dataset that confide reads")
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--learning-rate", type=float, default=0.2)
    parser.add_argument("--oracle-epochs", type=int, default=10)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--extractor", default="", help="pre-trained features for two more signals, such as clip")
    parser.add_argument("--extract", action="store_true", help="those features only")
    parser.add_argument("--errors", action="store_true", help="also compare held-out, out-of-fold and augmented errors")
    parser.add_argument("--collect", action="store_true", help="train and score only")
    parser.add_argument("--tabulate", action="store_true", help="tests and tables only, from what --collect wrote")
    parser.add_argument("--workers", type=int, default=0, help="processes that prepare images for the extractor")
    parser.add_argument("--out", default="trust-table")
    return parser.parse_args()


def command(args: argparse.Namespace) -> str:
    """What was run, with the data's name instead of its place."""
    words = [Path(word).name if word in (args.data, args.out) else word for word in sys.argv[1:]]
    return " ".join(["python", "-m", "benchmarks.papers.trust_table", *words])


def machine() -> dict[str, str]:
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    return {
        "device": name,
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d"),
        "commit": str(provenance()["commit"]),
    }


def collect(args: argparse.Namespace, seed: int, out: Path) -> None:
    """Train a classifier, fit every predictor on val, score test."""
    began = time.monotonic()
    dataset = confide.load_dataset(args.data, seed=seed, val_fraction=0.1)
    augment = "crop_flip" if args.model.startswith(("resnet", "wide")) else "none"
    settings = Settings(
        model=args.model,
        model_options={"dropout": 0.1},
        epochs=args.epochs,
        batch_size=args.batch,
        learning_rate=args.learning_rate,
        augment=augment,
        seed=seed,
    )
    classifier = fit(dataset, settings)
    predictions = {split: predict(classifier, dataset, split) for split in ("train", "val", "test")}
    features = {split: penultimate(classifier, dataset, split) for split in ("train", "val", "test")}
    accuracy = float(predictions["test"].facts.correct.float().mean())
    say(seed, f"classifier: accuracy {100 * accuracy:.2f} % on test, {time.monotonic() - began:.0f} s")
    scores = stored_scores(predictions, features, seed)
    if args.extractor:
        scores |= pretrained_scores(predictions, features, pretrained_features(args, dataset, out), seed)
    scores |= network_scores(args, classifier, dataset, seed, augment)
    scores["mc_dropout"] = dropout_scores(classifier, dataset)
    if args.errors:
        scores |= error_scores(args, settings, classifier, dataset, predictions, features, seed)
    predictions["test"].save(out / f"test-{seed}.parquet")
    thresholds = {
        f"{name}|threshold": np.array(trust.threshold) for name, trust in scores.items() if trust.threshold is not None
    }
    orders = {f"{name}|order": trust.order for name, trust in scores.items() if trust.order is not None}
    files.write_table(out / f"scores-{seed}.npz", {**{k: v.values for k, v in scores.items()}, **orders, **thresholds})
    say(seed, f"{len(scores)} predictors scored, {time.monotonic() - began:.0f} s")


def tabulate(seed: int, out: Path) -> list[dict[str, Any]]:
    """Intervals and paired tests of one seed's scores."""
    test = confide.Predictions.load(out / f"test-{seed}.parquet")
    columns, _ = files.read_table(out / f"scores-{seed}.npz")
    names = [name for name in columns if not name.endswith(("|threshold", "|order"))]
    lines = {name: float(columns[f"{name}|threshold"]) if f"{name}|threshold" in columns else None for name in names}
    scores = {name: TrustValues(columns[name], lines[name], columns.get(f"{name}|order")) for name in names}
    evaluation = compare_trust(test, scores, seed=seed)
    evaluation.save(out / f"evaluation-{seed}.json")
    say(seed, evaluation.about.verdict or "")
    return table_rows(evaluation, scores, test, seed, float(test.facts.correct.float().mean()))


def say(seed: int, text: str) -> None:
    print(f"seed {seed}: {text}", flush=True)


def stored_scores(predictions: dict[str, Any], features: dict[str, Any], seed: int) -> dict[str, TrustValues]:
    """Predictors on stored logits and penultimate features."""
    scores = {}
    for word in STORED:
        options = {"seed": seed} if "seed" in confide.trust.TRUST.get(word).options else {}
        scores[word] = values_of(
            confide.trust.fit(word, predictions["val"], features["val"], **options), predictions, features
        )
    for word in ("trust_score", "rmd", "knn"):
        scores[word] = values_of(
            confide.trust.fit(word, predictions["train"], features["train"]), predictions, features
        )
    for word in ("binary_cross_entropy", "binary_focal"):
        broken = confide.trust.fit(word, predictions["val"], features["val"], form="released", seed=seed)
        scores[f"{word}, broadcast"] = values_of(broken, predictions, features)
    for model in ("logistic", "boosted"):
        how = {"model": model, "reference": features["train"], "seed": seed}
        combined = confide.trust.fit("combined", predictions["val"], features["val"], **how)
        scores["combined" if model == "logistic" else "combined, boosted"] = values_of(combined, predictions, features)
    scores["steep_slope, tuned"] = values_of(tuned_steep_slope(predictions, features, seed), predictions, features)
    say(seed, f"{len(scores)} predictors on stored features")
    return scores


def pretrained_features(args: argparse.Namespace, dataset: Any, out: Path) -> dict[str, Features]:
    """Rows of a pre-trained extractor for every split: extracted once, whatever the seed's split is."""
    order = np.argsort(np.concatenate([split.ids for split in dataset.splits.values()]))

    def joined(field: str) -> Any:
        return np.concatenate([getattr(split, field) for split in dataset.splits.values()])[order]

    pool = Split(joined("inputs"), joined("labels"), joined("ids"))
    how = {"out": out / "features", "dtype": "float16", "batch_size": 256, "workers": args.workers}
    extracted = extract(args.extractor, pool, **how)
    values = np.asarray(extracted.values[:])

    def of(name: str) -> Features:
        split = dataset.split(name)
        rows = values[rows_of(split.ids, extracted.ids, "features")].astype(np.float32)
        return Features(rows, split.labels, split.ids, extracted.extractor, name)

    return {name: of(name) for name in dataset.splits}


def pretrained_scores(
    predictions: dict[str, Any], features: dict[str, Any], pretrained: dict[str, Features], seed: int
) -> dict[str, TrustValues]:
    """RMD and TrustScore of the predicted class in features that never saw this task, alone and among the signals."""
    opinions = {
        word: confide.trust.fit(word, predictions["train"], pretrained["train"]) for word in ("rmd", "trust_score")
    }
    scores = {f"{word}, pre-trained": values_of(trust, predictions, pretrained) for word, trust in opinions.items()}
    how = {"second": pretrained["val"], "second_reference": pretrained["train"], "seed": seed}
    combined = confide.trust.fit("combined", predictions["val"], features["val"], reference=features["train"], **how)
    scores["combined, pre-trained"] = values_of(combined, predictions, features, pretrained["test"])
    for name, more in (("pre-trained", pretrained), ("second opinion", heard(opinions, predictions, pretrained))):
        rows = {split: side_by_side(features[split], more[split]) for split in ("val", "test")}
        scores[f"steep_slope, tuned, {name}"] = values_of(tuned_steep_slope(predictions, rows, seed), predictions, rows)
    return scores


def heard(
    opinions: dict[str, confide.trust.Trust], predictions: dict[str, Any], pretrained: dict[str, Features]
) -> dict[str, Features]:
    """What pre-trained features say of the predicted class, as features of their own: one column an opinion."""
    by_split = {}
    for split in ("val", "test"):
        own = pretrained[split]
        columns = [np.asarray(trust(predictions[split], own), dtype=np.float32) for trust in opinions.values()]
        by_split[split] = Features(np.stack(columns, axis=1), own.labels, own.ids, f"of {own.extractor}", split)
    return by_split


def side_by_side(own: Features, other: Features) -> Features:
    """Both feature rows of every sample, as one row."""
    values = np.concatenate([np.asarray(own.values[:]), np.asarray(other.values[:])], axis=1)
    return Features(values, own.labels, own.ids, f"{own.extractor}+{other.extractor}", own.split)


def tuned_steep_slope(predictions: dict[str, Any], features: dict[str, Any], seed: int) -> confide.trust.Trust:
    """The largest alpha_neg whose out-of-fold TPR on val is still 98 %: nothing of test is looked at."""
    correct = predictions["val"].facts.correct
    best: confide.trust.Trust | None = None
    for alpha in ALPHAS:
        trust = confide.trust.fit("steep_slope", predictions["val"], features["val"], alpha_neg=alpha, seed=seed)
        assert trust.out_of_fold is not None
        true_positive_rate = float((trust.out_of_fold[correct] > 0).float().mean())
        if best is None or true_positive_rate >= LEAST_TPR + 0.002:
            best = trust
    assert best is not None
    return best


def values_of(
    trust: confide.trust.Trust, predictions: dict[str, Any], features: dict[str, Any], second: Features | None = None
) -> TrustValues:
    return TrustValues.of(trust(predictions["test"], features["test"], second), trust.threshold, trust.scale)


def network_scores(
    args: argparse.Namespace, classifier: Any, dataset: Any, seed: int, augment: str
) -> dict[str, TrustValues]:
    """Fine-tuned copies of the backbone, one per loss, and the two whose loss was broadcast in the released code."""
    scores = {}
    plans: list[tuple[str, dict[str, Any]]] = [(loss, {}) for loss in LOSSES]
    plans += [(loss, {"form": "released"}) for loss in ("binary_cross_entropy", "binary_focal")]
    plans += [("steep_slope", {"alpha_pos": 1.0, "alpha_neg": 1.0})]
    for loss, options in plans:
        oracle = fit_oracle(
            classifier,
            dataset,
            "val",
            loss=loss,
            loss_options=options,
            epochs=args.oracle_epochs,
            augment=augment,
            seed=seed,
        )
        note = ", broadcast" if "form" in options else ", alpha 1 1" if options else ""
        scores[f"network {loss}{note}"] = TrustValues.of(oracle(dataset, "test"), 0.0, "logit")
        say(seed, f"network {loss}{note}: log {[f'{k} {v[-1]:.3f}' for k, v in oracle.log.items()]}")
    return scores


def dropout_scores(classifier: Any, dataset: Any) -> TrustValues:
    """Negative entropy of the mean logits over passes with dropout (ConfidNet's form)."""
    passes = predict(classifier, dataset, "test", passes=PASSES, average="logits")
    return TrustValues.of(confide.trust.fit("entropy")(passes), None, "score")


def error_scores(
    args: argparse.Namespace,
    settings: Settings,
    classifier: Any,
    dataset: Any,
    predictions: dict[str, Any],
    features: dict[str, Any],
    seed: int,
) -> dict[str, TrustValues]:
    """Steep slope fitted on the training split as it is, out of fold, and on augmented inputs; held-out is the rest."""
    scores = {}
    honest = cross_fit(dataset, settings)
    fits = {
        "training errors": (predictions["train"], features["train"]),
        "out of fold": (honest, features["train"]),
        "augmented": augmented_errors(classifier, dataset, seed),
    }
    for name, (seen, rows) in fits.items():
        say(seed, f"{name}: {int((~seen.facts.correct).sum())} errors of {len(seen)}")
        trust = confide.trust.fit("steep_slope", seen, rows, seed=seed)
        scores[f"steep_slope, {name}"] = values_of(trust, predictions, features)
    return scores


def augmented_errors(classifier: Any, dataset: Any, seed: int) -> tuple[Any, Any]:
    """Two shifted and mirrored copies of every training image."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = classifier.model.to(device).eval()
    mean, scale = (torch.tensor(v).view(1, -1, 1, 1) for v in (classifier.preparation.mean, classifier.preparation.std))

    def classify(batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows = model.features(((batch.float() - mean) / scale).to(device))
        return model.head(rows).float(), rows.float()

    def shifted(batch: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        down, across = torch.randint(-4, 5, (2,), generator=generator).tolist()
        moved = torch.roll(batch, (down, across), dims=(2, 3))
        return moved.flip(3) if torch.rand((), generator=generator) < 0.5 else moved

    inputs = torch.from_numpy(np.ascontiguousarray(dataset.train.inputs))
    pair = augmented(classify, inputs, dataset.train.labels, shifted, times=2, seed=seed, batch=64)
    classifier.model.to("cpu")
    return pair


def table_rows(
    evaluation: Any, scores: dict[str, TrustValues], test: Any, seed: int, accuracy: float
) -> list[dict[str, Any]]:
    rows = []
    tests = {(comparison.metric, comparison.b.score): comparison for comparison in evaluation.comparisons}
    for name, trust in scores.items():
        score = "msp" if name == "mcp" else f"trust:{name}"
        values = {m.metric: m.value for m in evaluation.measurements if m.score == score and m.group is None}
        row = {"predictor": name, "seed": seed, "accuracy": accuracy, **{k: values.get(k) for k in METRICS}}
        row["mcp_tnr_at_that_tpr"] = rates_at_same_tpr(test, trust, scores["mcp"])[2]
        for metric in ("auroc", "aurc"):
            compared = tests.get((metric, score))
            row |= {} if compared is None else {f"p_{metric}": compared.p_value, f"d_{metric}": compared.difference}
        rows.append(row)
    return rows


def markdown(args: argparse.Namespace, about: dict[str, str], rows: list[dict[str, Any]]) -> str:
    accuracy = [row["accuracy"] for row in rows if row["predictor"] == "mcp"]
    tests = ("TNR of mcp at that TPR", "AUROC better than mcp (p per seed)", "AURC better (p)")
    head = ("predictor", *map(titles.heading, METRICS), *tests)
    lines = [
        f"# Trust predictors of a {about['model']} on {Path(args.data).name}",
        "",
        f"Accuracy {', '.join(f'{100 * a:.2f}' for a in accuracy)} %; mean and standard deviation over {len(accuracy)} "
        f"seeds; {about['device']}, torch {about['torch']}, {about['date']}, "
        f"commit {about.get('commit')}.",
        f"Command: `{about['command']}`",
        "",
        "| " + " | ".join(head) + " |",
        "|" + "---|" * len(head),
    ]
    for name in dict.fromkeys(row["predictor"] for row in rows):
        own = [row for row in rows if row["predictor"] == name]
        cells = [cell(own, metric) for metric in METRICS] + [cell(own, "tnr", "mcp_tnr_at_that_tpr")]
        lines.append("| " + " | ".join([name, *cells, tested(own, "auroc"), tested(own, "aurc")]) + " |")
    return "\n".join(lines) + "\n"


def cell(rows: list[dict[str, Any]], metric: str, name: str = "") -> str:
    values = [row[name or metric] for row in rows]
    known = [value for value in values if value is not None and np.isfinite(value)]
    return titles.spread(metric, known) if known else ""


def tested(rows: list[dict[str, Any]], metric: str) -> str:
    parts = [f"{row[f'd_{metric}']:+.4f} ({row[f'p_{metric}']:.3f})" for row in rows if f"p_{metric}" in row]
    return ", ".join(parts)


if __name__ == "__main__":
    main()
