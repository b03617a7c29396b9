"""Figure 6 of Zhou et al.: coverage and smoothness of selective AU, on validation data."""

from benchmarks.lib.claims import Better
from benchmarks.lib.grid import SWEEP
from benchmarks.lib.items import Item, Study
from benchmarks.lib.quantities import cells_of
from benchmarks.lib.titles import scaled
from benchmarks.lib.values import Value
from benchmarks.papers.settings import ZHOU_CIFAR10

METHODS = ("cross_entropy", "selective_au", *(method.name for method in SWEEP))


def values(study: Study) -> list[Value]:
    """Validation accuracy, ECE and NLL."""
    return [
        Value(dataset, method, f"val {metric}", seed, scaled(metric, result["validation"]["raw"][metric]))
        for dataset, method, seed, result in cells_of(study, METHODS)
        for metric in ("accuracy", "ece", "nll")
    ]


ITEM = Item(
    name="p2-figure6",
    title="validation performance over coverage and smoothness",
    source="Zhou et al. (2025), Figure 6",
    setting="PreResNet-56 on CIFAR-10, for which coverage 0.75 with nu 0.1 is chosen; a map of colours without printed "
    "numbers.",
    here="ResNet-18 on CIFAR-10: coverage 0.25, 0.5, 0.75 with nu 0.01 and 0.1, beside 0.88 with 0.1, which "
    "the paper chose for ResNet-50.",
    methods=METHODS,
    datasets=("cifar10",),
    smoke=("cross_entropy", "selective_au"),
    values=values,
    claims=(
        Better(
            "the coverage and nu that are chosen (for ResNet-50 0.88 and 0.1) have the lowest validation ECE",
            "selective_au",
            tuple(method.name for method in SWEEP),
            "val ece",
        ),
    ),
    paper=(ZHOU_CIFAR10[-1],),
)
