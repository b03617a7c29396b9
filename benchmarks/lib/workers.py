"""Runs a grid: workers take the next cell nobody has, so a killed grid goes on and a failed cell stops no other."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import IO, Any

from benchmarks.lib import titles
from benchmarks.lib.grid import Cell, check_names
from confide import files
from confide.checks import InputError, MissingExtra, OptionError, check_range
from confide.scale import Job, run_jobs
from confide.store import lock_file

LOGGED = ("accuracy", "ece_mass", "nll", "aurc")
"""Metrics of the line about a cell."""
MOST_TRIES = 2
"""How often a cell may take its process down before it counts as failed."""


@dataclass(frozen=True)
class Place:
    """Where and how a grid runs.

    Args:
        out: folder of cells, predictions and errors.
        data: where each dataset lies, by name.
        workers: processes at a time; on one GPU they share it.
        seconds: start no cell that would not end within them; 0 for no limit.
        limit: samples of every split, for trying a grid out; 0 for all.
        resumable: trainings write checkpoints.
        per_gpu: workers that Ray puts on one GPU.
    """

    out: Path
    data: Mapping[str, str] = field(default_factory=dict)
    workers: int = 1
    engine: str = "local"
    seconds: float = 0.0
    limit: int = 0
    resumable: bool = False
    per_gpu: int = 1

    def __post_init__(self) -> None:
        check_range(self.workers, "workers", 1)
        check_range(self.per_gpu, "workers on a GPU", 1)
        check_range(self.limit, "limit", 0)
        check_range(self.seconds, "time limit", 0)

    @property
    def prepared(self) -> Path:
        """Decoded data and difficulty scores; those of a try are kept apart."""
        return self.out / (f"prepared-{self.limit}" if self.limit else "prepared")


@dataclass(frozen=True)
class GridState:
    """What a grid left: names of the cells that are whole, of those that failed with their line, and of the rest."""

    done: tuple[str, ...]
    failed: Mapping[str, str]
    left: tuple[str, ...]


def run_grid(cells: Sequence[Cell], place: Place) -> GridState:
    """Run the cells that are not whole yet, in order, and say how the grid stands."""
    check_names(cells)
    todo = [cell for cell in cells if not is_done(cell, place.out)]
    for cell in todo:
        (place.out / "errors" / f"{cell.name}.json").unlink(missing_ok=True)
        (place.out / "claims" / f"{cell.name}.tries").unlink(missing_ok=True)
    if todo:
        stop = time.time() + place.seconds if place.seconds else 0.0
        payload = {
            "cells": [cell.as_dict() for cell in todo],
            "out": str(place.out.resolve()),
            "prepared": str(place.prepared.resolve()),
            "data": {k: str(Path(v).resolve()) if Path(v).exists() else v for k, v in place.data.items()},
            "stop": stop,
            "limit": place.limit,
            "resumable": place.resumable,
        }
        workers = min(place.workers, len(todo))
        payload["shared"] = workers > 1 and place.engine == "local"
        share = 1 / place.per_gpu
        jobs = [Job(f"worker-{k}", work, payload, share) for k in range(workers)]
        if workers == 1 and place.engine == "local":
            work(dict(jobs[0].payload))
        else:
            if payload["shared"]:
                # This process only waits: it may decode what the workers will ask for after their first training.
                Thread(target=_decode_ahead, args=(payload,), daemon=True).start()
            # A cell may take its worker down; another worker then goes on with the next.
            run_jobs(jobs, engine=place.engine, workers=workers, retries=MOST_TRIES * len(todo))
    return grid_state(cells, place.out)


def _decode_ahead(payload: Mapping[str, Any]) -> None:
    """Read the OOD images of every dataset of a grid, which leaves decoded copies; workers tell what fails."""
    from benchmarks.lib.sources import Sources

    sources = Sources(payload["data"], Path(payload["prepared"]), payload["limit"], shared=True)
    for name in dict.fromkeys(cell["dataset"] for cell in payload["cells"]):
        with suppress(Exception):
            sources.ood(name)


def grid_state(cells: Sequence[Cell], out: Path) -> GridState:
    """Which cells are whole, failed, or still to do."""
    done = tuple(cell.name for cell in cells if is_done(cell, out))
    failed = {}
    for cell in cells:
        note = out / "errors" / f"{cell.name}.json"
        if cell.name not in done and note.exists():
            failed[cell.name] = str(files.read_json(note)["error"])
    left = tuple(cell.name for cell in cells if cell.name not in done and cell.name not in failed)
    return GridState(done, failed, left)


def is_done(cell: Cell, out: Path) -> bool:
    """Whether the cell's result is there, made with the same settings."""
    path = out / "cells" / f"{cell.name}.json"
    if not path.exists():
        return False
    with suppress(InputError):
        return files.read_json(path).get("key") in cell.keys
    return False


def work(payload: dict[str, Any]) -> dict[str, Any]:
    """One worker: takes cells until none is left or the time is up. A job of `confide.scale`."""
    from benchmarks.lib.sources import Sources

    out = Path(payload["out"])
    sources = Sources(payload["data"], Path(payload["prepared"]), payload["limit"], payload.get("shared", False))
    spent: dict[tuple[str, str], list[float]] = {}
    done = 0
    cells = [Cell.from_dict(values) for values in payload["cells"]]
    number = {cell.name: f"{k}/{len(cells)}" for k, cell in enumerate(cells, 1)}
    # The second round is for cells that a killed process, not quite gone, still held in the first.
    for held in (False, True):
        if held and cells:
            time.sleep(1.0)
        waiting, cells = cells, []
        for cell in waiting:
            sort = (cell.dataset, cell.model)
            if payload["stop"] and time.time() + _expected(spent.get(sort, [])) > payload["stop"]:
                continue
            with claimed(out, cell) as claim:
                if claim != "mine":
                    cells += [cell] if claim == "held" else []
                    continue
                began = time.monotonic()
                line = _run_one(cell, sources, out, payload["resumable"])
                spent.setdefault(sort, []).append(time.monotonic() - began)
                done += 1
            _free()
            print(f"{number[cell.name]} {cell.name}: {line}", file=sys.stderr, flush=True)
    return {"made": done}


def _expected(spent: Sequence[float]) -> float:
    """Seconds that a next cell may take: the longest so far, without the first, which also reads and warms up."""
    return max(spent[1:] or spent, default=0.0)


@contextmanager
def claimed(out: Path, cell: Cell) -> Iterator[str]:
    """`mine` where this worker is to run the cell, `held` where another one does, `over` where it is done or failed."""
    folder = out / "claims"
    folder.mkdir(parents=True, exist_ok=True)
    lock: IO[str] | None = None
    with suppress(InputError):
        lock = lock_file(folder / f"{cell.name}.lock", out)
    try:
        failed = out / "errors" / f"{cell.name}.json"
        if lock is None:
            yield "held"
        elif is_done(cell, out) or failed.exists():
            yield "over"
        else:
            yield "mine" if _may_try(folder / f"{cell.name}.tries", failed) else "over"
    finally:
        if lock is not None:
            lock.close()


def _may_try(note: Path, failed: Path) -> bool:
    """Count the try before it begins: a cell that took its process down is not tried for ever."""
    tries = int(note.read_text(encoding="utf-8")) if note.exists() else 0
    if tries >= MOST_TRIES:
        files.write_json(failed, {"error": f"its process died {tries} times"})
        return False
    files.write_text(note, str(tries + 1))
    return True


def _run_one(cell: Cell, sources: Any, out: Path, resumable: bool) -> str:
    """Run a cell; what it raises becomes its error file and one line."""
    from benchmarks.lib.cells import run_cell

    try:
        result = run_cell(cell, sources, out, resumable=resumable)
    except (InputError, OptionError, MissingExtra) as error:
        return _failed(cell, out, str(error))
    except Exception as error:  # any other cell may still work
        line = _failed(cell, out, f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
        _leave_if_broken(line)
        return line
    (out / "claims" / f"{cell.name}.tries").unlink(missing_ok=True)
    raw, after = result["measured"]["raw"], result["measured"]["temperature"]
    shown = [f"{titles.heading(metric)} {titles.mean(metric, [raw[metric]])}" for metric in LOGGED]
    calibrated = titles.mean("ece_mass", [after["ece_mass"]])
    return f"{'  '.join(shown)}  calibrated ECE {calibrated}  {sum(result['seconds'].values()):.1f} s"


def _failed(cell: Cell, out: Path, line: str) -> str:
    files.write_json(out / "errors" / f"{cell.name}.json", {"error": line})
    return f"failed: {line}"


def _free() -> None:
    """Give a GPU's memory back: other workers share it."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _leave_if_broken(line: str) -> None:
    """After some errors a GPU answers nothing more in this process; a fresh one goes on."""
    import torch

    if not torch.cuda.is_available():
        return
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        print(f"worker {os.getpid()} starts anew: {line}", file=sys.stderr, flush=True)
        os._exit(1)
