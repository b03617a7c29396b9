"""What was asked of a table or of the grid, checked before the first cell.

A word that nothing answers to costs one line, not a failure of every cell, and no option is passed over in silence.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from confide.bench.item import Item
from confide.bench.plan import Cell
from confide.bench.running import Part
from confide.bench.scales import PARTS, lite_cells
from confide.bench.sources import Sources, has_copy
from confide.bench.work import Place, is_done
from confide.core.door import InputError, did_you_mean
from confide.data import DATASETS
from confide.training import Settings

FOREIGN = ("tiny32", "textures")
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
            "made by `confide bench grid --set`"
        )
    for one in item.paper if scale == "paper" else ():
        Settings.from_dict({**one.training, **part.changes, "model": one.model})
    cells = item.cells(scale)
    asked: tuple[tuple[str, Sequence[str], set[str]], ...] = (
        ("method", part.methods, {cell.method.name for cell in cells}),
        ("network", part.models, {cell.model for cell in cells}),
        ("seed", [str(seed) for seed in part.seeds], {str(cell.seed) for cell in cells}),
    )
    for what, words, known in asked if cells else ():
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
    _check_words(list(place.data), {*names, *FOREIGN}, "--data: the grid has no data named '{}'")
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


def _check_words(words: Sequence[str], known: Collection[str], told: str) -> None:
    for word in words:
        if word not in known:
            raise InputError(f"{told.format(word)}; {did_you_mean(word, sorted(known))}")
