"""The grid: cells, means, boxes, resuming, many models and stages, attacks, what the report draws."""

import json

import numpy as np
import pytest
import torch

from confide import report, shift
from confide.checks import InputError
from confide.evaluation import Subject, label_noise_curve, shift_grid
from confide.predictions import Predictions
from confide.records import Split


@pytest.fixture(scope="module")
def split():
    """Images whose class is the brightest of three channels."""
    random = np.random.default_rng(0)
    labels = np.arange(60) % 3
    images = random.integers(90, 130, (60, 3, 32, 32), dtype=np.uint8)
    images[np.arange(60), labels] += 25
    return Split(images, labels, np.array([f"image-{i}" for i in range(60)]))


def by_channel(images):
    means = images.float().mean(dim=(2, 3)) / 255
    return means * 60, means


def subject(**changes):
    return Subject(**{"forward": by_channel, "identity": "one", **changes})


def halved(predictions):
    return predictions.with_logits(predictions.logits / 2)


def test_classes_of_the_clean_samples_go_by_their_names(split):
    found = shift_grid(
        split, {"a": subject(class_names=("red", "green", "blue"))}, words=["fog"], severities=(1,), intervals=False
    )
    named = {m.group for m in found.measurements if (m.group or "").startswith("predicted=")}
    assert named <= {"predicted=red", "predicted=green", "predicted=blue"}
    assert named
    assert found.about.class_names == ("red", "green", "blue")


def test_every_cell_and_its_means_are_measured(split):
    found = shift_grid(
        split,
        {"a": subject(stages={"half": halved})},
        words=["fog", "impulse_noise"],
        severities=(1, 5),
        intervals=False,
    )
    cells = {m.group for m in found.measurements if (m.group or "").startswith("shift=")}
    assert cells == {
        *(f"shift={word}/{s}" for word in ("fog", "impulse_noise") for s in (1, 5)),
        "shift=severity 0",
        "shift=severity 1",
        "shift=severity 5",
        "shift=mean",
    }
    for stage in ("raw", "half"):
        for metric in ("accuracy", "ece", "nll", "aurc", "confidence_gap"):
            values = [
                found.value(metric, stage=stage, group=f"shift={word}/{s}")
                for word in ("fog", "impulse_noise")
                for s in (1, 5)
            ]
            assert found.value(metric, stage=stage, group="shift=mean") == pytest.approx(np.mean(values))
    assert found.value("accuracy", stage="raw", group="shift=fog/1") == found.value(
        "accuracy", stage="half", group="shift=fog/1"
    )
    assert found.value("nll", stage="raw", group="shift=fog/1") != found.value("nll", stage="half", group="shift=fog/1")


def test_a_cell_is_what_a_plain_loop_measures(split):
    from confide import metrics

    found = shift_grid(
        split, {"a": subject()}, words=["gaussian_noise"], severities=(4,), batch_size=7, intervals=False
    )
    images = shift.corrupt(split.inputs, "gaussian_noise", 4, ids=split.ids)
    plain = Predictions(by_channel(torch.from_numpy(images))[0], torch.from_numpy(split.labels))
    for metric in ("accuracy", "ece", "nll", "aurc"):
        expected = float(getattr(metrics, metric)(plain))
        assert found.value(metric, group="shift=gaussian_noise/4") == pytest.approx(expected, rel=1e-5)


def test_curves_are_those_the_report_draws(split, tmp_path):
    models = {"a": subject(stages={"half": halved}), "b": subject()}
    found = shift_grid(split, models, words="corruptions", severities=(1, 3, 5), intervals=False)
    cells = [c for c in found.curves if c.kind == "shift_cells" and c.model == "a" and c.stage == "raw"]
    assert len(cells) == 16
    assert cells[0].columns["severity"] == (0, 1, 3, 5)
    assert {"gap", "accuracy", "ece", "nll", "aurc", "auroc"} <= set(cells[0].columns)
    box = next(c for c in found.curves if c.kind == "shift_boxes" and c.model == "a" and c.stage == "raw")
    gaps = [c.columns["gap"][2] for c in cells]
    expected = np.quantile(gaps, (0, 0.25, 0.5, 0.75, 1))
    seen = [box.columns[k][2] for k in ("low", "lower_quartile", "median", "upper_quartile", "high")]
    assert seen == pytest.approx(list(expected))
    report.write_report(found, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Severity of the corruption" in page
    assert "At severity 5 the gap is widest under" in page


def test_a_stopped_grid_goes_on_where_it_was(split, tmp_path):
    calls = []

    def counting(images):
        calls.append(len(images))
        if len(calls) == 4:
            raise KeyboardInterrupt
        return by_channel(images)

    options = {"words": ["contrast", "brightness"], "severities": (2, 3), "folder": tmp_path, "intervals": False}
    with pytest.raises(KeyboardInterrupt):
        shift_grid(split, {"a": subject(forward=counting)}, **options)
    kept = sorted(path.name for path in (tmp_path / "cells" / "a").iterdir())
    assert kept == ["clean.json", "contrast-2.json", "contrast-3.json"]
    calls.clear()
    calls += [0] * 10
    resumed = shift_grid(split, {"a": subject(forward=counting)}, **options)
    assert len(calls) == 10 + 3  # two cells, and the clean images for their curves
    whole = shift_grid(split, {"a": subject()}, **{**options, "folder": None})
    assert [str(m.as_row()) for m in resumed.measurements] == [str(m.as_row()) for m in whole.measurements]


def test_cells_of_another_model_or_seed_are_not_used(split, tmp_path):
    options = {"words": ["gaussian_noise"], "severities": (5,), "folder": tmp_path, "intervals": False}
    where = {"group": "shift=gaussian_noise/5"}
    first = shift_grid(split, {"a": subject()}, **options)
    other = shift_grid(split, {"a": subject(identity="two", forward=lambda x: (by_channel(x)[0] * 3, None))}, **options)
    assert first.value("nll", **where) != other.value("nll", **where)
    seeded = shift_grid(split, {"a": subject(identity="two")}, seed=1, **options)
    assert json.loads((tmp_path / "cells" / "a" / "gaussian_noise-5.json").read_text())["format"] == "shift-cell/4"
    assert seeded.value("nll", **where) not in (first.value("nll", **where), other.value("nll", **where))


def test_trust_predictors_rank_in_every_cell(split):
    def margin(predictions, features):
        top = predictions.probabilities().topk(2).values
        return (top[:, 0] - top[:, 1]).double().numpy()

    found = shift_grid(
        split, {"a": subject(trust={"margin": margin})}, words=["impulse_noise"], severities=(5,), intervals=False
    )
    assert found.value("aurc", score="trust:margin", group="shift=mean") >= 0


def test_attacks_are_made_against_each_model(split):
    attacked = subject(attacked=lambda images: images.mean(dim=(2, 3)) * 60)
    found = shift_grid(split, {"a": attacked}, words=["fgsm", "pgd"], severities=(1, 5), intervals=False)
    assert found.value("accuracy", group="shift=fgsm/5") < found.value("accuracy", group=None)
    assert found.value("accuracy", group="shift=fgsm/5") <= found.value("accuracy", group="shift=fgsm/1")
    with pytest.raises(InputError, match="attack 'pgd' needs a model with a gradient"):
        shift_grid(split, {"a": subject()}, words=["pgd"], severities=(1,))


def test_difficulty_grows_with_severity_and_label_noise(split):
    centres = np.array(
        [by_channel(torch.from_numpy(split.inputs))[1].numpy()[split.labels == k].mean(0) for k in range(3)]
    )

    def distance(features, labels):
        return ((np.asarray(features) - centres[np.asarray(labels)]) ** 2).sum(axis=1)

    found = shift_grid(
        split, {"a": subject(difficulty=distance)}, words=["fog", "brightness"], severities=(1, 3, 5), intervals=False
    )
    curve = next(c for c in found.curves if c.kind == "rmd_severity")
    assert curve.columns["severity"] == (0, 1, 3, 5)
    assert curve.columns["mean"] == tuple(sorted(curve.columns["mean"]))

    def noisy(labels, rate):
        return shift.noisy_labels(labels, rate, num_classes=3, ids=split.ids)

    features = by_channel(torch.from_numpy(split.inputs))[1]
    noise = label_noise_curve(distance, features, split.labels, noisy, rates=(0, 0.25, 0.5))
    assert noise.columns["mean"] == tuple(sorted(noise.columns["mean"]))
    assert noise.columns["mean"][-1] > 2 * noise.columns["mean"][0]


def test_grey_images_leave_out_what_needs_colours(split):
    grey = Split(split.inputs[:, :1], split.labels * 0, split.ids)
    one = subject(forward=lambda images: (torch.nn.functional.pad(by_channel(images)[0], (0, 1)), None))
    found = shift_grid(grey, {"a": one}, words="corruptions19", severities=(1,), intervals=False)
    words = {c.group for c in found.curves if c.kind == "shift_cells"}
    assert len(words) == 17
    assert "corruption=saturate" not in words


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"words": ["fgo"]}, "no shift or attack named 'fgo'; did you mean 'fog'"),
        ({"words": "corruption"}, "no kind or word 'corruption' of shifts; did you mean 'corruptions'"),
        ({"words": []}, "a grid needs at least one shift"),
        ({"severities": (0, 1)}, "severities must be whole numbers from 1 to 5"),
        ({"severities": ()}, "severities must be whole numbers from 1 to 5"),
    ],
)
def test_bad_input_gets_one_line(split, options, message):
    with pytest.raises(InputError, match=message):
        shift_grid(split, {"a": subject()}, **options)


def test_no_models_and_no_images_are_refused(split):
    with pytest.raises(InputError, match="at least one model and one image"):
        shift_grid(split, {})
    with pytest.raises(InputError, match="at least one model and one image"):
        shift_grid(split.take(np.arange(0)), {"a": subject()})


def test_logits_that_are_not_finite_are_told(split):
    broken = subject(forward=lambda images: (by_channel(images)[0] * torch.nan, None))
    with pytest.raises(InputError, match="logits that are not finite"):
        shift_grid(split, {"a": broken}, words=["fog"], severities=(1,))


def test_trust_predictors_are_held_to_their_chances(split):
    """Accuracy falls with the noise while the predictor says 0.9 always: its ECE is |0.9 - accuracy| in every cell."""

    class Steady:
        def __init__(self, scale, value):
            self.scale, self.value = scale, value

        def __call__(self, predictions, features):
            return np.full(len(predictions), self.value)

    predictors = {
        "chance": Steady("probability", 0.9),
        "odds": Steady("logit", np.log(9)),
        "order": Steady("score", 5.0),
    }
    found = shift_grid(
        split, {"a": subject(trust=predictors)}, words=["gaussian_noise"], severities=(1, 5), intervals=False
    )
    for severity in (1, 5):
        group = f"shift=gaussian_noise/{severity}"
        accuracy = found.value("accuracy", group=group)
        for name in ("chance", "odds"):
            assert found.value("ece", group=group, score=f"trust:{name}") == pytest.approx(
                abs(0.9 - accuracy), abs=1e-6
            )
            assert found.value("confidence_gap", group=group, score=f"trust:{name}") == pytest.approx(0.9 - accuracy)
    boxes = {c.score: c for c in found.curves if c.kind == "shift_trust_ece_boxes"}
    assert set(boxes) == {"trust:chance", "trust:odds"}  # an order alone claims no chance
    assert boxes["trust:odds"].columns["severity"] == (0, 1, 5)
    assert boxes["trust:odds"].columns["median"][2] == found.value(
        "ece", group="shift=gaussian_noise/5", score="trust:odds"
    )


@pytest.mark.parametrize(
    ("size", "word", "message"),
    [
        ((1, 32, 32), "saturate", "shift 'saturate' changes colours"),
        ((1, 32, 32), "recolour", "attack 'recolour' changes colours"),
        ((3, 3, 3), "glass_blur", "needs images of at least 4 x 4 pixels here, got 3 x 3"),
    ],
)
def test_a_shift_that_cannot_be_applied_is_told_before_the_first_cell(size, word, message):
    images = Split(np.zeros((4, *size), np.uint8), np.array([0, 1, 0, 1]), np.arange(4))

    def never(_):
        raise AssertionError("the grid began")

    with pytest.raises(InputError, match=message):
        shift_grid(images, {"a": Subject(forward=never)}, words=["fog", word])


def test_a_grid_of_one_image_is_a_grid():
    split = Split(np.full((1, 3, 32, 32), 90, np.uint8), np.array([0]), np.arange(1))
    subjects = {"mine": Subject(lambda batch: (batch.float().flatten(1)[:, :2] - 9, None))}
    grid = shift_grid(split, subjects, words=["brightness"], severities=[2], intervals=False)
    assert grid.value("accuracy", group="shift=brightness/2") in (0, 1)
