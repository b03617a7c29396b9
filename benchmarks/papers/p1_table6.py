"""Table 6 of Cui et al. (2023): which pre-trained network scores the difficulty."""

from benchmarks.lib.claims import Better, Untestable
from benchmarks.lib.items import Item, reported
from benchmarks.lib.quantities import clean
from benchmarks.papers.settings import IMAGENET_RESNET34

METHODS = ("cross_entropy", "difficulty_entropy")

ITEM = Item(
    name="p1-table6",
    title="difficulty from different pre-trained networks",
    source="Cui et al. (2023), Table 6",
    setting="ResNet-34 on ImageNet; RMD on ViT-B, MAE, DINOv2, CLIP-R50 and CLIP-ViT-B features.",
    here="ResNet-18 on CIFAR-10 and Tiny-ImageNet-32; RMD on EfficientNet-Lite0 features (ImageNet, with labels). "
    "`python -m benchmarks prepare --extractor clip` scores with another network where its weights are at hand.",
    methods=METHODS,
    values=clean(METHODS, ("accuracy", "ece_mass")),
    reported=reported(
        "ImageNet",
        "accuracy; ece_mass",
        {
            "cross_entropy": (73.56, 5.301),
            "ViT-B": (73.59, 2.701),
            "MAE-ViT-B": (73.81, 1.925),
            "DINOv2": (74.01, 1.773),
            "CLIP-R50": (74.05, 1.882),
            "CLIP-ViT-B": (74.11, 1.602),
        },
    ),
    claims=(
        Better(
            "difficulty from a pre-trained network lowers the ECE", "difficulty_entropy", ("cross_entropy",), "ece_mass"
        ),
        Untestable("CLIP is the best scorer", "the weights of CLIP, DINOv2, MAE and ViT-B cannot be had here"),
    ),
    paper=(IMAGENET_RESNET34,),
)
