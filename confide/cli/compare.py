"""`confide compare A B ...`: paired tests between predictions on the same samples, or between groups of runs."""

from __future__ import annotations

import argparse
import math
from dataclasses import asdict
from typing import TYPE_CHECKING

from confide.cli.shared import (
    WEIGHTS,
    load_predictions,
    metrics_of,
    name_of_file,
    print_json,
    text_table,
    weights_text,
)

if TYPE_CHECKING:
    from confide.evaluation import Comparison
    from confide.evaluation.seeds import GroupComparison

EXAMPLE = (
    "  confide compare before.parquet after.parquet\n"
    "  confide compare first.npz second.npz third.npz --metrics nll ece aurc --json\n"
    "  confide compare plain/*.npz --against focal/*.npz"
)


def configure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("files", nargs="+", metavar="FILE", help="predictions on the same samples (two or more)")
    add("--against", nargs="+", metavar="FILE", help="runs of another training: FILEs against these, paired by seed")
    add("--names", nargs="+", help="names of the files in the table (default: their own)")
    add("--metrics", nargs="+", default=["core"], help="core, all, or words (see: confide list metrics)")
    add("--unit", metavar="COLUMN", help="what was drawn as one, such as the question of several answers")
    add("--score", default="msp", help="what ranks the samples (default: msp)")
    add("--weights", metavar="COLUMN", help=WEIGHTS)
    add("--resamples", type=int, default=1000, help="bootstrap resamples (default: 1000)")
    add("--seed", type=int, default=0, help="of the resampling (default: 0)")


def run(args: argparse.Namespace) -> None:
    from confide.checks import InputError
    from confide.evaluation.compare import compare
    from confide.results import LEVEL

    if args.against:
        against(args)
        return
    names = args.names or unique_names(args.files)
    if len(names) != len(args.files):
        raise InputError(f"--names must be {len(args.files)} words, got {len(names)}; name every file")
    records = {
        name: load_predictions(path, args.unit, args.weights) for name, path in zip(names, args.files, strict=True)
    }
    metrics = metrics_of(args.metrics)
    comparisons = compare(records, metrics=metrics, score=args.score, resamples=args.resamples, seed=args.seed)
    if args.json:
        print_json([c.as_row() for c in comparisons])
        return
    for pair in dict.fromkeys((c.a, c.b) for c in comparisons):
        rows = []
        for c in comparisons:
            if (c.a, c.b) == pair:
                rows.append([c.metric, f"{c.difference:+.4f}", *test_cells(c), str(c.winner or "-")])
        header = [f"{pair[1]} minus {pair[0]}", "difference", "95 % interval", "p", "p (Holm)", "better"]
        print(text_table(header, rows) + "\n")
    first = next(iter(records.values()))
    if not first.has_labels and first.ids.tolist() == list(range(len(first))):
        print("note: without ids and labels the samples are paired by their place in the files")
    print(f"{len(first):,} samples{weights_text(first)}; better only where the Holm-corrected p is below {LEVEL}")


def test_cells(row: Comparison | GroupComparison) -> list[str]:
    """Interval, p and corrected p of a difference; dashes where nothing can be said."""
    if math.isnan(row.p_value):
        return ["-", "-", "-"]
    tails = ("< 0.0001" if p < 0.0001 else f"{p:.4f}" for p in (row.p_value, row.p_holm))
    return [f"{row.low:+.4f} to {row.high:+.4f}", *tails]


def against(args: argparse.Namespace) -> None:
    """Groups of runs, such as seeds of two ways of training."""
    from confide.checks import InputError
    from confide.evaluation.seeds import compare_groups
    from confide.results import LEVEL

    if args.names and len(args.names) != 2:
        raise InputError(f"--names must be 2 words with --against, got {len(args.names)}; name both groups")
    names = args.names or ["first", "second"]
    groups = [
        [load_predictions(path, args.unit, args.weights) for path in sorted(files)]
        for files in (args.files, args.against)
    ]
    metrics = metrics_of(args.metrics)
    rows = compare_groups(*groups, metrics=metrics, score=args.score, resamples=args.resamples, seed=args.seed)
    if args.json:
        print_json([asdict(row) for row in rows])
        return
    cells = [
        [
            row.metric,
            mean_text(row.mean_a, row.sd_a, row.chance_a),
            mean_text(row.mean_b, row.sd_b, row.chance_b),
            f"{row.difference:+.4f}",
            *test_cells(row),
            {"a": names[0], "b": names[1]}.get(row.better or "", "-"),
        ]
        for row in rows
    ]
    header = ["metric", f"{names[0]} (mean ±sd)", f"{names[1]} (mean ±sd)", "difference", "95 % interval"]
    print(text_table([*header, "p", "p (Holm)", "better"], cells))
    paired = "paired by the order of their names" if len(groups[0]) == len(groups[1]) else "not paired"
    runs = f"{len(groups[0])} and {len(groups[1])} runs, {paired}, on {len(groups[0][0]):,} samples"
    runs += weights_text(groups[0][0])
    if any(row.chance_a is not None for row in rows):
        print("\nin brackets: what perfectly calibrated runs would show by chance")
    print(f"\n{runs}; intervals hold the chance of runs and of samples; better only where p (Holm) is below {LEVEL}")


def mean_text(mean: float, sd: float, chance: float | None) -> str:
    """A mean over runs with its standard deviation; of a calibration error also what chance would show."""
    return f"{mean:.4f} ±{sd:.4f}" + ("" if chance is None else f" ({chance:.4f})")


def unique_names(paths: list[str]) -> list[str]:
    """Names of the files; with their folder where that is needed to tell them apart."""
    short = [name_of_file(p) for p in paths]
    return short if len(set(short)) == len(short) else list(paths)
