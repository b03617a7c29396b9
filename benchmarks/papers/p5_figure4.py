"""Figure 4 of Ghosh et al. (2022): error and ECE through the training."""

from benchmarks.lib.claims import Better
from benchmarks.lib.items import Item, Study
from benchmarks.lib.quantities import logged, together
from benchmarks.lib.values import Value
from benchmarks.papers.settings import GHOSH_ALL

METHODS = ("cross_entropy", "flsd53", "adafocal")
CURVES = logged(METHODS, {"val_accuracy": "error on val", "val_ece": "ece on val"})


def later_half(study: Study) -> list[Value]:
    """Mean of the curves over the later half of the epochs, which datasets have in different number."""
    sums: dict[tuple[str, str, str, int], list[float]] = {}
    rows = CURVES(study)
    last: dict[str, float] = {}
    for point in rows:
        last[point.dataset] = max(last.get(point.dataset, 0), point.x or 0)
    for point in rows:
        if point.x is not None and point.x > last[point.dataset] / 2:
            sums.setdefault((point.dataset, point.method, f"{point.quantity}, later half", point.seed), []).append(
                point.value
            )
    return [Value(*place, sum(values) / len(values)) for place, values in sums.items()]


ITEM = Item(
    name="p5-figure4",
    title="error and ECE along the epochs",
    source="Ghosh et al. (2022), Figure 4",
    setting="ResNet-50; error and equal-mass ECE on test after every epoch, five runs; curves.",
    here="ResNet-18; on validation data, which the logs keep, with 15 bins of equal width.",
    methods=METHODS,
    axes={"": "epoch"},
    values=together(CURVES, later_half),
    claims=(
        Better(
            "AdaFocal keeps a lower ECE throughout", "adafocal", ("cross_entropy", "flsd53"), "ece on val, later half"
        ),
    ),
    paper=GHOSH_ALL,
)
