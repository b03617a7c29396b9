"""Table 9 of Cui et al. (2023): difficulty weighting with several networks."""

from dataclasses import replace

from benchmarks.lib.claims import Better
from benchmarks.lib.items import Item, Study, reported
from benchmarks.lib.results import measured
from benchmarks.lib.values import Value
from benchmarks.papers.settings import IMAGENET_RESNET34

METHODS = ("cross_entropy", "entropy_regularization", "difficulty_entropy")
MODELS = ("resnet18", "resnet34")


def values(study: Study) -> list[Value]:
    """Accuracy and ECE by network."""
    values = []
    networks = dict.fromkeys(result["cell"]["model"] for _, result in study.results.cells.values())
    for model in networks if study.scale == "paper" else MODELS if study.scale == "lite" else ("small_cnn",):
        rows = measured(study.results, study.datasets, METHODS, ("accuracy", "ece_mass"), model=model)
        values += [replace(value, dataset=f"{value.dataset}, {model}") for value in rows]
    return values


ITEM = Item(
    name="p1-table9",
    title="several networks",
    source="Cui et al. (2023), Table 9",
    setting="ImageNet; ResNet-18, -34, -50, DenseNet-121, Wide-ResNet-50x2.",
    here="CIFAR-10; ResNet-18 and ResNet-34.",
    methods=METHODS,
    models=MODELS,
    datasets=("cifar10",),
    values=values,
    across=True,
    reported=(
        *reported(
            "ImageNet, ResNet-18",
            "accuracy; ece_mass",
            {
                "cross_entropy": (70.46, 4.354),
                "entropy_regularization": (70.59, 2.773),
                "difficulty_entropy": (70.82, 1.554),
            },
        ),
        *reported(
            "ImageNet, ResNet-34",
            "accuracy; ece_mass",
            {
                "cross_entropy": (73.56, 5.301),
                "entropy_regularization": (73.68, 3.720),
                "difficulty_entropy": (74.11, 1.602),
            },
        ),
        *reported(
            "ImageNet, ResNet-50",
            "accuracy; ece_mass",
            {
                "cross_entropy": (76.08, 3.661),
                "entropy_regularization": (76.11, 3.212),
                "difficulty_entropy": (76.59, 1.671),
            },
        ),
        *reported(
            "ImageNet, DenseNet-121",
            "accuracy; ece_mass",
            {
                "cross_entropy": (75.60, 3.963),
                "entropy_regularization": (75.73, 3.010),
                "difficulty_entropy": (75.99, 1.613),
            },
        ),
        *reported(
            "ImageNet, WRN-50x2",
            "accuracy; ece_mass",
            {
                "cross_entropy": (76.79, 4.754),
                "entropy_regularization": (76.81, 2.957),
                "difficulty_entropy": (77.23, 1.855),
            },
        ),
    ),
    claims=(
        Better(
            "difficulty weighting has the lowest ECE with every network",
            "difficulty_entropy",
            ("cross_entropy", "entropy_regularization"),
            "ece_mass",
        ),
        Better(
            "difficulty weighting has the highest accuracy with every network",
            "difficulty_entropy",
            ("cross_entropy", "entropy_regularization"),
            "accuracy",
            higher=True,
        ),
    ),
    paper=tuple(
        replace(IMAGENET_RESNET34, model=model)
        for model in ("resnet18_imagenet", "resnet34_imagenet", "resnet50_imagenet")
    ),
)
