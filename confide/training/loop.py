"""fit: one readable loop that trains any model with any loss, and goes on where it was killed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from confide.core.door import InputError
from confide.core.progress import Progress
from confide.core.records import Dataset, Scores
from confide.training import resume, schedules
from confide.training.device import Device
from confide.training.feed import Feed
from confide.training.objective import Objective, groups_of
from confide.training.preparation import fit_preparation
from confide.training.samples import EpochOrder, Samples, choose_samples
from confide.training.settings import Settings
from confide.training.state import State, make_optimizer
from confide.training.step import set_rate, train_step
from confide.training.trained import Trained, build_model
from confide.training.validation import forward_all, summary

BETTER_HIGH = ("accuracy",)


class Recorder(Protocol):
    """Receives the predictions of a fixed split after every epoch (confusion score, correctness, ...)."""

    def record(self, epoch: int, ids: Any, logits: Any) -> object: ...


@dataclass
class Run:
    """What stays the same during a training, and the clock."""

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


def fit(
    dataset: Dataset,
    settings: Settings | None = None,
    *,
    scores: Scores | None = None,
    folder: str | Path | None = None,
    recorder: Recorder | None = None,
    on_epoch: Callable[[dict[str, float]], None] | None = None,
    checkpoint_seconds: float = 30.0,
) -> Trained:
    """Train a model; with a folder, an interrupted run goes on exactly where it was.

    Args:
        scores: difficulty of the training samples, for losses that weigh or group by it.
        folder: where checkpoints, log and the trained model are written.
        recorder: gets the predictions on the split `settings.record` after every epoch.
        on_epoch: gets the log's row after every epoch.
        checkpoint_seconds: least time between checkpoints; 0 writes one after every step.
    """
    settings = settings or Settings()
    where = Path(folder) if folder is not None else None
    device = Device.of(settings)
    with device.seeded(settings.seed, settings.deterministic):
        run = start(dataset, settings, scores, where, device, checkpoint_seconds)
        finished = _finished(run)
        if finished is not None:
            return finished
        if where is not None:
            note = resume.restore_checkpoint(run.state, where, run.identity)
            run.notes += [note] if note else []
        record_feed = _record_feed(dataset, run, recorder)
        steps_left = (settings.epochs - run.state.epoch) * run.order.steps - run.state.step
        with Progress(f"train {settings.loss}", steps_left) as progress:
            while run.state.epoch < settings.epochs:
                train_epoch(run, progress)
                row = end_epoch(run, recorder, record_feed, dataset)
                if on_epoch is not None:
                    on_epoch(row)
        return finish(run, dataset)


def start(
    dataset: Dataset,
    settings: Settings,
    scores: Scores | None,
    folder: Path | None,
    device: Device,
    checkpoint_seconds: float,
) -> Run:
    """Everything a training needs, checked, before its first step."""
    samples = choose_samples(dataset, settings)
    preparation = fit_preparation(dataset, samples.train, model=settings.model)
    model = build_model(settings, preparation, dataset.num_classes)
    placed = device.place(model)
    objective = Objective(settings, samples.train, dataset.num_classes, scores, device.device)
    scaler = torch.amp.GradScaler(device.device.type) if device.precision == "float16" else None
    state = State(placed, make_optimizer(placed, settings, device), objective, device, scaler)
    state.sums = state.sums.to(device.device)
    _check_validation(settings, objective, samples)
    groups = groups_of(settings, samples.train, scores) if settings.sampling == "groups" else None
    order = EpochOrder(samples.train, settings, groups)
    feed = Feed(samples.train, preparation, device.device, augment=settings.augment, seed=settings.seed)
    val_feed = None if samples.val is None else Feed(samples.val, preparation, device.device)
    if samples.val is not None:
        preparation.check(samples.val, "split 'val'")
    identity = {
        **settings.as_dict(),
        "device": str(device.device.type),
        "precision": device.precision,
        "dataset": dataset.name,
        "training samples": len(samples.train),
        "processes": 1,
    }
    rates = schedules.learning_rates(settings, order.steps)
    momenta = schedules.momenta(settings, order.steps)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        resume.clean(folder)
    return Run(settings, samples, state, feed, val_feed, order, rates, momenta, identity, folder, checkpoint_seconds)


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


def _finished(run: Run) -> Trained | None:
    if run.folder is None or not (run.folder / "model.safetensors").exists():
        return None
    trained = Trained.load(run.folder)
    if trained.settings.as_dict() != run.settings.as_dict():
        theirs, ours = trained.settings.as_dict(), run.settings.as_dict()
        key = next(k for k in ours if theirs.get(k) != ours[k])
        raise InputError(
            f"{run.folder} holds a model trained with {key} = {theirs.get(key)!r}, now {ours[key]!r}; "
            "choose another folder"
        )
    return trained


def train_epoch(run: Run, progress: Progress) -> None:
    """The steps of one epoch that are still to do."""
    state, settings = run.state, run.settings
    began = time.monotonic()
    state.model.train()
    run.feed.start_epoch(state.epoch)
    batches, every = run.order.batches(state.epoch)[state.step :], state.objective.update_every
    for inputs, rows in run.feed.batches(batches):
        position = state.epoch * run.order.steps + state.step
        set_rate(state.optimizer, run.rates[position], None if run.momenta is None else run.momenta[position])
        _guarded_step(run, inputs, rows)
        state.step += 1
        if every and state.step % every == 0 and state.step < run.order.steps:
            learn_from_validation(run)
        progress.step(1, f"epoch {state.epoch + 1}/{settings.epochs}")
        if state.step < run.order.steps:
            checkpoint_if_due(run)
    _add(run.timings, {"epoch": state.epoch, "train_seconds": time.monotonic() - began})


def _guarded_step(run: Run, inputs: torch.Tensor, rows: torch.Tensor) -> None:
    state = run.state
    try:
        mean = train_step(state, run.settings, inputs, run.feed.labels[rows], rows)
    except InputError:
        # A loss refuses logits that are not finite; here that means the training diverged.
        with torch.no_grad():
            finite = bool(torch.isfinite(state.model(inputs)).all())
        if finite:
            raise
        raise diverged(run, rows.cpu().numpy()) from None
    if not state.device.on_gpu and not math.isfinite(mean.item()):
        raise diverged(run, rows.numpy())


def learn_from_validation(run: Run) -> torch.Tensor:
    """Validation logits, after the loss has adapted to them if it does."""
    assert run.val_feed is not None
    logits = forward_all(run.state.model, run.val_feed, run.state.device)
    if run.state.objective.learns_from_validation:
        run.state.objective.update(logits, run.val_feed.labels)
    return logits


def end_epoch(run: Run, recorder: Recorder | None, record_feed: Feed | None, dataset: Dataset) -> dict[str, float]:
    """Validate, let loss and recorder learn of the epoch, write the log's row, choose, checkpoint."""
    state, settings = run.state, run.settings
    began = time.monotonic()
    loss, hits, count = state.sums.tolist()
    if not math.isfinite(loss):
        raise diverged(run, None)
    row: dict[str, float] = {
        "epoch": state.epoch,
        "learning_rate": float(run.rates[(state.epoch + 1) * run.order.steps - 1]),
        "train_loss": loss / count,
        "train_accuracy": hits / count,
    }
    val_logits = None
    if run.val_feed is not None:
        update = not state.objective.update_every
        val_logits = learn_from_validation(run) if update else forward_all(state.model, run.val_feed, state.device)
        row |= {f"val_{k}": v for k, v in summary(val_logits, run.val_feed.labels).items()}
    row |= state.objective.log()
    state.objective.end_epoch()
    if recorder is not None and record_feed is not None:
        same = record_feed is run.val_feed and val_logits is not None
        logits = val_logits if same else forward_all(state.model, record_feed, state.device)
        assert logits is not None
        recorder.record(state.epoch, dataset.split(settings.record).ids, logits.cpu().numpy())
    _add(state.log, row)
    _add(run.timings, {"val_seconds": time.monotonic() - began})
    _keep_best(run, row)
    state.epoch, state.step = state.epoch + 1, 0
    state.sums.zero_()
    if state.epoch < settings.epochs:
        checkpoint_if_due(run)
    return row


def _keep_best(run: Run, row: dict[str, float]) -> None:
    state, choose = run.state, run.settings.choose
    if choose == "last" or state.epoch < run.settings.choose_after:
        return
    value = row[f"val_{choose}"] * (-1 if choose in BETTER_HIGH else 1)
    if value < state.best_value:
        state.best_value, state.best_epoch = value, state.epoch
        state.best = {k: v.detach().clone() for k, v in state.model.state_dict().items()}


def checkpoint_if_due(run: Run) -> None:
    """Write a checkpoint when the last is older than asked."""
    now = time.monotonic()
    if run.folder is None or now - run.saved_at < run.checkpoint_seconds:
        return
    if not math.isfinite(run.state.sums[0].item()):
        raise diverged(run, None)
    resume.save_checkpoint(run.state, run.folder, run.identity, run.order.steps)
    run.saved_at = time.monotonic()


def diverged(run: Run, rows: NDArray[np.int64] | None) -> InputError:
    """The one clear line when the loss is no longer a number."""
    ids = [] if rows is None else [str(i) for i in run.samples.train.ids[rows][:5]]
    batch = f", batch with ids {', '.join(ids)}, ..." if ids else ""
    kept = resume.checkpoint_paths(run.folder) if run.folder is not None else []
    last = f"; the last good checkpoint is {kept[-1]}" if kept else ""
    return InputError(
        f"the loss became NaN or infinite at epoch {run.state.epoch + 1}, step {run.state.step + 1}{batch}{last}; "
        "lower the learning rate or set clip_norm"
    )


def finish(run: Run, dataset: Dataset) -> Trained:
    """The chosen weights as a record, written when there is a folder."""
    state = run.state
    if state.best is not None:
        state.model.load_state_dict(state.best)
    trained = Trained(
        state.model.eval().to("cpu"),  # type: ignore[arg-type]
        run.settings,
        run.feed.preparation,
        tuple(dataset.class_names),
        {k: np.array(v, dtype=np.float64) for k, v in state.log.items()},
        {k: v.cpu() for k, v in state.objective.loss.state_dict().items()},
        {k: np.array(v, dtype=np.float64) for k, v in run.timings.items()},
        state.best_epoch if state.best is not None else run.settings.epochs - 1,
        tuple(run.notes),
    )
    if run.folder is not None:
        trained.save(run.folder)
    return trained


def _record_feed(dataset: Dataset, run: Run, recorder: Recorder | None) -> Feed | None:
    if recorder is None:
        return None
    name = run.settings.record
    if name == "val" and run.val_feed is not None and "val" in dataset.splits:
        return run.val_feed
    return Feed(dataset.split(name), run.feed.preparation, run.state.device.device)


def _add(table: dict[str, list[float]], row: dict[str, float]) -> None:
    for name, value in row.items():
        table.setdefault(name, []).append(value)
