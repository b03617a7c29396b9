"""Figure 10 of Cui et al. (2023): the weights s(x, y) at different T."""

from benchmarks.lib.claims import Limit
from benchmarks.lib.items import Item
from benchmarks.lib.quantities import together, weight_shares

ITEM = Item(
    name="p1-figure10",
    title="histograms of the weights at different temperatures",
    source="Cui et al. (2023), Figure 10",
    setting="CIFAR-100 and ImageNet, CLIP features; histograms that fill (0, 1); no numbers are printed.",
    here="RMD on EfficientNet-Lite0 features, raw, scaled to [0, 1] and as ranks; shares of all samples (train, val "
    "and test together) by tenths of the weight.",
    axes={"": "weight"},
    values=together(
        weight_shares((0.7, 5.0, 20.0), "none"), weight_shares((0.3, 0.7), "minmax"), weight_shares((0.3, 0.7), "rank")
    ),
    baseline="",
    claims=(
        Limit("eq. 10 with raw RMD and T = 0.7 spreads the weights over (0, 1)", "T = 0.7, none", "mean weight", 0.02),
        Limit(
            "asked here: eq. 10 with T = 0.7 does so once the scores are scaled to [0, 1]",
            "T = 0.7, minmax",
            "mean weight",
            0.02,
        ),
    ),
)
