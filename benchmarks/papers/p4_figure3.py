"""Figure 3 of Albiero et al.: do the samples that confuse one network confuse another."""

from scipy import stats

from benchmarks.lib.claims import Limit
from benchmarks.lib.items import Item, Study
from benchmarks.lib.values import Value
from benchmarks.papers import confused
from benchmarks.papers.settings import CONFUSION


def values(study: Study) -> list[Value]:
    """Kendall's tau between the scores of every two networks."""
    values = []
    names = confused.models(study)
    for dataset in study.datasets:
        held = {name: confused.recorded(study, dataset, name) for name in names}
        scores = {name: confused.confusion(recording[0]) for name, recording in held.items() if recording is not None}
        for i, first in enumerate(scores):
            for second in list(scores)[i + 1 :]:
                tau = float(stats.kendalltau(scores[first], scores[second]).statistic)
                values.append(Value(dataset, f"{first} and {second}", "Kendall's tau", 0, tau))
    return values


ITEM = Item(
    name="p4-figure3",
    title="rank correlation of confusion between networks",
    source="Albiero et al. (2023), Figure 3",
    setting="ImageNet; ResNet-50 against ResNet-152, RegNet and ViT; called very strong within and strong "
    "across families.",
    here="CIFAR-10; confusion over the seeds of ResNet-18, a small convolutional network and PreResNet-56; 5,000 "
    "validation samples.",
    methods=("recorded",),
    models=confused.LITE,
    smoke_models=confused.SMOKE,
    datasets=("cifar10",),
    values=values,
    baseline="",
    across=True,
    claims=(
        Limit("two residual networks agree (tau at least 0.5)", "resnet18 and preresnet56", "Kendall's tau", 0.5),
        Limit(
            "a small network foretells a large one (tau at least 0.5)", "resnet18 and small_cnn", "Kendall's tau", 0.5
        ),
    ),
    paper=CONFUSION,
)
