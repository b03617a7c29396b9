"""`confide list [family]`: every method, with paper and options."""

from __future__ import annotations

import argparse
import sys
from abc import ABCMeta
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from confide.cli.shared import print_json

if TYPE_CHECKING:
    from confide.registry import Method, MethodSpec, Registry
    from confide.types import JsonObject


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


# What only tensors and tables need: a list of words is read without these packages.
STAND_INS = ("pyarrow", "safetensors", "scipy", "torch", "triton")


class StandInType(ABCMeta):
    """The type of StandIn, whose attributes are all StandIn again."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn

    def __getitem__(cls, item: Any) -> Any:
        return StandIn


class StandIn(metaclass=StandInType):
    """Whatever a module takes from such a package while it is imported: base class, type, decorator, constant."""

    def __new__(cls, *args: Any, **options: Any) -> Any:
        return args[0] if len(args) == 1 and callable(args[0]) else cls


class StandInFinder(MetaPathFinder, Loader):
    """Finds every module of the packages above, empty but for stand-ins."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        named = fullname.partition(".")[0] in STAND_INS
        return ModuleSpec(fullname, self, is_package=True) if named else None

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__getattr__"] = partial(getattr, StandIn)


@contextmanager
def stand_ins() -> Iterator[None]:
    """Import methods without loading torch, which takes seconds; what was so imported is forgotten afterwards."""
    if "torch" in sys.modules:
        yield
        return
    before, finder = set(sys.modules), StandInFinder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in set(sys.modules) - before:
            if name.partition(".")[0] in (*STAND_INS, "confide"):
                del sys.modules[name]
                parent, _, child = name.rpartition(".")
                if parent in sys.modules:
                    vars(sys.modules[parent]).pop(child, None)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("family", nargs="?", help=f"one of {', '.join(FAMILIES)}; all when left out")


def run(args: argparse.Namespace) -> None:
    families = [args.family] if args.family else list(FAMILIES)
    with stand_ins():
        rows = {family: [as_row(method) for method in registry_of(family)] for family in families}
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
            if args.family and row["when"]:
                print(f"      when: {row['when']}")
                print(f"      when not: {row['when_not']}")


def as_row(method: Method[MethodSpec]) -> JsonObject:
    """What is told of a method, in the terminal and in the README."""
    return {
        "word": method.word,
        "summary": method.summary,
        "paper": method.paper,
        "when": method.advice.when,
        "when_not": method.advice.when_not,
        "options": {
            k: v if isinstance(v, (int, float, str, bool, type(None))) else str(v) for k, v in method.options.items()
        },
        "needs": list(method.needs),
        **({"facts": facts} if (facts := method.spec.as_dict()) else {}),
    }
