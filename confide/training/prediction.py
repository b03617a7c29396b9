"""What a trained model predicts on any split: logits in batches, Monte-Carlo dropout, penultimate features; and the
few numbers that the training log keeps of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from confide.block_sizes import HEAD_ROWS
from confide.checks import InputError, check_choice, check_range
from confide.facts import SMALLEST_PROBABILITY, facts_of
from confide.metrics import calibration_test
from confide.models.base import Classifier
from confide.models.device import Device, is_out_of_memory
from confide.models.preparation import Feed, rows_in_batches
from confide.numerics.binning import calibration_error
from confide.predictions import Predictions
from confide.progress import Progress
from confide.records import Dataset, Features, Split
from confide.training.checkpoint import Trained
from confide.types import Columns

# One forward pass over a split, and the few numbers of it that the training log keeps.


def logits_of(
    model: nn.Module,
    feed: Feed,
    device: Device,
    batch_size: int | None = None,
    rows: slice = slice(None),
    progress: Progress | None = None,
) -> Tensor:
    """Logits of the samples in order, float32, from the model in eval mode; the mode it had is put back.

    A batch that does not fit into memory is halved until it does.
    """
    was_training, size = model.training, batch_size or device.forward_batch
    start, stop, _ = rows.indices(len(feed))
    model.eval()
    try:
        while True:
            try:
                return _logits_in_batches(model, feed, device, range(start, stop), size, progress)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
            # Only here has the failed batch been let go.
            if size == 1:
                raise InputError(f"one sample does not fit into the memory of {device.device}; use a smaller model")
            size //= 2
            if device.on_gpu:
                torch.cuda.empty_cache()
    finally:
        model.train(was_training)


@torch.no_grad()
def _logits_in_batches(
    model: nn.Module, feed: Feed, device: Device, rows: range, size: int, progress: Progress | None
) -> Tensor:
    logits = []
    for inputs, _ in feed.batches([batch + rows.start for batch in rows_in_batches(len(rows), size)]):
        logits.append(batch_logits(model, inputs, feed, device))
        if progress is not None:
            progress.step(len(inputs))
    return torch.cat(logits)


def batch_logits(model: nn.Module, inputs: Tensor, feed: Feed, device: Device) -> Tensor:
    """Logits of a batch, float32; the mean with those of its mirror images where the feed asks for it."""
    return _mean_logits(model, _views(inputs, feed), device)


def _views(inputs: Tensor, feed: Feed) -> list[Tensor]:
    """What a model sees of a batch: its images, and their mirror images where the feed asks for them."""
    return [inputs, inputs.flip(-1)] if feed.mirror_twice else [inputs]


def _mean_logits(model: Callable[[Tensor], Tensor], views: Sequence[Tensor], device: Device) -> Tensor:
    with device.autocast():
        logits = [model(view).float() for view in views]
    return sum(logits[1:], logits[0]) / len(logits)


CHANCE_DRAWS = 200


def log_metrics(logits: Tensor, labels: Tensor) -> dict[str, float]:
    """nll, accuracy, brier and ece (15 bins of equal width) of validation predictions, from one softmax.

    `ece_by_chance` is what a perfectly calibrated model with this confidence would show.
    """
    facts = facts_of(logits, labels)
    correct = facts.correct.double().cpu().numpy()
    confidence = facts.confidence.double().cpu().numpy()
    return {
        "nll": float(facts.need("nll").double().mean()),
        "accuracy": float(correct.mean()),
        "brier": float(facts.need("brier").double().mean()),
        "ece": calibration_error(confidence, correct),
        "ece_by_chance": calibration_test(
            Predictions.from_pairs(correct, confidence), "ece", resamples=CHANCE_DRAWS
        ).mean,
    }


# Predictions of a trained model.


def predict(
    model: Trained | str | Path,
    dataset: Dataset | Split,
    split: str = "test",
    *,
    passes: int = 0,
    average: str = "logits",
    batch_size: int | None = None,
    device: str = "auto",
    ood: bool = False,
) -> Predictions:
    """Predictions of a trained model on a split.

    Args:
        model: what `fit` returned, or the folder it wrote.
        dataset: a dataset that has the split, or a split of its own, then called `split`.
        split: which samples.
        passes: of Monte-Carlo dropout; 0 is one pass without dropout.
        average: of these passes, over logits or over probs.
        batch_size: samples at a time; by default what suits the device.
        device: auto, cpu or cuda.
        ood: the samples are out of distribution, of other classes: labels become 0 and their own go to the column
            `foreign_label`.

    Returns:
        Logits with labels, ids and the split's columns; Monte-Carlo passes add `mc_entropy` and
        `mc_mutual_information`.

    Raises:
        InputError: the samples are not of the model's kind, shape or classes.

    Example:
        >>> import numpy as np
        >>> dataset = confide.load_dataset((np.eye(20), np.arange(20) % 2))
        >>> settings = confide.training.Settings(model="mlp", epochs=1, batch_size=8, device="cpu")
        >>> trained = confide.training.fit(dataset, settings)
        >>> confide.training.predict(trained, dataset.train, "train").logits.shape
        torch.Size([16, 2])
    """
    check_range(passes, "passes", 0)
    trained, samples = _model_and_samples(model, dataset, split, batch_size)
    if ood:
        own_labels = {**samples.columns, "foreign_label": samples.labels}
        samples = Split(samples.inputs, np.zeros_like(samples.labels), samples.ids, own_labels)
    else:
        _check_classes(trained, dataset, samples)
    precision, deterministic = trained.settings.precision, trained.settings.deterministic
    where = Device.for_prediction(device, precision, deterministic=deterministic)
    feed = Feed(samples, trained.preparation, where.device, mirror_twice=trained.settings.mirror)
    network = where.place(trained.model).eval()
    # What tells groups apart goes along; features and other wide columns stay with the data.
    columns: Columns = {name: values for name, values in samples.columns.items() if np.ndim(values) == 1}
    with Progress(f"predict {split}", max(passes, 1) * len(samples)) as progress:
        if passes:
            check_choice(average, ("logits", "probs"), "average")
            seed = trained.settings.seed
            logits, spread = _dropout_passes(network, feed, where, passes, average, batch_size, seed, progress)
            columns |= {"mc_entropy": spread[0].cpu().numpy(), "mc_mutual_information": spread[1].cpu().numpy()}
        else:
            logits = logits_of(network, feed, where, batch_size, progress=progress)
    trained.model.to("cpu")
    averaged = bool(passes) and average == "probs"
    return (Predictions.from_log_probs if averaged else Predictions)(
        logits.cpu(),
        torch.as_tensor(samples.labels),
        ids=samples.ids,
        split=split,
        columns=columns,
        class_names=trained.class_names,
    )


def penultimate(
    model: Trained | str | Path, dataset: Dataset | Split, split: str = "test", *, batch_size: int | None = None
) -> Features:
    """Penultimate features of a trained model on a split: what enters its last layer.

    Args:
        model: what `fit` returned, or the folder it wrote.
        dataset: a dataset that has the split, or a split of its own, then called `split`.
        split: which samples.
        batch_size: samples at a time; by default what suits the device.

    Returns:
        One row per sample, with labels and ids.

    Example:
        >>> import numpy as np
        >>> dataset = confide.load_dataset((np.eye(20), np.arange(20) % 2))
        >>> settings = confide.training.Settings(model="mlp", epochs=1, batch_size=8, device="cpu")
        >>> trained = confide.training.fit(dataset, settings)
        >>> confide.training.penultimate(trained, dataset.train, "train").values.shape
        (16, 256)
    """
    trained, samples = _model_and_samples(model, dataset, split, batch_size)
    values = trained.network.penultimate_rows(samples, batch_size=batch_size)
    return Features(values, samples.labels, samples.ids, f"model:{trained.settings.model}", split)


def _model_and_samples(
    model: Trained | str | Path, dataset: Dataset | Split, split: str, batch_size: int | None
) -> tuple[Trained, Split]:
    """The model and samples that it can take."""
    if batch_size is not None:
        check_range(batch_size, "batch_size", 1)
    trained = Trained.load(model) if isinstance(model, (str, Path)) else model
    samples = dataset.split(split) if isinstance(dataset, Dataset) else dataset
    if not len(samples):
        raise InputError(f"split '{split}' must hold at least one sample, got none; choose another")
    trained.preparation.check(samples, f"split '{split}'")
    return trained, samples


def _check_classes(trained: Trained, dataset: Dataset | Split, samples: Split) -> None:
    if len(samples) and int(np.max(samples.labels)) >= trained.num_classes:
        raise InputError(
            f"labels must lie in [0, {trained.num_classes}), the classes the model was trained on, "
            f"got {int(np.max(samples.labels))}; for data of other classes say ood=True (--ood)"
        )
    names = tuple(getattr(dataset, "class_names", ()))
    if names == tuple(str(i) for i in range(len(names))):
        # Numbers without names: they are the model's.
        return
    for number, (name, own) in enumerate(zip(names, trained.class_names, strict=False)):
        if name != own:
            raise InputError(
                f"class {number} is '{name}' in the data but '{own}' in the model; put the classes into the model's "
                "order, or say ood=True (--ood) for data of other classes"
            )


@torch.no_grad()
def _dropout_passes(
    network: nn.Module,
    feed: Feed,
    where: Device,
    passes: int,
    average: str,
    batch_size: int | None,
    seed: int,
    progress: Progress,
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """(averaged logits, (entropy of the mean probability, mutual information)) of passes with dropout on."""
    dropouts = [m for m in network.modules() if isinstance(m, nn.modules.dropout._DropoutNd) and m.p > 0]
    if not dropouts:
        raise InputError(
            "Monte-Carlo dropout needs a model with dropout, but this one has none; set its option dropout"
        )
    network.eval()
    for module in dropouts:
        module.train()
    blocks = [
        _pass_means(logits, passes, average)
        for logits in _blocks_of_passes(network, dropouts, feed, where, passes, batch_size, seed, progress)
    ]
    network.eval()
    averaged, whole, information = (torch.cat(parts) for parts in zip(*blocks, strict=True))
    return averaged, (whole, information)


def _blocks_of_passes(
    network: nn.Module,
    dropouts: Sequence[nn.Module],
    feed: Feed,
    where: Device,
    passes: int,
    batch_size: int | None,
    seed: int,
    progress: Progress,
) -> Iterator[Iterator[Tensor]]:
    """Logits of every pass, of some samples after the other.

    Where only what enters the head is dropped, the rest of the network runs once for all passes.
    """
    batches = rows_in_batches(len(feed), batch_size or where.forward_batch)
    head_only = isinstance(network, Classifier) and list(dropouts) == [network.dropout]
    together = max(1, HEAD_ROWS // len(batches[0])) if head_only else len(batches)

    def passes_of(first: int) -> Iterator[Tensor]:
        block = batches[first : first + together]
        model: Callable[[Tensor], Tensor] = network
        head_inputs: list[list[Tensor]] = []
        if isinstance(network, Classifier) and head_only:
            model = network.logits_of
            with where.autocast():
                head_inputs = [[network.features(view) for view in _views(x, feed)] for x, _ in feed.batches(block)]
        for number in range(passes):
            with where.seeded(seed + 1_000_003 * (number + 1) + first, deterministic=False):
                views = head_inputs or (_views(inputs, feed) for inputs, _ in feed.batches(block))
                logits = torch.cat([_mean_logits(model, each, where) for each in views])
            progress.step(len(logits))
            yield logits.double()

    yield from map(passes_of, range(0, len(batches), together))


def _pass_means(passes_logits: Iterator[Tensor], passes: int, average: str) -> tuple[Tensor, Tensor, Tensor]:
    """Averaged logits, entropy of the mean probability and mutual information over the passes."""
    total = probs = entropy = torch.zeros((), dtype=torch.float64)
    for logits in passes_logits:
        p = torch.softmax(logits, dim=1)
        total, probs, entropy = total + logits, probs + p, entropy + torch.special.entr(p).sum(dim=1)
    mean_probs = probs / passes
    whole = torch.special.entr(mean_probs).sum(dim=1)
    information = (whole - entropy / passes).clamp_min(0)
    averaged = total / passes if average == "logits" else mean_probs.clamp_min(SMALLEST_PROBABILITY).log()
    return averaged.float(), whole.float(), information.float()
