"""The same distances on a GPU."""

import numpy as np
import pytest
import torch

from confide import difficulty
from confide.numerics.gaussians import class_fit, fit_gaussians

pytestmark = pytest.mark.gpu


@pytest.fixture
def data():
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 20, 5000)
    return (draw.normal(size=(5000, 64)) + draw.normal(size=(20, 64))[labels]).astype(np.float32), labels


@pytest.mark.parametrize("word", ["rmd", "md", "kmeans", "prototype"])
def test_the_gpu_gives_the_numbers_of_the_cpu(data, word):
    rows, labels = data
    on_gpu = difficulty.score(word, torch.from_numpy(rows).cuda(), labels).values
    np.testing.assert_allclose(on_gpu, difficulty.score(word, rows, labels).values, rtol=1e-3, atol=1e-3)


def test_nearest_classes_are_the_same(data):
    rows, labels = data
    cpu = class_fit(fit_gaussians(rows, labels, 20), rows)
    gpu = class_fit(fit_gaussians(torch.from_numpy(rows).cuda(), labels, 20), torch.from_numpy(rows).cuda())
    assert (cpu.nearest == gpu.nearest).mean() > 0.999


def test_verdicts_on_the_gpu(data):
    rows, labels = data
    cpu, gpu = difficulty.verdicts(rows, labels), difficulty.verdicts(torch.from_numpy(rows).cuda(), labels)
    assert (cpu.verdict == gpu.verdict).mean() > 0.99
