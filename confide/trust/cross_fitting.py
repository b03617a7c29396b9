"""Honest errors of a classifier that makes few on its training data: folds by id, out-of-fold and augmented
predictions.

An oracle learns from mistakes. On the training split a good classifier has almost none left, so an oracle fitted there
learns to trust everything. Fit it on held-out predictions; where there are too few, on out-of-fold predictions of the
training split, or on predictions of augmented inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from confide import random
from confide.checks import InputError, as_tensor, check_labels, check_range
from confide.numerics.logistic import fit_linear_classifier
from confide.predictions import Predictions
from confide.progress import Progress
from confide.records import Features, default_ids

# Folds that stay with a sample: by a hash of its id, stratified by correctness.

Folds = NDArray[np.int64]
COPY_COLUMN = "copy_of"
"""Column of predictions that tells copies of one sample: augmented inputs."""


def stratified_folds(predictions: Predictions, folds: int, seed: int = 0) -> Folds:
    """Fold 0..folds-1 of every sample; right and wrong predictions are each spread evenly over the folds.

    Copies of one sample, which the column `copy_of` names, go to one fold: no copy is scored by what learned another.
    """
    correct = predictions.facts.correct.cpu().numpy()
    names, member = predictions.ids, np.arange(len(correct))
    if COPY_COLUMN in predictions.columns:
        names, member = np.unique(predictions.columns[COPY_COLUMN], return_inverse=True)
        correct = np.bincount(member, ~correct, len(names)) == 0
    if len(correct) < folds:
        raise InputError(f"folds must be at most the number of samples, {len(correct)}, got {folds}; take fewer")
    return random.folds(names, correct, folds, seed=seed, purpose="trust folds")[member]


# The problem of missing errors: ways to get honest errors of a classifier that makes few on its training data.
#
# An oracle learns from mistakes. On the training split a good classifier has almost none left, so an oracle fitted
# there learns to trust everything. Fit it on held-out predictions; where there are too few, on out-of-fold
# predictions of the training split, or on predictions of augmented inputs.

Classify = Callable[[Any], Tensor]
"""Inputs of some samples -> their logits."""
TrainClassifier = Callable[[Any, Tensor], Classify]
"""(inputs of some samples, their labels) -> a classifier."""


def out_of_fold(
    inputs: Any,
    labels: Any = None,
    *,
    train: TrainClassifier | None = None,
    num_classes: int | None = None,
    folds: int = 5,
    seed: int = 0,
    split: str = "train",
) -> Predictions:
    """Predictions of every training sample by a classifier that was trained without its fold.

    Args:
        inputs: a `Features` record, `n d` rows, or anything that takes an index array when `train` is given.
        labels: class of every sample; a `Features` record brings its own.
        train: how to train a classifier; by default a linear head on standardised rows (`linear_classifier`).
        folds: how many classifiers are trained; more folds are nearer to the full classifier and cost more.
        num_classes: width of the logits; by default the largest label + 1.
        seed: of the folds, which are drawn by id and balanced within classes.
        split: what the predictions say they are of.

    Returns:
        `Predictions` of all samples, in their order.

    Raises:
        InputError: `train` gives logits of another number of classes.

    Example:
        >>> import torch
        >>> i = torch.arange(60)
        >>> labels = i % 3
        >>> noise = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
        >>> rows = torch.eye(3)[labels] + 0.1 * noise
        >>> predictions = confide.trust.out_of_fold(rows, labels, folds=3)
        >>> len(predictions), float(predictions.facts.correct.double().mean())
        (60, 1.0)
    """
    ids = inputs.ids if isinstance(inputs, Features) else None
    if isinstance(inputs, Features):
        labels, inputs = inputs.labels if labels is None else labels, inputs.values
    truth = as_tensor(labels, "labels")
    truth = check_labels(truth, len(inputs), num_classes)
    ids = default_ids(len(truth)) if ids is None else ids
    classes = num_classes or int(truth.max()) + 1
    fold = random.folds(ids, truth.numpy(), folds, seed=seed, purpose="trust folds")
    logits = torch.empty(len(truth), classes)
    train = train or (lambda rows, known: linear_classifier(rows, known, num_classes=classes))
    with Progress("out-of-fold classifiers", folds) as progress:
        for number in range(folds):
            inside, outside = np.flatnonzero(fold == number), np.flatnonzero(fold != number)
            fold_logits = train(inputs[outside], truth[torch.from_numpy(outside)])(inputs[inside]).detach()
            if fold_logits.shape != (len(inside), classes):
                raise InputError(f"train must give logits of {classes} classes, got shape {tuple(fold_logits.shape)}")
            logits[torch.from_numpy(inside)] = fold_logits.to(torch.float32).cpu()
            progress.step()
    return Predictions(logits, truth, ids, split)


def linear_classifier(rows: Any, labels: Tensor, *, num_classes: int, penalty: float = 1e-3) -> Classify:
    """Multinomial logistic regression on standardised rows, mean cross-entropy + penalty |W|^2 / 2, by L-BFGS.

    Args:
        rows: features `n d`.
        labels: their classes.
        num_classes: width of the logits.
        penalty: of the squared weights; larger is simpler.

    Returns:
        A function of further rows: their logits.

    Example:
        >>> import torch
        >>> i = torch.arange(60)
        >>> labels = i % 3
        >>> noise = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
        >>> rows = torch.eye(3)[labels] + 0.1 * noise
        >>> classify = confide.trust.linear_classifier(rows, labels, num_classes=3)
        >>> bool((classify(rows).argmax(dim=1) == labels).all())
        True
    """
    known = as_tensor(rows, "features").to(torch.float32)
    fitted = fit_linear_classifier(known, labels, num_classes, penalty)
    return lambda features: fitted(as_tensor(features, "features")).to(torch.float32)


def augmented(
    classify: Callable[[Tensor], tuple[Tensor, Tensor]],
    inputs: Tensor,
    labels: Any,
    augment: Callable[[Tensor, torch.Generator], Tensor],
    *,
    times: int = 2,
    seed: int = 0,
    split: str = "train",
    batch: int = 512,
) -> tuple[Predictions, Tensor]:
    """Predictions and features of `times` augmented copies of the inputs: more errors, but of harder inputs.

    The column `copy_of` tells which input each is of, so that folds keep copies of one together.

    Args:
        classify: a batch of inputs -> (logits, features).
        augment: (a batch of inputs, generator) -> the same batch changed at random.
        inputs: of all samples, anything that `torch.split` takes.
        labels: their classes.
        times: copies of every input.
        seed: of the generator that `augment` is given.
        split: what the predictions say they are of.
        batch: inputs at once.

    Returns:
        Predictions and feature rows of all copies, in the same order.

    Example:
        >>> import torch
        >>> classify = lambda inputs: (inputs, inputs)
        >>> augment = lambda inputs, generator: inputs + torch.randn(inputs.shape, generator=generator)
        >>> labels = torch.arange(6) % 3
        >>> predictions, features = confide.trust.augmented(classify, torch.eye(3)[labels], labels, augment, times=2)
        >>> len(predictions), tuple(features.shape)
        (12, (12, 3))
        >>> predictions.columns['copy_of'].tolist()
        [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5]
    """
    check_range(times, "times", 1)
    generator = torch.Generator().manual_seed(seed)
    logits, features = [], []
    with torch.no_grad(), Progress("augmented predictions", times * len(inputs)) as progress:
        for _ in range(times):
            for block in torch.split(inputs, batch):
                batch_logits, seen = classify(augment(block, generator))
                logits.append(batch_logits.cpu())
                features.append(seen.cpu())
                progress.step(len(block))
    columns = {COPY_COLUMN: np.tile(np.arange(len(inputs)), times)}
    truth = as_tensor(labels, "labels").repeat(times)
    return Predictions(torch.cat(logits), truth, split=split, columns=columns), torch.cat(features)
