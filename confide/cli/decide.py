"""`confide decide FILE`: the action of smallest expected cost for every sample, whom to ask, and what it costs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confide.cli.shared import (
    WEIGHTS,
    load_predictions,
    name_of_file,
    print_json,
    text_table,
    weights_text,
    write_evaluation,
)

if TYPE_CHECKING:
    from confide.decisions import DecisionRule, Decisions
    from confide.results import DecisionResult, Measurement


EXAMPLE = (
    "  confide decide calibrated.npz --miss 20 --false-alarm 1\n"
    "  confide decide calibrated.npz --costs costs.yaml --abstain 0.5 --out actions.csv\n"
    "  confide decide test.npz --calibrator t.json --costs '[[0, 1, 1], [5, 0, 1], [9, 2, 0]]' --capacity 200\n"
    "  confide decide new.parquet --load rule.json --out actions.csv"
)


def configure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("file", metavar="FILE", help="predictions, calibrated; with labels the cost is measured too")
    add(
        "--costs",
        metavar="COSTS",
        help="a file or YAML text: a matrix, a row a true class; or a number a class; or one",
    )
    add("--miss", type=float, metavar="X", help="two classes: what it costs to miss class 1")
    add("--false-alarm", type=float, metavar="X", help="two classes: what it costs to take class 0 for class 1")
    add("--abstain", type=float, nargs="+", metavar="X", help="what asking a person costs, one number or one a class")
    add("--capacity", type=int, metavar="N", help="ask about N of these samples at most, where it saves most")
    add("--actions", nargs="+", metavar="NAME", help="names of the columns of the costs, where they are not classes")
    add("--calibrator", metavar="FILE", help="applied first; made by confide calibrate --save")
    add("--weights", metavar="COLUMN", help=WEIGHTS)
    add("--load", metavar="RULE", help="instead of costs: a rule that was saved")
    add("--save", metavar="RULE", help="write the rule, .json")
    add(
        "-o", "--out", metavar="FILE", help="write id, action and expected cost of every sample, .csv, .parquet or .npz"
    )
    add("--report", metavar="DIR", help="write evaluation.json and report.html there")


def run(args: argparse.Namespace) -> None:
    predictions = load_predictions(args.file, weights=args.weights)
    stage = "raw"
    if args.calibrator:
        from confide.calibrators import load as load_calibrator

        calibrator = load_calibrator(args.calibrator)
        predictions, stage = calibrator(predictions), calibrator.word
    rule = rule_of(args, predictions.num_classes)
    decided = rule(predictions, model=name_of_file(args.file), stage=stage)
    written = []
    if args.save:
        rule.save(args.save)
        written.append(args.save)
    if args.out:
        write_actions(args.out, decided, predictions.ids)
        written.append(args.out)
    if args.report:
        name = decided.result.model
        written += write_evaluation(
            args.report, args.command, predictions, name, "decisions", decisions=(decided.result,)
        )
    if args.json:
        print_json({"result": decided.result.as_row(), "files": written})
    else:
        show(decided.result, written, weights_text(predictions))


def rule_of(args: argparse.Namespace, num_classes: int) -> DecisionRule:
    """The rule of the costs that were given in one of three ways, or a saved one."""
    from confide.checks import InputError
    from confide.decisions import DecisionRule, load

    named = [args.miss is not None, args.false_alarm is not None]
    if [args.costs is not None, any(named), args.load is not None].count(True) != 1 or named not in ([0, 0], [1, 1]):
        raise InputError("give --costs, or --miss and --false-alarm of two classes, or --load with a saved rule")
    if args.load:
        if args.abstain or args.capacity is not None or args.actions:
            raise InputError("a saved rule has its own --abstain, --capacity and --actions; leave them out")
        return load(args.load)
    costs = {"miss": args.miss, "false_alarm": args.false_alarm} if any(named) else costs_of(args.costs)
    abstain = args.abstain[0] if args.abstain and len(args.abstain) == 1 else args.abstain
    return DecisionRule.of(costs, num_classes, abstain, args.capacity, args.actions)


def costs_of(text: str) -> Any:
    """Costs of a .csv file of numbers, of a YAML or JSON file, or of YAML text."""
    import numpy as np

    from confide.checks import InputError
    from confide.files.formats import read_yaml

    path = Path(text)
    if path.suffix == ".csv":
        try:
            return np.loadtxt(path, delimiter=",", ndmin=2)
        except ValueError as error:
            raise InputError(f"{path} must be numbers, a row a true class, but: {error}") from None
    return read_yaml(path.read_text(encoding="utf-8") if path.suffix else text, "the costs")


def write_actions(path: str, decided: Decisions, ids: Any) -> None:
    """id, the name of the action, and its expected cost."""
    import numpy as np

    from confide.files import formats

    names = [name for name in decided.result.shares if name != "ask" or decided.rule.abstain is None]
    words = np.array([*names, "ask"])  # -1 is the last
    columns = {"id": ids, "action": words[decided.actions.numpy()], "expected_cost": decided.costs.numpy()}
    formats.write_table(path, columns)


def show(result: DecisionResult, written: list[str], weighted: str) -> None:
    """Tables for a person."""
    if weighted:
        print(f"{result.n:,} samples{weighted}\n")
    rows = [[name, f"{share:.1%}", f"{round(share * result.n):,}"] for name, share in result.shares.items()]
    print(text_table(["action", "share", "samples"], rows))
    if result.threshold is not None:
        print(f"\nclass 1 is decided where its probability is above {result.threshold:.6f}")
    print()
    costs = {
        "expected": result.expected,
        "measured": result.measured,
        "saved, to the likeliest": result.saved,
    }
    print(text_table(["cost a sample", "mean", "95 % interval"], [_row(k, m) for k, m in costs.items() if m]))
    for warning in result.warnings:
        print(f"warning: {warning}")
    for path in written:
        print(f"wrote {path}")


def _row(name: str, cost: Measurement) -> list[str]:
    return [name, f"{cost.value:.4f}", f"{cost.low:.4f} to {cost.high:.4f}" if cost.has_interval else ""]
