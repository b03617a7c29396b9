"""What is not as it was saved, and logits that cannot be calculated with, are one clear line."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from confide import Predictions, calibrators
from confide.checks import InputError

ODD: tuple[Any, ...] = (None, -1, 1e308, "x", [], {}, {"a": 1}, 10**400, 2**63)
LOGITS = 3 * torch.randn(90, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = torch.where(torch.arange(90) % 3 == 0, (LOGITS.argmax(dim=1) + 1) % 3, LOGITS.argmax(dim=1))
VAL, TEST = Predictions(LOGITS, LABELS, split="val"), Predictions(LOGITS[:20], LABELS[:20], split="test")
WORDS = [method.word for method in calibrators.CALIBRATORS if method.spec.wants == "nothing"]


def mutations(record: dict[str, Any]) -> list[dict[str, Any]]:
    """The record with each field left out or replaced by something else, also one level into its values."""
    places = [(name,) for name in record] + [("values", name) for name in record["values"]]
    places += [("values", name, part) for name in record["values"] for part in ("dtype", "shape", "data")]
    changed = []
    for *above, last in places:
        for value in (*ODD, "left out"):
            new = copy.deepcopy(record)
            holder = new
            for name in above:
                holder = holder[name]
            if value == "left out":
                del holder[last]
            else:
                holder[last] = value
            changed.append(new)
    return changed


@pytest.mark.parametrize("word", WORDS)
def test_a_changed_calibrator_file_is_one_line_or_still_a_calibrator(word: str, tmp_path: Path) -> None:
    path = tmp_path / "calibrator.json"
    calibrators.fit(word, VAL).save(path)
    refused = []
    for record in mutations(json.loads(path.read_text())):
        path.write_text(json.dumps(record))
        try:
            calibrators.load(path)(TEST)
        except InputError as error:
            refused.append(str(error))
    assert len(refused) > 20
    assert not any("\n" in line for line in refused)


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("scale", [1e300, 1e-300])
def test_logits_of_any_size_are_calibrated_or_refused_in_one_line(word: str, scale: float) -> None:
    logits = LOGITS * scale
    logits[:45] /= scale
    try:
        calibrated = calibrators.fit(word, Predictions(logits, LABELS, split="val"))(TEST).logits
    except InputError:
        return
    assert torch.isfinite(calibrated).all()
