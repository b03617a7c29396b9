"""Table 2 of Luo et al. (2021): small data sets."""

from benchmarks.lib.claims import Better, Untestable
from benchmarks.lib.items import Item, reported
from benchmarks.papers import trusted
from benchmarks.papers.settings import LUO_SMALL

ORDER = "accuracy; fpr95; aupr_error; aupr_success; auroc; tpr; tnr"

ITEM = Item(
    name="p3-table2",
    title="trust predictors on CIFAR-10",
    source="Luo et al. (2021), Table 2",
    setting="VGG-16 on CIFAR-10 and a small network on MNIST; one run.",
    here="ResNet-18 on CIFAR-10, three seeds. `benchmarks/results/trust_cifar10.md` has more predictors and "
    "paired tests.",
    values=lambda study: trusted.table(study, ("clean",), ("mcp", "tcp", "steep_slope")),
    origin=trusted.origin,
    datasets=("cifar10",),
    baseline="mcp",
    reported=reported(
        "CIFAR-10, VGG-16",
        ORDER,
        {
            "mcp": (92.19, 47.50, 45.36, 99.19, 91.53, 99.64, 6.66),
            "mc_dropout": (92.19, 49.02, 46.40, 99.27, 92.08, None, None),
            "trust_score": (92.19, 55.70, 38.10, 98.76, 88.47, None, None),
            "tcp": (92.19, 44.94, 49.94, 99.24, 92.12, 99.77, 0.00),
            "steep_slope": (92.19, 44.69, 50.28, 99.26, 92.22, 98.46, 28.04),
        },
    ),
    claims=(
        Better("steep slope ranks errors better than the confidence", "steep_slope", ("mcp",), "auroc", True),
        Better("steep slope has a higher TNR than TCP", "steep_slope", ("tcp",), "tnr", True),
        Untestable("the numbers on MNIST", "no cell trains on MNIST"),
    ),
    paper=LUO_SMALL,
)
