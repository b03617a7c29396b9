"""`confide list [family]`: every method, with paper and options."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import TYPE_CHECKING, Any

from confide.cli.shared import print_json

if TYPE_CHECKING:
    from confide.registry import Method, MethodSpec, Registry


EXAMPLE = "  confide list\n  confide list losses\n  confide list metrics --json"

FAMILIES = {
    "losses": ("confide.losses", "LOSSES"),
    "penalties": ("confide.penalties", "PENALTIES"),
    "trust-losses": ("confide.trust.losses", "TRUST_LOSSES"),
    "difficulty": ("confide.difficulty", "DIFFICULTY"),
    "calibrators": ("confide.calibrators", "CALIBRATORS"),
    "trust": ("confide.trust", "TRUST"),
    "sets": ("confide.sets", "SETS"),
    "metrics": ("confide.metrics", "METRICS"),
    "features": ("confide.features", "EXTRACTORS"),
    "models": ("confide.models", "MODELS"),
    "data": ("confide.data", "DATASETS"),
    "shift": ("confide.shift", "SHIFTS"),
    "attacks": ("confide.shift.attacks", "ATTACKS"),
}


def registry_of(family: str) -> Registry[MethodSpec]:
    """The registry of a family, filled by importing its module."""
    from confide.checks import InputError, did_you_mean
    from confide.registry import Registry

    if family not in FAMILIES:
        raise InputError(f"no family named '{family}'; {did_you_mean(family, FAMILIES)}")
    module, name = FAMILIES[family]
    registry = getattr(import_module(module), name)
    assert isinstance(registry, Registry)
    return registry


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("family", nargs="?", help=f"one of {', '.join(FAMILIES)}; all when left out")


def run(args: argparse.Namespace) -> None:
    families = [args.family] if args.family else list(FAMILIES)
    rows = {family: sorted(map(as_row, registry_of(family)), key=lambda row: str(row["word"])) for family in families}
    if args.json:
        print_json(rows)
        return
    for family, methods in rows.items():
        print(f"\n{family}")
        for row in methods:
            options = ", ".join(f"{k}={v!r}" for k, v in row["options"].items())
            needs = "".join(f", {need}=…" for need in row["needs"])
            print(f"  {row['word']}({(options + needs).strip(', ')})")
            print(f"      {row['summary']}  [{row['paper']}]")


def as_row(method: Method[MethodSpec]) -> dict[str, Any]:
    """What is told of a method, in the terminal and in the README."""
    return {
        "word": method.word,
        "summary": method.summary,
        "paper": method.paper,
        "options": {
            k: v if isinstance(v, (int, float, str, bool, type(None))) else str(v) for k, v in method.options.items()
        },
        "needs": list(method.needs),
        **({"facts": facts} if (facts := method.spec.as_dict()) else {}),
    }
