"""`confide answers FILE`: predictions from generated answers, for every other verb to read."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from confide.cli.shared import print_json, refuse_flags, warnings_on_stderr

if TYPE_CHECKING:
    from confide.types import Options

EXAMPLE = (
    "  confide answers results/samples_arc_easy_2024-05-01T10-00-00.jsonl --out val.parquet\n"
    "  confide answers said.csv --stated confidence_text --correct right --topic subject --out val.parquet\n"
    "  confide answers sampled.jsonl --samples generations --reference gold --out val.parquet\n"
    "  confide answers uqlm.csv --from uqlm --score noncontradiction --correct graded --out val.parquet\n"
    "  confide answers run.man --from lm-polygraph --score MaximumSequenceProbability --metric EM --out val.parquet"
)
FLAGS = {
    "lm-eval": ("metric", "filter", "topic", "per_length", "unparsed"),
    "uqlm": ("score", "correct", "reference", "topic"),
    "lm-polygraph": ("score", "metric", "threshold"),
    "table": ("stated", "samples", "log_probs", "correct", "reference", "label", "question", "topic", "unparsed"),
}
"""What has a meaning for each source."""


def configure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "source",
        metavar="FILE",
        help="answers: .csv, .parquet, .jsonl, a .man of lm-polygraph, or a folder of samples_*.jsonl",
    )
    add(
        "--from",
        dest="tool",
        choices=list(FLAGS),
        help="what wrote it (default: table with --stated, --samples or --log-probs, else lm-eval)",
    )
    add("-o", "--out", required=True, metavar="FILE", help="the predictions: .parquet, .npz or .csv")
    add("--stated", metavar="COLUMN", help="texts that state a confidence: '85 %%', 'likely'")
    add("--samples", metavar="COLUMN", help="lists of sampled answers: agreement is the confidence")
    add("--log-probs", metavar="COLUMN", help="lists of log-probabilities of choices")
    add("--correct", metavar="COLUMN", help="whether an answer was right, 0 or 1")
    add("--reference", metavar="COLUMN", help="the right answer")
    add("--label", metavar="COLUMN", help="the place of the right choice, from 0")
    add("--question", metavar="COLUMN", help="which question an answer belongs to: the unit of resampling")
    add("--topic", metavar="COLUMN", help="what a question is about: a group")
    add("--score", metavar="NAME", help="of uqlm a score, of lm-polygraph an estimator")
    add("--metric", metavar="NAME", help="what says whether an answer was right")
    add("--filter", metavar="NAME", help="of lm-evaluation-harness, where a file holds several, such as strict-match")
    add("--threshold", type=float, help="from where the metric of lm-polygraph counts as right")
    add("--per-length", action="store_true", help="log-probabilities by the length of a choice, as acc_norm")
    add("--unparsed", type=float, metavar="P", help="confidence of answers that state none (default: left out)")
    add("--split", help="train, val or test")


def run(args: argparse.Namespace) -> None:
    from confide import answers
    from confide.checks import InputError

    tool = args.tool or ("table" if args.stated or args.samples or args.log_probs else "lm-eval")
    others = {name for names in FLAGS.values() for name in names} - set(FLAGS[tool])
    refuse_flags(args, sorted(name.replace("_", "-") for name in others), f"--from {tool} reads its own columns")
    known: Options = {name: getattr(args, name) for name in FLAGS[tool]}
    with warnings_on_stderr():
        if tool == "lm-eval":
            predictions = answers.from_lm_eval(args.source, **known, split=args.split)
        elif tool == "table":
            predictions = answers.from_table(args.source, **known, split=args.split)
        else:
            score = known.pop("score")
            if score is None or (tool == "lm-polygraph" and args.metric is None):
                lacks = "--score" if score is None else "--metric"
                raise InputError(f"--from {tool} needs {lacks}; name what the file calls it")
            if tool == "uqlm":
                known["references"] = known.pop("reference")
                predictions = answers.from_uqlm(args.source, score, **known, split=args.split)
            else:
                predictions = answers.from_lm_polygraph(args.source, score, **known, split=args.split)
    predictions.save(Path(args.out))
    if args.json:
        print_json({"answers": len(predictions), "columns": list(predictions.columns), "files": [args.out]})
        return
    print(f"{predictions!r}\npredictions: {args.out}\nnext: confide evaluate {args.out}")
