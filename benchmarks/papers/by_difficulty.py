"""A temperature for each fifth of difficulty against one temperature, for every loss."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.lib.cells import numbers
from benchmarks.lib.claims import Limit, Look
from benchmarks.lib.grid import METHODS
from benchmarks.lib.items import Item, Study
from benchmarks.lib.quantities import cells_of
from benchmarks.lib.titles import scaled
from benchmarks.lib.values import Value
from confide import calibrators

NAMES = tuple(method.name for method in METHODS)
CLAIMED = tuple(name for name in NAMES if name not in ("selective_au", "kde_xe"))
"""Those that learn."""
METRICS = ("nll", "aurc", "ece_mass")
BANDS = 5


def calibrated(study: Study) -> list[Value]:
    """Metrics after one temperature, after one for each band of difficulty, and how much the second lowers them."""
    values_of_cells = []
    for dataset, method, seed, result in cells_of(study, NAMES):
        hard = {split: study.results.split_scores(result, "bands", split) for split in ("val", "test")}
        predictions = {split: study.results.predictions(result, split) for split in hard}
        if not predictions["val"].outputs.all_classes or any(values is None for values in hard.values()):
            continue
        val, test = (predictions[split].with_column(calibrators.DIFFICULTY, values) for split, values in hard.items())
        overall = calibrators.fit("temperature", val)
        several = calibrators.fit("temperature", val, by=calibrators.DIFFICULTY, bands=BANDS)
        before, after = (numbers(apply(test), METRICS) for apply in (overall, several))
        for metric in METRICS:
            first, second = (scaled(metric, row[metric]) for row in (before, after))
            named = {"one temperature": first, "by difficulty": second, "lowered by": first - second}
            values_of_cells += [
                Value(dataset, method, f"{metric}, {word}", seed, value) for word, value in named.items()
            ]
    return values_of_cells


@dataclass(frozen=True)
class Lowered:
    """The interval of what a metric is lowered by lies above zero, for every loss."""

    text: str
    metric: str

    def looks(self, values: Sequence[Value]) -> list[Look]:
        """One look per dataset and loss."""
        limits = (Limit(self.text, name, f"{self.metric}, lowered by", 0.0) for name in CLAIMED)
        return [look for limit in limits for look in limit.looks(values)]


ITEM = Item(
    name="by-difficulty",
    title="one temperature, and one for each fifth of difficulty",
    source="Confide",
    setting="none: this is a finding of this library, made on other images (benchmarks/results/findings.md, "
    "point 3 of the rule) and looked at here on test images.",
    here="CIFAR-10, ResNet-18; both fitted on the kept validation logits. Difficulty: relative Mahalanobis distance of "
    "EfficientNet-Lite0 features to the likeliest class, fitted on the training images; no label is read. Fifths of "
    "the validation images, their temperatures drawn towards the overall one by cross-validation.",
    datasets=("cifar10",),
    methods=NAMES,
    smoke=("cross_entropy", "focal"),
    values=calibrated,
    claims=(
        Lowered("a temperature by difficulty lowers the NLL of every loss that learns", "nll"),
        Lowered("a temperature by difficulty lowers the AURC of every loss that learns", "aurc"),
    ),
    words={"reproduced": "met", "partly": "open", "not": "missed", "not testable here": "not run"},
)
