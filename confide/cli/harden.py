"""`confide harden`: from scores to a hard benchmark with its card, and errors by difficulty."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from confide.cli.shared import load_predictions, print_json, text_table

if TYPE_CHECKING:
    from confide.records import Scores
    from confide.types import JsonObject

EXAMPLE = """  confide harden fashion-sample --scores scores.parquet --fraction 0.1 -o hard/
  confide harden photos/ --scores scores.parquet --stratify --features photos.features/train -o hard.parquet
  confide harden --scores scores.parquet --predictions predictions.parquet --bands 3 --groups groups.parquet"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", metavar="DATA", nargs="?", help="dataset word or path, to export its hard samples")
    parser.add_argument("--scores", required=True, help="scores of `confide score`")
    parser.add_argument("--split", default="train", help="split that was scored, or all (default: train)")
    parser.add_argument("--fraction", type=float, default=0.1, help="share of the samples to keep (default: 0.1)")
    parser.add_argument("--stratify", action="store_true", help="the same share of every class")
    parser.add_argument(
        "--features",
        help="leave near-duplicates out by these: a file, a folder or an extractor's word (default: those the data "
        "carries); none keeps them",
    )
    parser.add_argument("--similarity", type=float, default=0.99, help="cosine of a near-duplicate (default: 0.99)")
    parser.add_argument("--licence", default="", help="licence note for the card")
    parser.add_argument("-o", "--out", help="folder, or .parquet file, for the hard samples")
    parser.add_argument("--predictions", help="evaluate these on easy, medium and hard bands")
    parser.add_argument("--bands", type=int, default=3, help="equal parts from easy to hard (default: 3)")
    parser.add_argument("--groups", help="write groups for GroupDRO to this file, for confide train --scores")
    parser.add_argument("--threshold", type=float, help="two groups, cut at this score (paper: 5 bits)")


def run(args: argparse.Namespace) -> None:
    from confide import difficulty
    from confide.checks import InputError
    from confide.records import Scores

    scores = Scores.load(args.scores)
    if not (args.out or args.predictions or args.groups):
        raise InputError("nothing to do: give -o for hard samples, --predictions for bands, or --groups")
    summary: JsonObject = {"n": len(scores), "method": scores.method}
    if args.out:
        summary["benchmark"] = _export(args, scores)
    if args.predictions:
        summary["bands"] = _bands(args, scores)
    if args.groups:
        groups = difficulty.groups(scores, threshold=args.threshold, groups=max(2, args.bands))
        Scores(scores.ids, groups.astype(float), difficulty.GROUPED, labels=scores.labels).save(args.groups)
        summary["groups"] = {"file": args.groups, "counts": [int((groups == g).sum()) for g in range(groups.max() + 1)]}
    if args.json:
        print_json(summary)
    else:
        _show(summary)


def _export(args: argparse.Namespace, scores: Scores) -> JsonObject:
    from confide.checks import InputError
    from confide.scoring import export_hard

    if not args.data:
        raise InputError("exporting hard samples needs the data they come from; give DATA before the options")
    hard = export_hard(
        args.data,
        scores,
        args.out,
        split=args.split,
        fraction=args.fraction,
        stratify=args.stratify,
        near_duplicates=args.features,
        similarity=args.similarity,
        licence=args.licence,
    )
    left_out = None if hard.similarity is None else hard.left_out
    return {"out": args.out, "samples": len(hard.rows), "near_duplicates_left_out": left_out}


def _bands(args: argparse.Namespace, scores: Scores) -> JsonObject:
    from confide import difficulty

    predictions = load_predictions(args.predictions)
    values, correct = scores.of(predictions.ids), predictions.facts.correct.cpu().numpy()
    errors = difficulty.error_by_difficulty(values, correct, bands=args.bands)
    fine = difficulty.error_by_difficulty(values, correct, bands=min(10, len(values)))
    return {"rows": [asdict(band) for band in errors.bands], "pearson_of_tenths": fine.pearson}


def _show(summary: JsonObject) -> None:
    if "bands" in summary:
        rows = []
        for band in summary["bands"]["rows"]:
            span = f"{band['low']:.4g} to {band['high']:.4g}"
            error, low, high = (f"{100 * band[name]:.1f}" for name in ("error", "error_low", "error_high"))
            rows.append([band["name"], span, f"{band['n']:,}", error, f"{low} to {high}"])
        print(text_table(("band", summary["method"], "samples", "error %", "95 % interval"), rows))
        print(f"Pearson of score and error over tenths: {summary['bands']['pearson_of_tenths']:.3f}")
    if "groups" in summary:
        print(f"groups: {summary['groups']['file']} {summary['groups']['counts']}")
    if "benchmark" in summary:
        benchmark = summary["benchmark"]
        left_out = benchmark["near_duplicates_left_out"]
        duplicates = "not looked for, give --features" if left_out is None else f"{left_out} left out"
        print(f"hard samples: {benchmark['out']} ({benchmark['samples']:,}; near-duplicates: {duplicates})")
