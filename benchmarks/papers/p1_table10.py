"""Table 10 of Cui et al. (2023): difficulty from networks trained on the task itself."""

from benchmarks.lib.claims import Better
from benchmarks.lib.items import Item, reported
from benchmarks.lib.quantities import clean
from benchmarks.papers.settings import IMAGENET_RESNET34

METHODS = (
    "cross_entropy",
    "entropy_regularization",
    "difficulty_task_rmd",
    "difficulty_task_loss",
    "difficulty_entropy",
)

ITEM = Item(
    name="p1-table10",
    title="difficulty from networks of the task",
    source="Cui et al. (2023), Table 10",
    setting="ResNet-34 on ImageNet; RMD and loss of ResNet-34, -50 and -101 trained on ImageNet.",
    here="ResNet-18 on CIFAR-10; RMD and loss of a ResNet-18 trained on it with cross-entropy (`python -m benchmarks "
    "prepare --task`, `python -m benchmarks grid --parts task`), beside RMD on EfficientNet-Lite0 and the constant "
    "weight.",
    datasets=("cifar10",),
    methods=METHODS,
    values=clean(METHODS, ("accuracy", "ece_mass")),
    reported=reported(
        "ImageNet",
        "accuracy; ece_mass",
        {
            "RMD, ResNet-34": (73.73, 3.298),
            "RMD, ResNet-50": (73.78, 2.996),
            "RMD, ResNet-101": (73.88, 2.882),
            "loss, ResNet-34": (73.58, 3.624),
            "loss, ResNet-50": (73.61, 2.997),
            "loss, ResNet-101": (73.75, 2.783),
        },
    ),
    claims=(
        Better(
            "pre-trained features give a lower ECE than the task's own network",
            "difficulty_entropy",
            ("difficulty_task_rmd", "difficulty_task_loss"),
            "ece_mass",
        ),
        Better(
            "difficulty from the task's own network has a lower ECE than the constant weight",
            "difficulty_task_rmd",
            ("entropy_regularization",),
            "ece_mass",
        ),
    ),
    paper=(IMAGENET_RESNET34,),
)
