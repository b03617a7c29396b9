"""A training as a record that other processes and machines can be given, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from confide.difficulty import Recorder
from confide.files import disk
from confide.records import Dataset, Scores
from confide.training.checkpoint import Trained
from confide.training.distributed import is_lead_process
from confide.training.ensemble import fit_members
from confide.training.loop import fit
from confide.training.settings import Settings
from confide.training.trackers import tracker, tracker_for_members
from confide.types import JsonObject, Options

if TYPE_CHECKING:
    from confide.config import Config


@dataclass(frozen=True)
class TrainingJob:
    """One training: of what, how, and where its results go.

    Args:
        data: a dataset's word or path, opened with `data_options`.
        settings: of the training.
        out: folder of the run; the same job goes on there where it was.
        scores: files with the difficulty of the samples, for losses that weigh or group by it.
        recipe: word of a recipe, or its Config, that makes these scores, and fits a calibrator after the training.
        features: extractor word for the recipe's difficulty, instead of the recipe's own.
        members: so many seeds, trained as an ensemble.
        record: keep the predictions on the split `settings.record` of every epoch.
        track: tensorboard or mlflow, told of every epoch.
        checkpoint_seconds: least time between checkpoints.
    """

    data: str
    settings: Settings
    out: Path
    data_options: Options = field(default_factory=dict)
    scores: tuple[str, ...] = ()
    recipe: str | Config | None = None
    features: str | None = None
    members: int = 1
    record: bool = False
    track: str | None = None
    checkpoint_seconds: float = 30.0

    def absolute(self) -> TrainingJob:
        """The job with whole paths: workers of a cluster start elsewhere."""
        data = str(Path(self.data).resolve()) if Path(self.data).exists() else self.data
        scores = tuple(str(Path(path).resolve()) for path in self.scores)
        return replace(self, data=data, scores=scores, out=self.out.resolve())

    def load_scores(self) -> Scores | None:
        """The scores of all files joined, None without files."""
        return Scores.joined([Scores.load(path) for path in self.scores]) if self.scores else None


@dataclass(frozen=True)
class MemberOutcome:
    """One trained network: the log's row of its chosen epoch, and its notes."""

    row: Mapping[str, float]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class TrainingOutcome:
    """What came of a job: its networks, or the line that says why there are none."""

    folder: Path
    settings: Settings
    members: tuple[MemberOutcome, ...] = ()
    train_seconds: float = 0.0
    val_seconds: float = 0.0
    error: str | None = None

    @classmethod
    def of(cls, job: TrainingJob, trained: Sequence[Trained]) -> TrainingOutcome:
        """What a person wants to see of trained networks."""

        def seconds(name: str) -> float:
            return sum(float(t.timings[name].sum()) for t in trained if name in t.timings)

        rows = [{name: float(column[t.chosen_epoch]) for name, column in t.log.items()} for t in trained]
        members = tuple(MemberOutcome(row, (*t.process_notes, *t.notes)) for row, t in zip(rows, trained, strict=True))
        return cls(job.out, job.settings, members, seconds("train_seconds"), seconds("val_seconds"))

    def as_dict(self) -> JsonObject:
        """Plain dictionary; `from_dict` reads it back."""
        plain: JsonObject = {
            "folder": str(self.folder),
            "settings": self.settings.as_dict(),
            "members": [{**member.row, "notes": list(member.notes)} for member in self.members],
        }
        if self.error is not None:
            return plain | {"error": self.error}
        return plain | {"train_seconds": self.train_seconds, "val_seconds": self.val_seconds}

    @classmethod
    def from_dict(cls, values: JsonObject) -> TrainingOutcome:
        """An outcome from its plain dictionary."""
        rows = [dict(row) for row in values["members"]]
        members = tuple(MemberOutcome(row, tuple(notes)) for row in rows for notes in [row.pop("notes")])
        seconds = (values.get("train_seconds", 0.0), values.get("val_seconds", 0.0))
        settings = Settings.from_dict(values["settings"])
        return cls(Path(values["folder"]), settings, members, *seconds, values.get("error"))


def train_networks(job: TrainingJob, dataset: Dataset, scores: Scores | None) -> tuple[Trained, ...]:
    """The network of a job, or all members of its ensemble, with what it records and tracks."""
    settings, out = job.settings, job.out
    recorder = _recorder(job, dataset) if job.record else None
    on_epoch = tracker(job.track, out, settings) if job.track and is_lead_process() else None
    common: Options = {"scores": scores, "folder": out, "recorder": recorder}
    common["checkpoint_seconds"] = job.checkpoint_seconds
    if job.members > 1:
        on_member_epoch = None if on_epoch is None else tracker_for_members(on_epoch)
        return tuple(fit_members(dataset, settings, members=job.members, on_epoch=on_member_epoch, **common))
    return (fit(dataset, settings, on_epoch=on_epoch, **common),)


def _recorder(job: TrainingJob, dataset: Dataset) -> Recorder:
    split, folder = dataset.split(job.settings.record), job.out / "recorded"
    if is_lead_process():
        disk.remove_leftovers((folder, *folder.glob("member-*")))
    return Recorder(split.ids, split.labels, folder=folder, members=job.members)
