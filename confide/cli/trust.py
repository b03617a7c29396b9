"""`confide trust`: fit trust predictors on one split, compare them all on another, keep one."""

from __future__ import annotations

import argparse
from pathlib import Path

from confide.cli.shared import load_predictions, parse_method_options, print_json, text_table

EXAMPLE = """  confide trust val.parquet test.parquet --features val-features.npz test-features.npz \\
      --reference train-features.npz -o trust/
  confide trust val.parquet test.parquet --second val-other.npz test-other.npz train-other.npz
  confide trust val.parquet test.parquet --dropout dropout.parquet --members a.parquet b.parquet c.parquet
  confide trust val.parquet test.parquet --only steep_slope tcp --sweep 0.5 1 2 3 5 10
  confide trust val.parquet test.parquet --set steep_slope.alpha_neg=5 --keep steep_slope"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    add = parser.add_argument
    add("fit", help="predictions to learn from, on data the classifier was not trained on (val)")
    add("test", help="predictions to compare on")
    add("--features", nargs=2, metavar=("FIT", "TEST"), help="features of both: .npz, .parquet or a folder of shards")
    add("--reference", help="features and labels of the training split, for trust_score, rmd and knn")
    add(
        "--second",
        nargs=3,
        metavar=("FIT", "TEST", "REFERENCE"),
        help="a second opinion for combined: features of another extractor, REFERENCE of the labelled training split",
    )
    add(
        "--members",
        nargs="+",
        metavar="FILE",
        help="an ensemble on the test split: predictions of each member, or .npz with `logits` s x n x c",
    )
    add(
        "--dropout",
        nargs="+",
        metavar="FILE",
        help="passes with dropout on the test split: what `predict --passes` wrote, or .npz with `logits` s x n x c",
    )
    add("--only", nargs="+", metavar="WORD", help="which predictors; by default all that can be had")
    add("--sweep", nargs="*", type=float, metavar="ALPHA", help="TPR and TNR of steep_slope over these alpha_neg")
    add("--agreement", action="store_true", help="Kendall's tau of every two predictors on the test split")
    add("--keep", metavar="WORD", help="predictor to save; by default combined, or mcp")
    add("--set", nargs="+", default=[], metavar="WORD.OPTION=VALUE", help="options of a predictor")
    add("--fast", action="store_true", help="values alone: no intervals, no tests")
    add("--seed", type=int, default=0, help="of oracles, folds and resamples")
    add("-o", "--out", default="trust", help="folder for evaluation.json, trust.json and predictions")


def run(args: argparse.Namespace) -> None:
    """Fit, compare, save, tell."""
    from confide.cli.result_tables import show_trust
    from confide.evaluation import TrustFiles, fit_and_compare, rank_agreement, read_evidence
    from confide.results import About

    files = TrustFiles(
        args.fit,
        args.test,
        tuple(args.features) if args.features else None,
        args.reference,
        tuple(args.second) if args.second else None,
        tuple(args.members or ()),
        tuple(args.dropout or ()),
    )
    comparison = fit_and_compare(
        read_evidence(files, load_predictions),
        only=tuple(args.only or ()),
        options=parse_method_options(args.set),
        keep=args.keep,
        sweep=args.sweep,
        intervals=not args.fast,
        seed=args.seed,
        about=About(title="Trust predictors", commands=(args.command,)),
    )
    evaluation, folder = comparison.evaluation, Path(args.out)
    evaluation.save(folder / "evaluation.json")
    comparison.fitted[comparison.chosen].save(folder / "trust.json")
    comparison.trusted.save(folder / "predictions.parquet")
    paths = {
        "evaluation": str(folder / "evaluation.json"),
        f"trust predictor ({comparison.chosen})": str(folder / "trust.json"),
        "predictions with trust": str(folder / "predictions.parquet"),
    }
    agreement = rank_agreement(comparison.values) if args.agreement else ()
    if args.json:
        print_json(
            {**evaluation.to_dict(), "mcp_tnr_at_same_tpr": comparison.baseline_tnr, "files": paths}
            | ({"agreement": [vars(pair) for pair in agreement]} if agreement else {})
        )
        return
    show_trust(evaluation, comparison.values, comparison.baseline_tnr)
    if agreement:
        print(
            "\n" + text_table(("agreement of", "Kendall"), [(f"{a.a}, {a.b}", f"{a.kendall:.3f}") for a in agreement])
        )
    for what, path in paths.items():
        print(f"{what}: {path}")
