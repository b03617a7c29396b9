"""Figure 2 of Cui et al. (2023): a network errs most on the samples that RMD calls hard."""

from benchmarks.papers.settings import IMAGENET_RESNET34
from confide.bench.claims import Limit, Trend
from confide.bench.figures import by_difficulty, together
from confide.bench.item import Item, Study, reported
from confide.bench.values import Value


def hardest(study: Study) -> list[Value]:
    """Error of the hardest tenth, as a number of its own."""
    rows = by_difficulty(("cross_entropy",), ("difficulty", "md"))(study)
    return [
        Value(one.dataset, one.method, f"{one.quantity}, hardest tenth", one.seed, one.value)
        for one in rows
        if one.x == 10
    ]


ITEM = Item(
    name="p1-figure2",
    title="error rate by difficulty",
    source="Cui et al. (2023), Figure 2",
    setting="ResNet-34, ImageNet validation images in groups of 500 by RMD of four pre-trained networks.",
    here="ResNet-18 trained with cross-entropy; test images in ten groups of equal size by RMD (and MD) on "
    "EfficientNet-Lite0 features, 1 the easiest. The scores know the label, as in the paper.",
    methods=("cross_entropy",),
    values=together(by_difficulty(("cross_entropy",), ("difficulty", "md")), hardest),
    reported=reported(
        "ImageNet", "error by difficulty, hardest tenth", {"cross_entropy, hardest 500 by CLIP": (90.0,)}
    ),
    claims=(
        Trend("the error rises with RMD", ("cross_entropy",), "error by difficulty", least=0.95),
        Limit(
            "of the hardest samples close to 90 % are misread",
            "cross_entropy",
            "error by difficulty, hardest tenth",
            80,
        ),
    ),
    paper=(IMAGENET_RESNET34,),
)
