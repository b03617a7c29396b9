"""Figure 4 of Cui et al. (2023): accuracy against rejection rate."""

from benchmarks.lib.claims import Better
from benchmarks.lib.items import Item
from benchmarks.lib.quantities import rejection
from benchmarks.papers.settings import IMAGENET_RESNET34

METHODS = ("cross_entropy", "entropy_regularization", "difficulty_entropy")

ITEM = Item(
    name="p1-figure4",
    title="accuracy of what is kept when the most uncertain are rejected",
    source="Cui et al. (2023), Figure 4",
    setting="ResNet-34, ImageNet, rejection by predictive entropy; no numbers are printed.",
    here="ResNet-18, CIFAR-10 and Tiny-ImageNet-32, rejection by entropy.",
    methods=METHODS,
    axes={"": "share rejected"},
    values=rejection(METHODS),
    claims=(
        Better(
            "difficulty weighting is more accurate at the same rejection rate",
            "difficulty_entropy",
            ("cross_entropy", "entropy_regularization"),
            "mean accuracy over rates",
            higher=True,
        ),
    ),
    paper=(IMAGENET_RESNET34,),
)
