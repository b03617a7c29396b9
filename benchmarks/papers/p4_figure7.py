"""Figure 7 of Albiero et al.: group DRO on groups of difficulty."""

from benchmarks.lib.claims import Better
from benchmarks.lib.items import Item, Study, reported
from benchmarks.lib.quantities import by_difficulty, clean, together
from benchmarks.lib.values import Value
from benchmarks.papers.settings import CONFUSION

METHODS = ("cross_entropy", "group_dro")
CURVES = by_difficulty(METHODS)


def parts(study: Study) -> list[Value]:
    """Error of the hardest tenth and of the others."""
    sums: dict[tuple[str, str, str, int], list[float]] = {}
    for point in CURVES(study):
        name = "error of the hardest tenth" if point.x == 10 else "error of the others"
        sums.setdefault((point.dataset, point.method, name, point.seed), []).append(point.value)
    return [Value(*place, sum(values) / len(values)) for place, values in sums.items()]


ITEM = Item(
    name="p4-figure7",
    title="group DRO on easy and hard samples",
    source="Albiero et al. (2023), Figure 7",
    setting="ResNet-50 on ImageNet, two groups split at a confusion of 5 bits.",
    here="ResNet-18 on CIFAR-10, two groups of equal size by RMD; test images in ten groups by RMD.",
    methods=METHODS,
    datasets=("cifar10",),
    axes={"": "tenth of the test images, from easy to hard"},
    values=together(CURVES, parts, clean(METHODS, ("accuracy",))),
    reported=reported(
        "ImageNet, confusion below 5, from 5",
        "error of the others; error of the hardest tenth",
        {"cross_entropy": (25.0, 81.9), "group_dro": (25.8, 80.6)},
    ),
    claims=(
        Better("group DRO errs less on the hardest", "group_dro", ("cross_entropy",), "error of the hardest tenth"),
        Better("group DRO errs more on the others", "cross_entropy", ("group_dro",), "error of the others"),
    ),
    paper=CONFUSION[:1],
)
