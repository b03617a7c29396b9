"""CLINC150's JSON layout: intents, and queries that are out of scope."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from confide.core.door import InputError, check_choice
from confide.core.files import read_json
from confide.data.family import DATASETS, recognises
from confide.data.parts import Found, Part

FILE = "data_full.json"
SPLITS = ("train", "val", "test")


@DATASETS.add("clinc150", paper="Larson et al., 2019, arXiv:1909.02027", takes="path")
def clinc150(path: Path, *, out_of_scope: str = "leave") -> Found:
    """CLINC150, queries of 150 intents and out-of-scope ones, from its JSON file: 15,000 / 3,000 / 4,500 queries.

    Args:
        out_of_scope: leave drops those queries (and records how many), class makes them one more class, only gives
            them alone, as val and test of a shifted dataset.
    """
    check_choice(out_of_scope, ("leave", "class", "only"), "out_of_scope")
    file = path / FILE if path.is_dir() else path
    content = read_json(file)
    if not isinstance(content, dict) or not set(SPLITS) <= set(content):
        raise InputError(f"{file} must be an object with train, val and test, got something else; is it CLINC150?")
    outside = {split: content.get(f"oos_{split}", []) for split in SPLITS}
    if out_of_scope == "only":
        return Found({split: _part(outside[split], file) for split in ("val", "test")}, None, "clinc150-oos")
    with_outside = out_of_scope == "class"
    parts = {split: _part(content[split] + (outside[split] if with_outside else []), file) for split in SPLITS}
    facts: dict[str, Any] = {}
    if not with_outside:
        facts["left_out"] = {f"oos_{split}": f"{len(rows)} out-of-scope queries" for split, rows in outside.items()}
    return Found(parts, None, "clinc150", facts)


def _is_clinc150(path: Path) -> bool:
    return path.name == FILE if path.is_file() else (path / FILE).is_file()


recognises("clinc150", _is_clinc150)


def _part(rows: list[Any], file: Path) -> Part:
    bad = next((row for row in rows if not (isinstance(row, list) and len(row) == 2)), None)
    if bad is not None:
        raise InputError(f"{file} must hold pairs of text and intent, got {bad!r}; is it CLINC150?")
    texts = np.empty(len(rows), dtype=object)
    texts[:] = [str(row[0]) for row in rows]
    return Part(texts, np.array([str(row[1]) for row in rows]))
