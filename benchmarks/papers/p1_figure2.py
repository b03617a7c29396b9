"""Figure 2 of Cui et al. (2023): a network errs most on the samples that RMD calls hard."""

import numpy as np

from benchmarks.lib.claims import Limit, Trend
from benchmarks.lib.items import Item, Study, reported
from benchmarks.lib.quantities import by_difficulty, cells_of, sample_facts, together
from benchmarks.lib.values import Value
from benchmarks.papers.settings import IMAGENET_RESNET34


def hardest(study: Study) -> list[Value]:
    """Error of the hardest hundredth, as the paper's first group of 500 of 50,000, and of the easiest."""
    values = []
    for dataset, method, seed, result in cells_of(study, ("cross_entropy",)):
        correct, _, _ = sample_facts(study, result)
        for kind in ("difficulty", "md"):
            scores = study.results.split_scores(result, kind)
            if scores is not None:
                order = np.argsort(scores, kind="stable")
                count = max(1, len(order) // 100)
                error = 100 * float(1 - correct[order[-count:]].mean())
                values.append(Value(dataset, method, f"error by {kind}, hardest hundredth", seed, error))
    return values


ITEM = Item(
    name="p1-figure2",
    title="error rate by difficulty",
    source="Cui et al. (2023), Figure 2",
    setting="ResNet-34, ImageNet validation images in groups of 500 by RMD of four pre-trained networks.",
    here="ResNet-18 trained with cross-entropy; test images in ten groups of equal size by RMD (and MD) on "
    "EfficientNet-Lite0 features, 1 the easiest. The scores know the label, as in the paper.",
    methods=("cross_entropy",),
    axes={"": "tenth of the test images, from easy to hard"},
    values=together(by_difficulty(("cross_entropy",), ("difficulty", "md")), hardest),
    reported=reported(
        "ImageNet", "error by difficulty, hardest hundredth", {"cross_entropy, hardest 500 by CLIP": (90.0,)}
    ),
    claims=(
        Trend("the error rises with RMD", ("cross_entropy",), "error by difficulty", least=0.95),
        Limit(
            "of the hardest samples close to 90 % (at least 80) are misread",
            "cross_entropy",
            "error by difficulty, hardest hundredth",
            80,
        ),
    ),
    paper=(IMAGENET_RESNET34,),
)
