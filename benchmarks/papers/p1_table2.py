"""Table 2 of Cui et al. (2023): accuracy and ECE of seven losses."""

from benchmarks.lib.claims import Better
from benchmarks.lib.items import Item, reported
from benchmarks.lib.quantities import clean
from benchmarks.papers.settings import CIFAR10_RESNET34, CIFAR100_RESNET34, IMAGENET_RESNET34

METHODS = (
    "cross_entropy",
    "label_smoothing",
    "focal",
    "logit_norm",
    "entropy_regularization",
    "poly1",
    "difficulty_entropy",
)
OTHERS = METHODS[:-1]

ITEM = Item(
    name="p1-table2",
    title="accuracy and ECE of sample-difficulty-aware and other losses",
    source="Cui et al. (2023), Table 2",
    setting="ResNet-34, CIFAR-10, CIFAR-100 and ImageNet, five seeds, equal-mass ECE with 15 bins.",
    here="ResNet-18, CIFAR-10 and Tiny-ImageNet-32; difficulty by RMD on "
    "EfficientNet-Lite0 features instead of CLIP, as ranks with T = 0.3, for raw RMD with T = 0.7 vanishes.",
    methods=METHODS,
    smoke=("cross_entropy", "entropy_regularization", "difficulty_entropy"),
    values=clean(METHODS, ("accuracy", "ece_mass")),
    reported=(
        *reported(
            "CIFAR-10",
            "accuracy; ece_mass",
            {
                "cross_entropy": (93.79, 3.980),
                "label_smoothing": (94.47, 3.816),
                "focal": (93.82, 3.520),
                "logit_norm": (94.51, 3.542),
                "entropy_regularization": (94.34, 3.198),
                "poly1": (94.66, 5.283),
                "difficulty_entropy": (95.67, 1.212),
            },
        ),
        *reported(
            "CIFAR-100",
            "accuracy; ece_mass",
            {
                "cross_entropy": (76.79, 7.251),
                "label_smoothing": (76.48, 6.363),
                "focal": (76.74, 4.110),
                "logit_norm": (74.32, 6.232),
                "entropy_regularization": (77.32, 4.092),
                "poly1": (77.39, 8.554),
                "difficulty_entropy": (78.58, 3.410),
            },
        ),
        *reported(
            "ImageNet",
            "accuracy; ece_mass",
            {
                "cross_entropy": (73.56, 5.301),
                "label_smoothing": (73.69, 3.994),
                "focal": (72.82, 4.901),
                "logit_norm": (73.21, 2.625),
                "entropy_regularization": (73.68, 3.720),
                "poly1": (74.02, 7.882),
                "difficulty_entropy": (74.11, 1.602),
            },
        ),
    ),
    claims=(
        Better("difficulty weighting has a lower ECE than all six others", "difficulty_entropy", OTHERS, "ece_mass"),
        Better(
            "difficulty weighting has a higher accuracy than all six others",
            "difficulty_entropy",
            OTHERS,
            "accuracy",
            higher=True,
        ),
        Better("PolyLoss has a higher ECE than cross-entropy", "cross_entropy", ("poly1",), "ece_mass"),
    ),
    paper=(CIFAR10_RESNET34, CIFAR100_RESNET34, IMAGENET_RESNET34),
)
