"""Training logs that difficulty is read from: probabilities of a fixed evaluation set, per member and epoch.

`ProbabilityLog` keeps all of them (arrays or memory-mapped shards); `RunningLog` keeps only running statistics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from confide.core.door import InputError, as_tensor, check_labels, check_probs
from confide.core.predictions import Predictions
from confide.core.records import Ids, check_ids, default_ids

Float64 = NDArray[np.float64]
Labels = NDArray[np.int64]
Choice = str | int | Iterable[int]
"""Epochs or members: "all", "last", one number or several."""
BLOCK_ELEMENTS = 1 << 18
"""Probabilities of one working block: it stays in cache while the members are averaged."""


class Log(Protocol):
    """What the words `confusion`, `entropy`, `correctness` and `loss` ask of a training log."""

    @property
    def ids(self) -> Ids: ...

    @property
    def labels(self) -> Labels | None: ...

    def mean_entropy(self, epochs: Choice, members: Choice) -> Float64:
        """Mean over epochs of the entropy of the member mean, in nats."""

    def correct_frequency(self, epochs: Choice, members: Choice) -> Float64:
        """Share of epochs and members that predict the label."""

    def mean_loss(self, epochs: Choice, members: Choice) -> Float64:
        """Mean over epochs and members of -log p_y."""


@dataclass(frozen=True, eq=False)
class ProbabilityLog:
    """Probabilities `n c` by member and epoch; `shards[member][epoch]` is anything sliced by rows."""

    shards: tuple[tuple[Any, ...], ...]
    epochs: tuple[int, ...]
    ids: Ids
    labels: Labels | None = None

    @property
    def members(self) -> int:
        return len(self.shards)

    def choose(self, epochs: Choice, members: Choice) -> ProbabilityLog:
        """The log of some epochs (by their numbers) and members (by position)."""
        wanted = _chosen(epochs, self.epochs, "epochs")
        kept = [self.epochs.index(e) for e in wanted]
        rows = _chosen(members, tuple(range(self.members)), "members")
        return replace(self, shards=tuple(tuple(self.shards[m][e] for e in kept) for m in rows), epochs=wanted)

    def mean_entropy(self, epochs: Choice = "all", members: Choice = "all") -> Float64:
        """Mean over epochs of the entropy of the member mean, in nats."""
        chosen = self.choose(epochs, members)
        first, step = chosen.shards[0][0], self._block_rows()
        entropy = EntropyOfMean(min(step, len(self.ids)), int(first.shape[1]), first.dtype == np.float64)
        total = np.zeros(len(self.ids))
        for epoch in range(len(chosen.epochs)):
            arrays = [member[epoch] for member in chosen.shards]
            for start in range(0, len(self.ids), step):
                part = slice(start, start + step)
                total[part] += entropy([array[part] for array in arrays])
        return total / len(chosen.epochs)

    def correct_frequency(self, epochs: Choice = "all", members: Choice = "all") -> Float64:
        """Share of epochs and members that predict the label; ties go to the lowest class."""
        return self.choose(epochs, members)._mean_of(lambda probs, labels: probs.argmax(axis=1) == labels)

    def mean_loss(self, epochs: Choice = "all", members: Choice = "all") -> Float64:
        """Mean over epochs and members of -log p_y; a probability that underflowed counts as half the smallest."""
        chosen = self.choose(epochs, members)
        # Half floats end at 6e-8; below, the loss is not known and must not become infinite.
        floor = 3e-8 if chosen.shards[0][0].dtype == np.float16 else 1e-12
        return chosen._mean_of(
            lambda probs, labels: -np.log(np.maximum(probs[np.arange(len(labels)), labels].astype(np.float64), floor))
        )

    def _mean_of(self, function: Callable[[Any, Labels], Any]) -> Float64:
        labels = need_labels(self.labels)
        total, step = np.zeros(len(labels)), self._block_rows()
        for member in self.shards:
            for array in member:
                for start in range(0, len(labels), step):
                    part = slice(start, start + step)
                    total[part] += function(np.asarray(array[part]), labels[part])
        return total / (self.members * len(self.epochs))

    def _block_rows(self) -> int:
        return max(1, BLOCK_ELEMENTS // int(self.shards[0][0].shape[1]))


@dataclass(frozen=True, eq=False)
class RunningLog:
    """Running statistics only: enough for each word's own choice of epochs, nothing else."""

    ids: Ids
    labels: Labels | None
    epochs: tuple[int, ...]
    entropy_sum: Float64
    last_entropy: Float64
    correct_sum: Float64
    loss_sum: Float64
    last_loss: Float64
    members: int

    def mean_entropy(self, epochs: Choice = "all", members: Choice = "all") -> Float64:
        """Mean over epochs of the entropy of the member mean, in nats."""
        return self._pick(epochs, members, self.entropy_sum / len(self.epochs), self.last_entropy)

    def correct_frequency(self, epochs: Choice = "all", members: Choice = "all") -> Float64:
        """Share of epochs and members that predict the label."""
        need_labels(self.labels)
        return self._pick(epochs, members, self.correct_sum / (self.members * len(self.epochs)), None)

    def mean_loss(self, epochs: Choice = "all", members: Choice = "all") -> Float64:
        """Mean over epochs and members of -log p_y."""
        need_labels(self.labels)
        return self._pick(epochs, members, self.loss_sum / (self.members * len(self.epochs)), self.last_loss)

    def _pick(self, epochs: Choice, members: Choice, every: Float64, last: Float64 | None) -> Float64:
        if isinstance(members, str) and members == "all":
            if isinstance(epochs, str) and epochs == "all":
                return every
            if isinstance(epochs, str) and epochs == "last" and last is not None:
                return last
        raise InputError("a subset of epochs or members needs every probability; record to a folder instead of means")


@dataclass(frozen=True, eq=False)
class CountLog:
    """How often each sample was predicted right in so many epochs, such as the history that CRL keeps."""

    ids: Ids
    counts: NDArray[Any]
    epochs: int
    labels: Labels | None = None

    def correct_frequency(self, epochs: Choice = "all", members: Choice = "all") -> Float64:
        """Share of epochs that predict the label."""
        counts = np.asarray(self.counts, dtype=np.float64)
        if counts.shape != self.ids.shape or self.epochs < 1 or (counts < 0).any() or (counts > self.epochs).any():
            raise InputError(f"counts must be {len(self.ids)} numbers in [0, {self.epochs}], one per sample")
        return counts / self.epochs

    def mean_entropy(self, epochs: Choice, members: Choice) -> Float64:
        """Not known from counts."""
        raise InputError("counts of correct predictions give 'correctness' only; record probabilities for the others")

    def mean_loss(self, epochs: Choice, members: Choice) -> Float64:
        """Not known from counts."""
        return self.mean_entropy(epochs, members)


def _chosen(choice: Choice, known: tuple[int, ...], name: str) -> tuple[int, ...]:
    if isinstance(choice, str):
        if choice not in ("all", "last"):
            raise InputError(f"{name} must be 'all', 'last' or numbers, got {choice!r}")
        return known if choice == "all" else known[-1:]
    wanted = (choice,) if isinstance(choice, int) else tuple(int(c) for c in choice)
    missing = [c for c in wanted if c not in known]
    if missing or not wanted:
        raise InputError(f"{name} must be among the recorded {known[0]} to {known[-1]}, got {missing or 'none'}")
    return wanted


def need_labels(labels: Labels | None) -> Labels:
    """The labels, or an error that says who needs them."""
    if labels is None:
        raise InputError("this difficulty compares predictions with labels; pass labels with the log")
    return labels


class EntropyOfMean:
    """Entropy of the mean of several blocks of probabilities, in buffers that stay in cache from block to block."""

    def __init__(self, rows: int, classes: int, wide: bool) -> None:
        dtype = np.float64 if wide else np.float32
        self.mean, self.logs = np.empty((rows, classes), dtype=dtype), np.empty((rows, classes), dtype=dtype)
        self.smallest = dtype(np.finfo(dtype).tiny)

    def __call__(self, parts: list[Any]) -> Float64:
        mean, logs = self.mean[: len(parts[0])], self.logs[: len(parts[0])]
        _copy(parts[0], mean)
        for part in parts[1:]:
            _copy(part, logs)
            np.add(mean, logs, out=mean)
        if len(parts) > 1:
            np.multiply(mean, mean.dtype.type(1 / len(parts)), out=mean)
        # The smallest normal number keeps log finite at 0, and 0 times it is 0; elsewhere it is lost in rounding.
        np.add(mean, self.smallest, out=logs)
        np.log(logs, out=logs)
        entropy: Float64 = -np.einsum("nc,nc->n", mean, logs).astype(np.float64)
        return entropy


def _copy(part: Any, out: NDArray[Any]) -> None:
    """Copy a block, widening half floats (torch does that twenty times faster than numpy)."""
    array = np.asarray(part)
    if array.dtype == np.float16:
        # torch wants to know that it may write; it only reads here.
        source = array if array.flags.writeable else array.view(np.int16).copy().view(np.float16)
        torch.from_numpy(out).copy_(torch.from_numpy(source))
    else:
        np.copyto(out, array, casting="same_kind")


def as_log(source: Any, labels: Any = None, ids: Any = None) -> Log:
    """A log over a recorder, a log, a folder of shards, Predictions, or probabilities [member, epoch,] n c."""
    if hasattr(source, "record"):  # a recorder; a tensor has a method `log` too, which is another thing
        source = source.log()
    if isinstance(source, (str, Path)):
        from confide.difficulty.recorder import open_log

        source = open_log(source)
    if isinstance(source, CountLog):
        return source
    if isinstance(source, (ProbabilityLog, RunningLog)):
        if labels is None:
            return source
        return replace(source, labels=_log_labels(labels, len(source.ids), None))
    if isinstance(source, Predictions):
        probs = torch.softmax(source.logits.to(torch.float64), dim=1)
        labels = source.labels if labels is None else labels
        ids = source.ids if ids is None else ids
        return _array_log(probs.numpy(), labels, ids)
    return _array_log(as_tensor(source, "probabilities").cpu().numpy(), labels, ids)


def _array_log(probs: NDArray[Any], labels: Any, ids: Any) -> ProbabilityLog:
    if not 2 <= probs.ndim <= 4 or probs.shape[-1] < 2 or 0 in probs.shape:
        raise InputError(
            f"probabilities must be n x c, epochs x n x c or members x epochs x n x c, got shape {probs.shape}"
        )
    full = probs.reshape((1,) * (4 - probs.ndim) + probs.shape)
    n, classes = full.shape[2:]
    check_probs(torch.from_numpy(np.ascontiguousarray(full.reshape(-1, classes))), "probabilities", tolerance=5e-3)
    return ProbabilityLog(
        tuple(tuple(member) for member in full),
        tuple(range(full.shape[1])),
        default_ids(n) if ids is None else check_ids(ids, n),
        _log_labels(labels, n, classes) if labels is not None else None,
    )


def _log_labels(labels: Any, n: int, classes: int | None) -> Labels:
    checked: Labels = check_labels(as_tensor(labels, "labels").cpu(), n, classes).numpy()
    return checked
