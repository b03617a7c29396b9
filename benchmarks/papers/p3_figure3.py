"""Figure 3 of Luo et al. (2021): histograms of the oracles' confidences."""

from benchmarks.lib.claims import Better
from benchmarks.lib.items import Item, Study
from benchmarks.lib.values import Value
from benchmarks.papers import trusted
from benchmarks.papers.settings import LUO

PREDICTORS = (*trusted.LOSSES, *trusted.BROADCAST)


def values(study: Study) -> list[Value]:
    """Shares of right and wrong predictions per tenth of trust, and how far apart they lie."""
    values = []
    for row in trusted.rows(study):
        name = trusted.name_of(row)
        if row["domain"] != "clean" or row["predictor"] not in PREDICTORS:
            continue
        for kind in ("right", "wrong"):
            shares = enumerate(row[kind])
            values += [
                Value(name, row["predictor"], f"share of {kind}", row["seed"], 100 * v, round((k + 0.5) / 10, 2))
                for k, v in shares
            ]
        if row.get("separability_kl") is not None:
            values.append(Value(name, row["predictor"], "separability (KL)", row["seed"], row["separability_kl"]))
    return values


ITEM = Item(
    name="p3-figure3",
    title="trust in right and in wrong predictions",
    source="Luo et al. (2021), Figure 3",
    setting="ViT and ResNet-50 on ImageNet; histograms without printed numbers.",
    here="ResNet-18 on CIFAR-10; tenths of [0, 1].",
    axes={"": "trust"},
    values=values,
    origin=trusted.origin,
    datasets=("cifar10",),
    baseline="binary_cross_entropy",
    claims=(
        Better(
            "steep slope separates right from wrong best",
            "steep_slope",
            ("binary_cross_entropy", "binary_focal", "tcp"),
            "separability (KL)",
            True,
        ),
    ),
    paper=LUO,
)
