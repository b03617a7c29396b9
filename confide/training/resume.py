"""Checkpoints: atomic, with a digest, the last two kept; a torn or changed one is passed over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import Tensor

from confide.core import files
from confide.core.door import InputError
from confide.training.identity import first_difference
from confide.training.state import State

FORMAT = "checkpoint/1"
KEPT = 2


def checkpoint_paths(folder: Path) -> list[Path]:
    """Checkpoints of a run folder, oldest first."""
    return sorted((folder / "checkpoints").glob("step-*.safetensors"))


def save_checkpoint(state: State, folder: Path, identity: dict[str, Any], steps_per_epoch: int) -> Path:
    """Write the state beside the one before, then remove the others: older ones, and damaged ones passed over."""
    position = state.epoch * steps_per_epoch + state.step
    path = folder / "checkpoints" / f"step-{position:09d}.safetensors"
    notes = {**state.notes(), "format": FORMAT, "identity": json.dumps(identity, sort_keys=True)}
    tensors = state.tensors()
    if not state.world.leads:
        return path
    files.write_checkpoint(path, tensors, notes)
    paths = checkpoint_paths(folder)
    # Those of later steps were damaged when the training went back; left there, they would outlive every new one.
    here = paths.index(path)
    for other in (*paths[: max(here + 1 - KEPT, 0)], *paths[here + 1 :]):
        other.unlink(missing_ok=True)
    return path


def newest(folder: Path) -> tuple[Path, dict[str, Tensor], dict[str, str], list[str]] | None:
    """(path, tensors, notes, names of damaged ones passed over) of the newest whole checkpoint."""
    passed_over: list[str] = []
    for path in reversed(checkpoint_paths(folder)):
        try:
            tensors, notes = files.read_checkpoint(path)
        except InputError:
            passed_over.append(path.name)
            continue
        if notes.get("format") != FORMAT:
            raise InputError(f"{path} must be of format '{FORMAT}', got {notes.get('format')!r}; choose another folder")
        return path, tensors, notes, passed_over
    return None


def restore_checkpoint(state: State, folder: Path) -> str:
    """Put the state at the newest whole checkpoint; returns a line for the log, empty at a fresh start."""
    found = newest(folder)
    if found is None:
        damaged = [path.name for path in checkpoint_paths(folder)]
        return f"{', '.join(damaged)} was damaged; started again" if damaged else ""
    path, tensors, notes, passed_over = found
    state.restore(tensors, notes)
    damage = f"; {', '.join(passed_over)} was damaged and passed over" if passed_over else ""
    return f"resumed at epoch {state.epoch}, step {state.step} from {path.name}{damage}"


def difference(folder: Path, identity: dict[str, Any]) -> tuple[str, Any, Any] | None:
    """The first thing in which the checkpoints of a folder differ from this training."""
    found = newest(folder)
    return None if found is None else first_difference(json.loads(found[2]["identity"]), identity)


def start_over(folder: Path) -> None:
    """Remove what another training left in the folder."""
    for old in (folder / "model.safetensors", *checkpoint_paths(folder)):
        old.unlink(missing_ok=True)


def clean(folder: Path) -> None:
    """Remove what a killed writer left half-written."""
    for leftover in (*folder.glob(".*.part"), *(folder / "checkpoints").glob(".*.part")):
        leftover.unlink(missing_ok=True)
