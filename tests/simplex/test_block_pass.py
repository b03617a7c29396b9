"""The pass by blocks against plain torch: every statistic alone, every pair, near and far from zero, in any blocks."""

from __future__ import annotations

import itertools

import pytest
import torch

from confide import block_sizes
from confide.simplex import statistics
from confide.simplex.reference import STATISTICS, Request, plain_statistics

FLOATING = tuple(name for name in STATISTICS if name != "prediction")


def batch(n: int, classes: int, scale: float, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    draws = torch.Generator().manual_seed(n * classes)
    logits = scale * torch.randn(n, classes, generator=draws, dtype=torch.float64)
    return logits.to(dtype), torch.arange(n) % classes


def told(
    logits: torch.Tensor, labels: torch.Tensor, names: tuple[str, ...], order: float, margin: float, plain: bool
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """The statistics, and the gradient of their sum, each sample and each statistic by a weight of its own."""
    leaf = logits.clone().requires_grad_()
    if plain:
        values = plain_statistics(leaf, labels, Request(names, order, margin))
    else:
        found = statistics.simplex_statistics(leaf, labels, names, order=order, margin=margin)
        values = tuple(getattr(found, name) for name in names)
    weights = torch.linspace(-1, 2, len(logits)).to(values[0].dtype)
    sum((k + 1) * (weights * value).sum() for k, value in enumerate(values)).backward()
    return [value.detach() for value in values], leaf.grad


def check(names: tuple[str, ...], shape: tuple[int, int], scale: float, dtype: torch.dtype, order: float) -> None:
    logits, labels = batch(*shape, scale, dtype)
    if not {"excess", "norm"} & set(names):  # whose slopes have no value where logits are equal
        logits[0] = logits[0].round()
    tolerance = 1e-9 if dtype == torch.float64 else 2e-4
    values, slope = told(logits, labels, names, order, order / 2, plain=False)
    expected, exact = told(logits.double(), labels, names, order, order / 2, plain=True)
    for value, own in zip(values, expected, strict=True):
        torch.testing.assert_close(value.double(), own, rtol=tolerance, atol=tolerance * scale)
    torch.testing.assert_close(slope.double(), exact, rtol=tolerance, atol=tolerance * scale)
    assert slope.dtype == dtype


@pytest.mark.parametrize("name", FLOATING)
def test_a_statistic_and_its_gradient_are_those_of_plain_torch(name, monkeypatch):
    monkeypatch.setattr(statistics, "SMALL", 0)
    for shape, scale in (((1, 2), 1.0), ((9, 5), 2.0), ((7, 3), 50.0)):
        monkeypatch.setattr(block_sizes, "CACHED", 2 * shape[1])
        for dtype, order in itertools.product((torch.float64, torch.float32), (1.0, 2.0)):
            check((name,), shape, scale, dtype, order)


def test_gradients_of_two_statistics_add_up(monkeypatch):
    monkeypatch.setattr(statistics, "SMALL", 0)
    monkeypatch.setattr(block_sizes, "CACHED", 10)
    for place, names in enumerate(itertools.combinations(FLOATING, 2)):
        check(names, (9, 5), 2.0, torch.float64, 1.0 + place % 2)


@pytest.mark.parametrize("rows", [(0, 3), (4, 3)])
def test_the_prediction_and_no_rows(rows, monkeypatch):
    monkeypatch.setattr(statistics, "SMALL", 0)
    logits, labels = torch.zeros(rows), torch.zeros(rows[0], dtype=torch.int64)
    found = statistics.simplex_statistics(logits, labels, "prediction p_max")
    assert found.prediction.tolist() == [0] * rows[0]
    assert found.p_max.tolist() == pytest.approx([1 / 3] * rows[0])
