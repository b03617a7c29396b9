"""What a training leaves in its folder: the trained model, checkpoints (atomic, with a digest, the last two kept),
and what makes two trainings the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from confide.checks import InputError
from confide.files import disk, formats
from confide.models import Classifier
from confide.models.device import Device
from confide.models.preparation import Preparation
from confide.models.trained import MODEL_FILE, TrainedFile, TrainedNetwork, TrainingIdentity, trained_file
from confide.records import Dataset, Scores
from confide.results import Curve
from confide.training.distributed import World
from confide.training.feed import TrainingSamples
from confide.training.settings import Settings
from confide.training.state import State
from confide.types import Floats

# Trained: a model with all that is needed to use it, as a record and as files of a folder.


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained model, its preparation of inputs, and its log.

    `log` has a column per quantity and a row per epoch, and no clock in it: the same run gives the same log.
    `timings` has the seconds of training and validation per epoch, of this process alone; `process_notes` says how this
    process came to the end, such as from which checkpoint. Neither is in model.safetensors, whose bytes are those of an
    unbroken run.
    """

    model: Classifier
    settings: Settings
    preparation: Preparation
    class_names: tuple[str, ...]
    log: Mapping[str, Floats]
    loss_state: Mapping[str, Tensor] = field(default_factory=dict)
    timings: Mapping[str, Floats] = field(default_factory=dict)
    chosen_epoch: int = -1
    notes: tuple[str, ...] = ()
    identity: TrainingIdentity = field(default_factory=TrainingIdentity)
    process_notes: tuple[str, ...] = ()

    @property
    def num_classes(self) -> int:
        """How many classes it tells apart."""
        return len(self.class_names)

    def curves(self, name: str = "model") -> tuple[Curve, ...]:
        """The log as curves to draw: quantities per epoch, AdaFocal's gamma per bin, the doubt per difficulty group."""
        columns = {k: tuple(float(x) for x in v) for k, v in self.log.items()}
        rest = {k: v for k, v in columns.items() if not k.startswith(("gamma", "doubt"))}
        drawn = [Curve("training", rest, model=name)]
        for word, part in (("gamma", "bin"), ("doubt", "band")):
            parts = {k.replace(word, part): v for k, v in columns.items() if k.startswith(word)}
            if parts:
                drawn.append(Curve(f"{word}s", {"epoch": columns["epoch"], **parts}, model=name))
        return tuple(drawn)

    def save(self, folder: str | Path) -> None:
        """Write log.parquet, timings.parquet and, last, model.safetensors: its presence means the run is whole."""
        folder = Path(folder)
        formats.write_table(folder / "log.parquet", self.log)
        if self.timings:
            formats.write_table(folder / "timings.parquet", self.timings)
        TrainedFile(
            self.settings.as_dict(),
            self.preparation,
            self.class_names,
            self.model.state_dict(),
            self.loss_state,
            self.chosen_epoch,
            self.notes,
            self.identity,
        ).write(folder)

    @classmethod
    def load(cls, path: str | Path) -> Trained:
        """Read a folder that `save` wrote, or its model.safetensors."""
        file, folder = TrainedFile.read(path), trained_file(path).parent
        log, timings = folder / "log.parquet", folder / "timings.parquet"
        return cls(
            file.network().model,
            Settings.from_dict(file.settings),
            file.preparation,
            file.class_names,
            formats.read_table(log)[0] if log.exists() else {},
            file.loss_state,
            formats.read_table(timings)[0] if timings.exists() else {},
            file.chosen_epoch,
            file.notes,
            file.identity,
        )

    @property
    def network(self) -> TrainedNetwork:
        """The network alone, as `models.load_network` gives it."""
        settings = self.settings
        precision, deterministic = settings.precision, settings.deterministic
        return TrainedNetwork(self.model, self.preparation, self.class_names, settings.model, precision, deterministic)


# What makes two trainings the same: settings, data, difficulty scores, device and number of processes.


def identity_of(
    dataset: Dataset, settings: Settings, samples: TrainingSamples, scores: Scores | None, device: Device, world: World
) -> TrainingIdentity:
    """The identity of the training that is about to start."""
    digest = None
    if scores is not None:
        values = np.ascontiguousarray(scores.values, dtype=np.float64)
        digest = hashlib.sha256("\0".join(map(str, scores.ids)).encode() + values.tobytes()).hexdigest()[:16]
    return TrainingIdentity(
        settings.as_dict(),
        dataset=dataset.name,
        training_samples=len(samples.train),
        training_data=samples.train.fingerprint,
        validation_data=None if samples.val is None else samples.val.fingerprint,
        difficulty_scores=digest,
        device=device.device.type,
        precision=device.precision,
        processes=world.size,
    )


class Difference(NamedTuple):
    """The first thing in which two trainings differ."""

    what: str
    then: Any
    now: Any

    def refusal(self, folder: Path) -> InputError:
        """The one clear line where a folder holds another training."""
        return InputError(
            f"{folder} holds a training with {self.what} = {self.then!r}, now {self.now!r}; "
            "choose another folder, or the same settings to go on"
        )


def first_difference(earlier: TrainingIdentity, now: TrainingIdentity) -> Difference | None:
    """The first thing in which an earlier training, read from its file, differs from this one."""
    then, this = earlier.as_dict(), json.loads(json.dumps(now.as_dict()))
    for key in sorted({*then, *this}):
        if then.get(key) != this.get(key):
            return Difference(key, then.get(key), this.get(key))
    return None


# Checkpoints: atomic, with a digest, the last two kept; a torn or changed one is passed over.

CHECKPOINTS_KEPT = 2


def checkpoint_paths(folder: Path) -> list[Path]:
    """Checkpoints of a run folder, oldest first."""
    return sorted((folder / "checkpoints").glob("step-*.safetensors"))


def save_checkpoint(state: State, folder: Path, identity: TrainingIdentity, steps_per_epoch: int) -> Path:
    """Write the state beside the one before, then remove the others: older ones, and damaged ones passed over."""
    position = state.epoch * steps_per_epoch + state.step
    path = folder / "checkpoints" / f"step-{position:09d}.safetensors"
    notes = {
        **state.notes(),
        "format": formats.CHECKPOINT.tag,
        "identity": json.dumps(identity.as_dict(), sort_keys=True),
    }
    tensors = state.tensors()
    if not state.world.is_lead:
        return path
    formats.write_checkpoint(path, tensors, notes)
    paths = checkpoint_paths(folder)
    # Those of later steps were damaged when the training went back; left there, they would outlive every new one.
    here = paths.index(path)
    for other in (*paths[: max(here + 1 - CHECKPOINTS_KEPT, 0)], *paths[here + 1 :]):
        disk.remove(other)
    return path


class Checkpoint(NamedTuple):
    """A whole checkpoint as it was read, and the names of damaged ones that are newer."""

    path: Path
    tensors: dict[str, Tensor]
    notes: dict[str, str]
    damaged: list[str]


def newest_checkpoint(folder: Path) -> Checkpoint | None:
    """The newest checkpoint that is whole."""
    damaged: list[str] = []
    for path in reversed(checkpoint_paths(folder)):
        try:
            tensors, notes = formats.read_checkpoint(path)
        except InputError:
            damaged.append(path.name)
            continue
        formats.CHECKPOINT.check(notes.get("format"), path)
        return Checkpoint(path, tensors, notes, damaged)
    return None


def restore_checkpoint(state: State, folder: Path) -> str:
    """Put the state at the newest whole checkpoint; returns a line for the log, empty at a fresh start."""
    newest = newest_checkpoint(folder)
    if newest is None:
        damaged = [path.name for path in checkpoint_paths(folder)]
        return f"{', '.join(damaged)} was damaged; started again" if damaged else ""
    state.restore(newest.tensors, newest.notes)
    damage = f"; {', '.join(newest.damaged)} was damaged and passed over" if newest.damaged else ""
    return f"resumed at epoch {state.epoch}, step {state.step} from {newest.path.name}{damage}"


def difference_from_checkpoint(folder: Path, identity: TrainingIdentity) -> Difference | None:
    """The first thing in which the checkpoints of a folder differ from this training."""
    newest = newest_checkpoint(folder)
    if newest is None:
        return None
    return first_difference(TrainingIdentity.from_dict(json.loads(newest.notes["identity"])), identity)


def remove_training(folder: Path) -> None:
    """Remove what another training left in the folder."""
    for old in (folder / MODEL_FILE, *checkpoint_paths(folder)):
        disk.remove(old)


def remove_partial_files(folder: Path) -> None:
    """Remove what a killed writer left half-written."""
    disk.remove_leftovers((folder, folder / "checkpoints"))
