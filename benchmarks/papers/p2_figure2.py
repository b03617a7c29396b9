"""Figure 2 of Zhou et al.: reliability diagrams."""

from benchmarks.lib.claims import Better, Limit
from benchmarks.lib.items import Item
from benchmarks.lib.quantities import reliability
from benchmarks.papers.settings import ZHOU_CIFAR10

OTHERS = ("cross_entropy", "flsd53", "inverse_focal", "dual_focal_released", "kde_xe", "aurc")
METHODS = (*OTHERS, "selective_au_released", "selective_au")

ITEM = Item(
    name="p2-figure2",
    title="reliability diagrams",
    source="Zhou et al. (2025), Figure 2",
    setting="PreResNet-56 on CIFAR-10; diagrams, ECE below each.",
    here="ResNet-18 on CIFAR-10; bins of fewer than five samples are left out.",
    methods=METHODS,
    datasets=("cifar10",),
    smoke=("cross_entropy", "aurc"),
    axes={"": "confidence"},
    values=reliability(METHODS),
    claims=(
        Limit("focal loss is overconfident, as the text says", "flsd53", "confidence_gap", 0.0),
        Limit("inverse focal loss is underconfident, as the text says", "inverse_focal", "confidence_gap", high=0.0),
        Limit("AURC is underconfident, as the text says", "aurc", "confidence_gap", high=0.0),
        Better("selective AU has the lowest ECE", "selective_au", OTHERS, "ece"),
        Better("selective AU as released has the lowest ECE", "selective_au_released", OTHERS, "ece"),
    ),
    paper=(ZHOU_CIFAR10[-1],),
)
