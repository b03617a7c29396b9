"""What a grid is: methods, settings and seeds as cells, each with a name, a key and a place in the order."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from confide import losses
from confide.config import RECIPES, Choice, load_config
from confide.core.door import InputError, OptionError, did_you_mean
from confide.core.files import plain
from confide.training import Settings

SCHEDULE = ("model", "epochs", "batch_size", "learning_rate", "schedule", "schedule_options", "device", "precision")
"""Settings of a recipe that the grid decides instead: all methods of a table train alike."""


DRAWN_ANEW = {"tiny32": "held out"}
"""Datasets whose splits changed: cells of the splits before do not count."""


@dataclass(frozen=True)
class Method:
    """One row of a table: a loss with its options, what it needs besides, and its calibrator.

    Args:
        training: further settings of the training, such as `weight_options`.
        difficulty: the training gets difficulty scores; `scores` says which, by the name of their file.
        calibrator: fitted on val for the rows after calibration; temperature is always measured too.
        calibrated: word and options of that calibrator, where it has options.
        shifted: also measured on corrupted images.
        recipe: a built-in config that gives loss, options, training and calibrator instead.
        record: keep the validation probabilities of every epoch.
        optional: left out, not refused, where loss or recipe are not there.
    """

    name: str
    loss: str = "cross_entropy"
    options: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    difficulty: bool = False
    calibrator: str = "temperature"
    shifted: bool = False
    recipe: str = ""
    record: bool = False
    optional: bool = False
    scores: str = ""
    calibrated: Mapping[str, Any] = field(default_factory=dict)

    @property
    def here(self) -> bool:
        """Whether the loss and the recipe exist."""
        return (RECIPES / f"{self.recipe}.yaml").is_file() if self.recipe else self.loss in losses.LOSSES

    def resolved(self) -> Method:
        """The method with what its recipe says filled in."""
        if not self.here:
            known = sorted(p.stem for p in RECIPES.glob("*.yaml")) if self.recipe else losses.names()
            raise InputError(
                f"method '{self.name}' needs '{self.recipe or self.loss}'; {did_you_mean(self.name, known)}"
            )
        if not self.recipe:
            return self
        plan = load_config(self.recipe)
        choice = plan.losses[0]
        word = losses.LOSSES.get(choice.word)
        needs = {*word.needs, *getattr(word.function, "needs", ())}
        last = plan.calibrators[0] if plan.calibrators else Choice("temperature")
        return replace(
            self,
            loss=choice.word,
            options=dict(choice.options),
            training={k: v for k, v in plan.training.items() if k not in SCHEDULE},
            difficulty=bool(needs & {"weights", "groups"}),
            calibrator=last.name,
            calibrated={"word": last.word, **last.options} if last.options else {},
        )


@dataclass(frozen=True)
class Cell:
    """One training with all that is measured on it. `settings` are those common to the methods of a table."""

    method: Method
    dataset: str
    model: str
    seed: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    part: str = "main"

    @property
    def name(self) -> str:
        """Name of the cell's files."""
        return f"{self.dataset}-{self.model}-{self.method.name}-s{self.seed}"

    @property
    def key(self) -> str:
        """A hash of what decides the numbers: the same key, the same cell; empty where the cell cannot be run."""
        try:
            method, settings = self.method.resolved(), self.training()
        except (InputError, OptionError):
            return ""
        usual = Settings().as_dict()
        # Only what differs from the defaults: a setting that did not exist yet leaves old cells valid.
        training = {k: v for k, v in settings.as_dict().items() if v != usual[k]}
        dataset = "/".join(filter(None, (self.dataset, DRAWN_ANEW.get(self.dataset))))
        decides: list[Any] = [dataset, training, method.difficulty, method.calibrator, method.scores]
        decides += [dict(method.calibrated)] if method.calibrated else []
        return hashlib.sha256(json.dumps(plain(decides), sort_keys=True).encode()).hexdigest()[:16]

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys under which the cell counts as made: whether the steps were compiled changes rounding, no more."""
        twin = replace(self, settings={**self.settings, "compile": not self.settings.get("compile", False)})
        return (self.key, twin.key) if self.key else ()

    def training(self) -> Settings:
        """The settings of the training, checked."""
        method = self.method.resolved()
        losses.LOSSES.get(method.loss).check_options(method.options)
        chosen = {"model": self.model, "loss": method.loss, "loss_options": dict(method.options), "seed": self.seed}
        return Settings.from_dict({**self.settings, **method.training, **chosen})

    def as_dict(self) -> dict[str, Any]:
        """Plain dictionary; `from_dict` reads it back."""
        values: dict[str, Any] = plain(asdict(self))
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Cell:
        """A cell from plain values."""
        return cls(**{**values, "method": Method(**values["method"])})


@dataclass(frozen=True)
class Setting:
    """Dataset, model and training of one table; `options` are those of its methods that differ from the usual."""

    dataset: str
    model: str
    training: Mapping[str, Any]
    seeds: int
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def cells(self, methods: Iterable[Method], seeds: Sequence[int], part: str = "main") -> list[Cell]:
        """Every method with every seed, seed by seed, so that a stopped grid has whole tables of fewer seeds."""
        found = []
        for seed in seeds:
            for method in methods:
                if method.optional and not method.here:
                    continue
                own = self.options.get(method.name)
                one = method if own is None else replace(method, options={**method.options, **own})
                found.append(Cell(one, self.dataset, self.model, seed, dict(self.training), part))
        return found


def check_names(cells: Sequence[Cell]) -> None:
    """Every cell has files of its own; a cell asked for twice must be the same."""
    keys: dict[str, str] = {}
    for cell in cells:
        if keys.setdefault(cell.name, cell.key) != cell.key:
            raise InputError(f"two different cells are called '{cell.name}'; give one of the methods another name")


def unique(cells: Iterable[Cell]) -> list[Cell]:
    """The cells in order, each once."""
    return list({cell.name: cell for cell in cells}.values())
