"""The public names that users and docs rely on."""

import inspect

import pytest

import confide

LOSSES = [
    "cross_entropy",
    "label_smoothing",
    "focal",
    "flsd53",
    "inverse_focal",
    "dual_focal",
    "calfocal",
    "adafocal",
    "aurc",
    "selective_au",
    "entropy_regularization",
    "difficulty_entropy",
    "logit_norm",
    "poly1",
    "brier",
    "mmce",
    "mmce_weighted",
    "kde_xe",
    "crl",
    "class_balanced",
    "group_dro",
    "mbls",
    "mdca",
]
METRICS = [
    "accuracy",
    "nll",
    "brier",
    "ece",
    "classwise_ece",
    "debiased_ece",
    "sweep_ece",
    "kde_ece",
    "smooth_ece",
    "mce",
    "aurc",
    "eaurc",
    "augrc",
    "auroc",
    "aupr_success",
    "aupr_error",
    "fpr95",
    "tpr",
    "tnr",
    "coverage_at_risk",
    "risk_at_coverage",
    "separability_kl",
    "separability_bhattacharyya",
]
WORDS = {
    "losses": LOSSES,
    "difficulty": ["rmd", "md", "kmeans", "prototype", "confusion", "loss", "correctness", "entropy"],
    "calibrators": (
        [
            "temperature",
            "ensemble_temperature",
            "vector",
            "matrix",
            "dirichlet",
            "beta",
            "isotonic",
            "histogram",
            "spline",
            "metamis",
            "metaacc",
        ]
    ),
    "sets": ["lac", "aps", "raps", "saps", "top_k"],
    "metrics": METRICS,
    "trust": (
        [
            "steep_slope",
            "tcp",
            "binary_cross_entropy",
            "binary_focal",
            "mcp",
            "entropy",
            "margin",
            "mc_dropout",
            "trust_score",
        ]
    ),
}
LOSS_OPTIONS = {
    "label_smoothing": ["smoothing"],
    "focal": ["gamma"],
    "inverse_focal": ["gamma"],
    "dual_focal": ["gamma", "form"],
    "poly1": ["epsilon"],
    "entropy_regularization": ["alpha"],
    "difficulty_entropy": ["alpha", "weights"],
    "logit_norm": ["alpha", "p"],
    "selective_au": ["score", "coverage", "smoothing", "bins", "form"],
    "aurc": ["score"],
    "class_balanced": ["beta", "class_counts"],
    "mmce": ["weight", "kernel_width"],
    "mmce_weighted": ["weight"],
    "kde_xe": ["weight", "bandwidth"],
    "mdca": ["weight"],
    "mbls": ["alpha", "margin"],
    "adafocal": ["bins", "rate", "gamma_min", "gamma_max", "switch"],
    "calfocal": ["case", "rate"],
    "crl": ["score", "weight"],
    "group_dro": ["num_groups", "step_size"],
}


@pytest.mark.parametrize("name", [n for n in confide.__all__ if not n.startswith("_")])
def test_every_promised_name_is_there(name):
    assert getattr(confide, name) is not None
    assert name in dir(confide)


@pytest.mark.parametrize("family", WORDS)
def test_every_word_of_a_family_is_there(family):
    room = getattr(confide, family)
    assert set(WORDS[family]) <= set(room.names())


@pytest.mark.parametrize("word", LOSSES)
def test_a_loss_is_an_attribute_of_its_room(word):
    assert callable(getattr(confide.losses, word))
    assert not inspect.ismodule(getattr(confide.losses, word))


@pytest.mark.parametrize("word", METRICS)
def test_a_metric_is_a_function_of_its_room(word):
    assert inspect.isfunction(getattr(confide.metrics, word))


@pytest.mark.parametrize(("word", "options"), LOSS_OPTIONS.items())
def test_losses_have_the_options_that_are_promised(word, options):
    from confide.losses import LOSSES as registry

    method = registry.get(word)
    assert set(options) <= {*method.options, *method.needs}


def test_trust_losses_and_bare_penalties_have_their_names():
    for name in ("steep_slope", "tcp", "binary_cross_entropy", "binary_focal"):
        assert inspect.isfunction(getattr(confide.trust.losses, name))
    for name in ("mmce", "mmce_weighted", "kde_xe", "mdca"):
        assert inspect.isfunction(getattr(confide.penalties, name))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'calibrator'"):
        _ = confide.calibrator
