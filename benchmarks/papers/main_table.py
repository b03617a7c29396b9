"""The main table: every method, every metric, before and after calibration."""

from benchmarks.lib.claims import Better, Count, Limit
from benchmarks.lib.grid import METHODS
from benchmarks.lib.items import Item
from benchmarks.lib.quantities import clean, passed, shifted, together
from benchmarks.lib.results import CALIBRATED
from confide.results import LEVEL

NAMES = tuple(method.name for method in METHODS)
METRICS = ("accuracy", "ece_mass", "ece", "classwise_ece", "nll", "brier", "aurc", "auroc", "calibration_p")
SHIFTED = tuple(method.name for method in METHODS if method.shifted)
OTHERS = tuple(name for name in NAMES if name != "confide")
ON = ("cifar10",)

ITEM = Item(
    name="main",
    title="all losses on clean data, before and after calibration, and under 16 corruptions",
    source="Confide",
    setting="none: this is the table of this library; the claims are the targets of its recipe `confide` on CIFAR-10.",
    here="ResNet-18, one-cycle, bfloat16, crop and flip; CIFAR-10 (45,000 train, 5,000 val, 10,000 test) and "
    "Tiny-ImageNet-32 (80,000, 10,000, 10,000, all from its training file: the official validation images were "
    "shrunk by another filter, benchmarks/results/findings.md). Options of the papers; nothing chosen on test data. "
    "The recipe `confide` and the rows `..._averaged` also average their weights over an epoch and their predictions "
    "over the mirror image, no other row does. Calibrated is by temperature, of the recipe by one for each fifth of "
    "difficulty, fitted on val; corruptions: mean over 16 x 5 of 2,000 test images. The test on all seeds together "
    "sees the same images several times and so rejects rather too often.",
    methods=NAMES,
    staged=True,
    smoke=("cross_entropy", "focal"),
    values=together(
        clean(NAMES, METRICS, ("raw", CALIBRATED)),
        passed(NAMES, ("raw", CALIBRATED)),
        shifted(SHIFTED, curve=False),
        shifted(SHIFTED, stage=CALIBRATED, curve=False),
    ),
    claims=(
        Better(
            "the recipe is more accurate than cross-entropy",
            "confide",
            ("cross_entropy",),
            "accuracy",
            higher=True,
            on=ON,
        ),
        Count(
            "calibrated, the calibration test rejects at most one of five seeds of the recipe",
            "confide",
            f"calibration_p, {CALIBRATED}",
            LEVEL,
            4,
            5,
            on=ON,
        ),
        Limit(
            "it does not reject all seeds of the recipe together",
            "confide",
            f"p of all seeds together, {CALIBRATED}",
            LEVEL,
            on=ON,
        ),
        Better("the recipe has the lowest NLL of all", "confide", OTHERS, f"nll, {CALIBRATED}", on=ON),
        Better("the recipe has the lowest AURC of all", "confide", OTHERS, f"aurc, {CALIBRATED}", on=ON),
    ),
    words={"reproduced": "met", "partly": "open", "not": "missed", "not testable here": "not run"},
)
