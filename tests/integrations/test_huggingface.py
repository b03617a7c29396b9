"""The Hugging Face Trainer with a loss of ours; the Trainer runs where transformers and accelerate are installed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from confide import losses
from confide.checks import InputError
from confide.integrations.huggingface import compute_loss_func


def test_outputs_of_every_kind_are_understood() -> None:
    logits, labels = torch.randn((6, 4)), torch.arange(6) % 4
    wanted = losses.focal(logits, labels).mean()
    loss = compute_loss_func("focal")
    for outputs in ({"logits": logits}, SimpleNamespace(logits=logits), (logits,)):
        torch.testing.assert_close(loss(outputs, labels), wanted)
    torch.testing.assert_close(loss((logits.reshape(2, 3, 4),), labels.reshape(2, 3)), wanted)


def test_accumulated_micro_batches_give_the_mean_over_all_labels() -> None:
    logits, labels = torch.randn((6, 4)), torch.arange(6) % 4
    labels[1] = -100
    loss = compute_loss_func("focal", ignore_index=-100)
    parts = [loss((logits[rows],), labels[rows], num_items_in_batch=5) for rows in (slice(0, 2), slice(2, 6))]
    torch.testing.assert_close(parts[0] + parts[1], loss((logits,), labels))


def test_a_loss_that_needs_more_than_labels_is_refused() -> None:
    with pytest.raises(InputError, match="needs ids with every batch, which the Trainer does not pass"):
        compute_loss_func("crl")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_trainer_learns_with_it(tmp_path: Any) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")

    class Classifier(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(6, 3)

        def forward(self, features: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
            return {"logits": self.linear(features)}

    features = torch.randn((96, 6), generator=torch.Generator().manual_seed(0))
    rows = [{"features": f, "labels": f[:3].argmax()} for f in features]
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path),
        num_train_epochs=20,
        per_device_train_batch_size=16,
        gradient_accumulation_steps=2,
        learning_rate=0.1,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
    )
    model = Classifier()
    trainer = transformers.Trainer(model, arguments, train_dataset=rows, compute_loss_func=compute_loss_func("focal"))
    trainer.train()
    predicted = model.linear(features).argmax(dim=1)
    assert float((predicted == features[:, :3].argmax(dim=1)).float().mean()) > 0.9
