"""Table 7 of Cui et al. (2023): RMD against the correctness ranking loss."""

from benchmarks.lib.claims import Better
from benchmarks.lib.items import Item, reported
from benchmarks.lib.quantities import clean
from benchmarks.papers.settings import CIFAR10_RESNET34, CIFAR100_RESNET34, IMAGENET_RESNET34

METHODS = ("cross_entropy", "crl", "difficulty_entropy")

ITEM = Item(
    name="p1-table7",
    title="difficulty weighting against the correctness ranking loss",
    source="Cui et al. (2023), Table 7",
    setting="ResNet-34, CIFAR-10, CIFAR-100 and ImageNet.",
    here="ResNet-18, CIFAR-10 and Tiny-ImageNet-32.",
    methods=METHODS,
    values=clean(METHODS, ("accuracy", "ece_mass")),
    reported=(
        *reported("CIFAR-10", "accuracy; ece_mass", {"crl": (94.06, 0.957), "difficulty_entropy": (95.67, 1.212)}),
        *reported("CIFAR-100", "accuracy; ece_mass", {"crl": (76.71, 3.877), "difficulty_entropy": (78.58, 3.410)}),
        *reported("ImageNet", "accuracy; ece_mass", {"crl": (73.60, 2.272), "difficulty_entropy": (74.11, 1.602)}),
    ),
    claims=(
        Better(
            "difficulty weighting is more accurate than CRL", "difficulty_entropy", ("crl",), "accuracy", higher=True
        ),
        Better(
            "on CIFAR-10 CRL has a lower ECE than difficulty weighting",
            "crl",
            ("difficulty_entropy",),
            "ece_mass",
            on=("cifar10",),
        ),
        Better(
            "with more classes (the paper: CIFAR-100, ImageNet) difficulty weighting has a lower ECE than CRL",
            "difficulty_entropy",
            ("crl",),
            "ece_mass",
            on=("tiny32",),
        ),
    ),
    paper=(CIFAR10_RESNET34, CIFAR100_RESNET34, IMAGENET_RESNET34),
)
