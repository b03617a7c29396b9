"""Table 1 of Ghosh et al. (2022): equal-mass ECE before and after temperature scaling."""

from benchmarks.lib.claims import Better, Limit
from benchmarks.lib.items import Item, Study, reported
from benchmarks.lib.quantities import cells_of, clean, together
from benchmarks.lib.values import Value
from benchmarks.papers.settings import GHOSH_ALL

OTHERS = ("cross_entropy", "brier", "mmce_weighted_released", "label_smoothing", "flsd53")
METHODS = (*OTHERS, "adafocal")
ORDER = "ece_mass; ece_mass, temperature; temperature"


def temperatures(study: Study) -> list[Value]:
    """The fitted temperatures."""
    return [
        Value(dataset, method, "temperature", seed, float(result["calibrators"]["temperature"]["temperature"]))
        for dataset, method, seed, result in cells_of(study, METHODS)
    ]


def row(
    before: tuple[float, ...], after: tuple[float, ...], t: tuple[float, ...]
) -> dict[str, tuple[float, float, float]]:
    """The paper's columns."""
    return dict(zip(METHODS, zip(before, after, t, strict=True), strict=True))


ITEM = Item(
    name="p5-table1",
    title="equal-mass ECE of AdaFocal and others",
    source="Ghosh et al. (2022), Table 1",
    setting="CIFAR-10, CIFAR-100, Tiny-ImageNet, ImageNet, 20 Newsgroups; five runs; T minimises the ECE.",
    here="ResNet-18, CIFAR-10 and Tiny-ImageNet-32; the loss is averaged, not summed and clipped; T minimises the NLL.",
    methods=METHODS,
    smoke=("cross_entropy", "flsd53", "adafocal"),
    values=together(clean(METHODS, ("ece_mass",), ("raw", "temperature")), temperatures),
    reported=(
        *reported(
            "CIFAR-10, ResNet-50",
            ORDER,
            row(
                (4.24, 1.78, 4.52, 3.86, 1.63, 0.66),
                (2.11, 1.24, 2.12, 2.97, 1.42, 0.44),
                (2.52, 1.11, 2.65, 0.92, 1.08, 1.06),
            ),
        ),
        *reported(
            "CIFAR-10, ResNet-110",
            ORDER,
            row(
                (4.39, 2.63, 5.16, 4.44, 1.90, 0.71),
                (2.27, 1.75, 2.53, 4.44, 1.25, 0.73),
                (2.74, 1.21, 2.83, 1.00, 1.20, 1.02),
            ),
        ),
        *reported(
            "CIFAR-100, ResNet-50",
            ORDER,
            row(
                (17.17, 6.57, 15.28, 7.86, 5.64, 1.36),
                (3.71, 3.66, 2.32, 4.10, 2.97, 1.36),
                (2.16, 1.13, 1.80, 1.13, 1.17, 1.0),
            ),
        ),
        *reported(
            "Tiny-ImageNet, ResNet-50",
            ORDER,
            row(
                (7.81, 3.42, 8.49, 9.12, 2.86, 2.61),
                (3.73, 2.98, 4.25, 4.66, 2.48, 2.29),
                (1.45, 0.93, 1.36, 0.78, 1.05, 0.96),
            ),
        ),
        *reported(
            "Tiny-ImageNet, ResNet-110",
            ORDER,
            row(
                (8.11, 3.74, 7.40, 9.36, 1.88, 1.85),
                (1.93, 2.83, 1.95, 4.51, 1.88, 1.85),
                (1.20, 0.91, 1.20, 0.83, 1.0, 1.0),
            ),
        ),
    ),
    claims=(
        Better("AdaFocal has the lowest ECE before temperature scaling", "adafocal", OTHERS, "ece_mass"),
        Better("AdaFocal has the lowest ECE after temperature scaling", "adafocal", OTHERS, "ece_mass, temperature"),
        Limit("AdaFocal's temperature is close to 1", "adafocal", "temperature", 0.9, 1.1),
    ),
    paper=GHOSH_ALL,
)
