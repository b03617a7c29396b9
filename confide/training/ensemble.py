"""Ensembles: members that differ in their seed, trained one after another or as one stacked model, and what they
predict together.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state

from confide import models
from confide.checks import InputError, check_range
from confide.facts import SMALLEST_PROBABILITY
from confide.models.device import Device
from confide.models.preparation import Feed, input_shape, rows_in_batches
from confide.models.trained import MODEL_FILE
from confide.predictions import Predictions
from confide.progress import Progress
from confide.records import Dataset, Scores, Split
from confide.training import loop
from confide.training.checkpoint import Trained, checkpoint_paths
from confide.training.distributed import World, held
from confide.training.loop import PredictionRecorder, fit
from confide.training.prediction import predict
from confide.training.settings import Settings, cycled_momenta, learning_rates
from confide.training.state import make_optimizer
from confide.training.steps import Run, add_to_sums, note_non_finite, set_rate, start_run

# Members that differ in their seed, and what they predict together.


def fit_members(
    dataset: Dataset,
    settings: Settings | None = None,
    *,
    members: int = 3,
    scores: Scores | None = None,
    folder: str | Path | None = None,
    recorder: PredictionRecorder | None = None,
    stack: bool | None = None,
    on_epoch: Callable[[int, dict[str, float]], None] | None = None,
    checkpoint_seconds: float = 30.0,
    if_other: str = "refuse",
) -> tuple[Trained, ...]:
    """Train members with seeds seed, seed + 1, ...: one after another, or all at once as one stacked model.

    Args:
        dataset: with a split `train`.
        settings: of every member but for the seed; without them the default ones.
        members: how many.
        scores: difficulty of the training samples, for losses that weigh or group by it.
        folder: each member has a folder `member-<number>` in it.
        recorder: gets every member's predictions after each epoch.
        stack: train all at once; by default where a GPU is there and the model is small. Stacked members are drawn
            as single ones are, but their rounding differs, and an interrupted stack starts again.
        on_epoch: gets a member's number and the log's row after each of its epochs.
        checkpoint_seconds: least time between checkpoints of single members.
        if_other: what to do with folders that hold a training of other settings or data: refuse, or restart.

    Returns:
        The trained members, by seed.

    Raises:
        InputError: members that cannot be stacked, with `stack=True`.

    Example:
        >>> import numpy as np
        >>> dataset = confide.load_dataset((np.eye(20), np.arange(20) % 2))
        >>> settings = confide.training.Settings(model="mlp", epochs=1, batch_size=8, device="cpu")
        >>> len(confide.training.fit_members(dataset, settings, members=2))
        2
    """
    check_range(members, "members", 1, MOST_MEMBERS)
    settings = settings or Settings()
    folders = [None if folder is None else Path(folder) / f"member-{number}" for number in range(members)]
    reason = reason_against_stacking(dataset, settings)
    if stack and reason is not None:
        raise InputError(f"members cannot be stacked: {reason}; leave out stack=True")
    try_stack = small_on_gpu(dataset, settings) if stack is None and reason is None else bool(stack)
    if try_stack and members > 1 and begins_as_stack(folders):
        with suppress(torch.OutOfMemoryError), ExitStack() as stacked:
            for member_folder in folders:
                stacked.enter_context(held(member_folder))
            trained = fit_stacked(dataset, settings, members, scores, folders, recorder, on_epoch, if_other)
            if trained is not None:
                return trained
        torch.cuda.empty_cache()
        if stack:
            raise InputError("members cannot be stacked: together they do not fit into memory; leave out stack=True")
    return tuple(
        fit(
            dataset,
            settings.changed(seed=settings.seed + number),
            scores=scores,
            folder=member_folder,
            recorder=recorder,
            member=number,
            on_epoch=None if on_epoch is None else partial(on_epoch, number),
            checkpoint_seconds=checkpoint_seconds,
            if_other=if_other,
        )
        for number, member_folder in enumerate(folders)
    )


def member_folders(folder: str | Path) -> list[Path]:
    """The members' folders in the folder of an ensemble, in order; empty where it is none.

    Args:
        folder: what `fit_members` was given.

    Returns:
        Those that hold a trained model.

    Example:
        >>> confide.training.member_folders(".")
        []
    """
    folders = [path for path in Path(folder).glob("member-*") if (path / MODEL_FILE).exists()]
    return sorted(folders, key=lambda path: int(path.name.rpartition("-")[2]))


def predict_members(
    members: Sequence[Trained | str | Path] | str | Path,
    dataset: Dataset | Split,
    split: str = "test",
    **options: Any,
) -> Predictions:
    """Predictions of the members together: the logarithm of their mean probability.

    Columns hold `ensemble_entropy` (of the mean), `ensemble_mutual_information` and `ensemble_disagreement` (share of
    members whose class is not that of the mean).

    Args:
        members: what `fit_members` returned, their folders, or the folder of them all.
        dataset: a dataset that has the split, or a split of its own, then called `split`.
        split: which samples.
        options: of `predict`.

    Returns:
        One record for the ensemble.

    Raises:
        InputError: a folder without members.

    Example:
        >>> import numpy as np
        >>> dataset = confide.load_dataset((np.eye(20), np.arange(20) % 2))
        >>> settings = confide.training.Settings(model="mlp", epochs=1, batch_size=8, device="cpu")
        >>> members = confide.training.fit_members(dataset, settings, members=2)
        >>> predictions = confide.training.predict_members(members, dataset.train, "train")
        >>> predictions.columns["ensemble_disagreement"].shape
        (16,)
    """
    models_or_folders = member_folders(members) if isinstance(members, (str, Path)) else members
    if not models_or_folders:
        raise InputError(f"an ensemble needs at least one member, got none in {members}")
    each = [predict(member, dataset, split, **options) for member in models_or_folders]
    probs = torch.stack([torch.softmax(predictions.logits.double(), dim=1) for predictions in each])
    mean = probs.mean(dim=0)
    entropy = torch.special.entr(mean).sum(dim=1)
    own = torch.special.entr(probs).sum(dim=2).mean(dim=0)
    other = (probs.argmax(dim=2) != mean.argmax(dim=1)).double().mean(dim=0)
    # The spread of the first member's dropout passes is not that of the ensemble.
    columns = {
        **{name: values for name, values in each[0].columns.items() if not name.startswith("mc_")},
        "ensemble_entropy": entropy.numpy(),
        "ensemble_mutual_information": (entropy - own).clamp_min(0).numpy(),
        "ensemble_disagreement": other.numpy(),
    }
    return Predictions.from_log_probs(
        mean.clamp_min(SMALLEST_PROBABILITY).log().float(),
        each[0].labels,
        ids=each[0].ids,
        split=split,
        columns=columns,
        class_names=each[0].class_names,
    )


# Members of an ensemble as one stacked model: every weight has one more dimension, and one pass trains them all.

MOST_MEMBERS = 10_000
OF_A_STACK = "of a stack of"
STACKING_LIMIT = 2_000_000
"""Parameters of a model that gains from stacking: beyond, one member alone keeps a GPU busy."""


def reason_against_stacking(dataset: Dataset, settings: Settings) -> str | None:
    """Why members cannot be stacked, or None."""
    if settings.clip_norm is not None:
        return "clip_norm is of each member's own gradient"
    if settings.choose != "last":
        return "each member chooses its own epoch"
    if settings.average or settings.mirror:
        return "averages of weights and mirror images are made in single trainings"
    if settings.compile:
        return "networks are compiled in single trainings"
    if settings.precision == "float16":
        return "float16 scales each member's loss on its own"
    if settings.label_noise or "val" not in dataset.splits:
        return "noise and validation split are drawn by each member's seed"
    word = models.method(settings.model)[0].word
    if word in ("timm", "hf", "features", "text_cnn"):
        return f"model '{settings.model}' is not made of stackable layers"
    return None


def small_on_gpu(dataset: Dataset, settings: Settings) -> bool:
    """Whether stacking gains: one process on a GPU, and a model that would leave it idle."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 or not Device.of(settings.device).on_gpu:
        return False
    with torch.device("meta"):
        # Sizes alone: no memory is taken and no random number drawn.
        model = models.create(
            settings.model, input_shape(dataset.train), dataset.num_classes, **dict(settings.model_options)
        )
    return models.parameter_count(model) <= STACKING_LIMIT


def begins_as_stack(folders: Sequence[Path | None]) -> bool:
    """Whether no member was trained or begun on its own: such folders go on as they were."""
    for folder in folders:
        if folder is None:
            continue
        if checkpoint_paths(folder):
            return False
        if (folder / MODEL_FILE).exists() and not any(OF_A_STACK in note for note in Trained.load(folder).notes):
            return False
    return True


class Stack:
    """The members' runs (data order, feeds, objectives are each one's own) over one set of stacked weights."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = runs
        members = [run.state.model for run in runs]
        parameters, buffers = stack_module_state(members)
        self.parameters: dict[str, Tensor] = {k: nn.Parameter(v.detach()) for k, v in parameters.items()}
        self.buffers = {k: v.detach() for k, v in buffers.items()}
        self.shell = members[0]
        self.device = runs[0].state.device

    def forward(self, inputs: Tensor, *, training: bool) -> Tensor:
        """Logits of every member on its own inputs, members x n x c."""
        self.shell.train(training)

        def member(parameters: dict[str, Tensor], buffers: dict[str, Tensor], batch: Tensor) -> Tensor:
            logits: Tensor = functional_call(self.shell, (parameters, buffers), (batch,))
            return logits

        with self.device.autocast(), _norms_without_cudnn(self.shell):
            logits: Tensor = torch.func.vmap(member, randomness="different")(self.parameters, self.buffers, inputs)
        return logits.float()

    def weights(self, number: int) -> dict[str, Tensor]:
        """The weights of one member."""
        return {k: v[number].detach().cpu().clone() for k, v in {**self.parameters, **self.buffers}.items()}


@contextmanager
def _norms_without_cudnn(model: nn.Module) -> Iterator[None]:
    """cuDNN's batch norm asks its input for a memory format, which vmap cannot answer; torch's own does not ask."""

    def alone(forward: Callable[[Tensor], Tensor], batch: Tensor) -> Tensor:
        with torch.backends.cudnn.flags(enabled=False):
            # Its backward wants one dtype for the batch and the statistics, which autocast leaves in float32.
            return forward(batch.float()).to(batch.dtype)

    norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.forward = partial(alone, norm.forward)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for norm in norms:
            del norm.forward


def fit_stacked(
    dataset: Dataset,
    settings: Settings,
    members: int,
    scores: Scores | None,
    folders: Sequence[Path | None],
    recorder: PredictionRecorder | None,
    on_epoch: Callable[[int, dict[str, float]], None] | None,
    if_other: str,
) -> tuple[Trained, ...] | None:
    """Train all members at once; None where their data do not fit into memory together."""
    device = Device.of(settings.device, settings.precision, deterministic=settings.deterministic)
    runs = []
    for number in range(members):
        own = settings.changed(seed=settings.seed + number)
        with device.seeded(own.seed, own.deterministic):
            runs.append(start_run(dataset, own, scores, folders[number], device, World(), math.inf))
    finished = [loop.finished_before(run, if_other) for run in runs]
    if all(finished):
        return tuple(trained for trained in finished if trained is not None)
    if not all(run.feed.resident for run in runs):
        return None
    stack = Stack(runs)
    optimizer = make_optimizer(nn.ParameterList(stack.parameters.values()), settings, device)
    steps = runs[0].order.steps
    rates, momenta = learning_rates(settings, steps), cycled_momenta(settings, steps)
    with device.seeded(settings.seed, settings.deterministic), Progress("train members", settings.epochs) as progress:
        for epoch in range(settings.epochs):
            began = time.monotonic()
            batches = [run.order.batches(epoch) for run in runs]
            for run in runs:
                run.feed.start_epoch(epoch)
                run.state.sums.zero_()
                run.state.epoch = epoch
            for step in range(steps):
                position = epoch * steps + step
                set_rate(optimizer, *2 * (rates[position],), None if momenta is None else momenta[position])
                _step(stack, optimizer, [rows[step] for rows in batches], step)
            _end_stack_epoch(stack, dataset, recorder)
            for number, run in enumerate(runs):
                if on_epoch is not None:
                    on_epoch(number, {k: v[-1] for k, v in run.state.log.items()})
                loop.add_row(run.timings, {"epoch": epoch, "train_seconds": time.monotonic() - began})
            progress.step(1, f"{members} members, loss {runs[0].state.log['train_loss'][-1]:.3f}")
    return tuple(_finished_member(stack, number, dataset) for number in range(members))


def _step(stack: Stack, optimizer: torch.optim.Optimizer, rows: Sequence[Any], step: int) -> None:
    rows_of_members = [torch.from_numpy(own).to(stack.device.device) for own in rows]
    inputs = torch.stack([run.feed.gather(own) for run, own in zip(stack.runs, rows_of_members, strict=True)])
    stacked_logits = stack.forward(inputs, training=True)
    total = stacked_logits.new_zeros(())
    for run, own, logits in zip(stack.runs, rows_of_members, stacked_logits, strict=True):
        labels = run.feed.labels[own]
        try:
            target, mean = run.state.objective(logits, labels, own)
        except InputError:
            if bool(torch.isfinite(logits).all()):
                raise
            raise loop.diverged(run, step) from None
        note_non_finite(run.state, mean, torch.full_like(run.state.first_bad, step))
        total = total + target
        add_to_sums(run.state, mean, (logits.detach().argmax(dim=1) == labels).sum(), len(own))
    optimizer.zero_grad(set_to_none=True)
    total.backward()
    optimizer.step()


def _end_stack_epoch(stack: Stack, dataset: Dataset, recorder: PredictionRecorder | None) -> None:
    first = stack.runs[0]
    feed = first.val_feed
    assert feed is not None
    stacked_logits = _stack_logits(stack, feed)
    for run, logits in zip(stack.runs, stacked_logits, strict=True):
        loop.check_finite(run)
        if run.state.objective.learns_from_validation:
            run.state.objective.update(logits, feed.labels)
        loop.add_row(run.state.log, loop.log_row(run, logits))
        run.state.objective.loss.end_epoch()
    if recorder is not None:
        name = first.settings.record
        if name != "val":
            stacked_logits = _stack_logits(stack, Feed(dataset.split(name), feed.preparation, stack.device.device))
        for number, logits in enumerate(stacked_logits):
            recorder.record(first.state.epoch, dataset.split(name).ids, logits.cpu().numpy(), member=number)


@torch.no_grad()
def _stack_logits(stack: Stack, feed: Feed) -> Tensor:
    batches = feed.batches(rows_in_batches(len(feed), stack.device.forward_batch))
    copies = (inputs.expand(len(stack.runs), *inputs.shape) for inputs, _ in batches)
    return torch.cat([stack.forward(inputs, training=False) for inputs in copies], dim=1)


def _finished_member(stack: Stack, number: int, dataset: Dataset) -> Trained:
    run = stack.runs[number]
    run.notes.append(f"trained as member {number} {OF_A_STACK} {len(stack.runs)}")
    trained = loop.trained_model(run, dataset, stack.weights(number), run.settings.epochs - 1)
    if run.folder is not None:
        trained.save(run.folder)
    return trained
