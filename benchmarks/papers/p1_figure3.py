"""Figure 3 of Cui et al. (2023): ECE under corruption."""

from benchmarks.lib.claims import Better
from benchmarks.lib.items import Item
from benchmarks.lib.quantities import shifted
from benchmarks.papers.settings import IMAGENET_RESNET34

METHODS = (
    "cross_entropy",
    "entropy_regularization",
    "selective_au",
    "selective_au_released",
    "adafocal",
    "difficulty_entropy",
    "confide",
)
OTHERS = ("cross_entropy", "entropy_regularization")

ITEM = Item(
    name="p1-figure3",
    title="ECE under 16 corruptions at five severities",
    source="Cui et al. (2023), Figure 3",
    setting="ResNet-34, ImageNet-C; boxes over 16 corruptions; no numbers are printed.",
    here="ResNet-18; 2,000 test images under the same 16 corruptions; quartiles over the corruptions.",
    methods=METHODS,
    smoke=("cross_entropy", "difficulty_entropy"),
    axes={"": "severity of the corruption"},
    values=shifted(METHODS),
    claims=(
        Better(
            "difficulty weighting has the lowest ECE under shift", "difficulty_entropy", OTHERS, "ece_mass, mean of all"
        ),
    ),
    paper=(IMAGENET_RESNET34,),
)
