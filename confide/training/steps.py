"""A run, all that a training starts from, and one step of it: forward, objective, backward, clip, update; eagerly, or
replayed from a captured CUDA graph.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from confide.checks import InputError
from confide.files import disk
from confide.models.device import Device
from confide.models.preparation import Feed, fit_preparation
from confide.models.trained import TrainingIdentity, build_model
from confide.records import Dataset, Scores
from confide.training import checkpoint
from confide.training.batch_norm import exact_batch_norms
from confide.training.checkpoint import identity_of
from confide.training.distributed import World, unwrapped
from confide.training.feed import EpochOrder, TrainingSamples, choose_samples
from confide.training.objective import Objective, groups_of
from confide.training.settings import Settings, cycled_momenta, learning_rates
from confide.training.state import BODY, CompiledForward, State, WeightAverage, body_rates, make_optimizer

# A run: all that a training needs, checked before its first step.


class StepSource(Protocol):
    """Runs steps from a captured graph where it can."""

    def start_epoch(self, batches: Sequence[NDArray[np.int64]], epoch: int) -> None: ...

    def replay(self, rows: int) -> bool: ...

    def stream_context(self) -> AbstractContextManager[None]: ...


@dataclass
class Run:
    """A training with its state, its data on the device, and its clock."""

    settings: Settings
    samples: TrainingSamples
    state: State
    feed: Feed
    val_feed: Feed | None
    order: EpochOrder
    rates: NDArray[np.float64]
    body_rates: NDArray[np.float64]
    momenta: NDArray[np.float64] | None
    identity: TrainingIdentity
    folder: Path | None
    checkpoint_seconds: float
    saved_at: float = field(default_factory=time.monotonic)
    timings: dict[str, list[float]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    process_notes: list[str] = field(default_factory=list)
    graph: StepSource | None = None

    @property
    def world(self) -> World:
        return self.state.world

    def position(self) -> int:
        """Steps done since the start of the training."""
        return self.state.epoch * self.order.steps + self.state.step


def start_run(
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
    rates, momenta = learning_rates(settings, order.steps), cycled_momenta(settings, order.steps)
    objective = Objective(settings, samples.train, dataset.num_classes, scores, device.device, samples.val)
    _check_validation(settings, objective, samples)
    model = device.place(build_model(settings.model, settings.model_options, preparation, dataset.num_classes))
    model = world.wrap(model, device.device, unused=settings.model.startswith(("hf:", "features:")))
    scaler = torch.amp.GradScaler(device.device.type) if device.precision == "float16" else None
    state = State(model, make_optimizer(model, settings, device), objective, device, world, scaler)
    if settings.average:
        state.average = WeightAverage(unwrapped(state.model), settings.average * order.steps)
    feed = Feed(samples.train, preparation, device.device, augment=settings.augment, seed=settings.seed)
    val_feed = None
    if samples.val is not None:
        val_feed = Feed(samples.val, preparation, device.device, mirror_twice=settings.mirror)
    if folder is not None:
        disk.make_folder(folder)
        if world.is_lead:
            checkpoint.remove_partial_files(folder)
    slower = body_rates(model, rates, order.steps)
    plan = (order, rates, slower, momenta)
    run = Run(settings, samples, state, feed, val_feed, *plan, identity, folder, checkpoint_seconds)
    if settings.compile and device.on_gpu:
        if world.size > 1:
            run.notes.append("the network runs uncompiled: several processes")
        else:
            state.compiled = CompiledForward(state.model, settings.batch_size, run.notes)
    return run


def _check_validation(settings: Settings, objective: Objective, samples: TrainingSamples) -> None:
    if samples.val is not None:
        return
    if objective.learns_from_validation:
        raise InputError(
            f"loss '{settings.loss}' learns from validation predictions, but there is no split 'val'; "
            "set val_fraction above 0"
        )
    if settings.choose != "last":
        raise InputError(f"choose='{settings.choose}' needs a split 'val'; set val_fraction above 0, or choose='last'")


# One step; sums stay on the device, so that it never waits.


def forward_backward(state: State, inputs: Tensor, labels: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of the objective on a batch; returns (batch mean of the loss, hits).

    `inputs` are this process's slice, `labels` and `rows` those of the whole batch.
    """
    with state.device.autocast(), exact_batch_norms(state.device.device, state.world):
        logits = state.forward(inputs)
    logits = state.world.gather(logits.float(), len(rows))
    target, mean = state.objective(logits, labels, rows)
    # Gradients are averaged over processes, but each holds only the part through its own logits: sum is meant.
    target = target * state.world.size if state.world.size > 1 else target
    state.optimizer.zero_grad(set_to_none=True)
    if state.scaler is not None:
        state.scaler.scale(target).backward()
    else:
        target.backward()
    return mean, (logits.detach().argmax(dim=1) == labels).sum()


def apply_gradients(state: State, settings: Settings) -> None:
    """Clip if asked, then let the optimiser move the weights."""
    if state.scaler is None:
        if settings.clip_norm is not None:
            clip_grad_norm_(state.model.parameters(), settings.clip_norm)
        state.optimizer.step()
        return
    if settings.clip_norm is not None:
        state.scaler.unscale_(state.optimizer)
        clip_grad_norm_(state.model.parameters(), settings.clip_norm)
    state.scaler.step(state.optimizer)
    state.scaler.update()


def train_step(state: State, settings: Settings, inputs: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
    """One whole step; adds to the epoch's sums and returns the batch mean of the loss, still on the device."""
    mean, hits = forward_backward(state, inputs, labels, rows)
    apply_gradients(state, settings)
    if state.average is not None:
        state.average.update(unwrapped(state.model))
    return add_to_sums(state, mean, hits, len(rows))


def add_to_sums(state: State, mean: Tensor, hits: Tensor, count: int) -> Tensor:
    """Count a batch in the epoch's sums on the device; returns its mean in float64."""
    mean = mean.double()
    state.sums += torch.stack([mean * count, hits.double(), torch.full_like(mean, count)])
    return mean


def note_non_finite(state: State, mean: Tensor, step: Tensor) -> None:
    """Keep the first step whose loss is not finite, without waiting for the device."""
    fresh = (state.first_bad < 0) & ~torch.isfinite(mean)
    state.first_bad.copy_(torch.where(fresh, step, state.first_bad))


def set_rate(optimizer: torch.optim.Optimizer, rate: float, body_rate: float, momentum: float | None) -> None:
    """Learning rate (and momentum where it cycles) of the next step."""
    for group in optimizer.param_groups:
        own = body_rate if group.get(BODY) else rate
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(own)
        else:
            group["lr"] = own
        if momentum is not None and "momentum" in group:
            group["momentum"] = momentum


# The whole step captured in one CUDA graph and replayed: gather, forward, loss, backward, update.
#
# Everything a step reads lies on the device (the order of the epoch, the learning rates, a counter), so a replay takes
# no input from the host. The first steps run eagerly, as real steps; a model that cannot be captured goes on that way.

WARMUP_STEPS = 3


class GraphStep:
    """`start_epoch`, then `replay` before each step: False means that the step must be run eagerly."""

    def __init__(self, run: Run) -> None:
        device = run.state.device.device
        self.run, self.warmed = run, 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.order = torch.zeros((run.order.steps, run.settings.batch_size), dtype=torch.int64, device=device)
        self.rates = torch.as_tensor(run.rates, dtype=torch.float32, device=device)
        self.body_rates = torch.as_tensor(run.body_rates, dtype=torch.float32, device=device)
        self.place = torch.zeros(1, dtype=torch.int64, device=device)
        self.position = torch.zeros(1, dtype=torch.int64, device=device)
        self.stale = True
        self.stream: Any = torch.cuda.Stream(device) if device.type == "cuda" else None

    @staticmethod
    def of(run: Run) -> GraphStep | NoGraph:
        """The graph of a run, or why there is none in the run's notes."""
        reason = _reason_against(run)
        if reason is None:
            return GraphStep(run)
        if run.state.device.on_gpu:
            run.notes.append(f"steps run eagerly: {reason}")
        return NoGraph()

    def stream_context(self) -> AbstractContextManager[None]:
        """Context of an eager step: while warming up, a stream of its own, as capture asks for."""
        return self._warm_stream() if self.graph is None else nullcontext()

    @contextmanager
    def _warm_stream(self) -> Iterator[None]:
        device = self.run.state.device.device
        current = torch.cuda.current_stream(device)
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            yield
        current.wait_stream(self.stream)

    def start_epoch(self, batches: Sequence[NDArray[np.int64]], epoch: int) -> None:
        """Put the order of an epoch where the graph reads it."""
        whole = [rows for rows in batches if len(rows) == self.run.settings.batch_size]
        if whole:
            self.order[: len(whole)].copy_(torch.from_numpy(np.stack(whole)))
        self.stale = True

    def replay(self, rows: int) -> bool:
        """Run the next step from the graph, if it is captured and the batch has its size."""
        if rows != self.run.settings.batch_size:
            self.stale = True
            return False
        if self.graph is None:
            if self.warmed < WARMUP_STEPS:
                self.warmed += 1
                return False
            if not self._capture():
                self.run.graph = NoGraph()
                return False
        if self.stale:
            self.place.fill_(self.run.state.step)
            self.position.fill_(self.run.position())
            self.stale = False
        assert self.graph is not None
        self.graph.replay()
        return True

    def _capture(self) -> bool:
        state, device = self.run.state, self.run.state.device.device
        graph, current = torch.cuda.CUDAGraph(), torch.cuda.current_stream(device)
        torch.cuda.synchronize(device)
        state.optimizer.zero_grad(set_to_none=True)
        self.place.fill_(state.step)
        self.position.fill_(self.run.position())
        try:
            with _capturable(state.optimizer), torch.cuda.graph(graph):
                self._step()
            self.graph = graph
        except RuntimeError as error:
            # Nothing was executed during capture, so the run goes on from the same state. A failed capture may
            # leave its own stream behind as the current one.
            torch.cuda.set_stream(current)
            torch.cuda.synchronize(device)
            reason = str(error).splitlines()[0]
            self.run.notes.append(f"steps run eagerly: the step could not be captured ({reason})")
        return self.graph is not None

    def _step(self) -> None:
        run, state = self.run, self.run.state
        for group in state.optimizer.param_groups:
            rates = self.body_rates if group.get(BODY) else self.rates
            group["lr"].copy_(rates.index_select(0, self.position).squeeze(0))
        rows = self.order.index_select(0, self.place).squeeze(0)
        mean = train_step(state, run.settings, run.feed.gather(rows), run.feed.labels[rows], rows)
        note_non_finite(state, mean, self.place.squeeze(0))
        self.place += 1
        self.position += 1


@contextmanager
def _capturable(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Adam wants to be told that its step is captured; told for good, it would warn at every eager step."""
    for group in optimizer.param_groups:
        group["capturable"] = True
    try:
        yield
    finally:
        for group in optimizer.param_groups:
            if "capturable" in optimizer.defaults:
                group["capturable"] = False
            else:
                del group["capturable"]


class NoGraph:
    """Every step is run eagerly."""

    def stream_context(self) -> AbstractContextManager[None]:
        """Nothing special."""
        return nullcontext()

    def start_epoch(self, batches: Sequence[NDArray[np.int64]], epoch: int) -> None:
        """Nothing to prepare."""

    def replay(self, rows: int) -> bool:
        """Never."""
        return False


def _reason_against(run: Run) -> str | None:
    if not run.state.device.on_gpu:
        return "a graph needs a GPU"
    if not run.settings.graph:
        return "graph=False"
    if run.world.size > 1:
        return "several processes"
    if not run.feed.resident:
        return "the data do not fit into GPU memory"
    if run.momenta is not None:
        return "the momentum changes from step to step"
    if run.state.scaler is not None:
        return "float16 scaling looks at every step"
    return None
