"""A Lightning module trained with AdaFocal and its callback; a training runs where lightning is installed."""

from __future__ import annotations

import sys
import warnings
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from confide import Predictions, losses, metrics
from confide.checks import InputError
from confide.integrations.lightning import loss_callback, metrics_callback, predictions_of


def data(n: int, seed: int) -> torch.utils.data.TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn((n, 6), generator=generator)
    return torch.utils.data.TensorDataset(features, features[:, :3].argmax(dim=1))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("options", "updates"), [({}, 2), ({"update_every": 2}, 4), ({}, 0)], ids=["epochs", "batches", "no callback"]
)
def test_adafocal_moves_its_gammas_and_the_mode_is_restored(tmp_path: Any, options: Any, updates: int) -> None:
    lightning = pytest.importorskip("lightning")

    class Classifier(lightning.LightningModule):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.network = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Dropout(0.5), torch.nn.Linear(16, 3))
            self.loss = losses.create("adafocal", rate=5.0, **options)
            self.modes: list[bool] = []

        def forward(self, features: torch.Tensor) -> torch.Tensor:
            return self.network(features)

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            self.modes.append(self.network[1].training)
            return self.loss(self(batch[0]), batch[1])

        def validation_step(self, batch: Any, _: int) -> None:
            pass

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.network.parameters(), lr=0.1)

    model, calls = Classifier(), []
    learn = model.loss.update
    model.loss.update = lambda *found: (calls.append(len(found[0])), learn(*found))
    trainer = lightning.Trainer(
        max_epochs=2,
        accelerator="cpu",
        callbacks=[loss_callback(), metrics_callback()] if updates else [metrics_callback()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    loaders = [torch.utils.data.DataLoader(data(64, 0), batch_size=16), torch.utils.data.DataLoader(data(40, 1), 20)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer.fit(model, *loaders)
    assert sum("learns from validation predictions" in str(c.message) for c in caught) == (updates == 0)
    assert calls == [40] * updates
    assert all(model.modes)
    expected = float(metrics.nll(Predictions(*predictions_of(model, loaders[1]))))
    assert float(trainer.callback_metrics["val_nll"]) == pytest.approx(expected, rel=1e-5)
    assert {"val_ece", "val_ece_by_chance", "val_aurc"} <= set(trainer.callback_metrics)
    assert bool((model.loss.gammas != 1).any()) == (updates > 0)


@pytest.fixture
def callbacks_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lightning's class of callbacks without the seconds that Lightning takes to load."""
    module = ModuleType("lightning.pytorch.callbacks")
    module.Callback = object  # type: ignore[attr-defined]
    for name in ("lightning", "lightning.pytorch"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)


class Held(torch.nn.Module):
    """A network with a loss, which notes what the loss learns from and what is logged."""

    def __init__(self, word: str = "adafocal", **options: Any) -> None:
        super().__init__()
        self.network, self.loss = torch.nn.Linear(6, 3), losses.create(word, **options)
        self.learned: list[tuple[int, dict[str, Any]]] = []
        self.logged: dict[str, float] = {}
        if self.loss.update is not None:
            self.loss.update = lambda logits, labels, **needs: self.learned.append((len(logits), needs))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.network(rows)

    def log_dict(self, values: dict[str, float], *, rank_zero_only: bool) -> None:
        assert rank_zero_only
        self.logged = values


def batches(n: int, seed: int = 0) -> torch.utils.data.DataLoader:
    return torch.utils.data.DataLoader(data(n, seed), 20)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_training_without_callback_and_validation_is_warned_of_at_its_second_epoch(tmp_path: Any) -> None:
    lightning = pytest.importorskip("lightning")

    class Classifier(lightning.LightningModule):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.network, self.loss = torch.nn.Linear(6, 3), losses.create("adafocal")
            self.warned_in: list[int] = []

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                value = self.loss(self.network(batch[0]), batch[1])
            self.warned_in += [self.current_epoch for c in caught if "an epoch went by without" in str(c.message)]
            return value

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.network.parameters(), lr=0.1)

    model = Classifier()
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = lightning.Trainer(max_epochs=3, accelerator="cpu", default_root_dir=tmp_path, **quiet)
    trainer.fit(model, torch.utils.data.DataLoader(data(64, 0), batch_size=16))  # no batch is short
    assert model.warned_in == [1]


def test_a_short_batch_between_full_ones_is_the_end_of_an_epoch() -> None:
    (rows, labels), logits = data(8, 0).tensors, torch.zeros(8, 3, requires_grad=True)

    def trained(*sizes: int, update_after: int = 0) -> list[int]:
        loss, warned = losses.create("adafocal"), []
        for number, size in enumerate(sizes, start=1):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                loss(logits[:size], labels[:size])
            warned += [
                number for c in caught if "a smaller batch, as at the end of an epoch, went by" in str(c.message)
            ]
            if number == update_after:
                loss.update(rows[:, :3], labels)
        return warned

    assert trained(8, 8, 3, 8, 8, 3, 8) == [4]
    assert trained(8, 8, 3, 8, update_after=3) == []
    assert trained(8, 6, 7, 8, 3, 8) == []  # sizes that vary say nothing


def test_a_validation_pass_in_eval_mode_without_the_callback_is_warned_of_once() -> None:
    module, (rows, labels) = torch.nn.ModuleDict({"loss": losses.create("adafocal")}), data(8, 0).tensors
    logits = rows[:, :3].requires_grad_()
    module.eval()  # the pass that Lightning makes before it trains
    module.train()
    module["loss"](logits, labels)
    module.eval()
    module.train()
    with pytest.warns(UserWarning, match=r"a validation pass went by.*callbacks=\[loss_callback\(\)\]"):
        module["loss"](logits, labels)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        module.eval()
        module["loss"](logits, labels)


@pytest.mark.usefixtures("callbacks_alone")
def test_with_the_callback_a_validation_pass_within_an_epoch_is_no_sign() -> None:
    module, trainer, callback = Held("calfocal"), SimpleNamespace(val_dataloaders=batches(20)), loss_callback()
    rows, labels = data(8, 0).tensors
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        callback.on_train_start(trainer, module)
        module.loss(module(rows), labels)
        module.eval()
        module.loss(module(rows).detach(), labels)
        module.train()
        module.loss(module(rows), labels)


@pytest.mark.usefixtures("callbacks_alone")
@pytest.mark.parametrize(("every", "learned"), [(None, [40]), (1, [40] * 4), (2, [40] * 2), (3, [40])])
def test_a_loss_learns_after_every_so_many_batches_or_once_an_epoch(every: int | None, learned: list[int]) -> None:
    module, trainer = Held(**({} if every is None else {"update_every": every})), SimpleNamespace()
    trainer.val_dataloaders = batches(40)
    callback = loss_callback()
    for batch in range(4):
        callback.on_train_batch_end(trainer, module, None, None, batch)
    callback.on_train_epoch_end(trainer, module)
    assert [n for n, _ in module.learned] == learned


@pytest.mark.usefixtures("callbacks_alone")
def test_a_loader_of_its_own_goes_before_the_trainers_and_none_is_refused() -> None:
    trainer, without = SimpleNamespace(val_dataloaders=batches(40)), SimpleNamespace(val_dataloaders=None)
    module = Held()
    loss_callback(loader=batches(30)).on_train_epoch_end(trainer, module)
    assert module.learned == [(30, {})]
    metrics_callback(["accuracy"], loader=batches(30, 1)).on_train_epoch_end(trainer, module)
    assert module.logged == {
        "val_accuracy": float(metrics.accuracy(Predictions(*predictions_of(module, batches(30, 1)))))
    }
    metrics_callback(["accuracy"]).on_train_epoch_end(trainer, module)
    assert module.logged == {"val_accuracy": float(metrics.accuracy(Predictions(*predictions_of(module, batches(40)))))}
    for callback in (loss_callback(), metrics_callback()):
        with pytest.raises(InputError, match="the trainer has none"):
            callback.on_train_epoch_end(without, module)
    loss_callback().on_train_epoch_end(without, Held("focal"))  # learns from nothing and needs nothing


@pytest.mark.usefixtures("callbacks_alone")
def test_what_a_loss_needs_of_the_validation_samples_is_passed_or_named() -> None:
    module = Held("adaptive_difficulty")
    trainer = SimpleNamespace(val_dataloaders=batches(40))
    with pytest.raises(InputError, match=r"pass needs=\{'groups': ...\} to loss_callback"):
        loss_callback().on_train_epoch_end(trainer, module)
    groups = torch.arange(40) % 3
    loss_callback(needs={"groups": groups}).on_train_epoch_end(trainer, module)
    assert module.learned == [(40, {"groups": groups})]


def test_a_batch_of_another_shape_is_made_a_pair() -> None:
    model = torch.nn.Linear(6, 3)
    plain = predictions_of(model, batches(10))
    named = [{"x": rows, "y": labels} for rows, labels in batches(10)]
    assert torch.equal(predictions_of(model, named, lambda batch: (batch["x"], batch["y"]))[0], plain[0])


@pytest.mark.usefixtures("callbacks_alone")
def test_a_module_without_a_loss_is_told_so() -> None:
    callback = loss_callback(loss="criterion")
    with pytest.raises(InputError, match=r"must hold a loss of confide\.losses\.create under 'criterion'"):
        callback.on_train_epoch_end(None, torch.nn.Linear(2, 2))


def test_predictions_are_those_of_eval_mode_and_in_order() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(6, 3), torch.nn.Dropout(0.9))
    rows = data(10, 2)
    logits, labels = predictions_of(model, torch.utils.data.DataLoader(rows, batch_size=4))
    assert model[1].training
    torch.testing.assert_close(logits, model[0](rows.tensors[0]).detach())
    assert torch.equal(labels, rows.tensors[1])
