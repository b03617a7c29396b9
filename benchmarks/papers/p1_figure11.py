"""Figure 11 of Cui et al. (2023): entropy and confidence of misclassified samples."""

from benchmarks.lib.claims import Better
from benchmarks.lib.items import Item
from benchmarks.lib.quantities import misclassified
from benchmarks.papers.settings import CIFAR10_RESNET34, CIFAR100_RESNET34, IMAGENET_RESNET34

OTHERS = ("cross_entropy", "label_smoothing", "focal", "logit_norm", "entropy_regularization", "poly1")
METHODS = (*OTHERS, "difficulty_entropy")

ITEM = Item(
    name="p1-figure11",
    title="how sure the networks are of their errors",
    source="Cui et al. (2023), Figure 11",
    setting="ResNet-34, CIFAR-10, CIFAR-100 and ImageNet; bars without printed numbers.",
    here="ResNet-18, CIFAR-10 and Tiny-ImageNet-32; entropy in nats.",
    methods=METHODS,
    smoke=("cross_entropy", "difficulty_entropy"),
    values=misclassified(METHODS),
    claims=(
        Better("errors have the highest entropy", "difficulty_entropy", OTHERS, "entropy of errors", higher=True),
        Better("errors have the lowest confidence", "difficulty_entropy", OTHERS, "confidence of errors"),
    ),
    paper=(CIFAR10_RESNET34, CIFAR100_RESNET34, IMAGENET_RESNET34),
)
