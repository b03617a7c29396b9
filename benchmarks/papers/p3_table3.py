"""Table 3 of Luo et al. (2021): oracles on images of other domains."""

from benchmarks.lib.claims import Better
from benchmarks.lib.items import Item, reported
from benchmarks.papers import trusted
from benchmarks.papers.settings import LUO

PREDICTORS = ("mcp", *trusted.LOSSES, *trusted.BROADCAST)
ORDER = "accuracy; fpr95; aupr_error; aupr_success; auroc; tpr; tnr"
OTHERS = ("binary_cross_entropy", "binary_focal", "tcp")
CE, FOCAL = trusted.BROADCAST

ITEM = Item(
    name="p3-table3",
    title="stylised, attacked and blurred images",
    source="Luo et al. (2021), Table 3",
    setting="ViT on ImageNet; style transfer, functional adversarial attack, defocus blur at severity 5.",
    here="ResNet-18 on CIFAR-10; stylised by colour statistics, recolouring attack, defocus blur at severity 5.",
    values=lambda study: trusted.table(study, ("stylised", "attacked", "defocus_blur"), PREDICTORS, spoilt=True),
    origin=trusted.origin_spoilt,
    datasets=("cifar10",),
    baseline="binary_cross_entropy",
    reported=(
        *reported(
            "ImageNet, stylised",
            ORDER,
            {
                CE: (15.94, 95.52, 84.18, 15.86, 49.07, 99.99, 0.02),
                FOCAL: (15.94, 95.96, 85.90, 14.30, 46.01, 99.71, 0.25),
                "tcp": (15.94, 93.42, 80.17, 21.25, 57.29, 99.27, 0.00),
                "steep_slope": (15.94, 89.38, 75.08, 34.39, 67.68, 44.42, 81.22),
            },
        ),
        *reported(
            "ImageNet, attacked",
            ORDER,
            {
                CE: (6.14, 94.35, 93.70, 6.32, 51.28, 99.97, 0.06),
                FOCAL: (6.15, 93.67, 93.48, 6.56, 52.39, 99.06, 1.43),
                "tcp": (6.11, 93.94, 92.77, 7.55, 55.81, 99.71, 0.00),
                "steep_slope": (6.16, 90.07, 90.09, 13.07, 65.36, 87.10, 24.33),
            },
        ),
        *reported(
            "ImageNet, defocus_blur",
            ORDER,
            {
                CE: (31.83, 94.46, 68.56, 31.47, 50.13, 99.15, 1.07),
                FOCAL: (31.83, 94.98, 66.87, 33.24, 51.28, 96.70, 3.26),
                "tcp": (31.83, 93.50, 64.67, 36.05, 54.27, 96.71, 4.35),
                "steep_slope": (31.83, 90.18, 57.95, 48.80, 64.34, 77.79, 37.29),
            },
        ),
    ),
    claims=(
        Better("steep slope ranks best in every domain", "steep_slope", OTHERS, "auroc", True),
        Better("steep slope has the highest TNR in every domain", "steep_slope", OTHERS, "tnr", True),
    ),
    paper=LUO,
)
