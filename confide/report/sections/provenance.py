"""How it was made: config, seed, versions, data and the commands to repeat it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from confide.files.formats import plain
from confide.report.draw import Empty, Figure
from confide.report.view import EvaluationView
from confide.report.words import count

LONGEST = 6  # stages whose time is shown
MOST_NAMES = 30
LONGEST_TEXT = 320


@dataclass(frozen=True)
class ProvenanceSection:
    """What the section shows."""

    commands: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    config: str
    no_commands: Empty
    drawings: tuple[Figure, ...] = ()


def provenance_section(view: EvaluationView) -> ProvenanceSection:
    """All that `about` says, in an order for people."""
    about = view.about
    facts = [
        ("Name", _words(about.title)),
        ("Runs", _words(about.runs)),
        ("Data", _data(about.data)),
        ("Weights", view.weights_note),
        ("Seed", _words(about.seed)),
        ("Difficulty", _words(about.difficulty)),
        ("In focus", _words(about.focus)),
        ("Chosen stage", _words(about.chosen_stage)),
        ("Commit", (about.commit or "")[:12]),
        ("Hardware", _words(about.hardware)),
        ("Seeds", _words(about.seeds)),
        ("Verdict", _words(about.verdict)),
        *((key.replace("_", " ").capitalize(), _words(value)) for key, value in about.extra.items()),
        ("Classes", _classes(about.class_names)),
        ("Versions", _words(about.versions)),
        ("Timings", _timings(about.timings)),
    ]
    empty = Empty("No commands were recorded", "The evaluation was made from Python, or by hand.")
    shown = tuple((name, words) for name, words in facts if words)
    config = about.config or ""
    if not isinstance(config, str):
        config = str(yaml.safe_dump(plain(config), sort_keys=False, allow_unicode=True))
    return ProvenanceSection(about.commands, shown, config, empty)


def _data(value: Any) -> str:
    """Name, place, sizes, how splits were made, where from, fingerprint; the rest stands in evaluation.json."""
    if not isinstance(value, Mapping) or "name" not in value:
        return _words(value)
    counts, splits = value.get("counts"), value.get("splits")
    sizes = ", ".join(f"{count(n)} {split}" for split, n in counts.items()) if isinstance(counts, Mapping) else ""
    new_splits = isinstance(splits, Mapping) and {k: v for k, v in splits.items() if v != "as given"}
    metadata = value.get("metadata")
    origin = metadata.get("source") if isinstance(metadata, Mapping) else None
    parts = [value["name"], value.get("where"), sizes, new_splits or None, origin, value.get("fingerprint")]
    return "; ".join(words for part in parts if (words := _words(part)))


def _classes(names: Sequence[str]) -> str:
    shown = ", ".join(names[:MOST_NAMES])
    return shown if len(names) <= MOST_NAMES else f"{shown} and {count(len(names) - MOST_NAMES)} more"


def _timings(seconds: Mapping[str, float]) -> str:
    """The longest stages, in seconds."""
    longest = sorted(seconds, key=lambda k: -seconds[k])[:LONGEST]
    whole = f"{sum(seconds.values()):.0f} s in all: " if seconds else ""
    return whole + ", ".join(f"{k} {seconds[k]:.1f} s" for k in longest)


def _words(value: Any) -> str:
    """A value in plain words: nothing for what is empty, inner parts by semicolons, no more than a paragraph."""
    if isinstance(value, Mapping):
        parts = [(str(k).replace("_", " "), _words(v)) for k, v in value.items()]
        text = "; ".join(f"{k} {v}" for k, v in parts if v)
    elif isinstance(value, (list, tuple)):
        text = ", ".join(words for v in value if (words := _words(v)))
    elif isinstance(value, float):
        text = f"{value:.4g}"
    else:
        text = "" if value is None else str(value)
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"
