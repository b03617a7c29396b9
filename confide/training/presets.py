"""Presets: the settings of the papers, and a quick one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confide.core.door import InputError, did_you_mean
from confide.training.settings import Settings, check_fields

PRESETS: Mapping[str, Mapping[str, Any]] = {
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
    """The settings of a preset, with some fields changed."""
    if name not in PRESETS:
        raise InputError(f"no preset named '{name}'; {did_you_mean(name, PRESETS)}")
    base = replaced(PRESETS[name], check_fields(changes))
    if "choose_after" not in changes and "choose_after" in base:
        # The warm-up of Zhou et al.: so many epochs, or a third of a shorter training.
        base["choose_after"] = min(base["choose_after"], base["epochs"] // 3)
    return Settings.from_dict(base)


def replaced(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Base with changes; another schedule, loss or model does not inherit the options of the one before.

    Nor is `mirror` inherited by an `augment` that does not flip: the network would be asked of images unlike its own.
    """
    kept = dict(base)
    if "flip" not in str(changes.get("augment", "flip")):
        kept.pop("mirror", None)
    for word in ("schedule", "loss", "model"):
        if word in changes and changes[word] != base.get(word):
            kept.pop(f"{word}_options", None)
    return {**kept, **changes}
