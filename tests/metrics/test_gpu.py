"""Predictions that live on a GPU are evaluated alike; where there is none, the same steps on tensors of the host."""

import numpy as np
import pytest
import torch

import confide
from confide import Predictions
from confide.evaluation.evaluate import available_words
from confide.metrics.view import MetricSamples, metric_samples, sort_packed, sort_there


def simulated(kind: str) -> Predictions:
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(400, 5, generator=generator)
    logits = logits.round() if kind == "tied" else logits
    labels = torch.multinomial(torch.softmax(logits, 1), 1, generator=generator).squeeze(1)
    if kind == "pairs":
        facts = Predictions(logits, labels).facts
        return Predictions.from_pairs(facts.correct, facts.confidence)
    if kind == "probabilities":
        return Predictions.from_probs(torch.softmax(logits.double(), 1), labels)
    return Predictions(logits.double() if kind == "float64" else logits, labels)


def as_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors of the host stand for those of a device: no function of numpy takes them."""

    def refused(*_: object) -> None:
        raise TypeError("numpy cannot read a tensor of a device")

    monkeypatch.setattr(MetricSamples, "on_device", property(lambda base: base.design.plain and not base.resampled))
    monkeypatch.setattr(torch.Tensor, "__array__", refused)


@pytest.mark.parametrize("intervals", [False, True])
@pytest.mark.parametrize("kind", ["float32", "float64", "tied", "probabilities", "pairs"])
def test_rankings_bins_and_curves_of_tensors_are_those_of_arrays(
    kind: str, intervals: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = ("debiased_ece", "sweep_ece", "separability_kl", "coverage_at_risk", "risk_at_coverage", "tpr")
    core = available_words("core", simulated(kind))

    def evaluated() -> confide.Evaluation:
        record = simulated(kind)
        given = {"given": np.linspace(-1, 1, len(record)) ** 3, "low": -np.arange(400.0) // 9}
        return confide.evaluate(record, [*core, *more], intervals, trust=given)

    here = evaluated()
    as_on_a_device(monkeypatch)
    assert isinstance(metric_samples(simulated(kind)).sorted_there("msp").stored, torch.Tensor)
    found = evaluated()
    for one, other in zip(here.measurements, found.measurements, strict=True):
        assert (one.metric, one.group, one.score) == (other.metric, other.group, other.score)
        values = [(m.value, m.low, m.high, m.p_value or 0) for m in (one, other)]
        assert values[1] == pytest.approx(values[0], rel=1e-9, abs=1e-12, nan_ok=True), one
    for one, other in zip(here.curves, found.curves, strict=True):
        for name, column in one.columns.items():
            np.testing.assert_allclose(other.columns[name], column, rtol=1e-9, atol=1e-12, err_msg=f"{one.kind} {name}")


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
@pytest.mark.parametrize("sign", [1, -1])
def test_tensors_are_sorted_as_arrays_are(kind: torch.dtype, sign: int) -> None:
    generator = torch.Generator().manual_seed(0)
    values = sign * torch.cat((torch.rand(300, generator=generator), torch.arange(40) / 4, torch.zeros(5))).to(kind)
    values[7], wrong = -0.0, torch.rand(345, generator=generator) < 0.4
    here, there = sort_packed(values.numpy(), wrong.numpy()), sort_there(values, wrong).on_host
    for name in ("stored", "wrong", "reached", "tied"):
        assert np.array_equal(getattr(here, name), getattr(there, name)), name


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
