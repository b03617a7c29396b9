"""fit: one readable loop that trains any model with any loss, and goes on where it was killed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from confide.core.door import InputError, check_choice
from confide.core.progress import Progress
from confide.core.records import Dataset, Scores
from confide.training import resume
from confide.training.device import Device
from confide.training.distributed import joined
from confide.training.epoch import check_finite, checkpoint_if_due, train_epoch
from confide.training.feed import Feed
from confide.training.identity import first_difference, refuse_other
from confide.training.run import Run, start
from confide.training.settings import Settings
from confide.training.trained import Trained, build_model
from confide.training.validation import forward_all, learn_from_validation, settle_average, summary

BETTER_HIGH = ("accuracy",)


class Recorder(Protocol):
    """Receives the predictions of a fixed split after every epoch (confusion score, correctness, ...)."""

    def record(self, epoch: int, ids: Any, outputs: Any, *, member: int = 0) -> object: ...


def fit(
    dataset: Dataset,
    settings: Settings | None = None,
    *,
    scores: Scores | None = None,
    folder: str | Path | None = None,
    recorder: Recorder | None = None,
    member: int = 0,
    on_epoch: Callable[[dict[str, float]], None] | None = None,
    checkpoint_seconds: float = 30.0,
    if_other: str = "refuse",
) -> Trained:
    """Train a model; with a folder, an interrupted run goes on exactly where it was.

    Args:
        scores: difficulty of the training samples, for losses that weigh or group by it.
        folder: where checkpoints, log and the trained model are written.
        recorder: gets the logits on the split `settings.record` after every epoch, as those of `member`.
        on_epoch: gets the log's row after every epoch.
        checkpoint_seconds: least time between checkpoints; 0 writes one after every step.
        if_other: what to do with a folder that holds a training of other settings or data: refuse, or restart.
    """
    settings = settings or Settings()
    check_choice(if_other, ("refuse", "restart"), "if_other")
    where = Path(folder) if folder is not None else None
    device = Device.of(settings)
    with joined(device.device) as world, device.seeded(settings.seed, settings.deterministic):
        run = start(dataset, settings, scores, where, device, world, checkpoint_seconds)
        # All processes must see the same files: the one that writes them must not be writing.
        world.wait()
        done = finished(run, if_other)
        if done is not None:
            return done
        if world.rank:
            # Dropout must differ between processes; the weights were drawn before.
            torch.manual_seed(settings.seed + world.rank)
        if where is not None:
            note = resume.restore_checkpoint(run.state, where)
            run.notes += [note] if note else []
        record_feed = _record_feed(dataset, run, recorder)
        steps_left = settings.epochs * run.order.steps - run.position()
        patience = 2.0 if world.leads else math.inf
        with Progress(f"train {settings.loss}", steps_left, patience=patience) as progress:
            while run.state.epoch < settings.epochs:
                train_epoch(run, progress)
                row = end_epoch(run, dataset, recorder, record_feed, member)
                if on_epoch is not None and world.leads:
                    on_epoch(row)
        return finish(run, dataset)


def end_epoch(
    run: Run, dataset: Dataset, recorder: Recorder | None, record_feed: Feed | None, member: int
) -> dict[str, float]:
    """Validate, let loss and recorder learn of the epoch, write the log's row, choose, checkpoint."""
    state, settings = run.state, run.settings
    began = time.monotonic()
    check_finite(run)
    loss, hits, count = state.sums.tolist()
    row: dict[str, float] = {
        "epoch": state.epoch,
        "learning_rate": float(run.rates[(state.epoch + 1) * run.order.steps - 1]),
        "train_loss": loss / count,
        "train_accuracy": hits / count,
    }
    settle_average(state, run.feed)
    val_logits = None
    if run.val_feed is not None:
        val_logits = learn_from_validation(state, run.val_feed, adapt=not state.objective.update_every)
        row |= {f"val_{k}": v for k, v in summary(val_logits, run.val_feed.labels).items()}
    row |= state.objective.log()
    state.objective.end_epoch()
    if recorder is not None and record_feed is not None:
        logits = val_logits if record_feed is run.val_feed else forward_all(state, record_feed)
        if run.world.leads:
            recorder.record(state.epoch, dataset.split(settings.record).ids, _numpy(logits), member=member)
    add_row(state.log, row)
    add_row(run.timings, {"val_seconds": time.monotonic() - began})
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
        state.best = {k: v.detach().clone() for k, v in state.speaker.state_dict().items()}


def finish(run: Run, dataset: Dataset) -> Trained:
    """The chosen weights as a record, written when there is a folder."""
    state = run.state
    weights = state.best if state.best is not None else state.speaker.state_dict()
    if state.best is None and run.settings.choose != "last":
        run.notes.append(f"the last epoch is kept: none comes after choose_after={run.settings.choose_after}")
    # A fresh model: the trained one may carry wrappers of its device or of several processes.
    model = build_model(run.settings, run.feed.preparation, dataset.num_classes, load_pretrained=False)
    model.load_state_dict({k: v.cpu() for k, v in weights.items()})
    trained = Trained(
        model.eval(),
        run.settings,
        run.feed.preparation,
        tuple(dataset.class_names),
        {k: np.array(v, dtype=np.float64) for k, v in state.log.items()},
        {k: v.cpu() for k, v in state.objective.loss.state_dict().items()},
        {k: np.array(v, dtype=np.float64) for k, v in run.timings.items()},
        state.best_epoch if state.best is not None else run.settings.epochs - 1,
        tuple(run.notes),
        run.identity,
    )
    if run.folder is not None and run.world.leads:
        trained.save(run.folder)
    run.world.wait()
    return trained


def finished(run: Run, if_other: str) -> Trained | None:
    """The model that an earlier call finished in the folder; another training's leftovers go or are refused."""
    if run.folder is None:
        return None
    trained = _read_finished(run, run.folder)
    if trained is not None:
        # A finished model is the same on every device.
        told = {
            k: run.identity.get(k) if k in ("device", "precision", "processes") else v
            for k, v in trained.identity.items()
        }
        difference = first_difference(told, run.identity)
    else:
        difference = resume.difference(run.folder, run.identity)
    if difference is None:
        return trained
    if if_other == "refuse":
        refuse_other(run.folder, difference)
    run.world.wait()
    if run.world.leads:
        resume.start_over(run.folder)
    run.world.wait()
    return None


def _read_finished(run: Run, folder: Path) -> Trained | None:
    """The finished model; one that was damaged is made again from the training's own checkpoints."""
    if not (folder / "model.safetensors").exists():
        return None
    try:
        return Trained.load(folder)
    except InputError:
        # Without checkpoints the file may be anybody's: it is not written over.
        if not resume.checkpoint_paths(folder):
            raise
        run.notes.append("the finished model was damaged and is made again")
        return None


def _record_feed(dataset: Dataset, run: Run, recorder: Recorder | None) -> Feed | None:
    if recorder is None:
        return None
    name = run.settings.record
    if name == "val" and run.val_feed is not None and "val" in dataset.splits:
        return run.val_feed
    return Feed(dataset.split(name), run.feed.preparation, run.state.device.device, mirror_twice=run.settings.mirror)


def _numpy(logits: Tensor | None) -> Any:
    assert logits is not None
    return logits.cpu().numpy()


def add_row(table: dict[str, list[float]], row: dict[str, float]) -> None:
    """A row at the end of a table of columns."""
    for name, value in row.items():
        table.setdefault(name, []).append(value)
