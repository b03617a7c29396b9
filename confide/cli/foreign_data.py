"""Foreign data by word or path: found in the data folder, brought to the model's shape, overlapping classes dropped."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confide.core.records import Dataset, Split

OUT_OF_SCOPE = "out-of-scope"


def short_name(source: str) -> str:
    """How a foreign set is called: its word, or the name of its file or folder."""
    return Path(source.rstrip("/")).name.split(".")[0] or source


def load_foreign(source: str, known: Dataset, known_source: str, shape: tuple[int, ...] | None, *, most: int) -> Split:
    """The foreign samples of a source.

    Args:
        source: a path, a word of the data room, a name in the data folder, or `out-of-scope` of the known data.
        known_source: how the known data were named; out-of-scope queries are in the same file.
        shape: of the model's images; None for other inputs.
        most: samples at most; 0 takes all.
    """
    from confide.core.door import InputError, OptionError
    from confide.data import data_folder, load_dataset
    from confide.shift.foreign import foreign_split, pair_of

    if source == OUT_OF_SCOPE:
        try:
            dataset = load_dataset(known_source, out_of_scope="only")
        except OptionError:
            raise InputError(
                f"'{OUT_OF_SCOPE}' means the out-of-scope queries of clinc150, and '{known.name}' has none; "
                "name other data"
            ) from None
        return foreign_split(dataset, pair_of(known.name, source), shape, most=most)
    place = _in_data_folder(source, data_folder())
    # All of a set that has no test split of its own is foreign: nothing of it is cut off.
    whole: dict[str, Any] = {"val_fraction": 0, "test_fraction": 0}
    try:
        # Folders hold images of any size: those are scaled as they are read.
        dataset = load_dataset(place, **({**whole, "size": shape[1:]} if shape else whole))
    except OptionError:
        dataset = load_dataset(place, **whole)
    if dataset.kind != known.kind:
        raise InputError(f"foreign data '{source}' must be {known.kind}s as '{known.name}' is, got {dataset.kind}s")
    return foreign_split(dataset, pair_of(known.name, short_name(source)), shape, most=most)


def _in_data_folder(source: str, folder: Path) -> str:
    """The entry of the data folder with that name, else one that adds digits to it, such as dtd10_64.npz for dtd."""
    from confide.data import names

    if Path(source).exists() or not folder.is_dir():
        return source
    source = source.rstrip("/")
    entries = {entry.name.split(".")[0]: entry for entry in sorted(folder.iterdir(), reverse=True)}
    longer = [n for n in sorted(entries) if re.fullmatch(re.escape(source) + r"[-_\d]+", n)]
    # A dataset's word means that dataset: cifar10 must not find cifar100.
    name = source if source in entries else next(iter(longer), "") if source not in names() else ""
    named = bool(source) and (folder / source).exists()  # with its suffix
    if not (name or named):
        return source
    found = folder / source if named else entries[name]
    # The official archive of DTD keeps its class folders one deeper.
    return str(found / "images" if (found / "images").is_dir() and (found / "labels").is_dir() else found)
