"""`confide sets --fit A --apply B`: sets that hold the true class as often as promised, and what they do on B."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from confide.cli.shared import (
    NOT_KEPT,
    add_engine,
    load_predictions,
    name_of_file,
    parse_options,
    print_json,
    text_table,
    workers_of,
    write_evaluation,
)

if TYPE_CHECKING:
    from confide.pipeline import Workers
    from confide.predictions import Predictions
    from confide.results import GroupCoverage, SetResult
    from confide.sets import PredictionSets


EXAMPLE = (
    "  confide sets --fit val.npz --apply test.npz --coverage 0.9\n"
    "  confide sets --fit val.npz --apply test.npz --coverage 0.9 --by difficulty --save sets.json\n"
    "  confide sets --fit val.parquet --apply test.parquet --method raps --set penalty=0.1 k_reg=3 --out sets.csv\n"
    "  confide sets --load sets.json --apply new.parquet --out sets.csv\n"
    "  confide sets --fit val/ --apply test/ --coverage 0.9 --engine ray --workers 8 --out sets/"
)
MOST_ROWS = 20


def configure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--fit", metavar="A", help="labelled held-out predictions to fit on, never those of 'test'")
    add("--load", metavar="FILE", help="instead of --fit: sets that were saved")
    add("--apply", metavar="B", help="predictions to make sets for; with labels their coverage is counted")
    add("--coverage", type=float, default=0.9, help="how often a set must hold the true class (default: 0.9)")
    add("--method", default="lac", metavar="WORD", help="see: confide list sets (default: lac)")
    add("--by", metavar="GROUP", help="keep the promise within each class, cluster, band of difficulty, or column")
    add("--bands", type=int, metavar="N", help="cut the numbers of --by into N bands (default for difficulty: 5)")
    add("--edges", type=float, nargs="+", metavar="X", help="cut them here, such as at quantiles of the training data")
    add("--scores", nargs=2, metavar=("A", "B"), help="files with the difficulty of A and of B, joined by id")
    add("--set", nargs="+", default=[], metavar="NAME=VALUE", help="options of the method")
    add("--allow-empty", action="store_true", help="otherwise the likeliest class is always in the set")
    add("--save", metavar="FILE", help="write the fitted sets, .json or .safetensors")
    add(
        "-o",
        "--out",
        metavar="FILE",
        help="write id, size and classes of every set, .csv, .parquet or .npz; a folder of B's",
    )
    add("--report", metavar="DIR", help="write evaluation.json and report.html of B there")
    add_engine(parser)
    add("--seed", type=int, default=0, help="of the draws (default: 0)")


def run(args: argparse.Namespace) -> int:
    from confide import sets
    from confide.checks import InputError
    from confide.files import formats
    from confide.pipeline import sets_of_folder

    if (args.fit is None) == (args.load is None):
        raise InputError("give either --fit, predictions to fit on, or --load, sets that were saved")
    if args.apply and args.fit and Path(args.fit).resolve() == Path(args.apply).resolve():
        raise InputError(f"--fit and --apply must be different files, got {args.fit} twice; hold some samples out")
    if args.apply is None and (args.out or args.report):
        raise InputError("--out and --report are of the samples of --apply; give them")
    folders = [path for path in (args.fit, args.apply) if path and Path(path).is_dir()]
    if args.engine and not folders:
        raise InputError("--engine is of folders of shards, got none; leave it out")
    if folders and args.scores:
        raise InputError(
            f"--scores are of files, got the folder {folders[0]}; write difficulty into a column, and --by it"
        )
    work = {path: workers_of(args, path) for path in folders}
    if args.load is not None:
        fitted = sets.load(args.load)
    else:
        fitted = sets.fit(
            args.method,
            read_predictions(args.fit, args.scores and args.scores[0], work.get(args.fit)),
            args.coverage,
            by=args.by,
            bands=args.bands,
            edges=args.edges,
            allow_empty=args.allow_empty,
            seed=args.seed,
            **parse_options(args.set),
        )
    written = []
    if args.save:
        fitted.save(args.save)
        written.append(args.save)
    result = None
    if args.apply in work:
        name = Path(args.apply).name
        result = sets_of_folder(fitted, args.apply, args.out, work=work[args.apply], model=name)
        written += [args.out] * bool(args.out)
        if args.report:
            drawn = load_predictions(args.apply, work=work[args.apply])
            written += write_evaluation(args.report, args.command, drawn, name, "sets", sets=(result,))
    elif args.apply:
        applied_to = read_predictions(args.apply, args.scores and args.scores[1])
        result = sets.measure(fitted, applied_to, model=name_of_file(args.apply))
        if args.out:
            formats.write_table(args.out, sets.set_columns(fitted, applied_to))
            written.append(args.out)
        if args.report:
            written += write_evaluation(args.report, args.command, applied_to, result.model, "sets", sets=(result,))
    if args.json:
        print_json({"sets": fitted.state().record, "result": result and asdict(result), "files": written})
    else:
        show(fitted, result, written)
    return 0 if fitted.promises else NOT_KEPT


def read_predictions(path: str, scores: str | None, work: Workers | None = None) -> Predictions:
    """The predictions of a file or folder, with the difficulty of a file of scores as a column."""
    predictions = load_predictions(path, work=work)
    if scores is None:
        return predictions
    from confide.pipeline import with_difficulty
    from confide.records import Scores

    return with_difficulty(predictions, Scores.load(scores))


def show(fitted: PredictionSets, result: SetResult | None, written: list[str]) -> None:
    """Tables for a person."""
    by = (
        f" within each {fitted.by}"
        if fitted.by in ("class", "cluster")
        else f" within each group of {fitted.by}" * bool(fitted.by)
    )
    promise = f"at least {fitted.coverage:.1%} of the sets hold the true class{by}"
    print(f"{fitted.word}, fitted on {fitted.n:,} samples: {promise if fitted.promises else 'nothing can be promised'}")
    for note in fitted.notes:
        print(f"note: {note}")
    if result is not None:
        print()
        print(coverage_table(result))
        print(f"\nsizes: {sizes_text(result)}")
    for path in written:
        print(f"wrote {path}")


def coverage_table(result: SetResult) -> str:
    """A row per group: coverage with interval, mean size, and whether the promise is broken."""
    kinds: dict[str, list[GroupCoverage]] = {}
    for group in result.groups:
        kinds.setdefault(group.kind, []).append(group)
    rows: list[list[str]] = []
    for kind, groups in kinds.items():
        # Of many groups those with the lowest coverage.
        shown = groups if len(groups) <= MOST_ROWS else sorted(groups, key=lambda g: g.share)[:MOST_ROWS]
        for group in shown:
            rows.append(_row(group, kind))
        if len(groups) > len(shown):
            rows.append([f"... and {len(groups) - len(shown)} more of {kind}", "", "", "", "", ""])
    return text_table(["samples", "n", "covered", "95 % interval", "mean size", "promise"], rows)


def _row(group: GroupCoverage, kind: str) -> list[str]:
    known = group.covered is not None
    promise = "BROKEN" if group.broken else "made" if group.promised else ""
    interval = f"{group.low:.4f} to {group.high:.4f}" if known else ""
    name = group.name if kind == "all" else f"{kind}: {group.name}"
    return [name, f"{group.n:,}", f"{group.share:.4f}" if known else "", interval, f"{group.size:.2f}", promise]


def sizes_text(result: SetResult) -> str:
    """How many sets have one class, two, ..., in words."""
    total = sum(count for _, count in result.sizes)
    shown = [f"{size}: {count / total:.1%}" for size, count in result.sizes[:8]]
    more = sum(count for _, count in result.sizes[8:])
    return ", ".join([*shown, *([f"more: {more / total:.1%}"] if more else [])])
