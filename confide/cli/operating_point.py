"""`confide operating-point FILE`: a confidence threshold with a guaranteed risk, and what it accepts."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from confide.cli.shared import NOT_KEPT, WEIGHTS, load_predictions, print_json, text_table, warnings_on_stderr

if TYPE_CHECKING:
    from confide.predictions import Predictions
    from confide.results import OperatingPoint, PromisedRisk


EXAMPLE = (
    "  confide operating-point val.parquet --risk 0.01 --confidence 0.95 --out point.json\n"
    "  confide operating-point val.parquet --coverage 0.8\n"
    "  confide operating-point val.parquet --risk error=0.02 --risk 'fpr[cat]=0.01' --out point.json\n"
    "  confide operating-point test.parquet --apply point.json --out accepted.csv"
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="labelled predictions, not used to train or calibrate")
    parser.add_argument(
        "--risk",
        action="append",
        metavar="RISK",
        help="error rate allowed among accepted samples; or NAME=VALUE, again for each of several risks: error, "
        "accepted_error, precision, recall, fpr, fnr, the last four also of a class, as recall[cat]=0.9",
    )
    parser.add_argument("--promise", default="probability", help="of several risks: probability, or expectation")
    parser.add_argument("--coverage", type=float, help="instead: the share to accept")
    parser.add_argument("--confidence", type=float, default=0.95, help="how sure the promise must be (default: 0.95)")
    parser.add_argument("--score", default="msp", help="what ranks the samples (default: msp)")
    parser.add_argument("--method", default="fixed_sequence", help="fixed_sequence, fallback or sgr")
    parser.add_argument("--per-class", action="store_true", help="one threshold per predicted class")
    parser.add_argument("--weights", metavar="COLUMN", help=WEIGHTS)
    parser.add_argument("--apply", metavar="POINT", help="apply a saved point to FILE instead")
    parser.add_argument("-o", "--out", help="write the point (.json), or with --apply what is accepted (.csv ...)")


def run(args: argparse.Namespace) -> int:
    from confide.checks import InputError
    from confide.evaluation.operating_points import operating_point

    if not args.apply and (args.risk is None) == (args.coverage is None):
        raise InputError("give either --risk, the error rate you may not exceed, or --coverage, the share to accept")
    predictions = load_predictions(args.file, weights=args.weights)
    if args.apply:
        return apply(args, predictions)
    with warnings_on_stderr():
        point = operating_point(
            predictions,
            risks_of(args.risk),
            args.confidence,
            coverage=args.coverage,
            score=args.score,
            method=args.method,
            per_class=args.per_class,
            promise=args.promise,
        )
    if args.out:
        point.save(args.out)
    if args.json:
        print_json(point.to_dict())
    else:
        print(point_text(point))
        if args.out:
            print(f"saved: {args.out}")
    return 0 if point.certified else NOT_KEPT


def risks_of(texts: list[str] | None) -> float | dict[str, float] | None:
    """One number, or several risks by name."""
    from confide.checks import InputError
    from confide.files import split_pair

    if texts is None:
        return None
    form = "--risk takes a number, or NAME=NUMBER for each risk"
    try:
        if len(texts) == 1 and "=" not in texts[0]:
            return float(texts[0])
        return {name: float(value) for name, value in (split_pair(text, form, last=True) for text in texts)}
    except ValueError:
        raise InputError(f"{form}, got '{' '.join(texts)}'") from None


def point_text(point: OperatingPoint) -> str:
    """The point in words: what to accept, what it covers, what it promises."""
    # Of confidence and correctness there is no softmax whose largest probability it would be.
    score = "confidence" if point.score == "msp" and not point.num_classes else point.score
    if point.classes:
        rows = [
            [
                class_name(point.class_names, k),
                "-" if own.threshold is None else f"{own.threshold:.6f}",
                f"{own.accepted} of {own.n}",
                str(own.errors),
                "-" if own.bound is None else f"{own.bound:.4f}",
            ]
            for k, own in point.classes.items()
        ]
        table = text_table(["predicted class", f"accept from {score}", "accepted", "errors", "risk at most"], rows)
        risks = f"\n\n{risk_table(point.risks)}\n{sureness(point)}" if point.risks else ""
        return table + risks + (f"\n{point.note}" if point.note else "") + like_these(point, "\nfor samples")
    if point.threshold is None:
        return point.note
    weighted = "" if point.largest_weight is None else " by weight"
    accept = (
        f"accept a prediction if {score} >= {point.threshold:.6f}\n"
        f"coverage {point.coverage:.1%}{weighted} ({point.accepted:,} of {point.n:,}), "
        f"{point.errors:,} errors among them\n"
    )
    if point.risks:
        return f"{accept}\n{risk_table(point.risks)}\n{sureness(point)}"
    promise = f"with confidence {point.confidence:g} the risk is at most {risk_text(point)}"
    return f"{accept}{promise}, for samples like these{like_these(point)}"


def like_these(point: OperatingPoint, start: str = "") -> str:
    """What a promise about weighted samples supposes of them."""
    if point.largest_weight is None:
        return ""
    return f"{start}, none of them heavier than {point.largest_weight:.3g} times the mean"


def risk_table(risks: Sequence[PromisedRisk]) -> str:
    """A row for every promised risk: what was counted, and what can be said of it at this threshold alone."""
    rows = [
        [
            risk.label,
            f"at {'least' if risk.at_least else 'most'} {risk.limit:g}",
            f"{risk.rate:.4f}",
            f"{risk.n:,}",
            "" if risk.bound is None else f"{risk.bound:.4f}",
        ]
        for risk in risks
    ]
    return text_table(["risk", "promised", "seen", "among", "bound"], rows)


def sureness(point: OperatingPoint) -> str:
    """How far the promises of a point hold."""
    how = "on average" if point.promise == "expectation" else f"together with confidence {point.confidence:g}"
    return f"these hold {how}, for samples like these{like_these(point)}"


def risk_text(point: OperatingPoint) -> str:
    """The risk that was asked for: the search tests that one. The bound, where the coverage was."""
    return f"{point.risk:g}" if point.risk is not None else f"{point.bound:.4f}"


def class_name(names: tuple[str, ...] | None, key: str) -> str:
    """The name of a class where it is known."""
    return names[int(key)] if names and int(key) < len(names) else key


def apply(args: argparse.Namespace, predictions: Predictions) -> int:
    """What a saved point accepts of a file, and how it does there where the labels are known."""
    from confide.evaluation.operating_points import apply_operating_point, observed
    from confide.evaluation.risks import observed_risks
    from confide.files import formats
    from confide.results import OperatingPoint

    point = OperatingPoint.load(args.apply)
    accepted = apply_operating_point(point, predictions)
    seen = observed(point, predictions) if predictions.facts.right is not None else None
    if args.out:
        formats.write_table(args.out, {"id": predictions.ids, "accepted": accepted.cpu().numpy().astype(int)})
    count, n = int(accepted.sum()), len(predictions)
    if args.json:
        counts = {"accepted": count, "n": n}
        observed_there = None if seen is None else asdict(seen)
        print_json({**counts, "observed": observed_there, "point": point.to_dict(), "out": args.out})
    else:
        errors = "no labels to count errors" if seen is None else f"error rate {seen.risk:.4f}"
        print(f"accepted {count:,} of {n:,} ({count / max(n, 1):.1%}), {errors}")
        if point.risks and seen is not None:
            print(risk_table(observed_risks(point, predictions)))
        elif point.bound is not None:
            print(f"promised: at most {risk_text(point)} with confidence {point.confidence:g}")
        if point.note:
            print(point.note)
    return 0 if point.certified else NOT_KEPT
