"""Runs an item at a scale: its cells where data is given, then its numbers, tables and verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from confide import data
from confide.bench.item import SMOKE, SMOKE_SAMPLES, Item, Outcome, Study
from confide.bench.plan import Cell
from confide.bench.preparing import prepare
from confide.bench.results import Results
from confide.bench.sources import RENAMED, Sources
from confide.bench.task_scores import keep_task_scores
from confide.bench.work import Place, run_grid
from confide.bench.writing import write
from confide.training import Settings


@dataclass(frozen=True)
class Part:
    """What of an item is run: settings to change (as epochs); methods, seeds and networks to keep, all if empty."""

    changes: Mapping[str, Any] = field(default_factory=dict)
    methods: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    models: tuple[str, ...] = ()

    def of(self, cells: Sequence[Cell]) -> list[Cell]:
        """The cells of this part."""
        kept = [cell for cell in cells if not self.methods or cell.method.name in self.methods]
        kept = [cell for cell in kept if not self.models or cell.model in self.models]
        return [cell for cell in kept if not self.seeds or cell.seed in self.seeds]


EVERYTHING = Part()


@dataclass(frozen=True)
class Finished:
    """An item's outcome, the files written, and lines a person should read."""

    outcome: Outcome | None
    paths: tuple[Path, ...]
    notes: tuple[str, ...] = ()


def run_item(
    item: Item, scale: str, place: Place, tables: Path, part: Part = EVERYTHING, *, keep: bool = False
) -> Finished:
    """Run what is missing and can be run, and write the tables.

    Args:
        place: where cells lie and which data is at hand; without data `lite` shows what is there.
        part: what of it is run; settings are changed at `paper` scale only.
        keep: a page that is there is not replaced by one without numbers.
    """
    if scale == "smoke":
        place = smoke_place(place)
    if scale == "paper":
        return _paper(item, place, tables, part)
    cells = part.of(item.cells(scale))
    notes = []
    if scale == "smoke" or any(cell.dataset in place.data for cell in cells):
        cells = [cell for cell in cells if scale == "smoke" or cell.dataset in place.data]
        failed = run_grid(cells, place).failed
        notes += [f"failed: {name}: {line}" for name, line in failed.items()]
    return _written(item, scale, place, tables, notes, keep)


def _written(item: Item, scale: str, place: Place, tables: Path, notes: list[str], keep: bool = False) -> Finished:
    datasets = ("fashion-sample",) if scale == "smoke" else item.datasets
    if scale == "paper":
        datasets = tuple(dict.fromkeys(one.dataset for one in item.paper))
    models = item.models if scale == "lite" else ()
    cells = Results((place.out,), place.prepared, models)
    study = Study(cells, scale, datasets, place.out, place.data, item.paper, place.limit)
    outcome = item.outcome(study)
    page = tables / f"{item.name}.md"
    if keep and not outcome.rows and page.exists() and "| here |" in page.read_text(encoding="utf-8"):
        return Finished(None, (), tuple(notes))
    return Finished(outcome, tuple(write(item, outcome, tables, scale)), tuple(notes))


def smoke_place(place: Place) -> Place:
    """A folder for the embedded data, shared by all items, with its difficulty scores."""
    found = replace(place, out=place.out / "smoke", limit=SMOKE_SAMPLES, data={})
    sources = Sources({}, found.prepared, found.limit)
    prepare(sources, "fashion-sample", extractor="pixels")
    keep_task_scores(sources, "fashion-sample", Settings.from_dict({**SMOKE.training, "model": SMOKE.model}))
    return found


def _paper(item: Item, place: Place, tables: Path, part: Part) -> Finished:
    """The paper's own settings, on the data that is named; without any a dry run that ends at the data check."""
    if not item.paper:
        return Finished(None, (), (f"{item.name} trains nothing at paper scale; setting: {item.setting}",))
    plan = replace(item, paper=tuple(replace(one, training={**one.training, **part.changes}) for one in item.paper))
    cells = part.of(plan.cells("paper"))
    told = [_plan_line(item, one) for one in plan.paper if not part.models or one.model in part.models]
    names = dict.fromkeys(one.dataset for one in plan.paper)
    absent = [name for name in names if name not in place.data]
    for name in (name for name in names if name in place.data):
        found = data.load_dataset(place.data[name], name=name, rename=RENAMED.get(name))
        told.append(f"{name}: {', '.join(f'{len(some)} {split}' for split, some in found.splits.items())}")
    if absent:
        told.append(f"not at hand: {', '.join(absent)}; name each by --data NAME=PATH")
    if len(absent) == len(names):
        return Finished(None, (), (*told[:-1], f"dry run, nothing was trained; {told[-1]}"))
    cells = [cell for cell in cells if cell.dataset in place.data]
    if not cells and item.methods:
        return Finished(
            None, (), (*told, "nothing was trained: no training fits --methods, --seeds and --model together")
        )
    failed = run_grid(cells, replace(place, resumable=True)).failed
    told += [f"failed: {name}: {line}" for name, line in failed.items()]
    return _written(plan, "paper", place, tables, told)


def _plan_line(item: Item, setting: Any) -> str:
    training = setting.training
    seeds = f"{setting.seeds} seed{'s' if setting.seeds > 1 else ''}"
    return (
        f"{setting.model} on {setting.dataset}, {training.get('epochs')} epochs, batch {training.get('batch_size')}, "
        + (f"{seeds} of {len(item.methods)} methods" if len(item.methods) > 1 else seeds)
    )
