"""The tables of docs/findings.md, made from results files, so that anyone can fill them again.

python -m benchmarks.findings.write                                    # renew the tables from what is kept
python -m benchmarks.findings.write --keep tuning=FOLDER               # take in what tune.py or questions.py wrote
python -m benchmarks.findings.write --cells FOLDER                     # and a grid's cells, for the other questions
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.findings import recipe
from benchmarks.findings.cells import Cells, cell_tables, markdown, read_cells
from benchmarks.findings.recorded import recorded_tables
from benchmarks.findings.trials import rows_of
from confide import calibrators
from confide.core import files
from confide.core.predictions import Predictions

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "benchmarks" / "results" / "findings"
PAGE = ROOT / "docs" / "findings.md"
TABLES = ROOT / "benchmarks" / "results" / "papers"
REFERENCE = {0: ("plain", "cross_entropy_average1"), 1: ("plain_seed1",)}
"""What differences of a seed are taken to."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", action="append", default=[], metavar="NAME=FOLDER")
    parser.add_argument("--cells", default=None, help="folder of a grid: its cells/*.json")
    args = parser.parse_args()
    for text in args.keep:
        name, _, folder = text.partition("=")
        keep(Path(folder), KEPT / name)
    renew(PAGE, Path(args.cells) if args.cells else None, TABLES)


def renew(path: Path, cells: Path | None, tables: Path) -> None:
    """Fill the page's tables again: from what is kept, and with a grid's folder from its cells."""
    made = {"trials": trials_table(), "rule": rule_text(), "confusion": confusion_table(), "errors": errors_table()}
    if cells is not None:
        found = read_cells(cells)
        made |= cell_tables(found)
        made |= recorded_tables(cells)
        made["recipe-check"] = _check(found, tables, recipe.OWN, f"The recipe `{recipe.OWN}`")
        first = "The recipe of the first round"
        made["recipe-check-first"] = _check(found, tables, recipe.FIRST, first) if recipe.FIRST in found else ""
    page = path.read_text(encoding="utf-8")
    for name, table in made.items():
        page = filled(page, name, table)
    files.write_text(path, page)


def _check(cells: Cells, tables: Path, method: str, name: str) -> str:
    """How a recipe stands to the target."""
    found = recipe.points(cells, recipe.together_of(tables, method), method)
    return recipe.check_table(found, recipe.where_the_gap_is(cells, method), name)


def filled(page: str, name: str, table: str) -> str:
    """The page with the table of that name renewed; an empty table leaves the page as it is."""
    pattern = re.compile(rf"(<!-- table {name} -->\n).*?(<!-- end -->)", re.S)
    if not table or not pattern.search(page):
        return page
    return pattern.sub(lambda found: f"{found[1]}{table}\n{found[2]}", page)


def keep(source: Path, target: Path) -> None:
    """Lines, records and the NLL of every judging sample; logits stay behind."""
    target.mkdir(parents=True, exist_ok=True)
    for path in (*source.glob("*.jsonl"), *source.glob("*.json")):
        shutil.copy(path, target / path.name)
    columns = {}
    for row in rows_of(source):
        said, _ = files.read_table(source / f"{row['variant']}.npz")
        val, judge = (
            Predictions(said[f"{split}_mirror"], said[f"{split}_label"], split=split) for split in ("val", "judge")
        )
        after = calibrators.fit("temperature", val)(judge)
        columns[row["variant"]] = after.facts.need("nll").numpy().astype(np.float16)
    files.write_table(target / "nll.npz", columns)


def trials_table() -> str:
    """A row per variant of tune.py and questions.py, on the judging images, with the difference to cross-entropy."""
    rows, losses = kept_rows()
    lines = []
    for row in sorted(rows, key=lambda row: row["judge_mirror"]["temperature"]["nll"]):
        plain, mirrored, raw = (
            row["judge"]["temperature"],
            row["judge_mirror"]["temperature"],
            row["judge_mirror"]["none"],
        )
        doubts = [values[-1] for name, values in row["log"].items() if name.startswith("doubt")]
        lines.append(
            (
                f"`{row['variant']}`",
                str(row["settings"]["seed"]),
                f"{100 * raw['accuracy']:.2f}",
                f"{100 * raw['gap']:+.2f}",
                f"{plain['nll']:.4f}",
                f"{mirrored['nll']:.4f}",
                difference(losses, row),
                f"{1e3 * mirrored['aurc']:.2f}",
                f"{mirrored['calibration_p']:.2f}",
                " ".join(f"{value:.2f}" for value in doubts) or "-",
            )
        )
    head = ("variant", "seed", "accuracy %", "gap raw %", "NLL", "NLL mirror", "to cross-entropy", "AURC x1000", "p",
            "doubts")  # fmt: skip
    return markdown(head, lines)


def rule_text() -> str:
    """What point 4 of the rule says of the variants of seed 0, in one sentence."""
    rows, losses = kept_rows()
    found = {row["variant"]: row for row in rows if row["settings"]["seed"] == 0 and row["variant"] in losses}
    plain = reference(0, found)
    if not plain:
        return ""
    best = min(found, key=lambda name: found[name]["judge_mirror"]["temperature"]["nll"])
    least = found[plain]["judge_mirror"]["none"]["accuracy"] - 0.002
    near = []
    for name, row in found.items():
        each = losses[name].astype(np.float64) - losses[best].astype(np.float64)
        within = each.mean() <= 2 * each.std(ddof=1) / np.sqrt(len(each))
        if within and row["judge_mirror"]["none"]["accuracy"] >= least:
            near.append(name)
    chosen = min(near, key=lambda name: abs(found[name]["judge_mirror"]["none"]["gap"]))
    listed = ", ".join(f"`{name}`" for name in near)
    return (
        f"Lowest NLL: `{best}`. Within two standard errors of it: {listed}. Of these, confidence is nearest to "
        f"accuracy with `{chosen}`."
    )


def kept_rows() -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """All lines, and the NLL of every judging sample by variant.

    Once there are averaged weights with statistics of their own, those without them are left out.
    """
    rows = [row for folder in sorted(KEPT.glob("*")) for row in rows_of(folder)]
    if any(row.get("settled") for row in rows):
        rows = [row for row in rows if row.get("settled") or not row["settings"].get("average")]
    losses = {k: v for path in sorted(KEPT.glob("*/nll.npz")) for k, v in files.read_table(path)[0].items()}
    here = {row["variant"] for row in rows}
    return rows, {name: values for name, values in losses.items() if name in here}


def reference(seed: int, known: Container[str]) -> str:
    """Cross-entropy with averages, of that seed."""
    return next((name for name in REFERENCE.get(seed, ()) if name in known), "")


def difference(losses: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    """Mean and standard error of the paired difference in NLL to cross-entropy of the same seed, mirrored."""
    other = reference(row["settings"]["seed"], losses)
    if not other or row["variant"] not in losses or other == row["variant"]:
        return "-"
    each = losses[row["variant"]].astype(np.float64) - losses[other].astype(np.float64)
    return f"{each.mean():+.4f} ± {each.std(ddof=1) / np.sqrt(len(each)):.4f}"


def confusion_table() -> str:
    """Kendall's tau of every pair of rankings."""
    found = _confusion()
    if found is None:
        return ""
    names = list(dict.fromkeys(name for pair in found["pairs"] for name in (pair["first"], pair["second"])))
    taus = {(p["first"], p["second"]): p["kendall"] for p in found["pairs"]}
    lines = []
    for a in names:
        cells = [taus.get((a, b), taus.get((b, a))) for b in names]
        lines.append((a, *("-" if tau is None else f"{tau:.2f}" for tau in cells)))
    return markdown(("Kendall's tau", *names), lines)


def errors_table() -> str:
    """How well each ranking finds the errors of each network, and what it costs."""
    found = _confusion()
    if found is None:
        return ""
    models = list(dict.fromkeys(row["errors_of"] for row in found["errors"]))
    lines = []
    for name in dict.fromkeys(row["ranking"] for row in found["errors"]):
        by_model = {row["errors_of"]: row["auroc"] for row in found["errors"] if row["ranking"] == name}
        cells = ["-" if model not in by_model else f"{100 * by_model[model]:.1f}" for model in models]
        seconds = found["seconds"].get(name, found.get("rmd_seconds"))
        lines.append((name, *cells, "-" if seconds is None else f"{seconds:.0f}"))
    return markdown(("ranking", *(f"errors of {model}" for model in models), "seconds"), lines)


def _confusion() -> dict[str, Any] | None:
    path = KEPT / "questions" / "confusion.json"
    if not path.exists():
        return None
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    cost = KEPT / "questions" / "rmd.json"
    if cost.exists():
        found["rmd_seconds"] = json.loads(cost.read_text(encoding="utf-8"))["seconds"]
    return found


if __name__ == "__main__":
    main()
