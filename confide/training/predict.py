"""predict: what a trained model says about any split, with Monte-Carlo dropout when asked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from confide.core.door import InputError, check_choice, check_range
from confide.core.predictions import Predictions
from confide.core.records import Dataset, Features, Split
from confide.training.device import Device
from confide.training.feed import Feed
from confide.training.trained import Trained
from confide.training.validation import logits_of, rows_in_batches, said_of


def predict(
    model: Trained | str | Path,
    dataset: Dataset | Split,
    split: str = "test",
    *,
    passes: int = 0,
    average: str = "logits",
    batch_size: int | None = None,
    device: str = "auto",
    foreign: bool = False,
) -> Predictions:
    """Predictions of a trained model on a split.

    Args:
        model: what `fit` returned, or the folder it wrote.
        dataset: a dataset that has the split, or a split of its own, then called `split`.
        passes: of Monte-Carlo dropout; 0 is one pass without dropout.
        average: of these passes, over logits or over probs.
        foreign: the samples are of other classes: labels become 0 and their own are kept in a column.
    """
    check_range(passes, "passes", 0)
    trained, samples = _given(model, dataset, split, batch_size)
    if foreign:
        kept = {**samples.columns, "foreign_label": samples.labels}
        samples = Split(samples.inputs, np.zeros_like(samples.labels), samples.ids, kept)
    else:
        _check_classes(trained, dataset, samples)
    where = _device(trained, device)
    feed = Feed(samples, trained.preparation, where.device, mirror_twice=trained.settings.mirror)
    network = where.place(trained.model).eval()
    # What tells groups apart goes along; features and other wide columns stay with the data.
    columns: dict[str, Any] = {name: values for name, values in samples.columns.items() if np.ndim(values) == 1}
    if passes:
        check_choice(average, ("logits", "probs"), "average")
        logits, spread = _dropout_passes(network, feed, where, passes, average, batch_size, trained.settings.seed)
        columns |= {"mc_entropy": spread[0].cpu().numpy(), "mc_mutual_information": spread[1].cpu().numpy()}
    else:
        logits = logits_of(network, feed, where, batch_size)
    trained.model.to("cpu")
    return Predictions(
        logits.cpu(),
        torch.as_tensor(samples.labels),
        ids=samples.ids,
        split=split,
        columns=columns,
        class_names=trained.class_names,
        from_probabilities=bool(passes) and average == "probs",
    )


def penultimate(
    model: Trained | str | Path, dataset: Dataset | Split, split: str = "test", *, batch_size: int | None = None
) -> Features:
    """Penultimate features of a trained model on a split."""
    trained, samples = _given(model, dataset, split, batch_size)
    where = _device(trained, "auto")
    feed = Feed(samples, trained.preparation, where.device)
    network = where.place(trained.model).eval()
    parts = []
    with torch.no_grad():
        for inputs, _ in feed.batches(rows_in_batches(len(feed), batch_size or where.forward_batch)):
            with where.autocast():
                parts.append(trained.model.features(inputs).float().cpu())
    network.to("cpu")
    return Features(torch.cat(parts).numpy(), samples.labels, samples.ids, f"model:{trained.settings.model}", split)


def _given(
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


def _device(trained: Trained, word: str) -> Device:
    """Where to predict; a model that was trained in float16 speaks float32 where there is no GPU."""
    settings = trained.settings.changed(device=word)
    usual = Device.of(settings.changed(precision="auto"))
    return usual if settings.precision == "float16" and not usual.on_gpu else Device.of(settings)


def _check_classes(trained: Trained, dataset: Dataset | Split, samples: Split) -> None:
    if len(samples) and int(np.max(samples.labels)) >= trained.num_classes:
        raise InputError(
            f"labels must lie in [0, {trained.num_classes}), the classes the model was trained on, "
            f"got {int(np.max(samples.labels))}; for data of other classes say foreign=True (--foreign)"
        )
    names = tuple(getattr(dataset, "class_names", ()))
    if names == tuple(str(i) for i in range(len(names))):
        # Numbers without names: they are the model's.
        return
    for number, (name, own) in enumerate(zip(names, trained.class_names, strict=False)):
        if name != own:
            raise InputError(
                f"class {number} is '{name}' in the data but '{own}' in the model; put the classes into the model's "
                "order, or say foreign=True (--foreign) for data of other classes"
            )


@torch.no_grad()
def _dropout_passes(
    network: nn.Module, feed: Feed, where: Device, passes: int, average: str, batch_size: int | None, seed: int
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """(averaged logits, (entropy of the mean probability, mutual information)) of passes with dropout on."""
    dropouts = [m for m in network.modules() if isinstance(m, nn.modules.dropout._DropoutNd) and m.p > 0]
    if not dropouts:
        raise InputError(
            "Monte-Carlo dropout needs a model with dropout, but this one has none; set its option dropout"
        )
    total = probs = entropy = torch.zeros((), dtype=torch.float64, device=where.device)
    for number in range(passes):
        with where.seeded(seed + 1_000_003 * (number + 1), deterministic=False):
            logits = _with_dropout(network, dropouts, feed, where, batch_size).double()
        p = torch.softmax(logits, dim=1)
        total, probs, entropy = total + logits, probs + p, entropy + torch.special.entr(p).sum(dim=1)
    mean_probs = probs / passes
    whole = torch.special.entr(mean_probs).sum(dim=1)
    information = (whole - entropy / passes).clamp_min(0)
    averaged = total / passes if average == "logits" else mean_probs.clamp_min(1e-12).log()
    return averaged.float(), (whole.float(), information.float())


def _with_dropout(
    network: nn.Module, dropouts: Sequence[nn.Module], feed: Feed, where: Device, batch_size: int | None
) -> Tensor:
    parts = []
    network.eval()
    for module in dropouts:
        module.train()
    for inputs, _ in feed.batches(rows_in_batches(len(feed), batch_size or where.forward_batch)):
        parts.append(said_of(network, inputs, feed, where))
    network.eval()
    return torch.cat(parts)
