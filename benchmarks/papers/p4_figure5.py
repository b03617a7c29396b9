"""Figure 5 of Albiero et al.: how many epochs and seeds a confusion score needs."""

from benchmarks.lib.claims import Limit, Trend
from benchmarks.lib.items import Item, Study
from benchmarks.lib.values import Value
from benchmarks.papers import confused
from benchmarks.papers.settings import CONFUSION

SHARES = (0.125, 0.25, 0.5, 1.0)


def values(study: Study) -> list[Value]:
    """Mean and deviation of the scores of the first epochs, for one seed and for all."""
    values = []
    for dataset in study.datasets:
        model = confused.models(study)[0]
        held = confused.recorded(study, dataset, model)
        if held is None:
            continue
        total = held[0].shape[1]
        wide = {}
        for seeds in dict.fromkeys((1, len(held[0]))):
            for share in SHARES:
                count = max(1, round(share * total))
                score = confused.confusion(held[0], seeds=seeds, epochs=range(count))
                name = f"{seeds} seed" if seeds == 1 else "all seeds"
                values.append(Value(dataset, name, "mean confusion", 0, float(score.mean()), float(count)))
                values.append(Value(dataset, name, "deviation", 0, float(score.std()), float(count)))
            wide[seeds] = float(score.std())
        if len(wide) == 2:
            ratio = wide[len(held[0])] / max(wide[1], 1e-12)
            values.append(Value(dataset, "all seeds", "deviation over that of one seed", 0, ratio))
    return values


ITEM = Item(
    name="p4-figure5",
    title="confusion from fewer epochs and seeds",
    source="Albiero et al. (2023), Figure 5",
    setting="5, 10, 20 and 100 epochs of ResNet-50 on ImageNet, 1 and 3 seeds; histograms.",
    here="the first eighth, quarter and half of the epochs and all of them, ResNet-18 on CIFAR-10.",
    methods=("recorded",),
    models=("resnet18",),
    datasets=("cifar10",),
    axes={"": "epochs"},
    values=values,
    baseline="",
    across=True,
    claims=(
        Trend("fewer epochs shift the scores up", ("1 seed", "all seeds"), "mean confusion", -1),
        Limit("more seeds widen the distribution", "all seeds", "deviation over that of one seed", 1.0),
    ),
    paper=CONFUSION[:1],
)
