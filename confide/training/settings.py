"""Settings: everything that decides the outcome of a training, checked before any work."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from confide.core.door import InputError, OptionError, check_choice, check_range, did_you_mean
from confide.core.files import plain

OPTIMIZERS = ("sgd", "adamw", "adam")
SCHEDULES = ("constant", "step", "cosine", "one_cycle")
AUGMENTS = ("none", "flip", "crop", "crop_flip")
CHOICES = ("last", "nll", "brier", "accuracy")
PRECISIONS = ("auto", "float32", "bfloat16", "float16")
KINDS: tuple[tuple[str, type, str], ...] = (
    *((name, str, "a word") for name in ("model", "loss", "group_by", "record", "device")),
    *(
        (name, bool, "true or false")
        for name in ("nesterov", "mirror", "weigh", "label_bands", "deterministic", "graph", "compile")
    ),
    *((f"{name}_options", Mapping, "options by name") for name in ("model", "loss", "schedule", "weight")),
)
RANGES: tuple[tuple[str, float, float, bool], ...] = (
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
        label_bands: where a recipe or an experiment scores difficulty for bands measured on val, it may see the labels.
        sampling: shuffle, or groups (every group equally often, with replacement).
        record: split whose predictions a recorder gets each epoch.
        precision: of the forward pass; auto is bfloat16 on a GPU and float32 elsewhere.
        graph: capture the step in a CUDA graph where that is possible.
        compile: compile the network for training steps on a GPU; some 20 s once, then a quarter less time a step.
    """

    model: str = "small_cnn"
    model_options: Mapping[str, Any] = field(default_factory=dict)
    loss: str = "cross_entropy"
    loss_options: Mapping[str, Any] = field(default_factory=dict)
    epochs: int = 10
    batch_size: int = 128
    optimizer: str = "sgd"
    learning_rate: float = 0.1
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 5e-4
    schedule: str = "one_cycle"
    schedule_options: Mapping[str, Any] = field(default_factory=dict)
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
    weight_options: Mapping[str, Any] = field(default_factory=lambda: {"normalize": "rank", "temperature": 0.3})
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
        check_choice(self.schedule, SCHEDULES, "schedule")
        check_choice(self.reduction, ("mean", "sum"), "reduction")
        check_choice(self.augment, AUGMENTS, "augment")
        check_choice(self.choose, CHOICES, "choose")
        check_choice(self.sampling, ("shuffle", "groups"), "sampling")
        check_choice(self.precision, PRECISIONS, "precision")
        for name, kind, said in KINDS:
            if not isinstance(getattr(self, name), kind):
                raise InputError(f"{name} must be {said}, got {getattr(self, name)!r}")
        for name, low in (("epochs", 1), ("batch_size", 1), ("choose_after", 0), ("seed", -math.inf)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise InputError(f"{name} must be a whole number, got {value!r}")
            check_range(value, name, low)
        for name, low, high, low_open in RANGES:
            value = getattr(self, name)
            if value is None and name == "clip_norm":
                continue
            if not isinstance(value, (int, float)) or isinstance(value, bool):
                raise InputError(f"{name} must be a number, got {value!r}")
            check_range(value, name, low, high, low_open=low_open, high_open=name != "label_noise")
        if self.compile and self.deterministic:
            raise InputError("compile cannot be deterministic: its kernels are chosen by timing; leave one of them out")
        if self.nesterov and not self.momentum:
            raise InputError("nesterov needs a momentum above 0, got 0; set momentum")

    def as_dict(self) -> dict[str, Any]:
        """Plain dictionary; `from_dict` reads it back."""
        values: dict[str, Any] = plain(asdict(self))
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Settings:
        """Settings from plain values; an unknown field is an error."""
        return replace(cls(), **check_fields(values))

    def changed(self, **values: Any) -> Settings:
        """These settings with some fields changed; an unknown field is an error."""
        return replace(self, **check_fields(values))


def check_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Field names must be those of Settings."""
    known = [f.name for f in fields(Settings)]
    for name in values:
        if name not in known:
            raise OptionError(f"training has no setting '{name}'; {did_you_mean(name, known)}")
    return dict(values)
