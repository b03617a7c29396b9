"""What a grid of trainings is: methods with the papers' options, settings and seeds as cells, each with a name and a
key.

Nothing here was chosen on test data. `lite_cells` gives the two grids of the tables at `lite` scale, in order of value.

"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from confide import losses
from confide.checks import InputError, OptionError, did_you_mean
from confide.files import plain
from confide.training import Settings

# What a grid is: methods, settings and seeds as cells, each with a name, a key and a place in the order.


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
        record: keep the validation probabilities of every epoch.
        optional: left out, not refused, where the loss is not there.
    """

    name: str
    loss: str = "cross_entropy"
    options: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    difficulty: bool = False
    calibrator: str = "temperature"
    shifted: bool = False
    record: bool = False
    optional: bool = False
    scores: str = ""
    calibrated: Mapping[str, Any] = field(default_factory=dict)

    @property
    def here(self) -> bool:
        """Whether the loss exists."""
        return self.loss in losses.LOSSES

    def resolved(self) -> Method:
        """The method, whose loss must exist."""
        if not self.here:
            raise InputError(f"method '{self.name}' needs '{self.loss}'; {did_you_mean(self.loss, losses.names())}")
        return self


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
        key = self.key
        twin = replace(self, settings={**self.settings, "compile": not self.settings.get("compile", False)})
        return (key, twin.key) if key else ()

    def training(self) -> Settings:
        """The settings of the training, checked."""
        method = self.method.resolved()
        losses.LOSSES.get(method.loss).check_options(dict(method.options))
        chosen = {"model": self.model, "loss": method.loss, "loss_options": dict(method.options), "seed": self.seed}
        return Settings.from_dict({**self.settings, **method.training, **chosen})

    def as_dict(self) -> dict[str, Any]:
        """Plain dictionary; `from_dict` reads it back."""
        values: dict[str, Any] = plain(asdict(self))
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Cell:
        """A cell from plain values."""
        # Cells made before say the word of a recipe too.
        method = {name: value for name, value in values["method"].items() if name != "recipe"}
        return cls(**{**values, "method": Method(**method)})


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
        cells = []
        for seed in seeds:
            for method in methods:
                if method.optional and not method.here:
                    continue
                own = self.options.get(method.name)
                tuned = method if own is None else replace(method, options={**method.options, **own})
                cells.append(Cell(tuned, self.dataset, self.model, seed, dict(self.training), part))
        return cells


def check_names(cells: Sequence[Cell]) -> None:
    """Every cell has files of its own; a cell asked for twice must be the same."""
    first: dict[str, Cell] = {}
    for cell in cells:
        if first.setdefault(cell.name, cell) is not cell and first[cell.name].key != cell.key:
            raise InputError(f"two different cells are called '{cell.name}'; give one of the methods another name")


def unique(cells: Iterable[Cell]) -> list[Cell]:
    """The cells in order, each once."""
    return list({cell.name: cell for cell in cells}.values())


METHODS = (
    Method("cross_entropy", shifted=True),
    Method(
        "confide",  # the first recipe of that name; the present one is judged in benchmarks/resplits
        "entropy_regularization",
        {"alpha": 0.17},
        {"augment": "crop_flip", "average": 1.0, "mirror": True},
        calibrator="temperature_by_difficulty",
        calibrated={"word": "temperature", "by": "difficulty", "bands": 5},
        shifted=True,
    ),
    Method("cross_entropy_averaged", training={"average": 1.0, "mirror": True}, shifted=True),
    Method(
        "adaptive_difficulty_averaged",
        "adaptive_difficulty",
        training={"average": 1.0, "mirror": True},
        difficulty=True,
        shifted=True,
        optional=True,
    ),
    Method("difficulty_entropy", "difficulty_entropy", {"alpha": 0.3}, difficulty=True, shifted=True),
    Method("adafocal", "adafocal", shifted=True),
    Method("entropy_regularization", "entropy_regularization", {"alpha": 0.1}, shifted=True),
    Method("selective_au", "selective_au", {"coverage": 0.88, "smoothing": 0.1}, shifted=True),
    Method("adaptive_difficulty", "adaptive_difficulty", difficulty=True, optional=True),
    Method("label_smoothing", "label_smoothing", {"smoothing": 0.05}),
    Method("focal", "focal", {"gamma": 3.0}),
    Method("flsd53", "flsd53"),
    Method("inverse_focal", "inverse_focal", {"gamma": 2.0}),
    Method("dual_focal", "dual_focal", {"gamma": 5.0}),
    Method("dual_focal_released", "dual_focal", {"gamma": 5.0, "form": "released"}),
    Method(
        "selective_au_released", "selective_au", {"coverage": 0.88, "smoothing": 0.1, "form": "released"}, shifted=True
    ),
    Method("aurc", "aurc"),
    Method("logit_norm", "logit_norm", {"alpha": 0.05}),
    Method("poly1", "poly1", {"epsilon": 1.0}),
    Method("brier", "brier"),
    Method("mmce_weighted", "mmce_weighted", {"weight": 2.0}),
    Method("mmce_weighted_released", "mmce_weighted", {"weight": 2.0, "form": "released"}),
    Method("kde_xe", "kde_xe", {"weight": 0.3}),
    Method("crl", "crl", {"weight": 1.0}),
)
"""Rows of the main tables, the most telling first. Options: the papers' for CIFAR-10 (ResNet-50 where they differ by
network); difficulty weights are those of the library, ranks with T = 0.3, with the paper's alpha."""

MANY_CLASSES = {
    "label_smoothing": {"smoothing": 0.09},
    "inverse_focal": {"gamma": 1.0},
    "dual_focal": {"gamma": 2.3},
    "dual_focal_released": {"gamma": 2.3},
    "selective_au": {"coverage": 0.6, "smoothing": 0.05},
    "selective_au_released": {"coverage": 0.6, "smoothing": 0.05},
    "difficulty_entropy": {"alpha": 0.2},
    "logit_norm": {"alpha": 0.01},
    "kde_xe": {"weight": 0.5},
}
"""Options for Tiny-ImageNet: the papers' for it, else for CIFAR-100 or ImageNet."""

RAW = {"weight_options": {"normalize": "none", "temperature": 0.7}}
MINMAX = {"weight_options": {"normalize": "minmax", "temperature": 0.7}}

QUESTIONS = (
    Method("difficulty_raw", "difficulty_entropy", {"alpha": 0.3}, RAW, difficulty=True),
    Method("difficulty_minmax", "difficulty_entropy", {"alpha": 0.3}, MINMAX, difficulty=True),
    Method("difficulty_rank_06", "difficulty_entropy", {"alpha": 0.6}, difficulty=True),
    Method("difficulty_rank_10", "difficulty_entropy", {"alpha": 1.0}, difficulty=True),
    Method("entropy_017", "entropy_regularization", {"alpha": 0.17}),
    Method("entropy_029", "entropy_regularization", {"alpha": 0.29}),
    Method("adafocal_steps", "adafocal", {"update_every": 20}),
    Method("selective_au_margin", "selective_au", {"coverage": 0.88, "smoothing": 0.1, "score": "margin"}),
    Method("selective_au_entropy", "selective_au", {"coverage": 0.88, "smoothing": 0.1, "score": "entropy"}),
    Method("selective_au_detached", "selective_au", {"coverage": 0.88, "smoothing": 0.1, "detach_weight": True}),
    Method("difficulty_md", "difficulty_entropy", {"alpha": 0.3}, difficulty=True, scores="md"),
    Method("difficulty_kmeans", "difficulty_entropy", {"alpha": 0.3}, difficulty=True, scores="kmeans"),
    Method("group_dro", "group_dro", {"num_groups": 2}, difficulty=True),
    Method("kde_xe_fixed", "kde_xe", {"weight": 0.3, "bandwidth": 0.1}),
)
"""Variants that answer a question: normalisation and strength of difficulty weights, constant weights of the same
mean strength (0.17 and 0.29 are those of ranks with T = 0.3 and alpha 0.6 and 1.0), AdaFocal's updates, the score of
selective AU and its weights without a gradient, the measure of difficulty, the worst of two groups of difficulty,
KDE-XE without a bandwidth chosen anew for every batch."""

SWEEP = tuple(
    Method(f"selective_au_{coverage}_{smoothing}", "selective_au", {"coverage": coverage, "smoothing": smoothing})
    for coverage in (0.25, 0.5, 0.75)
    for smoothing in (0.01, 0.1)
)
"""Coverage and smoothness of selective AU."""

ARCHITECTURES = tuple(
    method for method in METHODS if method.name in ("cross_entropy", "entropy_regularization", "difficulty_entropy")
)
"""Methods that are also trained with a second network."""

TASK = (
    Method("difficulty_task_rmd", "difficulty_entropy", {"alpha": 0.3}, difficulty=True, scores="task_rmd"),
    Method("difficulty_task_loss", "difficulty_entropy", {"alpha": 0.3}, difficulty=True, scores="task_loss"),
)
"""Difficulty from a network trained on the task; `python -m benchmarks prepare --task` makes its scores."""

RECORDED = (Method("recorded", record=True),)
"""Cross-entropy whose validation probabilities are kept after every epoch: confusion scores."""


def method_named(name: str) -> Method:
    """The method of that name."""
    return {method.name: method for method in (*METHODS, *QUESTIONS, *RECORDED, *SWEEP, *TASK)}[name]


SHORT = {
    "epochs": 16,
    "batch_size": 512,
    "learning_rate": 0.4,
    "nesterov": True,
    "weight_decay": 5e-4,
    "schedule": "one_cycle",
    "augment": "crop_flip",
}

COMPILED = {**SHORT, "compile": True}
"""Compiling pays where many cells share a network."""

CIFAR10 = Setting("cifar10", "resnet18", COMPILED, seeds=5)
TINY = Setting("tiny32", "resnet18", {**COMPILED, "epochs": 8}, seeds=3, options=MANY_CLASSES)
"""Twice the images of CIFAR-10 and half its epochs: the same number of steps."""
RECORDED_MODELS = ("resnet18", "small_cnn", "preresnet56")
"""Networks of three sizes whose validation probabilities are recorded."""

PARTS = ("main", "questions", "recorded", "sweep", "architectures", "task")
USUAL = PARTS[:-1]
"""Without the part whose scores need a network trained first."""


def lite_cells(
    datasets: Sequence[str] = ("cifar10", "tiny32"),
    *,
    parts: Sequence[str] = PARTS,
    seeds: Sequence[int] | None = None,
    methods: Sequence[str] | None = None,
    model: str | None = None,
    changes: Mapping[str, Any] | None = None,
) -> list[Cell]:
    """The cells in order of value: CIFAR-10 seeds 0 to 2, the questions, Tiny-ImageNet, records, the other seeds.

    Args:
        seeds: instead of each dataset's own.
        methods: names to keep.
        model: a network instead of each setting's own.
        changes: training settings to change, such as epochs.
    """
    cifar, tiny = (replace(setting, training={**setting.training, **(changes or {})}) for setting in (CIFAR10, TINY))
    plain = {**cifar.training, "compile": False}
    others = {name: replace(cifar, model=name, training=plain) for name in (*RECORDED_MODELS, "resnet34")}
    first, rest = (range(3), range(3, cifar.seeds)) if seeds is None else (seeds, ())
    tiny_seeds = range(tiny.seeds) if seeds is None else seeds
    cells = cifar.cells(METHODS, list(first))
    cells += cifar.cells(QUESTIONS, list(first), "questions")
    cells += tiny.cells(METHODS, list(tiny_seeds)[:1])
    for network in RECORDED_MODELS:
        cells += others[network].cells(RECORDED, list(first), "recorded")
    cells += tiny.cells(METHODS, list(tiny_seeds)[1:])
    cells += cifar.cells(METHODS, list(rest))
    cells += cifar.cells(SWEEP, list(first)[:1], "sweep")
    cells += others["resnet34"].cells(ARCHITECTURES, list(first)[:1], "architectures")
    cells += cifar.cells(TASK, list(first), "task")
    cells = [c for c in cells if c.dataset in datasets and c.part in parts]
    cells = [c for c in cells if methods is None or c.method.name in methods]
    check_names(cells)
    return unique(unique(cells) if model is None else [replace(c, model=model) for c in unique(cells)])
