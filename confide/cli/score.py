"""`confide score`: how hard is every sample, which labels look wrong, and a page to look at them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from confide.cli.shared import load_predictions, parse_options, print_json, refuse_flags, text_table

if TYPE_CHECKING:
    from confide.records import Scores
    from confide.scoring import ScoredData, ScoringRequest
    from confide.types import JsonObject

EXAMPLE = """  confide score fashion-sample --method rmd --features cached -o scores.parquet
  confide score photos/ --method rmd --method kmeans --features efficientnet_lite0 --find-label-errors suspects.csv
  confide score features.npz --method rmd -o scores.parquet
  confide score --predictions out-of-fold.npz --find-label-errors suspects.csv
  confide score fashion-sample --split test --features pixels --write-features test-pixels.npz
  confide score fashion-sample --method rmd --save-fit difficulty.safetensors
  confide score new-photos/ --fitted difficulty.safetensors --labels predicted -o new.parquet
  confide score fashion-sample --method confusion --log runs/recorded -o scores.parquet
  confide score parquet-files/ --method rmd --features efficientnet_lite0 --engine ray --workers 16 -o scores"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "data",
        metavar="DATA",
        nargs="?",
        help="dataset word or path; or features: .npz, .parquet, shard folder; none judges --predictions alone",
    )
    parser.add_argument(
        "--method", action="append", help="difficulty word, several allowed (default: rmd; loss without DATA)"
    )
    parser.add_argument("--features", help="extractor word (default: cached, else efficientnet_lite0)")
    parser.add_argument("--split", help="split to score, or all of them (default: train)")
    parser.add_argument("--fit-split", help="split to fit on (default: the one scored)")
    parser.add_argument("--labels", default="given", choices=("given", "predicted", "min"), help="class to measure to")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="option of the method")
    parser.add_argument("--feature-option", action="append", default=[], metavar="NAME=VALUE", help="of the extractor")
    parser.add_argument("--augment-runs", type=int, default=0, help="fit on so many augmentation runs (paper: 5)")
    parser.add_argument("--save-fit", metavar="FILE", help="also write the fit, .safetensors")
    parser.add_argument("--fitted", metavar="FILE", help="score by a fit that was saved, without fitting")
    parser.add_argument("--log", help="recorder folder, for confusion, correctness, loss and entropy")
    parser.add_argument("--predictions", help="predictions of these samples, out of fold for verdicts")
    parser.add_argument("-o", "--out", default="scores.parquet", help="scores file (default: scores.parquet)")
    parser.add_argument("--gallery", help="HTML page (default: beside the scores); 'none' for no page")
    parser.add_argument("--find-label-errors", metavar="FILE", help="export suspects, ranked")
    parser.add_argument(
        "--max-fdr", type=float, default=0.2, help="most right labels among suspects, as a share (default: 0.2)"
    )
    parser.add_argument("--no-verdicts", action="store_true", help="scores only: no look at labels and quality")
    parser.add_argument("--words", metavar="FILE", help="vocabulary: explain hard samples in words")
    parser.add_argument("--cache", help="folder for feature shards (default: beside the scores)")
    parser.add_argument("--write-features", metavar="FILE", help="also write them, .npz or .parquet")
    parser.add_argument("--device", help="cpu or cuda (default: a GPU where there is one)")
    parser.add_argument("--batch-size", type=int, default=64, help="inputs per batch of the extractor (default: 64)")
    parser.add_argument("--workers", type=int, default=0, help="processes that decode inputs (default: 0)")
    parser.add_argument("--engine", default="local", choices=("local", "ray"), help="where the work runs")


def run(args: argparse.Namespace) -> None:
    if args.engine == "ray":
        _run_ray(args)
        return
    from confide.files import formats
    from confide.report import write_score_page
    from confide.scoring import score_data

    _check_flags(args)
    scored = score_data(args.data, _request(args))
    summary = _summary(args, scored)
    if args.save_fit and scored.fitted is not None:
        scored.fitted.save(args.save_fit)
    if args.write_features and scored.features is not None:
        scored.features.save(args.write_features)
    if "label_errors" in summary:
        formats.write_table(args.find_label_errors, scored.suspect_table())
    scored.scores.save(args.out)
    if args.words:
        formats.write_json(Path(args.out).with_suffix(".words.json"), summary["words"])
    if "page" in summary:
        write_score_page(summary["page"], scored)
    if args.json:
        print_json(summary)
    else:
        _show(summary)


def _request(args: argparse.Namespace) -> ScoringRequest:
    from confide.difficulty import read_vocabulary
    from confide.scoring import ScoringRequest

    judge = None if not args.no_verdicts and args.labels == "given" else False
    return ScoringRequest(
        methods=tuple(args.method or ()),
        options=parse_options(args.option),
        split=args.split,
        fit_split=args.fit_split,
        labels=args.labels,
        fitted=args.fitted,
        extractor=args.features,
        extractor_options=parse_options(args.feature_option),
        cache=Path(args.cache) if args.cache else Path(args.out).with_suffix(".features"),
        device=args.device,
        batch_size=args.batch_size,
        workers=args.workers,
        augment_runs=args.augment_runs,
        log=args.log,
        predictions=load_predictions(args.predictions) if args.predictions else None,
        keep_features=bool(args.write_features),
        judge=True if judge is None and args.find_label_errors else judge,
        max_fdr=args.max_fdr,
        vocabulary=read_vocabulary(args.words) if args.words else (),
    )


def _check_flags(args: argparse.Namespace) -> None:
    """Flags that contradict each other, known before any work."""
    from confide import difficulty
    from confide.checks import InputError

    if args.fitted:
        names = ("method", "option", "fit-split", "augment-runs", "log", "save-fit")
        refuse_flags(args, names, "--fitted scores by a fit that is made")
        if args.feature_option and not args.features:
            why = "the file names its extractor's own options"
            raise InputError(f"--feature-option with --fitted needs --features: {why}")
        if args.find_label_errors and args.labels != "given":
            why = f"--labels is '{args.labels}'"
            raise InputError(f"--find-label-errors judges labels, but {why}; leave one of them out")
    if args.save_fit:
        words = list(dict.fromkeys(args.method or ["rmd"]))
        if len(words) > 1:
            raise InputError(f"--save-fit keeps the fit of one method, got {', '.join(words)}; give one --method")
        if difficulty.DIFFICULTY.get(words[0]).spec.source != "features":
            raise InputError(f"--save-fit keeps a fit on features, but '{words[0]}' reads a training; leave it out")
        difficulty.check_ending(args.save_fit)


def _summary(args: argparse.Namespace, scored: ScoredData) -> JsonObject:
    """What is told of the outcome, for machines."""
    summary: JsonObject = {
        "n": len(scored.scores),
        "scores": str(args.out),
        "methods": [_spread(scores) for scores in scored.by_method],
    }
    if args.save_fit or args.fitted:
        summary["fit"] = str(args.save_fit or args.fitted)
    if scored.verdicts is not None:
        evidence = scored.verdicts.evidence
        summary |= {"verdicts": scored.verdict_counts(), "evidence": str(evidence)}
        if args.find_label_errors:
            summary["label_errors"] = {
                "file": str(args.find_label_errors),
                "suspects": evidence.listed,
                "false_discovery_rate": evidence.false_discovery_rate,
                "false_discovery_limit": evidence.false_discovery_limit,
            }
    if scored.agreement:
        names = ("a", "b", "kendall", "spearman")
        summary["agreement"] = [{name: getattr(row, name) for name in names} for row in scored.agreement]
    if args.words:
        summary["words"] = scored.explanation_rows()
    if args.gallery != "none":
        summary["page"] = str(Path(args.gallery) if args.gallery else Path(args.out).with_suffix(".html"))
    return {**summary, "notes": list(scored.notes)}


def _spread(scores: Scores) -> JsonObject:
    """How the scores of one method spread."""
    import numpy as np

    low, quarter, median, three, high = np.quantile(scores.values, (0, 0.25, 0.5, 0.75, 1))
    numbers = {"mean": scores.mean, "std": scores.values.std(), "min": low, "25 %": quarter}
    return {"method": scores.method, **numbers, "median": median, "75 %": three, "max": high}


def _run_ray(args: argparse.Namespace) -> None:
    from confide.scale import FolderScoring, score_folder

    _check_for_ray(args)
    summaries = {}
    for method in dict.fromkeys(args.method or ["rmd"]):
        job = FolderScoring(
            source=Path(args.data),
            out=Path(args.out).with_suffix(""),
            method=method,
            options=parse_options(args.option),
            features=args.features,
            feature_options=parse_options(args.feature_option),
            batch_size=args.batch_size,
            workers=max(1, args.workers),
            engine="ray",
            labels=args.labels,
        )
        # Features and moments of the first method are found again by the next.
        summaries[method] = score_folder(job)
    if args.json:
        print_json({"methods": {method: summary.as_dict() for method, summary in summaries.items()}})
        return
    for note in dict.fromkeys(note for summary in summaries.values() for note in summary.notes):
        print(f"note: {note}")
    for method, summary in summaries.items():
        print(f"{method}: {summary.scores} ({summary.n:,} samples in {summary.files} files)")


def _check_for_ray(args: argparse.Namespace) -> None:
    """A cluster scores all files of a folder; what looks at single samples is done on one machine, afterwards."""
    split = () if args.split == "train" else ("split",)
    gallery = () if args.gallery == "none" else ("gallery",)
    of_fits = (*split, "fit-split", "augment-runs", "save-fit", "fitted", "log", "predictions")
    of_samples = (*gallery, "find-label-errors", "words", "cache", "write-features")
    refuse_flags(args, of_fits + of_samples, "--engine ray scores every file of a folder")


def _show(summary: JsonObject) -> None:
    columns = [name for name in summary["methods"][0] if name != "method"]
    rows = [[row["method"], *(f"{row[c]:.4g}" for c in columns)] for row in summary["methods"]]
    print(text_table(("difficulty", *columns), rows))
    if "agreement" in summary:
        pairs = [[f"{r['a']}, {r['b']}", f"{r['kendall']:.3f}", f"{r['spearman']:.3f}"] for r in summary["agreement"]]
        print("\n" + text_table(("agreement of", "Kendall", "Spearman"), pairs))
    if "verdicts" in summary:
        share = [[w, f"{k:,}", f"{100 * k / summary['n']:.1f} %"] for w, k in summary["verdicts"].items()]
        print("\n" + text_table(("looks like", "samples", "share"), share))
        print(f"labels: {summary['evidence']}")
    for row in summary.get("words", []):
        print(f"hard {row['class']}: {', '.join(row['hard'])}; easy: {', '.join(row['easy'])}")
    for note in summary["notes"]:
        print(f"note: {note}")
    print(f"scores: {summary['scores']}")
    if "fit" in summary:
        print(f"fit: {summary['fit']}")
    if "label_errors" in summary:
        print(f"suspects: {summary['label_errors']['file']} ({summary['label_errors']['suspects']:,} labels)")
    if "page" in summary:
        print(f"page: {summary['page']}")
