"""The Hugging Face Trainer with a loss of ours; the Trainer runs where transformers and accelerate are installed."""

from __future__ import annotations

import sys
import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from confide import Predictions, losses, metrics
from confide.checks import InputError
from confide.integrations.huggingface import compute_loss_func, compute_metrics, load


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


def test_a_sum_is_not_divided_by_the_labels_of_all_micro_batches() -> None:
    logits, labels = torch.randn((6, 4)), torch.arange(6) % 4
    loss = compute_loss_func("focal", reduction="sum")
    torch.testing.assert_close(loss((logits,), labels, num_items_in_batch=3), losses.focal(logits, labels).sum())
    loss.update()  # nothing to learn from


def test_labels_that_the_loss_ignores_are_not_learned_from() -> None:
    logits, labels = torch.randn((6, 4)), torch.tensor([0, 1, 3, 2, 0, 3])
    loss = compute_loss_func("adafocal", ignore_index=3)
    with torch.no_grad():
        loss((logits,), labels)
    assert loss.evaluated[0][1].tolist() == [0, 1, 2, 0]
    assert torch.equal(loss.evaluated[0][0], logits[[0, 1, 3, 4]])


def test_a_loss_that_needs_more_than_labels_is_refused() -> None:
    with pytest.raises(InputError, match="needs ids with every batch, which the Trainer does not pass"):
        compute_loss_func("crl")


def test_adafocal_learns_from_the_evaluations_of_the_trainer() -> None:
    """The gammas stayed at 1 without a word."""
    generator = torch.Generator().manual_seed(0)
    logits, labels = 3 * torch.randn((60, 4), generator=generator), torch.arange(60) % 4
    labels[50:] = -100
    loss, alone = compute_loss_func("adafocal", ignore_index=-100), losses.create("adafocal")
    loss({"logits": logits.clone().requires_grad_()}, labels)
    with torch.no_grad():
        for rows in torch.arange(60).split(16):
            loss({"logits": logits[rows]}, labels[rows])
    assert bool((loss.loss.gammas == 1).all())
    loss({"logits": logits.clone().requires_grad_()}, labels)
    assert alone.update is not None
    alone.update(logits[:50], labels[:50])
    torch.testing.assert_close(loss.loss.gammas, alone.gammas)
    assert bool((alone.gammas != 1).any())
    assert not loss.evaluated


def test_an_epoch_without_an_evaluation_is_warned_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    state = SimpleNamespace(end_of_dataloader=False)
    loaded = SimpleNamespace(state=SimpleNamespace(GradientState=lambda: state))
    monkeypatch.setitem(sys.modules, "accelerate", loaded)
    loss, logits, labels = compute_loss_func("adafocal"), torch.randn((6, 3)), torch.arange(6) % 3

    def epoch(evaluate: bool) -> None:
        for state.end_of_dataloader in (False, False, True):
            loss((logits.clone().requires_grad_(),), labels)
        if evaluate:
            with torch.no_grad():
                loss((logits,), labels)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        epoch(True)
        epoch(True)
        epoch(False)
    with pytest.warns(UserWarning, match=r"an epoch went by without update.*eval_strategy='epoch'"):
        epoch(False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        epoch(False)
        epoch(False)


def test_metrics_of_an_evaluation_leave_out_padding_and_name_chance() -> None:
    logits, labels = torch.randn((2, 30, 4), generator=torch.Generator().manual_seed(0)), torch.arange(60) % 4
    labels[:7] = -100
    evaluated = SimpleNamespace(predictions=(logits.numpy(), "states"), label_ids=labels.reshape(2, 30).numpy())
    logged = compute_metrics(["nll", "ece", "auroc:entropy"])(evaluated)
    expected = Predictions(logits.reshape(60, 4)[7:], labels[7:])
    assert logged["nll"] == pytest.approx(float(metrics.nll(expected)))
    assert logged["auroc:entropy"] == pytest.approx(float(metrics.auroc(expected, score="entropy")))
    assert 0 < logged["ece_by_chance"] < 0.3
    with pytest.raises(InputError, match="did you mean 'ece'"):
        compute_metrics(["eec"])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("word", "evaluations"), [("focal", "epoch"), ("adafocal", "epoch"), ("adafocal", "no")])
def test_the_trainer_learns_with_it(tmp_path: Any, word: str, evaluations: str) -> None:
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
        eval_strategy=evaluations,
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
    )
    model = Classifier()
    loss = compute_loss_func(word)
    trainer = transformers.Trainer(
        model,
        arguments,
        train_dataset=rows,
        eval_dataset=rows,
        compute_loss_func=loss,
        compute_metrics=compute_metrics(),
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer.train()
    assert sum("learns from validation predictions" in str(c.message) for c in caught) == (evaluations == "no")
    if evaluations == "epoch":
        assert {"eval_ece", "eval_ece_by_chance", "eval_aurc"} <= set(trainer.state.log_history[-2])
    if word == "adafocal":
        assert bool((loss.loss.gammas != 1).any()) == (evaluations == "epoch")
    predicted = model.linear(features).argmax(dim=1)
    assert float((predicted == features[:, :3].argmax(dim=1)).float().mean()) > 0.9


def test_a_module_in_the_style_of_evaluate_gives_the_numbers_of_the_metrics() -> None:
    logits, labels = torch.randn((40, 3), generator=torch.Generator().manual_seed(0)), torch.arange(40) % 3
    metric = load("ece", "aurc")
    metric.add_batch(predictions=logits[:30], references=labels[:30])
    metric.add(prediction=logits[30].tolist(), reference=int(labels[30]))
    found = metric.compute(predictions=logits[31:].numpy(), references=labels[31:].tolist())
    assert found["aurc"] == pytest.approx(float(metrics.aurc(Predictions(logits, labels))), rel=1e-5)
    by_probs = load("ece", probs=True).compute(predictions=logits.softmax(1), references=labels)
    assert by_probs["ece"] == pytest.approx(found["ece"], rel=1e-5)
    with pytest.raises(InputError, match="needs samples"):
        metric.compute()  # what was added is forgotten
    assert (metric.name, load().words) == ("ece_aurc", ("accuracy", "nll", "ece", "aurc"))
    assert load("auroc:entropy").name == "auroc:entropy"
    with pytest.raises(InputError, match="as many, got 2 and 1"):
        metric.add_batch(predictions=logits[:2], references=labels[:1])
    for half in ({"predictions": logits}, {"references": labels}):
        with pytest.raises(InputError, match="predictions and references together"):
            load("ece").compute(**half)


def _one_of_two(rank: int, store: str, results: Any) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    logits, labels = torch.randn((40, 3), generator=torch.Generator().manual_seed(0)), torch.arange(40) % 3
    rows = slice(0, 25) if rank == 0 else slice(25, 40)
    metric = load("ece", "nll")
    metric.add_batch(predictions=logits[rows], references=labels[rows])
    results.put(metric.compute())
    torch.distributed.destroy_process_group()


@pytest.mark.slow
def test_two_processes_compute_the_numbers_of_one(tmp_path) -> None:
    context = torch.multiprocessing.get_context("spawn")
    results = context.Queue()
    processes = [context.Process(target=_one_of_two, args=(k, str(tmp_path / "store"), results)) for k in range(2)]
    for process in processes:
        process.start()
    found = [results.get(timeout=120) for _ in processes]
    for process in processes:
        process.join()
    logits, labels = torch.randn((40, 3), generator=torch.Generator().manual_seed(0)), torch.arange(40) % 3
    wanted = load("ece", "nll").compute(predictions=logits, references=labels)
    for each in found:
        assert each["ece"] == pytest.approx(wanted["ece"], rel=1e-5)
        assert each["nll"] == pytest.approx(wanted["nll"], rel=1e-5)


def test_compute_metrics_given_without_brackets_says_how():
    evaluated = SimpleNamespace(predictions=[[2.0, 0.0]], label_ids=[0])
    with pytest.raises(InputError, match=r"give compute_metrics=compute_metrics\(\)"):
        compute_metrics(evaluated)
