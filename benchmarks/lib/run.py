"""Runs an item at a scale: what was asked is checked before the first cell, then come cells, numbers, tables,
verdicts.

A word that nothing answers to costs one line, not a failure of every cell, and no option is passed over in silence.

"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.lib.grid import PARTS, Cell, lite_cells
from benchmarks.lib.items import SMOKE, SMOKE_SAMPLES, Item, Outcome, Study
from benchmarks.lib.results import Results
from benchmarks.lib.sources import RENAMED, Sources, has_copy, keep_task_scores, prepare
from benchmarks.lib.tables import write
from benchmarks.lib.workers import Place, is_done, run_grid
from confide import data
from confide.checks import InputError, did_you_mean
from confide.data import DATASETS
from confide.training import Settings

# Runs an item at a scale: its cells where data is given, then its numbers, tables and verdicts.


@dataclass(frozen=True)
class Part:
    """What of an item is run: settings to change (as epochs); methods, seeds and networks to keep, all if empty."""

    changes: Mapping[str, Any] = field(default_factory=dict)
    methods: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    models: tuple[str, ...] = ()

    def of(self, cells: Sequence[Cell]) -> list[Cell]:
        """The cells of this part."""
        chosen = [cell for cell in cells if not self.methods or cell.method.name in self.methods]
        chosen = [cell for cell in chosen if not self.models or cell.model in self.models]
        return [cell for cell in chosen if not self.seeds or cell.seed in self.seeds]


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
        datasets = tuple(dict.fromkeys(setting.dataset for setting in item.paper))
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
    smoke = replace(place, out=place.out / "smoke", limit=SMOKE_SAMPLES, data={})
    sources = Sources({}, smoke.prepared, smoke.limit)
    prepare(sources, "fashion-sample", extractor="pixels")
    keep_task_scores(sources, "fashion-sample", Settings.from_dict({**SMOKE.training, "model": SMOKE.model}))
    return smoke


def _paper(item: Item, place: Place, tables: Path, part: Part) -> Finished:
    """The paper's own settings, on the data that is named; without any a dry run that ends at the data check."""
    if not item.paper:
        return Finished(None, (), (f"{item.name} trains nothing at paper scale; setting: {item.setting}",))
    plan = replace(
        item, paper=tuple(replace(setting, training={**setting.training, **part.changes}) for setting in item.paper)
    )
    cells = part.of(plan.cells("paper"))
    notes = [_plan_line(item, setting) for setting in plan.paper if not part.models or setting.model in part.models]
    names = dict.fromkeys(setting.dataset for setting in plan.paper)
    absent = [name for name in names if name not in place.data]
    for name in (name for name in names if name in place.data):
        dataset = data.load_dataset(place.data[name], name=name, rename=RENAMED.get(name))
        notes.append(f"{name}: {', '.join(f'{len(samples)} {split}' for split, samples in dataset.splits.items())}")
    if absent:
        notes.append(f"not at hand: {', '.join(absent)}; name each by --data NAME=PATH")
    if len(absent) == len(names):
        return Finished(None, (), (*notes[:-1], f"dry run, nothing was trained; {notes[-1]}"))
    cells = [cell for cell in cells if cell.dataset in place.data]
    if not cells and item.methods:
        return Finished(
            None, (), (*notes, "nothing was trained: no training fits --methods, --seeds and --model together")
        )
    failed = run_grid(cells, replace(place, resumable=True)).failed
    notes += [f"failed: {name}: {line}" for name, line in failed.items()]
    return _written(plan, "paper", place, tables, notes)


def _plan_line(item: Item, setting: Any) -> str:
    training = setting.training
    seeds = f"{setting.seeds} seed{'s' if setting.seeds > 1 else ''}"
    return (
        f"{setting.model} on {setting.dataset}, {training.get('epochs')} epochs, batch {training.get('batch_size')}, "
        + (f"{seeds} of {len(item.methods)} methods" if len(item.methods) > 1 else seeds)
    )


# What was asked of a table or of the grid, checked before the first cell.
#
# A word that nothing answers to costs one line, not a failure of every cell, and no option is passed over in silence.

OOD_DATA = ("tiny32", "textures")
"""Data of the grid that is no dataset of its own: images of other classes."""


def seeds_of(words: Sequence[str]) -> tuple[int, ...]:
    """Seeds as numbers."""
    for word in words:
        if not word.isdecimal():
            raise InputError(f"--seeds must be whole numbers such as 0,1,2, got '{word}'")
    return tuple(map(int, words))


def check_item(item: Item, scale: str, part: Part) -> None:
    """Methods, networks, seeds and settings that a table has at this scale."""
    if part.changes and scale != "paper":
        raise InputError(
            f"--set changes the training of a table at paper scale only, not at {scale} scale; the grid's cells are "
            "made by `python -m benchmarks grid --set`"
        )
    for setting in item.paper if scale == "paper" else ():
        Settings.from_dict({**setting.training, **part.changes, "model": setting.model})
    cells = item.cells(scale)
    filters: tuple[tuple[str, Sequence[str], set[str]], ...] = (
        ("method", part.methods, {cell.method.name for cell in cells}),
        ("network", part.models, {cell.model for cell in cells}),
        ("seed", [str(seed) for seed in part.seeds], {str(cell.seed) for cell in cells}),
    )
    for what, words, known in filters if cells else ():
        _check_words(words, known, f"{item.name} has no {what} '{{}}' at {scale} scale")


def check_grid(
    cells: Sequence[Cell], place: Place, *, methods: Sequence[str], parts: Sequence[str], datasets: Sequence[str]
) -> None:
    """Words and places that no cell of the grid can use."""
    whole = lite_cells()
    names = {cell.dataset for cell in whole}
    _check_words(datasets, names, "no dataset of the grid is named '{}'")
    _check_words(methods, {cell.method.name for cell in whole}, "no method of the grid is named '{}'")
    _check_words(parts, PARTS, "no part of the grid is named '{}'")
    if not cells:
        raise InputError(
            "no cell of the grid fits --datasets, --parts, --seeds and --methods together; name fewer of them"
        )
    for cell in {(cell.dataset, cell.model): cell for cell in cells}.values():
        Settings.from_dict({**cell.settings, "model": cell.model})
    _check_words(list(place.data), {*names, *OOD_DATA}, "--data: the grid has no data named '{}'")
    for name, value in place.data.items() if place.engine == "local" else ():
        if value.partition(":")[0] not in DATASETS.names() and not Path(value).exists():
            raise InputError(f"--data {name}={value} must name data that is there, but there is none; check the path")


def with_data(cells: Sequence[Cell], place: Place) -> tuple[list[Cell], list[str]]:
    """The cells that are whole or whose data can be had, and the names of the datasets that cannot."""
    todo = {cell.name: cell.dataset for cell in cells if not is_done(cell, place.out)}
    absent = []
    for name in dict.fromkeys(todo.values()) if place.engine == "local" else ():
        if name not in place.data and not has_copy(place.prepared, name):
            try:
                Sources(place.data, place.prepared, place.limit).dataset(name)
            except InputError:
                absent.append(name)
    if absent and set(absent) == set(todo.values()):
        raise InputError(
            f"the data of a grid must be at hand, but that of {' and '.join(absent)} is not; name it by "
            f"--data {absent[0]}=PATH"
        )
    return [cell for cell in cells if cell.name not in todo or cell.dataset not in absent], absent


def _check_words(words: Sequence[str], known: Collection[str], complaint: str) -> None:
    for word in words:
        if word not in known:
            raise InputError(f"{complaint.format(word)}; {did_you_mean(word, sorted(known))}")
