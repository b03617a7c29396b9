"""Every metric against recorded outputs of public implementations and of an independent float64 one."""

from pathlib import Path

import numpy as np
import pytest
import torch

from confide import Predictions, metrics

GOLDEN = Path(__file__).parents[1] / "golden"


def load(name):
    with np.load(GOLDEN / f"{name}.npz") as archive:
        return {key: archive[key] for key in archive.files}


@pytest.fixture(params=["A", "B", "C"])
def case(request):
    data = load(f"inputs_{request.param}")
    return request.param, Predictions(data["logits"], data["labels"])


def close(found, wanted, rtol=1e-9):
    np.testing.assert_allclose(float(found), float(wanted), rtol=rtol, atol=1e-12)


def test_proper_scores(case):
    name, predictions = case
    wanted = load(f"nll_brier_{name}")
    close(metrics.accuracy(predictions), wanted["accuracy"])
    close(metrics.nll(predictions), wanted["nll"])
    close(metrics.brier(predictions), wanted["brier_sum"])
    np.testing.assert_allclose(predictions.facts.entropy.numpy(), wanted["entropy"], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("bins", [10, 15])
def test_binned_calibration_errors(case, bins):
    name, predictions = case
    width, mass = load(f"ece_ew_{bins}_{name}"), load(f"ece_em_{bins}_{name}")
    close(metrics.ece(predictions, bins=bins), width["independent_right_closed"])
    close(metrics.ece(predictions, bins=bins, closed="left"), width["independent_left_closed"])
    close(metrics.ece(predictions, bins=bins, norm=2), width["torr_L2"], rtol=1e-6)
    close(metrics.ece(predictions, bins=bins, norm="max"), width["torr_MCE"], rtol=1e-6)
    close(metrics.mce(predictions, bins=bins), width["torr_MCE"], rtol=1e-6)
    close(metrics.ece(predictions, bins=bins, binning="mass"), mass["independent_rank"])
    close(metrics.ece(predictions, bins=bins, binning="mass"), mass["caltrain_em"], rtol=1e-6)


def test_classwise_calibration_errors(case):
    name, predictions = case
    wanted = load(f"cwece_15_{name}")
    close(metrics.classwise_ece(predictions, closed="left"), wanted["independent_left_closed"])
    close(metrics.classwise_ece(predictions), wanted["independent_left_closed"])
    close(metrics.classwise_ece(predictions, binning="mass"), wanted["independent_rank_adaptive"])


def test_ranking_metrics(case):
    name, predictions = case
    wanted = load(f"selective_msp_{name}")
    close(metrics.aurc(predictions), wanted["aurc"])
    close(metrics.eaurc(predictions), wanted["eaurc"])
    close(metrics.eaurc(predictions, form="finite"), wanted["eaurc_finite_optimal"])
    close(metrics.auroc(predictions), wanted["auroc"])
    close(metrics.aupr_success(predictions), wanted["aupr_success"])
    close(metrics.aupr_error(predictions), wanted["aupr_error"])
    close(metrics.fpr95(predictions), wanted["fpr95_first_ge"])


def test_edges_and_ties():
    data, wanted = load("inputs_H"), load("edges_ties")
    predictions = Predictions.from_top1(np.zeros(32), 1 - data["correct"], data["confidences"])
    for bins in (4, 8):
        close(metrics.ece(predictions, bins=bins), wanted[f"right_closed_{bins}"])
        close(metrics.ece(predictions, bins=bins, closed="left"), wanted[f"left_closed_{bins}"])
        close(metrics.ece(predictions, bins=bins, binning="mass"), wanted[f"rank_em_{bins}"])
    close(metrics.aurc(predictions), wanted["aurc_tie_averaged"])
    for word in ("auroc", "aupr_success", "aupr_error"):
        close(getattr(metrics, word)(predictions), wanted[word])
    close(metrics.fpr95(predictions), wanted["fpr95_first_ge"])


def test_scores_of_a_trust_predictor():
    data, wanted = load("inputs_T"), load("trust_metrics")
    predictions = Predictions(data["logits"], data["labels"])
    score = torch.sigmoid(torch.as_tensor(data["oracle_z"]))
    for word in ("auroc", "aupr_success", "aupr_error"):
        close(getattr(metrics, word)(predictions, score=score), wanted[word])
    close(metrics.fpr95(predictions, score=score), wanted["fpr95_first_ge"])
