"""The numbers of the worked cases are those that are kept; `python -m tests.kept` writes them anew."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from confide import block_sizes
from confide.checks import MissingExtra
from tests.kept import entries
from tests.kept.entries import worked_out
from tests.kept.families import FAMILIES

KEPT = {family: json.loads((Path(__file__).parent / f"{family}.json").read_text()) for family in FAMILIES}
ENTRIES = {f"{family}/{name}": make for family, entries in FAMILIES.items() for name, make in entries()}
ROUGH = {"training": 1e-2, "models": 1e-3, "cli/train": 1e-2, "cli/predict": 1e-2, "cli/shift": 1e-2}
"""What float32 adds up in another order elsewhere."""
FLAT = {
    "calibrators/second_opinion1": 2e-3,
    "beyond/WIDE_WORK matrix {}": 1e-2,
    "edges_of_fits/calibrators dirichlet gap": 3e-2,
    "edges_of_fits/calibrators dirichlet sure": 0.15,
    "edges_of_fits/calibrators dirichlet zeros": 1e-2,
    "edges_of_metrics/metrics sure": 1e-2,
    "edges_of_metrics/evaluate sure": 1e-2,
    "limits/data: decoded": 2e-2,
    "limits/pictures: sizes": 5e-3,
}
"""Searches that end where the loss is flat, or lies beyond all samples: another processor ends a little elsewhere;
the spread of confidences that differ in their last digit; pictures made smaller, of which Pillow 12, the last for
Python 3.10, rounds a pixel otherwise than Pillow 13."""
IN_BLOCKS = ("calibrators", "metrics", "trust", "difficulty", "numerics", "sets", "decisions", "shift", "losses")
"""Families whose samples, more than one hundred, are looked at in blocks."""
SWITCHES: dict[str, dict[str, Any]] = {
    "calibrators.temperature_scaling": {"PART_ELEMENTS": 100, "SAMPLE_SIZES": (8, 20), "allowed_threads": lambda: 3},
    "calibrators.linear_maps": {"START_ROWS": 40, "MOST_TURNED": 10},
    "metrics.calibration": {"MOST_KEPT": 20},
    "metrics.classwise_calibration": {"MASS_ELEMENTS": 100, "LARGEST": 50},
    "numerics.logistic": {"POOLED_FROM": 20},
    "numerics.neighbours": {"CENTRE_ROWS": 20},
    "evaluation.sketches": {"MOST_BUFFERED": 30},
    "simplex.statistics": {"SMALL": 1},
}
"""Sizes from which another way to the same numbers is the quicker one."""
MOVES = ("calibrators/parameterised_temperature",)
"""A network trained in float32 from a temperature that is found to eight digits."""
NUMBER = re.compile(r"(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)")


def differences(worked: Any, kept: Any, tolerance: float, where: str = "", near: float = 1e-7) -> list[str]:
    """Where two nested values differ, numbers beyond the tolerance."""
    if isinstance(kept, dict) and isinstance(worked, dict):
        gone = [f"{where}.{key} is only in one" for key in kept.keys() ^ worked.keys()]
        both = [differences(worked[k], kept[k], tolerance, f"{where}.{k}", near) for k in kept if k in worked]
        return [*gone, *(line for lines in both for line in lines)]
    if isinstance(kept, list) and isinstance(worked, list):
        if len(kept) != len(worked):
            return [f"{where} has {len(worked)} entries, not {len(kept)}"]
        pairs = zip(worked, kept, strict=True)
        return [line for k, (a, b) in enumerate(pairs) for line in differences(a, b, tolerance, f"{where}[{k}]", near)]
    if isinstance(kept, str) and isinstance(worked, str) and kept != worked:
        texts = NUMBER.split(worked), NUMBER.split(kept)
        if texts[0][::2] != texts[1][::2]:
            return [f"{where} says {worked[:200]!r}, not {kept[:200]!r}"]
        numbers = [[float(n) for n in text[1::2]] for text in texts]
        return differences(*numbers, tolerance, where, near)
    numeric = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in (worked, kept))
    same = math.isclose(worked, kept, rel_tol=tolerance, abs_tol=near) if numeric else worked == kept
    return [] if same else [f"{where} is {worked!r}, not {kept!r}"]


@pytest.mark.parametrize("name", ENTRIES)
def test_the_numbers_are_those_that_are_kept(name: str) -> None:
    family, _, entry = name.partition("/")
    try:
        worked = json.loads(json.dumps(worked_out(ENTRIES[name])))
    except MissingExtra as missing:
        pytest.skip(str(missing))
    tolerance = FLAT.get(name, ROUGH.get(family, ROUGH.get(name.partition(" ")[0], 1e-4)))
    near = 1e-6 if family == "numerics" else 1e-7
    assert differences(worked, KEPT[family][entry], tolerance, near=near) == []


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Blocks of some forty rows, wherever a module has their size, and nothing left of what larger ones gave."""
    sizes = {name: 161 if value > 100_000 else 41 for name, value in vars(block_sizes).items() if name.isupper()}
    sizes |= {"DISTANCE_BYTES": 20_011, "CLASS_DISTANCE_BYTES": 4001}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "confide":
            for size, rows in sizes.items():
                if vars(module).get(size) == getattr(block_sizes, size) and module is not block_sizes:
                    monkeypatch.setattr(module, size, rows)
    for size, rows in sizes.items():
        monkeypatch.setattr(block_sizes, size, rows)
    for module, limits in SWITCHES.items():
        for name, limit in limits.items():
            monkeypatch.setattr(sys.modules[f"confide.{module}"], name, limit)
    entries.predictions.cache_clear()
    yield
    entries.predictions.cache_clear()


@pytest.mark.parametrize("name", [n for n in ENTRIES if n.partition("/")[0] in IN_BLOCKS and n not in MOVES])
@pytest.mark.usefixtures("small_blocks")
def test_the_numbers_are_the_same_in_small_blocks(name: str) -> None:
    family, _, entry = name.partition("/")
    worked = json.loads(json.dumps(worked_out(ENTRIES[name])))
    near = 1e-6 if family in ("losses", "numerics") else 1e-7
    assert differences(worked, KEPT[family][entry], FLAT.get(name, 1e-4), near=near) == []


def test_every_case_is_kept_and_no_other() -> None:
    assert sorted(ENTRIES) == sorted(f"{family}/{entry}" for family, entries in KEPT.items() for entry in entries)
