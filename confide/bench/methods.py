"""The methods of the tables, with options from the papers; nothing here was chosen on test data."""

from __future__ import annotations

from confide.bench.plan import Method

METHODS = (
    Method("cross_entropy", shifted=True),
    Method("confide", recipe="confide", shifted=True, optional=True),
    Method("cross_entropy_averaged", training={"average": 1.0, "mirror": True}, shifted=True),
    Method(
        "adaptive_difficulty_averaged",
        "adaptive_difficulty",
        training={"average": 1.0, "mirror": True},
        difficulty=True,
        shifted=True,
        optional=True,
    ),
    Method("difficulty_entropy", "difficulty_entropy", {"alpha": 0.3}, difficulty=True, shifted=True),
    Method("adafocal", "adafocal", shifted=True),
    Method("entropy_regularization", "entropy_regularization", {"alpha": 0.1}, shifted=True),
    Method("selective_au", "selective_au", {"coverage": 0.88, "smoothing": 0.1}, shifted=True),
    Method("adaptive_difficulty", "adaptive_difficulty", difficulty=True, optional=True),
    Method("label_smoothing", "label_smoothing", {"smoothing": 0.05}),
    Method("focal", "focal", {"gamma": 3.0}),
    Method("flsd53", "flsd53"),
    Method("inverse_focal", "inverse_focal", {"gamma": 2.0}),
    Method("dual_focal", "dual_focal", {"gamma": 5.0}),
    Method("dual_focal_released", "dual_focal", {"gamma": 5.0, "form": "released"}),
    Method(
        "selective_au_released",
        "selective_au",
        {"coverage": 0.88, "smoothing": 0.1, "form": "released"},
        shifted=True,
    ),
    Method("aurc", "aurc"),
    Method("logit_norm", "logit_norm", {"alpha": 0.05}),
    Method("poly1", "poly1", {"epsilon": 1.0}),
    Method("brier", "brier"),
    Method("mmce_weighted", "mmce_weighted", {"weight": 2.0}),
    Method("mmce_weighted_released", "mmce_weighted", {"weight": 2.0, "form": "released"}),
    Method("kde_xe", "kde_xe", {"weight": 0.3}),
    Method("crl", "crl", {"weight": 1.0}),
)
"""Rows of the main tables, the most telling first. Options: the papers' for CIFAR-10 (ResNet-50 where they differ by
network); difficulty weights are those of the library, ranks with T = 0.3, with the paper's alpha."""

MANY_CLASSES = {
    "label_smoothing": {"smoothing": 0.09},
    "inverse_focal": {"gamma": 1.0},
    "dual_focal": {"gamma": 2.3},
    "dual_focal_released": {"gamma": 2.3},
    "selective_au": {"coverage": 0.6, "smoothing": 0.05},
    "selective_au_released": {"coverage": 0.6, "smoothing": 0.05},
    "difficulty_entropy": {"alpha": 0.2},
    "logit_norm": {"alpha": 0.01},
    "kde_xe": {"weight": 0.5},
}
"""Options for Tiny-ImageNet: the papers' for it, else for CIFAR-100 or ImageNet."""

RAW = {"weight_options": {"normalize": "none", "temperature": 0.7}}
MINMAX = {"weight_options": {"normalize": "minmax", "temperature": 0.7}}

QUESTIONS = (
    Method("difficulty_raw", "difficulty_entropy", {"alpha": 0.3}, RAW, difficulty=True),
    Method("difficulty_minmax", "difficulty_entropy", {"alpha": 0.3}, MINMAX, difficulty=True),
    Method("difficulty_rank_06", "difficulty_entropy", {"alpha": 0.6}, difficulty=True),
    Method("difficulty_rank_10", "difficulty_entropy", {"alpha": 1.0}, difficulty=True),
    Method("entropy_017", "entropy_regularization", {"alpha": 0.17}),
    Method("entropy_029", "entropy_regularization", {"alpha": 0.29}),
    Method("adafocal_steps", "adafocal", {"update_every": 20}),
    Method("selective_au_margin", "selective_au", {"coverage": 0.88, "smoothing": 0.1, "score": "margin"}),
    Method("selective_au_entropy", "selective_au", {"coverage": 0.88, "smoothing": 0.1, "score": "entropy"}),
    Method("selective_au_detached", "selective_au", {"coverage": 0.88, "smoothing": 0.1, "detach_weight": True}),
    Method("difficulty_md", "difficulty_entropy", {"alpha": 0.3}, difficulty=True, scores="md"),
    Method("difficulty_kmeans", "difficulty_entropy", {"alpha": 0.3}, difficulty=True, scores="kmeans"),
    Method("group_dro", "group_dro", {"num_groups": 2}, difficulty=True),
    Method("kde_xe_fixed", "kde_xe", {"weight": 0.3, "bandwidth": 0.1}),
)
"""Variants that answer a question: normalisation and strength of difficulty weights, constant weights of the same
mean strength (0.17 and 0.29 are those of ranks with T = 0.3 and alpha 0.6 and 1.0), AdaFocal's updates, the score of
selective AU and its weights without a gradient, the measure of difficulty, the worst of two groups of difficulty,
KDE-XE without a bandwidth chosen anew for every batch."""

SWEEP = tuple(
    Method(f"selective_au_{coverage}_{smoothing}", "selective_au", {"coverage": coverage, "smoothing": smoothing})
    for coverage in (0.25, 0.5, 0.75)
    for smoothing in (0.01, 0.1)
)
"""Coverage and smoothness of selective AU."""

ARCHITECTURES = tuple(
    one for one in METHODS if one.name in ("cross_entropy", "entropy_regularization", "difficulty_entropy")
)
"""Methods that are also trained with a second network."""

TASK = (
    Method("difficulty_task_rmd", "difficulty_entropy", {"alpha": 0.3}, difficulty=True, scores="task_rmd"),
    Method("difficulty_task_loss", "difficulty_entropy", {"alpha": 0.3}, difficulty=True, scores="task_loss"),
)
"""Difficulty from a network trained on the task; `confide bench prepare --task` makes its scores."""

RECORDED = (Method("recorded", record=True),)
"""Cross-entropy whose validation probabilities are kept after every epoch: confusion scores."""


def method(name: str) -> Method:
    """The method of that name."""
    return {one.name: one for one in (*METHODS, *QUESTIONS, *RECORDED, *SWEEP, *TASK)}[name]
