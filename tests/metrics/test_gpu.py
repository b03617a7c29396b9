"""Predictions that live on a GPU are evaluated alike."""

import pytest
import torch

import confide
from confide import Predictions


@pytest.mark.gpu
def test_a_gpu_gives_the_values_of_the_host():
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(500, 5, generator=generator)
    labels = torch.multinomial(torch.softmax(logits, 1), 1, generator=generator).squeeze(1)
    here = confide.evaluate(Predictions(logits, labels), by="class", trust={"t": logits[:, 0]})
    there = Predictions(logits.cuda(), labels.cuda())
    assert there.facts.confidence.is_cuda
    found = confide.evaluate(there, by="class", trust={"t": logits[:, 0].cuda()})
    for one, other in zip(here.measurements, found.measurements, strict=True):
        assert (one.metric, one.group, one.score) == (other.metric, other.group, other.score)
        assert other.value == pytest.approx(one.value, rel=1e-6, nan_ok=True)
    point = confide.operating_point(there, risk=0.4)
    assert confide.apply_operating_point(point, there).is_cuda
    assert confide.compare(there, there, metrics=["nll", "classwise_ece"], resamples=20)[0].difference == 0
    accumulator = confide.metrics.create("ece")
    accumulator.update(there.logits, there.labels)
    assert float(accumulator.compute()) == pytest.approx(here.value("ece", group=None), rel=1e-6)
