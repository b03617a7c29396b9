"""`confide trust`: fit trust predictors on one split, compare them all on another, keep one."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confide.cli.trust_data import TrustEvidence
    from confide.evaluation.trust import TrustValues
    from confide.results import Curve, Evaluation
    from confide.trust import Trust


EXAMPLE = """  confide trust val.parquet test.parquet --features val-features.npz test-features.npz \\
      --reference train-features.npz -o trust/
  confide trust val.parquet test.parquet --second val-other.npz test-other.npz train-other.npz
  confide trust val.parquet test.parquet --dropout dropout.parquet --members a.parquet b.parquet c.parquet
  confide trust val.parquet test.parquet --only steep_slope tcp --sweep 0.5 1 2 3 5 10
  confide trust val.parquet test.parquet --set steep_slope.alpha_neg=5 --keep steep_slope"""

SWEEP = (0.5, 1.0, 2.0, 3.0, 5.0, 10.0)


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("fit", help="predictions to learn from, on data the classifier was not trained on (val)")
    parser.add_argument("test", help="predictions to compare on")
    parser.add_argument(
        "--features", nargs=2, metavar=("FIT", "TEST"), help="features of both: .npz, .parquet or a folder of shards"
    )
    parser.add_argument("--reference", help="features and labels of the training split, for trust_score, rmd and knn")
    parser.add_argument(
        "--second",
        nargs=3,
        metavar=("FIT", "TEST", "REFERENCE"),
        help="a second opinion for combined: features of another extractor, REFERENCE of the labelled training split",
    )
    parser.add_argument(
        "--members",
        nargs="+",
        metavar="FILE",
        help="an ensemble on the test split: predictions of each member, or .npz with `logits` s x n x c",
    )
    parser.add_argument(
        "--dropout",
        nargs="+",
        metavar="FILE",
        help="passes with dropout on the test split: what `predict --passes` wrote, or .npz with `logits` s x n x c",
    )
    parser.add_argument("--only", nargs="+", metavar="WORD", help="which predictors; by default all that can be had")
    parser.add_argument(
        "--sweep", nargs="*", type=float, metavar="ALPHA", help="TPR and TNR of steep_slope over these alpha_neg"
    )
    parser.add_argument("--keep", metavar="WORD", help="predictor to save; by default combined, or mcp")
    parser.add_argument("--set", nargs="+", default=[], metavar="WORD.OPTION=VALUE", help="options of a predictor")
    parser.add_argument("--fast", action="store_true", help="values alone: no intervals, no tests")
    parser.add_argument("--seed", type=int, default=0, help="of oracles, folds and resamples")
    parser.add_argument("-o", "--out", default="trust", help="folder for evaluation.json, trust.json and predictions")


def run(args: argparse.Namespace) -> int:
    """Fit, compare, save, tell."""
    from confide.cli.result_tables import show_trust
    from confide.cli.shared import parse_method_options, print_json
    from confide.cli.trust_data import read_evidence
    from confide.evaluation.trust import compare_trust, rates_at_same_tpr
    from confide.results import About

    evidence, options = read_evidence(args), parse_method_options(args.set)
    trusts, scores, left_out = fit_all(args, evidence, options)
    about = About(title="Trust predictors", commands=(args.command,))
    found = compare_trust(evidence.test, scores, intervals=not args.fast, seed=args.seed, about=about)
    # Without errors to learn from there is no oracle to sweep; the note above says so.
    wanted = args.sweep is not None and ("steep_slope" in trusts or args.only)
    swept = [sweep(args, evidence, dict(options.get("steep_slope", {})))] if wanted else []
    found = replace(found, curves=(*found.curves, *swept), warnings=(*found.warnings, *left_out))
    same = {
        word: rates_at_same_tpr(evidence.test, one, scores["mcp"])[2]
        for word, one in scores.items()
        if one.threshold is not None
    }
    paths = save(args, found, trusts, evidence)
    if args.json:
        print_json({**found.to_dict(), "mcp_tnr_at_same_tpr": same, "files": paths})
        return 0
    show_trust(found, scores, same)
    for what, path in paths.items():
        print(f"{what}: {path}")
    return 0


def fit_all(
    args: argparse.Namespace, evidence: TrustEvidence, options: dict[str, dict[str, Any]]
) -> tuple[dict[str, Trust], dict[str, TrustValues], list[str]]:
    """Every predictor that these files allow, max-softmax first, and its values; what was left out, and why."""
    from confide import trust as room
    from confide.checks import InputError
    from confide.evaluation.trust import TrustValues

    for word in (*(args.only or ()), *options, *([args.keep] if args.keep else ())):
        room.TRUST.get(word)
    named = list(args.only or room.names()) + ([args.keep] if args.keep else [])
    # What was asked for must not be left out: by name, by an option, or by a file that only it takes.
    asked = {"mcp", args.keep, *(args.only or ()), *options, *evidence.members}
    asked |= {"combined"} if evidence.second else set()
    trusts, scores, left_out = {}, {}, []
    for word in dict.fromkeys(["mcp", *named]):
        try:
            fitted = fit_one(word, args.seed, evidence, options.get(word, {}))
            values = fitted(evidence.test, evidence.beside_test(word), evidence.second_test(word))
        except InputError as error:
            if word in asked:
                raise
            left_out.append(f"{word} was left out: {error}")
            continue
        trusts[word], scores[word] = fitted, TrustValues.of(values, fitted.threshold, fitted.scale)
    return trusts, {**scores, **second_alone(evidence)}, left_out


def second_alone(evidence: TrustEvidence) -> dict[str, TrustValues]:
    """What the second opinion is worth by itself: RMD and TrustScore of the predicted class in its space."""
    from confide import trust as room
    from confide.cli.trust_data import reference_predictions
    from confide.evaluation.trust import TrustValues

    if evidence.second is None:
        return {}
    _, rows, reference = evidence.second
    scores = {}
    for word in ("rmd", "trust_score"):
        fitted = room.fit(word, reference_predictions(reference, evidence.test.num_classes), reference)
        values = fitted(evidence.test, rows)
        scores[f"{word}, second"] = TrustValues.of(values, fitted.threshold, fitted.scale)
    return scores


def fit_one(word: str, seed: int, evidence: TrustEvidence, options: dict[str, Any]) -> Trust:
    """One predictor, fitted on what it should be fitted on."""
    from confide import trust as room

    method = room.TRUST.get(word)
    given: dict[str, Any] = {"seed": seed} if "seed" in method.options else {}
    if not method.spec.trained:
        return room.fit(word, **options)
    if "reference" in method.options and evidence.reference is not None and evidence.features:
        given["reference"] = evidence.reference
    if "second" in method.options and evidence.second is not None:
        given |= {"second": evidence.second[0], "second_reference": evidence.second[2]}
    predictions, rows = evidence.to_fit(word)
    return room.fit(word, predictions, rows, **{**given, **options})


def sweep(args: argparse.Namespace, evidence: TrustEvidence, options: dict[str, Any]) -> Curve:
    """Steep slope with several alpha_neg: which share of right predictions it keeps, of wrong ones it catches."""
    from confide import metrics
    from confide.results import Curve

    columns: dict[str, list[float]] = {"alpha_neg": [], "tpr": [], "tnr": [], "auroc": []}
    for alpha in args.sweep or SWEEP:
        fitted = fit_one("steep_slope", args.seed, evidence, {**options, "alpha_neg": alpha})
        values = fitted(evidence.test, evidence.beside_test("steep_slope"))
        columns["alpha_neg"].append(alpha)
        for name, metric in (("tpr", metrics.tpr), ("tnr", metrics.tnr)):
            columns[name].append(float(metric(evidence.test, threshold=0.0, score=values)))
        columns["auroc"].append(float(metrics.auroc(evidence.test, score=values)))
    return Curve.of("alpha_sweep", columns, split=evidence.test.split, score="trust:steep_slope")


def save(
    args: argparse.Namespace, found: Evaluation, trusts: dict[str, Trust], evidence: TrustEvidence
) -> dict[str, str]:
    """evaluation.json, the kept predictor, and the test predictions with its trust."""
    keep = args.keep or ("combined" if "combined" in trusts else "mcp")
    folder = Path(args.out)
    found.save(folder / "evaluation.json")
    kept = trusts[keep].save(folder / "trust.json")
    trusted = trusts[keep].add_to(evidence.test, evidence.beside_test(keep), evidence.second_test(keep))
    trusted.save(folder / "predictions.parquet")
    return {
        "evaluation": str(folder / "evaluation.json"),
        f"trust predictor ({keep})": str(kept),
        "predictions with trust": str(folder / "predictions.parquet"),
    }
