"""Every metric against recorded outputs of public implementations and of an independent float64 one."""

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch

from confide import Predictions, metrics
from confide.checks import InputError
from confide.metrics.view import View, metric_samples
from confide.numerics.binning import interpolated_edges, split_edges

most_bins = import_module("confide.metrics.calibration").most_bins
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
    close(metrics.brier(predictions, over="mean"), wanted["brier_mean_over_KN"])
    np.testing.assert_allclose(predictions.facts.entropy.numpy(), wanted["entropy"], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("bins", [10, 15])
def test_binned_calibration_errors(case, bins):
    name, predictions = case
    width, mass = load(f"ece_ew_{bins}_{name}"), load(f"ece_em_{bins}_{name}")
    close(metrics.ece(predictions, bins=bins), width["independent_right_closed"])
    close(metrics.ece(predictions, bins=bins, closed="left"), width["independent_left_closed"])
    for key in ("torr_ECELoss", "torr_expected"):
        close(metrics.ece(predictions, bins=bins), width[key], rtol=1e-6)
    close(metrics.ece(predictions, bins=bins, closed="left"), width["cwr"], rtol=1e-6)
    close(metrics.ece(predictions, bins=bins), mass["kumar_ew"], rtol=1e-6)
    close(metrics.ece(predictions, bins=bins, closed="left"), mass["caltrain_ew"], rtol=1e-6)
    close(metrics.ece(predictions, bins=bins, norm=2), width["torr_L2"], rtol=1e-6)
    close(metrics.ece(predictions, bins=bins, norm="max"), width["torr_MCE"], rtol=1e-6)
    close(metrics.mce(predictions, bins=bins), width["torr_MCE"], rtol=1e-6)
    close(metrics.ece(predictions, bins=bins, binning="mass"), mass["independent_rank"])
    close(metrics.ece(predictions, bins=bins, binning="mass"), mass["caltrain_em"], rtol=1e-6)


@pytest.mark.parametrize("bins", [10, 15])
def test_equal_mass_edges_and_plain_mean_of_other_packages(case, bins):
    name, predictions = case
    width, mass = load(f"ece_ew_{bins}_{name}"), load(f"ece_em_{bins}_{name}")
    for edges, key in (("interpolated", "torr_adaptive"), ("order", "cwr_adaptive"), ("midpoint", "kumar_em")):
        close(metrics.ece(predictions, bins=bins, binning="mass", edges=edges), mass[key], rtol=1e-6)
    close(metrics.ece(predictions, bins=bins, norm="mean"), width["torr_ACE"], rtol=1e-6)
    confidence = predictions.facts.confidence.numpy()
    np.testing.assert_allclose(interpolated_edges(confidence, bins), mass["torr_edges"], rtol=1e-6)


def test_other_edges_have_intervals_and_need_equal_mass_bins():
    data = load("inputs_C")
    predictions = Predictions(data["logits"], data["labels"])
    for edges in ("interpolated", "order", "midpoint"):
        found = metrics.ece(predictions, binning="mass", edges=edges)
        assert 0 < found.low < float(found) < found.high
        assert metrics.calibration_test(predictions, edges=edges, resamples=99).p_value == 1 / 100
        with pytest.raises(InputError, match="binning"):
            metrics.ece(predictions, edges=edges)
    one = Predictions.from_top1([0, 0], [0, 1], [0.5, 0.5])
    assert float(metrics.ece(one, binning="mass", edges="interpolated")) == 0.0
    assert float(metrics.ece(one, binning="mass", edges="order")) == 0.0


def test_classwise_calibration_errors(case):
    name, predictions = case
    wanted = load(f"cwece_15_{name}")
    close(metrics.classwise_ece(predictions, closed="left"), wanted["independent_left_closed"])
    close(metrics.classwise_ece(predictions), wanted["independent_left_closed"])
    close(metrics.classwise_ece(predictions, binning="mass"), wanted["independent_rank_adaptive"])
    close(metrics.classwise_ece(predictions, binning="mass"), wanted["caltrain_em_marginal"], rtol=1e-6)


def test_classwise_conventions_of_other_packages(case):
    name, predictions = case
    wanted = load(f"cwece_15_{name}")
    assert int(wanted["n_classes_present"]) == len(predictions.labels.unique())
    close(metrics.classwise_ece(predictions, classes="to_largest"), wanted["torr"], rtol=1e-6)
    close(metrics.classwise_ece(predictions, classes="present", closed="left"), wanted["cwr"], rtol=1e-6)
    adaptive = metrics.classwise_ece(predictions, classes="present", binning="mass", edges="order")
    close(adaptive, wanted["cwr_adaptive"], rtol=1e-6)
    with pytest.raises(InputError, match="equal-mass"):
        metrics.classwise_ece(predictions, edges="order")


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
    threshold = float(wanted["thr95"])
    assert float(metrics.tpr(predictions, threshold=threshold)) >= 0.95
    close(1 - float(metrics.tnr(predictions, threshold=threshold)), wanted["fpr95_first_ge"])


def test_ranking_conventions_of_other_packages(case):
    name, predictions = case
    wanted = load(f"selective_msp_{name}")
    for key in ("eaurc_daintlab", "eaurc_idogalil"):
        close(metrics.eaurc(predictions), wanted[key])
    close(metrics.aurc(predictions), wanted["aurc_weighted_form"])
    close(metrics.aurc(predictions, risk="nll"), wanted["aurc_ce_risk"])
    close(metrics.aurc(predictions, area="trapezoid"), wanted["aurc_confidnet_trapezoid"])
    close(metrics.eaurc(predictions, area="trapezoid"), wanted["eaurc_confidnet"])
    close(metrics.fpr95(predictions, form="corner"), wanted["fpr95_daintlab"])
    close(metrics.fpr95(predictions, form="scan"), wanted["fpr95_confidnet"])
    close(metrics.auroc(predictions), wanted["auroc_confidnet"])
    close(metrics.aupr_success(predictions), wanted["ap_success_confidnet"])
    for key in ("aupr_error_daintlab", "ap_errors_confidnet"):
        close(metrics.aupr_error(predictions), wanted[key])


def test_a_scan_finds_a_threshold_where_there_is_one():
    rng = np.random.default_rng(0)
    sure, right = rng.random(4000), rng.random(4000) < 0.7
    predictions = Predictions.from_top1(np.zeros(4000), 1 - right, sure)
    found, first = (float(metrics.fpr95(predictions, form=form)) for form in ("scan", "reached"))
    assert found == pytest.approx(first, abs=2e-3)
    low, high = sure.min(), sure.max()
    naive = next(
        (sure[~right] >= t).mean()
        for t in np.arange(low, high, (high - low) / 10_000)
        if 0.9495 <= (sure[right] >= t).mean() <= 0.9505
    )
    assert found == pytest.approx(naive)


def test_edges_and_ties():
    data, wanted = load("inputs_H"), load("edges_ties")
    predictions = Predictions.from_top1(np.zeros(32), 1 - data["correct"], data["confidences"])
    for bins in (4, 8):
        close(metrics.ece(predictions, bins=bins), wanted[f"right_closed_{bins}"])
        close(metrics.ece(predictions, bins=bins, closed="left"), wanted[f"left_closed_{bins}"])
        close(metrics.ece(predictions, bins=bins, binning="mass"), wanted[f"rank_em_{bins}"])
        close(metrics.ece(predictions, bins=bins), wanted[f"torr_{bins}"])
        close(metrics.ece(predictions, bins=bins), wanted[f"kumar_ew_{bins}"])
        close(metrics.ece(predictions, bins=bins, closed="left"), wanted[f"caltrain_ew_{bins}"])
    close(metrics.aurc(predictions), wanted["aurc_tie_averaged"])
    close(metrics.aurc(predictions, ties="given"), wanted["aurc_stable_input_order"])
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
    close(metrics.tpr(predictions, score=score, threshold=0.5), wanted["tpr"])
    close(metrics.tnr(predictions, score=score, threshold=0.5), wanted["tnr"])
    close(metrics.tnr(predictions, score=score, threshold=0.1), wanted["tnr_tcp_threshold"])
    close(metrics.separability_kl(predictions, score=score), wanted["avg_kl"])
    close(metrics.separability_bhattacharyya(predictions, score=score), wanted["bhattacharyya"])
    close(metrics.aupr_error(predictions, score=score, form="released"), wanted["aupr_error_released_bug"])
    close(metrics.separability_kl(predictions, score=score, form="released"), wanted["avg_kl_released_bug"])
    close(metrics.fpr95(predictions, score=score, form="scan"), wanted["fpr95_released"])
    (mean, variance), (other_mean, other_variance) = View(metric_samples(predictions)).moments(score)
    for found, key in ((mean, "mu_pos"), (variance**0.5, "std_pos"), (other_mean, "mu_neg")):
        close(found, wanted[key])
    close(other_variance**0.5, wanted["std_neg"])


def test_debiased_errors(case):
    name, predictions = case
    wanted = load(f"ece_debiased_{name}")
    close(metrics.debiased_ece(predictions), wanted["l2_debiased_top"])
    close(metrics.debiased_ece(predictions, binning="width"), wanted["l2_debiased_ew_top"])
    close(metrics.debiased_ece(predictions, of="classes"), wanted["l2_debiased_marginal"])
    close(metrics.ece(predictions, binning="mass", edges="midpoint", norm=2), wanted["l2_plugin_top"])
    edges = split_edges(predictions.facts.confidence.numpy(), 15)[1:]
    np.testing.assert_allclose(edges, wanted["em_bin_edges"], rtol=1e-9)
    # The recorded value comes from other random draws.
    assert abs(float(metrics.debiased_ece(predictions, norm=1)) - wanted["l1_debiased_top_em_seed0_1000"]) < 2e-3


def test_sweep_errors(case):
    name, predictions = case
    wanted = load(f"ece_sweep_{name}")
    for norm in (1, 2):
        close(metrics.sweep_ece(predictions, norm=norm), wanted[f"em_norm{norm}"])
        close(metrics.sweep_ece(predictions, binning="width", norm=norm), wanted[f"ew_norm{norm}"])
    top = View(metric_samples(predictions)).top()
    for binning, key in (("mass", "em_nbins"), ("width", "ew_nbins")):
        assert most_bins(top, binning) == int(wanted[key])


@pytest.mark.parametrize("name", ["A", "B"])
def test_kernel_errors(name):
    data, wanted = load(f"inputs_{name}"), load(f"ece_kde_{name}")
    predictions = Predictions(data["logits"], data["labels"])
    for of, key in (("all", "canonical"), ("top", "top_label"), ("classes", "marginal")):
        for power in (1, 2):
            if f"{key}_p{power}" in wanted:
                close(metrics.kde_ece(predictions, of=of, p=power), wanted[f"{key}_p{power}"], rtol=1e-7)


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("bandwidth", [0.02, 0.1, 0.5])
def test_kernel_errors_of_other_bandwidths(power, bandwidth):
    data, wanted = load("inputs_A"), load(f"ece_kde_canonical_p{power}_bw{bandwidth}_A")
    found = metrics.kde_ece(Predictions(data["logits"], data["labels"]), p=power, bandwidth=bandwidth)
    close(found, wanted["value"], rtol=1e-7)


@pytest.mark.parametrize(
    ("name", "smooth", "augrc"),
    [("A", 0.0875816, 0.16223145), ("B", 0.3264106, 0.11244202), ("C", 0.0751559, 0.196905)],
)
def test_published_worked_numbers(name, smooth, augrc):
    data = load(f"inputs_{name}")
    predictions = Predictions(data["logits"], data["labels"])
    assert abs(float(metrics.smooth_ece(predictions)) - smooth) < 1e-7
    assert abs(float(metrics.augrc(predictions)) - augrc) < 1e-8


def test_worked_numbers_of_risk_coverage_and_scores():
    data = load("inputs_C")
    predictions = Predictions(data["logits"], data["labels"])
    assert float(metrics.risk_at_coverage(predictions, coverage=0.5)) == 0.336
    assert float(metrics.risk_at_coverage(predictions, coverage=0.8)) == 0.4775
    assert float(metrics.coverage_at_risk(predictions, risk=0.25)) == 0.4
    for score, wanted in (("msp", 0.736516), ("max_logit", 0.682137), ("energy", 0.650655)):
        assert abs(float(metrics.auroc(predictions, score=score)) - wanted) < 5e-7


def test_augrc_of_ties():
    data = load("inputs_H")
    predictions = Predictions.from_top1(np.zeros(32), 1 - data["correct"], data["confidences"])
    assert float(metrics.augrc(predictions)) == pytest.approx(0.05761719, abs=5e-9)
