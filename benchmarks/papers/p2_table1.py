"""Table 1 of Zhou et al.: class-wise ECE before and after temperature scaling."""

from benchmarks.lib.claims import Better
from benchmarks.lib.items import Item, reported
from benchmarks.lib.quantities import clean
from benchmarks.papers.settings import ZHOU_ALL

OTHERS = ("cross_entropy", "flsd53", "inverse_focal", "dual_focal_released", "kde_xe", "aurc")
METHODS = (*OTHERS, "dual_focal", "selective_au_released", "selective_au")
ORDER = "classwise_ece; classwise_ece, temperature"


def row(*values: float) -> dict[str, tuple[float, float]]:
    """The paper's columns, raw then after temperature scaling; its dual focal and selective AU are the
    released code."""
    names = (*OTHERS, "selective_au_released")
    return {name: (values[k], values[k + 7]) for k, name in enumerate(names)}


ITEM = Item(
    name="p2-table1",
    title="class-wise ECE",
    source="Zhou et al. (2025), Table 1",
    setting="CIFAR-10, CIFAR-100 and Tiny-ImageNet, ten networks, three seeds; T minimises the ECE on a grid.",
    here="ResNet-18, CIFAR-10 and Tiny-ImageNet-32; T minimises the NLL. Selective AU and dual focal in the "
    "paper's form and in that of the released code, which made the paper's numbers.",
    methods=METHODS,
    smoke=("cross_entropy", "aurc", "selective_au"),
    values=clean(METHODS, ("classwise_ece",), ("raw", "temperature")),
    reported=(
        *reported(
            "CIFAR-10, ResNet-50",
            ORDER,
            row(0.665, 0.881, 0.849, 0.478, 0.677, 0.575, 0.581, 0.597, 0.497, 0.778, 0.466, 0.605, 0.577, 0.495),
        ),
        *reported(
            "CIFAR-10, PreResNet-56",
            ORDER,
            row(0.611, 1.176, 0.824, 0.577, 0.611, 0.611, 0.363, 0.592, 0.407, 0.805, 0.448, 0.592, 0.643, 0.335),
        ),
        *reported(
            "CIFAR-100, ResNet-50",
            ORDER,
            row(0.235, 0.215, 0.272, 0.213, 0.252, 0.237, 0.180, 0.196, 0.182, 0.204, 0.189, 0.205, 0.193, 0.175),
        ),
        *reported(
            "Tiny-ImageNet, ViT-Small",
            ORDER,
            row(0.126, 0.143, 0.129, 0.128, 0.123, 0.120, 0.121, 0.121, 0.135, 0.121, 0.129, 0.121, 0.121, 0.120),
        ),
    ),
    claims=(
        Better("in most cases selective AU has the lowest class-wise ECE", "selective_au", OTHERS, "classwise_ece"),
        Better(
            "in most cases selective AU as released has the lowest class-wise ECE",
            "selective_au_released",
            OTHERS,
            "classwise_ece",
        ),
        Better("FL-53 has a higher class-wise ECE than cross-entropy", "cross_entropy", ("flsd53",), "classwise_ece"),
    ),
    paper=ZHOU_ALL,
)
