"""The numbers of the worked cases are those that are kept; `python -m tests.kept` writes them anew."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from tests.kept.entries import FAMILIES, worked_out

KEPT = {family: json.loads((Path(__file__).parent / f"{family}.json").read_text()) for family in FAMILIES}
ENTRIES = {f"{family}/{name}": make for family, entries in FAMILIES.items() for name, make in entries()}
ROUGH = {"training": 1e-2, "models": 1e-3, "cli/train": 1e-2, "cli/predict": 1e-2, "cli/shift": 1e-2}
"""What float32 adds up in another order elsewhere."""
NUMBER = re.compile(r"(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)")


def differences(worked: Any, kept: Any, tolerance: float, where: str = "") -> list[str]:
    """Where two nested values differ, numbers beyond the tolerance."""
    if isinstance(kept, dict) and isinstance(worked, dict):
        gone = [f"{where}.{key} is only in one" for key in kept.keys() ^ worked.keys()]
        both = [differences(worked[k], kept[k], tolerance, f"{where}.{k}") for k in kept if k in worked]
        return [*gone, *(line for lines in both for line in lines)]
    if isinstance(kept, list) and isinstance(worked, list):
        if len(kept) != len(worked):
            return [f"{where} has {len(worked)} entries, not {len(kept)}"]
        pairs = zip(worked, kept, strict=True)
        return [line for k, (a, b) in enumerate(pairs) for line in differences(a, b, tolerance, f"{where}[{k}]")]
    if isinstance(kept, str) and isinstance(worked, str) and kept != worked:
        texts = NUMBER.split(worked), NUMBER.split(kept)
        if texts[0][::2] != texts[1][::2]:
            return [f"{where} says {worked[:200]!r}, not {kept[:200]!r}"]
        numbers = [[float(n) for n in text[1::2]] for text in texts]
        return differences(*numbers, tolerance, where)
    numeric = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in (worked, kept))
    same = math.isclose(worked, kept, rel_tol=tolerance, abs_tol=1e-7) if numeric else worked == kept
    return [] if same else [f"{where} is {worked!r}, not {kept!r}"]


@pytest.mark.parametrize("name", ENTRIES)
def test_the_numbers_are_those_that_are_kept(name: str) -> None:
    family, _, entry = name.partition("/")
    worked = json.loads(json.dumps(worked_out(ENTRIES[name])))
    tolerance = ROUGH.get(family, ROUGH.get(name.partition(" ")[0], 1e-4))
    assert differences(worked, KEPT[family][entry], tolerance) == []


def test_every_case_is_kept_and_no_other() -> None:
    assert sorted(ENTRIES) == sorted(f"{family}/{entry}" for family, entries in KEPT.items() for entry in entries)
