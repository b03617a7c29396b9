"""Settings: everything that decides the outcome of a training, checked before any work; presets of the papers; the
learning rate as a pure function of the step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide import losses, models
from confide.checks import (
    InputError,
    OptionError,
    check_choice,
    check_number,
    check_options,
    check_range,
    check_seed,
    did_you_mean,
)
from confide.difficulty.weights import weights
from confide.files.formats import plain
from confide.models.device import PRECISIONS
from confide.types import JsonObject, Options

OPTIMIZERS = ("sgd", "adamw", "adam")
SCHEDULE_OPTIONS: Mapping[str, Options] = {
    "constant": {"warmup": 0.0},
    "step": {"milestones": (), "factor": 0.1, "warmup": 0.0},
    "cosine": {"warmup": 0.0, "floor": 0.0},
    "one_cycle": {"warmup": 0.25, "start": 0.04, "floor": 4e-6, "cycle_momentum": False},
}
"""Schedule of the learning rate -> its options and their defaults."""
AUGMENTS = ("none", "flip", "crop", "crop_flip")
CHOOSE_BY = ("last", "nll", "brier", "accuracy")
FIELD_TYPES: tuple[tuple[str, type, str], ...] = (
    *((name, str, "a word") for name in ("model", "loss", "group_by", "record", "device")),
    *(
        (name, bool, "true or false")
        for name in ("nesterov", "mirror", "weigh", "label_bands", "deterministic", "graph", "compile")
    ),
    *((f"{name}_options", Mapping, "options by name") for name in ("model", "loss", "schedule", "weight")),
)
MOST_OF_ANYTHING = 10**9
"""Epochs, or samples of a batch."""
FIELD_RANGES: tuple[tuple[str, float, float, bool], ...] = (
    # (field, lowest, highest, without the lowest)
    ("learning_rate", 0, math.inf, True),
    ("momentum", 0, 1, False),
    ("weight_decay", 0, math.inf, False),
    ("label_noise", 0, 1, False),
    ("average", 0, math.inf, False),
    ("val_fraction", 0, 1, False),
    ("clip_norm", 0, math.inf, True),
)


@dataclass(frozen=True)
class Settings:
    """How a model is trained.

    Args:
        loss_options: of the loss, by name; likewise `model_options`.
        schedule: of the learning rate: constant, step, cosine, one_cycle; `schedule_options` are `milestones` and
            `factor` of step, `warmup` (share of steps) and `floor` (share of the learning rate) of the others,
            `cycle_momentum` of one_cycle.
        reduction: of the batch, mean or sum (the sum goes with `clip_norm` in the focal-loss papers).
        augment: none, flip, crop (4 pixels of padding), crop_flip.
        label_noise: share of training labels replaced by another class, drawn by seed and sample id.
        val_fraction: share of the training samples held out by seed, where the dataset has no split `val`.
        choose: weights kept: of the last epoch, or of the best one on val by nll, brier or accuracy.
        average: epochs that a running mean of the weights reaches back, which is validated, chosen and kept; 0: none.
        mirror: predictions on images are the mean of the logits of an image and of its mirror image; for a training
            that flips images, others have not seen mirror images.
        choose_after: epochs before which no epoch is chosen.
        weight_options: of `difficulty.weights`: normalize, temperature, c.
        weigh: multiply each sample's loss by its difficulty weight, for losses that do not ask for weights.
        group_by: what makes the groups of group losses: `difficulty` (quantiles), `label`, or a column.
        label_bands: where a recipe or an experiment scores difficulty for the groups measured on val, it may see the
            labels.
        sampling: shuffle, or groups (every group equally often, with replacement).
        record: split whose predictions a recorder gets each epoch.
        precision: of the forward pass; auto is bfloat16 on a GPU and float32 elsewhere.
        graph: capture the step in a CUDA graph where that is possible.
        compile: compile the network for training steps on a GPU; some 20 s once, then a quarter less time a step.
    """

    model: str = "small_cnn"
    model_options: Options = field(default_factory=dict)
    loss: str = "cross_entropy"
    loss_options: Options = field(default_factory=dict)
    epochs: int = 10
    batch_size: int = 128
    optimizer: str = "sgd"
    learning_rate: float = 0.1
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 5e-4
    schedule: str = "one_cycle"
    schedule_options: Options = field(default_factory=dict)
    reduction: str = "mean"
    clip_norm: float | None = None
    augment: str = "none"
    label_noise: float = 0.0
    val_fraction: float = 0.1
    choose: str = "last"
    choose_after: int = 0
    average: float = 0.0
    mirror: bool = False
    seed: int = 0
    weight_options: Options = field(default_factory=lambda: {"normalize": "rank", "temperature": 0.3})
    weigh: bool = False
    group_by: str = "difficulty"
    label_bands: bool = False
    sampling: str = "shuffle"
    record: str = "val"
    device: str = "auto"
    precision: str = "auto"
    deterministic: bool = False
    graph: bool = True
    compile: bool = False

    def __post_init__(self) -> None:
        check_choice(self.optimizer, OPTIMIZERS, "optimizer")
        check_choice(self.schedule, tuple(SCHEDULE_OPTIONS), "schedule")
        check_choice(self.reduction, ("mean", "sum"), "reduction")
        check_choice(self.augment, AUGMENTS, "augment")
        check_choice(self.choose, CHOOSE_BY, "choose")
        check_choice(self.sampling, ("shuffle", "groups"), "sampling")
        check_choice(self.precision, PRECISIONS, "precision")
        for name, kind, description in FIELD_TYPES:
            if not isinstance(getattr(self, name), kind):
                raise InputError(f"{name} must be {description}, got {getattr(self, name)!r}")
        for name, least in (("epochs", 1), ("batch_size", 1), ("choose_after", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise InputError(f"{name} must be a whole number, got {value!r}")
            check_range(value, name, least, MOST_OF_ANYTHING)
        check_seed(self.seed)
        for name, low, high, low_open in FIELD_RANGES:
            value = getattr(self, name)
            if value is None and name == "clip_norm":
                continue
            if not isinstance(value, (int, float)) or isinstance(value, bool):
                raise InputError(f"{name} must be a number, got {value!r}")
            check_range(value, name, low, high, low_open=low_open, high_open=name != "label_noise")
        losses.LOSSES.get(self.loss).check_values(self.loss_options)
        losses.create(self.loss, **self.loss_options)  # what its options must be to one another
        models.method(self.model)[0].check_values(self.model_options)
        check_options("weights", "difficulty", self.weight_options, ("normalize", "temperature", "c"))
        weights([0.0], **self.weight_options)
        self._check_schedule_options()
        if self.compile and self.deterministic:
            raise InputError("compile cannot be deterministic: its kernels are chosen by timing; leave one of them out")
        if self.nesterov and not self.momentum:
            raise InputError("nesterov needs a momentum above 0, got 0; set momentum")

    def _check_schedule_options(self) -> None:
        known = SCHEDULE_OPTIONS[self.schedule]
        check_options(self.schedule, "schedule", self.schedule_options, known)
        for name, value in self.schedule_options.items():
            where = f"schedule option '{name}'"
            if isinstance(known[name], bool):
                check_choice(value, (True, False), where)
            elif isinstance(known[name], tuple):
                if not isinstance(value, Sequence) or isinstance(value, str):
                    raise InputError(f"{where} must be a list of epochs, such as [60, 120], got {value!r}")
                for epoch in value:
                    check_number(epoch, where, 0.0, 0, math.inf)
            else:
                check_number(value, where, 0.0, 0, math.inf)

    @property
    def whole_schedule_options(self) -> Options:
        """Options of the schedule, with the defaults of those that are not named."""
        return {**SCHEDULE_OPTIONS[self.schedule], **self.schedule_options}

    def as_dict(self) -> JsonObject:
        """Plain dictionary; `from_dict` reads it back."""
        values: JsonObject = plain(asdict(self))
        return values

    @classmethod
    def from_dict(cls, values: JsonObject) -> Settings:
        """Settings from plain values; an unknown field is an error."""
        return replace(cls(), **check_fields(values))

    def changed(self, **values: Any) -> Settings:
        """These settings with some fields changed; an unknown field is an error."""
        return replace(self, **check_fields(values))


def check_fields(values: Options) -> Options:
    """Field names must be those of Settings."""
    known = [f.name for f in fields(Settings)]
    for name in values:
        if name not in known:
            raise OptionError(f"training has no setting '{name}'; {did_you_mean(name, known)}")
    return dict(values)


# The usual network of data that is not images.

USUAL: Mapping[str, Options] = {
    "text": {"model": "text_cnn", "optimizer": "adamw", "learning_rate": 3e-3, "weight_decay": 0.01},
    "rows": {"model": "mlp"},
}
"""By kind of data; SGD at the rate that suits images leaves a text CNN near chance."""


def suited_settings(settings: Settings, kind: str) -> Settings:
    """The settings for data of a kind, where the network is the default for images, which cannot read them.

    Args:
        settings: as chosen.
        kind: of the data: image, text or rows.

    Returns:
        With the usual network of that kind; with its optimiser too, where none of its settings was chosen.

    Example:
        >>> from confide.training.settings import Settings, suited_settings
        >>> suited_settings(Settings(epochs=3), "text").model
        'text_cnn'
    """
    usual = USUAL.get(kind, {})
    if not usual or settings.model != Settings.model:
        return settings
    rest = {name: value for name, value in usual.items() if name != "model"}
    chosen = any(getattr(settings, name) != getattr(Settings, name) for name in rest)
    return replace(settings, model=usual["model"], **({} if chosen else rest))


# Presets: the settings of the papers, and a quick one.

PRESETS: Mapping[str, Options] = {
    # Small images in a minute on two cores.
    "quick": {"model": "small_cnn", "epochs": 10, "batch_size": 128, "learning_rate": 0.1},
    # Zhou et al. (2025), CIFAR: x 0.2 at 60, 120, 160; lowest validation loss after a warm-up of 40 epochs.
    "paper-cifar": {
        "model": "resnet50",
        "epochs": 200,
        "batch_size": 128,
        "learning_rate": 0.1,
        "weight_decay": 5e-4,
        "schedule": "step",
        "schedule_options": {"milestones": (60, 120, 160), "factor": 0.2},
        "augment": "crop_flip",
        "choose": "nll",
        "choose_after": 40,
    },
    # Zhou et al. (2025), Tiny-ImageNet: fine-tuning with a cosine.
    "paper-tiny": {
        "model": "vit_small",
        "epochs": 90,
        "batch_size": 256,
        "learning_rate": 1e-4,
        "weight_decay": 5e-4,
        "schedule": "cosine",
        "augment": "crop_flip",
        "choose": "nll",
        "choose_after": 20,
    },
    # Ghosh et al. (2022), after Mukhoti et al. (2020): summed loss with clipped gradients, best validation accuracy.
    "paper-adafocal": {
        "model": "resnet50",
        "loss": "adafocal",
        "epochs": 350,
        "batch_size": 128,
        "learning_rate": 0.1,
        "weight_decay": 5e-4,
        "schedule": "step",
        "schedule_options": {"milestones": (150, 250), "factor": 0.1},
        "reduction": "sum",
        "clip_norm": 2.0,
        "augment": "crop_flip",
        "choose": "accuracy",
    },
    # Luo et al. (2021), ImageNet: one epoch of one-cycle with 100 steps of warm-up; the cycle takes the momentum too.
    "paper-oracle": {
        "model": "resnet50_imagenet",
        "epochs": 1,
        "batch_size": 40,
        "learning_rate": 1e-5,
        "weight_decay": 0.0,
        "schedule": "one_cycle",
        "schedule_options": {"warmup": 100, "cycle_momentum": True},
        "augment": "flip",
    },
}


def preset(name: str, **changes: Any) -> Settings:
    """The settings of a preset, with some fields changed.

    Args:
        name: quick, or that of a paper: paper-cifar, paper-tiny, paper-adafocal, paper-oracle.
        changes: fields of `Settings`.

    Returns:
        Settings; options of a schedule, loss or model that was changed are not inherited.

    Raises:
        InputError: no preset has that name.

    Example:
        >>> confide.training.preset("paper-adafocal", epochs=2).loss
        'adafocal'
    """
    if name not in PRESETS:
        raise InputError(f"no preset named '{name}'; {did_you_mean(name, PRESETS)}")
    base = override_settings(PRESETS[name], check_fields(changes))
    if "choose_after" not in changes and "choose_after" in base:
        # The warm-up of Zhou et al.: so many epochs, or a third of a shorter training.
        base["choose_after"] = min(base["choose_after"], base["epochs"] // 3)
    return Settings.from_dict(base)


def override_settings(base: Options, changes: Options) -> Options:
    """Base with changes; another schedule, loss or model does not inherit the options of the one before.

    Nor is `mirror` inherited by an `augment` that does not flip: the network would be asked of images unlike its own.
    """
    inherited = dict(base)
    if "flip" not in str(changes.get("augment", "flip")):
        inherited.pop("mirror", None)
    for word in ("schedule", "loss", "model"):
        if word in changes and changes[word] != base.get(word):
            inherited.pop(f"{word}_options", None)
    return {**inherited, **changes}


# Learning rate as a pure function of the step, so that a resumed run needs no scheduler state.


def warmup_steps(warmup: float, total: int) -> float:
    """Steps of warm-up: a share of all steps below 1, else their number."""
    return warmup * total if warmup < 1 else min(warmup, total - 1)


def learning_rates(settings: Settings, steps_per_epoch: int) -> NDArray[np.float64]:
    """The learning rate of every step of the whole training."""
    options = settings.whole_schedule_options
    total = settings.epochs * steps_per_epoch
    step = np.arange(total, dtype=np.float64)
    warm = warmup_steps(options["warmup"], total)
    after = np.clip((step - warm) / max(total - 1 - warm, 1), 0, 1)
    if settings.schedule == "one_cycle":
        start, floor = options["start"], options["floor"]
        rising = start + (1 - start) * (1 - np.cos(math.pi * np.clip(step / max(warm, 1), 0, 1))) / 2
        falling = floor + (1 - floor) * (1 + np.cos(math.pi * after)) / 2
        return np.asarray(settings.learning_rate * np.where(step < warm, rising, falling))
    shape = np.ones(total)
    if settings.schedule == "step":
        epoch = step // steps_per_epoch
        for milestone in options["milestones"]:
            shape = np.where(epoch >= milestone, shape * options["factor"], shape)
    elif settings.schedule == "cosine":
        shape = options["floor"] + (1 - options["floor"]) * (1 + np.cos(math.pi * after)) / 2
    if warm:
        shape = np.where(step < warm, (step + 1) / warm, shape)
    return settings.learning_rate * shape


def cycled_momenta(settings: Settings, steps_per_epoch: int) -> NDArray[np.float64] | None:
    """The momentum of every step where one_cycle cycles it (.95 down to .85 and back), else None."""
    options = settings.whole_schedule_options
    if not options.get("cycle_momentum"):
        return None
    total = settings.epochs * steps_per_epoch
    step, warm = np.arange(total, dtype=np.float64), warmup_steps(options["warmup"], total)
    rising = np.clip(step / max(warm, 1), 0, 1)
    falling = np.clip((step - warm) / max(total - 1 - warm, 1), 0, 1)
    high = np.where(step < warm, (1 + np.cos(math.pi * rising)) / 2, (1 - np.cos(math.pi * falling)) / 2)
    return 0.85 + 0.10 * high
