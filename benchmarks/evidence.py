"""Everything that is made from the cells of the grid, made again: tables, verdicts, shift, findings, the README's.

python -m benchmarks.evidence                        # from benchmarks/results/lite
python -m benchmarks.evidence results.tar more.tar   # unpack these archives into it first
python -m benchmarks.evidence --cells FOLDER --into FOLDER   # from another folder, into a copy: a try
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from benchmarks import ROOT, headline
from benchmarks.__main__ import main as bench
from benchmarks.findings import recipe, write
from benchmarks.findings.cells import Cells, read_cells
from benchmarks.lib.results import unpack
from benchmarks.papers.shift_page import write_page
from confide import files

START, END = "<!-- recipe: made by make evidence -->", "<!-- /recipe -->"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archives", nargs="*", help="results of a grid to unpack first")
    parser.add_argument("--cells", type=Path, default=ROOT / "benchmarks" / "results" / "lite", help="folder of a grid")
    parser.add_argument("--into", type=Path, default=ROOT, help="folder whose README, docs and results are renewed")
    args = parser.parse_args()
    began = time.monotonic()
    for archive in args.archives:
        print(f"{archive}: {unpack(Path(archive), args.cells)} files into {args.cells}")
    tables = args.into / "benchmarks" / "results" / "papers"
    status = bench(["tables", "--out", str(args.cells), "--tables", str(tables)])
    write_page(args.cells, args.into / "benchmarks" / "results")
    write.renew(args.into / "docs" / "findings.md", args.cells, tables)
    page = args.into / "README.md"
    text = headline.renewed(page.read_text(encoding="utf-8"), tables / "main.parquet")
    files.write_text(page, with_recipe(text, read_cells(args.cells), tables))
    print(f"renewed in {time.monotonic() - began:.0f} s; look at the change with `git diff --stat`")
    return status


def with_recipe(text: str, cells: Cells, tables: Path) -> str:
    """The page with how the recipe's target stands, and what did not learn, between its markers."""
    before, mark, rest = text.partition(START)
    if not mark or END not in rest:
        return text
    sentences = [
        f"{recipe.sentence(recipe.points(cells, recipe.together_of(tables)))} [Point by point](docs/findings.md)."
    ]
    sentences += [f"{line} ([why](docs/findings.md))." for line in recipe.not_learnt(cells)]
    return f"{before}{START}\n" + "\n".join(sentences) + f"\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    raise SystemExit(main())
