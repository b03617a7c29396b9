"""YAML or keyword options -> frozen Config, checked against the registries before any work."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from confide import calibrators, difficulty, features, losses, trust
from confide.checks import InputError, OptionError, check_number, check_range, did_you_mean
from confide.files.formats import read_yaml
from confide.registry import MethodSpec, Registry

RECIPES = Path(__file__).parent / "recipes"


@dataclass(frozen=True)
class MethodChoice:
    """A word of a family with its options, and the name its results carry."""

    word: str
    options: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or self.word)


@dataclass(frozen=True)
class Config:
    """Everything that decides the outcome of a run."""

    data: str = "fashion-sample"
    data_options: Mapping[str, Any] = field(default_factory=dict)
    features: MethodChoice = MethodChoice("cached")
    difficulty: MethodChoice = MethodChoice("rmd")
    training: Mapping[str, Any] = field(default_factory=dict)
    losses: tuple[MethodChoice, ...] = (MethodChoice("cross_entropy"),)
    calibrators: tuple[MethodChoice, ...] = (MethodChoice("temperature"),)
    trust: tuple[MethodChoice, ...] = (MethodChoice("mcp"),)
    metrics: str | tuple[str, ...] = "core"
    promise: float = 0.25  # share of val on which nothing is fitted, for thresholds with a guarantee
    risks: tuple[float, ...] = (0.05, 0.02)
    gallery: int = 6
    seed: int = 0
    title: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain dictionary, as the manifest keeps it; `from_dict` reads it back."""
        row: dict[str, Any] = {}
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, MethodChoice):
                value = _choice_dict(value)
            elif isinstance(value, tuple):
                value = [_choice_dict(v) if isinstance(v, MethodChoice) else v for v in value]
            elif isinstance(value, Mapping):
                value = dict(value)
            row[f.name] = value
        return row


def _choice_dict(choice: MethodChoice) -> dict[str, Any]:
    return {"word": choice.word, "name": choice.name, **choice.options}


def load_config(source: str | Path | Mapping[str, Any] | Config, **changes: Any) -> Config:
    """Config from a YAML file, a built-in recipe's name, a mapping or a Config, with fields changed."""
    if isinstance(source, Config):
        data: dict[str, Any] = source.as_dict()
    elif isinstance(source, Mapping):
        data = dict(source)
    else:
        data = _read_yaml(source)
    return from_dict({**data, **changes})


def _read_yaml(source: str | Path) -> dict[str, Any]:
    path = Path(source)
    if not path.is_file():
        path = RECIPES / f"{source}.yaml"
    if not path.is_file():
        known = sorted(p.stem for p in RECIPES.glob("*.yaml"))
        if Path(source).suffix or len(Path(source).parts) > 1:
            raise InputError(f"{source} must be a YAML file, but it does not exist; docs/training.md shows a whole one")
        raise InputError(f"config must be a YAML file or a recipe, got '{source}'; {did_you_mean(str(source), known)}")
    data = read_yaml(path.read_text(encoding="utf-8"), str(path))
    if not isinstance(data, dict):
        raise InputError(f"{path} must hold 'key: value' lines, got {type(data).__name__}")
    return data


def from_dict(data: Mapping[str, Any]) -> Config:
    """Config from plain values; every word and option is looked up before any work starts."""
    known = {f.name for f in fields(Config)}
    for key in data:
        if key not in known:
            raise OptionError(f"config has no field '{key}'; {did_you_mean(key, known)}")
    values = dict(data)
    families: dict[str, Registry[MethodSpec]] = {
        "features": features.EXTRACTORS,
        "difficulty": difficulty.DIFFICULTY,
        "losses": losses.LOSSES,
        "calibrators": calibrators.CALIBRATORS,
        "trust": trust.TRUST,
    }
    for name, registry in families.items():
        if name not in values:
            continue
        if isinstance(getattr(Config, name, None), MethodChoice) or name in ("features", "difficulty"):
            values[name] = _method_choice(values[name], name, registry)
        else:
            listed = values[name] if isinstance(values[name], (list, tuple)) else [values[name]]
            values[name] = tuple(_method_choice(v, name, registry) for v in listed)
            _check_names(values[name], name)
    if "losses" in values and not values["losses"]:
        raise InputError("config field 'losses' must name at least one loss, got none")
    for name in ("data_options", "training"):
        if name in values and not isinstance(values[name], Mapping):
            raise InputError(f"config field '{name}' must hold 'key: value' pairs, got {values[name]!r}")
    for name in ("metrics", "risks"):
        if isinstance(values.get(name), list):
            values[name] = tuple(values[name])
    check_range(values.get("promise", 0.0), "config field 'promise'", 0, 1, high_open=True)
    seed = values.get("seed", 0)
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise InputError(f"config field 'seed' must be a whole number, got {seed!r}")
    return Config(**values)


def _method_choice(value: Any, family: str, registry: Registry[MethodSpec]) -> MethodChoice:
    if isinstance(value, MethodChoice):
        choice = value
    elif isinstance(value, str):
        choice = MethodChoice(value)
    elif isinstance(value, Mapping) and isinstance(value.get("word"), str):
        options = {k: v for k, v in value.items() if k not in ("word", "name")}
        choice = MethodChoice(value["word"], options, str(value.get("name", "")))
    else:
        raise InputError(f"config field '{family}' must be a word or 'word: ...' with options, got {value!r}")
    if family == "features" and choice.word in ("cached", "auto"):
        return choice  # no extractor of this name: what the data carries, or what suits it
    # Words such as timm:<name> are registered by their prefix.
    prefix, colon, _ = choice.word.partition(":")
    grouped = {k: v for k, v in choice.options.items() if family == "calibrators" and k in calibrators.GROUPED}
    registry.get(prefix + colon).check_options({k: v for k, v in choice.options.items() if k not in grouped})
    if grouped:
        _check_grouped(choice.word, **grouped)
    return choice


def _check_grouped(word: str, by: Any = None, bands: Any = None, shrinkage: Any = None) -> None:
    """A run knows one thing to go by, the difficulty, and cuts it into bands."""
    if by != calibrators.DIFFICULTY:
        raise InputError(f"calibrator '{word}' of a config can go by '{calibrators.DIFFICULTY}' alone, got by: {by!r}")
    check_number(bands, f"bands of calibrator '{word}'", 5, 2, calibrators.MOST_BANDS)
    if shrinkage is not None:
        check_number(shrinkage, f"shrinkage of calibrator '{word}'", 0.0, 0.0, math.inf)


def _check_names(choices: tuple[MethodChoice, ...], family: str) -> None:
    names = [c.name for c in choices]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"config field '{family}' has '{name}' twice; give each its own 'name'")
