"""What the calibrator tests share: golden vectors as predictions, and data made with a known map."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from confide import Predictions

GOLDEN = Path(__file__).parent.parent / "golden"


def labels_from(logits: Tensor, seed: int) -> Tensor:
    """Labels drawn from softmax(logits): the logits are calibrated by construction."""
    generator = torch.Generator().manual_seed(seed)
    return torch.multinomial(torch.softmax(logits.double(), dim=1), 1, generator=generator).squeeze(1)


@pytest.fixture(scope="session")
def golden() -> Callable[[str], dict[str, NDArray[np.float64]]]:
    def read(name: str) -> dict[str, NDArray[np.float64]]:
        with np.load(GOLDEN / f"{name}.npz", allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}

    return read


@pytest.fixture(scope="session")
def val(golden: Callable[[str], dict[str, NDArray[np.float64]]]) -> Predictions:
    inputs = golden("inputs_D")
    return Predictions(inputs["val_logits"], inputs["val_labels"], split="val")


@pytest.fixture(scope="session")
def test(golden: Callable[[str], dict[str, NDArray[np.float64]]]) -> Predictions:
    inputs = golden("inputs_D")
    return Predictions(inputs["test_logits"], inputs["test_labels"], split="test")


@pytest.fixture(scope="session")
def made() -> Callable[..., tuple[Tensor, Tensor]]:
    def draw(n: int, num_classes: int, seed: int, spread: float = 2.0) -> tuple[Tensor, Tensor]:
        """Calibrated logits and labels drawn from them."""
        generator = torch.Generator().manual_seed(seed)
        logits = spread * torch.randn(n, num_classes, generator=generator, dtype=torch.float64)
        return logits, labels_from(logits, seed + 1)

    return draw
