"""Checkpoints: atomic, with a digest, the last two kept; a torn or changed one is passed over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import Tensor

from confide.core import files
from confide.core.door import InputError
from confide.training.state import State

FORMAT = "checkpoint/1"
KEPT = 2


def checkpoint_paths(folder: Path) -> list[Path]:
    """Checkpoints of a run folder, oldest first."""
    return sorted((folder / "checkpoints").glob("step-*.safetensors"))


def save_checkpoint(state: State, folder: Path, identity: dict[str, Any], steps_per_epoch: int) -> Path:
    """Write the state beside the earlier checkpoints, then remove all but the last two."""
    position = state.epoch * steps_per_epoch + state.step
    path = folder / "checkpoints" / f"step-{position:09d}.safetensors"
    notes = {**state.notes(), "format": FORMAT, "identity": json.dumps(identity, sort_keys=True)}
    tensors = state.tensors()
    if not state.world.leads:
        return path
    files.write_checkpoint(path, tensors, notes)
    for old in checkpoint_paths(folder)[:-KEPT]:
        old.unlink(missing_ok=True)
    return path


def restore_checkpoint(state: State, folder: Path, identity: dict[str, Any]) -> str:
    """Put the state at the newest whole checkpoint; returns a line for the log, empty at a fresh start."""
    passed_over = []
    for path in reversed(checkpoint_paths(folder)):
        try:
            tensors, notes = files.read_checkpoint(path)
        except InputError:
            passed_over.append(path.name)
            continue
        check_identity(notes, identity, path)
        state.restore(tensors, notes)
        damaged = f"; {', '.join(passed_over)} was damaged and passed over" if passed_over else ""
        return f"resumed at epoch {state.epoch}, step {state.step} from {path.name}{damaged}"
    return f"{', '.join(passed_over)} was damaged; started again" if passed_over else ""


def check_identity(notes: dict[str, str], identity: dict[str, Any], path: Path) -> None:
    """A checkpoint must be of the same settings, data and number of processes."""
    if notes.get("format") != FORMAT:
        raise InputError(f"{path} must be of format '{FORMAT}', got {notes.get('format')!r}; choose another folder")
    held = json.loads(notes["identity"])
    wanted = json.loads(json.dumps(identity))
    for key in sorted({*held, *wanted}):
        if held.get(key) != wanted.get(key):
            raise InputError(
                f"{path.parent.parent} holds a run with {key} = {held.get(key)!r}, now {wanted.get(key)!r}; "
                "choose another folder, or the same settings to go on"
            )


def clean(folder: Path) -> None:
    """Remove what a killed writer left half-written."""
    for leftover in (*folder.glob(".*.part"), *(folder / "checkpoints").glob(".*.part")):
        leftover.unlink(missing_ok=True)


def weights_of(tensors: dict[str, Tensor], part: str = "model") -> dict[str, Tensor]:
    """The weights in a checkpoint's tensors."""
    return {k.removeprefix(f"{part}."): v for k, v in tensors.items() if k.startswith(f"{part}.")}
