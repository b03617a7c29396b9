"""Table 5 of Cui et al. (2023): how much the strength alpha matters."""

from benchmarks.lib.claims import Better
from benchmarks.lib.items import Item, Study, reported
from benchmarks.lib.quantities import clean
from benchmarks.lib.values import Value
from benchmarks.papers.settings import IMAGENET_RESNET34

CONSTANT = ("entropy_regularization", "entropy_017", "entropy_029")
WEIGHTED = ("difficulty_entropy", "difficulty_rank_06", "difficulty_rank_10")
METHODS = ("cross_entropy", *CONSTANT, *WEIGHTED)


def values(study: Study) -> list[Value]:
    """Accuracy and ECE at each strength, and the range of the ECE over the strengths."""
    values = clean(METHODS, ("accuracy", "ece_mass"))(study)
    for family, names in (("constant weight", CONSTANT), ("difficulty weight", WEIGHTED)):
        for dataset in study.datasets:
            for seed in {value.seed for value in values if value.dataset == dataset}:
                at = [
                    v.value
                    for v in values
                    if (v.dataset, v.seed, v.quantity) == (dataset, seed, "ece_mass") and v.method in names
                ]
                if len(at) == len(names):
                    values.append(Value(dataset, family, "range of ece_mass", seed, max(at) - min(at)))
    return values


ITEM = Item(
    name="p1-table5",
    title="accuracy and ECE under different strengths of the entropy term",
    source="Cui et al. (2023), Table 5",
    setting="ResNet-34, ImageNet, alpha from 0 to 0.3 for the constant and the difficulty weight.",
    here="ResNet-18, CIFAR-10; alpha 0.3, 0.6 and 1.0 with weights of mean 0.29, and constant "
    "weights of the same mean strength, 0.1 (0.09), 0.17 and 0.29.",
    methods=METHODS,
    datasets=("cifar10",),
    smoke=METHODS,
    values=values,
    reported=reported(
        "ImageNet",
        "accuracy; ece_mass",
        {
            "cross_entropy": (73.56, 5.301),
            "constant 0.05": (73.59, 3.308),
            "constant 0.10": (73.68, 3.720),
            "constant 0.15": (73.76, 10.19),
            "constant 0.20": (73.78, 15.24),
            "constant 0.25": (73.81, 25.22),
            "constant 0.30": (73.88, 33.26),
            "difficulty 0.05": (73.89, 1.855),
            "difficulty 0.10": (73.91, 1.851),
            "difficulty 0.15": (74.08, 1.596),
            "difficulty 0.20": (74.11, 1.602),
            "difficulty 0.25": (74.13, 1.612),
            "difficulty 0.30": (73.98, 1.667),
        },
    ),
    claims=(
        Better(
            "the ECE of difficulty weights depends less on the strength",
            "difficulty weight",
            ("constant weight",),
            "range of ece_mass",
        ),
    ),
    paper=(IMAGENET_RESNET34,),
)
