"""`confide evaluate FILE`: metrics, intervals, evaluation.json and a report from a file of predictions."""

from __future__ import annotations

import argparse
import sys
import warnings
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from confide.cli.shared import (
    NOT_KEPT,
    PRIOR,
    WEIGHTS,
    interval,
    metrics_of,
    name_of_file,
    number,
    p_value,
    print_json,
    prior_of,
    refuse_flags,
    text_table,
)
from confide.progress import ENGINES, Progress

if TYPE_CHECKING:
    from confide.results import Evaluation, Expectation, Measurement


EXAMPLE = (
    "  confide evaluate predictions.parquet\n"
    "  confide evaluate shards/ --metrics accuracy ece aurc --no-intervals\n"
    "  confide evaluate predictions.npz --by class --scores difficulty.parquet --out results --json\n"
    "  confide evaluate predictions.npz --expect 'ece<0.03' --expect 'accuracy>=0.9' --expect-surely\n"
    "  confide evaluate shards/ --engine ray --workers 8 --exact --out results\n"
    "  confide evaluate runs/adafocal --shift corruptions --data cifar10"
)


def configure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "source",
        metavar="FILE",
        help=".parquet, .npz or .csv of predictions, or a folder of such shards; columns: label and logits, probs, "
        "logit_0 ..., p0 ..., logit_NAME ... or prob_NAME ...",
    )
    add("--metrics", nargs="+", default=["core"], help="core, all, or words (see: confide list metrics)")
    add("--by", nargs="+", help="full metrics per group: class, predicted, difficulty, or a column")
    add("--unit", metavar="COLUMN", help="what was drawn as one, such as the question of several answers")
    add("--score", nargs="+", help="what ranks the samples: msp entropy margin max_logit ...")
    add("--scores", metavar="FILE", help="difficulty of the samples, joined by id")
    add("--weights", metavar="COLUMN", help=WEIGHTS)
    add("--prior", nargs="+", metavar="SHARE", help=PRIOR)
    add("--sketch", action="store_true", help="of a folder: count in cells, so that memory does not grow with the rows")
    add("--exact", action="store_true", help="of a folder: sort all rows on disk, so that rankings are exact too")
    add("--engine", choices=ENGINES, help="of a folder: who counts, several processes here or a Ray cluster")
    add("--workers", type=int, metavar="N", help="with --engine: how many at a time (default: 2)")
    add("--no-intervals", action="store_true", help="values only: no bootstrap, no calibration test")
    add("-o", "--out", metavar="DIR", help="where to write (default: FILE's name + -evaluation)")
    add("--title", help="title of the report")
    add("--split", help="name of the split, if the file does not say it")
    add("--seed", type=int, default=0, help="of the resampling (default: 0)")
    add(
        "--expect", action="append", default=[], metavar="TEXT", help="such as 'ece<0.03'; status 3 if it does not hold"
    )
    add(
        "--expect-surely",
        action="append",
        nargs="?",
        const="",
        default=[],
        metavar="TEXT",
        help="the whole 95 %% interval must hold it; without TEXT so for every --expect",
    )
    add("--shift", metavar="KIND", help="FILE is a trained model: corruptions, domain, ...")
    add("--data", help="with --shift: the dataset whose test split is shifted")
    add("--beside", nargs="+", default=[], metavar="MODEL", help="with --shift: further models")


def run(args: argparse.Namespace) -> int:
    from confide.cli.shift import check_not_shifted, from_evaluate

    if args.shift:
        refuse_flags(args, ("expect", "expect-surely"), "confide evaluate --shift compares models")
        from_evaluate(args)
        return 0
    check_not_shifted(args)
    Progress.result = str(out_of(args))
    if args.sketch or args.engine or args.exact:
        alone = ("score", "scores", "unit", "weights", "prior")
        refuse_flags(args, alone, "a folder that is counted in cells has its samples alike, by confidence,")
        return finish(args, of_folder(args), [])
    refuse_flags(args, ("workers",), "without --engine a folder is read by this process")
    from confide.evaluation.evaluate import OWN_GROUPS, available_words, evaluate
    from confide.evaluation.streaming import as_predictions
    from confide.records import Scores
    from confide.results import About

    own = filter(None, [args.unit, args.weights])
    columns = [word for word in (*(args.by or ()), *own) if word not in OWN_GROUPS]
    with warnings.catch_warnings(record=True) as doubts:
        warnings.simplefilter("always")
        predictions = as_predictions(
            args.source,
            columns=columns,
            ids=args.scores is not None,
            split=args.split,
            score=args.score,
            weights=args.weights,
        )
    predictions = predictions.replace(unit=args.unit) if args.unit else predictions
    plainly, surely = expectations_of(args)
    metrics = metrics_of(args.metrics)
    if expected := [expectation.metric for expectation in (*plainly, *surely)]:
        shown = available_words(metrics, predictions) if isinstance(metrics, str) else metrics
        metrics = list(dict.fromkeys((*shown, *expected)))
    name = name_of_file(args.source)
    evaluation = evaluate(
        predictions,
        metrics,
        not args.no_intervals,
        args.by,
        model=name,
        scores=Scores.load(args.scores) if args.scores else None,
        score=args.score,
        weights=args.weights,
        prior=prior_of(args.prior),
        seed=args.seed,
        title=args.title or name,
        about=About(commands=(args.command,)),
    )
    return finish(args, evaluation, [str(doubt.message) for doubt in doubts])


def of_folder(args: argparse.Namespace) -> Evaluation:
    """The evaluation of a folder in memory that does not grow with its rows."""
    from confide.pipeline import evaluate_folder
    from confide.results import About

    plainly, surely = expectations_of(args)
    metrics = metrics_of(args.metrics)
    if (plainly or surely) and not isinstance(metrics, str):
        metrics = list(dict.fromkeys((*metrics, *(expectation.metric for expectation in (*plainly, *surely)))))
    name = name_of_file(args.source)
    return evaluate_folder(
        args.source,
        out_of(args) / "parts",
        metrics,
        not args.no_intervals,
        args.by or (),
        exact=args.exact,
        engine=args.engine,
        workers=args.workers or 2,
        split=args.split,
        model=name,
        seed=args.seed,
        title=args.title or name,
        about=About(commands=(args.command,)),
    )


def out_of(args: argparse.Namespace) -> Path:
    """Where results go."""
    return Path(args.out) if args.out else Path(args.source).parent / f"{name_of_file(args.source)}-evaluation"


def finish(args: argparse.Namespace, evaluation: Evaluation, doubts: list[str]) -> int:
    """Write the evaluation and its report, print it, and look at what was expected."""
    from confide.report import verdict_sentence, write_report

    plainly, surely = expectations_of(args)
    evaluation = replace(evaluation, warnings=(*evaluation.warnings, *dict.fromkeys(doubts)))
    out = out_of(args)
    evaluation.save(out / "evaluation.json")
    write_report(evaluation, out / "report.html")
    broken = evaluation.expect(*(expectation.text for expectation in plainly))
    broken += evaluation.expect(*(expectation.text for expectation in surely), surely=True)
    if args.json:
        files = [out / "evaluation.json", out / "report.html"]
        print_json({**evaluation.to_dict(), "files": files, "broken": [asdict(expectation) for expectation in broken]})
    else:
        if any(m.metric == "confidence_gap" for m in evaluation.measurements):
            print(f"{verdict_sentence(evaluation)}\n")
        print(table_of(evaluation))
        for word, reason in evaluation.about.missing.items():
            print(f"{word}: {reason}")
        for warning in evaluation.warnings:
            print(f"warning: {warning}")
        print(f"\nevaluation: {out / 'evaluation.json'}\nreport: {out / 'report.html'}")
    for expectation in broken:
        print(f"broken: {expectation}", file=sys.stderr)
    return NOT_KEPT if broken else 0


def expectations_of(args: argparse.Namespace) -> tuple[list[Expectation], list[Expectation]]:
    """What must hold for the values, and what for their whole intervals."""
    from confide.checks import InputError
    from confide.results import Expectation

    plainly, surely = (list(map(Expectation.of, filter(None, texts))) for texts in (args.expect, args.expect_surely))
    if "" in args.expect_surely:
        plainly, surely = [], [*plainly, *surely]
        if not surely:
            raise InputError("--expect-surely needs an expectation; write it as --expect-surely 'ece<0.03'")
    if surely and args.no_intervals:
        raise InputError("--expect-surely needs the intervals that --no-intervals leaves out; give one of them")
    return plainly, surely


def table_of(evaluation: Evaluation) -> str:
    """Metrics of all samples with interval, chance level and p-value; groups below."""
    whole = [m for m in evaluation.measurements if m.group is None]
    rows = [[name_of(m), number(m.value), interval(m), number(m.chance), p_value(m.p_value)] for m in whole]
    # Without intervals nothing stands beside the values.
    shown = 5 if any(row[2] or row[3] != "-" for row in rows) else 2
    header = ["metric", "value", "95 % interval", "by chance", "p calibrated"][:shown]
    rows = [row[:shown] for row in rows]
    if any(m.note for m in whole):
        header, rows = [*header, "note"], [[*row, m.note or ""] for row, m in zip(rows, whole, strict=True)]
    text = text_table(header, rows)
    from confide.report.words import units_words

    n, about = whole[0].n if whole else 0, evaluation.about
    rows_are, weighted = about.unit or "samples", ""
    if about.effective_samples is not None:
        weighted = f", weighted by {about.weighted_by}: worth {about.effective_samples:,.0f} of equal weight"
    if about.drawn_as is not None:
        weighted = f" of {units_words(about)}, which intervals count{weighted}"
    return f"{n:,} {rows_are.removesuffix('s') if n == 1 else rows_are}{weighted}\n\n{text}{groups_of(evaluation)}"


def groups_of(evaluation: Evaluation) -> str:
    """What a group is measured by, or the first metrics that were asked for; at most 20 groups of a kind."""
    by_group: dict[str, dict[str, Measurement]] = {}
    for m in evaluation.measurements:
        if m.group is not None:
            by_group.setdefault(m.group, {}).setdefault(m.metric, m)
    kinds: dict[str, list[str]] = {}
    for group, measured in by_group.items():
        kinds.setdefault(next(iter(measured.values())).group_kind, []).append(group)
    parts = []
    for kind, groups in kinds.items():
        known = dict.fromkeys(word for group in groups for word in by_group[group])
        shown = [info.word for info in evaluation.columns("groups") if info.word in known] or list(known)[:4]
        rows = []
        for group in groups[:20]:
            cells = [f"{number(by_group[group][w].value)} {interval(by_group[group][w])}".strip() for w in shown]
            first = next(iter(by_group[group].values()))
            rows.append([first.group_name, f"{first.n:,}", *cells])
        more = f"\n... and {len(groups) - 20} more in evaluation.json" if len(groups) > 20 else ""
        parts.append("\n\n" + text_table([f"by {kind}", "samples", *shown], rows) + more)
    return "".join(parts)


def name_of(measurement: Measurement) -> str:
    """The metric's word with its score where that is not the plain confidence."""
    return measurement.metric if measurement.plain else f"{measurement.metric} ({measurement.score})"
