"""The door of the data room: a word or a path -> the source that reads it -> a checked Dataset."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from confide.core.door import InputError, did_you_mean
from confide.core.records import Dataset
from confide.core.registry import Method, Registry
from confide.data.assemble import Plan, assemble

DATASETS = Registry("dataset")
"""Sources: `(path | data folder | arrays, *, options) -> Found`. The fact `takes` says which of the three."""

_RECOGNISERS: dict[str, Callable[[Path], bool]] = {}
# A path that several sources know is read by the first of these; a user's own source is asked before them.
_ASKED = "tiny-imagenet svhn parquet mnist jsonl npz csv clinc150 cifar100 cifar10 folder".split()


def recognises(word: str, test: Callable[[Path], bool]) -> None:
    """A source tells which paths are its own."""
    _RECOGNISERS[word] = test


def names() -> tuple[str, ...]:
    """All words, sorted."""
    return DATASETS.names()


def data_folder(given: str | Path | None = None) -> Path:
    """Where downloaded data lives: the argument, else the environment's CONFIDE_DATA, else ~/.cache/confide."""
    return Path(given or os.environ.get("CONFIDE_DATA") or Path.home() / ".cache" / "confide").expanduser()


def load_dataset(
    source: Any,
    *,
    seed: int = 0,
    val_fraction: float = 0.1,
    test_fraction: float = 0.1,
    rename: Mapping[str, str] | None = None,
    class_names: Sequence[str] | None = None,
    name: str = "",
    folder: str | Path | None = None,
    **options: Any,
) -> Dataset:
    """The dataset of a word (`fashion-sample`, `cifar10`, `hf:<name>`), a path, or arrays in memory.

    Splits that the source lacks are cut from its training part: stratified, by seed, recorded in `provenance`.

    Args:
        seed: of the splits made here.
        val_fraction: share of the part it is cut from; 0 makes no such split.
        test_fraction: likewise.
        rename: which part plays which role, such as {"val": "test"}.
        class_names: one name per class index, where the source has none or others are wanted.
        name: how the dataset is called in reports.
        folder: where words find (and keep) their files, instead of CONFIDE_DATA or ~/.cache/confide.
        options: of the source; `confide list data` shows them.
    """
    home = data_folder(folder)
    method, where = _find(source, home)
    method.check_options(options)
    needs = {"data_folder": home} if "data_folder" in method.needs else {}
    found = method.function(where, **options, **needs)
    origin = {"source": method.word, "options": options}
    if method.facts["takes"] in ("path", "name"):
        origin["where"] = str(where)
    plan = Plan(seed, val_fraction, test_fraction, rename)
    return assemble(replace(found, facts={**origin, **found.facts}), name, plan, class_names)


def _find(source: Any, folder: Path) -> tuple[Method, Any]:
    if not isinstance(source, (str, Path)):
        return DATASETS.get("arrays"), source
    word, _, rest = str(source).partition(":")
    if word in DATASETS and isinstance(source, str):
        return _by_word(DATASETS.get(word), rest, folder)
    path = Path(source).expanduser()
    if not path.exists() and (path.suffix or len(path.parts) > 1):
        raise InputError(f"{path} must be a file or folder, but it does not exist; check the path")
    if not path.exists():
        raise InputError(
            f"no dataset named '{source}', and no such file or folder; {did_you_mean(str(source), DATASETS.names())}"
        )
    own = [word for word in reversed(_RECOGNISERS) if word not in _ASKED]
    for word in (*own, *_ASKED):
        if _RECOGNISERS[word](path):
            return DATASETS.get(word), path
    what = "folder" if path.is_dir() else "file"
    raise InputError(
        f"{what} {path} must be a dataset, but no source knows its layout ({_content(path)}); "
        "`confide list data` shows the layouts"
    )


def _by_word(method: Method, rest: str, folder: Path) -> tuple[Method, Any]:
    takes = method.facts["takes"]
    if takes == "memory":
        raise InputError(f"dataset '{method.word}' is made of arrays; pass them: load_dataset((inputs, labels))")
    if takes == "word" and not rest:
        return method, folder
    if not rest:
        raise InputError(f"dataset '{method.word}' must be told where, got the bare word; write '{method.word}:WHERE'")
    if takes == "name":
        return method, rest
    path = Path(rest).expanduser()
    if not path.exists():
        raise InputError(f"{path} must be a file or folder, but it does not exist; check the path")
    return method, path


def _content(path: Path) -> str:
    if not path.is_dir():
        return f"ending '{path.suffix}'" if path.suffix else "no ending"
    inside = sorted(entry.name for entry in path.iterdir())
    return "it is empty" if not inside else "it holds " + ", ".join(inside[:3]) + (", ..." if len(inside) > 3 else "")
