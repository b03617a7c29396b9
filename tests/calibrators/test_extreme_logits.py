"""Logits that cannot be calculated with are one clear line; tests/fuzz changes the files of calibrators."""

from __future__ import annotations

import pytest
import torch

from confide import Predictions, calibrators
from confide.checks import InputError

LOGITS = 3 * torch.randn(90, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = torch.where(torch.arange(90) % 3 == 0, (LOGITS.argmax(dim=1) + 1) % 3, LOGITS.argmax(dim=1))
VAL, TEST = Predictions(LOGITS, LABELS, split="val"), Predictions(LOGITS[:20], LABELS[:20], split="test")
WORDS = [method.word for method in calibrators.CALIBRATORS if method.spec.wants == "nothing"]


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
