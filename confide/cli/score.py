"""`confide score`: how hard is every sample, which labels look wrong, and a page to look at them."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confide.cli.shared import print_json, text_table

if TYPE_CHECKING:
    from confide.cli.score_data import ScoringSources
    from confide.records import Scores


VERDICT_ORDER = ("wrong label", "ambiguous", "atypical", "low quality", "hard", "typical")
EXAMPLE = """  confide score fashion-sample --method rmd --features cached -o scores.parquet
  confide score photos/ --method rmd --method kmeans --features efficientnet_lite0 --find-label-errors suspects.csv
  confide score features.npz --method rmd -o scores.parquet
  confide score fashion-sample --split test --features pixels --write-features test-pixels.npz
  confide score fashion-sample --method rmd --save-fit difficulty.safetensors
  confide score new-photos/ --fitted difficulty.safetensors --labels predicted -o new.parquet
  confide score fashion-sample --method confusion --log runs/recorded -o scores.parquet
  confide score parquet-files/ --method rmd --features efficientnet_lite0 --engine ray --workers 16 -o scores"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", metavar="DATA", help="dataset word or path; or features: .npz, .parquet, shard folder")
    parser.add_argument("--method", action="append", help="difficulty word, several allowed (default: rmd)")
    parser.add_argument("--features", default=None, help="extractor word (default: cached, else efficientnet_lite0)")
    parser.add_argument("--split", default=None, help="split to score, or all of them (default: train)")
    parser.add_argument("--fit-split", default=None, help="split to fit on (default: the one scored)")
    parser.add_argument("--labels", default="given", choices=("given", "predicted", "min"), help="class to measure to")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="option of the method")
    parser.add_argument("--feature-option", action="append", default=[], metavar="NAME=VALUE", help="of the extractor")
    parser.add_argument("--augment-runs", type=int, default=0, help="fit on so many augmentation runs (paper: 5)")
    parser.add_argument("--save-fit", default=None, metavar="FILE", help="also write the fit, .safetensors")
    parser.add_argument("--fitted", default=None, metavar="FILE", help="score by a fit that was saved, without fitting")
    parser.add_argument("--log", default=None, help="recorder folder, for confusion, correctness, loss and entropy")
    parser.add_argument("--predictions", default=None, help="predictions of these samples, out of fold for verdicts")
    parser.add_argument("-o", "--out", default="scores.parquet", help="scores file (default: scores.parquet)")
    parser.add_argument("--gallery", default=None, help="HTML page (default: beside the scores); 'none' for no page")
    parser.add_argument("--find-label-errors", default=None, metavar="FILE", help="export suspects, ranked")
    parser.add_argument("--no-verdicts", action="store_true", help="scores only: no look at labels and quality")
    parser.add_argument("--words", default=None, metavar="FILE", help="vocabulary: explain hard samples in words")
    parser.add_argument("--cache", default=None, help="folder for feature shards (default: beside the scores)")
    parser.add_argument("--write-features", default=None, metavar="FILE", help="also write them, .npz or .parquet")
    parser.add_argument("--device", default=None, help="cpu or cuda (default: a GPU where there is one)")
    parser.add_argument("--batch-size", type=int, default=64, help="inputs per batch of the extractor (default: 64)")
    parser.add_argument("--workers", type=int, default=0, help="processes that decode inputs (default: 0)")
    parser.add_argument("--engine", default="local", choices=("local", "ray"), help="where the work runs")


def run(args: argparse.Namespace) -> int:
    if args.engine == "ray":
        return _run_ray(args)
    sources, found = _by_fit(args) if args.fitted else _fitted_here(args)
    if args.write_features:
        from confide.cli.recipe import write_features

        write_features(args.write_features, sources.need_features())
    main, summary = found[0], {"n": len(found[0]), "scores": str(args.out), "methods": _summary(found)}
    summary |= {"fit": str(args.save_fit or args.fitted)} if args.save_fit or args.fitted else {}
    if sources.features is not None and _wants_verdicts(args):
        if args.find_label_errors or len(set(sources.features.labels.tolist())) > 1:
            main = _judged(args, sources, main, summary)
        else:
            sources.notes.append("all samples have one label: there is no other to suggest, so labels were not judged")
    main = _joined(main, found[1:])
    main.save(args.out)
    if len(found) > 1:
        summary["agreement"] = _agreement(found)
    if args.words:
        summary["words"] = _words(args, sources, main)
    if args.gallery != "none":
        from confide.cli.score_page import write_page

        page = Path(args.gallery) if args.gallery else Path(args.out).with_suffix(".html")
        write_page(page, sources, main, found, summary)
        summary["page"] = str(page)
    summary["notes"] = list(dict.fromkeys([*sources.notes, *(note for scores in found for note in scores.notes)]))
    if args.json:
        print_json(summary)
    else:
        _show(summary)
    return 0


def _by_fit(args: argparse.Namespace) -> tuple[ScoringSources, list[Scores]]:
    from confide.cli.score_data import open_fitted, score_with_fit

    fitted, sources = open_fitted(args)
    return sources, [score_with_fit(fitted, sources, args.labels)]


def _fitted_here(args: argparse.Namespace) -> tuple[ScoringSources, list[Scores]]:
    from confide.cli.score_data import open_sources

    args.split = args.split or "train"
    if args.save_fit:
        from confide.cli.score_data import check_save_fit

        check_save_fit(args)
    sources = open_sources(args)
    return sources, _scored(args, sources)


def _wants_verdicts(args: argparse.Namespace) -> bool:
    """Verdicts fit Gaussians on the samples themselves: a few that came later are judged only when asked for."""
    wanted = not args.no_verdicts and args.labels == "given"
    return wanted and (not args.fitted or bool(args.find_label_errors))


def _run_ray(args: argparse.Namespace) -> int:
    from confide.cli.score_data import parse_options
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
        print_json({"methods": summaries})
        return 0
    for note in dict.fromkeys(note for summary in summaries.values() for note in summary["notes"]):
        print(f"note: {note}")
    for method, summary in summaries.items():
        print(f"{method}: {summary['scores']} ({summary['n']:,} samples in {summary['files']} files)")
    return 0


def _check_for_ray(args: argparse.Namespace) -> None:
    """A cluster scores all files of a folder; what looks at single samples is done on one machine, afterwards."""
    from confide.cli.score_data import refuse_flags

    given = {
        "--split": args.split not in (None, "train"),
        "--fit-split": args.fit_split,
        "--augment-runs": args.augment_runs,
        "--save-fit": args.save_fit,
        "--fitted": args.fitted,
        "--log": args.log,
        "--predictions": args.predictions,
        "--gallery": args.gallery not in (None, "none"),
        "--find-label-errors": args.find_label_errors,
        "--words": args.words,
        "--cache": args.cache,
        "--write-features": args.write_features,
    }
    refuse_flags(given, "--engine ray scores every file of a folder")


def _scored(args: argparse.Namespace, sources: ScoringSources) -> list[Scores]:
    from confide import difficulty
    from confide.cli.score_data import options_for

    words = args.method or ["rmd"]
    methods = [difficulty.DIFFICULTY.get(word) for word in words]
    found = []
    for method in methods:
        options: dict[str, Any] = options_for(args.option, method, methods)
        if method.spec.source == "log":
            found.append(difficulty.score(method.word, sources.log(), **options))
            continue
        rows, fit_rows = sources.rows()
        if args.augment_runs and "augmented" in method.options:
            options["augmented"] = sources.augmented(args.augment_runs)
        fitted = difficulty.fit(method.word, fit_rows, **options)
        if args.save_fit:
            from confide.cli.score_data import with_class_names

            with_class_names(fitted, sources).save(args.save_fit)
        found.append(fitted.score(rows, None if args.labels == "given" else args.labels))
    return found


def _summary(found: list[Scores]) -> list[dict[str, Any]]:
    import numpy as np

    rows = []
    for scores in found:
        low, quarter, median, three, high = np.quantile(scores.values, (0, 0.25, 0.5, 0.75, 1))
        numbers = {"mean": scores.mean, "std": scores.values.std(), "min": low, "25 %": quarter}
        rows.append({"method": scores.method, **numbers, "median": median, "75 %": three, "max": high})
    return rows


def _judged(args: argparse.Namespace, sources: ScoringSources, main: Scores, summary: dict[str, Any]) -> Scores:
    from confide import difficulty
    from confide.files import formats

    found = difficulty.verdicts(sources.features, scores=main, predictions=sources.predictions, inputs=sources.inputs())
    summary["verdicts"] = {word: int((found.verdict == word).sum()) for word in VERDICT_ORDER}
    if args.find_label_errors:
        rows = found.suspects()
        names = sources.class_names
        columns = {
            "id": found.ids[rows],
            "label": found.labels[rows],
            "suggested": found.fit.suggested[rows],
            "suspicion": found.fit.suspicion[rows],
            "self_confidence": found.fit.self_confidence[rows],
        }
        if names:
            columns["label_name"] = sources.named(columns["label"])
            columns["suggested_name"] = sources.named(columns["suggested"])
        formats.write_table(args.find_label_errors, columns)
        summary["label_errors"] = {"file": str(args.find_label_errors), "suspects": len(rows)}
    return difficulty.with_verdicts(main, found)


def _joined(main: Scores, others: list[Scores]) -> Scores:
    further = {f"score_{scores.method}": scores.of(main.ids) for scores in others}
    return replace(main, columns={**main.columns, **further})


def _agreement(found: list[Scores]) -> list[dict[str, Any]]:
    from confide import difficulty

    return [
        {"a": row.a, "b": row.b, "kendall": row.kendall, "spearman": row.spearman}
        for row in difficulty.agreement(found)
    ]


def _words(args: argparse.Namespace, sources: ScoringSources, main: Scores) -> list[dict[str, Any]]:
    from confide import difficulty
    from confide.files import formats

    vocabulary = difficulty.read_vocabulary(args.words)
    embedded = sources.embed(list(vocabulary))
    found = difficulty.explain(sources.need_features(), main, vocabulary, embedded)
    rows = [{**row.as_dict(), "class": sources.name(row.label)} for row in found]
    formats.write_json(Path(args.out).with_suffix(".words.json"), rows)
    return rows


def _show(summary: dict[str, Any]) -> None:
    columns = [name for name in summary["methods"][0] if name != "method"]
    rows = [[row["method"], *(f"{row[c]:.4g}" for c in columns)] for row in summary["methods"]]
    print(text_table(("difficulty", *columns), rows))
    if "agreement" in summary:
        pairs = [[f"{r['a']}, {r['b']}", f"{r['kendall']:.3f}", f"{r['spearman']:.3f}"] for r in summary["agreement"]]
        print("\n" + text_table(("agreement of", "Kendall", "Spearman"), pairs))
    if "verdicts" in summary:
        share = [[w, f"{k:,}", f"{100 * k / summary['n']:.1f} %"] for w, k in summary["verdicts"].items()]
        print("\n" + text_table(("looks like", "samples", "share"), share))
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
