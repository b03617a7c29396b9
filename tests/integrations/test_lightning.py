"""A Lightning module trained with AdaFocal and its callback; runs where lightning is installed."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from confide import Predictions, losses, metrics
from confide.checks import InputError
from confide.integrations.lightning import loss_callback, metrics_callback, predictions_of

pytestmark = pytest.mark.slow


def data(n: int, seed: int) -> torch.utils.data.TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn((n, 6), generator=generator)
    return torch.utils.data.TensorDataset(features, features[:, :3].argmax(dim=1))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("options", "updates"), [({}, 2), ({"update_every": 2}, 4)])
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
        callbacks=[loss_callback(), metrics_callback()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    loaders = [torch.utils.data.DataLoader(data(64, 0), batch_size=16), torch.utils.data.DataLoader(data(40, 1), 20)]
    trainer.fit(model, *loaders)
    assert calls == [40] * updates
    assert all(model.modes)
    expected = float(metrics.nll(Predictions(*predictions_of(model, loaders[1]))))
    assert float(trainer.callback_metrics["val_nll"]) == pytest.approx(expected, rel=1e-5)
    assert {"val_ece", "val_ece_by_chance", "val_aurc"} <= set(trainer.callback_metrics)
    assert not torch.equal(model.loss.gammas, torch.ones(15, dtype=torch.float64))


def test_a_module_without_a_loss_is_told_so() -> None:
    pytest.importorskip("lightning")
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
