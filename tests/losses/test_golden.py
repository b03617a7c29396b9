"""Every loss vector of tests/golden, value and gradient, at the tolerance of its entry in index.json."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor

from confide import losses, penalties
from confide.trust import losses as trust_losses

GOLDEN = Path(__file__).parents[1] / "golden"
SCORES = {"MSP": "msp", "SoftmaxMargin": "margin", "NegEntropy": "entropy", "softmax": "msp"}
Entry = dict[str, Any]


def _form(entry: Entry) -> str:
    return "released" if "released" in (entry["variant"] or "") else "paper"


def _stateless(entry: Entry) -> Callable[[Tensor, Tensor], Tensor]:
    h, arrays = entry["hyperparameters"], load(entry)
    create = losses.create
    made: dict[str, Callable[[], Callable[..., Tensor]]] = {
        "cross_entropy": lambda: create("cross_entropy"),
        "label_smoothing": lambda: create("label_smoothing", smoothing=h["epsilon"]),
        "focal": lambda: create("focal", gamma=h["gamma"], detach_weight=h.get("detach_weight", False)),
        "flsd53": lambda: create("flsd53"),
        "inverse_focal": lambda: create("inverse_focal", gamma=h["gamma"]),
        "dual_focal": lambda: create("dual_focal", gamma=h["gamma"], form=_form(entry)),
        "aurc_loss": lambda: create(
            "aurc",
            score=SCORES[h["csf"]],
            weights_form="log" if "log" in entry["variant"] else "harmonic",
            form=_form(entry),
        ),
        "selective_au": lambda: create(
            "selective_au",
            score=SCORES[h["csf"]],
            coverage=h["kappa"],
            smoothing=h["nu"],
            include_c=h.get("include_C", False),
            form=_form(entry),
        ),
        "entropy_regularization": lambda: create("entropy_regularization", alpha=h["alpha"]),
        "difficulty_aware_entropy_regularization": lambda: create(
            "difficulty_entropy", alpha=h["alpha"], weights=torch.from_numpy(arrays["sample_weight"])
        ),
        "logit_lp_norm": lambda: create("logit_norm", alpha=h["alpha"], p=h["p"]),
        "polyloss_poly1_ce": lambda: create("poly1", epsilon=h["epsilon"]),
        "brier": lambda: create("brier"),
        "mmce": lambda: lambda z, y: penalties.mmce(z, y, sqrt=h["sqrt"]),
        "mmce_weighted": lambda: lambda z, y: penalties.mmce_weighted(z, y, form=_form(entry)),
        "ece_kde": lambda: lambda z, y: penalties.kde_xe(z, y, bandwidth=h["bandwidth"], power=h["p"]),
        "kde_xe": lambda: create(
            "kde_xe",
            weight=h["lam"],
            bandwidth=h["bandwidth"] if isinstance(h["bandwidth"], float) else None,
            form=_form(entry),
        ),
    }
    return made[entry["method"]]()


ENTRIES = [e for e in json.loads((GOLDEN / "index.json").read_text())["vectors"] if (GOLDEN / e["file"]).exists()]
WITH_STATE = ("adafocal", "calfocal", "crl", "groupdro", "class_balanced")
PLAIN = [
    "cross_entropy",
    "label_smoothing",
    "focal",
    "flsd53",
    "inverse_focal",
    "dual_focal",
    "aurc_loss",
    "selective_au",
    "entropy_regularization",
    "difficulty_aware_entropy_regularization",
    "logit_lp_norm",
    "polyloss_poly1_ce",
    "brier",
    "mmce",
    "mmce_weighted",
    "ece_kde",
    "kde_xe",
]


def load(entry: Entry) -> dict[str, np.ndarray]:
    with np.load(GOLDEN / entry["file"], allow_pickle=False) as file:
        return dict(file)


def inputs(entry: Entry) -> tuple[np.ndarray, Tensor]:
    with np.load(GOLDEN / entry["inputs"][0], allow_pickle=False) as file:
        return file["logits"], torch.from_numpy(file["labels"])


def chosen(*methods: str, has: str = "") -> list[Any]:
    return [pytest.param(e, id=e["id"]) for e in ENTRIES if e["method"] in methods and (not has or has in e["outputs"])]


def agree(
    entry: Entry, loss: Callable[[Tensor, Tensor], Tensor], logits: np.ndarray, labels: Tensor, want: Any
) -> None:
    z = torch.from_numpy(logits).requires_grad_()
    value = loss(z, labels)
    (grad,) = torch.autograd.grad(value, z)
    assert_allclose(value.detach().numpy(), want[0], rtol=entry["rtol"], atol=entry["atol"])
    assert_allclose(grad.numpy(), want[1], rtol=entry["rtol"], atol=entry["atol"])


def test_vectors_of_every_method_are_here() -> None:
    assert {e["method"] for e in ENTRIES} >= {*PLAIN, *WITH_STATE}


@pytest.mark.parametrize("entry", chosen(*PLAIN, has="value"))
def test_losses_and_penalties(entry: Entry) -> None:
    arrays = load(entry)
    agree(entry, _stateless(entry), *inputs(entry), (arrays["value"], arrays["grad_logits"]))


@pytest.mark.parametrize("entry", chosen("adafocal"))
def test_adafocal_through_a_chain_of_updates(entry: Entry) -> None:
    arrays = load(entry)
    loss: Any = losses.create("adafocal", rate=entry["hyperparameters"]["lam"], reduction="sum")
    for step, (logits, labels) in enumerate(zip(arrays["val_logits"], arrays["val_labels"], strict=True)):
        loss.update(torch.from_numpy(logits), torch.from_numpy(labels))
        assert_allclose(loss.gammas, arrays["gammas"][step], rtol=entry["rtol"], atol=entry["atol"])
        assert_allclose(loss.edges[1:], arrays["upper"][step], rtol=entry["rtol"], atol=entry["atol"])
    agree(entry, loss, *inputs(entry), (arrays["value_sum"], arrays["grad_logits_sum"]))


@pytest.mark.parametrize("entry", chosen("calfocal"))
def test_calfocal(entry: Entry) -> None:
    arrays, h = load(entry), entry["hyperparameters"]
    loss: Any = losses.create("calfocal", case=h["case"], rate=h["lam"], detach_gamma=h["gamma_detached"])
    loss.set_bins(*(torch.from_numpy(arrays[name]) for name in ("edges", "A_val", "C_val")))
    agree(entry, loss, *inputs(entry), (arrays["value"], arrays["grad_logits"]))


@pytest.mark.parametrize("entry", chosen("crl"))
def test_correctness_ranking(entry: Entry) -> None:
    arrays, h = load(entry), entry["hyperparameters"]
    score = SCORES.get(h["rank_target"], h["rank_target"])
    loss: Any = losses.create("crl", score=score, weight=h["rank_weight"], num_samples=64, form="released")
    loss.counts.copy_(torch.from_numpy(arrays["correctness_before"]))
    loss.passes[0] = int(arrays["max_correctness_before"])
    loss.passes[1] = 1

    def call(z: Tensor, y: Tensor) -> Tensor:
        return loss(z, y, ids=torch.arange(64))

    agree(entry, call, *inputs(entry), (arrays["total"], arrays["grad_logits_total"]))
    assert_allclose(loss.counts, arrays["correctness_after"])
    loss.end_epoch()
    assert int(loss.passes[0]) == int(arrays["max_correctness_after"])


@pytest.mark.parametrize("entry", chosen("class_balanced"))
@pytest.mark.parametrize(("form", "key"), [("paper", "softmax_ce"), ("softmax_bce",) * 2, ("focal",) * 2])
def test_class_balanced(entry: Entry, form: str, key: str) -> None:
    arrays, h = load(entry), entry["hyperparameters"]
    counts = arrays["samples_per_class"]
    loss = losses.create("class_balanced", beta=h["beta"], gamma=h["gamma"], form=form, class_counts=counts)
    agree(entry, loss, *inputs(entry), (arrays[f"{key}_value"], arrays[f"{key}_grad"]))


@pytest.mark.parametrize("entry", chosen("groupdro"))
def test_group_dro_over_three_steps(entry: Entry) -> None:
    arrays, h = load(entry), entry["hyperparameters"]
    loss: Any = losses.create(
        "group_dro",
        num_groups=h["n_groups"],
        step_size=h["step_size"],
        adjustment=(h["adj"] or [0.0])[0],
        group_counts=h["group_counts"],
        normalize_loss=h["normalize_loss"],
    )
    logits, labels = inputs(entry)
    for step in range(3):
        groups = torch.from_numpy(arrays["group_idx"][step])

        def call(z: Tensor, y: Tensor, groups: Tensor = groups) -> Tensor:
            return loss(z, y, groups=groups)

        agree(entry, call, logits * (1 + 0.3 * step), labels, (arrays["values"][step], arrays["grads"][step]))
        assert_allclose(loss.q, arrays["q"][step], rtol=entry["rtol"], atol=entry["atol"])


@pytest.mark.parametrize("entry", chosen("selective_au", has="value_batch1"))
def test_selective_au_with_an_accumulating_histogram(entry: Entry) -> None:
    arrays, h = load(entry), entry["hyperparameters"]
    loss: Any = losses.create(
        "selective_au", coverage=h["kappa"], smoothing=h["nu"], form="released", accumulate=True, batch_size=32
    )
    logits, labels = inputs(entry)
    for step, rows in enumerate((slice(0, 32), slice(32, 64)), start=1):
        want = (arrays[f"value_batch{step}"], arrays[f"grad_batch{step}"])
        agree(entry, loss, logits[rows], labels[rows], want)
    assert_allclose(loss.histogram, arrays["counts"])


TRUST: dict[str, Callable[[Tensor, Tensor, Tensor, Entry], Tensor]] = {
    "steep_slope": lambda z, o, p, e: trust_losses.steep_slope(z, o, **_alphas(e)),
    "trust_bce": lambda z, o, p, e: trust_losses.binary_cross_entropy(
        z, o, form=_form(e), weight_neg=e["hyperparameters"].get("weight_neg", 1.0)
    ),
    "trust_focal": lambda z, o, p, e: trust_losses.binary_focal(
        z, o, form=_form(e), gamma=e["hyperparameters"]["gamma"], alpha=e["hyperparameters"].get("alpha", 1.0)
    ),
    "tcp": lambda z, o, p, e: trust_losses.tcp(
        z, p[0], weighting=e["hyperparameters"].get("weighting", 1.0), correct=o
    ),
    "tcp_normalised": lambda z, o, p, e: trust_losses.tcp(z, p[0], p_max=p[1]),
}


def _alphas(entry: Entry) -> dict[str, float]:
    return {name: entry["hyperparameters"][name] for name in ("alpha_pos", "alpha_neg")}


@pytest.mark.parametrize("entry", chosen(*TRUST))
def test_trust_losses(entry: Entry) -> None:
    with np.load(GOLDEN / "inputs_T.npz", allow_pickle=False) as file:
        z = torch.from_numpy(file["oracle_z"]).requires_grad_()
        correct, labels = torch.from_numpy(file["correct"]), torch.from_numpy(file["labels"])
        probs = torch.from_numpy(file["logits"]).softmax(dim=1)
    p_true = torch.stack([probs.gather(1, labels[:, None]).squeeze(1), probs.amax(dim=1)])
    value = TRUST[entry["method"]](z, correct, p_true, entry).mean()
    (grad,) = torch.autograd.grad(value, z)
    arrays = load(entry)
    assert_allclose(value.item(), arrays["value"], rtol=entry["rtol"], atol=entry["atol"])
    assert_allclose(grad.numpy(), arrays["grad_oracle_z"], rtol=entry["rtol"], atol=entry["atol"])
