"""Figure 4 of Albiero et al.: errors of other networks along the confusion of a small one."""

from benchmarks.lib.claims import Limit, Trend
from benchmarks.lib.items import Item, Study
from benchmarks.lib.values import Value
from benchmarks.papers import confused
from benchmarks.papers.settings import CONFUSION


def values(study: Study) -> list[Value]:
    """Error of every network per band of the smallest network's confusion."""
    values = []
    names = confused.models(study)
    for dataset in study.datasets:
        held = {name: confused.recorded(study, dataset, name) for name in names}
        scored = held.get(confused.scorer(study))
        if scored is None:
            continue
        score = confused.confusion(scored[0])
        for name, recording in held.items():
            if recording is not None:
                bands = confused.error_by_band(score, confused.errors(*recording))
                values += [Value(dataset, name, "error", 0, error, round(x, 3)) for x, error, _ in bands]
                values.append(Value(dataset, name, "Pearson of error and confusion", 0, confused.pearson(bands)))
    return values


ITEM = Item(
    name="p4-figure4",
    title="errors of large networks along the confusion of a small one",
    source="Albiero et al. (2023), Figure 4",
    setting="18 networks on ImageNet along the confusion of ResNet-50; the correlation is called strong.",
    here="CIFAR-10; ResNet-18 and PreResNet-56 along the confusion of a small convolutional network, in bits.",
    methods=("recorded",),
    models=confused.LITE,
    smoke_models=confused.SMOKE,
    datasets=("cifar10",),
    axes={"": "confusion of the small network, bits"},
    values=values,
    baseline="",
    across=True,
    claims=(
        Trend("errors of larger networks rise with the confusion of a small one", ("resnet18", "preresnet56"), "error"),
        Limit("they correlate strongly (Pearson at least 0.8)", "resnet18", "Pearson of error and confusion", 0.8),
    ),
    paper=CONFUSION,
)
