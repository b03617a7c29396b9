"""Figure 6 of Albiero et al.: correlation with the error of the best network, by epochs and seeds."""

from benchmarks.lib.claims import Limit
from benchmarks.lib.items import Item, Study
from benchmarks.lib.values import Value
from benchmarks.papers import confused
from benchmarks.papers.settings import CONFUSION


def values(study: Study) -> list[Value]:
    """Pearson's correlation of the best network's error with the small one's confusion."""
    values = []
    for dataset in study.datasets:
        held = {name: confused.recorded(study, dataset, name) for name in confused.models(study)}
        known = {name: recording for name, recording in held.items() if recording is not None}
        small = confused.scorer(study)
        if small not in known or len(known) < 2:
            continue
        best = min(known, key=lambda name: float(confused.errors(*known[name]).mean()))
        probs, wrong = known[small][0], confused.errors(*known[best])
        last = {}
        for seeds in dict.fromkeys((1, len(probs))):
            name = "1 seed" if seeds == 1 else "all seeds"
            for count in sorted({max(1, probs.shape[1] // part) for part in (8, 4, 2, 1)}):
                score = confused.confusion(probs, seeds=seeds, epochs=range(count))
                last[name] = confused.pearson(confused.error_by_band(score, wrong))
                values.append(Value(dataset, name, "Pearson of error and confusion", 0, last[name], float(count)))
        if len(last) == 2:
            gain = last["all seeds"] - last["1 seed"]
            values.append(Value(dataset, "all seeds", "Pearson, all seeds less one", 0, gain))
    return values


ITEM = Item(
    name="p4-figure6",
    title="confusion and the error of the most robust network",
    source="Albiero et al. (2023), Figure 6",
    setting="confusion of ResNet-50 and error of ViT-H-14 on ImageNet, 5 to 100 epochs, 1 and 3 seeds.",
    here="confusion of a small convolutional network and error of the best of three on CIFAR-10.",
    methods=("recorded",),
    models=confused.LITE,
    smoke_models=confused.SMOKE,
    datasets=("cifar10",),
    axes={"": "epochs"},
    values=values,
    baseline="",
    across=True,
    claims=(Limit("more seeds give a stronger correlation", "all seeds", "Pearson, all seeds less one", 0.0),),
    paper=CONFUSION,
)
