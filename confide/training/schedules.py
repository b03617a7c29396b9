"""Learning rate as a pure function of the step, so that a resumed run needs no scheduler state."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.core.door import InputError, check_choice, check_number, check_options
from confide.training.settings import Settings

OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "constant": {"warmup": 0.0},
    "step": {"milestones": (), "factor": 0.1, "warmup": 0.0},
    "cosine": {"warmup": 0.0, "floor": 0.0},
    "one_cycle": {"warmup": 0.25, "start": 0.04, "floor": 4e-6, "cycle_momentum": False},
}


def options_of(settings: Settings) -> dict[str, Any]:
    """Options of the schedule with their defaults; an unknown one is an error."""
    known = OPTIONS[settings.schedule]
    check_options(settings.schedule, "schedule", settings.schedule_options, known)
    options = {**known, **settings.schedule_options}
    for name, value in options.items():
        told = f"schedule option '{name}'"
        if isinstance(known[name], bool):
            check_choice(value, (True, False), told)
        elif isinstance(known[name], tuple):
            if not isinstance(value, Sequence) or isinstance(value, str):
                raise InputError(f"{told} must be a list of epochs, such as [60, 120], got {value!r}")
            for one in value:
                check_number(one, told, 0.0, 0, math.inf)
        else:
            check_number(value, told, 0.0, 0, math.inf)
    return options


def warm_steps(warmup: float, total: int) -> float:
    """Steps of warm-up: a share of all steps below 1, else their number."""
    return warmup * total if warmup < 1 else min(warmup, total - 1)


def learning_rates(settings: Settings, steps_per_epoch: int) -> NDArray[np.float64]:
    """The learning rate of every step of the whole training."""
    options = options_of(settings)
    total = settings.epochs * steps_per_epoch
    step = np.arange(total, dtype=np.float64)
    warm = warm_steps(options["warmup"], total)
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


def momenta(settings: Settings, steps_per_epoch: int) -> NDArray[np.float64] | None:
    """The momentum of every step where one_cycle cycles it (.95 down to .85 and back), else None."""
    options = options_of(settings)
    if not options.get("cycle_momentum"):
        return None
    total = settings.epochs * steps_per_epoch
    step, warm = np.arange(total, dtype=np.float64), warm_steps(options["warmup"], total)
    rising = np.clip(step / max(warm, 1), 0, 1)
    falling = np.clip((step - warm) / max(total - 1 - warm, 1), 0, 1)
    high = np.where(step < warm, (1 + np.cos(math.pi * rising)) / 2, (1 - np.cos(math.pi * falling)) / 2)
    return 0.85 + 0.10 * high
