"""How it was made: config, seed, versions, data and the commands to repeat it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from confide.core.files import plain
from confide.report.figure import Empty
from confide.report.view import View
from confide.report.words import count

SHOWN_APART = ("commands", "config", "versions", "timings", "class_names", "label_counts", "missing", "stages", "unit")
NAMES = {
    "seed": "Seed",
    "data": "Data",
    "title": "Name",
    "difficulty": "Difficulty",
    "commit": "Commit",
    "focus": "In focus",
}


@dataclass(frozen=True)
class Made:
    """What the section shows."""

    commands: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    config: str
    no_commands: Empty


def made_section(view: View) -> Made:
    """All that `about` says, in an order for people."""
    about = view.about
    commands = about.get("commands") or ()
    if isinstance(commands, str):
        commands = (commands,)
    facts = [
        (NAMES.get(k, k.replace("_", " ").capitalize()), _words(v)) for k, v in about.items() if k not in SHOWN_APART
    ]
    if about.get("class_names"):
        facts.append(("Classes", _classes(about["class_names"])))
    for name in ("versions", "timings"):
        if about.get(name):
            facts.append((name.capitalize(), _words(about[name])))
    config = about.get("config")
    empty = Empty(
        "No commands were recorded",
        "The evaluation was made from Python.",
        "confide report evaluation.json -o report.html",
    )
    return Made(
        tuple(str(c) for c in commands), tuple(f for f in facts if f[1]), _yaml(config) if config else "", empty
    )


def _classes(names: Any) -> str:
    shown = ", ".join(str(n) for n in list(names)[:30])
    return shown if len(names) <= 30 else f"{shown} and {count(len(names) - 30)} more"


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {_words(v)}" for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(_words(v) for v in value)
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)


def _yaml(config: Any) -> str:
    return config if isinstance(config, str) else yaml.safe_dump(plain(config), sort_keys=False, allow_unicode=True)
