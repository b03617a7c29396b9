"""Everything that is made from the cells of the grid, made again: tables, verdicts, shift, findings, the pages' own.

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
from benchmarks.findings import write
from benchmarks.lib.results import unpack
from benchmarks.papers.shift_page import write_page


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
    write.renew(args.into / "benchmarks" / "results" / "findings.md", args.cells, tables)
    for page in headline.PAGES:
        headline.renew(args.into / page)
    print(f"renewed in {time.monotonic() - began:.0f} s; look at the change with `git diff --stat`")
    return status


if __name__ == "__main__":
    raise SystemExit(main())
