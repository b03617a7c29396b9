"""Saving and loading fitted things: one format check, one line for anything that `save` did not write."""

import json

import pytest
import torch

import confide
from confide import calibrators
from confide.checks import InputError
from confide.evaluation import OperatingPoint
from confide.files import formats
from confide.files.fitted import FittedState, load_fitted, save_fitted


@pytest.fixture
def held_out():
    torch.manual_seed(0)
    labels = torch.arange(60) % 3
    return confide.Predictions(torch.randn(60, 3) + 2 * torch.eye(3)[labels], labels, split="val")


@pytest.mark.parametrize("field", ["word", "num_classes", "values", "notes"])
def test_a_calibrator_without_a_field_is_one_line_and_no_bare_key_error(tmp_path, held_out, field):
    calibrators.fit("temperature", held_out).save(tmp_path / "c.json")
    record = json.loads((tmp_path / "c.json").read_text())
    del record[field]
    (tmp_path / "c.json").write_text(json.dumps(record))
    with pytest.raises(InputError, match=f"must be what `save` wrote, but it is not .KeyError: '{field}'"):
        calibrators.load(tmp_path / "c.json")


def test_training_rows_of_a_saved_calibrator_that_are_no_numbers_are_refused(tmp_path, held_out):
    features = confide.Features(held_out.logits.numpy(), held_out.labels.numpy(), held_out.ids, "pixels")
    fitted = calibrators.fit("procal", held_out, features=features, fitted=features)
    fitted.save(tmp_path / "c.json")
    record = json.loads((tmp_path / "c.json").read_text())
    for number in (float("nan"), float("inf")):
        record["values"]["points"]["data"][0] = number
        (tmp_path / "c.json").write_text(json.dumps(record))
        with pytest.raises(InputError, match="its values are not finite"):
            calibrators.load(tmp_path / "c.json")


def test_a_damaged_operating_point_is_one_line(tmp_path, held_out):
    confide.operating_point(held_out, risk=0.4).save(tmp_path / "point.json")
    record = json.loads((tmp_path / "point.json").read_text())
    record["classes"] = {"0": {"threshold": 0.5}}
    (tmp_path / "point.json").write_text(json.dumps(record))
    with pytest.raises(InputError, match=r"point\.json must be what `save` wrote"):
        OperatingPoint.load(tmp_path / "point.json")


def test_numbers_that_json_cannot_hold_are_refused_and_not_written_as_null(tmp_path):
    state = FittedState({"word": "x"}, {"edges": torch.tensor([0.0, torch.inf])})
    with pytest.raises(InputError, match=r"edges must be finite to be saved as JSON.*\.safetensors"):
        save_fitted(tmp_path / "c.json", formats.CALIBRATOR, state)
    save_fitted(tmp_path / "c.safetensors", formats.CALIBRATOR, state)
    again = load_fitted(tmp_path / "c.safetensors", formats.CALIBRATOR, lambda saved: saved)
    assert again.record == {"word": "x"}
    assert torch.equal(again.tensors["edges"], state.tensors["edges"])


def test_a_file_of_a_later_confide_says_so():
    with pytest.raises(InputError, match="'trust/9', newer than 'trust/1' of this confide"):
        formats.TRUST.check("trust/9", "t.json")
    for tag in (None, "run/1", "trust/", "trust/x", "trust/0", ["trust/1"]):
        with pytest.raises(InputError, match=r"t\.json must be a trust predictor of format 'trust/1', got"):
            formats.TRUST.check(tag, "t.json")


def test_a_changed_safetensors_calibrator_is_refused_by_its_digest(tmp_path, held_out):
    calibrators.fit("vector", held_out).save(tmp_path / "c.safetensors")
    data = bytearray((tmp_path / "c.safetensors").read_bytes())
    data[-3] ^= 1
    (tmp_path / "c.safetensors").write_bytes(bytes(data))
    with pytest.raises(InputError, match="must hold what its digest says"):
        calibrators.load(tmp_path / "c.safetensors")
