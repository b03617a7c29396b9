"""fit and predict on a small dataset: it learns, repeats itself, refuses bad input."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from confide.checks import InputError, OptionError
from confide.files import formats
from confide.losses import LOSSES
from confide.records import Dataset, Scores, Split
from confide.training import Settings, Trained, checkpoint, fit, loop, penultimate, predict
from confide.training.loop import add_row
from confide.training.objective import Objective, groups_of

QUICK: dict[str, Any] = {"epochs": 3, "batch_size": 32, "model_options": {"width": 4}, "device": "cpu"}


def scores_of(dataset: Dataset) -> Scores:
    ids = np.concatenate([dataset.train.ids, dataset.val.ids])
    return Scores(ids, np.linspace(-1, 3, len(ids)), "rmd")


def test_it_learns_the_bars(bars: Dataset) -> None:
    trained = fit(bars, Settings(**{**QUICK, "epochs": 6}))
    predictions = predict(trained, dataset=bars, split="test")
    assert predictions.split == "test"
    assert predictions.class_names == ("a", "b", "c")
    assert (predictions.ids == bars.test.ids).all()
    assert float(predictions.facts.correct.float().mean()) > 0.9
    assert trained.log["train_loss"][-1] < trained.log["train_loss"][0]
    assert set(trained.log) >= {"epoch", "train_loss", "train_accuracy", "val_nll", "val_accuracy", "val_ece"}
    assert 0 < trained.log["val_ece_by_chance"][-1] < 0.2


def test_a_column_that_an_older_checkpoint_did_not_log_has_no_number_before() -> None:
    table = {"epoch": [0.0, 1.0], "val_ece": [0.2, 0.1]}
    add_row(table, {"epoch": 2.0, "val_ece": 0.1, "val_ece_by_chance": 0.05})
    np.testing.assert_equal(table["val_ece_by_chance"], [np.nan, np.nan, 0.05])


def test_the_same_seed_gives_the_same_numbers_and_another_seed_others(bars: Dataset) -> None:
    first, second = (fit(bars, Settings(**QUICK, augment="crop_flip")) for _ in range(2))
    other = fit(bars, Settings(**QUICK, augment="crop_flip", seed=1))
    for name, weights in first.model.state_dict().items():
        assert torch.equal(weights, second.model.state_dict()[name])
    assert (first.log["train_loss"] == second.log["train_loss"]).all()
    assert (first.log["train_loss"] != other.log["train_loss"]).any()


def test_a_saved_model_predicts_the_same(bars: Dataset, tmp_path: Any) -> None:
    trained = fit(bars, Settings(**QUICK), folder=tmp_path / "run")
    loaded = Trained.load(tmp_path / "run")
    assert_close(predict(loaded, bars).logits, predict(trained, bars).logits, rtol=0, atol=0)
    assert loaded.settings == trained.settings
    assert (loaded.log["val_nll"] == trained.log["val_nll"]).all()


def test_a_finished_run_is_not_trained_again(bars: Dataset, tmp_path: Any) -> None:
    fit(bars, Settings(**QUICK), folder=tmp_path)
    before = (tmp_path / "model.safetensors").stat().st_mtime_ns
    rows: list[dict[str, float]] = []
    fit(bars, Settings(**QUICK), folder=tmp_path, on_epoch=rows.append)
    assert rows == []
    assert (tmp_path / "model.safetensors").stat().st_mtime_ns == before
    with pytest.raises(InputError, match="learning_rate"):
        fit(bars, Settings(**QUICK, learning_rate=0.01), folder=tmp_path)


def test_losses_get_what_they_need(bars: Dataset) -> None:
    scores = scores_of(bars)
    trained = fit(bars, Settings(**QUICK, loss="difficulty_entropy", loss_options={"alpha": 0.3}), scores=scores)
    assert np.isfinite(trained.log["train_loss"]).all()
    with pytest.raises(InputError, match="no scores came"):
        fit(bars, Settings(**QUICK, loss="difficulty_entropy"))
    strangers = Scores(np.array([f"x{i}" for i in range(240)]), np.zeros(240), "rmd")
    with pytest.raises(InputError, match="missing"):
        fit(bars, Settings(**QUICK, loss="difficulty_entropy"), scores=strangers)


def test_adafocal_moves_its_gammas_and_logs_them(bars: Dataset) -> None:
    trained = fit(bars, Settings(**QUICK, loss="adafocal", loss_options={"bins": 5}))
    gammas = np.array([trained.log[f"gamma{i}"] for i in range(5)])
    assert (gammas[:, -1] != 1.0).any()
    assert_close(torch.tensor(gammas[:, -1]), trained.loss_state["gammas"])
    assert [c.kind for c in trained.curves()] == ["training", "gammas"]


def test_adaptive_difficulty_learns_from_the_bands_of_val(bars: Dataset) -> None:
    scores = scores_of(bars)
    settings = Settings(**QUICK, loss="adaptive_difficulty", loss_options={"num_groups": 3, "start": 0.1})
    trained = fit(bars, settings, scores=scores)
    doubts = np.array([trained.log[f"doubt{i}"] for i in range(3)])
    assert (doubts[:, -1] != 0.1).any()
    assert_close(torch.tensor(doubts[:, -1]), trained.loss_state["doubts"])
    assert [c.kind for c in trained.curves()] == ["training", "doubts"]
    only_train = Scores(bars.train.ids, np.linspace(0, 1, 240), "rmd")
    with pytest.raises(InputError, match="difficulty of the validation samples too, but the scores miss 60 of 60"):
        fit(bars, settings, scores=only_train)
    with pytest.raises(InputError, match="need scores, but none came"):
        fit(bars, settings)
    by_label = fit(bars, settings.changed(group_by="label"))
    assert np.isfinite(by_label.log["train_loss"]).all()


def test_bands_of_val_have_the_edges_of_train(bars: Dataset) -> None:
    scores = Scores(np.concatenate([bars.train.ids, bars.val.ids]), np.r_[np.arange(240.0), np.full(60, 59.5)], "rmd")
    settings = Settings(loss="adaptive_difficulty", loss_options={"num_groups": 4})
    assert np.bincount(groups_of(settings, bars.train, scores)).tolist() == [60, 60, 60, 60]
    assert groups_of(settings, bars.train, scores, bars.val).tolist() == [0] * 60
    columns = {"camera": np.array(["a", "b"])}
    train, val = (
        Split(s.inputs, s.labels, s.ids, {"camera": columns["camera"][np.arange(len(s)) % 2]})
        for s in (bars.train, bars.val)
    )
    assert groups_of(settings.changed(group_by="camera"), train, None, val)[:3].tolist() == [0, 1, 0]
    with pytest.raises(InputError, match="value of column 'camera' that the training samples have"):
        groups_of(settings.changed(group_by="camera"), train, None, bars.val)


@pytest.mark.parametrize("word", LOSSES.names())
def test_every_loss_trains(bars: Dataset, word: str) -> None:
    trained = fit(bars, Settings(**{**QUICK, "epochs": 2}, loss=word), scores=scores_of(bars))
    assert np.isfinite(trained.log["train_loss"]).all()
    assert np.isfinite(trained.log["val_nll"]).all()


def test_a_loss_may_adapt_within_the_epoch(bars: Dataset) -> None:
    once, often = (
        fit(bars, Settings(**QUICK, loss="adafocal", loss_options={"update_every": every})) for every in (0, 3)
    )
    # Eight batches an epoch: updates after 3 and 6 of them, none at its end.
    assert once.log["gamma14"][0] != often.log["gamma14"][0]
    assert once.log["train_loss"][0] != often.log["train_loss"][0]


def test_wide_columns_stay_with_the_data(bars: Dataset) -> None:
    test = bars.test
    columns = {"features": np.zeros((60, 4)), "camera": np.arange(60) % 2}
    rich = Dataset("rich", "image", {"test": Split(test.inputs, test.labels, test.ids, columns)}, bars.class_names)
    trained = fit(bars, Settings(**{**QUICK, "epochs": 1}))
    assert list(predict(trained, rich).columns) == ["camera"]


def test_penultimate_features(bars: Dataset) -> None:
    trained = fit(bars, Settings(**{**QUICK, "epochs": 1}))
    features = penultimate(trained, bars, "val")
    assert features.values.shape == (60, 128)
    head = trained.model.head
    assert isinstance(head, torch.nn.Linear)
    logits = torch.from_numpy(features.values) @ head.weight.T + head.bias
    assert_close(logits, predict(trained, bars, "val").logits, rtol=1e-4, atol=1e-4)


def test_weighing_by_difficulty_changes_the_loss(bars: Dataset) -> None:
    scores = scores_of(bars)
    plain = fit(bars, Settings(**QUICK), scores=scores)
    weighed = fit(bars, Settings(**QUICK, weigh=True), scores=scores)
    assert plain.log["train_loss"][0] != weighed.log["train_loss"][0]


def test_a_loss_that_turns_nan_names_step_ids_and_checkpoint(bars: Dataset, tmp_path: Any) -> None:
    settings = Settings(**{**QUICK, "learning_rate": 1e30, "schedule": "constant"})
    with pytest.raises(InputError, match=r"epoch 1, step \d+, batch with ids t\d+.*last good checkpoint is .*step-"):
        fit(bars, settings, folder=tmp_path, checkpoint_seconds=0)
    assert list((tmp_path / "checkpoints").glob("step-*.safetensors"))


def test_options_of_weights_are_checked() -> None:
    with pytest.raises(OptionError, match="has no option 'temprature'; did you mean 'temperature'"):
        Settings(**QUICK, weigh=True, weight_options={"temprature": 1.0})


def test_a_batch_too_small_for_batch_norms_is_told(bars: Dataset) -> None:
    with pytest.raises(InputError, match="a batch of 1 is too small for this model's batch norms"):
        fit(bars, Settings(model="resnet18_imagenet", batch_size=1, epochs=1, device="cpu"))


@pytest.mark.parametrize("step", [3, 5])
def test_weights_that_turn_nan_are_not_kept(
    bars: Dataset, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    real, calls = Objective.__call__, [0]

    def spoiled(self: Any, logits: Any, *rest: Any) -> Any:
        target, mean = real(self, logits, *rest)
        calls[0] += 1
        # Its value is finite, its gradient is not.
        return (target + (0 * logits.sum()).sqrt() if calls[0] == step else target), mean

    monkeypatch.setattr(Objective, "__call__", spoiled)
    line = rf"a weight became NaN or infinite at epoch 1, step {step}, .*good checkpoint is .*0{step - 1}.safetensors"
    with pytest.raises(InputError, match=line):
        fit(bars, Settings(**QUICK), folder=tmp_path, checkpoint_seconds=0)
    for path in checkpoint.checkpoint_paths(tmp_path):
        tensors, _ = formats.read_checkpoint(path)
        assert all(bool(torch.isfinite(w).all()) for k, w in tensors.items() if k.startswith("model.")), path


def test_no_validation_split(bars: Dataset) -> None:
    alone = Dataset("alone", "image", {"train": bars.train, "test": bars.test}, bars.class_names)
    assert "val_nll" in fit(alone, Settings(**QUICK)).log
    assert "val_nll" not in fit(alone, Settings(**QUICK, val_fraction=0.0)).log
    with pytest.raises(InputError, match="learns from validation"):
        fit(alone, Settings(**QUICK, val_fraction=0.0, loss="adafocal"))
    with pytest.raises(InputError, match="choose='nll'"):
        fit(alone, Settings(**QUICK, val_fraction=0.0, choose="nll"))


def test_the_best_epoch_by_nll_is_kept(bars: Dataset) -> None:
    settings = Settings(**{**QUICK, "epochs": 5, "learning_rate": 0.5, "schedule": "constant"}, choose="nll")
    trained = fit(bars, settings)
    assert trained.chosen_epoch == int(np.argmin(trained.log["val_nll"]))
    kept = predict(trained, bars, "val").facts.need("nll").mean()
    assert float(kept) == pytest.approx(trained.log["val_nll"].min(), rel=1e-5)


def test_no_epoch_to_choose_from_is_told(bars: Dataset) -> None:
    trained = fit(bars, Settings(**QUICK, choose="nll", choose_after=3))
    assert trained.chosen_epoch == 2
    assert trained.notes == ("the last epoch is kept: none comes after choose_after=3",)


def test_inputs_and_labels_a_model_cannot_take_are_refused(bars: Dataset) -> None:
    trained = fit(bars, Settings(**{**QUICK, "epochs": 1}))
    wide = Split(np.zeros((4, 1, 9, 9), dtype=np.uint8), np.zeros(4, dtype=np.int64), np.arange(4))
    with pytest.raises(InputError, match=r"shape \(1, 8, 8\)"):
        predict(trained, wide, "other")
    many = Split(bars.test.inputs, bars.test.labels + 5, bars.test.ids)
    with pytest.raises(InputError, match="labels must lie in"):
        predict(trained, many, "other")
    with pytest.raises(InputError, match=r"split 'none' must hold at least one sample"):
        predict(trained, bars.test.take(np.arange(0)), "none")
    for option, value in (("passes", -1), ("batch_size", 0)):
        with pytest.raises(InputError, match=f"{option} must lie in"):
            predict(trained, bars, **{option: value})  # type: ignore[arg-type]


def test_other_classes_are_not_taken_for_the_models_own(bars: Dataset) -> None:
    trained = fit(bars, Settings(**{**QUICK, "epochs": 1}))
    two = Split(bars.test.inputs, bars.test.labels % 2, bars.test.ids)
    with pytest.raises(InputError, match=r"class 0 is 'cat' in the data but 'a' in the model.*--ood"):
        predict(trained, Dataset("pets", "image", {"test": two}, ("cat", "dog")))
    said = predict(trained, Dataset("pets", "image", {"test": two}, ("cat", "dog")), ood=True)
    assert said.labels.sum() == 0
    # Some of the model's classes, and numbers without names, are the model's own.
    for names in (("a", "b"), ("0", "1"), ("0", "1", "2")):
        assert (predict(trained, Dataset("same", "image", {"test": two}, names)).labels.numpy() == two.labels).all()


def test_texts_are_not_images(bars: Dataset) -> None:
    texts = np.array(["a good film", "a bad film"] * 20)
    split = Split(texts, np.arange(40) % 2, np.arange(40))
    words = Dataset("words", "text", {"train": split, "val": replace(split, ids=np.arange(40, 80))}, ("a", "b"))
    trained = fit(words, Settings(model="text_cnn", epochs=1, device="cpu"))
    with pytest.raises(InputError, match="must be texts as in training"):
        predict(trained, bars, ood=True)


def test_a_model_trained_in_float16_predicts_without_a_gpu(bars: Dataset) -> None:
    trained = fit(bars, Settings(**{**QUICK, "epochs": 1}))
    half = replace(trained, settings=trained.settings.changed(precision="float16", device="cuda"))
    assert_close(predict(half, bars, device="cpu").logits, predict(trained, bars).logits)


def test_settings_refuse_what_is_not_there() -> None:
    with pytest.raises(OptionError, match="did you mean 'epochs'"):
        Settings.from_dict({"epoch": 3})
    with pytest.raises(InputError, match="schedule must be one of"):
        Settings(schedule="zigzag")
    with pytest.raises(InputError, match="epochs must be a whole number"):
        Settings(epochs=2.5)  # type: ignore[arg-type]
    assert Settings.from_dict(Settings(label_noise=0.2).as_dict()) == Settings(label_noise=0.2)


def test_monte_carlo_dropout(bars: Dataset) -> None:
    trained = fit(bars, Settings(**{**QUICK, "model_options": {"width": 4, "dropout": 0.5}}))
    first, second = predict(trained, bars, passes=5), predict(trained, bars, passes=5)
    assert_close(first.logits, second.logits, rtol=0, atol=0)
    assert (first.logits != predict(trained, bars).logits).any()
    assert (first.columns["mc_mutual_information"] >= 0).all()
    assert predict(trained, bars, passes=5, average="probs").from_probabilities
    plain = fit(bars, Settings(**{**QUICK, "epochs": 1}))
    with pytest.raises(InputError, match="has none"):
        predict(plain, bars, passes=5)


def test_passes_with_dropout_before_the_head_run_the_body_once(bars: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = fit(bars, Settings(**{**QUICK, "epochs": 1, "model_options": {"width": 4, "dropout": 0.5}}))
    calls = []
    body = trained.model.body.forward
    monkeypatch.setattr(trained.model.body, "forward", lambda inputs: calls.append(len(inputs)) or body(inputs))
    once = predict(trained, bars, passes=5)
    assert sum(calls) == len(bars.test)
    # A dropout elsewhere that drops nothing worth speaking of makes every pass a whole one, with the same draws.
    trained.model.body.append(torch.nn.Dropout(1e-9))
    monkeypatch.setattr(torch.nn.Dropout, "forward", _drop_unless_tiny)
    assert_close(predict(trained, bars, passes=5).logits, once.logits)
    assert sum(calls) == 6 * len(bars.test)


def _drop_unless_tiny(self: torch.nn.Dropout, inputs: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.dropout(inputs, self.p, self.training) if self.p > 1e-6 else inputs


def test_outputs_that_overflow_on_val_are_called_diverged_and_no_sample_is_blamed(bars):
    settings = Settings(model="mlp", epochs=2, batch_size=32, learning_rate=1e18, device="cpu")
    few = replace(bars, splits={**bars.splits, "train": bars.split("train").take(np.arange(60))})
    with pytest.raises(InputError, match=r"a validation output became NaN or infinite at epoch 1.*lower the learning"):
        fit(few, settings)


@pytest.mark.parametrize(
    ("every", "val_feed", "steps"), [(3, "val", [3, 6, 9]), (1, "val", [*range(1, 10)]), (0, "val", []), (3, None, [])]
)
def test_a_loss_learns_inside_of_an_epoch_after_every_so_many_steps(
    monkeypatch: pytest.MonkeyPatch, every: int, val_feed: str | None, steps: list[int]
) -> None:
    learned: list[int] = []
    state = SimpleNamespace(step=0, objective=SimpleNamespace(loss=SimpleNamespace(update_every=every)))
    run: Any = SimpleNamespace(state=state, order=SimpleNamespace(steps=10), val_feed=val_feed, feed=None)
    monkeypatch.setattr(loop, "recompute_average_statistics", lambda *_: None)
    monkeypatch.setattr(loop, "learn_from_validation", lambda run, *_, **__: learned.append(run.state.step))
    monkeypatch.setattr(loop, "checkpoint_if_due", lambda _: None)
    monkeypatch.setattr(loop, "_note", lambda _: "")
    for _ in range(10):
        loop.after_step(run, SimpleNamespace(step=lambda *_: None))  # type: ignore[arg-type]
    assert learned == steps
