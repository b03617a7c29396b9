"""Table 3 of Cui et al. (2023): how well errors are detected."""

from benchmarks.lib.claims import Better
from benchmarks.lib.items import Item, reported
from benchmarks.lib.quantities import clean
from benchmarks.papers.settings import CIFAR100_RESNET34, IMAGENET_RESNET34

OTHERS = ("cross_entropy", "label_smoothing", "focal", "logit_norm", "entropy_regularization", "crl")
METHODS = (*OTHERS, "difficulty_entropy")
METRICS = ("fpr95", "fpr95:entropy", "auroc", "auroc:entropy", "aupr_success", "aupr_success:entropy")
ORDER = "; ".join(METRICS)

ITEM = Item(
    name="p1-table3",
    title="misclassification detection by confidence and by entropy",
    source="Cui et al. (2023), Table 3",
    setting="ResNet-34, CIFAR-100 and ImageNet, five seeds.",
    here="ResNet-18, CIFAR-10 and Tiny-ImageNet-32.",
    methods=METHODS,
    smoke=("cross_entropy", "crl", "difficulty_entropy"),
    values=clean(METHODS, METRICS),
    reported=(
        *reported(
            "CIFAR-100",
            ORDER,
            {
                "cross_entropy": (45.21, 47.44, 86.29, 86.58, 94.70, 95.47),
                "label_smoothing": (49.19, 49.71, 86.00, 85.82, 94.31, 94.19),
                "focal": (47.30, 48.84, 85.90, 84.72, 94.90, 94.50),
                "logit_norm": (48.11, 48.40, 85.52, 85.31, 94.05, 93.90),
                "entropy_regularization": (45.40, 46.88, 86.32, 85.69, 95.26, 95.20),
                "crl": (44.80, 46.08, 86.67, 85.98, 95.55, 95.49),
                "difficulty_entropy": (42.71, 43.22, 87.50, 87.03, 96.10, 96.02),
            },
        ),
        *reported(
            "ImageNet",
            ORDER,
            {
                "cross_entropy": (46.93, 48.94, 86.03, 85.02, 94.22, 93.75),
                "label_smoothing": (52.12, 61.52, 85.28, 81.03, 93.86, 91.98),
                "focal": (48.54, 51.10, 85.67, 83.05, 94.08, 93.03),
                "logit_norm": (47.19, 48.58, 86.19, 84.58, 94.39, 93.82),
                "entropy_regularization": (46.98, 48.85, 86.15, 84.19, 94.38, 93.82),
                "crl": (46.03, 48.01, 86.11, 84.33, 94.41, 93.89),
                "difficulty_entropy": (45.69, 46.72, 86.53, 85.23, 94.76, 94.31),
            },
        ),
    ),
    claims=tuple(
        Better(
            f"difficulty weighting is best by {metric}",
            "difficulty_entropy",
            OTHERS,
            metric,
            higher="fpr" not in metric,
        )
        for metric in METRICS
    ),
    paper=(CIFAR100_RESNET34, IMAGENET_RESNET34),
)
