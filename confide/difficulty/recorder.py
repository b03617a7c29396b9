"""Records the predictions of a fixed evaluation set while any loop trains: shards per epoch, or running statistics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from confide.core import files
from confide.core.door import InputError, as_tensor, check_choice, check_finite, check_labels, check_probs
from confide.core.records import Ids, check_ids, rows_of
from confide.core.shards import read_shard, write_shard
from confide.difficulty.log import EntropyOfMean, ProbabilityLog, RunningLog

FORMAT = "probabilities/1"


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
        self.labels: NDArray[np.int64] | None = None
        if labels is not None:
            self.labels = check_labels(as_tensor(labels, "labels").cpu(), len(self.ids), None).numpy()
        self.members, self.kind, self.dtype = members, kind, np.dtype(dtype)
        self.folder = None if folder is None else Path(folder)
        self._open: dict[int, tuple[int, NDArray[Any], NDArray[np.bool_]]] = {}
        self._running: _Running | None = None
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
                f"{self.ids[~seen][0]!r}; record them before the next epoch"
            )
        if self.folder is not None:
            write_shard(_shard(self.folder, member, epoch), buffer)
        else:
            if self._running is None:
                self._running = _Running(self)
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
            check_probs(values)
            return np.asarray(values.numpy())
        check_finite(values, "logits")
        return np.asarray(torch.softmax(values, dim=1).numpy())


class _Running:
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
        files.write_table(folder / "samples.parquet", columns)
        files.write_json(folder / "manifest.json", {"format": FORMAT})
        return
    ids, _ = _samples(folder)
    if len(ids) != len(recorder.ids) or not (ids.astype(np.str_) == recorder.ids.astype(np.str_)).all():
        raise InputError(f"{folder} was recorded for other samples; choose another folder")


def _samples(folder: Path) -> tuple[Ids, NDArray[np.int64] | None]:
    columns, _ = files.read_table(folder / "samples.parquet")
    ids = columns["id"].astype(np.str_) if columns["id"].dtype == object else columns["id"]
    labels = columns["label"].astype(np.int64) if "label" in columns else None
    return ids, labels


def open_log(folder: str | Path) -> ProbabilityLog:
    """The log of a recorder's folder; only epochs that every member has."""
    folder = Path(folder)
    if not (folder / "manifest.json").exists() or files.read_json(folder / "manifest.json").get("format") != FORMAT:
        raise InputError(f"{folder} must be a recorder's folder, but it has no manifest of format '{FORMAT}'")
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
