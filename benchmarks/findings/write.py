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
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.findings import recipe
from benchmarks.findings.cells import Cells, cell_tables, markdown, read_cells, resampled_table
from benchmarks.findings.recorded import recorded_tables
from benchmarks.findings.trials import rows_of
from confide import calibrators
from confide.core import files
from confide.core.predictions import Predictions

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "benchmarks" / "results" / "findings"
PAGE = ROOT / "docs" / "findings.md"
TABLES = ROOT / "benchmarks" / "results" / "papers"
ROUNDS = {"tuning": 1, "questions": 2, "settled": 3}
"""Folders of what is kept. From the third round on, averaged weights have batch-norm statistics of their own."""
LAST, SEEDS = 3, 5
"""The round that decides, and the seeds of each loss that is still near after its first."""
SEED = re.compile(r"_seed\d+$")
REFERENCE = {
    (1, 0): (1, "cross_entropy_average1"),
    (2, 0): (1, "cross_entropy_average1"),
    (2, 1): (2, "plain_seed1"),
    (3, 0): (3, "plain"),
    **{(3, seed): (3, f"plain_seed{seed}") for seed in range(1, SEEDS)},
}
"""What differences are taken to, by round and seed: cross-entropy with averages."""
Name = tuple[int, str]
"""A variant of a round."""


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
    made = {"trials": trials_table(), "rule": rule_text(), "seeds": seeds_table()}
    made |= {"confusion": confusion_table(), "errors": errors_table()}
    if cells is not None:
        found = read_cells(cells)
        made |= cell_tables(found)
        made |= recorded_tables(cells)
        made["resampled"] = resampled_table(read_cells(cells, "tiny32"))
        for name in recipe.CHOICES:
            made[f"check-{name}"] = _check(found, tables, name) if name in found else ""
    page = path.read_text(encoding="utf-8")
    for name, table in made.items():
        page = filled(page, name, table)
    files.write_text(path, page)


def _check(cells: Cells, tables: Path, method: str) -> str:
    """How a choice of recipe stands to the target."""
    found = recipe.points(cells, recipe.together_of(tables, method), method)
    named = f"The recipe `{method}`" if method == recipe.OWN else f"`{method}`"
    return recipe.check_table(found, recipe.where_the_gap_is(cells, method), named)


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
    for (turn, _), row in sorted(
        rows.items(), key=lambda one: (-one[0][0], one[1]["judge_mirror"]["temperature"]["nll"])
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
                f"{100 * raw['accuracy']:.2f}",
                f"{100 * raw['gap']:+.2f}",
                f"{plain['nll']:.4f}",
                f"{mirrored['nll']:.4f}",
                difference(losses, turn, row),
                f"{1e3 * mirrored['aurc']:.2f}",
                f"{mirrored['calibration_p']:.2f}",
                " ".join(f"{value:.2f}" for value in doubts) or "-",
            )
        )
    head = ("round", "variant", "seed", "accuracy %", "gap raw %", "NLL", "NLL mirror", "to cross-entropy",
            "AURC x1000", "p", "doubts")  # fmt: skip
    return markdown(head, lines)


def rule_text() -> str:
    """What point 4 of the rule says: of the trainings of seed 0, and of the losses trained with every seed."""
    rows, losses = kept_rows()
    first = {
        name: row
        for name, row in rows.items()
        if row["settings"]["seed"] == 0 and (name[0] == LAST or not row["settings"].get("average"))
    }
    whole = _with_every_seed(rows)
    return "\n\n".join(
        told
        for told in (
            _choice(rows, losses, {name: [name] for name in first}),
            f"Over {SEEDS} seeds: {_choice(rows, losses, whole)}" if len(whole) > 1 else "",
        )
        if told
    )


def seeds_table() -> str:
    """What point 4 reads where every seed is trained: means over seeds, best NLL first."""
    rows, losses = kept_rows()
    several = _with_every_seed(rows)
    lines = {}
    for name, some in several.items():
        stages = [rows[one]["judge_mirror"] for one in some]
        accuracy, gap = (100 * np.array([one["none"][word] for one in stages]) for word in ("accuracy", "gap"))
        nll = np.array([one["temperature"]["nll"] for one in stages])
        mean, error = apart(losses, some, several[LAST, "plain"])
        lines[nll.mean()] = [
            f"`{name[1]}`",
            f"{accuracy.mean():.2f} ± {accuracy.std(ddof=1):.2f}",
            f"{gap.mean():+.2f}",
            f"{nll.mean():.4f} ± {nll.std(ddof=1):.4f}",
            f"{mean:+.4f} ± {error:.4f}" if name[1] != "plain" else "-",
        ]
    head = ["variant", "accuracy %", "gap raw %", "NLL mirror", "to cross-entropy"]
    return markdown(head, [lines[key] for key in sorted(lines)])


def _with_every_seed(rows: Iterable[Name]) -> dict[Name, list[Name]]:
    """The losses of the last round that are trained with every seed, each with its trainings."""
    several: dict[Name, list[Name]] = {}
    for name in rows:
        several.setdefault((name[0], SEED.sub("", name[1])), []).append(name)
    return {name: some for name, some in several.items() if name[0] == LAST and len(some) == SEEDS}


def _choice(rows: Mapping[Name, Any], losses: Mapping[Name, Any], candidates: Mapping[Name, Sequence[Name]]) -> str:
    """Point 4 among candidates, each with its trainings: the near ones, and of these the best at its own confidence."""
    plain = (LAST, "plain")
    if plain not in candidates:
        return ""

    def mean(name: Name, stage: str, word: str) -> float:
        return float(np.mean([rows[one]["judge_mirror"][stage][word] for one in candidates[name]]))

    best = min(candidates, key=lambda name: mean(name, "temperature", "nll"))
    least = mean(plain, "none", "accuracy") - 0.002
    near = []
    for name, some in candidates.items():
        difference, error = apart(losses, some, candidates[best])
        if difference <= 2 * error and mean(name, "none", "accuracy") >= least:
            near.append(name)
    chosen = min(near, key=lambda name: abs(mean(name, "none", "gap")))
    listed = ", ".join(_told(name) for name in near)
    return (
        f"Lowest NLL: {_told(best)}. Within two standard errors of it: {listed}. Of these, confidence is nearest to "
        f"accuracy with {_told(chosen)}."
    )


def _told(name: Name) -> str:
    return f"`{name[1]}` (round {name[0]})"


def kept_rows() -> tuple[dict[Name, dict[str, Any]], dict[Name, Any]]:
    """All lines, and the NLL of every judging sample, by round and variant."""
    rows, losses = {}, {}
    for folder, turn in ROUNDS.items():
        rows |= {(turn, row["variant"]): row for row in rows_of(KEPT / folder)}
        path = KEPT / folder / "nll.npz"
        losses |= {(turn, name): one for name, one in files.read_table(path)[0].items()} if path.exists() else {}
    return rows, losses


def apart(losses: Mapping[Name, Any], names: Sequence[Name], others: Sequence[Name]) -> tuple[float, float]:
    """Mean and standard error of the paired difference in NLL of two variants, mirrored, over samples and seeds."""
    first, second = (np.stack([losses[one] for one in sorted(some)]).astype(np.float64) for some in (names, others))
    each = first.mean(axis=0) - second.mean(axis=0)
    error = each.std(ddof=1) / np.sqrt(len(each))
    if len(names) > 1 and len(names) == len(others):
        error = np.hypot(error, (first - second).mean(axis=1).std(ddof=1) / np.sqrt(len(names)))
    return float(each.mean()), float(error)


def difference(losses: Mapping[Name, Any], turn: int, row: Mapping[str, Any]) -> str:
    """The difference in NLL to cross-entropy of the same seed, for a table."""
    name, other = (turn, row["variant"]), REFERENCE.get((turn, row["settings"]["seed"]))
    if other is None or name not in losses or other not in losses or other == name:
        return "-"
    mean, error = apart(losses, [name], [other])
    return f"{mean:+.4f} ± {error:.4f}"


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
