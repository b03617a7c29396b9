"""Figure 3 of Zhou et al.: which confidence score selective AU ranks by."""

from benchmarks.lib.claims import Better
from benchmarks.lib.items import Item
from benchmarks.lib.quantities import clean
from benchmarks.papers.settings import ZHOU_ALL

METHODS = ("cross_entropy", "selective_au", "selective_au_margin", "selective_au_entropy")

ITEM = Item(
    name="p2-figure3",
    title="selective AU with three confidence scores",
    source="Zhou et al. (2025), Figure 3",
    setting="CIFAR-10, CIFAR-100 and Tiny-ImageNet; bars without printed numbers. In the released code the "
    "entropy score is degenerate: every confidence is 1.",
    here="ResNet-18 on CIFAR-10, scores as the paper defines them.",
    methods=METHODS,
    datasets=("cifar10",),
    values=clean(METHODS, ("accuracy", "ece")),
    claims=(
        Better(
            "the largest probability is the best score (the paper: on CIFAR-100, but for WRN)",
            "selective_au",
            ("selective_au_margin", "selective_au_entropy"),
            "ece",
        ),
    ),
    paper=ZHOU_ALL,
)
