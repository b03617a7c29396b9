"""`python -m benchmarks.resplits VERB`: pack, train, price, ship, collect, judge, travelling.

On a machine with a GPU that takes some 40 MB at a time, CARRY comes in pieces and results go back in archives:

    python -m benchmarks.resplits pack cifar-10-batches-bin CARRY
    python -m benchmarks.resplits train --data CARRY --packages CARRY --state work --corrupted --time-limit 520
    python -m benchmarks.resplits price --packages CARRY --file OUT/price.json
    python -m benchmarks.resplits ship work OUT --done names-of-what-came-back.txt
    python -m benchmarks.resplits collect OUT STATE
    python -m benchmarks.resplits judge STATE
    python -m benchmarks.resplits travelling STATE
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.resplits import carry, judge, price, trainings, travelling
from benchmarks.resplits.splits import PLANS, RESPLITS

RESULTS = Path("benchmarks/results/resplits")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.resplits", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, names in (("pack", ("source", "target")), ("collect", ("folder", "state"))):
        own = verbs.add_parser(verb)
        for name in names:
            own.add_argument(name, type=Path)
    trainings.configure(verbs.add_parser("train"))
    price.configure(verbs.add_parser("price"))
    own = verbs.add_parser("ship")
    for name in ("state", "out"):
        own.add_argument(name, type=Path)
    own.add_argument("--done", type=Path, help="file with the names of files that came back before")
    for verb in ("judge", "travelling"):
        own = verbs.add_parser(verb)
        own.add_argument("state", type=Path)
        own.add_argument("--out", type=Path, default=RESULTS)
        if verb == "judge":
            own.add_argument("--plan", choices=tuple(PLANS), default=RESPLITS, help="how the images of STATE were cut")
    args = parser.parse_args()
    if args.verb == "pack":
        carry.pack(args.source, args.target)
    elif args.verb == "collect":
        print(f"{carry.collect(args.folder, args.state)} files")
    elif args.verb == "ship":
        done = frozenset(args.done.read_text(encoding="utf-8").split()) if args.done else frozenset()
        print(f"{carry.ship(args.state, args.out, done)} files wait")
    elif args.verb in ("train", "price"):
        {"train": trainings.run, "price": price.run}[args.verb](args)
    elif args.verb == "judge":
        judge.run(args.state, args.out, args.plan)
    else:
        travelling.run(args.state, args.out)


if __name__ == "__main__":
    main()
