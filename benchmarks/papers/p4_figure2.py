"""Figure 2 of Albiero et al.: distribution of confusion scores, and error along them."""

from benchmarks.lib.claims import Limit, Trend
from benchmarks.lib.items import Item, Study
from benchmarks.lib.values import Value
from benchmarks.papers import confused
from benchmarks.papers.settings import CONFUSION


def values(study: Study) -> list[Value]:
    """Share of samples and error per band of confusion, and their correlation."""
    values = []
    for dataset in study.datasets:
        model = confused.models(study)[0]
        held = confused.recorded(study, dataset, model)
        if held is None:
            continue
        bands = confused.error_by_band(confused.confusion(held[0]), confused.errors(*held))
        for x, error, share in bands:
            values += [
                Value(dataset, model, "error", 0, error, round(x, 3)),
                Value(dataset, model, "share", 0, share, round(x, 3)),
            ]
        values.append(Value(dataset, model, "Pearson of error and confusion", 0, confused.pearson(bands)))
        values.append(Value(dataset, model, "share in the lower half", 0, sum(b[2] for b in bands[: len(bands) // 2])))
    return values


ITEM = Item(
    name="p4-figure2",
    title="confusion scores and errors",
    source="Albiero et al. (2023), Figure 2",
    setting="three ResNet-50, 100 epochs of ImageNet; scores of training and validation samples.",
    here="ResNet-18 on CIFAR-10; scores of the 5,000 validation samples over its seeds, in bits, ten bands "
    "of equal width.",
    methods=("recorded",),
    models=("resnet18",),
    datasets=("cifar10",),
    axes={"": "confusion, bits"},
    values=values,
    baseline="",
    across=True,
    claims=(
        Trend("the error rises with confusion", ("resnet18",), "error"),
        Limit(
            "error and confusion correlate strongly (Pearson at least 0.8)",
            "resnet18",
            "Pearson of error and confusion",
            0.8,
        ),
        Limit("easy samples dominate", "resnet18", "share in the lower half", 50.0),
    ),
    paper=CONFUSION[:1],
)
