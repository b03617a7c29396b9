"""The tables of benchmarks/results/findings.md, made from results files, so that anyone can fill them again.

python -m benchmarks.findings.write                                    # renew the tables from what is kept
python -m benchmarks.findings.write --keep tuning=FOLDER               # take in what tune.py or questions.py wrote
python -m benchmarks.findings.write --cells FOLDER                     # and a grid's cells, for the other questions
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import ROOT
from benchmarks.findings import embedded, folds, recipe
from benchmarks.findings.cells import Cells, cell_tables, markdown, read_cells, resampled_table, stages_table
from benchmarks.findings.recorded import recorded_tables
from benchmarks.findings.rule import (
    FINDINGS,
    SEEDS,
    Name,
    apart,
    by_band_table,
    kept_rows,
    rule_text,
    seeds_table,
)
from benchmarks.findings.trials import rows_of
from benchmarks.lib import titles
from confide import Predictions, calibrators, files

PAGE = ROOT / "benchmarks" / "results" / "findings.md"
TABLES = ROOT / "benchmarks" / "results" / "papers"
REFERENCE = {
    (1, 0): (1, "cross_entropy_average1"),
    (2, 0): (1, "cross_entropy_average1"),
    (2, 1): (2, "plain_seed1"),
    (3, 0): (3, "plain"),
    **{(3, seed): (3, f"plain_seed{seed}") for seed in range(1, SEEDS)},
}
"""What differences are taken to, by round and seed: cross-entropy with averages."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", action="append", default=[], metavar="NAME=FOLDER")
    parser.add_argument("--cells", default=None, help="folder of a grid: its cells/*.json")
    args = parser.parse_args()
    for text in args.keep:
        name, folder = files.split_pair(text, "--keep must be NAME=FOLDER")
        keep(Path(folder), FINDINGS / name)
    renew(PAGE, Path(args.cells) if args.cells else None, TABLES)


def renew(path: Path, cells: Path | None, tables: Path) -> None:
    """Fill the page's tables again: from what is kept, and with a grid's folder from its cells."""
    parts = {"trials": trials_table(), "rule": rule_text(), "seeds": seeds_table()}
    parts |= {"by-band": by_band_table(), "confusion": confusion_table(), "errors": errors_table()}
    parts["embedded"] = embedded.table(FINDINGS / "embedded.jsonl")
    parts["folds"] = folds.table(files.read_json(FINDINGS / "folds.json")["folds"])
    if cells is not None:
        own = read_cells(cells)
        parts |= cell_tables(own)
        parts |= recorded_tables(cells)
        other = read_cells(cells, "tiny32")
        parts["resampled"] = resampled_table(other)
        parts["stages"] = stages_table({"cifar10": own, "tiny32": other}, recipe.OWN)
        for name in recipe.CHOICES:
            parts[f"check-{name}"] = _check(own, tables, name) if name in own else ""
    page = path.read_text(encoding="utf-8")
    for name, table in parts.items():
        page = filled(page, name, table)
    files.write_text(path, page)


def _check(cells: Cells, tables: Path, method: str) -> str:
    """How a choice of recipe stands to the target."""
    points = recipe.points(cells, recipe.together_of(tables, method), method)
    named = f"The recipe `{method}`" if method == recipe.OWN else f"`{method}`"
    return recipe.check_table(points, recipe.where_the_gap_is(cells, method), named)


def filled(page: str, name: str, table: str) -> str:
    """The page with the table of that name renewed; an empty table leaves the page as it is."""
    pattern = re.compile(rf"(<!-- table {name} -->\n).*?(<!-- end -->)", re.S)
    if not table or not pattern.search(page):
        return page
    return pattern.sub(lambda match: f"{match[1]}{table}\n{match[2]}", page)


def keep(source: Path, target: Path) -> None:
    """Lines, records and the NLL of every judging sample; logits stay behind."""
    target.mkdir(parents=True, exist_ok=True)
    for path in (*source.glob("*.jsonl"), *source.glob("*.json"), *source.glob("by_band.npz")):
        shutil.copy(path, target / path.name)
    columns = {}
    for row in rows_of(source):
        outputs, _ = files.read_table(source / f"{row['variant']}.npz")
        val, judge = (
            Predictions(outputs[f"{split}_mirror"], outputs[f"{split}_label"], split=split)
            for split in ("val", "judge")
        )
        after = calibrators.fit("temperature", val)(judge)
        columns[row["variant"]] = after.facts.need("nll").numpy().astype(np.float16)
    files.write_table(target / "nll.npz", columns)


def trials_table() -> str:
    """A row per variant of tune.py and questions.py, on the judging images, with the difference to cross-entropy."""
    rows, losses = kept_rows()
    lines = []
    for (turn, _), row in sorted(
        rows.items(), key=lambda item: (-item[0][0], item[1]["judge_mirror"]["temperature"]["nll"])
    ):
        plain, mirrored, raw = (
            row["judge"]["temperature"],
            row["judge_mirror"]["temperature"],
            row["judge_mirror"]["none"],
        )
        doubts = [values[-1] for name, values in row["log"].items() if name.startswith("doubt")]
        lines.append(
            (
                str(turn),
                f"`{row['variant']}`",
                str(row["settings"]["seed"]),
                titles.mean("accuracy", [raw["accuracy"]]),
                titles.mean("confidence_gap", [raw["gap"]]),
                titles.mean("nll", [plain["nll"]]),
                titles.mean("nll", [mirrored["nll"]]),
                difference(losses, turn, row),
                titles.mean("aurc", [mirrored["aurc"]]),
                f"{mirrored['calibration_p']:.2f}",
                " ".join(f"{value:.2f}" for value in doubts) or "-",
            )
        )
    columns = ("accuracy", "confidence_gap, raw", "nll", "nll, mirror")
    head = ("round", "variant", "seed", *map(titles.heading, columns), "to cross-entropy")
    return markdown((*head, titles.heading("aurc"), "p", "doubts"), lines)


def difference(losses: Mapping[Name, Any], turn: int, row: Mapping[str, Any]) -> str:
    """The difference in NLL to cross-entropy of the same seed, for a table."""
    name, other = (turn, row["variant"]), REFERENCE.get((turn, row["settings"]["seed"]))
    if other is None or name not in losses or other not in losses or other == name:
        return "-"
    mean, error = apart(losses, [name], [other])
    return f"{mean:+.4f} ± {error:.4f}"


def confusion_table() -> str:
    """Kendall's tau of every pair of rankings."""
    confusion = _confusion()
    if confusion is None:
        return ""
    names = list(dict.fromkeys(name for pair in confusion["pairs"] for name in (pair["first"], pair["second"])))
    taus = {(p["first"], p["second"]): p["kendall"] for p in confusion["pairs"]}
    lines = []
    for a in names:
        cells = [taus.get((a, b), taus.get((b, a))) for b in names]
        lines.append((a, *("-" if tau is None else f"{tau:.2f}" for tau in cells)))
    return markdown(("Kendall's tau", *names), lines)


def errors_table() -> str:
    """How well each ranking finds the errors of each network, and what it costs."""
    confusion = _confusion()
    if confusion is None:
        return ""
    models = list(dict.fromkeys(row["errors_of"] for row in confusion["errors"]))
    lines = []
    for name in dict.fromkeys(row["ranking"] for row in confusion["errors"]):
        by_model = {row["errors_of"]: row["auroc"] for row in confusion["errors"] if row["ranking"] == name}
        cells = ["-" if model not in by_model else f"{100 * by_model[model]:.1f}" for model in models]
        seconds = confusion["seconds"].get(name, confusion.get("rmd_seconds"))
        lines.append((name, *cells, "-" if seconds is None else f"{seconds:.0f}"))
    return markdown(("ranking", *(f"errors of {model}" for model in models), "seconds"), lines)


def _confusion() -> dict[str, Any] | None:
    path = FINDINGS / "questions" / "confusion.json"
    if not path.exists():
        return None
    confusion: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    cost = FINDINGS / "questions" / "rmd.json"
    if cost.exists():
        confusion["rmd_seconds"] = json.loads(cost.read_text(encoding="utf-8"))["seconds"]
    return confusion


if __name__ == "__main__":
    main()
