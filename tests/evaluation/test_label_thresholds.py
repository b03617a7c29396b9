"""Several labels a sample: rows, metrics by label, micro and macro, thresholds, files."""

import sys

import numpy as np
import pytest
import torch

import confide
from confide.checks import InputError
from confide.cli.main import main
from confide.evaluation import LabelThresholds, label_thresholds

thresholds_module = sys.modules["confide.evaluation.label_thresholds"]


def matrices(n=300, seed=0):
    rng = np.random.default_rng(seed)
    logits = rng.normal([0.5, -1.0, -1.5], 1.5, (n, 3)) + rng.normal(0, 1, (n, 1))
    labels = (rng.random((n, 3)) < 1 / (1 + np.exp(-logits))).astype(float)
    labels[rng.random((n, 3)) < 0.1] = np.nan
    return logits, labels


def record(n=300, seed=0, scale=1.0):
    logits, labels = matrices(n, seed)
    return confide.Predictions.multilabel(scale * logits, labels, label_names=["a", "b", "c"])


def test_cells_that_are_known_become_rows_of_one_sample():
    p = confide.Predictions.multilabel([[1.0, 2.0], [3.0, -4.0]], [[1, -1], [0, 1]], ids=["x", "y"])
    assert p.ids.tolist() == ["x/0", "y/0", "y/1"]
    assert (p.labels.tolist(), p.unit, p.is_multilabel) == ([1, 0, 1], "sample", True)
    assert p.probabilities()[:, 1].tolist() == pytest.approx(torch.tensor([1.0, 3.0, -4.0]).sigmoid().tolist())
    assert len(confide.Predictions.multilabel([[1.0, 2.0]])) == 2
    with pytest.raises(InputError, match="got 2 at sample 0, label '1'"):
        confide.Predictions.multilabel([[1.0, 2.0]], [[0, 2]])


def test_micro_label_and_macro_values_are_those_of_plain_formulas():
    logits, labels = matrices()
    evaluation = confide.evaluate(record(), ["f_beta", "class_auroc", "average_precision", "precision", "recall"])
    found = {(m.metric, m.group): m for m in evaluation.measurements}

    def precision_at(y, z, limit):
        return y[z >= limit].mean()

    plain = {
        "f_beta": lambda y, z: 2 * (y * (z > 0)).sum() / (y.sum() + (z > 0).sum()),
        "precision": lambda y, z: y[z > 0].mean(),
        "recall": lambda y, z: (z > 0)[y == 1].mean(),
        "class_auroc": lambda y, z: (z[y == 1][:, None] > z[y == 0]).mean(),
        "average_precision": lambda y, z: np.mean([precision_at(y, z, limit) for limit in z[y == 1]]),
    }
    known = ~np.isnan(labels)
    for word, formula in plain.items():
        each = [formula(labels[known[:, k], k], logits[known[:, k], k]) for k in range(3)]
        assert found[word, None].value == pytest.approx(formula(labels[known], logits[known]))
        assert [found[word, f"label={name}"].value for name in "abc"] == pytest.approx(each)
        macro = found[word, "label=macro average"]
        assert macro.value == pytest.approx(np.mean(each))
        assert macro.low < macro.value < macro.high
    assert evaluation.about.unit == "labels"


def test_the_macro_interval_is_that_of_resampled_samples():
    p = record(200)
    m = next(m for m in confide.evaluate(p, ["nll"]).measurements if m.group == "label=macro average")
    labels, losses = p.columns["label_name"], p.facts.nll.numpy()
    samples = np.unique(p.columns["sample"], return_inverse=True)[1]
    rng, draws = np.random.default_rng(0), []
    for _ in range(2000):
        times = np.bincount(rng.integers(0, 200, 200), minlength=200)[samples]
        draws.append(np.mean([np.average(losses[labels == k], weights=times[labels == k]) for k in "abc"]))
    assert (m.high - m.low) / 2 / 1.96 == pytest.approx(np.std(draws), rel=0.1)


def test_calibration_by_label_keeps_the_kind_and_beats_one_map_where_labels_differ():
    logits, labels = matrices(600)
    p = confide.Predictions.multilabel(logits * [0.5, 1.0, 3.0], labels, label_names=["a", "b", "c"])
    shared, each = (confide.calibrators.fit("temperature", p, **by) for by in ({}, {"by": "label_name"}))
    assert each(p).is_multilabel
    assert float(confide.metrics.nll(each(p))) < float(confide.metrics.nll(shared(p))) - 0.01


def test_thresholds_by_cost_f_and_precision(tmp_path):
    p = record(1500)
    assert label_thresholds(p, costs={"miss": 4, "false_alarm": 1}).thresholds == dict.fromkeys("abc", 0.2)
    by_name = label_thresholds(p, costs={name: {"miss": k, "false_alarm": 1} for k, name in enumerate("abc", 1)})
    assert by_name.thresholds["c"] == 0.25
    best = label_thresholds(p, f_beta=1.0)
    part = p.take(p.columns["label_name"] == "b")
    grid = [float(confide.metrics.f_beta(part, threshold=t)) for t in np.linspace(0.01, 0.99, 99)]
    own = float(confide.metrics.f_beta(part, threshold=best.thresholds["b"]))
    assert own >= max(grid)
    best.save(tmp_path / "t.json")
    assert LabelThresholds.load(tmp_path / "t.json") == best
    sets = best(p)
    row = {name: bool(sets.holds[0, k]) for k, name in enumerate(sets.names)}
    cell = p.probabilities()[:, 1][p.columns["sample"] == sets.ids[0]]
    names = p.columns["label_name"][p.columns["sample"] == sets.ids[0]]
    assert all(row[name] == (float(v) > best.thresholds[name]) for name, v in zip(names, cell, strict=True))
    with pytest.raises(InputError, match="need multilabel predictions"):
        label_thresholds(confide.Predictions([[1.0, 0.0]], [0]), f_beta=1.0)


def test_a_promised_precision_is_broken_as_seldom_as_promised():
    broken, made, truth = 0, 0, record(10_000, 10_000)
    names, probs, holds = truth.columns["label_name"], truth.probabilities()[:, 1].numpy(), truth.labels.numpy()
    for seed in range(60):
        thresholds = label_thresholds(record(400, seed), precision=0.75, confidence=0.8)
        kept = True
        for name, limit in thresholds.thresholds.items():
            claimed = (names == name) & (probs > (2.0 if limit is None else limit))
            made += bool(claimed.any())
            kept &= not claimed.any() or holds[claimed].mean() >= 0.75
        broken += not kept
    assert made > 60
    assert broken <= 60 * 0.2


def test_files_of_labels_are_read_and_commands_use_them(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    logits, labels = matrices(120)
    np.savez("m.npz", logits=logits, labels=labels, class_names=np.array(["a", "b", "c"]))
    rows = ["id,prob_a,prob_b,label_a,label_b,site"]
    probs = 1 / (1 + np.exp(-logits))
    shown = np.where(np.isnan(labels), "", np.nan_to_num(labels).astype(int).astype(str))
    rows += [f"s{k},{probs[k, 0]},{probs[k, 1]},{shown[k, 0]},{shown[k, 1]},x" for k in range(120)]
    (tmp_path / "m.csv").write_text("\n".join(rows))
    table = confide.Predictions.load("m.csv")
    assert table.labels.tolist() == [int(v) for v in labels[:, :2].T.ravel() if not np.isnan(v)]
    assert set(table.columns) == {"site", "sample", "label_name"}
    whole = confide.Predictions.load("m.npz")
    whole.save("long.csv")
    assert confide.Predictions.load("long.csv").is_multilabel
    assert main(["evaluate", "m.npz", "--metrics", "f_beta", "--out", "e"]) == 0
    out = capsys.readouterr().out
    assert f"{len(whole)} labels" in out
    assert "macro average" in out
    assert main(["labels", "m.npz", "--f-beta", "1", "--save", "t.json", "--out", "l.csv"]) == 0
    assert main(["labels", "m.npz", "--load", "t.json", "--json"]) == 0
    assert main(["labels", "m.npz", "--precision", "0.999"]) == 3
    assert (tmp_path / "l.csv").read_text().startswith("id,a,b,c\n")


def test_a_label_holds_above_its_threshold_and_not_at_it():
    made = LabelThresholds({"a": 0.5, "b": None}, "cost", 3)
    p = confide.Predictions.multilabel([[0.0, 9.0], [1e-6, 9.0], [-1e-6, 9.0]], label_names=["a", "b"])
    assert made(p).holds.tolist() == [[False, False], [True, False], [False, False]]


@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
def test_the_threshold_of_the_largest_f_lies_between_the_last_claimed_and_the_next(beta):
    draws = np.random.default_rng(0)
    for n in (1, 2, 7, 30):
        probs = draws.choice(np.linspace(0.05, 0.95, 12), n)
        holds = draws.random(n) < probs
        holds[0] = True
        found = thresholds_module._best_f(probs, holds, beta)
        best = {}
        for cut in [*np.unique(probs)]:
            claimed = probs >= cut
            hits = (claimed & holds).sum()
            best[float(cut)] = (1 + beta**2) * hits / (claimed.sum() + beta**2 * holds.sum())
        top = max(cut for cut, value in best.items() if value >= max(best.values()) - 1e-12)
        below = max((p for p in probs if p < top), default=0.0)
        assert found == pytest.approx((top + below) / 2)
    assert thresholds_module._best_f(probs, np.zeros(30, dtype=bool), beta) is None


def test_a_promise_of_precision_stops_at_the_first_size_that_cannot_keep_it():
    """All right: the fewest that could pass are ln delta / ln precision; a wrong one among so many breaks it."""
    fewest = int(np.ceil(np.log(0.05) / np.log(0.8)))
    for n, promised in ((fewest - 1, False), (fewest, True), (4 * fewest, True)):
        probs = np.linspace(0.9, 0.1, n)
        found = thresholds_module._promised(probs, np.ones(n, dtype=bool), 0.8, 0.05)
        assert (found is not None) == promised
    holds = np.ones(200, dtype=bool)
    holds[100:] = False
    probs = np.linspace(0.9, 0.1, 200)
    found = thresholds_module._promised(probs, holds, 0.8, 0.05)
    accepted = int((probs > found).sum())
    assert 80 <= accepted < 125  # 100 of 125 would be 80 % itself
    assert found < probs[accepted - 1]
    holds[0] = False
    assert thresholds_module._promised(probs[:fewest], holds[:fewest], 0.8, 0.05) is None
