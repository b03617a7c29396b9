"""The main table: every method, every metric, before and after temperature scaling."""

from confide.bench.claims import Better, Limit
from confide.bench.figures import clean, passed, shifted, together
from confide.bench.item import Item
from confide.bench.methods import METHODS

NAMES = tuple(one.name for one in METHODS)
METRICS = ("accuracy", "ece_mass", "ece", "classwise_ece", "nll", "brier", "aurc", "auroc", "calibration_p")
SHIFTED = tuple(one.name for one in METHODS if one.shifted)
OTHERS = tuple(name for name in NAMES if name not in ("confide", "adaptive_difficulty"))

ITEM = Item(
    name="main",
    title="all losses on clean data, before and after temperature scaling, and under 16 corruptions",
    source="Confide",
    setting="none: this is the table of this library.",
    here="ResNet-18, one-cycle, bfloat16, crop and flip; CIFAR-10 (45,000 / 5,000 / "
    "10,000, five seeds) and Tiny-ImageNet-32 (90,000 / 10,000 / 10,000, three seeds). Options of the papers; "
    "nothing chosen on test data.",
    methods=NAMES,
    smoke=("cross_entropy", "focal"),
    values=together(
        clean(NAMES, METRICS, ("raw", "temperature")),
        passed(NAMES),
        shifted(SHIFTED, curve=False),
        shifted(SHIFTED, stage="temperature", curve=False),
    ),
    claims=(
        Limit("the calibration test rejects at most one of five seeds", "confide", "seeds not rejected", 80.0),
        Limit("nor does it reject all seeds together", "confide", "p of all seeds together", 0.05),
        Better("the recipe has the lowest NLL after its calibrator", "confide", OTHERS, "nll, temperature"),
        Better("the recipe has the lowest AURC", "confide", OTHERS, "aurc, temperature"),
        Better(
            "the recipe is more accurate than cross-entropy", "confide", ("cross_entropy",), "accuracy", higher=True
        ),
    ),
)
