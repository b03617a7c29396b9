"""Metrics of torchmetrics; run where that is installed."""

from __future__ import annotations

import pickle

import pytest
import torch

from confide import Predictions, metrics

torchmetrics = pytest.importorskip("torchmetrics")
from confide.integrations import torchmetrics as integration  # noqa: E402

NEEDING = {"coverage_at_risk": {"risk": 0.3}, "risk_at_coverage": {"coverage": 0.7}}


def outputs(n=120, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn((n, 4), generator=generator)
    return logits, torch.multinomial(torch.softmax(logits / 2, dim=1), 1, generator=generator).squeeze(1)


@pytest.mark.parametrize("word", metrics.names())
def test_every_metric_gives_its_own_value_over_batches(word):
    logits, labels = outputs()
    options = {k: v for k, v in NEEDING.get(word, {}).items() if k in metrics.base.METRICS.get(word).options}
    metric = getattr(integration, integration.class_name(word))(**options)
    for rows in torch.arange(120).split(50):
        metric.update(logits[rows], labels[rows])
    expected = float(getattr(metrics, word)(Predictions(logits, labels), **options))
    assert float(metric.compute()) == pytest.approx(expected, rel=1e-5, nan_ok=True)
    metric.reset()
    again = pickle.loads(pickle.dumps(metric))
    assert float(again(logits, labels)) == pytest.approx(expected, rel=1e-5, nan_ok=True)


def test_a_collection_probabilities_and_names():
    logits, labels = outputs()
    collection = torchmetrics.MetricCollection([integration.ECE(bins=10), integration.AURC(), integration.NLL()])
    collection.update(logits, labels)
    assert set(collection.compute()) == {"ECE", "AURC", "NLL"}
    assert integration.Ece is integration.ECE
    assert integration.ClasswiseECE is integration.metric_class("classwise_ece")
    assert (integration.ECE.higher_is_better, integration.AUROC.higher_is_better) == (False, True)
    probs = integration.ECE(from_probs=True)
    assert float(probs(torch.softmax(logits, 1), labels)) == pytest.approx(float(integration.ECE()(logits, labels)))
    for name in ("AURCC", "_ece"):
        with pytest.raises(AttributeError, match="no metric is called"):
            getattr(integration, name)
    with pytest.raises(AttributeError, match="did you mean 'AURC'"):
        _ = integration.AURCC


def test_a_class_says_what_torchmetrics_asks_of_it():
    for word in metrics.names():
        spec, own = metrics.base.METRICS.get(word).spec, integration.metric_class(word)
        assert (own.is_differentiable, own.full_state_update) == (False, False)
        assert (own.plot_lower_bound, own.plot_upper_bound) == spec.range[:2]
        assert own.higher_is_better is {"higher": True, "lower": False}.get(spec.info.better)


def test_scores_of_one_class_are_binary_logits():
    scores, labels = outputs()[0][:, 0], outputs()[1] % 2
    expected = float(metrics.nll(Predictions.from_binary_logits(scores, labels)))
    assert float(integration.NLL()(scores, labels)) == pytest.approx(expected, rel=1e-5)


def _one_process(rank, store, results):
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    logits, labels = outputs()
    metric = integration.ECE()
    rows = slice(0, 70) if rank == 0 else slice(70, 120)
    metric.update(logits[rows], labels[rows])
    results.put(float(metric.compute()))
    torch.distributed.destroy_process_group()


@pytest.mark.slow
def test_two_processes_give_the_number_of_one(tmp_path):
    context = torch.multiprocessing.get_context("spawn")
    results = context.Queue()
    processes = [context.Process(target=_one_process, args=(k, str(tmp_path / "store"), results)) for k in range(2)]
    for process in processes:
        process.start()
    values = [results.get(timeout=120) for _ in processes]
    for process in processes:
        process.join()
    expected = float(metrics.ece(Predictions(*outputs())))
    assert values == pytest.approx([expected, expected], rel=1e-5)


def test_it_is_drawn():
    pytest.importorskip("matplotlib").use("agg")
    metric = integration.ECE()
    metric.update(*outputs())
    figure, axes = metric.plot()
    assert figure is not None
    assert axes is not None
