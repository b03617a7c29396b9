"""Figure 5 of Ghosh et al. (2022): how AdaFocal's gammas move."""

from benchmarks.lib.claims import Limit
from benchmarks.lib.items import Item
from benchmarks.lib.quantities import logged
from benchmarks.papers.settings import GHOSH_ALL

BINS = (0, 3, 7, 11, 14)

ITEM = Item(
    name="p5-figure5",
    title="AdaFocal's gamma per bin along the epochs",
    source="Ghosh et al. (2022), Figure 5",
    setting="ResNet-50 on CIFAR-10 and ImageNet; curves. On CIFAR-10 gamma ends above 1 in the bins shown.",
    here="ResNet-18 on CIFAR-10 and Tiny-ImageNet-32.",
    methods=("adafocal",),
    axes={"": "epoch"},
    values=logged(("adafocal",), {f"gamma{k}": f"gamma of bin {k}" for k in BINS}),
    baseline="",
    claims=tuple(
        Limit(
            f"gamma of bin {k} ends above 1 (the paper: CIFAR-10)",
            "adafocal",
            f"gamma of bin {k}, last",
            1.0,
            on=("cifar10",),
        )
        for k in (0, 7, 14)
    ),
    paper=GHOSH_ALL,
)
