"""The steps of one epoch, eagerly or by replaying a captured graph, with checkpoints between them."""

from __future__ import annotations

import math
import time
from contextlib import suppress

import torch
from torch import Tensor, nn

from confide.core.door import InputError
from confide.core.progress import Progress
from confide.core.simplex import check
from confide.training import resume
from confide.training.device import short_of_memory
from confide.training.graph import GraphStep
from confide.training.run import Run
from confide.training.step import forward_backward, note_bad, set_rate, train_step
from confide.training.validation import learn_from_validation, settle_average

STEPS_BETWEEN_LOOKS = 20
"""Steps after which several processes ask the leading one whether a checkpoint is due."""


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
                with run.graph.around():
                    at = torch.from_numpy(rows).to(state.device.device)
                    eager_step(run, run.feed.gather(at[run.world.own(len(rows))]), at)
            after_step(run, progress)
    else:
        own = [rows[run.world.own(len(rows))] for rows in batches[state.step :]]
        for rows, (inputs, _) in zip(batches[state.step :], run.feed.batches(own), strict=True):
            eager_step(run, inputs, torch.from_numpy(rows).to(state.device.device))
            after_step(run, progress)
    run.timings.setdefault("epoch", []).append(state.epoch)
    if state.device.on_gpu:
        torch.cuda.synchronize(state.device.device)
    run.timings.setdefault("train_seconds", []).append(time.monotonic() - began)


def eager_step(run: Run, inputs: Tensor, rows: Tensor) -> None:
    """One step; on the CPU a loss that is not finite stops at once, on a GPU at the next look."""
    state, position, mean = run.state, run.position(), None
    set_rate(state.optimizer, run.rates[position], None if run.momenta is None else run.momenta[position])
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
        if not short_of_memory(error):
            raise
    if mean is None:
        # Only here: inside the handler the error's traceback still holds all that the failed step had computed.
        raise out_of_memory(run, inputs, rows)
    if not state.device.on_gpu:
        if not math.isfinite(mean.item()):
            raise diverged(run, state.step)
    else:
        note_bad(state, mean, torch.full_like(state.first_bad, state.step))


def after_step(run: Run, progress: Progress) -> None:
    """Count the step; let the loss adapt and write a checkpoint where they are due."""
    state, every = run.state, run.state.objective.update_every
    state.step += 1
    inside = state.step < run.order.steps
    if inside and every and state.step % every == 0 and run.val_feed is not None:
        settle_average(state, run.feed)
        learn_from_validation(state, run.val_feed, adapt=True)
    progress.step(1, _note(run))
    if inside:
        checkpoint_if_due(run)


def _note(run: Run) -> str:
    log = run.state.log
    note = f"epoch {run.state.epoch + 1}/{run.settings.epochs}"
    if log.get("train_loss"):
        note += f"  loss {log['train_loss'][-1]:.3f}"
    if log.get("val_accuracy"):
        note += f"  val accuracy {100 * log['val_accuracy'][-1]:.1f} %  ECE {100 * log['val_ece'][-1]:.1f} %"
    return note


def checkpoint_if_due(run: Run) -> None:
    """Write a checkpoint when the last is older than asked; all processes do it at the same step."""
    if run.folder is None:
        return
    if run.world.size > 1 and run.checkpoint_seconds and run.state.step % STEPS_BETWEEN_LOOKS:
        # Agreeing takes a message; not at every step.
        return
    due = time.monotonic() - run.saved_at >= run.checkpoint_seconds
    if not run.world.agree(due, run.state.device.device):
        return
    check_finite(run)
    resume.save_checkpoint(run.state, run.folder, run.identity, run.order.steps)
    run.saved_at = time.monotonic()


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
    kept = resume.checkpoint_paths(run.folder) if run.folder is not None else []
    last = f"; the last good checkpoint is {kept[-1]}" if kept else ""
    return InputError(
        f"{what} became NaN or infinite at epoch {run.state.epoch + 1}, step {step + 1}, batch with ids {ids}, ..."
        f"{last}; lower the learning rate or set clip_norm"
    )


def out_of_memory(run: Run, inputs: Tensor, rows: Tensor) -> InputError:
    """The one clear line when a batch does not fit, with the largest power of two below it that was seen to fit."""
    where, whole = run.state.device.device, len(rows)
    said = f"a batch of {whole} does not fit into the memory of {where}"
    if run.world.size > 1:
        # The other processes are not here to take part in a try.
        return InputError(f"{said} in each of {run.world.size} processes; try a batch_size of {max(whole // 2, 1)}")
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
        return InputError(f"{said}; a batch_size of {size} does")
    return InputError(f"{said}, nor does one sample; use a smaller model")
