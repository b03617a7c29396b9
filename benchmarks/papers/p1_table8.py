"""Table 8 of Cui et al. (2023): k-means, Mahalanobis and relative Mahalanobis distance as difficulty."""

from benchmarks.lib.claims import Better
from benchmarks.lib.items import Item, reported
from benchmarks.lib.quantities import clean
from benchmarks.papers.settings import IMAGENET_RESNET34

METHODS = ("cross_entropy", "difficulty_kmeans", "difficulty_md", "difficulty_entropy")

ITEM = Item(
    name="p1-table8",
    title="three measures of difficulty",
    source="Cui et al. (2023), Table 8",
    setting="ResNet-34 on ImageNet, distances in CLIP-ViT-B's features.",
    here="ResNet-18 on CIFAR-10, distances in EfficientNet-Lite0's features, all as ranks with T = 0.3, alpha 0.3.",
    methods=METHODS,
    datasets=("cifar10",),
    values=clean(METHODS, ("accuracy", "ece_mass")),
    reported=reported(
        "ImageNet",
        "accuracy; ece_mass",
        {
            "difficulty_kmeans": (73.78, 2.241),
            "difficulty_md": (73.71, 2.125),
            "difficulty_entropy": (74.11, 1.613),
        },
    ),
    claims=(
        Better("RMD gives the lowest ECE", "difficulty_entropy", ("difficulty_kmeans", "difficulty_md"), "ece_mass"),
        Better(
            "RMD gives the highest accuracy",
            "difficulty_entropy",
            ("difficulty_kmeans", "difficulty_md"),
            "accuracy",
            True,
        ),
    ),
    paper=(IMAGENET_RESNET34,),
)
