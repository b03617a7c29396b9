"""Table 1 of Luo et al. (2021): oracles trained with four losses."""

from benchmarks.lib.claims import Better, Limit, Untestable
from benchmarks.lib.items import Item, reported
from benchmarks.papers import trusted
from benchmarks.papers.settings import LUO

PREDICTORS = (*trusted.LOSSES, *trusted.BROADCAST)
ORDER = "accuracy; fpr95; aupr_error; aupr_success; auroc; tpr; tnr"
CE, FOCAL = trusted.BROADCAST

ITEM = Item(
    name="p3-table1",
    title="four losses of oracles",
    source="Luo et al. (2021), Table 1",
    setting="ViT and ResNet-50 as classifiers and oracles, ImageNet, three runs. The released code pulls every "
    "sample of cross-entropy and focal loss to the batch's mean (broadcasting), and AUPR-Error is computed with "
    "the score's sign left as it is.",
    here="ResNet-18 on CIFAR-10, oracles on its features, learnt on validation data; losses as defined, and "
    "with the released code's broadcasting; AUPR-Error with the right sign.",
    values=lambda study: trusted.table(study, ("clean",), PREDICTORS),
    origin=trusted.origin,
    datasets=("cifar10",),
    baseline="binary_cross_entropy",
    reported=(
        *reported(
            "ImageNet, ViT of ViT",
            ORDER,
            {
                CE: (83.90, 93.01, 15.80, 84.25, 51.62, 99.99, 0.02),
                FOCAL: (83.90, 93.37, 15.31, 84.76, 52.38, 99.15, 1.35),
                "tcp": (83.90, 88.38, 12.96, 87.63, 60.14, 99.73, 0.00),
                "steep_slope": (83.90, 80.48, 10.26, 93.01, 73.68, 87.52, 38.27),
            },
        ),
        *reported(
            "ImageNet, ResNet of ResNet",
            ORDER,
            {
                CE: (68.72, 94.84, 29.41, 70.79, 52.36, 100.00, 0.00),
                FOCAL: (68.72, 95.16, 29.92, 70.23, 51.43, 99.86, 0.08),
                "tcp": (68.72, 88.81, 24.46, 77.79, 62.73, 99.23, 0.00),
                "steep_slope": (68.72, 86.21, 22.53, 81.88, 67.92, 79.20, 42.09),
            },
        ),
    ),
    claims=(
        Better("steep slope ranks best", "steep_slope", ("binary_cross_entropy", "binary_focal", "tcp"), "auroc", True),
        Better(
            "steep slope has the highest TNR",
            "steep_slope",
            ("binary_cross_entropy", "binary_focal", "tcp"),
            "tnr",
            True,
        ),
        Limit("cross-entropy oracles trust everything: TNR below 1 %", "binary_cross_entropy", "tnr", high=1.0),
        Limit(
            "asked here: cross-entropy oracles with the released code's broadcasting have a TNR below 1 %",
            CE,
            "tnr",
            high=1.0,
        ),
        Untestable("the numbers on ImageNet", "ImageNet and its ViT cannot be had here"),
    ),
    paper=LUO,
)
