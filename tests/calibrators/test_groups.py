"""Calibration by group: weights, the parameters between both fits, k by cross-validation, groups never seen."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from confide import Predictions, calibrators
from confide.calibrators import groups
from confide.checks import InputError


def two_sites(made, sizes=(3000, 3000), temperatures=(1.0, 3.0), seed=0):
    """Site a is calibrated at the first temperature, site b at the second."""
    logits, labels = made(sum(sizes), 4, seed=seed)
    site = np.array(["a"] * sizes[0] + ["b"] * sizes[1])
    scale = torch.tensor(temperatures).double()[torch.from_numpy((site == "b").astype(int))]
    return Predictions(logits * scale[:, None], labels, split="val", columns={"site": site})


def test_groups_that_differ_get_their_own_temperature(made):
    predictions = two_sites(made)
    calibrator = calibrators.fit("temperature", predictions, by="site")
    fresh = two_sites(made, seed=5)
    by_site = float(calibrator(fresh).facts.need("nll").mean())
    overall = float(calibrators.fit("temperature", predictions)(fresh).facts.need("nll").mean())
    assert by_site < overall - 0.05
    assert calibrator.groups["a"].temperature == pytest.approx(1.0, rel=0.1)
    assert calibrator.groups["b"].temperature == pytest.approx(3.0, rel=0.1)
    assert calibrator.weights["a"] > 0.9


def test_groups_that_do_not_differ_use_the_overall_fit(made):
    predictions = two_sites(made, sizes=(150, 150), temperatures=(2.0, 2.0), seed=3)
    calibrator = calibrators.fit("temperature", predictions, by="site")
    assert calibrator.weights["a"] <= 0.6


def test_the_weight_is_n_over_n_plus_k_and_the_parameters_lie_between(made):
    predictions = two_sites(made, sizes=(100, 300))
    calibrator = calibrators.fit("temperature", predictions, by="site", shrinkage=100.0)
    assert calibrator.weights == {"a": 0.5, "b": 0.75}
    between = 0.5 / calibrator.groups["a"].temperature + 0.5 / calibrator.overall.temperature
    torch.testing.assert_close(calibrator(predictions).logits[:100], predictions.logits[:100] * between)


def test_infinite_shrinkage_is_the_overall_fit_and_none_is_the_groups_own(made):
    predictions = two_sites(made, sizes=(200, 200))
    overall = calibrators.fit("vector", predictions)(predictions).logits
    wholly = calibrators.fit("vector", predictions, by="site", shrinkage=math.inf)
    torch.testing.assert_close(wholly(predictions).logits, overall)
    assert any("do not predict better" in note for note in wholly.notes)
    own = calibrators.fit("vector", predictions, by="site", shrinkage=0.0)(predictions).logits[:200]
    alone = calibrators.fit("vector", predictions.take(np.arange(200)))
    torch.testing.assert_close(own, alone(predictions.take(np.arange(200))).logits)


@pytest.mark.parametrize("word", [m.word for m in calibrators.CALIBRATORS if m.spec.wants == "nothing"])
def test_every_method_can_be_fitted_by_group_and_saved(made, word, tmp_path):
    predictions = two_sites(made, sizes=(300, 300))
    calibrator = calibrators.fit(word, predictions, by="site", shrinkage=50.0)
    after = calibrator(predictions)
    assert torch.isfinite(after.logits).all()
    if calibrator.keeps_argmax:
        assert torch.equal(after.facts.prediction, predictions.facts.prediction)
    for name in ("groups.json", "groups.safetensors"):
        calibrator.save(tmp_path / name)
        again = calibrators.load(tmp_path / name)
        assert torch.equal(again(predictions).logits, after.logits)
        assert (again.by, again.weights, again.shrinkage) == ("site", calibrator.weights, 50.0)
    module = torch.softmax(calibrator.module("a")(predictions.logits[:300]), dim=1)
    torch.testing.assert_close(module, torch.softmax(after.logits[:300], dim=1), atol=1e-9, rtol=1e-6)


def test_a_group_never_seen_gets_the_overall_fit(made):
    predictions = two_sites(made)
    calibrator = calibrators.fit("temperature", predictions, by="site")
    fresh = Predictions(predictions.logits[:5], predictions.labels[:5], columns={"site": np.array(["c"] * 5)})
    torch.testing.assert_close(calibrator(fresh).logits, fresh.logits / calibrator.overall.temperature)


def test_a_group_too_small_for_the_method_is_noted(made):
    predictions = two_sites(made, sizes=(400, 1))
    calibrator = calibrators.fit("spline", predictions, by="site")
    assert list(calibrator.groups) == ["a"]
    assert any("too few samples keep the overall map: b" in note for note in calibrator.notes)


def test_a_missing_column_is_refused(made):
    with pytest.raises(InputError, match="no column 'sit' to group by; did you mean 'site'"):
        calibrators.fit("temperature", two_sites(made), by="sit")
    with pytest.raises(InputError, match="shrinkage must lie in"):
        calibrators.fit("temperature", two_sites(made), by="site", shrinkage=-1.0)


def by_hardness(made, n=4000, seed=0):
    """The harder a sample the more its logits are blown up: from 1 to 3 times."""
    logits, labels = made(n, 4, seed=seed)
    hardness = np.random.default_rng(seed).permutation(n) / n - 0.5
    scale = torch.from_numpy(2 + 2 * hardness)
    return Predictions(logits * scale[:, None], labels, split="val", columns={"difficulty": hardness})


def test_numbers_are_cut_into_bands_of_equal_size_that_the_calibrator_keeps(made, tmp_path):
    predictions, fresh = by_hardness(made), by_hardness(made, seed=7)
    calibrator = calibrators.fit("temperature", predictions, by="difficulty", bands=4)
    assert len(calibrator.edges) == 3
    np.testing.assert_allclose(calibrator.edges, [-0.25, 0.0, 0.25], atol=1e-3)
    temperatures = [calibrator.groups[name].temperature for name in ("0", "1", "2", "3")]
    np.testing.assert_allclose(temperatures, [1.25, 1.75, 2.25, 2.75], rtol=0.1)
    whole = calibrators.fit("temperature", predictions)
    after, overall = (one(fresh).facts for one in (calibrator, whole))
    assert float(after.need("nll").mean()) < float(overall.need("nll").mean()) - 0.005
    # Applied to a part, samples stay in the bands of the fit.
    part = calibrator(fresh.take(np.arange(50)))
    assert torch.equal(part.logits, calibrator(fresh).logits[:50])
    for name in ("bands.json", "bands.safetensors"):
        calibrator.save(tmp_path / name)
        again = calibrators.load(tmp_path / name)
        assert again.edges == calibrator.edges
        assert torch.equal(again(fresh).logits, calibrator(fresh).logits)


@pytest.mark.parametrize("edges", ["abc", ["a", "b"], [1.0, 0.0], [0.0, float("nan")], {"0": 1}])
def test_edges_of_a_file_are_checked(made, tmp_path, edges):
    import json

    path = tmp_path / "bands.json"
    calibrators.fit("temperature", by_hardness(made, 100), by="difficulty", bands=3).save(path)
    saved = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**saved, "edges": edges}), encoding="utf-8")
    with pytest.raises(InputError, match="edges of a saved calibrator must be numbers that rise"):
        calibrators.load(path)


def test_a_sample_without_a_number_gets_the_overall_fit_and_many_equal_ones_make_fewer_bands(made):
    predictions = by_hardness(made, 400)
    calibrator = calibrators.fit("temperature", predictions, by="difficulty", bands=4, shrinkage=0.0)
    lost = Predictions(
        predictions.logits[:2], predictions.labels[:2], columns={"difficulty": np.array([np.nan, np.inf])}
    )
    moved = calibrator(lost).logits
    torch.testing.assert_close(moved[0], lost.logits[0] / calibrator.overall.temperature)
    torch.testing.assert_close(moved[1], lost.logits[1] / calibrator.groups["3"].temperature)
    equal = Predictions(predictions.logits, predictions.labels, split="val", columns={"difficulty": np.ones(400)})
    assert calibrators.fit("temperature", equal, by="difficulty", bands=4).edges == (1.0,)


def test_bands_are_chosen_among_others_by_cross_validation(made):
    predictions = by_hardness(made)
    apart = calibrators.choose(predictions, ("temperature",), by="difficulty", bands=5)
    assert apart.candidate("temperature").score < calibrators.choose(predictions, ("temperature",)).candidates[1].score
    assert len(apart.calibrator.edges) == 4


def test_bands_of_no_column_of_words_or_of_missing_numbers_are_refused(made):
    sites = two_sites(made)
    with pytest.raises(InputError, match="pass by=, such as by='difficulty'"):
        calibrators.fit("temperature", sites, bands=5)
    with pytest.raises(InputError, match=r"^bands are made of a column"):
        calibrators.choose(sites, bands=5)
    with pytest.raises(InputError, match="bands are made of numbers, but column 'site' holds"):
        calibrators.fit("temperature", sites, by="site", bands=5)
    with pytest.raises(InputError, match=r"bands must lie in \[2, 1000\], got 1"):
        calibrators.fit("temperature", by_hardness(made), by="difficulty", bands=1)
    with pytest.raises(InputError, match="holds 4,000 different numbers; pass bands=5"):
        calibrators.fit("temperature", by_hardness(made), by="difficulty")
    holed = by_hardness(made, 10)
    holed.columns["difficulty"][3] = np.nan
    with pytest.raises(InputError, match="sample 3 has none; drop it"):
        calibrators.fit("temperature", holed, by="difficulty", bands=2)


@pytest.mark.parametrize(("word", "gives"), [("temperature", False), ("histogram", True)])
def test_groups_give_probabilities_where_they_get_them_or_their_method_does(word, gives):
    logits = 2 * torch.randn(120, 3, generator=torch.Generator().manual_seed(0))
    labels, site = torch.arange(120) % 3, np.array(["a", "b"])[np.arange(120) % 2]
    plain = Predictions(logits, labels, split="val", columns={"site": site})
    probs = Predictions.from_probs(torch.softmax(logits, dim=1), labels, split="val", columns={"site": site})
    assert calibrators.fit(word, plain, by="site")(plain).from_probabilities is gives
    assert calibrators.fit(word, probs, by="site")(probs).from_probabilities


@pytest.mark.parametrize("size", [1e6, 1.0, 1e-6])
def test_of_shrinkages_that_rounding_alone_tells_apart_the_largest_is_taken(size, made, monkeypatch):
    """Whatever the size of the losses: the largest stays nearest to the overall fit."""
    logits, labels = made(40, 3, seed=0)
    by = groups.Grouping("site")
    for more, taken in ((1e-13, groups.SHRINKAGES[-2]), (1e-9, groups.SHRINKAGES[1])):
        losses = np.full(len(groups.SHRINKAGES), 2.0 * size)
        losses[[1, -2]] = size, size * (1 + more)
        monkeypatch.setattr(groups, "_held_out_losses", lambda *own, losses=losses: losses)
        assert groups.best_shrinkage(None, Predictions(logits, labels), by) == taken
