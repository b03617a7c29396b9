"""Training logs that difficulty is read from: probabilities of a fixed evaluation set by member and epoch, kept
whole
or as running statistics, and the recorder that writes them while any loop trains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from confide.block_sizes import CACHED_FLOAT64, rows_in
from confide.checks import InputError, as_tensor, check_choice, check_finite, check_ids, check_labels, check_probs
from confide.files import formats
from confide.files.shards import read_shard, write_shard
from confide.predictions import Predictions
from confide.records import Ids, default_ids, rows_of
from confide.types import ClassIndices, Floats

# Training logs that difficulty is read from: probabilities of a fixed evaluation set, per member and epoch.
#
# `ProbabilityLog` keeps all of them (arrays or memory-mapped shards); `RunningLog` keeps only running statistics.

Selection = str | int | Iterable[int]
"""Epochs or members: "all", "last", one number or several."""


class TrainingLog(Protocol):
    """What the words `confusion`, `entropy`, `correctness` and `loss` ask of a training log."""

    @property
    def ids(self) -> Ids: ...

    @property
    def labels(self) -> ClassIndices | None: ...

    def mean_entropy(self, epochs: Selection, members: Selection) -> Floats:
        """Mean over epochs of the entropy of the member mean, in nats."""

    def correct_frequency(self, epochs: Selection, members: Selection) -> Floats:
        """Share of epochs and members that predict the label."""

    def mean_loss(self, epochs: Selection, members: Selection) -> Floats:
        """Mean over epochs and members of -log p_y."""


@dataclass(frozen=True, eq=False)
class ProbabilityLog:
    """Probabilities `n c` by member and epoch; `shards[member][epoch]` is anything sliced by rows."""

    shards: tuple[tuple[Any, ...], ...]
    epochs: tuple[int, ...]
    ids: Ids
    labels: ClassIndices | None = None

    @property
    def members(self) -> int:
        return len(self.shards)

    def choose(self, epochs: Selection, members: Selection) -> ProbabilityLog:
        """The log of some epochs (by their numbers) and members (by position)."""
        chosen = _chosen(epochs, self.epochs, "epochs")
        places = [self.epochs.index(epoch) for epoch in chosen]
        rows = _chosen(members, tuple(range(self.members)), "members")
        return replace(self, shards=tuple(tuple(self.shards[m][e] for e in places) for m in rows), epochs=chosen)

    def mean_entropy(self, epochs: Selection = "all", members: Selection = "all") -> Floats:
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

    def correct_frequency(self, epochs: Selection = "all", members: Selection = "all") -> Floats:
        """Share of epochs and members that predict the label; ties go to the lowest class."""
        return self.choose(epochs, members)._mean_of(lambda probs, labels: probs.argmax(axis=1) == labels)

    def mean_loss(self, epochs: Selection = "all", members: Selection = "all") -> Floats:
        """Mean over epochs and members of -log p_y; a probability that underflowed counts as half the smallest."""
        chosen = self.choose(epochs, members)
        # Half floats end at 6e-8; below, the loss is not known and must not become infinite.
        floor = 3e-8 if chosen.shards[0][0].dtype == np.float16 else 1e-12
        return chosen._mean_of(
            lambda probs, labels: -np.log(np.maximum(probs[np.arange(len(labels)), labels].astype(np.float64), floor))
        )

    def _mean_of(self, function: Callable[[Any, ClassIndices], Any]) -> Floats:
        labels = need_labels(self.labels)
        total, step = np.zeros(len(labels)), self._block_rows()
        for member in self.shards:
            for array in member:
                for start in range(0, len(labels), step):
                    part = slice(start, start + step)
                    total[part] += function(np.asarray(array[part]), labels[part])
        return total / (self.members * len(self.epochs))

    def _block_rows(self) -> int:
        return rows_in(CACHED_FLOAT64, int(self.shards[0][0].shape[1]))


@dataclass(frozen=True, eq=False)
class RunningLog:
    """Running statistics only: enough for each word's own choice of epochs, nothing else."""

    ids: Ids
    labels: ClassIndices | None
    epochs: tuple[int, ...]
    entropy_sum: Floats
    last_entropy: Floats
    correct_sum: Floats
    loss_sum: Floats
    last_loss: Floats
    members: int

    def mean_entropy(self, epochs: Selection = "all", members: Selection = "all") -> Floats:
        """Mean over epochs of the entropy of the member mean, in nats."""
        return self._pick(epochs, members, self.entropy_sum / len(self.epochs), self.last_entropy)

    def correct_frequency(self, epochs: Selection = "all", members: Selection = "all") -> Floats:
        """Share of epochs and members that predict the label."""
        need_labels(self.labels)
        return self._pick(epochs, members, self.correct_sum / (self.members * len(self.epochs)), None)

    def mean_loss(self, epochs: Selection = "all", members: Selection = "all") -> Floats:
        """Mean over epochs and members of -log p_y."""
        need_labels(self.labels)
        return self._pick(epochs, members, self.loss_sum / (self.members * len(self.epochs)), self.last_loss)

    def _pick(self, epochs: Selection, members: Selection, every: Floats, last: Floats | None) -> Floats:
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
    labels: ClassIndices | None = None

    def correct_frequency(self, epochs: Selection = "all", members: Selection = "all") -> Floats:
        """Share of epochs that predict the label."""
        counts = np.asarray(self.counts, dtype=np.float64)
        if counts.shape != self.ids.shape or self.epochs < 1 or (counts < 0).any() or (counts > self.epochs).any():
            raise InputError(f"counts must be {len(self.ids)} numbers in [0, {self.epochs}], one per sample")
        return counts / self.epochs

    def mean_entropy(self, epochs: Selection, members: Selection) -> Floats:
        """Not known from counts."""
        raise InputError("counts of correct predictions give 'correctness' only; record probabilities for the others")

    def mean_loss(self, epochs: Selection, members: Selection) -> Floats:
        """Not known from counts."""
        return self.mean_entropy(epochs, members)


def _chosen(choice: Selection, known: tuple[int, ...], name: str) -> tuple[int, ...]:
    if isinstance(choice, str):
        if choice not in ("all", "last"):
            raise InputError(f"{name} must be 'all', 'last' or numbers, got {choice!r}")
        return known if choice == "all" else known[-1:]
    numbers = (choice,) if isinstance(choice, int) else tuple(int(c) for c in choice)
    missing = [number for number in numbers if number not in known]
    if missing or not numbers:
        raise InputError(f"{name} must be among the recorded {known[0]} to {known[-1]}, got {missing or 'none'}")
    return numbers


def need_labels(labels: ClassIndices | None) -> ClassIndices:
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

    def __call__(self, parts: list[Any]) -> Floats:
        mean, logs = self.mean[: len(parts[0])], self.logs[: len(parts[0])]
        _copy_widened(parts[0], mean)
        for part in parts[1:]:
            _copy_widened(part, logs)
            np.add(mean, logs, out=mean)
        if len(parts) > 1:
            np.multiply(mean, mean.dtype.type(1 / len(parts)), out=mean)
        # The smallest normal number keeps log finite at 0, and 0 times it is 0; elsewhere it is lost in rounding.
        np.add(mean, self.smallest, out=logs)
        np.log(logs, out=logs)
        return np.asarray(-np.einsum("nc,nc->n", mean, logs).astype(np.float64))


def _copy_widened(part: Any, out: NDArray[Any]) -> None:
    """Copy a block, widening half floats (torch does that twenty times faster than numpy)."""
    array = np.asarray(part)
    if array.dtype == np.float16:
        # torch wants to know that it may write; it only reads here.
        source = array if array.flags.writeable else array.view(np.int16).copy().view(np.float16)
        torch.from_numpy(out).copy_(torch.from_numpy(source))
    else:
        np.copyto(out, array, casting="same_kind")


def as_log(source: Any, labels: Any = None, ids: Any = None) -> TrainingLog:
    """A log over a recorder, a log, a folder of shards, Predictions, or probabilities [member, epoch,] n c."""
    if hasattr(source, "record"):  # a recorder; a tensor has a method `log` too, which is another thing
        source = source.log()
    if isinstance(source, (str, Path)):
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


def _log_labels(labels: Any, n: int, classes: int | None) -> ClassIndices:
    return np.asarray(check_labels(as_tensor(labels, "labels").cpu(), n, classes).numpy())


# Records the predictions of a fixed evaluation set while any loop trains: shards per epoch, or running statistics.


class Recorder:
    """`recorder.record(epoch, ids, logits)` after every batch of an evaluation pass; `recorder.log()` at the end.

    With a folder, every finished epoch is one shard of float16 probabilities, so any subset of epochs and members can
    be scored afterwards and a stopped training loses only the epoch it was in. Without one only running statistics
    stay in memory, n x c whatever the number of epochs; several members must then take turns epoch by epoch.

    Args:
        ids: the samples of the evaluation set, in the order of the scores.
        labels: their class indices; `loss` and `correctness` need them.
        folder: where shards go, or None for running statistics.
        members: how many networks the ensemble has.
        kind: what `record` is given, "logits" or "probs"; never guessed from values.
        dtype: of the shards, "float16" or "float32".
    """

    def __init__(
        self,
        ids: Any,
        labels: Any = None,
        *,
        folder: str | Path | None = None,
        members: int = 1,
        kind: str = "logits",
        dtype: str = "float16",
    ) -> None:
        check_choice(kind, ("logits", "probs"), "kind")
        check_choice(dtype, ("float16", "float32"), "dtype")
        self.ids: Ids = check_ids(ids, len(ids))
        self.labels = None if labels is None else _log_labels(labels, len(self.ids), None)
        self.members, self.kind, self.dtype = members, kind, np.dtype(dtype)
        self.folder = None if folder is None else Path(folder)
        self._open: dict[int, tuple[int, NDArray[Any], NDArray[np.bool_]]] = {}
        self._running: _RunningStatistics | None = None
        if self.folder is not None:
            _check_folder(self.folder, self)

    def record(self, epoch: int, ids: Any, outputs: Any, *, member: int = 0) -> None:
        """Take the outputs (logits or probabilities `n c`) of some samples after training epoch `epoch`."""
        if not 0 <= member < self.members:
            raise InputError(
                f"member must lie in [0, {self.members}), got {member}; say members= when recording starts"
            )
        probs = self._probs(outputs)
        rows = rows_of(np.asarray(ids), self.ids, "the recorder")
        if len(rows) != len(probs):
            raise InputError(f"outputs must be one row per id, got {len(probs)} rows and {len(rows)} ids")
        if member in self._open and self._open[member][0] != epoch:
            self.finish_epoch(member)
        if member not in self._open:
            empty = np.zeros((len(self.ids), probs.shape[1]), dtype=self.dtype)
            self._open[member] = (epoch, empty, np.zeros(len(self.ids), dtype=bool))
        _, buffer, seen = self._open[member]
        if probs.shape[1] != buffer.shape[1]:
            raise InputError(f"outputs must have {buffer.shape[1]} classes as before, got {probs.shape[1]}")
        buffer[rows], seen[rows] = probs, True
        if seen.all():
            self.finish_epoch(member)

    def finish_epoch(self, member: int = 0) -> None:
        """Close the open epoch of a member; every sample must have been recorded."""
        if member not in self._open:
            return
        epoch, buffer, seen = self._open[member]
        if not seen.all():
            raise InputError(
                f"epoch {epoch} must have every sample, but {int((~seen).sum())} of {len(seen)} are missing, first "
                f"{self.ids[~seen][0].item()!r}; record them before the next epoch"
            )
        if self.folder is not None:
            write_shard(_shard(self.folder, member, epoch), buffer)
        else:
            if self._running is None:
                self._running = _RunningStatistics(self)
            self._running.add(epoch, member, buffer)
        del self._open[member]

    def log(self) -> ProbabilityLog | RunningLog:
        """What was recorded, ready for `confide.difficulty.score`."""
        for member in list(self._open):
            self.finish_epoch(member)
        if self.folder is not None:
            return open_log(self.folder)
        if self._running is None:
            raise InputError("the recorder must hold at least one epoch, got none; call record while training")
        return self._running.log()

    def _probs(self, outputs: Any) -> NDArray[Any]:
        values = as_tensor(outputs, self.kind).cpu()
        if values.ndim != 2 or values.shape[1] < 2:
            raise InputError(f"{self.kind} must be n x c with at least two classes, got shape {tuple(values.shape)}")
        values = values.to(torch.float64) if values.dtype == torch.float64 else values.to(torch.float32)
        if self.kind == "probs":
            return np.asarray(check_probs(values).numpy())
        check_finite(values, "logits")
        return np.asarray(torch.softmax(values, dim=1).numpy())


class _RunningStatistics:
    """Sums over epochs of the entropy of the member mean, of correctness and of loss."""

    def __init__(self, recorder: Recorder) -> None:
        n = len(recorder.ids)
        self.recorder, self.epochs = recorder, list[int]()
        self.epoch: int | None = None
        self.turn: set[int] = set()
        self.mean: NDArray[np.float32] | None = None
        self.entropy, self.last_entropy = np.zeros(n), np.zeros(n)
        self.correct, self.loss, self.last_loss, self.turn_loss = np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n)

    def add(self, epoch: int, member: int, probs: NDArray[Any]) -> None:
        if (self.epoch is not None and self.epoch != epoch) or member in self.turn:
            raise InputError(
                f"without a folder the {self.recorder.members} members must take turns epoch by epoch, but member "
                f"{member} gave epoch {epoch} while epoch {self.epoch} waits for others; record to a folder instead"
            )
        self.epoch = epoch
        self.turn.add(member)
        wide = probs.astype(np.float32)
        self.mean = wide if self.mean is None else self.mean + wide
        labels = self.recorder.labels
        if labels is not None:
            self.correct += wide.argmax(axis=1) == labels
            floor = 3e-8 if probs.dtype == np.float16 else 1e-12
            self.turn_loss += -np.log(np.maximum(wide[np.arange(len(labels)), labels].astype(np.float64), floor))
        if len(self.turn) == self.recorder.members:
            self._close(epoch)

    def _close(self, epoch: int) -> None:
        assert self.mean is not None
        self.last_entropy = EntropyOfMean(len(self.mean), self.mean.shape[1], False)(
            [self.mean / self.recorder.members]
        )
        self.entropy += self.last_entropy
        self.loss += self.turn_loss
        self.last_loss = self.turn_loss / self.recorder.members
        self.epochs.append(epoch)
        self.epoch, self.mean, self.turn, self.turn_loss = None, None, set(), np.zeros_like(self.turn_loss)

    def log(self) -> RunningLog:
        if self.turn or not self.epochs:
            raise InputError(f"epoch {self.epoch} must have all {self.recorder.members} members, got {len(self.turn)}")
        return RunningLog(
            self.recorder.ids,
            self.recorder.labels,
            tuple(self.epochs),
            self.entropy.copy(),
            self.last_entropy,
            self.correct.copy(),
            self.loss.copy(),
            self.last_loss,
            self.recorder.members,
        )


def _shard(folder: Path, member: int, epoch: int) -> Path:
    return folder / f"member-{member:03d}" / f"epoch-{epoch:06d}.npy"


def _check_folder(folder: Path, recorder: Recorder) -> None:
    """Start a folder, or go on in one that was made for the same samples."""
    if not (folder / "manifest.json").exists():
        columns: dict[str, NDArray[Any]] = {"id": recorder.ids}
        if recorder.labels is not None:
            columns["label"] = recorder.labels
        formats.write_table(folder / "samples.parquet", columns)
        formats.write_json(folder / "manifest.json", {"format": formats.PROBABILITIES.tag})
        return
    ids, _ = _samples(folder)
    if len(ids) != len(recorder.ids) or not (ids.astype(np.str_) == recorder.ids.astype(np.str_)).all():
        raise InputError(f"{folder} was recorded for other samples; choose another folder")


def _samples(folder: Path) -> tuple[Ids, NDArray[np.int64] | None]:
    columns, _ = formats.read_table(folder / "samples.parquet")
    ids = columns["id"].astype(np.str_) if columns["id"].dtype == object else columns["id"]
    labels = columns["label"].astype(np.int64) if "label" in columns else None
    return ids, labels


def open_log(folder: str | Path) -> ProbabilityLog:
    """The log of a recorder's folder; only epochs that every member has.

    Args:
        folder: that a `Recorder` wrote.

    Returns:
        The log: `score` takes it, for `confusion`, `loss`, `correctness` or `entropy`.

    Raises:
        InputError: no recorder's folder, or one without a whole epoch.

    Example:
        >>> import numpy as np
        >>> recorder = confide.difficulty.Recorder(ids=[0, 1], labels=[0, 1], folder="log")
        >>> recorder.record(0, [0, 1], np.array([[2.0, 0.0], [1.0, 0.0]]))
        >>> recorder.finish_epoch()
        >>> confide.difficulty.score("loss", confide.difficulty.open_log("log")).values.round(2).tolist()
        [0.13, 1.31]
    """
    folder = Path(folder)
    manifest = folder / "manifest.json"
    formats.PROBABILITIES.check(formats.read_json(manifest).get("format") if manifest.exists() else None, folder)
    ids, labels = _samples(folder)
    members = sorted(p for p in folder.glob("member-*") if p.is_dir())
    epochs = [{int(p.stem.split("-")[1]) for p in member.glob("epoch-*.npy")} for member in members]
    shared = sorted(set.intersection(*epochs)) if epochs else []
    if not shared:
        raise InputError(f"{folder} must hold at least one epoch of every member, got none; record more")
    width = np.load(next(iter(members[0].glob("epoch-*.npy"))), mmap_mode="r", allow_pickle=False).shape[-1]
    shards = tuple(
        tuple(read_shard(member / f"epoch-{epoch:06d}.npy", (len(ids), width)) for epoch in shared)
        for member in members
    )
    return ProbabilityLog(shards, tuple(shared), ids, labels)
