"""YAML or keyword options -> frozen Config, checked against the registries before any work."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from confide import calibrators, difficulty, features, losses, trust
from confide.checks import InputError, OptionError, check_name, check_number, check_range, check_seed, did_you_mean
from confide.files.formats import read_yaml_file
from confide.metrics.base import parse_metric
from confide.registry import MethodSpec, Registry
from confide.types import JsonObject, Options

__all__ = ["Config", "MethodChoice", "change_fields", "from_dict", "load_config"]

RECIPES = Path(__file__).parent / "recipes"


@dataclass(frozen=True)
class MethodChoice:
    """A word of a family with its options, and the name its results carry."""

    word: str
    options: Options = field(default_factory=dict)
    name: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or self.word)

    @property
    def by_difficulty(self) -> bool:
        """Whether a calibrator goes by the difficulty of a sample."""
        return self.options.get("by") == calibrators.DIFFICULTY

    @property
    def looks_at_features(self) -> bool:
        """Whether a calibrator looks at features of the samples beside their logits."""
        return calibrators.CALIBRATORS.get(self.word).spec.wants != "nothing"


@dataclass(frozen=True)
class Config:
    """Everything that decides the outcome of a run; words and options are looked up when it is made."""

    data: str = "fashion-sample"
    data_options: Options = field(default_factory=dict)
    features: MethodChoice = MethodChoice("cached")
    difficulty: MethodChoice = MethodChoice("rmd")
    training: Options = field(default_factory=dict)
    losses: tuple[MethodChoice, ...] = (MethodChoice("cross_entropy"),)
    calibrators: tuple[MethodChoice, ...] = (MethodChoice("temperature"),)
    trust: tuple[MethodChoice, ...] = (MethodChoice("mcp"),)
    metrics: str | tuple[str, ...] = "core"
    promise: float = 0.25  # share of val on which nothing is fitted, for thresholds with a guarantee
    risks: tuple[float, ...] = (0.05, 0.02)
    gallery: int = 6
    seed: int = 0
    seeds: tuple[int, ...] = ()  # of several trainings of each loss, on the same split; () trains once, with `seed`
    title: str = ""

    def __post_init__(self) -> None:
        for name, registry in _families().items():
            value = getattr(self, name)
            if isinstance(_default(name), MethodChoice):
                object.__setattr__(self, name, _method_choice(value, name, registry))
                continue
            listed = value if isinstance(value, (list, tuple)) else [value]
            object.__setattr__(self, name, tuple(_method_choice(v, name, registry) for v in listed))
            _check_names(getattr(self, name), name)
        if not self.losses:
            raise InputError("config field 'losses' must name at least one loss, got none")
        for name in ("calibrators", "trust"):
            _check_pairs(self.losses, getattr(self, name), name)
        for name in ("data_options", "training"):
            value = getattr(self, name)
            if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
                raise InputError(f"config field '{name}' must hold 'key: value' pairs, got {value!r}")
        for name, words in OWN_FIELDS.items():
            if taken := [word for word in words if word in getattr(self, name)]:
                raise InputError(
                    f"config field '{name}' must not name '{taken[0]}': the config's own seed, promise and losses count"
                )
        for name in ("data", "title"):
            if not isinstance(getattr(self, name), str):
                raise InputError(f"config field '{name}' must be a text, got {getattr(self, name)!r}; put it in quotes")
        object.__setattr__(self, "metrics", _metrics(self.metrics))
        object.__setattr__(self, "risks", _risks(self.risks))
        check_number(self.promise, "config field 'promise'", 0.0, 0, 1)
        check_range(self.promise, "config field 'promise'", 0, 1, high_open=True)
        object.__setattr__(self, "gallery", check_number(self.gallery, "config field 'gallery'", 6, 0, MOST_SHOWN))
        object.__setattr__(self, "seed", check_seed(self.seed, "config field 'seed'"))
        object.__setattr__(self, "seeds", _seeds(self.seeds))

    def as_dict(self) -> JsonObject:
        """Plain dictionary, as the manifest keeps it; `from_dict` reads it back."""
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self)}


def _families() -> dict[str, Registry[MethodSpec]]:
    """Fields that name methods."""
    return {
        "features": features.EXTRACTORS,
        "difficulty": difficulty.DIFFICULTY,
        "losses": losses.LOSSES,
        "calibrators": calibrators.CALIBRATORS,
        "trust": trust.TRUST,
    }


OWN_FIELDS = {"data_options": ("seed", "threshold_share"), "training": ("seed", "loss", "loss_options")}
"""Inner fields that a config sets itself."""
MOST_SHOWN = 1000
"""Samples of a class in the gallery."""


def _metrics(value: Any) -> str | tuple[str, ...]:
    """`core`, `all`, or words of metrics, each of them known."""
    words = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    if not words or not all(isinstance(word, str) for word in words):
        raise InputError(f"config field 'metrics' must be core, all or words of metrics, got {value!r}")
    if words in (("core",), ("all",)):
        return str(words[0])
    for word in words:
        parse_metric(word)
    return words


def _risks(value: Any) -> tuple[float, ...]:
    """Error rates that thresholds are chosen for."""
    if not isinstance(value, (list, tuple)):
        raise InputError(f"config field 'risks' must be a list of error rates such as [0.05, 0.02], got {value!r}")
    for risk in value:
        check_number(risk, "config field 'risks'", 0.0, 0, 1)
        check_range(risk, "config field 'risks'", 0, 1, low_open=True, high_open=True)
    return tuple(value)


def _seeds(value: Any) -> tuple[int, ...]:
    """Seeds of several trainings, each another."""
    if not isinstance(value, (list, tuple)):
        raise InputError(f"config field 'seeds' must be a list of whole numbers such as [0, 1, 2], got {value!r}")
    seeds = tuple(check_seed(seed, "config field 'seeds'") for seed in value)
    if len(seeds) == 1 or len(set(seeds)) < len(seeds):
        raise InputError(
            f"config field 'seeds' must hold two different numbers or more, got {list(seeds)}; one alone is 'seed'"
        )
    return seeds


def _default(name: str) -> Any:
    return getattr(Config, name, {})  # mappings have a factory instead


def _plain(value: Any) -> Any:
    if isinstance(value, MethodChoice):
        return {"word": value.word, "name": value.name, **value.options}
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    return dict(value) if isinstance(value, Mapping) else value


def load_config(source: str | Path | Options | Config, **changes: Any) -> Config:
    """Config from a YAML file, a built-in recipe's name, a mapping or a Config, with fields changed.

    Args:
        source: file, recipe, mapping or Config.
        changes: fields and their values; `**{"training.epochs": 3}` changes one inner field.

    Returns:
        The config, with every word and option looked up.

    Raises:
        InputError: where the file, a word or a value is not known; OptionError for a field or option.

    Example:
        >>> from confide.config import load_config
        >>> config = load_config("demo", seed=1, **{"training.epochs": 3})
        >>> config.seed, config.training["epochs"], [loss.name for loss in config.losses]
        (1, 3, ['cross_entropy', 'difficulty_entropy', 'adafocal'])
    """
    if isinstance(source, Config):
        return from_dict(change_fields(source.as_dict(), changes)) if changes else source
    values = dict(source) if isinstance(source, Mapping) else _read_yaml(source)
    for name in {path.partition(".")[0] for path in changes if "." in path} & {f.name for f in fields(Config)}:
        # A word without options is one with none yet; what the file leaves out is as it is by default.
        value = values.get(name, _plain(_default(name)))
        values[name] = {"word": value} if isinstance(value, str) and name in _families() else value
    return from_dict(change_fields(values, changes))


def change_fields(values: JsonObject, changes: Options) -> JsonObject:
    """Plain values with `field` or `field.inner` changed.

    Args:
        values: by field.
        changes: new values, by field or by field and inner field with a dot between.

    Returns:
        A new dictionary.

    Raises:
        InputError: where an inner field of a plain value is named.

    Example:
        >>> from confide.config import change_fields
        >>> change_fields({"loss": "focal", "loss_options": {"gamma": 3}}, {"loss_options.gamma": 2})
        {'loss': 'focal', 'loss_options': {'gamma': 2}}
    """
    changed = dict(values)
    for path, value in changes.items():
        outer, dot, inner = path.partition(".")
        before = changed.get(outer)
        if dot and not (before is None or isinstance(before, Mapping)):
            raise InputError(f"field '{outer}' has no inner fields, got '{path}'; set it whole")
        changed[outer] = {**(before or {}), inner: value} if dot else value
    return changed


def _read_yaml(source: str | Path) -> JsonObject:
    path = Path(source)
    if not path.is_file():
        path = RECIPES / f"{source}.yaml"
    if not path.is_file():
        known = sorted(p.stem for p in RECIPES.glob("*.yaml"))
        if Path(source).suffix or len(Path(source).parts) > 1:
            raise InputError(f"{source} must be a YAML file, but it does not exist; docs/training.md shows a whole one")
        raise InputError(f"config must be a YAML file or a recipe, got '{source}'; {did_you_mean(str(source), known)}")
    data = read_yaml_file(path)
    if not isinstance(data, dict):
        raise InputError(f"{path} must hold 'key: value' lines, got {type(data).__name__}")
    return data


def from_dict(data: JsonObject) -> Config:
    """Config from plain values; every word and option is looked up before any work starts.

    Args:
        data: fields of a Config; words with options as {"word": ..., "name": ..., option: value}.

    Returns:
        The config.

    Raises:
        OptionError: where a field or an option is not known; InputError for a word or value.

    Example:
        >>> from confide.config import from_dict
        >>> from_dict({"losses": [{"word": "focal", "gamma": 2.0}]}).losses[0].options
        {'gamma': 2.0}
    """
    known = {f.name for f in fields(Config)}
    for key in data:
        if key not in known:
            raise OptionError(f"config has no field {key!r}; {did_you_mean(str(key), known)}")
    return Config(**data)


def _method_choice(value: Any, family: str, registry: Registry[MethodSpec]) -> MethodChoice:
    if isinstance(value, MethodChoice):
        choice = value
    elif isinstance(value, str):
        choice = MethodChoice(value)
    elif isinstance(value, Mapping) and isinstance(value.get("word"), str):
        options = {k: v for k, v in value.items() if k not in ("word", "name")}
        choice = MethodChoice(value["word"], options, value.get("name", ""))
    else:
        raise InputError(f"config field '{family}' must be a word or 'word: ...' with options, got {value!r}")
    if not all(isinstance(key, str) for key in choice.options):
        raise InputError(f"options in config field '{family}' must have words as names, got {dict(choice.options)!r}")
    if family == "features" and choice.word in ("cached", "auto"):
        return choice  # no extractor of this name: what the data carries, or what suits it
    # Words such as timm:<name> are registered by their prefix.
    prefix, colon, _ = choice.word.partition(":")
    grouped = {k: v for k, v in choice.options.items() if family == "calibrators" and k in calibrators.GROUPED}
    registry.get(prefix + colon).check_values({k: v for k, v in choice.options.items() if k not in grouped})
    if grouped:
        _check_grouped(choice.word, **grouped)
    if family == "difficulty" and difficulty.DIFFICULTY.get(choice.word).spec.source != "features":
        raise InputError(
            f"config field 'difficulty' must be scored from features, before any training, got '{choice.word}', which "
            "reads a training log; choose rmd, md, prototype or kmeans"
        )
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
        check_name(name, f"name in config field '{family}'")
        if names.count(name) > 1:
            raise InputError(f"config field '{family}' has '{name}' twice; give each its own 'name'")


def _check_pairs(losses: tuple[MethodChoice, ...], others: tuple[MethodChoice, ...], family: str) -> None:
    """Files are named after a loss and a method of the family: `a-b` with `c` must not meet `a` with `b-c`."""
    pairs = [f"{loss.name}-{other.name}" for loss in losses for other in others]
    for pair in pairs:
        if pairs.count(pair) > 1:
            raise InputError(f"two of the config's losses and {family} would share the name '{pair}'; rename one")
