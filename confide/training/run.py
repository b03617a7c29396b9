"""Run: what stays the same during a training, made and checked before its first step."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from confide.core.door import InputError
from confide.core.records import Dataset, Scores
from confide.training import resume, schedules
from confide.training.average import WeightAverage
from confide.training.device import Device
from confide.training.distributed import World, bare
from confide.training.feed import Feed
from confide.training.forward import CompiledForward
from confide.training.identity import identity_of
from confide.training.objective import Objective, groups_of
from confide.training.preparation import Preparation, fit_preparation
from confide.training.samples import EpochOrder, Samples, choose_samples
from confide.training.settings import Settings
from confide.training.state import State, make_optimizer
from confide.training.trained import build_model


class StepSource(Protocol):
    """Runs steps from a captured graph where it can."""

    def start_epoch(self, batches: Sequence[NDArray[np.int64]], epoch: int) -> None: ...

    def replay(self, rows: int) -> bool: ...

    def around(self) -> AbstractContextManager[None]: ...


@dataclass
class Run:
    """A training with its state, its data on the device, and its clock."""

    settings: Settings
    samples: Samples
    state: State
    feed: Feed
    val_feed: Feed | None
    order: EpochOrder
    rates: NDArray[np.float64]
    momenta: NDArray[np.float64] | None
    identity: dict[str, Any]
    folder: Path | None
    checkpoint_seconds: float
    saved_at: float = field(default_factory=time.monotonic)
    timings: dict[str, list[float]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    graph: StepSource | None = None

    @property
    def world(self) -> World:
        return self.state.world

    def position(self) -> int:
        """Steps done since the start of the training."""
        return self.state.epoch * self.order.steps + self.state.step


def start(
    dataset: Dataset,
    settings: Settings,
    scores: Scores | None,
    folder: Path | None,
    device: Device,
    world: World,
    checkpoint_seconds: float,
) -> Run:
    """Everything a training needs, checked."""
    samples = choose_samples(dataset, settings)
    identity = identity_of(dataset, settings, samples, scores, device, world)
    preparation = fit_preparation(dataset, samples.train, model=settings.model)
    if samples.val is not None:
        preparation.check(samples.val, "split 'val'")
    groups = groups_of(settings, samples.train, scores) if settings.sampling == "groups" else None
    order = EpochOrder(samples.train, settings, groups, world.size)
    rates, momenta = schedules.learning_rates(settings, order.steps), schedules.momenta(settings, order.steps)
    objective = Objective(settings, samples.train, dataset.num_classes, scores, device.device, samples.val)
    _check_validation(settings, objective, samples)
    state = _state(settings, preparation, dataset.num_classes, objective, device, world)
    if settings.average:
        state.average = WeightAverage(bare(state.model), settings.average * order.steps)
    feed = Feed(samples.train, preparation, device.device, augment=settings.augment, seed=settings.seed)
    val_feed = None
    if samples.val is not None:
        val_feed = Feed(samples.val, preparation, device.device, mirror_twice=settings.mirror)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        if world.leads:
            resume.clean(folder)
    run = Run(settings, samples, state, feed, val_feed, order, rates, momenta, identity, folder, checkpoint_seconds)
    if settings.compile and device.on_gpu:
        if world.size > 1:
            run.notes.append("the network runs uncompiled: several processes")
        else:
            state.compiled = CompiledForward(state.model, settings.batch_size, run.notes)
    return run


def _state(
    settings: Settings,
    preparation: Preparation,
    num_classes: int,
    objective: Objective,
    device: Device,
    world: World,
) -> State:
    model = device.place(build_model(settings, preparation, num_classes))
    model = world.wrap(model, device.device, unused=settings.model.startswith("hf:"))
    scaler = torch.amp.GradScaler(device.device.type) if device.precision == "float16" else None
    return State(model, make_optimizer(model, settings, device), objective, device, world, scaler)


def _check_validation(settings: Settings, objective: Objective, samples: Samples) -> None:
    if samples.val is not None:
        return
    if objective.learns_from_validation:
        raise InputError(
            f"loss '{settings.loss}' learns from validation predictions, but there is no split 'val'; "
            "set val_fraction above 0"
        )
    if settings.choose != "last":
        raise InputError(f"choose='{settings.choose}' needs a split 'val'; set val_fraction above 0, or choose='last'")
