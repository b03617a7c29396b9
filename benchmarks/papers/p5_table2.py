"""Table 2 of Ghosh et al. (2022): test error."""

from benchmarks.lib.claims import Better
from benchmarks.lib.items import Item, reported
from benchmarks.lib.quantities import clean
from benchmarks.papers.settings import GHOSH_ALL

OTHERS = ("cross_entropy", "brier", "mmce_weighted_released", "label_smoothing", "flsd53")
METHODS = (*OTHERS, "adafocal")


def row(*errors: float) -> dict[str, tuple[float]]:
    """The paper's errors as accuracies."""
    return {name: (round(100 - error, 2),) for name, error in zip(METHODS, errors, strict=True)}


ITEM = Item(
    name="p5-table2",
    title="accuracy (the paper prints errors)",
    source="Ghosh et al. (2022), Table 2",
    setting="CIFAR-10, CIFAR-100, Tiny-ImageNet, ImageNet, 20 Newsgroups; five runs.",
    here="ResNet-18, CIFAR-10 and Tiny-ImageNet-32.",
    methods=METHODS,
    smoke=("cross_entropy", "adafocal"),
    values=clean(METHODS, ("accuracy",)),
    reported=(
        *reported("CIFAR-10, ResNet-50", "accuracy", row(4.95, 5.00, 4.99, 5.29, 4.98, 5.30)),
        *reported("CIFAR-10, ResNet-110", "accuracy", row(4.89, 5.48, 5.40, 5.52, 5.42, 5.27)),
        *reported("CIFAR-100, ResNet-50", "accuracy", row(23.30, 23.39, 23.20, 23.43, 23.22, 22.60)),
        *reported("Tiny-ImageNet, ResNet-50", "accuracy", row(42.90, 46.27, 45.96, 44.42, 45.12, 45.49)),
        *reported("Tiny-ImageNet, ResNet-110", "accuracy", row(42.53, 45.47, 42.22, 44.13, 44.88, 44.55)),
    ),
    claims=(
        Better(
            "on CIFAR-10 cross-entropy is more accurate than AdaFocal",
            "cross_entropy",
            ("adafocal",),
            "accuracy",
            True,
            on=("cifar10",),
        ),
    ),
    paper=GHOSH_ALL,
)
