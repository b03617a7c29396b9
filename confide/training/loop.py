"""fit: one readable loop that trains any model with any loss, and goes on where it was killed.

Top to bottom: the loop, the steps of an epoch, its end (validation, log, choice of weights), checkpoints, the trained
model, and what stops a training. One step itself is in `steps`, what it minimises in `objective`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from confide import metrics
from confide.checks import InputError, check_choice
from confide.models.device import Device, is_out_of_memory
from confide.models.preparation import Feed
from confide.models.trained import MODEL_FILE, build_model
from confide.progress import Progress
from confide.records import Dataset, Scores
from confide.simplex.statistics import check
from confide.training import checkpoint
from confide.training.batch_norm import exact_batch_norms
from confide.training.checkpoint import Trained, first_difference
from confide.training.distributed import held, process_group, unwrapped
from confide.training.prediction import log_metrics, logits_of
from confide.training.settings import Settings
from confide.training.state import State
from confide.training.steps import GraphStep, Run, forward_backward, note_non_finite, set_rate, start_run, train_step

STEPS_BETWEEN_CHECKS = 20
"""Steps after which several processes ask the leading one whether a checkpoint is due."""
STATISTICS_SAMPLES = 2000
"""Training samples from which batch norms of averaged weights take their statistics."""


# The loop.


class PredictionRecorder(Protocol):
    """Receives the predictions of a fixed split after every epoch (confusion score, correctness, ...)."""

    def record(self, epoch: int, ids: Any, outputs: Any, *, member: int = 0) -> object: ...


def fit(
    dataset: Dataset,
    settings: Settings | None = None,
    *,
    scores: Scores | None = None,
    folder: str | Path | None = None,
    recorder: PredictionRecorder | None = None,
    member: int = 0,
    on_epoch: Callable[[dict[str, float]], None] | None = None,
    checkpoint_seconds: float = 30.0,
    if_other: str = "refuse",
) -> Trained:
    """Train a model; with a folder, an interrupted run goes on exactly where it was.

    Args:
        dataset: with a split `train`; where `val` is missing it is held out of it.
        settings: of the training; without them the default ones.
        scores: difficulty of the training samples, for losses that weigh or group by it.
        folder: where checkpoints, log and the trained model are written.
        recorder: gets the logits on the split `settings.record` after every epoch, as those of `member`.
        member: number of the training in an ensemble.
        on_epoch: gets the log's row after every epoch.
        checkpoint_seconds: least time between checkpoints; 0 writes one after every step.
        if_other: what to do with a folder that holds a training of other settings or data: refuse, or restart.

    Returns:
        The model with the chosen weights, its preparation of inputs, and its log.

    Raises:
        InputError: settings and data do not go together, the loss diverges, memory runs out, or another process
            writes the folder.

    Example:
        >>> import numpy as np
        >>> dataset = confide.load_dataset((np.eye(20), np.arange(20) % 2))
        >>> settings = confide.training.Settings(model="mlp", epochs=1, batch_size=8, device="cpu")
        >>> trained = confide.training.fit(dataset, settings)
        >>> [name for name in trained.log if name.startswith("val")]
        ['val_nll', 'val_accuracy', 'val_brier', 'val_ece', 'val_ece_by_chance']
    """
    settings = settings or Settings()
    check_choice(if_other, ("refuse", "restart"), "if_other")
    where = Path(folder) if folder is not None else None
    device = Device.of(settings.device, settings.precision, deterministic=settings.deterministic)
    with (
        held(where),
        process_group(device.device) as world,
        device.seeded(settings.seed, settings.deterministic),
    ):
        run = start_run(dataset, settings, scores, where, device, world, checkpoint_seconds)
        # All processes must see the same files: the one that writes them must not be writing.
        world.wait()
        finished = finished_before(run, if_other)
        if finished is not None:
            return finished
        if world.rank:
            # Dropout must differ between processes; the weights were drawn before.
            torch.manual_seed(settings.seed + world.rank)
        if where is not None:
            note = checkpoint.restore_checkpoint(run.state, where)
            run.process_notes += [note] if note else []
        record_feed = _record_feed(dataset, run, recorder)
        steps_left = settings.epochs * run.order.steps - run.position()
        patience = 2.0 if world.is_lead else math.inf
        with Progress(f"train {settings.loss}", steps_left, patience=patience) as progress:
            while run.state.epoch < settings.epochs:
                train_epoch(run, progress)
                row = end_epoch(run, dataset, recorder, record_feed, member)
                if on_epoch is not None and world.is_lead:
                    on_epoch(row)
        return finish_run(run, dataset)


def _record_feed(dataset: Dataset, run: Run, recorder: PredictionRecorder | None) -> Feed | None:
    if recorder is None:
        return None
    name = run.settings.record
    if name == "val" and run.val_feed is not None and "val" in dataset.splits:
        return run.val_feed
    return Feed(dataset.split(name), run.feed.preparation, run.state.device.device, mirror_twice=run.settings.mirror)


# The steps of one epoch, eagerly or by replaying a captured graph.


def train_epoch(run: Run, progress: Progress) -> None:
    """The steps of this epoch that are still to do."""
    state = run.state
    began = time.monotonic()
    state.model.train()
    run.feed.start_epoch(state.epoch)
    batches = run.order.batches(state.epoch)
    if run.graph is None:
        run.graph = GraphStep.of(run)
    run.graph.start_epoch(batches, state.epoch)
    if run.feed.resident:
        for rows in batches[state.step :]:
            if not run.graph.replay(len(rows)):
                with run.graph.stream_context():
                    rows_there = torch.from_numpy(rows).to(state.device.device)
                    eager_step(run, run.feed.gather(rows_there[run.world.own(len(rows))]), rows_there)
            after_step(run, progress)
    else:
        own = [rows[run.world.own(len(rows))] for rows in batches[state.step :]]
        for rows, (inputs, _) in zip(batches[state.step :], run.feed.batches(own), strict=True):
            eager_step(run, inputs, torch.from_numpy(rows).to(state.device.device))
            after_step(run, progress)
    if state.device.on_gpu:
        torch.cuda.synchronize(state.device.device)
    add_row(run.timings, {"epoch": state.epoch, "train_seconds": time.monotonic() - began})


def eager_step(run: Run, inputs: Tensor, rows: Tensor) -> None:
    """One step; on the CPU a loss that is not finite stops at once, on a GPU at the next look."""
    state, position, mean = run.state, run.position(), None
    momentum = None if run.momenta is None else run.momenta[position]
    set_rate(state.optimizer, run.rates[position], run.body_rates[position], momentum)
    try:
        mean = train_step(state, run.settings, inputs, run.feed.labels[rows], rows)
    except InputError:
        # A loss refuses logits that are not finite; in a training that means it diverged.
        with torch.no_grad():
            finite = bool(torch.isfinite(state.model(inputs)).all())
        if finite:
            raise
        raise diverged(run, state.step) from None
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise InputError(
            f"a batch of {len(rows)} is too small for this model's batch norms; use more samples"
        ) from None
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
    if mean is None:
        # Only here: inside the handler the error's traceback still holds all that the failed step had computed.
        raise out_of_memory(run, inputs, rows)
    if not state.device.on_gpu:
        if not math.isfinite(mean.item()):
            raise diverged(run, state.step)
    else:
        note_non_finite(state, mean, torch.full_like(state.first_bad, state.step))


def after_step(run: Run, progress: Progress) -> None:
    """Count the step; let the loss adapt and write a checkpoint where they are due."""
    state, every = run.state, run.state.objective.loss.update_every
    state.step += 1
    inside = state.step < run.order.steps
    if inside and every and state.step % every == 0 and run.val_feed is not None:
        recompute_average_statistics(state, run.feed)
        learn_from_validation(run, run.val_feed, adapt=True)
    progress.step(1, _note(run))
    if inside:
        checkpoint_if_due(run)


def _note(run: Run) -> str:
    log = run.state.log
    note = f"epoch {run.state.epoch + 1}/{run.settings.epochs}"
    if log.get("train_loss"):
        note += f"  loss {log['train_loss'][-1]:.3f}"
    if log.get("val_accuracy"):
        infos = metrics.explain(("accuracy", "ece"))
        note += "  val " + ", ".join(f"{word} {info.text(log[f'val_{word}'][-1])}" for word, info in infos.items())
        if log.get("val_ece_by_chance"):  # a checkpoint written before it was logged has none
            note += f" (by chance {infos['ece'].text(log['val_ece_by_chance'][-1])})"
    return note


# The end of an epoch: predictions on val, the log's row, the best weights so far.


def end_epoch(
    run: Run, dataset: Dataset, recorder: PredictionRecorder | None, record_feed: Feed | None, member: int
) -> dict[str, float]:
    """Validate, let loss and recorder learn of the epoch, write the log's row, choose, checkpoint."""
    state, settings = run.state, run.settings
    began = time.monotonic()
    check_finite(run)
    recompute_average_statistics(state, run.feed)
    val_logits = None
    if run.val_feed is not None:
        val_logits = learn_from_validation(run, run.val_feed, adapt=not state.objective.loss.update_every)
    row = log_row(run, val_logits)
    state.objective.loss.end_epoch()
    if recorder is not None and record_feed is not None:
        logits = val_logits if record_feed is run.val_feed else forward_all(state, record_feed)
        assert logits is not None
        if run.world.is_lead:
            recorder.record(state.epoch, dataset.split(settings.record).ids, logits.cpu().numpy(), member=member)
    add_row(state.log, row)
    add_row(run.timings, {"val_seconds": time.monotonic() - began})
    _keep_best(run, row)
    state.epoch, state.step = state.epoch + 1, 0
    state.sums.zero_()
    if state.epoch < settings.epochs:
        checkpoint_if_due(run)
    return row


def log_row(run: Run, val_logits: Tensor | None) -> dict[str, float]:
    """What the log keeps of the epoch that ends: means over its steps, metrics on val, what the loss tells."""
    state = run.state
    loss, hits, count = state.sums.tolist()
    row: dict[str, float] = {
        "epoch": state.epoch,
        "learning_rate": float(run.rates[(state.epoch + 1) * run.order.steps - 1]),
        "train_loss": loss / count,
        "train_accuracy": hits / count,
    }
    if run.val_feed is not None and val_logits is not None:
        row |= {f"val_{k}": v for k, v in log_metrics(val_logits, run.val_feed.labels).items()}
    return row | state.objective.loss.log()


def recompute_average_statistics(state: State, feed: Feed) -> None:
    """Make the running mean of the weights, where one is kept, ready to predict: some training samples pass through."""
    if state.average is None:
        return
    rows = np.unique(np.linspace(0, len(feed) - 1, min(len(feed), STATISTICS_SAMPLES)).astype(np.int64))
    parts = np.array_split(rows, math.ceil(len(rows) / state.device.forward_batch))
    # Several processes share batches and statistics here as they do in a step.
    parts = [part[state.world.own(len(part))] for part in parts]
    with state.device.autocast(), exact_batch_norms(state.device.device, state.world):
        state.average.recompute_statistics(unwrapped(state.model), (inputs for inputs, _ in feed.batches(parts)))


def forward_all(state: State, feed: Feed) -> Tensor:
    """Logits of a split during training; several processes share the work."""
    if len(feed) < state.world.size:
        return logits_of(state.predicting_model, feed, state.device)
    part = logits_of(state.predicting_model, feed, state.device, rows=state.world.own(len(feed)))
    return state.world.gather(part, len(feed))


def learn_from_validation(run: Run, feed: Feed, *, adapt: bool) -> Tensor:
    """Validation logits, after the loss has adapted to them if it does."""
    state = run.state
    logits = forward_all(state, feed)
    if not bool(torch.isfinite(logits).all()):
        # Finite weights may be so large that what they give is not.
        raise diverged(run, state.step - 1, "a validation output")
    if adapt and state.objective.learns_from_validation:
        state.objective.update(logits, feed.labels)
    return logits


def _keep_best(run: Run, row: dict[str, float]) -> None:
    state, choose = run.state, run.settings.choose
    if choose == "last" or state.epoch < run.settings.choose_after:
        return
    value = row[f"val_{choose}"] * (-1 if metrics.explain([choose])[choose].better == "higher" else 1)
    if value < state.best_value:
        state.best_value, state.best_epoch = value, state.epoch
        state.best = {k: v.detach().clone() for k, v in state.predicting_model.state_dict().items()}


def add_row(table: dict[str, list[float]], row: dict[str, float]) -> None:
    """A row at the end of a table of columns; one that starts late, as after an older checkpoint, has NaN before."""
    rows = max((len(table[name]) for name in row if name in table), default=0)
    for name, value in row.items():
        table.setdefault(name, [math.nan] * rows).append(value)


# Checkpoints, and what an earlier call left in the folder.


def checkpoint_if_due(run: Run) -> None:
    """Write a checkpoint when the last is older than asked; all processes do it at the same step."""
    if run.folder is None:
        return
    if run.world.size > 1 and run.checkpoint_seconds and run.state.step % STEPS_BETWEEN_CHECKS:
        # Agreeing takes a message; not at every step.
        return
    due = time.monotonic() - run.saved_at >= run.checkpoint_seconds
    if not run.world.agree(due, run.state.device.device):
        return
    check_finite(run)
    checkpoint.save_checkpoint(run.state, run.folder, run.identity, run.order.steps)
    run.saved_at = time.monotonic()


def finished_before(run: Run, if_other: str) -> Trained | None:
    """The model that an earlier call finished in the folder; another training's leftovers go or are refused."""
    if run.folder is None:
        return None
    trained = _read_finished(run, run.folder)
    if trained is not None:
        # A finished model is the same on every device.
        device, precision, processes = run.identity.device, run.identity.precision, run.identity.processes
        here = replace(trained.identity, device=device, precision=precision, processes=processes)
        difference = first_difference(here, run.identity)
    else:
        difference = checkpoint.difference_from_checkpoint(run.folder, run.identity)
    if difference is None:
        return trained
    if if_other == "refuse":
        raise difference.refusal(run.folder)
    run.world.wait()
    if run.world.is_lead:
        checkpoint.remove_training(run.folder)
    run.world.wait()
    return None


def _read_finished(run: Run, folder: Path) -> Trained | None:
    """The finished model; one that was damaged is made again from the training's own checkpoints."""
    if not (folder / MODEL_FILE).exists():
        return None
    try:
        return Trained.load(folder)
    except InputError:
        # Without checkpoints the file may be anybody's: it is not written over.
        if not checkpoint.checkpoint_paths(folder):
            raise
        run.process_notes.append("the finished model was damaged and is made again")
        return None


# The trained model.


def finish_run(run: Run, dataset: Dataset) -> Trained:
    """The chosen weights as a record, written when there is a folder."""
    state = run.state
    weights = state.best if state.best is not None else state.predicting_model.state_dict()
    if state.best is None and run.settings.choose != "last":
        run.notes.append(f"the last epoch is kept: none comes after choose_after={run.settings.choose_after}")
    chosen_epoch = state.best_epoch if state.best is not None else run.settings.epochs - 1
    trained = trained_model(run, dataset, weights, chosen_epoch)
    if run.folder is not None and run.world.is_lead:
        trained.save(run.folder)
    run.world.wait()
    return trained


def trained_model(run: Run, dataset: Dataset, weights: Mapping[str, Tensor], chosen_epoch: int) -> Trained:
    """A run's record with these weights."""
    # A fresh model: the trained one may carry wrappers of its device or of several processes.
    model = build_model(
        run.settings.model, run.settings.model_options, run.feed.preparation, dataset.num_classes, load_pretrained=False
    )
    model.load_state_dict({k: v.cpu() for k, v in weights.items()})
    return Trained(
        model.eval(),
        run.settings,
        run.feed.preparation,
        tuple(dataset.class_names),
        {k: np.array(v, dtype=np.float64) for k, v in run.state.log.items()},
        {k: v.cpu() for k, v in run.state.objective.loss.state_dict().items()},
        {k: np.array(v, dtype=np.float64) for k, v in run.timings.items()},
        chosen_epoch,
        tuple(run.notes),
        run.identity,
        tuple(run.process_notes),
    )


# What stops a training.


def check_finite(run: Run) -> None:
    """Stop where a loss of this epoch or a weight is not finite, or a row on a GPU was marked as bad."""
    bad = int(run.state.first_bad)
    if bad >= 0 or not math.isfinite(run.state.sums[0].item()):
        with suppress(InputError):
            # The mark says the same; it is read here so that it does not stop a later training.
            check()
        raise diverged(run, max(bad, 0))
    if not _finite_weights(run.state.model):
        # A finite loss may have a gradient that is not: such weights must not become the last good checkpoint.
        raise diverged(run, max(run.state.step - 1, 0), "a weight")
    check()


def _finite_weights(model: nn.Module) -> bool:
    # Of each its largest value, NaN if there is one: a single wait for the device.
    largest = torch._foreach_norm([weights.detach() for weights in model.parameters() if weights.numel()], ord=math.inf)
    return bool(torch.isfinite(torch.stack([value.float() for value in largest])).all())


def diverged(run: Run, step: int, what: str = "the loss") -> InputError:
    """The one clear line when the loss is no longer a number."""
    rows = run.order.batches(run.state.epoch)[min(step, run.order.steps - 1)]
    ids = ", ".join(str(i) for i in run.samples.train.ids[rows][:5])
    checkpoints = checkpoint.checkpoint_paths(run.folder) if run.folder is not None else []
    last = f"; the last good checkpoint is {checkpoints[-1]}" if checkpoints else ""
    return InputError(
        f"{what} became NaN or infinite at epoch {run.state.epoch + 1}, step {step + 1}, batch with ids {ids}, ..."
        f"{last}; lower the learning rate or set clip_norm"
    )


def out_of_memory(run: Run, inputs: Tensor, rows: Tensor) -> InputError:
    """The one clear line when a batch does not fit, with the largest power of two below it that was seen to fit."""
    where, whole = run.state.device.device, len(rows)
    problem = f"a batch of {whole} does not fit into the memory of {where}"
    if run.world.size > 1:
        # The other processes are not here to take part in a try.
        return InputError(f"{problem} in each of {run.world.size} processes; try a batch_size of {max(whole // 2, 1)}")
    size = 1 << (whole - 1).bit_length() >> 1
    while size >= 1:
        run.state.optimizer.zero_grad(set_to_none=True)
        if where.type == "cuda":
            torch.cuda.empty_cache()
        try:
            forward_backward(run.state, inputs[:size], run.feed.labels[rows[:size]], rows[:size])
        except RuntimeError:
            size //= 2
            continue
        return InputError(f"{problem}; a batch_size of {size} does")
    return InputError(f"{problem}, nor does one sample; use a smaller model")
