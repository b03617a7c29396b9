"""Figure 6 of Ghosh et al. (2022): out-of-distribution detection by entropy."""

from benchmarks.lib.claims import Better, Untestable
from benchmarks.lib.items import Item
from benchmarks.lib.quantities import ood_detection
from benchmarks.papers.settings import GHOSH_ALL

METHODS = ("cross_entropy", "focal", "flsd53", "adafocal")

ITEM = Item(
    name="p5-figure6",
    title="telling out-of-distribution images by entropy",
    source="Ghosh et al. (2022), Figure 6",
    setting="ResNet-110 and Wide-ResNet-26-10 on CIFAR-10 against SVHN and CIFAR-10-C (Gaussian noise 5); ROC curves.",
    here="ResNet-18; CIFAR-10 against Tiny-ImageNet-32's other classes and textures; Tiny-ImageNet-32 against "
    "textures. Seeds 0 and 1 of cross_entropy and adafocal also saw 50 freight cars among 8,250 OOD images.",
    methods=METHODS,
    datasets=("cifar10", "tiny32"),
    smoke=("cross_entropy", "adafocal"),
    values=ood_detection(METHODS, ("entropy",)),
    claims=(
        Better(
            "AdaFocal's entropy tells better than focal and FLSD-53",
            "adafocal",
            ("focal", "flsd53"),
            "auroc, entropy",
            True,
        ),
        Untestable("AdaFocal's entropy tells SVHN from CIFAR-10 better", "SVHN cannot be had here"),
    ),
    paper=GHOSH_ALL,
)
