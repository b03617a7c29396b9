"""The door of the family: ids, files, and what is refused."""

import json

import numpy as np
import pytest
import torch

import confide
from confide.checks import InputError
from confide.trust import fit, load


def small(ids=None, n=60):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(n, 3, generator=generator) * 2
    labels = torch.where(
        torch.rand(n, generator=generator) < 0.7, logits.argmax(dim=1), torch.zeros(n, dtype=torch.int64)
    )
    features = torch.randn(n, 4, generator=generator)
    return confide.Predictions(logits, labels, ids, split="val"), features.numpy()


def record(values, ids, labels):
    return confide.Features(values, labels.numpy(), np.asarray(ids), "made")


def test_features_are_matched_by_id_not_by_place():
    ids = [f"s{i}" for i in range(60)]
    predictions, values = small(ids)
    turned = np.arange(59, -1, -1)
    trust = fit("rmd", predictions, record(values, ids, predictions.labels))
    shuffled = record(values[turned], np.array(ids)[turned], predictions.labels)
    assert torch.equal(trust(predictions, shuffled), trust(predictions, values))


def test_features_of_more_samples_are_taken_where_words_name_them():
    ids = [f"s{i}" for i in range(60)]
    predictions, values = small(ids)
    part = predictions.take(np.arange(10, 40))
    trust = fit("rmd", part, record(values, ids, predictions.labels))
    assert torch.equal(trust(part, values[10:40]), trust(predictions, values)[10:40])
    counted = predictions.take(np.arange(30))
    counted = confide.Predictions(counted.logits, counted.labels)
    with pytest.raises(InputError, match="must be of the 30 predicted samples, got 60"):
        fit("rmd", counted, record(values, np.arange(60), predictions.labels))


def test_features_with_other_ids_are_one_clear_line():
    predictions, values = small([f"s{i}" for i in range(60)])
    other = record(values, [f"t{i}" for i in range(60)], predictions.labels)
    with pytest.raises(InputError, match="60 of 60 are missing"):
        fit("steep_slope", predictions, other)


def test_features_with_nan_name_the_sample():
    predictions, values = small()
    values[7, 2] = np.nan
    with pytest.raises(InputError, match="at sample 7 of 60"):
        fit("steep_slope", predictions, values)


def test_methods_without_training_need_no_predictions():
    predictions, _ = small()
    torch.testing.assert_close(fit("mcp")(predictions).float(), predictions.facts.confidence)
    with pytest.raises(InputError, match="learns from predictions"):
        fit("tcp")


def test_an_unknown_word_names_the_nearest():
    with pytest.raises(InputError, match="did you mean 'steep_slope'"):
        fit("steep_slop")


def test_no_prediction_at_all_is_refused():
    predictions, _ = small()
    with pytest.raises(InputError, match="at least one prediction"):
        fit("steep_slope", predictions.take(np.array([], dtype=int)))


def test_a_folder_holds_json_and_weights_and_a_changed_weight_file_is_noticed(tmp_path):
    predictions, values = small()
    trust = fit("steep_slope", predictions, values, epochs=1)
    trust.save(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["trust.json", "trust.safetensors"]
    assert load(tmp_path).about == trust.about
    assert (trust.about.split, trust.about.n, trust.about.extractor) == ("val", 60, None)
    other = fit("steep_slope", predictions, values, epochs=2)
    other.save(tmp_path / "b" / "trust.json")
    (tmp_path / "trust.safetensors").write_bytes((tmp_path / "b" / "trust.safetensors").read_bytes())
    with pytest.raises(InputError, match="checksum differs"):
        load(tmp_path)


def test_a_file_of_another_kind_is_one_clear_line(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        load(tmp_path / "none.json")
    (tmp_path / "a.json").write_text('{"format": "evaluation/1"}')
    with pytest.raises(InputError, match="must be a trust predictor of format 'trust/1'"):
        load(tmp_path / "a.json")


def test_the_column_trust_is_added():
    predictions, values = small()
    trust = fit("rmd", predictions, values)
    assert torch.equal(trust.add_to(predictions, values).trust, trust(predictions, values))


def test_arrays_are_no_predictions():
    predictions, values = small()
    for call in (lambda: fit("rmd", values), lambda: fit("rmd", predictions, values)(values, values)):
        with pytest.raises(InputError, match=r"needs confide\.Predictions, got ndarray"):
            call()


@pytest.mark.parametrize(
    ("word", "options", "message"),
    [
        ("steep_slope", {"alpha_neg": "a"}, "alpha_neg of trust predictor 'steep_slope' must be a number, got 'a'"),
        ("steep_slope", {"folds": 2.5}, "folds of trust predictor 'steep_slope' must be a whole number, got 2.5"),
        ("knn", {"k": 1.5}, "k of trust predictor 'knn' must be a whole number"),
        ("combined", {"model": 3}, "model of trust predictor 'combined' must be one of"),
        ("energy", {"temperature": True}, "temperature of trust predictor 'energy' must be a number, got True"),
    ],
)
def test_options_of_another_kind_are_one_clear_line(word, options, message):
    predictions, values = small()
    with pytest.raises(InputError, match=message):
        fit(word, predictions, values, **options)


def test_fitted_on_probabilities_it_may_be_given_logits_but_not_the_other_way():
    """An oracle on logits looks at their energy, which probabilities have lost."""
    predictions, values = small()
    probs = confide.Predictions.from_probs(torch.softmax(predictions.logits, dim=1), predictions.labels, split="val")
    for options in ({"word": "steep_slope", "epochs": 2}, {"word": "combined", "oracle": "none"}, {"word": "combined"}):
        plain, from_probs = (fit(predictions=p, features=values, **options) for p in (predictions, probs))
        expected = from_probs(probs, values)
        torch.testing.assert_close(from_probs(predictions, values), expected, rtol=1e-4, atol=1e-4)
        with pytest.raises(InputError, match="fitted on logits and looks at their energy"):
            plain(probs, values)


@pytest.mark.parametrize("word", ["combined", "steep_slope", "rmd", "trust_score", "knn", "energy"])
def test_a_damaged_file_is_one_clear_line(tmp_path, word):
    predictions, values = small()
    fit(word, predictions, values).save(tmp_path / "trust.json")
    whole = json.loads((tmp_path / "trust.json").read_text())
    spoiled = [{k: v for k, v in whole.items() if k != name} for name in whole if name not in ("second_dim", "tensors")]
    spoiled += [{**whole, name: value} for name, value in (("threshold", "a"), ("state", []), ("scale", "far"))]
    spoiled += [{**whole, "tensors": 3}, {**whole, "method": 3}, {**whole, "num_classes": "3"}]
    spoiled += [{**whole, "state": {**whole["state"], "facts": ["p"]}}] if word == "combined" else []
    for record in spoiled:
        (tmp_path / "trust.json").write_text(json.dumps(record))
        with pytest.raises(InputError) as told:
            load(tmp_path)
        assert "\n" not in str(told.value)
