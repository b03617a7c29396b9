"""The tensor draws: uniform, normal, independent between samples and places."""

import numpy as np
import pytest
import torch
from scipy import stats

from confide.random import Draws, sample_keys


def draws(n=200, purpose="test", seed=0):
    return Draws(seed, sample_keys(np.arange(n)), purpose, torch.device("cpu"))


def test_uniform_draws_are_uniform_and_independent():
    values = draws().uniform("a", 500).numpy()
    assert stats.kstest(values.ravel(), "uniform").pvalue > 1e-3
    flat = values - 0.5
    # Neighbouring samples, neighbouring places, and all places of two samples.
    for a, b in ((flat[:-1], flat[1:]), (flat[:, :-1], flat[:, 1:]), (flat[::2], flat[1::2])):
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 0.02
    bits = (values * 2**24).astype(np.int64)
    for bit in range(24):
        assert abs(((bits >> bit) & 1).mean() - 0.5) < 0.01


def test_normal_draws_are_normal():
    values = draws().normal("a", 3, 167).numpy()
    assert values.shape == (200, 3, 167)
    assert stats.kstest(values.ravel(), "norm").pvalue > 1e-3
    assert abs(np.corrcoef(values[:, :, :-1].ravel(), values[:, :, 1:].ravel())[0, 1]) < 0.02


def test_a_longer_row_begins_with_the_shorter_one():
    assert (draws().uniform("a", 10) == draws().uniform("a", 500)[:, :10]).all()


def test_streams_of_other_names_and_purposes_differ():
    first = draws().uniform("a", 50)
    assert (first != draws().uniform("b", 50)).float().mean() > 0.99
    assert (first != draws(purpose="other").uniform("a", 50)).float().mean() > 0.99
    assert (first != draws(seed=1).uniform("a", 50)).float().mean() > 0.99


@pytest.mark.gpu
def test_the_gpu_draws_the_same_bits():
    keys = sample_keys(np.arange(50))
    here = Draws(3, keys, "shift/fog/2", torch.device("cpu"))
    there = Draws(3, keys, "shift/fog/2", torch.device("cuda"))
    assert torch.equal(here.uniform("noise", 3, 32, 32), there.uniform("noise", 3, 32, 32).cpu())
    apart = (here.normal("noise", 3, 32, 32) - there.normal("noise", 3, 32, 32).cpu()).abs()
    assert float(apart.max()) < 1e-5
