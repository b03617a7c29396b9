"""Table 4 of Cui et al. (2023): near out-of-distribution detection."""

from benchmarks.lib.claims import Better
from benchmarks.lib.items import Item, reported
from benchmarks.lib.quantities import ood_detection
from benchmarks.papers.settings import CIFAR100_RESNET34, IMAGENET_RESNET34

OTHERS = ("cross_entropy", "label_smoothing", "focal", "logit_norm", "entropy_regularization", "crl")
METHODS = (*OTHERS, "difficulty_entropy")
ORDER = "fpr95, max_logit; fpr95, entropy; auroc, max_logit; auroc, entropy; aupr_in, max_logit; aupr_in, entropy"

ITEM = Item(
    name="p1-table4",
    title="telling images of other classes by largest logit and by entropy",
    source="Cui et al. (2023), Table 4",
    setting="ResNet-34; CIFAR-100 against CIFAR-10, ImageNet against iNaturalist.",
    here="ResNet-18; CIFAR-10 against those classes of Tiny-ImageNet-32 that CIFAR-10 does not show, and "
    "textures (DTD); Tiny-ImageNet-32 against textures. Seeds 0 and 1 of cross_entropy, entropy_regularization and "
    "difficulty_entropy also saw 50 freight cars among 8,250 OOD images.",
    methods=METHODS,
    smoke=("cross_entropy", "difficulty_entropy"),
    values=ood_detection(METHODS, ("max_logit", "entropy")),
    reported=(
        *reported(
            "CIFAR-100 / CIFAR-10",
            ORDER,
            {
                "cross_entropy": (60.19, 60.10, 78.42, 78.91, 79.02, 80.19),
                "label_smoothing": (69.51, 70.08, 77.14, 77.31, 75.92, 75.89),
                "focal": (61.02, 61.33, 78.79, 79.36, 80.22, 80.22),
                "logit_norm": (61.58, 61.60, 76.52, 76.58, 79.19, 79.21),
                "entropy_regularization": (59.52, 59.92, 79.22, 79.46, 81.01, 81.22),
                "crl": (58.13, 58.54, 79.91, 80.13, 81.75, 81.89),
                "difficulty_entropy": (55.48, 55.60, 80.20, 80.72, 82.51, 82.84),
            },
        ),
        *reported(
            "ImageNet / iNaturalist",
            ORDER,
            {
                "cross_entropy": (36.06, 40.33, 89.82, 89.02, 97.61, 97.40),
                "label_smoothing": (37.56, 41.22, 89.10, 89.35, 97.12, 97.30),
                "focal": (36.50, 36.32, 90.03, 90.25, 97.76, 97.80),
                "logit_norm": (38.32, 46.03, 88.90, 88.29, 97.53, 97.27),
                "entropy_regularization": (36.00, 35.11, 89.86, 90.04, 97.75, 97.43),
                "crl": (35.07, 34.65, 90.11, 90.32, 97.96, 97.81),
                "difficulty_entropy": (32.17, 34.19, 91.03, 90.65, 98.03, 97.99),
            },
        ),
    ),
    claims=tuple(
        Better(f"difficulty weighting is best by {word}", "difficulty_entropy", OTHERS, word, higher="fpr" not in word)
        for word in ("auroc, max_logit", "auroc, entropy", "fpr95, max_logit", "fpr95, entropy")
    ),
    paper=(CIFAR100_RESNET34, IMAGENET_RESNET34),
)
