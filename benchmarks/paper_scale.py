"""One epoch at the papers' own settings, wherever CIFAR-10 is what they need; the others end at the data check.

python -m benchmarks.paper_scale --cifar cifar-10-batches-bin --out OUT --paper p1  # p2, p3 and p5 likewise, at once
python -m benchmarks.paper_scale --out OUT --collect   # writes OUT/paper_scale.md
"""

from __future__ import annotations

import argparse
import os
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.findings.cells import markdown
from benchmarks.lib import titles
from benchmarks.lib.items import Item
from benchmarks.lib.run import Part, run_item
from benchmarks.lib.workers import Place
from benchmarks.papers import items
from confide import files
from confide.checks import InputError

COLUMNS = ("accuracy", "nll", "ece_mass")
RUNS: dict[str, tuple[tuple[str, str, tuple[str, ...]], ...]] = {
    "p1": (
        ("p1-table2", "label_smoothing", ()),
        ("p1-figure11", "label_smoothing", ()),
        ("p1-table7", "crl", ()),
    ),
    "p2": (
        ("p2-table2", "flsd53", ()),
        ("p2-table1", "flsd53", ()),
        ("p2-table4", "flsd53", ()),
        ("p2-figure2", "flsd53", ()),
        ("p2-figure3", "selective_au_margin", ("preresnet56",)),
        ("p2-figure6", "selective_au_0.5_0.1", ()),
    ),
    "p3": (("p3-table2", "", ()),),
    "p5": (
        ("p5-table1", "flsd53", ()),
        ("p5-table2", "flsd53", ()),
        ("p5-figure4", "flsd53", ()),
        ("p5-figure6", "flsd53", ()),
        ("p5-figure5", "adafocal", ("resnet50",)),
    ),
}
"""(item, method, networks or all) by paper: items of a paper share their trainings, each folder has one paper's. Those
of p3 have no method: a classifier and its oracles."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cifar", default="", help="CIFAR-10's binary folder")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--paper", choices=tuple(RUNS), action="append", default=[], help="one paper (default: all)")
    parser.add_argument("--limit", type=int, default=0, help="samples of every split, to try it out")
    parser.add_argument("--model", action="append", default=[], help="only these networks")
    parser.add_argument("--collect", action="store_true", help="only write the page")
    args = parser.parse_args()
    known = items()
    for paper in () if args.collect else args.paper or RUNS:
        for name, method, models in RUNS[paper]:
            chosen = tuple(args.model) or models
            place = Place(args.out / paper, {"cifar10": args.cifar}, limit=args.limit)
            part = Part({"epochs": 1}, (method,) if method else (), (0,), chosen)
            try:
                notes = run_item(known[name], "paper", place, args.out / paper / "tables", part).notes
            except InputError as error:
                notes = (f"failed: {error}",)
            print(f"{name}: {'; '.join(notes)}", flush=True)
    page = page_of(known, args.out)
    files.write_text(args.out / "paper_scale.md", page)
    print(f"wrote {args.out / 'paper_scale.md'}")


def page_of(known: dict[str, Item], out: Path) -> str:
    """What was trained for an epoch, and where every other item stops."""
    cells = [
        (paper, files.read_json(path)) for paper in RUNS for path in sorted((out / paper / "cells").glob("*.json"))
    ]
    lines = [_line(paper, result) for paper, result in cells]
    oracles = [files.read_json(path) for path in sorted((out / "p3" / "trust").glob("spoilt-*.json"))]
    lines += [_oracle_line(oracle) for oracle in oracles]
    head = ["items", "network", "loss", "batch", "learning rate", "train s", "measure s"]
    head += [*map(titles.heading, COLUMNS), "on"]
    covered = {name for paper, runs in RUNS.items() for name, method, _ in runs if _has(cells, paper, method)}
    covered |= {name for name, _, _ in RUNS["p3"] if oracles}
    dry = []
    for name, item in known.items():
        if name not in covered:
            note = run_item(item, "paper", Place(out), out).notes[-1].partition("; name each")[0]
            here = any(setting.dataset == "cifar10" for setting in item.paper)
            dry.append([name, "CIFAR-10 is at hand, but this was not trained here" if here else note])
    return "\n".join(
        [
            "# The papers' own settings, one epoch",
            "",
            f"{date.today()}. {_machines([result for _, result in cells])}Command: `python -m benchmarks.paper_scale "
            f"--cifar cifar-10-batches-bin --out OUT --paper P`, P in {', '.join(RUNS)} at once, then `--collect`.",
            "",
            "Networks, batch sizes, rates, schedules, summed or averaged losses and clipping are the papers' "
            "(`benchmarks/papers/settings.py`); only the number of epochs is cut to one, so the accuracies say whether "
            "it trains, no more. Numbers are of CIFAR-10's test images; trainings shared their machine.",
            "",
            markdown(head, lines),
            "",
            "## Where the other items stop",
            "",
            "The data they need is not at hand; this is what `python -m benchmarks NAME --scale paper` ends with.",
            "",
            markdown(["item", "the data check"], dry),
            "",
        ]
    )


def _machines(results: list[dict[str, Any]]) -> str:
    """Where the trainings were made, one sentence for each machine."""
    commits: dict[str, list[str]] = {}
    for result in results:
        seen = commits.setdefault(f"{result['hardware']}; torch {result['torch']}", [])
        seen += [short] if (short := result["commit"][:7]) not in seen else []
    return "".join(f"{machine}; commit {', '.join(seen)}. " for machine, seen in commits.items())


def _has(cells: list[tuple[str, dict[str, Any]]], paper: str, method: str) -> bool:
    return any(folder == paper and result["cell"]["method"]["name"] == method for folder, result in cells)


def _line(paper: str, result: dict[str, Any]) -> list[str]:
    cell, raw = result["cell"], result["measured"]["raw"]
    method, model = cell["method"]["name"], cell["model"]
    runs = [name for name, word, models in RUNS[paper] if word == method and (not models or model in models)]
    settings, seconds = result["settings"], result["seconds"]
    return [
        ", ".join(runs),
        model,
        f"`{method}`",
        str(settings["batch_size"]),
        f"{settings['learning_rate']:g}",
        f"{seconds['train']:.1f}",
        f"{seconds['measure']:.1f}",
        *(titles.info(metric).number(raw[metric]) for metric in COLUMNS),
        result["hardware"].partition(";")[0],
    ]


def _oracle_line(oracles: dict[str, Any]) -> list[str]:
    """A classifier with its oracles; accuracy is the classifier's."""
    settings = oracles["origin"]["settings"]
    clean = next(row for row in oracles["rows"] if (row["domain"], row["predictor"]) == ("clean", "mcp"))
    return [
        ", ".join(name for name, _, _ in RUNS["p3"]),
        str(settings["model"]),
        "`cross_entropy`, then the oracles",
        str(settings["batch_size"]),
        f"{settings['learning_rate']:g}",
        f"{oracles['origin']['seconds']['all']:.1f} in all",
        "-",
        titles.info("accuracy").number(clean["accuracy"]),
        "-",
        "-",
        str(oracles["origin"]["hardware"]).partition(";")[0],
    ]


if __name__ == "__main__":
    os.environ.setdefault("CONFIDE_COMMAND", "python -m benchmarks.paper_scale")
    main()
