"""Oracles with a network: what is trained and what is not, honest errors, files."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from confide.checks import InputError, OptionError
from confide.records import Dataset, Split
from confide.training import Settings, fit, predict
from confide.training.oracle import Oracle, OracleSettings, cross_fit, fit_oracle

SMALL = {"model_options": {"width": 4, "hidden": 8}, "device": "cpu", "batch_size": 40, "learning_rate": 0.02}
QUICK = {"epochs": 2, "batch_size": 40, "device": "cpu"}


def bars(n, seed, spoiled=0.0):
    """Images whose class is a bright column in noise; a spoiled share has noise alone."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 3, n)
    images = generator.integers(0, 150, (n, 1, 8, 8))
    images[np.arange(n), 0, :, 2 * labels] += 90
    bad = generator.random(n) < spoiled
    images[bad] = generator.integers(0, 60, images[bad].shape)
    return Split(images.astype(np.uint8), labels.astype(np.int64), np.array([f"{seed}-{i}" for i in range(n)]))


@pytest.fixture(scope="module")
def data():
    parts = {"train": bars(400, 0), "val": bars(500, 5, 0.4), "test": bars(300, 6, 0.4)}
    return Dataset("bars", "image", parts, tuple("abc"))


@pytest.fixture(scope="module")
def classifier(data):
    return fit(data, Settings(epochs=4, **SMALL))


@pytest.mark.parametrize("loss", ["steep_slope", "tcp", "binary_cross_entropy", "binary_focal"])
def test_a_fine_tuned_oracle_sees_errors(data, classifier, loss):
    oracle = fit_oracle(classifier, data, loss=loss, epochs=8, batch_size=40, learning_rate=5e-3, device="cpu")
    z, correct = oracle(data), predict(classifier, data, "test", device="cpu").facts.correct
    assert 0.2 < float(correct.float().mean()) < 0.9
    assert float((z[correct][:, None] > z[~correct][None]).float().mean()) > 0.7


def test_a_head_leaves_the_backbone_as_it_was_and_a_network_does_not(data, classifier):
    before = {k: v.clone() for k, v in classifier.model.state_dict().items()}
    head = fit_oracle(classifier, data, depth="head", batch_norm="trained", **QUICK)
    whole = fit_oracle(classifier, data, depth="network", **QUICK)
    body = classifier.model.body.state_dict()
    assert all(torch.equal(v, body[k]) for k, v in head.network.body.state_dict().items())
    moved = {k for k, v in whole.network.body.state_dict().items() if not torch.equal(v, body[k])}
    assert moved
    # Frozen batch norms keep statistics and scales; the classifier itself never moves.
    assert not any("running" in k for k in moved)
    assert all(torch.equal(v, before[k]) for k, v in classifier.model.state_dict().items())


def test_batch_norm_moves_only_when_it_may(data, classifier):
    norms = [k for k in classifier.model.body.state_dict() if "running_mean" in k]
    free = fit_oracle(classifier, data, batch_norm="trained", **QUICK).network.body.state_dict()
    assert norms
    assert any(not torch.equal(free[k], classifier.model.body.state_dict()[k]) for k in norms)


def test_another_architecture_and_hidden_layers(data, classifier):
    other = fit(data, Settings(epochs=1, **{**SMALL, "model_options": {"width": 6, "hidden": 0}}))
    oracle = fit_oracle(classifier, data, backbone=other, hidden=(12, 6), augment="flip", **QUICK)
    assert oracle(data).shape == (300,)
    assert oracle.about.classifier == "small_cnn"


def test_files_bring_the_same_oracle_back(data, classifier, tmp_path):
    oracle = fit_oracle(classifier, data, hidden=(5,), **QUICK)
    oracle.save(tmp_path)
    again = Oracle.load(tmp_path)
    assert torch.equal(again(data), oracle(data))
    assert again.settings == oracle.settings
    assert again.log == oracle.log
    said = predict(classifier, data, "test", device="cpu")
    turned = said.take(np.arange(299, -1, -1))
    assert torch.equal(again.add_to(turned, data).trust, oracle(data).flip(0))
    with pytest.raises(InputError, match=r"oracle\.json must be an oracle, but there is no such file"):
        Oracle.load(tmp_path / "none")


def test_out_of_fold_predictions_have_errors_that_training_hides(data, classifier):
    noisy = data.val.take(np.arange(300))
    part = Dataset(data.name, data.kind, {"train": noisy, "val": data.val.take(np.arange(300, 400))}, data.class_names)
    settings = Settings(epochs=15, **SMALL)
    own = predict(fit(part, settings), part, "train", device="cpu").facts.correct.float().mean()
    honest = cross_fit(part, settings, folds=3)
    assert (honest.ids == noisy.ids).all()
    assert float(honest.facts.correct.float().mean()) < float(own) - 0.03
    oracle = fit_oracle(classifier, part, "train", targets=honest, **QUICK)
    assert oracle.about.errors == int((~honest.facts.correct).sum())


def test_bad_input_is_one_clear_line(data, classifier):
    with pytest.raises(InputError, match="must not be fitted on the test split"):
        fit_oracle(classifier, data, "test", **QUICK)
    said = predict(classifier, data, "val", device="cpu").facts.correct.numpy()
    with pytest.raises(InputError, match="needs right and wrong predictions"):
        fit_oracle(classifier, data.val.take(np.flatnonzero(said)), **QUICK)
    with pytest.raises(InputError, match="no trust loss named"):
        OracleSettings(loss="steep")
    with pytest.raises(OptionError, match="has no option"):
        OracleSettings(loss_options={"alpha": 1})
    said = predict(classifier, data, "test", device="cpu")
    with pytest.raises(InputError, match="must not be fitted on the test split"):
        fit_oracle(classifier, data.test, targets=said, **QUICK)
    foreign = Split(data.val.inputs, data.val.labels + 1, data.val.ids)
    with pytest.raises(InputError, match="classifier's 3 classes, got label 3"):
        fit_oracle(classifier, foreign, **QUICK)
    with pytest.raises(OptionError, match="has no option 'gamma'; known: beta"):
        OracleSettings(loss="class_balanced", loss_options={"gamma": 2.0})
    with pytest.raises(InputError, match="target must be one of 'probability', 'ratio'"):
        OracleSettings(target="share")


def test_half_precision_of_the_network_does_not_round_its_values(data, classifier):
    """Eight bits would leave a few dozen values for three hundred samples."""
    exact = fit_oracle(classifier, data, **QUICK)
    half = replace(exact, settings=replace(exact.settings, precision="bfloat16"))
    z, expected = half(data), exact(data)
    assert len(torch.unique(z)) > 0.95 * len(torch.unique(expected))
    assert float((z - expected).abs().max()) < 0.1


def test_a_balanced_network_doubts_more(data, classifier):
    how = {"epochs": 4, "batch_size": 40, "learning_rate": 5e-3, "device": "cpu"}
    right = predict(classifier, data, "val", device="cpu").facts.correct.numpy()
    # Few errors: those that are there must count for more.
    rows = np.sort(np.concatenate([np.flatnonzero(right), np.flatnonzero(~right)[:25]]))
    part = data.val.take(rows)
    plain, balanced = (
        fit_oracle(classifier, part, loss="class_balanced", loss_options={"beta": b}, **how) for b in (0.0, 0.9999)
    )
    same = fit_oracle(classifier, part, loss="binary_cross_entropy", **how)
    torch.testing.assert_close(plain(data), same(data))
    assert float((balanced(data) > 0).float().mean()) < float((plain(data) > 0).float().mean())


def test_the_ratio_of_a_network_is_never_below_the_probability(data, classifier):
    how = {"loss": "tcp", "epochs": 6, "batch_size": 40, "learning_rate": 5e-3, "device": "cpu"}
    share, ratio = (fit_oracle(classifier, data, target=t, **how) for t in ("probability", "ratio"))
    assert float(ratio(data).mean()) > float(share(data).mean())
    said = predict(classifier, data, "val", device="cpu")
    fixed = fit_oracle(classifier, data, target="ratio", targets=said, **how)
    torch.testing.assert_close(fixed(data), ratio(data), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("change", ["settings", "log", "about", "sha256", "backbone"])
def test_a_damaged_oracle_is_one_clear_line(data, classifier, tmp_path, change):
    fit_oracle(classifier, data, epochs=1, batch_size=40, device="cpu").save(tmp_path)
    record = json.loads((tmp_path / "oracle.json").read_text())
    del record[change]
    (tmp_path / "oracle.json").write_text(json.dumps(record))
    with pytest.raises(InputError, match=r"oracle\.") as told:
        Oracle.load(tmp_path)
    assert "\n" not in str(told.value)
    (tmp_path / "oracle.safetensors").unlink()
    with pytest.raises(InputError, match=r"oracle\.safetensors must lie beside oracle\.json"):
        Oracle.load(tmp_path)
