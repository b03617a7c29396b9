"""`python -m benchmarks`: the papers' tables and figures, and the grid of trainings behind them."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

from benchmarks.lib.grid import SHORT, USUAL, Cell, lite_cells
from benchmarks.lib.items import SCALES, Item, Outcome
from benchmarks.lib.results import pack, unpack
from benchmarks.lib.run import Part, check_grid, check_item, run_item, seeds_of, with_data
from benchmarks.lib.sources import Sources, keep_task_scores, prepare
from benchmarks.lib.tables import write_verdicts
from benchmarks.lib.workers import Place, run_grid
from benchmarks.papers import items
from confide.checks import InputError, MissingExtra, OptionError, did_you_mean
from confide.files import plain, read_yaml, split_pair
from confide.progress import Progress
from confide.training import Settings

EXAMPLE = """  python -m benchmarks                                        what there is
  python -m benchmarks p1-table2                              one table, smoke scale
  python -m benchmarks p5-table1 --scale lite --out runs/bench
  python -m benchmarks p2-table2 --scale paper --data cifar10=DIR --set epochs=1 --seeds 0
  python -m benchmarks prepare --data cifar10=DIR             decode, and score difficulty, once
  python -m benchmarks grid --data cifar10=DIR --workers 4 --time-limit 560
  python -m benchmarks grid --methods focal,adafocal --seeds 0 --data cifar10=DIR
  python -m benchmarks pack -o results.tar                    carry a grid's results elsewhere
  python -m benchmarks unpack results.tar"""

VERBS = ("prepare", "grid", "pack", "unpack", "tables")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", default="", help="a table or figure; or prepare, grid, pack, unpack, tables")
    parser.add_argument("archives", nargs="*", help="archives to unpack")
    parser.add_argument("--scale", default="smoke", choices=SCALES, help="how much is run")
    parser.add_argument("--out", default="runs/bench", help="folder of the cells (default: runs/bench)")
    parser.add_argument("--tables", default="", help="folder of the tables (default: OUT/tables/SCALE)")
    parser.add_argument("--data", action="append", default=[], metavar="NAME=PATH", help="where a dataset lies")
    parser.add_argument("--datasets", default="cifar10,tiny32", help="datasets of the grid")
    parser.add_argument("--parts", default="", help="parts of the grid (default: all but task)")
    parser.add_argument("--model", default="", help="one network instead of each setting's own; of a table: only these")
    parser.add_argument("--methods", default="", help="methods of the grid, by name (default: all)")
    parser.add_argument("--seeds", default="", help="seeds, such as 0,1,2 (default: each dataset's own)")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="change a training setting")
    parser.add_argument("--workers", type=int, default=1, help="processes at a time; on one GPU they share it")
    parser.add_argument("--per-gpu", type=int, default=1, help="workers that Ray puts on one GPU (default: 1)")
    parser.add_argument("--engine", default="local", choices=("local", "ray"), help="where the cells run")
    parser.add_argument(
        "--time-limit", type=float, default=0.0, metavar="SECONDS", help="start no cell that ends later"
    )
    parser.add_argument("--limit", type=int, default=0, help="samples of every split, to try a grid out")
    parser.add_argument("--resumable", action="store_true", help="checkpoints, for trainings of more than a minute")
    parser.add_argument("--extractor", default="efficientnet_lite0", help="features of the difficulty scores")
    parser.add_argument("--task", action="store_true", help="prepare: also difficulty from a network of the task")
    parser.add_argument("--commit", default="", help="commit to record, where there is no git (or CONFIDE_COMMIT)")
    parser.add_argument("-o", "--archive", default="", metavar="FILE", help="pack the results there")


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    print(json.dumps(plain(value), indent=1, ensure_ascii=False, allow_nan=False))


def run(args: argparse.Namespace) -> int:
    _note_origin(args)
    if args.archives and args.name != "unpack":
        raise InputError(f"{args.name} takes no further words, got '{args.archives[0]}'; only unpack takes archives")
    verbs = dict(zip(VERBS, (_prepare, _grid, _pack, _unpack, _tables), strict=True))
    if args.name in verbs:
        return verbs[args.name](args)
    return _item(args) if args.name else _list(args)


def _list(args: argparse.Namespace) -> int:
    known = items()
    if args.json:
        print_json([{"name": item.name, "source": item.source, "title": item.title} for item in known.values()])
        return 0
    for item in known.values():
        print(f"{item.name:16} {item.source}: {item.title}")
    print("\nscales: smoke (embedded data, seconds), lite (the grid's cells), paper (the papers' own settings)")
    return 0


def _item(args: argparse.Namespace) -> int:
    known = items()
    if args.name not in known:
        raise InputError(f"no table or figure named '{args.name}'; {did_you_mean(args.name, [*known, *VERBS])}")
    changes, seeds = _changes(args), seeds_of(_words(args.seeds))
    part = Part(changes, tuple(_words(args.methods)), seeds, tuple(_words(args.model)))
    check_item(known[args.name], args.scale, part)
    tables = Path(args.tables or Path(args.out) / "tables" / args.scale)
    result = run_item(known[args.name], args.scale, _place(args), tables, part)
    if args.json:
        outcome = result.outcome
        rows = [] if outcome is None else [row.__dict__ for row in outcome.rows]
        verdicts = [] if outcome is None else [verdict.__dict__ for verdict in outcome.verdicts]
        print_json({"rows": rows, "verdicts": verdicts, "files": result.paths, "notes": result.notes})
        return 0
    for note in result.notes:
        print(note)
    for path in result.paths:
        if path.suffix == ".md":
            print(path.read_text(encoding="utf-8"))
    for path in result.paths:
        print(f"wrote {path}")
    return 1 if any(note.startswith("failed") for note in result.notes) else 0


def _tables(args: argparse.Namespace) -> int:
    """Every item at lite scale, from the cells that are there, and a page of all verdicts."""
    place, tables = _place(args), Path(args.tables or Path(args.out) / "tables" / "lite")
    if not place.data and not any((place.out / "cells").glob("*.json")):
        raise InputError(
            f"{place.out} must hold cells of a grid, but there are none; run `python -m benchmarks grid` or unpack"
        )
    outcomes: list[tuple[Item, Outcome | None]] = []
    broken = 0
    for name, item in items().items():
        outcome = None
        try:
            # A checkout keeps the cells' numbers, not their predictions and scores, which a few items draw from.
            outcome = run_item(item, "lite", place, tables, keep=True).outcome
            if outcome is None:
                print(f"{name} left as it is: nothing at hand that it is made from", file=sys.stderr)
        except InputError as error:
            print(f"{name} left as it is: {error}", file=sys.stderr)
        except Exception as error:  # one item that cannot be made must not cost the others
            broken += 1
            print(f"{name} failed: {type(error).__name__}: {error}", file=sys.stderr)
        outcomes.append((item, outcome))
    path = write_verdicts(outcomes, tables / "verdicts.md")
    print(f"wrote {sum(each is not None for _, each in outcomes)} tables and figures, and {path}")
    return 1 if broken else 0


def _note_origin(args: argparse.Namespace) -> None:
    """The command and the commit, for the result files that workers write."""
    if args.commit:
        os.environ["CONFIDE_COMMIT"] = args.commit
    os.environ["CONFIDE_COMMAND"] = shlex.join(["python", "-m", "benchmarks", *map(_short, args.words)])


def _short(word: str) -> str:
    """A word of the command without the folders of this machine."""
    name, sign, value = word.rpartition("=")
    return name + sign + (Path(value).name if value.startswith("/") else value)


def _pairs(texts: list[str], what: str) -> dict[str, str]:
    return dict(split_pair(text, f"{what} must be NAME=VALUE") for text in texts)


def _changes(args: argparse.Namespace) -> dict[str, Any]:
    """Training settings to change."""
    return {name: read_yaml(value, f"the value of '{name}'") for name, value in _pairs(args.set, "--set").items()}


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _place(args: argparse.Namespace) -> Place:
    return Place(
        Path(args.out),
        _pairs(args.data, "--data"),
        args.workers,
        args.engine,
        args.time_limit,
        args.limit,
        args.resumable,
        args.per_gpu,
    )


def _prepare(args: argparse.Namespace) -> int:
    place = _place(args)
    sources = Sources(place.data, place.prepared, args.limit)
    names = [name for name in _words(args.datasets) if name in place.data]
    if not names:
        raise InputError(f"prepare needs data of {' or '.join(_words(args.datasets))}; name it by --data NAME=PATH")
    summaries = [prepare(sources, name, extractor=args.extractor) for name in names]
    for name in names if args.task else ():
        keep_task_scores(sources, name, Settings.from_dict({**SHORT, "model": args.model or "resnet18"}))
    if args.json:
        print_json(summaries)
        return 0
    for summary in summaries:
        how = f"{summary['difficulty']} on {summary['extractor']}"
        print(f"{summary['dataset']}: {summary['sizes']}, difficulty {how}, {summary['seconds']} s")
    return 0


def _cells(args: argparse.Namespace) -> list[Cell]:
    return lite_cells(
        _words(args.datasets),
        parts=_words(args.parts) or USUAL,
        seeds=seeds_of(_words(args.seeds)) or None,
        methods=_words(args.methods) or None,
        model=args.model or None,
        changes=_changes(args),
    )


def _grid(args: argparse.Namespace) -> int:
    place = _place(args)
    cells = _cells(args)
    chosen = {name: _words(getattr(args, name)) for name in ("methods", "parts", "datasets")}
    check_grid(cells, place, **chosen)
    cells, absent = with_data(cells, place)
    for name in absent:
        print(f"cells of {name} are left out: name its data by --data {name}=PATH", file=sys.stderr)
    outcome = run_grid(cells, place)
    if args.archive:
        _pack(args)
    if args.json:
        print_json({"done": outcome.done, "failed": outcome.failed, "left": outcome.left})
    else:
        print(f"{len(outcome.done)} cells whole, {len(outcome.failed)} failed, {len(outcome.left)} left in {place.out}")
        for name, line in outcome.failed.items():
            print(f"failed: {name}: {line}")
    return 1 if outcome.failed else 0


def _pack(args: argparse.Namespace) -> int:
    for path in pack(Path(args.out), Path(args.archive or "results.tar")):
        print(f"{path}: {path.stat().st_size / 2**20:.1f} MiB")
    return 0


def _unpack(args: argparse.Namespace) -> int:
    if not args.archives:
        raise InputError("unpack needs at least one archive; name it")
    for path in args.archives:
        print(f"{path}: {unpack(Path(path), Path(args.out))} files into {args.out}")
    return 0


def main(words: list[str] | None = None) -> int:
    """Entry point; the exit status is 0, 1 for bad input, 2 for wrong usage."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="The papers' tables and figures, and the grid of trainings behind them.",
        epilog="example:\n" + EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    configure(parser)
    parser.add_argument("--json", action="store_true", help="print the result as JSON, for machines")
    parser.add_argument("--quiet", action="store_true", help="no progress lines")
    words = sys.argv[1:] if words is None else words
    args = parser.parse_args(words)
    args.words = [word for word in words if word not in ("--json", "--quiet")]
    Progress.quiet = Progress.quiet or args.quiet
    try:
        return run(args)
    except (InputError, OptionError, MissingExtra, OSError) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("benchmarks: stopped; the same command goes on where it was", file=sys.stderr)
        return 130
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
