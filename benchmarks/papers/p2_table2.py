"""Table 2 of Zhou et al.: accuracy and ECE."""

from benchmarks.lib.claims import Better
from benchmarks.lib.items import Item, reported
from benchmarks.lib.quantities import clean
from benchmarks.papers.settings import ZHOU_ALL

OTHERS = ("cross_entropy", "flsd53", "inverse_focal", "dual_focal_released", "kde_xe", "aurc")
METHODS = (*OTHERS, "dual_focal", "selective_au_released", "selective_au")


def row(accuracy: tuple[float, ...], ece: tuple[float, ...]) -> dict[str, tuple[float, float]]:
    """The paper's columns; its dual focal and selective AU are the released code."""
    return dict(zip((*OTHERS, "selective_au_released"), zip(accuracy, ece, strict=True), strict=True))


ITEM = Item(
    name="p2-table2",
    title="accuracy and ECE",
    source="Zhou et al. (2025), Table 2",
    setting="CIFAR-10, CIFAR-100 and Tiny-ImageNet, ten networks, three seeds, 15 bins of equal width.",
    here="ResNet-18, CIFAR-10 and Tiny-ImageNet-32; coverage and smoothness of the paper's ResNet-50.",
    methods=METHODS,
    smoke=("cross_entropy", "inverse_focal", "selective_au"),
    values=clean(METHODS, ("accuracy", "ece")),
    reported=(
        *reported(
            "CIFAR-10, ResNet-50",
            "accuracy; ece",
            row((94.51, 93.58, 94.36, 94.09, 94.46, 93.32, 92.52), (3.00, 3.98, 4.05, 1.27, 3.09, 2.53, 1.69)),
        ),
        *reported(
            "CIFAR-10, ResNet-110",
            "accuracy; ece",
            row((94.47, 93.80, 93.92, 93.72, 94.68, 93.05, 92.40), (3.04, 4.44, 4.80, 2.08, 2.80, 2.44, 1.50)),
        ),
        *reported(
            "CIFAR-10, WRN",
            "accuracy; ece",
            row((95.88, 95.49, 95.98, 95.74, 95.84, 94.93, 95.32), (1.99, 5.74, 2.44, 3.96, 2.05, 1.88, 1.54)),
        ),
        *reported(
            "CIFAR-10, PreResNet-56",
            "accuracy; ece",
            row((93.97, 92.97, 94.14, 93.72, 94.09, 92.63, 92.75), (2.62, 5.50, 3.89, 2.07, 2.57, 1.75, 0.92)),
        ),
        *reported(
            "CIFAR-100, ResNet-50",
            "accuracy; ece",
            row((74.37, 76.41, 75.64, 75.46, 76.25, 75.40, 74.69), (7.18, 4.51, 10.70, 4.20, 9.59, 8.43, 2.44)),
        ),
        *reported(
            "Tiny-ImageNet, ViT-Small",
            "accuracy; ece",
            row((82.94, 81.39, 82.87, 82.08, 83.26, 83.10, 83.59), (4.65, 4.14, 6.28, 3.19, 3.02, 1.44, 1.44)),
        ),
        *reported(
            "Tiny-ImageNet, Swin-Tiny",
            "accuracy; ece",
            row((85.36, 84.31, 85.64, 85.42, 85.36, 82.35, 84.07), (1.62, 7.69, 3.00, 1.60, 1.71, 2.02, 1.42)),
        ),
    ),
    claims=(
        Better("selective AU has a lower ECE than cross-entropy", "selective_au", ("cross_entropy",), "ece"),
        Better("in most cases selective AU has the lowest ECE", "selective_au", OTHERS, "ece"),
        Better(
            "selective AU as released has a lower ECE than cross-entropy",
            "selective_au_released",
            ("cross_entropy",),
            "ece",
        ),
        Better("in most cases selective AU as released has the lowest ECE", "selective_au_released", OTHERS, "ece"),
        Better("inverse focal has a higher ECE than cross-entropy", "cross_entropy", ("inverse_focal",), "ece"),
        Better(
            "asked here: selective AU has a lower ECE without the released code's double softmax than with it",
            "selective_au",
            ("selective_au_released",),
            "ece",
        ),
    ),
    paper=ZHOU_ALL,
)
